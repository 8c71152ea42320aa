//! What a subtask calls to run user code: the operator interface, as the engine sees it.
//!
//! A guest is a pure function of a batch and the state of its keys: it returns [`Effects`] and touches nothing. The
//! engine validates and applies them. An implementation may be a wasm component or a native twin.

mod descriptor;
mod effects;
mod fault;
mod reads;

pub use descriptor::{Descriptor, InputPort, StateKind, StateSlot, TimeDomain, Unsupported};
pub use effects::{Effects, EntryUpdate, OperatorUpdate, Output, StateUpdate, TimerUpdate, op, timer_op};
pub use fault::{FaultClass, FaultCode, FaultPhase, GuestFault};
pub use reads::{NoState, READ_BYTES_MAX, ReadColumn, ReadEntries, ReadError, ReadLimit, StateReads};

use std::rc::Rc;

use crate::column::BytesSlice;
use crate::ids::OperatorId;
use crate::time::{ProcessingTime, Watermark};

/// Where and under which limits an instance runs; handed to the guest when it is opened.
#[derive(Clone, Debug)]
pub struct InstanceInfo {
    /// The operator.
    pub operator: OperatorId,
    /// The subtask's index.
    pub subtask: u32,
    /// The operator's parallelism.
    pub parallelism: u32,
    /// What one call's effects may be, at most.
    pub limits: EffectLimits,
}

/// Bounds of one call's effects. A call that exceeds one is a fault without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectLimits {
    /// Bytes of a key that the guest emits.
    pub key_bytes: u32,
    /// Bytes of one state value.
    pub value_bytes: u32,
    /// Bytes of all state values written by one call.
    pub write_bytes: u32,
    /// Bytes of one output record's value.
    pub record_bytes: u32,
    /// Records of all outputs of one call.
    pub output_records: u32,
    /// Bytes of all outputs of one call.
    pub output_bytes: u32,
    /// Timers that one call sets and deletes.
    pub timer_updates: u32,
    /// Timers of one subtask that are pending after a call.
    pub timers: u32,
}

impl Default for EffectLimits {
    fn default() -> Self {
        Self {
            key_bytes: 4 << 10,
            value_bytes: 1 << 20,
            write_bytes: 64 << 20,
            record_bytes: 4 << 20,
            output_records: 1_000_000,
            output_bytes: 64 << 20,
            timer_updates: 10_000,
            timers: 5_000_000,
        }
    }
}

/// Records of one input port, in order.
#[derive(Clone, Copy, Debug)]
pub struct InputBatch<'a> {
    /// An index into [`Descriptor::inputs`].
    pub port: u32,
    /// The operator's watermark.
    pub watermark: Option<Watermark>,
    /// The host's clock.
    pub processing_time: ProcessingTime,
    /// The frame row of each record; empty for an operator without keys.
    pub rows: &'a [u32],
    /// As [`crate::batch::TimeColumn::slice`] returns them.
    pub times: &'a [i64],
    /// As [`crate::batch::TimeColumn::slice`] returns them.
    pub untimed: &'a [u8],
    /// One item a record.
    pub values: BytesSlice<'a>,
}

/// Timers that are due, in the order (time, key, tag). No key appears twice.
#[derive(Clone, Copy, Debug)]
pub struct TimerBatch<'a> {
    /// The operator's watermark.
    pub watermark: Option<Watermark>,
    /// The host's clock.
    pub processing_time: ProcessingTime,
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
#[derive(Clone, Copy, Debug)]
pub struct KeyedFrame<'a> {
    /// The key of each row.
    pub keys: BytesSlice<'a>,
    /// One column a prefetched slot, in slot order.
    pub states: &'a [StateColumn<'a>],
}

/// The values of one slot for the rows of a frame.
#[derive(Clone, Copy, Debug)]
pub struct StateColumn<'a> {
    /// An index into [`Descriptor::slots`].
    pub slot: u32,
    /// Bit `r % 8` of byte `r / 8` is set if row `r` has a value.
    pub present: &'a [u8],
    /// One item a row, empty where there is no value.
    pub values: BytesSlice<'a>,
}

/// What a guest has used since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestUsage {
    /// Calls into the guest.
    pub calls: u64,
    /// Fuel burnt, host work included; 0 if it is not metered.
    pub fuel: u64,
    /// The largest linear memory so far, in bytes.
    pub memory_peak_bytes: u64,
}

/// One opened instance of an operator. After a fault it is never called again.
pub trait Guest {
    /// Handles records. `reads` answers for this call only: an implementation forgets it when the call returns.
    ///
    /// # Errors
    /// A [`GuestFault`] for whatever went wrong in the call; it had no effect.
    fn process_batch(
        &mut self,
        batch: &InputBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault>;

    /// Handles timers that are due.
    ///
    /// # Errors
    /// As [`Self::process_batch`].
    fn on_timers(
        &mut self,
        timers: &TimerBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault>;

    /// All inputs have ended.
    ///
    /// # Errors
    /// As [`Self::process_batch`].
    fn finish(&mut self, watermark: Option<Watermark>, now: ProcessingTime) -> Result<Effects, GuestFault>;

    /// Returns what the guest has used so far.
    fn usage(&self) -> GuestUsage;
}

/// Makes instances of one operator. Shared by the threads of its subtasks, each of which opens its own.
pub trait GuestFactory: Send + Sync {
    /// Returns what the operator said it is.
    fn descriptor(&self) -> &Descriptor;

    /// Instantiates and opens the operator.
    ///
    /// # Errors
    /// A [`GuestFault`] if instantiation, or the guest's `open`, fails.
    fn open(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault>;

    /// As [`Self::open`], for finding out which record faults: what the instance logs and counts is dropped.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn open_probe(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        self.open(info)
    }
}
