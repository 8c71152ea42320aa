//! Operators of the SDK linked natively, behind the engine's guest trait: for the simulator, and as the yardstick of
//! benchmarks. The same author's code runs as in a component, over the same columns, without the sandbox.

mod reads;

use std::marker::PhantomData;
use std::rc::Rc;

use cofferdam_dataflow::batch::TimeColumn;
use cofferdam_dataflow::column::{BytesColumn, BytesSlice};
use cofferdam_dataflow::guest::{
    Descriptor, Effects, EntryUpdate, FaultClass, FaultCode, FaultPhase, Guest, GuestFactory, GuestFault, GuestUsage, InputBatch,
    InputPort, InstanceInfo, KeyedFrame, OperatorUpdate, Output, StateColumn, StateKind, StateReads, StateSlot, StateUpdate,
    TimeDomain, TimerBatch, TimerUpdate,
};
use cofferdam_dataflow::time::{ProcessingTime, Watermark};
use cofferdam_guest::call::{FrameView, InputView, Limits, StateView, TimersView};
use cofferdam_guest::column::{BytesColumn as SdkColumn, BytesView, TimesView};
use cofferdam_guest::{ErrorKind, Limit, Operator, Runner};

use self::reads::Bridge;

/// Opens instances of one natively linked operator.
pub struct NativeFactory<O> {
    descriptor: Descriptor,
    config: Vec<u8>,
    operator: PhantomData<fn() -> O>,
}

impl<O: Operator> NativeFactory<O> {
    /// Returns a factory with this configuration, a JSON object.
    pub fn new(config: &str) -> Self {
        let declared = Runner::<O>::descriptor();
        let slots = declared.slots.into_iter().map(|slot| StateSlot {
            name: slot.name,
            kind: kind(slot.kind),
            codec: slot.codec,
            schema: slot.schema,
            ttl_ms: slot.ttl_ms,
            ttl_on_read: slot.ttl_on_read,
            prefetch: slot.prefetch,
        });
        let input = |input: cofferdam_guest::Input| InputPort { name: input.name, broadcast: input.broadcast };
        let descriptor = Descriptor {
            inputs: declared.inputs.into_iter().map(input).collect(),
            outputs: declared.outputs,
            slots: slots.collect(),
            timers: declared.timers.into_iter().map(domain).collect(),
            keyed: declared.keyed,
            max_batch: declared.max_batch,
        };
        Self { descriptor, config: config.as_bytes().to_vec(), operator: PhantomData }
    }
}

impl<O: Operator + 'static> GuestFactory for NativeFactory<O> {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn open(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        let limits = Limits {
            key_bytes: info.limits.key_bytes,
            value_bytes: info.limits.value_bytes,
            record_bytes: info.limits.record_bytes,
            output_records: info.limits.output_records,
            output_bytes: info.limits.output_bytes,
        };
        let operator = info.operator.to_string();
        let info = cofferdam_guest::call::InstanceInfo { operator, subtask: info.subtask, parallelism: info.parallelism, limits };
        let runner = Runner::<O>::open(&self.config, &info).map_err(|error| fault(FaultPhase::Open, &error))?;
        Ok(Box::new(NativeGuest { runner, ends: Default::default(), calls: 0 }))
    }
}

struct NativeGuest<O> {
    runner: Runner<O>,
    /// Shifted ends of values and keys.
    ends: [Vec<u32>; 2],
    calls: u64,
}

impl<O: Operator> Guest for NativeGuest<O> {
    fn process_batch(
        &mut self,
        batch: &InputBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        self.calls += 1;
        let [value_ends, key_ends] = &mut self.ends;
        let states = state_views(frame);
        let input = InputView {
            port: batch.port,
            watermark: batch.watermark.map(|watermark| watermark.0.0),
            processing_time: batch.processing_time.0,
            rows: batch.rows,
            timestamps: TimesView { times: batch.times, untimed: batch.untimed },
            values: BytesView::new(batch.values.data(), batch.values.ends(value_ends)),
        };
        let frame = FrameView { keys: BytesView::new(frame.keys.data(), frame.keys.ends(key_ends)), states: &states };
        let effects =
            self.runner.process_batch(&input, &frame, &Bridge(&**reads)).map_err(|error| fault(FaultPhase::Data, &error))?;
        Ok(convert(effects))
    }

    fn on_timers(
        &mut self,
        timers: &TimerBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        self.calls += 1;
        let [_, key_ends] = &mut self.ends;
        let states = state_views(frame);
        let timers = TimersView {
            watermark: timers.watermark.map(|watermark| watermark.0.0),
            processing_time: timers.processing_time.0,
            domain: match timers.domain {
                TimeDomain::EventTime => cofferdam_guest::TimeDomain::EventTime,
                TimeDomain::ProcessingTime => cofferdam_guest::TimeDomain::ProcessingTime,
            },
            rows: timers.rows,
            times: timers.times,
            tags: timers.tags,
        };
        let frame = FrameView { keys: BytesView::new(frame.keys.data(), frame.keys.ends(key_ends)), states: &states };
        let effects =
            self.runner.on_timers(&timers, &frame, &Bridge(&**reads)).map_err(|error| fault(FaultPhase::Timer, &error))?;
        Ok(convert(effects))
    }

    fn finish(&mut self, watermark: Option<Watermark>, now: ProcessingTime) -> Result<Effects, GuestFault> {
        let watermark = watermark.map(|watermark| watermark.0.0);
        self.runner.finish(watermark, now.0).map(convert).map_err(|error| fault(FaultPhase::Finish, &error))
    }

    fn usage(&self) -> GuestUsage {
        GuestUsage { calls: self.calls, ..GuestUsage::default() }
    }
}

/// State columns are always whole columns: their ends need no shifting.
fn whole(slice: BytesSlice<'_>) -> BytesView<'_> {
    let (data, ends) = slice.whole().expect("a state column is not a part of another");
    BytesView::new(data, ends)
}

fn column(column: SdkColumn) -> BytesColumn {
    BytesColumn::from_parts(column.data, column.ends).expect("the SDK writes well-formed columns")
}

fn kind(kind: cofferdam_guest::StateKind) -> StateKind {
    match kind {
        cofferdam_guest::StateKind::Value => StateKind::Value,
        cofferdam_guest::StateKind::List => StateKind::List,
        cofferdam_guest::StateKind::Map => StateKind::Map,
        cofferdam_guest::StateKind::ListSplit => StateKind::ListSplit,
        cofferdam_guest::StateKind::ListUnion => StateKind::ListUnion,
        cofferdam_guest::StateKind::Broadcast => StateKind::Broadcast,
    }
}

fn domain(domain: cofferdam_guest::TimeDomain) -> TimeDomain {
    match domain {
        cofferdam_guest::TimeDomain::EventTime => TimeDomain::EventTime,
        cofferdam_guest::TimeDomain::ProcessingTime => TimeDomain::ProcessingTime,
    }
}

fn state_views<'a>(frame: &KeyedFrame<'a>) -> Vec<StateView<'a>> {
    let view = |state: &StateColumn<'a>| StateView { slot: state.slot, present: state.present, values: whole(state.values) };
    frame.states.iter().map(view).collect()
}

fn convert(effects: cofferdam_guest::call::Effects) -> Effects {
    let updates = effects.updates.into_iter().map(|update| StateUpdate {
        slot: update.slot,
        rows: update.rows,
        ops: update.ops,
        values: column(update.values),
    });
    let entries = effects.entries.into_iter().map(|update| EntryUpdate {
        slot: update.slot,
        rows: update.rows,
        ops: update.ops,
        entry_keys: column(update.entry_keys),
        values: column(update.values),
    });
    let operator_updates = effects.operator_updates.into_iter().map(|update| OperatorUpdate {
        slot: update.slot,
        ops: update.ops,
        entry_keys: column(update.entry_keys),
        values: column(update.values),
    });
    let outputs = effects.outputs.into_iter().map(|output| {
        let values = column(output.values);
        let times = TimeColumn::from_parts(values.len(), output.timestamps.times, output.timestamps.untimed);
        Output {
            port: output.port,
            keys: column(output.keys),
            timestamps: times.expect("the SDK writes well-formed columns"),
            values,
        }
    });
    Effects {
        updates: updates.collect(),
        entries: entries.collect(),
        operator_updates: operator_updates.collect(),
        timers: TimerUpdate {
            rows: effects.timers.rows,
            ops: effects.timers.ops,
            times: effects.timers.times,
            tags: effects.timers.tags,
        },
        outputs: outputs.collect(),
    }
}

fn fault(phase: FaultPhase, error: &cofferdam_guest::Error) -> GuestFault {
    let class = if error.kind() == ErrorKind::Permanent { FaultClass::Permanent } else { FaultClass::Guest };
    let code = match error.limit() {
        Some(Limit::Output) => FaultCode::GuestOutput,
        Some(Limit::Write) => FaultCode::GuestWriteBudget,
        _ => FaultCode::GuestError,
    };
    GuestFault { class, ..GuestFault::new(code, phase, error.to_string()) }
}
