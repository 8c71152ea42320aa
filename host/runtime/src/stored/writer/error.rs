//! State that cannot be written.

use std::path::PathBuf;

use cofferdam_dataflow::checkpoint::segment::{BLOCK_BYTES_MAX, SegmentError, SegmentWriteError};
use cofferdam_dataflow::checkpoint::storage::StorageError;
use cofferdam_dataflow::guest::Unsupported;
use cofferdam_dataflow::ids::{InvalidId, OperatorId};
use cofferdam_dataflow::state::KEY_BYTES_MAX;

/// State that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavepointError {
    /// The folder has checkpoints already.
    #[error("{} has checkpoints already; state is written to a new folder", .0.display())]
    Exists(PathBuf),
    /// The name of the pipeline, an operator or a source.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// A number of key groups that no pipeline can have.
    #[error("max-parallelism is {0}, expected 1 to 32768")]
    MaxParallelism(u16),
    /// One id for an operator and a source.
    #[error("\"{0}\" is both an operator and a source")]
    Ambiguous(OperatorId),
    /// A slot that no operator can have, or that this host does not serve.
    #[error("\"{operator}\": {cause}")]
    Slot {
        /// The operator.
        operator: OperatorId,
        /// What is wrong.
        cause: Unsupported,
    },
    /// A slot that was filled before.
    #[error("slot \"{slot}\" of \"{operator}\" was written before")]
    SlotTwice {
        /// The operator.
        operator: OperatorId,
        /// The slot.
        slot: String,
    },
    /// A slot that its operator does not declare.
    #[error("\"{operator}\" does not declare the slot \"{slot}\"; it has {}", slots_known(.known))]
    UnknownSlot {
        /// The operator.
        operator: OperatorId,
        /// The slot.
        slot: String,
        /// What it declares.
        known: Vec<String>,
    },
    /// A slot that its operator declares in another way.
    #[error("slot \"{slot}\" of \"{operator}\" is not as it is declared: kind, codec, schema or time to live differ")]
    OtherSlot {
        /// The operator.
        operator: OperatorId,
        /// The slot.
        slot: String,
    },
    /// An operator whose slots were declared before.
    #[error("the slots of \"{0}\" were declared before")]
    DeclaredTwice(OperatorId),
    /// An entry that does not belong into a slot of this kind.
    #[error("slot \"{slot}\" is of kind {kind}; {what} (key {key}) does not belong there")]
    WrongEntry {
        /// The slot.
        slot: String,
        /// Its kind.
        kind: &'static str,
        /// What the entry is.
        what: &'static str,
        /// The beginning of its key, shown.
        key: String,
    },
    /// Nobody knows when it expires.
    #[error("slot \"{slot}\" has a time to live; when the entry of key {key} was last used is not said")]
    NoStamp {
        /// The slot.
        slot: String,
        /// The beginning of the key, shown.
        key: String,
    },
    /// A time of last use that nothing is done with.
    #[error("slot \"{slot}\" has no time to live; the entry of key {key} says when it was last used")]
    Stamp {
        /// The slot.
        slot: String,
        /// The beginning of the key, shown.
        key: String,
    },
    /// A key that came twice.
    #[error("slot \"{slot}\" has the key {key} twice")]
    KeyTwice {
        /// The slot.
        slot: String,
        /// The key, shown.
        key: String,
    },
    /// A key that is longer than any may be.
    #[error("key {key} in slot \"{slot}\" has {bytes} bytes with its entry key; at most {KEY_BYTES_MAX} are possible")]
    KeyTooLong {
        /// The slot.
        slot: String,
        /// The beginning of the key, shown.
        key: String,
        /// Bytes of key and entry key; of a list's key, 8 more.
        bytes: usize,
    },
    /// An entry that fits into no block.
    #[error("the entry of key {key} in slot \"{slot}\" has {bytes} bytes; at most {} are possible", BLOCK_BYTES_MAX - super::ENTRY_OVERHEAD)]
    EntryTooLarge {
        /// The slot.
        slot: String,
        /// The beginning of the key, shown.
        key: String,
        /// Bytes of key and value.
        bytes: usize,
    },
    /// A file of state could not be written.
    #[error(transparent)]
    Write(#[from] SegmentWriteError),
    /// A file of state could not be read back.
    #[error(transparent)]
    ReadBack(#[from] SegmentError),
    /// The storage.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn slots_known(slots: &[String]) -> String {
    if slots.is_empty() { "none".to_owned() } else { slots.join(", ") }
}
