//! Translates what an execution tells into the events that people and programs read.

use std::time::Instant;

use cofferdam::execution::ExecutionEvent;
use cofferdam::report::{FaultReport, ProgressSnapshot, RunEvent, Summary};
use cofferdam_dataflow::checkpoint::coordinator::CheckpointPurpose;
use cofferdam_dataflow::ids::{CheckpointId, OperatorId};
use cofferdam_dataflow::job::failure::{Failure, FailureCause};
use cofferdam_dataflow::job::master::{JobEnd, JobReport};
use cofferdam_dataflow::subtask::TaskCounters;

use super::usage::Usages;

/// Keeps the numbers of a run, over all its attempts.
pub(super) struct Observer {
    start: Instant,
    attempt_start: Instant,
    /// Of the attempts that have ended.
    ended: Totals,
    /// Of the current attempt.
    current: Totals,
    usages: Usages,
    checkpoint: Option<(CheckpointId, Instant)>,
    checkpoints: u64,
    checkpoints_failed: u64,
    restarts: u64,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    records_in: u64,
    bytes_in: u64,
    records_out: u64,
    malformed: u64,
    lag_bytes: Option<u64>,
    state_bytes: u64,
}

impl Totals {
    fn of(counters: &[TaskCounters]) -> Self {
        let mut totals = Self::default();
        for task in counters {
            totals.records_in += task.source_records;
            totals.bytes_in += task.source_bytes;
            totals.records_out += task.sink_records;
            totals.malformed += task.malformed;
            totals.state_bytes += task.operators.iter().map(|operator| operator.state_bytes).sum::<u64>();
            totals.lag_bytes = match (totals.lag_bytes, task.remaining_bytes) {
                (Some(sum), Some(bytes)) => Some(sum + bytes),
                (sum, bytes) => sum.or(bytes),
            };
        }
        totals
    }
}

impl Observer {
    /// Begins a run of a job with these operators.
    pub(super) fn new(operators: Vec<OperatorId>) -> Self {
        let now = Instant::now();
        Self {
            start: now,
            attempt_start: now,
            ended: Totals::default(),
            current: Totals::default(),
            usages: Usages::new(operators),
            checkpoint: None,
            checkpoints: 0,
            checkpoints_failed: 0,
            restarts: 0,
        }
    }

    /// Returns what to show for an event, if anything.
    pub(super) fn observe(&mut self, event: ExecutionEvent) -> Option<RunEvent> {
        match event {
            ExecutionEvent::Counters(counters) => {
                self.current = Totals::of(&counters);
                self.usages.set_current(&counters);
                Some(RunEvent::Progress(self.progress()))
            }
            ExecutionEvent::AttemptEnded(counters) => {
                let last = Totals::of(&counters);
                self.usages.end_attempt(&counters);
                self.ended.records_in += last.records_in;
                self.ended.bytes_in += last.bytes_in;
                self.ended.records_out += last.records_out;
                self.ended.malformed += last.malformed;
                self.current = Totals::default();
                None
            }
            // Told to who has asked, by the caller.
            ExecutionEvent::SnapshotPause { .. } | ExecutionEvent::Times { .. } => None,
            ExecutionEvent::Report(report) => self.report(report),
        }
    }

    fn report(&mut self, report: JobReport) -> Option<RunEvent> {
        match report {
            JobReport::Notice(text) => {
                tracing::info!("{text}");
                None
            }
            JobReport::Running { attempt, restored } => Some(RunEvent::Started {
                attempt: attempt.0,
                restored: restored.map(|id| id.0),
                took_ms: elapsed_ms(self.attempt_start),
            }),
            JobReport::CheckpointCompleted { checkpoint, purpose, duration_ms, written_bytes, .. } => {
                self.checkpoint = Some((checkpoint, Instant::now()));
                self.checkpoints += 1;
                let is_final = purpose == CheckpointPurpose::Final;
                Some(RunEvent::Checkpoint { id: checkpoint.0, duration_ms, bytes: written_bytes, is_final })
            }
            JobReport::AskedCheckpointTaken { request, checkpoint } => {
                Some(RunEvent::CheckpointTaken { request, id: checkpoint.0 })
            }
            JobReport::SavepointTaken { request, checkpoint, path, duration_ms, bytes } => {
                Some(RunEvent::Savepoint { request, id: checkpoint.0, path, duration_ms, bytes })
            }
            JobReport::RequestFailed { request, reason } => Some(RunEvent::RequestFailed { request, reason }),
            // The request that has failed is told by itself.
            JobReport::CheckpointFailed { purpose: CheckpointPurpose::Savepoint, .. } => None,
            JobReport::CheckpointFailed { checkpoint, failure, .. } => {
                self.checkpoints_failed += 1;
                Some(RunEvent::CheckpointFailed { id: checkpoint.0, reason: failure.to_string() })
            }
            JobReport::Restarting { failure, delay_ms, .. } => {
                self.restarts += 1;
                self.attempt_start = Instant::now();
                self.count_fault(&failure);
                Some(RunEvent::Fault(fault_report(&failure, Some(delay_ms))))
            }
        }
    }

    /// Returns what to show for the end of a job: a fault that ended it comes first.
    pub(super) fn end(&mut self, end: JobEnd, interrupted: bool) -> Vec<RunEvent> {
        if let JobEnd::Failed(failed) = &end {
            self.count_fault(&failed.failure);
        }
        let summary = self.summary();
        match end {
            JobEnd::Finished { .. } => vec![RunEvent::Finished(summary)],
            JobEnd::AlreadyFinished { .. } => vec![RunEvent::AlreadyFinished],
            JobEnd::Stopped { checkpoint, problem } => {
                if let Some(problem) = problem {
                    tracing::warn!("stopped without a last checkpoint: {problem}");
                }
                vec![RunEvent::Stopped { checkpoint: checkpoint.map(|id| id.0), summary }]
            }
            JobEnd::Cancelled { checkpoint } if !interrupted => {
                vec![RunEvent::Stopped { checkpoint: checkpoint.map(|id| id.0), summary }]
            }
            JobEnd::Cancelled { .. } => vec![RunEvent::Interrupted { summary }],
            JobEnd::Failed(failed) => {
                let fault = fault_report(&failed.failure, None);
                let message = format!("{}; {}", failed.failure.cause, failed.reason);
                let failed = RunEvent::Failed { code: failed.failure.cause.code().into(), message, help: None, summary };
                vec![RunEvent::Fault(fault), failed]
            }
        }
    }

    fn count_fault(&mut self, failure: &Failure) {
        if let Some(subtask) = &failure.subtask {
            self.usages.add_fault(&subtask.operator);
        }
    }

    fn progress(&self) -> ProgressSnapshot {
        let (ended, current) = (&self.ended, &self.current);
        ProgressSnapshot {
            elapsed_ms: elapsed_ms(self.start),
            records_in: ended.records_in + current.records_in,
            records_out: ended.records_out + current.records_out,
            bytes_in: ended.bytes_in + current.bytes_in,
            malformed: ended.malformed + current.malformed,
            lag_bytes: current.lag_bytes,
            checkpoint: self.checkpoint.map(|(id, _)| id.0),
            checkpoint_age_ms: self.checkpoint.map(|(_, at)| elapsed_ms(at)),
            restarts: self.restarts,
            state_bytes: Some(current.state_bytes),
        }
    }

    fn summary(&self) -> Summary {
        let progress = self.progress();
        Summary {
            elapsed_ms: progress.elapsed_ms,
            records_in: progress.records_in,
            records_out: progress.records_out,
            bytes_in: progress.bytes_in,
            malformed: progress.malformed,
            checkpoints: self.checkpoints,
            checkpoints_failed: self.checkpoints_failed,
            restarts: self.restarts,
            operators: self.usages.all(),
        }
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn fault_report(failure: &Failure, restart_in_ms: Option<u64>) -> FaultReport {
    let (phase, message, backtrace) = match &failure.cause {
        FailureCause::Guest(fault) => (fault.phase.name(), fault.message.clone(), fault.backtrace.clone()),
        FailureCause::Connector { message, .. } => ("connector", message.clone(), Vec::new()),
        FailureCause::Checkpoints { .. } | FailureCause::Savepoint(_) => ("checkpoint", failure.cause.to_string(), Vec::new()),
        FailureCause::Storage { .. } | FailureCause::Fenced(_) => ("storage", failure.cause.to_string(), Vec::new()),
        FailureCause::Restore(message) => ("restore", message.clone(), Vec::new()),
        FailureCause::Host(message) => ("host", message.clone(), Vec::new()),
    };
    let subtask = failure.subtask.as_ref();
    FaultReport {
        code: failure.cause.code().into(),
        phase: phase.into(),
        operator: subtask.map(|subtask| subtask.operator.to_string()),
        subtask: subtask.map(|subtask| subtask.index),
        position: failure.position.clone(),
        message,
        backtrace,
        restart_in_ms,
    }
}
