//! What the coordinator asks for and what it reports.

use std::collections::BTreeMap;

use crate::checkpoint::retention::Deletion;
use crate::checkpoint::segment::{SegmentId, SpilledSegment};
use crate::connector::Transaction;
use crate::ids::{Attempt, CheckpointId, OperatorId, TaskIndex};

/// What is to be done for checkpoints. To be executed in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointCommand {
    /// Tell these tasks to take the checkpoint: the sources, and tasks whose input has ended.
    Trigger {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Who is told; others learn of it from barriers.
        tasks: Vec<TaskIndex>,
        /// Whether the snapshots hold all state, for a savepoint.
        full: bool,
        /// Whether sources emit nothing after their barrier.
        stop_sources: bool,
    },
    /// Publish a manifest; answer with its outcome.
    PublishManifest {
        /// Whose right to publish is checked.
        attempt: Attempt,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The file.
        bytes: Vec<u8>,
        /// Files of state that it names and that are to be written first.
        spilled: Vec<SpilledSegment>,
    },
    /// Commit these transactions, sink by sink, then mark the checkpoint as committed; answer with the outcome.
    CommitSinks {
        /// Whose right to commit is checked.
        attempt: Attempt,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// All that its manifest lists.
        transactions: BTreeMap<OperatorId, Vec<Transaction>>,
        /// The path of a savepoint of the same cut, to be marked as committed as well.
        savepoint: Option<String>,
    },
    /// Publish a savepoint: its segments are synced and under their own names; answer with the outcome.
    PublishSavepoint {
        /// Whose right to publish is checked.
        attempt: Attempt,
        /// Its id.
        checkpoint: CheckpointId,
        /// Where it goes.
        path: String,
        /// The files that its manifest names.
        segments: Vec<SegmentId>,
        /// Its manifest.
        bytes: Vec<u8>,
        /// Those of the files that are to be written first.
        spilled: Vec<SpilledSegment>,
    },
    /// Delete a savepoint that nobody was told of.
    DiscardSavepoint {
        /// Where it is.
        path: String,
    },
    /// Tell all tasks that the checkpoint, and all before it, are completed and committed.
    NotifyCompleted {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Tell all tasks that the checkpoint is given up.
    NotifyAborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Delete segments that no checkpoint will name.
    Discard {
        /// The segments.
        segments: Vec<SegmentId>,
    },
    /// Delete checkpoints beyond the number to retain: see [`Deletion::apply`].
    Delete(Deletion),
}

/// Why a checkpoint is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointPurpose {
    /// The interval has passed.
    Periodic,
    /// The job is to stop: sources emit nothing after their barrier.
    Stop,
    /// All input has ended.
    Final,
    /// The user wants a copy to keep: it is not a checkpoint of the job, commits nothing and subsumes nothing.
    Savepoint,
}

/// A savepoint that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavepointOrder {
    /// The number that its outcome is reported by.
    pub request: u64,
    /// Where it goes.
    pub target: SavepointTarget,
}

/// Where a savepoint goes. A path, as far as the storage is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SavepointTarget {
    /// Here.
    At(String),
    /// Below, under the name `savepoint-<id>`.
    Below(String),
}

impl SavepointTarget {
    /// Returns the path of a savepoint with this id.
    pub fn path(&self, id: CheckpointId) -> String {
        match self {
            Self::At(path) => path.clone(),
            Self::Below(path) => format!("{path}/savepoint-{id}"),
        }
    }
}

/// A savepoint that is being taken, or that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// Whose outcome it is.
    pub request: u64,
    /// Where it is.
    pub path: String,
}

/// Why a checkpoint failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointFailure {
    /// It took too long.
    #[error("it expired after {timeout_ms} ms; {missing} of {tasks} tasks had not acknowledged it, the first is task {first}")]
    Expired {
        /// The limit.
        timeout_ms: u64,
        /// How many were missing.
        missing: usize,
        /// Of how many.
        tasks: usize,
        /// The first of them.
        first: TaskIndex,
    },
    /// A task could not take its snapshot or write it.
    #[error("task {task} declined it: {reason}")]
    Declined {
        /// The task.
        task: TaskIndex,
        /// What it said.
        reason: String,
    },
    /// A task gave up its alignment for a newer checkpoint.
    #[error("task {0} had begun a newer one")]
    Overtaken(TaskIndex),
    /// A newer one completed first.
    #[error("checkpoint {0} completed before it")]
    Subsumed(CheckpointId),
    /// What a task acknowledged does not fit its place in the plan: a defect of the host.
    #[error("task {task} acknowledged what does not fit: {what}")]
    Unfit {
        /// The task.
        task: TaskIndex,
        /// What does not fit.
        what: String,
    },
    /// The manifest could not be published.
    #[error("its manifest could not be published: {0}")]
    Publish(String),
    /// The savepoint could not be written where it was to go.
    #[error("the savepoint could not be written: {0}")]
    Export(String),
    /// The tasks stopped before it was complete.
    #[error("the job's tasks were stopped before it was complete")]
    TasksStopped,
}

impl CheckpointFailure {
    /// Whether it counts against the number of tolerable failures.
    pub fn counts(&self) -> bool {
        match self {
            Self::Expired { .. } | Self::Declined { .. } | Self::Unfit { .. } | Self::Publish(_) => true,
            Self::Overtaken(_) | Self::Subsumed(_) | Self::Export(_) | Self::TasksStopped => false,
        }
    }
}

/// What became of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointOutcome {
    /// Completed, committed, and the tasks are being told.
    Completed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why it was taken.
        purpose: CheckpointPurpose,
        /// Whether all input had ended at its cut.
        is_final: bool,
        /// From the trigger to the commit, in milliseconds.
        duration_ms: u64,
        /// Bytes of segments that were written for it.
        written_bytes: u64,
        /// Bytes of all segments that it names.
        state_bytes: u64,
        /// The longest alignment of a task, in microseconds.
        alignment_us_max: u64,
    },
    /// Given up.
    Failed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why it was taken.
        purpose: CheckpointPurpose,
        /// Why it failed.
        failure: CheckpointFailure,
        /// The savepoint that does not come of it.
        savepoint: Option<Savepoint>,
    },
    /// A savepoint exists. If the job is to stop with it, its output is committed next.
    SavepointTaken {
        /// Its id.
        checkpoint: CheckpointId,
        /// Where it is, and who asked for it.
        savepoint: Savepoint,
        /// From the trigger until now, in milliseconds.
        duration_ms: u64,
        /// Bytes of its segments.
        bytes: u64,
    },
    /// The checkpoint that somebody asked for is completed and committed.
    AskedTaken {
        /// Who asked for it.
        request: u64,
        /// The checkpoint, or a later one.
        checkpoint: CheckpointId,
    },
    /// The checkpoint that somebody asked for does not come.
    AskedFailed {
        /// Who asked for it.
        request: u64,
        /// Why it does not.
        failure: CheckpointFailure,
    },
    /// More checkpoints in a row have failed than is tolerable.
    TooManyFailures {
        /// How many.
        failures: u32,
        /// The last one's.
        last: CheckpointFailure,
    },
    /// Whether a manifest was published is unknown: the job must look at its storage again.
    Unsure {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What the storage said.
        message: String,
    },
    /// Another process has taken the job over.
    Fenced {
        /// What the storage said.
        message: String,
    },
}

/// What the coordinator wants done, and what it reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// In order.
    pub commands: Vec<CheckpointCommand>,
    /// In order.
    pub outcomes: Vec<CheckpointOutcome>,
}
