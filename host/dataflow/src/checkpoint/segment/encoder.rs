//! Writing a segment.

use std::collections::BTreeMap;
use std::io::{self, Write};

use xxhash_rust::xxh3::Xxh3;

use super::block::{self, BLOCK_BYTES_MAX, Compressor, Lz4};
use super::{BlockRef, ContentHash, MAGIC_END, MAGIC_START, SEGMENT_FORMAT, SectionInfo, SegmentHeader, SegmentInfo, SegmentRef};
use crate::key_group::KeyGroup;
use crate::snapshot::{SectionKind, StateBlock};

/// A segment that could not be written. The file is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentWriteError {
    /// The file could not be written.
    #[error("a segment could not be written")]
    Write(#[source] io::Error),
    /// A block that is too large.
    #[error("a block of {bytes} bytes for key group {} exceeds {BLOCK_BYTES_MAX} bytes", group.0)]
    BlockTooLarge {
        /// The block's group.
        group: KeyGroup,
        /// Its length.
        bytes: usize,
    },
    /// A block of a table that the header does not list.
    #[error("a block refers to table {table}, the segment has {tables}")]
    UnknownTable {
        /// The block's table.
        table: u16,
        /// How many there are.
        tables: usize,
    },
    /// A base and a delta for one table and key group.
    #[error("key group {} of table {table} has both base and delta blocks", group.0)]
    MixedKinds {
        /// The table.
        table: u16,
        /// The key group.
        group: KeyGroup,
    },
}

/// Writes a segment block by block. Dropped before [`Self::finish`], it leaves a file that no reader accepts.
pub struct SegmentEncoder<W> {
    out: W,
    header: SegmentHeader,
    hash: Xxh3,
    written: u64,
    /// By table, group and rank.
    sections: BTreeMap<(u16, KeyGroup, u8), SectionInfo>,
    encoded: Vec<u8>,
    scratch: Vec<u8>,
    compressor: Box<dyn Compressor>,
}

impl<W: Write> SegmentEncoder<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// [`SegmentWriteError::Write`].
    pub fn new(out: W, header: SegmentHeader) -> Result<Self, SegmentWriteError> {
        let body = postcard::to_stdvec(&header).expect("a header has no unsized parts");
        let mut bytes = MAGIC_START.to_vec();
        bytes.extend_from_slice(&SEGMENT_FORMAT.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(body.len()).expect("names are short").to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let mut encoder = Self {
            out,
            header,
            hash: Xxh3::new(),
            written: 0,
            sections: BTreeMap::new(),
            encoded: Vec::new(),
            scratch: Vec::new(),
            compressor: Box::new(Lz4),
        };
        encoder.write(&bytes)?;
        Ok(encoder)
    }

    /// Compresses the blocks that follow in another way than with LZ4.
    #[must_use]
    pub fn compressing(mut self, compressor: Box<dyn Compressor>) -> Self {
        self.compressor = compressor;
        self
    }

    /// Adds a block.
    ///
    /// # Errors
    /// [`SegmentWriteError`]; the encoder is not used again.
    pub fn push(&mut self, block: &StateBlock) -> Result<(), SegmentWriteError> {
        let &StateBlock { table, group, kind, entries, ref bytes } = block;
        if usize::from(table) >= self.header.tables.len() {
            return Err(SegmentWriteError::UnknownTable { table, tables: self.header.tables.len() });
        }
        if bytes.len() > BLOCK_BYTES_MAX {
            return Err(SegmentWriteError::BlockTooLarge { group, bytes: bytes.len() });
        }
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        let stored_bytes = block::encode(bytes, self.compressor.as_mut(), &mut self.scratch, &mut encoded);
        let place = BlockRef {
            offset: self.written,
            raw_bytes: u32::try_from(bytes.len()).expect("at most the largest block"),
            stored_bytes,
        };
        self.note(table, group, kind, u64::from(entries), place)?;
        self.write(&encoded)?;
        self.encoded = encoded;
        Ok(())
    }

    fn note(
        &mut self,
        table: u16,
        group: KeyGroup,
        kind: SectionKind,
        entries: u64,
        place: BlockRef,
    ) -> Result<(), SegmentWriteError> {
        let empty = || SectionInfo { table, group, kind, entries: 0, blocks: Vec::new() };
        let section = self.sections.entry((table, group, kind.rank())).or_insert_with(empty);
        if section.kind != kind {
            return Err(SegmentWriteError::MixedKinds { table, group });
        }
        section.entries += entries;
        section.blocks.push(place);
        Ok(())
    }

    /// Writes the footer and returns the output, which is not flushed or synced, and what was written.
    ///
    /// # Errors
    /// [`SegmentWriteError::Write`].
    pub fn finish(mut self) -> Result<(W, SegmentInfo), SegmentWriteError> {
        let sections: Vec<_> = std::mem::take(&mut self.sections).into_values().collect();
        let mut bytes = postcard::to_stdvec(&sections).expect("a footer has no unsized parts");
        let length = u32::try_from(bytes.len()).expect("a footer has at most a few dozen bytes a block");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes.extend_from_slice(MAGIC_END);
        self.write(&bytes)?;
        let hash = ContentHash(self.hash.digest128().to_be_bytes());
        let reference = SegmentRef { id: self.header.id, length: self.written, hash, inline: None };
        Ok((self.out, SegmentInfo { reference, tables: self.header.tables, sections }))
    }

    /// Returns the name of the segment.
    pub fn id(&self) -> super::SegmentId {
        self.header.id
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SegmentWriteError> {
        self.out.write_all(bytes).map_err(SegmentWriteError::Write)?;
        self.hash.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }
}
