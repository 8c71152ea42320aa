//! State of every kind through snapshots, aborts, confirmations and restores at other parallelisms, compared with
//! ordinary maps and lists: tables, segments, chains and restore plans together.

mod reference;
mod stores;

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;
use reference::{Bytes, Change, Reference, change, expires, slot, slots};
use stores::{Backing, SubtaskStore};

use super::tests::manifest;
use super::*;
use crate::checkpoint::coordinator::tests::spec;
use crate::checkpoint::memory::MemoryStorage;
use crate::checkpoint::segment::{SegmentEncoder, SegmentHeader, SegmentInfo, SpilledSegment};
use crate::column::BytesColumn;
use crate::guest::{
    Effects, EntryUpdate, InputPort, OperatorUpdate, ReadColumn, ReadLimit, StateReads, StateUpdate, TimeDomain, op,
};
use crate::ids::{Attempt, TaskIndex};
use crate::key_group::{MaxParallelism, key_hash};
use crate::snapshot::StateBlock;
use crate::state::{Due, DueTimers, SharedState, StateOwner, SubtaskState};
use crate::time::ProcessingTime;

const KEYS: u8 = 12;
/// Segments up to this size are parts of manifests; others are files.
const SMALL_BYTES: usize = 500;

#[derive(Clone, Debug)]
enum Action {
    Call(Vec<Change>),
    /// The clock goes on.
    Wait(i64),
    Begin,
    /// A savepoint, on which nothing builds: restored elsewhere, with so many subtasks.
    BeginFull(u32),
    /// A subtask encodes a slice.
    Collect(u8, usize),
    /// A subtask frees what is deleted, and moves what is left in memory that is used little.
    Tidy(u8, usize),
    Complete,
    /// A subtask hears of the newest completed checkpoint.
    Confirm(u8),
    Abort,
    /// From the newest completed checkpoint, with so many subtasks, and with times to live or without.
    Restart(u32, bool, Backing),
    /// A subtask's store gets the next completed checkpoint; or only so many of its writes.
    Apply(u8, Option<u64>),
    /// Each subtask fires timers of a domain up to a time: so many at most, each of which sets another.
    Fire(TimeDomain, i64, usize, Option<i64>),
    /// All of it is read.
    Check,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        10 => prop::collection::vec(change(), 1..20).prop_map(Action::Call),
        3 => (1..60_i64).prop_map(Action::Wait),
        4 => Just(Action::Begin),
        1 => (1..4_u32).prop_map(Action::BeginFull),
        6 => (any::<u8>(), 1..40_usize).prop_map(|(subtask, budget)| Action::Collect(subtask, budget)),
        4 => (any::<u8>(), 1..40_usize).prop_map(|(subtask, slices)| Action::Tidy(subtask, slices)),
        3 => Just(Action::Complete),
        4 => any::<u8>().prop_map(Action::Confirm),
        2 => Just(Action::Abort),
        1 => (prop_oneof![Just(1_u32), Just(2), Just(3), Just(5)], prop::bool::weighted(0.8), stores::backing())
            .prop_map(|(p, t, backing)| Action::Restart(p, t, backing)),
        // The same subtasks again, as after a crash.
        1 => stores::backing().prop_map(|backing| Action::Restart(2, true, backing)),
        4 => (any::<u8>(), prop::option::weighted(0.3, 0..6_u64)).prop_map(|(subtask, writes)| Action::Apply(subtask, writes)),
        4 => (prop::sample::select(&TimeDomain::ALL[..]), -9..9_i64, 1..6_usize, prop::option::weighted(0.3, -2..5_i64))
            .prop_map(|(domain, until, most, later)| Action::Fire(domain, until, most, later)),
        1 => Just(Action::Check),
    ]
}

struct Pending {
    id: CheckpointId,
    /// By subtask.
    blocks: Vec<Vec<StateBlock>>,
    reference: Reference,
}

/// A savepoint in flight, and the parallelism that it is restored with.
struct PendingFull(Pending, u32);

struct World {
    storage: MemoryStorage,
    spec: JobSpec,
    states: Vec<Rc<SharedState>>,
    /// By subtask; empty for state in memory.
    stores: Vec<SubtaskStore>,
    live: Reference,
    has_ttl: bool,
    now: i64,
    writes: u64,
    pending: Vec<Pending>,
    full: Vec<PendingFull>,
    last_id: u64,
    completed: Option<(CheckpointManifest, Reference, bool)>,
    /// The newest completed checkpoint of this attempt.
    completed_id: Option<CheckpointId>,
}

fn job(parallelism: u32, has_ttl: bool) -> JobSpec {
    let mut spec = spec();
    spec.max_parallelism = MaxParallelism::new(17).unwrap();
    spec.nodes[1].parallelism = parallelism;
    let NodeKind::Operator(descriptor) = &mut spec.nodes[1].kind else { panic!() };
    descriptor.slots = slots(has_ttl);
    descriptor.timers = TimeDomain::ALL.to_vec();
    descriptor.inputs.push(InputPort { name: "rules".into(), broadcast: true });
    assert_eq!(descriptor.check(), Ok(()));
    let mut rules = spec.nodes[1].inputs[0].clone();
    rules.to_port = 1;
    spec.nodes[1].inputs.push(rules);
    spec
}

fn operator() -> OperatorId {
    OperatorId::new("count").unwrap()
}

fn empty(spec: &JobSpec, subtask: u32) -> SubtaskState {
    let NodeKind::Operator(descriptor) = &spec.nodes[1].kind else { panic!() };
    let groups = spec.max_parallelism.range(subtask, spec.nodes[1].parallelism);
    let owner = StateOwner { max_parallelism: spec.max_parallelism, groups, subtask: u16::try_from(subtask).unwrap() };
    SubtaskState::new(owner, &descriptor.tables(), 42, 1 << 30)
}

fn column(items: &[&[u8]]) -> BytesColumn {
    items.iter().copied().collect()
}

impl World {
    fn new() -> Self {
        let spec = job(2, true);
        let states = (0..2).map(|subtask| Rc::new(RefCell::new(empty(&spec, subtask)))).collect();
        Self {
            storage: MemoryStorage::default(),
            spec,
            states,
            stores: vec![],
            live: Reference::default(),
            has_ttl: true,
            now: 1000,
            writes: 0,
            pending: vec![],
            full: vec![],
            last_id: 0,
            completed: None,
            completed_id: None,
        }
    }

    fn parallelism(&self) -> u32 {
        self.spec.nodes[1].parallelism
    }

    fn owner(&self, key: u8) -> u32 {
        self.spec.max_parallelism.owner(self.spec.max_parallelism.group_of(key_hash(&[key])), self.parallelism())
    }

    /// Fills every subtask's frame with all keys that it owns, and returns them.
    fn fill_frames(&self) -> Vec<Vec<u8>> {
        let fill = |subtask: u32| {
            let keys: Vec<u8> = (0..KEYS).filter(|key| self.owner(*key) == subtask).collect();
            let column: BytesColumn = keys.iter().map(std::slice::from_ref).collect();
            let state = &self.states[subtask as usize];
            state.borrow_mut().fill_frame(column.as_slice(), &[], ProcessingTime(self.now)).unwrap();
            keys
        };
        (0..self.parallelism()).map(fill).collect()
    }

    /// One call of each subtask with all its keys: reads are compared, then the changes apply.
    fn call(&mut self, changes: &[Change]) {
        self.forget_expired();
        let keys = self.fill_frames();
        self.compare(&keys);
        // Reading has renewed what it renews.
        if self.has_ttl {
            let now = self.now;
            self.live.values.iter_mut().filter(|((slot, _), _)| expires(*slot)).for_each(|(_, (_, stamp))| *stamp = now);
            let maps = self.live.maps.iter_mut().filter(|((slot, _), _)| expires(*slot));
            maps.flat_map(|(_, map)| map.values_mut()).for_each(|(_, stamp)| *stamp = now);
        }
        let mut effects = vec![Effects::default(); self.states.len()];
        // The order in which effects apply: clears of maps, updates, entries, operator updates.
        let phase = |change: &Change| match change {
            Change::ClearMap(..) => 0,
            Change::Value(..) | Change::Append(..) | Change::ClearList(..) => 1,
            Change::Entry(..) => 2,
            Change::Timer(..) => 4,
            _ => 3,
        };
        let mut ordered = changes.to_vec();
        ordered.sort_by_key(phase);
        for change in ordered {
            self.writes += 1;
            let value = value_of(change, self.writes);
            self.live.change(change, &value, self.parallelism(), self.now);
            self.add(change, &value, &keys, &mut effects);
        }
        for (state, effects) in self.states.iter().zip(&effects) {
            let mut state = state.borrow_mut();
            state.check_room(1 << 20).unwrap();
            state.apply(effects);
            state.check_accounts();
            assert_eq!(state.store_failure(), None);
        }
    }

    /// Adds a change to the effects of the subtask, or subtasks, that make it.
    fn add(&self, change: Change, value: &[u8], keys: &[Vec<u8>], effects: &mut [Effects]) {
        let place = |key: u8| {
            let owner = self.owner(key) as usize;
            (owner, u32::try_from(keys[owner].iter().position(|other| *other == key).unwrap()).unwrap())
        };
        let mut update = |slot, key, op, value: &[u8]| {
            let (owner, row) = place(key);
            let update = StateUpdate { slot, rows: vec![row], ops: vec![op], values: column(&[value]) };
            effects[owner].updates.push(update);
        };
        let put = |put: Option<u16>| if put.is_some() { op::PUT } else { op::DELETE };
        match change {
            Change::Value(slot, key, length) => update(slot, key, put(length), value),
            Change::ClearMap(slot, key) | Change::ClearList(slot, key) => update(slot, key, op::CLEAR, b""),
            Change::Append(slot, key, _) => update(slot, key, op::APPEND, value),
            Change::Entry(slot, key, entry, length) => {
                let (owner, row) = place(key);
                let (entry_keys, values) = (column(&[&[entry]]), column(&[value]));
                effects[owner].entries.push(EntryUpdate { slot, rows: vec![row], ops: vec![put(length)], entry_keys, values });
            }
            Change::AppendOwn(slot, subtask, _) => own(&mut effects[self.nth(subtask)], slot, op::APPEND, b"", value),
            Change::ClearOwn(slot, subtask) => own(&mut effects[self.nth(subtask)], slot, op::CLEAR, b"", b""),
            Change::Broadcast(key, length) => {
                effects.iter_mut().for_each(|effects| own(effects, slot::BROADCAST, put(length), &[key], value));
            }
            Change::Timer(op, key, time, tag) => {
                let (owner, row) = place(key);
                set_timer(&mut effects[owner], row, op, (time, tag));
            }
            Change::ClearBroadcast => {
                effects.iter_mut().for_each(|effects| own(effects, slot::BROADCAST, op::CLEAR, b"", b""));
            }
        }
    }

    fn nth(&self, subtask: u8) -> usize {
        usize::from(subtask) % self.states.len()
    }

    fn forget_expired(&mut self) {
        if self.has_ttl {
            self.live.expire(self.now);
        }
    }

    /// Compares everything that can be read with what it must be. The frames hold `keys`.
    fn compare(&self, keys: &[Vec<u8>]) {
        for (subtask, (state, keys)) in (0..).zip(self.states.iter().zip(keys)) {
            self.compare_timers(&state.borrow(), subtask);
            self.compare_frame(&state.borrow(), keys);
            let reads: Rc<dyn StateReads> = Rc::<SharedState>::clone(state);
            for (row, key) in (0..).zip(keys) {
                self.compare_key(&*reads, row, *key);
            }
            for slot in [slot::SPLIT, slot::UNION] {
                let all = self.live.own.get(&(slot, subtask)).cloned().unwrap_or_default();
                compare_list(&all, |start, most| reads.get_operator_list(slot, start, most).unwrap());
            }
            let all: Vec<(u8, Bytes)> = self.live.broadcast.iter().map(|(key, value)| (*key, value.clone())).collect();
            compare_scan(&all, |after, most| reads.scan_broadcast(slot::BROADCAST, after, most).unwrap());
            let asked = column(&[&[3], &[77]]);
            let found = reads.get_broadcast(slot::BROADCAST, asked.as_slice()).unwrap();
            assert_eq!(items(&found), [self.live.broadcast.get(&3).cloned(), None]);
        }
    }

    fn compare_frame(&self, state: &SubtaskState, keys: &[u8]) {
        state.frame().with_view(|frame| {
            assert_eq!(frame.states.iter().map(|column| column.slot).collect::<Vec<_>>(), [slot::VALUE, slot::VALUE_TTL]);
            for column in frame.states {
                for (row, key) in keys.iter().enumerate() {
                    let present = column.present[row / 8] >> (row % 8) & 1 != 0;
                    let expected = self.live.values.get(&(column.slot, *key)).map(|(value, _)| value.clone());
                    assert_eq!(present.then(|| column.values.get(row).to_vec()), expected, "slot {} key {key}", column.slot);
                }
            }
        });
    }

    fn compare_key(&self, reads: &dyn StateReads, row: u32, key: u8) {
        for slot in [slot::VALUE, slot::BY_REQUEST, slot::VALUE_TTL] {
            let found = reads.get_many(slot, &[row, row]).unwrap();
            let expected = self.live.values.get(&(slot, key)).map(|(value, _)| value.clone());
            assert_eq!(items(&found), [expected.clone(), expected], "slot {slot} key {key}");
        }
        for slot in [slot::MAP, slot::MAP_TTL] {
            let map = self.live.maps.get(&(slot, key)).cloned().unwrap_or_default();
            let found = reads.get_entries(slot, &[row, row], column(&[&[7], &[200]]).as_slice()).unwrap();
            assert_eq!(items(&found), [map.get(&7).map(|(value, _)| value.clone()), None]);
            let all: Vec<(u8, Bytes)> = map.into_iter().map(|(entry, (value, _))| (entry, value)).collect();
            compare_scan(&all, |after, most| reads.scan(slot, row, after, most).unwrap());
        }
        for slot in [slot::LIST, slot::LIST_TTL] {
            let list = self.live.lists.get(&(slot, key)).cloned().unwrap_or_default();
            let all: Vec<Bytes> = list.into_iter().map(|(element, _)| element).collect();
            compare_list(&all, |start, most| reads.get_list(slot, row, start, most).unwrap());
        }
    }

    fn compare_timers(&self, state: &SubtaskState, subtask: u32) {
        let mine = |domain: TimeDomain| {
            let timers =
                self.live.timers.iter().filter(move |(of, _, key, _)| *of == domain as u8 && self.owner(*key) == subtask);
            timers.map(|(_, time, key, tag)| (*time, vec![*key], *tag)).collect::<Vec<_>>()
        };
        let all = TimeDomain::ALL.map(mine);
        assert_eq!(state.pending_timers(), all.iter().map(Vec::len).sum::<usize>() as u64);
        assert_eq!(TimeDomain::ALL.map(|domain| state.list_timers(domain)), all);
    }

    /// Each subtask fires one batch. Returns how many timers that were.
    fn fire(&mut self, domain: TimeDomain, until: i64, most: usize, later: Option<i64>) -> usize {
        self.forget_expired();
        let mut fired = 0;
        for subtask in 0..self.states.len() {
            let expected = self.live.batch(domain, until, most, |key| self.owner(key) as usize == subtask);
            let mut state = self.states[subtask].borrow_mut();
            let mut due = DueTimers::default();
            let found = loop {
                match state.take_due(domain, until, (most, 1000), &mut due) {
                    Due::Gathering => {}
                    found => break found,
                }
            };
            assert_eq!(found == Due::Nothing, expected.is_empty());
            let times = due.times.iter().zip(&due.tags).zip(due.keys.iter());
            let taken: Vec<_> = times.map(|((time, tag), key)| (domain as u8, *time, key[0], *tag)).collect();
            assert_eq!(taken, expected);
            state.fill_frame(due.keys.as_slice(), &[], ProcessingTime(self.now)).unwrap();
            let mut effects = Effects::default();
            for (row, timer) in (0..).zip(&expected) {
                self.live.timers.remove(timer);
                // What is handed in with the call is read, and renewed by that.
                if let Some((_, stamp)) = self.live.values.get_mut(&(slot::VALUE_TTL, timer.2)).filter(|_| self.has_ttl) {
                    *stamp = self.now;
                }
                if let Some(later) = later {
                    let (_, time, key, tag) = *timer;
                    let time = time.saturating_add(later);
                    set_timer(&mut effects, row, 2 * (domain as u8), (time, tag));
                    self.live.timers.insert((domain as u8, time, key, tag));
                }
            }
            state.remove_fired(domain, &due);
            state.apply(&effects);
            state.check_accounts();
            fired += expected.len();
        }
        fired
    }

    /// Fires all timers there are.
    fn drain(&mut self) {
        for domain in TimeDomain::ALL {
            while self.fire(domain, i64::MAX, 3, None) > 0 {}
        }
        assert!(self.live.timers.is_empty());
        assert!(self.states.iter().all(|state| state.borrow().pending_timers() == 0));
    }

    fn collect(&mut self, subtask: usize, budget: usize) {
        let mut state = self.states[subtask].borrow_mut();
        state.reap_some(budget);
        state.evict_some();
        state.check_candidates();
        let (pending, full) = (&mut self.pending, &mut self.full);
        state.collect_some(budget, &mut |id, block| {
            let mut all = pending.iter_mut().chain(full.iter_mut().map(|full| &mut full.0));
            let of = all.find(|pending| pending.id == id).expect("no block of a dropped snapshot");
            of.blocks[subtask].push(block);
        });
        drop(state);
        self.compare_full();
    }

    /// Restores a savepoint that is whole, at another parallelism, and compares.
    fn compare_full(&mut self) {
        let is_whole = |full: &PendingFull| self.states.iter().all(|state| !state.borrow().is_collecting_for(full.0.id));
        let Some(at) = self.full.iter().position(is_whole) else { return };
        let PendingFull(pending, parallelism) = self.full.remove(at);
        assert!(pending.blocks.iter().flatten().all(|block| block.kind == SectionKind::Base));
        let manifest = self.manifest(&pending, &StateChains::default());
        let mut restored = World { storage: self.storage.clone(), now: self.now, ..World::new() };
        restored.completed = Some((manifest, pending.reference, self.has_ttl));
        // With the other kind of backing.
        let backing = match self.stores.is_empty() {
            true => Backing::Store { memory_bytes: 0, keep: false },
            false => Backing::Memory,
        };
        restored.restart(parallelism, self.has_ttl, backing);
        restored.check();
    }

    /// Completes the newest snapshot and subsumes the older ones.
    fn complete(&mut self) {
        let Some(newest) = self.pending.last().map(|pending| pending.id) else { return };
        for subtask in 0..self.states.len() {
            while self.states[subtask].borrow().is_collecting_for(newest) {
                self.collect(subtask, 7);
            }
        }
        let pending = self.pending.pop().unwrap();
        for older in self.pending.drain(..) {
            self.states.iter().for_each(|state| state.borrow_mut().drop_snapshot(older.id));
        }
        let empty = StateChains::default();
        let chains = self.completed.as_ref().map_or(&empty, |(manifest, ..)| &manifest.state);
        let manifest = self.manifest(&pending, chains);
        self.completed_stores(newest, &manifest.state);
        self.completed = Some((manifest, pending.reference, self.has_ttl));
        self.completed_id = Some(newest);
    }

    /// Writes the segments of a snapshot and returns its manifest.
    fn manifest(&self, pending: &Pending, chains: &StateChains) -> CheckpointManifest {
        let blocks = (0..).zip(&pending.blocks);
        let written: Vec<_> = blocks.filter_map(|(subtask, blocks)| self.write(pending.id, subtask, blocks)).collect();
        let manifest = manifest(&self.spec);
        let state = chains.advance(&written, &manifest.nodes);
        let manifest = CheckpointManifest { checkpoint: pending.id, state, ..manifest };
        CheckpointManifest::decode(&manifest.encode()).unwrap()
    }

    fn write(&self, checkpoint: CheckpointId, subtask: usize, blocks: &[StateBlock]) -> Option<SegmentInfo> {
        let id = SegmentId { checkpoint, attempt: Attempt(1), task: TaskIndex(subtask) };
        let NodeKind::Operator(descriptor) = &self.spec.nodes[1].kind else { panic!() };
        let tables = descriptor.tables().into_iter().map(|slot| TableId { operator: operator(), slot: slot.name }).collect();
        let header = SegmentHeader { job: "words".into(), id, tables };
        let mut encoder = SegmentEncoder::new(Vec::new(), header).unwrap();
        blocks.iter().for_each(|block| encoder.push(block).unwrap());
        let (bytes, mut info) = encoder.finish().unwrap();
        if bytes.len() <= SMALL_BYTES {
            info.reference.inline = Some(bytes.into());
        } else {
            SpilledSegment { id, bytes: bytes.into() }.write(&self.storage).unwrap();
        }
        (!blocks.is_empty()).then_some(info)
    }

    fn restart(&mut self, parallelism: u32, has_ttl: bool, backing: Backing) {
        self.pending.clear();
        self.replace_stores(parallelism, backing);
        self.full.clear();
        // The new tasks begin with that checkpoint; nobody tells them again.
        self.completed_id = None;
        self.spec = job(parallelism, has_ttl);
        let plan = ExecutionPlan::new(&self.spec).unwrap();
        let mut states: Vec<_> = (0..parallelism).map(|subtask| empty(&self.spec, subtask)).collect();
        self.live = Reference::default();
        let restored = self.completed.as_ref().map(|(manifest, ..)| manifest.checkpoint);
        self.attach_stores(&mut states, has_ttl, restored);
        if let Some((manifest, reference, had_ttl)) = &self.completed {
            self.live = reference.clone();
            self.live.redistribute(manifest.nodes[1].parallelism, parallelism);
            if *had_ttl {
                self.live.expire(self.now);
            } else {
                self.live.stamp_all(self.now);
            }
            let restore = RestorePlan::new(manifest, &self.spec, &plan, &BTreeMap::new()).unwrap();
            for task in plan.tasks.iter().filter(|task| task.nodes.contains(&1)) {
                let state = std::mem::replace(&mut states[task.subtask as usize], empty(&self.spec, 0));
                let mut loaded = BTreeMap::from([(operator(), state)]);
                restore.tasks[task.index.0].load(&self.storage, &mut loaded, ProcessingTime(self.now)).unwrap();
                states[task.subtask as usize] = loaded.remove(&operator()).unwrap();
            }
        }
        for state in &mut states {
            state.settle_store(restored).unwrap();
        }
        self.has_ttl = has_ttl;
        self.states = states.into_iter().map(|state| Rc::new(RefCell::new(state))).collect();
    }

    fn step(&mut self, action: &Action) {
        match action {
            Action::Call(changes) => self.call(changes),
            Action::Wait(ms) => self.now += ms,
            Action::Begin if self.pending.len() < 3 => {
                self.last_id += 1;
                let id = CheckpointId(self.last_id);
                self.states.iter().for_each(|state| state.borrow_mut().begin_snapshot(id, false));
                let blocks = vec![vec![]; self.states.len()];
                self.pending.push(Pending { id, blocks, reference: self.live.clone() });
            }
            Action::BeginFull(parallelism) if self.full.len() < 2 => {
                self.last_id += 1;
                let id = CheckpointId(self.last_id);
                self.states.iter().for_each(|state| state.borrow_mut().begin_snapshot(id, true));
                let pending = Pending { id, blocks: vec![vec![]; self.states.len()], reference: self.live.clone() };
                self.full.push(PendingFull(pending, *parallelism));
            }
            Action::Begin | Action::BeginFull(_) => {}
            Action::Collect(subtask, budget) => self.collect(self.nth(*subtask), *budget),
            Action::Tidy(subtask, slices) => {
                let mut state = self.states[self.nth(*subtask)].borrow_mut();
                (0..*slices).for_each(|_| _ = state.reap_some(20));
                state.check_accounts();
                state.check_candidates();
            }
            Action::Complete => self.complete(),
            Action::Confirm(subtask) => {
                let subtask = self.nth(*subtask);
                self.completed_id.iter().for_each(|id| self.states[subtask].borrow_mut().confirm(*id));
            }
            Action::Abort => {
                if let Some(pending) = self.pending.pop() {
                    self.states.iter().for_each(|state| state.borrow_mut().drop_snapshot(pending.id));
                }
            }
            Action::Fire(domain, until, most, later) => {
                self.fire(*domain, *until, *most, *later);
            }
            Action::Apply(subtask, writes) => self.apply(self.nth(*subtask), *writes),
            Action::Restart(parallelism, has_ttl, backing) => {
                self.restart(*parallelism, *has_ttl, *backing);
                self.check();
            }
            Action::Check => self.check(),
        }
    }

    /// Reads everything, without the effects of a call: nothing is renewed by it.
    fn check(&mut self) {
        self.forget_expired();
        let keys = self.fill_frames();
        self.compare(&keys);
    }
}

fn value_of(change: Change, number: u64) -> Bytes {
    let padding = match change {
        Change::Value(_, _, Some(length)) | Change::Entry(_, _, _, Some(length)) | Change::Broadcast(_, Some(length)) => length,
        Change::Append(_, _, length) | Change::AppendOwn(_, _, length) => length,
        _ => return Bytes::new(),
    };
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + usize::from(padding), 7);
    value
}

fn own(effects: &mut Effects, slot: u32, op: u8, entry_key: &[u8], value: &[u8]) {
    let (entry_keys, values) = (column(&[entry_key]), column(&[value]));
    effects.operator_updates.push(OperatorUpdate { slot, ops: vec![op], entry_keys, values });
}

fn set_timer(effects: &mut Effects, row: u32, op: u8, (time, tag): (i64, u64)) {
    effects.timers.rows.push(row);
    effects.timers.ops.push(op);
    effects.timers.times.push(time);
    effects.timers.tags.push(tag);
}

fn items(found: &ReadColumn) -> Vec<Option<Bytes>> {
    let is_there = |index: usize| found.present[index / 8] >> (index % 8) & 1 != 0;
    let items = found.values.iter().enumerate();
    items.map(|(index, value)| is_there(index).then(|| value.to_vec())).collect()
}

const ALL: ReadLimit = ReadLimit { items: u32::MAX, bytes: usize::MAX };

fn compare_list(all: &[Bytes], read: impl Fn(u32, ReadLimit) -> BytesColumn) {
    let read = |start, most| read(start, most).iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(read(0, ALL), all);
    let start = all.len() / 2;
    assert_eq!(read(u32::try_from(start).unwrap(), ALL), all[start..]);
    let few = ReadLimit { items: 2, bytes: usize::MAX };
    assert_eq!(read(u32::try_from(start).unwrap(), few), all[start..(start + 2).min(all.len())]);
    let one = ReadLimit { items: u32::MAX, bytes: 1 };
    assert_eq!(read(0, one), all[..1.min(all.len())], "the first whatever its size, and no more");
    assert_eq!(read(u32::try_from(all.len()).unwrap(), ALL), Vec::<Bytes>::new());
}

fn compare_scan(all: &[(u8, Bytes)], read: impl Fn(Option<&[u8]>, ReadLimit) -> crate::guest::ReadEntries) {
    let read = |after: Option<&[u8]>, most| {
        let found = read(after, most);
        let values = found.values.iter().map(<[u8]>::to_vec);
        found.keys.iter().map(|key| key[0]).zip(values).collect::<Vec<_>>()
    };
    assert_eq!(read(None, ALL), all);
    let (after, few) = (10, ReadLimit { items: 3, bytes: usize::MAX });
    let expected: Vec<_> = all.iter().filter(|(key, _)| *key > after).take(3).cloned().collect();
    assert_eq!(read(Some(&[after]), few), expected);
    let one = ReadLimit { items: u32::MAX, bytes: 1 };
    assert_eq!(read(None, one), all[..1.min(all.len())]);
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    #[test]
    fn state_of_every_kind_survives_what_happens_to_it(actions in prop::collection::vec(action(), 1..60)) {
        let mut world = World::new();
        actions.iter().for_each(|action| world.step(action));
        world.complete();
        let (parallelism, has_ttl) = (world.parallelism() % 5 + 1, world.has_ttl);
        world.step(&Action::Restart(parallelism, has_ttl, Backing::Memory));
        world.drain();
    }

    #[test]
    fn state_in_a_store_is_the_same_state(
        backing in stores::backing(),
        actions in prop::collection::vec(action(), 1..60),
        last in stores::backing(),
    ) {
        let mut world = World::new();
        world.step(&Action::Restart(2, true, backing));
        actions.iter().for_each(|action| world.step(action));
        world.complete();
        let (parallelism, has_ttl) = (world.parallelism(), world.has_ttl);
        world.step(&Action::Restart(parallelism, has_ttl, last));
        world.drain();
    }
}
