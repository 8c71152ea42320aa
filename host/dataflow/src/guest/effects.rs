//! What a guest call returns. Untrusted until [`crate::subtask`] has validated it.

use crate::batch::TimeColumn;
use crate::column::BytesColumn;

/// The operations of updates, as numbers of the interface.
pub mod op {
    /// Sets a value, an entry or an event-time timer.
    pub const PUT: u8 = 0;
    /// Deletes a value, an entry or an event-time timer.
    pub const DELETE: u8 = 1;
    /// Appends to a list.
    pub const APPEND: u8 = 2;
    /// Removes all of a row's list or map.
    pub const CLEAR: u8 = 3;
}

/// Changes of one slot that a row alone addresses, in order.
#[derive(Clone, Debug, Default)]
pub struct StateUpdate {
    /// The slot.
    pub slot: u32,
    /// The row of each change.
    pub rows: Vec<u32>,
    /// The [`op`] of each change.
    pub ops: Vec<u8>,
    /// The value of each put, the element of each append, else empty.
    pub values: BytesColumn,
}

/// Changes of single entries of a map slot, in order.
#[derive(Clone, Debug, Default)]
pub struct EntryUpdate {
    /// The slot.
    pub slot: u32,
    /// The row of each change.
    pub rows: Vec<u32>,
    /// The [`op`] of each change.
    pub ops: Vec<u8>,
    /// The entry key of each change.
    pub entry_keys: BytesColumn,
    /// The value of each put, else empty.
    pub values: BytesColumn,
}

/// Changes of state that belongs to the subtask.
#[derive(Clone, Debug, Default)]
pub struct OperatorUpdate {
    /// The slot.
    pub slot: u32,
    /// The [`op`] of each change.
    pub ops: Vec<u8>,
    /// The entry key of each change of broadcast state, else empty.
    pub entry_keys: BytesColumn,
    /// The value of each change, else empty.
    pub values: BytesColumn,
}

/// Timers to set and delete, in order.
#[derive(Clone, Debug, Default)]
pub struct TimerUpdate {
    /// The row of each timer.
    pub rows: Vec<u32>,
    /// 0 and 1: set and delete in event time; 2 and 3: in processing time.
    pub ops: Vec<u8>,
    /// When each is due, in milliseconds since the Unix epoch.
    pub times: Vec<i64>,
    /// The tag of each.
    pub tags: Vec<u64>,
}

/// Records for one output port, in order.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// The port.
    pub port: u32,
    /// One key a record, or no item at all.
    pub keys: BytesColumn,
    /// One item a record.
    pub timestamps: TimeColumn,
    /// One item a record.
    pub values: BytesColumn,
}

/// All effects of one call.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Value and list state.
    pub updates: Vec<StateUpdate>,
    /// Map state.
    pub entries: Vec<EntryUpdate>,
    /// Operator and broadcast state.
    pub operator_updates: Vec<OperatorUpdate>,
    /// Timers.
    pub timers: TimerUpdate,
    /// Output records.
    pub outputs: Vec<Output>,
}
