//! The workloads, and the table they are printed in.

use std::sync::Arc;

use anyhow::Result;
use bench_json_parse::JsonParse;
use bench_keyed_count::KeyedCount;
use cofferdam::connector::{ByteSize, Distribution, GeneratorOptions, KeyFormat, Shape, blackhole_sink, generator_source};
use cofferdam::execution::{JobDefinition, NodeParts};
use cofferdam_dataflow::checkpoint::config::CheckpointConfig;
use cofferdam_dataflow::checkpoint::memory::MemoryStorage;
use cofferdam_dataflow::graph::spec::{InputSpec, JobSpec, NodeKind, NodeSpec};
use cofferdam_dataflow::guest::{EffectLimits, GuestFactory};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::key_group::MaxParallelism;
use cofferdam_tests::native::NativeFactory;

use crate::measure::{Run, run};

pub(crate) fn print_all(only: Option<&str>, records: u64, runs: u32) -> Result<()> {
    println!(
        "workload | operator | checkpoints | parallelism | M records/s | M records/CPU-s | CPU ns/record | peak MB | pause p99 us"
    );
    for keys in [100_000, 1_000_000] {
        for interval in [None, Some(1000)] {
            for parallelism in [1, 2] {
                let name = format!("keyed-count-{keys}");
                if only.is_some_and(|only| !name.contains(only)) {
                    continue;
                }
                let best = (0..runs)
                    .map(|_| keyed_count(records, keys, interval, parallelism))
                    .collect::<Result<Vec<_>>>()?
                    .into_iter()
                    .min_by(|a, b| a.cpu.cmp(&b.cpu))
                    .unwrap_or_default();
                print_row(&name, "native", interval, parallelism, &best);
            }
        }
    }
    let _ = std::any::type_name::<JsonParse>();
    Ok(())
}

fn print_row(name: &str, operator: &str, interval: Option<u64>, parallelism: u32, run: &Run) {
    let interval = interval.map_or("off".to_owned(), |ms| format!("{ms} ms ({})", run.checkpoints));
    let pause = run.pause_p99_us().map_or("-".to_owned(), |us| us.to_string());
    println!(
        "{name} | {operator} | {interval} | {parallelism} | {:.2} | {:.2} | {:.0} | {:.0} | {pause}",
        run.per_second() / 1e6,
        run.per_cpu_second() / 1e6,
        run.cpu_ns_per_record(),
        run.peak_bytes as f64 / 1e6,
    );
}

fn keyed_count(records: u64, keys: u64, interval_ms: Option<u64>, parallelism: u32) -> Result<Run> {
    let options = GeneratorOptions {
        records: Some(records),
        keys: Some(keys),
        distribution: Some(Distribution::Uniform),
        key_format: Some(KeyFormat::U64Le),
        shape: Shape::Binary,
        payload_bytes: Some(ByteSize(100)),
        ..GeneratorOptions::default()
    };
    let factory: Arc<dyn GuestFactory> = Arc::new(NativeFactory::<KeyedCount>::new("{}"));
    let id = |name: &str| OperatorId::new(name).expect("a valid id");
    let input = |from: &str| vec![InputSpec { from: id(from), from_port: 0, to_port: 0, partition: None }];
    let nodes = vec![
        NodeSpec { id: id("records"), parallelism, kind: NodeKind::Source, inputs: vec![] },
        NodeSpec {
            id: id("count"),
            parallelism,
            kind: NodeKind::Operator(factory.descriptor().clone()),
            inputs: input("records"),
        },
        NodeSpec { id: id("out"), parallelism, kind: NodeKind::Sink, inputs: input("count") },
    ];
    let spec = JobSpec { name: "bench".into(), max_parallelism: MaxParallelism::new(128).expect("in range"), nodes };
    let parts = vec![
        NodeParts::Source { factory: generator_source(&options)?, watermarks: None },
        NodeParts::Operator { factory, limits: EffectLimits::default(), state_quota_bytes: 4 << 30 },
        NodeParts::Sink { factory: blackhole_sink() },
    ];
    let checkpoint = CheckpointConfig { interval_ms, ..CheckpointConfig::default() };
    run(JobDefinition::new(spec, parts, checkpoint)?, Arc::new(MemoryStorage::default()))
}
