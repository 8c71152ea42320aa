//! What a guest reads in the middle of its call: everything as of the call's start, for effects apply after it.

use std::cell::{Ref, RefCell};

use super::arena::EntryRef;
use super::entry::ordered_key;
use super::list;
use super::ordered::OrderedTable;
use super::subtask::{Slot, SlotTable, SubtaskState};
use super::table::TableKey;
use super::ttl::Ttl;
use super::value::ValueTable;
use crate::column::{BytesColumn, BytesSlice};
use crate::guest::{READ_BYTES_MAX, ReadColumn, ReadEntries, ReadError, ReadLimit, StateKind, StateReads};

/// The state of a subtask, shared between the subtask and the guest that it calls. The subtask changes it between calls,
/// the guest reads it within.
pub type SharedState = RefCell<SubtaskState>;

impl StateReads for SharedState {
    fn get_many(&self, slot: u32, rows: &[u32]) -> Result<ReadColumn, ReadError> {
        let state = self.read()?;
        let (table, ttl) = state.value_slot(slot)?;
        let (mut column, mut stored) = (Column::new(rows.len()), Vec::new());
        for (index, row) in rows.iter().enumerate() {
            let key = state.row_key(*row)?;
            let found = match (table.find(key), &table.cold) {
                (Some(place), _) => table.value(place).map(|value| (Place::Resident(place), value)),
                (None, Some(cold)) if cold.get(key.group, key.bytes, &mut stored) => Some((Place::Cold(*row, None), &stored[..])),
                (None, _) => None,
            };
            column.push(index, state.seen(slot, ttl, found))?;
        }
        Ok(column.0)
    }

    fn get_entries(&self, slot: u32, rows: &[u32], entry_keys: BytesSlice<'_>) -> Result<ReadColumn, ReadError> {
        if rows.len() != entry_keys.len() {
            return Err(ReadError::Columns { rows: rows.len(), keys: entry_keys.len() });
        }
        let state = self.read()?;
        let (table, ttl) = state.ordered_slot(slot, &[StateKind::Map], "map")?;
        let (mut column, mut stored, mut stored_key) = (Column::new(rows.len()), Vec::new(), Vec::new());
        for (index, (row, entry_key)) in rows.iter().zip(entry_keys.iter()).enumerate() {
            let key = state.row_key(*row)?;
            let found = match &table.cold {
                Some(cold) if !table.is_resident(key) => {
                    ordered_key(&mut stored_key, key.bytes, entry_key);
                    let is_there = cold.get(key.group, &stored_key, &mut stored);
                    is_there.then(|| (Place::Cold(*row, Some(entry_key)), &stored[..]))
                }
                _ => entry_of(table, key, entry_key),
            };
            column.push(index, state.seen(slot, ttl, found))?;
        }
        Ok(column.0)
    }

    fn scan(&self, slot: u32, row: u32, start_after: Option<&[u8]>, most: ReadLimit) -> Result<ReadEntries, ReadError> {
        let state = self.read()?;
        let table = state.ordered_slot(slot, &[StateKind::Map], "map")?;
        Ok(state.scan_entries(slot, table, (state.row_key(row)?, row), start_after, most))
    }

    fn get_list(&self, slot: u32, row: u32, start: u32, most: ReadLimit) -> Result<BytesColumn, ReadError> {
        let state = self.read()?;
        let table = state.ordered_slot(slot, &[StateKind::List], "list")?;
        Ok(state.list_elements(slot, table, (state.row_key(row)?, row), start, most))
    }

    fn get_operator_list(&self, slot: u32, start: u32, most: ReadLimit) -> Result<BytesColumn, ReadError> {
        let state = self.read()?;
        let kinds = [StateKind::ListSplit, StateKind::ListUnion];
        let table = state.ordered_slot(slot, &kinds, "list-split or list-union")?;
        Ok(state.list_elements(slot, table, (state.own_key(), 0), start, most))
    }

    fn get_broadcast(&self, slot: u32, entry_keys: BytesSlice<'_>) -> Result<ReadColumn, ReadError> {
        let state = self.read()?;
        let (table, ttl) = state.ordered_slot(slot, &[StateKind::Broadcast], "broadcast")?;
        let mut column = Column::new(entry_keys.len());
        for (index, entry_key) in entry_keys.iter().enumerate() {
            let found = entry_of(table, state.own_key(), entry_key);
            column.push(index, state.seen(slot, ttl, found))?;
        }
        Ok(column.0)
    }

    fn scan_broadcast(&self, slot: u32, start_after: Option<&[u8]>, most: ReadLimit) -> Result<ReadEntries, ReadError> {
        let state = self.read()?;
        let table = state.ordered_slot(slot, &[StateKind::Broadcast], "broadcast")?;
        Ok(state.scan_entries(slot, table, (state.own_key(), 0), start_after, most))
    }

    fn passed_over(&self) -> u64 {
        self.read().map_or(0, |state| state.passed_over.get())
    }
}

/// Reading through a shared state.
trait Read {
    fn read(&self) -> Result<Ref<'_, SubtaskState>, ReadError>;
}

impl Read for SharedState {
    fn read(&self) -> Result<Ref<'_, SubtaskState>, ReadError> {
        self.try_borrow().map_err(|_| ReadError::OutsideOfCall)
    }
}

/// Values that were asked for one by one.
struct Column(ReadColumn);

impl Column {
    fn new(items: usize) -> Self {
        Self(ReadColumn { present: vec![0; items.div_ceil(8)], values: BytesColumn::default() })
    }

    fn push(&mut self, index: usize, value: Option<&[u8]>) -> Result<(), ReadError> {
        let value = value.inspect(|_| self.0.present[index / 8] |= 1 << (index % 8)).unwrap_or_default();
        if self.0.values.bytes() + value.len() > READ_BYTES_MAX {
            return Err(ReadError::TooLarge);
        }
        self.0.values.push(value);
        Ok(())
    }
}

/// Where something was read: in the table, or in the store, of a row and with an entry key, if the slot has such.
#[derive(Clone, Copy)]
enum Place<'a> {
    Resident(EntryRef),
    Cold(u32, Option<&'a [u8]>),
}

fn entry_of<'a>(table: &'a OrderedTable, key: TableKey<'_>, entry_key: &[u8]) -> Option<(Place<'a>, &'a [u8])> {
    let place = table.find(key, entry_key)?;
    Some((Place::Resident(place), table.value(place)?))
}

/// Hands a key's entries after `start` to `each`, in order, until it returns `false`. Tombstones have no value.
fn for_each_after(
    table: &OrderedTable,
    (key, row): (TableKey<'_>, u32),
    start: Option<&[u8]>,
    mut each: impl FnMut(&[u8], Place<'_>, Option<&[u8]>) -> bool,
) {
    match &table.cold {
        Some(cold) if !table.is_resident(key) => {
            cold.scan_node(key, start, |entry_key, stored| each(entry_key, Place::Cold(row, Some(entry_key)), Some(stored)));
        }
        _ => drop(table.after(key, start).all(|(entry_key, place, stored)| each(entry_key, Place::Resident(place), stored))),
    }
}

impl SubtaskState {
    fn value_slot(&self, slot: u32) -> Result<(&ValueTable, Option<Ttl>), ReadError> {
        match self.slots.get(slot as usize) {
            Some(Slot { table: SlotTable::Value(table), ttl, .. }) => Ok((table, *ttl)),
            _ => Err(ReadError::Slot { slot, wanted: "value" }),
        }
    }

    fn ordered_slot(
        &self,
        slot: u32,
        kinds: &[StateKind],
        wanted: &'static str,
    ) -> Result<(&OrderedTable, Option<Ttl>), ReadError> {
        // Timers are no slot of the guest's.
        match self.slots.get(slot as usize).filter(|_| !self.timers.holds(slot as usize)) {
            Some(Slot { kind, table: SlotTable::Ordered(table), ttl, .. }) if kinds.contains(kind) => Ok((table, *ttl)),
            _ => Err(ReadError::Slot { slot, wanted }),
        }
    }

    fn row_key(&self, row: u32) -> Result<TableKey<'_>, ReadError> {
        let rows = self.frame.len();
        if row as usize >= rows { Err(ReadError::Row { row, rows }) } else { Ok(self.frame.table_key(row as usize)) }
    }

    /// Returns what is to be seen of a stored value, and notes that it was.
    fn seen<'a>(&self, slot: u32, ttl: Option<Ttl>, found: Option<(Place<'_>, &'a [u8])>) -> Option<&'a [u8]> {
        let (place, stored) = found?;
        let Some(ttl) = ttl else { return Some(stored) };
        let value = ttl.live(stored, self.now);
        self.note_place(slot, place, value.is_none() || ttl.on_read);
        value
    }

    fn note_place(&self, slot: u32, place: Place<'_>, matters: bool) {
        match place {
            Place::Resident(place) => self.note(slot, place, matters),
            Place::Cold(row, entry_key) if matters => self.touches.borrow_mut().note_cold(slot, row, entry_key),
            Place::Cold(..) => {}
        }
    }

    fn pass_over(&self, items: usize) {
        self.passed_over.set(self.passed_over.get().saturating_add(items as u64));
    }

    fn scan_entries(
        &self,
        slot: u32,
        (table, ttl): (&OrderedTable, Option<Ttl>),
        key: (TableKey<'_>, u32),
        start_after: Option<&[u8]>,
        most: ReadLimit,
    ) -> ReadEntries {
        let mut found = ReadEntries::default();
        if most.items == 0 {
            return found;
        }
        for_each_after(table, key, start_after, |entry_key, place, stored| {
            let Some(value) = stored.and_then(|stored| self.seen(slot, ttl, Some((place, stored)))) else {
                self.pass_over(1);
                return true;
            };
            let bytes = found.keys.bytes() + found.values.bytes() + entry_key.len() + value.len();
            if !found.keys.is_empty() && bytes > most.bytes.min(READ_BYTES_MAX) {
                return false;
            }
            found.keys.push(entry_key);
            found.values.push(value);
            found.keys.len() < most.items as usize
        });
        found
    }

    fn list_elements(
        &self,
        slot: u32,
        (table, ttl): (&OrderedTable, Option<Ttl>),
        key: (TableKey<'_>, u32),
        start: u32,
        most: ReadLimit,
    ) -> BytesColumn {
        let mut found = BytesColumn::default();
        let mut skip = start as usize;
        for_each_after(table, key, None, |_, place, chunk| {
            if found.len() >= most.items as usize {
                return false;
            }
            let Some(chunk) = chunk else {
                self.pass_over(1);
                return true;
            };
            if ttl.is_none() && skip >= list::count(chunk) {
                self.pass_over(1);
                skip -= list::count(chunk);
                return true;
            }
            if ttl.is_some() {
                self.pass_over(list::count(chunk));
            }
            // Reading renews a whole chunk: an element lives as long as the neighbours that it shares one with.
            let (mut any, mut read, mut full) = (false, false, false);
            for (_, element) in list::live(chunk, ttl, self.now) {
                any = true;
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let exceeds = !found.is_empty() && found.bytes() + element.len() > most.bytes.min(READ_BYTES_MAX);
                full = exceeds || found.len() >= most.items as usize;
                if full {
                    break;
                }
                found.push(element);
                read = true;
            }
            self.note_place(slot, place, ttl.is_some_and(|ttl| !any || (ttl.on_read && read)));
            !full
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{Effects, EntryUpdate, StateSlot, StateUpdate, op};
    use crate::key_group::MaxParallelism;
    use crate::state::StateOwner;
    use crate::time::ProcessingTime;

    #[test]
    fn tombstones_and_skipped_chunks_are_counted() {
        let slot = |name: &str, kind| {
            let (name, codec) = (name.into(), "raw".into());
            StateSlot { name, kind, codec, schema: String::new(), ttl_ms: 0, ttl_on_read: false, prefetch: false }
        };
        let owner = StateOwner { max_parallelism: MaxParallelism::new(1).unwrap(), groups: 0..1, subtask: 0 };
        let mut state = SubtaskState::new(owner, &[slot("l", StateKind::List), slot("m", StateKind::Map)], 42, 1 << 30);
        let keys: BytesColumn = [&b"k"[..]].into_iter().collect();
        let long = [7; list::CHUNK_BYTES];
        state.fill_frame(keys.as_slice(), &[], ProcessingTime(0)).unwrap();
        let elements: BytesColumn = [&long[..], &long, b"last"].into_iter().collect();
        let entry_keys: BytesColumn = [&b"a"[..], b"b", b"c", b"a", b"b"].into_iter().collect();
        let values: BytesColumn = [&b"1"[..], b"2", b"3", b"", b""].into_iter().collect();
        let ops = vec![op::PUT, op::PUT, op::PUT, op::DELETE, op::DELETE];
        let entries = vec![EntryUpdate { slot: 1, rows: vec![0; 5], ops, entry_keys, values }];
        let updates = vec![StateUpdate { slot: 0, rows: vec![0; 3], ops: vec![op::APPEND; 3], values: elements }];
        state.apply(&Effects { updates, entries, ..Effects::default() });
        let shared = SharedState::new(state);
        shared.borrow_mut().fill_frame(keys.as_slice(), &[], ProcessingTime(0)).unwrap();
        let most = ReadLimit { items: 9, bytes: 1 << 20 };
        assert_eq!(shared.scan(1, 0, None, most).unwrap().keys.iter().collect::<Vec<_>>(), [b"c"]);
        assert_eq!(shared.passed_over(), 2, "two tombstones");
        assert_eq!(shared.get_list(0, 0, 2, most).unwrap().iter().collect::<Vec<_>>(), [b"last"]);
        assert_eq!(shared.passed_over(), 4, "and two chunks");
    }

    #[test]
    fn what_has_expired_is_not_returned_and_is_counted() {
        let slot = |name: &str, kind| {
            let (name, codec) = (name.into(), "raw".into());
            StateSlot { name, kind, codec, schema: String::new(), ttl_ms: 10, ttl_on_read: false, prefetch: false }
        };
        let owner = StateOwner { max_parallelism: MaxParallelism::new(1).unwrap(), groups: 0..1, subtask: 0 };
        let mut state = SubtaskState::new(owner, &[slot("l", StateKind::List), slot("m", StateKind::Map)], 42, 1 << 30);
        let keys: BytesColumn = [&b"k"[..]].into_iter().collect();
        let items: BytesColumn = [&b"a"[..], b"b", b"c"].into_iter().collect();
        state.fill_frame(keys.as_slice(), &[], ProcessingTime(0)).unwrap();
        let appended = StateUpdate { slot: 0, rows: vec![0; 3], ops: vec![op::APPEND; 3], values: items.clone() };
        let put =
            EntryUpdate { slot: 1, rows: vec![0; 3], ops: vec![op::PUT; 3], entry_keys: items.clone(), values: items.clone() };
        state.apply(&Effects { updates: vec![appended], entries: vec![put], ..Effects::default() });
        let most = ReadLimit { items: 9, bytes: 1 << 20 };
        let read = |state: SubtaskState, now| {
            let shared = SharedState::new(state);
            shared.borrow_mut().fill_frame(keys.as_slice(), &[], ProcessingTime(now)).unwrap();
            let found = (shared.get_list(0, 0, 0, most).unwrap(), shared.scan(1, 0, None, most).unwrap().keys);
            let passed_over = shared.passed_over();
            (shared.into_inner(), found, passed_over)
        };
        let (state, found, _) = read(state, 9);
        assert_eq!(found, (items.clone(), items.clone()));
        let before = state.passed_over.get();
        let (_, found, passed_over) = read(state, 10);
        assert_eq!(found, (BytesColumn::default(), BytesColumn::default()));
        assert_eq!(passed_over - before, 6);
    }
}
