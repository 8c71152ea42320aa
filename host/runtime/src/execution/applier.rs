//! The applier: a thread that brings completed checkpoints into the stores behind the tasks' state.
//!
//! It reads what the snapshot writer wrote, which is exact at the cut, and tells when a store holds a checkpoint. One for
//! the process: stores of many subtasks do not compete for the disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use cofferdam_dataflow::checkpoint::apply::{ApplyError, apply_segment};
use cofferdam_dataflow::checkpoint::segment::{SegmentError, SegmentRef};
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, StorageErrorKind};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, SubtaskId, TaskIndex};
use cofferdam_dataflow::state::store::{SharedStore, StateStore, StoreError, begin_apply, finish_apply};
use cofferdam_dataflow::subtask::TaskFailure;

use super::snapshot_writer::{SnapshotKey, error_text};
use super::stores::store_failure;

#[cfg(test)]
mod tests;

/// The store of one operator's subtask.
pub struct SubtaskStore {
    /// Whose it is.
    pub id: SubtaskId,
    /// The operator's slots in order: the name, and whether it is in the store.
    pub slots: Vec<(String, bool)>,
    /// The store.
    pub store: SharedStore,
}

/// What the applier is told.
pub enum ApplierMessage {
    /// A task has opened a store.
    Opened {
        /// The task's attempt.
        attempt: Attempt,
        /// The task.
        task: TaskIndex,
        /// The store.
        store: SubtaskStore,
    },
    /// A task's part of a checkpoint is durable.
    Written {
        /// Whose part.
        key: SnapshotKey,
        /// The segment; `None` if nothing had changed.
        segment: Option<SegmentRef>,
    },
    /// A checkpoint has completed, and the tasks have been told.
    Completed {
        /// The attempt that took it.
        attempt: Attempt,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Close the stores of this and older attempts, whose tasks are gone, and say so.
    Reset {
        /// The newest of them.
        attempt: Attempt,
        /// Called when they are closed.
        done: Box<dyn FnOnce() + Send>,
    },
}

/// What became of a checkpoint.
pub enum Applied {
    /// All stores of a task hold it.
    Done {
        /// The task's attempt.
        attempt: Attempt,
        /// The task.
        task: TaskIndex,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A store could not be written, or the checkpoint not be read.
    Failed {
        /// The attempt whose store it was.
        attempt: Attempt,
        /// The failure of the task.
        failure: Box<TaskFailure>,
    },
}

/// Starts the applier. It ends when every sender is gone.
pub(super) fn start(
    storage: Arc<dyn CheckpointStorage>,
    report: impl Fn(Applied) + Send + 'static,
) -> std::io::Result<(Sender<ApplierMessage>, JoinHandle<()>)> {
    let (sender, receiver) = channel();
    let applier = Applier::new(storage, report);
    let thread = std::thread::Builder::new().name("state-applier".into()).spawn(move || applier.run(&receiver))?;
    Ok((sender, thread))
}

/// Brings completed checkpoints into stores. Holds no thread.
pub struct Applier<R> {
    storage: Arc<dyn CheckpointStorage>,
    report: R,
    stores: BTreeMap<(Attempt, TaskIndex), Vec<SubtaskStore>>,
    /// Tasks whose stores lack a checkpoint that nothing kept names any more, until they hold the newest.
    lacking: BTreeSet<(Attempt, TaskIndex)>,
    /// Segments of checkpoints that have not completed yet.
    segments: BTreeMap<SnapshotKey, Option<SegmentRef>>,
}

impl<R: Fn(Applied)> Applier<R> {
    /// Returns an applier that reads checkpoints from a storage and says what became of them.
    pub fn new(storage: Arc<dyn CheckpointStorage>, report: R) -> Self {
        Self { storage, report, stores: BTreeMap::new(), lacking: BTreeSet::new(), segments: BTreeMap::new() }
    }

    fn run(mut self, receiver: &Receiver<ApplierMessage>) {
        let mut waiting = VecDeque::new();
        while let Ok(first) = receiver.recv() {
            waiting.push_back(first);
            while let Some(message) = waiting.pop_front() {
                // All that is known now: a later checkpoint may make this one needless.
                waiting.extend(receiver.try_iter());
                self.take(message, &waiting);
            }
        }
    }

    /// Does what it is told. `waiting` is what it has been told since: a later checkpoint may make this one needless.
    pub fn take(&mut self, message: ApplierMessage, waiting: &VecDeque<ApplierMessage>) {
        match message {
            ApplierMessage::Opened { attempt, task, store } => self.stores.entry((attempt, task)).or_default().push(store),
            ApplierMessage::Written { key, segment } => {
                if self.stores.contains_key(&(key.attempt, key.task)) {
                    self.segments.insert(key, segment);
                }
            }
            ApplierMessage::Completed { attempt, checkpoint } => {
                let is_over =
                    |message: &ApplierMessage| matches!(message, ApplierMessage::Reset { attempt: of, .. } if *of >= attempt);
                if waiting.iter().any(is_over) {
                    return;
                }
                let is_later =
                    |message: &ApplierMessage| matches!(message, ApplierMessage::Completed { attempt: of, .. } if *of == attempt);
                self.complete(attempt, checkpoint, waiting.iter().any(is_later));
            }
            ApplierMessage::Reset { attempt, done } => {
                self.stores.retain(|(of, _), _| *of > attempt);
                self.segments.retain(|key, _| key.attempt > attempt);
                self.lacking.retain(|(of, _)| *of > attempt);
                done();
            }
        }
    }

    fn complete(&mut self, attempt: Attempt, checkpoint: CheckpointId, is_overtaken: bool) {
        for ((of, task), stores) in &self.stores {
            if *of != attempt {
                continue;
            }
            let key = SnapshotKey { attempt, checkpoint, task: *task };
            // Older ones are part of it, or came to nothing.
            self.segments.retain(|older, _| (older.attempt, older.task) != (attempt, *task) || older.checkpoint >= checkpoint);
            let segment = self.segments.remove(&key).flatten();
            match apply(&*self.storage, checkpoint, segment.as_ref(), stores) {
                // What the one that is gone wrote may be in the store only with a later one: nothing of it may be evicted.
                Ok(()) if is_overtaken && self.lacking.contains(&(attempt, *task)) => {}
                Ok(()) => {
                    self.lacking.remove(&(attempt, *task));
                    (self.report)(Applied::Done { attempt, task: *task, checkpoint });
                }
                // Nothing that is kept names the segment any more: a later checkpoint, which has completed by now, holds those
                // key groups in full.
                Err(error) if is_overtaken && is_gone(&error) => drop(self.lacking.insert((attempt, *task))),
                Err(error) => {
                    let Some(first) = stores.first() else { continue };
                    let text = format!("checkpoint {checkpoint}: {}", error_text(&error));
                    let failure = store_failure(&first.id, &StoreError(text));
                    (self.report)(Applied::Failed { attempt, failure: Box::new(failure) });
                }
            }
        }
    }
}

fn apply(
    storage: &dyn CheckpointStorage,
    checkpoint: CheckpointId,
    segment: Option<&SegmentRef>,
    stores: &[SubtaskStore],
) -> Result<(), ApplyError> {
    for of in stores {
        begin_apply(&of.store, checkpoint)?;
    }
    if let Some(segment) = segment {
        apply_segment(storage, segment, |table| {
            let of = stores.iter().find(|of| of.id.operator == table.operator)?;
            let slot = of.slots.iter().position(|(name, is_stored)| *is_stored && *name == table.slot)?;
            Some((&of.store as &dyn StateStore, u16::try_from(slot).ok()?))
        })?;
    }
    for of in stores {
        finish_apply(&of.store, checkpoint)?;
    }
    Ok(())
}

fn is_gone(error: &ApplyError) -> bool {
    matches!(error, ApplyError::Segment(SegmentError::Storage(error)) if error.kind == StorageErrorKind::NotFound)
}
