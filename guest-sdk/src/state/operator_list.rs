//! A list that belongs to the subtask.

use std::borrow::Borrow;
use std::rc::Rc;

use super::elements::{Elements, ListPlace};
use super::{Options, SlotCells};
use crate::call::{Effects, Limits, OperatorUpdate};
use crate::codec::{Postcard, StateCodec};
use crate::column::BytesColumn;
use crate::context::{Context, HasRecord};
use crate::error::Error;
use crate::reads::Reads;

/// A list for each subtask, whatever the key: what a subtask has seen, counted or buffered.
///
/// When the parallelism changes, a list of [`crate::Declare::split_list`] is dealt out: the subtasks' elements, one after
/// the other, in equal parts. With [`crate::Declare::union_list`] every subtask gets the elements of all, at each restore.
/// It can be written in every function of the operator, and read in all but `finish`.
pub struct OperatorList<T, C = Postcard> {
    slot: u32,
    cells: Rc<SubtaskElements<T, C>>,
}

/// The cells of such a list: those of a keyed list with one row.
pub(crate) struct SubtaskElements<T, C>(Elements<T, C>);

struct SubtaskList;

impl ListPlace for SubtaskList {
    fn read(reads: &Reads<'_>, slot: u32, _: u32, start: u32, limit: u32) -> Result<BytesColumn, Error> {
        reads.get_operator_list(slot, start, limit)
    }
}

impl<T: 'static, C: StateCodec<T>> OperatorList<T, C> {
    pub(super) fn new(slot: u32, cells: Rc<SubtaskElements<T, C>>) -> Self {
        Self { slot, cells }
    }

    /// Appends an element.
    ///
    /// # Errors
    /// A permanent error if the element has no encoding or is too large.
    pub fn push<P>(&self, cx: &mut Context<'_, P>, element: &T) -> Result<(), Error> {
        self.cells.0.push(0, element, cx.limits())
    }

    /// Appends elements, given or borrowed.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn extend<P, E: Borrow<T>>(&self, cx: &mut Context<'_, P>, elements: impl IntoIterator<Item = E>) -> Result<(), Error> {
        elements.into_iter().try_for_each(|element| self.push(cx, element.borrow()))
    }

    /// Removes all elements.
    pub fn clear<P>(&self, _: &mut Context<'_, P>) {
        self.cells.0.clear(0);
    }

    /// Replaces all elements.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn set<P, E: Borrow<T>>(&self, cx: &mut Context<'_, P>, elements: impl IntoIterator<Item = E>) -> Result<(), Error> {
        self.clear(cx);
        self.extend(cx, elements)
    }

    /// Returns the elements, oldest first, reading on as they are asked for.
    ///
    /// # Errors
    /// An item is a permanent error that names the slot, if the stored bytes do not decode.
    pub fn iter<'c, P: HasRecord>(&'c self, cx: &'c Context<'_, P>) -> impl Iterator<Item = Result<T, Error>> + use<'c, T, C, P> {
        self.cells.0.iter::<SubtaskList>(cx.reads(), cx.limits(), (self.slot, 0))
    }

    /// Returns all elements, oldest first.
    ///
    /// # Errors
    /// As [`Self::iter`].
    pub fn read<P: HasRecord>(&self, cx: &Context<'_, P>) -> Result<Vec<T>, Error> {
        self.iter(cx).collect()
    }
}

impl<T, C: StateCodec<T>> SubtaskElements<T, C> {
    pub(super) fn new(name: &str) -> Self {
        Self(Elements::new(name))
    }
}

impl<T, C: StateCodec<T>> SlotCells for SubtaskElements<T, C> {
    fn options(&self) -> Options {
        self.0.options.get()
    }

    fn begin(&self, _: usize) {
        self.0.begin(1);
    }

    fn flush(&self, slot: u32, _: &Limits, effects: &mut Effects) -> Result<(), Error> {
        if let Some(done) = self.0.take() {
            let entry_keys = BytesColumn { data: Vec::new(), ends: vec![0; done.ops.len()] };
            effects.operator_updates.push(OperatorUpdate { slot, ops: done.ops, entry_keys, values: done.values });
        }
        Ok(())
    }
}
