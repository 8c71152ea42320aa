//! An append-only list for each key.

use std::borrow::Borrow;
use std::rc::Rc;
use std::time::Duration;

use super::elements::{Elements, ListPlace};
use super::{Options, SlotCells};
use crate::call::{Effects, Limits, StateUpdate};
use crate::codec::{Postcard, StateCodec};
use crate::column::BytesColumn;
use crate::context::Context;
use crate::error::Error;
use crate::reads::Reads;

/// A list for each key: that of the current record's key.
///
/// Appending reads nothing and costs the same however long the list is. Reading fetches the list from the host, in pages.
///
/// ```
/// # use cofferdam_guest::prelude::*;
/// # use cofferdam_guest::testing::{Harness, record};
/// struct Recent { words: List<String> }
///
/// impl Operator for Recent {
///     type Config = NoConfig;
///     fn declare(declare: &mut Declare) -> Self { Recent { words: declare.list("words") } }
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.words.push(cx, &record.text()?.to_owned())?;
///         let all = self.words.read(cx)?;
///         if all.len() > 2 {
///             self.words.set(cx, &all[all.len() - 2..])?; // Keeps the last two.
///         }
///         cx.emit_bytes(all.join(" "))
///     }
/// }
///
/// let mut recent = Harness::<Recent>::new();
/// let out = recent.process(["a", "b", "c", "d"].map(|word| record(word).key("k"))).unwrap();
/// assert_eq!(out.texts(), ["a", "a b", "a b c", "b c d"]);
/// assert_eq!(recent.state_list::<String>("words", "k"), ["c", "d"]);
/// ```
pub struct List<T, C = Postcard> {
    slot: u32,
    cells: Rc<Elements<T, C>>,
}

struct KeyedList;

impl ListPlace for KeyedList {
    fn read(reads: &Reads<'_>, slot: u32, row: u32, start: u32, limit: u32) -> Result<BytesColumn, Error> {
        reads.get_list(slot, row, start, limit)
    }
}

impl<T, C> List<T, C> {
    pub(super) fn new(slot: u32, cells: Rc<Elements<T, C>>) -> Self {
        Self { slot, cells }
    }

    /// Lets each element expire `ttl` after it was appended, by the host's clock. An expired element is never seen. Part of
    /// the checkpoint format: a slot cannot gain or lose it.
    ///
    /// # Panics
    /// If it is less than a millisecond.
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl(self, ttl: Duration) -> Self {
        Options::set_ttl(&self.cells.options, ttl);
        self
    }

    /// Lets reading an element renew its time to live.
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl_renewed_by_reads(self) -> Self {
        Options::renew_by_reads(&self.cells.options);
        self
    }
}

impl<T: 'static, C: StateCodec<T>> List<T, C> {
    /// Appends an element.
    ///
    /// # Errors
    /// A permanent error if the element has no encoding or is too large.
    pub fn push(&self, cx: &mut Context<'_>, element: &T) -> Result<(), Error> {
        self.cells.push(cx.row_number(), element, cx.limits())
    }

    /// Appends elements, given or borrowed.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn extend<E: Borrow<T>>(&self, cx: &mut Context<'_>, elements: impl IntoIterator<Item = E>) -> Result<(), Error> {
        elements.into_iter().try_for_each(|element| self.push(cx, element.borrow()))
    }

    /// Removes all elements.
    pub fn clear(&self, cx: &mut Context<'_>) {
        self.cells.clear(cx.row_number());
    }

    /// Replaces all elements.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn set<E: Borrow<T>>(&self, cx: &mut Context<'_>, elements: impl IntoIterator<Item = E>) -> Result<(), Error> {
        self.clear(cx);
        self.extend(cx, elements)
    }

    /// Returns the elements, oldest first, reading on as they are asked for.
    ///
    /// # Errors
    /// An item is a permanent error that names the slot, if the stored bytes do not decode.
    pub fn iter<'c>(&'c self, cx: &'c Context<'_>) -> impl Iterator<Item = Result<T, Error>> + use<'c, T, C> {
        self.cells.iter::<KeyedList>(cx.reads(), cx.limits(), (self.slot, cx.row_number()))
    }

    /// Returns all elements, oldest first.
    ///
    /// # Errors
    /// As [`Self::iter`].
    pub fn read(&self, cx: &Context<'_>) -> Result<Vec<T>, Error> {
        self.iter(cx).collect()
    }
}

impl<T, C: StateCodec<T>> SlotCells for Elements<T, C> {
    fn options(&self) -> Options {
        self.options.get()
    }

    fn begin(&self, rows: usize) {
        self.begin(rows);
    }

    fn flush(&self, slot: u32, _: &Limits, effects: &mut Effects) -> Result<(), Error> {
        let update = self.take().map(|done| StateUpdate { slot, rows: done.rows, ops: done.ops, values: done.values });
        effects.updates.extend(update);
        Ok(())
    }
}
