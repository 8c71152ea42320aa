//! What the host keeps in a store beside the guest.

use std::rc::Rc;
use std::sync::Arc;

use cofferdam_dataflow::guest::StateReads;
use cofferdam_dataflow::ids::OperatorId;
use wasmtime::StoreContextMut;

use super::limiter::TotalsLimiter;
use super::limits::GuestLimits;
use super::log::{GuestLog, GuestLogLevel};
use super::metrics::OperatorMetrics;
use super::trap::HostTrap;
use crate::sandbox::text;

/// The data of a guest's store.
pub(super) struct HostState {
    pub(super) limiter: TotalsLimiter,
    pub(super) operator: OperatorId,
    pub(super) subtask: u32,
    pub(super) import_bytes: u64,
    /// Bytes of the values that one read returns, and of one of them, at most.
    read_bounds: (usize, usize),
    /// What answers reads of state: there during a call with records only.
    reads: Option<Rc<dyn StateReads>>,
    /// Whether a guest call is going on. No host function may start another one.
    pub(super) in_guest: bool,
    pub(super) metrics: Arc<OperatorMetrics>,
    log: Arc<dyn GuestLog>,
    log_lines_per_call: u32,
    log_line_bytes: usize,
    /// Of the current call.
    lines: u64,
    /// The last line of the current call that was logged as an error: what an SDK says before it traps.
    last_error: Option<String>,
}

impl HostState {
    pub(super) fn new(
        limits: &GuestLimits,
        (operator, subtask): (OperatorId, u32),
        log: Arc<dyn GuestLog>,
        metrics: Arc<OperatorMetrics>,
    ) -> Self {
        Self {
            limiter: TotalsLimiter::new(limits),
            operator,
            subtask,
            import_bytes: limits.import_bytes,
            read_bounds: (usize::try_from(limits.result_bytes).unwrap_or(usize::MAX), limits.effects.value_bytes.max(1) as usize),
            reads: None,
            in_guest: false,
            metrics,
            log,
            log_lines_per_call: limits.log_lines_per_call,
            log_line_bytes: limits.log_line_bytes as usize,
            lines: 0,
            last_error: None,
        }
    }

    /// Sets what answers reads of state.
    pub(super) fn set_reads(&mut self, reads: Option<Rc<dyn StateReads>>) {
        self.reads = reads;
    }

    pub(super) fn reads(&self) -> Option<Rc<dyn StateReads>> {
        self.reads.clone()
    }

    /// Returns the bytes of the values that one read returns, and of one of them, at most.
    pub(super) fn read_bounds(&self) -> (usize, usize) {
        self.read_bounds
    }

    /// Forgets what belongs to the call before.
    pub(super) fn begin_call(&mut self) {
        self.lines = 0;
        self.last_error = None;
    }

    /// Reports what the call has left open.
    pub(super) fn end_call(&mut self) {
        let dropped = self.lines.saturating_sub(u64::from(self.log_lines_per_call));
        if dropped > 0 {
            self.log.dropped(&self.operator, self.subtask, dropped);
        }
    }

    pub(super) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Whether a line has to be looked at at all.
    pub(super) fn wants_line(&self, level: GuestLogLevel) -> bool {
        level == GuestLogLevel::Error || self.lines < u64::from(self.log_lines_per_call)
    }

    /// Makes a line harmless.
    pub(super) fn clean_line(&self, line: &str) -> String {
        text::printable(line, self.log_line_bytes)
    }

    /// Takes a line; `text` is there if it was wanted.
    pub(super) fn log(&mut self, level: GuestLogLevel, text: Option<String>) {
        let passes = self.lines < u64::from(self.log_lines_per_call);
        self.lines += 1;
        let Some(text) = text else { return };
        if passes {
            self.log.line(&self.operator, self.subtask, level, &text);
        }
        if level == GuestLogLevel::Error {
            self.last_error = Some(text);
        }
    }
}

/// Takes the price of host work from a call's fuel.
pub(super) fn charge(store: &mut StoreContextMut<'_, HostState>, price: u64) -> wasmtime::Result<()> {
    let left = store.get_fuel()?;
    store.set_fuel(left.saturating_sub(price))?;
    if left < price { Err(HostTrap::Fuel.into()) } else { Ok(()) }
}
