//! The storage on a simulated disk, at every point where the power may fail, and on the real one.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cofferdam_dataflow::checkpoint::recovery::{Claim, RecoverError, RecoverOptions, recover};
use cofferdam_dataflow::checkpoint::segment::SegmentId;
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, Fence, NewSavepoint, StorageError, StorageErrorKind};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, TaskIndex};

use super::files::{Files, ReadFile, WrittenFile};
use super::simulated::SimulatedFiles;
use super::{LocalStorage, mark};

const DIR: &str = "/job";

fn storage(files: &SimulatedFiles) -> Result<LocalStorage, StorageError> {
    LocalStorage::with_files(Path::new(DIR), Arc::new(files.clone()))
}

fn segment(checkpoint: u64) -> SegmentId {
    SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(1), task: TaskIndex(0) }
}

fn content(checkpoint: u64) -> Vec<u8> {
    format!("the content of checkpoint {checkpoint}").into_bytes()
}

fn write_segment(storage: &dyn CheckpointStorage, checkpoint: u64) -> Result<(), StorageError> {
    let mut file = storage.create_segment(segment(checkpoint))?;
    file.write_all(&content(checkpoint)).map_err(|error| StorageError::io("segment", error))?;
    file.sync()
}

fn read_segment(storage: &dyn CheckpointStorage, checkpoint: u64) -> Result<Vec<u8>, StorageError> {
    let source = storage.open_segment(segment(checkpoint))?;
    let mut bytes = vec![0; usize::try_from(source.length()).unwrap()];
    source.read_exact_at(0, &mut bytes)?;
    Ok(bytes)
}

/// What the storage has promised, and what it was asked for and may have done.
#[derive(Default)]
struct Promises {
    fence: u64,
    published: BTreeSet<u64>,
    committed: BTreeSet<u64>,
    to_delete: BTreeSet<u64>,
    deleted: BTreeSet<u64>,
    finished: bool,
}

/// Four checkpoints, the last two of which are kept; then the job finishes.
fn script(storage: &dyn CheckpointStorage, promises: &mut Promises) -> Result<(), StorageError> {
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 })?;
    promises.fence = 1;
    for checkpoint in 1..=4 {
        let id = CheckpointId(checkpoint);
        write_segment(storage, checkpoint)?;
        storage.publish_manifest(Attempt(1), id, &content(checkpoint))?;
        promises.published.insert(checkpoint);
        storage.mark_committed(id)?;
        promises.committed.insert(checkpoint);
        if checkpoint > 2 {
            let old = checkpoint - 2;
            promises.to_delete.insert(old);
            storage.delete_checkpoint(CheckpointId(old))?;
            promises.deleted.insert(old);
            storage.delete_segment(segment(old))?;
        }
    }
    storage.mark_finished(CheckpointId(4))?;
    promises.finished = true;
    Ok(())
}

fn check(storage: &dyn CheckpointStorage, promises: &Promises) {
    let found: BTreeSet<u64> = storage.manifests().unwrap().into_iter().map(|id| id.0).collect();
    for id in &found {
        assert_eq!(storage.read_manifest(CheckpointId(*id)).unwrap(), content(*id), "a manifest is whole or not there");
        assert_eq!(read_segment(storage, *id).unwrap(), content(*id), "what a manifest names is there and whole");
        assert!(!promises.deleted.contains(id), "{id} was deleted for good");
        let committed = storage.is_committed(CheckpointId(*id)).unwrap();
        assert!(committed || !promises.committed.contains(id), "{id} was marked, and is not committed again");
    }
    for id in promises.published.difference(&promises.to_delete) {
        assert!(found.contains(id), "{id} was published");
    }
    assert!(storage.fence().unwrap().attempt >= promises.fence);
    assert!(storage.finished().unwrap().is_some() || !promises.finished);
}

#[test]
fn after_a_power_failure_at_any_point_every_promise_holds() {
    for steps in 1.. {
        let files = SimulatedFiles::new(Path::new(DIR));
        files.fail_after(steps);
        let mut promises = Promises::default();
        let result = storage(&files).and_then(|storage| script(&storage, &mut promises));
        if result.is_ok() {
            assert!(steps > 60, "the script has that many steps");
            break;
        }
        assert!(files.has_failed());
        for seed in 0..30 {
            let files = files.after_power_failure(seed);
            let storage = storage(&files).unwrap();
            check(&storage, &promises);
            let attempt = storage.fence().unwrap().attempt + 1;
            storage.raise_fence(Fence { attempt, checkpoint: 9 }).unwrap();
            storage.remove_leftovers().unwrap();
            check(&storage, &promises);
            let paths = files.paths();
            assert!(!paths.iter().any(|path| path.ends_with(".tmp")), "{paths:?}");
            storage.publish_manifest(Attempt(attempt), CheckpointId(10), b"next").unwrap();
        }
    }
}

#[test]
fn what_is_published_is_never_replaced_and_older_attempts_are_fenced() {
    let files = SimulatedFiles::new(Path::new(DIR));
    let storage = storage(&files).unwrap();
    storage.raise_fence(Fence { attempt: 2, checkpoint: 0 }).unwrap();
    let publish = |attempt, bytes| storage.publish_manifest(Attempt(attempt), CheckpointId(1), bytes);
    assert_eq!(publish(1, b"old").unwrap_err().kind, StorageErrorKind::Fenced);
    publish(2, b"first").unwrap();
    assert_eq!(publish(2, b"second").unwrap_err().kind, StorageErrorKind::Exists);
    assert_eq!(storage.read_manifest(CheckpointId(1)).unwrap(), b"first");
    assert_eq!(storage.raise_fence(Fence { attempt: 2, checkpoint: 0 }).unwrap_err().kind, StorageErrorKind::Fenced);
    write_segment(&storage, 1).unwrap();
    assert_eq!(write_segment(&storage, 1).unwrap_err().kind, StorageErrorKind::Exists);
}

#[test]
fn a_full_disk_fails_the_write_leaves_nothing_behind_and_is_over_when_there_is_space() {
    let files = SimulatedFiles::new(Path::new(DIR));
    let storage = storage(&files).unwrap();
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 }).unwrap();
    let before = files.paths();
    files.limit(75);
    for error in
        [write_segment(&storage, 1).unwrap_err(), storage.publish_manifest(Attempt(1), CheckpointId(1), &content(1)).unwrap_err()]
    {
        assert_eq!((error.kind, error.outcome_unknown), (StorageErrorKind::Full, false), "{error}");
    }
    assert_eq!(files.paths(), before);
    files.limit(usize::MAX);
    write_segment(&storage, 1).unwrap();
    storage.publish_manifest(Attempt(1), CheckpointId(1), &content(1)).unwrap();
}

#[test]
fn a_failed_sync_gives_the_file_up_and_a_failed_sync_of_the_directory_leaves_the_outcome_open() {
    let files = SimulatedFiles::new(Path::new(DIR));
    let storage = storage(&files).unwrap();
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 }).unwrap();
    for sync in [0, 1] {
        files.fail_sync(sync);
        write_segment(&storage, 1).unwrap_err();
        assert!(storage.segments().unwrap().is_empty(), "sync {sync}");
    }
    let publish = |checkpoint| storage.publish_manifest(Attempt(1), CheckpointId(checkpoint), b"m");
    // In order: the directory of all checkpoints, the manifest, its directory.
    let unknown: Vec<_> = (0..3)
        .map(|sync| {
            files.fail_sync(sync);
            publish(sync as u64 + 1).unwrap_err().outcome_unknown
        })
        .collect();
    assert_eq!(unknown, [false, false, true]);
    assert_eq!(storage.manifests().unwrap(), [CheckpointId(3)]);
    storage.raise_fence(Fence { attempt: 2, checkpoint: 3 }).unwrap();
    for seed in 0..10 {
        let disk = files.after_power_failure(seed);
        let manifests = self::storage(&disk).unwrap().manifests().unwrap();
        assert_eq!(manifests, [CheckpointId(3)], "raising the fence settles it");
    }
}

#[test]
fn a_damaged_mark_is_an_error_that_names_it() {
    let files = SimulatedFiles::new(Path::new(DIR));
    let storage = storage(&files).unwrap();
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 }).unwrap();
    files.corrupt(Path::new("/job/fence"));
    let error = storage.fence().unwrap_err();
    assert_eq!((error.kind, error.to_string().as_str()), (StorageErrorKind::Damaged, "/job/fence is damaged"));
}

#[test]
fn a_directory_belongs_to_one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs/words");
    let first = LocalStorage::open(&path).unwrap();
    let error = LocalStorage::open(&path).err().unwrap();
    assert_eq!(error.kind, StorageErrorKind::Fenced);
    assert!(error.to_string().ends_with(&format!("is in use by process {}", std::process::id())), "{error}");
    let reader = LocalStorage::open_to_read(&path).unwrap();
    assert_eq!(reader.manifests().unwrap(), []);
    assert_eq!(write_segment(&reader, 1).unwrap_err().kind, StorageErrorKind::Fenced);
    drop(first);
    LocalStorage::open(&path).unwrap();
}

#[test]
fn the_real_disk_keeps_checkpoints_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("words");
    let storage = LocalStorage::open(&path).unwrap();
    let mut promises = Promises::default();
    script(&storage, &mut promises).unwrap();
    check(&storage, &promises);
    assert_eq!(storage.segments().unwrap(), [segment(3), segment(4)]);
    assert_eq!(storage.remove_leftovers().unwrap(), 0);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let segment_path = path.join(format!("segments/{}.seg", segment(3)));
    let manifest = path.join("chk-4/_manifest");
    assert_eq!([&path, &segment_path, &manifest].map(|path| mode(path)), [0o700, 0o600, 0o600]);
    storage.clear_finished().unwrap();
    assert_eq!(storage.finished().unwrap(), None);
    let replaced = Files::rename_new(&super::files::HostFiles, &manifest, &path.join("chk-3/_manifest"));
    assert_eq!(replaced.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn a_checkpoint_is_listed_and_a_damaged_one_is_shown_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::open(dir.path()).unwrap();
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 }).unwrap();
    storage.publish_manifest(Attempt(1), CheckpointId(1), b"no manifest").unwrap();
    let listed = super::inspect::list(&storage).unwrap();
    assert_eq!((listed[0].checkpoint, listed[0].committed), (CheckpointId(1), false));
    assert!(listed[0].manifest.as_ref().unwrap_err().contains("damaged"));
    assert!(!super::inspect::verify(&storage, CheckpointId(1)).unwrap().is_whole());
    assert_eq!(super::inspect::verify(&storage, CheckpointId(2)).unwrap_err().kind, StorageErrorKind::NotFound);
}

const SAVED: &str = "/job/savepoints/savepoint-5";

/// A checkpoint, then a savepoint, whose segment then goes from the job's own directory.
fn save(storage: &dyn CheckpointStorage) -> Result<(), StorageError> {
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 })?;
    write_segment(storage, 1)?;
    storage.publish_manifest(Attempt(1), CheckpointId(1), &content(1))?;
    write_segment(storage, 5)?;
    let (segments, manifest) = ([segment(5)], content(5));
    let new = NewSavepoint { checkpoint: CheckpointId(5), path: SAVED, segments: &segments, manifest: &manifest };
    storage.publish_savepoint(Attempt(1), new)?;
    storage.delete_segment(segment(5))
}

fn read(files: &SimulatedFiles, path: &str) -> Option<Vec<u8>> {
    let file = files.open(Path::new(path)).ok()?;
    let mut bytes = vec![0; usize::try_from(file.length()).unwrap()];
    file.read_exact_at(0, &mut bytes).unwrap();
    Some(bytes)
}

#[test]
fn a_savepoint_is_whole_or_not_there_after_a_power_failure_at_any_point() {
    for steps in 1.. {
        let files = SimulatedFiles::new(Path::new(DIR));
        files.fail_after(steps);
        let done = storage(&files).and_then(|storage| save(&storage)).is_ok();
        for seed in 0..30 {
            let files = files.after_power_failure(seed);
            let manifest = read(&files, &format!("{SAVED}/_manifest"));
            assert!(manifest.is_some() || !done, "it was published, after {steps} steps");
            if let Some(manifest) = manifest {
                assert_eq!(manifest, content(5), "after {steps} steps");
                let file = read(&files, &format!("{SAVED}/segments/{}.seg", segment(5)));
                assert_eq!(file, Some(content(5)), "after {steps} steps");
                assert_eq!(storage(&files).unwrap().fence().unwrap().checkpoint, 5, "its id is not used again");
            }
        }
        if done {
            assert!(steps > 30, "it has that many steps");
            break;
        }
    }
}

#[test]
fn a_savepoint_that_fails_leaves_nothing_and_never_replaces_anything() {
    for sync in 0..30 {
        let files = SimulatedFiles::new(Path::new(DIR));
        let storage = storage(&files).unwrap();
        files.fail_sync(sync);
        if save(&storage).is_err() {
            assert!(read(&files, &format!("{SAVED}/_manifest")).is_none(), "sync {sync}");
            let left: Vec<_> = files.paths().into_iter().filter(|path| path.starts_with(SAVED)).collect();
            assert!(left.is_empty(), "sync {sync}: {left:?}");
        }
    }
    let files = SimulatedFiles::new(Path::new(DIR));
    let storage = storage(&files).unwrap();
    save(&storage).unwrap();
    let new = NewSavepoint { checkpoint: CheckpointId(6), path: SAVED, segments: &[], manifest: b"other" };
    assert_eq!(storage.publish_savepoint(Attempt(1), new).unwrap_err().kind, StorageErrorKind::Exists);
    assert_eq!(read(&files, &format!("{SAVED}/_manifest")), Some(content(5)));
}

#[test]
fn a_claimed_savepoint_goes_with_its_checkpoint_but_not_with_one_that_was_never_published() {
    let files = SimulatedFiles::new(Path::new(DIR));
    let storage = storage(&files).unwrap();
    save(&storage).unwrap();
    storage.claim_savepoint(SAVED, CheckpointId(6)).unwrap();
    storage.remove_leftovers().unwrap();
    assert!(read(&files, &format!("{SAVED}/_manifest")).is_some(), "the claim was left half done");
    storage.claim_savepoint(SAVED, CheckpointId(7)).unwrap();
    storage.publish_manifest(Attempt(1), CheckpointId(7), &content(7)).unwrap();
    storage.delete_checkpoint(CheckpointId(7)).unwrap();
    assert!(!files.paths().iter().any(|path| path.starts_with(SAVED) || path.contains("chk-7")), "{:?}", files.paths());
    assert!(read(&files, "/job/chk-1/_manifest").is_some());
}

type Act = Box<dyn FnOnce() + Send>;

/// A disk on which something else happens before the n-th operation.
struct Interrupted {
    files: SimulatedFiles,
    /// So many operations from now, and what then happens.
    left: Mutex<Option<(usize, Act)>>,
}

impl Interrupted {
    fn enter(&self) {
        let mut left = self.left.lock().unwrap();
        match left.take() {
            Some((0, act)) => {
                drop(left);
                act();
            }
            Some((operations, act)) => *left = Some((operations - 1, act)),
            None => {}
        }
    }
}

impl Files for Interrupted {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WrittenFile>> {
        self.enter();
        self.files.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        self.enter();
        self.files.open(path)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter();
        self.files.replace(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter();
        self.files.rename_new(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter();
        self.files.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.enter();
        self.files.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.enter();
        self.files.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.enter();
        self.files.remove_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.enter();
        self.files.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.enter();
        self.files.sync_dir(dir)
    }
}

/// Recovers a job as a process does that has the number `owner`; returns what it may then do in the name of which attempt.
fn take_job(storage: &LocalStorage) -> (Claim, Result<Attempt, RecoverError>) {
    let mut claim = Claim::default();
    let recovered = recover(storage, RecoverOptions::default(), &mut claim).map(|recovery| recovery.attempt);
    (claim, recovered)
}

#[test]
fn of_two_processes_without_a_lock_one_has_the_job_whenever_the_other_comes() {
    let mut same_attempt = 0;
    for operation in 0.. {
        let files = SimulatedFiles::new(Path::new(DIR));
        drop(storage(&files).unwrap());
        let second: Arc<Mutex<Option<(LocalStorage, Claim, Attempt)>>> = Arc::default();
        let interrupted = Arc::new(Interrupted { files: files.clone(), left: Mutex::new(None) });
        let first = LocalStorage::with_files(Path::new(DIR), Arc::<Interrupted>::clone(&interrupted)).unwrap().with_owner(1);
        let comes = {
            let (files, second) = (files.clone(), Arc::clone(&second));
            move || {
                let storage = storage(&files).unwrap().with_owner(2);
                let (claim, recovered) = take_job(&storage);
                *second.lock().unwrap() = Some((storage, claim, recovered.unwrap()));
            }
        };
        *interrupted.left.lock().unwrap() = Some((operation, Box::new(comes)));
        let (claim, recovered) = take_job(&first);
        let Some((other, other_claim, other_attempt)) = second.lock().unwrap().take() else {
            assert!(operation > 8, "it has so many operations");
            break;
        };
        let attempt = recovered.as_ref().ok().copied();
        same_attempt += usize::from(attempt == Some(other_attempt));
        let may = [attempt.is_some_and(|attempt| first.check_fence(attempt).is_ok()), other.check_fence(other_attempt).is_ok()];
        assert_eq!(may.iter().filter(|may| **may).count(), 1, "operation {operation}: {may:?}, {recovered:?}");
        // The one that has not may not go on, publish, or take the job back by itself.
        assert_eq!([claim.check(&first).is_ok(), other_claim.check(&other).is_ok()], may, "operation {operation}");
        let published = [
            attempt.is_some_and(|attempt| first.publish_manifest(attempt, CheckpointId(5), b"first").is_ok()),
            other.publish_manifest(other_attempt, CheckpointId(5), b"other").is_ok(),
        ];
        assert_eq!(published, may, "operation {operation}");
        let (storage, mut claim) = if may[0] { (&other, other_claim) } else { (&first, claim) };
        let error = recover(storage, RecoverOptions::default(), &mut claim).unwrap_err();
        assert!(matches!(&error, RecoverError::Storage(error) if error.kind == StorageErrorKind::Fenced), "{error}");
    }
    assert!(same_attempt >= 2, "both begin the same attempt if one comes between the other's reading and writing");
}

#[test]
fn a_fence_of_the_version_before_belongs_to_nobody() {
    let files = SimulatedFiles::new(Path::new(DIR));
    let storage = storage(&files).unwrap();
    let path = Path::new(DIR).join("fence");
    let mut file = files.create(&path).unwrap();
    file.write_all(mark::encode("fence", &[("attempt", 4), ("checkpoint", 9)]).as_bytes()).unwrap();
    assert_eq!(storage.fence().unwrap(), Fence { attempt: 4, checkpoint: 9 });
    storage.check_fence(Attempt(4)).unwrap();
    let storage = storage.with_owner(3);
    assert_eq!(storage.check_fence(Attempt(4)).unwrap_err().kind, StorageErrorKind::Fenced);
    storage.raise_fence(Fence { attempt: 5, checkpoint: 9 }).unwrap();
    storage.check_fence(Attempt(5)).unwrap();
}

#[test]
fn a_checkpoint_whose_state_is_in_its_manifest_is_one_file_and_three_syncs() {
    let files = SimulatedFiles::new(Path::new(DIR));
    let storage = storage(&files).unwrap();
    storage.raise_fence(Fence { attempt: 1, checkpoint: 0 }).unwrap();
    let syncs = |act: &dyn Fn()| {
        let before = (files.syncs(), files.paths().len());
        act();
        (files.syncs() - before.0, files.paths().len() - before.1)
    };
    let publish = |checkpoint| storage.publish_manifest(Attempt(1), CheckpointId(checkpoint), b"m").unwrap();
    assert_eq!(syncs(&|| publish(1)), (3, 2), "a folder and a file");
    let with_file = || {
        write_segment(&storage, 2).unwrap();
        publish(2);
    };
    assert_eq!(syncs(&with_file), (5, 3));
}
