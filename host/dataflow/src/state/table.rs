//! One slot's table: an index per key group over an arena of entries, and the lists that make snapshots increments.
//!
//! What an index looks like is that of [`super::value`] or [`super::ordered`]; everything about epochs is here.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::rc::Rc;

use foldhash::fast::FixedState;

use super::arena::{Arena, ArenaFull, EntryRef};
use super::cold::Cold;
use super::compaction::Compaction;
use super::eviction::Candidates;
use super::snapshot::{Collecting, GroupSection};
use super::ttl::Expiry;
use crate::ids::CheckpointId;
use crate::key_group::KeyGroup;

/// Room for so many tombstones that wait to be freed is kept.
const REAP_KEPT: usize = 1024;

/// A key as the table wants it: with the hash that its index uses, and its key group.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableKey<'a> {
    pub(super) bytes: &'a [u8],
    /// Seeded per process, so that nobody can choose keys that collide; unrelated to the key group's hash.
    pub(super) hash: u32,
    pub(super) group: KeyGroup,
}

/// Finds the entries of one key group.
pub(super) trait Index: Default {
    fn is_empty(&self) -> bool;

    /// Returns where all entries are, tombstones included.
    fn places(&self) -> Vec<EntryRef>;

    /// Returns about how much memory the index takes.
    fn memory_bytes(&self) -> usize;

    /// Forgets an entry whose key, as the arena holds it, is `stored_key`.
    fn forget(&mut self, stored_key: &[u8], place: EntryRef, hasher: &TableHasher);

    /// An entry whose key, as the arena holds it, is `stored_key` has moved.
    fn moved(&mut self, stored_key: &[u8], place: EntryRef, moved: EntryRef, hasher: &TableHasher);

    /// Whether the index knows the key of a stored key: then a store has nothing to say of it.
    fn is_resident(&self, arena: &Arena, stored_key: &[u8], hasher: &TableHasher) -> bool;

    /// Evicts the key of an entry that the store holds, as it was at the epoch `applied`, unless the key was used since
    /// this was last tried.
    fn evict(&mut self, arena: &mut Arena, place: EntryRef, applied: u32, hasher: &TableHasher) -> Eviction;

    /// Returns the key of a stored key.
    #[cfg(test)]
    fn key_of(stored_key: &[u8]) -> &[u8];

    /// Whether a clear of the key is newer than the epoch `applied`.
    #[cfg(test)]
    fn is_cleared(&self, key: &[u8], applied: u32, hasher: &TableHasher) -> bool;

    /// Forgets that a key was cleared up to the epoch `applied`, if nothing of it is left.
    fn forget_clear(&mut self, key: &[u8], applied: u32, hasher: &TableHasher);

    /// Makes the key of a stored key resident, and returns where its entry is.
    fn load_stored(table: &mut Table<Self>, group: KeyGroup, stored_key: &[u8]) -> Option<EntryRef>
    where
        Self: Sized;

    /// About the bytes of an index for each entry.
    const ENTRY_BYTES: u64;
}

/// What came of trying to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// It is gone.
    Done,
    /// It was used, or must not leave now: try again.
    Later,
    /// The store does not hold the key as it is. What it lacks is queued when it does.
    Never,
}

/// A key that was cleared: none of the entries that it had is left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Clear {
    pub(super) group: KeyGroup,
    pub(super) key: Box<[u8]>,
}

impl Clear {
    /// Returns about how much memory it takes.
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 16 + self.key.len()
    }
}

/// What was written between two cuts, kept until a checkpoint at or after the later cut has completed.
pub(super) struct Interval {
    pub(super) checkpoint: CheckpointId,
    /// The last epoch before the cut.
    pub(super) cut: u32,
    pub(super) dirty: Rc<Vec<EntryRef>>,
    pub(super) clears: Rc<Vec<Clear>>,
    clear_bytes: usize,
    tombs: Vec<EntryRef>,
    /// Groups whose section in that checkpoint is a base.
    pub(super) bases: Vec<u16>,
}

/// What a completed checkpoint deleted, until the store has deleted it, too.
struct Unapplied {
    checkpoint: CheckpointId,
    cut: u32,
    dirty: Rc<Vec<EntryRef>>,
    tombs: Vec<EntryRef>,
    clears: Rc<Vec<Clear>>,
}

/// The entries of one key group.
#[derive(Default)]
pub(super) struct Group<I> {
    pub(super) index: I,
    /// Key and value bytes of live entries.
    pub(super) live_bytes: u64,
    /// Whether a completed checkpoint holds a base that increments may continue.
    pub(super) has_base: bool,
    /// Whether a checkpoint may hold anything of the group: then an empty group is written, too.
    pub(super) may_be_stored: bool,
    /// Encoded bytes of the increments since the base.
    pub(super) delta_bytes: u64,
    /// Increments since the base.
    pub(super) deltas: u32,
}

pub(super) struct Table<I> {
    first_group: u16,
    pub(super) hasher: TableHasher,
    pub(super) groups: Vec<Group<I>>,
    pub(super) arena: Arena,
    /// The current epoch, from 1; restored entries are of epoch 0.
    pub(super) epoch: u32,
    pub(super) dirty: Vec<EntryRef>,
    pub(super) tombs: Vec<EntryRef>,
    clears: Vec<Clear>,
    /// What those take in memory.
    clear_bytes: usize,
    pub(super) unconfirmed: VecDeque<Interval>,
    /// The last cut that a completed checkpoint covers.
    pub(super) confirmed: u32,
    /// Snapshots that have not encoded all of their entries yet.
    pub(super) collecting: Vec<Collecting>,
    /// Memory for the next.
    pub(super) spare_sections: Vec<GroupSection>,
    /// Tombstones of completed checkpoints, to be freed in slices: each with the cut it had to be older than.
    reap: VecDeque<(EntryRef, u32)>,
    /// The store behind the table, if there is one.
    pub(super) cold: Option<Cold>,
    /// The last cut whose state is in the store: what was written up to it may be evicted.
    pub(super) applied: u32,
    unapplied: VecDeque<Unapplied>,
    /// Cleared keys of which the store has nothing left.
    reap_clears: VecDeque<(Rc<Vec<Clear>>, usize)>,
    /// What may be evicted.
    pub(super) candidates: Candidates,
    pub(super) compaction: Compaction,
    /// When values expire, for a slot whose values do.
    pub(super) expiry: Option<Expiry>,
    /// For keys as the arena holds them; reused.
    pub(super) stored_key: Vec<u8>,
    /// Live entries of all groups, and the bytes of their keys and values.
    entries: u64,
    live_bytes: u64,
}

impl<I: Index> Table<I> {
    pub(super) fn new(groups: Range<u16>, hasher: TableHasher, expiry: Option<Expiry>) -> Self {
        Self {
            first_group: groups.start,
            hasher,
            groups: groups.map(|_| Group::default()).collect(),
            arena: Arena::default(),
            epoch: 1,
            dirty: Vec::new(),
            tombs: Vec::new(),
            clears: Vec::new(),
            clear_bytes: 0,
            unconfirmed: VecDeque::new(),
            confirmed: 0,
            collecting: Vec::new(),
            spare_sections: Vec::new(),
            reap: VecDeque::new(),
            cold: None,
            applied: 0,
            unapplied: VecDeque::new(),
            reap_clears: VecDeque::new(),
            candidates: Candidates::default(),
            compaction: Compaction::default(),
            expiry,
            stored_key: Vec::new(),
            entries: 0,
            live_bytes: 0,
        }
    }

    /// Returns the number of entries with a value.
    pub(super) fn len(&self) -> u64 {
        self.entries
    }

    /// Returns about how much memory the table takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let index: usize = self.groups.iter().map(|group| group.index.memory_bytes()).sum();
        let lists = self.unconfirmed.iter().map(|interval| interval.dirty.len()).sum::<usize>() + self.dirty.capacity();
        let clears = self.unconfirmed.iter().map(|interval| interval.clear_bytes).sum::<usize>() + self.clear_bytes;
        (self.arena.allocated_bytes() + index + lists * 4 + clears) as u64
    }

    /// Returns about how much memory is in use, which evicting makes less.
    pub(super) fn resident_bytes(&self) -> u64 {
        let of = |unapplied: &Unapplied| unapplied.tombs.len() + unapplied.dirty.len();
        let unapplied = self.unapplied.iter().map(of).sum::<usize>() + self.candidates.len();
        let lists = self.unconfirmed.iter().map(|interval| interval.dirty.len()).sum::<usize>() + self.dirty.len() + unapplied;
        (self.arena.used_bytes() + lists * 4) as u64 + self.arena.entries() as u64 * I::ENTRY_BYTES
    }

    /// Returns key and value bytes of all live entries.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Returns the position of a group among the table's own.
    #[inline]
    pub(super) fn group_position(&self, group: KeyGroup) -> usize {
        usize::from(group.0 - self.first_group)
    }

    pub(super) fn group_at(&self, position: usize) -> KeyGroup {
        KeyGroup(self.first_group + u16::try_from(position).expect("at most 32,768 groups"))
    }

    pub(super) fn group_mut(&mut self, group: KeyGroup) -> &mut Group<I> {
        let position = self.group_position(group);
        &mut self.groups[position]
    }

    /// Returns the value at `place`; `None` for a tombstone.
    pub(super) fn value(&self, place: EntryRef) -> Option<&[u8]> {
        let entry = self.arena.entry(place);
        (!entry.deleted).then_some(entry.value)
    }

    /// Places an entry that its index does not know yet. Returns where.
    pub(super) fn place_new(
        &mut self,
        group: KeyGroup,
        stored_key: &[u8],
        value: &[u8],
        epoch: u32,
    ) -> Result<EntryRef, ArenaFull> {
        let place = self.arena.insert(epoch, group, stored_key, value)?;
        self.count(group, (stored_key.len() + value.len()) as u64, 0);
        self.entries += 1;
        if epoch != 0 {
            self.list(place);
        }
        Ok(place)
    }

    /// Writes the value of an entry there is. Returns where it is if it had to move: its index must be told.
    pub(super) fn overwrite(
        &mut self,
        group: KeyGroup,
        stored_key: &[u8],
        place: EntryRef,
        value: &[u8],
    ) -> Result<Option<EntryRef>, ArenaFull> {
        self.before_write(place);
        let (was_deleted, old_bytes) = {
            let entry = self.arena.entry(place);
            (entry.deleted, entry.value.len() as u64)
        };
        let moved = match self.arena.set_value(place, value) {
            true => None,
            false => {
                // Its old place has been handed to the snapshots.
                let moved = self.arena.insert(self.epoch, group, stored_key, value)?;
                self.arena.free(place);
                self.list(moved);
                Some(moved)
            }
        };
        let (key_bytes, gone) = if was_deleted { (stored_key.len() as u64, 0) } else { (0, old_bytes) };
        self.count(group, key_bytes + value.len() as u64, gone);
        self.entries += u64::from(was_deleted);
        Ok(moved)
    }

    /// Replaces the value of a restored entry. Returns where it is if it had to move.
    pub(super) fn restore_over(
        &mut self,
        group: KeyGroup,
        stored_key: &[u8],
        place: EntryRef,
        value: &[u8],
    ) -> Result<Option<EntryRef>, ArenaFull> {
        let old = self.arena.entry(place).value.len() as u64;
        let moved = match self.arena.set_value(place, value) {
            true => None,
            false => {
                let moved = self.arena.insert(0, group, stored_key, value)?;
                self.arena.free(place);
                Some(moved)
            }
        };
        self.count(group, value.len() as u64, old);
        Ok(moved)
    }

    /// Deletes the entry at `place`; does nothing if it is a tombstone.
    pub(super) fn delete(&mut self, place: EntryRef) {
        let entry = self.arena.entry(place);
        if entry.deleted {
            return;
        }
        let (group, bytes) = (entry.group, (entry.key.len() + entry.value.len()) as u64);
        self.before_write(place);
        self.arena.set_deleted(place);
        self.list_tomb(place);
        self.count(group, 0, bytes);
        self.entries -= 1;
    }

    /// Writes bytes into the value at `place`: its length stays.
    pub(super) fn patch(&mut self, place: EntryRef, offsets: impl IntoIterator<Item = usize>, bytes: &[u8]) {
        self.before_write(place);
        let value = self.arena.value_mut(place);
        for offset in offsets {
            value[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Frees an entry that its index has forgotten: a clear covers it.
    pub(super) fn release(&mut self, place: EntryRef) {
        if self.arena.written(place) != self.epoch {
            self.hand_to_snapshots(place);
        }
        self.uncount(place);
        self.arena.free(place);
    }

    /// Removes a restored entry.
    pub(super) fn restore_remove(&mut self, place: EntryRef) {
        self.uncount(place);
        self.forget(place);
    }

    fn uncount(&mut self, place: EntryRef) {
        let entry = self.arena.entry(place);
        if !entry.deleted {
            let (group, bytes) = (entry.group, (entry.key.len() + entry.value.len()) as u64);
            self.count(group, 0, bytes);
            self.entries -= 1;
        }
    }

    /// Sets the accounts of a table whose entries are all in the store.
    pub(super) fn set_accounts(&mut self, entries: u64, live_bytes: &[u64]) {
        self.entries = entries;
        self.live_bytes = live_bytes.iter().sum();
        for (group, live_bytes) in self.groups.iter_mut().zip(live_bytes) {
            group.live_bytes = *live_bytes;
        }
    }

    /// Keeps the accounts of live bytes.
    #[inline]
    fn count(&mut self, group: KeyGroup, come: u64, gone: u64) {
        let group = self.group_mut(group);
        group.live_bytes = group.live_bytes + come - gone;
        self.live_bytes = self.live_bytes + come - gone;
    }

    /// Must be called before an entry changes: hands its value to the snapshots that still need it, and lists it.
    #[inline]
    pub(super) fn before_write(&mut self, place: EntryRef) {
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

    /// Removes an entry from its index and frees it.
    fn forget(&mut self, place: EntryRef) {
        let entry = self.arena.entry(place);
        let position = usize::from(entry.group.0 - self.first_group);
        self.groups[position].index.forget(entry.key, place, &self.hasher);
        self.arena.free(place);
    }

    /// Lists an entry as written since the last cut.
    pub(super) fn list(&mut self, place: EntryRef) {
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

    /// Lists a key as cleared since the last cut. All its entries must have been released.
    pub(super) fn list_clear(&mut self, group: KeyGroup, key: &[u8]) {
        if self.clears.len() == self.clears.capacity() && self.clears.len() as u64 > 2 * self.entries + 1024 {
            compact(&mut self.clears, |_| true);
            self.clear_bytes = self.clears.iter().map(Clear::memory_bytes).sum();
        }
        let clear = Clear { group, key: key.into() };
        self.clear_bytes += clear.memory_bytes();
        self.clears.push(clear);
    }

    /// Closes the interval at a cut: takes its lists and starts the next epoch. Returns the cut.
    pub(super) fn close_interval(&mut self, checkpoint: CheckpointId) -> u32 {
        let cut = self.epoch;
        self.epoch += 1;
        let dirty = Rc::new(std::mem::take(&mut self.dirty));
        // A key that was cleared twice is listed twice: looking for it here would take time while everything waits.
        let clears = std::mem::take(&mut self.clears);
        let clear_bytes = std::mem::take(&mut self.clear_bytes);
        let tombs = std::mem::take(&mut self.tombs);
        self.unconfirmed.push_back(Interval {
            checkpoint,
            cut,
            dirty,
            clears: Rc::new(clears),
            clear_bytes,
            tombs,
            bases: Vec::new(),
        });
        cut
    }

    /// Takes note that a checkpoint has completed: what was written before its cut needs no listing any more.
    pub(super) fn confirm(&mut self, checkpoint: CheckpointId) {
        while self.unconfirmed.front().is_some_and(|interval| interval.checkpoint <= checkpoint) {
            let interval = self.unconfirmed.pop_front().expect("just seen");
            self.confirmed = interval.cut;
            let Interval { cut, dirty, tombs, clears, .. } = interval;
            match self.cold {
                None => self.reap.extend(tombs.into_iter().map(|tomb| (tomb, cut))),
                // They hide what the store holds.
                Some(_) => self.unapplied.push_back(Unapplied { checkpoint: interval.checkpoint, cut, dirty, tombs, clears }),
            }
            if interval.checkpoint == checkpoint {
                for position in interval.bases {
                    let group = &mut self.groups[usize::from(position)];
                    (group.has_base, group.delta_bytes, group.deltas) = (true, 0, 0);
                }
            }
        }
    }

    /// Takes note that the store holds the state of a completed checkpoint.
    pub(super) fn applied(&mut self, checkpoint: CheckpointId) {
        while self.unapplied.front().is_some_and(|unapplied| unapplied.checkpoint <= checkpoint) {
            let Unapplied { cut, dirty, tombs, clears, .. } = self.unapplied.pop_front().expect("just seen");
            self.applied = cut;
            self.candidates.add_written(cut, dirty);
            self.reap.extend(tombs.into_iter().map(|tomb| (tomb, cut)));
            if !clears.is_empty() {
                self.reap_clears.push_back((clears, 0));
            }
        }
    }

    fn reap_clears(&mut self, budget: usize) -> bool {
        let Some((clears, from)) = self.reap_clears.pop_front() else { return false };
        let to = clears.len().min(from + budget);
        for Clear { group, key } in &clears[from..to] {
            let position = self.group_position(*group);
            self.groups[position].index.forget_clear(key, self.applied, &self.hasher);
        }
        if to < clears.len() {
            self.reap_clears.push_front((clears, to));
        }
        true
    }

    /// Frees up to `budget` tombstones of completed checkpoints. Returns whether there was one.
    pub(super) fn reap_some(&mut self, budget: usize) -> bool {
        let due = self.reap.len().min(budget);
        for (tomb, cut) in self.reap.drain(..due).collect::<Vec<_>>() {
            let entry = self.arena.entry(tomb);
            if entry.deleted && entry.written <= cut {
                self.hand_to_snapshots(tomb);
                self.forget(tomb);
            }
        }
        if self.reap.is_empty() && self.reap.capacity() > REAP_KEPT {
            self.reap = VecDeque::new();
        }
        self.reap_clears(budget) || due > 0
    }

    /// Returns the epoch of the oldest list of entries that was closed and is still needed: no list refers to a place that
    /// was freed for good before it.
    pub(super) fn oldest_list(&self) -> u32 {
        let closed = self.unconfirmed.front().map(|interval| interval.cut);
        let unapplied = self.unapplied.front().map(|unapplied| unapplied.cut);
        let lists = [closed, unapplied, self.reap.front().map(|(_, cut)| *cut), self.candidates.oldest_written()];
        let snapshots = self.collecting.iter().map(Collecting::oldest_list);
        lists.into_iter().flatten().chain(snapshots).min().unwrap_or(u32::MAX)
    }
}

/// Drops what is listed twice, or need not be listed.
fn compact<T: Ord>(list: &mut Vec<T>, keep: impl Fn(&T) -> bool) {
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

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u32 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        u32::try_from(hasher.finish() >> 32).expect("32 bits")
    }
}

/// Whether two keys are equal. Most are short: two words are compared without a call.
#[inline]
pub(super) fn same_key(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match (a.first_chunk::<8>(), a.last_chunk::<8>(), b.first_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a_first), Some(a_last), Some(b_first), Some(b_last)) if a.len() <= 16 => a_first == b_first && a_last == b_last,
        _ => a == b,
    }
}

/// Whether so large an index should be a smaller one.
pub(super) fn is_mostly_empty(len: usize, capacity: usize) -> bool {
    len * 4 < capacity && capacity > 28
}

/// Spreads 32 bits of hash over the 64 that an index looks at: its low bits choose the bucket, its high bits the tag.
#[inline]
pub(super) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
