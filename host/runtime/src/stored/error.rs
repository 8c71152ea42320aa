//! Stored state that cannot be read.

use std::path::PathBuf;

use cofferdam_dataflow::checkpoint::segment::SegmentError;
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, StorageError, StorageErrorKind};
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::key_group::KeyGroup;

/// Stored state that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// There is no such checkpoint.
    #[error("{} holds {}", .path.display(), .checkpoint.map_or("no checkpoint".to_owned(), |id| format!("no checkpoint {id}")))]
    NoCheckpoint {
        /// The folder.
        path: PathBuf,
        /// The one that was asked for; `None` for the newest.
        checkpoint: Option<CheckpointId>,
    },
    /// The checkpoint has no such slot.
    #[error("checkpoint {checkpoint} has no state \"{operator}/{slot}\"; {}", slots_known(.known))]
    NoSlot {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator that was asked for.
        operator: String,
        /// Its slot.
        slot: String,
        /// What there is, as `operator/slot`.
        known: Vec<String>,
    },
    /// A job's directory was expected.
    #[error("{} is the folder of one savepoint or checkpoint, not a job's directory", .0.display())]
    NotJob(PathBuf),
    /// One value was asked for where there are many.
    #[error("slot \"{slot}\" is of kind {kind}: a key has entries, not one value")]
    WrongKind {
        /// The slot.
        slot: String,
        /// Its kind.
        kind: String,
    },
    /// An entry that no host writes, though every checksum is right.
    #[error("checkpoint {checkpoint} is damaged: state {slot}, key group {}: {what}", .group.0)]
    Malformed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// `operator/slot`.
        slot: String,
        /// The key group.
        group: KeyGroup,
        /// What is wrong.
        what: &'static str,
    },
    /// It was deleted while it was read: a running job keeps its newest checkpoints only.
    #[error("checkpoint {0} was deleted while it was read; a running job keeps its newest checkpoints only")]
    Gone(CheckpointId),
    /// Its manifest is not one.
    #[error("checkpoint {checkpoint} is damaged: {what}")]
    Manifest {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What is wrong, with the file.
        what: String,
    },
    /// A file of state is missing or not what was written.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The storage could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn slots_known(slots: &[String]) -> String {
    if slots.is_empty() { "it has none at all".to_owned() } else { format!("it has {}", slots.join(", ")) }
}

impl StoredError {
    /// Whether the stored bytes are at fault, and not the question or the machine.
    pub fn is_damage(&self) -> bool {
        let damaged = |kind| matches!(kind, StorageErrorKind::Damaged | StorageErrorKind::NotFound);
        match self {
            Self::NoCheckpoint { .. } | Self::NoSlot { .. } | Self::WrongKind { .. } | Self::NotJob(_) | Self::Gone(_) => false,
            Self::Manifest { .. } | Self::Malformed { .. } => true,
            Self::Segment(SegmentError::Storage(error)) | Self::Storage(error) => damaged(error.kind),
            Self::Segment(_) => true,
        }
    }

    /// Tells a file that is missing because its checkpoint was deleted from one that is lost.
    pub(super) fn of_checkpoint(self, storage: &dyn CheckpointStorage, checkpoint: CheckpointId) -> Self {
        let kind = match &self {
            Self::Segment(SegmentError::Storage(error)) | Self::Storage(error) => error.kind,
            _ => return self,
        };
        let is_there = || storage.manifests().map_or(true, |ids| ids.contains(&checkpoint));
        if kind == StorageErrorKind::NotFound && !is_there() { Self::Gone(checkpoint) } else { self }
    }
}
