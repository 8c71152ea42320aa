//! What a run tells its observer: events, from the start of an attempt to the end of the job. Types only; the command
//! line renders them.

use serde::Serialize;

pub mod time;

/// Something that happened in a run. As JSON, the variant's name is the field `event`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "snake_case")]
#[non_exhaustive]
pub enum RunEvent {
    /// An attempt has started: all tasks run.
    Started {
        /// The attempt's number, over all processes.
        attempt: u64,
        /// The checkpoint it was restored from; `None` from the beginning.
        restored: Option<u64>,
        /// From the decision to start until the tasks ran, in milliseconds.
        took_ms: u64,
    },
    /// Numbers, from time to time.
    Progress(ProgressSnapshot),
    /// A checkpoint is complete and its output is published.
    Checkpoint {
        /// Its number.
        id: u64,
        /// From trigger to completion, in milliseconds.
        duration_ms: u64,
        /// Bytes written for it.
        bytes: u64,
        /// Whether it is the last of the job.
        is_final: bool,
    },
    /// A checkpoint was given up; the job goes on.
    CheckpointFailed {
        /// Its number.
        id: u64,
        /// Why; printable.
        reason: String,
    },
    /// A checkpoint that was asked for is complete; [`Self::Checkpoint`] tells of it, too.
    CheckpointTaken {
        /// Who asked for it.
        request: u64,
        /// Its number.
        id: u64,
    },
    /// A savepoint exists.
    Savepoint {
        /// Who asked for it.
        request: u64,
        /// Its number.
        id: u64,
        /// Its folder.
        path: String,
        /// From trigger to existence, in milliseconds.
        duration_ms: u64,
        /// Bytes of its state.
        bytes: u64,
    },
    /// A checkpoint, a savepoint, a stop with one or a drain that was asked for does not happen; the job goes on.
    RequestFailed {
        /// Who asked for it.
        request: u64,
        /// Why; printable.
        reason: String,
    },
    /// A subtask failed.
    Fault(FaultReport),
    /// All input was read and all output is published.
    Finished(Summary),
    /// The job had finished before: there was nothing to do.
    AlreadyFinished,
    /// The run was stopped and can be resumed.
    Stopped {
        /// The checkpoint to resume from; `None` if there is none.
        checkpoint: Option<u64>,
        /// Numbers of the run.
        summary: Summary,
    },
    /// The run was broken off without a last checkpoint, as asked for twice. It can be resumed.
    Interrupted {
        /// Numbers of the run.
        summary: Summary,
    },
    /// The job failed for good.
    Failed {
        /// A stable code, such as a fault's.
        code: String,
        /// Why; printable.
        message: String,
        /// What the user can do.
        help: Option<String>,
        /// Numbers of the run.
        summary: Summary,
    },
}

/// Numbers of a running job. Counters are of this process and restart with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProgressSnapshot {
    /// Since the run began, in milliseconds.
    pub elapsed_ms: u64,
    /// Records that sources have read; records replayed after a restart count again.
    pub records_in: u64,
    /// Records that sinks have taken.
    pub records_out: u64,
    /// Bytes of record values that sources have read.
    pub bytes_in: u64,
    /// Records skipped as malformed.
    pub malformed: u64,
    /// Bytes still to be read, if the sources know.
    pub lag_bytes: Option<u64>,
    /// The newest completed checkpoint.
    pub checkpoint: Option<u64>,
    /// Since its completion, in milliseconds.
    pub checkpoint_age_ms: Option<u64>,
    /// Restarts since the run began.
    pub restarts: u64,
    /// Bytes of state held, if known.
    pub state_bytes: Option<u64>,
}

/// Why a subtask failed, and what happens next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultReport {
    /// A stable code, such as `guest-trap` or `io-read`.
    pub code: String,
    /// What was going on, such as `data`.
    pub phase: String,
    /// The operator, source or sink; `None` for a failure of the job as a whole.
    pub operator: Option<String>,
    /// The subtask's index; `None` as above.
    pub subtask: Option<u32>,
    /// Where the sources stood, for people; `None` if no record is to blame.
    pub position: Option<String>,
    /// Why; printable.
    pub message: String,
    /// Frames of the guest, innermost first; printable.
    pub backtrace: Vec<String>,
    /// Milliseconds until the restart; `None` if there will be none.
    pub restart_in_ms: Option<u64>,
}

/// Numbers of a whole run (of this process).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// From start to end, in milliseconds.
    pub elapsed_ms: u64,
    /// Records that sources have read, replayed ones included.
    pub records_in: u64,
    /// Records that sinks have taken, replayed ones included.
    pub records_out: u64,
    /// Bytes of record values that sources have read.
    pub bytes_in: u64,
    /// Records skipped as malformed.
    pub malformed: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Checkpoints given up.
    pub checkpoints_failed: u64,
    /// Restarts.
    pub restarts: u64,
    /// What each operator has done and used, in the order of the pipeline.
    pub operators: Vec<OperatorUsage>,
}

/// What one operator has done and used in a run, all attempts and subtasks together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OperatorUsage {
    /// The operator.
    pub operator: String,
    /// Records that it has handled, replayed ones included.
    pub records_in: u64,
    /// Records that it has emitted on all ports, those of replayed records included.
    pub records_out: u64,
    /// Calls into the guest.
    pub calls: u64,
    /// Fuel burnt.
    pub fuel: u64,
    /// The largest linear memory of one instance, in bytes.
    pub memory_peak_bytes: u64,
    /// Entries of state that it held at the end.
    pub state_entries: u64,
    /// The memory that they took, in bytes.
    pub state_bytes: u64,
    /// Failures of its subtasks.
    pub faults: u64,
}
