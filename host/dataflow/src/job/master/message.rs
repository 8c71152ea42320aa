//! What the job master is told, and what it wants done.

use std::collections::BTreeMap;

use crate::checkpoint::coordinator::{CheckpointCommand, CheckpointFailure, CheckpointPurpose, SavepointOrder};
use crate::checkpoint::recovery::{RecoverError, RecoverOptions, Recovery};
use crate::checkpoint::restore::RestorePlan;
use crate::checkpoint::segment::{SegmentId, SegmentInfo};
use crate::checkpoint::storage::StorageError;
use crate::connector::Transaction;
use crate::ids::{Attempt, CheckpointId, OperatorId, TaskIndex};
use crate::job::failure::{Failure, FailureCause, JobFailure};
use crate::snapshot::TaskSnapshot;
use crate::time::MonotonicTime;

/// Something that has happened. Messages of one task must arrive in the order in which it sent them.
#[derive(Debug)]
pub enum JobEvent {
    /// The job is to run. Once, first.
    Start,
    /// [`JobCommand::Recover`] has succeeded.
    Recovered(Box<Recovery>),
    /// [`JobCommand::Recover`] has failed.
    RecoverFailed(RecoverError),
    /// [`JobCommand::SettleSinks`] has succeeded.
    SinksSettled,
    /// [`JobCommand::SettleSinks`] has failed.
    SettleFailed(FailureCause),
    /// A task has opened, has loaded its state and runs.
    TaskStarted {
        /// Its attempt.
        attempt: Attempt,
        /// The task.
        task: TaskIndex,
    },
    /// The time of [`JobCommand::ScheduleTick`] has come. Harmless at any other time.
    Tick,
    /// A task has reached the cut of a checkpoint.
    SnapshotTaken(TaskSnapshot),
    /// A task's part of a checkpoint is durable: its segment, if it has blocks, and all that its sinks prepared.
    Acknowledged {
        /// Checkpoint, attempt and task.
        id: SegmentId,
        /// What was written; `None` if there was nothing to write.
        segment: Option<SegmentInfo>,
    },
    /// A task cannot take its part of a checkpoint. It has deleted what it had begun to write.
    Declined {
        /// Checkpoint, attempt and task.
        id: SegmentId,
        /// Why.
        reason: DeclineReason,
    },
    /// [`CheckpointCommand::PublishManifest`] has succeeded.
    ManifestPublished {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// [`CheckpointCommand::PublishManifest`] has failed.
    ManifestFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What the storage said.
        error: StorageError,
    },
    /// [`CheckpointCommand::CommitSinks`] has succeeded.
    SinksCommitted {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// [`CheckpointCommand::CommitSinks`] has failed.
    CommitFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        cause: FailureCause,
    },
    /// All input of a task has ended and its operators have finished. It stays, for the checkpoints to come.
    TaskEndOfData {
        /// Its attempt.
        attempt: Attempt,
        /// The task.
        task: TaskIndex,
    },
    /// A task, or something else of an attempt, has failed.
    Failed {
        /// The attempt.
        attempt: Attempt,
        /// Why.
        failure: Failure,
    },
    /// All tasks of an attempt are gone and none of their writes is under way.
    TasksStopped {
        /// The attempt.
        attempt: Attempt,
    },
    /// [`JobCommand::MarkFinished`] has succeeded.
    FinishedMarked,
    /// [`JobCommand::MarkFinished`] has failed.
    MarkFailed(StorageError),
    /// [`CheckpointCommand::PublishSavepoint`] has succeeded.
    SavepointPublished {
        /// Its id.
        checkpoint: CheckpointId,
    },
    /// [`CheckpointCommand::PublishSavepoint`] has failed, and nothing is left of it.
    SavepointFailed {
        /// Its id.
        checkpoint: CheckpointId,
        /// What the storage said.
        error: StorageError,
    },
    /// The user wants a checkpoint at once, to read it. Only a running job can.
    CheckpointRequested {
        /// The number that the outcome is reported by.
        request: u64,
    },
    /// The user wants a savepoint of the running job.
    SavepointRequested(SavepointOrder),
    /// The user wants the job to stop with a savepoint: its barrier is the last that sources emit. Only a running job can.
    StopWithSavepointRequested(SavepointOrder),
    /// The user wants the sources to end where they are, and the job to finish. Only a running job can.
    DrainRequested {
        /// The number that a refusal is reported by.
        request: u64,
        /// What the final checkpoint is to be as well; by the same number.
        savepoint: Option<SavepointOrder>,
    },
    /// A task is short of memory until a checkpoint completes.
    CheckpointWanted {
        /// Its attempt.
        attempt: Attempt,
    },
    /// The user wants the job to stop, with a checkpoint.
    StopRequested,
    /// The user wants the job to stop at once.
    CancelRequested,
}

/// Why a task declined a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclineReason {
    /// It had begun a newer one.
    Overtaken,
    /// Its snapshot could not be taken or written.
    Failed(String),
}

impl DeclineReason {
    pub(super) fn into_failure(self, task: TaskIndex) -> CheckpointFailure {
        match self {
            Self::Overtaken => CheckpointFailure::Overtaken(task),
            Self::Failed(reason) => CheckpointFailure::Declined { task, reason },
        }
    }
}

/// Something to be done. To be executed in the order given; what blocks, off the control thread, in the same order.
#[derive(Debug, PartialEq)]
pub enum JobCommand {
    /// Call [`crate::checkpoint::recovery::recover`].
    Recover(RecoverOptions),
    /// Commit these transactions, sink by sink, then mark the checkpoint as committed (if there is one), then abort
    /// everything else that any sink of the job has staged. All of it may have been done before.
    SettleSinks {
        /// Whose right to do so is checked.
        attempt: Attempt,
        /// The checkpoint to mark; `None` if it is marked or there is none.
        checkpoint: Option<CheckpointId>,
        /// What to commit.
        commit: BTreeMap<OperatorId, Vec<Transaction>>,
    },
    /// Start all tasks.
    StartAttempt {
        /// The attempt.
        attempt: Attempt,
        /// What they begin with; `None` for an empty start.
        restore: Option<Box<RestorePlan>>,
    },
    /// Something for a checkpoint.
    Checkpoint(CheckpointCommand),
    /// Tell the sources to end where they are.
    DrainSources {
        /// The attempt.
        attempt: Attempt,
    },
    /// Stop all tasks at once, and answer when they are gone.
    CancelTasks {
        /// The attempt.
        attempt: Attempt,
    },
    /// Note durably that the job has finished.
    MarkFinished {
        /// Its last checkpoint.
        checkpoint: CheckpointId,
    },
    /// Send [`JobEvent::Tick`] at this time; replaces the time before.
    ScheduleTick {
        /// When.
        at: MonotonicTime,
    },
    /// Tell people.
    Report(JobReport),
    /// The job is over. Nothing follows.
    End(JobEnd),
}

/// What people want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobReport {
    /// Something worth a line in the log.
    Notice(String),
    /// All tasks of an attempt run.
    Running {
        /// The attempt.
        attempt: Attempt,
        /// The checkpoint it began with.
        restored: Option<CheckpointId>,
    },
    /// A checkpoint was completed and committed.
    CheckpointCompleted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why it was taken.
        purpose: CheckpointPurpose,
        /// From the trigger to the commit, in milliseconds.
        duration_ms: u64,
        /// Bytes of segments that were written for it.
        written_bytes: u64,
        /// Bytes of all segments that it names.
        state_bytes: u64,
        /// The longest alignment of a task, in microseconds.
        alignment_us_max: u64,
    },
    /// A checkpoint was given up.
    CheckpointFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why it was taken.
        purpose: CheckpointPurpose,
        /// Why it failed.
        failure: CheckpointFailure,
    },
    /// A checkpoint that was asked for is completed and committed.
    AskedCheckpointTaken {
        /// Who asked for it.
        request: u64,
        /// The checkpoint. Its cut is later than the request.
        checkpoint: CheckpointId,
    },
    /// A savepoint exists. If it was asked for with a stop or a drain, the job's end follows.
    SavepointTaken {
        /// Who asked for it.
        request: u64,
        /// Its id.
        checkpoint: CheckpointId,
        /// Where it is.
        path: String,
        /// From the trigger until now, in milliseconds.
        duration_ms: u64,
        /// Bytes of its state.
        bytes: u64,
    },
    /// A checkpoint that was asked for, a savepoint, a stop with one or a drain does not happen. The job goes on, or restarts.
    RequestFailed {
        /// Who asked for it.
        request: u64,
        /// Why.
        reason: String,
    },
    /// An attempt has failed and the job will restart.
    Restarting {
        /// The attempt; `None` if it failed before it began.
        attempt: Option<Attempt>,
        /// Why.
        failure: Failure,
        /// The wait, in milliseconds.
        delay_ms: u64,
    },
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// All input was read and all output is committed.
    Finished {
        /// The last checkpoint.
        checkpoint: CheckpointId,
    },
    /// It had finished before; nothing was run.
    AlreadyFinished {
        /// The last checkpoint.
        checkpoint: CheckpointId,
    },
    /// Stopped as asked for. It goes on where it stopped, or from the checkpoint named.
    Stopped {
        /// The newest completed checkpoint.
        checkpoint: Option<CheckpointId>,
        /// Why no checkpoint was taken for the stop, if none was.
        problem: Option<String>,
    },
    /// Cancelled as asked for.
    Cancelled {
        /// The newest completed checkpoint that is kept.
        checkpoint: Option<CheckpointId>,
    },
    /// Failed for good.
    Failed(JobFailure),
}
