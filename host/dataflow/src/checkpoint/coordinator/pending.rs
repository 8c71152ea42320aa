//! A checkpoint that is being taken: who has acknowledged it, and the manifest that comes of it.

use std::collections::{BTreeMap, BTreeSet};

use super::command::{CheckpointPurpose, Savepoint};
use super::{JobDescription, Now, PlannedTask};
use crate::checkpoint::chains::StateChains;
use crate::checkpoint::manifest::CheckpointManifest;
use crate::checkpoint::segment::{INLINE_TOTAL_BYTES_MAX, SegmentId, SegmentInfo, SpilledSegment};
use crate::ids::{Attempt, CheckpointId, TaskIndex};
use crate::snapshot::{SubtaskSnapshot, TaskSnapshot};
use crate::time::MonotonicTime;

/// A checkpoint in flight.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) purpose: CheckpointPurpose,
    /// What is to come of it beside, or instead of, a checkpoint.
    pub(super) savepoint: Option<Savepoint>,
    pub(super) triggered: Now,
    snapshots: BTreeMap<TaskIndex, TaskSnapshot>,
    acknowledged: BTreeMap<TaskIndex, Option<SegmentInfo>>,
}

impl Pending {
    pub(super) fn new(purpose: CheckpointPurpose, savepoint: Option<Savepoint>, triggered: Now) -> Self {
        Self { purpose, savepoint, triggered, snapshots: BTreeMap::new(), acknowledged: BTreeMap::new() }
    }

    pub(super) fn expires(&self, timeout_ms: u64) -> MonotonicTime {
        self.triggered.monotonic.plus_ms(timeout_ms)
    }

    /// Whether a checkpoint of the job comes of it.
    pub(super) fn is_checkpoint(&self) -> bool {
        self.purpose != CheckpointPurpose::Savepoint
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written().map(|segment| segment.reference.length).sum()
    }

    pub(super) fn stops_sources(&self) -> bool {
        self.purpose == CheckpointPurpose::Stop
    }

    /// Takes what a task knew at the cut. A repeated one is ignored.
    pub(super) fn snapshot(&mut self, snapshot: TaskSnapshot, task: &PlannedTask) -> Result<(), String> {
        let ids: Vec<_> = snapshot.subtasks.iter().map(|subtask| &subtask.id).collect();
        if ids != task.subtasks.iter().collect::<Vec<_>>() {
            return Err(format!("its snapshot is that of {} other subtasks", ids.len()));
        }
        self.snapshots.entry(snapshot.task).or_insert(snapshot);
        Ok(())
    }

    /// Takes a task's acknowledgement. A repeated one is ignored.
    pub(super) fn acknowledge(
        &mut self,
        task: TaskIndex,
        segment: Option<SegmentInfo>,
        expected: SegmentId,
    ) -> Result<(), String> {
        let Some(snapshot) = self.snapshots.get(&task) else {
            return Err("it has taken no snapshot".into());
        };
        if let Some(segment) = &segment {
            if segment.reference.id != expected {
                return Err(format!("its segment is {}", segment.reference.id));
            }
            if segment.tables != snapshot.tables {
                return Err("its segment has other tables than its snapshot".into());
            }
            for section in &segment.sections {
                let table = segment.tables.get(usize::from(section.table));
                if !table.is_some_and(|table| snapshot.owns(table, section.group)) {
                    return Err(format!("key group {} of table {} is not its own", section.group.0, section.table));
                }
            }
        }
        self.acknowledged.entry(task).or_insert(segment);
        Ok(())
    }

    /// Returns the first task that has not acknowledged, and how many have not.
    pub(super) fn missing(&self, tasks: usize) -> Option<(TaskIndex, usize)> {
        let missing = tasks - self.acknowledged.len();
        (0..tasks).map(TaskIndex).find(|task| !self.acknowledged.contains_key(task)).map(|first| (first, missing))
    }

    pub(super) fn names(&self, segment: SegmentId) -> bool {
        self.written().any(|written| written.reference.id == segment)
    }

    pub(super) fn written(&self) -> impl Iterator<Item = &SegmentInfo> {
        self.acknowledged.values().flatten()
    }

    pub(super) fn segments(&self) -> Vec<SegmentId> {
        self.written().map(|segment| segment.reference.id).collect()
    }

    pub(super) fn alignment_us_max(&self) -> u64 {
        self.snapshots.values().map(|snapshot| snapshot.alignment_us).max().unwrap_or(0)
    }

    /// Makes files of segments of its own that a manifest cannot hold, and returns those: they are to be written before the
    /// manifest is published. What earlier checkpoints inlined stays where it is.
    pub(super) fn spill(&mut self, manifest: &mut CheckpointManifest, bytes_max: usize) -> Vec<SpilledSegment> {
        let mut excess = manifest.state.inline_bytes().saturating_sub(bytes_max.min(INLINE_TOTAL_BYTES_MAX));
        let mut spilled = Vec::new();
        for segment in self.acknowledged.values_mut().flatten() {
            let id = segment.reference.id;
            if excess == 0 {
                break;
            }
            // What no chain names is not in the manifest.
            if manifest.state.segment(id).is_none() {
                continue;
            }
            if let Some(bytes) = segment.reference.inline.take() {
                excess = excess.saturating_sub(bytes.len());
                manifest.state.set_file(id);
                spilled.push(SpilledSegment { id, bytes });
            }
        }
        spilled
    }

    /// Returns the manifest, once all tasks have acknowledged.
    pub(super) fn manifest(
        &self,
        job: &JobDescription,
        checkpoint: CheckpointId,
        attempt: Attempt,
        parent: (Option<CheckpointId>, &StateChains),
    ) -> CheckpointManifest {
        let written: Vec<_> = self.written().cloned().collect();
        let mut subtasks: Vec<SubtaskSnapshot> =
            self.snapshots.values().flat_map(|snapshot| snapshot.subtasks.iter().cloned()).collect();
        subtasks.sort_by(|a, b| a.id.cmp(&b.id));
        debug_assert_eq!(
            subtasks.iter().map(|subtask| &subtask.id).collect::<BTreeSet<_>>().len(),
            job.nodes.iter().map(|node| node.parallelism as usize).sum::<usize>()
        );
        CheckpointManifest {
            job: job.name.clone(),
            checkpoint,
            attempt,
            parent: parent.0,
            created: self.triggered.processing,
            engine: job.engine.clone(),
            max_parallelism: job.max_parallelism,
            is_final: subtasks.iter().all(|subtask| subtask.finished),
            nodes: job.nodes.clone(),
            subtasks,
            state: parent.1.advance(&written, &job.nodes),
        }
    }
}
