//! Which files are kept: those that a retained checkpoint names. Everything else is derived from the retained manifests;
//! nothing is counted on its own.

use std::collections::{BTreeMap, BTreeSet};

use super::segment::SegmentId;
use super::storage::{CheckpointStorage, StorageError};
use crate::ids::CheckpointId;

/// What to delete: first the checkpoints, oldest first, then the segments. A crash in between leaves orphans, never a
/// checkpoint without its segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Ascending.
    pub checkpoints: Vec<CheckpointId>,
    /// Named by no checkpoint that is kept.
    pub segments: Vec<SegmentId>,
}

impl Deletion {
    /// Whether there is nothing to delete.
    pub fn is_empty(&self) -> bool {
        self.checkpoints.is_empty() && self.segments.is_empty()
    }

    /// Deletes. May be repeated.
    ///
    /// # Errors
    /// The first [`StorageError`]; what is left is an orphan for the next start.
    pub fn apply(&self, storage: &dyn CheckpointStorage) -> Result<(), StorageError> {
        self.checkpoints.iter().try_for_each(|id| storage.delete_checkpoint(*id))?;
        self.segments.iter().try_for_each(|id| storage.delete_segment(*id))
    }
}

/// The checkpoints that exist and the segments they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    checkpoints: BTreeMap<CheckpointId, BTreeSet<SegmentId>>,
}

impl Retention {
    /// Takes note of a checkpoint that exists, or that may exist.
    pub fn add(&mut self, id: CheckpointId, segments: impl IntoIterator<Item = SegmentId>) {
        self.checkpoints.entry(id).or_default().extend(segments);
    }

    /// Returns the checkpoints, ascending.
    pub fn checkpoints(&self) -> impl Iterator<Item = CheckpointId> {
        self.checkpoints.keys().copied()
    }

    /// Whether any checkpoint names the segment.
    pub fn names(&self, segment: SegmentId) -> bool {
        self.checkpoints.values().any(|segments| segments.contains(&segment))
    }

    /// Forgets all but the newest `keep` checkpoints and returns what can be deleted for it.
    pub fn trim(&mut self, keep: usize) -> Deletion {
        let excess = self.checkpoints.len().saturating_sub(keep);
        let checkpoints: Vec<_> = self.checkpoints.keys().take(excess).copied().collect();
        let mut segments = BTreeSet::new();
        for id in &checkpoints {
            segments.append(&mut self.checkpoints.remove(id).unwrap_or_default());
        }
        segments.retain(|segment| !self.names(*segment));
        Deletion { checkpoints, segments: segments.into_iter().collect() }
    }

    /// Returns those of all stored segments that were written before `attempt` and that no checkpoint names.
    pub fn orphans(&self, stored: &[SegmentId], attempt: u64) -> Vec<SegmentId> {
        stored.iter().filter(|segment| segment.attempt.0 < attempt && !self.names(**segment)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Attempt, TaskIndex};

    fn segment(checkpoint: u64, attempt: u64) -> SegmentId {
        SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(attempt), task: TaskIndex(0) }
    }

    #[test]
    fn a_segment_lives_as_long_as_a_retained_checkpoint_names_it() {
        let mut retention = Retention::default();
        retention.add(CheckpointId(1), [segment(1, 1)]);
        retention.add(CheckpointId(2), [segment(1, 1), segment(2, 1)]);
        retention.add(CheckpointId(3), [segment(2, 1), segment(3, 1)]);
        assert_eq!(retention.trim(2), Deletion { checkpoints: vec![CheckpointId(1)], segments: vec![] });
        assert_eq!(retention.trim(1), Deletion { checkpoints: vec![CheckpointId(2)], segments: vec![segment(1, 1)] });
        assert!(retention.trim(1).is_empty());
        assert!(retention.names(segment(2, 1)) && !retention.names(segment(1, 1)));
        assert_eq!(retention.trim(0).segments, [segment(2, 1), segment(3, 1)]);
    }

    #[test]
    fn only_unnamed_segments_of_older_attempts_are_orphans() {
        let mut retention = Retention::default();
        retention.add(CheckpointId(1), [segment(1, 1)]);
        let stored = [segment(1, 1), segment(2, 1), segment(3, 2), segment(4, 3)];
        assert_eq!(retention.orphans(&stored, 3), [segment(2, 1), segment(3, 2)]);
    }
}
