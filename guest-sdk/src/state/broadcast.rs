//! A map that is the same on all subtasks.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::rc::Rc;

use super::entries::{At, Entries, MapPlace, Mark};
use super::map_key::{KeyBytes, MapKey};
use super::{Options, SlotCells, scan};
use crate::call::{Effects, Limits, OperatorUpdate, op};
use crate::codec::{Postcard, StateCodec};
use crate::column::BytesColumn;
use crate::context::{BroadcastContext, Context, HasRecord};
use crate::error::Error;
use crate::reads::{ReadColumn, ReadEntries, Reads};

/// An ordered map that is the same on all subtasks, whatever the key: rules, prices, configuration.
///
/// It is read anywhere, and written only in [`crate::Operator::process_broadcast`], which all subtasks run with the same
/// records: its functions that write take that function's context and no other.
///
/// ```
/// # use cofferdam_guest::prelude::*;
/// # use cofferdam_guest::testing::{Harness, record};
/// struct Translate { words: Broadcast<String, String>, unknown: OperatorList<String> }
///
/// impl Operator for Translate {
///     type Config = NoConfig;
///     fn declare(declare: &mut Declare) -> Self {
///         declare.input("text");
///         declare.broadcast_input("dictionary");
///         Translate { words: declare.broadcast("words"), unknown: declare.split_list("unknown") }
///     }
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         match self.words.get(cx, record.text()?)? {
///             Some(word) => cx.emit_bytes(word),
///             None => self.unknown.push(cx, &record.text()?.to_owned()),
///         }
///     }
///     fn process_broadcast(&mut self, record: Record<'_>, cx: &mut BroadcastContext<'_>) -> Result<(), Error> {
///         let (word, meaning) = record.text()?.split_once('=').ok_or_else(|| Error::permanent("no `=`"))?;
///         self.words.put(cx, word, meaning.to_owned())
///     }
/// }
///
/// let mut translate = Harness::<Translate>::new();
/// let out = translate.process([record("Tee=tea").port("dictionary"), record("Tee"), record("Milch")]).unwrap();
/// assert_eq!(out.texts(), ["tea"]);
/// assert_eq!(translate.operator_list::<String>("unknown"), ["Milch"]);
/// ```
///
/// Elsewhere, writing does not compile:
///
/// ```compile_fail
/// # use cofferdam_guest::prelude::*;
/// fn process(rules: &Broadcast<String, u64>, cx: &mut Context<'_>) -> Result<(), Error> {
///     rules.put(cx, "tea", 20)
/// }
/// ```
pub struct Broadcast<K, V, C = Postcard> {
    slot: u32,
    cells: Rc<SharedCells<V, C>>,
    keys: PhantomData<fn(K) -> K>,
}

/// The cells of such a map: those of a keyed map with one row.
pub(crate) struct SharedCells<V, C>(Entries<V, C>);

struct SharedMap;

impl MapPlace for SharedMap {
    fn read(reads: &Reads<'_>, slot: u32, _: u32, entry_keys: BytesColumn) -> Result<ReadColumn, Error> {
        reads.get_broadcast(slot, entry_keys)
    }

    fn scan(reads: &Reads<'_>, slot: u32, _: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error> {
        reads.scan_broadcast(slot, start_after, limit)
    }
}

impl<K: MapKey, V: 'static, C: StateCodec<V>> Broadcast<K, V, C> {
    pub(super) fn new(slot: u32, cells: Rc<SharedCells<V, C>>) -> Self {
        Self { slot, cells, keys: PhantomData }
    }

    fn at<'c, P: HasRecord>(&self, cx: &'c Context<'_, P>) -> At<'c> {
        At { slot: self.slot, row: 0, reads: cx.reads() }
    }

    /// Returns a copy of an entry's value, or `None` if there is no such entry.
    ///
    /// # Errors
    /// A permanent error that names the slot, if the stored bytes do not decode. So for all functions here that read.
    pub fn get<P: HasRecord, Q: KeyBytes + ?Sized>(&self, cx: &Context<'_, P>, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.cells.0.with::<SharedMap, _>(self.at(cx), key, |table, entry| table.entries[entry].value.clone())
    }

    /// Returns copies of several entries' values, in the order of `keys`. What the call does not know yet is read at once.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_many<'k, P: HasRecord, Q: KeyBytes + ?Sized + 'k>(
        &self,
        cx: &Context<'_, P>,
        keys: impl IntoIterator<Item = &'k Q>,
    ) -> Result<Vec<Option<V>>, Error>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.cells.0.get_many::<SharedMap, Q>(self.at(cx), keys)
    }

    /// Whether there is such an entry.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn contains<P: HasRecord, Q: KeyBytes + ?Sized>(&self, cx: &Context<'_, P>, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
    {
        self.cells.0.with::<SharedMap, _>(self.at(cx), key, |table, entry| table.entries[entry].value.is_some())
    }

    /// Sets an entry.
    ///
    /// # Errors
    /// As [`crate::Map::put`].
    pub fn put<Q: KeyBytes + ?Sized>(&self, _: &mut BroadcastContext<'_>, key: &Q, value: V) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.cells.0.write(0, key, Some(value))
    }

    /// Removes an entry, if there is one.
    ///
    /// # Errors
    /// As [`crate::Map::put`].
    pub fn remove<Q: KeyBytes + ?Sized>(&self, _: &mut BroadcastContext<'_>, key: &Q) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.cells.0.write(0, key, None)
    }

    /// Changes an entry in place, starting from the type's default if there is none, and returns what `change` does.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn update<Q: KeyBytes + ?Sized, R>(
        &self,
        cx: &mut BroadcastContext<'_>,
        key: &Q,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, Error>
    where
        K: Borrow<Q>,
        V: Default,
    {
        self.cells.0.with::<SharedMap, _>(self.at(cx), key, |table, entry| {
            let entry = &mut table.entries[entry];
            entry.mark = Mark::Written;
            change(entry.value.get_or_insert_default())
        })
    }

    /// Removes all entries.
    pub fn clear(&self, _: &mut BroadcastContext<'_>) {
        self.cells.0.clear(0);
    }

    /// Returns all entries in the order of their keys, reading on as they are asked for.
    ///
    /// # Errors
    /// An item is a permanent error that names the slot, if the stored bytes do not decode. So for all scans.
    pub fn iter<'c, P: HasRecord>(
        &'c self,
        cx: &'c Context<'_, P>,
    ) -> impl Iterator<Item = Result<(K, V), Error>> + use<'c, K, V, C, P>
    where
        V: Clone,
    {
        self.scan(cx, ..)
    }

    /// Returns the entries in a range of keys.
    ///
    /// # Errors
    /// As [`Self::iter`].
    pub fn scan<'c, P: HasRecord, R: RangeBounds<K>>(
        &'c self,
        cx: &'c Context<'_, P>,
        range: R,
    ) -> impl Iterator<Item = Result<(K, V), Error>> + use<'c, K, V, C, P, R>
    where
        V: Clone,
    {
        self.cells.0.scan::<K, SharedMap>(self.at(cx), cx.limits(), scan::bounds_of(&range))
    }
}

impl<V, C: StateCodec<V>> SharedCells<V, C> {
    pub(super) fn new(name: &str) -> Self {
        Self(Entries::new(name))
    }
}

impl<V, C: StateCodec<V>> SlotCells for SharedCells<V, C> {
    fn options(&self) -> Options {
        self.0.options.get()
    }

    fn begin(&self, _: usize) {
        self.0.begin(1);
    }

    fn flush(&self, slot: u32, limits: &Limits, effects: &mut Effects) -> Result<(), Error> {
        let mut update = OperatorUpdate { slot, ..OperatorUpdate::default() };
        if !std::mem::take(&mut self.0.inner.borrow_mut().cleared).is_empty() {
            update.ops.push(op::CLEAR);
            update.entry_keys.push(&[]);
            update.values.push(&[]);
        }
        if let Some(written) = self.0.encode(limits)? {
            if update.ops.is_empty() {
                (update.ops, update.entry_keys, update.values) = (written.ops, written.entry_keys, written.values);
            } else {
                update.ops.extend(written.ops);
                written.entry_keys.view().iter().for_each(|key| update.entry_keys.push(key));
                written.values.view().iter().for_each(|value| update.values.push(value));
            }
        }
        if !update.ops.is_empty() {
            effects.operator_updates.push(update);
        }
        Ok(())
    }
}
