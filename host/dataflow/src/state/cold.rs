//! What of a table's state is in the store only, and how it comes into memory.
//!
//! A key is either resident, and then the table says all there is to say of it, or it is not, and then the store does. A
//! key with many entries is resident as a whole. Whatever is written is resident until the store holds it, so a table
//! and its store need no merging. Everything that writes a key makes it resident first.

use std::cell::RefCell;
use std::rc::Rc;

use super::arena::EntryRef;
use super::entry::ordered_key;
use super::ordered::OrderedTable;
use super::store::{PREFIX_BYTES, StateStore, StoreError, node_prefix, store_key};
use super::table::{Index, Table, TableKey};
use super::value::ValueTable;
use crate::key_group::KeyGroup;

/// The first thing that went wrong with a store: state that was read since may be wrong, and nothing of it may count.
pub(super) type StoreFailure = Rc<RefCell<Option<StoreError>>>;

/// A table's part of a store.
#[derive(Clone)]
pub(super) struct Cold {
    pub(super) store: Rc<dyn StateStore>,
    pub(super) slot: u16,
    failure: StoreFailure,
}

impl Cold {
    pub(super) fn new(store: Rc<dyn StateStore>, slot: u16, failure: StoreFailure) -> Self {
        Self { store, slot, failure }
    }

    /// Takes note of an error: the subtask fails when its call, or slice of work, is over.
    pub(super) fn fail(&self, error: StoreError) {
        self.failure.borrow_mut().get_or_insert(error);
    }

    /// Puts the stored value of a key into `value`. Returns whether there is one.
    pub(super) fn get(&self, group: KeyGroup, stored_key: &[u8], value: &mut Vec<u8>) -> bool {
        let mut key = Vec::with_capacity(PREFIX_BYTES + stored_key.len());
        store_key(&mut key, self.slot, group, stored_key);
        self.store.get(&key, value).unwrap_or_else(|error| {
            self.fail(error);
            false
        })
    }

    /// Hands the stored entries of a key with many of them, after `start`, to `each`, until it returns `false`.
    pub(super) fn scan_node(&self, key: TableKey<'_>, start: Option<&[u8]>, mut each: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut prefix = Vec::new();
        node_prefix(&mut prefix, self.slot, key.group, key.bytes);
        let after = start.map(|start| [&prefix, start].concat());
        let mut each = |store_key: &[u8], value: &[u8]| each(&store_key[prefix.len()..], value);
        if let Err(error) = self.store.scan(&prefix, after.as_deref(), &mut each) {
            self.fail(error);
        }
    }

    /// Hands the stored entries of a group after a stored key to `each`, until it returns `false`.
    pub(super) fn scan_group(&self, group: KeyGroup, after: Option<&[u8]>, mut each: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut prefix = Vec::new();
        store_key(&mut prefix, self.slot, group, &[]);
        let after = after.map(|after| [&prefix, after].concat());
        let mut each = |store_key: &[u8], value: &[u8]| each(&store_key[PREFIX_BYTES..], value);
        if let Err(error) = self.store.scan(&prefix, after.as_deref(), &mut each) {
            self.fail(error);
        }
    }
}

impl<I: Index> Table<I> {
    /// Places an entry that the store holds and the accounts know. Returns where; its index must be told.
    fn place_clean(&mut self, group: KeyGroup, stored_key: &[u8], value: &[u8]) -> Option<EntryRef> {
        let Ok(place) = self.arena.insert(0, group, stored_key, value) else {
            let error = StoreError("32 GiB of entries are in memory".into());
            self.cold.iter().for_each(|cold| cold.fail(error.clone()));
            return None;
        };
        self.arena.set_used(place);
        self.arena.set_queued(place);
        self.candidates.add(place);
        for collecting in &mut self.collecting {
            collecting.note_loaded(self.arena.entry(place));
        }
        Some(place)
    }
}

impl ValueTable {
    /// Makes a key resident. Returns where its entry is; it may be a tombstone.
    pub(super) fn load(&mut self, key: TableKey<'_>, value: &mut Vec<u8>) -> Option<EntryRef> {
        let found = self.find(key);
        let Some(cold) = &self.cold else { return found };
        if let Some(place) = found {
            self.arena.set_used(place);
            return found;
        }
        if !cold.get(key.group, key.bytes, value) {
            return None;
        }
        let place = self.place_clean(key.group, key.bytes, value)?;
        self.set(key, place);
        Some(place)
    }
}

impl OrderedTable {
    /// Makes a key resident, with all its entries.
    pub(super) fn load(&mut self, key: TableKey<'_>) {
        if self.cold.is_none() || self.use_key(key) {
            return;
        }
        let Some(cold) = &self.cold else { return };
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        cold.scan_node(key, None, |entry_key, value| {
            entries.push((entry_key.to_vec(), value.to_vec()));
            true
        });
        let mut stored_key = Vec::new();
        for (entry_key, value) in entries {
            ordered_key(&mut stored_key, key.bytes, &entry_key);
            if let Some(place) = self.place_clean(key.group, &stored_key, &value) {
                self.set(key, &entry_key, place);
            }
        }
    }
}
