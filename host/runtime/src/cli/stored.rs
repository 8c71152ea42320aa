//! Reads what is stored in a job's directory, beside a running job if there is one.

use std::path::Path;

use cofferdam::config::Diagnostic;
use cofferdam::storage::LocalStorage;
use cofferdam::storage::inspect::{self, ListedCheckpoint};
use cofferdam_dataflow::checkpoint::manifest::{CheckpointManifest, ManifestNode, ManifestNodeKind};
use cofferdam_dataflow::checkpoint::storage::CheckpointStorage;
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::snapshot::SubtaskPart;

use super::Exit;
use super::checkpoints::{CheckpointDetail, CheckpointList, CheckpointSummary, FileDetail, NodeDetail, PositionDetail};
use super::execute::storage_failure;
use super::failure::Failure;

/// Lists what is stored in a job's directory.
pub(super) fn checkpoints(path: &Path) -> Result<CheckpointList, Failure> {
    let storage = view(path)?;
    let listed = inspect::list(&storage).map_err(|error| storage_failure(&error))?;
    let checkpoints = listed.iter().map(summary).collect();
    let finished = storage.finished().map_err(|error| storage_failure(&error))?.is_some();
    Ok(CheckpointList { storage: path.display().to_string(), finished, checkpoints })
}

/// Reads and verifies one checkpoint, the newest if none is named.
pub(super) fn checkpoint(path: &Path, id: Option<u64>) -> Result<CheckpointDetail, Failure> {
    let storage = view(path)?;
    let ids = storage.manifests().map_err(|error| storage_failure(&error))?;
    let wanted = id.map(CheckpointId).or_else(|| ids.last().copied());
    let Some(id) = wanted.filter(|id| ids.contains(id)) else {
        let what = id.map_or("no checkpoint".to_owned(), |id| format!("no checkpoint {id}"));
        return Err(Failure::new(Exit::Storage, Diagnostic::new("no-checkpoint", format!("{} holds {what}", path.display()))));
    };
    let verified = inspect::verify(&storage, id).map_err(|error| storage_failure(&error))?;
    let mut detail = CheckpointDetail {
        summary: summary(&verified.listed),
        job: String::new(),
        engine: String::new(),
        max_parallelism: 0,
        nodes: Vec::new(),
        positions: Vec::new(),
        files: Vec::new(),
    };
    if let Ok(manifest) = &verified.listed.manifest {
        detail.job.clone_from(&manifest.job);
        detail.engine.clone_from(&manifest.engine);
        detail.max_parallelism = manifest.max_parallelism.get();
        detail.nodes = manifest.nodes.iter().map(|found| node(manifest, found)).collect();
        detail.positions = positions(manifest);
    }
    detail.files = verified
        .segments
        .into_iter()
        .map(|(segment, damage)| FileDetail {
            name: segment.id.to_string(),
            inline: !segment.is_file(),
            bytes: segment.length,
            damage,
        })
        .collect();
    Ok(detail)
}

fn view(path: &Path) -> Result<LocalStorage, Failure> {
    LocalStorage::open_to_read(path).map_err(|error| storage_failure(&error))
}

fn summary(listed: &ListedCheckpoint) -> CheckpointSummary {
    let (id, committed) = (listed.checkpoint.0, listed.committed);
    match &listed.manifest {
        Ok(manifest) => CheckpointSummary {
            id,
            attempt: manifest.attempt.0,
            created_ms: manifest.created.0,
            bytes: manifest.state.segments().values().map(|segment| segment.length).sum(),
            is_final: manifest.is_final,
            committed: committed || manifest.transactions().is_empty(),
            damage: None,
        },
        Err(damage) => CheckpointSummary {
            id,
            attempt: 0,
            created_ms: 0,
            bytes: 0,
            is_final: false,
            committed,
            damage: Some(damage.clone()),
        },
    }
}

fn node(manifest: &CheckpointManifest, node: &ManifestNode) -> NodeDetail {
    let state = match &node.kind {
        ManifestNodeKind::Operator { slots, .. } => {
            slots.iter().map(|slot| format!("{} {} {}", slot.name, slot.kind.name(), slot.codec)).collect()
        }
        ManifestNodeKind::Source | ManifestNodeKind::Sink => Vec::new(),
    };
    let transactions = manifest.transactions().get(&node.id).map_or(0, Vec::len);
    let (id, kind) = (node.id.to_string(), node.kind.name().to_owned());
    NodeDetail { id, kind, parallelism: node.parallelism, state, transactions }
}

fn positions(manifest: &CheckpointManifest) -> Vec<PositionDetail> {
    let mut details = Vec::new();
    for subtask in &manifest.subtasks {
        if let SubtaskPart::Source { positions } = &subtask.part {
            details.extend(positions.iter().map(|position| PositionDetail {
                source: subtask.id.operator.to_string(),
                split: position.split.clone(),
                position: position.display.clone(),
                finished: position.finished,
            }));
        }
    }
    details
}
