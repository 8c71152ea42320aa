//! All keyed state of one subtask: reading it for a call, applying what the call wants changed, snapshots, restore.

use std::ops::Range;

use super::frame::{Frame, FrameColumn};
use super::table::{Table, TableHasher, TableKey, same_key};
use crate::column::BytesSlice;
use crate::guest::{StateUpdate, op};
use crate::ids::CheckpointId;
use crate::key_group::{KeyGroup, MaxParallelism, key_hash};
use crate::snapshot::StateBlock;

/// The arena's references address 32 GiB; updates must leave room for copies.
const TABLE_BYTES_MAX: u64 = 28 << 30;

/// A record reached a subtask that does not own its key: a defect of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {record} of a batch has a key of another subtask")]
pub struct KeyNotOwned {
    /// The record's index in the batch.
    pub record: usize,
}

/// The state would exceed its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("keyed state of {used} bytes exceeds the quota of {quota} bytes with the {more} bytes of this call")]
pub struct StateFull {
    /// Bytes of keys and values there are.
    pub used: u64,
    /// Bytes the call writes.
    pub more: u64,
    /// The most there may be.
    pub quota: u64,
}

/// The keyed state of one subtask: one table a slot.
pub struct KeyedState {
    max_parallelism: MaxParallelism,
    groups: Range<u16>,
    hasher: TableHasher,
    tables: Vec<Table>,
    quota_bytes: u64,
    frame: Frame,
}

impl KeyedState {
    /// Returns empty state for the key groups that a subtask owns. `seed` should differ from process to process;
    /// nothing that leaves the process depends on it.
    pub fn new(max_parallelism: MaxParallelism, groups: Range<u16>, slots: usize, seed: u64, quota_bytes: u64) -> Self {
        let hasher = TableHasher::new(seed);
        let tables = (0..slots).map(|_| Table::new(groups.clone(), hasher.clone())).collect();
        let column = |slot| FrameColumn { slot, ..FrameColumn::default() };
        let columns = (0..u32::try_from(slots).expect("at most 64 slots")).map(column).collect();
        let frame = Frame::new(columns);
        Self { max_parallelism, groups, hasher, tables, quota_bytes, frame }
    }

    /// Returns the frame of the call at hand.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Returns the number of keys with a value in `slot`.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn len(&self, slot: usize) -> u64 {
        self.tables[slot].len()
    }

    /// Returns the keys with a value, over all slots.
    pub fn entries(&self) -> u64 {
        self.tables.iter().map(Table::len).sum()
    }

    /// Returns about how much memory the state takes.
    pub fn memory_bytes(&self) -> u64 {
        self.tables.iter().map(Table::memory_bytes).sum()
    }

    /// Prepares the frame of a call without keys.
    pub fn clear_frame(&mut self) {
        self.frame.clear();
        for column in &mut self.frame.columns {
            column.places.clear();
            column.present.clear();
            column.values.clear();
        }
    }

    /// Prepares the frame of a call for records with these keys. `hashes` holds each key's [`key_hash`], or nothing.
    ///
    /// # Errors
    /// [`KeyNotOwned`] if a key belongs to another subtask.
    pub fn fill_frame(&mut self, keys: BytesSlice<'_>, hashes: &[u64]) -> Result<(), KeyNotOwned> {
        let group_of = |record: usize, key: &[u8]| {
            let hash = hashes.get(record).copied().unwrap_or_else(|| key_hash(key));
            let group = self.max_parallelism.group_of(hash);
            self.groups.contains(&group.0).then_some(group)
        };
        self.frame.fill_rows(keys, &self.hasher, group_of).map_err(|record| KeyNotOwned { record })?;
        let mut columns = std::mem::take(&mut self.frame.columns);
        for (table, column) in self.tables.iter().zip(&mut columns) {
            self.fill_column(table, column);
        }
        self.frame.columns = columns;
        Ok(())
    }

    /// Reads one slot for all rows. In passes over the rows, each of which touches one kind of memory: the misses of a
    /// pass do not depend on one another, so the processor waits for many of them at once.
    fn fill_column(&self, table: &Table, column: &mut FrameColumn) {
        let rows = self.frame.len();
        column.places.clear();
        column.places.extend((0..rows).map(|row| table.candidate(self.frame.table_key(row))));
        column.entries.clear();
        column.entries.extend(column.places.iter().map(|place| place.map(|place| table.arena.header(place))));
        column.values.clear();
        column.present.clear();
        column.present.resize(rows.div_ceil(8), 0);
        for row in 0..rows {
            let key = self.frame.table_key(row);
            let mut value = None;
            if let (Some(place), Some(header)) = (column.places[row], column.entries[row]) {
                let (found, bytes) = table.arena.key_and_value(place, header);
                value = (!header.deleted).then_some(bytes);
                if !same_key(found, key.bytes) {
                    // Another key with the same hash: look again, comparing keys.
                    column.places[row] = table.find(key);
                    value = column.places[row].and_then(|place| table.value(place));
                }
            }
            if value.is_some() {
                column.present[row / 8] |= 1 << (row % 8);
            }
            column.values.push(value.unwrap_or_default());
        }
    }

    /// Checks that the state has room for what a call writes.
    ///
    /// # Errors
    /// [`StateFull`] if not.
    pub fn check_room(&self, more: u64) -> Result<(), StateFull> {
        let used = self.tables.iter().map(Table::live_bytes).sum();
        let is_full =
            used + more > self.quota_bytes || self.tables.iter().any(|table| table.memory_bytes() + 2 * more > TABLE_BYTES_MAX);
        if is_full { Err(StateFull { used, more, quota: self.quota_bytes }) } else { Ok(()) }
    }

    /// Applies updates of the call whose frame was filled last. They must have been validated against it, and
    /// [`Self::check_room`] must have been asked.
    pub fn apply(&mut self, updates: &[StateUpdate]) {
        for update in updates {
            let slot = update.slot as usize;
            let mut places = std::mem::take(&mut self.frame.columns[slot].places);
            let table = &mut self.tables[slot];
            for (index, (row, op)) in update.rows.iter().zip(&update.ops).enumerate() {
                let row = *row as usize;
                let key = self.frame.table_key(row);
                match (*op, places[row]) {
                    (op::PUT, known) => {
                        let place = table.put(key, known, update.values.get(index));
                        places[row] = Some(place.expect("check_room left room in the arena"));
                    }
                    (_, Some(place)) => table.delete(key, place),
                    (_, None) => {}
                }
            }
            self.frame.columns[slot].places = places;
        }
    }

    /// Freezes the state at the cut of a checkpoint. `full`: all of it, whatever earlier checkpoints hold, and later
    /// increments do not build upon it unless [`Self::confirm`] is called for it.
    pub fn begin_snapshot(&mut self, checkpoint: CheckpointId, full: bool) {
        self.tables.iter_mut().for_each(|table| table.begin_snapshot(checkpoint, full));
    }

    /// Whether frozen entries wait to be encoded.
    pub fn is_collecting(&self) -> bool {
        self.tables.iter().any(|table| !table.collecting.is_empty())
    }

    /// Encodes up to about `budget` frozen entries and hands full blocks to `emit` (their table is the slot's index).
    /// Returns whether frozen entries are left.
    pub fn collect_some(&mut self, budget: usize, emit: &mut dyn FnMut(CheckpointId, StateBlock)) -> bool {
        for (slot, table) in self.tables.iter_mut().enumerate() {
            let slot = u16::try_from(slot).expect("at most 64 slots");
            let mut emit = |checkpoint, block: StateBlock| emit(checkpoint, StateBlock { table: slot, ..block });
            if !table.collecting.is_empty() {
                table.collect_some(budget, &mut emit);
                break;
            }
        }
        self.is_collecting()
    }

    /// Frees up to `budget` entries whose deletion is part of a completed checkpoint. Returns whether there was one.
    pub fn reap_some(&mut self, budget: usize) -> bool {
        self.tables.iter_mut().any(|table| table.reap_some(budget))
    }

    /// Whether `checkpoint` has frozen entries that wait to be encoded.
    pub fn is_collecting_for(&self, checkpoint: CheckpointId) -> bool {
        self.tables.iter().any(|table| table.collecting.iter().any(|collecting| collecting.checkpoint == checkpoint))
    }

    /// Forgets a snapshot that nobody wants any more.
    pub fn drop_snapshot(&mut self, checkpoint: CheckpointId) {
        self.tables.iter_mut().for_each(|table| table.drop_snapshot(checkpoint));
    }

    /// Takes note that a checkpoint has completed. Later snapshots are increments on it, or on a later one.
    pub fn confirm(&mut self, checkpoint: CheckpointId) {
        self.tables.iter_mut().for_each(|table| table.confirm(checkpoint));
    }

    /// Adds or replaces a restored entry; does nothing if the key belongs to another subtask.
    ///
    /// # Errors
    /// [`StateFull`] if the state exceeds its quota.
    pub fn restore_put(&mut self, slot: usize, group: KeyGroup, key: &[u8], value: &[u8]) -> Result<(), StateFull> {
        if self.groups.contains(&group.0) {
            let more = (key.len() + value.len()) as u64;
            let table = &mut self.tables[slot];
            let full = StateFull { used: table.memory_bytes(), more, quota: self.quota_bytes };
            let table_key = TableKey { bytes: key, hash: self.hasher.hash(key), group };
            table.restore_put(table_key, value).map_err(|_| full)?;
        }
        Ok(())
    }

    /// Removes a restored entry.
    pub fn restore_delete(&mut self, slot: usize, group: KeyGroup, key: &[u8]) {
        if self.groups.contains(&group.0) {
            self.tables[slot].restore_delete(TableKey { bytes: key, hash: self.hasher.hash(key), group });
        }
    }

    /// Tells that a completed checkpoint holds a base of this group, and increments of so many bytes on it.
    pub fn restored_group(&mut self, slot: usize, group: KeyGroup, deltas: u32, delta_bytes: u64) {
        if self.groups.contains(&group.0) {
            let table = &mut self.tables[slot];
            let position = table.group_position(group);
            let group = &mut table.groups[position];
            (group.has_base, group.deltas, group.delta_bytes) = (true, deltas, delta_bytes);
        }
    }

    /// Calls `visit` with every key and value of a slot, in no particular order. For tests and tools.
    pub fn for_each(&self, slot: usize, mut visit: impl FnMut(&[u8], &[u8])) {
        let table = &self.tables[slot];
        for slot in table.groups.iter().flat_map(|group| &group.index) {
            let entry = table.arena.entry(super::arena::EntryRef(u32::try_from(slot & 0xffff_ffff).expect("32 bits")));
            if !entry.deleted {
                visit(entry.key, entry.value);
            }
        }
    }
}
