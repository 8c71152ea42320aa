//! An ordered map for each key.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::rc::Rc;
use std::time::Duration;

use super::entries::{At, Entries, MapPlace, Mark};
use super::map_key::{KeyBytes, MapKey};
use super::{Options, SlotCells, scan};
use crate::call::{Effects, EntryUpdate, Limits, StateUpdate, op};
use crate::codec::{Postcard, StateCodec};
use crate::column::BytesColumn;
use crate::context::Context;
use crate::error::Error;
use crate::reads::{ReadColumn, ReadEntries, Reads};

/// An ordered map for each key: that of the current record's key.
///
/// An entry is read from the host when it is first asked for in a call; [`Self::get_many`] reads several at once. Writing
/// reads nothing. The map keys' order is that of [`MapKey`].
///
/// ```
/// # use cofferdam_guest::prelude::*;
/// # use cofferdam_guest::testing::{Harness, record};
/// struct Sales { by_day: Map<(String, u32), u64> } // By product and day.
///
/// impl Operator for Sales {
///     type Config = NoConfig;
///     fn declare(declare: &mut Declare) -> Self { Sales { by_day: declare.map("by-day") } }
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         let (product, day, amount): (String, u32, u64) = record.decode()?;
///         self.by_day.update(cx, &(product.clone(), day), |sum| *sum += amount)?;
///         let last_week = (product.clone(), day.saturating_sub(6))..=(product, day);
///         let mut sum = 0;
///         for entry in self.by_day.scan(cx, last_week) {
///             sum += entry?.1;
///         }
///         cx.emit(&sum)
///     }
/// }
///
/// let sale = |product: &str, day: u32, amount: u64| {
///     record(postcard::to_stdvec(&(product, day, amount)).unwrap()).key("shop")
/// };
/// let mut sales = Harness::<Sales>::new();
/// let out = sales.process([sale("tea", 1, 5), sale("jam", 2, 7), sale("tea", 7, 6), sale("tea", 8, 1)]).unwrap();
/// assert_eq!(out.decode::<u64>(), [5, 7, 11, 7]);
/// ```
pub struct Map<K, V, C = Postcard> {
    slot: u32,
    cells: Rc<MapCells<V, C>>,
    keys: PhantomData<fn(K) -> K>,
}

/// The cells of such a map.
pub(crate) struct MapCells<V, C>(Entries<V, C>);

struct KeyedMap;

impl MapPlace for KeyedMap {
    fn read(reads: &Reads<'_>, slot: u32, row: u32, entry_keys: BytesColumn) -> Result<ReadColumn, Error> {
        let rows = vec![row; entry_keys.len()];
        reads.get_entries(slot, &rows, entry_keys)
    }

    fn scan(reads: &Reads<'_>, slot: u32, row: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error> {
        reads.scan(slot, row, start_after, limit)
    }
}

impl<K: MapKey, V: 'static, C: StateCodec<V>> Map<K, V, C> {
    pub(super) fn new(slot: u32, cells: Rc<MapCells<V, C>>) -> Self {
        Self { slot, cells, keys: PhantomData }
    }

    /// Lets each entry expire once it has not been written for `ttl`, by the host's clock. An expired entry is never seen.
    /// Part of the checkpoint format: a slot cannot gain or lose it.
    ///
    /// # Panics
    /// If it is less than a millisecond.
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl(self, ttl: Duration) -> Self {
        Options::set_ttl(&self.cells.0.options, ttl);
        self
    }

    /// Lets reading an entry renew its time to live, too.
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl_renewed_by_reads(self) -> Self {
        Options::renew_by_reads(&self.cells.0.options);
        self
    }

    fn at<'c>(&self, cx: &'c Context<'_>) -> At<'c> {
        At { slot: self.slot, row: cx.row_number(), reads: cx.reads() }
    }

    /// Returns a copy of an entry's value, or `None` if there is no such entry.
    ///
    /// # Errors
    /// A permanent error that names the slot, if the stored bytes do not decode. So for all functions here that read.
    pub fn get<Q: KeyBytes + ?Sized>(&self, cx: &Context<'_>, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.cells.0.with::<KeyedMap, _>(self.at(cx), key, |table, entry| table.entries[entry].value.clone())
    }

    /// Returns copies of several entries' values, in the order of `keys`. What the call does not know yet is read at once.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_many<'k, Q: KeyBytes + ?Sized + 'k>(
        &self,
        cx: &Context<'_>,
        keys: impl IntoIterator<Item = &'k Q>,
    ) -> Result<Vec<Option<V>>, Error>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.cells.0.get_many::<KeyedMap, Q>(self.at(cx), keys)
    }

    /// Whether there is such an entry.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn contains<Q: KeyBytes + ?Sized>(&self, cx: &Context<'_>, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
    {
        self.cells.0.with::<KeyedMap, _>(self.at(cx), key, |table, entry| table.entries[entry].value.is_some())
    }

    /// Sets an entry.
    ///
    /// # Errors
    /// A permanent error if the entry keys of the call exceed 4 GiB. Too large a key or value fails the end of the call.
    pub fn put<Q: KeyBytes + ?Sized>(&self, cx: &mut Context<'_>, key: &Q, value: V) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.cells.0.write(cx.row_number(), key, Some(value))
    }

    /// Removes an entry, if there is one.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn remove<Q: KeyBytes + ?Sized>(&self, cx: &mut Context<'_>, key: &Q) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.cells.0.write(cx.row_number(), key, None)
    }

    /// Changes an entry in place, starting from the type's default if there is none, and returns what `change` does.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn update<Q: KeyBytes + ?Sized, R>(
        &self,
        cx: &mut Context<'_>,
        key: &Q,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, Error>
    where
        K: Borrow<Q>,
        V: Default,
    {
        self.cells.0.with::<KeyedMap, _>(self.at(cx), key, |table, entry| {
            let entry = &mut table.entries[entry];
            entry.mark = Mark::Written;
            change(entry.value.get_or_insert_default())
        })
    }

    /// Removes all entries.
    pub fn clear(&self, cx: &mut Context<'_>) {
        self.cells.0.clear(cx.row_number());
    }

    /// Returns all entries in the order of their keys, reading on as they are asked for.
    ///
    /// # Errors
    /// An item is a permanent error that names the slot, if the stored bytes do not decode. So for all scans.
    pub fn iter<'c>(&'c self, cx: &'c Context<'_>) -> impl Iterator<Item = Result<(K, V), Error>> + use<'c, K, V, C>
    where
        V: Clone,
    {
        self.scan(cx, ..)
    }

    /// Returns the entries in a range of keys, such as `map.scan(cx, 10..20)`.
    ///
    /// # Errors
    /// As [`Self::iter`].
    pub fn scan<'c, R: RangeBounds<K>>(
        &'c self,
        cx: &'c Context<'_>,
        range: R,
    ) -> impl Iterator<Item = Result<(K, V), Error>> + use<'c, K, V, C, R>
    where
        V: Clone,
    {
        self.cells.0.scan::<K, KeyedMap>(self.at(cx), cx.limits(), scan::bounds_of(&range))
    }

    /// As [`Self::scan`], without keeping the context: meanwhile records can be emitted, but this map must not be written.
    pub(crate) fn scan_apart<'c, R: RangeBounds<K>>(
        &'c self,
        cx: &Context<'c>,
        range: R,
    ) -> impl Iterator<Item = Result<(K, V), Error>> + use<'c, K, V, C, R>
    where
        V: Clone,
    {
        let at = At { slot: self.slot, row: cx.row_number(), reads: cx.reads() };
        self.cells.0.scan::<K, KeyedMap>(at, cx.limits(), scan::bounds_of(&range))
    }

    /// Returns the entries from a key on. Takes it borrowed, as [`Self::get`] does.
    ///
    /// # Errors
    /// As [`Self::iter`].
    pub fn scan_from<'c, Q: KeyBytes + ?Sized>(
        &'c self,
        cx: &'c Context<'_>,
        key: &Q,
    ) -> impl Iterator<Item = Result<(K, V), Error>> + use<'c, K, V, C, Q>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let bounds = (scan::from_key(key), std::ops::Bound::Unbounded);
        self.cells.0.scan::<K, KeyedMap>(self.at(cx), cx.limits(), bounds)
    }
}

impl<V, C: StateCodec<V>> MapCells<V, C> {
    pub(super) fn new(name: &str) -> Self {
        Self(Entries::new(name))
    }
}

impl<V, C: StateCodec<V>> SlotCells for MapCells<V, C> {
    fn options(&self) -> Options {
        self.0.options.get()
    }

    fn begin(&self, rows: usize) {
        self.0.begin(rows);
    }

    fn flush(&self, slot: u32, limits: &Limits, effects: &mut Effects) -> Result<(), Error> {
        if let Some(written) = self.0.encode(limits)? {
            let (rows, ops) = (written.rows, written.ops);
            effects.entries.push(EntryUpdate { slot, rows, ops, entry_keys: written.entry_keys, values: written.values });
        }
        let rows = std::mem::take(&mut self.0.inner.borrow_mut().cleared);
        if !rows.is_empty() {
            let values = BytesColumn { data: Vec::new(), ends: vec![0; rows.len()] };
            effects.updates.push(StateUpdate { slot, ops: vec![op::CLEAR; rows.len()], rows, values });
        }
        Ok(())
    }
}
