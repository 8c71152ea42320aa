//! Random streams through windows of all kinds, against the model: out of order and late, with gaps, in batches of any size, with
//! new instances at any time.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, TestCaseError, any, prop_assert_eq, prop_oneof, proptest};

use super::model::Model;
use super::probe::{Kind, Probe, Settings, rows_of};
use crate::declare::TimeDomain;
use crate::testing::{Harness, Outputs, TestRecord, record};

#[derive(Clone, Debug)]
enum Step {
    /// Key, time from the latest watermark, value.
    Record(u8, Time, u32),
    Watermark(i64),
    Clock(i64),
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Time {
    /// From the watermark, or from 0 before the first.
    Near(i64),
    Absolute(i64),
}

const KEYS: u8 = 2;

fn kinds() -> impl Strategy<Value = Kind> {
    let aligned = (1..25u64, 1..25u64, -30..30i64);
    prop_oneof![
        3 => (1..25u64, -30..30i64).prop_map(|(size, offset)| Kind::Aligned { size, slide: size, offset }),
        4 => aligned.prop_map(|(size, slide, offset)| Kind::Aligned { size: size.max(slide), slide: size.min(slide), offset }),
        4 => (1..15u64).prop_map(|gap| Kind::Session { gap }),
        1 => any::<bool>().prop_map(|purging| Kind::Global { purging }),
    ]
}

/// Settings that make sense.
fn settings() -> impl Strategy<Value = Settings> {
    let triggers = (option::of(1..5u64), option::of((any::<bool>(), 1..12u64)), option::of(1..4u64));
    let lateness = prop_oneof![Just(0), 1..30u64];
    let processing = prop_oneof![4 => Just(false), 1 => Just(true)];
    (kinds(), processing, lateness, triggers, any::<bool>()).prop_map(|(kind, processing, lateness, triggers, keeps_records)| {
        let (mut early_records, mut early_time, mut late_records) = triggers;
        let is_global = matches!(kind, Kind::Global { .. });
        let slides = matches!(kind, Kind::Aligned { size, slide, .. } if size != slide);
        let processing = processing && !is_global;
        let lateness = if processing || is_global { 0 } else { lateness };
        if lateness == 0 || slides {
            late_records = None;
        }
        if kind == (Kind::Global { purging: true }) {
            early_records = early_records.or(Some(2));
        }
        if processing {
            early_time = early_time.map(|(_, interval)| (true, interval));
        }
        Settings { kind, processing, lateness, early_records, early_time, late_records, keeps_records }
    })
}

fn times() -> impl Strategy<Value = Time> {
    prop_oneof![
        12 => (-15..25i64).prop_map(Time::Near),
        4 => (-50..60i64).prop_map(Time::Near),
        1 => (i64::MIN..i64::MIN + 40).prop_map(Time::Absolute),
        1 => (i64::MAX - 40..i64::MAX).prop_map(Time::Absolute),
        1 => Just(Time::Absolute(i64::MAX)),
        1 => any::<i64>().prop_map(Time::Absolute),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..KEYS, times(), 0..100u32).prop_map(|(key, time, value)| Step::Record(key, time, value)),
        3 => prop_oneof![4 => 1..12i64, 1 => 20..200i64].prop_map(Step::Watermark),
        2 => (1..12i64).prop_map(Step::Clock),
        1 => Just(Step::Restart),
    ];
    vec(step, 0..70)
}

/// The operator, and what it should do.
struct Pair<const AT_HAND: usize> {
    harness: Harness<Probe<AT_HAND>>,
    models: Vec<Model>,
    watermark: Option<i64>,
    clock: i64,
}

impl<const AT_HAND: usize> Pair<AT_HAND> {
    fn new(settings: &Settings, batch: usize) -> Self {
        let models = (0..KEYS).map(|key| Model::new(key, settings)).collect();
        Self { harness: settings.harness().batch_size(batch), models, watermark: None, clock: 0 }
    }

    fn step(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        let mut records = Vec::new();
        for step in steps {
            if let Step::Record(key, time, value) = step {
                let time = match *time {
                    Time::Near(offset) => self.watermark.unwrap_or(0).saturating_add(offset),
                    Time::Absolute(time) => time,
                };
                records.push(made(*key, time, *value));
                self.models[*key as usize].record(Some(time), *value);
            }
        }
        let outputs = match steps[0] {
            Step::Record(..) => self.harness.process(records).unwrap(),
            Step::Watermark(by) => {
                let to = self.watermark.unwrap_or(-40) + by;
                self.watermark = Some(to);
                self.models.iter_mut().for_each(|model| model.advance_watermark(to));
                self.harness.advance_watermark(to).unwrap()
            }
            Step::Clock(by) => {
                self.clock += by;
                self.models.iter_mut().for_each(|model| model.advance_clock(self.clock));
                self.harness.advance_processing_time(self.clock).unwrap()
            }
            Step::Restart => {
                self.harness.restart();
                Outputs::default()
            }
        };
        self.compare(&outputs)
    }

    fn compare(&mut self, outputs: &Outputs) -> Result<(), TestCaseError> {
        for (key, model) in (0..).zip(&mut self.models) {
            let mut expected = std::mem::take(&mut model.told);
            expected.append(&mut model.late);
            prop_assert_eq!(rows_of(outputs, key), expected);
            // State and timers are there as long as there is a window, and no longer.
            let slots = ["all", "kept", "kept-records"].map(|slot| self.harness.keys(slot).contains(&[key].as_slice()));
            let timers = |domain| !self.harness.timers(domain, [key]).is_empty();
            prop_assert_eq!(slots.contains(&true), !model.is_empty());
            prop_assert_eq!(timers(TimeDomain::EventTime) || timers(TimeDomain::ProcessingTime), !model.is_empty());
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), TestCaseError> {
        let outputs = self.harness.finish().unwrap();
        self.models.iter_mut().for_each(Model::finish);
        self.compare(&outputs)?;
        self.harness.assert_nothing_left();
        Ok(())
    }
}

fn made(key: u8, time: i64, value: u32) -> TestRecord {
    record(value.to_string()).key([key]).time_ms(time)
}

fn run<const AT_HAND: usize>(settings: &Settings, steps: &[Step], batch: usize) -> Result<(), TestCaseError> {
    let mut pair = Pair::<AT_HAND>::new(settings, batch);
    for steps in steps.chunk_by(|one, next| matches!((one, next), (Step::Record(..), Step::Record(..)))) {
        pair.step(steps)?;
    }
    pair.finish()
}

proptest! {
    #[test]
    fn windows_are_those_of_the_model(settings in settings(), steps in steps(), batch in prop_oneof![Just(1), Just(2), Just(1000)]) {
        run::<32>(&settings, &steps, batch)?;
    }

    #[test]
    fn where_panes_are_stored_does_not_show(settings in settings(), steps in steps(), batch in prop_oneof![Just(1), Just(1000)]) {
        run::<0>(&settings, &steps, batch)?;
        run::<2>(&settings, &steps, batch)?;
    }

    #[test]
    fn results_do_not_depend_on_batches(
        settings in settings(),
        before in vec((0..KEYS, -50..50i64, 0..100u32), 0..20),
        watermark in -40..40i64,
        records in vec((0..KEYS, -50..50i64, 0..100u32), 0..40),
    ) {
        let made = |records: Vec<(u8, i64, u32)>| records.into_iter().map(|(key, time, value)| made(key, time, value));
        let mut harness = settings.harness::<3>();
        harness.process(made(before)).unwrap();
        harness.advance_watermark(watermark).unwrap();
        harness.assert_batch_independent(made(records));
    }
}
