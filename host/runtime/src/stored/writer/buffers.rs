//! Entries on their way into a segment: by key group, until a block of them is full; elements of lists by key, until a chunk is.

use std::collections::BTreeMap;

use cofferdam_dataflow::checkpoint::segment::{SegmentEncoder, SegmentInfo, SegmentWriteError};
use cofferdam_dataflow::checkpoint::storage::SegmentFile;
use cofferdam_dataflow::key_group::KeyGroup;
use cofferdam_dataflow::snapshot::{SectionKind, StateBlock};
use cofferdam_dataflow::state::entry::Entry;
use cofferdam_dataflow::state::made::{ListChunk, store_value};
use cofferdam_dataflow::time::ProcessingTime;

use super::entry::Place;

/// A block of a key group is written at this size.
const BLOCK_BYTES: usize = 64 << 10;
/// What all key groups may hold back together.
pub(super) const BUFFERED_BYTES: usize = 32 << 20;
/// About what a chunk takes beside its key and its elements.
const CHUNK_OVERHEAD: usize = 128;

pub(super) struct Buffers {
    encoder: SegmentEncoder<Box<dyn SegmentFile>>,
    groups: BTreeMap<KeyGroup, (Vec<u8>, u32)>,
    /// By key: the chunk at the end of its list.
    chunks: BTreeMap<Vec<u8>, (KeyGroup, ListChunk)>,
    /// One row of numbers for the chunks of all keys: those of a key ascend, and nothing is remembered of keys.
    next_chunk: u64,
    bytes: usize,
    /// Between 0 and [`BUFFERED_BYTES`]; smaller in tests.
    bytes_max: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Buffers {
    pub(super) fn new(encoder: SegmentEncoder<Box<dyn SegmentFile>>, bytes_max: usize) -> Self {
        let (groups, chunks) = (BTreeMap::new(), BTreeMap::new());
        Self { encoder, groups, chunks, next_chunk: 0, bytes: 0, bytes_max, key: Vec::new(), value: Vec::new() }
    }

    pub(super) fn add(
        &mut self,
        group: KeyGroup,
        place: &Place,
        value: &[u8],
        stamp: Option<ProcessingTime>,
    ) -> Result<(), SegmentWriteError> {
        if matches!(place, Place::List { .. } | Place::OwnList) {
            self.add_element(group, place, value, stamp)?;
        } else {
            place.stored_key(0, &mut self.key);
            store_value(&mut self.value, value, stamp);
            self.put(group)?;
        }
        if self.bytes > self.bytes_max { self.write_all() } else { Ok(()) }
    }

    fn add_element(
        &mut self,
        group: KeyGroup,
        place: &Place,
        element: &[u8],
        stamp: Option<ProcessingTime>,
    ) -> Result<(), SegmentWriteError> {
        if self.chunks.get(place.key()).is_some_and(|(_, chunk)| !chunk.has_room(element)) {
            self.close(place.key())?;
        }
        if !self.chunks.contains_key(place.key()) {
            self.bytes += place.key().len() + CHUNK_OVERHEAD;
            self.chunks.insert(place.key().to_vec(), (group, ListChunk::default()));
        }
        if let Some((_, chunk)) = self.chunks.get_mut(place.key()) {
            self.bytes -= chunk.bytes().len();
            chunk.push(element, stamp);
            self.bytes += chunk.bytes().len();
        }
        Ok(())
    }

    /// Ends the chunk of a key.
    fn close(&mut self, key: &[u8]) -> Result<(), SegmentWriteError> {
        let Some((key, (group, chunk))) = self.chunks.remove_entry(key) else { return Ok(()) };
        self.bytes -= key.len() + CHUNK_OVERHEAD + chunk.bytes().len();
        // State without keys has the empty key, so one form does for both.
        Place::List { key }.stored_key(self.next_chunk, &mut self.key);
        self.next_chunk += 1;
        store_value(&mut self.value, chunk.bytes(), None);
        self.put(group)
    }

    /// Adds what is in `key` and `value` to a block of its key group.
    fn put(&mut self, group: KeyGroup) -> Result<(), SegmentWriteError> {
        let bytes = Entry::Put { key: &self.key, value: &self.value }.encoded_len();
        if self.groups.get(&group).is_some_and(|(block, _)| block.len() + bytes > BLOCK_BYTES) {
            self.write(group)?;
        }
        let (block, entries) = self.groups.entry(group).or_default();
        Entry::Put { key: &self.key, value: &self.value }.encode(block);
        *entries += 1;
        self.bytes += bytes;
        Ok(())
    }

    fn write(&mut self, group: KeyGroup) -> Result<(), SegmentWriteError> {
        let Some((bytes, entries)) = self.groups.remove(&group) else { return Ok(()) };
        self.bytes -= bytes.len();
        self.encoder.push(&StateBlock { table: 0, group, kind: SectionKind::Base, entries, bytes })
    }

    fn write_all(&mut self) -> Result<(), SegmentWriteError> {
        while let Some(key) = self.chunks.keys().next().cloned() {
            self.close(&key)?;
        }
        let groups: Vec<_> = self.groups.keys().copied().collect();
        groups.into_iter().try_for_each(|group| self.write(group))
    }

    pub(super) fn finish(mut self) -> Result<(Box<dyn SegmentFile>, SegmentInfo), SegmentWriteError> {
        self.write_all()?;
        self.encoder.finish()
    }
}
