//! What a task has done: numbers for people, of no consequence for the data.

use crate::ids::OperatorId;

/// What a task has done since it was made. For progress reports; not exact across restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskCounters {
    /// Records and bytes that its source has read.
    pub source_records: u64,
    /// See [`Self::source_records`].
    pub source_bytes: u64,
    /// Records that its source skipped.
    pub malformed: u64,
    /// Bytes that its source has not read yet, if it knows.
    pub remaining_bytes: Option<u64>,
    /// Records and bytes that its sink has written.
    pub sink_records: u64,
    /// See [`Self::sink_records`].
    pub sink_bytes: u64,
    /// Its operators, in the order of the chain.
    pub operators: Vec<OperatorCounters>,
}

/// What one subtask of an operator has done since its task was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorCounters {
    /// The operator.
    pub operator: OperatorId,
    /// Records that it has handled.
    pub records_in: u64,
    /// Records that it has emitted, on all ports.
    pub records_out: u64,
    /// Calls into the guest.
    pub calls: u64,
    /// Fuel burnt by the guest.
    pub fuel: u64,
    /// The largest linear memory of the guest, in bytes.
    pub memory_peak_bytes: u64,
    /// Entries of state that it holds.
    pub state_entries: u64,
    /// The memory that they take, in bytes.
    pub state_bytes: u64,
}
