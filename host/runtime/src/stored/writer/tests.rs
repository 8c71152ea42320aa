//! State of every kind, written without a job, against maps and lists: read as it is stored, and as an operator reads it that was
//! restored from it, at any parallelism and with either backend.

use std::cell::RefCell;
use std::rc::Rc;

use cofferdam_dataflow::checkpoint::restore::RestorePlan;
use cofferdam_dataflow::column::BytesColumn;
use cofferdam_dataflow::graph::plan::ExecutionPlan;
use cofferdam_dataflow::graph::spec::{InputSpec, JobSpec, NodeKind, NodeSpec};
use cofferdam_dataflow::guest::{ReadColumn, ReadEntries, ReadLimit, StateReads};
use cofferdam_dataflow::state::memory_store::MemoryStore;
use cofferdam_dataflow::state::{SharedState, StateOwner, SubtaskState};
use proptest::prelude::*;

use super::super::{StoredEntry, StoredJob};
use super::*;

const TTL_MS: u64 = 100;
/// When entries of slots with a time to live were used unless they say so.
const USED_MS: i64 = 50;
/// When the state is restored.
const NOW: ProcessingTime = ProcessingTime(120);
/// What has expired by then.
const OLD_MS: i64 = 20;
const ALL: ReadLimit = ReadLimit { items: u32::MAX, bytes: usize::MAX };
const GROUPS: u16 = 17;

type Bytes = Vec<u8>;

/// By slot: whether it has a time to live comes after its kind.
const SLOTS: [(&str, StateKind, bool); 9] = [
    ("value", StateKind::Value, false),
    ("value-ttl", StateKind::Value, true),
    ("map", StateKind::Map, false),
    ("map-ttl", StateKind::Map, true),
    ("list", StateKind::List, false),
    ("list-ttl", StateKind::List, true),
    ("split", StateKind::ListSplit, false),
    ("union", StateKind::ListUnion, false),
    ("rules", StateKind::Broadcast, false),
];

fn new_slot(number: usize) -> NewSlot {
    let (name, kind, expires) = SLOTS[number];
    let slot = NewSlot::new("keep", name, kind, "raw", "");
    if expires { slot.expiring(TTL_MS, USED_MS) } else { slot }
}

/// What is written: key, entry key, length, and whether it was last used long ago. Which of them matter depends on the slot.
type Item = (u8, u8, u16, bool);

fn items() -> impl Strategy<Value = Vec<Item>> {
    let length = prop_oneof![6 => 0..20_u16, 2 => 200..1500_u16, 1 => 4000..9000_u16];
    proptest::collection::vec((0..7_u8, 0..9_u8, length, any::<bool>()), 0..40)
}

/// Leaves out what would be there twice.
fn unique(kind: StateKind, items: &[Item]) -> Vec<Item> {
    let mut known = BTreeSet::new();
    let is_new = |&&(key, entry, ..): &&Item| match kind {
        StateKind::Value => known.insert((key, 0)),
        StateKind::Map => known.insert((key, entry)),
        StateKind::Broadcast => known.insert((0, entry)),
        _ => true,
    };
    items.iter().filter(is_new).copied().collect()
}

fn value_of(at: usize, length: u16) -> Bytes {
    let mut value = at.to_le_bytes().to_vec();
    value.resize(8 + usize::from(length), 7);
    value
}

fn entry(kind: StateKind, expires: bool, at: usize, (key, entry, length, is_old): Item) -> NewEntry {
    let value = value_of(at, length);
    let new = match kind {
        StateKind::Value => NewEntry::value([key], value),
        StateKind::Map => NewEntry::map([key], [entry], value),
        StateKind::List => NewEntry::element([key], value),
        StateKind::ListSplit | StateKind::ListUnion => NewEntry::own_element(value),
        StateKind::Broadcast => NewEntry::broadcast([entry], value),
    };
    if expires && is_old { new.used_at(OLD_MS) } else { new }
}

fn write(folder: &Path, all: &[Vec<Item>], buffered_bytes: usize) {
    let state = NewState { max_parallelism: GROUPS, ..NewState::new("shop") };
    let mut writer = SavepointWriter::create(folder, state).unwrap();
    writer.buffered_bytes = buffered_bytes;
    writer.declare("keep", (0..SLOTS.len()).map(|number| new_slot(number).slot).collect()).unwrap();
    for (number, items) in all.iter().enumerate() {
        let (_, kind, expires) = SLOTS[number];
        let entries = items.iter().enumerate().map(|(at, item)| entry(kind, expires, at, *item));
        writer.fill(&new_slot(number), entries).unwrap();
    }
    writer.finish().unwrap();
}

/// What is stored of a slot: each entry with its key, entry key, place in its list and stamp, in their order.
fn stored(folder: &Path, number: usize) -> Vec<StoredEntry> {
    let checkpoint = StoredJob::open(folder).unwrap().checkpoint(None).unwrap();
    let mut slot = checkpoint.slot("keep", SLOTS[number].0).unwrap();
    assert_eq!(slot.info().kind, SLOTS[number].1.name());
    slot.entries().map(Result::unwrap).map(|entry| StoredEntry { group: KeyGroup(0), ..entry }).collect()
}

fn expected(number: usize, items: &[Item]) -> Vec<StoredEntry> {
    let (_, kind, expires) = SLOTS[number];
    let mut places: BTreeMap<Bytes, u64> = BTreeMap::new();
    let mut all: Vec<_> = items
        .iter()
        .enumerate()
        .map(|(at, &(key, entry, length, is_old))| {
            let key = if kind.is_keyed() { vec![key] } else { vec![] };
            let index = kind.is_list().then(|| {
                let place = places.entry(key.clone()).or_default();
                *place += 1;
                *place - 1
            });
            let used_ms = expires.then_some(if is_old { OLD_MS } else { USED_MS });
            let entry_key = kind.is_map().then(|| vec![entry]);
            StoredEntry { group: KeyGroup(0), key, entry_key, index, used_ms, value: value_of(at, length) }
        })
        .collect();
    all.sort_by_key(|entry| (entry.key.clone(), entry.entry_key.clone(), entry.index));
    all
}

fn job(parallelism: u32) -> JobSpec {
    let id = |name: &str| OperatorId::new(name).unwrap();
    let input = |from: &str, to_port| InputSpec { from: id(from), from_port: 0, to_port, partition: None };
    let port = |name: &str, broadcast| InputPort { name: name.into(), broadcast };
    let descriptor = Descriptor {
        inputs: vec![port("in", false), port("rules", true)],
        outputs: vec!["out".into()],
        slots: (0..SLOTS.len()).map(|number| new_slot(number).slot).collect(),
        timers: vec![],
        keyed: true,
        max_batch: 0,
    };
    assert_eq!(descriptor.check(), Ok(()));
    let node = |name, parallelism, kind, inputs| NodeSpec { id: id(name), parallelism, kind, inputs };
    JobSpec {
        name: "shop".into(),
        max_parallelism: MaxParallelism::new(GROUPS.into()).unwrap(),
        nodes: vec![
            node("lines", 1, NodeKind::Source, vec![]),
            node("keep", parallelism, NodeKind::Operator(descriptor), vec![input("lines", 0), input("lines", 1)]),
            node("out", 1, NodeKind::Sink, vec![input("keep", 0)]),
        ],
    }
}

/// Restores as a job does; returns the state of each subtask.
fn restored(folder: &Path, parallelism: u32, on_disk: bool) -> Vec<Rc<SharedState>> {
    let storage = LocalStorage::open(folder).unwrap();
    let manifest = CheckpointManifest::decode(&storage.read_manifest(CheckpointId(1)).unwrap()).unwrap();
    let spec = job(parallelism);
    let plan = ExecutionPlan::new(&spec).unwrap();
    let restore = RestorePlan::new(&manifest, &spec, &plan, &BTreeMap::new()).unwrap();
    let NodeKind::Operator(descriptor) = &spec.nodes[1].kind else { panic!() };
    let mut states = Vec::new();
    for task in plan.tasks.iter().filter(|task| task.nodes.contains(&1)) {
        let groups = spec.max_parallelism.range(task.subtask, parallelism);
        let subtask = u16::try_from(task.subtask).unwrap();
        let owner = StateOwner { max_parallelism: spec.max_parallelism, groups, subtask };
        let mut state = SubtaskState::new(owner, &descriptor.slots, 42, 1 << 30);
        if on_disk {
            state.attach_store(Rc::new(MemoryStore::default()), 0, b"test", Some(CheckpointId(1))).unwrap();
        }
        let mut loaded = BTreeMap::from([(OperatorId::new("keep").unwrap(), state)]);
        restore.tasks[task.index.0].load(&storage, &mut loaded, NOW).unwrap();
        let mut state = loaded.pop_first().unwrap().1;
        state.settle_store(Some(CheckpointId(1))).unwrap();
        states.push(Rc::new(RefCell::new(state)));
    }
    assert_eq!(states.len(), parallelism as usize);
    states
}

fn optional(found: &ReadColumn) -> Option<Bytes> {
    (found.present[0] & 1 != 0).then(|| found.values.get(0).to_vec())
}

fn pairs(found: &ReadEntries) -> Vec<(Bytes, Bytes)> {
    found.keys.iter().zip(found.values.iter()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn list(found: &BytesColumn) -> Vec<Bytes> {
    found.iter().map(<[u8]>::to_vec).collect()
}

/// Compares what each subtask reads for each of its keys, and without a key, with what was written and has not expired.
fn compare(states: &[Rc<SharedState>], all: &[Vec<Item>]) {
    let live = |number: usize| -> Vec<(Item, Bytes)> {
        let items = all[number].iter().enumerate();
        let live = items.filter(|(_, (.., is_old))| !(SLOTS[number].2 && *is_old));
        live.map(|(at, item)| (*item, value_of(at, item.2))).collect()
    };
    let spec = job(u32::try_from(states.len()).unwrap());
    let mut split = Vec::new();
    for (subtask, state) in (0..).zip(states) {
        for key in 0..7_u8 {
            let group = spec.max_parallelism.group_of(key_hash(&[key]));
            if spec.max_parallelism.owner(group, spec.nodes[1].parallelism) != subtask {
                continue;
            }
            let keys: BytesColumn = [&[key][..]].into_iter().collect();
            state.borrow_mut().fill_frame(keys.as_slice(), &[], NOW).unwrap();
            let reads: &dyn StateReads = &**state;
            let of_key = |number| live(number).into_iter().filter(|((of, ..), _)| *of == key).collect::<Vec<_>>();
            for number in [0, 1] {
                let expected = of_key(number).pop().map(|(_, value)| value);
                let slot = u32::try_from(number).unwrap();
                assert_eq!(optional(&reads.get_many(slot, &[0]).unwrap()), expected, "{:?} key {key}", SLOTS[number]);
            }
            for number in [2, 3] {
                let mut expected: Vec<_> =
                    of_key(number).into_iter().map(|((_, entry, ..), value)| (vec![entry], value)).collect();
                expected.sort();
                let slot = u32::try_from(number).unwrap();
                assert_eq!(pairs(&reads.scan(slot, 0, None, ALL).unwrap()), expected, "{:?} key {key}", SLOTS[number]);
            }
            for number in [4, 5] {
                let expected: Vec<_> = of_key(number).into_iter().map(|(_, value)| value).collect();
                let slot = u32::try_from(number).unwrap();
                assert_eq!(list(&reads.get_list(slot, 0, 0, ALL).unwrap()), expected, "{:?} key {key}", SLOTS[number]);
            }
        }
        let reads: &dyn StateReads = &**state;
        split.extend(list(&reads.get_operator_list(6, 0, ALL).unwrap()));
        let union: Vec<_> = live(7).into_iter().map(|(_, value)| value).collect();
        assert_eq!(list(&reads.get_operator_list(7, 0, ALL).unwrap()), union, "every subtask has all of it");
        let mut rules: Vec<_> = live(8).into_iter().map(|((_, entry, ..), value)| (vec![entry], value)).collect();
        rules.sort();
        assert_eq!(pairs(&reads.scan_broadcast(8, None, ALL).unwrap()), rules);
    }
    assert_eq!(split, live(6).into_iter().map(|(_, value)| value).collect::<Vec<_>>(), "dealt out, none twice");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_kind_is_read_and_restored_as_it_was_written(
        all in proptest::collection::vec(items(), SLOTS.len()),
        buffered_bytes in prop_oneof![Just(0_usize), Just(3000), Just(BUFFERED_BYTES)],
        parallelism in 1..5_u32,
    ) {
        let all: Vec<Vec<Item>> = all.iter().zip(SLOTS).map(|(items, (_, kind, _))| unique(kind, items)).collect();
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &all, buffered_bytes);
        for (number, items) in all.iter().enumerate() {
            let mut found = stored(folder.path(), number);
            // By key group; the order within a list is what is stored.
            found.sort_by_key(|entry| (entry.key.clone(), entry.entry_key.clone(), entry.index));
            prop_assert_eq!(found, expected(number, items), "{:?}", SLOTS[number]);
        }
        for on_disk in [false, true] {
            compare(&restored(folder.path(), parallelism, on_disk), &all);
        }
    }
}

#[test]
fn elements_of_many_lists_that_come_in_turns_are_chunks_of_tables_size() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SavepointWriter::create(folder.path(), NewState::new("shop")).unwrap();
    let elements = (0..20_000_u32).map(|n| NewEntry::element([u8::try_from(n % 5).unwrap()], n.to_le_bytes()));
    writer.fill(&new_slot(4), elements).unwrap();
    writer.finish().unwrap();
    let checkpoint = StoredJob::open(folder.path()).unwrap().checkpoint(None).unwrap();
    let mut slot = checkpoint.slot("keep", "list").unwrap();
    for key in 0..5_u8 {
        let found: Vec<_> = slot.entries_of(&[key]).unwrap().into_iter().map(|entry| entry.value).collect();
        let expected: Vec<_> = (0..20_000_u32).filter(|n| n % 5 == u32::from(key)).map(|n| n.to_le_bytes().to_vec()).collect();
        assert!(found == expected);
    }
    let storage = LocalStorage::open_to_read(folder.path()).unwrap();
    let id = storage.segments().unwrap()[0];
    let manifest = CheckpointManifest::decode(&storage.read_manifest(CheckpointId(1)).unwrap()).unwrap();
    let reader = SegmentReader::open(storage.open_segment(id).unwrap(), manifest.state.segment(id).unwrap()).unwrap();
    // 4000 elements of 5 bytes each are 5 chunks.
    assert_eq!(reader.sections().iter().map(|section| section.entries).sum::<u64>(), 25);
}

#[test]
fn what_does_not_belong_into_a_slot_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SavepointWriter::create(folder.path(), NewState::new("shop")).unwrap();
    let mut error = |slot: &NewSlot, entries: Vec<NewEntry>| writer.fill(slot, entries).unwrap_err().to_string();
    let map = || NewEntry::map(*b"ann", *b"tea", *b"1");
    assert_eq!(
        error(&new_slot(0), vec![map()]),
        "slot \"value\" is of kind value; an entry of a key's map (key ann, entry tea) does not belong there"
    );
    for (number, (_, kind, _)) in SLOTS.into_iter().enumerate() {
        for other in [StateKind::Value, StateKind::Map, StateKind::List, StateKind::ListSplit, StateKind::Broadcast] {
            let fits = kind == other || (kind, other) == (StateKind::ListUnion, StateKind::ListSplit);
            if !fits {
                let told = error(&new_slot(number), vec![entry(other, false, 0, (1, 2, 3, false))]);
                assert!(told.contains("does not belong there"), "{kind:?} {other:?}: {told}");
            }
        }
    }
    assert_eq!(error(&new_slot(2), vec![map(), map()]), "slot \"map\" has the key ann, entry tea twice");
    let rule = || NewEntry::broadcast(*b"tea", *b"1");
    assert_eq!(error(&new_slot(8), vec![rule(), rule()]), "slot \"rules\" has the key tea twice");
    let value = || NewEntry::value(*b"ann", *b"1");
    assert!(error(&new_slot(0), vec![value().used_at(7)]).contains("has no time to live"));
    let unstamped = NewSlot { used_ms: None, ..new_slot(1) };
    assert!(error(&unstamped, vec![value()]).contains("when the entry of key ann was last used is not said"));
    let long = NewEntry::map(vec![7; 65_000], vec![7; 600], *b"1");
    assert!(error(&new_slot(2), vec![long]).contains("has 65600 bytes with its entry key; at most 65530"));
    let own = NewSlot::new("keep", "own", StateKind::ListSplit, "raw", "").expiring(5, 5);
    assert!(error(&own, vec![]).contains("is of kind list-split and has a time to live"));
    assert!(error(&NewSlot::value("keep", "No Name", "", ""), vec![]).contains("slot name"));

    let slots = vec![new_slot(0).slot, new_slot(2).slot];
    writer.declare("keep", slots.clone()).unwrap();
    assert!(matches!(writer.declare("keep", slots), Err(SavepointError::DeclaredTwice(_))));
    let unknown = writer.fill(&new_slot(4), []).unwrap_err().to_string();
    assert_eq!(unknown, "\"keep\" does not declare the slot \"list\"; it has value, map");
    let other = writer.fill(&NewSlot::new("keep", "map", StateKind::Map, "json", ""), []).unwrap_err();
    assert!(matches!(other, SavepointError::OtherSlot { .. }), "{other}");
    writer.fill(&new_slot(2), [map()]).unwrap();
    writer.slot(&NewSlot::value("other", "n", "", ""), []).unwrap();
    let late = writer.declare("other", vec![]).unwrap_err().to_string();
    assert_eq!(late, "\"other\" does not declare the slot \"n\"; it has none");
    writer.finish().unwrap();
    let checkpoint = StoredJob::open(folder.path()).unwrap().checkpoint(None).unwrap();
    let slots: Vec<_> = checkpoint.slots().into_iter().map(|info| info.slot).collect();
    assert_eq!(slots, ["map", "value", "n"], "those that were not written are declared");
}
