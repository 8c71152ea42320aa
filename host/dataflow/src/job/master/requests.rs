//! What people ask of a job: stops and cancellations; and what they wait for: checkpoints,
//! savepoints, stops with a savepoint, drains.
//!
//! Until the savepoint of a stop exists, its failure is the attempt's: the request has failed and the job restarts. Once it
//! exists the job ends, whatever happens: its output may have been committed in part, so it must not go on from an older
//! checkpoint by itself.

use super::{
    Asked, CheckpointOutcome, CheckpointPurpose, Failure, FailureCause, JobCommand, JobEnd, JobFailure, JobMaster, JobReport,
    Now, State, Stop, Then, Wish,
};
use crate::checkpoint::coordinator::{Savepoint, SavepointOrder};
use crate::ids::{Attempt, CheckpointId};

impl JobMaster {
    pub(super) fn on_wish(&mut self, wish: Wish, now: Now) {
        match (&mut self.state, wish) {
            (State::Running { stop, .. }, Wish::Stop) => {
                if *stop == Stop::No {
                    *stop = Stop::First;
                    let outputs = self.coordinator.request(CheckpointPurpose::Stop, None, now);
                    self.apply(outputs, now);
                }
            }
            (&mut (State::Running { attempt, .. } | State::Starting { attempt, .. }), _) => {
                let end = self.wished_end(wish);
                self.stop_tasks(attempt, Then::End(end));
            }
            (State::Idle | State::Waiting { .. }, _) => {
                self.wish = Some(wish);
                self.end_as_wished();
            }
            (State::Recovering | State::Settling(..), _) => self.wish = Some(wish),
            (State::Ending { then, .. }, _) => {
                if matches!(then, Then::Restart { .. }) {
                    self.wish = Some(wish);
                }
            }
            // A job that has finished cannot be stopped any more.
            (State::Finishing { .. } | State::Ended, _) => {}
        }
    }

    pub(super) fn wished_end(&self, wish: Wish) -> JobEnd {
        let checkpoint = self.coordinator.newest();
        match wish {
            Wish::Stop => JobEnd::Stopped { checkpoint, problem: Some("the job was not running".into()) },
            Wish::Cancel => JobEnd::Cancelled { checkpoint },
        }
    }

    /// Ends a job without tasks if the user wanted that.
    pub(super) fn end_as_wished(&mut self) -> bool {
        let Some(wish) = self.wish else { return false };
        self.end(self.wished_end(wish));
        true
    }

    pub(super) fn on_stop_checkpoint_failed(&mut self, problem: String, now: Now) {
        let State::Running { attempt, stop } = &mut self.state else { return };
        let attempt = *attempt;
        if *stop == Stop::First {
            *stop = Stop::Second;
            let outputs = self.coordinator.request(CheckpointPurpose::Stop, None, now);
            self.apply(outputs, now);
        } else {
            let end = JobEnd::Stopped { checkpoint: self.coordinator.newest(), problem: Some(problem) };
            self.stop_tasks(attempt, Then::End(end));
        }
    }

    pub(super) fn on_checkpoint_requested(&mut self, request: u64, now: Now) {
        match self.is_going_on() {
            Ok(_) => {
                let outputs = self.coordinator.ask(request, now);
                self.apply(outputs, now);
            }
            Err(reason) => self.refuse(request, reason),
        }
    }

    pub(super) fn on_savepoint_wanted(&mut self, order: SavepointOrder, now: Now) {
        match self.may_ask() {
            Ok(_) => {
                let outputs = self.coordinator.savepoint(order, now);
                self.apply(outputs, now);
            }
            Err(reason) => self.refuse(order.request, reason),
        }
    }

    pub(super) fn on_stop_wanted(&mut self, order: SavepointOrder, now: Now) {
        match self.may_ask() {
            Ok(attempt) => {
                let asked = Asked { request: order.request, path: None };
                self.state = State::Running { attempt, stop: Stop::Asked(asked) };
                let outputs = self.coordinator.request(CheckpointPurpose::Stop, Some(order), now);
                self.apply(outputs, now);
            }
            Err(reason) => self.refuse(order.request, reason),
        }
    }

    pub(super) fn on_drain_wanted(&mut self, request: u64, savepoint: Option<SavepointOrder>) {
        match self.may_ask() {
            Ok(attempt) if self.coordinator.drain(savepoint) => {
                self.state = State::Running { attempt, stop: Stop::Asked(Asked { request, path: None }) };
                self.commands.push(JobCommand::DrainSources { attempt });
            }
            Ok(_) => self.refuse(request, "all input has been read: the job is about to finish"),
            Err(reason) => self.refuse(request, reason),
        }
    }

    /// Returns the running attempt, or why no savepoint, and no end, can be asked of the job now.
    fn may_ask(&self) -> Result<Attempt, &'static str> {
        let attempt = self.is_going_on()?;
        if self.coordinator.is_taking_savepoint() {
            return Err("another savepoint is being taken; one at a time");
        }
        Ok(attempt)
    }

    /// Returns the running attempt, or why nothing can be asked of the job now.
    fn is_going_on(&self) -> Result<Attempt, &'static str> {
        match &self.state {
            State::Running { attempt, stop: Stop::No } => Ok(*attempt),
            State::Running { .. } => Err("the job is stopping"),
            State::Finishing { .. } => Err("the job has read all input and is about to finish"),
            State::Ending { .. } | State::Waiting { .. } => Err("the job has failed and is restarting, or is ending"),
            State::Idle | State::Recovering | State::Settling(..) | State::Starting { .. } => Err("the job is starting"),
            State::Ended => Err("the job has ended"),
        }
    }

    pub(super) fn refuse(&mut self, request: u64, reason: impl Into<String>) {
        self.report(JobReport::RequestFailed { request, reason: reason.into() });
    }

    pub(super) fn on_savepoint_taken(&mut self, checkpoint: CheckpointId, savepoint: Savepoint, duration_ms: u64, bytes: u64) {
        let Savepoint { request, path } = savepoint;
        if let State::Running { stop: Stop::Asked(asked), .. } = &mut self.state
            && asked.request == request
        {
            asked.path = Some(path.clone());
        }
        self.report(JobReport::SavepointTaken { request, checkpoint, path, duration_ms, bytes });
    }

    pub(super) fn on_savepoint_failed(&mut self, purpose: CheckpointPurpose, request: u64, problem: String, now: Now) {
        if purpose == CheckpointPurpose::Savepoint {
            return self.refuse(request, problem);
        }
        // The sources have stopped for it: only a new attempt goes on.
        self.fail(Failure::of_job(FailureCause::Savepoint(problem)), now);
    }

    /// Savepoints and checkpoints that somebody waited for when the tasks were stopped. A stop that is asked for is reported by itself.
    pub(super) fn report_dropped(&mut self, outcomes: Vec<CheckpointOutcome>) {
        for outcome in outcomes {
            match outcome {
                CheckpointOutcome::Failed { checkpoint, purpose, failure, savepoint: Some(savepoint) } => {
                    if purpose == CheckpointPurpose::Savepoint {
                        self.refuse(savepoint.request, failure.to_string());
                    }
                    self.report(JobReport::CheckpointFailed { checkpoint, purpose, failure });
                }
                CheckpointOutcome::AskedFailed { request, failure } => self.refuse(request, failure.to_string()),
                _ => {}
            }
        }
    }

    /// What a failure does to a job that is stopping. Returns whether that is all there is to do.
    pub(super) fn end_as_stopping(&mut self, failure: &Failure) -> bool {
        let State::Running { attempt, stop } = &self.state else { return false };
        let attempt = *attempt;
        let end = match stop {
            Stop::No => return false,
            Stop::First | Stop::Second => {
                let problem = Some(failure.cause.to_string());
                JobEnd::Stopped { checkpoint: self.coordinator.newest(), problem }
            }
            Stop::Asked(Asked { request, path: None }) => {
                let request = *request;
                self.refuse(request, failure.cause.to_string());
                return false;
            }
            Stop::Asked(Asked { path: Some(path), .. }) => {
                let reason = format!(
                    "the savepoint {path} exists, but output up to it may not be published; the job is not restarted: run it again, or start from the savepoint, and what is missing is published"
                );
                JobEnd::Failed(JobFailure { attempt: Some(attempt), failure: failure.clone(), reason })
            }
        };
        self.stop_tasks(attempt, Then::End(end));
        true
    }
}
