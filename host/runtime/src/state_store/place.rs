//! Where the stores of a job's state are: opened one by one, and deleted when nobody will open them again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_dataflow::ids::SubtaskId;
use cofferdam_dataflow::state::store::{SharedStore, StoreError};

use super::{DiskStore, StateMemory};

/// The stores of one job.
pub trait StorePlace: Send + Sync {
    /// Opens a subtask's store, or makes one. What cannot be opened is deleted: the second result says why.
    ///
    /// # Errors
    /// [`StoreError`] if none can be made either.
    fn open(&self, id: &SubtaskId, memory: StateMemory) -> Result<(SharedStore, Option<StoreError>), StoreError>;

    /// Deletes all stores but those of these subtasks. None of them is open.
    ///
    /// # Errors
    /// What the operating system says.
    fn retain(&self, wanted: &BTreeSet<SubtaskId>) -> std::io::Result<()>;
}

/// Stores in a local directory: `<operator>/<subtask>`.
#[derive(Clone, Debug)]
pub struct LocalPlace {
    dir: PathBuf,
}

impl LocalPlace {
    /// Returns the place of the stores in a directory, which need not exist.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, id: &SubtaskId) -> PathBuf {
        self.dir.join(id.operator.to_string()).join(id.index.to_string())
    }
}

impl StorePlace for LocalPlace {
    fn open(&self, id: &SubtaskId, memory: StateMemory) -> Result<(SharedStore, Option<StoreError>), StoreError> {
        let (store, problem) = DiskStore::open(&self.path(id), memory)?;
        Ok((Arc::new(store), problem))
    }

    fn retain(&self, wanted: &BTreeSet<SubtaskId>) -> std::io::Result<()> {
        if wanted.is_empty() {
            return delete(&self.dir);
        }
        let wanted: BTreeSet<_> = wanted.iter().map(|id| self.path(id)).collect();
        for operator in entries(&self.dir)? {
            for subtask in entries(&operator)? {
                if !wanted.contains(&subtask) {
                    tracing::info!(store = %subtask.display(), "deleted a store of state that is not needed any more");
                    delete(&subtask)?;
                }
            }
        }
        Ok(())
    }
}

fn delete(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn entries(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
