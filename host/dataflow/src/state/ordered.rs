//! The index of a slot with many entries a key: a hash table per key group of keys, each with its entries in order.
//!
//! Maps, lists (entry key = a chunk's number) and state without keys (one key, which is empty) are all tables of this kind.

use hashbrown::HashTable;
use hashbrown::hash_table::OccupiedEntry;

use super::arena::{Arena, ArenaFull, EntryRef};
use super::entry::{ordered_key, split_ordered_key};
use super::small::{Entries, SmallKey};
use super::table::{Eviction, Index, Table, TableHasher, TableKey, is_mostly_empty, spread};
use crate::key_group::KeyGroup;

/// A key that has entries, tombstones included.
struct Node {
    hash: u32,
    key: SmallKey,
    entries: Entries,
    /// The epoch of the last clear: until the store has done it, the node hides what is there. 0 without a store.
    cleared: u32,
    /// Whether somebody used the key since somebody last looked for what to evict.
    used: bool,
    /// The epoch of an entry that was found to be newer than the store: no other is looked at before the store has it.
    dirty_in: u32,
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
        self.add(key, 0).entries.insert(entry_key, place);
    }

    /// Adds a key without entries.
    fn add(&mut self, key: TableKey<'_>, cleared: u32) -> &mut Node {
        let node =
            Node { hash: key.hash, key: SmallKey::new(key.bytes), entries: Entries::default(), cleared, used: true, dirty_in: 0 };
        self.heap_bytes += SmallKey::heap_bytes(key.bytes);
        self.nodes.insert_unique(spread(key.hash), node, |node| spread(node.hash)).into_mut()
    }

    /// Forgets a key and returns its entries.
    fn take(&mut self, key: TableKey<'_>) -> Option<Entries> {
        let (node, _) = self.nodes.find_entry(spread(key.hash), |node| node.is(key)).ok()?.remove();
        self.heap_bytes -= SmallKey::heap_bytes(key.bytes);
        for (entry_key, _) in node.entries.after(None) {
            self.entries -= 1;
            self.heap_bytes -= SmallKey::heap_bytes(entry_key);
        }
        self.shrink();
        Some(node.entries)
    }

    fn shrink(&mut self) {
        if is_mostly_empty(self.nodes.len(), self.nodes.capacity()) {
            self.nodes.shrink_to(self.nodes.len() * 2, |node| spread(node.hash));
        }
    }
}

impl Node {
    fn is(&self, key: TableKey<'_>) -> bool {
        self.hash == key.hash && self.key.as_bytes() == key.bytes
    }
}

/// Returns the node of a key whose hash is not known.
fn node_of<'a>(nodes: &'a mut HashTable<Node>, key: &[u8], hasher: &TableHasher) -> Option<OccupiedEntry<'a, Node>> {
    let key = TableKey { bytes: key, hash: hasher.hash(key), group: KeyGroup(0) };
    nodes.find_entry(spread(key.hash), |node| node.is(key)).ok()
}

impl Index for NodeIndex {
    // A list of entry keys grows by doubling.
    const ENTRY_BYTES: u64 = 80;

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
        let Some(mut node) = node_of(&mut self.nodes, key, hasher) else { return };
        if node.get_mut().entries.remove(entry_key, place) {
            self.entries -= 1;
            self.heap_bytes -= SmallKey::heap_bytes(entry_key);
            // A tombstone that may be forgotten is not older than a clear that may not.
            if node.get().entries.is_empty() {
                self.heap_bytes -= SmallKey::heap_bytes(key);
                node.remove();
                self.shrink();
            }
        }
    }

    fn moved(&mut self, stored_key: &[u8], place: EntryRef, moved: EntryRef, hasher: &TableHasher) {
        let (key, entry_key) = split_ordered_key(stored_key).expect("written by this table");
        let found = node_of(&mut self.nodes, key, hasher).filter(|node| node.get().entries.get(entry_key) == Some(place));
        found.expect("an entry that is there is in its index").get_mut().entries.insert(entry_key, moved);
    }

    fn is_resident(&self, _: &Arena, stored_key: &[u8], hasher: &TableHasher) -> bool {
        let Some((key, _)) = split_ordered_key(stored_key) else { return false };
        self.find(TableKey { bytes: key, hash: hasher.hash(key), group: KeyGroup(0) }).is_some()
    }

    fn evict(&mut self, arena: &mut Arena, place: EntryRef, applied: u32, hasher: &TableHasher) -> Eviction {
        let (key, _) = split_ordered_key(arena.key(place)).expect("written by this table");
        let Some(mut found) = node_of(&mut self.nodes, key, hasher) else { return Eviction::Never };
        let node = found.get_mut();
        if node.cleared > applied || node.dirty_in > applied {
            return Eviction::Never;
        }
        if std::mem::take(&mut node.used) {
            return Eviction::Later;
        }
        let written = node.entries.after(None).map(|(_, place)| arena.written(place));
        if let Some(epoch) = written.into_iter().find(|written| *written > applied) {
            node.dirty_in = epoch;
            return Eviction::Never;
        }
        let (node, _) = found.remove();
        self.heap_bytes -= SmallKey::heap_bytes(node.key.as_bytes());
        for (entry_key, place) in node.entries.after(None) {
            self.heap_bytes -= SmallKey::heap_bytes(entry_key);
            self.entries -= 1;
            arena.free(place);
        }
        self.shrink();
        Eviction::Done
    }

    #[cfg(test)]
    fn key_of(stored_key: &[u8]) -> &[u8] {
        split_ordered_key(stored_key).expect("written by this table").0
    }

    #[cfg(test)]
    fn is_cleared(&self, key: &[u8], applied: u32, hasher: &TableHasher) -> bool {
        let node = self.find(TableKey { bytes: key, hash: hasher.hash(key), group: KeyGroup(0) });
        node.is_some_and(|node| node.cleared > applied)
    }

    fn load_stored(table: &mut OrderedTable, group: KeyGroup, stored_key: &[u8]) -> Option<EntryRef> {
        let (key, entry_key) = split_ordered_key(stored_key)?;
        let key = TableKey { bytes: key, hash: table.hasher.hash(key), group };
        table.load(key);
        table.find(key, entry_key)
    }

    fn forget_clear(&mut self, key: &[u8], applied: u32, hasher: &TableHasher) {
        if let Some(node) = node_of(&mut self.nodes, key, hasher)
            && node.get().entries.is_empty()
            && node.get().cleared <= applied
        {
            self.heap_bytes -= SmallKey::heap_bytes(key);
            node.remove();
        }
    }
}

/// Many entries a key.
pub(super) type OrderedTable = Table<NodeIndex>;

impl OrderedTable {
    fn index(&self, key: TableKey<'_>) -> &NodeIndex {
        &self.groups[self.group_position(key.group)].index
    }

    /// Whether a key is resident. Notes that it was used.
    pub(super) fn use_key(&mut self, key: TableKey<'_>) -> bool {
        let nodes = &mut self.group_mut(key.group).index.nodes;
        let node = nodes.find_mut(spread(key.hash), |node| node.is(key));
        node.map(|node| node.used = true).is_some()
    }

    /// Whether a key is resident.
    pub(super) fn is_resident(&self, key: TableKey<'_>) -> bool {
        self.index(key).find(key).is_some()
    }

    /// Tells the index of an entry that the store holds.
    pub(super) fn set(&mut self, key: TableKey<'_>, entry_key: &[u8], place: EntryRef) {
        self.group_mut(key.group).index.set(key, entry_key, place, true);
    }

    /// Returns where an entry is; it may be a tombstone.
    pub(super) fn find(&self, key: TableKey<'_>, entry_key: &[u8]) -> Option<EntryRef> {
        self.index(key).find(key)?.entries.get(entry_key)
    }

    /// Returns a key's entries after `start` in order; tombstones have no value.
    pub(super) fn after<'a>(
        &'a self,
        key: TableKey<'_>,
        start: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], EntryRef, Option<&'a [u8]>)> + use<'a> {
        let entries = self.index(key).find(key).map(|node| node.entries.after(start));
        entries.into_iter().flatten().map(|(entry_key, place)| (entry_key, place, self.value(place)))
    }

    /// Returns a key's last entry, which may be a tombstone.
    pub(super) fn last(&self, key: TableKey<'_>) -> Option<(&[u8], EntryRef)> {
        self.index(key).find(key)?.entries.last()
    }

    /// Sets the value of an entry. Returns where it is.
    pub(super) fn put(&mut self, key: TableKey<'_>, entry_key: &[u8], value: &[u8]) -> Result<EntryRef, ArenaFull> {
        let known = self.find(key, entry_key);
        let mut stored_key = std::mem::take(&mut self.stored_key);
        ordered_key(&mut stored_key, key.bytes, entry_key);
        let written = match known {
            None => self.place_new(key.group, &stored_key, value, self.epoch),
            Some(place) => self.overwrite(key.group, &stored_key, place, value).map(|moved| moved.unwrap_or(place)),
        };
        self.stored_key = stored_key;
        let place = written?;
        if known != Some(place) {
            self.group_mut(key.group).index.set(key, entry_key, place, known.is_none());
        }
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
        if self.cold.is_some() {
            let epoch = self.epoch;
            self.group_mut(key.group).index.add(key, epoch);
        }
    }

    /// Adds a restored entry, replacing any other; it belongs to a completed checkpoint.
    pub(super) fn restore_put(&mut self, key: TableKey<'_>, entry_key: &[u8], value: &[u8]) -> Result<(), ArenaFull> {
        let known = self.find(key, entry_key);
        let mut stored_key = std::mem::take(&mut self.stored_key);
        ordered_key(&mut stored_key, key.bytes, entry_key);
        let written = match known {
            None => self.place_new(key.group, &stored_key, value, 0).map(Some),
            Some(place) => self.restore_over(key.group, &stored_key, place, value),
        };
        self.stored_key = stored_key;
        if let Some(place) = written? {
            self.group_mut(key.group).index.set(key, entry_key, place, known.is_none());
        }
        Ok(())
    }

    /// Removes all restored entries of a key.
    pub(super) fn restore_clear(&mut self, key: TableKey<'_>) {
        if let Some(entries) = self.group_mut(key.group).index.take(key) {
            entries.after(None).for_each(|(_, place)| self.release(place));
        }
    }
}
