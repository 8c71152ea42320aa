//! Validation of a call's effects, as a whole, before any of them applies. What passes can be applied without failing.

use crate::column::BytesColumn;
use crate::guest::{
    Descriptor, EffectLimits, Effects, EntryUpdate, FaultCode, FaultPhase, GuestFault, OperatorUpdate, Output, StateKind,
    StateUpdate, TimerUpdate, op, timer_op,
};
use crate::state::{Frame, KEY_BYTES_MAX, TIMER_KEY_BYTES};

/// What one call was given, and may return.
pub(super) struct Allowed<'a> {
    pub(super) descriptor: &'a Descriptor,
    pub(super) limits: &'a EffectLimits,
    /// The rows of the call; `None` for an operator without state.
    pub(super) frame: Option<&'a Frame>,
    /// Whether every subtask makes the same call, so that broadcast state may be written.
    pub(super) may_broadcast: bool,
    pub(super) phase: FaultPhase,
}

/// What a call's updates write.
#[derive(Default)]
struct Written {
    /// Bytes that count against the call's budget.
    budget: u64,
    /// Bytes that the state must have room for, at most.
    room: u64,
}

impl Allowed<'_> {
    /// Checks effects. Returns the bytes that the state needs for them, at most.
    pub(super) fn check(&self, effects: &Effects) -> Result<u64, GuestFault> {
        let mut written = Written::default();
        self.check_timers(&effects.timers, &mut written)?;
        for update in &effects.updates {
            self.check_update(update, &mut written)?;
        }
        for update in &effects.entries {
            self.check_entries(update, &mut written)?;
        }
        for update in &effects.operator_updates {
            self.check_own(update, &mut written)?;
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
        if written.room > 0
            && let Some(frame) = self.frame
        {
            // Each slot may have to store the keys of all rows.
            let keys: usize = (0..frame.len()).map(|row| frame.key(row).len()).sum();
            written.room += (keys * effects.updates.len().min(self.descriptor.slots.len())) as u64;
        }
        Ok(written.room)
    }

    fn check_update(&self, update: &StateUpdate, written: &mut Written) -> Result<(), GuestFault> {
        let slot = update.slot;
        let allowed: &[u8] = match self.kind(slot) {
            Some(StateKind::Value) => &[op::PUT, op::DELETE],
            Some(StateKind::List) => &[op::APPEND, op::CLEAR],
            Some(StateKind::Map) => &[op::CLEAR],
            _ => return Err(self.abi(format!("slot {slot} is not a declared value, list or map slot"))),
        };
        let count = update.rows.len();
        if update.ops.len() != count || update.values.len() != count {
            let (ops, values) = (update.ops.len(), update.values.len());
            return Err(self.abi(format!("an update of slot {slot} has {count} rows, {ops} ops and {values} values")));
        }
        self.check_rows(slot, &update.rows)?;
        self.check_ops(slot, &update.ops, allowed)?;
        self.check_values(&update.values, written)
    }

    fn check_entries(&self, update: &EntryUpdate, written: &mut Written) -> Result<(), GuestFault> {
        let slot = update.slot;
        if self.kind(slot) != Some(StateKind::Map) {
            return Err(self.abi(format!("slot {slot} is not a declared map slot")));
        }
        let count = update.rows.len();
        let (ops, keys, values) = (update.ops.len(), update.entry_keys.len(), update.values.len());
        if [ops, keys, values] != [count; 3] {
            let text =
                format!("an entry update of slot {slot} has {count} rows, {ops} ops, {keys} entry keys and {values} values");
            return Err(self.abi(text));
        }
        self.check_rows(slot, &update.rows)?;
        self.check_ops(slot, &update.ops, &[op::PUT, op::DELETE])?;
        self.check_entry_keys(&update.entry_keys, written)?;
        let frame = self.frame.filter(|_| count > 0);
        for (row, entry_key) in update.rows.iter().zip(update.entry_keys.iter()) {
            let key_bytes = frame.map_or(0, |frame| frame.key(*row as usize).len());
            if key_bytes + entry_key.len() > KEY_BYTES_MAX {
                let bytes = entry_key.len();
                let text = format!("an entry key of {bytes} bytes and its key exceed {KEY_BYTES_MAX} bytes together");
                return Err(self.write_budget(text));
            }
            written.room += key_bytes as u64;
        }
        self.check_values(&update.values, written)
    }

    fn check_own(&self, update: &OperatorUpdate, written: &mut Written) -> Result<(), GuestFault> {
        let slot = update.slot;
        let kind = self.kind(slot);
        let allowed: &[u8] = match kind {
            Some(StateKind::ListSplit | StateKind::ListUnion) => &[op::APPEND, op::CLEAR],
            Some(StateKind::Broadcast) if !self.may_broadcast => {
                return Err(self.abi(format!("broadcast slot {slot} is written in a call that not every subtask makes")));
            }
            Some(StateKind::Broadcast) => &[op::PUT, op::DELETE, op::CLEAR],
            _ => return Err(self.abi(format!("slot {slot} is not a declared operator or broadcast slot"))),
        };
        let count = update.ops.len();
        let (keys, values) = (update.entry_keys.len(), update.values.len());
        if [keys, values] != [count; 2] {
            let text = format!("an operator update of slot {slot} has {count} ops, {keys} entry keys and {values} values");
            return Err(self.abi(text));
        }
        self.check_ops(slot, &update.ops, allowed)?;
        if kind != Some(StateKind::Broadcast) && update.entry_keys.bytes() > 0 {
            return Err(self.abi(format!("an update of list slot {slot} has entry keys")));
        }
        self.check_entry_keys(&update.entry_keys, written)?;
        self.check_values(&update.values, written)
    }

    fn check_timers(&self, timers: &TimerUpdate, written: &mut Written) -> Result<(), GuestFault> {
        let count = timers.rows.len();
        let (ops, times, tags) = (timers.ops.len(), timers.times.len(), timers.tags.len());
        if [ops, times, tags] != [count; 3] {
            return Err(self.abi(format!("a timer update has {count} rows, {ops} ops, {times} times and {tags} tags")));
        }
        if count == 0 {
            return Ok(());
        }
        if count > self.limits.timer_updates as usize {
            let text = format!("{count} timers set and deleted in one call exceed the limit of {}", self.limits.timer_updates);
            return Err(GuestFault::new(FaultCode::GuestTimers, self.phase, text));
        }
        for op in &timers.ops {
            match timer_op::meaning(*op) {
                None => return Err(self.abi(format!("a timer update has op {op}, which there is not"))),
                Some((domain, _)) if !self.descriptor.timers.contains(&domain) => {
                    return Err(self.abi(format!("a timer update names {} timers, which were not declared", domain.name())));
                }
                Some(_) => {}
            }
        }
        let there = self.frame.map_or(0, Frame::len);
        for row in &timers.rows {
            let Some(frame) = self.frame.filter(|_| (*row as usize) < there) else {
                return Err(self.abi(format!("a timer update names row {row} of {there}")));
            };
            let key_bytes = frame.key(*row as usize).len();
            if key_bytes + TIMER_KEY_BYTES > KEY_BYTES_MAX {
                return Err(self.write_budget(format!("a timer's key of {key_bytes} bytes is too long")));
            }
            written.room += (key_bytes + 2 * TIMER_KEY_BYTES) as u64;
        }
        Ok(())
    }

    fn kind(&self, slot: u32) -> Option<StateKind> {
        self.descriptor.slots.get(slot as usize).map(|declared| declared.kind)
    }

    fn check_rows(&self, slot: u32, rows: &[u32]) -> Result<(), GuestFault> {
        let there = self.frame.map_or(0, Frame::len);
        match rows.iter().find(|row| **row as usize >= there) {
            Some(row) => Err(self.abi(format!("an update of slot {slot} names row {row} of {there}"))),
            None => Ok(()),
        }
    }

    fn check_ops(&self, slot: u32, ops: &[u8], allowed: &[u8]) -> Result<(), GuestFault> {
        match ops.iter().find(|other| !allowed.contains(other)) {
            Some(other) => {
                let kind = self.kind(slot).map_or("no", StateKind::name);
                Err(self.abi(format!("an update of slot {slot} has op {other}, which {kind} state does not know")))
            }
            None => Ok(()),
        }
    }

    fn check_entry_keys(&self, keys: &BytesColumn, written: &mut Written) -> Result<(), GuestFault> {
        let limit = (self.limits.key_bytes as usize).min(KEY_BYTES_MAX);
        if keys.bytes() > limit
            && let Some(key) = keys.iter().find(|key| key.len() > limit)
        {
            return Err(self.write_budget(format!("an entry key of {} bytes exceeds the limit of {limit}", key.len())));
        }
        self.spend(keys.bytes(), written)
    }

    fn check_values(&self, values: &BytesColumn, written: &mut Written) -> Result<(), GuestFault> {
        let limit = self.limits.value_bytes as usize;
        if values.bytes() > limit
            && let Some(value) = values.iter().find(|value| value.len() > limit)
        {
            return Err(self.write_budget(format!("a state value of {} bytes exceeds the limit of {limit}", value.len())));
        }
        // A value's stamp, a chunk's number and counts take room even where the value is empty.
        written.room += 16 * values.len() as u64;
        self.spend(values.bytes(), written)
    }

    fn spend(&self, bytes: usize, written: &mut Written) -> Result<(), GuestFault> {
        written.budget += bytes as u64;
        written.room += bytes as u64;
        if written.budget > u64::from(self.limits.write_bytes) {
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
