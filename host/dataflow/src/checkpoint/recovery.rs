//! What a storage offers to a job that starts or restarts.
//!
//! The order matters: first the fence rises, so that nothing older can publish; then the restore point is chosen; only
//! then are orphans removed. Every step may be cut off and repeated.

use super::manifest::CheckpointManifest;
use super::retention::{Deletion, Retention};
use super::segment::{SegmentError, SegmentReader, SegmentRef, hash_source};
use super::storage::{CheckpointStorage, Fence, StorageError, StorageErrorKind};
use crate::ids::{Attempt, CheckpointId};

/// How to recover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoverOptions {
    /// Deletes all checkpoints and begins anew.
    pub fresh: bool,
    /// Goes back behind damaged checkpoints, though their output may have been committed and will be repeated.
    pub allow_rewind: bool,
    /// Checks the hash of every segment of the restore point; blocks are checked when they are read in any case.
    pub verify: bool,
}

/// The attempts that a process has begun. Kept by whoever calls [`recover`], for as long as the process lives: a storage
/// that a newer attempt owns has been taken over by another process, and is not taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The newest attempt that it has begun, or may have.
    newest: Option<Attempt>,
}

impl Claim {
    /// Checks that no other process has taken the job over. Called before anything is deleted.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::Fenced`] if one has.
    pub fn check(&self, storage: &dyn CheckpointStorage) -> Result<(), StorageError> {
        self.check_against(storage, storage.fence()?)
    }

    fn check_against(&self, storage: &dyn CheckpointStorage, fence: Fence) -> Result<(), StorageError> {
        match self.newest {
            Some(own) if own.0 < fence.attempt => {
                let message = format!(
                    "attempt {own} was the newest of this process, and attempt {} has begun: another process has taken the job over",
                    fence.attempt
                );
                Err(StorageError::new(StorageErrorKind::Fenced, message))
            }
            // Two processes may have begun the same attempt; the storage knows whose it is.
            Some(own) if own.0 == fence.attempt => storage.check_fence(own),
            Some(_) | None => Ok(()),
        }
    }
}

/// What a new attempt begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The new attempt; all older ones are fenced.
    pub attempt: Attempt,
    /// The first id that no checkpoint ever had.
    pub next_checkpoint: CheckpointId,
    /// The restore point, if there is one.
    pub newest: Option<RestorePoint>,
    /// All checkpoints that exist.
    pub retention: Retention,
    /// The last checkpoint of a job that has finished: there is nothing to run.
    pub finished: Option<CheckpointId>,
    /// For people: what was skipped, what could not be cleaned up.
    pub notices: Vec<String>,
}

/// The checkpoint that is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorePoint {
    /// What it is made of.
    pub manifest: CheckpointManifest,
    /// Whether all its transactions are known to be committed.
    pub committed: bool,
}

/// A storage that a job cannot start from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The newest checkpoint cannot be restored. Its output may have been committed, so an older one would repeat it.
    #[error(
        "restore-damaged: checkpoint {checkpoint} cannot be restored: {what}; it is not skipped, for its output may have been committed: repair it, or go back with --allow-rewind and expect output since the checkpoint before it to be repeated"
    )]
    Damaged {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What is wrong with it.
        what: String,
    },
    /// All of them are damaged.
    #[error("restore-damaged: no checkpoint can be restored; the oldest is {checkpoint}: {what}")]
    NothingLeft {
        /// The oldest one.
        checkpoint: CheckpointId,
        /// What is wrong with it.
        what: String,
    },
    /// The storage could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl RecoverError {
    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Damaged { .. } | Self::NothingLeft { .. } => false,
            Self::Storage(error) => error.kind != StorageErrorKind::Fenced,
        }
    }
}

/// Begins a new attempt: raises the fence and finds the restore point. Blocks. The first attempt of a process takes the
/// job over from whoever had it; a later one only continues what is still its own.
///
/// # Errors
/// [`RecoverError`]; its storage error is of kind [`StorageErrorKind::Fenced`] if another process has taken over.
pub fn recover(storage: &dyn CheckpointStorage, options: RecoverOptions, claim: &mut Claim) -> Result<Recovery, RecoverError> {
    let fence = raise(storage, claim)?;
    let mut recovery = Recovery {
        attempt: Attempt(fence.attempt),
        next_checkpoint: CheckpointId(fence.checkpoint + 1),
        newest: None,
        retention: Retention::default(),
        finished: None,
        notices: Vec::new(),
    };
    if options.fresh {
        // The newest goes last and the mark after it: whenever this is cut off, a start without `fresh` is right.
        Deletion { checkpoints: storage.manifests()?, segments: Vec::new() }.apply(storage)?;
        storage.clear_finished()?;
    }
    recovery.finished = storage.finished()?;
    let newest = storage.manifests()?.last().copied();
    // Another process may have published until the fence rose.
    recovery.next_checkpoint = recovery.next_checkpoint.max(CheckpointId(newest.map_or(0, |newest| newest.0) + 1));
    if recovery.finished.is_some_and(|finished| newest.is_some_and(|newest| newest > finished)) {
        // The job was begun again from a savepoint after it had finished: the mark is of the run before.
        storage.clear_finished()?;
        recovery.finished = None;
    }
    let all_readable = choose(storage, options, &mut recovery)?;
    if let Err(error) = sweep(storage, &mut recovery, all_readable) {
        recovery.notices.push(format!("files that are not needed could not be removed: {error}"));
    }
    Ok(recovery)
}

/// Raises the fence above everything in the storage, unless it belongs to another process by now.
pub(super) fn raise(storage: &dyn CheckpointStorage, claim: &mut Claim) -> Result<Fence, StorageError> {
    let fence = storage.fence()?;
    claim.check_against(storage, fence)?;
    let used = storage.manifests()?.into_iter().chain(storage.segments()?.into_iter().map(|segment| segment.checkpoint));
    let checkpoint = used.chain(storage.finished()?).map(|id| id.0).fold(fence.checkpoint, u64::max);
    let attempt = storage.segments()?.into_iter().map(|segment| segment.attempt.0).fold(fence.attempt, u64::max);
    let fence = Fence { attempt: attempt + 1, checkpoint };
    // Even if the storage says that it failed, it may have happened.
    claim.newest = Some(Attempt(fence.attempt));
    storage.raise_fence(fence)?;
    Ok(fence)
}

/// Reads all manifests and chooses the newest one that can be restored. Returns whether all could be read.
fn choose(storage: &dyn CheckpointStorage, options: RecoverOptions, recovery: &mut Recovery) -> Result<bool, RecoverError> {
    let mut all_readable = true;
    let mut last_damage = None;
    for checkpoint in storage.manifests()?.into_iter().rev() {
        let manifest = match CheckpointManifest::decode(&storage.read_manifest(checkpoint)?) {
            Ok(manifest) => Ok(manifest),
            Err(error) => {
                all_readable = false;
                Err(error.to_string())
            }
        };
        let segments = manifest.iter().flat_map(|manifest| manifest.state.segments().keys().copied());
        recovery.retention.add(checkpoint, segments);
        if recovery.newest.is_some() {
            continue;
        }
        match manifest.map(|manifest| check(storage, options, checkpoint, manifest)) {
            Ok(Ok(point)) => recovery.newest = Some(point),
            Ok(Err(Check::Storage(error))) => return Err(error.into()),
            Ok(Err(Check::Damaged(what))) | Err(what) if options.allow_rewind => {
                recovery.notices.push(format!("checkpoint {checkpoint} is skipped: {what}"));
                last_damage = Some((checkpoint, what));
            }
            Ok(Err(Check::Damaged(what))) | Err(what) => return Err(RecoverError::Damaged { checkpoint, what }),
        }
    }
    match (&recovery.newest, last_damage) {
        (None, Some((checkpoint, what))) => Err(RecoverError::NothingLeft { checkpoint, what }),
        _ => Ok(all_readable),
    }
}

enum Check {
    Damaged(String),
    Storage(StorageError),
}

fn check(
    storage: &dyn CheckpointStorage,
    options: RecoverOptions,
    checkpoint: CheckpointId,
    manifest: CheckpointManifest,
) -> Result<RestorePoint, Check> {
    if manifest.checkpoint != checkpoint {
        return Err(Check::Damaged(format!("its manifest is that of checkpoint {}", manifest.checkpoint)));
    }
    if options.verify {
        verify(storage, &manifest).map_err(|error| match error {
            SegmentError::Storage(error) if !proves_damage(&error) => Check::Storage(error),
            error => Check::Damaged(error.to_string()),
        })?;
    }
    let committed = storage.is_committed(checkpoint).map_err(Check::Storage)?;
    Ok(RestorePoint { manifest, committed })
}

/// A read that failed for another reason may succeed when it is repeated.
fn proves_damage(error: &StorageError) -> bool {
    matches!(error.kind, StorageErrorKind::NotFound | StorageErrorKind::Damaged)
}

/// Checks length, structure and hash of every segment that a manifest names. Reads them all.
///
/// # Errors
/// [`SegmentError`], for the first that is missing, damaged or unreadable.
pub fn verify(storage: &dyn CheckpointStorage, manifest: &CheckpointManifest) -> Result<(), SegmentError> {
    manifest.state.segments().values().try_for_each(|segment| verify_segment(storage, segment))
}

/// Checks length, structure and hash of one segment. Reads all of it.
///
/// # Errors
/// [`SegmentError`] if it is missing, damaged or unreadable.
pub fn verify_segment(storage: &dyn CheckpointStorage, segment: &SegmentRef) -> Result<(), SegmentError> {
    let reader = SegmentReader::open(segment.open(storage)?, segment)?;
    if hash_source(reader.source())? != segment.hash {
        let what = "its hash is not the one in the manifest".into();
        return Err(SegmentError::Damaged { segment: segment.id, what });
    }
    Ok(())
}

/// Removes what no checkpoint names. If a manifest is unreadable, nobody knows which segments it names: all stay.
fn sweep(storage: &dyn CheckpointStorage, recovery: &mut Recovery, all_readable: bool) -> Result<(), StorageError> {
    storage.remove_leftovers()?;
    if all_readable {
        let segments = recovery.retention.orphans(&storage.segments()?, recovery.attempt.0);
        Deletion { checkpoints: Vec::new(), segments }.apply(storage)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::chains::StateChains;
    use super::super::manifest::tests::manifest;
    use super::super::memory::MemoryStorage;
    use super::super::segment::{SegmentEncoder, SegmentHeader, SegmentId, SegmentInfo};
    use super::*;
    use crate::ids::{OperatorId, TaskIndex};
    use crate::key_group::KeyGroup;
    use crate::snapshot::{SectionKind, StateBlock, TableId};

    fn segment(storage: &MemoryStorage, checkpoint: u64) -> SegmentInfo {
        let id = SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(1), task: TaskIndex(0) };
        let tables = vec![TableId { operator: OperatorId::new("count").unwrap(), slot: "n".into() }];
        let file = storage.create_segment(id).unwrap();
        let mut encoder = SegmentEncoder::new(file, SegmentHeader { job: "words".into(), id, tables }).unwrap();
        let block = StateBlock { table: 0, group: KeyGroup(0), kind: SectionKind::Base, entries: 0, bytes: vec![] };
        encoder.push(&block).unwrap();
        let (file, info) = encoder.finish().unwrap();
        file.sync().unwrap();
        info
    }

    /// Attempt 1 completed checkpoints 1 and 2 and left a segment of checkpoint 3.
    fn storage() -> MemoryStorage {
        let storage = MemoryStorage::default();
        storage.raise_fence(Fence { attempt: 1, checkpoint: 0 }).unwrap();
        for checkpoint in [1, 2] {
            let state = StateChains::default().advance(&[segment(&storage, checkpoint)], &[]);
            let manifest = CheckpointManifest { checkpoint: CheckpointId(checkpoint), state, ..manifest() };
            storage.publish_manifest(Attempt(1), manifest.checkpoint, &manifest.encode()).unwrap();
        }
        storage.mark_committed(CheckpointId(1)).unwrap();
        segment(&storage, 3);
        storage
    }

    fn damage(storage: &MemoryStorage, checkpoint: u64) {
        let id = segment_ids(storage).into_iter().find(|id| id.checkpoint.0 == checkpoint).unwrap();
        let source = storage.open_segment(id).unwrap();
        let mut bytes = vec![0; usize::try_from(source.length()).unwrap()];
        source.read_exact_at(0, &mut bytes).unwrap();
        bytes[20] ^= 1;
        storage.delete_segment(id).unwrap();
        let mut file = storage.create_segment(id).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync().unwrap();
    }

    fn segment_ids(storage: &MemoryStorage) -> Vec<SegmentId> {
        storage.segments().unwrap()
    }

    const VERIFY: RecoverOptions = RecoverOptions { fresh: false, allow_rewind: false, verify: true };

    /// A process begins.
    fn begin(storage: &MemoryStorage, options: RecoverOptions) -> Result<Recovery, RecoverError> {
        recover(storage, options, &mut Claim::default())
    }

    #[test]
    fn a_process_does_not_take_back_what_another_has_taken_over() {
        let storage = storage();
        let (mut first, mut second) = (Claim::default(), Claim::default());
        assert_eq!(recover(&storage, VERIFY, &mut first).unwrap().attempt, Attempt(2));
        assert_eq!(recover(&storage, VERIFY, &mut first).unwrap().attempt, Attempt(3), "a restart within the process");
        first.check(&storage).unwrap();
        assert_eq!(recover(&storage, VERIFY, &mut second).unwrap().attempt, Attempt(4));
        let error = recover(&storage, VERIFY, &mut first).unwrap_err();
        assert!(!error.is_transient());
        assert!(error.to_string().contains("attempt 3 was the newest of this process, and attempt 4 has begun"), "{error}");
        assert_eq!(first.check(&storage).unwrap_err().kind, StorageErrorKind::Fenced);
        second.check(&storage).unwrap();
        assert_eq!(storage.fence().unwrap().attempt, 4, "the fence stays where it is");
    }

    #[test]
    fn the_newest_checkpoint_is_restored_and_orphans_go() {
        let storage = storage();
        let recovery = begin(&storage, VERIFY).unwrap();
        assert_eq!((recovery.attempt, recovery.next_checkpoint), (Attempt(2), CheckpointId(4)));
        let newest = recovery.newest.unwrap();
        assert_eq!((newest.manifest.checkpoint, newest.committed), (CheckpointId(2), false));
        assert_eq!(segment_ids(&storage).iter().map(|id| id.checkpoint.0).collect::<Vec<_>>(), [1, 2]);
        assert!(storage.check_fence(Attempt(1)).is_err(), "the attempt before is fenced");
        assert_eq!(begin(&storage, VERIFY).unwrap().next_checkpoint, CheckpointId(4), "ids of orphans stay used");
    }

    #[test]
    fn a_damaged_newest_checkpoint_is_refused_and_stays() {
        let storage = storage();
        damage(&storage, 2);
        let error = begin(&storage, VERIFY).unwrap_err();
        assert!(!error.is_transient());
        assert!(error.to_string().contains("checkpoint 2 cannot be restored: segment 2-1-0 is damaged"), "{error}");
        assert_eq!(segment_ids(&storage).len(), 3, "nothing was deleted");
    }

    #[test]
    fn going_back_must_be_allowed_and_is_reported() {
        let storage = storage();
        damage(&storage, 2);
        let recovery = begin(&storage, RecoverOptions { allow_rewind: true, ..VERIFY }).unwrap();
        let newest = recovery.newest.unwrap();
        assert_eq!((newest.manifest.checkpoint, newest.committed), (CheckpointId(1), true));
        assert!(recovery.notices[0].contains("checkpoint 2 is skipped"), "{:?}", recovery.notices);
        damage(&storage, 1);
        let error = begin(&storage, RecoverOptions { allow_rewind: true, ..VERIFY }).unwrap_err();
        assert!(matches!(error, RecoverError::NothingLeft { checkpoint: CheckpointId(1), .. }), "{error}");
    }

    #[test]
    fn an_unreadable_manifest_keeps_all_segments() {
        let storage = storage();
        storage.publish_manifest(Attempt(1), CheckpointId(9), b"half a manif").unwrap();
        let recovery = begin(&storage, RecoverOptions { allow_rewind: true, ..VERIFY }).unwrap();
        assert_eq!(recovery.newest.unwrap().manifest.checkpoint, CheckpointId(2));
        assert_eq!(segment_ids(&storage).len(), 3);
        assert_eq!(recovery.next_checkpoint, CheckpointId(10));
    }

    #[test]
    fn a_fresh_start_deletes_everything_but_the_counters() {
        let storage = storage();
        storage.mark_finished(CheckpointId(7)).unwrap();
        assert_eq!(begin(&storage, VERIFY).unwrap().finished, Some(CheckpointId(7)));
        let recovery = begin(&storage, RecoverOptions { fresh: true, ..VERIFY }).unwrap();
        assert_eq!((recovery.finished, recovery.newest), (None, None));
        assert_eq!((recovery.attempt, recovery.next_checkpoint), (Attempt(3), CheckpointId(8)));
        assert!(segment_ids(&storage).is_empty());
        assert_eq!(storage.finished().unwrap(), None);
    }
}
