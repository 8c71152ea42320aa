//! Checkpoints that somebody asks for and waits for. They are like any other, but for when they are triggered: as soon as
//! there is room, whatever interval and pause say.

use std::collections::BTreeMap;

use super::{CheckpointFailure, CheckpointOutcome, Coordinator, Now, Outputs};
use crate::ids::CheckpointId;

/// Requests for a checkpoint whose cut comes after them.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// By request: the checkpoint that will do; `None` until one is triggered.
    waiting: BTreeMap<u64, Option<CheckpointId>>,
}

impl Asked {
    pub(super) fn wants_trigger(&self) -> bool {
        self.waiting.values().any(Option::is_none)
    }

    /// Whatever is triggered, and becomes a checkpoint of the job, will do.
    pub(super) fn triggered(&mut self, checkpoint: CheckpointId) {
        self.waiting.values_mut().for_each(|of| *of = of.or(Some(checkpoint)));
    }

    /// A later checkpoint does as well as the one that was triggered for a request.
    pub(super) fn completed(&mut self, checkpoint: CheckpointId, out: &mut Outputs) {
        self.waiting.retain(|request, of| {
            let waits = of.is_none_or(|of| of > checkpoint);
            if !waits {
                out.outcomes.push(CheckpointOutcome::AskedTaken { request: *request, checkpoint });
            }
            waits
        });
    }

    pub(super) fn failed(&mut self, checkpoint: CheckpointId, failure: &CheckpointFailure, out: &mut Outputs) {
        self.waiting.retain(|request, of| {
            if *of != Some(checkpoint) {
                return true;
            }
            match failure {
                // That one is complete, and will be committed.
                CheckpointFailure::Subsumed(newer) => *of = Some(*newer),
                CheckpointFailure::Overtaken(_) => *of = None,
                _ => out.outcomes.push(CheckpointOutcome::AskedFailed { request: *request, failure: failure.clone() }),
            }
            matches!(failure, CheckpointFailure::Subsumed(_) | CheckpointFailure::Overtaken(_))
        });
    }

    /// The attempt is over, and with it what was under way.
    pub(super) fn end(&mut self, out: &mut Outputs) {
        let failed = std::mem::take(&mut self.waiting).into_keys();
        let failure = CheckpointFailure::TasksStopped;
        out.outcomes.extend(failed.map(|request| CheckpointOutcome::AskedFailed { request, failure: failure.clone() }));
    }
}

impl Coordinator {
    /// Asks for a checkpoint of what the job has done up to now, as soon as there is room for one. Its outcome is reported
    /// by the number of the request, at the latest when the attempt ends.
    pub fn ask(&mut self, request: u64, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if self.attempt.is_none() {
            out.outcomes.push(CheckpointOutcome::AskedFailed { request, failure: CheckpointFailure::TasksStopped });
            return out;
        }
        self.asked.waiting.insert(request, None);
        self.trigger_what_is_due(now, &mut out);
        out
    }
}
