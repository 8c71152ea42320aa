//! One value for each key.
//!
//! A handle decodes a key's value the first time it is asked for it, keeps it in a cell, and at the end of the call each
//! cell that was written is encoded once, however many records wrote it.

use std::cell::{Cell as OptionsCell, RefCell, RefMut};
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use super::{Options, SlotCells, end_value, no_encoding, undecodable};
use crate::call::{Effects, Limits, StateUpdate, op};
use crate::codec::{Postcard, StateCodec};
use crate::column::BytesColumn;
use crate::context::Context;
use crate::error::Error;
use crate::reads::{ReadColumn, Reads};

/// State with at most one value for each key: the value of the current record's key.
///
/// Reads see what the same call wrote before. Writes reach the host when the whole call has succeeded.
pub struct Value<T, C = Postcard> {
    cells: Rc<Cells<T, C>>,
}

impl<T, C> Value<T, C> {
    pub(crate) fn new(cells: Rc<Cells<T, C>>) -> Self {
        Self { cells }
    }

    /// Lets each value expire once it has not been written for `ttl`, by the host's clock. An expired value is never seen.
    /// Part of the checkpoint format: a slot cannot gain or lose it.
    ///
    /// # Panics
    /// If it is less than a millisecond.
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl(self, ttl: Duration) -> Self {
        Options::set_ttl(&self.cells.options, ttl);
        self
    }

    /// Lets reading a value renew its time to live, too.
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn ttl_renewed_by_reads(self) -> Self {
        Options::renew_by_reads(&self.cells.options);
        self
    }

    /// Has values read when the first of them is asked for in a call, for all keys of the call at once, instead of handed
    /// in with every call. For state that few calls look at, or large values.
    #[must_use = "a slot is declared for the handle's sake"]
    pub fn on_demand(self) -> Self {
        self.cells.options.set(Options { on_demand: true, ..self.cells.options.get() });
        self.cells.inner.borrow_mut().fetch = Some(fetch);
        self
    }
}

impl<T: 'static, C: StateCodec<T>> Value<T, C> {
    /// Returns a copy of the value, or `None` if the key has none.
    ///
    /// # Errors
    /// A permanent error that names the slot, if the stored bytes do not decode. So for all functions here.
    #[inline]
    pub fn get(&self, cx: &Context<'_>) -> Result<Option<T>, Error>
    where
        T: Clone,
    {
        self.read(cx).map(|cell| cell.value.clone())
    }

    /// Returns a copy of the value, or the type's default if the key has none.
    ///
    /// # Errors
    /// As [`Self::get`].
    #[inline]
    pub fn get_or_default(&self, cx: &Context<'_>) -> Result<T, Error>
    where
        T: Clone + Default,
    {
        self.read(cx).map(|cell| cell.value.clone().unwrap_or_default())
    }

    /// Looks at the value without copying it.
    ///
    /// # Errors
    /// As [`Self::get`].
    #[inline]
    pub fn with<R>(&self, cx: &mut Context<'_>, look: impl FnOnce(Option<&T>) -> R) -> Result<R, Error> {
        self.read(cx).map(|cell| look(cell.value.as_ref()))
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, cx: &mut Context<'_>, value: T) {
        let mut cells = self.cells.inner.borrow_mut();
        let cell = cells.write(cx.row());
        cell.value = Some(value);
    }

    /// Changes the value in place, starting from the type's default if the key has none, and returns what `change` does.
    ///
    /// # Errors
    /// As [`Self::get`].
    #[inline]
    pub fn update<R>(&self, cx: &mut Context<'_>, change: impl FnOnce(&mut T) -> R) -> Result<R, Error>
    where
        T: Default,
    {
        self.modify(cx, |value| change(value.get_or_insert_default()))
    }

    /// Changes the value in place; `None`, before and after, is no value.
    ///
    /// # Errors
    /// As [`Self::get`].
    #[inline]
    pub fn modify<R>(&self, cx: &mut Context<'_>, change: impl FnOnce(&mut Option<T>) -> R) -> Result<R, Error> {
        let mut cells = self.cells.inner.borrow_mut();
        self.load(cx, &mut cells)?;
        Ok(change(&mut cells.write(cx.row()).value))
    }

    /// Deletes the value, if there is one.
    #[inline]
    pub fn delete(&self, cx: &mut Context<'_>) {
        let row = cx.row();
        let mut cells = self.cells.inner.borrow_mut();
        let absent = match cells.rows[row].mark {
            // What is not at hand is not worth a read.
            Mark::Unread => cells.fetch.is_none() && cx.stored(cells.column).is_none(),
            Mark::Read => cells.rows[row].value.is_none(),
            Mark::Written => false,
        };
        if !absent {
            cells.write(row).value = None;
        }
    }

    /// Returns the cell of the current row, decoded.
    ///
    /// The cells are never borrowed twice: a closure of the author's that runs meanwhile cannot use a handle, as it cannot
    /// have the context, which the functions that take a closure borrow exclusively.
    #[inline]
    fn read(&self, cx: &Context<'_>) -> Result<RefMut<'_, Cell<T>>, Error> {
        let mut cells = self.cells.inner.borrow_mut();
        self.load(cx, &mut cells)?;
        Ok(RefMut::map(cells, |cells| &mut cells.rows[cx.row()]))
    }

    /// Decodes the cell of the current row, if that has not happened yet in this call.
    #[inline]
    fn load(&self, cx: &Context<'_>, cells: &mut Rows<T>) -> Result<(), Error> {
        let cell = &mut cells.rows[cx.row()];
        if cell.mark == Mark::Unread {
            let stored = match cells.fetch {
                None => cx.stored(cells.column),
                Some(fetch) => fetched(&mut cells.fetched, cx, fetch, cells.slot)?,
            };
            if let Some(bytes) = stored {
                let value = C::decode(bytes).map_err(|error| undecodable(&self.cells.name, C::NAME, error.into()))?;
                cell.value = Some(value);
            }
            cell.mark = Mark::Read;
        }
        Ok(())
    }
}

/// Reads the values of all of a call's rows.
type Fetch = fn(&Reads<'_>, u32, &[u32]) -> Result<ReadColumn, Error>;

/// Named by [`Value::on_demand`] alone, so that a component that never calls it does not import reads.
fn fetch(reads: &Reads<'_>, slot: u32, rows: &[u32]) -> Result<ReadColumn, Error> {
    reads.get_many(slot, rows)
}

/// The stored bytes of the current row, which are read for all rows if that has not happened in this call.
fn fetched<'f>(column: &'f mut Option<ReadColumn>, cx: &Context<'_>, fetch: Fetch, slot: u32) -> Result<Option<&'f [u8]>, Error> {
    let column = match column {
        Some(column) => column,
        None => {
            let rows: Vec<u32> = (0..u32::try_from(cx.rows()).expect("rows are numbered in 32 bits")).collect();
            column.insert(fetch(cx.reads(), slot, &rows)?)
        }
    };
    Ok(column.get(cx.row()))
}

/// The values of one slot during a call.
pub(crate) struct Cells<T, C> {
    name: String,
    options: OptionsCell<Options>,
    inner: RefCell<Rows<T>>,
    codec: PhantomData<C>,
}

struct Rows<T> {
    /// One for each row of the frame.
    rows: Vec<Cell<T>>,
    /// Rows that were written, in the order of their first write.
    written: Vec<u32>,
    slot: u32,
    /// Which column of the frame has the stored values.
    column: usize,
    /// How to read them, if no column has them.
    fetch: Option<Fetch>,
    /// What was read in this call.
    fetched: Option<ReadColumn>,
}

struct Cell<T> {
    value: Option<T>,
    mark: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// The stored bytes count, not `value`.
    Unread,
    /// `value` is what is stored.
    Read,
    /// `value` is to be stored.
    Written,
}

impl<T> Rows<T> {
    #[inline]
    fn write(&mut self, row: usize) -> &mut Cell<T> {
        let cell = &mut self.rows[row];
        if cell.mark != Mark::Written {
            cell.mark = Mark::Written;
            self.written.push(u32::try_from(row).expect("rows are numbered in 32 bits"));
        }
        cell
    }
}

impl<T, C: StateCodec<T>> Cells<T, C> {
    pub(crate) fn new(name: &str, slot: u32) -> Self {
        let rows = Rows { rows: Vec::new(), written: Vec::new(), slot, column: 0, fetch: None, fetched: None };
        Self { name: name.into(), options: OptionsCell::default(), inner: RefCell::new(rows), codec: PhantomData }
    }
}

impl<T, C: StateCodec<T>> SlotCells for Cells<T, C> {
    fn options(&self) -> Options {
        self.options.get()
    }

    fn open(&self, column: Option<usize>) {
        if let Some(column) = column {
            self.inner.borrow_mut().column = column;
        }
    }

    fn begin(&self, rows: usize) {
        let inner = &mut *self.inner.borrow_mut();
        inner.written.clear();
        inner.rows.clear();
        inner.rows.resize_with(rows, || Cell { value: None, mark: Mark::Unread });
        inner.fetched = None;
    }

    fn flush(&self, slot: u32, limits: &Limits, effects: &mut Effects) -> Result<(), Error> {
        let inner = &mut *self.inner.borrow_mut();
        if inner.written.is_empty() {
            return Ok(());
        }
        let count = inner.written.len();
        let mut ops = Vec::with_capacity(count);
        let mut values = BytesColumn::with_capacity(count, count * size_of::<T>());
        for row in &inner.written {
            let start = values.data.len();
            match &inner.rows[*row as usize].value {
                Some(value) => {
                    C::encode(value, &mut values.data).map_err(|error| no_encoding(&self.name, error.into()))?;
                    ops.push(op::PUT);
                }
                None => ops.push(op::DELETE),
            }
            end_value(&mut values, start, &self.name, limits.value_bytes)?;
        }
        effects.updates.push(StateUpdate { slot, rows: std::mem::take(&mut inner.written), ops, values });
        Ok(())
    }
}
