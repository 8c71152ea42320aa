//! The job master: the single place that decides what a job does next.
//!
//! A state machine without I/O: an event and the time go in, commands come out.
//!
//! ```text
//!  idle --Start--> recovering --Recovered--> settling --SinksSettled--> starting --all started--> running
//!                    ^    |  finished before: end        |  final checkpoint: finishing    |         |  |
//!                    |    |                              |                                 |         |  | final one
//!                    |    +------------- failed ---------+                                 | failed, |  | committed
//!                    |                     v                                               | stopped |  v
//!                    +---Tick-- waiting <--+----- may restart ---- ending <----------------+---------+ finishing
//!                                 |                                   |                                  |
//!                                 +------- stopped ----> ended <------+---------- FinishedMarked --------+
//! ```
//!
//! `ending` waits until all tasks are gone and the storage and the sinks have answered: nothing of an attempt is under way
//! when the next one begins. A job has finished when its mark is durable; only then are its checkpoints deleted.

mod ending;
mod message;
mod recent;
mod requests;
mod setup;
mod state;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::collections::BTreeMap;

use ending::HOPELESS;
pub use message::{DeclineReason, JobCommand, JobEnd, JobEvent, JobReport};
use recent::RepeatedFault;
pub use setup::JobSetup;
use state::{Asked, State, Stop, Then, Wish};

pub use crate::checkpoint::coordinator::Now;
use crate::checkpoint::coordinator::{CheckpointOutcome, CheckpointPurpose, Coordinator, JobDescription, Outputs};
use crate::checkpoint::recovery::{RecoverError, RecoverOptions, Recovery};
use crate::checkpoint::restore::RestorePlan;
use crate::ids::{Attempt, CheckpointId, TaskIndex};
use crate::job::failure::{Failure, FailureCause, JobFailure};
use crate::job::restart::Restarts;
use crate::time::MonotonicTime;

/// See the module's documentation.
#[derive(Debug)]
pub struct JobMaster {
    setup: JobSetup,
    state: State,
    coordinator: Coordinator,
    restarts: Restarts,
    repeated: RepeatedFault,
    wish: Option<Wish>,
    /// Whether the storage has been read by this process before.
    recovered_before: bool,
    scheduled: Option<MonotonicTime>,
    commands: Vec<JobCommand>,
}

impl JobMaster {
    /// Returns the master of a job that has not started.
    pub fn new(setup: JobSetup) -> Self {
        let description = JobDescription::new(&setup.spec, &setup.engine, &setup.digests).with_imports(&setup.imports);
        let coordinator = Coordinator::new(setup.checkpoints.clone(), description, &setup.spec, &setup.plan);
        let restarts = Restarts::new(setup.restart.clone(), setup.seed);
        Self {
            setup,
            state: State::Idle,
            coordinator,
            restarts,
            repeated: RepeatedFault::default(),
            wish: None,
            recovered_before: false,
            scheduled: None,
            commands: Vec::new(),
        }
    }

    /// Takes an event and returns what is to be done, in order.
    pub fn handle(&mut self, event: JobEvent, now: Now) -> Vec<JobCommand> {
        match event {
            JobEvent::Start if matches!(self.state, State::Idle) => self.recover(),
            JobEvent::Start => {}
            JobEvent::Recovered(recovery) => self.on_recovered(recovery),
            JobEvent::RecoverFailed(error) => self.on_recover_failed(&error, now),
            JobEvent::SinksSettled => self.on_settled(),
            JobEvent::SettleFailed(cause) => {
                if matches!(self.state, State::Settling(..)) {
                    self.fail(Failure::of_job(cause), now);
                }
            }
            JobEvent::TaskStarted { attempt, task } => self.on_task_started(attempt, task, now),
            JobEvent::Tick => self.on_tick(now),
            JobEvent::CheckpointWanted { attempt } => self.on_checkpoint_wanted(attempt, now),
            JobEvent::Failed { attempt, failure } => {
                // A job that is being marked as finished needs its tasks no more.
                let matters = matches!(self.state, State::Starting { .. } | State::Running { .. });
                if matters && self.attempt() == Some(attempt) {
                    self.fail(failure, now);
                }
            }
            JobEvent::TasksStopped { attempt } => self.on_tasks_stopped(attempt),
            JobEvent::FinishedMarked => self.on_finished_marked(),
            JobEvent::MarkFailed(error) => {
                if matches!(self.state, State::Finishing { .. }) {
                    self.fail(Failure::of_job(FailureCause::from(&error)), now);
                }
            }
            JobEvent::StopRequested => self.on_wish(Wish::Stop, now),
            JobEvent::CancelRequested => self.on_wish(Wish::Cancel, now),
            event @ (JobEvent::SnapshotTaken(_)
            | JobEvent::Acknowledged { .. }
            | JobEvent::Declined { .. }
            | JobEvent::ManifestPublished { .. }
            | JobEvent::ManifestFailed { .. }
            | JobEvent::SinksCommitted { .. }
            | JobEvent::SavepointPublished { .. }
            | JobEvent::SavepointFailed { .. }
            | JobEvent::CommitFailed { .. }) => self.on_checkpoint_event(event, now),
            JobEvent::CheckpointRequested { request } => self.on_checkpoint_requested(request, now),
            JobEvent::SavepointRequested(order) => self.on_savepoint_wanted(order, now),
            JobEvent::StopWithSavepointRequested(order) => self.on_stop_wanted(order, now),
            JobEvent::DrainRequested { request, savepoint } => self.on_drain_wanted(request, savepoint),
            JobEvent::TaskEndOfData { attempt, task } => self.on_end_of_data(attempt, task, now),
        }
        self.leave_ending(now);
        self.schedule();
        std::mem::take(&mut self.commands)
    }

    /// Returns the attempt whose tasks run, or are being started or marked as finished.
    pub fn attempt(&self) -> Option<Attempt> {
        match self.state {
            State::Starting { attempt, .. } | State::Running { attempt, .. } => Some(attempt),
            State::Finishing { tasks, .. } => tasks,
            State::Idle
            | State::Recovering
            | State::Settling(..)
            | State::Ending { .. }
            | State::Waiting { .. }
            | State::Ended => None,
        }
    }

    fn recover(&mut self) {
        let first = !self.recovered_before;
        let options = RecoverOptions { fresh: self.setup.fresh && first, allow_rewind: self.setup.allow_rewind, verify: first };
        self.commands.push(JobCommand::Recover(options));
        self.state = State::Recovering;
    }

    fn on_recovered(&mut self, recovery: Box<Recovery>) {
        if !matches!(self.state, State::Recovering) {
            return;
        }
        self.recovered_before = true;
        self.coordinator.recovered(&recovery);
        for notice in &recovery.notices {
            self.report(JobReport::Notice(notice.clone()));
        }
        if let Some(checkpoint) = recovery.finished {
            self.delete_all();
            return self.end(JobEnd::AlreadyFinished { checkpoint });
        }
        if self.end_as_wished() {
            return;
        }
        let Some(point) = &recovery.newest else {
            let attempt = recovery.attempt;
            self.commands.push(JobCommand::SettleSinks { attempt, checkpoint: None, commit: BTreeMap::new() });
            self.state = State::Settling(recovery, None);
            return;
        };
        let JobSetup { spec, plan, digests, .. } = &self.setup;
        let restore = match RestorePlan::new(&point.manifest, spec, plan, digests) {
            Ok(restore) => restore,
            Err(error) => {
                let failure = Failure::of_job(FailureCause::Restore(error.to_string()));
                return self.give_up(None, failure, HOPELESS.into());
            }
        };
        for notice in &restore.notices {
            self.report(JobReport::Notice(notice.clone()));
        }
        self.coordinator.migrated(&restore.migrated());
        let commit = if point.committed { BTreeMap::new() } else { point.manifest.transactions() };
        let checkpoint = (!commit.is_empty()).then_some(point.manifest.checkpoint);
        self.commands.push(JobCommand::SettleSinks { attempt: recovery.attempt, checkpoint, commit });
        self.state = State::Settling(recovery, Some(Box::new(restore)));
    }

    fn on_recover_failed(&mut self, error: &RecoverError, now: Now) {
        if !matches!(self.state, State::Recovering) {
            return;
        }
        let cause = match error {
            RecoverError::Storage(error) => FailureCause::from(error),
            RecoverError::Damaged { .. } | RecoverError::NothingLeft { .. } => FailureCause::Restore(error.to_string()),
        };
        self.fail(Failure::of_job(cause), now);
    }

    fn on_settled(&mut self) {
        let (recovery, restore) = match std::mem::replace(&mut self.state, State::Ended) {
            State::Settling(recovery, restore) => (recovery, restore),
            other => {
                self.state = other;
                return;
            }
        };
        if let Some(point) = recovery.newest.as_ref().filter(|point| point.manifest.is_final) {
            return self.mark_finished(point.manifest.checkpoint, None);
        }
        if self.end_as_wished() {
            return;
        }
        let attempt = recovery.attempt;
        let restored = restore.as_ref().map(|restore| restore.checkpoint);
        self.commands.push(JobCommand::StartAttempt { attempt, restore });
        let waiting = (0..self.setup.plan.tasks.len()).map(TaskIndex).collect();
        self.state = State::Starting { attempt, waiting, ended: Vec::new(), restored };
    }

    fn on_task_started(&mut self, of: Attempt, task: TaskIndex, now: Now) {
        let State::Starting { attempt, waiting, ended, restored } = &mut self.state else { return };
        if *attempt != of {
            return;
        }
        waiting.remove(&task);
        if waiting.is_empty() {
            let (attempt, restored, ended) = (*attempt, *restored, std::mem::take(ended));
            self.coordinator.begin(attempt, now);
            self.report(JobReport::Running { attempt, restored });
            self.state = State::Running { attempt, stop: Stop::No };
            for task in ended {
                self.on_end_of_data(attempt, task, now);
            }
        }
    }

    fn on_end_of_data(&mut self, of: Attempt, task: TaskIndex, now: Now) {
        match &mut self.state {
            State::Starting { attempt, ended, .. } if *attempt == of => ended.push(task),
            State::Running { attempt, .. } if *attempt == of => {
                let outputs = self.coordinator.task_ended(task, now);
                self.apply(outputs, now);
            }
            _ => {}
        }
    }

    fn on_checkpoint_wanted(&mut self, of: Attempt, now: Now) {
        if matches!(self.state, State::Running { attempt, .. } if attempt == of) {
            let outputs = self.coordinator.hasten(now);
            self.apply(outputs, now);
        }
    }

    fn on_tick(&mut self, now: Now) {
        self.scheduled = None;
        match self.state {
            State::Waiting { until } if until <= now.monotonic => self.recover(),
            State::Running { .. } => {
                let outputs = self.coordinator.tick(now);
                self.apply(outputs, now);
            }
            State::Idle
            | State::Recovering
            | State::Settling(..)
            | State::Starting { .. }
            | State::Ending { .. }
            | State::Waiting { .. }
            | State::Finishing { .. }
            | State::Ended => {}
        }
    }

    /// Hands on to the coordinator, in every state: it discards what comes too late.
    fn on_checkpoint_event(&mut self, event: JobEvent, now: Now) {
        let outputs = match event {
            JobEvent::SnapshotTaken(snapshot) => self.coordinator.snapshot_taken(snapshot, now),
            JobEvent::Acknowledged { id, segment } => self.coordinator.acknowledged(id, segment, now),
            JobEvent::Declined { id, reason } => self.coordinator.declined(id, reason.into_failure(id.task), now),
            JobEvent::ManifestPublished { checkpoint } => self.coordinator.published(checkpoint, now),
            JobEvent::ManifestFailed { checkpoint, error } => self.coordinator.publish_failed(checkpoint, &error, now),
            JobEvent::SinksCommitted { checkpoint } => self.coordinator.committed(checkpoint, now),
            JobEvent::SavepointPublished { checkpoint } => self.coordinator.savepoint_published(checkpoint, now),
            JobEvent::SavepointFailed { checkpoint, error } => self.coordinator.savepoint_failed(checkpoint, &error, now),
            JobEvent::CommitFailed { checkpoint, cause } => {
                self.coordinator.commit_failed(checkpoint);
                if self.running().is_none() {
                    let text = format!("the output of checkpoint {checkpoint} is committed at the next start: {cause}");
                    self.report(JobReport::Notice(text));
                }
                return self.fail(Failure::of_job(cause), now);
            }
            _ => return,
        };
        self.apply(outputs, now);
    }

    fn running(&self) -> Option<Attempt> {
        match self.state {
            State::Running { attempt, .. } => Some(attempt),
            _ => None,
        }
    }

    fn apply(&mut self, outputs: Outputs, now: Now) {
        self.commands.extend(outputs.commands.into_iter().map(JobCommand::Checkpoint));
        for outcome in outputs.outcomes {
            match outcome {
                CheckpointOutcome::Completed {
                    checkpoint,
                    purpose,
                    is_final,
                    duration_ms,
                    written_bytes,
                    state_bytes,
                    alignment_us_max,
                } => {
                    self.repeated.forget();
                    self.report(JobReport::CheckpointCompleted {
                        checkpoint,
                        purpose,
                        duration_ms,
                        written_bytes,
                        state_bytes,
                        alignment_us_max,
                    });
                    self.on_completed(checkpoint, purpose, is_final);
                }
                CheckpointOutcome::Failed { checkpoint, purpose, failure, savepoint } => {
                    let problem = failure.to_string();
                    self.report(JobReport::CheckpointFailed { checkpoint, purpose, failure });
                    match savepoint {
                        Some(savepoint) => self.on_savepoint_failed(purpose, savepoint.request, problem, now),
                        None if purpose == CheckpointPurpose::Stop => self.on_stop_checkpoint_failed(problem, now),
                        None => {}
                    }
                }
                CheckpointOutcome::SavepointTaken { checkpoint, savepoint, duration_ms, bytes } => {
                    self.on_savepoint_taken(checkpoint, savepoint, duration_ms, bytes);
                }
                CheckpointOutcome::AskedTaken { request, checkpoint } => {
                    self.report(JobReport::AskedCheckpointTaken { request, checkpoint });
                }
                CheckpointOutcome::AskedFailed { request, failure } => self.refuse(request, failure.to_string()),
                CheckpointOutcome::TooManyFailures { failures, last } => {
                    self.fail(Failure::of_job(FailureCause::Checkpoints { failures, last: last.to_string() }), now);
                }
                CheckpointOutcome::Unsure { checkpoint, message } => {
                    let message = format!("whether checkpoint {checkpoint} exists is unknown: {message}");
                    self.fail(Failure::of_job(FailureCause::Storage { message, transient: true }), now);
                }
                CheckpointOutcome::Fenced { message } => {
                    self.fail(Failure::of_job(FailureCause::Fenced(message)), now);
                }
            }
        }
    }

    fn on_completed(&mut self, checkpoint: CheckpointId, purpose: CheckpointPurpose, is_final: bool) {
        let Some(attempt) = self.running() else { return };
        if is_final {
            self.end_checkpoints();
            self.mark_finished(checkpoint, Some(attempt));
        } else if purpose == CheckpointPurpose::Stop {
            let end = JobEnd::Stopped { checkpoint: Some(checkpoint), problem: None };
            self.stop_tasks(attempt, Then::End(end));
        }
    }

    fn mark_finished(&mut self, checkpoint: CheckpointId, tasks: Option<Attempt>) {
        self.commands.push(JobCommand::MarkFinished { checkpoint });
        self.state = State::Finishing { checkpoint, tasks };
    }

    fn on_finished_marked(&mut self) {
        let State::Finishing { checkpoint, tasks } = self.state else { return };
        self.delete_all();
        let end = JobEnd::Finished { checkpoint };
        match tasks {
            Some(attempt) => self.stop_tasks(attempt, Then::End(end)),
            None => self.end(end),
        }
    }

    fn report(&mut self, report: JobReport) {
        self.commands.push(JobCommand::Report(report));
    }

    fn schedule(&mut self) {
        let at = match self.state {
            State::Waiting { until } => Some(until),
            State::Running { .. } => self.coordinator.next_tick(),
            State::Idle
            | State::Recovering
            | State::Settling(..)
            | State::Starting { .. }
            | State::Ending { .. }
            | State::Finishing { .. }
            | State::Ended => None,
        };
        if let Some(at) = at.filter(|at| self.scheduled != Some(*at)) {
            self.scheduled = Some(at);
            self.commands.push(JobCommand::ScheduleTick { at });
        }
    }
}
