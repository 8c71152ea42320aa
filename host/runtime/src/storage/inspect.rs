//! Checkpoints for people: what there is and whether it is whole. Reads only; works beside a running job.

use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::recovery::verify_segment;
use cofferdam_dataflow::checkpoint::segment::SegmentRef;
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, StorageError, StorageErrorKind};
use cofferdam_dataflow::ids::CheckpointId;

/// A checkpoint that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCheckpoint {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Its manifest, or why that cannot be read.
    pub manifest: Result<CheckpointManifest, String>,
    /// Whether all its transactions are known to be committed.
    pub committed: bool,
}

/// A checkpoint whose files have all been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCheckpoint {
    /// The checkpoint.
    pub listed: ListedCheckpoint,
    /// Each segment it names, and what is wrong with it.
    pub segments: Vec<(SegmentRef, Option<String>)>,
}

impl VerifiedCheckpoint {
    /// Whether it can be restored, as far as its files go.
    pub fn is_whole(&self) -> bool {
        self.listed.manifest.is_ok() && self.segments.iter().all(|(_, problem)| problem.is_none())
    }
}

/// Returns all checkpoints, ascending. One that a running job deletes meanwhile is left out.
///
/// # Errors
/// [`StorageError`] if the storage cannot be read.
pub fn list(storage: &dyn CheckpointStorage) -> Result<Vec<ListedCheckpoint>, StorageError> {
    let mut found = Vec::new();
    for checkpoint in storage.manifests()? {
        match read(storage, checkpoint) {
            Ok(listed) => found.push(listed),
            Err(error) if error.kind == StorageErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Reads one checkpoint and checks length, structure and hash of all its segments.
///
/// # Errors
/// [`StorageError`], of kind [`StorageErrorKind::NotFound`] if there is no such checkpoint.
pub fn verify(storage: &dyn CheckpointStorage, checkpoint: CheckpointId) -> Result<VerifiedCheckpoint, StorageError> {
    let listed = read(storage, checkpoint)?;
    let references = listed.manifest.iter().flat_map(|manifest| manifest.state.segments().values());
    let check =
        |reference: &SegmentRef| (reference.clone(), verify_segment(storage, reference).err().map(|error| error.to_string()));
    let segments = references.map(check).collect();
    Ok(VerifiedCheckpoint { listed, segments })
}

fn read(storage: &dyn CheckpointStorage, checkpoint: CheckpointId) -> Result<ListedCheckpoint, StorageError> {
    let manifest = CheckpointManifest::decode(&storage.read_manifest(checkpoint)?).map_err(|error| error.to_string());
    let committed = storage.is_committed(checkpoint)?;
    Ok(ListedCheckpoint { checkpoint, manifest, committed })
}
