//! From what is stored to what an operator sees: keys of maps, elements of lists, values behind the stamps of a time to live.
//! docs/checkpoint-format.md has the bytes. Nothing that is read here is trusted.

use cofferdam_dataflow::guest::{StateKind, StateSlot};
use cofferdam_dataflow::key_group::KeyGroup;
use cofferdam_dataflow::state::entry::split_ordered_key;

use super::StoredEntry;

/// How a slot is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// `None` if it is not declared: then keys and values are shown as they are stored.
    pub(super) kind: Option<StateKind>,
    stamped: bool,
}

type Shaped = Result<StoredEntry, &'static str>;

impl Layout {
    /// That of a slot of which nothing is known.
    pub(super) const RAW: Self = Self { kind: None, stamped: false };

    pub(super) fn of(slot: &StateSlot) -> Self {
        Self { kind: Some(slot.kind), stamped: slot.ttl_ms != 0 }
    }

    /// Returns what a stored key and value hold: an entry, or the elements of a chunk of a list, counted from 0.
    pub(super) fn entries<'a>(self, group: KeyGroup, key: &'a [u8], value: &'a [u8]) -> Box<dyn Iterator<Item = Shaped> + 'a> {
        let entry = |key: &[u8], entry_key: Option<&[u8]>, index, stamped: &[u8]| {
            let (used_ms, value) = self.unstamped(stamped)?;
            let (key, entry_key, value) = (key.to_vec(), entry_key.map(<[u8]>::to_vec), value.to_vec());
            Ok(StoredEntry { group, key, entry_key, index, used_ms, value })
        };
        match self.kind {
            None | Some(StateKind::Value) => Box::new(std::iter::once(entry(key, None, None, value))),
            Some(kind) => match (split_ordered_key(key), kind) {
                (None, _) => Box::new(std::iter::once(Err("a stored key is malformed"))),
                (Some((key, entry_key)), StateKind::Map | StateKind::Broadcast) => {
                    Box::new(std::iter::once(entry(key, Some(entry_key), None, value)))
                }
                (Some((key, _)), _) => Box::new(Chunk::new(value, self.stamped).zip(0..).map(move |(element, index)| {
                    let element = element?;
                    let mut found = StoredEntry {
                        group,
                        key: key.to_vec(),
                        entry_key: None,
                        index: Some(index),
                        used_ms: None,
                        value: Vec::new(),
                    };
                    let (used_ms, value) = self.unstamped(element)?;
                    (found.used_ms, found.value) = (used_ms, value.to_vec());
                    Ok(found)
                })),
            },
        }
    }

    /// Takes the stamp off a value.
    fn unstamped(self, value: &[u8]) -> Result<(Option<i64>, &[u8]), &'static str> {
        if !self.stamped {
            return Ok((None, value));
        }
        let (stamp, value) = value.split_first_chunk::<8>().ok_or("a value lacks the time of its last use")?;
        Ok((Some(i64::from_le_bytes(*stamp)), value))
    }
}

/// The elements of a chunk, each with its stamp: `elements u32 | for each: length varint | stamp | bytes`.
struct Chunk<'a> {
    left: u32,
    stamp_bytes: usize,
    rest: Option<&'a [u8]>,
}

impl<'a> Chunk<'a> {
    fn new(bytes: &'a [u8], stamped: bool) -> Self {
        let stamp_bytes = if stamped { 8 } else { 0 };
        match bytes.split_first_chunk::<4>() {
            Some((count, rest)) => Self { left: u32::from_le_bytes(*count), stamp_bytes, rest: Some(rest) },
            // The first element then is an error.
            None => Self { left: 1, stamp_bytes, rest: None },
        }
    }

    fn element(&mut self) -> Option<&'a [u8]> {
        let mut rest = self.rest.take()?;
        let mut length = 0_u64;
        for shift in (0..35).step_by(7) {
            let (byte, tail) = rest.split_first()?;
            rest = tail;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let length = usize::try_from(length).ok()?.checked_add(self.stamp_bytes)?;
                let (element, tail) = rest.split_at_checked(length)?;
                self.rest = Some(tail);
                return Some(element);
            }
        }
        None
    }
}

impl<'a> Iterator for Chunk<'a> {
    type Item = Result<&'a [u8], &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            // What is left over belongs to no element.
            return self.rest.take().filter(|rest| !rest.is_empty()).map(|_| Err("a chunk of a list is malformed"));
        }
        match self.element() {
            Some(element) => {
                self.left -= 1;
                Some(Ok(element))
            }
            None => {
                (self.left, self.rest) = (0, None);
                Some(Err("a chunk of a list is malformed"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(kind: StateKind, stamped: bool) -> Layout {
        Layout { kind: Some(kind), stamped }
    }

    fn shaped(layout: Layout, key: &[u8], value: &[u8]) -> Vec<Shaped> {
        layout.entries(KeyGroup(3), key, value).collect()
    }

    #[test]
    fn each_kind_is_taken_apart() {
        let stamp = 7_i64.to_le_bytes();
        let [entry] = &shaped(layout(StateKind::Value, false), b"k", b"v")[..] else { panic!() };
        let entry = entry.as_ref().unwrap();
        assert_eq!((&entry.key[..], &entry.value[..], &entry.entry_key, entry.used_ms), (&b"k"[..], &b"v"[..], &None, None));
        let [entry] = &shaped(layout(StateKind::Map, true), b"\x01kmore", &[&stamp[..], b"v"].concat())[..] else { panic!() };
        let entry = entry.as_ref().unwrap();
        assert_eq!((&entry.key[..], entry.entry_key.as_deref(), &entry.value[..]), (&b"k"[..], Some(&b"more"[..]), &b"v"[..]));
        assert_eq!(entry.used_ms, Some(7));
        let chunk = [&2_u32.to_le_bytes()[..], &[1, b'a', 0]].concat();
        let elements = shaped(layout(StateKind::List, false), b"\x01k\0\0\0\0\0\0\0\0", &chunk);
        let elements: Vec<_> = elements.into_iter().map(|entry| entry.unwrap()).map(|e| (e.key, e.index, e.value)).collect();
        assert_eq!(elements, [(b"k".to_vec(), Some(0), b"a".to_vec()), (b"k".to_vec(), Some(1), Vec::new())]);
        let stamped = [&1_u32.to_le_bytes()[..], &[1], &stamp, b"a"].concat();
        let elements = shaped(layout(StateKind::ListUnion, true), b"\0", &stamped);
        assert_eq!(elements[0].as_ref().unwrap().used_ms, Some(7));
    }

    #[test]
    fn what_is_malformed_is_named_once() {
        let one = |layout, key: &[u8], value: &[u8]| {
            let found = shaped(layout, key, value);
            found.last().unwrap().as_ref().unwrap_err().to_owned()
        };
        assert_eq!(one(layout(StateKind::Map, false), b"\x05k", b""), "a stored key is malformed");
        assert_eq!(one(layout(StateKind::Value, true), b"k", b"short"), "a value lacks the time of its last use");
        for chunk in [&b"\x01"[..], b"\x01\0\0\0", b"\x01\0\0\0\x05ab", b"\x01\0\0\0\x01ab", b"\xff\xff\xff\xff\x00"] {
            assert_eq!(one(layout(StateKind::List, false), b"\0", chunk), "a chunk of a list is malformed");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end(kind in prop::sample::select(vec![StateKind::List, StateKind::Map, StateKind::Value]), stamped in any::<bool>(),
            key in proptest::collection::vec(any::<u8>(), 0..6), value in proptest::collection::vec(0u8..4, 0..30)) {
            prop_assert!(shaped(layout(kind, stamped), &key, &value).len() <= 32);
        }
    }
}
