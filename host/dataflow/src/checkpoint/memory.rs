//! Storage in the coordinator's memory: for tests, for the simulator, and for jobs whose state may die with the process.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use super::segment::SegmentId;
use super::storage::{
    CheckpointStorage, Fence, NewSavepoint, SegmentFile, SegmentSource, SnapshotSource, StorageError, StorageErrorKind,
};
use crate::ids::{Attempt, CheckpointId};

/// Keeps checkpoints in memory, up to a number of bytes. Clones share the content.
#[derive(Clone, Debug)]
pub struct MemoryStorage {
    content: Arc<Mutex<Content>>,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Content {
    fence: Fence,
    segments: BTreeMap<SegmentId, Arc<[u8]>>,
    /// Created, not yet synced.
    open: BTreeSet<SegmentId>,
    manifests: BTreeMap<CheckpointId, Vec<u8>>,
    committed: BTreeSet<CheckpointId>,
    finished: Option<CheckpointId>,
    savepoints: BTreeMap<String, MemorySavepoint>,
    /// The paths of savepoints that go with a checkpoint.
    claimed: BTreeMap<CheckpointId, String>,
}

/// A savepoint in memory.
#[derive(Clone, Debug, Default)]
pub struct MemorySavepoint {
    manifest: Vec<u8>,
    segments: BTreeMap<SegmentId, Arc<[u8]>>,
    committed: bool,
}

impl SnapshotSource for MemorySavepoint {
    fn read_manifest(&self) -> Result<Vec<u8>, StorageError> {
        Ok(self.manifest.clone())
    }

    fn is_committed(&self) -> Result<bool, StorageError> {
        Ok(self.committed)
    }

    fn open_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentSource>, StorageError> {
        let bytes = self.segments.get(&id).cloned().ok_or_else(|| not_found("segment", id))?;
        Ok(Box::new(Stored(bytes)))
    }
}

impl MemoryStorage {
    /// Returns an empty storage that holds segments of at most `bytes_max` bytes in all.
    pub fn new(bytes_max: u64) -> Self {
        Self { content: Arc::default(), bytes_max }
    }

    /// Returns the savepoint at a path, if there is one.
    pub fn savepoint(&self, path: &str) -> Option<MemorySavepoint> {
        self.content().savepoints.get(path).cloned()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().expect("no holder of the lock panics")
    }
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

fn not_found(what: &str, id: impl std::fmt::Display) -> StorageError {
    StorageError::new(StorageErrorKind::NotFound, format!("{what} {id} does not exist"))
}

fn exists(what: &str, id: impl std::fmt::Display) -> StorageError {
    StorageError::new(StorageErrorKind::Exists, format!("{what} {id} exists already"))
}

impl CheckpointStorage for MemoryStorage {
    fn fence(&self) -> Result<Fence, StorageError> {
        Ok(self.content().fence)
    }

    fn raise_fence(&self, fence: Fence) -> Result<(), StorageError> {
        let mut content = self.content();
        if fence.attempt <= content.fence.attempt {
            let message = format!("attempt {} is not above {}", fence.attempt, content.fence.attempt);
            return Err(StorageError::new(StorageErrorKind::Fenced, message));
        }
        content.fence = fence;
        Ok(())
    }

    fn create_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentFile>, StorageError> {
        let mut content = self.content();
        if content.segments.contains_key(&id) || !content.open.insert(id) {
            return Err(exists("segment", id));
        }
        Ok(Box::new(MemoryFile { storage: self.clone(), id, bytes: Vec::new() }))
    }

    fn open_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentSource>, StorageError> {
        let bytes = self.content().segments.get(&id).cloned().ok_or_else(|| not_found("segment", id))?;
        Ok(Box::new(Stored(bytes)))
    }

    fn segments(&self) -> Result<Vec<SegmentId>, StorageError> {
        Ok(self.content().segments.keys().copied().collect())
    }

    fn delete_segment(&self, id: SegmentId) -> Result<(), StorageError> {
        self.content().segments.remove(&id);
        Ok(())
    }

    fn publish_manifest(&self, attempt: Attempt, id: CheckpointId, bytes: &[u8]) -> Result<(), StorageError> {
        self.check_fence(attempt)?;
        let mut content = self.content();
        if content.manifests.contains_key(&id) {
            return Err(exists("checkpoint", id));
        }
        content.manifests.insert(id, bytes.to_vec());
        Ok(())
    }

    fn manifests(&self) -> Result<Vec<CheckpointId>, StorageError> {
        Ok(self.content().manifests.keys().copied().collect())
    }

    fn read_manifest(&self, id: CheckpointId) -> Result<Vec<u8>, StorageError> {
        self.content().manifests.get(&id).cloned().ok_or_else(|| not_found("checkpoint", id))
    }

    fn delete_checkpoint(&self, id: CheckpointId) -> Result<(), StorageError> {
        let mut content = self.content();
        if let Some(path) = content.claimed.remove(&id) {
            content.savepoints.remove(&path);
        }
        content.manifests.remove(&id);
        content.committed.remove(&id);
        Ok(())
    }

    fn mark_committed(&self, id: CheckpointId) -> Result<(), StorageError> {
        let mut content = self.content();
        if !content.manifests.contains_key(&id) {
            return Err(not_found("checkpoint", id));
        }
        content.committed.insert(id);
        Ok(())
    }

    fn is_committed(&self, id: CheckpointId) -> Result<bool, StorageError> {
        Ok(self.content().committed.contains(&id))
    }

    fn finished(&self) -> Result<Option<CheckpointId>, StorageError> {
        Ok(self.content().finished)
    }

    fn mark_finished(&self, id: CheckpointId) -> Result<(), StorageError> {
        self.content().finished = Some(id);
        Ok(())
    }

    fn clear_finished(&self) -> Result<(), StorageError> {
        self.content().finished = None;
        Ok(())
    }

    fn publish_savepoint(&self, attempt: Attempt, savepoint: NewSavepoint<'_>) -> Result<(), StorageError> {
        self.check_fence(attempt)?;
        let mut content = self.content();
        if content.savepoints.contains_key(savepoint.path) {
            return Err(exists("savepoint", savepoint.path));
        }
        let mut copy = MemorySavepoint { manifest: savepoint.manifest.to_vec(), ..MemorySavepoint::default() };
        for id in savepoint.segments {
            let bytes = content.segments.get(id).cloned().ok_or_else(|| not_found("segment", id))?;
            copy.segments.insert(*id, bytes);
        }
        content.fence.checkpoint = content.fence.checkpoint.max(savepoint.checkpoint.0);
        content.savepoints.insert(savepoint.path.to_owned(), copy);
        Ok(())
    }

    fn mark_savepoint_committed(&self, path: &str, _: CheckpointId) -> Result<(), StorageError> {
        let mut content = self.content();
        let savepoint = content.savepoints.get_mut(path).ok_or_else(|| not_found("savepoint", path))?;
        savepoint.committed = true;
        Ok(())
    }

    fn delete_savepoint(&self, path: &str) -> Result<(), StorageError> {
        self.content().savepoints.remove(path);
        Ok(())
    }

    fn claim_savepoint(&self, path: &str, for_checkpoint: CheckpointId) -> Result<(), StorageError> {
        self.content().claimed.insert(for_checkpoint, path.to_owned());
        Ok(())
    }

    fn remove_leftovers(&self) -> Result<usize, StorageError> {
        Ok(std::mem::take(&mut self.content().open).len())
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

struct MemoryFile {
    storage: MemoryStorage,
    id: SegmentId,
    bytes: Vec<u8>,
}

impl Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stored: usize = self.storage.content().segments.values().map(|bytes| bytes.len()).sum();
        if (stored + self.bytes.len() + bytes.len()) as u64 > self.storage.bytes_max {
            let message = format!("checkpoints in memory may take {} bytes at most", self.storage.bytes_max);
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SegmentFile for MemoryFile {
    fn sync(mut self: Box<Self>) -> Result<(), StorageError> {
        let bytes = std::mem::take(&mut self.bytes);
        self.storage.content().segments.insert(self.id, bytes.into());
        Ok(())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.storage.content().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TaskIndex;

    #[test]
    fn a_full_storage_says_so_and_keeps_nothing_of_the_segment() {
        let storage = MemoryStorage::new(10);
        let id = SegmentId { checkpoint: CheckpointId(1), attempt: Attempt(1), task: TaskIndex(0) };
        let mut file = storage.create_segment(id).unwrap();
        file.write_all(&[0; 8]).unwrap();
        let error = file.write_all(&[0; 8]).unwrap_err();
        assert_eq!(StorageError::io("segment", error).kind, StorageErrorKind::Full);
        drop(file);
        assert!(storage.segments().unwrap().is_empty());
        assert!(storage.create_segment(id).is_ok(), "the name is free again");
    }

    #[test]
    fn an_older_attempt_cannot_publish() {
        let storage = MemoryStorage::default();
        storage.raise_fence(Fence { attempt: 2, checkpoint: 0 }).unwrap();
        let publish = |attempt| storage.publish_manifest(Attempt(attempt), CheckpointId(1), b"");
        assert_eq!(publish(1).unwrap_err().kind, StorageErrorKind::Fenced);
        publish(2).unwrap();
        assert_eq!(publish(2).unwrap_err().kind, StorageErrorKind::Exists);
        assert_eq!(storage.raise_fence(Fence { attempt: 2, checkpoint: 0 }).unwrap_err().kind, StorageErrorKind::Fenced);
    }
}
