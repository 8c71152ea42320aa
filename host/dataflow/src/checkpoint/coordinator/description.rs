//! What manifests say about the job.

use std::collections::BTreeMap;

use crate::checkpoint::manifest::{ManifestNode, ManifestNodeKind};
use crate::graph::spec::{JobSpec, NodeKind};
use crate::ids::OperatorId;
use crate::key_group::MaxParallelism;

/// What manifests say about the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDescription {
    /// The job's name.
    pub name: String,
    /// The host, such as `cofferdam 0.1.0`.
    pub engine: String,
    /// The number of key groups.
    pub max_parallelism: MaxParallelism,
    /// The job's nodes.
    pub nodes: Vec<ManifestNode>,
}

impl JobDescription {
    /// Describes a job. `digests` names the component of each operator that has one.
    pub fn new(spec: &JobSpec, engine: &str, digests: &BTreeMap<OperatorId, String>) -> Self {
        let nodes = spec.nodes.iter().map(|node| {
            let kind = match &node.kind {
                NodeKind::Source => ManifestNodeKind::Source,
                NodeKind::Operator(descriptor) => {
                    let digest = digests.get(&node.id).cloned().unwrap_or_default();
                    ManifestNodeKind::Operator { digest, slots: descriptor.tables(), imports: Vec::new() }
                }
                NodeKind::Sink => ManifestNodeKind::Sink,
            };
            ManifestNode { id: node.id.clone(), parallelism: node.parallelism, kind }
        });
        let nodes = nodes.collect();
        Self { name: spec.name.clone(), engine: engine.into(), max_parallelism: spec.max_parallelism, nodes }
    }

    /// Adds what each operator's component imports.
    #[must_use]
    pub fn with_imports(mut self, all: &BTreeMap<OperatorId, Vec<String>>) -> Self {
        for node in &mut self.nodes {
            if let (ManifestNodeKind::Operator { imports, .. }, Some(known)) = (&mut node.kind, all.get(&node.id)) {
                imports.clone_from(known);
            }
        }
        self
    }
}
