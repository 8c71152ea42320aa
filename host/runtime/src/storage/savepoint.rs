//! Savepoints: folders that stand on their own, wherever they are.
//!
//! ```text
//! <savepoint>/segments/<name>.seg   keyed state: all of it
//! <savepoint>/_manifest             makes the savepoint exist; names nothing but these files
//! <savepoint>/_committed            all its transactions have been committed
//! ```
//!
//! Segments are written in the job's own directory first, where a crash leaves nothing that the next start does not remove,
//! and get a second name here (or are copied, to another file system). Then comes the manifest.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cofferdam_dataflow::checkpoint::segment::SegmentId;
use cofferdam_dataflow::checkpoint::storage::{NewSavepoint, SegmentSource, SnapshotSource, StorageError, StorageErrorKind};
use cofferdam_dataflow::ids::CheckpointId;

use super::files::{Files, HostFiles};
use super::local::{CLAIMED, COMMITTED, LocalStorage, MANIFEST, MANIFEST_BYTES_MAX, SEGMENTS, damaged, failed};
use super::mark;
use super::segment_file::LocalSource;

const COPY_BYTES: usize = 256 << 10;

/// A savepoint's folder, or that of a checkpoint in a job's directory. Only read.
pub struct LocalSnapshot {
    dir: PathBuf,
    segments: PathBuf,
    files: HostFiles,
}

impl LocalSnapshot {
    /// Opens a folder that holds a manifest.
    ///
    /// # Errors
    /// [`StorageError`], of kind [`StorageErrorKind::NotFound`] if it holds none.
    pub fn open(dir: &Path) -> Result<Self, StorageError> {
        let files = HostFiles;
        let manifest = dir.join(MANIFEST);
        files.open(&manifest).map_err(|error| failed("open", &manifest, error))?;
        let own = dir.join(SEGMENTS);
        let segments = if own.is_dir() { own } else { dir.join("..").join(SEGMENTS) };
        Ok(Self { dir: dir.to_owned(), segments, files })
    }

    /// Whether it is a savepoint's, which needs nothing outside of it.
    pub fn is_savepoint(&self) -> bool {
        self.segments.parent() == Some(&self.dir)
    }
}

impl SnapshotSource for LocalSnapshot {
    fn read_manifest(&self) -> Result<Vec<u8>, StorageError> {
        let path = self.dir.join(MANIFEST);
        let file = self.files.open(&path).map_err(|error| failed("open", &path, error))?;
        let length = usize::try_from(file.length()).ok().filter(|length| *length as u64 <= MANIFEST_BYTES_MAX);
        let mut bytes = vec![0; length.ok_or_else(|| damaged(&path))?];
        file.read_exact_at(0, &mut bytes).map_err(|error| failed("read", &path, error))?;
        Ok(bytes)
    }

    fn is_committed(&self) -> Result<bool, StorageError> {
        let path = self.dir.join(COMMITTED);
        match std::fs::read(&path) {
            Ok(text) if mark::decode("committed", ["checkpoint"], &text).is_some() => Ok(true),
            Ok(_) => Err(damaged(&path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("read", &path, error)),
        }
    }

    fn open_segment(&self, id: SegmentId) -> Result<Box<dyn SegmentSource>, StorageError> {
        let path = self.segments.join(format!("{id}.seg"));
        let file = self.files.open(&path).map_err(|error| failed("open", &path, error))?;
        Ok(Box::new(LocalSource { path, file }))
    }
}

impl LocalStorage {
    /// Writes a savepoint's folder, which may be there if it is empty. Leaves nothing in it on an error.
    pub(super) fn write_savepoint(&self, savepoint: NewSavepoint<'_>) -> Result<(), StorageError> {
        let dir = Path::new(savepoint.path);
        self.create_dirs(dir).inspect_err(|_| {
            // As below; whatever is in it stays.
            let _ = self.files.remove_dir(dir);
        })?;
        if !self.list(dir)?.is_empty() {
            let message = format!("{} exists and is not empty", dir.display());
            return Err(StorageError::new(StorageErrorKind::Exists, message));
        }
        self.fill_savepoint(dir, savepoint).inspect_err(|_| {
            // The first error is the one to tell; what is left has no manifest.
            let _ = self.remove_savepoint(dir);
        })
    }

    fn fill_savepoint(&self, dir: &Path, savepoint: NewSavepoint<'_>) -> Result<(), StorageError> {
        let segments = dir.join(SEGMENTS);
        self.files.create_dir(&segments).map_err(|error| failed("create", &segments, error))?;
        for id in savepoint.segments {
            let (from, to) = (self.segment_path(*id), segments.join(format!("{id}.seg")));
            if self.files.link(&from, &to).is_err() {
                self.copy(&from, &to)?;
            }
        }
        self.sync_dir(&segments)?;
        let manifest = dir.join(MANIFEST);
        let temporary = self.write_temporary(&manifest, savepoint.manifest)?;
        self.files.rename_new(&temporary, &manifest).map_err(|error| failed("publish", &manifest, error))?;
        self.sync_dir(dir)
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        let source = self.files.open(from).map_err(|error| failed("open", from, error))?;
        let cannot = |error| failed("write", to, error);
        let mut file = self.files.create(to).map_err(cannot)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = 0;
        while at < source.length() {
            let step = usize::try_from(source.length() - at).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
            source.read_exact_at(at, &mut buffer[..step]).map_err(|error| failed("read", from, error))?;
            file.write_all(&buffer[..step]).map_err(cannot)?;
            at += step as u64;
        }
        file.sync().map_err(cannot)
    }

    /// Creates a directory and those above it, durably.
    fn create_dirs(&self, dir: &Path) -> Result<(), StorageError> {
        let parent = dir.parent().unwrap_or(Path::new("/"));
        let created = match self.files.create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && parent != dir => {
                self.create_dirs(parent)?;
                self.files.create_dir(dir)
            }
            result => result,
        };
        match created {
            Ok(()) => self.sync_dir(parent),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(failed("create", dir, error)),
        }
    }

    /// Removes what a savepoint consists of, and its folder if nothing else is in it.
    pub(super) fn remove_savepoint(&self, dir: &Path) -> Result<(), StorageError> {
        match self.list(dir) {
            Err(error) if error.kind == StorageErrorKind::NotFound => return Ok(()),
            result => result?,
        };
        self.remove(&dir.join(MANIFEST))?;
        self.sync_dir(dir)?;
        self.remove(&dir.join(COMMITTED))?;
        self.remove_temporary(dir)?;
        let segments = dir.join(SEGMENTS);
        if let Ok(names) = self.list(&segments) {
            let ours = |name: &&String| name.strip_suffix(".seg").is_some_and(|id| id.parse::<SegmentId>().is_ok());
            names.iter().filter(ours).try_for_each(|name| self.remove(&segments.join(name)))?;
            self.files.remove_dir(&segments).map_err(|error| failed("remove", &segments, error))?;
        }
        self.files.remove_dir(dir).map_err(|error| failed("remove", dir, error))?;
        self.sync_dir(dir.parent().unwrap_or(Path::new("/")))
    }

    /// Notes that a savepoint goes with a checkpoint, whose directory it creates.
    pub(super) fn write_claim(&self, path: &str, id: CheckpointId) -> Result<(), StorageError> {
        let dir = self.checkpoint_dir(id);
        self.create_dirs(&dir)?;
        let claim = dir.join(CLAIMED);
        let temporary = self.write_temporary(&claim, mark::encode_text("claimed", path).as_bytes())?;
        self.files.replace(&temporary, &claim).map_err(|error| failed("replace", &claim, error))?;
        self.sync_dir(&dir)
    }

    /// Deletes the savepoint that goes with a checkpoint. The claim of one that was never published counts for nothing.
    pub(super) fn delete_claimed(&self, dir: &Path) -> Result<(), StorageError> {
        let claim = dir.join(CLAIMED);
        let Some(text) = self.read_if_there(&claim)? else { return Ok(()) };
        if !self.exists(&dir.join(MANIFEST))? {
            return Ok(());
        }
        let path = mark::decode_text("claimed", &text).ok_or_else(|| damaged(&claim))?;
        if let Err(error) = self.remove_savepoint(Path::new(&path)) {
            // It is not worth more than the checkpoint that goes.
            tracing::warn!(%error, path, "could not delete the savepoint that was claimed");
        }
        Ok(())
    }
}
