//! Puts the graph of a simulated job together.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam::execution::{JobDefinition, NodeParts, StateBackend};
use cofferdam_dataflow::checkpoint::config::CheckpointConfig;
use cofferdam_dataflow::connector::{SinkFactory, SourceFactory};
use cofferdam_dataflow::graph::spec::{InputSpec, JobSpec, NodeKind, NodeSpec, Partition, SpecError};
use cofferdam_dataflow::guest::{EffectLimits, GuestFactory};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::job::restart::RestartPolicy;
use cofferdam_dataflow::key_group::MaxParallelism;
use cofferdam_dataflow::subtask::WatermarkStrategy;

/// A graph that is being put together, and how it runs.
#[derive(Clone)]
pub struct Graph {
    /// The job's name.
    pub name: String,
    nodes: Vec<NodeSpec>,
    parts: Vec<NodeParts>,
    /// The number of key groups.
    pub max_parallelism: u32,
    /// When checkpoints are taken.
    pub checkpoint: CheckpointConfig,
    /// How the job restarts.
    pub restart: RestartPolicy,
    /// Where the state of the operators is that are added from here on.
    pub backend: StateBackend,
    /// The digest of each operator's component.
    pub digests: BTreeMap<OperatorId, String>,
}

fn id(name: &str) -> OperatorId {
    OperatorId::new(name).expect("tests use valid ids")
}

fn inputs(from: &[(&str, u32)]) -> Vec<InputSpec> {
    let input = |(from, to_port): &(&str, u32)| InputSpec { from: id(from), from_port: 0, to_port: *to_port, partition: None };
    from.iter().map(input).collect()
}

impl Default for Graph {
    fn default() -> Self {
        Self {
            name: "simulated".into(),
            nodes: Vec::new(),
            parts: Vec::new(),
            max_parallelism: 17,
            checkpoint: CheckpointConfig { interval_ms: Some(100), ..CheckpointConfig::default() },
            restart: RestartPolicy::FixedDelay { restarts: u32::MAX, delay_ms: 10 },
            backend: StateBackend::Memory,
            digests: BTreeMap::new(),
        }
    }
}

impl Graph {
    /// Returns an empty graph that takes a checkpoint every so many milliseconds.
    #[must_use]
    pub fn every_ms(interval: u64) -> Self {
        let mut graph = Self::default();
        graph.checkpoint.interval_ms = Some(interval);
        graph
    }

    /// Adds a source.
    #[must_use]
    pub fn source(self, name: &str, parallelism: u32, factory: impl SourceFactory + 'static) -> Self {
        self.timed_source(name, parallelism, factory, None)
    }

    /// Adds a source whose records have event times.
    #[must_use]
    pub fn timed_source(
        mut self,
        name: &str,
        parallelism: u32,
        factory: impl SourceFactory + 'static,
        watermarks: Option<WatermarkStrategy>,
    ) -> Self {
        self.nodes.push(NodeSpec { id: id(name), parallelism, kind: NodeKind::Source, inputs: Vec::new() });
        self.parts.push(NodeParts::Source { factory: Arc::new(factory), watermarks });
        self
    }

    /// Adds an operator; `from` are the nodes that its ports read from.
    #[must_use]
    pub fn operator(mut self, name: &str, parallelism: u32, factory: impl GuestFactory + 'static, from: &[(&str, u32)]) -> Self {
        let kind = NodeKind::Operator(factory.descriptor().clone());
        self.nodes.push(NodeSpec { id: id(name), parallelism, kind, inputs: inputs(from) });
        let (limits, state_quota_bytes) = (EffectLimits::default(), 1 << 30);
        self.parts.push(NodeParts::Operator { factory: Arc::new(factory), limits, state_quota_bytes, backend: self.backend });
        self
    }

    /// Adds a sink.
    #[must_use]
    pub fn sink(mut self, name: &str, parallelism: u32, factory: impl SinkFactory + 'static, from: &str) -> Self {
        let inputs = inputs(&[(from, 0)]);
        self.nodes.push(NodeSpec { id: id(name), parallelism, kind: NodeKind::Sink, inputs });
        self.parts.push(NodeParts::Sink { factory: Arc::new(factory) });
        self
    }

    /// Sets how the edges into the node that was added last are dealt out.
    #[must_use]
    pub fn partitioned(mut self, partition: Partition) -> Self {
        self.nodes.iter_mut().last().into_iter().flat_map(|node| &mut node.inputs).for_each(|i| i.partition = Some(partition));
        self
    }

    /// Sets how each edge into the node that was added last is dealt out, in the order of its inputs.
    #[must_use]
    pub fn partitioned_each(mut self, partitions: &[Option<Partition>]) -> Self {
        let inputs = self.nodes.iter_mut().last().into_iter().flat_map(|node| &mut node.inputs);
        inputs.zip(partitions).for_each(|(input, partition)| input.partition = *partition);
        self
    }

    /// Plans the job.
    ///
    /// # Panics
    /// If the graph breaks a rule.
    pub fn plan(&self) -> JobDefinition {
        self.try_plan().expect("tests use valid graphs")
    }

    /// As [`Self::plan`].
    ///
    /// # Errors
    /// [`SpecError`] if the graph breaks a rule.
    ///
    /// # Panics
    /// If a setting makes no sense.
    pub fn try_plan(&self) -> Result<JobDefinition, SpecError> {
        let max_parallelism = MaxParallelism::new(self.max_parallelism).expect("tests use valid numbers");
        let spec = JobSpec { name: self.name.clone(), max_parallelism, nodes: self.nodes.clone() };
        self.checkpoint.check().expect("tests use valid settings");
        let definition = JobDefinition::new(spec, self.parts.clone(), self.checkpoint.clone())?;
        Ok(JobDefinition { digests: self.digests.clone(), ..definition })
    }
}
