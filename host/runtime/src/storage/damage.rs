//! A small checkpoint whose every byte is changed in turn and whose every file is cut at every length: a restore names the file
//! or restores the right state. Never another state, never a panic.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_dataflow::checkpoint::chains::StateChains;
use cofferdam_dataflow::checkpoint::manifest::{CheckpointManifest, ManifestNode, ManifestNodeKind};
use cofferdam_dataflow::checkpoint::recovery::{Claim, RecoverOptions, recover};
use cofferdam_dataflow::checkpoint::restore::RestorePlan;
use cofferdam_dataflow::checkpoint::segment::{SegmentEncoder, SegmentError, SegmentHeader, SegmentId, SegmentInfo};
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, Fence};
use cofferdam_dataflow::connector::SplitPosition;
use cofferdam_dataflow::graph::plan::ExecutionPlan;
use cofferdam_dataflow::graph::spec::{InputSpec, JobSpec, NodeKind, NodeSpec};
use cofferdam_dataflow::guest::{Descriptor, InputPort, StateKind, StateSlot};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, OperatorId, SubtaskId, TaskIndex};
use cofferdam_dataflow::key_group::{MaxParallelism, key_hash};
use cofferdam_dataflow::snapshot::{SectionKind, StateBlock, SubtaskPart, SubtaskSnapshot, TableId};
use cofferdam_dataflow::state::entry::{Entry, EntryReader};
use cofferdam_dataflow::time::{EventTime, ProcessingTime, Watermark};

use super::simulated::SimulatedFiles;
use super::{Compression, LocalStorage};

const DIR: &str = "/job";

type State = BTreeMap<Vec<u8>, Vec<u8>>;
type Change = (&'static str, Option<&'static str>);

fn id(name: &str) -> OperatorId {
    OperatorId::new(name).unwrap()
}

fn groups() -> MaxParallelism {
    MaxParallelism::new(4).unwrap()
}

fn slot() -> StateSlot {
    let [name, codec, schema] = ["n", "postcard", "u64"].map(str::to_owned);
    StateSlot { name, kind: StateKind::Value, codec, schema, ttl_ms: 0, ttl_on_read: false, prefetch: true }
}

fn write(
    storage: &LocalStorage,
    checkpoint: u64,
    compression: Compression,
    kind: SectionKind,
    changes: &[Change],
) -> SegmentInfo {
    let segment = SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(1), task: TaskIndex(1) };
    let tables = vec![TableId { operator: id("count"), slot: "n".into() }];
    let file = storage.create_segment(segment).unwrap();
    let encoder = SegmentEncoder::new(file, SegmentHeader { job: "words".into(), id: segment, tables }).unwrap();
    let mut encoder = encoder.compressing(compression.compressor());
    let mut blocks: BTreeMap<_, (Vec<u8>, u32)> = BTreeMap::new();
    for (key, value) in changes {
        let (bytes, entries) = blocks.entry(groups().group_of(key_hash(key.as_bytes()))).or_default();
        let key = key.as_bytes();
        value.map_or(Entry::Delete { key }, |value| Entry::Put { key, value: value.as_bytes() }).encode(bytes);
        *entries += 1;
    }
    for (group, (bytes, entries)) in blocks {
        encoder.push(&StateBlock { table: 0, group, kind, entries, bytes }).unwrap();
    }
    let (file, info) = encoder.finish().unwrap();
    file.sync().unwrap();
    info
}

/// A checkpoint of two segments, one LZ4 and one zstd, with entries that a delta replaces and deletes.
fn checkpoint(files: &SimulatedFiles) -> CheckpointManifest {
    let storage = LocalStorage::with_files(Path::new(DIR), Arc::new(files.clone())).unwrap();
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 }).unwrap();
    let long = "the same again and again and the same again and again, and again the same again and again";
    let base = [("a", Some("1")), ("b", Some(long)), ("c", Some("3")), ("d", Some("4"))];
    let first = write(&storage, 1, Compression::Lz4, SectionKind::Base, &base);
    let delta = [("a", Some(long)), ("c", None)];
    let second = write(&storage, 2, Compression::Zstd, SectionKind::Delta, &delta);
    let subtask = |name: &str, part| SubtaskSnapshot {
        id: SubtaskId { operator: id(name), index: 0 },
        watermark: Some(Watermark(EventTime(7))),
        finished: false,
        part,
    };
    let position = SplitPosition { split: "s".into(), position: vec![9], finished: false, display: "line 9".into() };
    let node = |name: &str, kind| ManifestNode { id: id(name), parallelism: 1, kind };
    let manifest = CheckpointManifest {
        job: "words".into(),
        checkpoint: CheckpointId(2),
        attempt: Attempt(1),
        parent: Some(CheckpointId(1)),
        created: ProcessingTime(1_700_000_000_000),
        engine: "test".into(),
        max_parallelism: groups(),
        is_final: false,
        nodes: vec![
            node("lines", ManifestNodeKind::Source),
            node("count", ManifestNodeKind::Operator { digest: String::new(), imports: Vec::new(), slots: vec![slot()] }),
        ],
        subtasks: vec![
            subtask("lines", SubtaskPart::Source { positions: vec![position] }),
            subtask("count", SubtaskPart::Operator { slots: vec![slot()] }),
        ],
        state: StateChains::default().advance(&[first], &[]).advance(&[second], &[]),
    };
    storage.publish_manifest(Attempt(1), CheckpointId(2), &manifest.encode()).unwrap();
    storage.mark_committed(CheckpointId(2)).unwrap();
    manifest
}

fn job() -> JobSpec {
    let node = |name: &str, kind, inputs| NodeSpec { id: id(name), parallelism: 1, kind, inputs };
    let descriptor = Descriptor {
        inputs: vec![InputPort { name: "in".into(), broadcast: false }],
        outputs: vec!["out".into()],
        slots: vec![slot()],
        timers: vec![],
        keyed: true,
        max_batch: 0,
    };
    let input = |from: &str| vec![InputSpec { from: id(from), from_port: 0, to_port: 0, partition: None }];
    JobSpec {
        name: "words".into(),
        max_parallelism: groups(),
        nodes: vec![
            node("lines", NodeKind::Source, vec![]),
            node("count", NodeKind::Operator(descriptor), input("lines")),
            node("out", NodeKind::Sink, input("count")),
        ],
    }
}

/// Restores the newest checkpoint as a job does.
fn restore(files: &SimulatedFiles, verify: bool) -> Result<(State, CheckpointManifest), String> {
    let storage = LocalStorage::with_files(Path::new(DIR), Arc::new(files.clone())).map_err(|error| error.to_string())?;
    let options = RecoverOptions { verify, ..RecoverOptions::default() };
    let recovery = recover(&storage, options, &mut Claim::default()).map_err(|error| error.to_string())?;
    let Some(point) = recovery.newest else { return Err("there is no checkpoint".into()) };
    let spec = job();
    let plan = ExecutionPlan::new(&spec).unwrap();
    let plan = RestorePlan::new(&point.manifest, &spec, &plan, &BTreeMap::new()).map_err(|error| error.to_string())?;
    let mut state = State::new();
    for task in &plan.tasks {
        let read = task.read(&storage, |_, _, bytes| {
            for entry in EntryReader::new(bytes).flatten() {
                match entry {
                    Entry::Put { key, value } => drop(state.insert(key.to_vec(), value.to_vec())),
                    Entry::Delete { key } => drop(state.remove(key)),
                    Entry::Clear { .. } => panic!("there is none in this checkpoint"),
                }
            }
            Ok::<(), SegmentError>(())
        });
        read.map_err(|error| error.to_string())?;
    }
    Ok((state, point.manifest))
}

/// What a message must say so that the file is known.
fn name_of(path: &Path) -> &'static str {
    let name = path.file_name().unwrap().to_str().unwrap();
    match name {
        "_manifest" => "checkpoint 2 cannot be restored: the manifest",
        "_committed" => "_committed is damaged",
        "fence" => "fence is damaged",
        "1-1-1.seg" => "segment 1-1-1",
        "2-1-1.seg" => "segment 2-1-1",
        other => panic!("an unknown file {other}"),
    }
}

/// Restores with each file changed in every way that `damage` knows.
fn restores_or_names(damage: impl Fn(&[u8], &mut dyn FnMut(&[u8]))) {
    let files = SimulatedFiles::new(Path::new(DIR));
    let manifest = checkpoint(&files);
    let whole: BTreeMap<PathBuf, Vec<u8>> = files.contents();
    assert_eq!(whole.len(), 5, "{:?}", whole.keys());
    let (state, restored) = restore(&files, true).unwrap();
    assert_eq!(restored, manifest);
    assert_eq!(state.keys().map(Vec::as_slice).collect::<Vec<_>>(), [b"a", b"b", b"d"]);
    for verify in [true, false] {
        let mut refused = 0;
        for (path, bytes) in &whole {
            damage(bytes, &mut |damaged| {
                // A restore raises the fence: all is put back before the next.
                whole.iter().for_each(|(path, bytes)| files.set(path, bytes));
                files.set(path, damaged);
                match restore(&files, verify) {
                    Ok(found) => assert!(found == (state.clone(), manifest.clone()), "another state from {}", path.display()),
                    Err(message) => {
                        refused += 1;
                        assert!(message.contains(name_of(path)), "{}: {message}", path.display());
                    }
                }
            });
        }
        assert!(refused > 500, "{refused} were refused");
    }
}

#[test]
fn every_changed_byte_is_named_or_harmless() {
    restores_or_names(|bytes, try_it| {
        for at in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= change;
                try_it(&damaged);
            }
        }
    });
}

#[test]
fn every_cut_is_named_or_harmless() {
    restores_or_names(|bytes, try_it| (0..bytes.len()).for_each(|length| try_it(&bytes[..length])));
}

#[test]
fn appended_and_zeroed_bytes_are_named_or_harmless() {
    restores_or_names(|bytes, try_it| {
        try_it(&[bytes, &[0]].concat());
        try_it(&[bytes, bytes].concat());
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at..].fill(0);
            try_it(&damaged);
        }
    });
}
