//! Applying the effects of a call. They have been validated, so nothing here can fail.

use super::list;
use super::ordered::OrderedTable;
use super::subtask::{Slot, SlotTable, SubtaskState};
use super::table::TableKey;
use super::ttl;
use crate::guest::{Effects, EntryUpdate, OperatorUpdate, StateKind, StateUpdate, op};
use crate::time::ProcessingTime;

/// Why a write cannot fail.
const ROOM: &str = "check_room left room in the arena";

impl SubtaskState {
    /// Applies the state updates of the call whose frame was filled last. They must have been validated against it, and
    /// [`Self::check_room`] must have been asked.
    pub fn apply(&mut self, effects: &Effects) {
        self.settle_touches();
        // Clears of maps come first, whatever follows them in the lists.
        for update in &effects.updates {
            if self.slots[update.slot as usize].kind == StateKind::Map {
                self.clear_maps(update);
            }
        }
        for update in &effects.updates {
            match self.slots[update.slot as usize].kind {
                StateKind::Value => self.update_values(update),
                StateKind::List => self.update_lists(update),
                _ => {}
            }
        }
        effects.entries.iter().for_each(|update| self.update_entries(update));
        effects.operator_updates.iter().for_each(|update| self.update_own(update));
        self.update_timers(&effects.timers);
    }

    fn update_values(&mut self, update: &StateUpdate) {
        let slot = &mut self.slots[update.slot as usize];
        let SlotTable::Value(table) = &mut slot.table else { return };
        let Some(column) = slot.column else {
            // Not in the frame: each change looks for itself.
            for (index, (row, op)) in update.rows.iter().zip(&update.ops).enumerate() {
                let key = self.frame.table_key(*row as usize);
                let known = table.load(key, &mut self.scratch);
                if *op == op::PUT {
                    let value = stamped(&mut self.scratch, slot.ttl.is_some(), self.now, update.values.get(index));
                    table.put(key, known, value).expect(ROOM);
                } else if let Some(place) = known {
                    table.delete(place);
                }
            }
            return;
        };
        let mut places = std::mem::take(&mut self.frame.columns[column].places);
        for (index, (row, op)) in update.rows.iter().zip(&update.ops).enumerate() {
            let row = *row as usize;
            match (*op, places[row]) {
                (op::PUT, known) => {
                    let value = stamped(&mut self.scratch, slot.ttl.is_some(), self.now, update.values.get(index));
                    places[row] = Some(table.put(self.frame.table_key(row), known, value).expect(ROOM));
                }
                (_, Some(place)) => table.delete(place),
                (_, None) => {}
            }
        }
        self.frame.columns[column].places = places;
    }

    fn clear_maps(&mut self, update: &StateUpdate) {
        let SlotTable::Ordered(table) = &mut self.slots[update.slot as usize].table else { return };
        for row in &update.rows {
            let key = self.frame.table_key(*row as usize);
            table.load(key);
            table.clear(key);
        }
    }

    fn update_lists(&mut self, update: &StateUpdate) {
        let Slot { table: SlotTable::Ordered(table), ttl, .. } = &mut self.slots[update.slot as usize] else { return };
        let stamp = ttl.map(|_| self.now);
        for (index, (row, op)) in update.rows.iter().zip(&update.ops).enumerate() {
            let key = self.frame.table_key(*row as usize);
            table.load(key);
            match *op {
                op::APPEND => append(table, key, update.values.get(index), stamp, &mut self.scratch),
                _ => table.clear(key),
            }
        }
    }

    fn update_entries(&mut self, update: &EntryUpdate) {
        let Slot { table: SlotTable::Ordered(table), ttl, .. } = &mut self.slots[update.slot as usize] else { return };
        for (index, (row, op)) in update.rows.iter().zip(&update.ops).enumerate() {
            let (key, entry_key) = (self.frame.table_key(*row as usize), update.entry_keys.get(index));
            table.load(key);
            if *op == op::PUT {
                let value = stamped(&mut self.scratch, ttl.is_some(), self.now, update.values.get(index));
                table.put(key, entry_key, value).expect(ROOM);
            } else if let Some(place) = table.find(key, entry_key) {
                table.delete(place);
            }
        }
    }

    /// Changes state that belongs to no key.
    fn update_own(&mut self, update: &OperatorUpdate) {
        let key = self.own_key();
        let SlotTable::Ordered(table) = &mut self.slots[update.slot as usize].table else { return };
        for (index, op) in update.ops.iter().enumerate() {
            let (entry_key, value) = (update.entry_keys.get(index), update.values.get(index));
            match *op {
                op::PUT => drop(table.put(key, entry_key, value).expect(ROOM)),
                op::DELETE => {
                    if let Some(place) = table.find(key, entry_key) {
                        table.delete(place);
                    }
                }
                op::APPEND => append(table, key, value, None, &mut self.scratch),
                _ => table.clear(key),
            }
        }
    }
}

/// Returns the value as it is stored.
fn stamped<'a>(scratch: &'a mut Vec<u8>, has_ttl: bool, now: ProcessingTime, value: &'a [u8]) -> &'a [u8] {
    if !has_ttl {
        return value;
    }
    ttl::stamp(scratch, now, value);
    scratch
}

/// Appends to a key's list. Reads one chunk at most: the last, while it is small.
pub(super) fn append(
    table: &mut OrderedTable,
    key: TableKey<'_>,
    element: &[u8],
    stamp: Option<ProcessingTime>,
    chunk: &mut Vec<u8>,
) {
    chunk.clear();
    let mut number = 0_u64;
    if let Some((last, place)) = table.last(key) {
        let entry = table.arena.entry(place);
        let most = if entry.written == table.epoch { list::CHUNK_BYTES } else { list::TINY_BYTES };
        let last = last.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
        if !entry.deleted && entry.value.len() + list::appended_len(element) <= most {
            chunk.extend_from_slice(entry.value);
            number = last;
        } else {
            number = last.wrapping_add(1);
        }
    }
    list::append(chunk, element, stamp);
    table.put(key, &number.to_be_bytes(), chunk).expect(ROOM);
}
