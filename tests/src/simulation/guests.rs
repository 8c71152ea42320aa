//! Decorators of guests: one lets any guest fail at will, another notes who met which key.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_dataflow::guest::{
    Descriptor, Effects, FaultClass, FaultCode, FaultPhase, Guest, GuestFactory, GuestFault, GuestUsage, InputBatch,
    InstanceInfo, KeyedFrame, StateReads, TimerBatch,
};
use cofferdam_dataflow::time::{ProcessingTime, Watermark};

/// When a guest fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// At the n-th call from now on.
    Call(u32),
    /// Whenever it meets a record with this value.
    Record(String),
    /// When it is opened.
    Open,
}

/// A fault to come.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GuestRule {
    when: When,
    times: u32,
    class: FaultClass,
}

/// The faults to come of all instances of an operator.
#[derive(Clone, Debug, Default)]
pub struct GuestFaults(Arc<Mutex<Vec<GuestRule>>>);

impl GuestFaults {
    /// Adds a fault that happens so many times.
    pub fn add(&self, when: When, times: u32, class: FaultClass) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(GuestRule { when, times, class });
    }

    fn fire(&self, phase: FaultPhase, hit: impl Fn(&mut When) -> bool) -> Result<(), GuestFault> {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for rule in rules.iter_mut().filter(|rule| rule.times > 0) {
            if hit(&mut rule.when) {
                rule.times -= 1;
                return Err(GuestFault { class: rule.class, ..GuestFault::new(FaultCode::GuestTrap, phase, "injected") });
            }
        }
        Ok(())
    }
}

/// Lets the guests of a factory fail.
pub struct FaultyFactory {
    inner: Arc<dyn GuestFactory>,
    faults: GuestFaults,
}

impl FaultyFactory {
    /// Wraps a factory.
    pub fn new(inner: Arc<dyn GuestFactory>, faults: GuestFaults) -> Self {
        Self { inner, faults }
    }
}

impl GuestFactory for FaultyFactory {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    fn open(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        self.faults.fire(FaultPhase::Open, |when| *when == When::Open)?;
        Ok(Box::new(FaultyGuest { inner: self.inner.open(info)?, faults: self.faults.clone() }))
    }

    fn open_probe(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        self.inner.open(info)
    }
}

struct FaultyGuest {
    inner: Box<dyn Guest>,
    faults: GuestFaults,
}

impl Guest for FaultyGuest {
    fn process_batch(
        &mut self,
        batch: &InputBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        self.faults.fire(FaultPhase::Data, |when| match when {
            When::Call(0) => true,
            When::Call(n) => {
                *n -= 1;
                false
            }
            When::Record(value) => batch.values.iter().any(|record| record == value.as_bytes()),
            When::Open => false,
        })?;
        self.inner.process_batch(batch, frame, reads)
    }

    fn on_timers(
        &mut self,
        timers: &TimerBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        self.faults.fire(FaultPhase::Timer, |when| match when {
            When::Call(0) => true,
            When::Call(n) => {
                *n -= 1;
                false
            }
            When::Record(_) | When::Open => false,
        })?;
        self.inner.on_timers(timers, frame, reads)
    }

    fn finish(&mut self, watermark: Option<Watermark>, now: ProcessingTime) -> Result<Effects, GuestFault> {
        self.inner.finish(watermark, now)
    }

    fn usage(&self) -> GuestUsage {
        self.inner.usage()
    }
}

/// Which subtasks have met which key.
#[derive(Clone, Debug, Default)]
pub struct Owners(Arc<Mutex<BTreeMap<String, BTreeSet<u32>>>>);

impl Owners {
    /// Returns what was noted, and begins anew.
    pub fn take(&self) -> BTreeMap<String, BTreeSet<u32>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Notes which of the guests of a factory meets which key.
pub struct WatchedFactory {
    inner: Arc<dyn GuestFactory>,
    owners: Owners,
}

impl WatchedFactory {
    /// Wraps a factory.
    pub fn new(inner: Arc<dyn GuestFactory>, owners: Owners) -> Self {
        Self { inner, owners }
    }
}

impl GuestFactory for WatchedFactory {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    fn open(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        Ok(Box::new(WatchedGuest { inner: self.inner.open(info)?, owners: self.owners.clone(), subtask: info.subtask }))
    }
}

struct WatchedGuest {
    inner: Box<dyn Guest>,
    owners: Owners,
    subtask: u32,
}

impl WatchedGuest {
    fn note_keys(&self, frame: &KeyedFrame<'_>) {
        let mut owners = self.owners.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in frame.keys.iter() {
            owners.entry(String::from_utf8_lossy(key).into_owned()).or_default().insert(self.subtask);
        }
    }
}

impl Guest for WatchedGuest {
    fn process_batch(
        &mut self,
        batch: &InputBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        self.note_keys(frame);
        self.inner.process_batch(batch, frame, reads)
    }

    fn on_timers(
        &mut self,
        timers: &TimerBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        self.note_keys(frame);
        self.inner.on_timers(timers, frame, reads)
    }

    fn finish(&mut self, watermark: Option<Watermark>, now: ProcessingTime) -> Result<Effects, GuestFault> {
        self.inner.finish(watermark, now)
    }

    fn usage(&self) -> GuestUsage {
        self.inner.usage()
    }
}
