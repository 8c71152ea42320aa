//! Chunks of a list's elements: the value of one entry. Part of the checkpoint format.
//!
//! `elements u32 | for each: length varint | stamp (8 bytes, only in slots with a time to live) | bytes`, little-endian.
//! The count lets a read skip chunks; appending rewrites one small chunk and no more.

use super::entry::{put_length, take_length};
use super::ttl::{STAMP_BYTES, Ttl};
use crate::time::ProcessingTime;

/// A chunk that is being filled grows up to this size.
pub(super) const CHUNK_BYTES: usize = 4 << 10;
/// A chunk that is part of a snapshot grows only up to this size: else an increment would hold old elements again.
pub(super) const TINY_BYTES: usize = 256;
const COUNT_BYTES: usize = 4;

/// A chunk whose lengths do not fit: damage that no checksum has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokenChunk;

/// Returns the number of elements, expired ones included.
pub(super) fn count(chunk: &[u8]) -> usize {
    chunk.first_chunk::<COUNT_BYTES>().map_or(0, |count| u32::from_le_bytes(*count) as usize)
}

/// Adds an element to a chunk; an empty buffer is an empty chunk.
pub(super) fn append(chunk: &mut Vec<u8>, element: &[u8], stamp: Option<ProcessingTime>) {
    if chunk.is_empty() {
        chunk.extend_from_slice(&[0; COUNT_BYTES]);
    }
    let elements = u32::try_from(count(chunk) + 1).expect("a chunk is bounded by 4 KiB or one element");
    chunk[..COUNT_BYTES].copy_from_slice(&elements.to_le_bytes());
    put_length(chunk, element.len());
    if let Some(now) = stamp {
        chunk.extend_from_slice(&now.0.to_le_bytes());
    }
    chunk.extend_from_slice(element);
}

/// Returns the bytes that an element adds to a chunk, at most.
pub(super) fn appended_len(element: &[u8]) -> usize {
    5 + STAMP_BYTES + element.len()
}

/// The elements of a chunk, in order: the stamp's place in the chunk, if there are stamps, and the bytes.
pub(super) struct Elements<'a> {
    chunk: &'a [u8],
    at: usize,
    left: usize,
    stamped: bool,
}

impl<'a> Elements<'a> {
    pub(super) fn new(chunk: &'a [u8], stamped: bool) -> Self {
        Self { chunk, at: COUNT_BYTES.min(chunk.len()), left: count(chunk), stamped }
    }

    /// Whether the chunk is one: all elements are there, and nothing else is.
    pub(super) fn check(mut self) -> Result<(), BrokenChunk> {
        if self.chunk.len() < COUNT_BYTES {
            return Err(BrokenChunk);
        }
        while self.left > 0 {
            self.next().ok_or(BrokenChunk)?;
        }
        if self.at == self.chunk.len() { Ok(()) } else { Err(BrokenChunk) }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut rest = self.chunk.get(self.at..)?;
        let length = take_length(&mut rest, self.at).ok()? as usize;
        let stamp_at = self.chunk.len() - rest.len();
        let from = stamp_at + if self.stamped { STAMP_BYTES } else { 0 };
        let element = self.chunk.get(from..from.checked_add(length)?)?;
        self.at = from + length;
        Some((stamp_at, element))
    }
}

/// Returns the elements that have not expired, with their stamps' places.
pub(super) fn live<'a>(
    chunk: &'a [u8],
    ttl: Option<Ttl>,
    now: ProcessingTime,
) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
    Elements::new(chunk, ttl.is_some()).filter(move |(stamp_at, _)| {
        ttl.is_none_or(|ttl| {
            let stamp = chunk.get(*stamp_at..).and_then(|rest| rest.first_chunk::<STAMP_BYTES>());
            stamp.is_some_and(|stamp| !ttl.is_over(i64::from_le_bytes(*stamp), now))
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_of_a_chunk_never_change() {
        let mut chunk = Vec::new();
        append(&mut chunk, b"ab", None);
        append(&mut chunk, b"", None);
        assert_eq!(chunk, [2, 0, 0, 0, 2, b'a', b'b', 0]);
        let mut chunk = Vec::new();
        append(&mut chunk, b"a", Some(ProcessingTime(258)));
        assert_eq!(chunk, [1, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0, b'a']);
    }

    #[test]
    fn elements_expire_one_by_one() {
        let mut chunk = Vec::new();
        for (element, stamp) in [(b"a", 5), (b"b", 20), (b"c", 1)] {
            append(&mut chunk, element, Some(ProcessingTime(stamp)));
        }
        let ttl = Some(Ttl { ms: 10, on_read: false });
        let at = |now| live(&chunk, ttl, ProcessingTime(now)).map(|(_, element)| element[0]).collect::<Vec<_>>();
        assert_eq!((at(10), at(11), at(15), at(30)), (b"abc".to_vec(), b"ab".to_vec(), b"b".to_vec(), vec![]));
    }

    proptest! {
        #[test]
        fn elements_come_back_as_they_went_in(
            elements in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20),
            stamped: bool,
        ) {
            let mut chunk = Vec::new();
            for element in &elements {
                let before = chunk.len().max(COUNT_BYTES);
                append(&mut chunk, element, stamped.then_some(ProcessingTime(7)));
                prop_assert!(chunk.len() - before <= appended_len(element));
            }
            prop_assert_eq!(count(&chunk), elements.len());
            prop_assert_eq!(Elements::new(&chunk, stamped).check(), Ok(()));
            let read: Vec<_> = Elements::new(&chunk, stamped).map(|(_, element)| element.to_vec()).collect();
            prop_assert_eq!(read, elements);
            prop_assert_eq!(Elements::new(&chunk[..chunk.len() - 1], stamped).check(), Err(BrokenChunk));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), stamped: bool) {
            prop_assert!(Elements::new(&bytes, stamped).take(100).count() <= 100);
            let _ = Elements::new(&bytes, stamped).check();
        }
    }
}
