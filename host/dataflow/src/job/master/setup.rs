//! What the master is told about a job before it starts.

use std::collections::BTreeMap;

use crate::checkpoint::config::CheckpointConfig;
use crate::graph::plan::ExecutionPlan;
use crate::graph::spec::JobSpec;
use crate::ids::OperatorId;
use crate::job::restart::RestartPolicy;

/// What a job runs and how.
#[derive(Clone, Debug)]
pub struct JobSetup {
    /// The graph.
    pub spec: JobSpec,
    /// The graph as it runs.
    pub plan: ExecutionPlan,
    /// The component of each operator that has one.
    pub digests: BTreeMap<OperatorId, String>,
    /// The interfaces that each component imports.
    pub imports: BTreeMap<OperatorId, Vec<String>>,
    /// The host, such as `cofferdam 0.1.0`.
    pub engine: String,
    /// How checkpoints are taken.
    pub checkpoints: CheckpointConfig,
    /// How it restarts.
    pub restart: RestartPolicy,
    /// Decides the jitter of restarts.
    pub seed: u64,
    /// Forgets an earlier run.
    pub fresh: bool,
    /// Goes back behind damaged checkpoints.
    pub allow_rewind: bool,
}
