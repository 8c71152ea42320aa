//! The queries of Nexmark, each as its example's pipeline has it, but for the sink: results are dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use cofferdam::connector::{NexmarkOptions, blackhole_sink, nexmark_source};
use cofferdam::execution::{JobDefinition, NodeParts, StateBackend};
use cofferdam::guest::LoadedComponent;
use cofferdam_dataflow::checkpoint::config::CheckpointConfig;
use cofferdam_dataflow::graph::spec::{InputSpec, JobSpec, NodeKind, NodeSpec};
use cofferdam_dataflow::guest::{EffectLimits, GuestFactory};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::key_group::MaxParallelism;
use cofferdam_dataflow::subtask::WatermarkStrategy;
use cofferdam_tests::native::NativeFactory;
use toml::{Table, Value};

use crate::operators::{How, Loader, examples, wasm};
use crate::workload::{Setting, print_rows};

const QUERIES: [&str; 9] = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8"];
/// The examples have as many.
const OUT_OF_ORDERNESS_MS: u64 = 200;

/// Prints the rows of the queries that are wanted, by names such as `nexmark-q5`. Records are the source's events.
pub(crate) fn print(wanted: &dyn Fn(&str) -> bool, runs: u32) -> Result<()> {
    let loader = Loader::new()?;
    let mut components = BTreeMap::new();
    for query in QUERIES {
        let name = format!("nexmark-{query}");
        if !wanted(&name) {
            continue;
        }
        let file = examples()?.join("nexmark").join(query).with_extension("toml");
        let pipeline: Table = toml::from_str(&std::fs::read_to_string(file)?)?;
        for operator in table(&pipeline, "operator")?.values() {
            let crate_name = text(operator, "component")?;
            if !components.contains_key(crate_name) {
                components.insert(crate_name.to_owned(), loader.load(&format!("nexmark/{crate_name}"))?);
            }
        }
        print_rows(&name, &[(None, 1), (Some(1000), 2)], runs, |setting| job(&pipeline, &components, setting))?;
    }
    Ok(())
}

fn table<'a>(pipeline: &'a Table, key: &str) -> Result<&'a Table> {
    pipeline.get(key).and_then(Value::as_table).with_context(|| format!("[{key}] is missing"))
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value.get(key).and_then(Value::as_str).with_context(|| format!("{key} is missing"))
}

fn native(crate_name: &str, config: &str) -> Result<Arc<dyn GuestFactory>> {
    Ok(match crate_name {
        "averages" => Arc::new(NativeFactory::<nexmark_averages::Averages>::new(config)),
        "events" => Arc::new(NativeFactory::<nexmark_events::Events>::new(config)),
        "local-items" => Arc::new(NativeFactory::<nexmark_local_items::LocalItems>::new(config)),
        "new-users" => Arc::new(NativeFactory::<nexmark_new_users::NewUsers>::new(config)),
        "per-auction" => Arc::new(NativeFactory::<nexmark_per_auction::PerAuction>::new(config)),
        "select" => Arc::new(NativeFactory::<nexmark_select::Select>::new(config)),
        "top" => Arc::new(NativeFactory::<nexmark_top::Top>::new(config)),
        "winning" => Arc::new(NativeFactory::<nexmark_winning::Winning>::new(config)),
        _ => bail!("{crate_name} is not linked natively"),
    })
}

/// Makes the job of a pipeline whose only source is `nexmark`. Operators may be in any order.
fn job(pipeline: &Table, components: &BTreeMap<String, LoadedComponent>, setting: Setting) -> Result<JobDefinition> {
    let parallelism = setting.parallelism;
    let mut options = table(table(pipeline, "source")?, "nexmark")?.clone();
    options.remove("connector");
    options.remove("watermark");
    let options: NexmarkOptions = Value::Table(options).try_into()?;
    let watermarks = Some(WatermarkStrategy::out_of_orderness(OUT_OF_ORDERNESS_MS));
    let node = |id: &str, kind: NodeKind, inputs: Vec<InputSpec>| -> Result<NodeSpec> {
        Ok(NodeSpec { id: OperatorId::new(id)?, parallelism, kind, inputs })
    };
    let mut nodes = vec![node("nexmark", NodeKind::Source, vec![])?];
    let mut parts = vec![NodeParts::Source { factory: nexmark_source(&options)?, watermarks }];

    let mut factories = BTreeMap::new();
    for (id, operator) in table(pipeline, "operator")? {
        let crate_name = text(operator, "component")?;
        let config = operator.get("config").cloned().unwrap_or_else(|| Table::new().into());
        let config = serde_json::to_string(&config)?;
        let factory = match setting.how {
            How::Native => native(crate_name, &config)?,
            How::Wasm => wasm(components.get(crate_name).context("loaded before")?, &config),
        };
        factories.insert(id.as_str(), factory);
    }
    for (id, operator) in table(pipeline, "operator")? {
        let factory = Arc::clone(&factories[id.as_str()]);
        nodes.push(node(id, NodeKind::Operator(factory.descriptor().clone()), inputs(operator, &factories)?)?);
        let (limits, backend) = (EffectLimits::default(), StateBackend::Memory);
        parts.push(NodeParts::Operator { factory, limits, state_quota_bytes: 4 << 30, backend });
    }
    let sink = table(pipeline, "sink")?.get("rows").context("[sink.rows] is missing")?;
    nodes.push(node("rows", NodeKind::Sink, inputs(sink, &factories)?)?);
    parts.push(NodeParts::Sink { factory: blackhole_sink() });
    let spec = JobSpec { name: "bench".into(), max_parallelism: MaxParallelism::new(128).context("in range")?, nodes };
    let checkpoint = CheckpointConfig { interval_ms: setting.interval_ms, ..CheckpointConfig::default() };
    Ok(JobDefinition::new(spec, parts, checkpoint)?)
}

/// Reads `input`: a node or its output port, or one for each input port.
fn inputs(node: &Value, factories: &BTreeMap<&str, Arc<dyn GuestFactory>>) -> Result<Vec<InputSpec>> {
    let input = node.get("input").context("input is missing")?;
    let all = input.as_array().map_or(std::slice::from_ref(input), Vec::as_slice);
    let one = |(to_port, from): (u32, &Value)| -> Result<InputSpec> {
        let from = from.as_str().context("an input is a text")?;
        let (from, port) = from.split_once('.').map_or((from, None), |(from, port)| (from, Some(port)));
        let from_port = match port {
            None => 0,
            Some(port) => {
                let outputs = &factories.get(from).context("a port of an operator")?.descriptor().outputs;
                u32::try_from(outputs.iter().position(|output| output == port).context("a port that is declared")?)?
            }
        };
        Ok(InputSpec { from: OperatorId::new(from)?, from_port, to_port, partition: None })
    };
    (0..).zip(all).map(one).collect()
}
