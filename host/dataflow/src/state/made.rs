//! What a slot stores of an entry, put together without a table: for state that no job has written.

use super::list;
use super::ttl;
use crate::time::ProcessingTime;

/// A chunk of a list that is being filled, as tables fill theirs. `stamp`s are given for all elements, or for none: for slots with a
/// time to live.
#[derive(Clone, Debug, Default)]
pub struct ListChunk {
    bytes: Vec<u8>,
}

impl ListChunk {
    /// Whether an element still goes into it, rather than into the next one. Into an empty one every element goes.
    pub fn has_room(&self, element: &[u8]) -> bool {
        self.bytes.is_empty() || self.bytes.len() + list::appended_len(element) <= list::CHUNK_BYTES
    }

    /// Adds an element after those that are there.
    pub fn push(&mut self, element: &[u8], stamp: Option<ProcessingTime>) {
        list::append(&mut self.bytes, element, stamp);
    }

    /// Returns its bytes: what is stored under its number.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Puts a value into `out`, which is cleared, as it is stored: behind the stamp that values of slots with a time to live have.
pub fn store_value(out: &mut Vec<u8>, value: &[u8], stamp: Option<ProcessingTime>) {
    match stamp {
        Some(stamp) => ttl::stamp(out, stamp, value),
        None => {
            out.clear();
            out.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_full_at_the_size_at_which_a_table_begins_the_next() {
        let mut chunk = ListChunk::default();
        assert!(chunk.has_room(&[0; 100_000]), "an element of any size has a chunk");
        while chunk.has_room(&[7; 90]) {
            chunk.push(&[7; 90], Some(ProcessingTime(1)));
        }
        assert!((list::CHUNK_BYTES - 110..=list::CHUNK_BYTES).contains(&chunk.bytes().len()), "{}", chunk.bytes().len());
        assert_eq!(list::Elements::new(chunk.bytes(), true).check(), Ok(()));
    }

    #[test]
    fn a_value_is_stored_behind_its_stamp_if_it_has_one() {
        let mut out = vec![1];
        store_value(&mut out, b"v", None);
        assert_eq!(out, b"v");
        store_value(&mut out, b"v", Some(ProcessingTime(258)));
        assert_eq!(out, [2, 1, 0, 0, 0, 0, 0, 0, b'v']);
    }
}
