//! All state of one subtask: a table for each slot, the frame of the call at hand, and snapshots of all of it.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use super::arena::{EntryRef, chunks_of};
use super::backing::Backing;
use super::frame::{Frame, FrameColumn};
use super::ordered::OrderedTable;
use super::table::{TableHasher, TableKey, same_key};
use super::timers::Timers;
use super::touch::Touches;
use super::ttl::{Expiry, Ttl};
use super::value::ValueTable;
use crate::column::BytesSlice;
use crate::guest::{StateKind, StateSlot};
use crate::ids::CheckpointId;
use crate::key_group::{KeyGroup, MaxParallelism, key_hash};
use crate::snapshot::StateBlock;
use crate::time::ProcessingTime;

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
#[error("state of {used} bytes exceeds the quota of {quota} bytes with the {more} bytes of this call")]
pub struct StateFull {
    /// Bytes of keys and values there are.
    pub used: u64,
    /// Bytes the call writes.
    pub more: u64,
    /// The most there may be.
    pub quota: u64,
}

/// Whose state it is.
#[derive(Clone, Debug)]
pub struct StateOwner {
    /// The number of key groups.
    pub max_parallelism: MaxParallelism,
    /// The key groups that the subtask owns.
    pub groups: Range<u16>,
    /// The subtask's index: its "key group" for state that belongs to no key.
    pub subtask: u16,
}

/// The state of one subtask: one table a slot.
pub struct SubtaskState {
    pub(super) owner: StateOwner,
    pub(super) hasher: TableHasher,
    pub(super) slots: Vec<Slot>,
    pub(super) quota_bytes: u64,
    pub(super) frame: Frame,
    /// The processing time of the call at hand, or of the last one.
    pub(super) now: ProcessingTime,
    /// What the call at hand has read of slots whose values expire.
    pub(super) touches: RefCell<Touches>,
    /// What reads have walked over so far beyond what they returned, or were told to skip.
    pub(super) passed_over: Cell<u64>,
    pub(super) scratch: Vec<u8>,
    /// The store behind the tables of keyed slots, if there is one.
    pub(super) backing: Option<Backing>,
    /// The order of pending timers, which slots hold.
    pub(super) timers: Timers,
    /// Memory for what has moved.
    pub(super) moved: Vec<EntryRef>,
}

/// A declared slot and its table.
pub(super) struct Slot {
    pub(super) kind: StateKind,
    pub(super) ttl: Option<Ttl>,
    /// The position of its column in the frame, if it is handed in with each call.
    pub(super) column: Option<usize>,
    pub(super) table: SlotTable,
}

pub(super) enum SlotTable {
    Value(ValueTable),
    Ordered(OrderedTable),
}

/// Does the same with a table of either kind.
macro_rules! on_table {
    ($table:expr, $name:ident => $does:expr) => {
        match $table {
            SlotTable::Value($name) => $does,
            SlotTable::Ordered($name) => $does,
        }
    };
}
pub(super) use on_table;

impl SubtaskState {
    /// Returns empty state: `slots` are the operator's [`crate::guest::Descriptor::tables`]. `seed` should differ from process to process; nothing that leaves the process depends on it.
    pub fn new(owner: StateOwner, slots: &[StateSlot], seed: u64, quota_bytes: u64) -> Self {
        let hasher = TableHasher::new(seed);
        let mut columns = Vec::new();
        let mut tables = Vec::with_capacity(slots.len());
        for (number, slot) in (0_u32..).zip(slots) {
            let (kind, ttl) = (slot.kind, Ttl::of(slot));
            let expiry = ttl.map(|ttl| Expiry { ttl, is_list: kind == StateKind::List });
            let groups = if kind.is_keyed() { owner.groups.clone() } else { owner.subtask..owner.subtask + 1 };
            let table = match kind {
                StateKind::Value => SlotTable::Value(ValueTable::new(groups, hasher.clone(), expiry)),
                _ => SlotTable::Ordered(OrderedTable::new(groups, hasher.clone(), expiry)),
            };
            let is_in_frame = kind == StateKind::Value && slot.prefetch;
            let column = is_in_frame.then_some(columns.len());
            if is_in_frame {
                columns.push(FrameColumn { slot: number, ..FrameColumn::default() });
            }
            tables.push(Slot { kind, ttl, column, table });
        }
        let (frame, now) = (Frame::new(columns), ProcessingTime(0));
        Self {
            owner,
            hasher,
            slots: tables,
            quota_bytes,
            frame,
            now,
            touches: RefCell::default(),
            passed_over: Cell::new(0),
            scratch: Vec::new(),
            backing: None,
            timers: Timers::new(slots),
            moved: Vec::new(),
        }
    }

    /// Returns the frame of the call at hand.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Returns the number of entries in `slot`: keys with a value, entries of maps, chunks of lists.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn len(&self, slot: usize) -> u64 {
        on_table!(&self.slots[slot].table, table => table.len())
    }

    /// Returns the entries of all slots, as [`Self::len`] counts them.
    pub fn entries(&self) -> u64 {
        (0..self.slots.len()).map(|slot| self.len(slot)).sum()
    }

    /// Returns about how much memory the state takes.
    pub fn memory_bytes(&self) -> u64 {
        let tables: u64 = self.slots.iter().map(|slot| on_table!(&slot.table, table => table.memory_bytes())).sum();
        tables + self.timers.memory_bytes()
    }

    /// Prepares the frame of a call without keys.
    pub fn clear_frame(&mut self, now: ProcessingTime) {
        self.now = now;
        self.touches.get_mut().clear();
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
    pub fn fill_frame(&mut self, keys: BytesSlice<'_>, hashes: &[u64], now: ProcessingTime) -> Result<(), KeyNotOwned> {
        self.now = now;
        self.touches.get_mut().clear();
        let owner = &self.owner;
        let group_of = |record: usize, key: &[u8]| {
            let hash = hashes.get(record).copied().unwrap_or_else(|| key_hash(key));
            let group = owner.max_parallelism.group_of(hash);
            owner.groups.contains(&group.0).then_some(group)
        };
        self.frame.fill_rows(keys, &self.hasher, group_of).map_err(|record| KeyNotOwned { record })?;
        if self.backing.is_some() {
            self.load_rows();
        }
        let mut columns = std::mem::take(&mut self.frame.columns);
        for column in &mut columns {
            let slot = &self.slots[column.slot as usize];
            if let SlotTable::Value(table) = &slot.table {
                match slot.ttl {
                    None => self.fill_column(table, column, |_, value| Some(value)),
                    Some(ttl) => {
                        let number = column.slot;
                        self.fill_column(table, column, |place, stored| {
                            let value = ttl.live(stored, now);
                            self.note(number, place, value.is_none() || ttl.on_read);
                            value
                        });
                    }
                }
            }
        }
        self.frame.columns = columns;
        Ok(())
    }

    /// Notes that the call has seen an entry that has expired, or that lives longer for it.
    pub(super) fn note(&self, slot: u32, place: EntryRef, matters: bool) {
        if matters {
            self.touches.borrow_mut().note(slot, place);
        }
    }

    /// Reads one slot for all rows; `live` tells what is to be seen of a stored value. In passes over the rows, each of
    /// which touches one kind of memory: the misses of a pass do not depend on one another, so the processor waits for
    /// many of them at once.
    fn fill_column(
        &self,
        table: &ValueTable,
        column: &mut FrameColumn,
        live: impl for<'a> Fn(EntryRef, &'a [u8]) -> Option<&'a [u8]>,
    ) {
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
                value = if header.deleted { None } else { live(place, bytes) };
                if !same_key(found, key.bytes) {
                    // Another key with the same hash: look again, comparing keys.
                    column.places[row] = table.find(key);
                    value = column.places[row].and_then(|place| live(place, table.value(place)?));
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
        let used = self.slots.iter().map(|slot| on_table!(&slot.table, table => table.live_bytes())).sum();
        let too_large = |slot: &Slot| on_table!(&slot.table, table => table.memory_bytes()) + 2 * more > TABLE_BYTES_MAX;
        let too_many = |slot: &Slot| on_table!(&slot.table, table => table.arena.chunks_left() as u64) < chunks_of(more);
        let is_full = used + more > self.quota_bytes || self.slots.iter().any(|slot| too_large(slot) || too_many(slot));
        if is_full { Err(StateFull { used, more, quota: self.quota_bytes }) } else { Ok(()) }
    }

    /// Returns the key of state that belongs to no key.
    pub(super) fn own_key(&self) -> TableKey<'static> {
        TableKey { bytes: &[], hash: self.hasher.hash(&[]), group: KeyGroup(self.owner.subtask) }
    }

    /// Freezes the state at the cut of a checkpoint. `full`: all of it, whatever earlier checkpoints hold, and later
    /// increments do not build upon it unless [`Self::confirm`] is called for it.
    pub fn begin_snapshot(&mut self, checkpoint: CheckpointId, full: bool) {
        let now = self.now;
        self.keep_accounts(checkpoint);
        self.slots.iter_mut().for_each(|slot| on_table!(&mut slot.table, table => table.begin_snapshot(checkpoint, now, full)));
    }

    /// Whether frozen entries wait to be encoded.
    pub fn is_collecting(&self) -> bool {
        self.slots.iter().any(|slot| on_table!(&slot.table, table => !table.collecting.is_empty()))
    }

    /// Encodes up to about `budget` frozen entries and hands full blocks to `emit` (their table is the slot's index).
    /// Returns whether frozen entries are left.
    pub fn collect_some(&mut self, budget: usize, emit: &mut dyn FnMut(CheckpointId, StateBlock)) -> bool {
        for (number, slot) in (0_u16..).zip(&mut self.slots) {
            let mut emit = |checkpoint, block: StateBlock| emit(checkpoint, StateBlock { table: number, ..block });
            let was_collecting = on_table!(&mut slot.table, table => {
                let was_collecting = !table.collecting.is_empty();
                table.collect_some(budget, &mut emit);
                was_collecting
            });
            if was_collecting {
                break;
            }
        }
        self.is_collecting()
    }

    /// Frees up to `budget` entries whose deletion is part of a completed checkpoint; or, if there is none, moves some out of
    /// memory that is used little. Returns whether there was anything to do.
    pub fn reap_some(&mut self, budget: usize) -> bool {
        self.slots.iter_mut().any(|slot| on_table!(&mut slot.table, table => table.reap_some(budget))) || self.compact_some()
    }

    /// Whether `checkpoint` has frozen entries that wait to be encoded.
    pub fn is_collecting_for(&self, checkpoint: CheckpointId) -> bool {
        let is_for = |slot: &Slot| on_table!(&slot.table, table => table.is_collecting_for(checkpoint));
        self.slots.iter().any(is_for)
    }

    /// Forgets a snapshot that nobody wants any more.
    pub fn drop_snapshot(&mut self, checkpoint: CheckpointId) {
        self.slots.iter_mut().for_each(|slot| on_table!(&mut slot.table, table => table.drop_snapshot(checkpoint)));
    }

    /// Takes note that a checkpoint has completed. Later snapshots are increments on it, or on a later one.
    pub fn confirm(&mut self, checkpoint: CheckpointId) {
        self.slots.iter_mut().for_each(|slot| on_table!(&mut slot.table, table => table.confirm(checkpoint)));
    }
}
