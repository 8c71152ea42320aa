//! Joins and patterns through kills, failures and changes of parallelism: all that there is to tell of is told of once.

use std::sync::Arc;

use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::job::master::JobEnd;
use cofferdam_dataflow::subtask::WatermarkStrategy;
use cofferdam_guest::TimeDomain;
use cofferdam_guest::call::InstanceInfo;
use cofferdam_guest::patterns::{
    Dedup, Found, IntervalJoin, Joined, Seen, Sequence, Silence, Sorter, Span, Steps, Timed, WindowJoin,
};
use cofferdam_guest::prelude::{Context, Declare, Error, InputPort, NoConfig, Operator, Record, Timer};
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{
    FaultyFactory, Graph, GuestFaults, SimSink, Simulation, SinkKind, SourceRecord, SplitsSource, When, World,
};

use super::{SEEDS, assert_rows, finish};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Records of each side.
const RECORDS: i64 = 90;
const LOWER: i64 = -25;
const UPPER: i64 = 30;
const WINDOW: i64 = 50;
const WITHIN: i64 = 60;
const SILENT: i64 = 80;
const KNOWN: i64 = 100;

/// All parts, fed with the same records.
struct Parts {
    left: InputPort,
    near: IntervalJoin<i64, i64>,
    window: WindowJoin<i64, i64>,
    sorter: Sorter<i64>,
    sequence: Sequence<i64>,
    silence: Silence,
    dedup: Dedup<i64>,
}

impl Operator for Parts {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        let left = declare.input("left");
        declare.input("right");
        Self {
            left,
            near: declare.interval_join("near").full_outer(),
            window: declare.window_join("window").full_outer(),
            sorter: declare.sorter("sorter"),
            sequence: declare.sequence("sequence"),
            silence: declare.silence("silence", TimeDomain::EventTime),
            dedup: declare.dedup("dedup"),
        }
    }

    fn configure(&mut self, _: NoConfig, _: &InstanceInfo) -> Result<(), Error> {
        self.near.between(LOWER, UPPER)?;
        self.window.tumbling(WINDOW)?;
        self.sequence.of(Steps::begin(|n| n % 3 == 0).followed_by(|n, _| n % 3 == 1).within_ms(WITHIN))?;
        self.silence.after_ms(SILENT)?;
        self.dedup.for_ms(KNOWN)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let n: i64 = record.text()?.parse()?;
        let late = if cx.port() == self.left {
            // Which record is the first depends on the order in which they come: that of one input is always the same.
            if self.dedup.see(cx, n % 4)? == Seen::First {
                cx.emit_text(("first ", n))?;
            }
            [self.near.left(cx, n, tell_near)?, self.window.left(cx, n)?]
        } else {
            [self.near.right(cx, n, tell_near)?, self.window.right(cx, n)?]
        };
        let held = [self.sorter.add(cx, n)?, self.sequence.add(cx, n)?];
        if self.silence.event(cx)? && late == [None; 2] && held == [None; 2] {
            return Ok(());
        }
        Err(Error::permanent(format!("record {n} is late")))
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let sorted = |n: i64, cx: &mut Context<'_>| {
            let time = cx.event_time_ms().unwrap_or_default();
            cx.emit_text((cx.key_text()?, " ", n % 2, "\t", time))
        };
        let silent = |Span { last_ms, .. }: Span, cx: &mut Context<'_>| cx.emit_text(("silent ", cx.key_text()?, " ", last_ms));
        let _ = self.near.on_timer(timer, cx, tell_near)?
            || self
                .window
                .on_timer(timer, cx, |joined, span, cx| cx.emit_text(("window ", span.start_ms, " ", text(joined).as_str())))?
            || self.sorter.on_timer(timer, cx, sorted)?
            || self.sequence.on_timer(timer, cx, tell_sequence)?
            || self.silence.on_timer(timer, cx, silent)?
            || self.dedup.on_timer(timer, cx)?;
        Ok(())
    }
}

fn text(joined: Joined<'_, i64, i64>) -> String {
    match joined {
        Joined::Both(left, right) => format!("{} {}", left.value, right.value),
        Joined::Left(left) => format!("left {}", left.value),
        Joined::Right(right) => format!("right {}", right.value),
    }
}

fn tell_near(joined: Joined<'_, i64, i64>, cx: &mut Context<'_>) -> Result<(), Error> {
    cx.emit_text(("near ", text(joined).as_str()))
}

fn tell_sequence(found: Found<'_, i64>, cx: &mut Context<'_>) -> Result<(), Error> {
    let values = |events: &[Timed<i64>]| format!("{:?}", events.iter().map(|event| event.value).collect::<Vec<_>>());
    match found {
        Found::Complete(events) => cx.emit_text(("sequence ", values(events).as_str())),
        Found::TimedOut(events) => cx.emit_text(("timed out ", values(events).as_str())),
    }
}

/// A record of either side.
#[derive(Clone, Copy)]
struct Sided {
    key: &'static str,
    time: i64,
    n: i64,
}

/// Left records have even times, right ones odd times: no two are at one time. None is more than 34 ms too late.
fn side(is_left: bool) -> Vec<Sided> {
    let sided = |n: i64| {
        let key = KEYS[usize::try_from(if is_left { n * (n + 1) / 2 } else { 3 * n + 1 }).unwrap() % 5];
        let late = if is_left { 2 * (7 * n % 17) } else { 2 * (5 * n % 13) + 1 };
        // Twice there is a pause.
        Sided { key, time: 1000 + 10 * n + n / 40 * 150 - late, n: if is_left { n } else { n + 1000 } }
    };
    (0..RECORDS).map(sided).collect()
}

/// The partners of each record of a side, or that it has none.
fn joined(is_partner: impl Fn(Sided, Sided) -> bool) -> Vec<(i64, String)> {
    let (left, right) = (side(true), side(false));
    let mut rows = Vec::new();
    for own in &left {
        let others: Vec<_> = right.iter().filter(|other| own.key == other.key && is_partner(*own, **other)).collect();
        rows.extend(others.iter().map(|other| (own.time, format!("{} {}", own.n, other.n))));
        if others.is_empty() {
            rows.push((own.time, format!("left {}", own.n)));
        }
    }
    let alone = right.iter().filter(|own| !left.iter().any(|other| own.key == other.key && is_partner(*other, **own)));
    rows.extend(alone.map(|own| (own.time, format!("right {}", own.n))));
    rows
}

/// All rows there must be, worked out from all records at once.
fn rows() -> Vec<String> {
    let mut rows: Vec<_> = joined(|left, right| (LOWER..=UPPER).contains(&(right.time - left.time)))
        .into_iter()
        .map(|(_, row)| format!("near {row}"))
        .collect();
    let window = |time: i64| time.div_euclid(WINDOW) * WINDOW;
    let windows = joined(|left, right| window(left.time) == window(right.time));
    rows.extend(windows.into_iter().map(|(time, row)| format!("window {} {row}", window(time))));
    for key in KEYS {
        let mut events: Vec<_> = [side(true), side(false)].concat().into_iter().filter(|event| event.key == key).collect();
        events.sort_by_key(|event| event.time);
        rows.extend(events.iter().map(|event| format!("{key} {}\t{}", event.n % 2, event.time)));
        for (index, event) in events.iter().enumerate() {
            let rest = &events[index + 1..];
            if rest.first().is_none_or(|next| next.time - event.time >= SILENT) {
                rows.push(format!("silent {key} {}", event.time));
            }
            if event.n % 3 == 0 {
                let next = rest.iter().find(|next| next.n % 3 == 1 && next.time - event.time <= WITHIN);
                rows.push(
                    next.map_or_else(|| format!("timed out [{}]", event.n), |next| format!("sequence [{}, {}]", event.n, next.n)),
                );
            }
        }
        let mut firsts: Vec<Sided> = Vec::new();
        for own in side(true).into_iter().filter(|own| own.key == key) {
            if !firsts.iter().any(|first| first.n % 4 == own.n % 4 && first.time.abs_diff(own.time) < KNOWN.unsigned_abs()) {
                firsts.push(own);
                rows.push(format!("first {}", own.n));
            }
        }
    }
    rows
}

fn graph(world: &World, faults: &GuestFaults, parallelism: u32) -> Graph {
    let source = |name: &str, is_left: bool| {
        let record =
            |sided: Sided| SourceRecord { key: Some(sided.key.into()), time: Some(sided.time), value: sided.n.to_string() };
        SplitsSource::new(world, vec![(name.into(), side(is_left).into_iter().map(record).collect())], 3, 100)
    };
    let strategy = || Some(WatermarkStrategy::out_of_orderness(40));
    let operator = FaultyFactory::new(Arc::new(NativeFactory::<Parts>::new("{}")), faults.clone());
    Graph::every_ms(60)
        .timed_source("left", 1, source("left", true), strategy())
        .timed_source("right", 1, source("right", false), strategy())
        .operator("parts", parallelism, operator, &[("left", 0), ("right", 1)])
        .sink("out", 1, SimSink::new(world, "out", SinkKind::Transactional), "parts")
}

#[test]
fn joins_and_patterns_are_exact_through_kills_failures_and_other_parallelisms() {
    let expected = rows();
    for part in ["near left", "near right", "window", "silent", "sequence", "timed out", "first"] {
        assert!(expected.iter().any(|row| row.starts_with(part)), "there is nothing of {part}");
    }
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let (world, faults) = (simulation.world.clone(), GuestFaults::default());
        let have_read =
            |simulation: &Simulation, count: u64| ["left", "right"].iter().all(|side| simulation.world.reads(side) >= count);
        world.gate([("left", 30), ("right", 30)]);
        simulation.start(&graph(&world, &faults, 2));
        simulation.run_until(|simulation| have_read(simulation, 30) && simulation.completed().len() > 1);
        simulation.kill();
        world.gate([("left", 60), ("right", 60)]);
        simulation.start(&graph(&world, &faults, 3));
        faults.add(When::Call(5), 1, FaultClass::Guest);
        simulation.run_until(|simulation| have_read(simulation, 60) && simulation.restarts() == 1);
        simulation.stop();
        let end = simulation.run_to_end();
        assert!(matches!(end, Some(JobEnd::Stopped { checkpoint: Some(_), .. })), "{end:?}");
        world.gate([]);
        simulation.start(&graph(&world, &faults, 1));
        finish(&mut simulation);
        assert_rows(&world.log("out"), &expected);
    }
}
