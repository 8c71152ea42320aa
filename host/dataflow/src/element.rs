//! What flows through a channel.

use crate::batch::Batch;
use crate::ids::CheckpointId;
use crate::time::Watermark;

/// Separates the records before a checkpoint from those after it. Never overtakes a record, nor is overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The checkpoint it belongs to.
    pub checkpoint: CheckpointId,
    /// Whether the snapshot holds all state, as a savepoint does.
    pub full: bool,
    /// Whether nothing follows it: the job stops at this cut, and what comes after it must not show.
    pub stop: bool,
    /// Whether it cancels the alignment for that checkpoint instead of asking for a snapshot.
    pub cancelled: bool,
}

/// Any element of a channel. Channels are FIFO and loss-free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamElement {
    /// Records, at least one.
    Records(Batch),
    /// Event time has advanced.
    Watermark(Watermark),
    /// The sender has nothing for now, and does not hold event time back until it says that it is active.
    Idle,
    /// The sender has something again. Comes before what it has.
    Active,
    /// A checkpoint's cut.
    Barrier(Barrier),
    /// The last element of a channel.
    EndOfInput,
}

impl StreamElement {
    /// Whether it may take the place of the element before it in a channel, because it says all that one does: of a watermark,
    /// a later one, unless that says that its sender has ended and not how far it came.
    pub fn replaces(&self, last: &Self) -> bool {
        matches!((last, self), (Self::Watermark(_), Self::Watermark(watermark)) if *watermark != Watermark::MAX)
    }

    /// Whether it is a control element: always accepted by a channel, whatever its fill.
    pub fn is_control(&self) -> bool {
        !matches!(self, Self::Records(_))
    }
}
