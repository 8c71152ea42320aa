//! Sources: splits read from positions.

use serde::{Deserialize, Serialize};

use super::{ConnectorContext, ConnectorError};
use crate::batch::Batch;
use crate::time::{EventTime, ProcessingTime};

/// What a source can promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceGuarantee {
    /// Whether a position yields the same records in the same order again.
    pub replayable: bool,
    /// Whether it ends.
    pub bounded: bool,
}

/// A part of a source that is read in order by one subtask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Split {
    /// Stable over restarts, unique in the source; such as a file's path.
    pub id: String,
}

/// Where to go on reading a split: all records before it have been emitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPosition {
    /// The split.
    pub split: String,
    /// In the source's own encoding.
    pub position: Vec<u8>,
    /// Whether the split has been read to its end.
    pub finished: bool,
    /// For people: such as `line 1200, byte 45020`.
    pub display: String,
}

/// What a poll brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourcePoll {
    /// Records of one split (an index into the splits that the source was opened with) were appended to the batch.
    Records {
        /// The index of the split.
        split: usize,
    },
    /// A split has ended. Nothing was appended.
    SplitFinished {
        /// The index of the split.
        split: usize,
    },
    /// A split has nothing more until somebody adds to it: its reader has seen its present end. Said once, until there are
    /// records of it again. Nothing was appended.
    AtEnd {
        /// The index of the split.
        split: usize,
    },
    /// Nothing at hand; poll again after this many milliseconds. Nothing was appended.
    Pending {
        /// Milliseconds to wait.
        retry_after_ms: u64,
    },
    /// All splits have ended, and whoever polls again is told so again. Nothing was appended.
    End,
}

/// Reads the splits of one subtask.
pub trait Source {
    /// Appends up to `max_records` records (about 256 KiB of them) to the empty `batch`. Does not wait.
    ///
    /// # Errors
    /// [`ConnectorError`]; the source is not polled again.
    fn poll(&mut self, now: ProcessingTime, max_records: usize, batch: &mut Batch) -> Result<SourcePoll, ConnectorError>;

    /// Returns the position of every split of this subtask, finished ones included: everything polled so far lies
    /// before, nothing after.
    fn positions(&self) -> Vec<SplitPosition>;

    /// Returns up to which event time a split has been read completely, if its records say so: no record at or before it
    /// follows. Asked for after a poll that brought records of the split, where the factory
    /// [declares watermarks](SourceFactory::declares_watermarks).
    fn declared_watermark(&self, split: usize) -> Option<EventTime> {
        let _ = split;
        None
    }

    /// Returns how much is left to read, in bytes, if that is known.
    fn remaining_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns how many records were skipped as malformed since the source was opened.
    fn malformed(&self) -> u64 {
        0
    }
}

/// Finds the splits of a source and opens readers for them.
pub trait SourceFactory: Send + Sync {
    /// Returns what the source can promise.
    fn guarantee(&self) -> SourceGuarantee;

    /// Returns the splits there are, in a stable order. `parallelism` is for sources that make up their splits.
    ///
    /// # Errors
    /// [`ConnectorError`], such as for a missing input.
    fn discover(&self, parallelism: u32) -> Result<Vec<Split>, ConnectorError>;

    /// Whether records have an event time. Those that have none hold no event time back.
    fn has_event_time(&self) -> bool {
        true
    }

    /// Whether its readers know up to which event time a split is complete.
    fn declares_watermarks(&self) -> bool {
        false
    }

    /// Whether its readers say when they have seen the end of a split that may go on: [`SourcePoll::AtEnd`].
    fn declares_idleness(&self) -> bool {
        false
    }

    /// Whether the splits are made up when a job begins, and a restored job goes on with exactly those of its checkpoint.
    /// Else it goes on with those of its checkpoint and with new ones that are found.
    fn has_fixed_splits(&self) -> bool {
        false
    }

    /// Opens a reader for these splits, each from its position if it has one. A position that does not fit (a file
    /// that shrank or changed) is an error.
    ///
    /// # Errors
    /// [`ConnectorError`].
    fn open(
        &self,
        context: &ConnectorContext,
        splits: Vec<(Split, Option<SplitPosition>)>,
    ) -> Result<Box<dyn Source>, ConnectorError>;
}
