//! Segments: files of keyed state (the smallest are parts of the manifest, see `inline`), one for each task and checkpoint at most. Written once, never changed.
//!
//! A segment holds blocks of encoded entries and, at its end, a footer that says which blocks belong to which table and
//! key group, so that a restore at another parallelism reads only what it needs. docs/checkpoint-format.md has the bytes.
//! Nothing read from a segment is trusted: every length is checked against the file before anything is allocated.

mod block;
mod encoder;
#[cfg(test)]
pub(super) mod fuzz;
mod inline;
mod reader;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::storage::StorageError;
use crate::ids::{Attempt, CheckpointId, TaskIndex};
use crate::key_group::KeyGroup;
use crate::snapshot::{SectionKind, TableId};

pub use block::{BLOCK_BYTES_MAX, Compressor, Lz4, Uncompressed};
pub use encoder::{SegmentEncoder, SegmentWriteError};
pub use inline::{INLINE_BYTES_MAX, INLINE_TOTAL_BYTES_MAX, SpilledSegment};
pub use reader::{SegmentReader, hash_source};

/// The version of the segment format that is written, and the newest that is read.
pub const SEGMENT_FORMAT: u32 = 1;

const MAGIC_START: &[u8; 8] = b"cofseg\r\n";
const MAGIC_END: &[u8; 8] = b"segend\r\n";
/// Footer length, footer checksum, magic.
const TAIL_BYTES: u64 = 16;

/// Names a segment: the task that wrote it, in which attempt, for which checkpoint. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentId {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The attempt.
    pub attempt: Attempt,
    /// The task.
    pub task: TaskIndex,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.checkpoint, self.attempt, self.task)
    }
}

/// A text that names no segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a segment's name: it has the form checkpoint-attempt-task")]
pub struct InvalidSegmentId(pub String);

impl FromStr for SegmentId {
    type Err = InvalidSegmentId;

    fn from_str(text: &str) -> Result<Self, InvalidSegmentId> {
        let parse = || {
            let mut parts = text.split('-');
            let checkpoint = CheckpointId(parts.next()?.parse().ok()?);
            let attempt = Attempt(parts.next()?.parse().ok()?);
            let task = TaskIndex(parts.next()?.parse().ok()?);
            let id = Self { checkpoint, attempt, task };
            // One spelling only: "007-1-1" and "+7-1-1" would name the same segment as "7-1-1".
            (parts.next().is_none() && id.to_string() == text).then_some(id)
        };
        parse().ok_or_else(|| InvalidSegmentId(text.chars().take(64).collect()))
    }
}

/// The xxh3-128 hash of a whole file, most significant byte first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentHash(pub [u8; 16]);

impl ContentHash {
    /// Returns the hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(bytes).to_be_bytes())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What a segment says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentHeader {
    /// The job's name.
    pub job: String,
    /// The segment's own name.
    pub id: SegmentId,
    /// The tables that sections refer to, as in the task's snapshot.
    pub tables: Vec<TableId>,
}

/// A block's place in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRef {
    /// Of the block's head, in bytes from the start of the file.
    pub offset: u64,
    /// Bytes of encoded entries.
    pub raw_bytes: u32,
    /// Bytes of them in the file, after compression.
    pub stored_bytes: u32,
}

/// All entries of one table, key group and kind in a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionInfo {
    /// An index into [`SegmentHeader::tables`].
    pub table: u16,
    /// The key group.
    pub group: KeyGroup,
    /// What its entries are, and whether they stand on their own.
    pub kind: SectionKind,
    /// How many entries its blocks hold.
    pub entries: u64,
    /// Its blocks, in the order of the file.
    pub blocks: Vec<BlockRef>,
}

impl SectionInfo {
    /// Returns the bytes of all its encoded entries.
    pub fn raw_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.raw_bytes)).sum()
    }
}

/// How a checkpoint refers to a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRef {
    /// Its name.
    pub id: SegmentId,
    /// Bytes of the file.
    pub length: u64,
    /// Of the whole file.
    pub hash: ContentHash,
    /// All of it, if it is not a file. A manifest lists that apart.
    #[serde(skip)]
    pub inline: Option<Arc<[u8]>>,
}

/// A segment that has been written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// How to refer to it.
    pub reference: SegmentRef,
    /// The tables that sections refer to.
    pub tables: Vec<TableId>,
    /// Ascending by table, group and rank.
    pub sections: Vec<SectionInfo>,
}

/// A segment that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// It is not what was written.
    #[error("segment {segment} is damaged: {what}")]
    Damaged {
        /// The segment.
        segment: SegmentId,
        /// What does not fit.
        what: String,
    },
    /// Its format is newer than this host's.
    #[error("segment {segment} has format {found}; this host reads up to {SEGMENT_FORMAT}")]
    NewerFormat {
        /// The segment.
        segment: SegmentId,
        /// Its format.
        found: u32,
    },
    /// The storage could not deliver it.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        let id = SegmentId { checkpoint: CheckpointId(12), attempt: Attempt(3), task: TaskIndex(0) };
        assert_eq!(id.to_string(), "12-3-0");
        assert_eq!("12-3-0".parse(), Ok(id));
        for text in ["", "12-3", "12-3-0-1", "012-3-0", "+12-3-0", "a-b-c", "../12-3-0", "12-3-0.tmp", "12--3-0"] {
            assert!(text.parse::<SegmentId>().is_err(), "{text}");
        }
    }
}
