//! The `[source.…]`, `[operator.…]` and `[sink.…]` tables.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cofferdam_dataflow::graph::spec::Partition;
use cofferdam_dataflow::ids::OperatorId;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::connector::ConnectorTable;
use super::diagnostic::{Place, Problems, nearest};
use super::guest_config::{self, SecretRef};
use super::limits::{self, OperatorLimits};
use super::section::{At, Section};
use super::state::{self, StateKeys, StateOptions};
use super::watermark::{self, WatermarkOptions};
use crate::connector::{SINKS, SOURCES};

pub(super) const SOURCE_KEYS: &[&str] = &["connector", "parallelism", "watermark"];
pub(super) const OPERATOR_KEYS: &[&str] = &[
    "component",
    "input",
    "partition",
    "parallelism",
    "config",
    "secrets",
    "limits",
    "state-backend",
    "state-memory",
    "on-poison",
    "isolation",
];
pub(super) const SINK_KEYS: &[&str] = &["connector", "input", "partition", "parallelism"];

/// The most key groups, and so the most subtasks, that a job can have.
pub(super) const MAX_PARALLELISM: u64 = 32_768;

/// One source, operator or sink, as the file describes it.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Unique in the file.
    pub id: OperatorId,
    /// Where its table begins.
    pub place: Place,
    /// Its own parallelism, if the file sets one.
    pub parallelism: Option<u32>,
    /// What it reads, in the order of the file; none for a source.
    pub inputs: Vec<InputConfig>,
    /// What it is.
    pub kind: NodeConfigKind,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum NodeConfigKind {
    /// Reads.
    Source {
        /// The connector and its options.
        connector: ConnectorTable,
        /// How watermarks follow from event times.
        watermark: WatermarkOptions,
    },
    /// Runs a guest.
    Operator(OperatorConfig),
    /// Writes.
    Sink {
        /// The connector and its options.
        connector: ConnectorTable,
    },
}

/// What an operator runs and how.
#[derive(Clone, Debug)]
pub struct OperatorConfig {
    /// A component file, or a folder with a guest crate; beside the pipeline file if relative.
    pub component: PathBuf,
    /// Where the file names it.
    pub component_place: Place,
    /// The guest's configuration, without secrets.
    pub config: serde_json::Map<String, serde_json::Value>,
    /// Secrets that the host puts into the configuration when it opens the operator.
    pub secrets: BTreeMap<String, SecretRef>,
    /// What the guest may use.
    pub limits: OperatorLimits,
    /// Where its state is.
    pub state: StateOptions,
}

/// One entry of `input`.
#[derive(Clone, Debug)]
pub struct InputConfig {
    /// As written: `id` or `id.port`.
    pub text: String,
    /// Where.
    pub place: Place,
    /// Its index in the outer list.
    pub position: usize,
    /// How its records are dealt out, if the file says so.
    pub partition: Option<Partition>,
}

/// Reads all nodes, in the order of the file.
pub(super) fn read_nodes(root: &Section<'_, '_>, state: &StateKeys, problems: &mut Problems) -> Vec<NodeConfig> {
    type Read<'a> = &'a dyn Fn(&str, &DeTable<'_>, &At<String>, &mut Problems) -> Option<NodeConfig>;
    let mut nodes = Vec::new();
    for (kind, read) in [
        ("source", &read_source as Read<'_>),
        ("operator", &|title, table, name, problems| read_operator(title, table, name, state, problems)),
        ("sink", &read_sink),
    ] {
        for (name, table) in root.tables(kind, problems) {
            nodes.extend(read(&format!("[{kind}.{}]", name.value.escape_debug()), table, &name, problems));
        }
    }
    nodes.sort_by_key(|node| node.place.span.start);
    nodes
}

fn read_source(title: &str, table: &DeTable<'_>, name: &At<String>, problems: &mut Problems) -> Option<NodeConfig> {
    let section = Section::open_unchecked(title, table, name.span.clone(), SOURCE_KEYS);
    if let Some((_, found)) = table.iter().find(|(key, _)| key.get_ref() == "input") {
        problems.add(found.span(), "source-with-input", format!("{title} is a source and cannot have an input"));
    }
    let connector = read_connector(&section, "source", name, problems);
    let watermark = watermark::read(&section, problems);
    let parallelism = read_parallelism(&section, problems);
    let kind = NodeConfigKind::Source { connector: connector?, watermark };
    Some(NodeConfig { id: read_id(name, problems)?, place: problems.place(name.span.clone()), parallelism, inputs: vec![], kind })
}

fn read_sink(title: &str, table: &DeTable<'_>, name: &At<String>, problems: &mut Problems) -> Option<NodeConfig> {
    let section = Section::open_unchecked(title, table, name.span.clone(), SINK_KEYS);
    let connector = read_connector(&section, "sink", name, problems);
    let inputs = read_inputs(&section, problems);
    let parallelism = read_parallelism(&section, problems);
    let kind = NodeConfigKind::Sink { connector: connector? };
    Some(NodeConfig { id: read_id(name, problems)?, place: problems.place(name.span.clone()), parallelism, inputs, kind })
}

fn read_operator(
    title: &str,
    table: &DeTable<'_>,
    name: &At<String>,
    state: &StateKeys,
    problems: &mut Problems,
) -> Option<NodeConfig> {
    let section = Section::open(title, table, name.span.clone(), OPERATOR_KEYS, problems);
    refuse_unbuilt(&section, problems);
    let inputs = read_inputs(&section, problems);
    let parallelism = read_parallelism(&section, problems);
    let expected = "a component file or the folder of a guest crate, such as \"count.wasm\"";
    let component = section.string("component", expected, problems);
    if section.get("component").is_none() {
        section.missing("component", expected, problems);
    }
    let limits = match section.table("limits", "a table such as { memory = \"64MiB\" }", problems) {
        Some((table, span)) => {
            let title = format!("the limits of {title}");
            OperatorLimits::read(&Section::open(title, table, span, limits::KEYS, problems), problems)
        }
        None => OperatorLimits::default(),
    };
    let (config, secrets) = guest_config::read(&section, problems);
    let state = StateKeys::read(&section, &state::IN_OPERATOR, state, problems).options();
    let id = read_id(name, problems)?;
    let component = component?;
    let operator = OperatorConfig {
        component: PathBuf::from(&component.value),
        component_place: problems.place(component.span),
        config,
        secrets,
        limits,
        state,
    };
    let kind = NodeConfigKind::Operator(operator);
    Some(NodeConfig { id, place: problems.place(name.span.clone()), parallelism, inputs, kind })
}

fn refuse_unbuilt(section: &Section<'_, '_>, problems: &mut Problems) {
    if let Some(word) = section.word("on-poison", &["fail", "skip", "dead-letter"], problems)
        && word.value != "fail"
    {
        let what = format!("on-poison \"{}\"", word.value);
        problems.not_built(word.span, &what, "use on-poison = \"fail\", or leave the key out");
    }
    if section.get("isolation").is_some() {
        let help = "every operator runs in a sandbox of its own in this process: leave the key out";
        problems.not_built(section.key_span("isolation"), "\"isolation\"", help);
    }
}

fn read_id(name: &At<String>, problems: &mut Problems) -> Option<OperatorId> {
    let id = OperatorId::new(&name.value);
    if let Err(error) = &id {
        problems.add(name.span.clone(), "bad-id", error.to_string());
    }
    id.ok()
}

fn read_parallelism(section: &Section<'_, '_>, problems: &mut Problems) -> Option<u32> {
    section.integer("parallelism", 1..=MAX_PARALLELISM, problems).and_then(|number| u32::try_from(number).ok())
}

fn read_connector(
    section: &Section<'_, '_>,
    kind: &'static str,
    name: &At<String>,
    problems: &mut Problems,
) -> Option<ConnectorTable> {
    let (known, common) = match kind {
        "source" => (SOURCES, SOURCE_KEYS),
        _ => (SINKS, SINK_KEYS),
    };
    let expected = known.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let Some(found) = section.string("connector", &format!("one of {expected}"), problems) else {
        if section.get("connector").is_none() {
            section.missing("connector", &format!("one of {expected}"), problems);
        }
        return None;
    };
    if !known.contains(&found.value.as_str()) {
        let message = format!("there is no {kind} connector \"{}\"", found.value.escape_debug());
        let help = match nearest(&found.value, known.iter().copied()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("the {kind} connectors are {expected}"),
        };
        problems.add_with_help(found.span, "unknown-connector", message, help);
        return None;
    }
    Some(ConnectorTable::new(found.value, kind, &name.value, common, problems.place(name.span.clone())))
}

/// Reads `input = "a"`, `["a", "b.late"]` or `[["a", "b"], "c"]` (an inner list is united), with `partition`.
fn read_inputs(section: &Section<'_, '_>, problems: &mut Problems) -> Vec<InputConfig> {
    let expected = "the id of a source or operator, such as \"lines\", or a list of them";
    let Some(found) = section.get("input") else {
        section.missing("input", expected, problems);
        return Vec::new();
    };
    let mut inputs = Vec::new();
    let mut add = |value: &Spanned<DeValue<'_>>, position: usize, problems: &mut Problems| match value.get_ref() {
        DeValue::String(text) => {
            let place = problems.place(value.span());
            inputs.push(InputConfig { text: text.to_string(), place, position, partition: None });
        }
        other => {
            let message = format!("\"input\" holds {}, expected {expected}", super::section::described(other));
            problems.add(value.span(), "wrong-type", message);
        }
    };
    match found.get_ref() {
        DeValue::Array(list) if list.is_empty() => {
            problems.add(found.span(), "bad-value", format!("\"input\" is an empty list, expected {expected}"));
        }
        DeValue::Array(list) => {
            for (position, item) in list.iter().enumerate() {
                match item.get_ref() {
                    DeValue::Array(union) => union.iter().for_each(|item| add(item, position, problems)),
                    _ => add(item, position, problems),
                }
            }
        }
        _ => add(found, 0, problems),
    }
    if let Some(word) = section.word("partition", &["forward", "keyed", "rebalance", "broadcast"], problems) {
        let partition = match word.value {
            "forward" => Partition::Forward,
            "keyed" => Partition::Keyed,
            "rebalance" => Partition::Rebalance,
            _ => Partition::Broadcast,
        };
        inputs.iter_mut().for_each(|input| input.partition = Some(partition));
    }
    inputs
}
