//! Eviction: what the store holds leaves memory when that runs over, the longest unused first (second chance).
//!
//! Candidates are queued: entries that were read from the store, and what a checkpoint wrote once the store holds it. So
//! looking for something to evict takes as long as there is something, whatever else is in memory.

use std::collections::VecDeque;
use std::rc::Rc;

use super::arena::EntryRef;
use super::backing::Backing;
use super::subtask::{Slot, SlotTable, SubtaskState, on_table};
use super::table::{Eviction, Index, Table};

/// Beyond this multiple of its memory a subtask takes no more input until a checkpoint has let it evict.
const HOLD_FACTOR: u64 = 2;
/// Candidates that are tried in one slice, at most, while memory runs over: more than a call reads.
const EVICT_BUDGET: usize = 4096;
/// Candidates that are tried between two looks at the memory.
const EVICT_STEP: usize = 64;
/// Written entries that are queued in one slice.
const QUEUE_BUDGET: usize = 512;

/// What a subtask lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPressure {
    /// Nothing.
    None,
    /// Memory: a checkpoint would let it evict.
    Checkpoint,
    /// Memory: it must not take more input before a checkpoint has completed.
    Hold,
}

/// Entries of one table that the store may hold.
#[derive(Default)]
pub(super) struct Candidates {
    /// What completed checkpoints wrote and the store holds by now, with the epoch of each list, and how much of the first list has been queued.
    written: VecDeque<(u32, Rc<Vec<EntryRef>>)>,
    next: usize,
    /// Each carries a mark in the arena, unless its place was freed meanwhile.
    queue: VecDeque<EntryRef>,
}

impl Candidates {
    pub(super) fn add_written(&mut self, epoch: u32, written: Rc<Vec<EntryRef>>) {
        if !written.is_empty() {
            self.written.push_back((epoch, written));
        }
    }

    /// Returns the epoch of the oldest list that has not been queued.
    pub(super) fn oldest_written(&self) -> Option<u32> {
        self.written.front().map(|(epoch, _)| *epoch)
    }

    /// Drops candidates that need not be queued, up to `budget` from the front; the others get behind. `seen` is how many
    /// have been looked at. Returns whether all have.
    pub(super) fn sweep(&mut self, seen: &mut usize, keep: impl Fn(EntryRef) -> bool, budget: usize) -> bool {
        let most = self.queue.len().min(budget);
        for _ in 0..most {
            if let Some(place) = self.queue.pop_front().filter(|place| keep(*place)) {
                self.queue.push_back(place);
            }
        }
        *seen += most;
        // What is added comes behind, and is looked at in vain.
        *seen >= self.queue.len()
    }

    /// Queues an entry, which has been marked.
    pub(super) fn add(&mut self, place: EntryRef) {
        self.queue.push_back(place);
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.written.iter().map(|(_, list)| list.len()).sum::<usize>() - self.next
    }
}

impl<I: Index> Table<I> {
    /// Queues up to `budget` entries that were written. Returns whether there was one.
    fn queue_written(&mut self, budget: usize) -> bool {
        let Some((_, list)) = self.candidates.written.front().cloned() else { return false };
        let from = self.candidates.next;
        let some = &list[from..list.len().min(from + budget)];
        self.arena.warm(some);
        for place in some {
            // What was written again is listed again; what is freed was written never.
            if self.arena.written(*place) <= self.applied && self.arena.set_queued(*place) {
                self.candidates.queue.push_back(*place);
            }
        }
        self.candidates.next += some.len();
        if self.candidates.next == list.len() {
            self.candidates.next = 0;
            self.candidates.written.pop_front();
        }
        self.forget_freed();
        true
    }

    /// Drops candidates whose places were freed, if those are many: entries that change their size go from place to place.
    fn forget_freed(&mut self) {
        let queue = &mut self.candidates.queue;
        if queue.len() > 2 * self.arena.entries() + 1024 {
            queue.make_contiguous().sort_unstable();
            let mut last = None;
            queue.retain(|place| last.replace(*place) != Some(*place) && self.arena.is_queued(*place));
        }
    }

    /// Tries to evict the next candidate. `None` if there is none.
    fn evict_next(&mut self) -> Option<Eviction> {
        if self.candidates.queue.is_empty() && !self.queue_written(QUEUE_BUDGET) {
            return None;
        }
        let place = match self.candidates.queue.pop_front() {
            Some(place) if self.arena.take_queued(place) && self.arena.written(place) <= self.applied => place,
            _ => return Some(Eviction::Never),
        };
        let position = self.group_position(self.arena.entry(place).group);
        let eviction = match self.is_scanning(position) {
            // What leaves memory during the scan would be passed by.
            true => Eviction::Later,
            false => self.groups[position].index.evict(&mut self.arena, place, self.applied, &self.hasher),
        };
        if eviction == Eviction::Later {
            self.arena.set_queued(place);
            self.candidates.queue.push_back(place);
        }
        Some(eviction)
    }
}

#[cfg(test)]
impl SubtaskState {
    /// Checks that whatever the store holds can be evicted at some time.
    ///
    /// # Panics
    /// If a key cannot.
    pub(crate) fn check_candidates(&self) {
        self.slots.iter().for_each(|slot| on_table!(&slot.table, table => table.check_candidates()));
    }
}

#[cfg(test)]
impl<I: Index> Table<I> {
    fn check_candidates(&self) {
        if self.cold.is_none() {
            return;
        }
        let from = |(at, list): (usize, &Rc<Vec<EntryRef>>)| list[if at == 0 { self.candidates.next } else { 0 }..].to_vec();
        let listed: Vec<_> = self.candidates.written.iter().map(|(_, list)| list).enumerate().flat_map(from).collect();
        for group in &self.groups {
            let places = group.index.places();
            // What leaves memory together does so by any of its entries.
            let mut keys: std::collections::BTreeMap<&[u8], Vec<EntryRef>> = std::collections::BTreeMap::new();
            for place in places {
                keys.entry(I::key_of(self.arena.key(place))).or_default().push(place);
            }
            for (key, places) in keys {
                let holds = |place: &EntryRef| !self.arena.entry(*place).deleted && self.arena.written(*place) <= self.applied;
                let is_candidate = |place: &EntryRef| self.arena.is_queued(*place) || listed.contains(place);
                let all_held = places.iter().all(holds) && !group.index.is_cleared(key, self.applied, &self.hasher);
                assert!(!all_held || places.iter().any(is_candidate), "{key:?} stays in memory for ever");
                assert!(places.iter().all(|place| !self.arena.is_queued(*place) || self.candidates.queue.contains(place)));
            }
        }
    }
}

impl SubtaskState {
    /// Returns the memory of what could be evicted at some time.
    fn resident_bytes(&self) -> u64 {
        let of = |slot: &SlotTable| on_table!(slot, table => if table.cold.is_some() { table.resident_bytes() } else { 0 });
        self.slots.iter().map(|slot| of(&slot.table)).sum()
    }

    /// Evicts a slice of what the store holds, if memory runs over. Returns whether there was anything to do.
    pub fn evict_some(&mut self) -> bool {
        let Some(mut backing) = self.backing.take() else { return false };
        let mut any = false;
        for slot in &mut self.slots {
            any |= on_table!(&mut slot.table, table => table.queue_written(QUEUE_BUDGET));
        }
        let mut tried = 0;
        while tried < EVICT_BUDGET && self.resident_bytes() > backing.memory_bytes && !self.is_stuck(&backing) {
            for slot in &mut self.slots {
                let evicted = (0..EVICT_STEP).map_while(|_| next(slot)).map(|eviction| {
                    backing.idle = if eviction == Eviction::Done { 0 } else { backing.idle + 1 };
                });
                tried += evicted.count();
            }
            any = true;
        }
        self.backing = Some(backing);
        any
    }

    /// Returns whether memory is short and nothing can be evicted.
    pub fn memory_pressure(&self) -> MemoryPressure {
        let Some(backing) = self.backing.as_ref().filter(|backing| self.is_stuck(backing)) else {
            return MemoryPressure::None;
        };
        match self.resident_bytes() {
            resident if resident <= backing.memory_bytes => MemoryPressure::None,
            resident if resident <= backing.memory_bytes * HOLD_FACTOR => MemoryPressure::Checkpoint,
            _ => MemoryPressure::Hold,
        }
    }

    /// Whether there is no candidate that could be evicted now. Each has a second chance.
    fn is_stuck(&self, backing: &Backing) -> bool {
        let of = |slot: &Slot| on_table!(&slot.table, table => table.candidates.len());
        let candidates: usize = self.slots.iter().map(of).sum();
        candidates == 0 || backing.idle > 2 * candidates + 2 * EVICT_STEP
    }
}

fn next(slot: &mut Slot) -> Option<Eviction> {
    on_table!(&mut slot.table, table => table.evict_next())
}
