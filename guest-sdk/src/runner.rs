//! Drives an operator through one call: plain columns in, plain effects out.
//!
//! The one core below the wasm glue, the test harness and natively linked operators. It knows no binding and no host.

use crate::call::{Effects, FrameView, InputView, InstanceInfo};
use crate::context::{At, Clock, Context, Record};
use crate::declare::{Declare, Descriptor, Slot};
use crate::error::Error;
use crate::operator::Operator;
use crate::output::Outputs;

/// One opened instance of an operator. After an error, a call's leftovers are gone: the next starts clean.
pub struct Runner<O> {
    operator: O,
    slots: Vec<Slot>,
    outputs: Outputs,
    inputs: usize,
    keyed: bool,
    value_bytes_max: u32,
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
        let config = serde_json::from_slice(config).map_err(|error| Error::from(error).context("the configuration"))?;
        operator.configure(config, info)?;
        Ok(Self {
            operator,
            slots: declare.slots,
            outputs: Outputs::new(descriptor.outputs, info.limits),
            inputs: descriptor.inputs.len(),
            keyed: descriptor.keyed,
            value_bytes_max: info.limits.value_bytes,
        })
    }

    /// Handles a batch.
    ///
    /// # Errors
    /// The first error of the operator, or a permanent one if a limit is exceeded or the input is inconsistent.
    ///
    /// # Panics
    /// If the columns' ends or rows point outside of the input.
    pub fn process_batch(&mut self, input: &InputView<'_>, frame: &FrameView<'_>) -> Result<Effects, Error> {
        self.check(input, frame)?;
        for slot in &self.slots {
            slot.cells.begin(frame.keys.len());
        }
        self.outputs.begin();
        let clock = Clock { watermark: input.watermark, processing_time: input.processing_time };
        let mut cx = Context::new(*frame, clock, &mut self.outputs);
        for (index, value) in input.values.iter().enumerate() {
            let mut at = At { port: input.port, time: input.timestamps.get(index), ..At::default() };
            if self.keyed {
                at.row = input.rows[index] as usize;
                at.key = Some(frame.keys.get(at.row));
            }
            cx.move_to(at);
            self.operator.process(Record { value }, &mut cx)?;
        }
        let mut updates = Vec::with_capacity(self.slots.len());
        for (index, slot) in (0..).zip(&self.slots) {
            updates.extend(slot.cells.flush(index, self.value_bytes_max)?);
        }
        Ok(Effects { updates, outputs: self.outputs.take() })
    }

    /// All inputs have ended.
    ///
    /// # Errors
    /// As [`Self::process_batch`].
    pub fn finish(&mut self, watermark: Option<i64>, processing_time: i64) -> Result<Effects, Error> {
        self.outputs.begin();
        let clock = Clock { watermark, processing_time };
        let mut cx = Context::new(FrameView::default(), clock, &mut self.outputs);
        self.operator.finish(&mut cx)?;
        Ok(Effects { updates: Vec::new(), outputs: self.outputs.take() })
    }

    /// Checks once what the loop relies on.
    fn check(&self, input: &InputView<'_>, frame: &FrameView<'_>) -> Result<(), Error> {
        let (records, rows) = (input.values.len(), frame.keys.len());
        let times = input.timestamps.times.len();
        let columns_fit =
            |state: &crate::call::StateView<'_>| state.values.len() == rows && state.present.len() == rows.div_ceil(8);
        let broken = if input.port as usize >= self.inputs {
            format!("a batch for input {} of {}", input.port, self.inputs)
        } else if self.keyed && input.rows.len() != records {
            format!("{} rows for {records} records", input.rows.len())
        } else if times != 0 && times != records {
            format!("{times} times for {records} records")
        } else if frame.states.len() != self.slots.len() || !frame.states.iter().all(columns_fit) {
            format!("state columns that do not fit {} slots and {rows} rows", self.slots.len())
        } else {
            return Ok(());
        };
        Err(Error::permanent(format!("the host broke the operator interface: {broken}")))
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
