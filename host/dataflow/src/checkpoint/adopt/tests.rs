//! What a job may begin with, and what is left afterwards.

use super::*;
use crate::checkpoint::chains::StateChains;
use crate::checkpoint::memory::MemoryStorage;
use crate::checkpoint::recovery::{Claim, RecoverOptions, Recovery, recover};
use crate::checkpoint::restore::tests::{id, job, manifest, write};
use crate::checkpoint::storage::{NewSavepoint, StoredCheckpoint};
use crate::connector::Transaction;
use crate::snapshot::SectionKind;
use crate::time::ProcessingTime;

const PATH: &str = "/s/savepoint-3";

/// A storage in which attempt 1 has taken checkpoint 2, and savepoint 3 with one transaction that is not committed.
fn saved() -> MemoryStorage {
    let storage = MemoryStorage::default();
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 }).unwrap();
    let spec = job(16, 2);
    for checkpoint in [2, 3] {
        let written = [0, 1].map(|task: usize| {
            let groups = if task == 0 { 0..8 } else { 8..16 };
            write(&storage, checkpoint, task + 2, groups, SectionKind::Base)
        });
        let mut manifest = CheckpointManifest {
            checkpoint: CheckpointId(checkpoint),
            created: ProcessingTime(i64::try_from(checkpoint).unwrap()),
            state: StateChains::default().advance(&written, &[]),
            ..manifest(&spec)
        };
        if checkpoint == 2 {
            storage.publish_manifest(Attempt(1), manifest.checkpoint, &manifest.encode()).unwrap();
            continue;
        }
        let sink = manifest.subtasks.iter_mut().find(|subtask| subtask.id.operator == id("out")).unwrap();
        let transaction = Transaction { checkpoint: CheckpointId(3), subtask: 0, payload: vec![1] };
        sink.part = SubtaskPart::Sink { transactions: vec![transaction] };
        let segments: Vec<_> = manifest.state.segments().keys().copied().collect();
        let new = NewSavepoint { checkpoint: manifest.checkpoint, path: PATH, segments: &segments, manifest: &manifest.encode() };
        storage.publish_savepoint(Attempt(1), new).unwrap();
        segments.iter().for_each(|segment| storage.delete_segment(*segment).unwrap());
    }
    storage
}

struct Wish {
    spec: JobSpec,
    fresh: bool,
    drop: Vec<StateName>,
    claim: Option<&'static str>,
}

fn wish() -> Wish {
    Wish { spec: job(16, 3), fresh: false, drop: vec![], claim: None }
}

fn take(into: &MemoryStorage, source: &dyn SnapshotSource, wish: &Wish) -> Result<CheckpointId, AdoptError> {
    let plan = ExecutionPlan::new(&wish.spec).unwrap();
    let (fresh, drop, claim) = (wish.fresh, &wish.drop[..], wish.claim);
    adopt(into, source, &AdoptOptions { spec: &wish.spec, plan: &plan, digests: &BTreeMap::new(), fresh, drop, claim })
}

fn start(storage: &MemoryStorage) -> Recovery {
    recover(storage, RecoverOptions { verify: true, ..RecoverOptions::default() }, &mut Claim::default()).unwrap()
}

#[test]
fn a_savepoint_becomes_the_newest_checkpoint_and_refers_to_nothing_else() {
    let storage = saved();
    let savepoint = storage.savepoint(PATH).unwrap();
    assert_eq!(take(&storage, &savepoint, &wish()).unwrap(), CheckpointId(4));
    storage.delete_savepoint(PATH).unwrap();
    let recovery = start(&storage);
    let newest = recovery.newest.unwrap();
    assert_eq!((newest.manifest.checkpoint, newest.committed, newest.manifest.transactions().len()), (CheckpointId(4), false, 1));
    assert!(recovery.next_checkpoint > CheckpointId(4) && recovery.attempt > newest.manifest.attempt);
    assert_eq!(take(&storage, &savepoint, &wish()).unwrap(), CheckpointId(4), "once more changes nothing");
}

#[test]
fn a_job_that_has_gone_further_is_not_taken_back_unless_it_begins_afresh() {
    let storage = saved();
    let savepoint = storage.savepoint(PATH).unwrap();
    take(&storage, &savepoint, &wish()).unwrap();
    let own = CheckpointManifest { checkpoint: CheckpointId(9), created: ProcessingTime(50), ..manifest(&job(16, 2)) };
    let attempt = Attempt(storage.fence().unwrap().attempt);
    storage.publish_manifest(attempt, CheckpointId(9), &own.encode()).unwrap();
    let error = take(&storage, &savepoint, &wish()).unwrap_err();
    assert!(matches!(error, AdoptError::Newer(CheckpointId(9))), "{error}");
    let id = take(&storage, &savepoint, &Wish { fresh: true, ..wish() }).unwrap();
    assert_eq!(storage.manifests().unwrap(), [id]);
    storage.delete_checkpoint(id).unwrap();
    storage.mark_finished(id).unwrap();
    assert_eq!(take(&storage, &savepoint, &wish()).unwrap_err().code(), "restore-finished");
    let id = take(&storage, &savepoint, &Wish { fresh: true, ..wish() }).unwrap();
    assert_eq!((start(&storage).finished, storage.manifests().unwrap()), (None, vec![id]));
}

#[test]
fn a_retained_checkpoint_of_the_same_job_is_taken_without_copying() {
    let storage = saved();
    let older = Wish { fresh: true, ..wish() };
    let id = take(&storage, &StoredCheckpoint(&storage, CheckpointId(2)), &older).unwrap();
    assert_eq!((storage.manifests().unwrap(), start(&storage).newest.unwrap().manifest.checkpoint), (vec![id], id));
}

#[test]
fn a_fork_must_leave_unpublished_output_to_the_job_that_made_it() {
    let savepoint = saved().savepoint(PATH).unwrap();
    let fork = || Wish { spec: JobSpec { name: "fork".into(), ..job(16, 2) }, ..wish() };
    let storage = MemoryStorage::default();
    let error = take(&storage, &savepoint, &fork()).unwrap_err();
    assert!(error.to_string().contains("--drop-state out") && error.to_string().contains("\"words\""), "{error}");
    assert_eq!(storage.manifests().unwrap(), []);
    let dropping = Wish { drop: vec![StateName::parse("out").unwrap()], ..fork() };
    take(&storage, &savepoint, &dropping).unwrap();
    let newest = start(&storage).newest.unwrap().manifest;
    assert_eq!((newest.job.as_str(), newest.transactions().len()), ("fork", 0));
    assert!(matches!(take(&storage, &savepoint, &wish()), Err(AdoptError::Newer(_))), "of another job, nobody knows");
}

#[test]
fn what_a_stop_has_committed_is_not_committed_again() {
    let storage = saved();
    storage.mark_savepoint_committed(PATH, CheckpointId(3)).unwrap();
    take(&storage, &storage.savepoint(PATH).unwrap(), &wish()).unwrap();
    assert_eq!(start(&storage).newest.unwrap().manifest.transactions().len(), 0);
}

#[test]
fn state_is_left_behind_by_its_name_only() {
    let savepoint = saved().savepoint(PATH).unwrap();
    let without = || {
        let mut spec = job(16, 2);
        spec.nodes.retain(|node| node.id != id("count"));
        spec.nodes[1].inputs[0].from = id("lines");
        spec
    };
    let try_with = |names: &[&str]| {
        let storage = MemoryStorage::default();
        let drop = names.iter().map(|name| StateName::parse(name).unwrap()).collect();
        let taken = take(&storage, &savepoint, &Wish { spec: without(), drop, ..wish() });
        taken.map(|_| start(&storage).newest.unwrap().manifest)
    };
    let error = try_with(&[]).unwrap_err();
    assert!(error.code() == "restore-incompatible" && error.to_string().contains("\"count\""), "{error}");
    for names in [&["count/n"][..], &["count"], &["count/n", "count"]] {
        let manifest = try_with(names).unwrap();
        assert!(manifest.state.tables().is_empty() && manifest.state.segments().is_empty(), "{names:?}");
    }
    for wrong in ["count/m", "other", "out/n"] {
        let error = try_with(&["count", wrong]).unwrap_err();
        assert_eq!(error.code(), "restore-unknown-state", "{wrong}: {error}");
        assert!(error.to_string().contains("lines, count, count/n, out"), "{error}");
    }
    assert!(["", "/n", "Count", "count/"].iter().all(|name| StateName::parse(name).is_none()));
}

#[test]
fn damage_is_found_before_anything_is_published() {
    let storage = saved();
    let savepoint = storage.savepoint(PATH).unwrap();
    let into = MemoryStorage::default();
    let broken = Broken(&savepoint);
    assert_eq!(take(&into, &broken, &wish()).unwrap_err().code(), "restore-damaged");
    assert_eq!(into.manifests().unwrap(), []);
    take(&into, &savepoint, &wish()).unwrap();
}

/// A savepoint of which one bit of each segment has changed.
struct Broken<'a>(&'a dyn SnapshotSource);

impl SnapshotSource for Broken<'_> {
    fn read_manifest(&self) -> Result<Vec<u8>, StorageError> {
        self.0.read_manifest()
    }

    fn is_committed(&self) -> Result<bool, StorageError> {
        self.0.is_committed()
    }

    fn open_segment(&self, id: crate::checkpoint::segment::SegmentId) -> Result<Box<dyn SegmentSource>, StorageError> {
        let whole = self.0.open_segment(id)?;
        let mut bytes = vec![0; usize::try_from(whole.length()).unwrap()];
        whole.read_exact_at(0, &mut bytes)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let bytes: &'static [u8] = bytes.leak();
        Ok(Box::new(bytes))
    }
}

#[test]
fn a_claimed_savepoint_goes_with_the_checkpoint_that_it_became() {
    let storage = saved();
    let savepoint = storage.savepoint(PATH).unwrap();
    let id = take(&storage, &savepoint, &Wish { claim: Some(PATH), ..wish() }).unwrap();
    assert!(storage.savepoint(PATH).is_some());
    storage.delete_checkpoint(id).unwrap();
    assert!(storage.savepoint(PATH).is_none());
}
