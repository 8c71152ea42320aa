//! A job's directory, and one checkpoint in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_dataflow::checkpoint::contents::StateContents;
use cofferdam_dataflow::checkpoint::manifest::{CheckpointManifest, ManifestNodeKind};
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, StorageErrorKind};
use cofferdam_dataflow::guest::StateSlot;
use cofferdam_dataflow::ids::{CheckpointId, OperatorId};
use cofferdam_dataflow::snapshot::TableId;

use super::{SlotInfo, StoredError, StoredSlot};
use crate::storage::LocalStorage;
use crate::storage::inspect::{self, ListedCheckpoint};

/// A job's directory, opened for reading. Holds no lock.
pub struct StoredJob {
    path: PathBuf,
    storage: Arc<dyn CheckpointStorage>,
    /// The path was that of one checkpoint.
    only: Option<CheckpointId>,
}

impl StoredJob {
    /// Opens a job's directory, or the folder of one checkpoint in it (`<dir>/chk-<id>`).
    ///
    /// # Errors
    /// [`StoredError::Storage`] if the directory cannot be read.
    pub fn open(path: &Path) -> Result<Self, StoredError> {
        let (dir, only) = match checkpoint_folder(path) {
            Some((dir, id)) => (dir, Some(id)),
            None => (path.to_owned(), None),
        };
        let storage: Arc<dyn CheckpointStorage> = Arc::new(LocalStorage::open_to_read(&dir)?);
        Ok(Self { path: path.to_owned(), storage, only })
    }

    /// Reads what a storage keeps, wherever that is. `path` is for messages.
    pub fn new(path: &Path, storage: Arc<dyn CheckpointStorage>) -> Self {
        Self { path: path.to_owned(), storage, only: None }
    }

    /// Returns the storage.
    pub fn storage(&self) -> &Arc<dyn CheckpointStorage> {
        &self.storage
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns all checkpoints, ascending; damaged ones say so.
    ///
    /// # Errors
    /// [`StoredError::Storage`] if the directory cannot be read.
    pub fn checkpoints(&self) -> Result<Vec<ListedCheckpoint>, StoredError> {
        let mut listed = inspect::list(self.storage.as_ref())?;
        listed.retain(|checkpoint| self.only.is_none_or(|only| checkpoint.checkpoint == only));
        Ok(listed)
    }

    /// Opens a checkpoint, the newest if none is named. A newest one that is damaged is not skipped.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn checkpoint(&self, id: Option<CheckpointId>) -> Result<StoredCheckpoint, StoredError> {
        let mut ids = self.storage.manifests()?;
        ids.retain(|found| self.only.is_none_or(|only| *found == only));
        let wanted = id.or_else(|| ids.last().copied());
        let Some(id) = wanted.filter(|id| ids.contains(id)) else {
            return Err(StoredError::NoCheckpoint { path: self.path.clone(), checkpoint: id });
        };
        StoredCheckpoint::read(Arc::clone(&self.storage), id)
    }
}

/// Takes `<dir>/chk-<id>` apart, if there is a manifest in it.
fn checkpoint_folder(path: &Path) -> Option<(PathBuf, CheckpointId)> {
    let full = path.canonicalize().ok().filter(|full| full.join("_manifest").is_file())?;
    let id = full.file_name()?.to_str()?.strip_prefix("chk-")?.parse().ok().map(CheckpointId)?;
    let dir = full.parent().filter(|dir| dir.join("segments").is_dir())?;
    Some((dir.to_owned(), id))
}

/// Returns how a table's slot was declared.
pub(super) fn declared<'a>(manifest: &'a CheckpointManifest, table: &TableId) -> Option<&'a StateSlot> {
    let node = manifest.nodes.iter().find(|node| node.id == table.operator)?;
    let ManifestNodeKind::Operator { slots, .. } = &node.kind else { return None };
    slots.iter().find(|slot| slot.name == table.slot)
}

/// A completed checkpoint whose manifest has been read.
pub struct StoredCheckpoint {
    storage: Arc<dyn CheckpointStorage>,
    manifest: CheckpointManifest,
}

impl StoredCheckpoint {
    /// Reads the manifest of a checkpoint.
    ///
    /// # Errors
    /// [`StoredError`]; [`StoredError::Gone`] if there is none of that number.
    pub fn read(storage: Arc<dyn CheckpointStorage>, id: CheckpointId) -> Result<Self, StoredError> {
        let damaged = |what: String| StoredError::Manifest { checkpoint: id, what };
        let bytes = storage.read_manifest(id).map_err(|error| match error.kind {
            StorageErrorKind::NotFound => StoredError::Gone(id),
            _ => error.into(),
        })?;
        let manifest = CheckpointManifest::decode(&bytes).map_err(|error| damaged(error.to_string()))?;
        if manifest.checkpoint != id {
            return Err(damaged(format!("its manifest is that of checkpoint {}", manifest.checkpoint)));
        }
        Ok(Self { storage, manifest })
    }

    /// Returns its number.
    pub fn id(&self) -> CheckpointId {
        self.manifest.checkpoint
    }

    /// Returns its manifest: nodes, positions, transactions, files.
    pub fn manifest(&self) -> &CheckpointManifest {
        &self.manifest
    }

    /// Returns the slots that operators had declared, and those with state, by operator and name.
    pub fn slots(&self) -> Vec<SlotInfo> {
        let mut found = Vec::new();
        for node in &self.manifest.nodes {
            let ManifestNodeKind::Operator { slots, .. } = &node.kind else { continue };
            found.extend(slots.iter().map(|slot| SlotInfo::declared(&node.id, slot)));
        }
        let undeclared = self.manifest.state.tables().keys().filter(|table| declared(&self.manifest, table).is_none());
        found.extend(undeclared.map(SlotInfo::undeclared).collect::<Vec<_>>());
        found.sort_by(|a, b| (&a.operator, &a.slot).cmp(&(&b.operator, &b.slot)));
        found
    }

    /// Opens the state of one slot.
    ///
    /// # Errors
    /// [`StoredError::NoSlot`], which names those there are.
    pub fn slot(&self, operator: &str, slot: &str) -> Result<StoredSlot, StoredError> {
        let slots = self.slots();
        let is_it = |info: &&SlotInfo| info.operator == operator && info.slot == slot;
        let (Some(info), Ok(id)) = (slots.iter().find(is_it), OperatorId::new(operator)) else {
            let known = slots.iter().map(|info| format!("{}/{}", info.operator, info.slot)).collect();
            let (operator, slot) = (operator.to_owned(), slot.to_owned());
            return Err(StoredError::NoSlot { checkpoint: self.id(), operator, slot, known });
        };
        let table = TableId { operator: id, slot: slot.to_owned() };
        Ok(StoredSlot::new(self, table, info.clone()))
    }

    /// Returns a reader of all its tables.
    pub(super) fn contents(&self) -> StateContents {
        let (storage, state) = (Arc::clone(&self.storage), self.manifest.state.clone());
        let open = move |id| match state.segment(id) {
            Some(segment) => segment.open(&*storage),
            None => storage.open_segment(id),
        };
        StateContents::new(Arc::new(open), self.manifest.state.clone())
    }

    pub(super) fn storage(&self) -> &Arc<dyn CheckpointStorage> {
        &self.storage
    }
}
