//! How an attempt and a job end: failures, restarts, and what is left behind.

use super::state::{State, Then};
use super::{JobCommand, JobEnd, JobMaster, JobReport, Now};
use crate::checkpoint::config::Cleanup;
use crate::checkpoint::coordinator::CheckpointCommand;
use crate::ids::Attempt;
use crate::job::failure::{Failure, FailureClass, JobFailure};
use crate::job::restart::RestartDecision;
use crate::time::MonotonicTime;

const FENCED: &str = "the job belongs to another process";
pub(super) const HOPELESS: &str = "a restart cannot mend it";

impl JobMaster {
    /// The attempt, or the way to one, has failed. Further failures of the same attempt find another state.
    pub(super) fn fail(&mut self, failure: Failure, now: Now) {
        let attempt = self.attempt();
        let class = failure.cause.class();
        match &mut self.state {
            State::Ending { attempt, then, .. } => {
                if class == FailureClass::Fenced {
                    let reason = FENCED.into();
                    *then = Then::End(JobEnd::Failed(JobFailure { attempt: Some(*attempt), failure, reason }));
                }
                return;
            }
            State::Idle | State::Waiting { .. } | State::Ended => return,
            State::Recovering
            | State::Settling(..)
            | State::Starting { .. }
            | State::Running { .. }
            | State::Finishing { .. } => {}
        }
        if class != FailureClass::Fenced && self.end_as_stopping(&failure) {
            return;
        }
        let decision = match class {
            FailureClass::Permanent => RestartDecision::GiveUp { reason: HOPELESS.into() },
            FailureClass::Fenced => RestartDecision::GiveUp { reason: FENCED.into() },
            FailureClass::MayRepeat => match self.repeated.note(&failure) {
                Some(times) => RestartDecision::GiveUp {
                    reason: format!("it has failed {times} times at the same position without a checkpoint in between"),
                },
                None => self.restarts.on_failure(now.monotonic),
            },
            FailureClass::Transient => self.restarts.on_failure(now.monotonic),
        };
        match decision {
            RestartDecision::GiveUp { reason } => self.give_up(attempt, failure, reason),
            RestartDecision::After { delay_ms } => {
                let until = now.monotonic.plus_ms(delay_ms);
                self.report(JobReport::Restarting { attempt, failure, delay_ms });
                match attempt {
                    Some(attempt) => self.stop_tasks(attempt, Then::Restart { until }),
                    None if self.end_as_wished() => {}
                    None => self.wait(until, now),
                }
            }
        }
    }

    pub(super) fn give_up(&mut self, attempt: Option<Attempt>, failure: Failure, reason: String) {
        let end = JobEnd::Failed(JobFailure { attempt, failure, reason });
        match attempt {
            Some(attempt) => self.stop_tasks(attempt, Then::End(end)),
            None => self.end(end),
        }
    }

    pub(super) fn wait(&mut self, until: MonotonicTime, now: Now) {
        if until <= now.monotonic {
            self.recover();
        } else {
            self.state = State::Waiting { until };
        }
    }

    pub(super) fn end_checkpoints(&mut self) {
        let outputs = self.coordinator.end();
        self.commands.extend(outputs.commands.into_iter().map(JobCommand::Checkpoint));
        self.report_dropped(outputs.outcomes);
    }

    pub(super) fn stop_tasks(&mut self, attempt: Attempt, then: Then) {
        self.commands.push(JobCommand::CancelTasks { attempt });
        self.end_checkpoints();
        self.state = State::Ending { attempt, tasks_gone: false, then };
    }

    pub(super) fn on_tasks_stopped(&mut self, of: Attempt) {
        if let State::Ending { attempt, tasks_gone, .. } = &mut self.state
            && *attempt == of
        {
            *tasks_gone = true;
        }
    }

    /// Goes on once nothing of the attempt is under way any more.
    pub(super) fn leave_ending(&mut self, now: Now) {
        if !matches!(self.state, State::Ending { tasks_gone: true, .. }) || self.coordinator.is_completing() {
            return;
        }
        let State::Ending { then, .. } = std::mem::replace(&mut self.state, State::Ended) else { return };
        match then {
            Then::Restart { .. } if self.end_as_wished() => {}
            Then::Restart { until } => self.wait(until, now),
            Then::End(end) => self.end(end),
        }
    }

    pub(super) fn end(&mut self, end: JobEnd) {
        let delete = match &end {
            JobEnd::Cancelled { .. } => self.setup.checkpoints.cleanup != Cleanup::Never,
            JobEnd::Failed(job) => {
                self.setup.checkpoints.cleanup == Cleanup::Always && job.failure.cause.class() != FailureClass::Fenced
            }
            JobEnd::Finished { .. } | JobEnd::AlreadyFinished { .. } | JobEnd::Stopped { .. } => false,
        };
        let end = match end {
            JobEnd::Cancelled { .. } if delete => JobEnd::Cancelled { checkpoint: None },
            // One may have completed while the tasks stopped.
            JobEnd::Cancelled { .. } => JobEnd::Cancelled { checkpoint: self.coordinator.newest() },
            JobEnd::Stopped { problem, .. } => JobEnd::Stopped { checkpoint: self.coordinator.newest(), problem },
            other => other,
        };
        if delete {
            self.delete_all();
        }
        self.commands.push(JobCommand::End(end));
        self.state = State::Ended;
    }

    pub(super) fn delete_all(&mut self) {
        let deletion = self.coordinator.delete_all();
        if !deletion.is_empty() {
            self.commands.push(JobCommand::Checkpoint(CheckpointCommand::Delete(deletion)));
        }
    }
}
