//! The index of a slot with many entries a key: a hash table per key group of keys, each with its entries in order.
//!
//! Maps, lists (entry key = a chunk's number) and state without keys (one key, which is empty) are all tables of this kind.

use hashbrown::HashTable;

use super::arena::{ArenaFull, EntryRef};
use super::entry::{ordered_key, split_ordered_key};
use super::small::{Entries, SmallKey};
use super::table::{Index, Table, TableHasher, TableKey, spread};

/// A key that has entries, tombstones included.
struct Node {
    hash: u32,
    key: SmallKey,
    entries: Entries,
}

#[derive(Default)]
pub(super) struct NodeIndex {
    nodes: HashTable<Node>,
    entries: usize,
    /// Bytes of keys that are too long to be stored in place.
    heap_bytes: usize,
}

impl NodeIndex {
    fn find(&self, key: TableKey<'_>) -> Option<&Node> {
        self.nodes.find(spread(key.hash), |node| node.is(key))
    }

    /// Sets where an entry is.
    fn set(&mut self, key: TableKey<'_>, entry_key: &[u8], place: EntryRef, is_new: bool) {
        if is_new {
            self.entries += 1;
            self.heap_bytes += SmallKey::heap_bytes(entry_key);
        }
        if let Some(node) = self.nodes.find_mut(spread(key.hash), |node| node.is(key)) {
            node.entries.insert(entry_key, place);
            return;
        }
        let mut node = Node { hash: key.hash, key: SmallKey::new(key.bytes), entries: Entries::default() };
        self.heap_bytes += SmallKey::heap_bytes(key.bytes);
        node.entries.insert(entry_key, place);
        self.nodes.insert_unique(spread(key.hash), node, |node| spread(node.hash));
    }

    /// Forgets a key and returns its entries.
    fn take(&mut self, key: TableKey<'_>) -> Option<Entries> {
        let (node, _) = self.nodes.find_entry(spread(key.hash), |node| node.is(key)).ok()?.remove();
        self.heap_bytes -= SmallKey::heap_bytes(key.bytes);
        for (entry_key, _) in node.entries.after(None) {
            self.entries -= 1;
            self.heap_bytes -= SmallKey::heap_bytes(entry_key);
        }
        Some(node.entries)
    }
}

impl Node {
    fn is(&self, key: TableKey<'_>) -> bool {
        self.hash == key.hash && self.key.as_bytes() == key.bytes
    }
}

impl Index for NodeIndex {
    fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn places(&self) -> Vec<EntryRef> {
        let mut places = Vec::with_capacity(self.entries);
        self.nodes.iter().for_each(|node| places.extend(node.entries.after(None).map(|(_, place)| place)));
        places
    }

    fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * (size_of::<Node>() + 1) + self.entries * 40 + self.heap_bytes
    }

    fn forget(&mut self, stored_key: &[u8], place: EntryRef, hasher: &TableHasher) {
        let (key, entry_key) = split_ordered_key(stored_key).expect("written by this table");
        let hash = hasher.hash(key);
        let node = self.nodes.find_entry(spread(hash), |node| node.hash == hash && node.key.as_bytes() == key);
        let Ok(mut node) = node else { return };
        if node.get_mut().entries.remove(entry_key, place) {
            self.entries -= 1;
            self.heap_bytes -= SmallKey::heap_bytes(entry_key);
            if node.get().entries.is_empty() {
                self.heap_bytes -= SmallKey::heap_bytes(key);
                node.remove();
            }
        }
    }
}

/// Many entries a key.
pub(super) type OrderedTable = Table<NodeIndex>;

impl OrderedTable {
    fn index(&self, key: TableKey<'_>) -> &NodeIndex {
        &self.groups[self.group_position(key.group)].index
    }

    /// Returns where an entry is; it may be a tombstone.
    pub(super) fn find(&self, key: TableKey<'_>, entry_key: &[u8]) -> Option<EntryRef> {
        self.index(key).find(key)?.entries.get(entry_key)
    }

    /// Returns a key's entries after `start` in order, without tombstones.
    pub(super) fn after<'a>(
        &'a self,
        key: TableKey<'_>,
        start: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], EntryRef, &'a [u8])> + use<'a> {
        let entries = self.index(key).find(key).map(|node| node.entries.after(start));
        let live = |(entry_key, place)| Some((entry_key, place, self.value(place)?));
        entries.into_iter().flatten().filter_map(live)
    }

    /// Returns a key's last entry, which may be a tombstone.
    pub(super) fn last(&self, key: TableKey<'_>) -> Option<(&[u8], EntryRef)> {
        self.index(key).find(key)?.entries.last()
    }

    /// Sets the value of an entry. Returns where it is.
    pub(super) fn put(&mut self, key: TableKey<'_>, entry_key: &[u8], value: &[u8]) -> Result<EntryRef, ArenaFull> {
        let known = self.find(key, entry_key);
        let mut stored_key = Vec::new();
        ordered_key(&mut stored_key, key.bytes, entry_key);
        let place = match known {
            None => self.place_new(key.group, &stored_key, value, self.epoch)?,
            Some(place) => match self.overwrite(key.group, &stored_key, place, value)? {
                None => return Ok(place),
                Some(moved) => moved,
            },
        };
        self.group_mut(key.group).index.set(key, entry_key, place, known.is_none());
        Ok(place)
    }

    /// Removes all entries of a key. What snapshots in flight need of them is encoded first, so this takes as long as
    /// writing them did.
    pub(super) fn clear(&mut self, key: TableKey<'_>) {
        let Some(entries) = self.group_mut(key.group).index.take(key) else {
            // Whatever a checkpoint holds of the key has been cleared, or has tombstones of its own.
            return;
        };
        entries.after(None).for_each(|(_, place)| self.release(place));
        self.list_clear(key.group, key.bytes);
    }

    /// Adds a restored entry, replacing any other; it belongs to a completed checkpoint.
    pub(super) fn restore_put(&mut self, key: TableKey<'_>, entry_key: &[u8], value: &[u8]) -> Result<(), ArenaFull> {
        let known = self.find(key, entry_key);
        let mut stored_key = Vec::new();
        ordered_key(&mut stored_key, key.bytes, entry_key);
        let place = match known {
            None => self.place_new(key.group, &stored_key, value, 0)?,
            Some(place) => match self.restore_over(key.group, &stored_key, place, value)? {
                None => return Ok(()),
                Some(moved) => moved,
            },
        };
        self.group_mut(key.group).index.set(key, entry_key, place, known.is_none());
        Ok(())
    }

    /// Removes all restored entries of a key.
    pub(super) fn restore_clear(&mut self, key: TableKey<'_>) {
        if let Some(entries) = self.group_mut(key.group).index.take(key) {
            entries.after(None).for_each(|(_, place)| self.release(place));
        }
    }
}
