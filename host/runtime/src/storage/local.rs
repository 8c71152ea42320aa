//! Checkpoints in a directory.
//!
//! ```text
//! <dir>/lock                  held by the process that owns the directory; holds its id
//! <dir>/fence                 the newest attempt, whose it is, and a checkpoint id at or above all older ones
//! <dir>/finished              the last checkpoint of a job that has finished
//! <dir>/segments/<name>.seg   keyed state
//! <dir>/chk-<id>/_manifest    makes the checkpoint exist
//! <dir>/chk-<id>/_committed   all its transactions have been committed
//! <dir>/chk-<id>/_claimed     the savepoint that goes with it
//! ```
//!
//! A savepoint is a folder of its own: see [`super::savepoint`].
//!
//! A file is written under a temporary name (`.tmp`), synced, renamed, and its directory is synced. A manifest and a
//! segment never replace anything. After a failed sync a file is given up: whatever a later sync says, its pages may be gone.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::segment::{Compressor, INLINE_BYTES_MAX, SegmentId};
use cofferdam_dataflow::checkpoint::storage::{
    CheckpointStorage, Codecs, Fence, NewSavepoint, SegmentFile, SegmentSource, StorageError, StorageErrorKind,
};
use cofferdam_dataflow::ids::{Attempt, CheckpointId};

use super::compression::{self, Compression};
use super::files::{Files, HostFiles};
use super::mark;
use super::segment_file::{LocalSegment, LocalSource};

const LOCK: &str = "lock";
const FENCE: &str = "fence";
const FINISHED: &str = "finished";
pub(super) const SEGMENTS: &str = "segments";
pub(super) const MANIFEST: &str = "_manifest";
pub(super) const COMMITTED: &str = "_committed";
pub(super) const CLAIMED: &str = "_claimed";
const TEMPORARY: &str = ".tmp";
/// No manifest is larger; a larger file is damaged.
pub(super) const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// A directory of checkpoints. Owned by one process at a time, or opened for reading only.
pub struct LocalStorage {
    pub(super) dir: PathBuf,
    pub(super) files: Arc<dyn Files>,
    /// For a savepoint's folder, read as a storage of its own: its id.
    savepoint: Option<CheckpointId>,
    /// Held for life; `None` for reading only.
    lock: Option<File>,
    is_owner: bool,
    compression: Compression,
    inline_bytes_max: usize,
    /// Tells this process from others in the fence.
    owner: u64,
}

impl LocalStorage {
    /// Returns the storage of a directory that this process owns, without a lock and not looked into.
    fn over(dir: &Path, files: Arc<dyn Files>) -> Self {
        Self {
            dir: dir.to_owned(),
            files,
            savepoint: None,
            lock: None,
            is_owner: true,
            compression: Compression::default(),
            inline_bytes_max: INLINE_BYTES_MAX,
            owner: 0,
        }
    }

    /// Opens a directory and takes its lock. Creates it, for its owner only, if it does not exist.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::Fenced`] if another process holds the lock.
    pub fn open(dir: &Path) -> Result<Self, StorageError> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir).map_err(|error| failed("create", dir, error))?;
        let lock = lock(dir)?;
        let storage = Self { lock: Some(lock), ..Self::over(dir, Arc::new(HostFiles)) };
        storage.prepare()?;
        // The directory's own name: without it, all that is synced below could vanish.
        let parent = dir.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
        if let Some(parent) = parent {
            storage.sync_dir(&parent)?;
        }
        Ok(storage)
    }

    /// Opens a directory for reading only, beside a process that owns it. Whatever would change it is refused. The folder
    /// of a savepoint is a directory with one checkpoint.
    ///
    /// # Errors
    /// [`StorageError`] if the directory cannot be read.
    pub fn open_to_read(dir: &Path) -> Result<Self, StorageError> {
        let mut storage = Self { is_owner: false, ..Self::over(dir, Arc::new(HostFiles)) };
        storage.list(dir)?;
        if storage.exists(&dir.join(MANIFEST))? {
            let bytes = storage.read(&dir.join(MANIFEST), MANIFEST_BYTES_MAX)?;
            // An unreadable one is shown as damaged, whatever its number.
            let id = CheckpointManifest::decode(&bytes).map_or(CheckpointId(0), |manifest| manifest.checkpoint);
            storage.savepoint = Some(id);
        }
        Ok(storage)
    }

    /// Uses a directory of other files than the host's. It is empty or was used so before.
    #[cfg(test)]
    pub(super) fn with_files(dir: &Path, files: Arc<dyn Files>) -> Result<Self, StorageError> {
        let storage = Self::over(dir, files);
        storage.prepare()?;
        Ok(storage)
    }

    /// Compresses new segments in this way. Old ones are read whatever they were compressed with.
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Writes this number into the fence, beside the attempts that it begins: with a number that no other process has, two processes
    /// that begin the same attempt without a working lock are told apart, and the one that came first changes nothing any more.
    #[must_use]
    pub fn with_owner(mut self, owner: u64) -> Self {
        self.owner = owner;
        self
    }

    /// Makes files of new segments that are larger than this, in bytes; smaller ones are parts of manifests. More than
    /// [`INLINE_BYTES_MAX`] counts as that.
    #[must_use]
    pub fn with_inline_bytes(mut self, bytes_max: usize) -> Self {
        self.inline_bytes_max = bytes_max.min(INLINE_BYTES_MAX);
        self
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it holds the lock.
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// Returns the id of the process that holds the lock, as far as this host shows it. Asks without taking the lock, which could
    /// be in the way of a host that starts; so this is for people, and nothing may be deleted for it.
    ///
    /// # Errors
    /// [`StorageError`] if the directory cannot be read.
    pub fn owner(&self) -> Result<Option<u32>, StorageError> {
        let path = self.dir.join(LOCK);
        let inode = match std::fs::metadata(&path) {
            Ok(metadata) => format!(":{}", metadata.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open", &path, error)),
        };
        // Such as "1: FLOCK  ADVISORY  WRITE 345 fe:01:786451 0 EOF". Not every system has it.
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let mut fields = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let held = fields.find(|fields| fields.len() > 5 && fields[1] == "FLOCK" && fields[5].ends_with(&inode));
        Ok(held.and_then(|fields| fields[4].parse().ok()))
    }

    /// Returns what [`CheckpointStorage::remove_leftovers`] would remove, as paths in the directory: files that are half written,
    /// folders of checkpoints that have no manifest.
    ///
    /// # Errors
    /// [`StorageError`] if the directory cannot be read.
    pub fn leftovers(&self) -> Result<Vec<String>, StorageError> {
        let mut found = Vec::new();
        let mut half_written = |prefix: &str, dir: &Path| -> Result<(), StorageError> {
            let names = self.list(dir)?.into_iter().filter(|name| name.ends_with(TEMPORARY));
            found.extend(names.map(|name| format!("{prefix}{name}")));
            Ok(())
        };
        half_written("", &self.dir)?;
        half_written("segments/", &self.dir.join(SEGMENTS))?;
        for id in self.checkpoint_dirs()? {
            half_written(&format!("chk-{id}/"), &self.checkpoint_dir(id))?;
        }
        for id in self.checkpoint_dirs()? {
            if !self.exists(&self.checkpoint_dir(id).join(MANIFEST))? {
                found.push(format!("chk-{id}/"));
            }
        }
        found.sort();
        Ok(found)
    }

    fn prepare(&self) -> Result<(), StorageError> {
        let segments = self.dir.join(SEGMENTS);
        match self.files.create_dir(&segments) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("create", &segments, error)),
            Ok(()) | Err(_) => {}
        }
        self.sync_dir(&self.dir)
    }

    pub(super) fn checkpoint_dir(&self, id: CheckpointId) -> PathBuf {
        if self.savepoint.is_some() { self.dir.clone() } else { self.dir.join(format!("chk-{id}")) }
    }

    pub(super) fn segment_path(&self, id: SegmentId) -> PathBuf {
        self.dir.join(SEGMENTS).join(format!("{id}.seg"))
    }

    pub(super) fn check_owner(&self) -> Result<(), StorageError> {
        if self.is_owner {
            return Ok(());
        }
        let message = format!("{} was opened for reading only", self.dir.display());
        Err(StorageError::new(StorageErrorKind::Fenced, message))
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> Result<(), StorageError> {
        self.files.sync_dir(dir).map_err(|error| failed("sync", dir, error))
    }

    pub(super) fn list(&self, dir: &Path) -> Result<Vec<String>, StorageError> {
        self.files.list(dir).map_err(|error| failed("list", dir, error))
    }

    /// Removes a file; a missing one is fine. Not durable.
    pub(super) fn remove(&self, path: &Path) -> Result<(), StorageError> {
        match self.files.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn read(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, StorageError> {
        let file = self.files.open(path).map_err(|error| failed("open", path, error))?;
        let length = usize::try_from(file.length()).ok().filter(|length| *length as u64 <= bytes_max);
        let Some(length) = length else {
            let message = format!("{} has {} bytes, which is too many", path.display(), file.length());
            return Err(StorageError::new(StorageErrorKind::Damaged, message));
        };
        let mut bytes = vec![0; length];
        file.read_exact_at(0, &mut bytes).map_err(|error| failed("read", path, error))?;
        Ok(bytes)
    }

    pub(super) fn read_if_there(&self, path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        match self.read(path, 4096) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind == StorageErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn exists(&self, path: &Path) -> Result<bool, StorageError> {
        match self.files.open(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("open", path, error)),
        }
    }

    /// Writes and syncs `<path>.tmp`. Leaves nothing behind on an error.
    pub(super) fn write_temporary(&self, path: &Path, bytes: &[u8]) -> Result<PathBuf, StorageError> {
        let temporary = temporary(path);
        self.remove(&temporary)?;
        let write = || {
            let mut file = self.files.create(&temporary)?;
            file.write_all(bytes)?;
            file.sync()
        };
        match write() {
            Ok(()) => Ok(temporary),
            Err(error) => {
                // What remains is removed by the next start if not here; the first error is the one to tell.
                let _ = self.files.remove(&temporary);
                Err(failed("write", path, error))
            }
        }
    }

    /// Writes a mark durably, over what is there.
    pub(super) fn write_mark(&self, path: &Path, kind: &str, numbers: &[(&str, u64)]) -> Result<(), StorageError> {
        self.write_mark_text(path, &mark::encode(kind, numbers))
    }

    fn write_mark_text(&self, path: &Path, text: &str) -> Result<(), StorageError> {
        self.check_owner()?;
        let temporary = self.write_temporary(path, text.as_bytes())?;
        self.files.replace(&temporary, path).map_err(|error| failed("replace", path, error).with_unknown_outcome())?;
        self.sync_parent(path).map_err(StorageError::with_unknown_outcome)
    }

    /// Returns the fence and whose it is; 0 if it is nobody's, or was written by a host that did not say.
    fn owned_fence(&self) -> Result<(Fence, u64), StorageError> {
        let path = self.dir.join(FENCE);
        let Some(text) = self.read_if_there(&path)? else { return Ok((Fence::default(), 0)) };
        let owned = mark::decode_version(mark::OWNED_VERSION, "fence", ["attempt", "checkpoint", "owner"], &text);
        match owned.or_else(|| mark::decode("fence", ["attempt", "checkpoint"], &text).map(|[a, c]| [a, c, 0])) {
            Some([attempt, checkpoint, owner]) => Ok((Fence { attempt, checkpoint }, owner)),
            None => Err(damaged(&path)),
        }
    }

    fn write_fence(&self, fence: Fence) -> Result<(), StorageError> {
        let numbers = [("attempt", fence.attempt), ("checkpoint", fence.checkpoint), ("owner", self.owner)];
        let text = mark::encode_version(mark::OWNED_VERSION, "fence", &numbers);
        self.write_mark_text(&self.dir.join(FENCE), &text)
    }

    pub(super) fn sync_parent(&self, path: &Path) -> Result<(), StorageError> {
        self.sync_dir(path.parent().unwrap_or(&self.dir))
    }

    fn checkpoint_dirs(&self) -> Result<Vec<CheckpointId>, StorageError> {
        if let Some(id) = self.savepoint {
            return Ok(vec![id]);
        }
        let parse = |name: String| {
            let id = CheckpointId(name.strip_prefix("chk-")?.parse().ok()?);
            (format!("chk-{id}") == name).then_some(id)
        };
        let mut ids: Vec<_> = self.list(&self.dir)?.into_iter().filter_map(parse).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Removes the temporary files of a directory.
    pub(super) fn remove_temporary(&self, dir: &Path) -> Result<usize, StorageError> {
        let names: Vec<_> = self.list(dir)?.into_iter().filter(|name| name.ends_with(TEMPORARY)).collect();
        names.iter().try_for_each(|name| self.remove(&dir.join(name)))?;
        Ok(names.len())
    }
}

impl CheckpointStorage for LocalStorage {
    fn fence(&self) -> Result<Fence, StorageError> {
        Ok(self.owned_fence()?.0)
    }

    fn check_fence(&self, attempt: Attempt) -> Result<(), StorageError> {
        let (newest, owner) = self.owned_fence()?;
        let message = if newest.attempt != attempt.0 {
            format!("attempt {attempt} is not the newest, which is {}; another process has taken the job over", newest.attempt)
        } else if owner != self.owner {
            format!("attempt {attempt} is that of another process, which has taken the job over")
        } else {
            return Ok(());
        };
        Err(StorageError::new(StorageErrorKind::Fenced, message))
    }

    fn raise_fence(&self, fence: Fence) -> Result<(), StorageError> {
        let newest = self.fence()?.attempt;
        if fence.attempt <= newest {
            let message = format!("attempt {} of {} is not above {newest}", fence.attempt, self.dir.display());
            return Err(StorageError::new(StorageErrorKind::Fenced, message));
        }
        self.write_fence(fence)?;
        // Another process may have read the same old fence, and written its own over this one.
        self.check_fence(Attempt(fence.attempt))?;
        // A name that an interrupted publish left in memory only becomes durable here, or is seen not to be there.
        for id in self.checkpoint_dirs()? {
            self.sync_dir(&self.checkpoint_dir(id))?;
        }
        Ok(())
    }

    fn create_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentFile>, StorageError> {
        self.check_owner()?;
        let path = self.segment_path(id);
        if self.exists(&path)? {
            return Err(StorageError::new(StorageErrorKind::Exists, format!("{} exists already", path.display())));
        }
        let temporary = temporary(&path);
        let file = self.files.create(&temporary).map_err(|error| failed("create", &temporary, error))?;
        let file = Some(BufWriter::with_capacity(256 << 10, file));
        Ok(Box::new(LocalSegment { files: Arc::clone(&self.files), path, temporary, file }))
    }

    fn compressor(&self) -> Box<dyn Compressor> {
        self.compression.compressor()
    }

    fn codecs(&self) -> Codecs {
        compression::codecs()
    }

    fn inline_bytes_max(&self) -> usize {
        self.inline_bytes_max
    }

    fn open_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentSource>, StorageError> {
        let path = self.segment_path(id);
        let file = self.files.open(&path).map_err(|error| failed("open", &path, error))?;
        Ok(Box::new(LocalSource { path, file }))
    }

    fn segments(&self) -> Result<Vec<SegmentId>, StorageError> {
        let names = self.list(&self.dir.join(SEGMENTS))?;
        let mut ids: Vec<SegmentId> = names.iter().filter_map(|name| name.strip_suffix(".seg")?.parse().ok()).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn delete_segment(&self, id: SegmentId) -> Result<(), StorageError> {
        self.check_owner()?;
        self.remove(&self.segment_path(id))
    }

    fn publish_manifest(&self, attempt: Attempt, id: CheckpointId, bytes: &[u8]) -> Result<(), StorageError> {
        self.check_owner()?;
        self.check_fence(attempt)?;
        let dir = self.checkpoint_dir(id);
        let path = dir.join(MANIFEST);
        match self.files.create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("create", &dir, error)),
            Ok(()) | Err(_) => self.sync_dir(&self.dir)?,
        }
        let temporary = self.write_temporary(&path, bytes).inspect_err(|_| {
            let _ = self.files.remove_dir(&dir);
        })?;
        if let Err(error) = self.files.rename_new(&temporary, &path) {
            let exists = error.kind() == io::ErrorKind::AlreadyExists;
            let error = failed("publish", &path, error);
            let _ = self.files.remove(&temporary);
            return Err(if exists { error } else { error.with_unknown_outcome() });
        }
        self.sync_dir(&dir).map_err(StorageError::with_unknown_outcome)
    }

    fn manifests(&self) -> Result<Vec<CheckpointId>, StorageError> {
        let mut ids = self.checkpoint_dirs()?;
        let mut error = None;
        ids.retain(|id| match self.exists(&self.checkpoint_dir(*id).join(MANIFEST)) {
            Ok(exists) => exists,
            Err(failure) => {
                error = Some(failure);
                false
            }
        });
        error.map_or(Ok(ids), Err)
    }

    fn read_manifest(&self, id: CheckpointId) -> Result<Vec<u8>, StorageError> {
        self.read(&self.checkpoint_dir(id).join(MANIFEST), MANIFEST_BYTES_MAX)
    }

    fn delete_checkpoint(&self, id: CheckpointId) -> Result<(), StorageError> {
        self.check_owner()?;
        let dir = self.checkpoint_dir(id);
        if !self.list(&self.dir)?.contains(&format!("chk-{id}")) {
            return Ok(());
        }
        self.delete_claimed(&dir)?;
        self.remove(&dir.join(MANIFEST))?;
        // Before anything else goes: a manifest that came back without its mark would be committed again.
        self.sync_dir(&dir)?;
        self.remove(&dir.join(COMMITTED))?;
        self.remove(&dir.join(CLAIMED))?;
        self.remove_temporary(&dir)?;
        self.files.remove_dir(&dir).map_err(|error| failed("remove", &dir, error))?;
        self.sync_dir(&self.dir)
    }

    fn mark_committed(&self, id: CheckpointId) -> Result<(), StorageError> {
        let dir = self.checkpoint_dir(id);
        self.write_mark(&dir.join(COMMITTED), "committed", &[("checkpoint", id.0)])
    }

    fn is_committed(&self, id: CheckpointId) -> Result<bool, StorageError> {
        let path = self.checkpoint_dir(id).join(COMMITTED);
        let Some(text) = self.read_if_there(&path)? else { return Ok(false) };
        match mark::decode("committed", ["checkpoint"], &text) {
            Some([checkpoint]) if checkpoint == id.0 => Ok(true),
            Some(_) | None => Err(damaged(&path)),
        }
    }

    fn finished(&self) -> Result<Option<CheckpointId>, StorageError> {
        let path = self.dir.join(FINISHED);
        let Some(text) = self.read_if_there(&path)? else { return Ok(None) };
        match mark::decode("finished", ["checkpoint"], &text) {
            Some([checkpoint]) => Ok(Some(CheckpointId(checkpoint))),
            None => Err(damaged(&path)),
        }
    }

    fn mark_finished(&self, id: CheckpointId) -> Result<(), StorageError> {
        self.write_mark(&self.dir.join(FINISHED), "finished", &[("checkpoint", id.0)])
    }

    fn clear_finished(&self) -> Result<(), StorageError> {
        self.check_owner()?;
        self.remove(&self.dir.join(FINISHED))?;
        self.sync_dir(&self.dir)
    }

    fn publish_savepoint(&self, attempt: Attempt, savepoint: NewSavepoint<'_>) -> Result<(), StorageError> {
        self.check_owner()?;
        self.check_fence(attempt)?;
        let fence = self.fence()?;
        if fence.checkpoint < savepoint.checkpoint.0 {
            // The folder may be moved away: nothing else here tells that the id is used.
            self.write_fence(Fence { checkpoint: savepoint.checkpoint.0, ..fence })?;
        }
        self.write_savepoint(savepoint)
    }

    fn mark_savepoint_committed(&self, path: &str, id: CheckpointId) -> Result<(), StorageError> {
        self.write_mark(&Path::new(path).join(COMMITTED), "committed", &[("checkpoint", id.0)])
    }

    fn delete_savepoint(&self, path: &str) -> Result<(), StorageError> {
        self.check_owner()?;
        self.remove_savepoint(Path::new(path))
    }

    fn claim_savepoint(&self, path: &str, for_checkpoint: CheckpointId) -> Result<(), StorageError> {
        self.check_owner()?;
        self.write_claim(path, for_checkpoint)
    }

    fn remove_leftovers(&self) -> Result<usize, StorageError> {
        self.check_owner()?;
        let mut removed = self.remove_temporary(&self.dir)? + self.remove_temporary(&self.dir.join(SEGMENTS))?;
        for id in self.checkpoint_dirs()? {
            let dir = self.checkpoint_dir(id);
            removed += self.remove_temporary(&dir)?;
            if !self.exists(&dir.join(MANIFEST))? {
                self.delete_checkpoint(id)?;
            }
        }
        Ok(removed)
    }
}

pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}

pub(super) fn failed(act: &str, path: &Path, error: io::Error) -> StorageError {
    StorageError::io(format!("cannot {act} {}", path.display()), error)
}

pub(super) fn damaged(path: &Path) -> StorageError {
    StorageError::new(StorageErrorKind::Damaged, format!("{} is damaged", path.display()))
}

/// Takes the lock of a directory, for as long as the file is open: the kernel releases it when the process is gone.
fn lock(dir: &Path) -> Result<File, StorageError> {
    let path = dir.join(LOCK);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(|error| failed("open", &path, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            let mut owner = String::new();
            // The other process may be about to write its id.
            let known = Read::by_ref(&mut file).take(32).read_to_string(&mut owner).is_ok() && !owner.trim().is_empty();
            let owner = if known { format!("process {}", owner.trim()) } else { "another process".into() };
            let message = format!("{} is in use by {owner}", dir.display());
            return Err(StorageError::new(StorageErrorKind::Fenced, message));
        }
        Err(std::fs::TryLockError::Error(error)) => return Err(failed("lock", &path, error)),
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(|error| failed("write", &path, error))?;
    Ok(file)
}
