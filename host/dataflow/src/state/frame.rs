//! The rows of one guest call: its distinct keys, and the state read for them.

use super::arena::{EntryRef, Header};
use super::table::{TableHasher, TableKey, same_key};
use crate::column::{BytesColumn, BytesSlice};
use crate::guest::{KeyedFrame, StateColumn};
use crate::key_group::KeyGroup;

/// The distinct keys of a call in the order of their first record, and their prefetched state. Reused from call to call.
#[derive(Default)]
pub struct Frame {
    pub(super) keys: BytesColumn,
    rows: Vec<u32>,
    hashes: Vec<u32>,
    pub(super) groups: Vec<KeyGroup>,
    pub(super) columns: Vec<FrameColumn>,
    /// Open addressing over the call's keys: the call it was filled in, and the row.
    buckets: Vec<(u32, u32)>,
    call: u32,
}

/// One slot's values for the rows, and where they came from.
#[derive(Default)]
pub(super) struct FrameColumn {
    pub(super) slot: u32,
    pub(super) present: Vec<u8>,
    pub(super) values: BytesColumn,
    /// The entry of each row, if the key has one, so that writing back needs no second look-up.
    pub(super) places: Vec<Option<EntryRef>>,
    /// What the entries' headers say; kept to reuse its memory.
    pub(super) entries: Vec<Option<Header>>,
}

impl FrameColumn {
    fn view(&self) -> StateColumn<'_> {
        StateColumn { slot: self.slot, present: &self.present, values: self.values.as_slice() }
    }
}

impl Frame {
    pub(super) fn new(columns: Vec<FrameColumn>) -> Self {
        Self { columns, ..Self::default() }
    }

    /// Returns the row of each record.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key of a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn key(&self, row: usize) -> &[u8] {
        self.keys.get(row)
    }

    /// Calls `call` with the frame as the guest interface wants it.
    pub fn with_view<R>(&self, call: impl FnOnce(&KeyedFrame<'_>) -> R) -> R {
        let keys = self.keys.as_slice();
        // Few slots are by far the most frequent: no allocation for them.
        match self.columns.as_slice() {
            [] => call(&KeyedFrame { keys, states: &[] }),
            [a] => call(&KeyedFrame { keys, states: &[a.view()] }),
            [a, b] => call(&KeyedFrame { keys, states: &[a.view(), b.view()] }),
            [a, b, c] => call(&KeyedFrame { keys, states: &[a.view(), b.view(), c.view()] }),
            [a, b, c, d] => call(&KeyedFrame { keys, states: &[a.view(), b.view(), c.view(), d.view()] }),
            many => call(&KeyedFrame { keys, states: &many.iter().map(FrameColumn::view).collect::<Vec<_>>() }),
        }
    }

    /// Clears the frame for a call without keys.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
        self.hashes.clear();
        self.groups.clear();
    }

    /// Finds the rows of `keys`, whose groups `group_of` tells for the first record of each.
    pub(super) fn fill_rows(
        &mut self,
        keys: BytesSlice<'_>,
        hasher: &TableHasher,
        mut group_of: impl FnMut(usize, &[u8]) -> Option<KeyGroup>,
    ) -> Result<(), usize> {
        self.clear();
        let buckets = (keys.len() * 2).next_power_of_two().max(64);
        self.call = self.call.wrapping_add(1);
        if self.buckets.len() < buckets || self.call == 0 {
            self.buckets = vec![(0, 0); buckets.max(self.buckets.len())];
            self.call = 1;
        }
        let mask = self.buckets.len() - 1;
        for (record, key) in keys.iter().enumerate() {
            let hash = hasher.hash(key);
            let mut bucket = hash as usize & mask;
            let row = loop {
                let (call, row) = self.buckets[bucket];
                if call != self.call {
                    let row = u32::try_from(self.keys.len()).expect("a batch is bounded");
                    self.groups.push(group_of(record, key).ok_or(record)?);
                    self.buckets[bucket] = (self.call, row);
                    self.hashes.push(hash);
                    self.keys.push(key);
                    break row;
                }
                if self.hashes[row as usize] == hash && same_key(self.keys.get(row as usize), key) {
                    break row;
                }
                bucket = (bucket + 1) & mask;
            };
            self.rows.push(row);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn table_key(&self, row: usize) -> TableKey<'_> {
        TableKey { bytes: self.keys.get(row), hash: self.hashes[row], group: self.groups[row] }
    }
}
