//! Drives an operator through one call: plain columns in, plain effects out.
//!
//! The one core below the wasm glue, the test harness and natively linked operators. It knows no binding and no host.

use std::rc::Rc;

use crate::call::{Effects, FrameView, InputView, InstanceInfo, Limits, StateView, TimersView};
use crate::context::{At, BroadcastContext, Clock, Context, Record};
use crate::declare::{Declare, Descriptor, Input, Slot, TimeDomain};
use crate::error::Error;
use crate::operator::Operator;
use crate::output::Outputs;
use crate::reads::Reads;
use crate::timer_tags::{Parts, is_reserved};
use crate::timers::{Timer, TimerCells};

/// One opened instance of an operator. After an error, a call's leftovers are gone: the next starts clean.
pub struct Runner<O> {
    operator: O,
    slots: Vec<Slot>,
    timers: Rc<TimerCells>,
    parts: Parts,
    outputs: Outputs,
    inputs: Vec<Input>,
    /// How many slots have a column in the frame.
    columns: usize,
    keyed: bool,
    limits: Limits,
}

impl<O: Operator> Runner<O> {
    /// Returns what the operator declares.
    pub fn descriptor() -> Descriptor {
        let mut declare = Declare::default();
        O::declare(&mut declare);
        declare.descriptor()
    }

    /// Makes an instance and configures it with `config`, a JSON object.
    ///
    /// # Errors
    /// A permanent error if the declaration breaks a rule or the configuration does not parse; any error of the operator.
    pub fn open(config: &[u8], info: &InstanceInfo) -> Result<Self, Error> {
        let mut declare = Declare::default();
        let mut operator = O::declare(&mut declare);
        let descriptor = declare.outline();
        descriptor.check()?;
        declare.parts.check()?;
        let config = serde_json::from_slice(config).map_err(|error| Error::from(error).context("the configuration"))?;
        operator.configure(config, info)?;
        let mut columns = 0..;
        for (slot, declared) in declare.slots.iter().zip(&descriptor.slots) {
            slot.cells.open(if declared.prefetch { columns.next() } else { None });
        }
        Ok(Self {
            operator,
            slots: declare.slots,
            timers: declare.timers,
            parts: declare.parts,
            outputs: Outputs::new(descriptor.outputs, info.limits),
            inputs: descriptor.inputs,
            columns: columns.start,
            keyed: descriptor.keyed,
            limits: info.limits,
        })
    }

    /// Handles a batch. `reads` answers for the state that the frame does not have.
    ///
    /// # Errors
    /// The first error of the operator, or a permanent one if a limit is exceeded or the input is inconsistent.
    ///
    /// # Panics
    /// If the columns' ends or rows point outside of the input.
    pub fn process_batch(&mut self, input: &InputView<'_>, frame: &FrameView<'_>, reads: &Reads<'_>) -> Result<Effects, Error> {
        let is_broadcast = self.inputs.get(input.port as usize).is_some_and(|input| input.broadcast);
        self.check(input, frame, is_broadcast)?;
        self.begin(frame.keys.len());
        let clock = Clock { watermark: input.watermark, processing_time: input.processing_time };
        let at = |index| At { port: input.port, time: input.timestamps.get(index), ..At::default() };
        if is_broadcast {
            let mut cx: BroadcastContext<'_> = Context::new(*frame, Some(reads), clock, &mut self.outputs);
            for (index, value) in input.values.iter().enumerate() {
                cx.move_to(at(index));
                self.operator.process_broadcast(Record { value }, &mut cx)?;
            }
            return self.effects();
        }
        let mut cx: Context<'_> = Context::new(*frame, Some(reads), clock, &mut self.outputs);
        for (index, value) in input.values.iter().enumerate() {
            let mut at = at(index);
            if self.keyed {
                at.row = input.rows[index] as usize;
                at.key = Some(frame.keys.get(at.row));
            }
            cx.move_to(at);
            self.operator.process(Record { value }, &mut cx)?;
        }
        self.effects()
    }

    /// Handles timers that are due. `reads` answers for the state that the frame does not have.
    ///
    /// # Errors
    /// As [`Self::process_batch`].
    ///
    /// # Panics
    /// If rows point outside of the frame.
    pub fn on_timers(&mut self, timers: &TimersView<'_>, frame: &FrameView<'_>, reads: &Reads<'_>) -> Result<Effects, Error> {
        let counts = [timers.rows.len(), timers.times.len(), timers.tags.len()];
        let broken = match self.check_frame(frame) {
            None if counts != [counts[0]; 3] => {
                Some(format!("{} rows, {} times and {} tags of timers", counts[0], counts[1], counts[2]))
            }
            broken => broken,
        };
        if let Some(broken) = broken {
            return Err(Error::permanent(format!("the host broke the operator interface: {broken}")));
        }
        self.begin(frame.keys.len());
        let clock = Clock { watermark: timers.watermark, processing_time: timers.processing_time };
        let mut cx: Context<'_> = Context::new(*frame, Some(reads), clock, &mut self.outputs);
        for ((row, time), tag) in timers.rows.iter().zip(timers.times).zip(timers.tags) {
            let owner = self.parts.owner(*tag);
            if is_reserved(*tag) && owner.is_none() {
                // A part that this version has no more left it behind.
                continue;
            }
            let row = *row as usize;
            let is_event_time = timers.domain == TimeDomain::EventTime;
            cx.move_to(At { port: 0, row, key: Some(frame.keys.get(row)), time: is_event_time.then_some(*time) });
            self.operator.on_timer(Timer::new(timers.domain, *time, *tag), &mut cx)?;
            if let Some(owner) = owner.filter(|_| !self.timers.was_taken()) {
                return Err(Error::permanent(format!("`on_timer` got a timer of {owner:?} and did not hand it on to it")));
            }
        }
        self.effects()
    }

    /// All inputs have ended.
    ///
    /// # Errors
    /// As [`Self::process_batch`].
    pub fn finish(&mut self, watermark: Option<i64>, processing_time: i64) -> Result<Effects, Error> {
        self.begin(0);
        let clock = Clock { watermark, processing_time };
        let mut cx = Context::new(FrameView::default(), None, clock, &mut self.outputs);
        self.operator.finish(&mut cx)?;
        self.effects()
    }

    /// Forgets what a call before, perhaps a failed one, left behind.
    fn begin(&mut self, rows: usize) {
        for slot in &self.slots {
            slot.cells.begin(rows);
        }
        self.timers.begin();
        self.outputs.begin();
    }

    /// Gathers what the call did.
    fn effects(&mut self) -> Result<Effects, Error> {
        let mut effects = Effects::default();
        for (index, slot) in (0..).zip(&self.slots) {
            slot.cells.flush(index, &self.limits, &mut effects)?;
        }
        effects.timers = self.timers.take()?;
        effects.outputs = self.outputs.take();
        Ok(effects)
    }

    /// Checks once what the loop relies on.
    fn check(&self, input: &InputView<'_>, frame: &FrameView<'_>, is_broadcast: bool) -> Result<(), Error> {
        let records = input.values.len();
        let times = input.timestamps.times.len();
        // Records of a broadcast input have no rows, and nothing looks at keyed state.
        let is_keyed = self.keyed && !is_broadcast;
        let broken = if input.port as usize >= self.inputs.len() {
            format!("a batch for input {} of {}", input.port, self.inputs.len())
        } else if is_keyed && input.rows.len() != records {
            format!("{} rows for {records} records", input.rows.len())
        } else if times != 0 && times != records {
            format!("{times} times for {records} records")
        } else if let Some(broken) = self.check_frame(frame).filter(|_| is_keyed) {
            broken
        } else {
            return Ok(());
        };
        Err(Error::permanent(format!("the host broke the operator interface: {broken}")))
    }
}

impl<O> Runner<O> {
    /// Returns what does not fit of a frame.
    fn check_frame(&self, frame: &FrameView<'_>) -> Option<String> {
        let rows = frame.keys.len();
        let columns_fit = |state: &StateView<'_>| state.values.len() == rows && state.present.len() == rows.div_ceil(8);
        let fits = frame.states.len() == self.columns && frame.states.iter().all(columns_fit);
        (!fits).then(|| format!("state columns that do not fit {} slots and {rows} rows", self.columns))
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
