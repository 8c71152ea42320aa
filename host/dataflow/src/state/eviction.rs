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
    /// What completed checkpoints wrote and the store holds by now, and how much of the first list has been queued.
    written: VecDeque<Rc<Vec<EntryRef>>>,
    next: usize,
    /// Each carries a mark in the arena, unless its place was freed meanwhile.
    queue: VecDeque<EntryRef>,
}

impl Candidates {
    pub(super) fn add_written(&mut self, written: Rc<Vec<EntryRef>>) {
        if !written.is_empty() {
            self.written.push_back(written);
        }
    }

    /// Queues an entry, which has been marked.
    pub(super) fn add(&mut self, place: EntryRef) {
        self.queue.push_back(place);
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.written.iter().map(|list| list.len()).sum::<usize>() - self.next
    }
}

impl<I: Index> Table<I> {
    /// Queues up to `budget` entries that were written. Returns whether there was one.
    fn queue_written(&mut self, budget: usize) -> bool {
        let Some(list) = self.candidates.written.front().cloned() else { return false };
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
