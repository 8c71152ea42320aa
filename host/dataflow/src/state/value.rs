//! The index of a slot with one value a key: a hash table per key group.

use hashbrown::HashTable;

use super::arena::{Arena, ArenaFull, EntryRef};
use super::table::{Eviction, Index, Table, TableHasher, TableKey, is_mostly_empty, same_key, spread};
use crate::key_group::KeyGroup;

/// `hash << 32 | ref`, so that neither a mismatch nor growth touches an entry.
#[derive(Default)]
pub(super) struct HashIndex(HashTable<u64>);

impl HashIndex {
    /// Tells where an entry is that had to move.
    fn repoint(&mut self, hash: u32, place: EntryRef, moved: EntryRef) {
        let slot = self.0.find_mut(spread(hash), |slot| place_of(*slot) == place);
        *slot.expect("an entry that was found is in its index") = slot_of(hash, moved);
    }
}

impl Index for HashIndex {
    const ENTRY_BYTES: u64 = 14;

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn places(&self) -> Vec<EntryRef> {
        self.0.iter().map(|slot| place_of(*slot)).collect()
    }

    fn memory_bytes(&self) -> usize {
        self.0.capacity() * 9
    }

    fn forget(&mut self, stored_key: &[u8], place: EntryRef, hasher: &TableHasher) {
        if let Ok(slot) = self.0.find_entry(spread(hasher.hash(stored_key)), |slot| place_of(*slot) == place) {
            slot.remove();
        }
        if is_mostly_empty(self.0.len(), self.0.capacity()) {
            self.0.shrink_to(self.0.len() * 2, |slot| spread(hash_of(*slot)));
        }
    }

    fn moved(&mut self, stored_key: &[u8], place: EntryRef, moved: EntryRef, hasher: &TableHasher) {
        self.repoint(hasher.hash(stored_key), place, moved);
    }

    fn is_resident(&self, arena: &Arena, stored_key: &[u8], hasher: &TableHasher) -> bool {
        let key = TableKey { bytes: stored_key, hash: hasher.hash(stored_key), group: KeyGroup(0) };
        self.0.find(spread(key.hash), |slot| is_key(arena, *slot, key)).is_some()
    }

    fn evict(&mut self, arena: &mut Arena, place: EntryRef, _: u32, hasher: &TableHasher) -> Eviction {
        if arena.take_used(place) {
            return Eviction::Later;
        }
        self.forget(arena.key(place), place, hasher);
        arena.free(place);
        Eviction::Done
    }

    #[cfg(test)]
    fn key_of(stored_key: &[u8]) -> &[u8] {
        stored_key
    }

    #[cfg(test)]
    fn is_cleared(&self, _: &[u8], _: u32, _: &TableHasher) -> bool {
        false
    }

    fn forget_clear(&mut self, _: &[u8], _: u32, _: &TableHasher) {}

    fn load_stored(table: &mut ValueTable, group: KeyGroup, stored_key: &[u8]) -> Option<EntryRef> {
        let key = TableKey { bytes: stored_key, hash: table.hasher.hash(stored_key), group };
        table.load(key, &mut Vec::new())
    }
}

/// One value a key.
pub(super) type ValueTable = Table<HashIndex>;

impl ValueTable {
    /// Returns where a key's entry is; it may be a tombstone.
    pub(super) fn find(&self, key: TableKey<'_>) -> Option<EntryRef> {
        let index = &self.groups[self.group_position(key.group)].index.0;
        let slot = index.find(spread(key.hash), |slot| is_key(&self.arena, *slot, key))?;
        Some(place_of(*slot))
    }

    /// Returns where the key's entry is if it has one and no other key shares its hash. Touches the index only, so that a
    /// loop over many keys waits for many cache misses at once; the caller compares the keys.
    pub(super) fn candidate(&self, key: TableKey<'_>) -> Option<EntryRef> {
        let index = &self.groups[self.group_position(key.group)].index.0;
        index.find(spread(key.hash), |slot| hash_of(*slot) == key.hash).map(|slot| place_of(*slot))
    }

    /// Sets the value of a key, whose entry is at `known` if it has one. Returns where it is afterwards.
    pub(super) fn put(&mut self, key: TableKey<'_>, known: Option<EntryRef>, value: &[u8]) -> Result<EntryRef, ArenaFull> {
        let Some(place) = known else {
            return self.insert(key, value, self.epoch);
        };
        match self.overwrite(key.group, key.bytes, place, value)? {
            None => Ok(place),
            Some(moved) => {
                self.group_mut(key.group).index.repoint(key.hash, place, moved);
                Ok(moved)
            }
        }
    }

    /// Tells the index of an entry that the store holds.
    pub(super) fn set(&mut self, key: TableKey<'_>, place: EntryRef) {
        let index = &mut self.group_mut(key.group).index.0;
        index.insert_unique(spread(key.hash), slot_of(key.hash, place), |slot| spread(hash_of(*slot)));
    }

    /// Adds a restored entry, replacing any other; it belongs to a completed checkpoint.
    pub(super) fn restore_put(&mut self, key: TableKey<'_>, value: &[u8]) -> Result<(), ArenaFull> {
        let Some(place) = self.find(key) else {
            return self.insert(key, value, 0).map(drop);
        };
        if let Some(moved) = self.restore_over(key.group, key.bytes, place, value)? {
            self.group_mut(key.group).index.repoint(key.hash, place, moved);
        }
        Ok(())
    }

    fn insert(&mut self, key: TableKey<'_>, value: &[u8], epoch: u32) -> Result<EntryRef, ArenaFull> {
        let place = self.place_new(key.group, key.bytes, value, epoch)?;
        self.set(key, place);
        Ok(place)
    }
}

fn is_key(arena: &Arena, slot: u64, key: TableKey<'_>) -> bool {
    hash_of(slot) == key.hash && same_key(arena.key(place_of(slot)), key.bytes)
}

fn slot_of(hash: u32, place: EntryRef) -> u64 {
    u64::from(hash) << 32 | u64::from(place.0)
}

fn place_of(slot: u64) -> EntryRef {
    EntryRef(u32::try_from(slot & 0xffff_ffff).expect("32 bits"))
}

fn hash_of(slot: u64) -> u32 {
    u32::try_from(slot >> 32).expect("32 bits")
}
