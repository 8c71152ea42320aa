//! Where a job is, and what is to become of it.

use std::collections::BTreeSet;

use super::JobEnd;
use crate::checkpoint::recovery::Recovery;
use crate::checkpoint::restore::RestorePlan;
use crate::ids::{Attempt, CheckpointId, TaskIndex};
use crate::time::MonotonicTime;

/// Where a job is. See the module's documentation.
#[derive(Debug)]
pub(super) enum State {
    Idle,
    Recovering,
    Settling(Box<Recovery>, Option<Box<RestorePlan>>),
    /// `ended` are tasks that had nothing to read and have finished before the last task started.
    Starting {
        attempt: Attempt,
        waiting: BTreeSet<TaskIndex>,
        ended: Vec<TaskIndex>,
        restored: Option<CheckpointId>,
    },
    Running {
        attempt: Attempt,
        stop: Stop,
    },
    Ending {
        attempt: Attempt,
        tasks_gone: bool,
        then: Then,
    },
    Waiting {
        until: MonotonicTime,
    },
    Finishing {
        checkpoint: CheckpointId,
        tasks: Option<Attempt>,
    },
    Ended,
}

/// Whether a running job is to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    No,
    /// The checkpoint for it is being taken.
    First,
    /// It failed and is being taken again.
    Second,
    /// With a savepoint, or by a drain: somebody waits for the outcome.
    Asked(Asked),
}

/// A stop that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) request: u64,
    /// The path of its savepoint, once that exists: from then on there is no way back.
    pub(super) path: Option<String>,
}

/// What follows when an attempt is gone.
#[derive(Debug)]
pub(super) enum Then {
    Restart { until: MonotonicTime },
    End(JobEnd),
}

/// What the user asked for while that could not be done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Stop,
    Cancel,
}
