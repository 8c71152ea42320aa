//! The harness's answers to reads in the middle of a call.

use std::cell::{Cell, RefCell};
use std::ops::Bound;

use super::store::{Place, Renewal, Renewed, Store};
use crate::column::{BytesColumn, BytesView};
use crate::declare::{StateKind, StateSlot};
use crate::error::Error;
use crate::reads::{PAGE_BYTES, ReadColumn, ReadEntries, StateReads};

/// Items in one page, at most.
const PAGE_ITEMS: u32 = 1 << 16;

/// State as of the start of one call.
pub(super) struct CallReads<'a> {
    pub(super) store: &'a Store,
    pub(super) slots: &'a [StateSlot],
    pub(super) keys: BytesView<'a>,
    pub(super) now: i64,
    /// How often the call has read.
    pub(super) count: Cell<u64>,
    /// What it has read and by that renewed.
    pub(super) renewals: RefCell<Vec<Renewal>>,
}

impl CallReads<'_> {
    /// Counts a read and checks its slot.
    fn read(&self, slot: u32, kinds: &[StateKind]) -> Result<(), Error> {
        self.count.set(self.count.get() + 1);
        match self.slots.get(slot as usize) {
            Some(declared) if kinds.contains(&declared.kind) => Ok(()),
            _ => Err(Error::permanent(format!("slot {slot} is read as {kinds:?}, which it is not"))),
        }
    }

    fn place(&self, slot: u32, row: u32) -> Result<Place, Error> {
        if row as usize >= self.keys.len() {
            return Err(Error::permanent(format!("row {row} is read of a frame of {}", self.keys.len())));
        }
        Ok((slot as usize, self.keys.get(row as usize).to_vec()))
    }

    fn renew(&self, place: &Place, what: Renewed) {
        if self.slots[place.0].ttl_on_read {
            self.renewals.borrow_mut().push(Renewal { place: place.clone(), what });
        }
    }

    /// The columns that are handed in with the call, each with its slot.
    pub(super) fn prefetch(&self) -> Vec<(u32, ReadColumn)> {
        let slots = (0..).zip(self.slots).filter(|(_, slot)| slot.prefetch);
        let places = |slot: u32| self.keys.iter().map(move |key| (slot as usize, key.to_vec()));
        let column = |slot: u32| {
            let mut column = ReadColumn::default();
            for place in places(slot) {
                self.renew(&place, Renewed::Value);
                column.push(self.store.value(self.slots, &place, self.now));
            }
            column
        };
        slots.map(|(slot, _)| (slot, column(slot))).collect()
    }

    fn value(&self, slot: u32, row: u32) -> Result<Option<&[u8]>, Error> {
        let place = self.place(slot, row)?;
        self.renew(&place, Renewed::Value);
        Ok(self.store.value(self.slots, &place, self.now))
    }
}

/// Takes as many items as fit a page.
fn page<'i>(items: impl Iterator<Item = (&'i [u8], &'i [u8])>, limit: u32) -> ReadEntries {
    let mut page = ReadEntries::default();
    for (key, value) in items.take(limit.min(PAGE_ITEMS) as usize) {
        let bytes = page.keys.data.len() + page.values.data.len();
        if !page.keys.is_empty() && bytes + key.len() + value.len() > PAGE_BYTES {
            break;
        }
        page.keys.push(key);
        page.values.push(value);
    }
    page
}

fn after(key: Option<&[u8]>) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl StateReads for CallReads<'_> {
    fn get_many(&self, slot: u32, rows: &[u32]) -> Result<ReadColumn, Error> {
        self.read(slot, &[StateKind::Value])?;
        let mut column = ReadColumn::default();
        for row in rows {
            column.push(self.value(slot, *row)?);
        }
        Ok(column)
    }

    fn get_entries(&self, slot: u32, rows: &[u32], entry_keys: BytesColumn) -> Result<ReadColumn, Error> {
        self.read(slot, &[StateKind::Map])?;
        if rows.len() != entry_keys.len() {
            return Err(Error::permanent(format!("{} rows are read with {} entry keys", rows.len(), entry_keys.len())));
        }
        let mut column = ReadColumn::default();
        for (row, key) in rows.iter().zip(entry_keys.view().iter()) {
            let place = self.place(slot, *row)?;
            self.renew(&place, Renewed::Entry(key.to_vec()));
            column.push(self.store.map(self.slots, &place, self.now).get(key).copied());
        }
        Ok(column)
    }

    fn scan(&self, slot: u32, row: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error> {
        self.read(slot, &[StateKind::Map])?;
        let place = self.place(slot, row)?;
        let map = self.store.map(self.slots, &place, self.now);
        let page = page(map.range::<[u8], _>(after(start_after)).map(|(key, value)| (*key, *value)), limit);
        page.keys.view().iter().for_each(|key| self.renew(&place, Renewed::Entry(key.to_vec())));
        Ok(page)
    }

    fn get_list(&self, slot: u32, row: u32, start: u32, limit: u32) -> Result<BytesColumn, Error> {
        self.read(slot, &[StateKind::List])?;
        let place = self.place(slot, row)?;
        let list = self.store.list(self.slots, &place, self.now);
        let page = page(list.iter().skip(start as usize).map(|element| (&[][..], *element)), limit).values;
        self.renew(&place, Renewed::Elements(start as usize, page.len()));
        Ok(page)
    }

    fn get_operator_list(&self, slot: u32, start: u32, limit: u32) -> Result<BytesColumn, Error> {
        self.read(slot, &[StateKind::ListSplit, StateKind::ListUnion])?;
        let list = self.store.operator_lists.get(&(slot as usize)).into_iter().flatten();
        Ok(page(list.skip(start as usize).map(|element| (&[][..], element.as_slice())), limit).values)
    }

    fn get_broadcast(&self, slot: u32, entry_keys: BytesColumn) -> Result<ReadColumn, Error> {
        self.read(slot, &[StateKind::Broadcast])?;
        let map = self.store.broadcast.get(&(slot as usize));
        let mut column = ReadColumn::default();
        for key in entry_keys.view().iter() {
            column.push(map.and_then(|map| map.get(key)).map(Vec::as_slice));
        }
        Ok(column)
    }

    fn scan_broadcast(&self, slot: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error> {
        self.read(slot, &[StateKind::Broadcast])?;
        let map = self.store.broadcast.get(&(slot as usize));
        let entries = map.into_iter().flat_map(|map| map.range::<[u8], _>(after(start_after)));
        Ok(page(entries.map(|(key, value)| (key.as_slice(), value.as_slice())), limit))
    }
}
