//! Beginning a job with a savepoint, or with a checkpoint of whatever job.
//!
//! It is copied into the job's storage and published there as the newest checkpoint. From then on it is one like any other:
//! the job recovers from it however often, and refers to nothing outside of its storage. Whenever this is cut off, the
//! storage is as it was before, or as it is after.

use std::collections::BTreeMap;
use std::io::Write;

use super::manifest::CheckpointManifest;
use super::recovery::{Claim, raise};
use super::restore::{Incompatible, RestorePlan};
use super::retention::Deletion;
use super::segment::{SegmentError, SegmentReader, SegmentRef, hash_source};
use super::storage::{CheckpointStorage, Fence, SegmentSource, SnapshotSource, StorageError, StorageErrorKind};
use crate::graph::plan::ExecutionPlan;
use crate::graph::spec::JobSpec;
use crate::ids::{Attempt, CheckpointId, OperatorId};

mod reduce;

pub use reduce::reduce;

const CHUNK_BYTES: usize = 256 << 10;

/// State by name: a slot of an operator, or all that an operator, source or sink left behind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateName {
    /// The node.
    pub operator: OperatorId,
    /// The slot; `None` for everything.
    pub slot: Option<String>,
}

impl StateName {
    /// Reads `operator/slot` or `operator`. `None` if it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let (operator, slot) = text.split_once('/').map_or((text, None), |(operator, slot)| (operator, Some(slot)));
        let operator = OperatorId::new(operator).ok()?;
        (slot != Some("")).then(|| Self { operator, slot: slot.map(str::to_owned) })
    }
}

impl std::fmt::Display for StateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.slot {
            Some(slot) => write!(f, "{}/{slot}", self.operator),
            None => write!(f, "{}", self.operator),
        }
    }
}

/// How to begin.
#[derive(Clone, Debug)]
pub struct AdoptOptions<'a> {
    /// The job.
    pub spec: &'a JobSpec,
    /// How it will run.
    pub plan: &'a ExecutionPlan,
    /// The component of each of its operators.
    pub digests: &'a BTreeMap<OperatorId, String>,
    /// Whether the checkpoints that the job has of its own are deleted.
    pub fresh: bool,
    /// What is left behind.
    pub drop: &'a [StateName],
    /// The path of a savepoint that goes when the checkpoint that it becomes is deleted; `None` leaves it alone.
    pub claim: Option<&'a str>,
}

/// A savepoint or checkpoint that the job cannot begin with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// Its files are not what was written.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// Nothing is left to read.
    #[error("it was taken when all input had ended: there is nothing to go on with")]
    Final,
    /// The job has gone further.
    #[error("the job has checkpoints of its own that may be newer, the newest is {0}; --fresh deletes them")]
    Newer(CheckpointId),
    /// The job has nothing left to do.
    #[error("the job has finished, with checkpoint {0}; --fresh begins again from here")]
    Finished(CheckpointId),
    /// State to leave behind that is not there.
    #[error("there is no state \"{name}\" in it; there is: {known}")]
    UnknownState {
        /// What was named.
        name: StateName,
        /// What could be.
        known: String,
    },
    /// Output that belongs to another job.
    #[error(
        "sink \"{sink}\" has {transactions} transactions in it that may not be published; they belong to the job \"{job}\", which publishes them when it goes on: leave them to it with --drop-state {sink}"
    )]
    Unpublished {
        /// The sink.
        sink: OperatorId,
        /// How many.
        transactions: usize,
        /// The job that took it.
        job: String,
    },
    /// The storage holds something else under a name that it needs.
    #[error("segment {0} exists in the job's storage and is another one; use an empty storage, or --fresh")]
    Conflict(super::segment::SegmentId),
    /// It is of another graph, and not all of its state is taken over or left behind.
    #[error("{0}; --drop-state leaves state behind by its name")]
    Incompatible(#[from] Incompatible),
    /// A storage could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl AdoptError {
    /// Returns the stable name that reports use.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Damaged(_) => "restore-damaged",
            Self::Final => "restore-final",
            Self::Newer(_) => "restore-newer-exists",
            Self::Finished(_) => "restore-finished",
            Self::UnknownState { .. } => "restore-unknown-state",
            Self::Unpublished { .. } => "restore-unpublished-output",
            Self::Conflict(_) => "restore-conflict",
            Self::Incompatible(_) => "restore-incompatible",
            Self::Storage(_) => "storage",
        }
    }
}

impl From<SegmentError> for AdoptError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Storage(error) if error.kind != StorageErrorKind::NotFound => Self::Storage(error),
            error => Self::Damaged(error.to_string()),
        }
    }
}

/// Makes a savepoint, or a checkpoint of any storage, the newest checkpoint of a job that does not run. If that has been
/// done before, and the job has not gone further, it is fine. Blocks.
///
/// # Errors
/// [`AdoptError`]; the job's storage then holds nothing new but files that no checkpoint names.
pub fn adopt(
    storage: &dyn CheckpointStorage,
    source: &dyn SnapshotSource,
    options: &AdoptOptions<'_>,
) -> Result<CheckpointId, AdoptError> {
    let original = decode(&source.read_manifest()?)?;
    let manifest = reduce(&original, source.is_committed()?, &options.spec.name, options.drop)?;
    RestorePlan::new(&manifest, options.spec, options.plan, options.digests)?;
    if let Some(newest) = is_in_the_way(storage, (&original, &manifest), options)? {
        return Ok(newest);
    }
    let own = storage.manifests()?;
    for segment in manifest.state.segments().values().filter(|segment| segment.is_file()) {
        copy_segment(storage, source, segment, (options.fresh, &own))?;
    }
    publish(storage, manifest, options, own)
}

/// Looks for what the job has of its own. `of` is what it would begin with, as it was and as [`reduce()`] makes it. Returns the
/// newest checkpoint if it is what would be made. Writes nothing.
///
/// # Errors
/// [`AdoptError::Newer`], [`AdoptError::Finished`], or what the storage says.
pub fn is_in_the_way(
    storage: &dyn CheckpointStorage,
    (original, manifest): (&CheckpointManifest, &CheckpointManifest),
    options: &AdoptOptions<'_>,
) -> Result<Option<CheckpointId>, AdoptError> {
    if options.fresh {
        return Ok(None);
    }
    let Some(newest) = storage.manifests()?.last().copied() else {
        return storage.finished()?.map_or(Ok(None), |finished| Err(AdoptError::Finished(finished)));
    };
    let known = decode(&storage.read_manifest(newest)?).map_err(|_| AdoptError::Newer(newest))?;
    if is_copy(&known, manifest) {
        return Ok(Some(newest));
    }
    if known.created > original.created || newest > original.checkpoint || original.job != options.spec.name {
        return Err(AdoptError::Newer(newest));
    }
    Ok(None)
}

fn decode(bytes: &[u8]) -> Result<CheckpointManifest, AdoptError> {
    CheckpointManifest::decode(bytes).map_err(|error| AdoptError::Damaged(error.to_string()))
}

/// Whether one manifest is what [`adopt`] makes of the other.
fn is_copy(known: &CheckpointManifest, of: &CheckpointManifest) -> bool {
    let same = |a: &CheckpointManifest, b: &CheckpointManifest| {
        a.created == b.created && a.nodes == b.nodes && a.subtasks == b.subtasks && a.state == b.state
    };
    known.parent.is_none() && known.checkpoint > of.checkpoint && same(known, of)
}

/// Publishes the copy under an id above all others, and deletes what it replaces.
fn publish(
    storage: &dyn CheckpointStorage,
    manifest: CheckpointManifest,
    options: &AdoptOptions<'_>,
    own: Vec<CheckpointId>,
) -> Result<CheckpointId, AdoptError> {
    let fence = raise(storage, &mut Claim::default())?;
    let checkpoint = CheckpointId(fence.checkpoint.max(manifest.checkpoint.0) + 1);
    let attempt = Attempt(fence.attempt.max(manifest.attempt.0) + 1);
    storage.raise_fence(Fence { attempt: attempt.0, checkpoint: checkpoint.0 })?;
    let manifest = CheckpointManifest { checkpoint, attempt, parent: None, ..manifest };
    if let Some(path) = options.claim {
        storage.claim_savepoint(path, checkpoint)?;
    }
    storage.publish_manifest(attempt, checkpoint, &manifest.encode())?;
    if options.fresh {
        // A finished mark below the newest checkpoint means nothing; the segments go at the next start.
        Deletion { checkpoints: own, segments: Vec::new() }.apply(storage)?;
        storage.clear_finished()?;
    }
    Ok(checkpoint)
}

/// Copies a segment, unless it is there. Its hash is checked in any case. One of that name that is another stands in the way,
/// unless it belongs to nobody, or to checkpoints that are to be deleted.
fn copy_segment(
    storage: &dyn CheckpointStorage,
    source: &dyn SnapshotSource,
    segment: &SegmentRef,
    (fresh, own): (bool, &[CheckpointId]),
) -> Result<(), AdoptError> {
    match storage.open_segment(segment.id) {
        Ok(there) if there.length() == segment.length && hash_source(&*there)? == segment.hash => return Ok(()),
        Ok(_) if fresh || own.is_empty() => {
            Deletion { checkpoints: own.to_vec(), segments: vec![segment.id] }.apply(storage)?;
        }
        Ok(_) => return Err(AdoptError::Conflict(segment.id)),
        Err(error) if error.kind == StorageErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let reader = SegmentReader::open(source.open_segment(segment.id).map_err(SegmentError::from)?, segment)?;
    if hash_source(reader.source()).map_err(SegmentError::from)? != segment.hash {
        return Err(AdoptError::Damaged(format!("segment {} has another hash than the manifest says", segment.id)));
    }
    let mut file = storage.create_segment(segment.id)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < segment.length {
        let step = usize::try_from(segment.length - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        reader.source().read_exact_at(at, &mut buffer[..step])?;
        let written = file.write_all(&buffer[..step]);
        written.map_err(|error| StorageError::io(format!("cannot copy segment {}", segment.id), error))?;
        at += step as u64;
    }
    Ok(file.sync()?)
}

#[cfg(test)]
mod tests;
