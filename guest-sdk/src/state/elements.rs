//! The cells behind lists: elements that were appended in a call, encoded at once, and the reading of stored ones.
//!
//! Appending reads nothing. Elements of all rows lie in one column in the order of their appending, which is the form that
//! the host takes; chains lead from element to element of one row, for reads of the row's own appends.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use super::{NONE, Options, end_value, no_encoding, undecodable};
use crate::call::{Limits, op};
use crate::codec::StateCodec;
use crate::column::BytesColumn;
use crate::error::Error;
use crate::reads::{PageSize, Reads, is_last};

/// Stored elements of one row up to this many bytes are kept for the rest of the call.
const KEPT_BYTES: usize = 16 << 10;

/// Where a list is stored.
pub(super) trait ListPlace {
    /// Reads a page.
    fn read(reads: &Reads<'_>, slot: u32, row: u32, start: u32, limit: u32) -> Result<BytesColumn, Error>;
}

/// The lists of one slot during a call.
pub(crate) struct Elements<T, C> {
    pub(super) name: String,
    pub(super) options: Cell<Options>,
    inner: RefCell<Appends>,
    codec: PhantomData<(fn() -> T, C)>,
}

#[derive(Default)]
struct Appends {
    rows: Vec<Row>,
    /// Rows that were cleared, in the order of their first clear.
    cleared: Vec<u32>,
    /// The row of each appended element; `NONE` if it was cleared away afterwards.
    owners: Vec<u32>,
    /// The next element of the same row.
    next: Vec<u32>,
    values: BytesColumn,
    /// Whether there are elements without an owner.
    has_dropped: bool,
}

#[derive(Clone)]
struct Row {
    first: u32,
    last: u32,
    cleared: bool,
    /// All stored elements, if they were read and are few.
    stored: Option<Rc<BytesColumn>>,
}

/// What a call did to a slot: ops in order, with the row of each.
pub(super) struct Changes {
    pub(super) rows: Vec<u32>,
    pub(super) ops: Vec<u8>,
    pub(super) values: BytesColumn,
}

impl<T, C: StateCodec<T>> Elements<T, C> {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), options: Cell::default(), inner: RefCell::default(), codec: PhantomData }
    }

    pub(super) fn begin(&self, rows: usize) {
        let inner = &mut *self.inner.borrow_mut();
        inner.rows.clear();
        inner.rows.resize(rows, Row { first: NONE, last: NONE, cleared: false, stored: None });
        inner.cleared.clear();
        inner.forget_elements();
    }

    pub(super) fn push(&self, row: u32, value: &T, limits: &Limits) -> Result<(), Error> {
        let inner = &mut *self.inner.borrow_mut();
        let start = inner.values.data.len();
        let encoded = C::encode(value, &mut inner.values.data)
            .map_err(|error| no_encoding(&self.name, error.into()))
            .and_then(|()| end_value(&mut inner.values, start, &self.name, limits.value_bytes));
        if encoded.is_err() {
            // The author may go on: nothing of the refused element may stay.
            inner.values.data.truncate(start);
            return encoded;
        }
        let element = u32::try_from(inner.owners.len()).expect("a call has fewer elements than 4 GiB of memory has words");
        inner.owners.push(row);
        inner.next.push(NONE);
        let own = &mut inner.rows[row as usize];
        match own.last {
            NONE => own.first = element,
            last => inner.next[last as usize] = element,
        }
        own.last = element;
        Ok(())
    }

    pub(super) fn clear(&self, row: u32) {
        let inner = &mut *self.inner.borrow_mut();
        let own = &mut inner.rows[row as usize];
        let mut element = std::mem::replace(&mut own.first, NONE);
        own.last = NONE;
        own.stored = None;
        if !std::mem::replace(&mut own.cleared, true) {
            inner.cleared.push(row);
        }
        inner.has_dropped |= element != NONE;
        while element != NONE {
            inner.owners[element as usize] = NONE;
            element = inner.next[element as usize];
        }
    }

    /// Hands out what was done, clears first.
    pub(super) fn take(&self) -> Option<Changes> {
        let inner = &mut *self.inner.borrow_mut();
        if inner.has_dropped {
            inner.compact();
        }
        let (clears, appends) = (inner.cleared.len(), inner.owners.len());
        if clears + appends == 0 {
            return None;
        }
        let mut rows = std::mem::take(&mut inner.cleared);
        let mut ops = vec![op::CLEAR; clears];
        let mut values = std::mem::take(&mut inner.values);
        if clears == 0 {
            rows = std::mem::take(&mut inner.owners);
        } else {
            rows.extend_from_slice(&inner.owners);
            // Clears come with empty values, all at the start of the data.
            values.ends.splice(0..0, std::iter::repeat_n(0, clears));
        }
        ops.resize(clears + appends, op::APPEND);
        inner.forget_elements();
        Some(Changes { rows, ops, values })
    }

    /// Reads a row's elements, those of the call last.
    pub(super) fn iter<'c, P: ListPlace>(
        &'c self,
        reads: &'c Reads<'c>,
        limits: &Limits,
        (slot, row): (u32, u32),
    ) -> Elems<'c, T, C, P> {
        let inner = self.inner.borrow();
        let own = &inner.rows[row as usize];
        Elems {
            cells: self,
            reads,
            slot,
            row,
            item_bytes: limits.value_bytes as usize,
            size: PageSize::new(),
            start: 0,
            is_whole: own.cleared || own.stored.is_some(),
            page: own.stored.clone().unwrap_or_default(),
            at: 0,
            own: own.first,
            place: PhantomData,
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<T, Error> {
        C::decode(bytes).map_err(|error| undecodable(&self.name, C::NAME, error.into()))
    }
}

impl Appends {
    fn forget_elements(&mut self) {
        self.owners.clear();
        self.next.clear();
        self.values = BytesColumn::default();
        self.has_dropped = false;
    }

    /// Removes the elements without an owner. The chains no longer hold.
    fn compact(&mut self) {
        let mut values = BytesColumn::with_capacity(self.owners.len(), self.values.data.len());
        for (owner, value) in self.owners.iter().zip(self.values.view().iter()) {
            if *owner != NONE {
                values.push(value);
            }
        }
        self.values = values;
        self.owners.retain(|owner| *owner != NONE);
    }
}

/// Elements of one list: pages of stored ones, then those of the call. It ends with the first error.
pub(super) struct Elems<'c, T, C, P> {
    cells: &'c Elements<T, C>,
    reads: &'c Reads<'c>,
    slot: u32,
    row: u32,
    /// The most that an element can have.
    item_bytes: usize,
    size: PageSize,
    /// Where the next page starts.
    start: u32,
    /// Whether no page follows.
    is_whole: bool,
    page: Rc<BytesColumn>,
    at: usize,
    /// The next element of the call.
    own: u32,
    place: PhantomData<P>,
}

impl<T, C: StateCodec<T>, P: ListPlace> Elems<'_, T, C, P> {
    fn turn_page(&mut self) -> Result<(), Error> {
        let limit = self.size.next();
        let page = P::read(self.reads, self.slot, self.row, self.start, limit)?;
        self.is_whole = is_last(&[page.view()], limit, self.item_bytes);
        self.page = Rc::new(page);
        self.at = 0;
        if self.is_whole && self.start == 0 && self.page.data.len() <= KEPT_BYTES {
            self.cells.inner.borrow_mut().rows[self.row as usize].stored = Some(Rc::clone(&self.page));
        }
        self.start = self.start.saturating_add(u32::try_from(self.page.len()).unwrap_or(u32::MAX));
        Ok(())
    }

    fn own(&mut self) -> Option<Result<T, Error>> {
        if self.own == NONE {
            return None;
        }
        let inner = self.cells.inner.borrow();
        let element = self.own as usize;
        self.own = inner.next[element];
        Some(self.cells.decode(inner.values.view().get(element)))
    }
}

impl<T, C: StateCodec<T>, P: ListPlace> Iterator for Elems<'_, T, C, P> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at == self.page.len() && !self.is_whole {
            if let Err(error) = self.turn_page() {
                (self.is_whole, self.own) = (true, NONE);
                return Some(Err(error));
            }
        }
        if self.at == self.page.len() {
            return self.own();
        }
        let value = self.cells.decode(self.page.view().get(self.at));
        self.at += 1;
        Some(value)
    }
}
