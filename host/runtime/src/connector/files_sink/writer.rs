//! Writes the parts of one subtask.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{ConnectorError, Prepared, Sink, Transaction};
use cofferdam_dataflow::ids::CheckpointId;

use super::part::{Part, PartWriter, encode};
use super::staging::{Staging, sync_folder};
use super::{Compression, FilesSinkOptions, Newlines, PART_BYTES, SinkFormat};
use crate::connector::failure::write_failed;

const BUFFER_BYTES: usize = 256 << 10;

/// The sink of one subtask.
pub(super) struct FilesSink {
    staging: Staging,
    subtask: u32,
    format: SinkFormat,
    with_key: bool,
    newlines: Newlines,
    compression: Compression,
    part_bytes: u64,
    /// Unique to this writer: what an earlier one left under the same number is not touched.
    nonce: u64,
    staged: u64,
    /// Lines that have not been handed to the part.
    buffer: Vec<u8>,
    open: Option<OpenPart>,
    /// Closed parts of the open transaction.
    closed: Vec<ClosedPart>,
    _lock: Arc<File>,
}

struct OpenPart {
    writer: PartWriter,
    staged: String,
    path: PathBuf,
    /// Bytes written, before compression.
    bytes: u64,
}

struct ClosedPart {
    file: File,
    path: PathBuf,
    staged: String,
    length: u64,
    hash: u128,
}

impl FilesSink {
    /// Opens a writer with no transaction behind it.
    pub(super) fn open(
        options: &FilesSinkOptions,
        staging: &Staging,
        subtask: u32,
        lock: Arc<File>,
    ) -> Result<Self, ConnectorError> {
        let nonce = getrandom::u64()
            .map_err(|error| ConnectorError::transient("io-read", format!("no random numbers from the system: {error}")))?;
        Ok(Self {
            staging: staging.clone(),
            subtask,
            format: options.format,
            with_key: options.with_key,
            newlines: options.newlines,
            compression: options.compression,
            part_bytes: options.part_bytes.unwrap_or(PART_BYTES).0,
            nonce,
            staged: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            open: None,
            closed: Vec::new(),
            _lock: lock,
        })
    }

    /// Refuses records that a reader could not tell from others. Looks at whole columns: most have nothing to refuse.
    fn check(&self, batch: &Batch) -> Result<(), ConnectorError> {
        let (values, _) = batch.values.parts();
        if self.newlines == Newlines::Refuse && memchr::memchr(b'\n', values).is_some() {
            let message = "a value holds a newline (newlines = \"allow\" writes it as it is)";
            return Err(ConnectorError::permanent("record-has-newline", message));
        }
        match &batch.keys {
            _ if !self.with_key || batch.is_empty() => Ok(()),
            None => Err(ConnectorError::permanent("record-without-key", "with-key is set, but records have no key")),
            Some(keys) if memchr::memchr2(b'\t', b'\n', keys.parts().0).is_some() => {
                Err(ConnectorError::permanent("key-has-separator", "with-key is set, but a key holds a tab or a newline"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Hands the buffer to the part, which is begun if there is none, and closed if it is large enough.
    fn write_out(&mut self) -> Result<(), ConnectorError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut part = match self.open.take() {
            Some(part) => part,
            None => self.begin_part()?,
        };
        part.writer.write_all(&self.buffer).map_err(|error| write_failed("write", &part.path, error))?;
        part.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        self.open = Some(part);
        Ok(())
    }

    fn begin_part(&mut self) -> Result<OpenPart, ConnectorError> {
        let staged = format!("{}-{:016x}-{}", self.subtask, self.nonce, self.staged);
        self.staged += 1;
        let path = self.staging.staged.join(&staged);
        let writer = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|file| PartWriter::new(file, self.compression))
            .map_err(|error| write_failed("create", &path, error))?;
        Ok(OpenPart { writer, staged, path, bytes: 0 })
    }

    fn close_part(&mut self) -> Result<(), ConnectorError> {
        self.write_out()?;
        if let Some(OpenPart { writer, staged, path, .. }) = self.open.take() {
            let (file, length, hash) = writer.finish().map_err(|error| write_failed("write", &path, error))?;
            self.closed.push(ClosedPart { file, path, staged, length, hash });
        }
        Ok(())
    }

    /// Bytes of the open part, before compression.
    fn part_length(&self) -> u64 {
        self.open.as_ref().map_or(0, |part| part.bytes) + self.buffer.len() as u64
    }
}

impl Sink for FilesSink {
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.check(batch)?;
        let keys = batch.keys.as_ref().filter(|_| self.with_key);
        for (index, value) in batch.values.iter().enumerate() {
            if let Some(keys) = keys {
                self.buffer.extend_from_slice(keys.get(index));
                self.buffer.push(b'\t');
            }
            match self.format {
                SinkFormat::Text => self.buffer.extend_from_slice(value),
            }
            self.buffer.push(b'\n');
            if self.part_length() >= self.part_bytes {
                self.close_part()?;
            } else if self.buffer.len() >= BUFFER_BYTES {
                self.write_out()?;
            }
        }
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepared>, ConnectorError> {
        self.close_part()?;
        if self.closed.is_empty() {
            return Ok(None);
        }
        let mut parts = Vec::with_capacity(self.closed.len());
        let mut files = Vec::with_capacity(self.closed.len());
        for (number, part) in self.closed.drain(..).enumerate() {
            let name = self.staging.part_name(self.subtask, checkpoint, number, self.compression);
            parts.push(Part { staged: part.staged, name, length: part.length, hash: part.hash });
            files.push((part.file, part.path));
        }
        let folder = self.staging.staged.clone();
        let make_durable = move || {
            for (file, path) in files {
                file.sync_all().map_err(|error| write_failed("sync", &path, error))?;
            }
            sync_folder(&folder)
        };
        let transaction = Transaction { checkpoint, subtask: self.subtask, payload: encode(&parts) };
        Ok(Some(Prepared { transaction, make_durable: Box::new(make_durable) }))
    }
}
