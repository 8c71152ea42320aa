//! Pending timers: a table of the ordered kind for each domain (key, and an entry key of time and tag), and beside it the
//! order in which they fire.
//!
//! The table is what is snapshotted and restored; the order is derived from it and never stored. It is lazy: setting pushes,
//! deleting leaves an item behind that is recognised when its turn comes, because the entry at its place is gone or belongs
//! to another time. So a set and a delete cost a table write each, and nothing is done at a barrier.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use hashbrown::HashTable;

use super::arena::{EntryRef, FREED};
use super::entry::split_ordered_key;
use super::ordered::OrderedTable;
use super::subtask::{SlotTable, SubtaskState};
use super::table::{Index, TableHasher, spread};
use crate::column::BytesColumn;
use crate::guest::{StateSlot, TimeDomain, TimerUpdate, timer_op};

/// Bytes of a timer's entry key: its time and its tag.
pub(crate) const TIMER_KEY_BYTES: usize = 16;
/// Items that are taken off the heap in one go, at most, before others have their turn.
const GATHER: usize = 4096;
/// Bytes of a key that are compared without looking at the entry.
const PREFIX_BYTES: usize = 16;
/// Why a write cannot fail.
const ROOM: &str = "check_room left room in the arena";

/// More timers than an operator may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pending} pending timers in one subtask exceed the limit of {limit}")]
pub struct TimersFull {
    /// How many there would be.
    pub pending: u64,
    /// The most there may be.
    pub limit: u64,
}

/// What there is to fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Timers, which are still being put in order: ask again.
    Gathering,
    /// These.
    Timers,
}

/// Timers that are due, in the order to fire them. No key appears twice.
#[derive(Default)]
pub struct DueTimers {
    /// The key of each.
    pub keys: BytesColumn,
    /// When each was due.
    pub times: Vec<i64>,
    /// The tag of each.
    pub tags: Vec<u64>,
    places: Vec<EntryRef>,
    /// The keys, to find one again.
    seen: HashTable<u32>,
}

impl DueTimers {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.times.clear();
        self.tags.clear();
        self.places.clear();
        self.seen.clear();
    }

    /// Adds a timer. Returns `false`, and does not, if its key is there.
    fn add(&mut self, place: EntryRef, key: &[u8], (time, tag): (i64, u64), hasher: &TableHasher) -> bool {
        let hash = |key: &[u8]| spread(hasher.hash(key));
        let keys = &mut self.keys;
        if self.seen.find(hash(key), |row| keys.get(*row as usize) == key).is_some() {
            return false;
        }
        let row = u32::try_from(keys.len()).expect("a batch is bounded");
        keys.push(key);
        self.seen.insert_unique(hash(key), row, |row| hash(keys.get(*row as usize)));
        self.times.push(time);
        self.tags.push(tag);
        self.places.push(place);
        true
    }
}

/// Where a timer is, by its time. May be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    time: i64,
    place: EntryRef,
}

/// A timer whose turn is near.
#[derive(Clone, Copy, Debug)]
struct Near {
    item: Item,
    prefix: [u8; PREFIX_BYTES],
    /// Of the stored key: its place may have been given to another timer meanwhile, whose turn is another.
    hash: u32,
}

/// The order in which the timers of one domain fire.
#[derive(Default)]
pub(super) struct TimerQueue {
    slot: usize,
    heap: BinaryHeap<Reverse<Item>>,
    /// The earliest timers, taken off the heap: those up to the time `until`, from `next` on in order.
    run: Vec<Near>,
    next: usize,
    until: i64,
    /// The earliest time of those timers in the run that are not in their place yet.
    unsorted: Option<i64>,
    /// How often everything stale has been dropped.
    compactions: u64,
}

/// The queues of both domains, for those that an operator has declared.
#[derive(Default)]
pub(super) struct Timers([Option<TimerQueue>; 2]);

impl Timers {
    pub(super) fn new(slots: &[StateSlot]) -> Self {
        let queue = |domain: TimeDomain| {
            let slot = slots.iter().position(|slot| slot.name == domain.table())?;
            Some(TimerQueue { slot, ..TimerQueue::default() })
        };
        Self(TimeDomain::ALL.map(queue))
    }

    /// Whether a slot holds timers.
    pub(super) fn holds(&self, slot: usize) -> bool {
        self.0.iter().flatten().any(|queue| queue.slot == slot)
    }

    /// Returns how often the order of a slot's timers has been rid of what is stale; `None` if it holds no timers.
    pub(super) fn order(&self, slot: usize) -> Option<u64> {
        self.0.iter().flatten().find(|queue| queue.slot == slot).map(|queue| queue.compactions)
    }

    /// Timers of a slot have moved to these places. `thoroughly`: nothing is to refer to where any were.
    pub(super) fn moved(&mut self, slot: usize, table: &OrderedTable, places: &[EntryRef], thoroughly: bool) {
        for queue in self.0.iter_mut().flatten().filter(|queue| queue.slot == slot) {
            for place in places {
                if let Some((_, time, _)) = timer_key(table.arena.key(*place)) {
                    queue.push(Item { time, place: *place }, table);
                }
            }
            if thoroughly || queue.len() == 0 {
                queue.compact(table);
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let of = |queue: &TimerQueue| queue.heap.capacity() * size_of::<Item>() + queue.run.capacity() * size_of::<Near>();
        self.0.iter().flatten().map(|queue| of(queue) as u64).sum()
    }
}

impl TimerQueue {
    fn len(&self) -> usize {
        self.heap.len() + self.run.len() - self.next
    }

    /// Adds a timer that was set.
    fn push(&mut self, item: Item, table: &OrderedTable) {
        if self.len() as u64 > 2 * table.len() + 1024 {
            self.compact(table);
        }
        self.heap.push(Reverse(item));
    }

    /// Drops what is stale or there twice.
    fn compact(&mut self, table: &OrderedTable) {
        let near = self.run.drain(..).skip(self.next).map(|near| near.item);
        let mut items: Vec<Item> = std::mem::take(&mut self.heap).into_iter().map(|item| item.0).chain(near).collect();
        (self.next, self.unsorted) = (0, None);
        items.retain(|item| timer_at(table, *item).is_some());
        items.sort_unstable();
        items.dedup();
        self.heap = items.into_iter().map(Reverse).collect();
        self.compactions += 1;
    }

    /// Puts all timers of a table that was restored in order.
    fn fill(&mut self, table: &OrderedTable) {
        self.run.clear();
        (self.next, self.unsorted) = (0, None);
        let places = table.groups.iter().flat_map(|group| group.index.places());
        let live = places.filter(|place| table.value(*place).is_some());
        let items = live.filter_map(|place| Some(Item { time: timer_key(table.arena.key(place))?.1, place }));
        self.heap = items.map(Reverse).collect();
    }

    /// Returns when the next timer is due. Once it is, there may turn out to be none.
    fn next_time(&mut self, table: &OrderedTable) -> Option<i64> {
        while self.next < self.run.len() && timer_at(table, self.run[self.next].item).is_none() {
            self.next += 1;
        }
        while self.heap.peek().is_some_and(|top| timer_at(table, top.0).is_none()) {
            self.heap.pop();
        }
        let top = self.heap.peek().map(|top| top.0.time);
        let near = self.run.get(self.next).map(|near| near.item.time);
        [top, near, self.unsorted].into_iter().flatten().min()
    }

    /// Takes timers up to the time `until` in order: `most` at most, with keys of `most_bytes` together but for a single
    /// one, and none whose key has been taken.
    fn take(
        &mut self,
        (table, hasher): (&OrderedTable, &TableHasher),
        until: i64,
        (most, most_bytes): (usize, usize),
        due: &mut DueTimers,
    ) -> Due {
        due.clear();
        let found = |due: &DueTimers, none| if due.is_empty() { none } else { Due::Timers };
        loop {
            if self.next == self.run.len() {
                self.run.clear();
                self.next = 0;
                match self.heap.peek() {
                    Some(Reverse(top)) if top.time <= until => self.until = top.time,
                    _ => return found(due, Due::Nothing),
                }
            }
            if !self.gather(table, hasher) {
                return found(due, Due::Gathering);
            }
            while let Some(near) = self.run.get(self.next) {
                let place = near.item.place;
                // Set, deleted and set again, a timer is here twice.
                let is_again = due.places.last() == Some(&place);
                if near.item.time > until {
                    // The clock has been set back.
                    return found(due, Due::Nothing);
                }
                let is_same = !is_again && hasher.hash(table.arena.key(place)) == near.hash;
                if let Some((key, time, tag)) = timer_at(table, near.item).filter(|_| is_same) {
                    let is_full = due.len() == most || (!due.is_empty() && due.keys.bytes() + key.len() > most_bytes);
                    if is_full || !due.add(place, key, (time, tag), hasher) {
                        return Due::Timers;
                    }
                }
                self.next += 1;
            }
        }
    }

    /// Takes what is due up to `self.until` off the heap and puts it in order. Returns whether that is done.
    fn gather(&mut self, table: &OrderedTable, hasher: &TableHasher) -> bool {
        for _ in 0..GATHER {
            let Some(Reverse(item)) = self.heap.peek().copied().filter(|top| top.0.time <= self.until) else {
                if self.unsorted.take().is_some() {
                    self.run.drain(..std::mem::take(&mut self.next));
                    // Stable, since it is fast where only the end is new.
                    self.run.sort_by(|a, b| order(table, a, b));
                }
                return true;
            };
            self.heap.pop();
            if let Some((key, ..)) = timer_at(table, item) {
                let hash = hasher.hash(table.arena.key(item.place));
                self.run.push(Near { item, prefix: prefix(key), hash });
                self.unsorted = Some(self.unsorted.map_or(item.time, |earliest| earliest.min(item.time)));
            }
        }
        false
    }
}

fn prefix(key: &[u8]) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    let length = key.len().min(PREFIX_BYTES);
    prefix[..length].copy_from_slice(&key[..length]);
    prefix
}

/// The order (time, key, tag).
fn order(table: &OrderedTable, a: &Near, b: &Near) -> Ordering {
    let rest = |near: &Near| {
        let (key, _, tag) = timer_key(table.arena.key(near.item.place)).unwrap_or_default();
        (key, tag)
    };
    let by_prefix = a.item.time.cmp(&b.item.time).then_with(|| a.prefix.cmp(&b.prefix));
    by_prefix.then_with(|| rest(a).cmp(&rest(b)))
}

/// Returns key, time and tag of the timer that an item stands for; `None` if it is stale.
fn timer_at(table: &OrderedTable, item: Item) -> Option<(&[u8], i64, u64)> {
    let entry = table.arena.entry(item.place);
    if entry.deleted || entry.written == FREED {
        return None;
    }
    timer_key(entry.key).filter(|(_, time, _)| *time == item.time)
}

/// Takes the stored key of a timer apart: key, time and tag.
pub(super) fn timer_key(stored: &[u8]) -> Option<(&[u8], i64, u64)> {
    let (key, entry_key) = split_ordered_key(stored)?;
    let (time, tag) = split_timer(entry_key)?;
    Some((key, time, tag))
}

/// Returns the entry key of a timer: time and tag, so that bytes sort as they do. Part of the checkpoint format.
pub(super) fn join_timer(time: i64, tag: u64) -> [u8; TIMER_KEY_BYTES] {
    let mut entry_key = [0; TIMER_KEY_BYTES];
    entry_key[..8].copy_from_slice(&(time ^ i64::MIN).to_be_bytes());
    entry_key[8..].copy_from_slice(&tag.to_be_bytes());
    entry_key
}

/// Returns time, in milliseconds since the Unix epoch, and tag of a timer's entry key; `None` if it is not one.
pub fn split_timer(entry_key: &[u8]) -> Option<(i64, u64)> {
    let (time, tag) = entry_key.split_first_chunk::<8>()?;
    let tag: [u8; 8] = tag.try_into().ok()?;
    Some((i64::from_be_bytes(*time) ^ i64::MIN, u64::from_be_bytes(tag)))
}

impl SubtaskState {
    /// Returns the queue of a domain and its table.
    fn timers_of(&mut self, domain: TimeDomain) -> Option<(&mut TimerQueue, &mut OrderedTable, &TableHasher)> {
        let queue = self.timers.0[domain as usize].as_mut()?;
        match &mut self.slots[queue.slot].table {
            SlotTable::Ordered(table) => Some((queue, table, &self.hasher)),
            SlotTable::Value(_) => None,
        }
    }

    /// Returns how many timers are pending, in both domains together.
    pub fn pending_timers(&self) -> u64 {
        self.timers.0.iter().flatten().map(|queue| self.len(queue.slot)).sum()
    }

    /// Returns when the next timer of a domain is due.
    pub fn next_timer(&mut self, domain: TimeDomain) -> Option<i64> {
        let (queue, table, _) = self.timers_of(domain)?;
        queue.next_time(table)
    }

    /// Returns how many timers of a domain are pending.
    pub fn pending_timers_of(&self, domain: TimeDomain) -> u64 {
        self.timers.0[domain as usize].as_ref().map_or(0, |queue| self.len(queue.slot))
    }

    /// Returns when the next timer of a domain is due, and the key of one that is due then.
    pub fn peek_timer(&mut self, domain: TimeDomain) -> Option<(i64, Vec<u8>)> {
        let (queue, table, _) = self.timers_of(domain)?;
        let time = queue.next_time(table)?;
        let mut items = queue.run[queue.next..].iter().map(|near| near.item).chain(queue.heap.peek().map(|top| top.0));
        let next = items.find(|item| item.time == time && timer_at(table, *item).is_some())?;
        timer_at(table, next).map(|(key, ..)| (time, key.to_vec()))
    }

    /// Puts the timers of a domain up to the time `until` into `due`: the first in the order (time, key, tag), `most.0` at
    /// most and with `most.1` bytes of keys but for a single one, and none whose key is there. They are handed out once, and
    /// stay pending until [`Self::remove_fired`].
    pub fn take_due(&mut self, domain: TimeDomain, until: i64, most: (usize, usize), due: &mut DueTimers) -> Due {
        match self.timers_of(domain) {
            Some((queue, table, hasher)) => queue.take((table, hasher), until, most, due),
            None => Due::Nothing,
        }
    }

    /// Removes timers that have fired. Nothing may have changed since they were taken.
    pub fn remove_fired(&mut self, domain: TimeDomain, due: &DueTimers) {
        if let Some((_, table, _)) = self.timers_of(domain) {
            due.places.iter().for_each(|place| table.delete(*place));
        }
    }

    /// Checks that a call may set these timers: `fired` of those that are pending go with it.
    ///
    /// # Errors
    /// [`TimersFull`] if not.
    pub fn check_timers(&self, update: &TimerUpdate, fired: usize, limit: u64) -> Result<(), TimersFull> {
        let pending = self.pending_timers().saturating_sub(fired as u64);
        let sets = update.ops.iter().filter(|op| timer_op::meaning(**op).is_some_and(|(_, sets)| sets)).count() as u64;
        if pending + sets <= limit || sets == 0 {
            return Ok(());
        }
        // Most of them may be there already, or be deleted again.
        let mut after = BTreeMap::new();
        for (index, op) in update.ops.iter().enumerate() {
            let Some((domain, sets)) = timer_op::meaning(*op) else { continue };
            after.insert((update.rows[index], domain as u8, update.times[index], update.tags[index]), (domain, sets));
        }
        let (mut come, mut gone) = (0, 0);
        for ((row, _, time, tag), (domain, sets)) in after {
            match (self.is_pending(domain, row, (time, tag)), sets) {
                (false, true) => come += 1,
                (true, false) => gone += 1,
                _ => {}
            }
        }
        let pending = (pending + come).saturating_sub(gone);
        if pending > limit && come > gone { Err(TimersFull { pending, limit }) } else { Ok(()) }
    }

    fn is_pending(&self, domain: TimeDomain, row: u32, (time, tag): (i64, u64)) -> bool {
        let Some(queue) = &self.timers.0[domain as usize] else { return false };
        let SlotTable::Ordered(table) = &self.slots[queue.slot].table else { return false };
        let place = table.find(self.frame.table_key(row as usize), &join_timer(time, tag));
        place.is_some_and(|place| table.value(place).is_some())
    }

    /// Sets and deletes timers, in order. They have been validated.
    pub(super) fn update_timers(&mut self, update: &TimerUpdate) {
        for (index, op) in update.ops.iter().enumerate() {
            let Some((domain, sets)) = timer_op::meaning(*op) else { continue };
            let Some(queue) = &mut self.timers.0[domain as usize] else { continue };
            let SlotTable::Ordered(table) = &mut self.slots[queue.slot].table else { continue };
            let key = self.frame.table_key(update.rows[index] as usize);
            let time = update.times[index];
            let entry_key = join_timer(time, update.tags[index]);
            let live = table.find(key, &entry_key).filter(|place| table.value(*place).is_some());
            match live {
                Some(place) if !sets => table.delete(place),
                None if sets => {
                    let place = table.put(key, &entry_key, &[]).expect(ROOM);
                    queue.push(Item { time, place }, table);
                }
                _ => {}
            }
        }
    }

    /// Puts the restored timers of a slot in order.
    pub(super) fn order_timers(&mut self, slot: usize) {
        for queue in self.timers.0.iter_mut().flatten().filter(|queue| queue.slot == slot) {
            if let SlotTable::Ordered(table) = &self.slots[slot].table {
                queue.fill(table);
            }
        }
    }
}

#[cfg(test)]
impl SubtaskState {
    /// Returns all pending timers of a domain, in the order in which they fire, as the table has them.
    pub(crate) fn list_timers(&self, domain: TimeDomain) -> Vec<(i64, Vec<u8>, u64)> {
        let queue = self.timers.0[domain as usize].as_ref().unwrap();
        let SlotTable::Ordered(table) = &self.slots[queue.slot].table else { panic!() };
        let places = table.groups.iter().flat_map(|group| group.index.places());
        let live = places.filter(|place| table.value(*place).is_some());
        let mut all: Vec<_> = live.map(|place| timer_key(table.arena.key(place)).unwrap()).collect();
        all.sort_by_key(|(key, time, tag)| (*time, *key, *tag));
        all.into_iter().map(|(key, time, tag)| (time, key.to_vec(), tag)).collect()
    }

    /// Returns how many items the order of a domain has, stale ones included.
    fn queued(&self, domain: TimeDomain) -> usize {
        self.timers.0[domain as usize].as_ref().unwrap().len()
    }
}

#[cfg(test)]
mod tests;
