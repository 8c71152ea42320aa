//! What a guest call returns. Untrusted until [`crate::subtask`] has validated it.

use crate::batch::TimeColumn;
use crate::column::BytesColumn;

/// The operations of updates, as numbers of the interface.
pub mod op {
    /// Sets a value or an entry.
    pub const PUT: u8 = 0;
    /// Deletes a value or an entry.
    pub const DELETE: u8 = 1;
    /// Appends to a list.
    pub const APPEND: u8 = 2;
    /// Removes all of a row's list or map.
    pub const CLEAR: u8 = 3;
}

/// The operations of timer updates, as numbers of the interface.
pub mod timer_op {
    use crate::guest::TimeDomain;

    /// Sets a timer in event time.
    pub const SET_EVENT: u8 = 0;
    /// Deletes a timer in event time.
    pub const DELETE_EVENT: u8 = 1;
    /// Sets a timer in processing time.
    pub const SET_PROCESSING: u8 = 2;
    /// Deletes a timer in processing time.
    pub const DELETE_PROCESSING: u8 = 3;

    /// Returns the domain of an operation, and whether it sets; `None` if there is no such operation.
    pub fn meaning(op: u8) -> Option<(TimeDomain, bool)> {
        match op {
            SET_EVENT => Some((TimeDomain::EventTime, true)),
            DELETE_EVENT => Some((TimeDomain::EventTime, false)),
            SET_PROCESSING => Some((TimeDomain::ProcessingTime, true)),
            DELETE_PROCESSING => Some((TimeDomain::ProcessingTime, false)),
            _ => None,
        }
    }
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
    /// The [`timer_op`] of each.
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
