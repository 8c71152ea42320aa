//! The execution plan: tasks (chains of subtasks) and the channels between them.

use std::ops::Range;

use super::spec::{InputSpec, JobSpec, NodeKind, Partition, SpecError};
use crate::ids::{ChannelIndex, TaskIndex};
use crate::key_group::MaxParallelism;

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionPlan {
    /// The number of key groups.
    pub max_parallelism: MaxParallelism,
    /// Chains of subtasks; each runs on one thread.
    pub tasks: Vec<TaskPlan>,
    /// FIFOs between tasks.
    pub channels: Vec<ChannelPlan>,
}

/// A chain of subtasks, all with the same index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlan {
    /// The position in [`ExecutionPlan::tasks`].
    pub index: TaskIndex,
    /// Indices into [`JobSpec::nodes`], in the order of the flow.
    pub nodes: Vec<usize>,
    /// The subtask's index.
    pub subtask: u32,
    /// The parallelism of each node of the chain.
    pub parallelism: u32,
    /// The key groups that the subtask owns.
    pub groups: Range<u16>,
    /// Channels into the chain's first node, with the input port they feed.
    pub inputs: Vec<TaskInput>,
    /// Edges out of the chain's last node.
    pub outputs: Vec<TaskOutput>,
}

/// A channel into a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskInput {
    /// The channel.
    pub channel: ChannelIndex,
    /// The input port of the chain's first node.
    pub port: u32,
}

/// An edge out of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskOutput {
    /// The output port of the chain's last node.
    pub port: u32,
    /// How records are dealt out to the channels.
    pub partition: Partition,
    /// One for each subtask downstream (for [`Partition::Forward`], one).
    pub channels: Vec<ChannelIndex>,
}

/// A FIFO from one task to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelPlan {
    /// The producer.
    pub from: TaskIndex,
    /// The consumer.
    pub to: TaskIndex,
}

impl ExecutionPlan {
    /// Plans a job.
    ///
    /// # Errors
    /// [`SpecError`] if the job breaks a rule.
    pub fn new(spec: &JobSpec) -> Result<Self, SpecError> {
        spec.check()?;
        let chains = chains(spec)?;
        let mut plan = Self { max_parallelism: spec.max_parallelism, tasks: Vec::new(), channels: Vec::new() };
        // The first task of each chain, by the chain's position.
        let mut first_task = Vec::with_capacity(chains.len());
        for chain in &chains {
            first_task.push(plan.tasks.len());
            let parallelism = spec.nodes[chain[0]].parallelism;
            for subtask in 0..parallelism {
                plan.tasks.push(TaskPlan {
                    index: TaskIndex(plan.tasks.len()),
                    nodes: chain.clone(),
                    subtask,
                    parallelism,
                    groups: spec.max_parallelism.range(subtask, parallelism),
                    inputs: Vec::new(),
                    outputs: Vec::new(),
                });
            }
        }
        for (position, chain) in chains.iter().enumerate() {
            let head = &spec.nodes[chain[0]];
            for input in &head.inputs {
                let is_upstream = |chain: &Vec<usize>| chain.last().is_some_and(|last| spec.nodes[*last].id == input.from);
                let upstream = chains.iter().position(is_upstream).expect("an edge into a head comes from a tail");
                plan.connect(spec.partition(head, input), input, first_task[upstream], first_task[position]);
            }
        }
        Ok(plan)
    }

    /// Adds the channels of one edge between the tasks of two chains.
    fn connect(&mut self, partition: Partition, input: &InputSpec, from: usize, to: usize) {
        let (senders, receivers) = (self.tasks[from].parallelism as usize, self.tasks[to].parallelism as usize);
        for sender in 0..senders {
            let targets = if partition == Partition::Forward { sender..sender + 1 } else { 0..receivers };
            let mut channels = Vec::with_capacity(targets.len());
            for receiver in targets {
                let channel = ChannelIndex(self.channels.len());
                self.channels.push(ChannelPlan { from: TaskIndex(from + sender), to: TaskIndex(to + receiver) });
                self.tasks[to + receiver].inputs.push(TaskInput { channel, port: input.to_port });
                channels.push(channel);
            }
            self.tasks[from + sender].outputs.push(TaskOutput { port: input.from_port, partition, channels });
        }
    }
}

/// Groups nodes into chains, in topological order of their heads. A node joins its input's chain if that is its only
/// input, it is that node's only reader, and records stay on the subtask: a forward edge, or any edge from one subtask
/// to one.
fn chains(spec: &JobSpec) -> Result<Vec<Vec<usize>>, SpecError> {
    let mut chains: Vec<Vec<usize>> = Vec::new();
    for index in spec.topological_order()? {
        let node = &spec.nodes[index];
        let joins = match node.inputs.as_slice() {
            [input] => {
                let upstream = spec.node(&input.from).expect("checked");
                let readers = spec.nodes.iter().flat_map(|node| &node.inputs).filter(|other| other.from == input.from).count();
                let stays =
                    spec.partition(node, input) == Partition::Forward || (upstream.parallelism == 1 && node.parallelism == 1);
                let all_outputs_read = !matches!(&upstream.kind, NodeKind::Operator(_)) || input.from_port == 0;
                (readers == 1 && stays && all_outputs_read).then_some(&input.from)
            }
            _ => None,
        };
        let tail = joins.and_then(|from| chains.iter().position(|chain| spec.nodes[chain[chain.len() - 1]].id == *from));
        match tail {
            Some(chain) => chains[chain].push(index),
            None => chains.push(vec![index]),
        }
    }
    Ok(chains)
}
