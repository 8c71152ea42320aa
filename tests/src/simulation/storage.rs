//! Checkpoint storage on the simulated disk.

use std::io::{self, Write};
use std::sync::Arc;

use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::segment::{ContentHash, SegmentId, SegmentRef};
use cofferdam_dataflow::checkpoint::storage::{
    CheckpointStorage, Fence, NewSavepoint, SegmentFile, SegmentSource, SnapshotSource, StorageError, StorageErrorKind,
};
use cofferdam_dataflow::ids::{Attempt, CheckpointId};

use super::world::{Disk, Op, Outcome, Saved, State, World};

/// The checkpoints of one job.
#[derive(Clone, Debug)]
pub struct SimStorage {
    world: World,
    /// The process that opened it; `None` for the test, which meets no faults.
    process: Option<u64>,
}

fn fault(op: Op, outcome: Outcome) -> StorageError {
    let kind = if outcome == Outcome::Full { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
    StorageError::io(format!("{op:?} failed"), io::Error::new(kind, "injected"))
}

impl SimStorage {
    /// Opens the storage for a process, which must have a number of its own, and takes the lock.
    ///
    /// # Errors
    /// [`StorageErrorKind::Fenced`] if another process holds the lock.
    pub fn open(world: &World, process: u64) -> Result<Self, StorageError> {
        let mut state = world.state();
        if let Some(holder) = state.lock.filter(|holder| *holder != process) {
            return Err(StorageError::new(StorageErrorKind::Fenced, format!("the storage is in use by process {holder}")));
        }
        state.lock = Some(process);
        Ok(Self { world: world.clone(), process: Some(process) })
    }

    /// Returns the storage as a test sees it: without faults.
    pub fn quiet(world: &World) -> Self {
        Self { world: world.clone(), process: None }
    }

    fn act<T>(&self, op: Op, act: impl FnOnce(&mut State) -> Result<T, StorageError>) -> Result<T, StorageError> {
        let mut state = self.world.state();
        match if self.process.is_none() { Outcome::Done } else { state.enter(op) } {
            Outcome::Done => act(&mut state),
            outcome @ (Outcome::Failed | Outcome::Unknown | Outcome::Full) => Err(fault(op, outcome)),
            Outcome::FailedAfter => act(&mut state).and(Err(fault(op, Outcome::FailedAfter))),
        }
    }

    fn read<T>(&self, read: impl FnOnce(&Disk) -> T) -> Result<T, StorageError> {
        self.act(Op::Read, |state| Ok(read(&state.disk)))
    }
}

impl CheckpointStorage for SimStorage {
    fn fence(&self) -> Result<Fence, StorageError> {
        self.read(|disk| disk.fence)
    }

    fn raise_fence(&self, fence: Fence) -> Result<(), StorageError> {
        self.act(Op::Mark, |state| {
            if fence.attempt <= state.disk.fence.attempt {
                return Err(StorageError::new(StorageErrorKind::Fenced, "a newer attempt exists"));
            }
            if fence.checkpoint < state.disk.fence.checkpoint {
                state.violated(format!("the checkpoint counter goes back to {}", fence.checkpoint));
            }
            state.disk.fence = fence;
            state.fenced_by = self.process;
            let kept = std::mem::take(&mut state.disk.volatile);
            state.disk.published_max = kept.iter().map(|id| id.0).fold(state.disk.published_max, u64::max);
            Ok(())
        })
    }

    fn create_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentFile>, StorageError> {
        self.act(Op::CreateSegment, |state| {
            // What is copied in from a savepoint may have been here before.
            if !state.disk.ever.insert(id) && self.process.is_some() {
                state.violated(format!("segment {id} is created twice"));
            }
            state.disk.leftovers += 1;
            let sweeps = state.disk.sweeps;
            Ok(Box::new(SimFile { storage: self.clone(), id, bytes: Vec::new(), sweeps }) as Box<dyn SegmentFile>)
        })
    }

    fn inline_bytes_max(&self) -> usize {
        self.world.state().inline_bytes_max
    }

    fn open_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentSource>, StorageError> {
        let bytes = self.read(|disk| disk.segments.get(&id).cloned())?;
        let missing = || StorageError::new(StorageErrorKind::NotFound, format!("segment {id} does not exist"));
        Ok(Box::new(Stored(bytes.ok_or_else(missing)?)))
    }

    fn segments(&self) -> Result<Vec<SegmentId>, StorageError> {
        self.read(|disk| disk.segments.keys().copied().collect())
    }

    fn delete_segment(&self, id: SegmentId) -> Result<(), StorageError> {
        self.act(Op::Delete, |state| {
            if let Some(bytes) = state.disk.segments.remove(&id) {
                state.disk.ghosts.insert(id, bytes);
            }
            let named = manifests(&state.disk).find(|manifest| manifest.state.segments().contains_key(&id));
            if let Some(manifest) = named.filter(|_| !state.damaged) {
                let checkpoint = manifest.checkpoint;
                state.violated(format!("segment {id} is deleted, and checkpoint {checkpoint} names it"));
            }
            Ok(())
        })
    }

    fn publish_manifest(&self, attempt: Attempt, id: CheckpointId, bytes: &[u8]) -> Result<(), StorageError> {
        let mut state = self.world.state();
        let outcome = state.enter(Op::Publish);
        match outcome {
            Outcome::Failed | Outcome::Full => return Err(fault(Op::Publish, outcome)),
            Outcome::Unknown => return Err(fault(Op::Publish, outcome).with_unknown_outcome()),
            Outcome::Done | Outcome::FailedAfter => {}
        }
        if state.disk.fence.attempt != attempt.0 {
            return Err(StorageError::new(StorageErrorKind::Fenced, "a newer attempt exists"));
        }
        if state.disk.manifests.contains_key(&id) {
            return Err(StorageError::new(StorageErrorKind::Exists, format!("checkpoint {id} exists")));
        }
        if id.0 <= state.disk.published_max {
            let newest = state.disk.published_max;
            state.violated(format!("checkpoint {id} is published after {newest}"));
        }
        check_segments(&mut state, bytes);
        state.disk.manifests.insert(id, bytes.to_vec());
        if outcome == Outcome::Done {
            state.disk.published_max = id.0;
            return Ok(());
        }
        // One that a crash takes back, and that no segment tells of, has never been: its number comes again.
        if state.random.chance(500) {
            state.disk.volatile.insert(id);
        } else {
            state.disk.published_max = id.0;
        }
        Err(fault(Op::Publish, outcome).with_unknown_outcome())
    }

    fn manifests(&self) -> Result<Vec<CheckpointId>, StorageError> {
        self.read(|disk| disk.manifests.keys().copied().collect())
    }

    fn read_manifest(&self, id: CheckpointId) -> Result<Vec<u8>, StorageError> {
        let missing = || StorageError::new(StorageErrorKind::NotFound, format!("checkpoint {id} does not exist"));
        self.read(|disk| disk.manifests.get(&id).cloned())?.ok_or_else(missing)
    }

    fn delete_checkpoint(&self, id: CheckpointId) -> Result<(), StorageError> {
        self.act(Op::Delete, |state| {
            if let Some(path) = state.disk.claimed.remove(&id) {
                state.disk.savepoints.remove(&path);
            }
            state.disk.manifests.remove(&id);
            state.disk.volatile.remove(&id);
            state.disk.committed.remove(&id);
            Ok(())
        })
    }

    fn mark_committed(&self, id: CheckpointId) -> Result<(), StorageError> {
        self.act(Op::Mark, |state| {
            if !state.disk.manifests.contains_key(&id) {
                state.violated(format!("checkpoint {id} is marked as committed and does not exist"));
            }
            state.disk.committed.insert(id);
            Ok(())
        })
    }

    fn is_committed(&self, id: CheckpointId) -> Result<bool, StorageError> {
        self.read(|disk| disk.committed.contains(&id))
    }

    fn finished(&self) -> Result<Option<CheckpointId>, StorageError> {
        self.read(|disk| disk.finished)
    }

    fn mark_finished(&self, id: CheckpointId) -> Result<(), StorageError> {
        self.act(Op::Mark, |state| {
            state.disk.finished = Some(id);
            Ok(())
        })
    }

    fn clear_finished(&self) -> Result<(), StorageError> {
        self.act(Op::Mark, |state| {
            state.disk.finished = None;
            Ok(())
        })
    }

    fn publish_savepoint(&self, attempt: Attempt, savepoint: NewSavepoint<'_>) -> Result<(), StorageError> {
        // Nothing is left of one that fails, even if it was there for a moment.
        let outcome = if self.process.is_none() { Outcome::Done } else { self.world.state().enter(Op::Save) };
        if outcome != Outcome::Done {
            return Err(fault(Op::Save, outcome));
        }
        let mut state = self.world.state();
        if state.disk.fence.attempt != attempt.0 {
            return Err(StorageError::new(StorageErrorKind::Fenced, "a newer attempt exists"));
        }
        if state.disk.savepoints.contains_key(savepoint.path) {
            return Err(StorageError::new(StorageErrorKind::Exists, format!("{} exists", savepoint.path)));
        }
        check_segments(&mut state, savepoint.manifest);
        let mut saved = Saved { manifest: savepoint.manifest.to_vec(), ..Saved::default() };
        for id in savepoint.segments {
            let Some(bytes) = state.disk.segments.get(id).cloned() else {
                state.violated(format!("segment {id} of savepoint {} is not there", savepoint.checkpoint));
                continue;
            };
            saved.segments.insert(*id, bytes);
        }
        let named = CheckpointManifest::decode(savepoint.manifest).map(|manifest| manifest.state.segments().clone());
        let named = named.map(|named| named.into_values().filter(SegmentRef::is_file).map(|file| file.id).collect::<Vec<_>>());
        if !named.is_ok_and(|named| named.iter().eq(saved.segments.keys())) {
            state.violated(format!("savepoint {} does not stand on its own", savepoint.checkpoint));
        }
        state.disk.fence.checkpoint = state.disk.fence.checkpoint.max(savepoint.checkpoint.0);
        state.disk.savepoints.insert(savepoint.path.to_owned(), saved);
        Ok(())
    }

    fn mark_savepoint_committed(&self, path: &str, _: CheckpointId) -> Result<(), StorageError> {
        self.act(Op::Mark, |state| {
            if let Some(saved) = state.disk.savepoints.get_mut(path) {
                saved.committed = true;
            }
            Ok(())
        })
    }

    fn delete_savepoint(&self, path: &str) -> Result<(), StorageError> {
        self.act(Op::Delete, |state| {
            state.disk.savepoints.remove(path);
            Ok(())
        })
    }

    fn claim_savepoint(&self, path: &str, for_checkpoint: CheckpointId) -> Result<(), StorageError> {
        self.act(Op::Mark, |state| {
            state.disk.claimed.insert(for_checkpoint, path.to_owned());
            Ok(())
        })
    }

    fn remove_leftovers(&self) -> Result<usize, StorageError> {
        self.act(Op::Delete, |state| {
            state.disk.sweeps += 1;
            Ok(std::mem::take(&mut state.disk.leftovers))
        })
    }
}

pub(super) fn manifests(disk: &Disk) -> impl Iterator<Item = CheckpointManifest> {
    disk.manifests.values().filter_map(|bytes| CheckpointManifest::decode(bytes).ok())
}

/// A manifest may name nothing but what is durable and whole.
fn check_segments(state: &mut State, bytes: &[u8]) {
    let manifest = match CheckpointManifest::decode(bytes) {
        Ok(manifest) => manifest,
        Err(error) => return state.violated(format!("a manifest is published that cannot be read: {error}")),
    };
    // A manifest that holds other bytes than it says cannot be read.
    for segment in manifest.state.segments().values().filter(|segment| segment.is_file()) {
        let stored = state.disk.segments.get(&segment.id);
        let fits = stored.is_some_and(|bytes| bytes.len() as u64 == segment.length && ContentHash::of(bytes) == segment.hash);
        if !fits {
            state.violated(format!("checkpoint {} names segment {}, which is not durable", manifest.checkpoint, segment.id));
        }
    }
}

impl SnapshotSource for Saved {
    fn read_manifest(&self) -> Result<Vec<u8>, StorageError> {
        Ok(self.manifest.clone())
    }

    fn is_committed(&self) -> Result<bool, StorageError> {
        Ok(self.committed)
    }

    fn open_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentSource>, StorageError> {
        let missing = || StorageError::new(StorageErrorKind::NotFound, format!("segment {id} does not exist"));
        Ok(Box::new(Stored(self.segments.get(&id).cloned().ok_or_else(missing)?)))
    }
}

struct Stored(Arc<[u8]>);

impl SegmentSource for Stored {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StorageError> {
        (&*self.0).read_exact_at(offset, buffer)
    }
}

struct SimFile {
    storage: SimStorage,
    id: SegmentId,
    bytes: Vec<u8>,
    /// How often leftovers had been removed when it was created.
    sweeps: u64,
}

impl Write for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.storage.world.state().enter(Op::WriteSegment) {
            Outcome::Done => {
                self.bytes.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            Outcome::Full => Err(io::Error::new(io::ErrorKind::StorageFull, "injected")),
            Outcome::Failed | Outcome::Unknown | Outcome::FailedAfter => Err(io::Error::other("injected")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SegmentFile for SimFile {
    fn sync(self: Box<Self>) -> Result<(), StorageError> {
        self.storage.act(Op::SyncSegment, |state| {
            if state.disk.sweeps != self.sweeps {
                return Err(StorageError::new(StorageErrorKind::NotFound, "another process has removed the file"));
            }
            state.disk.leftovers -= 1.min(state.disk.leftovers);
            state.disk.segments.insert(self.id, self.bytes.as_slice().into());
            Ok(())
        })
    }
}
