//! How long it takes until records flow: after a start with cached code, and after a fault.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{
    ConnectorContext, ConnectorError, Prepared, Sink, SinkCommitter, SinkFactory, SinkGuarantee,
};
use cofferdam_dataflow::guest::{
    Descriptor, Effects, FaultCode, FaultPhase, Guest, GuestFactory, GuestFault, GuestUsage, InputBatch, InstanceInfo,
    KeyedFrame, StateReads, TimerBatch,
};
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::time::{ProcessingTime, Watermark};

use crate::measure;
use crate::operators::{How, Operators};
use crate::workload::{Setting, generator_of, job};

const RUNS: usize = 11;

pub(crate) fn print() -> Result<()> {
    println!("\nlatency of the keyed count, 100,000 keys, one task; milliseconds");
    println!("what | least | median | most");
    let starts = (0..RUNS).map(|_| start()).collect::<Result<Vec<_>>>()?;
    row("start (engine, cached component, storage) to first record at the sink", starts);
    let operators = Operators::load()?;
    let faults = (0..RUNS).map(|_| fault(&operators)).collect::<Result<Vec<_>>>()?;
    row("fault to first new record at the sink, restored from a checkpoint", faults);
    Ok(())
}

fn row(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    println!("{what} | {:.1} | {:.1} | {:.1}", ms(&times[0]), ms(&times[times.len() / 2]), ms(&times[times.len() - 1]));
}

/// From nothing but the cache of compiled code to the first record at the sink.
fn start() -> Result<Duration> {
    let begin = Instant::now();
    let operators = Operators::load()?;
    let sink = Arc::new(WatchingSink::default());
    sink.watch();
    let source = generator_of(200_000, 100_000)?;
    let setting = Setting { how: How::Wasm, interval_ms: Some(1000), parallelism: 1 };
    let definition = job(setting, source, vec![("count", operators.keyed_count(How::Wasm, true))], sink.clone())?;
    measure::run_once(definition)?;
    Ok(sink.seen().context("no record arrived")? - begin)
}

/// From a fault, after a checkpoint, to the first record at the sink.
fn fault(operators: &Operators) -> Result<Duration> {
    let sink = Arc::new(WatchingSink::default());
    let inner = operators.keyed_count(How::Wasm, true);
    let faulty = Arc::new(FaultOnce { inner, sink: sink.clone(), calls: Arc::default(), at: Arc::default() });
    let source = generator_of(4_000_000, 100_000)?;
    let setting = Setting { how: How::Wasm, interval_ms: Some(100), parallelism: 1 };
    let definition = job(setting, source, vec![("count", faulty.clone() as Arc<dyn GuestFactory>)], sink.clone())?;
    measure::run_once(definition)?;
    let faulted = faulty.at.lock().unwrap_or_else(PoisonError::into_inner).context("it did not fault")?;
    Ok(sink.seen().context("no record arrived")? - faulted)
}

/// Drops records and notes when the first one came after it was told to watch.
#[derive(Default)]
struct WatchingSink {
    watches: Arc<AtomicBool>,
    first: Arc<Mutex<Option<Instant>>>,
}

impl WatchingSink {
    fn watch(&self) {
        self.watches.store(true, Ordering::SeqCst);
    }

    fn seen(&self) -> Option<Instant> {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SinkFactory for WatchingSink {
    fn guarantee(&self) -> SinkGuarantee {
        SinkGuarantee::None
    }

    fn open(&self, _: &ConnectorContext) -> Result<Box<dyn Sink>, ConnectorError> {
        Ok(Box::new(Self { watches: Arc::clone(&self.watches), first: Arc::clone(&self.first) }))
    }

    fn committer(&self) -> Result<Option<Box<dyn SinkCommitter>>, ConnectorError> {
        Ok(None)
    }
}

impl Sink for WatchingSink {
    fn write(&mut self, _: &Batch) -> Result<(), ConnectorError> {
        if self.watches.swap(false, Ordering::SeqCst) {
            *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Option<Prepared>, ConnectorError> {
        Ok(None)
    }
}

/// Faults once, in its 2,500th call.
struct FaultOnce {
    inner: Arc<dyn GuestFactory>,
    sink: Arc<WatchingSink>,
    calls: Arc<AtomicU64>,
    at: Arc<Mutex<Option<Instant>>>,
}

impl GuestFactory for FaultOnce {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    fn open(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        let (sink, calls, at) = (Arc::clone(&self.sink), Arc::clone(&self.calls), Arc::clone(&self.at));
        Ok(Box::new(FaultyGuest { inner: self.inner.open(info)?, sink, calls, at }))
    }
}

struct FaultyGuest {
    inner: Box<dyn Guest>,
    sink: Arc<WatchingSink>,
    calls: Arc<AtomicU64>,
    at: Arc<Mutex<Option<Instant>>>,
}

impl Guest for FaultyGuest {
    fn process_batch(
        &mut self,
        batch: &InputBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        if self.calls.fetch_add(1, Ordering::SeqCst) == 2500 {
            *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            self.sink.watch();
            return Err(GuestFault::new(FaultCode::GuestTrap, FaultPhase::Data, "injected"));
        }
        self.inner.process_batch(batch, frame, reads)
    }

    fn on_timers(
        &mut self,
        timers: &TimerBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        self.inner.on_timers(timers, frame, reads)
    }

    fn finish(&mut self, watermark: Option<Watermark>, now: ProcessingTime) -> Result<Effects, GuestFault> {
        self.inner.finish(watermark, now)
    }

    fn usage(&self) -> GuestUsage {
        self.inner.usage()
    }
}
