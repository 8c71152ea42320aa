//! The entries of one key in the order of their entry keys: a short sorted list while they are few, then a tree.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use super::arena::EntryRef;

/// Keys up to this length need no allocation.
const INLINE_BYTES: usize = 22;
/// Up to this many entries a sorted list is smaller than a tree, and no slower.
const LIST_MAX: usize = 16;

/// A short byte string, ordered by its bytes.
#[derive(Clone, Debug)]
pub(super) enum SmallKey {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl SmallKey {
    pub(super) fn new(key: &[u8]) -> Self {
        match u8::try_from(key.len()) {
            Ok(len) if key.len() <= INLINE_BYTES => {
                let mut bytes = [0; INLINE_BYTES];
                bytes[..key.len()].copy_from_slice(key);
                Self::Inline { len, bytes }
            }
            _ => Self::Heap(key.into()),
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }

    /// Returns the bytes that such a key takes besides itself.
    pub(super) fn heap_bytes(key: &[u8]) -> usize {
        if key.len() <= INLINE_BYTES { 0 } else { key.len() }
    }
}

impl Borrow<[u8]> for SmallKey {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for SmallKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for SmallKey {}

impl PartialOrd for SmallKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SmallKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// Entry key -> entry, in order.
pub(super) enum Entries {
    List(Vec<(SmallKey, EntryRef)>),
    Tree(BTreeMap<SmallKey, EntryRef>),
}

impl Default for Entries {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Entries {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::List(list) => list.is_empty(),
            Self::Tree(tree) => tree.is_empty(),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<EntryRef> {
        match self {
            Self::List(list) => search(list, key).ok().map(|at| list[at].1),
            Self::Tree(tree) => tree.get(key).copied(),
        }
    }

    pub(super) fn last(&self) -> Option<(&[u8], EntryRef)> {
        match self {
            Self::List(list) => list.last().map(|(key, place)| (key.as_bytes(), *place)),
            Self::Tree(tree) => tree.last_key_value().map(|(key, place)| (key.as_bytes(), *place)),
        }
    }

    /// Sets where the entry of a key is.
    pub(super) fn insert(&mut self, key: &[u8], place: EntryRef) {
        match self {
            Self::List(list) => match search(list, key) {
                Ok(at) => list[at].1 = place,
                Err(at) if list.len() < LIST_MAX => list.insert(at, (SmallKey::new(key), place)),
                Err(_) => {
                    let mut tree: BTreeMap<_, _> = std::mem::take(list).into_iter().collect();
                    tree.insert(SmallKey::new(key), place);
                    *self = Self::Tree(tree);
                }
            },
            Self::Tree(tree) => match tree.get_mut(key) {
                Some(old) => *old = place,
                None => drop(tree.insert(SmallKey::new(key), place)),
            },
        }
    }

    /// Forgets a key if its entry is at `place`. Returns whether it was.
    pub(super) fn remove(&mut self, key: &[u8], place: EntryRef) -> bool {
        if self.get(key) != Some(place) {
            return false;
        }
        match self {
            Self::List(list) => {
                if let Ok(at) = search(list, key) {
                    list.remove(at);
                }
                if list.len() * 4 < list.capacity() {
                    list.shrink_to_fit();
                }
            }
            Self::Tree(tree) => drop(tree.remove(key)),
        }
        true
    }

    /// Returns the entries after `start` in order.
    pub(super) fn after<'a>(&'a self, start: Option<&[u8]>) -> impl Iterator<Item = (&'a [u8], EntryRef)> + use<'a> {
        let (list, tree) = match self {
            Self::List(list) => {
                let from = start.map_or(0, |start| search(list, start).map_or_else(|at| at, |at| at + 1));
                (Some(&list[from..]), None)
            }
            Self::Tree(tree) => {
                let from = start.map_or(Bound::Unbounded, Bound::Excluded);
                (None, Some(tree.range::<[u8], _>((from, Bound::Unbounded))))
            }
        };
        let list = list.into_iter().flatten().map(|(key, place)| (key.as_bytes(), *place));
        list.chain(tree.into_iter().flatten().map(|(key, place)| (key.as_bytes(), *place)))
    }
}

fn search(list: &[(SmallKey, EntryRef)], key: &[u8]) -> Result<usize, usize> {
    list.binary_search_by(|(other, _)| other.as_bytes().cmp(key))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_are_a_sorted_map_at_any_size(
            changes in proptest::collection::vec((proptest::collection::vec(0_u8..3, 0..30), any::<bool>()), 0..100),
            start in proptest::option::of(proptest::collection::vec(0_u8..3, 0..30)),
        ) {
            let (mut entries, mut model) = (Entries::default(), BTreeMap::new());
            for (number, (key, put)) in (0..).zip(changes) {
                if put {
                    entries.insert(&key, EntryRef(number));
                    model.insert(key, EntryRef(number));
                } else if let Some(place) = model.remove(&key) {
                    prop_assert!(!entries.remove(&key, EntryRef(u32::MAX)), "another entry than that of the key");
                    prop_assert!(entries.remove(&key, place));
                }
            }
            let expected: Vec<_> = model.iter().filter(|(key, _)| start.as_ref().is_none_or(|start| *key > start)).collect();
            let found: Vec<_> = entries.after(start.as_deref()).map(|(key, place)| (key.to_vec(), place)).collect();
            prop_assert_eq!(found, expected.into_iter().map(|(key, place)| (key.clone(), *place)).collect::<Vec<_>>());
            prop_assert_eq!(entries.last().map(|(key, _)| key.to_vec()), model.keys().last().cloned());
            prop_assert_eq!(entries.is_empty(), model.is_empty());
        }
    }
}
