//! Timers through kills, failures and changes of parallelism: each fires exactly once.

use std::sync::Arc;

use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::job::master::JobEnd;
use cofferdam_dataflow::subtask::WatermarkStrategy;
use cofferdam_guest::prelude::{Context, Declare, Error, NoConfig, Operator, Record, Timer, Timers, Value};
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{
    FaultyFactory, Graph, GuestFaults, SimSink, Simulation, SinkKind, SourceRecord, SplitsSource, When, World,
};

use super::{SEEDS, assert_rows, finish};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const RECORDS: usize = 120;
/// The second firing of a timer that sets itself again.
const AGAIN: u64 = 1000;

/// Sets a timer for each record, 45 ms after it, which sets itself once more; every seventh is deleted again. What fires is
/// counted in state and emitted.
struct Alarm {
    timers: Timers,
    fired: Value<u64>,
    /// Of processing time, not of event time.
    by_clock: bool,
}

fn alarm(declare: &mut Declare, by_clock: bool) -> Alarm {
    let timers = if by_clock { declare.processing_timers() } else { declare.event_timers() };
    Alarm { timers, fired: declare.value("fired"), by_clock }
}

impl Alarm {
    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let number: u64 = record.text()?.parse().map_err(|_| Error::permanent("not a number"))?;
        let now = if self.by_clock { cx.processing_time_ms() } else { cx.event_time_ms().unwrap_or_default() };
        self.timers.set_tagged(cx, now + 45, number);
        if is_deleted(number) {
            self.timers.delete_tagged(cx, now + 45, number);
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let is_early = match self.by_clock {
            true => timer.time_ms() > cx.processing_time_ms(),
            false => Some(timer.time_ms()) > cx.watermark_ms(),
        };
        if is_early {
            return Err(Error::permanent("a timer has fired before its time"));
        }
        self.fired.update(cx, |fired| *fired += 1)?;
        if timer.tag() < AGAIN {
            self.timers.set_tagged(cx, timer.time_ms() + 7, timer.tag() + AGAIN);
            return cx.emit_text((cx.key_text()?, "\t", timer.tag()));
        }
        cx.emit_text((cx.key_text()?, " again\t", timer.tag() - AGAIN))
    }
}

fn is_deleted(number: u64) -> bool {
    number % 7 == 3
}

macro_rules! operator {
    ($name:ident, $by_clock:expr) => {
        struct $name(Alarm);
        impl Operator for $name {
            type Config = NoConfig;
            fn declare(declare: &mut Declare) -> Self {
                Self(alarm(declare, $by_clock))
            }
            fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
                self.0.process(record, cx)
            }
            fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
                self.0.on_timer(timer, cx)
            }
        }
    };
}

operator!(EventAlarm, false);
operator!(ClockAlarm, true);

fn graph<O: Operator>(world: &World, faults: &GuestFaults, parallelism: u32) -> Graph {
    let record = |n: usize| {
        let time = Some(10 * i64::try_from(n).unwrap());
        SourceRecord { key: Some(KEYS[n * (n + 1) / 2 % 5].into()), time, value: n.to_string() }
    };
    let source = SplitsSource::new(world, vec![("records".into(), (0..RECORDS).map(record).collect())], 3, 100);
    let operator = FaultyFactory::new(Arc::new(NativeFactory::<O>::new("{}")), faults.clone());
    Graph::every_ms(60)
        .timed_source("records", 1, source, Some(WatermarkStrategy::out_of_orderness(0)))
        .operator("alarm", parallelism, operator, &[("records", 0)])
        .sink("out", 1, SimSink::new(world, "out", SinkKind::Transactional), "alarm")
}

/// All rows there must be.
fn rows() -> Vec<String> {
    let live = (0..RECORDS).filter(|number| !is_deleted(*number as u64));
    let both = |number: usize| {
        let key = KEYS[number * (number + 1) / 2 % 5];
        [format!("{key}\t{number}"), format!("{key} again\t{number}")]
    };
    live.flat_map(both).collect()
}

#[test]
fn event_time_timers_fire_once_through_kills_failures_and_other_parallelisms() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let (world, faults) = (simulation.world.clone(), GuestFaults::default());
        world.gate([("records", 40)]);
        simulation.start(&graph::<EventAlarm>(&world, &faults, 2));
        simulation.run_until(|simulation| simulation.world.reads("records") >= 40 && simulation.completed().len() > 1);
        simulation.kill();
        world.gate([("records", 80)]);
        simulation.start(&graph::<EventAlarm>(&world, &faults, 3));
        faults.add(When::Call(5), 1, FaultClass::Guest);
        simulation.run_until(|simulation| simulation.world.reads("records") >= 80 && simulation.restarts() == 1);
        simulation.stop();
        let end = simulation.run_to_end();
        assert!(matches!(end, Some(JobEnd::Stopped { checkpoint: Some(_), .. })), "{end:?}");
        let before = world.log("out");
        assert!(before.iter().all(|row| !row.ends_with("\t79")), "a stop fires nothing that is not due: {before:?}");
        world.gate([]);
        simulation.start(&graph::<EventAlarm>(&world, &faults, 1));
        finish(&mut simulation);
        assert_rows(&world.log("out"), &rows());
    }
}

#[test]
fn processing_time_timers_fire_once_though_nothing_comes_after_a_kill() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let (world, faults) = (simulation.world.clone(), GuestFaults::default());
        // The source does not end, so that nothing but timers can bring the rest.
        world.gate([("records", RECORDS)]);
        simulation.start(&graph::<ClockAlarm>(&world, &faults, 2));
        simulation.run_until(|simulation| simulation.world.reads("records") >= 60 && !simulation.completed().is_empty());
        simulation.kill();
        simulation.start(&graph::<ClockAlarm>(&world, &faults, 3));
        let all = rows();
        simulation.run_until(|simulation| simulation.world.log("out").len() >= all.len());
        world.gate([]);
        finish(&mut simulation);
        let mut log = world.log("out");
        let mut all = rows();
        log.sort();
        all.sort();
        assert_eq!(log, all, "seed {seed}");
    }
}
