//! Files of state in a directory: one that is being written, under a temporary name until it is durable, and one that is read.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_dataflow::checkpoint::storage::{Codecs, SegmentFile, SegmentSource, StorageError};

use super::compression;
use super::files::{Files, ReadFile, WrittenFile};
use super::local::failed;

pub(super) struct LocalSegment {
    pub(super) files: Arc<dyn Files>,
    pub(super) path: PathBuf,
    pub(super) temporary: PathBuf,
    /// `None` once it has its name.
    pub(super) file: Option<BufWriter<Box<dyn WrittenFile>>>,
}

impl Write for LocalSegment {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or_else(|| Err(io::ErrorKind::BrokenPipe.into()), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl SegmentFile for LocalSegment {
    fn sync(mut self: Box<Self>) -> Result<(), StorageError> {
        let cannot = |error| failed("write", &self.path, error);
        if let Some(file) = self.file.as_mut() {
            file.flush().map_err(cannot)?;
            file.get_mut().sync().map_err(cannot)?;
        }
        self.files.rename_new(&self.temporary, &self.path).map_err(cannot)?;
        self.file = None;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        self.files.sync_dir(dir).map_err(|error| {
            let _ = self.files.remove(&self.path);
            failed("sync", dir, error)
        })
    }
}

impl Drop for LocalSegment {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // What is buffered is of no use any more.
            drop(file.into_parts());
            let _ = self.files.remove(&self.temporary);
        }
    }
}

pub(super) struct LocalSource {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn ReadFile>,
}

impl SegmentSource for LocalSource {
    fn length(&self) -> u64 {
        self.file.length()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StorageError> {
        self.file.read_exact_at(offset, buffer).map_err(|error| failed("read", &self.path, error))
    }

    fn codecs(&self) -> Codecs {
        compression::codecs()
    }
}
