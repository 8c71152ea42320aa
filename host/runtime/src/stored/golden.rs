//! A small checkpoint of each format version, kept as files: it must be read for ever, and as long as its version is the one that is
//! written, writing it again gives the same bytes.
//!
//! When the format gets a new version, its files are made once, and the old ones stay:
//!
//!     COFFERDAM_WRITE_GOLDEN=1 cargo test -p cofferdam --lib stored::golden
//!
//! `plain` is what is compared byte by byte; `compressed` is only read, for a codec may compress otherwise one day.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_dataflow::checkpoint::chains::StateChains;
use cofferdam_dataflow::checkpoint::contents::key_prefix;
use cofferdam_dataflow::checkpoint::manifest::{CheckpointManifest, MANIFEST_FORMAT, ManifestNode, ManifestNodeKind};
use cofferdam_dataflow::checkpoint::segment::{
    SEGMENT_FORMAT, SegmentEncoder, SegmentHeader, SegmentId, SegmentInfo, SpilledSegment,
};
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, Fence};
use cofferdam_dataflow::connector::{SplitPosition, Transaction};
use cofferdam_dataflow::guest::{StateKind, StateSlot};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, OperatorId, SubtaskId, TaskIndex};
use cofferdam_dataflow::key_group::{MaxParallelism, key_hash};
use cofferdam_dataflow::snapshot::{SectionKind, StateBlock, SubtaskPart, SubtaskSnapshot, TableId};
use cofferdam_dataflow::state::entry::Entry;
use cofferdam_dataflow::time::{EventTime, ProcessingTime, Watermark};

use super::*;
use crate::storage::{Compression, LocalStorage};

const LONG: &[u8] = b"again and again and again and again and again and again and again and again";

fn folder(name: &str) -> PathBuf {
    let version = format!("checkpoint-format-{}", SEGMENT_FORMAT.max(MANIFEST_FORMAT));
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version).join(name)
}

fn id(name: &str) -> OperatorId {
    OperatorId::new(name).unwrap()
}

fn groups() -> MaxParallelism {
    MaxParallelism::new(4).unwrap()
}

fn slots() -> Vec<StateSlot> {
    let slot = |name: &str, kind, ttl_ms| StateSlot {
        name: name.into(),
        kind,
        codec: "json".into(),
        schema: String::new(),
        ttl_ms,
        ttl_on_read: false,
        prefetch: true,
    };
    vec![slot("last", StateKind::Value, 0), slot("seen", StateKind::Map, 3_600_000), slot("all", StateKind::List, 0)]
}

/// Writes a segment, as a file or into its reference. Each change is of a slot's index, a section and an entry.
fn segment(
    storage: Option<&LocalStorage>,
    checkpoint: u64,
    compression: Compression,
    changes: &[(u16, SectionKind, &[u8], Entry<'_>)],
) -> SegmentInfo {
    let segment = SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(1), task: TaskIndex(1) };
    let tables = slots().into_iter().map(|slot| TableId { operator: id("count"), slot: slot.name }).collect();
    let header = SegmentHeader { job: "words".into(), id: segment, tables };
    let encoder = SegmentEncoder::new(Vec::new(), header).unwrap();
    let mut encoder = encoder.compressing(compression.compressor());
    let mut blocks: BTreeMap<_, (Vec<u8>, u32)> = BTreeMap::new();
    for (table, kind, key, entry) in changes {
        let group = groups().group_of(key_hash(key));
        let (bytes, entries) = blocks.entry((*table, group, kind.rank(), *kind == SectionKind::Base)).or_default();
        entry.encode(bytes);
        *entries += 1;
    }
    for ((table, group, rank, is_base), (bytes, entries)) in blocks {
        let kind = match (rank, is_base) {
            (0, _) => SectionKind::Clears,
            (_, true) => SectionKind::Base,
            (_, false) => SectionKind::Delta,
        };
        encoder.push(&StateBlock { table, group, kind, entries, bytes }).unwrap();
    }
    let (bytes, mut info) = encoder.finish().unwrap();
    match storage {
        Some(storage) => SpilledSegment { id: segment, bytes: bytes.into() }.write(storage).unwrap(),
        None => info.reference.inline = Some(bytes.into()),
    }
    info
}

fn write(dir: &Path, [first, second]: [Compression; 2]) {
    use SectionKind::{Base, Clears, Delta};
    let storage = LocalStorage::open(dir).unwrap().with_owner(0x1234_5678_9abc_def0);
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 }).unwrap();
    let put = |key, value| Entry::Put { key, value };
    let ordered = |key: &[u8], entry: &[u8]| [key_prefix(key), entry.to_vec()].concat();
    let (stamped, zero) = ([&1_700_000_000_000_i64.to_le_bytes()[..], LONG].concat(), 0_u64.to_be_bytes());
    let (x, y, list) = (ordered(b"a", b"x"), ordered(b"a", b"y"), ordered(b"b", &zero));
    let base = [
        (0, Base, &b"a"[..], put(b"a", b"1")),
        (0, Base, b"b", put(b"b", LONG)),
        (0, Base, b"c", put(b"c", b"3")),
        (1, Base, b"a", put(&x, &stamped)),
        (1, Base, b"a", put(&y, &stamped)),
        (2, Base, b"b", put(&list, b"\x02\0\0\0\x011\x0222")),
    ];
    let delta = [
        (0, Delta, &b"a"[..], put(b"a", LONG)),
        (0, Delta, b"c", Entry::Delete { key: b"c" }),
        (1, Clears, b"a", Entry::Clear { key: b"a" }),
        (1, Delta, b"a", put(&y, &stamped)),
    ];
    let (base, delta) = (segment(Some(&storage), 1, first, &base), segment(None, 2, second, &delta));
    let position = SplitPosition { split: "a.txt".into(), position: vec![9], finished: false, display: "line 9".into() };
    let transaction = Transaction { checkpoint: CheckpointId(2), subtask: 0, payload: b"part".to_vec() };
    let node = |name: &str, kind| ManifestNode { id: id(name), parallelism: 1, kind };
    let subtask = |name: &str, part| SubtaskSnapshot {
        id: SubtaskId { operator: id(name), index: 0 },
        watermark: Some(Watermark(EventTime(-7))),
        finished: false,
        part,
    };
    let nodes = vec![
        node("lines", ManifestNodeKind::Source),
        node(
            "count",
            ManifestNodeKind::Operator {
                digest: "00ff".into(),
                imports: vec!["cofferdam:operator/logging".into()],
                slots: slots(),
            },
        ),
        node("out", ManifestNodeKind::Sink),
    ];
    let manifest = CheckpointManifest {
        job: "words".into(),
        checkpoint: CheckpointId(2),
        attempt: Attempt(1),
        parent: Some(CheckpointId(1)),
        created: ProcessingTime(1_700_000_000_000),
        engine: "golden".into(),
        max_parallelism: groups(),
        is_final: false,
        state: StateChains::default().advance(&[base], &nodes).advance(&[delta], &nodes),
        nodes,
        subtasks: vec![
            subtask("lines", SubtaskPart::Source { positions: vec![position] }),
            subtask("count", SubtaskPart::Operator { slots: slots() }),
            subtask("out", SubtaskPart::Sink { transactions: vec![transaction] }),
        ],
    };
    storage.publish_manifest(Attempt(1), CheckpointId(2), &manifest.encode()).unwrap();
    storage.mark_committed(CheckpointId(2)).unwrap();
    drop(storage);
    // It holds the id of this process.
    std::fs::remove_file(dir.join("lock")).unwrap();
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = ["fence", "chk-2/_manifest", "chk-2/_committed", "segments/1-1-1.seg"];
    names.into_iter().map(|name| (name.to_owned(), std::fs::read(dir.join(name)).unwrap())).collect()
}

/// Key, entry key, index, value.
type Shown = (Vec<u8>, Option<Vec<u8>>, Option<u64>, Vec<u8>);

const VARIANTS: [(&str, [Compression; 2]); 2] =
    [("plain", [Compression::None, Compression::None]), ("compressed", [Compression::Lz4, Compression::Zstd])];

#[test]
fn golden_checkpoints_are_written_as_they_were() {
    if std::env::var_os("COFFERDAM_WRITE_GOLDEN").is_some() {
        for (name, compressions) in VARIANTS {
            assert!(!folder(name).exists(), "the files of a version are written once");
            std::fs::create_dir_all(folder(name)).unwrap();
            write(&folder(name), compressions);
        }
    }
    let again = tempfile::tempdir().unwrap();
    write(again.path(), VARIANTS[0].1);
    let (kept, now) = (files(&folder("plain")), files(again.path()));
    for (name, bytes) in kept {
        assert!(now[&name] == bytes, "{name} is written otherwise: that is another version of the format");
    }
}

#[test]
fn golden_checkpoints_of_all_versions_are_read() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let versions: Vec<_> = std::fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()).collect();
    let versions = versions.iter().filter(|path| path.to_string_lossy().contains("checkpoint-format-"));
    let mut read = 0;
    for dir in versions.flat_map(|version| VARIANTS.map(|(name, _)| version.join(name))) {
        let job = StoredJob::open(&dir).unwrap();
        let verified = verify(&job, None, &mut |_, _| ()).unwrap();
        assert!(verified.is_whole() && verified.entries == 10, "{verified:?}");
        let checkpoint = job.checkpoint(None).unwrap();
        assert_eq!(checkpoint.manifest().transactions().len(), 1);
        let entries = |slot: &str| -> Vec<Shown> {
            let mut slot = checkpoint.slot("count", slot).unwrap();
            let mut found: Vec<_> =
                slot.entries().map(|entry| entry.unwrap()).map(|e| (e.key, e.entry_key, e.index, e.value)).collect();
            found.sort();
            found
        };
        let plain = |key: &[u8], value: &[u8]| (key.to_vec(), None, None, value.to_vec());
        assert_eq!(entries("last"), [plain(b"a", LONG), plain(b"b", LONG)]);
        assert_eq!(entries("seen"), [(b"a".to_vec(), Some(b"y".to_vec()), None, LONG.to_vec())]);
        let element = |index, value: &[u8]| (b"b".to_vec(), None, Some(index), value.to_vec());
        assert_eq!(entries("all"), [element(0, b"1"), element(1, b"22")]);
        read += 1;
    }
    assert!(read >= 2);
}
