//! A part file: written through compression, measured and hashed; and what a transaction says of it.

use std::fs::File;
use std::io::{self, Write};

use cofferdam_dataflow::connector::{ConnectorError, Transaction};
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use super::Compression;
use super::staging::{Staging, is_staged_name};

const FORMAT: u8 = 1;

/// What a transaction says of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// The name in the staging folder.
    pub(super) staged: String,
    /// The name in the output folder.
    pub(super) name: String,
    /// The file's length in bytes.
    pub(super) length: u64,
    /// The xxh3-128 of the file.
    pub(super) hash: u128,
}

/// Returns a transaction's payload: a format byte, then the parts.
pub(super) fn encode(parts: &[Part]) -> Vec<u8> {
    postcard::to_extend(parts, vec![FORMAT]).expect("names and numbers can always be encoded")
}

/// Reads a transaction's payload. Names that lead out of the sink's folders are no names.
pub(super) fn decode(transaction: &Transaction, staging: &Staging) -> Result<Vec<Part>, ConnectorError> {
    let parts = transaction.payload.split_first().filter(|(format, _)| **format == FORMAT);
    let parts = parts.and_then(|(_, parts)| postcard::from_bytes::<Vec<Part>>(parts).ok());
    let ours = |part: &Part| is_staged_name(&part.staged) && staging.is_part_name(&part.name);
    parts.filter(|parts| parts.iter().all(ours)).ok_or_else(|| {
        let Transaction { checkpoint, subtask, .. } = transaction;
        let message = format!("the transaction of checkpoint {checkpoint}, subtask {subtask}, cannot be read");
        ConnectorError::permanent("transaction-invalid", message)
    })
}

/// Writes to a file, and knows what was written.
pub(super) struct Measured<W> {
    output: W,
    length: u64,
    hash: Xxh3Default,
}

impl<W: Write> Write for Measured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.output.write(bytes)?;
        self.length += count as u64;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// A part that is being written.
pub(super) enum PartWriter {
    Plain(Box<Measured<File>>),
    Gzip(Box<GzEncoder<Measured<File>>>),
    Zstd(Box<zstd::Encoder<'static, Measured<File>>>),
}

impl PartWriter {
    /// Begins a part.
    pub(super) fn new(file: File, compression: Compression) -> io::Result<Self> {
        let output = Measured { output: file, length: 0, hash: Xxh3Default::new() };
        Ok(match compression {
            Compression::None => Self::Plain(Box::new(output)),
            Compression::Gzip => Self::Gzip(Box::new(GzEncoder::new(output, flate2::Compression::default()))),
            Compression::Zstd => Self::Zstd(Box::new(zstd::Encoder::new(output, zstd::DEFAULT_COMPRESSION_LEVEL)?)),
        })
    }

    /// Writes bytes of text.
    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(output) => output.write_all(bytes),
            Self::Gzip(output) => output.write_all(bytes),
            Self::Zstd(output) => output.write_all(bytes),
        }
    }

    /// Ends the part. Returns the file, its length and its hash.
    pub(super) fn finish(self) -> io::Result<(File, u64, u128)> {
        let measured = match self {
            Self::Plain(output) => *output,
            Self::Gzip(output) => output.finish()?,
            Self::Zstd(output) => output.finish()?,
        };
        Ok((measured.output, measured.length, measured.hash.digest128()))
    }
}

/// Returns a file's length and hash.
pub(super) fn measure(file: &mut File) -> io::Result<(u64, u128)> {
    let mut measured = Measured { output: io::sink(), length: 0, hash: Xxh3Default::new() };
    io::copy(file, &mut measured)?;
    Ok((measured.length, measured.hash.digest128()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_when_the_part_is_written_or_ended() {
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let Ok(full) = File::create("/dev/full") else { return };
            let mut part = PartWriter::new(full, compression).unwrap();
            let written = part.write_all(b"a line\n").and_then(|()| part.finish());
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull, "{compression:?}");
        }
    }
}
