//! Edges: inputs named by id and port become the engine's graph; dangling inputs and cycles are pointed at.

use std::collections::BTreeMap;

use cofferdam_dataflow::graph::spec::{InputSpec, JobSpec, NodeKind, NodeSpec, SpecError};
use cofferdam_dataflow::guest::Descriptor;
use cofferdam_dataflow::ids::OperatorId;

use super::diagnostic::{Diagnostic, Problems, nearest};
use super::node::{InputConfig, NodeConfig, NodeConfigKind};
use super::{PipelineFile, Place};

/// The upstream end of an edge.
#[derive(Clone, Copy, Debug)]
struct Upstream<'a> {
    /// An index into the nodes.
    node: usize,
    /// The output port's name, if the file gives one.
    port: Option<&'a str>,
}

/// Finds the node that an input names. Ids may contain dots, so a whole id goes before `id.port`.
fn resolve<'a>(nodes: &[NodeConfig], input: &'a InputConfig) -> Option<Upstream<'a>> {
    let find = |id: &str| nodes.iter().position(|node| node.id.as_str() == id);
    if let Some(node) = find(&input.text) {
        return Some(Upstream { node, port: None });
    }
    let (id, port) = input.text.rsplit_once('.')?;
    find(id).map(|node| Upstream { node, port: Some(port) })
}

/// Checks what can be checked without the components: ids, edges, cycles.
pub(super) fn check(nodes: &[NodeConfig], problems: &mut Problems) {
    check_ids(nodes, problems);
    for (index, node) in nodes.iter().enumerate() {
        for input in &node.inputs {
            check_input(nodes, index, input, problems);
        }
    }
    check_cycles(nodes, problems);
    for (kind, there) in [
        ("source", nodes.iter().any(|node| matches!(node.kind, NodeConfigKind::Source { .. }))),
        ("sink", nodes.iter().any(|node| matches!(node.kind, NodeConfigKind::Sink { .. }))),
    ] {
        // A table that could not be read has been reported already.
        if !there && problems.is_empty() {
            let help = format!("add a table [{kind}.name] with a connector");
            problems.add_with_help(0..0, "missing-node", format!("the pipeline has no {kind}"), help);
        }
    }
}

fn check_ids(nodes: &[NodeConfig], problems: &mut Problems) {
    for (index, node) in nodes.iter().enumerate() {
        if let Some(first) = nodes[..index].iter().find(|other| other.id == node.id) {
            let (line, _) = first.place.position();
            let message = format!("the id \"{}\" is used twice, first in line {line}", node.id);
            let help = "ids are unique over sources, operators and sinks";
            problems.add_with_help(node.place.span.clone(), "duplicate-id", message, help);
        }
    }
}

fn check_input(nodes: &[NodeConfig], reader: usize, input: &InputConfig, problems: &mut Problems) {
    let (id, span) = (&nodes[reader].id, input.place.span.clone());
    let Some(upstream) = resolve(nodes, input) else {
        let readable = |node: &&NodeConfig| !matches!(node.kind, NodeConfigKind::Sink { .. });
        let candidates: Vec<_> =
            nodes.iter().filter(readable).map(|node| node.id.as_str()).filter(|other| *other != id.as_str()).collect();
        let help = match nearest(&input.text, candidates.iter().copied()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None if candidates.is_empty() => "there is no source or operator".to_owned(),
            None => format!("sources and operators: {}", candidates.join(", ")),
        };
        let message = format!("\"{id}\" reads from \"{}\", which does not exist", input.text.escape_debug());
        problems.add_with_help(span, "dangling-input", message, help);
        return;
    };
    match (&nodes[upstream.node].kind, upstream.port) {
        (NodeConfigKind::Sink { .. }, _) => {
            let message = format!("\"{id}\" reads from \"{}\", which is a sink", nodes[upstream.node].id);
            problems.add_with_help(span, "reads-from-sink", message, "read what the sink reads");
        }
        (NodeConfigKind::Source { .. }, Some(port)) => {
            let message = format!("the source \"{}\" has no port \"{}\"", nodes[upstream.node].id, port.escape_debug());
            problems.add_with_help(span, "no-such-port", message, format!("write \"{}\"", nodes[upstream.node].id));
        }
        (NodeConfigKind::Source { .. } | NodeConfigKind::Operator(_), _) => {}
    }
    let same = |other: &&InputConfig| other.text == input.text && other.position == input.position;
    if nodes[reader].inputs.iter().filter(same).count() > 1
        && nodes[reader].inputs.iter().rfind(same).is_some_and(|last| last.place == input.place)
    {
        let message = format!("\"{id}\" reads from \"{}\" twice on one port", input.text.escape_debug());
        problems.add(input.place.span.clone(), "duplicate-input", message);
    }
}

/// Reports each cycle once, at the input that closes it.
fn check_cycles(nodes: &[NodeConfig], problems: &mut Problems) {
    let mut state = vec![Visit::Unseen; nodes.len()];
    for start in 0..nodes.len() {
        visit(nodes, start, &mut state, &mut Vec::new(), problems);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Unseen,
    OnPath,
    Done,
}

/// Depth-first against the flow, with a stack of its own: a file of many nodes must not use up the thread's.
fn visit(nodes: &[NodeConfig], start: usize, state: &mut [Visit], path: &mut Vec<(usize, usize)>, problems: &mut Problems) {
    if state[start] != Visit::Unseen {
        return;
    }
    state[start] = Visit::OnPath;
    path.push((start, 0));
    while let Some((node, next)) = path.last_mut() {
        let node = *node;
        let Some(input) = nodes[node].inputs.get(*next) else {
            state[node] = Visit::Done;
            path.pop();
            continue;
        };
        *next += 1;
        let Some(upstream) = resolve(nodes, input) else { continue };
        match state[upstream.node] {
            Visit::Done => {}
            Visit::Unseen => {
                state[upstream.node] = Visit::OnPath;
                path.push((upstream.node, 0));
            }
            Visit::OnPath => {
                let first = path.iter().position(|(node, _)| *node == upstream.node).unwrap_or(0);
                // The path runs against the flow; people read along it.
                let mut ids: Vec<_> = path[first..].iter().rev().map(|(node, _)| nodes[*node].id.as_str()).collect();
                ids.push(ids[0]);
                let message = format!("the inputs form a cycle: {}", ids.join(" -> "));
                problems.add_with_help(input.place.span.clone(), "cycle", message, "a dataflow must not lead back into itself");
            }
        }
    }
}

/// Builds the engine's job.
pub(super) fn job_spec(file: &PipelineFile, descriptors: &BTreeMap<OperatorId, Descriptor>) -> Result<JobSpec, Vec<Diagnostic>> {
    let mut problems = Problems::new(file.source.clone());
    let mut nodes = Vec::with_capacity(file.nodes.len());
    for node in &file.nodes {
        let kind = match &node.kind {
            NodeConfigKind::Source { .. } => NodeKind::Source,
            NodeConfigKind::Sink { .. } => NodeKind::Sink,
            NodeConfigKind::Operator(operator) => match descriptors.get(&node.id) {
                Some(descriptor) => NodeKind::Operator(descriptor.clone()),
                None => {
                    let message = format!("the component of \"{}\" was not loaded", node.id);
                    problems.push(Diagnostic::at(operator.component_place.clone(), "component-missing", message));
                    continue;
                }
            },
        };
        let inputs = inputs(file, node, &kind, descriptors, &mut problems);
        nodes.push(NodeSpec { id: node.id.clone(), parallelism: file.parallelism_of(node), kind, inputs });
    }
    let spec = JobSpec { name: file.name.clone(), max_parallelism: file.max_parallelism, nodes };
    if problems.is_empty()
        && let Err(error) = spec.check()
    {
        problems.push(explain(file, &error));
    }
    if problems.is_empty() { Ok(spec) } else { Err(problems.into_found()) }
}

fn inputs(
    file: &PipelineFile,
    node: &NodeConfig,
    kind: &NodeKind,
    descriptors: &BTreeMap<OperatorId, Descriptor>,
    problems: &mut Problems,
) -> Vec<InputSpec> {
    let ports = match kind {
        NodeKind::Operator(descriptor) => descriptor.inputs.len(),
        NodeKind::Source | NodeKind::Sink => 1,
    };
    let given = node.inputs.iter().map(|input| input.position + 1).max().unwrap_or(0);
    if let NodeKind::Operator(descriptor) = kind
        && ports > 1
        && given != ports
    {
        let names: Vec<_> = descriptor.inputs.iter().map(|port| port.name.as_str()).collect();
        let message = format!("\"{}\" has {ports} input ports ({}), but \"input\" names {given}", node.id, names.join(", "));
        let place = node.inputs.first().map_or(&node.place, |input| &input.place).clone();
        let help = "name one input for each port, in this order; unite several with an inner list: [[\"a\", \"b\"], \"c\"]";
        problems.push(Diagnostic::at(place, "wrong-inputs", message).with_help(help));
        return Vec::new();
    }
    let mut specs: Vec<InputSpec> = Vec::with_capacity(node.inputs.len());
    for input in &node.inputs {
        let Some(upstream) = resolve(&file.nodes, input) else { continue };
        let from = &file.nodes[upstream.node];
        let Some(from_port) = output_port(from, upstream.port, descriptors, &input.place, problems) else { continue };
        let to_port = if ports == 1 { 0 } else { u32::try_from(input.position).unwrap_or(u32::MAX) };
        if specs.iter().any(|other| other.from == from.id && other.from_port == from_port && other.to_port == to_port) {
            let message = format!("\"{}\" reads from \"{}\" twice on one port", node.id, input.text.escape_debug());
            problems.push(Diagnostic::at(input.place.clone(), "duplicate-input", message));
            continue;
        }
        specs.push(InputSpec { from: from.id.clone(), from_port, to_port, partition: input.partition });
    }
    specs
}

/// Returns the index of an output port; the first one if the file names none.
fn output_port(
    from: &NodeConfig,
    port: Option<&str>,
    descriptors: &BTreeMap<OperatorId, Descriptor>,
    place: &Place,
    problems: &mut Problems,
) -> Option<u32> {
    // Sources have one port; an operator without a descriptor has been reported.
    let Some(descriptor) = descriptors.get(&from.id) else { return Some(0) };
    let found = match port {
        Some(name) => descriptor.outputs.iter().position(|output| output == name),
        None => (!descriptor.outputs.is_empty()).then_some(0),
    };
    if found.is_none() {
        let message = match port {
            Some(name) => format!("the operator \"{}\" has no output port \"{}\"", from.id, name.escape_debug()),
            None => format!("the operator \"{}\" has no output port", from.id),
        };
        let help = match (descriptor.outputs.as_slice(), port) {
            ([], _) => "its component declares no outputs".to_owned(),
            (outputs, Some(name)) => match nearest(name, outputs.iter().map(String::as_str)) {
                Some(meant) => format!("did you mean \"{}.{meant}\"?", from.id),
                None => format!("its ports are {}", outputs.join(", ")),
            },
            (outputs, None) => format!("its ports are {}", outputs.join(", ")),
        };
        problems.push(Diagnostic::at(place.clone(), "no-such-port", message).with_help(help));
    }
    found.and_then(|index| u32::try_from(index).ok())
}

/// Finds the place of what the engine refuses.
fn explain(file: &PipelineFile, error: &SpecError) -> Diagnostic {
    let (id, code, help) = match error {
        SpecError::ForwardMismatch { to, .. } => {
            (Some(to), "bad-partition", Some("set the same parallelism on both, or use partition = \"rebalance\""))
        }
        SpecError::NotRoutedByKey { to, .. } => {
            (Some(to), "bad-partition", Some("leave \"partition\" out: a keyed operator is fed by key"))
        }
        SpecError::NotBroadcast { to, .. } => {
            (Some(to), "bad-partition", Some("leave \"partition\" out: this input is fed by broadcast"))
        }
        SpecError::Parallelism { node, .. } => (Some(node), "out-of-range", None),
        SpecError::NoInput { node, .. } => (Some(node), "wrong-inputs", None),
        SpecError::NoSuchPort { node, .. } => (Some(node), "no-such-port", None),
        SpecError::DanglingInput { node, .. } => (Some(node), "dangling-input", None),
        SpecError::ReadsFromSink { node, .. } => (Some(node), "reads-from-sink", None),
        SpecError::SourceWithInput(node) => (Some(node), "source-with-input", None),
        SpecError::DuplicateId(node) => (Some(node), "duplicate-id", None),
        SpecError::Cycle(nodes) => (nodes.first(), "cycle", None),
        SpecError::Missing(_) => (None, "missing-node", None),
    };
    let place = id.and_then(|id| file.node(id)).map(|node| node.place.clone());
    Diagnostic { code, message: error.to_string(), help: help.map(str::to_owned), place }
}
