//! The data path: one task is a chain of subtasks, stepped by one thread.
//!
//! [`Task::step`] is all of it. A step does one thing: hands on waiting output, answers a trigger, fires one batch of timers,
//! or reads one element and takes it through the chain. While event-time timers are due, no record is read, but barriers
//! that come next are; processing-time timers and input take turns. A barrier always falls between two batches, so a snapshot needs no help from a guest.
//! A task never blocks and reads no clock: the caller parks when a step says that there is nothing to do.

mod alignment;
mod alignment_group;
mod chain;
mod counters;
mod failure;
mod input;
mod operator;
mod output;
pub mod ports;
#[cfg(test)]
mod pressure;
mod sink;
mod source;
mod source_time;
#[cfg(test)]
mod tests;
mod time_report;
#[cfg(test)]
mod timer_tests;
mod timers;
mod validate;
mod watermark;

use std::collections::VecDeque;

pub use alignment::{Aligned, BarrierAlignment};
pub use alignment_group::{AlignmentGroup, AlignmentMember};
pub use chain::Node;
pub use counters::{OperatorCounters, TaskCounters};
pub use failure::{Cause, FaultPosition, TaskFailure};
pub use operator::{OperatorRestore, OperatorSubtask};
pub use ports::{Now, Ports, TaskCommand, TaskEvent};
pub use sink::SinkSubtask;
pub use source::{SourceSubtask, SourceWatermarks};
pub use source_time::{Alignment, Progress, WatermarkStrategy};
pub use time_report::{
    Activity, HeadTime, InputTime, OperatorTime, PendingTimers, SourceActivity, SourceReport, SplitReport, TaskTime,
};
pub use watermark::WatermarkCombiner;

use self::chain::Chain;
use self::input::{GateEvent, InputGate};
use self::source::Polled;
use crate::element::{Barrier, StreamElement};
use crate::graph::plan::TaskPlan;
use crate::guest::TimeDomain;
use crate::ids::{Attempt, CheckpointId, SubtaskId};
use crate::key_group::MaxParallelism;
use crate::snapshot::{SubtaskPart, SubtaskSnapshot, TaskSnapshot};
use crate::state::MemoryPressure;
use crate::time::Watermark;

/// Frozen entries that are encoded between two looks at the clock: some tens of microseconds.
const ENCODE_BUDGET: usize = 512;
/// How soon a source that is ahead of its group looks at the others again.
const AHEAD_MS: u64 = 5;
/// For how long one step encodes, at most.
const ENCODE_US_MAX: u64 = 2_000;

/// A chain of subtasks and what feeds it.
pub struct Task {
    plan: TaskPlan,
    attempt: Attempt,
    head: Head,
    chain: Chain,
    triggers: VecDeque<Trigger>,
    /// Snapshots whose state is not encoded yet.
    encoding: Vec<CheckpointId>,
    /// The highest checkpoint that a source head has snapshotted.
    handled: Option<CheckpointId>,
    /// Past a cut that the job stops at: nothing more is read or fired.
    stopped: bool,
    /// A source that ends where it is, on request.
    drained: bool,
    /// A source that has nothing more to read: it ends once the timers that are due have fired.
    ending: bool,
    /// Whether processing-time timers had the last turn.
    timers_had_turn: bool,
    /// A source that reads nothing for now, on request.
    held: bool,
    /// How short of memory its state is, as last reported; `None` if that must be reported again, whatever it is.
    pressure: Option<MemoryPressure>,
    /// When it last did something else than handling input.
    upkept_us: u64,
    end: End,
}

/// Where a task takes its records from.
pub enum Head {
    /// A source reads them.
    Source(SourceSubtask),
    /// They come through channels.
    Gate(Gate),
}

/// The input channels of a task.
pub struct Gate(InputGate);

impl Head {
    /// Returns the gate of a task's input channels. `restored` is the watermark of the chain's first node.
    pub fn gate(plan: &TaskPlan, restored: Option<Watermark>) -> Self {
        Self::Gate(Gate(InputGate::new(plan.inputs.iter().map(|input| input.port).collect(), restored)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trigger {
    checkpoint: CheckpointId,
    full: bool,
    stop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Running,
    /// The last element has been handed to the outputs.
    Reached,
    Reported,
}

/// What a step did, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something: step again.
    Progress,
    /// Nothing can be read.
    WaitForInput,
    /// An output is full.
    WaitForOutput,
    /// Nothing to do for so many milliseconds, unless a command comes.
    WaitMs(u64),
}

impl Task {
    /// Puts a task together. `nodes` are the subtasks of the plan's chain after a source.
    pub fn new(plan: TaskPlan, attempt: Attempt, max_parallelism: MaxParallelism, head: Head, nodes: Vec<Node>) -> Self {
        let restored = match &head {
            Head::Source(source) => source.time.watermark(),
            Head::Gate(Gate(gate)) => gate.watermark(),
        };
        let chain = Chain::new(&plan, max_parallelism, nodes, restored);
        Self {
            plan,
            attempt,
            head,
            chain,
            triggers: VecDeque::new(),
            encoding: Vec::new(),
            handled: None,
            stopped: false,
            drained: false,
            ending: false,
            timers_had_turn: false,
            held: false,
            pressure: Some(MemoryPressure::None),
            upkept_us: 0,
            end: End::Running,
        }
    }

    /// Returns the plan it was made from.
    pub fn plan(&self) -> &TaskPlan {
        &self.plan
    }

    /// Takes a command; acted on in this call, or by the next step.
    pub fn command(&mut self, command: TaskCommand) {
        match command {
            TaskCommand::Trigger { checkpoint, full, stop } => self.triggers.push_back(Trigger { checkpoint, full, stop }),
            // Takes effect once the triggers before it are answered: their cuts come before the end.
            TaskCommand::Drain => self.drained = true,
            TaskCommand::Completed(checkpoint) => self.chain.completed(checkpoint),
            TaskCommand::Applied(checkpoint) => self.chain.applied(checkpoint),
            TaskCommand::Hold(held) => self.held = held,
            TaskCommand::Aborted(checkpoint) => {
                // If that was the one to make room, another is wanted; or sources wait for room that there is by now.
                self.pressure = self.pressure.filter(|pressure| *pressure == MemoryPressure::None);
                self.triggers.retain(|trigger| trigger.checkpoint != checkpoint);
                if let Head::Gate(Gate(gate)) = &mut self.head
                    && gate.give_up(checkpoint)
                {
                    self.cancel_downstream(checkpoint);
                }
                self.encoding.retain(|encoding| *encoding != checkpoint);
                self.chain.drop_snapshot(checkpoint);
            }
        }
    }

    /// Does one thing.
    ///
    /// # Errors
    /// [`TaskFailure`]; the task must not be stepped again.
    pub fn step(&mut self, ports: &mut dyn Ports, now: Now) -> Result<Step, TaskFailure> {
        if self.answer_triggers(ports)? {
            return Ok(Step::Progress);
        }
        let upkeep = self.upkeep(ports, now)?;
        if !self.chain.flush(ports, false) {
            return Ok(if upkeep { Step::Progress } else { Step::WaitForOutput });
        }
        if self.end == End::Reached {
            self.end = End::Reported;
            ports.report(TaskEvent::EndOfData);
        }
        if !self.stopped && self.fire(ports, now)? {
            return Ok(Step::Progress);
        }
        let step = match &mut self.head {
            _ if self.end == End::Reported || self.stopped => Step::WaitForInput,
            Head::Source(_) if self.held && !self.drained => Step::WaitForInput,
            Head::Source(_) => self.step_source(now)?,
            Head::Gate(Gate(gate)) => match gate.poll(ports, now) {
                Some(event) => self.handle(event, ports, now)?,
                None => Step::WaitForInput,
            },
        };
        let step = self.wake_for_timers(step, now);
        if step != Step::Progress {
            self.chain.idle()?;
            if !self.chain.flush(ports, true) {
                return Ok(Step::WaitForOutput);
            }
        }
        match step {
            Step::WaitForInput | Step::WaitForOutput if upkeep => Ok(Step::Progress),
            Step::WaitForInput if !self.encoding.is_empty() => Ok(Step::WaitMs(1)),
            Step::WaitMs(_) if upkeep => Ok(Step::Progress),
            _ => Ok(step),
        }
    }

    /// Fires a batch of timers, or does what waits for timers to have fired. Returns whether there was anything.
    fn fire(&mut self, ports: &mut dyn Ports, now: Now) -> Result<bool, TaskFailure> {
        if !self.chain.settle(now) {
            let cut = match &mut self.head {
                Head::Gate(Gate(gate)) => gate.poll_cut(ports, now),
                Head::Source(_) => None,
            };
            match cut {
                Some(cut) => drop(self.handle(cut, ports, now)?),
                None => drop(self.chain.fire(TimeDomain::EventTime, now)?),
            }
            return Ok(true);
        }
        if self.ending && self.end == End::Running {
            self.finish(now)?;
            return Ok(true);
        }
        self.timers_had_turn = !self.timers_had_turn && self.chain.fire(TimeDomain::ProcessingTime, now)?;
        Ok(self.timers_had_turn)
    }

    /// Returns a step that waits no longer than until the next timer is due.
    fn wake_for_timers(&self, step: Step, now: Now) -> Step {
        let next = match step {
            // Frozen state that waits for room is looked after sooner than that.
            Step::WaitForInput if !self.encoding.is_empty() => None,
            Step::WaitForInput | Step::WaitMs(_) if !self.stopped => self.chain.next_processing_timer(),
            _ => None,
        };
        let left = next.map(|next| u64::try_from(next.saturating_sub(now.processing_time.0)).unwrap_or(0));
        match (step, left) {
            (_, Some(0)) => Step::Progress,
            (Step::WaitForInput, Some(left)) => Step::WaitMs(left),
            (Step::WaitMs(ms), Some(left)) => Step::WaitMs(ms.min(left)),
            _ => step,
        }
    }

    fn step_source(&mut self, now: Now) -> Result<Step, TaskFailure> {
        let Head::Source(source) = &mut self.head else {
            return Ok(Step::WaitForInput);
        };
        let polled = if self.drained || self.ending {
            Polled::End
        } else if source.time.is_ahead() {
            Polled::Pending { retry_after_ms: AHEAD_MS }
        } else {
            source.poll(now)?
        };
        let step = match polled {
            Polled::Records(batch) => {
                if source.time.wake() {
                    self.chain.control(&StreamElement::Active);
                }
                let delivered = self.chain.deliver(0, batch, now);
                match delivered {
                    Ok(spare) => spare.into_iter().for_each(|batch| source.recycle(batch)),
                    Err(mut failure) => {
                        failure.position = failure.position.within(&source.describe_positions());
                        return Err(failure);
                    }
                }
                Step::Progress
            }
            Polled::Again => Step::Progress,
            Polled::Pending { retry_after_ms } => {
                let idle_in_ms = source.time.idle_in_ms(now).unwrap_or(u64::MAX);
                Step::WaitMs(retry_after_ms.clamp(1, idle_in_ms))
            }
            Polled::End => {
                if let Some(watermark) = source.time.last() {
                    if source.time.wake() {
                        self.chain.control(&StreamElement::Active);
                    }
                    self.chain.watermark(watermark, now);
                    return Ok(Step::Progress);
                }
                source.time.end();
                self.ending = true;
                self.chain.watermark(Watermark::MAX, now);
                return Ok(Step::Progress);
            }
        };
        match source.time.due(now, step != Step::Progress) {
            Some(StreamElement::Watermark(watermark)) => self.chain.watermark(watermark, now),
            Some(element) => self.chain.control(&element),
            None => return Ok(step),
        }
        Ok(Step::Progress)
    }

    fn handle(&mut self, event: GateEvent, ports: &mut dyn Ports, now: Now) -> Result<Step, TaskFailure> {
        match event {
            GateEvent::Records { port, batch } => drop(self.chain.deliver(port, batch, now)?),
            GateEvent::Watermark(watermark) => self.chain.watermark(watermark, now),
            GateEvent::Idle => self.chain.control(&StreamElement::Idle),
            GateEvent::Active => self.chain.control(&StreamElement::Active),
            GateEvent::Snapshot { checkpoint, full, stop, alignment_us } => {
                self.snapshot(Trigger { checkpoint, full, stop }, alignment_us, ports)?;
            }
            GateEvent::Aborted(checkpoint) => self.cancel_downstream(checkpoint),
            GateEvent::AllEnded => self.finish(now)?,
        }
        Ok(Step::Progress)
    }

    /// All input has ended: lets the guests finish and ends the outputs.
    fn finish(&mut self, now: Now) -> Result<(), TaskFailure> {
        self.chain.finish(now)?;
        self.chain.control(&StreamElement::EndOfInput);
        self.end = End::Reached;
        Ok(())
    }

    /// Takes the snapshots that were asked for. Returns whether there was one.
    fn answer_triggers(&mut self, ports: &mut dyn Ports) -> Result<bool, TaskFailure> {
        let mut any = false;
        while let Some(trigger) = self.triggers.pop_front() {
            let checkpoint = trigger.checkpoint;
            let accepted = match &mut self.head {
                Head::Source(_) => {
                    let is_news = self.handled.is_none_or(|handled| checkpoint > handled);
                    self.handled = self.handled.max(Some(checkpoint));
                    is_news
                }
                Head::Gate(Gate(gate)) => gate.accepts_trigger(checkpoint),
            };
            if accepted {
                self.snapshot(trigger, 0, ports)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Takes the snapshot of a cut: nothing comes between the last record before it and the barrier. Copies no state.
    fn snapshot(
        &mut self,
        Trigger { checkpoint, full, stop }: Trigger,
        alignment_us: u64,
        ports: &mut dyn Ports,
    ) -> Result<(), TaskFailure> {
        self.stopped |= stop;
        let mut subtasks = Vec::with_capacity(self.plan.nodes.len());
        if let Head::Source(source) = &self.head {
            let part = SubtaskPart::Source { positions: source.positions() };
            let finished = self.end != End::Running;
            subtasks.push(SubtaskSnapshot { id: source.id.clone(), watermark: source.time.watermark(), finished, part });
        }
        let mut prepared = Vec::new();
        self.chain.snapshot((checkpoint, full), &mut subtasks, &mut prepared)?;
        if self.end == End::Running {
            self.chain.control(&StreamElement::Barrier(Barrier { checkpoint, full, stop, cancelled: false }));
        }
        let tables = self.chain.tables().to_vec();
        let groups = if tables.is_empty() { 0..0 } else { self.plan.groups.clone() };
        let (task, attempt) = (self.plan.index, self.attempt);
        let snapshot = TaskSnapshot { checkpoint, attempt, task, groups, tables, subtasks, alignment_us };
        ports.report(TaskEvent::SnapshotTaken { snapshot: Box::new(snapshot), prepared });
        self.encoding.push(checkpoint);
        Ok(())
    }

    fn cancel_downstream(&mut self, checkpoint: CheckpointId) {
        if self.end == End::Running {
            self.chain.control(&StreamElement::Barrier(Barrier { checkpoint, full: false, stop: false, cancelled: true }));
        }
    }

    /// Encodes some frozen state, frees a slice of what is deleted, and evicts one of what a store holds. Returns whether
    /// there was anything to do.
    fn upkeep(&mut self, ports: &mut dyn Ports, now: Now) -> Result<bool, TaskFailure> {
        let worked_us = now.monotonic_us.saturating_sub(std::mem::replace(&mut self.upkept_us, now.monotonic_us));
        let evicted = self.chain.evict();
        let pressure = self.chain.memory_pressure();
        if self.pressure != Some(pressure) {
            self.pressure = Some(pressure);
            ports.report(TaskEvent::MemoryPressure(pressure));
        }
        if self.encoding.is_empty() || !ports.has_snapshot_room() {
            return Ok(self.chain.reap(ENCODE_BUDGET) || evicted);
        }
        // For half as long as the last records took: work goes on at two thirds of its rate, and the snapshot gets done
        // however slow a record is.
        let until_us = now.monotonic_us + (worked_us / 2).min(ENCODE_US_MAX);
        while self.chain.encode_some(ENCODE_BUDGET, ports) && ports.has_snapshot_room() {
            self.upkept_us = ports.monotonic_us();
            if self.upkept_us >= until_us {
                break;
            }
        }
        // What could not be read of a store is missing in what was encoded.
        self.chain.check_stores()?;
        let chain = &self.chain;
        self.encoding.retain(|checkpoint| {
            let waits = chain.is_encoding(*checkpoint);
            if !waits {
                ports.report(TaskEvent::SnapshotEncoded { checkpoint: *checkpoint });
            }
            waits
        });
        Ok(true)
    }

    /// Returns where the task is in event time.
    pub fn time(&self, now: Now) -> TaskTime {
        let ended = self.ending || self.stopped || self.end != End::Running;
        let head = match &self.head {
            Head::Source(source) => HeadTime::Source(source.report_time(now, (self.held, ended))),
            Head::Gate(Gate(gate)) => HeadTime::Inputs(gate.time()),
        };
        TaskTime { head, operators: self.chain.time() }
    }

    /// Returns what the task has done so far.
    pub fn counters(&self) -> TaskCounters {
        let mut counters = TaskCounters::default();
        if let Head::Source(source) = &self.head {
            (counters.source_records, counters.source_bytes) = (source.records_out, source.bytes_out);
            (counters.malformed, counters.remaining_bytes) = (source.malformed(), source.remaining_bytes());
        }
        self.chain.count(&mut counters);
        counters
    }

    /// Returns the id of the chain's first subtask, which failures outside of any other are charged to.
    pub fn id(&self) -> SubtaskId {
        match &self.head {
            Head::Source(source) => source.id.clone(),
            Head::Gate(_) => self.chain.first_id(),
        }
    }
}
