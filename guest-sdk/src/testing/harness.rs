//! The harness itself: a host in miniature.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;

use super::reads::CallReads;
use super::store::{Pending, Store};
use super::{Emitted, Outputs, TestRecord};
use crate::call::{Effects, FrameView, InputView, InstanceInfo, Limits, StateView, TimersView};
use crate::column::{BytesColumn, BytesView, TimeColumn};
use crate::declare::{Descriptor, TimeDomain};
use crate::error::Error;
use crate::host::{Collected, collect};
use crate::log::Level;
use crate::operator::Operator;
use crate::reads::Reads;
use crate::runner::Runner;

/// Drives one subtask of an operator.
///
/// The instance is opened with the first call and replaced after a failed one, as by the host.
pub struct Harness<O> {
    pub(super) descriptor: Descriptor,
    config: Vec<u8>,
    info: InstanceInfo,
    batch_size: usize,
    fresh_instances: bool,
    watermark: Option<i64>,
    pub(super) processing_time: i64,
    instance: Option<Runner<O>>,
    /// Shared with a call that reads it; alone otherwise.
    pub(super) store: Rc<Store>,
    reads: u64,
    collected: Collected,
    operator: PhantomData<O>,
}

/// Batches of timers that may be due one after the other.
const ROUND_MAX: u32 = 1_000_000;

/// What a run comes to: output by port, and state as text by where it is.
type Outcome = (Vec<Outputs>, BTreeMap<String, Vec<String>>);

impl<O: Operator> Default for Harness<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: Operator> Harness<O> {
    /// Returns a harness without state, with the host's default limits and batches of up to 1000 records.
    ///
    /// # Panics
    /// If the operator's declaration breaks a rule.
    #[track_caller]
    pub fn new() -> Self {
        let descriptor = Runner::<O>::descriptor();
        if let Err(error) = descriptor.check() {
            panic!("the host would refuse the operator: {error}");
        }
        let info = InstanceInfo { operator: "test".into(), subtask: 0, parallelism: 1, limits: Limits::default() };
        Self {
            descriptor,
            config: b"{}".to_vec(),
            info,
            batch_size: 1000,
            fresh_instances: false,
            watermark: None,
            processing_time: 0,
            instance: None,
            store: Rc::default(),
            reads: 0,
            collected: Collected::default(),
            operator: PhantomData,
        }
    }

    /// Sets the configuration, a JSON object as text.
    #[must_use]
    pub fn config(mut self, json: &str) -> Self {
        self.config = json.as_bytes().to_vec();
        self
    }

    /// Sets what one call may write and emit.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.info.limits = limits;
        self
    }

    /// Sets how many records go into a call, at most.
    ///
    /// # Panics
    /// If it is 0.
    #[must_use]
    pub fn batch_size(mut self, records: usize) -> Self {
        assert!(records > 0, "a batch has at least one record");
        self.batch_size = records;
        self
    }

    /// Returns what the operator declares.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Advances the watermark that later calls see. Fires no timers: see [`Self::advance_watermark`].
    ///
    /// # Panics
    /// If it goes back.
    #[track_caller]
    pub fn watermark_ms(&mut self, watermark: i64) {
        assert!(self.watermark.is_none_or(|before| before <= watermark), "the watermark cannot go back to {watermark}");
        self.watermark = Some(watermark);
    }

    /// Sets the host's clock that later calls see; 0 at first. Fires no timers: see [`Self::advance_processing_time`].
    pub fn processing_time_ms(&mut self, time: i64) {
        self.processing_time = time;
    }

    /// Advances the watermark, fires the event-time timers that are due by it, and returns what was emitted.
    ///
    /// # Errors
    /// The operator's error. The failed batch of timers has no effects; batches before it keep theirs.
    ///
    /// # Panics
    /// If it goes back, or if timers set one another without end.
    #[track_caller]
    pub fn advance_watermark(&mut self, watermark: i64) -> Result<Outputs, Error> {
        self.watermark_ms(watermark);
        let mut outputs = Outputs::default();
        self.fire(TimeDomain::EventTime, &mut outputs)?;
        Ok(outputs)
    }

    /// Sets the host's clock, fires the processing-time timers that are due by it, and returns what was emitted.
    ///
    /// # Errors
    /// As [`Self::advance_watermark`].
    ///
    /// # Panics
    /// If timers set one another without end.
    #[track_caller]
    pub fn advance_processing_time(&mut self, time: i64) -> Result<Outputs, Error> {
        self.processing_time = time;
        let mut outputs = Outputs::default();
        self.fire(TimeDomain::ProcessingTime, &mut outputs)?;
        Ok(outputs)
    }

    /// Returns the pending timers of a key as (time, tag), in the order in which they fire.
    pub fn timers(&self, domain: TimeDomain, key: impl AsRef<[u8]>) -> Vec<(i64, u64)> {
        let of_key = self.store.timers.iter().filter(|(of, _, owner, _)| *of == domain && owner == key.as_ref());
        of_key.map(|(_, time, _, tag)| (*time, *tag)).collect()
    }

    /// Opens an instance if there is none: what the host does at the start, and with a bad configuration cannot.
    ///
    /// # Errors
    /// The operator's error.
    pub fn open(&mut self) -> Result<(), Error> {
        if self.instance.is_none() {
            let runner = collect(&mut self.collected, || Runner::open(&self.config, &self.info))?;
            self.instance = Some(runner);
        }
        Ok(())
    }

    /// Processes records in batches and returns what was emitted. Timers that a batch sets for a time already passed fire
    /// after it.
    ///
    /// # Errors
    /// The operator's error. The failed batch has no effects; batches before it keep theirs, but their output is dropped.
    ///
    /// # Panics
    /// If the operator is keyed and a record has no key, or if a record names an input that does not exist.
    #[track_caller]
    pub fn process(&mut self, records: impl IntoIterator<Item = TestRecord>) -> Result<Outputs, Error> {
        let records: Vec<_> = records.into_iter().collect();
        for record in &records {
            let port = self.port(&record.port);
            assert!(!self.is_keyed(port) || record.key.is_some(), "the operator is keyed, but a record has no key: {record:?}");
        }
        let wish = usize::try_from(self.descriptor.max_batch).ok().filter(|wish| *wish > 0);
        let size = self.batch_size.min(wish.unwrap_or(usize::MAX));
        let mut outputs = Outputs::default();
        // A batch holds records of one port only.
        for run in records.chunk_by(|one, next| one.port == next.port) {
            for batch in run.chunks(size) {
                self.batch(batch, &mut outputs)?;
                self.fire(TimeDomain::EventTime, &mut outputs)?;
                self.fire(TimeDomain::ProcessingTime, &mut outputs)?;
            }
        }
        Ok(outputs)
    }

    /// Tells the operator that all inputs have ended, and returns what it emitted. First all event-time timers fire;
    /// processing-time timers do not.
    ///
    /// # Errors
    /// The operator's error.
    pub fn finish(&mut self) -> Result<Outputs, Error> {
        let mut outputs = Outputs::default();
        if self.descriptor.timers.contains(&TimeDomain::EventTime) {
            self.watermark = Some(i64::MAX);
            self.fire(TimeDomain::EventTime, &mut outputs)?;
        }
        let (watermark, now) = (self.watermark, self.processing_time);
        let effects = self.call(|runner| runner.finish(watermark, now))?;
        self.apply(effects, BytesView::default(), &mut outputs);
        Ok(outputs)
    }

    /// Drops the instance, as the host does after a fault or for an upgrade. State stays.
    pub fn restart(&mut self) {
        self.instance = None;
    }

    /// Returns how often the operator has read state that was not handed in with a call.
    pub fn state_reads(&self) -> u64 {
        self.reads
    }

    /// Returns what was logged.
    pub fn logs(&self) -> &[(Level, String)] {
        &self.collected.lines
    }

    /// Returns a counter's sum, 0 if nothing was ever added.
    pub fn counter(&self, name: &str) -> u64 {
        self.collected.counters.get(name).copied().unwrap_or(0)
    }

    /// Returns what a gauge was set to last.
    pub fn gauge(&self, name: &str) -> Option<f64> {
        self.collected.gauges.get(name).copied()
    }

    /// Checks that results depend on the records alone: processes them in batches of different sizes, and with a new
    /// instance for each batch, and compares output, port by port, and state. Begins each time with this harness's
    /// configuration and state.
    ///
    /// # Panics
    /// If the results differ, or if the operator fails.
    #[track_caller]
    pub fn assert_batch_independent(&self, records: impl IntoIterator<Item = TestRecord>) {
        let records: Vec<_> = records.into_iter().collect();
        let whole = self.outcome(&records, records.len().max(1), false);
        for size in [1, 2, 3, 7, 64] {
            for fresh in [false, true] {
                let other = self.outcome(&records, size, fresh);
                let instances = if fresh { "a new instance for each" } else { "one instance" };
                assert_eq!(whole, other, "all records in one batch (left) or in batches of {size} with {instances} (right)");
            }
        }
    }

    /// Runs the records from here.
    #[track_caller]
    fn outcome(&self, records: &[TestRecord], batch_size: usize, fresh: bool) -> Outcome {
        let mut harness = Self::new().limits(self.info.limits).batch_size(batch_size);
        harness.config.clone_from(&self.config);
        harness.store.clone_from(&self.store);
        (harness.watermark, harness.processing_time) = (self.watermark, self.processing_time);
        harness.fresh_instances = fresh;
        let outputs = match harness.process(records.iter().cloned()) {
            Ok(outputs) => outputs,
            Err(error) => panic!("the operator fails on these records: {error}"),
        };
        let by_port = self.descriptor.outputs.iter().map(|port| outputs.of_port(port)).collect();
        (by_port, harness.store.describe(&self.descriptor.slots, self.processing_time))
    }

    /// Runs one call and drops the instance if it fails or panics, as the host does.
    fn call(&mut self, act: impl FnOnce(&mut Runner<O>) -> Result<Effects, Error>) -> Result<Effects, Error> {
        self.open()?;
        let mut runner = self.instance.take().expect("just opened");
        let effects = collect(&mut self.collected, || act(&mut runner))?;
        self.instance = Some(runner);
        Ok(effects)
    }

    /// Fires what is due in a domain, in batches, until nothing is.
    #[track_caller]
    fn fire(&mut self, domain: TimeDomain, outputs: &mut Outputs) -> Result<(), Error> {
        let until = match domain {
            TimeDomain::EventTime => self.watermark,
            TimeDomain::ProcessingTime => Some(self.processing_time),
        };
        let wish = usize::try_from(self.descriptor.max_batch).ok().filter(|wish| *wish > 0);
        let size = self.batch_size.min(wish.unwrap_or(usize::MAX));
        for _ in 0..ROUND_MAX {
            // A batch has one timer of a key, and ends where there would be another.
            let mut due: Vec<Pending> = Vec::new();
            for timer in self.store.timers.iter().filter(|timer| timer.0 == domain && Some(timer.1) <= until) {
                if due.len() == size || due.iter().any(|other| other.2 == timer.2) {
                    break;
                }
                due.push(timer.clone());
            }
            if due.is_empty() {
                return Ok(());
            }
            self.fire_batch(domain, &due, outputs)?;
        }
        panic!("timers set one another without end: {ROUND_MAX} batches of them were due one after the other");
    }

    fn fire_batch(&mut self, domain: TimeDomain, due: &[Pending], outputs: &mut Outputs) -> Result<(), Error> {
        if self.fresh_instances {
            self.restart();
        }
        let mut keys = BytesColumn::default();
        due.iter().for_each(|timer| keys.push(&timer.2));
        let rows: Vec<u32> = (0..).take(due.len()).collect();
        let times: Vec<i64> = due.iter().map(|timer| timer.1).collect();
        let tags: Vec<u64> = due.iter().map(|timer| timer.3).collect();
        let timers = TimersView {
            watermark: self.watermark,
            processing_time: self.processing_time,
            domain,
            rows: &rows,
            times: &times,
            tags: &tags,
        };
        self.framed(&keys, outputs, due, |runner, frame, reads| runner.on_timers(&timers, frame, reads))
    }

    fn batch(&mut self, records: &[TestRecord], outputs: &mut Outputs) -> Result<(), Error> {
        if self.fresh_instances {
            self.restart();
        }
        let port = self.port(&records[0].port);
        let mut keys = BytesColumn::default();
        let (mut rows, mut row_of) = (Vec::new(), BTreeMap::new());
        let (mut timestamps, mut values) = (TimeColumn::default(), BytesColumn::default());
        for (index, record) in records.iter().enumerate() {
            if self.is_keyed(port) {
                let key = record.key.as_deref().expect("checked by `process`");
                rows.push(*row_of.entry(key).or_insert_with(|| {
                    keys.push(key);
                    u32::try_from(keys.len() - 1).expect("a test has few keys")
                }));
            }
            timestamps.push(index, record.time);
            values.push(&record.value);
        }
        let (watermark, processing_time) = (self.watermark, self.processing_time);
        self.framed(&keys, outputs, &[], |runner, frame, reads| {
            let input =
                InputView { port, watermark, processing_time, rows: &rows, timestamps: timestamps.view(), values: values.view() };
            runner.process_batch(&input, frame, reads)
        })
    }

    /// Makes one call for these keys, which takes `fired` of the pending timers.
    fn framed(
        &mut self,
        keys: &BytesColumn,
        outputs: &mut Outputs,
        fired: &[Pending],
        act: impl FnOnce(&mut Runner<O>, &FrameView<'_>, &Reads<'_>) -> Result<Effects, Error>,
    ) -> Result<(), Error> {
        let (now, store, slots) = (self.processing_time, Rc::clone(&self.store), self.descriptor.slots.clone());
        let (count, renewals) = (Cell::new(0), RefCell::default());
        let reads = CallReads { store: &store, slots: &slots, keys: keys.view(), now, count, renewals };
        let columns = reads.prefetch();
        let states: Vec<_> = columns
            .iter()
            .map(|(slot, column)| StateView { slot: *slot, present: &column.present, values: column.values.view() })
            .collect();
        let frame = FrameView { keys: keys.view(), states: &states };
        let outcome = self.call(|runner| act(runner, &frame, &reads));
        self.reads += reads.count.get();
        let renewals = reads.renewals.into_inner();
        drop(store);
        let effects = outcome?;
        for timer in fired {
            self.stored().timers.remove(timer);
        }
        self.stored().renew(&slots, renewals, now);
        self.apply(effects, keys.view(), outputs);
        Ok(())
    }

    /// State, to change.
    pub(super) fn stored(&mut self) -> &mut Store {
        Rc::make_mut(&mut self.store)
    }

    /// Whether records of an input must have a key.
    fn is_keyed(&self, port: u32) -> bool {
        self.descriptor.keyed && !self.descriptor.inputs[port as usize].broadcast
    }

    fn apply(&mut self, effects: Effects, keys: BytesView<'_>, outputs: &mut Outputs) {
        let (slots, now) = (self.descriptor.slots.clone(), self.processing_time);
        self.stored().apply(&slots, &effects, keys, now);
        for output in effects.outputs {
            for (index, value) in output.values.view().iter().enumerate() {
                outputs.0.push(Emitted {
                    port: self.descriptor.outputs[output.port as usize].clone(),
                    key: (!output.keys.is_empty()).then(|| output.keys.view().get(index).to_vec()),
                    time: output.timestamps.view().get(index),
                    value: value.to_vec(),
                });
            }
        }
    }

    /// The index of an input; the first if the name is empty.
    #[track_caller]
    fn port(&self, name: &str) -> u32 {
        let inputs = &self.descriptor.inputs;
        match inputs.iter().position(|input| input.name == name || name.is_empty()) {
            Some(index) => u32::try_from(index).expect("an operator has few inputs"),
            None => panic!("the operator has no input {name:?}, only {inputs:?}"),
        }
    }
}
