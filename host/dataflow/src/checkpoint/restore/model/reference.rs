//! State of every kind as ordinary maps and lists: what the tables are compared with.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::guest::{StateKind, StateSlot, TimeDomain, timer_op};

/// The slots of the operator under test, by index.
pub(super) mod slot {
    pub(in super::super) const VALUE: u32 = 0;
    pub(in super::super) const BY_REQUEST: u32 = 1;
    pub(in super::super) const VALUE_TTL: u32 = 2;
    pub(in super::super) const MAP: u32 = 3;
    pub(in super::super) const MAP_TTL: u32 = 4;
    pub(in super::super) const LIST: u32 = 5;
    pub(in super::super) const LIST_TTL: u32 = 6;
    pub(in super::super) const SPLIT: u32 = 7;
    pub(in super::super) const UNION: u32 = 8;
    pub(in super::super) const BROADCAST: u32 = 9;
}

pub(super) const TTL_MS: i64 = 100;

pub(super) fn slots(has_ttl: bool) -> Vec<StateSlot> {
    let slot = |name: &str, kind, expires: bool, prefetch| StateSlot {
        name: name.into(),
        kind,
        codec: "raw".into(),
        schema: String::new(),
        ttl_ms: if expires && has_ttl { TTL_MS as u64 } else { 0 },
        ttl_on_read: expires && has_ttl && kind != StateKind::List,
        prefetch,
    };
    vec![
        slot("value", StateKind::Value, false, true),
        slot("by-request", StateKind::Value, false, false),
        slot("value-ttl", StateKind::Value, true, true),
        slot("map", StateKind::Map, false, false),
        slot("map-ttl", StateKind::Map, true, false),
        slot("list", StateKind::List, false, false),
        slot("list-ttl", StateKind::List, true, false),
        slot("split", StateKind::ListSplit, false, false),
        slot("union", StateKind::ListUnion, false, false),
        slot("broadcast", StateKind::Broadcast, false, false),
    ]
}

pub(super) type Bytes = Vec<u8>;
/// A value, and when it was last used.
pub(super) type Stamped = (Bytes, i64);

/// One change that a call makes. Keys and entry keys are single bytes, values a number and so much padding.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Value(u32, u8, Option<u16>),
    Entry(u32, u8, u8, Option<u16>),
    ClearMap(u32, u8),
    Append(u32, u8, u16),
    ClearList(u32, u8),
    /// Of a subtask's list: slot, subtask, padding.
    AppendOwn(u32, u8, u16),
    ClearOwn(u32, u8),
    /// The same on every subtask.
    Broadcast(u8, Option<u16>),
    ClearBroadcast,
    /// A timer's op, key, time and tag.
    Timer(u8, u8, i64, u64),
}

/// A timer: domain, time, key and tag.
pub(super) type Timer = (u8, i64, u8, u64);

pub(super) fn change() -> impl Strategy<Value = Change> {
    let padding = || prop_oneof![8 => 0..20_u16, 1 => 200..6000_u16];
    let put = move || prop::option::weighted(0.7, padding());
    let key = || 0..12_u8;
    let one_of = |a: u32, b: u32| prop_oneof![Just(a), Just(b)];
    let values = prop_oneof![Just(slot::VALUE), Just(slot::BY_REQUEST), Just(slot::VALUE_TTL)];
    prop_oneof![
        4 => (values, key(), put()).prop_map(|(slot, key, put)| Change::Value(slot, key, put)),
        6 => (one_of(slot::MAP, slot::MAP_TTL), 0..3_u8, 0..40_u8, put()).prop_map(|(s, k, e, p)| Change::Entry(s, k, e, p)),
        1 => (one_of(slot::MAP, slot::MAP_TTL), 0..3_u8).prop_map(|(slot, key)| Change::ClearMap(slot, key)),
        6 => (one_of(slot::LIST, slot::LIST_TTL), 0..3_u8, padding()).prop_map(|(slot, key, p)| Change::Append(slot, key, p)),
        1 => (one_of(slot::LIST, slot::LIST_TTL), 0..3_u8).prop_map(|(slot, key)| Change::ClearList(slot, key)),
        3 => (one_of(slot::SPLIT, slot::UNION), any::<u8>(), padding()).prop_map(|(slot, t, p)| Change::AppendOwn(slot, t, p)),
        1 => (one_of(slot::SPLIT, slot::UNION), any::<u8>()).prop_map(|(slot, subtask)| Change::ClearOwn(slot, subtask)),
        3 => (0..20_u8, put()).prop_map(|(key, put)| Change::Broadcast(key, put)),
        1 => Just(Change::ClearBroadcast),
        8 => timer(),
    ]
}

fn timer() -> impl Strategy<Value = Change> {
    let op = prop_oneof![3 => Just(timer_op::SET_EVENT), 1 => Just(timer_op::DELETE_EVENT), 2 => 0..4_u8];
    let time = prop_oneof![20 => -8..8_i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
    (op, 0..12_u8, time, 0..2_u64).prop_map(|(op, key, time, tag)| Change::Timer(op, key, time, tag))
}

/// All state of the operator, as it must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reference {
    pub(super) values: BTreeMap<(u32, u8), Stamped>,
    pub(super) maps: BTreeMap<(u32, u8), BTreeMap<u8, Stamped>>,
    pub(super) lists: BTreeMap<(u32, u8), Vec<Stamped>>,
    /// By slot and subtask.
    pub(super) own: BTreeMap<(u32, u32), Vec<Bytes>>,
    pub(super) broadcast: BTreeMap<u8, Bytes>,
    /// In the order in which they fire.
    pub(super) timers: BTreeSet<Timer>,
}

/// Whether a slot's values expire, where any do.
pub(super) fn expires(slot: u32) -> bool {
    matches!(slot, slot::VALUE_TTL | slot::MAP_TTL | slot::LIST_TTL)
}

impl Reference {
    /// Applies a change. `value` is what it puts or appends.
    pub(super) fn change(&mut self, change: Change, value: &[u8], parallelism: u32, now: i64) {
        let stamped = || (value.to_vec(), now);
        match change {
            Change::Value(slot, key, Some(_)) => drop(self.values.insert((slot, key), stamped())),
            Change::Value(slot, key, None) => drop(self.values.remove(&(slot, key))),
            Change::Entry(slot, key, entry, put) => {
                let map = self.maps.entry((slot, key)).or_default();
                match put {
                    Some(_) => drop(map.insert(entry, stamped())),
                    None => drop(map.remove(&entry)),
                }
            }
            Change::ClearMap(slot, key) => drop(self.maps.remove(&(slot, key))),
            Change::Append(slot, key, _) => self.lists.entry((slot, key)).or_default().push(stamped()),
            Change::ClearList(slot, key) => drop(self.lists.remove(&(slot, key))),
            Change::AppendOwn(slot, subtask, _) => {
                self.own.entry((slot, u32::from(subtask) % parallelism)).or_default().push(value.to_vec());
            }
            Change::ClearOwn(slot, subtask) => drop(self.own.remove(&(slot, u32::from(subtask) % parallelism))),
            Change::Broadcast(key, Some(_)) => drop(self.broadcast.insert(key, value.to_vec())),
            Change::Broadcast(key, None) => drop(self.broadcast.remove(&key)),
            Change::ClearBroadcast => self.broadcast.clear(),
            Change::Timer(op, key, time, tag) => {
                let (domain, sets) = timer_op::meaning(op).unwrap();
                let timer = (domain as u8, time, key, tag);
                let _ = if sets { self.timers.insert(timer) } else { self.timers.remove(&timer) };
            }
        }
    }

    /// Returns the batch that fires next of the timers up to a time, of keys that `owns`: at most so many, one a key.
    pub(super) fn batch(&self, domain: TimeDomain, until: i64, most: usize, owns: impl Fn(u8) -> bool) -> Vec<Timer> {
        let mut batch: Vec<Timer> = Vec::new();
        for timer in self.timers.iter().filter(|(of, time, key, _)| *of == domain as u8 && *time <= until && owns(*key)) {
            if batch.len() == most || batch.iter().any(|other| other.2 == timer.2) {
                break;
            }
            batch.push(*timer);
        }
        batch
    }

    /// Drops what has expired. That nothing else tells it from what has not been dropped yet is the point.
    pub(super) fn expire(&mut self, now: i64) {
        let is_live = |slot: u32, stamp: i64| !expires(slot) || stamp + TTL_MS > now;
        self.values.retain(|(slot, _), (_, stamp)| is_live(*slot, *stamp));
        for ((slot, _), map) in &mut self.maps {
            map.retain(|_, (_, stamp)| is_live(*slot, *stamp));
        }
        for ((slot, _), list) in &mut self.lists {
            list.retain(|(_, stamp)| is_live(*slot, *stamp));
        }
    }

    /// A time to live begins now.
    pub(super) fn stamp_all(&mut self, now: i64) {
        self.values.values_mut().for_each(|(_, stamp)| *stamp = now);
        self.maps.values_mut().flat_map(BTreeMap::values_mut).for_each(|(_, stamp)| *stamp = now);
        self.lists.values_mut().flatten().for_each(|(_, stamp)| *stamp = now);
    }

    /// Deals the lists of subtasks out as a restore does, written down the other way round: element by element.
    pub(super) fn redistribute(&mut self, old: u32, new: u32) {
        let concatenated = |own: &BTreeMap<(u32, u32), Vec<Bytes>>, slot| -> Vec<Bytes> {
            (0..old).flat_map(|subtask| own.get(&(slot, subtask)).cloned().unwrap_or_default()).collect()
        };
        let everything = concatenated(&self.own, slot::UNION);
        if old != new {
            let mut all = concatenated(&self.own, slot::SPLIT).into_iter().peekable();
            self.own.retain(|(slot, _), _| *slot != slot::SPLIT);
            let mut left = all.len();
            for subtask in 0..new {
                // The first parts are the longer ones: what is left is dealt to those that are left, rounding up.
                let length = left.div_ceil((new - subtask) as usize);
                self.own.insert((slot::SPLIT, subtask), all.by_ref().take(length).collect());
                left -= length;
            }
            assert!(all.peek().is_none());
        }
        self.own.retain(|(slot, _), _| *slot != slot::UNION);
        (0..new).for_each(|subtask| drop(self.own.insert((slot::UNION, subtask), everything.clone())));
    }
}
