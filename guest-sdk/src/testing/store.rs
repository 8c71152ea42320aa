//! Stored state in memory, by the host's rules: the order in which effects apply, and when what has a time to live expires.

use std::collections::{BTreeMap, BTreeSet};

use crate::call::{Effects, op, timer_op};
use crate::column::BytesView;
use crate::declare::{StateKind, StateSlot, TimeDomain};

/// A slot's index and a key.
pub(super) type Place = (usize, Vec<u8>);

/// All state of a subtask.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) values: BTreeMap<Place, Stamped>,
    pub(super) lists: BTreeMap<Place, Vec<Stamped>>,
    pub(super) maps: BTreeMap<Place, BTreeMap<Vec<u8>, Stamped>>,
    pub(super) operator_lists: BTreeMap<usize, Vec<Vec<u8>>>,
    pub(super) broadcast: BTreeMap<usize, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Pending timers, in the order in which they fire.
    pub(super) timers: BTreeSet<Pending>,
}

/// A timer: domain, time, key and tag.
pub(super) type Pending = (TimeDomain, i64, Vec<u8>, u64);

/// What may expire.
#[derive(Clone, Debug)]
pub(super) struct Stamped {
    pub(super) bytes: Vec<u8>,
    /// When it was written, or read if that counts, in milliseconds of processing time.
    pub(super) stamp: i64,
}

/// What a call has read of a slot whose time to live reads renew.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    pub(super) place: Place,
    pub(super) what: Renewed,
}

#[derive(Clone, Debug)]
pub(super) enum Renewed {
    Value,
    Entry(Vec<u8>),
    /// The elements from one index on, and how many, of those that are alive.
    Elements(usize, usize),
}

impl Stamped {
    pub(super) fn new(bytes: &[u8], stamp: i64) -> Self {
        Self { bytes: bytes.to_vec(), stamp }
    }

    /// Whether it has not expired.
    pub(super) fn is_alive(&self, slot: &StateSlot, now: i64) -> bool {
        let ttl = i64::try_from(slot.ttl_ms).unwrap_or(i64::MAX);
        ttl == 0 || self.stamp.saturating_add(ttl) > now
    }
}

impl Store {
    pub(super) fn value(&self, slots: &[StateSlot], place: &Place, now: i64) -> Option<&[u8]> {
        let stamped = self.values.get(place)?;
        stamped.is_alive(&slots[place.0], now).then_some(&stamped.bytes)
    }

    pub(super) fn list(&self, slots: &[StateSlot], place: &Place, now: i64) -> Vec<&[u8]> {
        let elements = self.lists.get(place).into_iter().flatten();
        elements.filter(|element| element.is_alive(&slots[place.0], now)).map(|element| element.bytes.as_slice()).collect()
    }

    pub(super) fn map(&self, slots: &[StateSlot], place: &Place, now: i64) -> BTreeMap<&[u8], &[u8]> {
        let entries = self.maps.get(place).into_iter().flatten();
        let alive = entries.filter(|(_, value)| value.is_alive(&slots[place.0], now));
        alive.map(|(key, value)| (key.as_slice(), value.bytes.as_slice())).collect()
    }

    pub(super) fn renew(&mut self, slots: &[StateSlot], renewals: Vec<Renewal>, now: i64) {
        for Renewal { place, what } in renewals {
            let slot = &slots[place.0];
            let stamped: Vec<&mut Stamped> = match what {
                Renewed::Value => self.values.get_mut(&place).into_iter().collect(),
                Renewed::Entry(key) => self.maps.get_mut(&place).and_then(|map| map.get_mut(&key)).into_iter().collect(),
                Renewed::Elements(from, count) => {
                    let elements = self.lists.get_mut(&place).into_iter().flatten();
                    elements.filter(|element| element.is_alive(slot, now)).skip(from).take(count).collect()
                }
            };
            stamped.into_iter().filter(|stamped| stamped.is_alive(slot, now)).for_each(|stamped| stamped.stamp = now);
        }
    }

    /// Applies a call's effects, in the interface's order: clears, updates, entries, operator updates, timers.
    pub(super) fn apply(&mut self, slots: &[StateSlot], effects: &Effects, keys: BytesView<'_>, now: i64) {
        let place = |slot: u32, row: u32| (slot as usize, keys.get(row as usize).to_vec());
        let is_clear = |kind: u8| kind == op::CLEAR;
        for clears_only in [true, false] {
            for update in &effects.updates {
                for ((row, kind), value) in update.rows.iter().zip(&update.ops).zip(update.values.view().iter()) {
                    if is_clear(*kind) == clears_only {
                        self.update(slots, place(update.slot, *row), *kind, Stamped::new(value, now));
                    }
                }
            }
        }
        for update in &effects.entries {
            let changes = update.rows.iter().zip(&update.ops);
            let columns = update.entry_keys.view().iter().zip(update.values.view().iter());
            for ((row, kind), (key, value)) in changes.zip(columns) {
                let map = self.maps.entry(place(update.slot, *row)).or_default();
                match *kind {
                    op::PUT => drop(map.insert(key.to_vec(), Stamped::new(value, now))),
                    op::DELETE => drop(map.remove(key)),
                    other => panic!("op {other} is none of a map's entry"),
                }
            }
        }
        self.maps.retain(|_, map| !map.is_empty());
        for update in &effects.operator_updates {
            let columns = update.entry_keys.view().iter().zip(update.values.view().iter());
            for (kind, (key, value)) in update.ops.iter().zip(columns) {
                self.operator_update(slots, update.slot as usize, *kind, (key, value));
            }
        }
        let timers = &effects.timers;
        for (index, kind) in timers.ops.iter().enumerate() {
            let key = keys.get(timers.rows[index] as usize).to_vec();
            let domain = if *kind < 2 { TimeDomain::EventTime } else { TimeDomain::ProcessingTime };
            let timer = (domain, timers.times[index], key, timers.tags[index]);
            if *kind == timer_op::set(domain) {
                self.timers.insert(timer);
            } else {
                self.timers.remove(&timer);
            }
        }
    }

    fn update(&mut self, slots: &[StateSlot], place: Place, kind: u8, value: Stamped) {
        match (slots[place.0].kind, kind) {
            (StateKind::Value, op::PUT) => drop(self.values.insert(place, value)),
            (StateKind::Value, op::DELETE) => drop(self.values.remove(&place)),
            (StateKind::List, op::APPEND) => self.lists.entry(place).or_default().push(value),
            (StateKind::List, op::CLEAR) => drop(self.lists.remove(&place)),
            (StateKind::Map, op::CLEAR) => drop(self.maps.remove(&place)),
            (kind, other) => panic!("op {other} is none of {kind:?} state"),
        }
    }

    fn operator_update(&mut self, slots: &[StateSlot], slot: usize, kind: u8, (key, value): (&[u8], &[u8])) {
        let list = self.operator_lists.entry(slot).or_default();
        let map = self.broadcast.entry(slot).or_default();
        match (slots[slot].kind, kind) {
            (StateKind::ListSplit | StateKind::ListUnion, op::APPEND) => list.push(value.to_vec()),
            (StateKind::ListSplit | StateKind::ListUnion, op::CLEAR) => list.clear(),
            (StateKind::Broadcast, op::PUT) => drop(map.insert(key.to_vec(), value.to_vec())),
            (StateKind::Broadcast, op::DELETE) => drop(map.remove(key)),
            (StateKind::Broadcast, op::CLEAR) => map.clear(),
            (kind, other) => panic!("op {other} is none of {kind:?} state"),
        }
    }

    /// All that is alive, as text: what and where.
    pub(super) fn describe(&self, slots: &[StateSlot], now: i64) -> BTreeMap<String, Vec<String>> {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let keyed = |place: &Place| format!("slot {:?}, key {:?}", slots[place.0].name, text(&place.1));
        let shared = |slot: &usize| format!("slot {:?}", slots[*slot].name);
        let entry = |(key, value): (&[u8], &[u8])| format!("{} = {}", text(key), text(value));
        let mut all = BTreeMap::new();
        for place in self.values.keys() {
            all.insert(keyed(place), self.value(slots, place, now).into_iter().map(text).collect());
        }
        for place in self.lists.keys() {
            all.insert(keyed(place), self.list(slots, place, now).into_iter().map(text).collect());
        }
        for place in self.maps.keys() {
            all.insert(keyed(place), self.map(slots, place, now).into_iter().map(entry).collect());
        }
        for (slot, list) in &self.operator_lists {
            all.insert(shared(slot), list.iter().map(|element| text(element)).collect());
        }
        for (slot, map) in self.broadcast.iter().filter(|(slot, _)| slots[**slot].kind == StateKind::Broadcast) {
            all.insert(shared(slot), map.iter().map(|(key, value)| entry((key, value))).collect());
        }
        for (domain, time, key, tag) in &self.timers {
            let timer = format!("{domain:?} timer at {time} with tag {tag}");
            all.entry(format!("timers, key {:?}", text(key))).or_insert_with(Vec::new).push(timer);
        }
        all.retain(|_, values: &mut Vec<String>| !values.is_empty());
        all
    }
}
