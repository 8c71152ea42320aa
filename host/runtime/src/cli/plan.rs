//! The plan of a pipeline, as `check` and `run` show it: graph, parallelism, limits, capabilities, delivery.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cofferdam::config::delivery::{delivery_level, sources_of};
use cofferdam::config::value::{format_bytes, format_count, format_duration_ms};
use cofferdam::config::{NodeConfigKind, OperatorLimits, PipelineFile, RestartStrategy};
use cofferdam_dataflow::connector::{SinkGuarantee, SourceGuarantee};
use cofferdam_dataflow::graph::plan::ExecutionPlan;
use cofferdam_dataflow::graph::spec::{JobSpec, NodeKind, NodeSpec};
use cofferdam_dataflow::ids::OperatorId;
use serde::Serialize;

use super::terminal::{Paint, Style};

/// What components and connectors say of themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// By operator.
    pub(crate) components: BTreeMap<OperatorId, ComponentFacts>,
    /// By source.
    pub(crate) sources: BTreeMap<OperatorId, SourceGuarantee>,
    /// By sink.
    pub(crate) sinks: BTreeMap<OperatorId, SinkGuarantee>,
}

/// What a component says of itself, besides its descriptor.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComponentFacts {
    /// SHA-256, hexadecimal.
    pub(crate) digest: String,
    /// The interfaces it imports: its capabilities.
    pub(crate) imports: Vec<String>,
}

/// What will run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Plan {
    event: &'static str,
    pipeline: String,
    max_parallelism: u16,
    nodes: Vec<PlanNode>,
    /// Chains of nodes that run on one thread, with their parallelism.
    tasks: Vec<PlanTask>,
    checkpoint: PlanCheckpoint,
    restart: String,
    delivery: Vec<PlanDelivery>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PlanNode {
    id: String,
    kind: &'static str,
    /// A connector's name or a component's path.
    runs: String,
    parallelism: u32,
    inputs: Vec<PlanInput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<PlanOperator>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PlanInput {
    from: String,
    partition: &'static str,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PlanOperator {
    digest: String,
    imports: Vec<String>,
    /// `name kind codec` of each slot.
    state: Vec<String>,
    secrets: Vec<String>,
    limits: PlanLimits,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PlanLimits {
    memory_bytes: u64,
    fuel_per_call: u64,
    fuel_per_record: u64,
    fuel_max: u64,
    record_bytes: u32,
    output_bytes: u32,
    output_records: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PlanTask {
    nodes: Vec<String>,
    subtasks: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PlanCheckpoint {
    interval_ms: Option<u64>,
    timeout_ms: u64,
    keep: u32,
    storage: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PlanDelivery {
    sink: String,
    level: &'static str,
    reason: String,
}

impl Plan {
    pub(crate) fn new(file: &PipelineFile, spec: &JobSpec, execution: &ExecutionPlan, facts: &Facts) -> Self {
        Self {
            event: "plan",
            pipeline: spec.name.clone(),
            max_parallelism: spec.max_parallelism.get(),
            nodes: spec.nodes.iter().map(|node| plan_node(file, spec, node, facts)).collect(),
            tasks: tasks(spec, execution),
            checkpoint: PlanCheckpoint {
                interval_ms: file.checkpoint.interval_ms,
                timeout_ms: file.checkpoint.timeout_ms,
                keep: file.checkpoint.keep,
                storage: file.checkpoint.storage.display().to_string(),
            },
            restart: restart_text(&file.restart),
            delivery: delivery(file, spec, facts),
        }
    }

    /// Renders the plan for people.
    pub(crate) fn text(&self, paint: Paint) -> String {
        let strong = |text: &str| paint.paint(Style::Strong, text);
        let faint = |text: String| paint.paint(Style::Faint, text);
        let mut text = format!("pipeline {}, {} key groups\n", strong(&self.pipeline), self.max_parallelism);
        let width = self.nodes.iter().map(|node| node.id.len()).max().unwrap_or(0);
        for node in &self.nodes {
            let inputs: Vec<_> = node.inputs.iter().map(|input| format!("{} ({})", input.from, input.partition)).collect();
            let inputs = if inputs.is_empty() { String::new() } else { format!("  <- {}", inputs.join(", ")) };
            let padding = " ".repeat(width - node.id.len());
            // Writing to a string cannot fail; so below.
            let _ = writeln!(text, "  {}{padding}  {} {} x{}{inputs}", strong(&node.id), node.kind, node.runs, node.parallelism);
            for line in node.operator.iter().flat_map(PlanOperator::lines) {
                let _ = writeln!(text, "  {:width$}    {}", "", faint(line));
            }
        }
        let tasks = self.tasks.iter().map(|task| format!("{} x{}", task.nodes.join(" -> "), task.subtasks));
        let _ = writeln!(text, "threads: {}", tasks.collect::<Vec<_>>().join(", "));
        let _ = writeln!(text, "checkpoints: {}", self.checkpoint.text());
        let _ = writeln!(text, "restart: {}", self.restart);
        for delivery in &self.delivery {
            let style = if delivery.level == "exactly-once" { Style::Good } else { Style::Warning };
            let _ = writeln!(text, "delivery to {}: {} ({})", delivery.sink, paint.paint(style, delivery.level), delivery.reason);
        }
        text
    }
}

impl PlanOperator {
    fn lines(&self) -> Vec<String> {
        let limits = &self.limits;
        let mut lines = vec![format!("component {}", self.digest)];
        if !self.state.is_empty() {
            lines.push(format!("state: {}", self.state.join(", ")));
        }
        lines.push(format!(
            "limits: memory {}; fuel {} a call + {} a record, at most {}; output {} or {} records a call, {} a record",
            format_bytes(limits.memory_bytes),
            format_count(limits.fuel_per_call),
            format_count(limits.fuel_per_record),
            format_count(limits.fuel_max),
            format_bytes(u64::from(limits.output_bytes)),
            format_count(u64::from(limits.output_records)),
            format_bytes(u64::from(limits.record_bytes)),
        ));
        let may = if self.imports.is_empty() { "nothing".to_owned() } else { self.imports.join(", ") };
        lines.push(format!("may use: {may}"));
        if !self.secrets.is_empty() {
            lines.push(format!("secrets: {}", self.secrets.join(", ")));
        }
        lines
    }
}

impl PlanCheckpoint {
    fn text(&self) -> String {
        let when = match self.interval_ms {
            Some(ms) => format!("every {}", format_duration_ms(ms)),
            None => "at the end only".to_owned(),
        };
        format!("{when}, given up after {}, newest {} kept in {}", format_duration_ms(self.timeout_ms), self.keep, self.storage)
    }
}

fn plan_node(file: &PipelineFile, spec: &JobSpec, node: &NodeSpec, facts: &Facts) -> PlanNode {
    let config = file.node(&node.id).expect("the job was made of this file");
    let (kind, runs, operator) = match &config.kind {
        NodeConfigKind::Source { connector, .. } => ("source", connector.connector.clone(), None),
        NodeConfigKind::Sink { connector } => ("sink", connector.connector.clone(), None),
        NodeConfigKind::Operator(operator) => {
            let component = facts.components.get(&node.id).cloned().unwrap_or_default();
            let secrets = operator.secrets.keys().cloned().collect();
            let plan = PlanOperator {
                digest: component.digest,
                imports: component.imports,
                state: slots(node),
                secrets,
                limits: plan_limits(&operator.limits),
            };
            ("operator", operator.component.display().to_string(), Some(plan))
        }
    };
    let inputs = node.inputs.iter().map(|input| {
        let from = match spec.node(&input.from).map(|from| &from.kind) {
            Some(NodeKind::Operator(descriptor)) if descriptor.outputs.len() > 1 => {
                let port = descriptor.outputs.get(input.from_port as usize);
                format!("{}.{}", input.from, port.map_or("?", String::as_str))
            }
            _ => input.from.to_string(),
        };
        PlanInput { from, partition: spec.partition(node, input).name() }
    });
    PlanNode { id: node.id.to_string(), kind, runs, parallelism: node.parallelism, inputs: inputs.collect(), operator }
}

fn slots(node: &NodeSpec) -> Vec<String> {
    let NodeKind::Operator(descriptor) = &node.kind else { return Vec::new() };
    descriptor.tables().iter().map(|slot| format!("{} ({}, {})", slot.name, slot.kind.name(), slot.codec)).collect()
}

fn plan_limits(limits: &OperatorLimits) -> PlanLimits {
    PlanLimits {
        memory_bytes: limits.memory_bytes,
        fuel_per_call: limits.fuel_per_call,
        fuel_per_record: limits.fuel_per_record,
        fuel_max: limits.fuel_max,
        record_bytes: limits.effects.record_bytes,
        output_bytes: limits.effects.output_bytes,
        output_records: limits.effects.output_records,
    }
}

/// The tasks of one chain differ in their subtask only.
fn tasks(spec: &JobSpec, execution: &ExecutionPlan) -> Vec<PlanTask> {
    let firsts = execution.tasks.iter().filter(|task| task.subtask == 0);
    let chain = |nodes: &[usize]| nodes.iter().map(|node| spec.nodes[*node].id.to_string()).collect();
    firsts.map(|task| PlanTask { nodes: chain(&task.nodes), subtasks: task.parallelism as usize }).collect()
}

fn delivery(file: &PipelineFile, spec: &JobSpec, facts: &Facts) -> Vec<PlanDelivery> {
    let sinks = spec.nodes.iter().filter(|node| node.kind == NodeKind::Sink);
    let levels = sinks.filter_map(|node| {
        let guarantee = facts.sinks.get(&node.id)?;
        let sources = sources_of(spec, &node.id);
        let sources: Vec<_> = sources.into_iter().filter_map(|id| Some((id, *facts.sources.get(id)?))).collect();
        let (level, reason) = delivery_level(&sources, *guarantee, file.checkpoint.interval_ms.is_some());
        Some(PlanDelivery { sink: node.id.to_string(), level: level.name(), reason })
    });
    levels.collect()
}

fn restart_text(restart: &RestartStrategy) -> String {
    let duration = format_duration_ms;
    match restart {
        RestartStrategy::None => "none: the first failure ends the job".to_owned(),
        RestartStrategy::FixedDelay { attempts, delay_ms } => {
            format!("fixed-delay: at most {attempts} times, after {}", duration(*delay_ms))
        }
        RestartStrategy::FailureRate { max_failures, interval_ms, delay_ms } => {
            let (interval, delay) = (duration(*interval_ms), duration(*delay_ms));
            format!("failure-rate: while there are at most {max_failures} failures in {interval}, after {delay}")
        }
        RestartStrategy::ExponentialDelay { initial_ms, max_ms, attempts, .. } => {
            let most = attempts.map_or(String::new(), |attempts| format!(", at most {attempts} times"));
            format!("exponential-delay: at once, then after {} to {}{most}", duration(*initial_ms), duration(*max_ms))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cofferdam::config::SourceText;
    use cofferdam_dataflow::guest::{Descriptor, InputPort, StateKind, StateSlot};

    use super::*;

    const TEXT: &str = r#"
[pipeline]
name = "word-count"
parallelism = 2
[checkpoint]
interval = "1s"
storage = "/state"
[source.lines]
connector = "files"
path = "in"
parallelism = 1
[operator.count]
component = "count.wasm"
input = "lines"
secrets = { token = { env = "TOKEN" } }
[sink.counts]
connector = "files"
input = "count"
path = "out"
[sink.screen]
connector = "console"
input = "count"
"#;

    fn id(name: &str) -> OperatorId {
        OperatorId::new(name).unwrap()
    }

    fn plan() -> Plan {
        let file = PipelineFile::parse(SourceText::new("p.toml", TEXT), Path::new("/")).unwrap();
        let slot = StateSlot {
            name: "n".into(),
            kind: StateKind::Value,
            codec: "postcard".into(),
            schema: "u64".into(),
            ttl_ms: 0,
            ttl_on_read: false,
            prefetch: true,
        };
        let descriptor = Descriptor {
            inputs: vec![InputPort { name: "in".into(), broadcast: false }],
            outputs: vec!["out".into()],
            slots: vec![slot],
            timers: vec![],
            keyed: false,
            max_batch: 0,
        };
        let spec = file.into_job_spec(&BTreeMap::from([(id("count"), descriptor)])).unwrap();
        let execution = ExecutionPlan::new(&spec).unwrap();
        let component = ComponentFacts { digest: "ab12".into(), imports: vec!["cofferdam:operator/logging@0.1.0".into()] };
        let facts = Facts {
            components: BTreeMap::from([(id("count"), component)]),
            sources: BTreeMap::from([(id("lines"), SourceGuarantee { replayable: true, bounded: true })]),
            sinks: BTreeMap::from([(id("counts"), SinkGuarantee::Transactional), (id("screen"), SinkGuarantee::Immediate)]),
        };
        Plan::new(&file, &spec, &execution, &facts)
    }

    #[test]
    fn the_plan_shows_graph_limits_capabilities_and_delivery() {
        let expected = "\
pipeline word-count, 128 key groups
  lines   source files x1
  count   operator count.wasm x2  <- lines (keyed)
            component ab12
            state: n (value, postcard)
            limits: memory 64 MiB; fuel 50M a call + 10M a record, at most 5G; output 64 MiB or 1M records a call, 4 MiB a record
            may use: cofferdam:operator/logging@0.1.0
            secrets: token
  counts  sink files x2  <- count (forward)
  screen  sink console x2  <- count (forward)
threads: lines x1, count x2, counts x2, screen x2
checkpoints: every 1s, given up after 10m, newest 3 kept in /state
restart: exponential-delay: at once, then after 1s to 1m
delivery to counts: exactly-once (sources replay, state is restored, output is published together with a completed checkpoint)
delivery to screen: at-least-once (state is exactly-once, but the sink's output is visible at once and again after a restart)
";
        assert_eq!(plan().text(Paint(false)), expected);
    }

    #[test]
    fn as_json_the_plan_has_the_same_parts() {
        let value = serde_json::to_value(plan()).unwrap();
        assert_eq!(value["event"], "plan");
        assert_eq!(value["nodes"][1]["operator"]["limits"]["memory_bytes"], 64 << 20);
        assert_eq!(value["nodes"][1]["inputs"][0]["partition"], "keyed");
        assert_eq!(value["delivery"][1]["level"], "at-least-once");
        assert_eq!(value["tasks"][1]["subtasks"], 2);
        assert!(value["nodes"][0].get("operator").is_none());
    }
}
