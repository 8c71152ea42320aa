//! Lines of a byte stream in one buffer, with a position at any line's start.
//!
//! The buffer keeps the [`WINDOW`] bytes before the line at hand, which a position's fingerprint covers. It grows with
//! the longest line; callers bound that.

use std::io;
use std::path::Path;

use super::position::{FilePosition, WINDOW, window};
use super::stream::ByteStream;

const CHUNK: usize = 256 << 10;
/// The least room to read into: below, the buffer is moved down or grows.
const ROOM: usize = 64 << 10;

/// What is next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A line, its length without the newline, and how many bytes it takes.
    Line(usize, usize),
    /// A line beyond the limit.
    TooLong,
    /// Nothing, for now if the stream is followed.
    End,
}

/// Whether a recorded position fits the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumed {
    /// It does, and the stream is there.
    Fits,
    /// The stream ends before it, after so many bytes.
    TooShort(u64),
    /// The bytes at its start or before the position are others.
    Differs,
}

/// A byte stream, read line by line.
pub(super) struct Lines {
    stream: ByteStream,
    buffer: Vec<u8>,
    /// The stream's offset of the buffer's first byte.
    base: u64,
    /// The line at hand begins here.
    start: usize,
    /// There is no newline from `start` up to here.
    scanned: usize,
    /// The bytes read so far end here.
    end: usize,
    /// Whether the stream has nothing after `end`.
    ended: bool,
    /// The stream's first [`WINDOW`] bytes, as far as read.
    head: Vec<u8>,
    lines: u64,
    /// While an over-long line is dropped: the position of its start.
    dropping: Option<FilePosition>,
    /// Whether a line ends with its newline only: more may come at any time.
    follow: bool,
}

impl Lines {
    /// Starts at the stream's beginning. `follow`: a line ends with its newline only, however long that takes.
    pub(super) fn new(stream: ByteStream, follow: bool) -> Self {
        let buffer = vec![0; CHUNK + WINDOW];
        let (start, scanned, end) = (0, 0, 0);
        Self { stream, buffer, base: 0, start, scanned, end, ended: false, head: Vec::new(), lines: 0, dropping: None, follow }
    }

    /// Returns the unread bytes at hand.
    pub(super) fn at_hand(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the stream's offset of the line at hand, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Returns how many lines have been consumed.
    pub(super) fn count(&self) -> u64 {
        self.lines
    }

    /// Returns how much of the stored file has been taken, in bytes.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.stream.taken_bytes()
    }

    /// As [`ByteStream::is_file_at`].
    pub(super) fn is_file_at(&self, path: &Path) -> io::Result<Option<u64>> {
        self.stream.is_file_at(path)
    }

    /// Whether the stream has nothing beyond what is at hand.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Whether everything has been consumed, as far as that is known without reading on.
    pub(super) fn exhausted(&self) -> bool {
        !self.follow && self.ended && self.start == self.end && self.dropping.is_none()
    }

    /// Finds the next line, reading on as needed. A last line may lack its newline. Does not consume it.
    pub(super) fn next(&mut self, line_max: usize) -> io::Result<Next> {
        if self.dropping.is_some() {
            return Ok(Next::End);
        }
        loop {
            let newline = memchr::memchr(b'\n', &self.buffer[self.scanned..self.end]).map(|at| self.scanned + at);
            self.scanned = newline.unwrap_or(self.end);
            let length = self.scanned - self.start;
            match newline {
                _ if length > line_max => return Ok(Next::TooLong),
                Some(_) => return Ok(Next::Line(length, length + 1)),
                None if !self.ended => self.fill()?,
                None if length > 0 && !self.follow => return Ok(Next::Line(length, length)),
                None => return Ok(Next::End),
            }
        }
    }

    /// Goes on `bytes` further, over `lines` lines.
    pub(super) fn consume(&mut self, bytes: usize, lines: u64) {
        self.start += bytes;
        self.scanned = self.start;
        self.lines += lines;
    }

    /// Begins to drop the line at hand, whatever its length. Its start remains the position until it is gone.
    pub(super) fn drop_line(&mut self) {
        self.dropping = Some(self.mark());
        self.scanned = self.start;
    }

    /// Looks for more where there was nothing before.
    pub(super) fn look_again(&mut self) {
        self.ended = false;
    }

    /// Drops more of a line that is being dropped, at most what is at hand and one read. `false` if there is none for now.
    pub(super) fn drop_some(&mut self) -> io::Result<bool> {
        if self.dropping.is_none() {
            return Ok(false);
        }
        match memchr::memchr(b'\n', self.at_hand()) {
            Some(length) => {
                self.dropping = None;
                self.consume(length + 1, 1);
            }
            None => {
                self.consume(self.end - self.start, 0);
                match self.ended {
                    true if self.follow => return Ok(false),
                    true => {
                        self.dropping = None;
                        self.lines += 1;
                    }
                    false => self.fill()?,
                }
            }
        }
        Ok(true)
    }

    /// Returns the position before the line at hand.
    pub(super) fn position(&self) -> FilePosition {
        self.dropping.unwrap_or_else(|| self.mark())
    }

    fn mark(&self) -> FilePosition {
        let offset = self.offset();
        let window = window(offset);
        let head = xxhash_rust::xxh3::xxh3_64(&self.head[..window]);
        let tail = xxhash_rust::xxh3::xxh3_64(&self.buffer[self.start - window..self.start]);
        FilePosition { offset, lines: self.lines, head, tail }
    }

    /// Reads once. The bytes at hand and those before them that a fingerprint covers stay.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        if self.buffer.len() - self.end < ROOM {
            let moved = self.start.saturating_sub(WINDOW);
            self.buffer.copy_within(moved..self.end, 0);
            self.base += moved as u64;
            self.start -= moved;
            self.scanned -= moved;
            self.end -= moved;
            if self.buffer.len() - self.end < ROOM {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        let count = self.stream.read(&mut self.buffer[self.end..])?;
        self.ended = count == 0;
        if self.base + self.end as u64 == self.head.len() as u64 && self.head.len() < WINDOW {
            let wanted = count.min(WINDOW - self.head.len());
            self.head.extend_from_slice(&self.buffer[self.end..self.end + wanted]);
        }
        self.end += count;
        Ok(())
    }

    /// Goes to a recorded position and compares fingerprints.
    pub(super) fn resume(&mut self, position: &FilePosition) -> io::Result<Resumed> {
        let offset = position.offset;
        if let Some(length) = self.stream.plain_length()?
            && length < offset
        {
            return Ok(Resumed::TooShort(length));
        }
        while self.head.len() < window(offset) && !self.ended {
            self.fill()?;
        }
        let before = offset - window(offset) as u64;
        if before > self.base + self.end as u64 && self.stream.jump(before)? {
            self.base = before;
            (self.start, self.scanned, self.end) = (0, 0, 0);
        }
        while self.base + (self.end as u64) < offset {
            if self.ended {
                return Ok(Resumed::TooShort(self.base + self.end as u64));
            }
            self.start = self.end;
            self.scanned = self.end;
            self.fill()?;
        }
        let Some(start) = offset.checked_sub(self.base).and_then(|start| usize::try_from(start).ok()) else {
            return Ok(Resumed::Differs);
        };
        if start < window(offset) {
            return Ok(Resumed::Differs);
        }
        self.start = start;
        self.scanned = start;
        self.lines = position.lines;
        let found = self.mark();
        Ok(if found == *position { Resumed::Fits } else { Resumed::Differs })
    }
}
