//! Small segments that are no files: their bytes are in the manifests that name them, and durable with them.
//!
//! A file costs a sync of its own and one of its folder; a few bytes more in the manifest cost nothing that can be measured. What
//! is inlined is written again by every manifest whose chains need it, so all of it together is bounded: what does not fit
//! is written as a file after all, just before the manifest is published.

use std::sync::Arc;

use super::super::storage::{CheckpointStorage, Codecs, SegmentSource, StorageError};
use super::{SegmentId, SegmentRef};

/// The largest segment that need not be a file, in bytes: a block of the disk, which a file would take anyway.
pub const INLINE_BYTES_MAX: usize = 4 << 10;

/// Bytes of all segments in one manifest, at most. Writing and syncing so much takes no longer than a few bytes.
pub const INLINE_TOTAL_BYTES_MAX: usize = 64 << 10;

/// A segment that was to be inlined and does not fit: it becomes a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpilledSegment {
    /// Its name.
    pub id: SegmentId,
    /// All of it.
    pub bytes: Arc<[u8]>,
}

impl SpilledSegment {
    /// Writes the file and makes it durable.
    ///
    /// # Errors
    /// [`StorageError`]; what there may be of the file belongs to no checkpoint.
    pub fn write(&self, storage: &dyn CheckpointStorage) -> Result<(), StorageError> {
        let mut file = storage.create_segment(self.id)?;
        let written = file.write_all(&self.bytes);
        written.map_err(|error| StorageError::io(format!("cannot write segment {}", self.id), error))?;
        file.sync()
    }
}

impl SegmentRef {
    /// Whether the segment is a file of the storage.
    pub fn is_file(&self) -> bool {
        self.inline.is_none()
    }

    /// Opens the segment, wherever it is.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`super::super::storage::StorageErrorKind::NotFound`] if there is none.
    pub fn open(&self, storage: &dyn CheckpointStorage) -> Result<Box<dyn SegmentSource>, StorageError> {
        match &self.inline {
            Some(bytes) => Ok(Box::new(Inlined { bytes: Arc::clone(bytes), codecs: storage.codecs() })),
            None => storage.open_segment(self.id),
        }
    }
}

struct Inlined {
    bytes: Arc<[u8]>,
    codecs: Codecs,
}

impl SegmentSource for Inlined {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StorageError> {
        (&*self.bytes).read_exact_at(offset, buffer)
    }

    fn codecs(&self) -> Codecs {
        self.codecs
    }
}
