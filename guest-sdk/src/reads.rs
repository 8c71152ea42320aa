//! Reading state in the middle of a call, beyond what was handed in with it: the `state-reads` interface in plain columns.
//!
//! In wasm the host's imports answer. Natively it is whoever makes the call: the test harness, or an adapter.

use crate::column::{BytesColumn, BytesView};
use crate::error::Error;

/// Bulk, read-only access to stored state, as of the start of the call.
///
/// A page of a list or a map has at most `limit` items. It ends early only where the next item would bring it over
/// [`PAGE_BYTES`]; it has at least one item, unless there is none left.
pub trait StateReads {
    /// The values of a value slot for `rows`.
    ///
    /// # Errors
    /// A permanent error for a slot of another kind, or a row that the call does not have. So for all functions here.
    fn get_many(&self, slot: u32, rows: &[u32]) -> Result<ReadColumn, Error>;

    /// Item `i` is entry `entry_keys[i]` of the map of row `rows[i]`.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn get_entries(&self, slot: u32, rows: &[u32], entry_keys: BytesColumn) -> Result<ReadColumn, Error>;

    /// A page of a row's map after the entry key `start_after`, in the order of the keys' bytes.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn scan(&self, slot: u32, row: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error>;

    /// A page of a row's list from element `start` on, oldest first.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn get_list(&self, slot: u32, row: u32, start: u32, limit: u32) -> Result<BytesColumn, Error>;

    /// A page of the subtask's list from element `start` on, oldest first.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn get_operator_list(&self, slot: u32, start: u32, limit: u32) -> Result<BytesColumn, Error>;

    /// Entries of a broadcast slot.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn get_broadcast(&self, slot: u32, entry_keys: BytesColumn) -> Result<ReadColumn, Error>;

    /// A page of a broadcast slot after the entry key `start_after`, in the order of the keys' bytes.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn scan_broadcast(&self, slot: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error>;
}

/// What answers reads: known when compiling to wasm, so that a component imports what it uses and no more.
#[cfg(target_arch = "wasm32")]
pub type Reads<'r> = crate::wasm::Imports<'r>;
/// What answers reads.
#[cfg(not(target_arch = "wasm32"))]
pub type Reads<'r> = dyn StateReads + 'r;

/// Bytes of keys and values in one page, but for a single larger item.
pub const PAGE_BYTES: usize = 4 << 20;

/// Values, some of which may not be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadColumn {
    /// Bit `i % 8` of byte `i / 8` is set if item `i` is there.
    pub present: Vec<u8>,
    /// Empty where there is none.
    pub values: BytesColumn,
}

impl ReadColumn {
    /// Appends an item.
    ///
    /// # Panics
    /// If the column would exceed 4 GiB.
    pub fn push(&mut self, value: Option<&[u8]>) {
        let index = self.values.len();
        if index.is_multiple_of(8) {
            self.present.push(0);
        }
        self.present[index / 8] |= u8::from(value.is_some()) << (index % 8);
        self.values.push(value.unwrap_or_default());
    }

    /// Returns an item, if it is there.
    ///
    /// # Panics
    /// If the column has no such item.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        (self.present[index / 8] >> (index % 8) & 1 != 0).then(|| self.values.view().get(index))
    }
}

/// A page of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadEntries {
    /// One item an entry.
    pub keys: BytesColumn,
    /// One item an entry.
    pub values: BytesColumn,
}

/// How many items the next page of a list or a map has: few at first, for a reader that stops early.
#[derive(Debug)]
pub(crate) struct PageSize(u32);

impl PageSize {
    pub(crate) fn new() -> Self {
        Self(32)
    }

    /// The limit of the next page.
    pub(crate) fn next(&mut self) -> u32 {
        let limit = self.0;
        self.0 = (limit * 4).min(2048);
        limit
    }
}

/// Whether nothing can follow a page that was asked for with `limit`, if an item has at most `item_bytes`.
pub(crate) fn is_last(page: &[BytesView<'_>], limit: u32, item_bytes: usize) -> bool {
    let items = page.first().map_or(0, BytesView::len);
    let bytes: usize = page.iter().map(BytesView::bytes).sum();
    items == 0 || (items < limit as usize && bytes + item_bytes <= PAGE_BYTES)
}

#[cfg(test)]
pub(crate) use self::tests::Unreadable;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails whatever is read.
    pub(crate) struct Unreadable;

    impl StateReads for Unreadable {
        fn get_many(&self, _: u32, _: &[u32]) -> Result<ReadColumn, Error> {
            Err(Error::transient("unread"))
        }
        fn get_entries(&self, _: u32, _: &[u32], _: BytesColumn) -> Result<ReadColumn, Error> {
            Err(Error::transient("unread"))
        }
        fn scan(&self, _: u32, _: u32, _: Option<&[u8]>, _: u32) -> Result<ReadEntries, Error> {
            Err(Error::transient("unread"))
        }
        fn get_list(&self, _: u32, _: u32, _: u32, _: u32) -> Result<BytesColumn, Error> {
            Err(Error::transient("unread"))
        }
        fn get_operator_list(&self, _: u32, _: u32, _: u32) -> Result<BytesColumn, Error> {
            Err(Error::transient("unread"))
        }
        fn get_broadcast(&self, _: u32, _: BytesColumn) -> Result<ReadColumn, Error> {
            Err(Error::transient("unread"))
        }
        fn scan_broadcast(&self, _: u32, _: Option<&[u8]>, _: u32) -> Result<ReadEntries, Error> {
            Err(Error::transient("unread"))
        }
    }

    #[test]
    fn a_page_is_the_last_if_it_is_short_and_not_for_its_bytes() {
        let column = |items: usize, bytes: usize| {
            let mut column = BytesColumn::default();
            (0..items).for_each(|_| column.push(&vec![0; bytes]));
            column
        };
        let last = |items, bytes, limit| is_last(&[column(items, bytes).view()], limit, 1 << 20);
        assert!(last(0, 0, 10), "an empty page is at the end");
        assert!(last(9, 1, 10) && last(3, 1 << 20, 10));
        assert!(!last(10, 1, 10), "a full page may be followed by more");
        assert!(!last(4, 1 << 20, 10), "another item of 1 MiB would not have fitted");
        assert_eq!(
            std::iter::repeat_with({
                let mut size = PageSize::new();
                move || size.next()
            })
            .take(5)
            .last(),
            Some(2048)
        );
    }
}
