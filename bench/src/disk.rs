//! State larger than memory: a keyed count over 5 M keys whose state is four times the memory it may take.

use anyhow::{Context, Result};
use cofferdam::connector::{ByteSize, Distribution, GeneratorOptions, KeyFormat, Shape, blackhole_sink, generator_source};
use cofferdam::execution::{NodeParts, StateBackend};

use crate::measure::run_once;
use crate::operators::{How, Operators};
use crate::workload::{Setting, job};

const KEYS: u64 = 5_000_000;
/// An entry in memory: header, key, value and index.
const ENTRY_BYTES: u64 = 46;
const INTERVAL_MS: u64 = 1000;

pub(crate) fn print(operators: &Operators, records: u64) -> Result<()> {
    let memory_bytes = KEYS * ENTRY_BYTES / 4;
    println!(
        "\ndisk: keyed count (wasm), one task, {} M keys, a checkpoint every {INTERVAL_MS} ms; on disk with {:.0} MB of memory",
        KEYS / 1_000_000,
        memory_bytes as f64 / 1e6
    );
    println!("keys | state | M updates/s | M updates/CPU-s | peak MB | checkpoints | worst checkpoint ms");
    for (name, distribution) in [("uniform", Distribution::Uniform), ("zipf", Distribution::Zipf)] {
        for (state, backend) in [("memory", StateBackend::Memory), ("disk", StateBackend::Disk { memory_bytes })] {
            let options = GeneratorOptions {
                records: Some(records),
                keys: Some(KEYS),
                distribution: Some(distribution),
                key_format: Some(KeyFormat::U64Le),
                shape: Shape::Binary,
                payload_bytes: Some(ByteSize(100)),
                ..GeneratorOptions::default()
            };
            let setting = Setting { how: How::Wasm, interval_ms: Some(INTERVAL_MS), parallelism: 1 };
            let count = operators.keyed_count(How::Wasm, false);
            let mut definition = job(setting, generator_source(&options)?, vec![("count", count)], blackhole_sink())?;
            let operator = definition.parts.iter_mut().find_map(|part| match part {
                NodeParts::Operator { backend, .. } => Some(backend),
                _ => None,
            });
            *operator.context("the job has an operator")? = backend;
            let dir = std::env::temp_dir().join(format!("cofferdam-bench-disk-{}", std::process::id()));
            definition.local_dir = Some(dir.clone());
            let run = run_once(definition);
            // Gone already, if the run has finished.
            drop(std::fs::remove_dir_all(dir));
            let run = run?;
            println!(
                "{name} | {state} | {:.3} | {:.3} | {:.0} | {} | {}",
                run.per_second() / 1e6,
                run.per_cpu_second() / 1e6,
                run.peak_bytes as f64 / 1e6,
                run.checkpoints,
                run.checkpoint_ms_max
            );
        }
    }
    Ok(())
}
