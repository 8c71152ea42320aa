//! What of a savepoint or checkpoint a job begins with: state can be left behind, published output is not published again.

use super::{AdoptError, StateName};
use crate::checkpoint::manifest::{CheckpointManifest, ManifestNodeKind};
use crate::snapshot::SubtaskPart;

/// Returns the manifest that a job of this name begins with: without the state named in `drop`, and without output that is
/// published (`is_committed`). Whether it fits the job is another question.
///
/// # Errors
/// [`AdoptError::Final`], [`AdoptError::UnknownState`] or [`AdoptError::Unpublished`].
pub fn reduce(
    original: &CheckpointManifest,
    is_committed: bool,
    job: &str,
    drop: &[StateName],
) -> Result<CheckpointManifest, AdoptError> {
    if original.is_final {
        return Err(AdoptError::Final);
    }
    let mut manifest = original.clone();
    drop.iter().try_for_each(|name| drop_state(&mut manifest, name, original))?;
    if is_committed {
        manifest.subtasks.iter_mut().for_each(|subtask| drop_transactions(&mut subtask.part));
    }
    if manifest.job != job
        && let Some((sink, transactions)) = manifest.transactions().pop_first()
    {
        return Err(AdoptError::Unpublished { sink, transactions: transactions.len(), job: manifest.job });
    }
    job.clone_into(&mut manifest.job);
    Ok(manifest)
}

/// Leaves state behind. `original`: the manifest as it was, for what to tell.
fn drop_state(manifest: &mut CheckpointManifest, name: &StateName, original: &CheckpointManifest) -> Result<(), AdoptError> {
    let Some(node) = manifest.nodes.iter_mut().find(|node| node.id == name.operator) else {
        return unknown(original, name);
    };
    let Some(slot) = &name.slot else {
        // As if it had not been there: it begins empty.
        manifest.nodes.retain(|node| node.id != name.operator);
        manifest.subtasks.retain(|subtask| subtask.id.operator != name.operator);
        manifest.state.retain(|table| table.operator != name.operator);
        return Ok(());
    };
    let ManifestNodeKind::Operator { slots, .. } = &mut node.kind else { return unknown(original, name) };
    let declared = slots.len();
    slots.retain(|declared| declared.name != *slot);
    let has_state = manifest.state.tables().keys().any(|table| table.operator == name.operator && table.slot == *slot);
    if slots.len() == declared && !has_state {
        return unknown(original, name);
    }
    for subtask in manifest.subtasks.iter_mut().filter(|subtask| subtask.id.operator == name.operator) {
        if let SubtaskPart::Operator { slots } = &mut subtask.part {
            slots.retain(|declared| declared.name != *slot);
        }
    }
    manifest.state.retain(|table| table.operator != name.operator || table.slot != *slot);
    Ok(())
}

fn unknown(original: &CheckpointManifest, name: &StateName) -> Result<(), AdoptError> {
    let names = original.nodes.iter().flat_map(|node| {
        let slots = match &node.kind {
            ManifestNodeKind::Operator { slots, .. } => slots.iter().map(|slot| format!("{}/{}", node.id, slot.name)).collect(),
            ManifestNodeKind::Source | ManifestNodeKind::Sink => Vec::new(),
        };
        std::iter::once(node.id.to_string()).chain(slots)
    });
    let known = names.collect::<Vec<_>>().join(", ");
    Err(AdoptError::UnknownState { name: name.clone(), known })
}

fn drop_transactions(part: &mut SubtaskPart) {
    if let SubtaskPart::Sink { transactions } = part {
        transactions.clear();
    }
}
