//! Where a file is to be read on, and how it is told that it is still the same file.

use cofferdam_dataflow::connector::{ConnectorError, Split, SplitPosition};
use serde::{Deserialize, Serialize};

/// How many bytes a fingerprint covers at most.
pub(super) const WINDOW: usize = 4096;

const FORMAT: u8 = 1;

/// A position between two records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FilePosition {
    /// Uncompressed bytes before the position.
    pub(super) offset: u64,
    /// Lines before the position.
    pub(super) lines: u64,
    /// The xxh3-64 of the file's first `min(WINDOW, offset)` bytes.
    pub(super) head: u64,
    /// The xxh3-64 of the `min(WINDOW, offset)` bytes before the position.
    pub(super) tail: u64,
}

/// How many bytes the fingerprints at `offset` cover.
pub(super) fn window(offset: u64) -> usize {
    usize::try_from(offset).map_or(WINDOW, |offset| offset.min(WINDOW))
}

impl FilePosition {
    /// The position of a file that has not been touched.
    pub(super) fn start() -> Self {
        let nothing = xxhash_rust::xxh3::xxh3_64(b"");
        Self { offset: 0, lines: 0, head: nothing, tail: nothing }
    }

    /// Returns the position as a snapshot holds it: a format byte, then the fields.
    pub(super) fn encode(&self, split: &Split, finished: bool) -> SplitPosition {
        let encoded = postcard::to_extend(self, vec![FORMAT]);
        let position = encoded.expect("four numbers can always be encoded");
        let display = format!("line {}, byte {}", self.lines, self.offset);
        SplitPosition { split: split.id.clone(), position, finished, display }
    }

    /// Reads a position from a snapshot.
    pub(super) fn decode(position: &SplitPosition) -> Result<Self, ConnectorError> {
        let fields = position.position.split_first().filter(|(format, _)| **format == FORMAT).map(|(_, fields)| fields);
        fields.and_then(|fields| postcard::from_bytes(fields).ok()).ok_or_else(|| {
            let message = format!("the recorded position of \"{}\" cannot be read", position.split);
            ConnectorError::permanent("position-invalid", message)
        })
    }
}
