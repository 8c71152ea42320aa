//! Stores behind the state of the model: written late, in part, kept over a restart or lost.

use std::collections::VecDeque;
use std::rc::Rc;

use proptest::prelude::*;

use super::{World, operator};
use crate::checkpoint::apply::apply_segment;
use crate::checkpoint::chains::StateChains;
use crate::checkpoint::segment::{SegmentId, SegmentRef};
use crate::guest::StateKind;
use crate::ids::{Attempt, CheckpointId, TaskIndex};
use crate::state::SubtaskState;
use crate::state::memory_store::MemoryStore;
use crate::state::store::{StateStore, begin_apply, finish_apply};

/// Where state is from a restart on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    Memory,
    /// A store, with so much memory before it. Whether stores that are there are kept.
    Store {
        memory_bytes: u64,
        keep: bool,
    },
}

pub(super) fn backing() -> impl Strategy<Value = Backing> {
    let memory_bytes = prop_oneof![4 => Just(0_u64), 1 => Just(2_000), 1 => Just(1 << 30)];
    prop_oneof![
        1 => Just(Backing::Memory),
        4 => (memory_bytes, prop::bool::weighted(0.7)).prop_map(|(memory_bytes, keep)| Backing::Store { memory_bytes, keep }),
    ]
}

pub(super) struct SubtaskStore {
    store: Rc<MemoryStore>,
    memory_bytes: u64,
    /// Completed checkpoints that are not in the store, with their segments.
    waiting: VecDeque<(CheckpointId, Option<SegmentRef>)>,
}

impl World {
    /// The stores hear of a completed checkpoint.
    pub(super) fn completed_stores(&mut self, checkpoint: CheckpointId, chains: &StateChains) {
        for (subtask, store) in self.stores.iter_mut().enumerate() {
            let id = SegmentId { checkpoint, attempt: Attempt(1), task: TaskIndex(subtask) };
            store.waiting.push_back((checkpoint, chains.segment(id).cloned()));
        }
    }

    /// The oldest waiting checkpoint gets into a subtask's store, or the first writes of it do.
    pub(super) fn apply(&mut self, subtask: usize, writes: Option<u64>) {
        let Some(of) = self.stores.get_mut(subtask) else { return };
        let Some((checkpoint, segment)) = of.waiting.front().cloned() else { return };
        let store = &of.store;
        let store_of = |slot: &str| {
            let slots = super::slots(true);
            // Timers are no slot: they stay in memory.
            let number = slots.iter().position(|known| known.name == slot)?;
            let is_stored = slots[number].kind.is_keyed();
            is_stored.then_some((&**store as &dyn StateStore, u16::try_from(number).unwrap()))
        };
        store.fail_after(writes);
        let apply = || -> Result<(), Box<dyn std::error::Error>> {
            begin_apply(&**store, checkpoint)?;
            if let Some(segment) = &segment {
                apply_segment(&self.storage, segment, |table| store_of(&table.slot))?;
            }
            Ok(finish_apply(&**store, checkpoint)?)
        };
        let result = apply();
        store.fail_after(None);
        if result.is_ok() {
            of.waiting.pop_front();
            let mut state = self.states[subtask].borrow_mut();
            state.confirm(checkpoint);
            state.applied(checkpoint);
        }
    }

    /// Takes stores away, or makes new ones, as far as those that are there are not kept.
    pub(super) fn replace_stores(&mut self, parallelism: u32, backing: Backing) {
        let mut old = std::mem::take(&mut self.stores).into_iter();
        let Backing::Store { memory_bytes, keep } = backing else { return };
        for _ in 0..parallelism {
            let store = old.next().filter(|_| keep).map_or_else(Rc::default, |old| old.store);
            self.stores.push(SubtaskStore { store, memory_bytes, waiting: VecDeque::new() });
        }
    }

    pub(super) fn attach_stores(&self, states: &mut [SubtaskState], has_ttl: bool, restored: Option<CheckpointId>) {
        for ((number, state), of) in (0..).zip(states.iter_mut()).zip(&self.stores) {
            let identity = format!("{} {number} of {} {has_ttl}", operator(), self.stores.len());
            let store = Rc::<MemoryStore>::clone(&of.store);
            let resumed = state.attach_store(store, of.memory_bytes, identity.as_bytes(), restored).unwrap();
            assert!(resumed <= restored);
        }
    }
}

#[test]
fn only_state_of_keys_is_in_stores() {
    for slot in super::slots(true) {
        let is_of_keys = matches!(slot.kind, StateKind::Value | StateKind::Map | StateKind::List);
        assert_eq!(slot.kind.is_keyed(), is_of_keys);
    }
}

fn attached(store: &Rc<MemoryStore>, identity: &[u8], restore: Option<u64>) -> Option<u64> {
    let mut state = super::empty(&super::job(1, false), 0);
    let restore = restore.map(CheckpointId);
    let resumed = state.attach_store(Rc::<MemoryStore>::clone(store), 0, identity, restore).unwrap();
    state.settle_store(restore).unwrap();
    resumed.map(|id| id.0)
}

#[test]
fn a_store_of_something_else_or_of_a_later_time_is_emptied() {
    let store = Rc::new(MemoryStore::default());
    assert_eq!(attached(&store, b"a", None), None);
    begin_apply(&*store, CheckpointId(3)).unwrap();
    finish_apply(&*store, CheckpointId(3)).unwrap();
    assert_eq!(attached(&store, b"a", Some(3)), Some(3));
    assert_eq!(attached(&store, b"a", Some(5)), Some(3), "what it lacks can be added");
    begin_apply(&*store, CheckpointId(7)).unwrap();
    let key = vec![0; 8];
    store.write(vec![(key.clone(), Some(vec![1]))]).unwrap();
    assert_eq!(attached(&store, b"a", Some(6)), None, "it holds a part of 7");
    assert!(!store.get(&key, &mut Vec::new()).unwrap());
    assert_eq!(attached(&store, b"a", Some(5)), None, "it holds 6");
    assert_eq!(attached(&store, b"b", Some(5)), None, "it belongs to another");
    assert_eq!(attached(&store, b"b", None), None, "an empty start");
}
