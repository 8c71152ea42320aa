//! The uncompressed bytes of a file.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

/// A file that is read as what it holds once decompressed.
pub(super) struct ByteStream {
    input: Input,
    taken: Rc<Cell<u64>>,
}

enum Input {
    Plain(Counted),
    Gzip(Box<MultiGzDecoder<BufReader<Counted>>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<Counted>>>),
}

/// A file, and how much of it (as stored) has been taken.
struct Counted {
    file: File,
    taken: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.taken.set(self.taken.get() + count as u64);
        Ok(count)
    }
}

/// Whether a file's name says that it is compressed.
pub(super) fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz" || extension == "zst")
}

impl ByteStream {
    /// Returns the length in bytes of the file at a path; `None` if that is another file than the one that is read.
    pub(super) fn is_file_at(&self, path: &Path) -> io::Result<Option<u64>> {
        let Input::Plain(input) = &self.input else { return Ok(None) };
        let (there, own) = (std::fs::metadata(path)?, input.file.metadata()?);
        let is_same = (there.dev(), there.ino()) == (own.dev(), own.ino());
        Ok(is_same.then_some(there.len()))
    }

    /// Opens a file; one whose name ends in `.gz` or `.zst` is decompressed, all its members or frames.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        const BUFFER: usize = 64 << 10;
        let taken = Rc::new(Cell::new(0));
        let stored = Counted { file: File::open(path)?, taken: Rc::clone(&taken) };
        let input = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Input::Gzip(Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, stored)))),
            Some("zst") => Input::Zstd(Box::new(zstd::Decoder::with_buffer(BufReader::with_capacity(BUFFER, stored))?)),
            _ => Input::Plain(stored),
        };
        Ok(Self { input, taken })
    }

    /// Reads some bytes; none at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let result = match &mut self.input {
                Input::Plain(input) => input.read(buffer),
                Input::Gzip(input) => input.read(buffer),
                Input::Zstd(input) => input.read(buffer),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Returns the file's length in bytes, if it is not compressed.
    pub(super) fn plain_length(&self) -> io::Result<Option<u64>> {
        let Input::Plain(input) = &self.input else { return Ok(None) };
        input.file.metadata().map(|metadata| Some(metadata.len()))
    }

    /// Goes to an offset. Whether that was possible: compressed files can only be read in order.
    pub(super) fn jump(&mut self, offset: u64) -> io::Result<bool> {
        let Input::Plain(input) = &mut self.input else { return Ok(false) };
        input.file.seek(SeekFrom::Start(offset))?;
        self.taken.set(offset);
        Ok(true)
    }

    /// Returns how much of the stored file has been taken, in bytes.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken.get()
    }
}
