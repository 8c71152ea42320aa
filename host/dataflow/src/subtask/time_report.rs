//! Where a task is in event time, and why: for people who wonder why a window has not fired.

use crate::guest::TimeDomain;
use crate::ids::SubtaskId;
use crate::time::{EventTime, Watermark};

/// Where a task is in event time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTime {
    /// What its event time follows from.
    pub head: HeadTime,
    /// Its operators, in the order of the flow.
    pub operators: Vec<OperatorTime>,
}

/// What a task's event time follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadTime {
    /// The splits of a source.
    Source(SourceReport),
    /// Channels, in the order of the task's plan.
    Inputs(Vec<InputTime>),
}

/// Whether an input counts for the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It does.
    Active,
    /// Not until it is active again.
    Idle,
    /// Never again.
    Ended,
}

/// Where a channel is in event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputTime {
    /// The last watermark that was read from it.
    pub watermark: Option<Watermark>,
    /// Whether it counts.
    pub activity: Activity,
    /// Whether it is not read until other channels have delivered the barrier that it has.
    pub waits_for_barriers: bool,
}

/// Where a source's subtask is in event time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    /// The subtask.
    pub id: SubtaskId,
    /// The last watermark it sent.
    pub watermark: Option<Watermark>,
    /// Whether it takes part in event time.
    pub activity: SourceActivity,
    /// How far its watermark stays behind its records, in milliseconds; `None` if they say themselves how far it is.
    pub out_of_orderness_ms: Option<u64>,
    /// How long a split must have been at its end to be idle, in milliseconds; `None` if none ever is.
    pub idle_timeout_ms: Option<u64>,
    /// Splits that are not read to their end yet: those that are furthest behind, a few.
    pub splits: Vec<SplitReport>,
    /// How many such splits there are.
    pub unfinished: usize,
}

/// What a source does, as far as event time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceActivity {
    /// It reads.
    Active,
    /// Its records have no event time, and hold nobody back.
    Untimed,
    /// All its splits are idle.
    Idle,
    /// It waits for others of its group: it may read on once they let it up to this time.
    Ahead {
        /// The least watermark of the group.
        group: EventTime,
        /// How far it may be ahead, in milliseconds.
        max_drift_ms: u64,
    },
    /// It reads nothing until there is memory for state.
    Held,
    /// It reads nothing any more.
    Ended,
}

/// Where a split is in event time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitReport {
    /// The split.
    pub split: String,
    /// Where it is read, for people.
    pub position: String,
    /// The latest event time among its records, or, if they say it themselves, up to where it is complete.
    pub latest: Option<EventTime>,
    /// Whether it is idle.
    pub idle: bool,
    /// For how long its reader has seen its end, in milliseconds; `None` if there is more at hand.
    pub at_end_ms: Option<u64>,
}

/// Where an operator's subtask is in event time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorTime {
    /// The subtask.
    pub id: SubtaskId,
    /// Its watermark.
    pub watermark: Option<Watermark>,
    /// Whether all its input has ended and it has finished.
    pub finished: bool,
    /// Its timers, for each domain that it declared.
    pub timers: Vec<PendingTimers>,
}

/// The timers of one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingTimers {
    /// Which clock they wait for.
    pub domain: TimeDomain,
    /// How many there are.
    pub pending: u64,
    /// When the next is due, in milliseconds since the Unix epoch, and the key of one that is due then.
    pub next: Option<(i64, Vec<u8>)>,
}
