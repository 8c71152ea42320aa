//! The logical graph: operators and edges, with components described and ports resolved.

use std::collections::BTreeMap;

use crate::guest::Descriptor;
use crate::ids::OperatorId;
use crate::key_group::MaxParallelism;

/// A job: what runs, before it is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// The pipeline's name, stable over restarts: part of transaction names and of the job's identity.
    pub name: String,
    /// The number of key groups.
    pub max_parallelism: MaxParallelism,
    /// Sources, operators and sinks, in the user's order.
    pub nodes: Vec<NodeSpec>,
}

/// One source, operator or sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Unique in the job.
    pub id: OperatorId,
    /// How many subtasks, at least 1.
    pub parallelism: u32,
    /// What it is.
    pub kind: NodeKind,
    /// Its inputs; none for a source.
    pub inputs: Vec<InputSpec>,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Reads splits.
    Source,
    /// Runs a guest.
    Operator(Descriptor),
    /// Writes.
    Sink,
}

/// One edge, seen from its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// The node it comes from.
    pub from: OperatorId,
    /// That node's output port; 0 for a source.
    pub from_port: u32,
    /// The input port here; 0 for a sink.
    pub to_port: u32,
    /// How records are dealt out; `None` chooses: broadcast for a port that is declared so, keyed for a keyed operator, else forward where the parallelism is
    /// equal and rebalance where not.
    pub partition: Option<Partition>,
}

/// How the records of an edge are dealt out to subtasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// Subtask i to subtask i.
    Forward,
    /// By the key's group.
    Keyed,
    /// Batches in turn.
    Rebalance,
    /// All to all.
    Broadcast,
}

impl Partition {
    /// Returns the name that pipeline files use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Keyed => "keyed",
            Self::Rebalance => "rebalance",
            Self::Broadcast => "broadcast",
        }
    }
}

/// A graph that cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Two nodes of one name.
    #[error("the id \"{0}\" is used twice")]
    DuplicateId(OperatorId),
    /// An input that is no node.
    #[error("\"{node}\" reads from \"{from}\", which does not exist")]
    DanglingInput {
        /// The reader.
        node: OperatorId,
        /// The missing one.
        from: OperatorId,
    },
    /// An input that is a sink.
    #[error("\"{node}\" reads from \"{from}\", which is a sink")]
    ReadsFromSink {
        /// The reader.
        node: OperatorId,
        /// The sink.
        from: OperatorId,
    },
    /// A port that was not declared.
    #[error("\"{node}\" has no {direction} port {port}")]
    NoSuchPort {
        /// The node.
        node: OperatorId,
        /// Input or output.
        direction: &'static str,
        /// The port.
        port: u32,
    },
    /// A node that reads nothing, or a port without input.
    #[error("\"{node}\" has no input for its port {port}")]
    NoInput {
        /// The node.
        node: OperatorId,
        /// The port.
        port: u32,
    },
    /// A source with inputs.
    #[error("\"{0}\" is a source and cannot have inputs")]
    SourceWithInput(OperatorId),
    /// A cycle.
    #[error("the inputs form a cycle: {}", .0.iter().map(OperatorId::as_str).collect::<Vec<_>>().join(" -> "))]
    Cycle(Vec<OperatorId>),
    /// Parallelism of 0 or beyond the key groups.
    #[error("\"{node}\" has parallelism {parallelism}; it must be 1 to {max} (max-parallelism)")]
    Parallelism {
        /// The node.
        node: OperatorId,
        /// What was asked for.
        parallelism: u32,
        /// The most.
        max: u16,
    },
    /// A forward edge between different parallelisms.
    #[error("\"{from}\" and \"{to}\" are joined by forward but differ in parallelism")]
    ForwardMismatch {
        /// Upstream.
        from: OperatorId,
        /// Downstream.
        to: OperatorId,
    },
    /// A keyed operator fed by an edge that does not route by key.
    #[error("\"{to}\" is keyed, but its input from \"{from}\" is {} at parallelism above 1", partition.name())]
    NotRoutedByKey {
        /// Upstream.
        from: OperatorId,
        /// Downstream.
        to: OperatorId,
        /// The edge's partition.
        partition: Partition,
    },
    /// An input that is declared as broadcast, fed by an edge that does not reach every subtask.
    #[error("input {port:?} of \"{to}\" is declared as broadcast, but \"{from}\" is joined to it by {}", partition.name())]
    NotBroadcast {
        /// Upstream.
        from: OperatorId,
        /// Downstream.
        to: OperatorId,
        /// The port's name.
        port: String,
        /// The edge's partition.
        partition: Partition,
    },
    /// No source or no sink.
    #[error("the pipeline has no {0}")]
    Missing(&'static str),
}

impl JobSpec {
    /// Returns a node by its id.
    pub fn node(&self, id: &OperatorId) -> Option<&NodeSpec> {
        self.nodes.iter().find(|node| node.id == *id)
    }

    /// Returns the indices of the nodes so that each comes after its inputs, in file order where that is free.
    ///
    /// # Errors
    /// [`SpecError::Cycle`] with the nodes of one cycle, [`SpecError::DanglingInput`].
    pub fn topological_order(&self) -> Result<Vec<usize>, SpecError> {
        let index: BTreeMap<_, _> = self.nodes.iter().enumerate().map(|(i, node)| (&node.id, i)).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut visit = Visit { spec: self, index: &index, state: vec![0; self.nodes.len()], path: Vec::new() };
        for node in 0..self.nodes.len() {
            visit.node(node, &mut order)?;
        }
        Ok(order)
    }

    /// Checks everything that planning relies on.
    ///
    /// # Errors
    /// [`SpecError`], for the first thing found.
    pub fn check(&self) -> Result<(), SpecError> {
        for (index, node) in self.nodes.iter().enumerate() {
            if self.nodes[..index].iter().any(|other| other.id == node.id) {
                return Err(SpecError::DuplicateId(node.id.clone()));
            }
            if node.parallelism == 0 || node.parallelism > u32::from(self.max_parallelism.get()) {
                let (parallelism, max) = (node.parallelism, self.max_parallelism.get());
                return Err(SpecError::Parallelism { node: node.id.clone(), parallelism, max });
            }
            self.check_inputs(node)?;
        }
        if !self.nodes.iter().any(|node| node.kind == NodeKind::Source) {
            return Err(SpecError::Missing("source"));
        }
        if !self.nodes.iter().any(|node| node.kind == NodeKind::Sink) {
            return Err(SpecError::Missing("sink"));
        }
        self.topological_order().map(drop)
    }

    fn check_inputs(&self, node: &NodeSpec) -> Result<(), SpecError> {
        let ports = match &node.kind {
            NodeKind::Source if node.inputs.is_empty() => return Ok(()),
            NodeKind::Source => return Err(SpecError::SourceWithInput(node.id.clone())),
            NodeKind::Operator(descriptor) => descriptor.inputs.len(),
            NodeKind::Sink => 1,
        };
        for port in 0..u32::try_from(ports).unwrap_or(u32::MAX) {
            if !node.inputs.iter().any(|input| input.to_port == port) {
                return Err(SpecError::NoInput { node: node.id.clone(), port });
            }
        }
        node.inputs.iter().try_for_each(|input| self.check_edge(node, ports, input))
    }

    fn check_edge(&self, node: &NodeSpec, ports: usize, input: &InputSpec) -> Result<(), SpecError> {
        let no_port = |node: &NodeSpec, direction, port| SpecError::NoSuchPort { node: node.id.clone(), direction, port };
        if input.to_port as usize >= ports {
            return Err(no_port(node, "input", input.to_port));
        }
        let (to, from) = (node.id.clone(), input.from.clone());
        let Some(upstream) = self.node(&input.from) else {
            return Err(SpecError::DanglingInput { node: to, from });
        };
        let outputs = match &upstream.kind {
            NodeKind::Source => 1,
            NodeKind::Operator(descriptor) => descriptor.outputs.len(),
            NodeKind::Sink => return Err(SpecError::ReadsFromSink { node: to, from }),
        };
        if input.from_port as usize >= outputs {
            return Err(no_port(upstream, "output", input.from_port));
        }
        let partition = self.partition(node, input);
        if partition == Partition::Forward && upstream.parallelism != node.parallelism {
            return Err(SpecError::ForwardMismatch { from, to });
        }
        if let NodeKind::Operator(descriptor) = &node.kind
            && descriptor.is_broadcast(input.to_port)
        {
            let port = descriptor.inputs[input.to_port as usize].name.clone();
            let fits = partition == Partition::Broadcast;
            return if fits { Ok(()) } else { Err(SpecError::NotBroadcast { from, to, port, partition }) };
        }
        if node.is_keyed() && partition != Partition::Keyed && node.parallelism > 1 {
            return Err(SpecError::NotRoutedByKey { from, to, partition });
        }
        Ok(())
    }

    /// Returns how the records of an edge into `node` are dealt out.
    pub fn partition(&self, node: &NodeSpec, input: &InputSpec) -> Partition {
        let same = self.node(&input.from).is_some_and(|from| from.parallelism == node.parallelism);
        let is_broadcast = matches!(&node.kind, NodeKind::Operator(descriptor) if descriptor.is_broadcast(input.to_port));
        input.partition.unwrap_or(match (is_broadcast, node.is_keyed(), same) {
            (true, ..) => Partition::Broadcast,
            (false, true, _) => Partition::Keyed,
            (false, false, true) => Partition::Forward,
            (false, false, false) => Partition::Rebalance,
        })
    }
}

impl NodeSpec {
    /// Whether the node's records must carry a key, but for those of broadcast inputs.
    pub fn is_keyed(&self) -> bool {
        matches!(&self.kind, NodeKind::Operator(descriptor) if descriptor.is_keyed())
    }
}

struct Visit<'a> {
    spec: &'a JobSpec,
    index: &'a BTreeMap<&'a OperatorId, usize>,
    /// 0 unseen, 1 on the path, 2 done.
    state: Vec<u8>,
    path: Vec<usize>,
}

impl Visit<'_> {
    /// Depth-first; the depth is bounded by the nodes of one pipeline file.
    fn node(&mut self, node: usize, order: &mut Vec<usize>) -> Result<(), SpecError> {
        match self.state[node] {
            0 => {}
            1 => {
                let start = self.path.iter().position(|n| *n == node).unwrap_or(0);
                let cycle = self.path[start..].iter().chain([&node]);
                return Err(SpecError::Cycle(cycle.map(|n| self.spec.nodes[*n].id.clone()).collect()));
            }
            _ => return Ok(()),
        }
        self.state[node] = 1;
        self.path.push(node);
        for input in &self.spec.nodes[node].inputs {
            let dangling = || SpecError::DanglingInput { node: self.spec.nodes[node].id.clone(), from: input.from.clone() };
            let upstream = *self.index.get(&input.from).ok_or_else(dangling)?;
            self.node(upstream, order)?;
        }
        self.path.pop();
        self.state[node] = 2;
        order.push(node);
        Ok(())
    }
}
