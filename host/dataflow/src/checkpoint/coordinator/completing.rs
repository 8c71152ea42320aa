//! From the last acknowledgement to the commit: one checkpoint at a time.

use super::pending::Pending;
use super::savepoint::publish_savepoint;
use super::{CheckpointCommand, CheckpointFailure, CheckpointOutcome, Coordinator, Now, Outputs, discard};
use crate::checkpoint::chains::StateChains;
use crate::checkpoint::manifest::CheckpointManifest;
use crate::checkpoint::storage::{StorageError, StorageErrorKind};
use crate::ids::CheckpointId;

/// A checkpoint on its way from the last acknowledgement to the commit.
#[derive(Debug)]
pub(super) struct Completing {
    pub(super) checkpoint: CheckpointId,
    pub(super) pending: Pending,
    pub(super) manifest: CheckpointManifest,
    pub(super) stage: Stage,
}

impl Completing {
    pub(super) fn is_at(&self, checkpoint: CheckpointId, stage: Stage) -> bool {
        self.checkpoint == checkpoint && self.stage == stage
    }
}

/// How far a checkpoint is that completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its copy is being published as a savepoint.
    Exporting,
    /// Its manifest is being published.
    Publishing,
    /// Its manifest is known to be durable.
    Published,
}

impl Coordinator {
    /// The manifest is durable: the checkpoint is completed. Its transactions are committed next.
    pub fn published(&mut self, checkpoint: CheckpointId, now: Now) -> Outputs {
        let mut out = Outputs::default();
        let is_it = |completing: &&mut Completing| completing.is_at(checkpoint, Stage::Publishing);
        let Some(completing) = self.completing.as_mut().filter(is_it) else { return out };
        completing.stage = Stage::Published;
        self.parent = Some(checkpoint);
        self.chains = completing.manifest.state.clone();
        self.retention.add(checkpoint, self.chains.segments().keys().copied());
        let transactions = completing.manifest.transactions();
        let Some(attempt) = self.attempt else {
            // The tasks are gone; the next attempt finds the checkpoint and commits it.
            self.completing = None;
            return out;
        };
        let savepoint = completing.pending.savepoint.as_ref().map(|savepoint| savepoint.path.clone());
        let older = self.pending.range(..checkpoint).filter(|(_, pending)| pending.is_checkpoint());
        let older: Vec<_> = older.map(|(id, _)| *id).collect();
        for id in older {
            self.fail(id, CheckpointFailure::Subsumed(checkpoint), now, &mut out);
        }
        if transactions.is_empty() {
            self.finish_completing(now, &mut out);
        } else {
            out.commands.push(CheckpointCommand::CommitSinks { attempt, checkpoint, transactions, savepoint });
        }
        out
    }

    /// The manifest was not published, or nobody knows.
    pub fn publish_failed(&mut self, checkpoint: CheckpointId, error: &StorageError, now: Now) -> Outputs {
        let mut out = Outputs::default();
        let Some(completing) = self.completing.take_if(|completing| completing.is_at(checkpoint, Stage::Publishing)) else {
            return out;
        };
        let cause = error.source.as_ref().map(|source| format!(": {source}")).unwrap_or_default();
        let message = format!("{error}{cause}");
        if error.outcome_unknown || error.kind == StorageErrorKind::Exists {
            // Its segments may be named by a manifest that exists: they stay until the storage has been read again.
            self.retention.add(checkpoint, completing.manifest.state.segments().keys().copied());
            out.outcomes.push(CheckpointOutcome::Unsure { checkpoint, message });
        } else if error.kind == StorageErrorKind::Fenced {
            // The segments are left to the new owner.
            out.outcomes.push(CheckpointOutcome::Fenced { message });
        } else if self.attempt.is_none() {
            discard(&mut out, completing.pending.segments());
        } else {
            self.give_up(checkpoint, &completing.pending, CheckpointFailure::Publish(message), now, &mut out);
            self.after_failure(now, &mut out);
        }
        out
    }

    /// The transactions are committed.
    pub fn committed(&mut self, checkpoint: CheckpointId, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if self.completing.as_ref().is_some_and(|completing| completing.is_at(checkpoint, Stage::Published)) {
            self.finish_completing(now, &mut out);
        }
        out
    }

    /// The transactions could not be committed. The checkpoint exists; a restart repeats the commit.
    pub fn commit_failed(&mut self, checkpoint: CheckpointId) {
        self.completing.take_if(|completing| completing.is_at(checkpoint, Stage::Published));
    }

    /// Tells the tasks of a completed and committed checkpoint and deletes what it makes superfluous.
    pub(super) fn finish_completing(&mut self, now: Now, out: &mut Outputs) {
        let Some(Completing { checkpoint, pending, manifest, .. }) = self.completing.take() else { return };
        self.failures_in_a_row = 0;
        if self.attempt.is_none() {
            return;
        }
        self.paused_until = now.monotonic.plus_ms(self.config.min_pause_ms);
        out.commands.push(CheckpointCommand::NotifyCompleted { checkpoint });
        let deletion = self.retention.trim(self.config.retained as usize);
        if !deletion.is_empty() {
            out.commands.push(CheckpointCommand::Delete(deletion));
        }
        out.outcomes.push(CheckpointOutcome::Completed {
            checkpoint,
            purpose: pending.purpose,
            is_final: manifest.is_final,
            duration_ms: now.monotonic.since_ms(pending.triggered.monotonic),
            written_bytes: pending.written_bytes(),
            state_bytes: manifest.state.segments().values().map(|segment| segment.length).sum(),
            alignment_us_max: pending.alignment_us_max(),
        });
        self.asked.completed(checkpoint, out);
        // After a final one or one for a stop, the attempt is about to end.
        if !manifest.is_final && !pending.stops_sources() {
            self.complete_what_is_ready(out);
            self.trigger_what_is_due(now, out);
        }
    }

    /// Publishes the newest checkpoint that all tasks have acknowledged, unless one is on its way already.
    pub(super) fn complete_what_is_ready(&mut self, out: &mut Outputs) {
        self.export_what_is_ready(out);
        let Some(attempt) = self.attempt.filter(|_| self.completing.is_none()) else { return };
        let Some((checkpoint, mut pending)) = self.take_ready(Pending::is_checkpoint) else { return };
        // A savepoint holds all state: what is not in it is empty, whatever the checkpoints before it hold.
        let nothing = StateChains::default();
        let chains = if pending.savepoint.is_some() { &nothing } else { &self.chains };
        let mut manifest = pending.manifest(&self.job, checkpoint, attempt, (self.parent, chains));
        let spilled = pending.spill(&mut manifest, self.config.inline_bytes);
        let stage = if pending.savepoint.is_some() {
            // Both name the same files, which are written once.
            let manifest = CheckpointManifest { parent: None, ..manifest.clone() };
            out.commands.extend(publish_savepoint((checkpoint, attempt), &pending, &manifest, spilled));
            Stage::Exporting
        } else {
            out.commands.push(CheckpointCommand::PublishManifest { attempt, checkpoint, bytes: manifest.encode(), spilled });
            Stage::Publishing
        };
        self.completing = Some(Completing { checkpoint, pending, manifest, stage });
    }

    /// Takes the newest one out that all tasks have acknowledged.
    pub(super) fn take_ready(&mut self, is_wanted: impl Fn(&Pending) -> bool) -> Option<(CheckpointId, Pending)> {
        let tasks = self.tasks.len();
        let is_ready = |pending: &Pending| is_wanted(pending) && pending.missing(tasks).is_none();
        let id = self.pending.iter().rev().find(|(_, pending)| is_ready(pending)).map(|(id, _)| *id)?;
        Some((id, self.pending.remove(&id)?))
    }
}
