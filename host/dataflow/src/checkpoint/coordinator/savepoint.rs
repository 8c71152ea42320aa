//! Savepoints in the coordinator: copies that belong to the user, and the end of a job that is asked for with one.

use super::pending::Pending;
use super::{
    CheckpointCommand, CheckpointFailure, CheckpointOutcome, CheckpointPurpose, Coordinator, Now, Outputs, SavepointOrder, Stage,
    discard,
};
use crate::checkpoint::chains::StateChains;
use crate::checkpoint::manifest::CheckpointManifest;
use crate::checkpoint::segment::SpilledSegment;
use crate::checkpoint::storage::StorageError;
use crate::ids::{Attempt, CheckpointId};

impl Coordinator {
    /// Whether a savepoint is being taken: there is one at a time.
    pub fn is_taking_savepoint(&self) -> bool {
        let asked = self.wanted.as_ref().is_some_and(|wanted| wanted.savepoint.is_some()) || self.final_savepoint.is_some();
        let completing = self.completing.as_ref().is_some_and(|completing| completing.pending.savepoint.is_some());
        asked || completing || self.exporting.is_some() || self.pending.values().any(|pending| pending.savepoint.is_some())
    }

    /// Triggers a savepoint. The job goes on, and so do its checkpoints.
    pub fn savepoint(&mut self, order: SavepointOrder, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if self.attempt.is_some() {
            self.trigger(CheckpointPurpose::Savepoint, Some(order), now, &mut out);
        }
        out
    }

    /// The sources are about to be told to end where they are: from now on the final checkpoint is the only one that is
    /// triggered. `savepoint`: it is to be one as well. Returns whether that comes in time.
    pub fn drain(&mut self, savepoint: Option<SavepointOrder>) -> bool {
        let in_time = self.attempt.is_some() && self.ended.len() < self.tasks.len();
        if in_time {
            (self.draining, self.final_savepoint) = (true, savepoint);
        }
        in_time
    }

    /// The savepoint exists.
    pub fn savepoint_published(&mut self, checkpoint: CheckpointId, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if let Some((id, pending)) = self.exporting.take_if(|(id, _)| *id == checkpoint) {
            // The storage has its own names for what belongs to the savepoint now.
            discard(&mut out, pending.segments());
            report_taken(id, &pending, now, &mut out);
            self.export_what_is_ready(&mut out);
            return out;
        }
        let completing = self.completing.take_if(|completing| completing.is_at(checkpoint, Stage::Exporting));
        let Some(mut completing) = completing else { return out };
        if let Some(attempt) = self.attempt {
            report_taken(checkpoint, &completing.pending, now, &mut out);
            let (bytes, spilled) = (completing.manifest.encode(), Vec::new());
            out.commands.push(CheckpointCommand::PublishManifest { attempt, checkpoint, bytes, spilled });
            completing.stage = Stage::Publishing;
            self.completing = Some(completing);
            return out;
        }
        // The job has failed meanwhile and goes on from an older checkpoint: what this one prepared will be aborted.
        discard(&mut out, completing.pending.segments());
        if let Some(savepoint) = completing.pending.savepoint {
            out.commands.push(CheckpointCommand::DiscardSavepoint { path: savepoint.path });
        }
        out
    }

    /// The savepoint was not written, and nothing is left of it.
    pub fn savepoint_failed(&mut self, checkpoint: CheckpointId, error: &StorageError, now: Now) -> Outputs {
        let mut out = Outputs::default();
        let cause = error.source.as_ref().map(|source| format!(": {source}")).unwrap_or_default();
        let failure = CheckpointFailure::Export(format!("{error}{cause}"));
        let exporting = self.exporting.take_if(|(id, _)| *id == checkpoint).map(|(_, pending)| pending);
        let completing = self.completing.take_if(|completing| completing.is_at(checkpoint, Stage::Exporting));
        let Some(pending) = exporting.or(completing.map(|completing| completing.pending)) else { return out };
        self.give_up(checkpoint, &pending, failure, now, &mut out);
        self.after_failure(now, &mut out);
        out
    }

    /// Publishes the savepoint that all tasks have acknowledged, unless one is on its way already.
    pub(super) fn export_what_is_ready(&mut self, out: &mut Outputs) {
        let Some(attempt) = self.attempt.filter(|_| self.exporting.is_none()) else { return };
        let Some((checkpoint, mut pending)) = self.take_ready(|pending| !pending.is_checkpoint()) else { return };
        // It stands on its own.
        let mut manifest = pending.manifest(&self.job, checkpoint, attempt, (None, &StateChains::default()));
        let spilled = pending.spill(&mut manifest, self.config.inline_bytes);
        out.commands.extend(publish_savepoint((checkpoint, attempt), &pending, &manifest, spilled));
        self.exporting = Some((checkpoint, pending));
    }
}

pub(super) fn publish_savepoint(
    (checkpoint, attempt): (CheckpointId, Attempt),
    pending: &Pending,
    manifest: &CheckpointManifest,
    spilled: Vec<SpilledSegment>,
) -> Option<CheckpointCommand> {
    let path = pending.savepoint.as_ref()?.path.clone();
    let files = manifest.state.segments().values().filter(|segment| segment.is_file());
    let (segments, bytes) = (files.map(|segment| segment.id).collect(), manifest.encode());
    Some(CheckpointCommand::PublishSavepoint { attempt, checkpoint, path, segments, bytes, spilled })
}

fn report_taken(checkpoint: CheckpointId, pending: &Pending, now: Now, out: &mut Outputs) {
    if let Some(savepoint) = pending.savepoint.clone() {
        let duration_ms = now.monotonic.since_ms(pending.triggered.monotonic);
        let bytes = pending.written_bytes();
        out.outcomes.push(CheckpointOutcome::SavepointTaken { checkpoint, savepoint, duration_ms, bytes });
    }
}
