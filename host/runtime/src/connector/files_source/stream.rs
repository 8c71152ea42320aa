//! The uncompressed bytes of a file.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
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

impl ByteStream {
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
