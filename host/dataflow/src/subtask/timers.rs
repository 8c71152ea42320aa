//! Firing timers: one batch of those that are due, as one call.

use std::rc::Rc;

use super::failure::{FaultPosition, TaskFailure};
use super::operator::{OperatorSubtask, shortest_faulting};
use super::ports::Now;
use super::time_report::{OperatorTime, PendingTimers};
use crate::guest::{Effects, FaultCode, FaultPhase, Guest, GuestFault, Output, StateReads, TimeDomain, TimerBatch};
use crate::key_group::key_hash;
use crate::state::{Due, DueTimers, SharedState};
use crate::time::Watermark;

/// Timers in one call, at most.
pub(super) const TIMERS: usize = 1000;
/// Bytes of their keys, at most, but for a single one.
const KEY_BYTES: usize = 256 << 10;
/// How many more event-time timers may fire while event time stands still than can be pending at once, twice over.
const ROUND_SLACK: u64 = 100_000;

/// What an operator knows of its timers.
pub(super) struct Firing {
    has_event_time: bool,
    has_processing_time: bool,
    /// Reused.
    due: DueTimers,
    /// The latest time of an event-time timer that has fired in this round.
    latest: Option<i64>,
    /// How many have fired since it was last later.
    since: u64,
}

impl Firing {
    pub(super) fn new(domains: &[TimeDomain]) -> Self {
        Self {
            has_event_time: domains.contains(&TimeDomain::EventTime),
            has_processing_time: domains.contains(&TimeDomain::ProcessingTime),
            due: DueTimers::default(),
            latest: None,
            since: 0,
        }
    }

    fn has(&self, domain: TimeDomain) -> bool {
        match domain {
            TimeDomain::EventTime => self.has_event_time,
            TimeDomain::ProcessingTime => self.has_processing_time,
        }
    }

    /// Counts event-time timers of a round. Returns whether there can be no more of them but those that timers set
    /// without end: for a time that has passed, or at the end of input, when all of time has.
    fn is_endless(&mut self, times: &[i64], watermark: Option<Watermark>, limit: u64) -> bool {
        let latest = times.last().copied();
        if latest > self.latest && watermark != Some(Watermark::MAX) {
            self.since = 0;
        }
        self.latest = self.latest.max(latest);
        self.since += times.len() as u64;
        self.since > 2 * limit + ROUND_SLACK
    }
}

impl OperatorSubtask {
    /// Returns when the next timer of a domain is due. Once the operator has finished, none is.
    pub(super) fn next_timer(&self, domain: TimeDomain) -> Option<i64> {
        if self.finished || !self.firing.has(domain) {
            return None;
        }
        self.state.as_ref()?.borrow_mut().next_timer(domain)
    }

    /// Returns where it is in event time, and what its timers wait for.
    pub(super) fn time(&self) -> OperatorTime {
        let pending = |domain| {
            let mut state = self.state.as_ref()?.borrow_mut();
            let (pending, next) = (state.pending_timers_of(domain), state.peek_timer(domain));
            self.firing.has(domain).then_some(PendingTimers { domain, pending, next })
        };
        let timers = TimeDomain::ALL.into_iter().filter_map(pending).collect();
        OperatorTime { id: self.id.clone(), watermark: self.watermark, finished: self.finished, timers }
    }

    /// Returns up to which time timers of a domain are due.
    fn until(&self, domain: TimeDomain, now: Now) -> Option<i64> {
        match domain {
            TimeDomain::EventTime => self.watermark.map(|watermark| watermark.0.0),
            TimeDomain::ProcessingTime => Some(now.processing_time.0),
        }
    }

    /// Whether timers of a domain are due.
    pub(super) fn is_due(&self, domain: TimeDomain, now: Now) -> bool {
        self.next_timer(domain).is_some_and(|next| Some(next) <= self.until(domain, now))
    }

    /// All event-time timers that were due have fired.
    pub(super) fn end_round(&mut self) {
        (self.firing.latest, self.firing.since) = (None, 0);
    }

    /// Fires one batch of the timers that are due, if any is, and passes the call's outputs to `emit`.
    pub(super) fn fire(
        &mut self,
        domain: TimeDomain,
        now: Now,
        emit: &mut dyn FnMut(Output) -> Result<(), TaskFailure>,
    ) -> Result<(), TaskFailure> {
        let (Some(state), Some(until)) = (self.state.clone(), self.until(domain, now)) else { return Ok(()) };
        let mut due = std::mem::take(&mut self.firing.due);
        let most = (self.max_records.min(TIMERS), KEY_BYTES);
        let found = state.borrow_mut().take_due(domain, until, most, &mut due);
        if found == Due::Timers {
            let effects = self.call_timers(domain, &due, now)?;
            for output in effects.outputs {
                self.records_out += output.values.len() as u64;
                emit(output)?;
            }
        }
        self.firing.due = due;
        Ok(())
    }

    /// One call: frame, guest, validation; then the timers go and the effects apply.
    fn call_timers(&mut self, domain: TimeDomain, due: &DueTimers, now: Now) -> Result<Effects, TaskFailure> {
        self.fill_timer_frame(due, due.len(), now)?;
        self.check_store()?;
        let limit = u64::from(self.info.limits.timers);
        let result = match domain {
            TimeDomain::EventTime if self.firing.is_endless(&due.times, self.watermark, limit) => {
                let text = "timers set one another without end, for times that have passed";
                Err(GuestFault::new(FaultCode::GuestTimers, FaultPhase::Timer, text))
            }
            _ => {
                let call = TimerCall { domain, due, count: due.len(), watermark: self.watermark, now };
                let result = call.run(&mut *self.guest, self.state.as_deref(), &self.reads);
                // What the guest made of what was not read is not its fault.
                self.check_store()?;
                result.and_then(|effects| self.check_effects(&effects, FaultPhase::Timer, false, due.len()).map(|()| effects))
            }
        };
        match result {
            Ok(effects) => {
                if let Some(state) = &self.state {
                    let mut state = state.borrow_mut();
                    state.remove_fired(domain, due);
                    state.apply(&effects);
                }
                self.check_store()?;
                Ok(effects)
            }
            Err(fault) => {
                let found =
                    shortest_faulting(&fault, 0..due.len(), |count| self.timers_fault(fault.code, (domain, due), count, now));
                let at = found.unwrap_or(0);
                let hash =
                    key_hash(due.keys.get(at)) ^ due.times[at].cast_unsigned().rotate_left(1) ^ due.tags[at].rotate_left(33);
                let count = if found.is_some() { 1 } else { due.len() };
                let position = FaultPosition::timer(domain, (due.keys.get(at), due.times[at], due.tags[at]), count, hash);
                Err(TaskFailure::fault(self.id.clone(), fault, position))
            }
        }
    }

    fn fill_timer_frame(&mut self, due: &DueTimers, count: usize, now: Now) -> Result<(), TaskFailure> {
        let Some(state) = &self.state else { return Ok(()) };
        let filled = state.borrow_mut().fill_frame(due.keys.slice(0, count), &[], now.processing_time);
        filled.map_err(|error| TaskFailure::internal(self.id.clone(), error.to_string()))
    }

    /// Whether a call with the first of these timers faults in the same way on a fresh instance. Only the frame is changed.
    fn timers_fault(&mut self, code: FaultCode, (domain, due): (TimeDomain, &DueTimers), count: usize, now: Now) -> bool {
        let Ok(mut guest) = self.factory.open_probe(&self.info) else { return false };
        if self.fill_timer_frame(due, count, now).is_err() {
            return false;
        }
        let call = TimerCall { domain, due, count, watermark: self.watermark, now };
        let result = call.run(&mut *guest, self.state.as_deref(), &self.reads);
        let result = result.and_then(|effects| self.check_effects(&effects, FaultPhase::Timer, false, count));
        result.is_err_and(|fault| fault.code == code)
    }
}

/// One call's input: the first `count` of the timers that are due.
struct TimerCall<'a> {
    domain: TimeDomain,
    due: &'a DueTimers,
    count: usize,
    watermark: Option<Watermark>,
    now: Now,
}

impl TimerCall<'_> {
    /// Calls the guest with the frame that the state was filled with last.
    fn run(&self, guest: &mut dyn Guest, state: Option<&SharedState>, reads: &Rc<dyn StateReads>) -> Result<Effects, GuestFault> {
        let Some(state) = state else {
            return Err(GuestFault::new(FaultCode::HostInternal, FaultPhase::Timer, "timers without state"));
        };
        // Borrowed shared: the guest may read meanwhile.
        let state = state.borrow();
        let timers = TimerBatch {
            watermark: self.watermark,
            processing_time: self.now.processing_time,
            domain: self.domain,
            rows: state.frame().rows(),
            times: &self.due.times[..self.count],
            tags: &self.due.tags[..self.count],
        };
        state.frame().with_view(|frame| guest.on_timers(&timers, frame, reads))
    }
}
