//! Compaction: entries move out of chunks that hold little, in slices, so that a table that has shrunk gives its memory back.
//!
//! Who refers to an entry: its index; lists of what was written and deleted, of intervals and of snapshots; what is being
//! written in full; candidates for eviction; the order of timers. What a completed checkpoint (and the store) holds is in no
//! list that matters any more: it moves as it is. Anything else moves as if it was written again, which lists it where it is
//! then. Tombstones stay until they are freed. Lists keep references to where entries were: these read as freed, until the
//! last list is gone that may have one, and only then is a chunk's number used again.

use std::collections::VecDeque;

use super::arena::{ArenaFull, EntryRef, FREED};
use super::subtask::{SlotTable, SubtaskState, on_table};
use super::table::{Index, Table};

/// Places that are looked at in a slice, and entries that are moved: some tens of microseconds.
const VISITS: usize = if cfg!(test) { 20 } else { 2048 };
const MOVES: usize = if cfg!(test) { 5 } else { 128 };
/// Numbers of chunks that wait for the last reference to go, before no more chunks are left: an eighth of all.
const WAITING_MAX: usize = 4096;
/// As many are worth looking through the order of timers.
const WAITING_MANY: usize = if cfg!(test) { 2 } else { 64 };
/// The `order` of a table whose places are in no other order.
const NO_ORDER: u64 = u64::MAX;

/// Chunks that are gone, to which lists may still refer.
#[derive(Default)]
pub(super) struct Compaction {
    waiting: VecDeque<Waiting>,
    sweep: Sweep,
}

struct Waiting {
    chunk: u32,
    /// The epoch in which it was given back: lists of later ones know nothing of it.
    epoch: u32,
    /// After so many sweeps nothing that is being filled refers to it.
    sweeps: u64,
    /// The same of the order of timers.
    order: u64,
}

/// Looks through the lists that are being filled, one after the other, for references to places that were freed.
#[derive(Default)]
struct Sweep {
    list: u8,
    at: usize,
    /// Whole rounds so far.
    done: u64,
}

impl<I: Index> Table<I> {
    /// Moves some entries, or does what must be done before and after. `order` is how often the order of the places has been
    /// rid of those that were freed. Puts into `moved` where entries are now. Returns whether there was anything to do.
    fn compact_some(&mut self, order: u64, moved: &mut Vec<EntryRef>) -> bool {
        let swept = self.sweep_some();
        self.reuse_chunks(order);
        let may_begin = self.compaction.waiting.len() < WAITING_MAX;
        let is_leaving = self.arena.is_leaving() || (may_begin && self.arena.begin_leaving());
        if is_leaving && self.arena.forget_free(VISITS) {
            return true;
        }
        let (mut visits, mut moves) = (VISITS, MOVES);
        while moves > 0
            && let Some(place) = self.arena.next_leaving(&mut visits)
        {
            moves -= 1;
            // Without room for it, what is there stays.
            moved.extend(self.relocate(place).ok().flatten());
        }
        let emptied = self.arena.take_emptied();
        let any = swept || is_leaving || !emptied.is_empty();
        for chunk in emptied {
            // The sweep that is under way may be past a reference.
            let (epoch, sweeps) = (self.epoch, self.compaction.sweep.done + 2);
            self.compaction.waiting.push_back(Waiting { chunk, epoch, sweeps, order: order.saturating_add(1) });
        }
        any
    }

    /// Moves an entry. Returns where to; `None` for a tombstone, which stays.
    fn relocate(&mut self, place: EntryRef) -> Result<Option<EntryRef>, ArenaFull> {
        let entry = self.arena.entry(place);
        if entry.deleted {
            return Ok(None);
        }
        let group = entry.group;
        let is_settled = entry.written <= if self.cold.is_some() { self.applied } else { self.confirmed };
        match is_settled {
            true => self.collecting.iter_mut().for_each(|collecting| collecting.save_moved(self.arena.entry(place))),
            false => self.before_write(place),
        }
        let moved = self.arena.copy(place)?;
        let position = self.group_position(group);
        self.groups[position].index.moved(self.arena.key(moved), place, moved, &self.hasher);
        self.arena.take_queued(place);
        self.arena.take_queued(moved);
        if !is_settled {
            self.list(moved);
        } else if self.cold.is_some() {
            self.arena.set_queued(moved);
            self.candidates.add(moved);
        }
        self.arena.free(place);
        Ok(Some(moved))
    }

    /// Looks through a slice of the lists that are being filled. Returns whether there is reason to.
    fn sweep_some(&mut self) -> bool {
        let Some(last) = self.compaction.waiting.back() else { return false };
        if last.sweeps <= self.compaction.sweep.done {
            return false;
        }
        let Sweep { list, at, done } = &mut self.compaction.sweep;
        let (arena, epoch) = (&self.arena, self.epoch);
        let is_over = match *list {
            0 => sweep(&mut self.dirty, at, |place| arena.written(place) == epoch),
            1 => sweep(&mut self.tombs, at, |place| arena.entry(place).deleted && arena.written(place) != FREED),
            _ => self.candidates.sweep(at, |place| arena.is_queued(place), VISITS),
        };
        if is_over {
            (*list, *at) = ((*list + 1) % 3, 0);
            *done += u64::from(*list == 0);
        }
        true
    }

    /// Lets the numbers of chunks be used again to which nothing refers any more.
    fn reuse_chunks(&mut self, order: u64) {
        let oldest = if self.compaction.waiting.is_empty() { 0 } else { self.oldest_list() };
        let sweeps = self.compaction.sweep.done;
        let is_free = |waiting: &mut Waiting| waiting.epoch < oldest && waiting.sweeps <= sweeps && waiting.order <= order;
        while let Some(Waiting { chunk, .. }) = self.compaction.waiting.pop_front_if(is_free) {
            self.arena.reuse(chunk);
        }
    }
}

/// Drops items of a list that need not be there, from `at` on. Returns whether it has come to the end.
fn sweep(list: &mut Vec<EntryRef>, at: &mut usize, keep: impl Fn(EntryRef) -> bool) -> bool {
    for _ in 0..VISITS {
        let Some(place) = list.get(*at) else { return true };
        if keep(*place) {
            *at += 1;
        } else {
            list.swap_remove(*at);
        }
    }
    false
}

impl SubtaskState {
    /// Moves entries out of chunks that hold little: a slice of that. Returns whether there was anything to do.
    pub(super) fn compact_some(&mut self) -> bool {
        let mut moved = std::mem::take(&mut self.moved);
        let mut any = false;
        for number in 0..self.slots.len() {
            moved.clear();
            let order = self.timers.order(number).unwrap_or(NO_ORDER);
            let table = &mut self.slots[number].table;
            any |= on_table!(table, table => table.compact_some(order, &mut moved));
            if let SlotTable::Ordered(table) = table {
                let is_many = table.compaction.waiting.len() > WAITING_MANY;
                self.timers.moved(number, table, &moved, is_many);
            }
            if any {
                break;
            }
        }
        self.moved = moved;
        any
    }
}

#[cfg(test)]
mod tests;
