//! The sink `files`: lines of text in part files that appear whole, once their checkpoint has completed.
//!
//! A part is written under `<path>/.cofferdam-staged/<pipeline>/<sink>/` (staged), made durable before its checkpoint is
//! acknowledged, and moved to `<path>/<pipeline>-<sink>-<subtask>-<checkpoint>[-<n>].txt` when that is committed. Nothing
//! is ever overwritten: a part that is there already must be the very one. Readers that leave out dotted names never see
//! a part that could still be taken back. Each part appears atomically; a transaction of several parts appears part by
//! part.
//!
//! `lock` there keeps a second process with the same pipeline and sink out. `committed` there names the latest
//! transactions that were committed, so that a part that a consumer has taken away is not missed.

mod committer;
mod part;
mod staging;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_dataflow::connector::{ConnectorContext, ConnectorError, Sink, SinkCommitter, SinkFactory, SinkGuarantee};
use serde::Deserialize;

use self::committer::FilesCommitter;
use self::staging::Staging;
use self::writer::FilesSink;
use super::ConnectorPlace;
use super::failure::option_refused;
use super::size::ByteSize;

/// [`FilesSinkOptions::part_bytes`] if not given.
pub const PART_BYTES: ByteSize = ByteSize::mib(256);

/// Options of the sink `files`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FilesSinkOptions {
    /// The folder for the parts, made if there is none; relative to the pipeline file's folder.
    pub path: String,
    /// How records are written.
    #[serde(default)]
    pub format: SinkFormat,
    /// Whether a line begins with the record's key and a tab. Every record must then have a key, without tab and newline.
    #[serde(default)]
    pub with_key: bool,
    /// What a value that holds a newline does.
    #[serde(default)]
    pub newlines: Newlines,
    /// A part is closed and the next begun when it has so many bytes before compression; 256 MiB if not given.
    pub part_bytes: Option<ByteSize>,
    /// How parts are compressed.
    #[serde(default)]
    pub compression: Compression,
}

/// How records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SinkFormat {
    /// Each value as it is, and a newline.
    #[default]
    Text,
}

/// What a value that holds a newline does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Newlines {
    /// It fails the sink: a reader could not tell it from two records.
    #[default]
    Refuse,
    /// It is written as it is.
    Allow,
}

/// How parts are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip; names end in `.gz`.
    Gzip,
    /// zstd; names end in `.zst`.
    Zstd,
}

impl Compression {
    fn extension(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }
}

struct FilesSinkFactory {
    options: FilesSinkOptions,
    staging: Staging,
    /// Held open as long as this sink or what it opened lives.
    lock: Mutex<Option<Arc<File>>>,
}

/// Returns the sink `files`. Touches no file yet.
///
/// # Errors
/// `option-refused` if an option is out of range.
pub fn files_sink(options: &FilesSinkOptions, place: &ConnectorPlace) -> Result<Arc<dyn SinkFactory>, ConnectorError> {
    if options.part_bytes == Some(ByteSize(0)) {
        return Err(option_refused("part-bytes is 0; it must be at least 1"));
    }
    if options.path.is_empty() {
        return Err(option_refused("path is empty"));
    }
    let staging = Staging::new(&place.base_dir.join(&options.path), &place.pipeline, &place.id);
    Ok(Arc::new(FilesSinkFactory { options: options.clone(), staging, lock: Mutex::new(None) }))
}

impl FilesSinkFactory {
    /// Makes the folders and locks them, unless that is done.
    fn prepare(&self) -> Result<Arc<File>, ConnectorError> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = &*lock {
            return Ok(Arc::clone(lock));
        }
        let locked = Arc::new(self.staging.create()?);
        *lock = Some(Arc::clone(&locked));
        Ok(locked)
    }
}

impl SinkFactory for FilesSinkFactory {
    fn guarantee(&self) -> SinkGuarantee {
        SinkGuarantee::Transactional
    }

    fn open(&self, context: &ConnectorContext) -> Result<Box<dyn Sink>, ConnectorError> {
        let lock = self.prepare()?;
        Ok(Box::new(FilesSink::open(&self.options, &self.staging, context.subtask, lock)?))
    }

    fn committer(&self) -> Result<Option<Box<dyn SinkCommitter>>, ConnectorError> {
        let lock = self.prepare()?;
        Ok(Some(Box::new(FilesCommitter::open(&self.staging, lock)?)))
    }
}
