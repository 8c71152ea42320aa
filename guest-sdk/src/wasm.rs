//! The glue between the generated bindings and [`Runner`]: input is borrowed, effects are moved, nothing is copied.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::thread::LocalKey;

use self::bindings::cofferdam::operator::{logging, metrics, state_reads, types as wit};
use self::bindings::exports::cofferdam::operator::guest;
use crate::call::{Effects, FrameView, InputView, InstanceInfo, Limits, StateView, TimersView};
use crate::column::{BytesColumn, BytesView, TimesView};
use crate::declare::{StateKind, TimeDomain};
use crate::error::{Error, ErrorKind};
use crate::log::Level;
use crate::operator::Operator;
use crate::reads::{ReadColumn, ReadEntries};
use crate::runner::Runner;

/// What `wit-bindgen` makes of the interface.
#[expect(missing_docs, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "operator",
        pub_export_macro: true,
        runtime_path: "::cofferdam_guest::wasm::wit_bindgen::rt",
    });
}
pub use wit_bindgen;

/// Holds the opened instance of a component.
pub type Cell<O> = RefCell<Option<Runner<O>>>;

/// A component's operator and the place of its instance; [`crate::export`] implements it.
pub trait Instance {
    /// The operator.
    type Operator: Operator;

    /// Where the opened instance is.
    fn cell() -> &'static LocalKey<Cell<Self::Operator>>;
}

impl<I: Instance> guest::Guest for I {
    fn describe() -> guest::Descriptor {
        report_panics();
        let descriptor = Runner::<I::Operator>::descriptor();
        let slot = |slot: crate::declare::StateSlot| guest::StateSlot {
            name: slot.name,
            kind: match slot.kind {
                StateKind::Value => guest::StateKind::Value,
                StateKind::List => guest::StateKind::List,
                StateKind::Map => guest::StateKind::Map,
                StateKind::ListSplit => guest::StateKind::ListSplit,
                StateKind::ListUnion => guest::StateKind::ListUnion,
                StateKind::Broadcast => guest::StateKind::Broadcast,
            },
            codec: slot.codec,
            schema: slot.schema,
            ttl_ms: slot.ttl_ms,
            ttl_on_read: slot.ttl_on_read,
            prefetch: slot.prefetch,
        };
        let input = |input: crate::declare::Input| guest::InputPort { name: input.name, broadcast: input.broadcast };
        guest::Descriptor {
            inputs: descriptor.inputs.into_iter().map(input).collect(),
            outputs: descriptor.outputs,
            slots: descriptor.slots.into_iter().map(slot).collect(),
            timers: descriptor.timers.into_iter().map(domain).collect(),
            keyed: descriptor.keyed,
            max_batch: descriptor.max_batch,
        }
    }

    fn open(config: Vec<u8>, info: guest::InstanceInfo) -> Result<(), wit::OperatorError> {
        report_panics();
        let limits = Limits {
            key_bytes: info.max_key,
            value_bytes: info.max_value,
            record_bytes: info.max_record,
            output_records: info.max_output_records,
            output_bytes: info.max_output_bytes,
        };
        let info = InstanceInfo { operator: info.operator, subtask: info.subtask, parallelism: info.parallelism, limits };
        let runner = Runner::open(&config, &info).map_err(operator_error)?;
        I::cell().set(Some(runner));
        Ok(())
    }

    fn process_batch(batch: wit::InputBatch, frame: wit::KeyedFrame) -> Result<wit::Effects, wit::OperatorError> {
        let states: Vec<_> = frame.states.iter().map(state_view).collect();
        let input = InputView {
            port: batch.port,
            watermark: batch.watermark,
            processing_time: batch.processing_time,
            rows: &batch.rows,
            timestamps: TimesView { times: &batch.timestamps.times, untimed: &batch.timestamps.untimed },
            values: view(&batch.values),
        };
        let frame = FrameView { keys: view(&frame.keys), states: &states };
        call::<I>(|runner| runner.process_batch(&input, &frame, &Imports(PhantomData)))
    }

    fn on_timers(timers: wit::TimerBatch, frame: wit::KeyedFrame) -> Result<wit::Effects, wit::OperatorError> {
        let states: Vec<_> = frame.states.iter().map(state_view).collect();
        let timers = TimersView {
            watermark: timers.watermark,
            processing_time: timers.processing_time,
            domain: match timers.domain {
                wit::TimeDomain::EventTime => TimeDomain::EventTime,
                wit::TimeDomain::ProcessingTime => TimeDomain::ProcessingTime,
            },
            rows: &timers.rows,
            times: &timers.times,
            tags: &timers.tags,
        };
        let frame = FrameView { keys: view(&frame.keys), states: &states };
        call::<I>(|runner| runner.on_timers(&timers, &frame, &Imports(PhantomData)))
    }

    fn finish(watermark: Option<i64>, processing_time: i64) -> Result<wit::Effects, wit::OperatorError> {
        call::<I>(|runner| runner.finish(watermark, processing_time))
    }
}

/// A panic traps, which says nothing; the host takes the last line that was logged as an error for its reason.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| crate::log::write(Level::Error, format_args!("{panic}"))));
}

fn call<I: Instance>(
    act: impl FnOnce(&mut Runner<I::Operator>) -> Result<Effects, Error>,
) -> Result<wit::Effects, wit::OperatorError> {
    I::cell().with_borrow_mut(|runner| match runner {
        Some(runner) => act(runner).map(effects).map_err(operator_error),
        None => Err(operator_error(Error::permanent("the operator is not open"))),
    })
}

fn domain(domain: TimeDomain) -> wit::TimeDomain {
    match domain {
        TimeDomain::EventTime => wit::TimeDomain::EventTime,
        TimeDomain::ProcessingTime => wit::TimeDomain::ProcessingTime,
    }
}

fn view(column: &wit::BytesColumn) -> BytesView<'_> {
    BytesView::new(&column.data, &column.ends)
}

fn state_view(state: &wit::StateColumn) -> StateView<'_> {
    StateView { slot: state.slot, present: &state.present, values: view(&state.values) }
}

fn column(column: BytesColumn) -> wit::BytesColumn {
    wit::BytesColumn { data: column.data, ends: column.ends }
}

fn effects(effects: Effects) -> wit::Effects {
    let update = |update: crate::call::StateUpdate| wit::StateUpdate {
        slot: update.slot,
        rows: update.rows,
        ops: update.ops,
        values: column(update.values),
    };
    let entries = |update: crate::call::EntryUpdate| wit::EntryUpdate {
        slot: update.slot,
        rows: update.rows,
        ops: update.ops,
        entry_keys: column(update.entry_keys),
        values: column(update.values),
    };
    let operator_update = |update: crate::call::OperatorUpdate| wit::OperatorUpdate {
        slot: update.slot,
        ops: update.ops,
        entry_keys: column(update.entry_keys),
        values: column(update.values),
    };
    let output = |output: crate::call::Output| wit::Output {
        port: output.port,
        keys: column(output.keys),
        timestamps: wit::TimeColumn { times: output.timestamps.times, untimed: output.timestamps.untimed },
        values: column(output.values),
    };
    wit::Effects {
        updates: effects.updates.into_iter().map(update).collect(),
        entries: effects.entries.into_iter().map(entries).collect(),
        operator_updates: effects.operator_updates.into_iter().map(operator_update).collect(),
        timers: wit::TimerUpdate {
            rows: effects.timers.rows,
            ops: effects.timers.ops,
            times: effects.timers.times,
            tags: effects.timers.tags,
        },
        outputs: effects.outputs.into_iter().map(output).collect(),
    }
}

/// The host's answers to reads. Functions rather than a trait object, so that a component imports what it calls only; they
/// return no error, for the host traps instead.
pub struct Imports<'r>(PhantomData<&'r ()>);

impl Imports<'_> {
    pub(crate) fn get_many(&self, slot: u32, rows: &[u32]) -> Result<ReadColumn, Error> {
        Ok(read_column(state_reads::get_many(slot, rows)))
    }

    pub(crate) fn get_entries(&self, slot: u32, rows: &[u32], entry_keys: BytesColumn) -> Result<ReadColumn, Error> {
        Ok(read_column(state_reads::get_entries(slot, rows, &column(entry_keys))))
    }

    pub(crate) fn scan(&self, slot: u32, row: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error> {
        Ok(read_entries(state_reads::scan(slot, row, start_after, limit)))
    }

    pub(crate) fn get_list(&self, slot: u32, row: u32, start: u32, limit: u32) -> Result<BytesColumn, Error> {
        Ok(own(state_reads::get_list(slot, row, start, limit)))
    }

    pub(crate) fn get_operator_list(&self, slot: u32, start: u32, limit: u32) -> Result<BytesColumn, Error> {
        Ok(own(state_reads::get_operator_list(slot, start, limit)))
    }

    pub(crate) fn get_broadcast(&self, slot: u32, entry_keys: BytesColumn) -> Result<ReadColumn, Error> {
        Ok(read_column(state_reads::get_broadcast(slot, &column(entry_keys))))
    }

    pub(crate) fn scan_broadcast(&self, slot: u32, start_after: Option<&[u8]>, limit: u32) -> Result<ReadEntries, Error> {
        Ok(read_entries(state_reads::scan_broadcast(slot, start_after, limit)))
    }
}

fn own(column: wit::BytesColumn) -> BytesColumn {
    BytesColumn { data: column.data, ends: column.ends }
}

fn read_column(column: wit::StateColumn) -> ReadColumn {
    ReadColumn { present: column.present, values: own(column.values) }
}

fn read_entries((keys, values): (wit::BytesColumn, wit::BytesColumn)) -> ReadEntries {
    ReadEntries { keys: own(keys), values: own(values) }
}

fn operator_error(error: Error) -> wit::OperatorError {
    let message = error.wire_message();
    match error.kind() {
        ErrorKind::Transient => wit::OperatorError::Transient(message),
        ErrorKind::Permanent => wit::OperatorError::Permanent(message),
    }
}

pub(crate) fn log(level: Level, message: &str) {
    let level = match level {
        Level::Trace => logging::Level::Trace,
        Level::Debug => logging::Level::Debug,
        Level::Info => logging::Level::Info,
        Level::Warn => logging::Level::Warn,
        Level::Error => logging::Level::Error,
    };
    logging::log(level, message);
}

pub(crate) fn add(name: &str, delta: u64) {
    metrics::add(name, delta);
}

pub(crate) fn set(name: &str, value: f64) {
    metrics::set(name, value);
}
