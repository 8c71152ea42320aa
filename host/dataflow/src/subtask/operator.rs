//! One subtask of an operator: its guest, its state, and the call that joins them.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::counters::OperatorCounters;
use super::failure::{FaultPosition, TaskFailure};
use super::ports::Now;
use super::timers::Firing;
use super::validate::Allowed;
use crate::batch::Batch;
use crate::column::BytesSlice;
use crate::connector::ConnectorError;
use crate::guest::{
    Descriptor, Effects, FaultClass, FaultCode, FaultPhase, Guest, GuestFactory, GuestFault, GuestUsage, InputBatch,
    InstanceInfo, KeyedFrame, NoState, Output, StateReads,
};
use crate::ids::SubtaskId;
use crate::key_group::key_hash;
use crate::state::{KEY_BYTES_MAX, SharedState, StateFull, SubtaskState, TimersFull};
use crate::time::Watermark;

/// Records in one call, at most.
const BATCH_RECORDS: usize = 1000;
/// Bytes in one call, at most, but for a single record.
const BATCH_BYTES: usize = 256 << 10;
/// One parallel instance of an operator.
pub struct OperatorSubtask {
    pub(super) id: SubtaskId,
    pub(super) factory: Arc<dyn GuestFactory>,
    pub(super) info: InstanceInfo,
    pub(super) guest: Box<dyn Guest>,
    /// `None` for an operator without keys and slots. Changed between calls only, read by the guest within them.
    pub(super) state: Option<Rc<SharedState>>,
    /// The same state, as the guest sees it.
    pub(super) reads: Rc<dyn StateReads>,
    pub(super) watermark: Option<Watermark>,
    /// Whether `finish` has run, now or before the restored checkpoint.
    pub(super) finished: bool,
    pub(super) max_records: usize,
    pub(super) records_in: u64,
    pub(super) records_out: u64,
    pub(super) firing: Box<Firing>,
    /// The shifted bit column of a call.
    scratch: Vec<u8>,
}

/// What an operator's subtask goes on from.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperatorRestore {
    /// The restored watermark.
    pub watermark: Option<Watermark>,
    /// Whether all subtasks had finished.
    pub finished: bool,
}

impl OperatorSubtask {
    /// Opens a guest over restored (or empty) state. `state` must be there exactly if the operator has any.
    ///
    /// # Errors
    /// The guest's fault, if it does not open.
    pub fn open(
        factory: Arc<dyn GuestFactory>,
        info: InstanceInfo,
        state: Option<SubtaskState>,
        restore: OperatorRestore,
    ) -> Result<Self, TaskFailure> {
        let id = SubtaskId { operator: info.operator.clone(), index: info.subtask };
        assert_eq!(factory.descriptor().has_state(), state.is_some(), "state goes with keys and slots");
        let guest = factory.open(&info).map_err(|fault| TaskFailure::fault(id.clone(), fault, FaultPosition::unknown()))?;
        let wish = factory.descriptor().max_batch as usize;
        let max_records = if wish == 0 { BATCH_RECORDS } else { wish.min(BATCH_RECORDS) };
        let OperatorRestore { watermark, finished } = restore;
        let state = state.map(|state| Rc::new(RefCell::new(state)));
        let reads: Rc<dyn StateReads> = match &state {
            Some(state) => Rc::<SharedState>::clone(state),
            None => Rc::new(NoState),
        };
        let scratch = Vec::new();
        let (records_in, records_out) = (0, 0);
        let firing = Box::new(Firing::new(&factory.descriptor().timers));
        Ok(Self {
            id,
            factory,
            info,
            guest,
            state,
            reads,
            watermark,
            finished,
            max_records,
            records_in,
            records_out,
            firing,
            scratch,
        })
    }

    /// Returns what the guest has used.
    pub fn usage(&self) -> GuestUsage {
        self.guest.usage()
    }

    /// Returns what it has done.
    pub(super) fn counters(&self) -> OperatorCounters {
        let GuestUsage { calls, fuel, memory_peak_bytes } = self.usage();
        OperatorCounters {
            operator: self.id.operator.clone(),
            records_in: self.records_in,
            records_out: self.records_out,
            calls,
            fuel,
            memory_peak_bytes,
            state_entries: self.state.as_ref().map_or(0, |state| state.borrow().entries()),
            state_bytes: self.state.as_ref().map_or(0, |state| state.borrow().memory_bytes()),
        }
    }

    /// Returns the operator's descriptor.
    pub(super) fn descriptor(&self) -> &Descriptor {
        self.factory.descriptor()
    }

    /// Handles records of one port, in calls of at most the batch limit, and passes each call's outputs to `emit`.
    pub(super) fn process(
        &mut self,
        port: u32,
        batch: &Batch,
        now: Now,
        emit: &mut dyn FnMut(Output) -> Result<(), TaskFailure>,
    ) -> Result<(), TaskFailure> {
        let mut from = 0;
        while from < batch.len() {
            let to = self.batch_end(batch, from);
            let effects = self.call(port, batch, from..to, now)?;
            self.records_in += (to - from) as u64;
            for output in effects.outputs {
                self.records_out += output.values.len() as u64;
                emit(output)?;
            }
            from = to;
        }
        Ok(())
    }

    /// Returns where a call that begins at `from` ends.
    fn batch_end(&self, batch: &Batch, from: usize) -> usize {
        let (_, ends) = batch.values.parts();
        let start = if from == 0 { 0 } else { ends[from - 1] as usize };
        let most = (from + self.max_records).min(batch.len());
        if ends[most - 1] as usize - start <= BATCH_BYTES {
            return most;
        }
        let fitting = ends[from..most].partition_point(|end| *end as usize - start <= BATCH_BYTES);
        from + fitting.max(1)
    }

    /// One call: frame, guest, validation, state. Returns the effects, whose state has been applied.
    fn call(&mut self, port: u32, batch: &Batch, range: Range<usize>, now: Now) -> Result<Effects, TaskFailure> {
        self.fill_frame(port, batch, range.clone(), now)?;
        self.check_store()?;
        let call = Call { port, batch, range: range.clone(), watermark: self.watermark, now };
        let result = call.run(&mut *self.guest, self.state.as_deref(), &self.reads, &mut self.scratch);
        // What the guest made of what was not read is not its fault.
        self.check_store()?;
        match result.and_then(|effects| self.check(&effects, port).map(|()| effects)) {
            Ok(effects) => {
                if let Some(state) = &self.state {
                    state.borrow_mut().apply(&effects);
                }
                self.check_store()?;
                Ok(effects)
            }
            Err(fault) => {
                let position = self.locate(&fault, port, batch, range, now);
                Err(TaskFailure::fault(self.id.clone(), fault, position))
            }
        }
    }

    /// Fails if the store behind the state has: a restart from a checkpoint builds it again.
    pub(super) fn check_store(&self) -> Result<(), TaskFailure> {
        let Some(error) = self.state.as_ref().and_then(|state| state.borrow().store_failure()) else { return Ok(()) };
        Err(TaskFailure::connector(self.id.clone(), ConnectorError::transient("state-store", error.to_string())))
    }

    /// Checks all effects of a call for records of a port; what passes applies without failing.
    fn check(&self, effects: &Effects, port: u32) -> Result<(), GuestFault> {
        let may_broadcast = self.descriptor().is_broadcast(port);
        self.check_effects(effects, FaultPhase::Data, may_broadcast, 0)
    }

    /// Checks all effects of a call that `fired` timers were handed to.
    pub(super) fn check_effects(
        &self,
        effects: &Effects,
        phase: FaultPhase,
        may_broadcast: bool,
        fired: usize,
    ) -> Result<(), GuestFault> {
        let state = self.state.as_ref().map(|state| state.borrow());
        let (descriptor, limits) = (self.descriptor(), &self.info.limits);
        let frame = state.as_ref().map(|state| state.frame());
        let written = Allowed { descriptor, limits, frame, may_broadcast, phase }.check(effects)?;
        let Some(state) = state.filter(|_| written > 0) else {
            return Ok(());
        };
        let too_many = |full: TimersFull| GuestFault::new(FaultCode::GuestTimers, phase, full.to_string());
        state.check_timers(&effects.timers, fired, limits.timers.into()).map_err(too_many)?;
        let full = |full: StateFull| GuestFault::new(FaultCode::StateQuota, phase, full.to_string());
        state.check_room(written).map_err(full)
    }

    fn fill_frame(&mut self, port: u32, batch: &Batch, range: Range<usize>, now: Now) -> Result<(), TaskFailure> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        if !self.descriptor().is_keyed() || self.descriptor().is_broadcast(port) {
            state.borrow_mut().clear_frame(now.processing_time);
            return Ok(());
        }
        let Some(keys) = &batch.keys else {
            let code = "record-without-key";
            return Err(TaskFailure::rejected(self.id.clone(), code, "a record without a key reached a keyed operator".into()));
        };
        let slice = keys.slice(range.start, range.end);
        let limit = (self.info.limits.key_bytes as usize).min(KEY_BYTES_MAX);
        if slice.data().len() > limit
            && let Some(key) = slice.iter().find(|key| key.len() > limit)
        {
            let text = format!("a key of {} bytes exceeds the limit of {limit}", key.len());
            return Err(TaskFailure::rejected(self.id.clone(), "key-too-large", text));
        }
        let hashes = batch.hashes.get(range).unwrap_or_default();
        let filled = state.borrow_mut().fill_frame(slice, hashes, now.processing_time);
        filled.map_err(|error| TaskFailure::internal(self.id.clone(), error.to_string()))
    }

    /// All inputs have ended.
    pub(super) fn finish(&mut self, now: Now) -> Result<Vec<Output>, TaskFailure> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(Vec::new());
        }
        if let Some(state) = &self.state {
            state.borrow_mut().clear_frame(now.processing_time);
        }
        let result = self.guest.finish(self.watermark, now.processing_time);
        let result = result.and_then(|effects| self.check_effects(&effects, FaultPhase::Finish, false, 0).map(|()| effects));
        if let (Ok(effects), Some(state)) = (&result, &self.state) {
            state.borrow_mut().apply(effects);
        }
        let outputs = result
            .map(|effects| effects.outputs)
            .map_err(|fault| TaskFailure::fault(self.id.clone(), fault, FaultPosition::end_of_input()))?;
        self.records_out += outputs.iter().map(|output| output.values.len() as u64).sum::<u64>();
        Ok(outputs)
    }

    /// Finds the record that a fault is about: the last of the shortest prefix of the call that faults, tried on fresh
    /// instances. Nothing of it applies, and a guest is a function of its input, so this is a search, not a replay.
    fn locate(&mut self, fault: &GuestFault, port: u32, batch: &Batch, range: Range<usize>, now: Now) -> FaultPosition {
        let found =
            shortest_faulting(fault, range.clone(), |end| self.faults_again(fault.code, port, batch, range.start..end, now));
        let record = found.unwrap_or(range.start);
        let number = self.records_in + (record - range.start) as u64;
        let key = batch.keys.as_ref().map_or(0, |keys| key_hash(keys.get(record)).rotate_left(1));
        FaultPosition::record(
            port,
            number,
            if found.is_some() { 1 } else { range.len() },
            key_hash(batch.values.get(record)) ^ key,
        )
    }

    /// Whether a call with these records faults in the same way on a fresh instance. Only the frame is changed.
    fn faults_again(&mut self, code: FaultCode, port: u32, batch: &Batch, range: Range<usize>, now: Now) -> bool {
        let Ok(mut guest) = self.factory.open_probe(&self.info) else {
            return false;
        };
        if self.fill_frame(port, batch, range.clone(), now).is_err() {
            return false;
        }
        let call = Call { port, batch, range, watermark: self.watermark, now };
        let result = call.run(&mut *guest, self.state.as_deref(), &self.reads, &mut self.scratch);
        let result = result.and_then(|effects| self.check(&effects, port));
        result.is_err_and(|fault| fault.code == code)
    }
}

/// Returns the last item of the shortest part of a call that faults, which `faults_up_to` tells: the call's items up to an
/// end. `None` if the fault is not one of the items', or does not come again.
pub(super) fn shortest_faulting(
    fault: &GuestFault,
    range: Range<usize>,
    mut faults_up_to: impl FnMut(usize) -> bool,
) -> Option<usize> {
    let (mut good, mut bad) = (range.start, range.end);
    let is_deterministic = matches!(fault.class, FaultClass::Guest | FaultClass::Permanent);
    // First the whole call: what does not fault again cannot be found.
    if !is_deterministic || (range.len() != 1 && !faults_up_to(range.end)) {
        return None;
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        match faults_up_to(middle) {
            true => bad = middle,
            false => good = middle,
        }
    }
    Some(good)
}

/// One call's input.
struct Call<'a> {
    port: u32,
    batch: &'a Batch,
    range: Range<usize>,
    watermark: Option<Watermark>,
    now: Now,
}

impl Call<'_> {
    /// Calls the guest with the frame that the state was filled with last.
    fn run(
        &self,
        guest: &mut dyn Guest,
        state: Option<&SharedState>,
        reads: &Rc<dyn StateReads>,
        scratch: &mut Vec<u8>,
    ) -> Result<Effects, GuestFault> {
        let Range { start, end } = self.range;
        // Borrowed shared: the guest may read meanwhile.
        let state = state.map(RefCell::borrow);
        let (times, untimed) = self.batch.timestamps.slice(start, end, scratch);
        let input = InputBatch {
            port: self.port,
            watermark: self.watermark,
            processing_time: self.now.processing_time,
            rows: state.as_ref().map_or(&[], |state| state.frame().rows()),
            times,
            untimed,
            values: self.batch.values.slice(start, end),
        };
        match &state {
            Some(state) => state.frame().with_view(|frame| guest.process_batch(&input, frame, reads)),
            None => guest.process_batch(&input, &KeyedFrame { keys: BytesSlice::EMPTY, states: &[] }, reads),
        }
    }
}
