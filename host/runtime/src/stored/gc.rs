//! What no checkpoint needs: files that a host which died left behind. The next run removes them, too.

use std::path::Path;

use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::retention::{Deletion, Retention};
use cofferdam_dataflow::checkpoint::segment::SegmentId;
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, StorageErrorKind};
use cofferdam_dataflow::ids::CheckpointId;
use serde::Serialize;

use super::StoredError;
use crate::storage::LocalStorage;

/// What could be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Garbage {
    /// Segments that no checkpoint names, by their paths in the directory, with their bytes.
    pub segments: Vec<(String, u64)>,
    /// Half written files and folders without a manifest.
    pub leftovers: Vec<String>,
    /// Why segments stay: a manifest cannot be read, so nobody knows which segments it names.
    pub unreadable: Option<String>,
    /// Whether a host runs the job: what it is writing at the moment is not garbage, and is not listed.
    pub in_use: bool,
    #[serde(skip)]
    ids: Vec<SegmentId>,
}

impl Garbage {
    /// Whether there is nothing to delete.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.leftovers.is_empty()
    }

    /// Returns the bytes of the segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Finds what could be deleted, without a lock and without a change. Beside a running host only what older attempts left counts.
///
/// # Errors
/// [`StoredError`].
pub fn find_garbage(dir: &Path) -> Result<Garbage, StoredError> {
    refuse_snapshot(dir)?;
    let storage = LocalStorage::open_to_read(dir)?;
    let owner = storage.owner()?;
    // While a host runs, the segments of its attempt may belong to a checkpoint that is about to complete.
    let before = if owner.is_some() { storage.fence()?.attempt } else { u64::MAX };
    find(&storage, before, owner.is_some())
}

/// Deletes what no checkpoint needs, and returns what that was.
///
/// # Errors
/// [`StoredError`]; a storage error of kind [`StorageErrorKind::Fenced`] if a host runs the job.
pub fn collect_garbage(dir: &Path) -> Result<Garbage, StoredError> {
    refuse_snapshot(dir)?;
    // Opening it to write would create a directory that is not there.
    drop(LocalStorage::open_to_read(dir)?);
    let storage = LocalStorage::open(dir)?;
    let garbage = find(&storage, u64::MAX, false)?;
    Deletion { checkpoints: Vec::new(), segments: garbage.ids.clone() }.apply(&storage)?;
    storage.remove_leftovers()?;
    Ok(garbage)
}

/// The segments beside a savepoint's manifest are all it has; read as a job's directory, none of them would be named.
fn refuse_snapshot(dir: &Path) -> Result<(), StoredError> {
    if dir.join("_manifest").exists() { Err(StoredError::NotJob(dir.to_owned())) } else { Ok(()) }
}

fn find(storage: &LocalStorage, before: u64, in_use: bool) -> Result<Garbage, StoredError> {
    // Segments first: one that is written after is in neither list.
    let stored = storage.segments()?;
    let mut garbage = Garbage { in_use, ..Garbage::default() };
    if !in_use {
        garbage.leftovers = storage.leftovers()?;
    }
    let mut retention = Retention::default();
    for id in storage.manifests()? {
        match read(storage, id)? {
            Some(Ok(manifest)) => retention.add(id, manifest.state.segments().keys().copied()),
            Some(Err(what)) => garbage.unreadable = Some(format!("checkpoint {id}: {what}")),
            None => {}
        }
    }
    if garbage.unreadable.is_none() {
        garbage.ids = retention.orphans(&stored, before);
    }
    for id in &garbage.ids {
        let bytes = match storage.open_segment(*id) {
            Ok(source) => source.length(),
            Err(error) if error.kind == StorageErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        garbage.segments.push((format!("segments/{id}.seg"), bytes));
    }
    Ok(garbage)
}

/// Reads a manifest; `None` if it has just been deleted.
fn read(storage: &LocalStorage, id: CheckpointId) -> Result<Option<Result<CheckpointManifest, String>>, StoredError> {
    match storage.read_manifest(id) {
        Ok(bytes) => Ok(Some(CheckpointManifest::decode(&bytes).map_err(|error| error.to_string()))),
        Err(error) if error.kind == StorageErrorKind::NotFound => Ok(None),
        Err(error) if error.kind == StorageErrorKind::Damaged => Ok(Some(Err(error.to_string()))),
        Err(error) => Err(error.into()),
    }
}
