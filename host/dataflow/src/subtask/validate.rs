//! Validation of a call's effects, as a whole, before any of them applies. What passes can be applied without failing.

use crate::guest::{Descriptor, EffectLimits, Effects, FaultCode, FaultPhase, GuestFault, Output, StateKind, StateUpdate, op};

/// What one call was given, and may return.
pub(super) struct Allowed<'a> {
    pub(super) descriptor: &'a Descriptor,
    pub(super) limits: &'a EffectLimits,
    /// Rows of the call's frame.
    pub(super) rows: usize,
    pub(super) phase: FaultPhase,
}

impl Allowed<'_> {
    /// Checks effects. Returns the bytes that their state updates write.
    pub(super) fn check(&self, effects: &Effects) -> Result<u64, GuestFault> {
        let timers = &effects.timers;
        let timer_counts = [timers.rows.len(), timers.ops.len(), timers.times.len(), timers.tags.len()];
        if timer_counts != [0; 4] {
            return Err(self.abi("timers are set, but none were declared".into()));
        }
        if let Some(entries) = effects.entries.first() {
            return Err(self.abi(format!("slot {} is not a map", entries.slot)));
        }
        if let Some(update) = effects.operator_updates.first() {
            return Err(self.abi(format!("slot {} is not operator or broadcast state", update.slot)));
        }
        let mut write_bytes = 0;
        for update in &effects.updates {
            self.check_update(update, &mut write_bytes)?;
        }
        let (mut records, mut bytes) = (0, 0);
        for output in &effects.outputs {
            self.check_output(output)?;
            records += output.values.len();
            bytes += output.values.bytes() + output.keys.bytes();
        }
        let limits = self.limits;
        if records > limits.output_records as usize || bytes > limits.output_bytes as usize {
            let (most, most_bytes) = (limits.output_records, limits.output_bytes);
            let text = format!(
                "{records} output records of {bytes} bytes in one call exceed the limit of {most} records or {most_bytes} bytes"
            );
            return Err(GuestFault::new(FaultCode::GuestOutput, self.phase, text));
        }
        Ok(write_bytes)
    }

    fn check_update(&self, update: &StateUpdate, write_bytes: &mut u64) -> Result<(), GuestFault> {
        let slot = update.slot;
        let declared = self.descriptor.slots.get(slot as usize);
        if declared.is_none_or(|declared| declared.kind != StateKind::Value) {
            return Err(self.abi(format!("slot {slot} is not a declared value slot")));
        }
        let count = update.rows.len();
        if update.ops.len() != count || update.values.len() != count {
            let (ops, values) = (update.ops.len(), update.values.len());
            return Err(self.abi(format!("an update of slot {slot} has {count} rows, {ops} ops and {values} values")));
        }
        if let Some(row) = update.rows.iter().find(|row| **row as usize >= self.rows) {
            return Err(self.abi(format!("an update of slot {slot} names row {row} of {}", self.rows)));
        }
        if let Some(other) = update.ops.iter().find(|other| !matches!(**other, op::PUT | op::DELETE)) {
            return Err(self.abi(format!("an update of slot {slot} has op {other}, which value state does not know")));
        }
        let limit = self.limits.value_bytes as usize;
        if update.values.bytes() > limit
            && let Some(value) = update.values.iter().find(|value| value.len() > limit)
        {
            return Err(self.write_budget(format!("a state value of {} bytes exceeds the limit of {limit}", value.len())));
        }
        *write_bytes += update.values.bytes() as u64;
        if *write_bytes > u64::from(self.limits.write_bytes) {
            return Err(self.write_budget(format!("state writes of one call exceed {} bytes", self.limits.write_bytes)));
        }
        Ok(())
    }

    fn check_output(&self, output: &Output) -> Result<(), GuestFault> {
        let (port, count) = (output.port, output.values.len());
        if port as usize >= self.descriptor.outputs.len() {
            return Err(self.abi(format!("output port {port} was not declared")));
        }
        if output.timestamps.len() != count || !(output.keys.is_empty() || output.keys.len() == count) {
            let (times, keys) = (output.timestamps.len(), output.keys.len());
            return Err(self.abi(format!("output port {port} has {count} values, {times} times and {keys} keys")));
        }
        for (what, column, limit) in
            [("record", &output.values, self.limits.record_bytes), ("key", &output.keys, self.limits.key_bytes)]
        {
            if column.bytes() > limit as usize
                && let Some(item) = column.iter().find(|item| item.len() > limit as usize)
            {
                let text = format!("an output {what} of {} bytes exceeds the limit of {limit}", item.len());
                return Err(GuestFault::new(FaultCode::GuestOutput, self.phase, text));
            }
        }
        Ok(())
    }

    fn abi(&self, text: String) -> GuestFault {
        GuestFault::new(FaultCode::GuestAbi, self.phase, text)
    }

    fn write_budget(&self, text: String) -> GuestFault {
        GuestFault::new(FaultCode::GuestWriteBudget, self.phase, text)
    }
}
