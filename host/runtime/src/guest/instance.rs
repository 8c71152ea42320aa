//! One instance of an operator: a store of its own, entered by one thread, dead after a fault.

use std::array;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use cofferdam_dataflow::column::BytesSlice;
use cofferdam_dataflow::guest::{
    Effects, FaultCode, FaultPhase, Guest, GuestFault, GuestUsage, InputBatch, InstanceInfo, KeyedFrame, StateColumn, StateReads,
    TimeDomain, TimerBatch,
};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::time::{ProcessingTime, Watermark};
use wasmtime::Store;

use super::bindings::cofferdam::operator::types as wit;
use super::bindings::exports::cofferdam::operator::guest as exports;
use super::bindings::{OperatorExports, OperatorExportsPre};
use super::limits::GuestLimits;
use super::log::GuestLog;
use super::metrics::OperatorMetrics;
use super::state::HostState;
use super::{fault, lift, price};

/// Frames with at most this many slots cost no allocation.
const SLOTS_INLINE: usize = 8;

/// Where and with what an instance runs.
pub(super) struct Surroundings<'a> {
    pub(super) limits: &'a GuestLimits,
    pub(super) operator: OperatorId,
    pub(super) subtask: u32,
    pub(super) log: Arc<dyn GuestLog>,
    pub(super) metrics: Arc<OperatorMetrics>,
}

/// A wasm component as the engine's [`Guest`].
pub(super) struct WasmGuest {
    store: Store<HostState>,
    exports: OperatorExports,
    limits: GuestLimits,
    usage: GuestUsage,
    poisoned: bool,
    scratch: Scratch,
}

/// Buffers for columns that do not begin with their first item. Kept from call to call.
#[derive(Default)]
struct Scratch {
    values: Vec<u32>,
    keys: Vec<u32>,
    states: Vec<Vec<u32>>,
}

impl WasmGuest {
    /// Instantiates a component in a store of its own. `phase` is what a failure is reported as.
    pub(super) fn instantiate(
        pre: &OperatorExportsPre<HostState>,
        surroundings: Surroundings<'_>,
        phase: FaultPhase,
    ) -> Result<Self, GuestFault> {
        let Surroundings { limits, operator, subtask, log, metrics } = surroundings;
        let mut store = Store::new(pre.engine(), HostState::new(limits, (operator, subtask), log, metrics));
        store.limiter(|host| &mut host.limiter);
        store.set_hostcall_fuel(usize::try_from(limits.result_bytes).unwrap_or(usize::MAX));
        store.set_max_component_handles(limits.handles as usize);
        let (exports, fuel) = enter(&mut store, (phase, limits.fuel_instantiate, 0), |store| {
            pre.instantiate(store).map(Ok::<_, wit::OperatorError>)
        })?;
        let usage = GuestUsage { calls: 0, fuel, memory_peak_bytes: store.data().limiter.memory_bytes() };
        Ok(Self { store, exports, limits: limits.clone(), usage, poisoned: false, scratch: Scratch::default() })
    }

    /// Asks the component what it is.
    pub(super) fn describe(&mut self) -> Result<cofferdam_dataflow::guest::Descriptor, GuestFault> {
        let fuel = self.limits.fuel_per_call;
        let described = self.call(FaultPhase::Load, (fuel, 0), |store, guest| guest.call_describe(store).map(Ok))?;
        Ok(lift::descriptor(described))
    }

    /// Opens the operator.
    pub(super) fn open(&mut self, config: &[u8], info: &InstanceInfo) -> Result<(), GuestFault> {
        let told = exports::InstanceInfo {
            operator: info.operator.as_str(),
            subtask: info.subtask,
            parallelism: info.parallelism,
            max_key: info.limits.key_bytes,
            max_value: info.limits.value_bytes,
            max_record: info.limits.record_bytes,
            max_output_records: info.limits.output_records,
            max_output_bytes: info.limits.output_bytes,
        };
        let fuel = self.limits.fuel_lifecycle;
        self.call(FaultPhase::Open, (fuel, price::bytes(config.len())), |store, guest| guest.call_open(store, config, told))
    }

    /// Makes one call with `(fuel, price of the host's part)`. Whatever goes wrong, the instance is not entered again.
    fn call<T>(
        &mut self,
        phase: FaultPhase,
        (fuel, price): (u64, u64),
        call: impl FnOnce(&mut Store<HostState>, &exports::Guest) -> wasmtime::Result<Result<T, wit::OperatorError>>,
    ) -> Result<T, GuestFault> {
        if self.poisoned {
            return Err(GuestFault::new(FaultCode::HostInternal, phase, "the guest was called after a fault"));
        }
        let guest = self.exports.cofferdam_operator_guest();
        let outcome = enter(&mut self.store, (phase, fuel, price), |store| call(store, guest));
        self.usage.calls += 1;
        self.usage.memory_peak_bytes = self.store.data().limiter.memory_bytes();
        match outcome {
            Ok((value, burnt)) => {
                self.usage.fuel += burnt;
                Ok(value)
            }
            Err(fault) => {
                self.usage.fuel += fuel - self.store.get_fuel().unwrap_or(0).min(fuel);
                self.poisoned = true;
                Err(fault)
            }
        }
    }

    /// Takes over what a call returned, and charges for it with what fuel the call has left.
    fn take(&mut self, phase: FaultPhase, effects: wit::Effects) -> Result<Effects, GuestFault> {
        let lifted = lift::effects(effects).map_err(|broken| GuestFault::new(FaultCode::GuestAbi, phase, broken));
        let taken = lifted.and_then(|effects| {
            let price = price::output(&effects);
            let left = self.store.get_fuel().unwrap_or(0);
            self.usage.fuel += price.min(left);
            if price <= left { Ok(effects) } else { Err(out_of_fuel(phase, "taking over the call's effects", price, left)) }
        });
        self.poisoned |= taken.is_err();
        taken
    }
}

impl Guest for WasmGuest {
    fn process_batch(
        &mut self,
        batch: &InputBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        let fuel = (self.limits.data_fuel(batch.values.len()), price::input(batch, frame));
        let mut scratch = std::mem::take(&mut self.scratch);
        let Scratch { values, keys, states } = &mut scratch;
        let lowered = wit::InputBatch {
            port: batch.port,
            watermark: batch.watermark.map(|watermark| watermark.0.0),
            processing_time: batch.processing_time.0,
            rows: batch.rows,
            timestamps: wit::TimeColumnParam { times: batch.times, untimed: batch.untimed },
            values: lower_column(batch.values, values),
        };
        self.store.data_mut().set_reads(Some(Rc::clone(reads)));
        let called = with_frame(frame, (keys, states), |keyed| {
            self.call(FaultPhase::Data, fuel, |store, guest| guest.call_process_batch(store, lowered, keyed))
        });
        self.store.data_mut().set_reads(None);
        self.scratch = scratch;
        self.take(FaultPhase::Data, called?)
    }

    fn on_timers(
        &mut self,
        timers: &TimerBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        let fuel = (self.limits.data_fuel(timers.times.len()), price::timers(timers, frame));
        let mut scratch = std::mem::take(&mut self.scratch);
        let lowered = wit::TimerBatch {
            watermark: timers.watermark.map(|watermark| watermark.0.0),
            processing_time: timers.processing_time.0,
            domain: match timers.domain {
                TimeDomain::EventTime => wit::TimeDomain::EventTime,
                TimeDomain::ProcessingTime => wit::TimeDomain::ProcessingTime,
            },
            rows: timers.rows,
            times: timers.times,
            tags: timers.tags,
        };
        self.store.data_mut().set_reads(Some(Rc::clone(reads)));
        let called = with_frame(frame, (&mut scratch.keys, &mut scratch.states), |keyed| {
            self.call(FaultPhase::Timer, fuel, |store, guest| guest.call_on_timers(store, lowered, keyed))
        });
        self.store.data_mut().set_reads(None);
        self.scratch = scratch;
        self.take(FaultPhase::Timer, called?)
    }

    fn finish(&mut self, watermark: Option<Watermark>, now: ProcessingTime) -> Result<Effects, GuestFault> {
        let watermark = watermark.map(|watermark| watermark.0.0);
        let fuel = self.limits.fuel_lifecycle;
        let effects = self.call(FaultPhase::Finish, (fuel, 0), |store, guest| guest.call_finish(store, watermark, now.0))?;
        self.take(FaultPhase::Finish, effects)
    }

    fn usage(&self) -> GuestUsage {
        self.usage
    }
}

const NO_STATE: wit::StateColumn<'static> =
    wit::StateColumn { slot: 0, present: &[], values: wit::BytesColumnParam { data: &[], ends: &[] } };

fn lower_column<'a>(column: BytesSlice<'a>, scratch: &'a mut Vec<u32>) -> wit::BytesColumnParam<'a> {
    wit::BytesColumnParam { data: column.data(), ends: column.ends(scratch) }
}

fn lower_state<'a>(state: &StateColumn<'a>, scratch: &'a mut Vec<u32>) -> wit::StateColumn<'a> {
    wit::StateColumn { slot: state.slot, present: state.present, values: lower_column(state.values, scratch) }
}

/// Calls `call` with the frame as the guest wants it.
fn with_frame<R>(
    frame: &KeyedFrame<'_>,
    (keys, scratch): (&mut Vec<u32>, &mut Vec<Vec<u32>>),
    call: impl FnOnce(wit::KeyedFrame<'_>) -> R,
) -> R {
    if scratch.len() < frame.states.len() {
        scratch.resize_with(frame.states.len(), Vec::new);
    }
    let mut inline = array::from_fn::<_, SLOTS_INLINE, _>(|_| NO_STATE);
    let spilled: Vec<_>;
    let columns = frame.states.iter().zip(scratch).map(|(state, scratch)| lower_state(state, scratch));
    let states = if frame.states.len() <= SLOTS_INLINE {
        inline.iter_mut().zip(columns).for_each(|(place, column)| *place = column);
        &inline[..frame.states.len()]
    } else {
        spilled = columns.collect();
        &spilled[..]
    };
    call(wit::KeyedFrame { keys: lower_column(frame.keys, keys), states })
}

/// Enters the guest with `(phase, fuel, price of the host's part)`, and returns what it returned and the fuel burnt.
fn enter<T>(
    store: &mut Store<HostState>,
    (phase, fuel, price): (FaultPhase, u64, u64),
    call: impl FnOnce(&mut Store<HostState>) -> wasmtime::Result<Result<T, wit::OperatorError>>,
) -> Result<(T, u64), GuestFault> {
    let Some(fuel_for_guest) = fuel.checked_sub(price) else {
        // So that the fuel of the call before does not count as this one's.
        let _ = store.set_fuel(0);
        return Err(out_of_fuel(phase, "handing over the call's arguments", price, fuel));
    };
    if store.data().in_guest {
        return Err(GuestFault::new(FaultCode::HostInternal, phase, "a guest call was started within a guest call"));
    }
    if let Err(error) = store.set_fuel(fuel_for_guest) {
        return Err(GuestFault::new(FaultCode::HostInternal, phase, format!("cannot set the fuel: {error}")));
    }
    store.data_mut().begin_call();
    store.data_mut().in_guest = true;
    // The store is not used again after a panic, so nothing half-done in it is seen.
    let outcome = catch_unwind(AssertUnwindSafe(|| call(store)));
    store.data_mut().in_guest = false;
    store.data_mut().end_call();
    match outcome {
        Ok(Ok(Ok(value))) => Ok((value, fuel - store.get_fuel().unwrap_or(0).min(fuel))),
        Ok(Ok(Err(returned))) => Err(fault::from_guest(&returned, phase)),
        Ok(Err(error)) => Err(fault::from_error(&error, phase, store.data())),
        Err(panic) => Err(fault::from_panic(&*panic, phase)),
    }
}

fn out_of_fuel(phase: FaultPhase, act: &str, price: u64, left: u64) -> GuestFault {
    GuestFault::new(FaultCode::GuestFuel, phase, format!("{act} costs {price} fuel and {left} is left"))
}
