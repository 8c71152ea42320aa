//! The source `files`: text, JSON lines or CSV from local files, gzip and zstd by extension.
//!
//! Each file is a split. A position is the uncompressed offset of a record's start, with fingerprints of the bytes
//! before it, so that a file that shrank or changed is told from one that has grown. A file that was read to its end is
//! not opened again, whatever was appended since. Never blocks; a poll reads about 256 KiB.

mod csv;
mod discover;
mod lines;
mod options;
mod pick;
mod position;
mod reader;
mod source;
mod stream;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_dataflow::connector::{
    ConnectorContext, ConnectorError, Source, SourceFactory, SourceGuarantee, Split, SplitPosition,
};

pub use options::{DELIMITER, FilesSourceOptions, Format, LINE_BYTES_MAX, OnMalformed};
pub use pick::{InvalidPointer, JsonPointer};

use super::ConnectorPlace;

struct FilesSourceFactory {
    base: PathBuf,
    path: String,
    allow_empty: bool,
    settings: Arc<options::Settings>,
}

/// Returns the source `files`. Looks at no file yet.
///
/// # Errors
/// `option-refused` if options contradict each other.
pub fn files_source(options: &FilesSourceOptions, place: &ConnectorPlace) -> Result<Arc<dyn SourceFactory>, ConnectorError> {
    let settings = Arc::new(options::Settings::new(options)?);
    let (base, path) = (place.base_dir.clone(), options.path.clone());
    Ok(Arc::new(FilesSourceFactory { base, path, allow_empty: options.allow_empty, settings }))
}

impl SourceFactory for FilesSourceFactory {
    fn guarantee(&self) -> SourceGuarantee {
        SourceGuarantee { replayable: true, bounded: !self.settings.follow }
    }

    fn has_event_time(&self) -> bool {
        self.settings.event_time.is_some()
    }

    fn declares_watermarks(&self) -> bool {
        self.settings.watermark.is_some()
    }

    fn declares_idleness(&self) -> bool {
        self.settings.follow
    }

    fn discover(&self, _: u32) -> Result<Vec<Split>, ConnectorError> {
        discover::discover(&self.base, &self.path, self.allow_empty)
    }

    fn open(&self, _: &ConnectorContext, splits: Vec<(Split, Option<SplitPosition>)>) -> Result<Box<dyn Source>, ConnectorError> {
        Ok(Box::new(source::FilesSource::open(self.base.clone(), Arc::clone(&self.settings), splits)?))
    }
}
