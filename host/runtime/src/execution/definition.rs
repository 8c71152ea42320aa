//! A job that is ready to run: its graph, and what makes the guests, sources and sinks of its nodes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_dataflow::checkpoint::config::CheckpointConfig;
use cofferdam_dataflow::connector::{SinkFactory, SourceFactory};
use cofferdam_dataflow::graph::plan::ExecutionPlan;
use cofferdam_dataflow::graph::spec::{JobSpec, SpecError};
use cofferdam_dataflow::guest::{EffectLimits, GuestFactory};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::subtask::WatermarkStrategy;

/// What runs, and how.
#[derive(Clone)]
pub struct JobDefinition {
    /// The logical graph.
    pub spec: JobSpec,
    /// The graph as it runs.
    pub plan: ExecutionPlan,
    /// What makes each node's parts, in the order of [`JobSpec::nodes`].
    pub parts: Vec<NodeParts>,
    /// The digest of each operator's component.
    pub digests: BTreeMap<OperatorId, String>,
    /// The interfaces that each operator's component imports.
    pub imports: BTreeMap<OperatorId, Vec<String>>,
    /// The engine's fingerprint, for the record.
    pub engine: String,
    /// When checkpoints are taken, and how many are kept.
    pub checkpoint: CheckpointConfig,
    /// Where stores of state are; needed if any operator's state is on disk.
    pub local_dir: Option<PathBuf>,
}

/// Where an operator's state is between checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateBackend {
    /// In memory.
    #[default]
    Memory,
    /// On the local disk.
    Disk {
        /// The memory that the state of one subtask may take, the store's own included, about.
        memory_bytes: u64,
    },
}

/// What makes the parts of a node.
#[derive(Clone)]
pub enum NodeParts {
    /// A source.
    Source {
        /// Opens readers.
        factory: Arc<dyn SourceFactory>,
        /// How watermarks follow event times; `None` if records have none: the source holds nobody back.
        watermarks: Option<WatermarkStrategy>,
    },
    /// An operator.
    Operator {
        /// Opens guests.
        factory: Arc<dyn GuestFactory>,
        /// What one call's effects may be.
        limits: EffectLimits,
        /// Bytes of keys and values of one subtask's state, at most.
        state_quota_bytes: u64,
        /// Where its state is.
        backend: StateBackend,
    },
    /// A sink.
    Sink {
        /// Opens writers and the committer.
        factory: Arc<dyn SinkFactory>,
    },
}

impl JobDefinition {
    /// Plans a job.
    ///
    /// # Errors
    /// [`SpecError`] if the graph breaks a rule.
    ///
    /// # Panics
    /// If there is not one part for each node, of its kind.
    pub fn new(spec: JobSpec, parts: Vec<NodeParts>, checkpoint: CheckpointConfig) -> Result<Self, SpecError> {
        assert_eq!(spec.nodes.len(), parts.len(), "one part for each node");
        let plan = ExecutionPlan::new(&spec)?;
        let (digests, imports, engine, local_dir) = (BTreeMap::new(), BTreeMap::new(), String::new(), None);
        Ok(Self { spec, plan, parts, digests, imports, engine, checkpoint, local_dir })
    }

    /// Whether the state of any operator is on disk.
    pub fn has_stores(&self) -> bool {
        let is_on_disk = |part: &NodeParts| matches!(part, NodeParts::Operator { backend: StateBackend::Disk { .. }, .. });
        self.parts.iter().any(is_on_disk)
    }
}
