//! Where the subtasks of a pipeline are in event time, and what holds them back. Times are milliseconds since the Unix epoch.

use serde::{Deserialize, Serialize};

/// Where a pipeline is in event time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineTime {
    /// The host's clock when it was asked.
    pub now_ms: i64,
    /// The checkpoint that was read, if the pipeline does not run.
    pub checkpoint: Option<u64>,
    /// The subtasks of sources and operators, in the order of the flow.
    pub subtasks: Vec<SubtaskTime>,
}

/// Where a subtask is in event time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubtaskTime {
    /// The source or operator.
    pub operator: String,
    /// The subtask's index.
    pub subtask: u32,
    /// Whether its task said nothing in time: it is in a long call, or waits for a disk. What is below is then not known.
    pub no_answer: bool,
    /// Its watermark; of a source, the last it sent. `i64::MAX` after the end of input.
    pub watermark_ms: Option<i64>,
    /// Whether all its input has ended.
    pub finished: bool,
    /// If it is a source: what its watermark follows from.
    pub source: Option<SourceTime>,
    /// If it is an operator: the channels that it reads, and how far each is.
    pub inputs: Vec<InputTime>,
    /// Its pending timers, for each domain that it declared.
    pub timers: Vec<TimersTime>,
}

/// What the watermark of a source's subtask follows from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceTime {
    /// `active`, `untimed`, `idle`, `ahead`, `held` or `ended`.
    pub activity: String,
    /// How far its watermark stays behind its records; `None` if they say themselves how far it is.
    pub out_of_orderness_ms: Option<u64>,
    /// How long a split must be at its end to be idle; `None` if none ever is.
    pub idle_timeout_ms: Option<u64>,
    /// If it is `ahead`: the least watermark of its group.
    pub group_ms: Option<i64>,
    /// If it is `ahead`: how far it may be ahead of that.
    pub max_drift_ms: Option<u64>,
    /// How many splits are not read to their end.
    pub unfinished_splits: usize,
    /// A few of those, the furthest behind first and idle ones last.
    pub splits: Vec<SplitTime>,
}

/// Where a split is in event time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitTime {
    /// The split.
    pub split: String,
    /// Where it is read, for people.
    pub position: String,
    /// The latest event time among its records.
    pub latest_ms: Option<i64>,
    /// Whether it is idle.
    pub idle: bool,
    /// For how long its reader has seen its end.
    pub at_end_ms: Option<u64>,
}

/// Where an input channel is in event time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputTime {
    /// The source or operator that it comes from.
    pub from: String,
    /// The subtask that it comes from.
    pub subtask: u32,
    /// The input port that it feeds.
    pub port: u32,
    /// The last watermark that came through it.
    pub watermark_ms: Option<i64>,
    /// `active`, `idle` or `ended`.
    pub activity: String,
    /// Whether it waits until the other channels have delivered a checkpoint's barrier.
    pub waits_for_barriers: bool,
}

/// Pending timers of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimersTime {
    /// `event-time` or `processing-time`.
    pub domain: String,
    /// How many there are.
    pub pending: u64,
    /// When the next is due.
    pub next_ms: Option<i64>,
    /// The key of one that is due then: text, or `0x` and hexadecimal digits.
    pub next_key: Option<String>,
}
