//! What goes into a call and what comes out of it: the operator interface in plain columns, free of any binding.
//!
//! Input borrows from whoever makes the call; effects are owned, so that the glue can move them on.

use crate::column::{BytesColumn, BytesView, TimeColumn, TimesView};
use crate::declare::TimeDomain;

/// Where and under which limits an instance runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceInfo {
    /// The operator's id in the pipeline.
    pub operator: String,
    /// The index of this subtask.
    pub subtask: u32,
    /// How many subtasks there are.
    pub parallelism: u32,
    /// What one call may write and emit.
    pub limits: Limits,
}

/// Bounds of one call. What exceeds one is a permanent error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one emitted key, and of one entry key of a map.
    pub key_bytes: u32,
    /// Bytes of one state value.
    pub value_bytes: u32,
    /// Bytes of one output record's value.
    pub record_bytes: u32,
    /// Output records of one call.
    pub output_records: u32,
    /// Bytes of all output keys and values of one call.
    pub output_bytes: u32,
}

impl Default for Limits {
    /// Returns the host's defaults.
    fn default() -> Self {
        Self {
            key_bytes: 4 << 10,
            value_bytes: 1 << 20,
            record_bytes: 4 << 20,
            output_records: 1_000_000,
            output_bytes: 64 << 20,
        }
    }
}

/// Records of one input port, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct InputView<'a> {
    /// The input port.
    pub port: u32,
    /// The operator's watermark in milliseconds; `None` before the first.
    pub watermark: Option<i64>,
    /// The host's clock in milliseconds since the Unix epoch.
    pub processing_time: i64,
    /// The frame row of each record; empty for an operator without keys.
    pub rows: &'a [u32],
    /// The records' event times.
    pub timestamps: TimesView<'a>,
    /// The records' values.
    pub values: BytesView<'a>,
}

/// Timers that are due, in the order (time, key, tag). No key appears twice.
#[derive(Clone, Copy, Debug)]
pub struct TimersView<'a> {
    /// The operator's watermark in milliseconds; `None` before the first.
    pub watermark: Option<i64>,
    /// The host's clock in milliseconds since the Unix epoch.
    pub processing_time: i64,
    /// Which clock they waited for.
    pub domain: TimeDomain,
    /// The frame row of each timer.
    pub rows: &'a [u32],
    /// When each was due, in milliseconds since the Unix epoch.
    pub times: &'a [i64],
    /// The tag of each.
    pub tags: &'a [u64],
}

/// The distinct keys of a call and the state that was read for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameView<'a> {
    /// The key of each row.
    pub keys: BytesView<'a>,
    /// One column for each slot that is handed in, in slot order.
    pub states: &'a [StateView<'a>],
}

/// The values of one slot for the rows of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct StateView<'a> {
    /// The slot.
    pub slot: u32,
    /// Bit `r % 8` of byte `r / 8` is set if row `r` has a value.
    pub present: &'a [u8],
    /// One item a row, empty where there is no value.
    pub values: BytesView<'a>,
}

impl<'a> StateView<'a> {
    /// Returns the value of a row, if there is one.
    ///
    /// # Panics
    /// If the column has no such row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        (self.present[row / 8] >> (row % 8) & 1 != 0).then(|| self.values.get(row))
    }
}

/// The operations of updates, as numbers of the interface.
pub mod op {
    /// Sets a value or an entry.
    pub const PUT: u8 = 0;
    /// Deletes a value or an entry.
    pub const DELETE: u8 = 1;
    /// Appends an element to a list.
    pub const APPEND: u8 = 2;
    /// Removes all of a list or a map.
    pub const CLEAR: u8 = 3;
}

/// The operations of timer updates, as numbers of the interface.
pub mod timer_op {
    use crate::declare::TimeDomain;

    /// Returns the operation that sets a timer of a domain.
    pub fn set(domain: TimeDomain) -> u8 {
        match domain {
            TimeDomain::EventTime => 0,
            TimeDomain::ProcessingTime => 2,
        }
    }

    /// Returns the operation that deletes a timer of a domain.
    pub fn delete(domain: TimeDomain) -> u8 {
        set(domain) + 1
    }
}

/// All effects of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Of keyed slots. At most one for each.
    pub updates: Vec<StateUpdate>,
    /// Of map slots, after `updates`. At most one for each.
    pub entries: Vec<EntryUpdate>,
    /// Of slots that belong to the subtask. At most one for each.
    pub operator_updates: Vec<OperatorUpdate>,
    /// Timers that are set and deleted.
    pub timers: TimerUpdate,
    /// At most one for each port.
    pub outputs: Vec<Output>,
}

/// Timers to set and delete, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// Changes of one keyed slot, in order. For a value slot, a row appears at most once; for the others, what is cleared is
/// cleared first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// Changes of single entries of one map slot. An entry appears at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// Changes of one slot that belongs to the subtask, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorUpdate {
    /// The slot.
    pub slot: u32,
    /// The [`op`] of each change.
    pub ops: Vec<u8>,
    /// The entry key of each change of broadcast state, else empty.
    pub entry_keys: BytesColumn,
    /// The value of each put, the element of each append, else empty.
    pub values: BytesColumn,
}

/// Records for one output port, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The port.
    pub port: u32,
    /// One key a record, or no item at all.
    pub keys: BytesColumn,
    /// The records' event times.
    pub timestamps: TimeColumn,
    /// The records' values.
    pub values: BytesColumn,
}
