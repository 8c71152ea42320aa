//! States made, read, compared, damaged and cleaned up, against maps.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, StorageErrorKind};
use cofferdam_dataflow::connector::SplitPosition;
use cofferdam_dataflow::ids::{Attempt, CheckpointId};
use proptest::prelude::*;

use super::*;
use crate::storage::LocalStorage;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn totals() -> NewSlot {
    NewSlot::value("total", "cents", "fixed", "u64")
}

fn made(path: &Path, state: &State) -> CheckpointId {
    let mut writer = SavepointWriter::create(path, NewState::new("shop")).unwrap();
    writer.slot(&totals(), state.clone()).unwrap();
    writer.finish().unwrap()
}

fn numbered(count: u64) -> State {
    (0..count).map(|n| (format!("key-{n}").into_bytes(), n.to_le_bytes().to_vec())).collect()
}

fn read(path: &Path, id: Option<CheckpointId>) -> State {
    let checkpoint = StoredJob::open(path).unwrap().checkpoint(id).unwrap();
    let mut slot = checkpoint.slot("total", "cents").unwrap();
    let entries: Vec<_> = slot.entries().map(Result::unwrap).collect();
    assert!(entries.is_sorted_by(|a, b| (a.group, &a.key) < (b.group, &b.key)), "by key group and then by key");
    entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
}

/// Publishes the manifest of another directory's checkpoint under a higher number, with its segments beside the old ones.
fn second_checkpoint(path: &Path, state: &State) -> CheckpointId {
    let other = tempfile::tempdir().unwrap();
    made(other.path(), state);
    let from = LocalStorage::open_to_read(other.path()).unwrap();
    let mut manifest =
        cofferdam_dataflow::checkpoint::manifest::CheckpointManifest::decode(&from.read_manifest(CheckpointId(1)).unwrap())
            .unwrap();
    let to = LocalStorage::open(path).unwrap();
    manifest.checkpoint = CheckpointId(2);
    manifest.parent = Some(CheckpointId(1));
    // A segment names itself, so it is written anew under the new number.
    let table = cofferdam_dataflow::snapshot::TableId {
        operator: cofferdam_dataflow::ids::OperatorId::new("total").unwrap(),
        slot: "cents".into(),
    };
    let id = cofferdam_dataflow::checkpoint::segment::SegmentId {
        checkpoint: CheckpointId(2),
        attempt: Attempt(1),
        task: cofferdam_dataflow::ids::TaskIndex(0),
    };
    let header = cofferdam_dataflow::checkpoint::segment::SegmentHeader { job: "shop".into(), id, tables: vec![table] };
    let mut encoder =
        cofferdam_dataflow::checkpoint::segment::SegmentEncoder::new(to.create_segment(id).unwrap(), header).unwrap();
    for (key, value) in state {
        let group = manifest.max_parallelism.group_of(cofferdam_dataflow::key_group::key_hash(key));
        let mut bytes = Vec::new();
        cofferdam_dataflow::state::entry::Entry::Put { key, value }.encode(&mut bytes);
        let kind = cofferdam_dataflow::snapshot::SectionKind::Base;
        encoder.push(&cofferdam_dataflow::snapshot::StateBlock { table: 0, group, kind, entries: 1, bytes }).unwrap();
    }
    let (file, info) = encoder.finish().unwrap();
    file.sync().unwrap();
    manifest.state = cofferdam_dataflow::checkpoint::chains::StateChains::default().advance(&[info], &[]);
    to.publish_manifest(Attempt(1), CheckpointId(2), &manifest.encode()).unwrap();
    CheckpointId(2)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn what_is_written_is_read_and_differences_are_those_of_the_maps(
        old in proptest::collection::btree_map(proptest::collection::vec(0u8..4, 0..3), proptest::collection::vec(any::<u8>(), 0..2), 0..20),
        new in proptest::collection::btree_map(proptest::collection::vec(0u8..4, 0..3), proptest::collection::vec(0u8..2, 0..2), 0..20),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let first = made(folder.path(), &old);
        let second = second_checkpoint(folder.path(), &new);
        prop_assert_eq!(&read(folder.path(), Some(first)), &old);
        prop_assert_eq!(&read(folder.path(), None), &new);
        let job = StoredJob::open(folder.path()).unwrap();
        let (from, to) = (job.checkpoint(Some(first)).unwrap(), job.checkpoint(Some(second)).unwrap());
        let found = diff(&from, &to, usize::MAX, &mut |_, _| {}).unwrap();
        let changes: BTreeMap<Vec<u8>, ChangeKind> =
            found.slots.iter().flat_map(|slot| &slot.keys).map(|key| (key.key.clone(), key.change)).collect();
        let mut expected = BTreeMap::new();
        let (mut new_bytes, mut old_bytes) = (0, 0);
        for key in old.keys().chain(new.keys()) {
            let (was, is) = (old.get(key), new.get(key));
            let change = match (was, is) {
                (None, _) => ChangeKind::Added,
                (_, None) => ChangeKind::Removed,
                _ if was == is => continue,
                _ => ChangeKind::Changed,
            };
            if expected.insert(key.clone(), change).is_none() {
                new_bytes += is.map_or(0, |is| (key.len() + is.len()) as u64);
                old_bytes += was.map_or(0, |was| (key.len() + was.len()) as u64);
            }
        }
        prop_assert_eq!(changes, expected);
        let bytes = found.slots.first().map_or((0, 0), |slot| (slot.new_bytes, slot.old_bytes));
        prop_assert_eq!(bytes, (new_bytes, old_bytes));
        let verified = verify(&job, None, &mut |_, _| ()).unwrap();
        prop_assert!(verified.is_whole());
    }
}

#[test]
fn a_large_state_is_written_and_read_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    // 40 MB: more than is held back in memory.
    let state: State = (0..400_u64).map(|n| (n.to_le_bytes().to_vec(), vec![n.to_le_bytes()[0]; 100_000])).collect();
    made(folder.path(), &state);
    assert!(read(folder.path(), None) == state);
}

#[test]
fn one_key_is_found_and_another_is_not() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), &numbered(1000));
    let checkpoint = StoredJob::open(folder.path()).unwrap().checkpoint(None).unwrap();
    let mut slot = checkpoint.slot("total", "cents").unwrap();
    assert_eq!(slot.get(b"key-77").unwrap(), Some(77_u64.to_le_bytes().to_vec()));
    assert_eq!(slot.get(b"key-1000").unwrap(), None);
    let sizes: Vec<_> = slot.groups().into_iter().map(|group| slot.group_size(group).unwrap().keys).collect();
    assert_eq!((sizes.iter().sum::<u64>(), sizes.len() > 100), (1000, true));
    let error = checkpoint.slot("total", "euros").err().unwrap();
    assert_eq!(error.to_string(), "checkpoint 1 has no state \"total/euros\"; it has total/cents");
    let error = StoredJob::open(folder.path()).unwrap().checkpoint(Some(CheckpointId(9))).err().unwrap();
    assert!(error.to_string().ends_with("holds no checkpoint 9"), "{error}");
}

#[test]
fn the_folder_of_one_checkpoint_can_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let old = numbered(3);
    made(folder.path(), &old);
    second_checkpoint(folder.path(), &numbered(5));
    let job = StoredJob::open(&folder.path().join("chk-1")).unwrap();
    assert_eq!(job.checkpoints().unwrap().len(), 1);
    assert_eq!(job.checkpoint(None).unwrap().id(), CheckpointId(1));
    assert!(matches!(job.checkpoint(Some(CheckpointId(2))), Err(StoredError::NoCheckpoint { .. })));
    assert_eq!(read(&folder.path().join("chk-1"), None), old);
}

#[test]
fn a_checkpoint_that_is_deleted_meanwhile_is_named() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), &numbered(1000));
    let checkpoint = StoredJob::open(folder.path()).unwrap().checkpoint(None).unwrap();
    let mut slot = checkpoint.slot("total", "cents").unwrap();
    let groups = slot.groups();
    assert!(!slot.group(groups[0]).unwrap().is_empty());
    let owner = LocalStorage::open(folder.path()).unwrap();
    let segments = owner.segments().unwrap();
    owner.delete_checkpoint(CheckpointId(1)).unwrap();
    owner.delete_segment(segments[0]).unwrap();
    // At whatever file it is noticed: the footer is known, or not.
    for slot in [&mut slot, &mut checkpoint.slot("total", "cents").unwrap()] {
        let error = slot.group(groups[1]).unwrap_err();
        assert!(matches!(error, StoredError::Gone(CheckpointId(1))), "{error}");
        assert!(!error.is_damage());
    }
}

#[test]
fn a_segment_that_is_lost_is_damage_and_not_a_deletion() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), &numbered(10));
    std::fs::remove_file(folder.path().join("segments/1-1-0.seg")).unwrap();
    let checkpoint = StoredJob::open(folder.path()).unwrap().checkpoint(None).unwrap();
    let error = checkpoint.slot("total", "cents").unwrap().get(b"key-1").unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("1-1-0.seg"), "{error}");
}

#[test]
fn states_that_make_no_sense_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let new = || SavepointWriter::create(folder.path(), NewState::new("shop"));
    let one = || [(b"a".to_vec(), b"1".to_vec())];
    {
        let mut writer = new().unwrap();
        let twice = [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec()), (b"a".to_vec(), b"1".to_vec())];
        let error = writer.slot(&totals(), twice).unwrap_err().to_string();
        assert_eq!(error, "slot \"cents\" has the key a twice");
        writer.slot(&totals(), one()).unwrap();
        assert!(matches!(writer.slot(&totals(), one()), Err(SavepointError::SlotTwice { .. })));
        assert!(matches!(writer.slot(&NewSlot::value("Total", "n", "", ""), one()), Err(SavepointError::Id(_))));
        let Err(locked) = new() else { panic!("it is being written") };
        assert!(locked.to_string().contains("is in use"), "{locked}");
    }
    let storage = LocalStorage::open_to_read(folder.path()).unwrap();
    assert!(storage.segments().unwrap().is_empty() && storage.manifests().unwrap().is_empty(), "it was never finished");
    let wrong = NewState { max_parallelism: 0, ..NewState::new("shop") };
    assert!(matches!(SavepointWriter::create(folder.path(), wrong), Err(SavepointError::MaxParallelism(0))));
    made(folder.path(), &numbered(1));
    assert!(matches!(new(), Err(SavepointError::Exists(_))));
}

#[test]
fn positions_and_several_slots_are_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let position = SplitPosition { split: "a".into(), position: vec![7], finished: false, display: "line 7".into() };
    let positions = [("lines".to_owned(), vec![position.clone()])].into();
    let mut writer = SavepointWriter::create(folder.path(), NewState { positions, ..NewState::new("shop") }).unwrap();
    assert!(matches!(writer.slot(&NewSlot::value("lines", "n", "", ""), []), Err(SavepointError::Ambiguous(_))));
    writer.slot(&totals(), numbered(3)).unwrap();
    writer.slot(&NewSlot::value("total", "orders", "fixed", "u64"), []).unwrap();
    writer.finish().unwrap();
    let checkpoint = StoredJob::open(folder.path()).unwrap().checkpoint(None).unwrap();
    let names: Vec<_> =
        checkpoint.slots().into_iter().map(|info| format!("{}/{} {}", info.operator, info.slot, info.kind)).collect();
    assert_eq!(names, ["total/cents value", "total/orders value"]);
    let part = &checkpoint.manifest().subtasks[0].part;
    assert_eq!(part, &cofferdam_dataflow::snapshot::SubtaskPart::Source { positions: vec![position] });
}

#[test]
fn every_damaged_file_is_named_and_whole_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), &numbered(50));
    second_checkpoint(folder.path(), &numbered(60));
    let job = StoredJob::open(folder.path()).unwrap();
    let verified = |id: Option<u64>| verify(&job, id.map(CheckpointId), &mut |_, _| {}).unwrap();
    let whole = verified(None);
    assert_eq!((whole.checkpoints, whole.damaged, whole.entries), (vec![1, 2], vec![], 110));
    for (file, damaged) in [("segments/2-1-0.seg", vec![2]), ("chk-1/_manifest", vec![1]), ("fence", vec![])] {
        let path = folder.path().join(file);
        let bytes = std::fs::read(&path).unwrap();
        let mut broken = bytes.clone();
        broken[bytes.len() / 2] ^= 4;
        std::fs::write(&path, broken).unwrap();
        let found = verified(None);
        let named: Vec<_> = found.files.iter().filter(|file| file.damage.is_some()).map(|file| file.file.as_str()).collect();
        assert_eq!((named, &found.damaged), (vec![file], &damaged), "{file}");
        assert!(!found.is_whole());
        assert_eq!(verified(Some(1)).is_whole(), !matches!(file, "chk-1/_manifest" | "fence"), "{file}");
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::remove_file(folder.path().join("segments/1-1-0.seg")).unwrap();
    assert_eq!(verified(None).damaged, [1]);
    assert!(matches!(verify(&job, Some(CheckpointId(7)), &mut |_, _| {}), Err(StoredError::NoCheckpoint { .. })));
}

#[test]
fn an_entry_in_the_wrong_key_group_is_damage_though_every_checksum_is_right() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), &numbered(50));
    let storage = LocalStorage::open(folder.path()).unwrap();
    let mut manifest =
        cofferdam_dataflow::checkpoint::manifest::CheckpointManifest::decode(&storage.read_manifest(CheckpointId(1)).unwrap())
            .unwrap();
    // Another number of key groups: the same files, wrongly dealt.
    manifest.max_parallelism = cofferdam_dataflow::key_group::MaxParallelism::new(200).unwrap();
    manifest.checkpoint = CheckpointId(2);
    storage.publish_manifest(Attempt(1), CheckpointId(2), &manifest.encode()).unwrap();
    storage.delete_checkpoint(CheckpointId(1)).unwrap();
    let found = verify(&StoredJob::open(folder.path()).unwrap(), None, &mut |_, _| {}).unwrap();
    let damage = found.files.iter().find_map(|file| file.damage.clone()).unwrap();
    assert!(damage.contains("has a key of another one"), "{damage}");
}

#[test]
fn garbage_is_what_no_checkpoint_names() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), &numbered(5));
    second_checkpoint(folder.path(), &numbered(6));
    let write = |name: &str, bytes: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write("segments/3-1-0.seg", "orphan");
    write("segments/4-1-0.seg.tmp", "half");
    write("chk-9/_manifest.tmp", "half");
    let found = find_garbage(folder.path()).unwrap();
    assert_eq!(found.segments, [("segments/3-1-0.seg".to_owned(), 6)]);
    assert_eq!(found.leftovers, ["chk-9/", "chk-9/_manifest.tmp", "segments/4-1-0.seg.tmp"]);
    {
        let owner = LocalStorage::open(folder.path()).unwrap();
        let Err(StoredError::Storage(error)) = collect_garbage(folder.path()) else { panic!("a host has the lock") };
        assert_eq!(error.kind, StorageErrorKind::Fenced);
        // What the newest attempt wrote may become a checkpoint at any moment.
        let beside = find_garbage(folder.path()).unwrap();
        assert!(beside.in_use && beside.is_empty(), "{beside:?}");
        owner.raise_fence(cofferdam_dataflow::checkpoint::storage::Fence { attempt: 5, checkpoint: 9 }).unwrap();
        assert_eq!(find_garbage(folder.path()).unwrap().segments.len(), 1, "it is an older attempt's by now");
    }
    assert_eq!(collect_garbage(folder.path()).unwrap().segments, found.segments);
    let mut left: Vec<_> =
        std::fs::read_dir(folder.path().join("segments")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["1-1-0.seg", "2-1-0.seg"]);
    assert!(!folder.path().join("chk-9").exists());
    assert_eq!(read(folder.path(), None), numbered(6));
}

#[test]
fn a_savepoint_is_read_as_it_is_and_never_swept() {
    let folder = tempfile::tempdir().unwrap();
    let (job, savepoint) = (folder.path().join("job"), folder.path().join("saved"));
    made(&job, &numbered(7));
    std::fs::create_dir_all(savepoint.join("segments")).unwrap();
    std::fs::copy(job.join("chk-1/_manifest"), savepoint.join("_manifest")).unwrap();
    std::fs::copy(job.join("segments/1-1-0.seg"), savepoint.join("segments/1-1-0.seg")).unwrap();
    assert_eq!(read(&savepoint, None), numbered(7));
    assert!(verify(&StoredJob::open(&savepoint).unwrap(), None, &mut |_, _| ()).unwrap().is_whole());
    for swept in [&savepoint, &job.join("chk-1")] {
        assert!(matches!(collect_garbage(swept), Err(StoredError::NotJob(_))));
        assert!(matches!(find_garbage(swept), Err(StoredError::NotJob(_))));
    }
    assert_eq!(read(&savepoint, None), numbered(7));
}

#[test]
fn segments_stay_while_a_manifest_is_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), &numbered(5));
    std::fs::write(folder.path().join("chk-1/_manifest"), "broken").unwrap();
    let found = collect_garbage(folder.path()).unwrap();
    assert!(found.is_empty() && found.unreadable.unwrap().starts_with("checkpoint 1: the manifest cannot be read"));
    assert!(folder.path().join("segments/1-1-0.seg").exists());
    assert!(collect_garbage(&folder.path().join("nowhere")).is_err());
    assert!(!folder.path().join("nowhere").exists());
}
