//! The cells behind maps: entries that a call has touched, and how they are loaded and written.
//!
//! Entry keys lie in one column and entries in one array; a hash table leads to an entry, and chains lead from entry to
//! entry of one row. So an entry costs no allocation of its own.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::marker::PhantomData;

use super::map_key::KeyBytes;
use super::{NONE, Options, end_value, no_encoding, over_4_gib, undecodable};
use crate::call::{Limits, op};
use crate::codec::StateCodec;
use crate::column::BytesColumn;
use crate::error::{Error, Limit};
use crate::reads::{ReadColumn, ReadEntries, Reads};

/// Where a map is stored.
pub(super) trait MapPlace {
    /// Reads entries of one map.
    fn read(reads: &Reads<'_>, slot: u32, row: u32, entry_keys: BytesColumn) -> Result<ReadColumn, Error>;

    /// Reads a page of it.
    fn scan(reads: &Reads<'_>, slot: u32, row: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error>;
}

/// The maps of one slot during a call.
pub(crate) struct Entries<V, C> {
    pub(super) name: String,
    pub(super) options: Cell<Options>,
    pub(super) inner: RefCell<Table<V>>,
    codec: PhantomData<C>,
}

/// The map that a function is about, and how to read it.
#[derive(Clone, Copy)]
pub(super) struct At<'c> {
    pub(super) slot: u32,
    pub(super) row: u32,
    pub(super) reads: &'c Reads<'c>,
}

/// What a call has touched.
pub(super) struct Table<V> {
    rows: Vec<Row>,
    /// Rows that were cleared, in the order of their first clear.
    pub(super) cleared: Vec<u32>,
    pub(super) keys: BytesColumn,
    /// One for each key.
    pub(super) entries: Vec<Entry<V>>,
    /// The last entry whose row and key have a hash.
    index: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
}

#[derive(Clone, Copy)]
struct Row {
    /// The last entry of the row.
    last: u32,
    cleared: bool,
}

pub(super) struct Entry<V> {
    pub(super) row: u32,
    /// Another entry with the same hash.
    same_hash: u32,
    /// The entry of the same row before this one.
    same_row: u32,
    pub(super) mark: Mark,
    pub(super) value: Option<V>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// What is stored counts, not `value`.
    Unread,
    /// `value` is what is stored.
    Read,
    /// `value` is to be stored.
    Written,
}

/// What a call wrote: ops of single entries, each with its row.
pub(super) struct Written {
    pub(super) rows: Vec<u32>,
    pub(super) ops: Vec<u8>,
    pub(super) entry_keys: BytesColumn,
    pub(super) values: BytesColumn,
}

impl<V, C: StateCodec<V>> Entries<V, C> {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), options: Cell::default(), inner: RefCell::new(Table::new()), codec: PhantomData }
    }

    pub(super) fn begin(&self, rows: usize) {
        self.inner.borrow_mut().begin(rows);
    }

    /// Shows an entry's value, which is read if it must be.
    pub(super) fn with<P: MapPlace, R>(
        &self,
        at: At<'_>,
        key: &(impl KeyBytes + ?Sized),
        look: impl FnOnce(&mut Table<V>, usize) -> R,
    ) -> Result<R, Error> {
        let table = &mut *self.inner.borrow_mut();
        let entry = table.entry(at.row, key, &self.name)?;
        self.load::<P>(at, table, &[entry])?;
        Ok(look(table, entry))
    }

    /// Returns copies of several entries' values; what is not at hand is read at once.
    pub(super) fn get_many<'k, P: MapPlace, K: KeyBytes + ?Sized + 'k>(
        &self,
        at: At<'_>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<V>>, Error>
    where
        V: Clone,
    {
        let table = &mut *self.inner.borrow_mut();
        let entries = keys.into_iter().map(|key| table.entry(at.row, key, &self.name)).collect::<Result<Vec<_>, _>>()?;
        self.load::<P>(at, table, &entries)?;
        Ok(entries.iter().map(|entry| table.entries[*entry].value.clone()).collect())
    }

    /// Sets or deletes an entry, unread.
    pub(super) fn write(&self, row: u32, key: &(impl KeyBytes + ?Sized), value: Option<V>) -> Result<(), Error> {
        let table = &mut *self.inner.borrow_mut();
        let index = table.entry(row, key, &self.name)?;
        let is_cleared = table.rows[row as usize].cleared;
        let entry = &mut table.entries[index];
        // What a clear or a read has shown not to be there needs no delete.
        let is_absent = match entry.mark {
            Mark::Unread => is_cleared,
            Mark::Read => entry.value.is_none(),
            Mark::Written => false,
        };
        entry.mark = if value.is_none() && is_absent { Mark::Read } else { Mark::Written };
        entry.value = value;
        Ok(())
    }

    pub(super) fn clear(&self, row: u32) {
        self.inner.borrow_mut().clear(row);
    }

    /// Reads what is unread of `entries`, all of one row, in one go.
    fn load<P: MapPlace>(&self, at: At<'_>, table: &mut Table<V>, entries: &[usize]) -> Result<(), Error> {
        let is_cleared = table.rows[at.row as usize].cleared;
        let (mut unread, mut wanted) = (Vec::new(), BytesColumn::default());
        for entry in entries {
            match table.entries[*entry].mark {
                Mark::Unread if is_cleared => table.entries[*entry].mark = Mark::Read,
                Mark::Unread => {
                    wanted.push(table.keys.view().get(*entry));
                    unread.push(*entry);
                }
                Mark::Read | Mark::Written => {}
            }
        }
        if unread.is_empty() {
            return Ok(());
        }
        let found = P::read(at.reads, at.slot, at.row, wanted)?;
        for (index, entry) in unread.into_iter().enumerate() {
            table.entries[entry].value = found.get(index).map(|bytes| self.decode(bytes)).transpose()?;
            table.entries[entry].mark = Mark::Read;
        }
        Ok(())
    }

    pub(super) fn decode(&self, bytes: &[u8]) -> Result<V, Error> {
        C::decode(bytes).map_err(|error| undecodable(&self.name, C::NAME, error.into()))
    }

    /// Encodes what was written; `None` if nothing was.
    pub(super) fn encode(&self, limits: &Limits) -> Result<Option<Written>, Error> {
        let table = &*self.inner.borrow();
        let count = table.entries.iter().filter(|entry| entry.mark == Mark::Written).count();
        if count == 0 {
            return Ok(None);
        }
        let mut written = Written {
            rows: Vec::with_capacity(count),
            ops: Vec::with_capacity(count),
            entry_keys: BytesColumn::with_capacity(count, table.keys.data.len()),
            values: BytesColumn::with_capacity(count, count * size_of::<V>()),
        };
        for (entry, key) in table.entries.iter().zip(table.keys.view().iter()) {
            if entry.mark != Mark::Written {
                continue;
            }
            if key.len() > limits.key_bytes as usize {
                let (bytes, max) = (key.len(), limits.key_bytes);
                return Err(Error::over(
                    Limit::Write,
                    format!("an entry key of slot {:?} has {bytes} bytes, over {max}", self.name),
                ));
            }
            let start = written.values.data.len();
            if let Some(value) = &entry.value {
                C::encode(value, &mut written.values.data).map_err(|error| no_encoding(&self.name, error.into()))?;
            }
            end_value(&mut written.values, start, &self.name, limits.value_bytes)?;
            written.rows.push(entry.row);
            written.ops.push(if entry.value.is_some() { op::PUT } else { op::DELETE });
            written.entry_keys.push(key);
        }
        Ok(Some(written))
    }
}

impl<V> Table<V> {
    fn new() -> Self {
        Self {
            rows: Vec::new(),
            cleared: Vec::new(),
            keys: BytesColumn::default(),
            entries: Vec::new(),
            index: HashMap::default(),
        }
    }

    fn begin(&mut self, rows: usize) {
        self.rows.clear();
        self.rows.resize(rows, Row { last: NONE, cleared: false });
        self.cleared.clear();
        if self.entries.is_empty() {
            return;
        }
        // Emptying a table costs what it can hold: one grown by a large call would burden all small ones.
        if self.index.capacity() > 8 * self.entries.len().max(64) {
            self.index = HashMap::default();
        }
        self.index.clear();
        self.keys.data.clear();
        self.keys.ends.clear();
        self.entries.clear();
    }

    /// Whether nothing that was stored of a row counts any more.
    pub(super) fn is_cleared(&self, row: u32) -> bool {
        self.rows[row as usize].cleared
    }

    /// Finds or makes the entry of a key.
    fn entry(&mut self, row: u32, key: &(impl KeyBytes + ?Sized), name: &str) -> Result<usize, Error> {
        let start = self.keys.data.len();
        key.write_last(&mut self.keys.data);
        if u32::try_from(self.keys.data.len()).is_err() {
            return Err(over_4_gib(name));
        }
        let bytes = &self.keys.data[start..];
        let hash = hash(row, bytes);
        let chain = self.index.get(&hash).copied().unwrap_or(NONE);
        let mut entry = chain;
        while entry != NONE {
            let index = entry as usize;
            let found = &self.entries[index];
            if found.row == row && self.keys.view().get(index) == bytes {
                self.keys.data.truncate(start);
                return Ok(index);
            }
            entry = found.same_hash;
        }
        let number = u32::try_from(self.entries.len()).map_err(|_| over_4_gib(name))?;
        self.keys.end_item();
        self.index.insert(hash, number);
        let same_row = std::mem::replace(&mut self.rows[row as usize].last, number);
        self.entries.push(Entry { row, same_hash: chain, same_row, mark: Mark::Unread, value: None });
        Ok(number as usize)
    }

    fn clear(&mut self, row: u32) {
        let own = &mut self.rows[row as usize];
        if !std::mem::replace(&mut own.cleared, true) {
            self.cleared.push(row);
        }
        let mut entry = own.last;
        while entry != NONE {
            let found = &mut self.entries[entry as usize];
            (found.value, found.mark) = (None, Mark::Read);
            entry = found.same_row;
        }
    }

    /// Entries of a row that were written, in the order of their keys.
    pub(super) fn written_of(&self, row: u32) -> Vec<u32> {
        let mut written = Vec::new();
        let mut entry = self.rows[row as usize].last;
        while entry != NONE {
            let found = &self.entries[entry as usize];
            if found.mark == Mark::Written {
                written.push(entry);
            }
            entry = found.same_row;
        }
        let keys = self.keys.view();
        written.sort_unstable_by_key(|entry| keys.get(*entry as usize));
        written
    }
}

/// A hash of few instructions. Whoever makes keys collide slows down their own operator, within its own fuel.
fn hash(row: u32, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut hash = mix(bytes.len() as u64, u64::from(row));
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = mix(hash, u64::from_le_bytes(last));
    hash ^ hash >> 32
}

/// Passes on what is a hash already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only `u64` keys are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
