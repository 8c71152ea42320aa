//! The subtasks of a task, from its head to its outputs: what takes records, watermarks and cuts through them.

use std::cell::Ref;

use super::operator::OperatorSubtask;
use super::output::{NoKey, OutputEdge};
use super::ports::{Now, Ports, TaskEvent};
use super::sink::SinkSubtask;
use super::time_report::OperatorTime;
use super::{TaskCounters, TaskFailure};
use crate::batch::Batch;
use crate::connector::Prepared;
use crate::element::StreamElement;
use crate::graph::plan::TaskPlan;
use crate::guest::{Output, TimeDomain};
use crate::ids::{CheckpointId, OperatorId, SubtaskId};
use crate::key_group::MaxParallelism;
use crate::snapshot::{StateBlock, SubtaskPart, SubtaskSnapshot, TableId};
use crate::state::{MemoryPressure, SubtaskState};
use crate::time::Watermark;

/// A subtask of a chain, after its head.
pub enum Node {
    /// Runs a guest.
    Operator(OperatorSubtask),
    /// Writes; the last of its chain.
    Sink(SinkSubtask),
}

pub(super) struct Chain {
    nodes: Vec<Node>,
    edges: Vec<OutputEdge>,
    /// All state tables, and the index of each node's first among them.
    tables: Vec<TableId>,
    first_table: Vec<u16>,
    /// The watermark that has reached the chain: the nodes have it one after the other, each once the timers that are due
    /// in those before it have fired.
    reached: Option<Watermark>,
    /// The watermark that was last handed on.
    watermark: Option<Watermark>,
    /// Whose turn it is to fire processing-time timers.
    turn: usize,
    /// Whether all input has ended.
    finished: bool,
    id: SubtaskId,
}

impl Chain {
    pub(super) fn new(plan: &TaskPlan, max_parallelism: MaxParallelism, nodes: Vec<Node>, restored: Option<Watermark>) -> Self {
        let mut edges = Vec::new();
        let mut first = 0;
        for output in &plan.outputs {
            let range = first..first + output.channels.len();
            first = range.end;
            edges.push(OutputEdge::new(output.port, output.partition, range, max_parallelism));
        }
        let (mut tables, mut first_table) = (Vec::new(), Vec::new());
        for node in &nodes {
            first_table.push(u16::try_from(tables.len()).expect("a chain has few slots"));
            if let Node::Operator(operator) = node {
                let slots = operator.descriptor().tables().into_iter();
                tables.extend(slots.map(|slot| TableId { operator: operator.id.operator.clone(), slot: slot.name }));
            }
        }
        let source = OperatorId::new("source").expect("a valid id");
        let id = nodes.first().map_or(SubtaskId { operator: source, index: plan.subtask }, |node| node.id().clone());
        // The restored watermark is handed on again, once the timers that it had made due have fired.
        Self { nodes, edges, tables, first_table, reached: restored, watermark: None, turn: 0, finished: false, id }
    }

    pub(super) fn first_id(&self) -> SubtaskId {
        self.id.clone()
    }

    pub(super) fn tables(&self) -> &[TableId] {
        &self.tables
    }

    /// Takes records through the chain. Returns the batch if its buffers may be used again.
    pub(super) fn deliver(&mut self, port: u32, batch: Batch, now: Now) -> Result<Option<Batch>, TaskFailure> {
        deliver(&mut self.nodes, &mut self.edges, (port, &self.id), batch, now)
    }

    /// Event time has advanced.
    pub(super) fn watermark(&mut self, watermark: Watermark, now: Now) {
        self.reached = self.reached.max(Some(watermark));
        self.settle(now);
    }

    /// Takes the watermark on as far as it gets. Returns whether that is all the way: no event-time timer is due.
    pub(super) fn settle(&mut self, now: Now) -> bool {
        for operator in operators(&mut self.nodes) {
            operator.watermark = operator.watermark.max(self.reached);
            if operator.is_due(TimeDomain::EventTime, now) {
                return false;
            }
            operator.end_round();
        }
        if let Some(reached) = self.reached
            && self.watermark < self.reached
        {
            self.watermark = self.reached;
            self.control(&StreamElement::Watermark(reached));
        }
        true
    }

    /// Fires a batch of one node's timers: of the first that has some due in event time, of the next whose turn it is in
    /// processing time. Returns whether there was one.
    pub(super) fn fire(&mut self, domain: TimeDomain, now: Now) -> Result<bool, TaskFailure> {
        let count = self.nodes.len();
        let first = if domain == TimeDomain::EventTime { 0 } else { self.turn };
        for index in (0..count).map(|offset| (first + offset) % count) {
            let (before, after) = self.nodes.split_at_mut(index + 1);
            if let Node::Operator(operator) = &mut before[index]
                && operator.is_due(domain, now)
            {
                let (id, edges) = (operator.id.clone(), &mut self.edges);
                operator.fire(domain, now, &mut |output| emit(after, edges, &id, output, now))?;
                self.turn = index + 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns when the next processing-time timer is due.
    pub(super) fn next_processing_timer(&self) -> Option<i64> {
        let of = |node: &Node| match node {
            Node::Operator(operator) => operator.next_timer(TimeDomain::ProcessingTime),
            Node::Sink(_) => None,
        };
        self.nodes.iter().filter_map(of).min()
    }

    /// Sends a control element to every output, after everything before it.
    pub(super) fn control(&mut self, element: &StreamElement) {
        self.edges.iter_mut().for_each(|edge| edge.control(element));
    }

    /// Lets each guest finish, in the order of the flow.
    pub(super) fn finish(&mut self, now: Now) -> Result<(), TaskFailure> {
        self.finished = true;
        for index in 0..self.nodes.len() {
            let (before, after) = self.nodes.split_at_mut(index + 1);
            if let Node::Operator(operator) = &mut before[index] {
                let id = operator.id.clone();
                for output in operator.finish(now)? {
                    emit(after, &mut self.edges, &id, output, now)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the nodes' part of a snapshot.
    pub(super) fn snapshot(
        &mut self,
        (checkpoint, full): (CheckpointId, bool),
        subtasks: &mut Vec<SubtaskSnapshot>,
        prepared: &mut Vec<Prepared>,
    ) -> Result<(), TaskFailure> {
        for node in &mut self.nodes {
            subtasks.push(match node {
                Node::Operator(operator) => {
                    if let Some(state) = &operator.state {
                        state.borrow_mut().begin_snapshot(checkpoint, full);
                    }
                    let part = SubtaskPart::Operator { slots: operator.descriptor().tables() };
                    let (id, watermark, finished) = (operator.id.clone(), operator.watermark, operator.finished);
                    SubtaskSnapshot { id, watermark, finished, part }
                }
                Node::Sink(sink) => {
                    let (transactions, new) = sink.prepare(checkpoint)?;
                    prepared.extend(new);
                    let part = SubtaskPart::Sink { transactions };
                    SubtaskSnapshot { id: sink.id.clone(), watermark: self.watermark, finished: self.finished, part }
                }
            });
        }
        Ok(())
    }

    /// A checkpoint has completed, its transactions committed.
    pub(super) fn completed(&mut self, checkpoint: CheckpointId) {
        for node in &mut self.nodes {
            match node {
                Node::Operator(operator) => operator.state.iter().for_each(|state| state.borrow_mut().confirm(checkpoint)),
                Node::Sink(sink) => sink.committed(checkpoint),
            }
        }
    }

    /// The stores hold a completed checkpoint.
    pub(super) fn applied(&mut self, checkpoint: CheckpointId) {
        operators(&mut self.nodes)
            .filter_map(|operator| operator.state.as_ref())
            .for_each(|state| state.borrow_mut().applied(checkpoint));
    }

    /// Evicts a slice of what stores hold. Returns whether there was anything to do.
    pub(super) fn evict(&mut self) -> bool {
        let states = operators(&mut self.nodes).filter_map(|operator| operator.state.as_ref());
        // Each has its turn, whatever the others had to do.
        states.filter(|state| state.borrow_mut().evict_some()).count() > 0
    }

    pub(super) fn memory_pressure(&self) -> MemoryPressure {
        self.states().map(|state| state.memory_pressure()).max().unwrap_or(MemoryPressure::None)
    }

    /// Fails if a store has.
    pub(super) fn check_stores(&mut self) -> Result<(), TaskFailure> {
        operators(&mut self.nodes).try_for_each(|operator| operator.check_store())
    }

    pub(super) fn drop_snapshot(&mut self, checkpoint: CheckpointId) {
        operators(&mut self.nodes)
            .filter_map(|operator| operator.state.as_ref())
            .for_each(|state| state.borrow_mut().drop_snapshot(checkpoint));
    }

    /// Encodes a slice of frozen state and reports it. Returns whether there was any.
    pub(super) fn encode_some(&mut self, budget: usize, ports: &mut dyn Ports) -> bool {
        for (node, first) in self.nodes.iter_mut().zip(&self.first_table) {
            if let Node::Operator(OperatorSubtask { state: Some(state), .. }) = node
                && state.borrow().is_collecting()
            {
                let mut report = |checkpoint, block: StateBlock| {
                    let block = StateBlock { table: first + block.table, ..block };
                    ports.report(TaskEvent::SnapshotBlock { checkpoint, block });
                };
                state.borrow_mut().collect_some(budget, &mut report);
                return true;
            }
        }
        false
    }

    pub(super) fn is_encoding(&self, checkpoint: CheckpointId) -> bool {
        self.states().any(|state| state.is_collecting_for(checkpoint))
    }

    /// Frees a slice of what is deleted. Returns whether there was anything.
    pub(super) fn reap(&mut self, budget: usize) -> bool {
        operators(&mut self.nodes)
            .filter_map(|operator| operator.state.as_ref())
            .any(|state| state.borrow_mut().reap_some(budget))
    }

    /// Hands on what the outputs take. Returns whether nothing waits.
    pub(super) fn flush(&mut self, ports: &mut dyn Ports, all: bool) -> bool {
        let mut clear = true;
        for edge in &mut self.edges {
            // Every edge has its turn: one that is full must not hold the barriers of another.
            clear &= edge.flush(ports, all);
        }
        clear
    }

    /// There is no input for now: sinks whose output is visible at once hand it on.
    pub(super) fn idle(&mut self) -> Result<(), TaskFailure> {
        match self.nodes.last_mut() {
            Some(Node::Sink(sink)) => sink.flush(),
            _ => Ok(()),
        }
    }

    fn states(&self) -> impl Iterator<Item = Ref<'_, SubtaskState>> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Operator(operator) => operator.state.as_ref().map(|state| state.borrow()),
            Node::Sink(_) => None,
        })
    }

    /// Returns where the operators are in event time.
    pub(super) fn time(&self) -> Vec<OperatorTime> {
        let time = |node: &Node| match node {
            Node::Operator(operator) => Some(operator.time()),
            Node::Sink(_) => None,
        };
        self.nodes.iter().filter_map(time).collect()
    }

    pub(super) fn count(&self, counters: &mut TaskCounters) {
        for node in &self.nodes {
            match node {
                Node::Operator(operator) => counters.operators.push(operator.counters()),
                Node::Sink(sink) => {
                    counters.sink_records += sink.records_in;
                    counters.sink_bytes += sink.bytes_in;
                }
            }
        }
    }
}

impl Node {
    fn id(&self) -> &SubtaskId {
        match self {
            Self::Operator(operator) => &operator.id,
            Self::Sink(sink) => &sink.id,
        }
    }
}

fn operators(nodes: &mut [Node]) -> impl Iterator<Item = &mut OperatorSubtask> {
    nodes.iter_mut().filter_map(|node| match node {
        Node::Operator(operator) => Some(operator),
        Node::Sink(_) => None,
    })
}

/// Takes records through `nodes` and out. `from` is the input port of the first node, and who handed the records on.
fn deliver(
    nodes: &mut [Node],
    edges: &mut [OutputEdge],
    from: (u32, &SubtaskId),
    batch: Batch,
    now: Now,
) -> Result<Option<Batch>, TaskFailure> {
    match nodes.split_first_mut() {
        Some((Node::Operator(operator), after)) => {
            let id = operator.id.clone();
            operator.process(from.0, &batch, now, &mut |output| emit(after, edges, &id, output, now))?;
            Ok(Some(batch))
        }
        Some((Node::Sink(sink), _)) => {
            sink.write(&batch)?;
            Ok(Some(batch))
        }
        None => route(edges, 0, from.1, batch).map(|()| None),
    }
}

/// Hands one output of a node on: to the next node of the chain if there is one (it reads port 0, and no other port is
/// read by anyone), else to the edges of its port.
fn emit(after: &mut [Node], edges: &mut [OutputEdge], id: &SubtaskId, output: Output, now: Now) -> Result<(), TaskFailure> {
    let keys = (!output.keys.is_empty()).then_some(output.keys);
    let batch = Batch { keys, hashes: Vec::new(), timestamps: output.timestamps, values: output.values };
    if batch.is_empty() {
        return Ok(());
    }
    if after.is_empty() {
        return route(edges, output.port, id, batch);
    }
    if output.port == 0 { deliver(after, edges, (0, id), batch, now).map(drop) } else { Ok(()) }
}

fn route(edges: &mut [OutputEdge], port: u32, id: &SubtaskId, batch: Batch) -> Result<(), TaskFailure> {
    let no_key = |NoKey| {
        let text = format!("{} sends records without a key to an operator that needs one", id.operator);
        TaskFailure::rejected(id.clone(), "record-without-key", text)
    };
    let mut targets = edges.iter_mut().filter(|edge| edge.port == port).peekable();
    while let Some(edge) = targets.next() {
        if targets.peek().is_none() {
            return edge.route(batch).map_err(no_key);
        }
        edge.route(batch.clone()).map_err(no_key)?;
    }
    Ok(())
}
