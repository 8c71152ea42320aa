//! One slot's table: an index per key group over an arena of entries, and the lists that make snapshots increments.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::rc::Rc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::arena::{Arena, ArenaFull, EntryRef};
use super::snapshot::Collecting;
use crate::ids::CheckpointId;
use crate::key_group::KeyGroup;

/// A key as the table wants it: with the hash that its index uses, and its key group.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableKey<'a> {
    pub(super) bytes: &'a [u8],
    /// Seeded per process, so that nobody can choose keys that collide; unrelated to the key group's hash.
    pub(super) hash: u32,
    pub(super) group: KeyGroup,
}

/// What was written between two cuts, kept until a checkpoint at or after the later cut has completed.
pub(super) struct Interval {
    pub(super) checkpoint: CheckpointId,
    /// The last epoch before the cut.
    pub(super) cut: u32,
    pub(super) dirty: Rc<Vec<EntryRef>>,
    tombs: Vec<EntryRef>,
    /// Groups whose section in that checkpoint is a base.
    pub(super) bases: Vec<u16>,
}

/// The entries of one key group.
#[derive(Default)]
pub(super) struct Group {
    /// `hash << 32 | ref`, so that neither a mismatch nor growth touches an entry.
    pub(super) index: HashTable<u64>,
    /// Key and value bytes of live entries.
    pub(super) live_bytes: u64,
    /// Whether a completed checkpoint holds a base.
    pub(super) has_base: bool,
    /// Encoded bytes of the increments since the base.
    pub(super) delta_bytes: u64,
    /// Increments since the base.
    pub(super) deltas: u32,
}

pub(super) struct Table {
    first_group: u16,
    hasher: TableHasher,
    pub(super) groups: Vec<Group>,
    pub(super) arena: Arena,
    /// The current epoch, from 1; restored entries are of epoch 0.
    pub(super) epoch: u32,
    dirty: Vec<EntryRef>,
    tombs: Vec<EntryRef>,
    pub(super) unconfirmed: VecDeque<Interval>,
    /// The last cut that a completed checkpoint covers.
    pub(super) confirmed: u32,
    /// Snapshots that have not encoded all of their entries yet.
    pub(super) collecting: Vec<Collecting>,
    /// Tombstones of completed checkpoints, to be freed in slices: each with the cut it had to be older than.
    reap: VecDeque<(EntryRef, u32)>,
    /// Live entries of all groups, and the bytes of their keys and values.
    entries: u64,
    live_bytes: u64,
}

impl Table {
    pub(super) fn new(groups: Range<u16>, hasher: TableHasher) -> Self {
        Self {
            first_group: groups.start,
            hasher,
            groups: groups.map(|_| Group::default()).collect(),
            arena: Arena::default(),
            epoch: 1,
            dirty: Vec::new(),
            tombs: Vec::new(),
            unconfirmed: VecDeque::new(),
            confirmed: 0,
            collecting: Vec::new(),
            reap: VecDeque::new(),
            entries: 0,
            live_bytes: 0,
        }
    }

    /// Returns the number of keys with a value.
    pub(super) fn len(&self) -> u64 {
        self.entries
    }

    /// Returns about how much memory the table takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let index: usize = self.groups.iter().map(|group| group.index.capacity() * 9).sum();
        let lists = self.unconfirmed.iter().map(|interval| interval.dirty.len()).sum::<usize>() + self.dirty.capacity();
        (self.arena.allocated_bytes() + index + lists * 4) as u64
    }

    /// Returns key and value bytes of all live entries.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Returns the position of a group among the table's own.
    pub(super) fn group_position(&self, group: KeyGroup) -> usize {
        usize::from(group.0 - self.first_group)
    }

    pub(super) fn group_at(&self, position: usize) -> KeyGroup {
        KeyGroup(self.first_group + u16::try_from(position).expect("at most 32,768 groups"))
    }

    /// Returns where a key's entry is; it may be a tombstone.
    pub(super) fn find(&self, key: TableKey<'_>) -> Option<EntryRef> {
        let index = &self.groups[self.group_position(key.group)].index;
        let slot = index.find(spread(key.hash), |slot| is_key(&self.arena, *slot, key))?;
        Some(place_of(*slot))
    }

    /// Returns where the key's entry is if it has one and no other key shares its hash. Touches the index only, so that a
    /// loop over many keys waits for many cache misses at once; the caller compares the keys.
    pub(super) fn candidate(&self, key: TableKey<'_>) -> Option<EntryRef> {
        let index = &self.groups[self.group_position(key.group)].index;
        index.find(spread(key.hash), |slot| hash_of(*slot) == key.hash).map(|slot| place_of(*slot))
    }

    /// Returns the value at `place`; `None` for a tombstone.
    pub(super) fn value(&self, place: EntryRef) -> Option<&[u8]> {
        let entry = self.arena.entry(place);
        (!entry.deleted).then_some(entry.value)
    }

    /// Sets the value of a key, whose entry is at `known` if it has one. Returns where it is afterwards.
    pub(super) fn put(&mut self, key: TableKey<'_>, known: Option<EntryRef>, value: &[u8]) -> Result<EntryRef, ArenaFull> {
        let Some(place) = known else {
            return self.insert(key, value, self.epoch);
        };
        self.before_write(place);
        let (was_deleted, old_bytes) = {
            let entry = self.arena.entry(place);
            (entry.deleted, entry.value.len() as u64)
        };
        let moved = if self.arena.set_value(place, value) { place } else { self.relocate(key, place, value)? };
        let (key_bytes, gone) = if was_deleted { (key.bytes.len() as u64, 0) } else { (0, old_bytes) };
        self.count(key.group, key_bytes + value.len() as u64, gone);
        self.entries += u64::from(was_deleted);
        Ok(moved)
    }

    /// Deletes the value of a key whose entry is at `place`; does nothing if it has none.
    pub(super) fn delete(&mut self, key: TableKey<'_>, place: EntryRef) {
        let entry = self.arena.entry(place);
        if entry.deleted {
            return;
        }
        let bytes = (entry.key.len() + entry.value.len()) as u64;
        self.before_write(place);
        self.arena.set_deleted(place);
        self.list_tomb(place);
        self.count(key.group, 0, bytes);
        self.entries -= 1;
    }

    /// Keeps the accounts of live bytes.
    fn count(&mut self, group: KeyGroup, come: u64, gone: u64) {
        let position = self.group_position(group);
        let group = &mut self.groups[position];
        group.live_bytes = group.live_bytes + come - gone;
        self.live_bytes = self.live_bytes + come - gone;
    }

    /// Adds a restored entry, replacing any other; it belongs to a completed checkpoint.
    pub(super) fn restore_put(&mut self, key: TableKey<'_>, value: &[u8]) -> Result<(), ArenaFull> {
        match self.find(key) {
            None => self.insert(key, value, 0).map(drop),
            Some(place) => {
                let old = self.arena.entry(place).value.len() as u64;
                if !self.arena.set_value(place, value) {
                    let moved = self.arena.insert(0, key.group, key.bytes, value)?;
                    self.repoint(key, place, moved);
                    self.arena.free(place);
                }
                self.count(key.group, value.len() as u64, old);
                Ok(())
            }
        }
    }

    /// Removes a restored entry.
    pub(super) fn restore_delete(&mut self, key: TableKey<'_>) {
        if let Some(place) = self.find(key) {
            let entry = self.arena.entry(place);
            let bytes = (entry.key.len() + entry.value.len()) as u64;
            self.count(key.group, 0, bytes);
            self.entries -= 1;
            self.remove(key.group, place);
        }
    }

    fn insert(&mut self, key: TableKey<'_>, value: &[u8], epoch: u32) -> Result<EntryRef, ArenaFull> {
        let place = self.arena.insert(epoch, key.group, key.bytes, value)?;
        let position = self.group_position(key.group);
        let group = &mut self.groups[position];
        group.index.insert_unique(spread(key.hash), slot_of(key.hash, place), |slot| spread(hash_of(*slot)));
        self.count(key.group, (key.bytes.len() + value.len()) as u64, 0);
        self.entries += 1;
        if epoch != 0 {
            self.list(place);
        }
        Ok(place)
    }

    /// Must be called before an entry changes: hands its value to the snapshots that still need it, and lists it.
    fn before_write(&mut self, place: EntryRef) {
        let written = self.arena.written(place);
        if written == self.epoch {
            return;
        }
        self.hand_to_snapshots(place);
        self.arena.set_written(place, self.epoch);
        self.list(place);
    }

    fn hand_to_snapshots(&mut self, place: EntryRef) {
        for collecting in &mut self.collecting {
            collecting.save(self.arena.entry(place));
        }
    }

    /// Moves an entry of another size class; its old place must have been handed to the snapshots.
    fn relocate(&mut self, key: TableKey<'_>, place: EntryRef, value: &[u8]) -> Result<EntryRef, ArenaFull> {
        let moved = self.arena.insert(self.epoch, key.group, key.bytes, value)?;
        self.repoint(key, place, moved);
        self.arena.free(place);
        self.list(moved);
        Ok(moved)
    }

    fn repoint(&mut self, key: TableKey<'_>, place: EntryRef, moved: EntryRef) {
        let position = self.group_position(key.group);
        let slot = self.groups[position].index.find_mut(spread(key.hash), |slot| place_of(*slot) == place);
        *slot.expect("an entry that was found is in its index") = slot_of(key.hash, moved);
    }

    /// Removes an entry from its index and frees it.
    fn remove(&mut self, group: KeyGroup, place: EntryRef) {
        let hash = self.hasher.hash(self.arena.key(place));
        let position = self.group_position(group);
        if let Ok(slot) = self.groups[position].index.find_entry(spread(hash), |slot| place_of(*slot) == place) {
            slot.remove();
        }
        self.arena.free(place);
    }

    /// Lists an entry as written since the last cut.
    fn list(&mut self, place: EntryRef) {
        if self.dirty.len() == self.dirty.capacity() && self.dirty.len() as u64 > 2 * self.entries + 1024 {
            // Entries that move at every write are listed at every write: drop what is stale before growing.
            compact(&mut self.dirty, |place| self.arena.written(*place) == self.epoch);
        }
        self.dirty.push(place);
    }

    fn list_tomb(&mut self, place: EntryRef) {
        if self.tombs.len() == self.tombs.capacity() && self.tombs.len() as u64 > 2 * self.entries + 1024 {
            compact(&mut self.tombs, |tomb| self.arena.entry(*tomb).deleted);
        }
        self.tombs.push(place);
    }

    /// Closes the interval at a cut: takes its lists and starts the next epoch. Returns the cut.
    pub(super) fn close_interval(&mut self, checkpoint: CheckpointId) -> u32 {
        let cut = self.epoch;
        self.epoch += 1;
        let dirty = Rc::new(std::mem::take(&mut self.dirty));
        let tombs = std::mem::take(&mut self.tombs);
        self.unconfirmed.push_back(Interval { checkpoint, cut, dirty, tombs, bases: Vec::new() });
        cut
    }

    /// Takes note that a checkpoint has completed: what was written before its cut needs no listing any more.
    pub(super) fn confirm(&mut self, checkpoint: CheckpointId) {
        while self.unconfirmed.front().is_some_and(|interval| interval.checkpoint <= checkpoint) {
            let interval = self.unconfirmed.pop_front().expect("just seen");
            self.confirmed = interval.cut;
            self.reap.extend(interval.tombs.into_iter().map(|tomb| (tomb, interval.cut)));
            if interval.checkpoint == checkpoint {
                for position in interval.bases {
                    let group = &mut self.groups[usize::from(position)];
                    (group.has_base, group.delta_bytes, group.deltas) = (true, 0, 0);
                }
            }
        }
    }

    /// Frees up to `budget` tombstones of completed checkpoints. Returns whether there was one.
    pub(super) fn reap_some(&mut self, budget: usize) -> bool {
        let due = self.reap.len().min(budget);
        for (tomb, cut) in self.reap.drain(..due).collect::<Vec<_>>() {
            let entry = self.arena.entry(tomb);
            if entry.deleted && entry.written <= cut {
                let group = entry.group;
                self.hand_to_snapshots(tomb);
                self.remove(group, tomb);
            }
        }
        due > 0
    }
}

/// Drops what is listed twice, or need not be listed.
fn compact(list: &mut Vec<EntryRef>, keep: impl Fn(&EntryRef) -> bool) {
    list.sort_unstable();
    list.dedup();
    list.retain(keep);
}

/// Hashes keys for the index of a table. Seeded, so that keys cannot be chosen to collide.
#[derive(Clone)]
pub(super) struct TableHasher(FixedState);

impl TableHasher {
    pub(super) fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    pub(super) fn hash(&self, key: &[u8]) -> u32 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        u32::try_from(hasher.finish() >> 32).expect("32 bits")
    }
}

/// Whether two keys are equal. Most are short: two words are compared without a call.
pub(super) fn same_key(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match (a.first_chunk::<8>(), a.last_chunk::<8>(), b.first_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a_first), Some(a_last), Some(b_first), Some(b_last)) if a.len() <= 16 => a_first == b_first && a_last == b_last,
        _ => a == b,
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

/// Spreads 32 bits of hash over the 64 that the index looks at: its low bits choose the bucket, its high bits the tag.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
