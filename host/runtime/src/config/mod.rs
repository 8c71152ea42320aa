//! The pipeline file: TOML text to a checked [`PipelineFile`], and that to the engine's job.
//!
//! Everything wrong is collected as [`Diagnostic`]s that point into the file; what is planned but not built is refused
//! by name. Nothing here opens a component or a connector, and nothing prints.

mod checkpoint;
mod connector;
pub mod delivery;
mod diagnostic;
mod graph;
mod guest_config;
mod limits;
mod node;
mod restart;
mod section;
mod state;
pub mod value;
mod watermark;

#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_dataflow::graph::spec::JobSpec;
use cofferdam_dataflow::guest::Descriptor;
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::key_group::MaxParallelism;
use toml::de::DeTable;

pub use checkpoint::CheckpointOptions;
pub use connector::ConnectorTable;
pub use diagnostic::{Diagnostic, Place, SourceText};
pub use guest_config::SecretRef;
pub use limits::OperatorLimits;
pub use node::{InputConfig, NodeConfig, NodeConfigKind, OperatorConfig};
pub use restart::RestartStrategy;
pub use state::StateOptions;
pub use watermark::WatermarkOptions;

use diagnostic::Problems;
use section::Section;
use state::StateKeys;

const ROOT_KEYS: &[&str] = &["pipeline", "checkpoint", "restart", "state", "source", "operator", "sink"];
const PIPELINE_KEYS: &[&str] = &["name", "parallelism", "max-parallelism"];

/// The most bytes that a pipeline file may have.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A pipeline file whose keys, values and graph are in order. Components and connectors have not been looked at.
#[derive(Clone, Debug)]
pub struct PipelineFile {
    /// The text it was read from.
    pub source: Arc<SourceText>,
    /// The folder that relative paths of the file are relative to.
    pub base_dir: PathBuf,
    /// The pipeline's name.
    pub name: String,
    /// The parallelism of nodes that set none.
    pub parallelism: u32,
    /// The number of key groups.
    pub max_parallelism: MaxParallelism,
    /// When snapshots are taken, where they go and how long they stay.
    pub checkpoint: CheckpointOptions,
    /// What happens after a failure.
    pub restart: RestartStrategy,
    /// Sources, operators and sinks, in the order of the file.
    pub nodes: Vec<NodeConfig>,
}

impl PipelineFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the file.
    pub fn load(path: &Path) -> Result<Self, Vec<Diagnostic>> {
        let unreadable = |why: String| vec![Diagnostic::new("pipeline-unreadable", format!("{}: {why}", path.display()))];
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
        if metadata.is_dir() {
            let help = "give the pipeline file itself, such as pipeline.toml";
            return Err(unreadable("is a folder".to_owned()).into_iter().map(|problem| problem.with_help(help)).collect());
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(unreadable(format!("has {} bytes, at most {FILE_BYTES_MAX} are read", metadata.len())));
        }
        let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let text = String::from_utf8(bytes)
            .map_err(|error| unreadable(format!("is not UTF-8 (byte {})", error.utf8_error().valid_up_to())))?;
        let base_dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self::parse(SourceText::new(path, text), base_dir)
    }

    /// Checks a file's text.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the file.
    pub fn parse(source: Arc<SourceText>, base_dir: &Path) -> Result<Self, Vec<Diagnostic>> {
        let text = source.clone();
        let mut problems = Problems::new(source);
        let (root, syntax_errors) = DeTable::parse_recoverable(text.text());
        for error in &syntax_errors {
            add_syntax_error(error, &mut problems);
        }
        if !problems.is_empty() {
            return Err(problems.into_found());
        }
        let file = Self::read(root.get_ref(), base_dir, &mut problems);
        graph::check(&file.nodes, &mut problems);
        if problems.is_empty() { Ok(file) } else { Err(problems.into_found()) }
    }

    fn read(root: &DeTable<'_>, base_dir: &Path, problems: &mut Problems) -> Self {
        let root = Section::open("the pipeline file", root, 0..0, ROOT_KEYS, problems);
        let empty = DeTable::new();
        let open = |key: &'static str, keys, problems: &mut Problems| {
            let found = root.table(key, &format!("a table, as in [{key}]"), problems);
            let (table, span) = found.unwrap_or((&empty, 0..0));
            Section::open(format!("[{key}]"), table, span, keys, problems)
        };
        let pipeline = open("pipeline", PIPELINE_KEYS, problems);
        let name = read_name(&pipeline, problems);
        let most = node::MAX_PARALLELISM;
        let groups = pipeline.integer("max-parallelism", 1..=most, problems).unwrap_or(128);
        let parallelism = pipeline.integer("parallelism", 1..=most, problems).unwrap_or(1);
        let checkpoint = open("checkpoint", checkpoint::KEYS, problems);
        let restart = open("restart", restart::KEYS, problems);
        let state = open("state", state::KEYS, problems);
        let state = StateKeys::read(&state, &state::IN_STATE, &StateKeys::default(), problems);
        let max_parallelism = u32::try_from(groups).ok().and_then(MaxParallelism::new).expect("1 to 32,768 key groups");
        let nodes = node::read_nodes(&root, &state, problems);
        check_parallelism(&pipeline, parallelism, groups, &nodes, problems);
        let options = CheckpointOptions::new(base_dir, &name).read(&checkpoint, base_dir, problems);
        check_state(&options, &nodes, problems);
        Self {
            source: problems.source.clone(),
            base_dir: base_dir.to_owned(),
            checkpoint: options,
            restart: RestartStrategy::read(&restart, problems),
            parallelism: u32::try_from(parallelism).expect("at most 32,768"),
            max_parallelism,
            name,
            nodes,
        }
    }

    /// Returns a node by its id.
    pub fn node(&self, id: &OperatorId) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.id == *id)
    }

    /// Returns the operators with their nodes, in the order of the file.
    pub fn operators(&self) -> impl Iterator<Item = (&NodeConfig, &OperatorConfig)> {
        self.nodes.iter().filter_map(|node| match &node.kind {
            NodeConfigKind::Operator(operator) => Some((node, operator)),
            NodeConfigKind::Source { .. } | NodeConfigKind::Sink { .. } => None,
        })
    }

    /// Returns how many subtasks a node has.
    pub fn parallelism_of(&self, node: &NodeConfig) -> u32 {
        node.parallelism.unwrap_or(self.parallelism)
    }

    /// Returns where an operator's component, or its crate, is.
    pub fn component_path(&self, operator: &OperatorConfig) -> PathBuf {
        // Without the leading `./`, messages name the path as the file does.
        if self.base_dir == Path::new(".") { operator.component.clone() } else { self.base_dir.join(&operator.component) }
    }

    /// Returns the configuration that an operator is opened with, secrets included: JSON of an object. `env` looks up
    /// environment variables.
    ///
    /// # Errors
    /// A [`Diagnostic`] that names a secret that is not there; it shows no secret.
    pub fn guest_config(
        &self,
        node: &NodeConfig,
        operator: &OperatorConfig,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<u8>, Diagnostic> {
        guest_config::resolve(&operator.config, &operator.secrets, &self.base_dir, env)
            .map_err(|error| Diagnostic { place: Some(node.place.clone()), ..error })
    }

    /// Turns the file into the engine's job. `descriptors` has what each operator's component says of itself.
    ///
    /// # Errors
    /// Ports that do not exist or have no input, edges that cannot be partitioned as asked, operators that have no
    /// descriptor.
    pub fn into_job_spec(&self, descriptors: &BTreeMap<OperatorId, Descriptor>) -> Result<JobSpec, Vec<Diagnostic>> {
        graph::job_spec(self, descriptors)
    }
}

fn add_syntax_error(error: &toml::de::Error, problems: &mut Problems) {
    let span = error.span().unwrap_or(0..0);
    let message = error.message().replace('\n', "; ");
    if message.starts_with("duplicate key") {
        let word = problems.source.text().get(span.clone()).unwrap_or("").to_owned();
        problems.add_with_help(span, "duplicate-key", format!("\"{word}\" is defined twice"), "drop or rename one of the two");
    } else {
        problems.add(span, "toml-syntax", message);
    }
}

/// A pipeline's name becomes part of file names and obeys the rule of ids.
fn read_name(pipeline: &Section<'_, '_>, problems: &mut Problems) -> String {
    let Some(found) = pipeline.string("name", "a name such as \"word-count\"", problems) else {
        if pipeline.get("name").is_none() {
            pipeline.missing("name", "a name such as \"word-count\"", problems);
        }
        return String::new();
    };
    if let Err(error) = OperatorId::new(&found.value) {
        problems.add(found.span, "bad-id", error.to_string());
    }
    found.value
}

/// State on disk is written with checkpoints, and memory is freed by them.
fn check_state(checkpoint: &CheckpointOptions, nodes: &[NodeConfig], problems: &mut Problems) {
    let is_on_disk = |node: &&NodeConfig| match &node.kind {
        NodeConfigKind::Operator(operator) => operator.state != StateOptions::Memory,
        _ => false,
    };
    if checkpoint.interval_ms.is_none()
        && let Some(node) = nodes.iter().find(is_on_disk)
    {
        let message = format!("the state of \"{}\" is on disk, and checkpoints are off", node.id);
        let help = "state gets to the disk with checkpoints: set an interval, or use the backend \"memory\"";
        problems.add_with_help(node.place.span.clone(), "contradiction", message, help);
    }
}

fn check_parallelism(pipeline: &Section<'_, '_>, parallelism: u64, groups: u64, nodes: &[NodeConfig], problems: &mut Problems) {
    if parallelism > groups {
        let message = format!("\"parallelism\" is {parallelism}, above the max-parallelism of {groups}");
        problems.add(pipeline.value_span("parallelism"), "out-of-range", message);
    }
    for node in nodes.iter().filter(|node| node.parallelism.is_some_and(|own| u64::from(own) > groups)) {
        let own = node.parallelism.unwrap_or(0);
        let message = format!("the parallelism of \"{}\" is {own}, above the max-parallelism of {groups}", node.id);
        problems.add(node.place.span.clone(), "out-of-range", message);
    }
}
