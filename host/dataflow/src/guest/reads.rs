//! Reading state in the middle of a call, beyond what the frame brings.

use crate::column::{BytesColumn, BytesSlice};

/// Bulk, read-only access to the state of the subtask that a call runs for. Everything is as of the start of the call.
///
/// Rows are those of the call's frame, slots those of the descriptor. What a guest asks for is bounded by `most_bytes`:
/// reading stops before the item that would exceed it, but for the first.
pub trait StateReads {
    /// The values of a value slot for `rows`.
    ///
    /// # Errors
    /// [`ReadError`] for a slot of another kind or a row that the frame lacks.
    fn get_many(&self, slot: u32, rows: &[u32]) -> Result<ReadColumn, ReadError>;

    /// Item `i` is entry `entry_keys[i]` of the map of row `rows[i]`.
    ///
    /// # Errors
    /// As [`Self::get_many`]; columns of different lengths, too.
    fn get_entries(&self, slot: u32, rows: &[u32], entry_keys: BytesSlice<'_>) -> Result<ReadColumn, ReadError>;

    /// Entries of a row's map after `start_after`, ascending by the bytes of their keys.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn scan(&self, slot: u32, row: u32, start_after: Option<&[u8]>, most: ReadLimit) -> Result<ReadEntries, ReadError>;

    /// Elements of a row's list from `start` on, oldest first.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn get_list(&self, slot: u32, row: u32, start: u32, most: ReadLimit) -> Result<BytesColumn, ReadError>;

    /// Elements of the subtask's list from `start` on, oldest first.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn get_operator_list(&self, slot: u32, start: u32, most: ReadLimit) -> Result<BytesColumn, ReadError>;

    /// Entries of a broadcast slot.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn get_broadcast(&self, slot: u32, entry_keys: BytesSlice<'_>) -> Result<ReadColumn, ReadError>;

    /// Entries of a broadcast slot after `start_after`, ascending by the bytes of their keys.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    fn scan_broadcast(&self, slot: u32, start_after: Option<&[u8]>, most: ReadLimit) -> Result<ReadEntries, ReadError>;

    /// Returns how many entries, elements and chunks of elements all pages so far have walked over besides those that they
    /// returned: what has expired or is deleted and is still there, and what they were told to skip. Whoever reads for a
    /// guest lets it pay for them.
    fn passed_over(&self) -> u64 {
        0
    }
}

/// Bytes that one read returns, at most, whatever is asked for.
pub const READ_BYTES_MAX: usize = 64 << 20;

/// The reads of an operator that has no state: each is an error, for no slot is declared.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoState;

impl StateReads for NoState {
    fn get_many(&self, slot: u32, _: &[u32]) -> Result<ReadColumn, ReadError> {
        Err(ReadError::Slot { slot, wanted: "value" })
    }

    fn get_entries(&self, slot: u32, _: &[u32], _: BytesSlice<'_>) -> Result<ReadColumn, ReadError> {
        Err(ReadError::Slot { slot, wanted: "map" })
    }

    fn scan(&self, slot: u32, _: u32, _: Option<&[u8]>, _: ReadLimit) -> Result<ReadEntries, ReadError> {
        Err(ReadError::Slot { slot, wanted: "map" })
    }

    fn get_list(&self, slot: u32, _: u32, _: u32, _: ReadLimit) -> Result<BytesColumn, ReadError> {
        Err(ReadError::Slot { slot, wanted: "list" })
    }

    fn get_operator_list(&self, slot: u32, _: u32, _: ReadLimit) -> Result<BytesColumn, ReadError> {
        Err(ReadError::Slot { slot, wanted: "list-split or list-union" })
    }

    fn get_broadcast(&self, slot: u32, _: BytesSlice<'_>) -> Result<ReadColumn, ReadError> {
        Err(ReadError::Slot { slot, wanted: "broadcast" })
    }

    fn scan_broadcast(&self, slot: u32, _: Option<&[u8]>, _: ReadLimit) -> Result<ReadEntries, ReadError> {
        Err(ReadError::Slot { slot, wanted: "broadcast" })
    }
}

/// How much one read returns, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// Items.
    pub items: u32,
    /// Bytes of keys and values; the first item is returned whatever its size.
    pub bytes: usize,
}

/// Values, some of which may not be there.
#[derive(Clone, Debug, Default)]
pub struct ReadColumn {
    /// Bit `i % 8` of byte `i / 8` is set if item `i` is there.
    pub present: Vec<u8>,
    /// Empty where there is none.
    pub values: BytesColumn,
}

/// Entries of a map.
#[derive(Clone, Debug, Default)]
pub struct ReadEntries {
    /// One item an entry.
    pub keys: BytesColumn,
    /// One item an entry.
    pub values: BytesColumn,
}

/// A read that the interface does not allow. The guest traps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The slot is not declared, or of a kind that this read is not for.
    #[error("slot {slot} is not a declared {wanted} slot")]
    Slot {
        /// The slot asked for.
        slot: u32,
        /// The kind that the read is for.
        wanted: &'static str,
    },
    /// The frame has fewer rows.
    #[error("row {row} is read of a frame of {rows}")]
    Row {
        /// The row asked for.
        row: u32,
        /// The rows there are.
        rows: usize,
    },
    /// The values asked for one by one are too many.
    #[error("one read asks for more than {READ_BYTES_MAX} bytes of state")]
    TooLarge,
    /// No call is being made.
    #[error("state is read outside of a call")]
    OutsideOfCall,
    /// A column has not one item for each row.
    #[error("{rows} rows are read with {keys} entry keys")]
    Columns {
        /// Rows asked for.
        rows: usize,
        /// Entry keys given.
        keys: usize,
    },
}
