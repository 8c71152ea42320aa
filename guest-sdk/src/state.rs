//! Typed handles to state, and the cells behind them.
//!
//! A call hands in the stored value of each of its keys. A handle decodes a key's value the first time it is asked for
//! it, keeps it in a cell, and at the end of the call each cell that was written is encoded once, however many records
//! wrote it. Cells live as long as the call: the next call's values come from the host again.

use std::cell::{RefCell, RefMut};
use std::marker::PhantomData;
use std::rc::Rc;

use crate::call::{StateUpdate, op};
use crate::codec::{Postcard, StateCodec};
use crate::column::BytesColumn;
use crate::context::Context;
use crate::error::{Error, Limit};

/// State with at most one value for each key: the value of the current record's key.
///
/// Reads see what the same call wrote before. Writes reach the host when the whole call has succeeded.
pub struct Value<T, C = Postcard> {
    slot: usize,
    cells: Rc<Cells<T, C>>,
}

impl<T, C> Value<T, C> {
    pub(crate) fn new(slot: usize, cells: Rc<Cells<T, C>>) -> Self {
        Self { slot, cells }
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
            Mark::Unread => cx.stored(self.slot).is_none(),
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
            if let Some(bytes) = cx.stored(self.slot) {
                cell.value = Some(C::decode(bytes).map_err(|error| self.cells.undecodable(error.into()))?);
            }
            cell.mark = Mark::Read;
        }
        Ok(())
    }
}

/// The values of one slot during a call.
pub(crate) struct Cells<T, C> {
    name: String,
    inner: RefCell<Rows<T>>,
    codec: PhantomData<C>,
}

struct Rows<T> {
    /// One for each row of the frame.
    rows: Vec<Cell<T>>,
    /// Rows that were written, in the order of their first write.
    written: Vec<u32>,
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

/// What the runner does with a slot, whatever its type.
pub(crate) trait SlotCells {
    /// Forgets the last call and makes room for `rows` rows.
    fn begin(&self, rows: usize);

    /// Encodes what was written.
    ///
    /// # Errors
    /// A permanent error that names the slot, if a value has no encoding or exceeds `value_bytes_max`.
    fn flush(&self, slot: u32, value_bytes_max: u32) -> Result<Option<StateUpdate>, Error>;
}

impl<T, C: StateCodec<T>> Cells<T, C> {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), inner: RefCell::new(Rows { rows: Vec::new(), written: Vec::new() }), codec: PhantomData }
    }

    #[cold]
    fn undecodable(&self, error: Error) -> Error {
        error.context(format_args!("the stored value of slot {:?} does not decode as {}", self.name, C::NAME))
    }
}

impl<T, C: StateCodec<T>> SlotCells for Cells<T, C> {
    fn begin(&self, rows: usize) {
        let inner = &mut *self.inner.borrow_mut();
        inner.written.clear();
        inner.rows.clear();
        inner.rows.resize_with(rows, || Cell { value: None, mark: Mark::Unread });
    }

    fn flush(&self, slot: u32, value_bytes_max: u32) -> Result<Option<StateUpdate>, Error> {
        let inner = &mut *self.inner.borrow_mut();
        if inner.written.is_empty() {
            return Ok(None);
        }
        let count = inner.written.len();
        let mut ops = Vec::with_capacity(count);
        let mut values = BytesColumn::with_capacity(count, count * size_of::<T>());
        for row in &inner.written {
            let start = values.data.len();
            match &inner.rows[*row as usize].value {
                Some(value) => {
                    C::encode(value, &mut values.data)
                        .map_err(|error| Error::from(error).context(format_args!("a value of slot {:?}", self.name)))?;
                    ops.push(op::PUT);
                }
                None => ops.push(op::DELETE),
            }
            let bytes = values.data.len() - start;
            if bytes > value_bytes_max as usize {
                let name = &self.name;
                let text = format!("a value of slot {name:?} has {bytes} bytes, over {value_bytes_max}");
                return Err(Error::over(Limit::Write, text));
            }
            if u32::try_from(values.data.len()).is_err() {
                return Err(Error::over(Limit::Write, format!("one call writes over 4 GiB to slot {:?}", self.name)));
            }
            values.end_item();
        }
        Ok(Some(StateUpdate { slot, rows: std::mem::take(&mut inner.written), ops, values }))
    }
}
