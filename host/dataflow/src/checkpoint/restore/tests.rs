//! Restores at other parallelisms, and what is refused.

use super::*;
use crate::checkpoint::coordinator::JobDescription;
use crate::checkpoint::coordinator::tests::spec;
use crate::checkpoint::memory::MemoryStorage;
use crate::checkpoint::segment::{SegmentEncoder, SegmentHeader};
use crate::connector::Transaction;
use crate::ids::{Attempt, TaskIndex};
use crate::key_group::MaxParallelism;
use crate::snapshot::StateBlock;
use crate::state::entry::{Entry, EntryReader};
use crate::time::{EventTime, ProcessingTime};

pub(in crate::checkpoint) fn id(name: &str) -> OperatorId {
    OperatorId::new(name).unwrap()
}

pub(in crate::checkpoint) fn job(max_parallelism: u32, parallelism: u32) -> JobSpec {
    let mut spec = spec();
    spec.max_parallelism = MaxParallelism::new(max_parallelism).unwrap();
    spec.nodes[1].parallelism = parallelism;
    spec
}

fn dealt(manifest: &CheckpointManifest, spec: &JobSpec) -> Result<RestorePlan, Incompatible> {
    RestorePlan::new(manifest, spec, &ExecutionPlan::new(spec).unwrap(), &BTreeMap::new())
}

/// A checkpoint of a job whose every node has state; watermarks are 10 times the subtask's index.
pub(in crate::checkpoint) fn manifest(spec: &JobSpec) -> CheckpointManifest {
    let description = JobDescription::new(spec, "test", &BTreeMap::new());
    let mut subtasks = Vec::new();
    for node in &description.nodes {
        for index in 0..node.parallelism {
            let split = format!("{index}");
            let part = match &node.kind {
                ManifestNodeKind::Source => SubtaskPart::Source {
                    positions: vec![SplitPosition { split, position: vec![1], finished: false, display: String::new() }],
                },
                ManifestNodeKind::Operator { slots, .. } => SubtaskPart::Operator { slots: slots.clone() },
                ManifestNodeKind::Sink => SubtaskPart::Sink { transactions: vec![] },
            };
            let watermark = Some(Watermark(EventTime(i64::from(index) * 10)));
            let id = SubtaskId { operator: node.id.clone(), index };
            subtasks.push(SubtaskSnapshot { id, watermark, finished: false, part });
        }
    }
    CheckpointManifest {
        job: spec.name.clone(),
        checkpoint: CheckpointId(3),
        attempt: Attempt(1),
        parent: None,
        created: ProcessingTime(0),
        engine: "test".into(),
        max_parallelism: spec.max_parallelism,
        is_final: false,
        nodes: description.nodes,
        subtasks,
        state: StateChains::default(),
    }
}

/// Writes what one task of `count` would: for each of its groups one entry, group -> value.
pub(in crate::checkpoint) fn write(
    storage: &MemoryStorage,
    checkpoint: u64,
    task: usize,
    groups: Range<u16>,
    kind: SectionKind,
) -> crate::checkpoint::segment::SegmentInfo {
    let segment = SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(1), task: TaskIndex(task) };
    let tables = vec![TableId { operator: id("count"), slot: "n".into() }];
    let header = SegmentHeader { job: "words".into(), id: segment, tables };
    let mut encoder = SegmentEncoder::new(storage.create_segment(segment).unwrap(), header).unwrap();
    for group in groups {
        let mut bytes = Vec::new();
        let value = [u8::try_from(checkpoint).unwrap()];
        Entry::Put { key: &group.to_be_bytes(), value: &value }.encode(&mut bytes);
        encoder.push(&StateBlock { table: 0, group: KeyGroup(group), kind, entries: 1, bytes }).unwrap();
    }
    let (file, info) = encoder.finish().unwrap();
    file.sync().unwrap();
    info
}

/// Group -> value, of what a task loads.
fn load(task: &TaskRestore, storage: &MemoryStorage) -> Result<BTreeMap<u16, u8>, SegmentError> {
    let mut state = BTreeMap::new();
    task.read(storage, |_, group, entries| {
        for entry in EntryReader::new(entries) {
            let Ok(Entry::Put { key, value }) = entry else { panic!() };
            assert_eq!(key, group.0.to_be_bytes());
            state.insert(group.0, value[0]);
        }
        Ok::<(), SegmentError>(())
    })?;
    Ok(state)
}

#[test]
fn key_groups_move_as_units_to_any_parallelism() {
    let storage = MemoryStorage::default();
    let old = job(17, 2);
    let first = [write(&storage, 1, 2, 0..9, SectionKind::Base), write(&storage, 1, 3, 9..17, SectionKind::Base)];
    let second = [write(&storage, 2, 2, 3..5, SectionKind::Delta), write(&storage, 2, 3, 16..17, SectionKind::Base)];
    let state = StateChains::default().advance(&first, &[]).advance(&second, &[]);
    let manifest = CheckpointManifest { state, ..manifest(&old) };
    let manifest = CheckpointManifest::decode(&manifest.encode()).unwrap();
    for (parallelism, expected) in
        [(2, vec![0..9, 9..17]), (3, vec![0..6, 6..12, 12..17]), (5, vec![0..4, 4..7, 7..11, 11..14, 14..17])]
    {
        let plan = dealt(&manifest, &job(17, parallelism)).unwrap();
        let count = plan.tasks.iter().filter(|task| task.subtasks[0].id.operator == id("count"));
        let loaded: Vec<_> = count.map(|task| load(task, &storage).unwrap()).collect();
        let keys: Vec<Vec<u16>> = loaded.iter().map(|state| state.keys().copied().collect()).collect();
        assert_eq!(keys, expected.into_iter().map(Iterator::collect::<Vec<_>>).collect::<Vec<_>>());
        let changed: Vec<_> = loaded.iter().flatten().filter(|(_, value)| **value == 2).map(|(group, _)| *group).collect();
        assert_eq!(changed, [3, 4, 16], "the later section wins");
    }
}

#[test]
fn a_segment_that_lacks_a_group_of_its_chain_is_damaged() {
    let storage = MemoryStorage::default();
    let mut base = write(&storage, 1, 2, 0..8, SectionKind::Base);
    let missing = crate::checkpoint::segment::SectionInfo { group: KeyGroup(12), ..base.sections[0].clone() };
    base.sections.push(missing);
    let state = StateChains::default().advance(&[base], &[]);
    let plan = dealt(&CheckpointManifest { state, ..manifest(&job(16, 2)) }, &job(16, 1)).unwrap();
    let task = plan.tasks.iter().find(|task| !task.tables.is_empty()).unwrap();
    assert!(load(task, &storage).unwrap_err().to_string().contains("it lacks key group 12 of \"n\" in \"count\""));
}

#[test]
fn a_watermark_is_the_least_of_those_that_contribute() {
    let manifest = manifest(&job(16, 4));
    let watermarks = |parallelism| {
        let plan = dealt(&manifest, &job(16, parallelism)).unwrap();
        let count = plan.tasks.iter().filter(|task| task.subtasks[0].id.operator == id("count"));
        count.map(|task| task.subtasks[0].watermark.unwrap().0.0).collect::<Vec<_>>()
    };
    assert_eq!(watermarks(4), [0, 10, 20, 30]);
    assert_eq!(watermarks(2), [0, 20]);
    assert_eq!(watermarks(3), [0, 10, 20]);
    assert_eq!(watermarks(8), [0, 0, 10, 10, 20, 20, 30, 30]);
    let mut unknown = manifest.clone();
    unknown.subtasks.iter_mut().for_each(|subtask| subtask.watermark = subtask.watermark.filter(|w| w.0.0 != 20));
    let plan = dealt(&unknown, &job(16, 1)).unwrap();
    assert_eq!(plan.tasks[2].subtasks[0].watermark, None, "nothing was promised for all");
}

#[test]
fn splits_are_found_by_name_and_never_twice() {
    let mut manifest = manifest(&job(16, 2));
    let plan = dealt(&manifest, &job(16, 2)).unwrap();
    assert_eq!(plan.positions[&id("lines")].keys().collect::<Vec<_>>(), ["0", "1"]);
    let second = manifest.subtasks.iter_mut().find(|subtask| subtask.id.to_string() == "lines[1]").unwrap();
    let SubtaskPart::Source { positions } = &mut second.part else { panic!() };
    positions[0].split = "0".into();
    assert!(dealt(&manifest, &job(16, 2)).unwrap_err().what.contains("two positions for split \"0\""));
}

#[test]
fn an_operator_that_had_finished_in_part_keeps_its_parallelism() {
    let mut manifest = manifest(&job(16, 2));
    let finish = |manifest: &mut CheckpointManifest, name: &str| {
        manifest.subtasks.iter_mut().find(|subtask| subtask.id.to_string() == name).unwrap().finished = true;
    };
    finish(&mut manifest, "count[0]");
    let plan = dealt(&manifest, &job(16, 2)).unwrap();
    assert_eq!(plan.tasks[2..4].iter().map(|task| task.subtasks[0].finished).collect::<Vec<_>>(), [true, false]);
    assert!(dealt(&manifest, &job(16, 4)).unwrap_err().what.contains("1 of 2 subtasks of \"count\" had finished"));
    finish(&mut manifest, "count[1]");
    assert!(dealt(&manifest, &job(16, 4)).unwrap().tasks[2..6].iter().all(|task| task.subtasks[0].finished));
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let storage = MemoryStorage::default();
    let state = StateChains::default().advance(&[write(&storage, 1, 2, 0..8, SectionKind::Base)], &[]);
    let manifest = CheckpointManifest { state, ..manifest(&job(16, 2)) };
    let refused = |change: &dyn Fn(&mut JobSpec)| {
        let mut spec = job(16, 2);
        change(&mut spec);
        RestorePlan::new(&manifest, &spec, &ExecutionPlan::new(&spec).unwrap(), &BTreeMap::new()).unwrap_err().to_string()
    };
    let descriptor = |spec: &mut JobSpec, change: &dyn Fn(&mut crate::guest::Descriptor)| {
        let NodeKind::Operator(descriptor) = &mut spec.nodes[1].kind else { panic!() };
        change(descriptor);
    };
    let rename = |spec: &mut JobSpec, from: &str, to: &str| {
        for node in &mut spec.nodes {
            node.inputs.iter_mut().filter(|input| input.from == id(from)).for_each(|input| input.from = id(to));
            if node.id == id(from) {
                node.id = id(to);
            }
        }
    };
    for (error, expected) in [
        (refused(&|spec| spec.name = "other".into()), "belongs to the job \"words\", not to \"other\""),
        (refused(&|spec| spec.max_parallelism = MaxParallelism::new(32).unwrap()), "max-parallelism was 16 and cannot become 32"),
        (refused(&|spec| rename(spec, "count", "total")), "operator \"count\" has state in it and is not in the job"),
        (refused(&|spec| rename(spec, "lines", "input")), "source \"lines\" has state in it and is not in the job"),
        (
            refused(&|spec| descriptor(spec, &|d| d.slots[0].name = "m".into())),
            "slot \"n\" of \"count\" has state in it and is not declared",
        ),
        (refused(&|spec| descriptor(spec, &|d| d.slots[0].codec = "json".into())), "was encoded as \"raw\" and is as \"json\""),
        (refused(&|spec| descriptor(spec, &|d| d.slots[0].kind = StateKind::Map)), "was of kind value and is of kind map"),
    ] {
        assert!(error.starts_with("restore-incompatible: checkpoint 3") && error.contains(expected), "{error}");
    }
}

#[test]
fn what_may_differ_is_reported() {
    let mut manifest = manifest(&job(16, 2));
    let digests = |digest: &str| BTreeMap::from([(id("count"), digest.to_owned())]);
    let ManifestNodeKind::Operator { digest, .. } = &mut manifest.nodes[1].kind else { panic!() };
    *digest = "aaa".into();
    let spec = job(16, 2);
    let plan = ExecutionPlan::new(&spec).unwrap();
    let notices = |digests| RestorePlan::new(&manifest, &spec, &plan, &digests).unwrap().notices;
    assert_eq!(notices(digests("aaa")), Vec::<String>::new());
    assert_eq!(notices(digests("bbb")), ["the component of \"count\" has changed"]);
}

#[test]
fn a_sink_with_open_transactions_cannot_vanish() {
    let mut manifest = manifest(&job(16, 2));
    let mut without = job(16, 2);
    without.nodes[2].id = id("elsewhere");
    assert!(dealt(&manifest, &without).is_ok(), "nothing is left to commit");
    let sink = manifest.subtasks.iter_mut().find(|subtask| subtask.id.operator == id("out")).unwrap();
    let transaction = Transaction { checkpoint: CheckpointId(3), subtask: 0, payload: vec![] };
    sink.part = SubtaskPart::Sink { transactions: vec![transaction] };
    assert!(dealt(&manifest, &without).unwrap_err().what.contains("sink \"out\" has state in it"));
}

/// A slot whose schema says what it held and what it holds.
fn with_schema(mut spec: JobSpec, schema: &str) -> JobSpec {
    let NodeKind::Operator(descriptor) = &mut spec.nodes[1].kind else { panic!() };
    (descriptor.slots[0].codec, descriptor.slots[0].schema) = ("postcard".into(), schema.into());
    spec
}

#[test]
fn values_of_a_changed_schema_arrive_in_their_new_form() {
    let storage = MemoryStorage::default();
    let old = with_schema(job(16, 2), "1 T{gone:u8}");
    let all = |checkpoint, kind| [write(&storage, checkpoint, 2, 0..8, kind), write(&storage, checkpoint, 3, 8..16, kind)];
    let state = StateChains::default().advance(&all(1, SectionKind::Base), &[]).advance(&all(2, SectionKind::Delta), &[]);
    let manifest = CheckpointManifest { state, ..manifest(&old) };
    let new = with_schema(job(16, 3), "1 T{kept:u16=2a,also:bool=01}");
    let plan = dealt(&manifest, &new).unwrap();
    assert_eq!(
        plan.notices,
        ["slot \"n\" of \"count\" is brought to its new schema: T.gone removed, T.kept added with the default 42, \
          T.also added with the default true"]
    );
    let table = TableId { operator: id("count"), slot: "n".into() };
    assert_eq!(plan.migrated(), BTreeSet::from([table.clone()]));
    let mut entries = 0;
    for task in &plan.tasks {
        task.read(&storage, |_, group, bytes| {
            for entry in EntryReader::new(bytes) {
                let key = group.0.to_be_bytes();
                assert_eq!(entry, Ok(Entry::Put { key: &key, value: &[42, 1] }));
                entries += 1;
            }
            Ok::<(), SegmentError>(())
        })
        .unwrap();
    }
    assert_eq!(entries, 32, "every group in the base and in the increment");
    let mut chains = manifest.state.clone();
    chains.forget(&plan.migrated());
    assert_eq!((chains.tables().len(), chains.segments().len()), (0, 0), "what is stored is no base any more");
}

#[test]
fn a_value_that_does_not_follow_its_schema_is_named() {
    let storage = MemoryStorage::default();
    let old = with_schema(job(16, 2), "1 T{gone:bool}");
    let state = StateChains::default().advance(&[write(&storage, 7, 2, 3..4, SectionKind::Base)], &[]);
    let manifest = CheckpointManifest { state, ..manifest(&old) };
    let plan = dealt(&manifest, &with_schema(job(16, 2), "1 T{}")).unwrap();
    let errors: Vec<_> = plan.tasks.iter().filter_map(|task| load(task, &storage).err()).collect();
    let [error] = &errors[..] else { panic!("{errors:?}") };
    let expected =
        "slot \"n\" of \"count\": the value of key \"\\x00\\x03\" cannot be migrated: the value does not follow its schema";
    assert!(error.to_string().contains(expected), "{error}");
}

/// What the comparison for people calls an obstacle is what a restore refuses, and nothing else.
#[test]
fn what_would_change_is_told_as_a_restore_decides() {
    use crate::checkpoint::difference::{Difference, SlotChange};
    let storage = MemoryStorage::default();
    let old = with_schema(job(16, 2), "1 T{a:u8}");
    let state = StateChains::default().advance(&[write(&storage, 1, 2, 0..8, SectionKind::Base)], &[]);
    let mut manifest = CheckpointManifest { state, ..manifest(&old) };
    let told = |manifest: &CheckpointManifest, spec: &JobSpec| {
        let difference = Difference::new(manifest, &JobDescription::new(spec, "test", &BTreeMap::new()));
        let restored = dealt(manifest, spec);
        assert_eq!(difference.obstacles.is_empty(), restored.is_ok(), "{:?} and {:?}", difference.obstacles, restored.err());
        difference
    };
    let whats = |difference: &Difference| -> Vec<String> { difference.obstacles.iter().map(|o| o.what.clone()).collect() };
    let slot = |difference: &Difference| difference.nodes[1].slots[0].change.clone();
    assert_eq!(slot(&told(&manifest, &old)), SlotChange::Same);
    assert_eq!(
        slot(&told(&manifest, &with_schema(job(16, 3), "1 T{a:u16}"))),
        SlotChange::Migrated(vec!["T.a widened from u8 to u16".into()])
    );
    assert_eq!(slot(&told(&manifest, &with_schema(job(16, 2), ""))), SlotChange::Unchecked);
    let worse = with_schema(job(32, 2), "1 T{a:bool,b:u8}");
    assert_eq!(
        whats(&told(&manifest, &worse)),
        [
            "max-parallelism was 16 and cannot become 32: keys would change their group",
            "slot \"n\" of \"count\" cannot be migrated: T.a: was u8 and is bool",
            "slot \"n\" of \"count\" cannot be migrated: T.b: is new and has no default",
        ],
        "all reasons are told"
    );
    let mut renamed = with_schema(job(16, 2), "1 T{a:u8}");
    for (node, name) in [(0, "other"), (1, "total")] {
        renamed.nodes[node].id = id(name);
        renamed.nodes[node + 1].inputs[0].from = id(name);
    }
    let difference = told(&manifest, &renamed);
    assert_eq!(
        whats(&difference),
        [
            "source \"lines\" has state in the checkpoint and is not in the job",
            "slot \"n\" of \"count\" has state in it and its operator is not in the job",
        ]
    );
    assert!(difference.obstacles[1].remedy.contains("--drop-state count/n"));
    assert_eq!(difference.nodes.iter().filter(|node| node.was.is_none()).count(), 2);
    let mut undeclared = old.clone();
    let NodeKind::Operator(descriptor) = &mut undeclared.nodes[1].kind else { panic!() };
    descriptor.slots[0].name = "m".into();
    let difference = told(&manifest, &undeclared);
    let changes: Vec<_> = difference.nodes[1].slots.iter().map(|slot| slot.change.clone()).collect();
    assert_eq!(changes, [SlotChange::New, SlotChange::Orphaned]);
    manifest.subtasks.iter_mut().find(|subtask| subtask.id.operator == id("count")).unwrap().finished = true;
    told(&manifest, &old);
    assert_eq!(whats(&told(&manifest, &with_schema(job(16, 3), "1 T{a:u8}"))), ["1 of 2 subtasks of \"count\" had finished"]);
    manifest.job = "else".into();
    told(&manifest, &old);
}
