//! Entries of one map in the order of their keys: stored ones, page by page, with those that the call wrote laid over.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use super::entries::{At, Entries, MapPlace};
use super::map_key::{KeyBytes, MapKey};
use crate::call::Limits;
use crate::codec::StateCodec;
use crate::column::BytesColumn;
use crate::error::Error;
use crate::reads::{PageSize, ReadEntries, is_last};

/// The iterator. It ends with the first error. It holds no borrow of the cells between two items, and cannot see writes
/// between them: those need the context exclusively.
pub(super) struct Scan<'c, K, V, C, P> {
    cells: &'c Entries<V, C>,
    at: At<'c>,
    /// What the call wrote, in the order of the keys.
    own: std::iter::Peekable<std::vec::IntoIter<u32>>,
    stored: Stored,
    end: Bound<Vec<u8>>,
    types: PhantomData<(fn() -> K, P)>,
}

/// The pages.
struct Stored {
    page: ReadEntries,
    next: usize,
    start: Start,
    size: PageSize,
    /// The most that an entry can have.
    entry_bytes: usize,
}

/// Where the next page starts.
enum Start {
    /// There is none.
    Over,
    First,
    After(Vec<u8>),
    /// At this key, which is read by itself: pages start after a key.
    At(Vec<u8>),
}

fn bytes_of(key: &(impl KeyBytes + ?Sized)) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.write_last(&mut bytes);
    bytes
}

/// The start of what lies at or after `key`.
pub(super) fn from_key(key: &(impl KeyBytes + ?Sized)) -> Bound<Vec<u8>> {
    Bound::Included(bytes_of(key))
}

/// The bounds of a range as bytes.
pub(super) fn bounds_of<K: KeyBytes>(range: &impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (range.start_bound().map(bytes_of), range.end_bound().map(bytes_of))
}

impl<V, C: StateCodec<V>> Entries<V, C> {
    /// Reads the entries between two bounds.
    pub(super) fn scan<'c, K: MapKey, P: MapPlace>(
        &'c self,
        at: At<'c>,
        limits: &Limits,
        (start, end): (Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> Scan<'c, K, V, C, P> {
        let table = self.inner.borrow();
        let keys = table.keys.view();
        let mut own = table.written_of(at.row);
        own.retain(|entry| (start.as_ref().map(Vec::as_slice), Bound::Unbounded).contains(keys.get(*entry as usize)));
        let start = match start {
            _ if table.is_cleared(at.row) => Start::Over,
            Bound::Unbounded => Start::First,
            Bound::Excluded(key) => Start::After(key),
            Bound::Included(mut key) => match key.pop() {
                None => Start::First,
                // Nothing lies between a key and the same with a zero byte more.
                Some(0) => Start::After(key),
                Some(last) => {
                    key.push(last);
                    Start::At(key)
                }
            },
        };
        let entry_bytes = limits.key_bytes as usize + limits.value_bytes as usize;
        let stored = Stored { page: ReadEntries::default(), next: 0, start, size: PageSize::new(), entry_bytes };
        Scan { cells: self, at, own: own.into_iter().peekable(), stored, end, types: PhantomData }
    }
}

impl Stored {
    /// Makes the next entry the page's entry `next`. `false` if there is none.
    fn advance<P: MapPlace>(&mut self, at: At<'_>) -> Result<bool, Error> {
        while self.next == self.page.keys.len() {
            if matches!(self.start, Start::Over) {
                return Ok(false);
            }
            self.turn_page::<P>(at)?;
        }
        Ok(true)
    }

    fn turn_page<P: MapPlace>(&mut self, at: At<'_>) -> Result<(), Error> {
        self.next = 0;
        let start = std::mem::replace(&mut self.start, Start::Over);
        if let Start::At(key) = start {
            let mut keys = BytesColumn::default();
            keys.push(&key);
            let found = P::read(at.reads, at.slot, at.row, keys)?;
            self.page = ReadEntries::default();
            if let Some(value) = found.get(0) {
                self.page.keys.push(&key);
                self.page.values.push(value);
            }
            self.start = Start::After(key);
            return Ok(());
        }
        let after = if let Start::After(key) = &start { Some(key.as_slice()) } else { None };
        let limit = self.size.next();
        self.page = P::scan(at.reads, at.slot, at.row, after, limit)?;
        let (keys, values) = (self.page.keys.view(), self.page.values.view());
        if !is_last(&[keys, values], limit, self.entry_bytes) {
            self.start = Start::After(keys.get(keys.len() - 1).to_vec());
        }
        Ok(())
    }
}

impl<K: MapKey, V: Clone, C: StateCodec<V>, P: MapPlace> Scan<'_, K, V, C, P> {
    /// The next entry, or `None` at the end.
    fn entry(&mut self) -> Result<Option<(K, V)>, Error> {
        loop {
            let has_stored = self.stored.advance::<P>(self.at)?;
            let table = self.cells.inner.borrow();
            let stored = has_stored.then(|| self.stored.page.keys.view().get(self.stored.next));
            let own = self.own.peek().map(|entry| table.keys.view().get(*entry as usize));
            let order = match (stored, own) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(stored), Some(own)) => stored.cmp(own),
            };
            let Some(key) = (if order.is_lt() { stored } else { own }) else { return Ok(None) };
            if !(Bound::Unbounded, self.end.as_ref().map(Vec::as_slice)).contains(key) {
                return Ok(None);
            }
            let key = || K::read_last(key).map_err(|error| bad_key(&self.cells.name, error.into()));
            if order.is_lt() {
                let entry = (key()?, self.cells.decode(self.stored.page.values.view().get(self.stored.next))?);
                self.stored.next += 1;
                return Ok(Some(entry));
            }
            if order.is_eq() {
                // Written over, or deleted.
                self.stored.next += 1;
            }
            let value = self.own.peek().and_then(|entry| table.entries[*entry as usize].value.clone());
            let entry = value.map(|value| Ok::<_, Error>((key()?, value))).transpose()?;
            self.own.next();
            if entry.is_some() {
                return Ok(entry);
            }
        }
    }
}

#[cold]
fn bad_key(name: &str, error: Error) -> Error {
    error.context(format_args!("a stored entry key of slot {name:?} does not decode"))
}

impl<K: MapKey, V: Clone, C: StateCodec<V>, P: MapPlace> Iterator for Scan<'_, K, V, C, P> {
    type Item = Result<(K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entry();
        if !matches!(entry, Ok(Some(_))) {
            self.stop();
        }
        entry.transpose()
    }
}

impl<K, V, C, P> Scan<'_, K, V, C, P> {
    /// Nothing follows, neither stored nor own.
    fn stop(&mut self) {
        self.own = Vec::new().into_iter().peekable();
        self.stored.start = Start::Over;
        self.stored.next = self.stored.page.keys.len();
    }
}
