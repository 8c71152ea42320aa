//! The tables against ordinary maps: what a snapshot holds, what increments add up to, what a restore brings back.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::entry::EntryReader;
use super::subtask::SlotTable;
use super::table::Index;
use super::*;
use crate::column::BytesColumn;
use crate::guest::{Effects, StateKind, StateSlot, StateUpdate, op};
use crate::ids::CheckpointId;
use crate::key_group::{KeyGroup, MaxParallelism};
use crate::snapshot::{SectionKind, StateBlock};
use crate::time::ProcessingTime;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const GROUPS: u32 = 5;
const QUOTA: u64 = 1 << 30;
const NOW: ProcessingTime = ProcessingTime(0);

#[derive(Clone, Debug)]
enum Action {
    /// One call: puts (with the value's length) and deletes of keys.
    Call(Vec<(u8, Option<u16>)>),
    Begin,
    /// A full snapshot beside the others, on which nothing builds.
    BeginFull,
    Collect(usize),
    /// The task frees what is deleted, and moves what is left in memory that is used little.
    Tidy(usize),
    Complete,
    /// The task hears of the newest completed checkpoint: at any time after it, or never.
    Confirm,
    Abort,
    Restart,
}

fn action() -> impl Strategy<Value = Action> {
    let length = prop_oneof![8 => 0..40_u16, 1 => 0..2000_u16];
    prop_oneof![
        6 => prop::collection::vec((any::<u8>(), prop::option::weighted(0.7, length)), 1..30).prop_map(Action::Call),
        3 => Just(Action::Begin),
        1 => Just(Action::BeginFull),
        4 => (1..60_usize).prop_map(Action::Collect),
        3 => (1..40_usize).prop_map(Action::Tidy),
        3 => Just(Action::Complete),
        2 => Just(Action::Confirm),
        1 => Just(Action::Abort),
        1 => Just(Action::Restart),
    ]
}

/// What a coordinator keeps: the sections of the latest completed checkpoint, and what it must restore to.
#[derive(Clone, Default)]
struct Completed {
    chains: BTreeMap<u16, Vec<(SectionKind, Vec<StateBlock>)>>,
    state: Map,
}

impl Completed {
    /// Takes over what a snapshot wrote.
    fn append(&mut self, blocks: Vec<StateBlock>) {
        let mut sections: BTreeMap<u16, (SectionKind, Vec<StateBlock>)> = BTreeMap::new();
        for block in blocks {
            let section = sections.entry(block.group.0).or_insert((block.kind, vec![]));
            assert_eq!(section.0, block.kind);
            section.1.push(block);
        }
        for (group, section) in sections {
            let chain = self.chains.entry(group).or_default();
            if section.0 == SectionKind::Base {
                chain.clear();
            }
            chain.push(section);
        }
    }

    fn restored(&self) -> Map {
        contents(&restore(self))
    }
}

struct Pending {
    id: CheckpointId,
    blocks: Vec<StateBlock>,
    state: Map,
}

struct World {
    state: SubtaskState,
    live: Map,
    pending: Vec<Pending>,
    full: Vec<Pending>,
    completed: Completed,
    completed_id: Option<CheckpointId>,
    last_id: u64,
    writes: u64,
}

fn state(owner: StateOwner) -> SubtaskState {
    let slot = StateSlot {
        name: "n".into(),
        kind: StateKind::Value,
        codec: "raw".into(),
        schema: String::new(),
        ttl_ms: 0,
        ttl_on_read: false,
        prefetch: true,
    };
    SubtaskState::new(owner, &[slot], 42, QUOTA)
}

/// All keys and values of the only slot.
fn contents(state: &SubtaskState) -> Map {
    let SlotTable::Value(table) = &state.slots[0].table else { panic!() };
    let places = table.groups.iter().flat_map(|group| group.index.places());
    let entries = places.map(|place| table.arena.entry(place)).filter(|entry| !entry.deleted);
    entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
}

fn empty_state() -> SubtaskState {
    let max_parallelism = MaxParallelism::new(GROUPS).unwrap();
    state(StateOwner { max_parallelism, groups: 0..max_parallelism.get(), subtask: 0 })
}

impl World {
    fn new() -> Self {
        let (pending, full) = (vec![], vec![]);
        let (state, live, completed) = (empty_state(), Map::new(), Completed::default());
        Self { state, live, pending, full, completed, completed_id: None, last_id: 0, writes: 0 }
    }

    fn call(&mut self, changes: &[(u8, Option<u16>)]) {
        let keys: BytesColumn = changes.iter().map(|(key, _)| std::slice::from_ref(key)).collect();
        self.state.fill_frame(keys.as_slice(), &[], NOW).unwrap();
        for (row, key) in self.state.frame().keys.iter().enumerate() {
            let column = &self.state.frame().columns[0];
            let present = column.present[row / 8] >> (row % 8) & 1 != 0;
            assert_eq!(present.then(|| column.values.get(row).to_vec()), self.live.get(key).cloned(), "read of {key:?}");
        }
        let mut update = StateUpdate::default();
        for (index, (key, length)) in changes.iter().enumerate() {
            self.writes += 1;
            update.rows.push(self.state.frame().rows()[index]);
            match length {
                Some(length) => {
                    let mut value = vec![*key; usize::from(*length)];
                    value.extend(self.writes.to_le_bytes());
                    update.ops.push(op::PUT);
                    update.values.push(&value);
                    self.live.insert(vec![*key], value);
                }
                None => {
                    update.ops.push(op::DELETE);
                    update.values.push(b"");
                    self.live.remove(&[*key][..]);
                }
            }
        }
        self.state.check_room(1 << 20).unwrap();
        self.state.apply(&Effects { updates: vec![update], ..Effects::default() });
        assert_eq!(self.state.len(0), self.live.len() as u64);
    }

    fn collect(&mut self, budget: usize) {
        self.state.reap_some(budget);
        let (pending, full) = (&mut self.pending, &mut self.full);
        self.state.collect_some(budget, &mut |id, block| {
            let of = pending.iter_mut().chain(&mut *full).find(|pending| pending.id == id);
            of.expect("no block of a dropped snapshot").blocks.push(block);
        });
        while let Some(at) = self.full.iter().position(|full| !self.state.is_collecting_for(full.id)) {
            let full = self.full.remove(at);
            let mut completed = Completed::default();
            completed.append(full.blocks);
            assert!(completed.chains.values().flatten().all(|section| section.0 == SectionKind::Base));
            assert_eq!(completed.restored(), full.state, "a full snapshot stands on its own");
        }
    }

    /// Completes the newest snapshot and subsumes the older ones.
    fn complete(&mut self) {
        let Some(newest) = self.pending.last().map(|pending| pending.id) else {
            return;
        };
        while self.state.is_collecting_for(newest) {
            self.collect(7);
        }
        let pending = self.pending.pop().unwrap();
        self.pending.drain(..).for_each(|older| self.state.drop_snapshot(older.id));
        self.completed.append(pending.blocks);
        self.completed.state = pending.state;
        self.completed_id = Some(newest);
        assert_eq!(self.completed.restored(), self.completed.state);
    }

    fn step(&mut self, action: &Action) {
        match action {
            Action::Call(changes) => self.call(changes),
            Action::Begin if self.pending.len() < 3 => {
                self.last_id += 1;
                let id = CheckpointId(self.last_id);
                self.state.begin_snapshot(id, false);
                self.pending.push(Pending { id, blocks: vec![], state: self.live.clone() });
            }
            Action::BeginFull if self.full.len() < 2 => {
                self.last_id += 1;
                let id = CheckpointId(self.last_id);
                self.state.begin_snapshot(id, true);
                self.full.push(Pending { id, blocks: vec![], state: self.live.clone() });
            }
            Action::Begin | Action::BeginFull => {}
            Action::Collect(budget) => self.collect(*budget),
            Action::Tidy(slices) => (0..*slices).for_each(|_| _ = self.state.reap_some(20)),
            Action::Complete => self.complete(),
            Action::Confirm => self.completed_id.iter().for_each(|id| self.state.confirm(*id)),
            Action::Abort => {
                if let Some(pending) = self.pending.pop() {
                    self.state.drop_snapshot(pending.id);
                }
            }
            Action::Restart => {
                self.state = restore(&self.completed);
                self.live = self.completed.state.clone();
                self.pending.clear();
                self.full.clear();
                // The new task begins with that checkpoint; nobody tells it again.
                self.completed_id = None;
            }
        }
    }

    fn complete_and_confirm(&mut self) {
        self.complete();
        self.step(&Action::Confirm);
    }
}

fn restore(completed: &Completed) -> SubtaskState {
    restore_as(completed, false)
}

/// `rewritten`: as if the values had been brought to another schema.
fn restore_as(completed: &Completed, rewritten: bool) -> SubtaskState {
    let mut state = empty_state();
    let mut slot = SlotRestore::new(0, Deal::InPlace, 0, NOW).rewritten(rewritten);
    let mut groups = Vec::new();
    for (group, chain) in &completed.chains {
        let group = KeyGroup(*group);
        for entry in chain.iter().flat_map(|section| &section.1).flat_map(|block| EntryReader::new(&block.bytes)) {
            slot.apply(&mut state, group, &entry.unwrap()).unwrap();
        }
        let delta_bytes = chain[1..].iter().flat_map(|section| &section.1).map(|block| block.bytes.len() as u64).sum();
        groups.push((group, u32::try_from(chain.len() - 1).unwrap(), delta_bytes));
    }
    slot.finish(&mut state, groups).unwrap();
    state
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    #[test]
    fn completed_checkpoints_restore_to_the_state_at_their_cut(actions in prop::collection::vec(action(), 1..80)) {
        let mut world = World::new();
        actions.iter().for_each(|action| world.step(action));
        world.complete();
    }
}

#[test]
fn an_unchanged_state_adds_nothing_and_one_change_adds_one_entry() {
    let mut world = World::new();
    let all: Vec<_> = (0..=255).map(|key| (key, Some(16))).collect();
    let bytes = |world: &mut World| {
        world.step(&Action::Begin);
        while world.state.is_collecting() {
            world.collect(10);
        }
        let entries: u32 = world.pending[0].blocks.iter().map(|block| block.entries).sum();
        world.complete_and_confirm();
        entries
    };
    world.call(&all);
    assert_eq!(bytes(&mut world), 256);
    assert_eq!(bytes(&mut world), 0);
    world.call(&[(7, Some(16))]);
    assert_eq!(bytes(&mut world), 1);
    world.step(&Action::Restart);
    world.call(&[(8, Some(16))]);
    assert_eq!(bytes(&mut world), 1, "restored entries are clean");
}

#[test]
fn values_that_a_restore_has_rewritten_are_written_in_full_next() {
    let mut world = World::new();
    let all: Vec<_> = (0..=255).map(|key| (key, Some(16))).collect();
    world.call(&all);
    world.step(&Action::Begin);
    world.complete_and_confirm();
    world.state = restore_as(&world.completed, true);
    world.step(&Action::Begin);
    while world.state.is_collecting() {
        world.collect(10);
    }
    let blocks = &world.pending[0].blocks;
    assert!(blocks.iter().all(|block| block.kind == SectionKind::Base), "what is stored is of another form");
    assert_eq!(blocks.iter().map(|block| block.entries).sum::<u32>(), 256);
}

#[test]
fn increments_of_an_aborted_checkpoint_are_in_the_next() {
    let mut world = World::new();
    world.call(&[(1, Some(1)), (2, Some(2))]);
    world.step(&Action::Begin);
    world.complete_and_confirm();
    world.call(&[(1, None)]);
    world.step(&Action::Begin);
    world.step(&Action::Abort);
    world.step(&Action::Begin);
    world.complete_and_confirm();
    assert_eq!(world.completed.state.len(), 1);
}

#[test]
fn a_full_snapshot_changes_nothing_about_the_next_increment() {
    let mut world = World::new();
    let all: Vec<_> = (0..=255).map(|key| (key, Some(16))).collect();
    world.call(&all);
    world.step(&Action::Begin);
    world.complete_and_confirm();
    world.call(&[(1, Some(1))]);
    world.step(&Action::BeginFull);
    world.call(&[(2, Some(2))]);
    world.step(&Action::Begin);
    while world.state.is_collecting() {
        world.collect(10);
    }
    assert!(world.full.is_empty(), "it is complete, and was compared");
    let changed: u32 = world.pending[0].blocks.iter().map(|block| block.entries).sum();
    assert_eq!(changed, 2, "what was written before the full snapshot and after it, and nothing else");
    world.complete_and_confirm();
}

#[test]
fn memory_is_bounded_when_values_change_size_at_every_write() {
    let mut world = World::new();
    for round in 0..3000_u16 {
        world.call(&[(1, Some(round % 300)), (2, None), (2, Some(1)), (3, Some(round % 7 * 100))]);
    }
    assert!(world.state.memory_bytes() < 200 << 10, "{}", world.state.memory_bytes());
}

#[test]
fn a_key_of_another_subtask_is_refused() {
    let groups = MaxParallelism::new(2).unwrap();
    let mut state = state(StateOwner { max_parallelism: groups, groups: 0..1, subtask: 0 });
    let keys: Vec<_> = (0..50_u8).collect();
    let column: BytesColumn = keys.iter().map(std::slice::from_ref).collect();
    assert!(state.fill_frame(column.as_slice(), &[], NOW).is_err());
}
