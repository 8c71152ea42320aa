//! The checkpoint coordinator: decides when a checkpoint is triggered, completed and given up.
//!
//! A state machine without I/O: messages and the time go in, [`CheckpointCommand`]s and [`CheckpointOutcome`]s come out.
//!
//! ```text
//!             trigger             all acknowledged, nothing completing
//!  (wanted) ----------> pending ---------------------------------------> publishing --> committing --> completed
//!                          |                                                 |              |
//!                          | expired, declined, overtaken, subsumed          | failed       | failed: the job restarts
//!                          v                                                 v              v
//!                        failed: segments discarded, tasks told            failed         completed, commit is repeated
//! ```
//!
//! A savepoint is pending like a checkpoint; then a copy of it is published where the user wants it, beside what completes
//! meanwhile. It subsumes nothing, is not subsumed, and its failure is nobody else's. A checkpoint that the job stops with
//! may be a savepoint as well: the copy is published first, then the checkpoint goes its way.
//!
//! At most one checkpoint completes at a time. The manifest being durable is what completes it: from then on older
//! pending ones are subsumed. Tasks are told, and older checkpoints deleted, only after its transactions are committed.

mod asked;
mod command;
mod completing;
mod description;
mod pending;
mod savepoint;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};

use asked::Asked;
pub use command::{
    CheckpointCommand, CheckpointFailure, CheckpointOutcome, CheckpointPurpose, Outputs, Savepoint, SavepointOrder,
    SavepointTarget,
};
use completing::{Completing, Stage};
pub use description::JobDescription;
use pending::Pending;

use super::chains::StateChains;
use super::config::CheckpointConfig;
use super::recovery::Recovery;
use super::retention::{Deletion, Retention};
use super::segment::{SegmentId, SegmentInfo};
use crate::graph::plan::ExecutionPlan;
use crate::graph::spec::{JobSpec, NodeKind};
use crate::ids::{Attempt, CheckpointId, SubtaskId, TaskIndex};
use crate::snapshot::{TableId, TaskSnapshot};
use crate::time::{MonotonicTime, ProcessingTime};

/// How long the checkpoint of a job whose input has ended waits after it has failed, in milliseconds.
const FINAL_RETRY_MS: u64 = 1000;

/// When something happens, by both of the host's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For pauses and timeouts.
    pub monotonic: MonotonicTime,
    /// For people.
    pub processing: ProcessingTime,
}

/// A task, as far as checkpoints care.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlannedTask {
    is_source: bool,
    subtasks: Vec<SubtaskId>,
}

/// A checkpoint that is to be triggered, not before a time.
#[derive(Clone, Debug)]
struct Wanted {
    purpose: CheckpointPurpose,
    savepoint: Option<SavepointOrder>,
    at: MonotonicTime,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Coordinator {
    config: CheckpointConfig,
    job: JobDescription,
    tasks: Vec<PlannedTask>,
    attempt: Option<Attempt>,
    next: CheckpointId,
    /// The newest completed checkpoint: later deltas continue its chains.
    parent: Option<CheckpointId>,
    chains: StateChains,
    retention: Retention,
    pending: BTreeMap<CheckpointId, Pending>,
    completing: Option<Completing>,
    /// A savepoint that is being published.
    exporting: Option<(CheckpointId, Pending)>,
    /// The sources have been told to end where they are.
    draining: bool,
    /// What the final checkpoint is to be as well.
    final_savepoint: Option<SavepointOrder>,
    ended: BTreeSet<TaskIndex>,
    /// When the next periodic trigger is due.
    due: Option<MonotonicTime>,
    /// The earliest time of the next periodic trigger, by the pause.
    paused_until: MonotonicTime,
    /// One that is not periodic, and the earliest time for it.
    wanted: Option<Wanted>,
    /// Who waits for a checkpoint.
    asked: Asked,
    failures_in_a_row: u32,
}

impl Coordinator {
    /// Returns a coordinator without an attempt.
    pub fn new(config: CheckpointConfig, job: JobDescription, spec: &JobSpec, plan: &ExecutionPlan) -> Self {
        let tasks = plan.tasks.iter().map(|task| {
            let nodes = task.nodes.iter().map(|index| &spec.nodes[*index]);
            let is_source = task.nodes.first().is_some_and(|index| spec.nodes[*index].kind == NodeKind::Source);
            let subtasks = nodes.map(|node| SubtaskId { operator: node.id.clone(), index: task.subtask }).collect();
            PlannedTask { is_source, subtasks }
        });
        Self {
            config,
            job,
            tasks: tasks.collect(),
            attempt: None,
            next: CheckpointId(1),
            parent: None,
            chains: StateChains::default(),
            retention: Retention::default(),
            pending: BTreeMap::new(),
            completing: None,
            exporting: None,
            draining: false,
            final_savepoint: None,
            ended: BTreeSet::new(),
            due: None,
            paused_until: MonotonicTime(0),
            wanted: None,
            asked: Asked::default(),
            failures_in_a_row: 0,
        }
    }

    /// Takes over what was found in the storage, before any task of a new attempt starts.
    pub fn recovered(&mut self, recovery: &Recovery) {
        self.next = self.next.max(recovery.next_checkpoint);
        self.retention = recovery.retention.clone();
        let newest = recovery.newest.as_ref().map(|point| &point.manifest);
        self.parent = newest.map(|manifest| manifest.checkpoint);
        self.chains = newest.map(|manifest| manifest.state.clone()).unwrap_or_default();
    }

    /// The values of these tables have been brought to another schema: what is stored is no base for them any more.
    pub fn migrated(&mut self, tables: &BTreeSet<TableId>) {
        self.chains.forget(tables);
    }

    /// All tasks of an attempt run: checkpoints may be triggered.
    pub fn begin(&mut self, attempt: Attempt, now: Now) {
        self.attempt = Some(attempt);
        self.ended.clear();
        self.wanted = None;
        (self.draining, self.final_savepoint) = (false, None);
        self.failures_in_a_row = 0;
        self.paused_until = now.monotonic;
        self.due = self.config.interval_ms.map(|interval| now.monotonic.plus_ms(interval));
    }

    /// The attempt is over: what is pending is dropped. One that is being completed stays until its outcome is known.
    pub fn end(&mut self) -> Outputs {
        let mut out = Outputs::default();
        self.attempt = None;
        self.wanted = None;
        let dropped = std::mem::take(&mut self.pending);
        discard(&mut out, dropped.values().flat_map(Pending::segments).collect());
        for (checkpoint, Pending { purpose, savepoint, .. }) in dropped {
            if savepoint.is_some() {
                let failure = CheckpointFailure::TasksStopped;
                out.outcomes.push(CheckpointOutcome::Failed { checkpoint, purpose, failure, savepoint });
            }
        }
        self.asked.end(&mut out);
        out
    }

    /// Whether the storage or the sinks have yet to answer.
    pub fn is_completing(&self) -> bool {
        self.completing.is_some() || self.exporting.is_some()
    }

    /// Returns the newest completed checkpoint.
    pub fn newest(&self) -> Option<CheckpointId> {
        self.parent
    }

    /// Returns what deletes all checkpoints, and forgets them.
    pub fn delete_all(&mut self) -> Deletion {
        self.retention.trim(0)
    }

    /// Returns when [`Self::tick`] has something to do, if nothing happens before.
    pub fn next_tick(&self) -> Option<MonotonicTime> {
        self.attempt?;
        let expiry = self.pending.values().map(|pending| pending.expires(self.config.timeout_ms)).min();
        let wanted = self.wanted.as_ref().map(|wanted| wanted.at);
        let periodic = self.may_trigger_periodic().then(|| self.due.map(|due| due.max(self.paused_until))).flatten();
        [expiry, wanted, periodic].into_iter().flatten().min()
    }

    /// Gives up what has expired and triggers what is due.
    pub fn tick(&mut self, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if self.attempt.is_none() {
            return out;
        }
        let timeout_ms = self.config.timeout_ms;
        let late = self.pending.iter().filter(|(_, pending)| pending.expires(timeout_ms) <= now.monotonic);
        for checkpoint in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            let tasks = self.tasks.len();
            let (first, missing) = self.pending[&checkpoint].missing(tasks).unwrap_or((TaskIndex(0), 0));
            self.fail(checkpoint, CheckpointFailure::Expired { timeout_ms, missing, tasks, first }, now, &mut out);
            if matches!(out.outcomes.last(), Some(CheckpointOutcome::TooManyFailures { .. })) {
                return out; // The attempt is about to end, and what is pending with it.
            }
        }
        self.trigger_what_is_due(now, &mut out);
        out
    }

    /// The next periodic checkpoint is due now, whatever the interval: somebody waits for it. It keeps to the pause and to
    /// the number in flight.
    pub fn hasten(&mut self, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.due = Some(now.monotonic);
        self.trigger_what_is_due(now, &mut out);
        out
    }

    /// Asks for a checkpoint that does not wait for the interval, such as the one before a stop. `savepoint`: it is to be
    /// one as well.
    pub fn request(&mut self, purpose: CheckpointPurpose, savepoint: Option<SavepointOrder>, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.wanted = Some(Wanted { purpose, savepoint, at: now.monotonic });
        self.trigger_what_is_due(now, &mut out);
        out
    }

    /// A task's input has ended and it has finished. From here on it is triggered directly, for what is pending, too.
    pub fn task_ended(&mut self, task: TaskIndex, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if self.attempt.is_none() || !self.ended.insert(task) {
            return out;
        }
        for (id, pending) in &self.pending {
            let (full, stop_sources) = (pending.savepoint.is_some(), pending.stops_sources());
            out.commands.push(CheckpointCommand::Trigger { checkpoint: *id, tasks: vec![task], full, stop_sources });
        }
        if self.ended.len() == self.tasks.len() && self.wanted.is_none() {
            let savepoint = self.final_savepoint.take();
            self.wanted = Some(Wanted { purpose: CheckpointPurpose::Final, savepoint, at: now.monotonic });
            self.trigger_what_is_due(now, &mut out);
        }
        out
    }

    /// A task has taken its snapshot.
    pub fn snapshot_taken(&mut self, snapshot: TaskSnapshot, now: Now) -> Outputs {
        let mut out = Outputs::default();
        let (checkpoint, task) = (snapshot.checkpoint, snapshot.task);
        if self.attempt != Some(snapshot.attempt) || task.0 >= self.tasks.len() {
            return out;
        }
        let Some(pending) = self.pending.get_mut(&checkpoint) else { return out };
        if let Err(what) = pending.snapshot(snapshot, &self.tasks[task.0]) {
            self.fail(checkpoint, CheckpointFailure::Unfit { task, what }, now, &mut out);
        }
        out
    }

    /// A task's part is durable: its segment, if it wrote one, and what its sinks prepared. Whatever comes too late, or
    /// from an attempt that is over, is discarded.
    pub fn acknowledged(&mut self, id: SegmentId, segment: Option<SegmentInfo>, now: Now) -> Outputs {
        let mut out = Outputs::default();
        let SegmentId { checkpoint, attempt, task } = id;
        let pending = self.pending.get_mut(&checkpoint).filter(|_| self.attempt == Some(attempt) && task.0 < self.tasks.len());
        let Some(pending) = pending else {
            let unwanted = segment.map(|segment| segment.reference.id).filter(|segment| !self.is_named(*segment));
            discard(&mut out, unwanted.into_iter().collect());
            return out;
        };
        let written = segment.as_ref().map(|segment| segment.reference.id);
        if let Err(what) = pending.acknowledge(task, segment, id) {
            self.fail(checkpoint, CheckpointFailure::Unfit { task, what }, now, &mut out);
            discard(&mut out, written.into_iter().filter(|segment| !self.is_named(*segment)).collect());
        }
        self.complete_what_is_ready(&mut out);
        out
    }

    /// A task cannot take its part, or had to give up its alignment.
    pub fn declined(&mut self, id: SegmentId, failure: CheckpointFailure, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if self.attempt == Some(id.attempt) && self.pending.contains_key(&id.checkpoint) {
            self.fail(id.checkpoint, failure, now, &mut out);
        }
        out
    }

    fn may_trigger_periodic(&self) -> bool {
        let pending = self.pending.values().filter(|pending| pending.is_checkpoint());
        let in_flight = pending.count() + usize::from(self.completing.is_some());
        let nothing_special = self.wanted.is_none()
            && !self.draining
            && self.ended.len() < self.tasks.len()
            && !self.pending.values().any(Pending::stops_sources)
            && !self.completing.as_ref().is_some_and(|completing| completing.pending.stops_sources());
        nothing_special && in_flight < self.config.max_concurrent as usize
    }

    fn trigger_what_is_due(&mut self, now: Now, out: &mut Outputs) {
        if self.attempt.is_none() {
            return;
        }
        if let Some(Wanted { purpose, savepoint, .. }) = self.wanted.take_if(|wanted| wanted.at <= now.monotonic) {
            self.trigger(purpose, savepoint, now, out);
        }
        let due = self.due.is_some_and(|due| due.max(self.paused_until) <= now.monotonic);
        if (due || self.asked.wants_trigger()) && self.may_trigger_periodic() {
            self.due = self.config.interval_ms.map(|interval| now.monotonic.plus_ms(interval));
            self.trigger(CheckpointPurpose::Periodic, None, now, out);
        }
    }

    fn trigger(&mut self, purpose: CheckpointPurpose, order: Option<SavepointOrder>, now: Now, out: &mut Outputs) {
        let checkpoint = self.next;
        self.next = CheckpointId(checkpoint.0 + 1);
        let told = |task: &TaskIndex| self.tasks[task.0].is_source || self.ended.contains(task);
        let tasks = (0..self.tasks.len()).map(TaskIndex).filter(told).collect();
        let savepoint = order.map(|order| Savepoint { request: order.request, path: order.target.path(checkpoint) });
        let full = savepoint.is_some();
        let pending = Pending::new(purpose, savepoint, now);
        out.commands.push(CheckpointCommand::Trigger { checkpoint, tasks, full, stop_sources: pending.stops_sources() });
        if pending.is_checkpoint() {
            self.asked.triggered(checkpoint);
        }
        self.pending.insert(checkpoint, pending);
    }

    /// Gives a pending checkpoint up.
    fn fail(&mut self, checkpoint: CheckpointId, failure: CheckpointFailure, now: Now, out: &mut Outputs) {
        let Some(pending) = self.pending.remove(&checkpoint) else { return };
        self.give_up(checkpoint, &pending, failure, now, out);
        if !matches!(out.outcomes.last(), Some(CheckpointOutcome::Failed { failure: CheckpointFailure::Subsumed(_), .. })) {
            self.after_failure(now, out);
        }
    }

    fn give_up(&mut self, checkpoint: CheckpointId, pending: &Pending, failure: CheckpointFailure, now: Now, out: &mut Outputs) {
        out.commands.push(CheckpointCommand::NotifyAborted { checkpoint });
        discard(out, pending.segments());
        let (purpose, savepoint) = (pending.purpose, pending.savepoint.clone());
        let is_alone = savepoint.is_none();
        out.outcomes.push(CheckpointOutcome::Failed { checkpoint, purpose, failure: failure.clone(), savepoint });
        self.asked.failed(checkpoint, &failure, out);
        if purpose == CheckpointPurpose::Final && is_alone {
            let at = now.monotonic.plus_ms(FINAL_RETRY_MS);
            self.wanted = Some(Wanted { purpose, savepoint: None, at });
        }
        if failure.counts() && is_alone {
            self.failures_in_a_row += 1;
            if self.failures_in_a_row > self.config.tolerable_failures {
                out.outcomes.push(CheckpointOutcome::TooManyFailures { failures: self.failures_in_a_row, last: failure });
            }
        }
    }

    /// A place is free: another checkpoint may complete or begin.
    fn after_failure(&mut self, now: Now, out: &mut Outputs) {
        if matches!(out.outcomes.last(), Some(CheckpointOutcome::TooManyFailures { .. })) {
            return; // The attempt is about to end.
        }
        self.complete_what_is_ready(out);
        self.trigger_what_is_due(now, out);
    }

    /// Whether a segment belongs to a checkpoint that exists, may exist or may yet complete.
    fn is_named(&self, segment: SegmentId) -> bool {
        let completing = self.completing.as_ref().is_some_and(|completing| completing.pending.names(segment));
        let exporting = self.exporting.as_ref().is_some_and(|(_, pending)| pending.names(segment));
        completing || exporting || self.pending.values().any(|pending| pending.names(segment)) || self.retention.names(segment)
    }
}

fn discard(out: &mut Outputs, segments: Vec<SegmentId>) {
    if !segments.is_empty() {
        out.commands.push(CheckpointCommand::Discard { segments });
    }
}
