//! Operators of the simulated jobs, and a decorator that lets any guest fail at will.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_dataflow::guest::{
    Descriptor, Effects, FaultClass, FaultCode, FaultPhase, Guest, GuestFactory, GuestFault, GuestUsage, InputBatch,
    InstanceInfo, KeyedFrame, StateReads,
};
use cofferdam_dataflow::time::{ProcessingTime, Watermark};
use cofferdam_guest::prelude::{Context, Declare, Error, NoConfig, Operator, Record, Value};

/// Adds the numbers of both of its inputs and emits the sum so far of the record's key.
pub struct Merge {
    total: Value<u64>,
}

impl Operator for Merge {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        declare.input("a");
        declare.input("b");
        Self { total: declare.value("total") }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let number: u64 = record.text()?.parse().map_err(|_| Error::permanent("not a number"))?;
        let total = self.total.update(cx, |total| {
            *total += number;
            *total
        })?;
        cx.out().keep_key().send_text(format!("{total}").as_str())
    }
}

/// Counts the records of each key up to three, forgets the key, and begins anew; emits the key, a tab and the count.
pub struct Cycle {
    n: Value<u64>,
}

impl Operator for Cycle {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self { n: declare.value("n") }
    }

    fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let n = self.n.get_or_default(cx)? + 1;
        if n == 3 {
            self.n.delete(cx);
        } else {
            self.n.set(cx, n);
        }
        let row = format!("{}\t{n}", cx.key_text()?);
        cx.out().keep_key().send_text(row.as_str())
    }
}

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

    fn finish(&mut self, watermark: Option<Watermark>, now: ProcessingTime) -> Result<Effects, GuestFault> {
        self.inner.finish(watermark, now)
    }

    fn usage(&self) -> GuestUsage {
        self.inner.usage()
    }
}
