//! The encoding of one entry of state, as segments hold it. Part of the checkpoint format.
//!
//! `op u8 | key length varint | value length varint (puts only) | key | value (puts only)`; op 0 puts, op 1 deletes, op 2
//! clears. A varint is an unsigned LEB128 number of at most 32 bits. Decoding trusts no length.
//!
//! In a table whose keys have many entries the key of a put or delete is an ordered key: `key length varint | key | entry
//! key`. That of a clear is the key alone: it removes all entries that the key had.

/// One change of a table: what a base or a delta is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The key has this value.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The key has no value. Only in deltas.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// The key has none of the entries that it had. Only in sections of clears.
    Clear {
        /// The key, without an entry key.
        key: &'a [u8],
    },
}

/// Bytes that are not a sequence of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// An operation that there is not.
    #[error("entry at byte {at} has the unknown operation {op}")]
    UnknownOp {
        /// The offset of the entry.
        at: usize,
        /// The byte found.
        op: u8,
    },
    /// A length that is not a varint of 32 bits.
    #[error("entry at byte {at} has a malformed length")]
    Length {
        /// The offset of the entry.
        at: usize,
    },
    /// An entry that goes on past the end.
    #[error("entry at byte {at} needs {needed} bytes, {left} are left")]
    Truncated {
        /// The offset of the entry.
        at: usize,
        /// Bytes of key and value.
        needed: u64,
        /// Bytes that are left for them.
        left: usize,
    },
}

const PUT: u8 = 0;
const DELETE: u8 = 1;
const CLEAR: u8 = 2;

impl<'a> Entry<'a> {
    /// Returns the key.
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Self::Put { key, .. } | Self::Delete { key } | Self::Clear { key } => key,
        }
    }

    /// Appends the encoded entry.
    ///
    /// # Panics
    /// If the key or the value is 4 GiB or longer; limits keep both far below.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Put { key, value } => {
                out.reserve(11 + key.len() + value.len());
                out.push(PUT);
                put_length(out, key.len());
                put_length(out, value.len());
                out.extend_from_slice(key);
                out.extend_from_slice(value);
            }
            Self::Delete { key } | Self::Clear { key } => {
                out.reserve(6 + key.len());
                out.push(if matches!(self, Self::Clear { .. }) { CLEAR } else { DELETE });
                put_length(out, key.len());
                out.extend_from_slice(key);
            }
        }
    }

    /// Returns how many bytes [`Self::encode`] appends.
    pub fn encoded_len(&self) -> usize {
        match *self {
            Self::Put { key, value } => 1 + length_bytes(key.len()) + length_bytes(value.len()) + key.len() + value.len(),
            Self::Delete { key } | Self::Clear { key } => 1 + length_bytes(key.len()) + key.len(),
        }
    }
}

fn length_bytes(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    let mut rest = u32::try_from(length).expect("keys and values are far below 4 GiB");
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

/// Puts the ordered key of an entry of `key` into `out`, which is cleared.
pub fn ordered_key(out: &mut Vec<u8>, key: &[u8], entry_key: &[u8]) {
    out.clear();
    put_length(out, key.len());
    out.extend_from_slice(key);
    out.extend_from_slice(entry_key);
}

/// Returns key and entry key of an ordered key; `None` if it is not one.
pub fn split_ordered_key(ordered: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = ordered;
    let length = take_length(&mut rest, 0).ok()?;
    rest.split_at_checked(length as usize)
}

/// Reads entries one after the other. After the first error it ends.
#[derive(Clone, Debug)]
pub struct EntryReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> EntryReader<'a> {
    /// Reads the entries that `bytes` holds.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn read(&mut self) -> Result<Entry<'a>, EntryError> {
        let at = self.at;
        let mut rest = &self.bytes[at + 1..];
        let (key_len, value_len) = match self.bytes[at] {
            PUT => (take_length(&mut rest, at)?, take_length(&mut rest, at)?),
            DELETE | CLEAR => (take_length(&mut rest, at)?, 0),
            op => return Err(EntryError::UnknownOp { at, op }),
        };
        let needed = u64::from(key_len) + u64::from(value_len);
        if needed > rest.len() as u64 {
            return Err(EntryError::Truncated { at, needed, left: rest.len() });
        }
        let (key, rest) = rest.split_at(key_len as usize);
        let (value, rest) = rest.split_at(value_len as usize);
        self.at = self.bytes.len() - rest.len();
        Ok(match self.bytes[at] {
            PUT => Entry::Put { key, value },
            DELETE => Entry::Delete { key },
            _ => Entry::Clear { key },
        })
    }
}

impl<'a> Iterator for EntryReader<'a> {
    type Item = Result<Entry<'a>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.at = self.bytes.len();
        }
        Some(entry)
    }
}

pub(super) fn take_length(rest: &mut &[u8], at: usize) -> Result<u32, EntryError> {
    let mut length = 0u64;
    for shift in (0..35).step_by(7) {
        let Some((byte, tail)) = rest.split_first() else {
            return Err(EntryError::Length { at });
        };
        *rest = tail;
        length |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(length).map_err(|_| EntryError::Length { at });
        }
    }
    Err(EntryError::Length { at })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_of_an_entry_never_change() {
        let mut out = Vec::new();
        Entry::Put { key: b"ab", value: &[7; 200] }.encode(&mut out);
        assert_eq!(out[..6], [0, 2, 0xc8, 0x01, b'a', b'b']);
        assert_eq!(out.len(), 206);
        out.clear();
        Entry::Delete { key: b"" }.encode(&mut out);
        assert_eq!(out, [1, 0]);
        out.clear();
        Entry::Clear { key: b"ab" }.encode(&mut out);
        assert_eq!(out, [2, 2, b'a', b'b']);
        ordered_key(&mut out, b"ab", b"c");
        assert_eq!(out, [2, b'a', b'b', b'c']);
        assert_eq!(split_ordered_key(&out), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!((split_ordered_key(&[3, 0, 0]), split_ordered_key(&[])), (None, None));
    }

    #[test]
    fn broken_entries_are_named_and_end_the_reading() {
        let read = |bytes: &[u8]| EntryReader::new(bytes).map(|entry| entry.map(|_| ())).collect::<Vec<_>>();
        assert_eq!(read(&[3, 0]), [Err(EntryError::UnknownOp { at: 0, op: 3 })]);
        assert_eq!(read(&[1, 0, 0, 0x80]), [Ok(()), Err(EntryError::Length { at: 2 })]);
        assert_eq!(read(&[1, 0xff, 0xff, 0xff, 0xff, 0x7f]), [Err(EntryError::Length { at: 0 })]);
        assert_eq!(read(&[0, 3, 2, 1]), [Err(EntryError::Truncated { at: 0, needed: 5, left: 1 })]);
    }

    proptest! {
        #[test]
        fn entries_come_back_as_they_went_in(
            entries in proptest::collection::vec(
                (
                    proptest::collection::vec(any::<u8>(), 0..300),
                    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300)),
                    any::<bool>(),
                ),
                0..20,
            ),
        ) {
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, value, clear)| match value {
                    Some(value) => Entry::Put { key, value },
                    None if *clear => Entry::Clear { key },
                    None => Entry::Delete { key },
                })
                .collect();
            let mut out = Vec::new();
            for entry in &entries {
                let before = out.len();
                entry.encode(&mut out);
                prop_assert_eq!(out.len() - before, entry.encoded_len());
            }
            let read: Result<Vec<_>, _> = EntryReader::new(&out).collect();
            prop_assert_eq!(read, Ok(entries));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            for entry in EntryReader::new(&bytes).flatten() {
                prop_assert!(entry.key().len() <= bytes.len());
            }
        }
    }
}
