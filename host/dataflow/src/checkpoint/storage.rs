//! Where checkpoints are kept: the storage that the engine needs, as a trait.
//!
//! Calls block and may be slow; no task calls them between two records. What a call must leave durable, and in which
//! order, is part of its contract: a checkpoint exists exactly if its manifest does.

use std::io;

use super::segment::{Compressor, INLINE_BYTES_MAX, Lz4, SegmentId};
use crate::ids::{Attempt, CheckpointId};

/// The counters that no restart and no second process may repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// The newest attempt; older ones may not publish. 0 before the first.
    pub attempt: u64,
    /// A checkpoint id that was at or above all ids in use when that attempt began.
    pub checkpoint: u64,
}

/// A file of state that is being written. Nothing refers to it before it is synced.
pub trait SegmentFile: io::Write + Send {
    /// Makes the file and its name durable. On an error the file is lost: it is deleted, not synced again.
    ///
    /// # Errors
    /// [`StorageError`].
    fn sync(self: Box<Self>) -> Result<(), StorageError>;
}

/// Fills the second slice with what the first one decompresses to. False unless that is exactly its length.
pub type Decompress = fn(&[u8], &mut [u8]) -> bool;

/// Codecs of blocks that the engine does not have itself: the runtime lends them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codecs {
    /// Codec 2: a zstd frame.
    pub zstd: Option<Decompress>,
}

/// A file of state that is read at any place.
pub trait SegmentSource {
    /// Returns the file's length in bytes.
    fn length(&self) -> u64;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::Damaged`] if the file ends before.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StorageError>;

    /// Returns the codecs with which its blocks can be read, besides the engine's own.
    fn codecs(&self) -> Codecs {
        Codecs::default()
    }
}

impl SegmentSource for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StorageError> {
        let start = usize::try_from(offset).ok().filter(|start| *start <= self.len());
        let bytes = start.and_then(|start| self[start..].get(..buffer.len()));
        let Some(bytes) = bytes else {
            return Err(StorageError::new(
                StorageErrorKind::Damaged,
                format!("the file ends before byte {offset} and its block"),
            ));
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl<S: SegmentSource + ?Sized> SegmentSource for Box<S> {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StorageError> {
        (**self).read_exact_at(offset, buffer)
    }

    fn codecs(&self) -> Codecs {
        (**self).codecs()
    }
}

/// One checkpoint or savepoint, wherever it is. Only read.
pub trait SnapshotSource {
    /// Reads its manifest.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::NotFound`] if there is none.
    fn read_manifest(&self) -> Result<Vec<u8>, StorageError>;

    /// Whether all its transactions are known to be committed.
    ///
    /// # Errors
    /// [`StorageError`].
    fn is_committed(&self) -> Result<bool, StorageError>;

    /// Opens a file of state.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::NotFound`] if there is none.
    fn open_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentSource>, StorageError>;
}

/// A checkpoint of a storage.
pub struct StoredCheckpoint<'a>(pub &'a dyn CheckpointStorage, pub CheckpointId);

impl SnapshotSource for StoredCheckpoint<'_> {
    fn read_manifest(&self) -> Result<Vec<u8>, StorageError> {
        self.0.read_manifest(self.1)
    }

    fn is_committed(&self) -> Result<bool, StorageError> {
        self.0.is_committed(self.1)
    }

    fn open_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentSource>, StorageError> {
        self.0.open_segment(id)
    }
}

/// A savepoint that is to exist.
#[derive(Clone, Copy, Debug)]
pub struct NewSavepoint<'a> {
    /// Its id. From then on no checkpoint may have it, in this process or a later one.
    pub checkpoint: CheckpointId,
    /// Where it goes. Nothing is there.
    pub path: &'a str,
    /// The files that it names: synced, and kept where they are.
    pub segments: &'a [SegmentId],
    /// Its manifest.
    pub manifest: &'a [u8],
}

/// Keeps the checkpoints of one job, for one process at a time.
pub trait CheckpointStorage: Send + Sync {
    /// Returns the counters as they were last made durable.
    ///
    /// # Errors
    /// [`StorageError`].
    fn fence(&self) -> Result<Fence, StorageError>;

    /// Makes larger counters durable. From then on older attempts are fenced, and what earlier attempts published is
    /// either durable or gone.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::Fenced`] if the attempt is not larger than the stored one.
    fn raise_fence(&self, fence: Fence) -> Result<(), StorageError>;

    /// Checks that no other attempt has begun. Called before anything that cannot be undone.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::Fenced`] if a newer attempt exists.
    fn check_fence(&self, attempt: Attempt) -> Result<(), StorageError> {
        let newest = self.fence()?.attempt;
        if newest == attempt.0 {
            return Ok(());
        }
        let message = format!("attempt {attempt} is not the newest, which is {newest}; another process has taken the job over");
        Err(StorageError::new(StorageErrorKind::Fenced, message))
    }

    /// Creates a file of state.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::Exists`] if there is one of that name.
    fn create_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentFile>, StorageError>;

    /// Returns what compresses the blocks of new segments. What it gives must be among the [`Codecs`] of the segments
    /// that this storage opens.
    fn compressor(&self) -> Box<dyn Compressor> {
        Box::new(Lz4)
    }

    /// Returns the codecs with which blocks can be read that are in a manifest, besides the engine's own.
    fn codecs(&self) -> Codecs {
        Codecs::default()
    }

    /// Returns how many bytes a new segment may have that is not written as a file, but into the manifest.
    fn inline_bytes_max(&self) -> usize {
        INLINE_BYTES_MAX
    }

    /// Opens a file of state.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::NotFound`] if there is none.
    fn open_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentSource>, StorageError>;

    /// Returns all files of state, ascending.
    ///
    /// # Errors
    /// [`StorageError`].
    fn segments(&self) -> Result<Vec<SegmentId>, StorageError>;

    /// Deletes a file of state. A missing one is fine.
    ///
    /// # Errors
    /// [`StorageError`].
    fn delete_segment(&self, id: SegmentId) -> Result<(), StorageError>;

    /// Makes a checkpoint exist: checks the fence, then publishes the manifest durably and atomically. It never
    /// replaces one. All files of state that it names must have been synced.
    ///
    /// # Errors
    /// [`StorageError`]. If [`StorageError::outcome_unknown`], the checkpoint may exist.
    fn publish_manifest(&self, attempt: Attempt, id: CheckpointId, bytes: &[u8]) -> Result<(), StorageError>;

    /// Returns all checkpoints that exist, ascending.
    ///
    /// # Errors
    /// [`StorageError`].
    fn manifests(&self) -> Result<Vec<CheckpointId>, StorageError>;

    /// Reads a manifest.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::NotFound`] if there is none.
    fn read_manifest(&self, id: CheckpointId) -> Result<Vec<u8>, StorageError>;

    /// Deletes a checkpoint's manifest and its marks, durably, but no segment; and before that the savepoint that was
    /// claimed for it. A missing one is fine.
    ///
    /// # Errors
    /// [`StorageError`].
    fn delete_checkpoint(&self, id: CheckpointId) -> Result<(), StorageError>;

    /// Notes durably that all transactions of a checkpoint have been committed.
    ///
    /// # Errors
    /// [`StorageError`].
    fn mark_committed(&self, id: CheckpointId) -> Result<(), StorageError>;

    /// Whether [`Self::mark_committed`] was called for a checkpoint.
    ///
    /// # Errors
    /// [`StorageError`].
    fn is_committed(&self, id: CheckpointId) -> Result<bool, StorageError>;

    /// Returns the last checkpoint of a job that has finished; `None` if it has not.
    ///
    /// # Errors
    /// [`StorageError`].
    fn finished(&self) -> Result<Option<CheckpointId>, StorageError>;

    /// Notes durably that the job has finished with this checkpoint.
    ///
    /// # Errors
    /// [`StorageError`].
    fn mark_finished(&self, id: CheckpointId) -> Result<(), StorageError>;

    /// Forgets durably that the job has finished.
    ///
    /// # Errors
    /// [`StorageError`].
    fn clear_finished(&self) -> Result<(), StorageError>;

    /// Makes a savepoint exist: checks the fence, then writes copies of its segments and at last its manifest, all of it
    /// durable. It refers to nothing outside of its path. On an error nothing is left of it, as far as that can be.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::Exists`] if there is something at its path.
    fn publish_savepoint(&self, attempt: Attempt, savepoint: NewSavepoint<'_>) -> Result<(), StorageError>;

    /// Notes durably in a savepoint that all its transactions have been committed.
    ///
    /// # Errors
    /// [`StorageError`].
    fn mark_savepoint_committed(&self, path: &str, id: CheckpointId) -> Result<(), StorageError>;

    /// Deletes a savepoint, manifest first. A missing one is fine.
    ///
    /// # Errors
    /// [`StorageError`].
    fn delete_savepoint(&self, path: &str) -> Result<(), StorageError>;

    /// Notes durably that the savepoint at `path` is to go when a checkpoint, which is not published yet, is deleted.
    ///
    /// # Errors
    /// [`StorageError`].
    fn claim_savepoint(&self, path: &str, for_checkpoint: CheckpointId) -> Result<(), StorageError>;

    /// Removes what a process that died left half written (never a synced segment or a manifest) and returns how many
    /// files those were.
    ///
    /// # Errors
    /// [`StorageError`].
    fn remove_leftovers(&self) -> Result<usize, StorageError>;
}

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageErrorKind {
    /// There is no such file.
    NotFound,
    /// There is such a file, and it is not replaced.
    Exists,
    /// No space, or a quota is reached.
    Full,
    /// Another process or attempt owns the storage.
    Fenced,
    /// A file that is not what was written.
    Damaged,
    /// Any other error of the file system.
    Io,
}

/// A storage operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StorageError {
    /// What kind of error it is.
    pub kind: StorageErrorKind,
    /// Whether what was asked for may have happened nevertheless.
    pub outcome_unknown: bool,
    /// The act, the file and its state.
    pub message: String,
    /// What the operating system said.
    #[source]
    pub source: Option<io::Error>,
}

impl StorageError {
    /// Returns an error after which nothing has happened.
    pub fn new(kind: StorageErrorKind, message: impl Into<String>) -> Self {
        Self { kind, outcome_unknown: false, message: message.into(), source: None }
    }

    /// Returns an error that the operating system gave; the kind follows from it.
    pub fn io(message: impl Into<String>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => StorageErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => StorageErrorKind::Exists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => StorageErrorKind::Full,
            io::ErrorKind::UnexpectedEof => StorageErrorKind::Damaged,
            _ => StorageErrorKind::Io,
        };
        Self { kind, outcome_unknown: false, message: message.into(), source: Some(source) }
    }

    /// Adds that what was asked for may have happened.
    #[must_use]
    pub fn with_unknown_outcome(mut self) -> Self {
        self.outcome_unknown = true;
        self
    }
}
