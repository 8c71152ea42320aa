//! Windows through kills, failures and changes of parallelism, with inputs that end, fall silent and run ahead: against what the
//! windows are by definition.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::job::master::JobEnd;
use cofferdam_dataflow::subtask::{Alignment, WatermarkStrategy};
use cofferdam_guest::prelude::{
    Added, Aggregate, Context, Declare, Error, Fired, NoConfig, Operator, Record, Timer, Windowing, Windows,
};
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{
    FaultyFactory, Graph, GuestFaults, Random, SimSink, Simulation, SinkKind, SourceRecord, SplitsSource, When, World,
};

use super::{SEEDS, finish};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const SIZE_MS: i64 = 40;
/// How far records of one split are out of order.
const JITTER_MS: i64 = 30;

/// The numbers of a window's records.
struct Numbers;

impl Aggregate for Numbers {
    type Input = u64;
    type Accumulator = Vec<u64>;
    type Output = Vec<u64>;

    fn add(numbers: &mut Vec<u64>, number: u64) {
        numbers.push(number);
    }

    fn result(numbers: &Vec<u64>) -> Vec<u64> {
        numbers.clone()
    }

    fn merge(numbers: &mut Vec<u64>, other: Vec<u64>) {
        numbers.extend(other);
    }
}

/// Emits what is in each window, as `start`, key and numbers, and `late`, key and number.
struct Windowed(Windows<Numbers>);

impl Windowed {
    fn emit(mut fired: Fired<Vec<u64>>, cx: &mut Context<'_>) -> Result<(), Error> {
        fired.result.sort_unstable();
        let mut numbers = String::new();
        fired.result.iter().try_for_each(|number| write!(numbers, " {number}")).map_err(|_| Error::permanent("no memory"))?;
        cx.emit_text((fired.window.start_ms(), " ", cx.key_text()?, numbers.as_str()))
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let number: u64 = record.text()?.parse().map_err(|_| Error::permanent("not a number"))?;
        match self.0.add(cx, number, Self::emit)? {
            Added::InTime => Ok(()),
            Added::Late => cx.emit_text(("late ", cx.key_text()?, " ", number)),
        }
    }
}

macro_rules! windowed {
    ($name:ident, $windowing:expr) => {
        struct $name(Windowed);
        impl Operator for $name {
            type Config = NoConfig;
            fn declare(declare: &mut Declare) -> Self {
                Self(Windowed(declare.windows("numbers").with(&$windowing)))
            }
            fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
                self.0.process(record, cx)
            }
            fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
                self.0.0.on_timer(timer, cx, Windowed::emit)?;
                Ok(())
            }
        }
    };
}

windowed!(Tumbling, Windowing::tumbling(Duration::from_millis(SIZE_MS.unsigned_abs())));
windowed!(Sliding, Windowing::sliding(Duration::from_millis(SIZE_MS.unsigned_abs()), Duration::from_millis(20)));
windowed!(Session, Windowing::session(Duration::from_millis(25)));

/// A record that was made up: its number, key and time.
type Made = (u64, &'static str, i64);

/// Makes the records of a split: times ascend, but for the jitter.
fn split(random: &mut Random, numbers: std::ops::Range<u64>) -> Vec<Made> {
    let mut at = 0;
    let mut made = |number| {
        at += i64::try_from(random.below(20)).unwrap();
        let late = i64::try_from(random.below(JITTER_MS.unsigned_abs() + 1)).unwrap();
        (number, KEYS[random.index(KEYS.len())], at - late)
    };
    numbers.map(&mut made).collect()
}

fn record((number, key, time): &Made) -> SourceRecord {
    SourceRecord { key: Some((*key).into()), time: Some(*time), value: number.to_string() }
}

fn source(world: &World, splits: &[(&str, &[Made])]) -> SplitsSource {
    let splits = splits.iter().map(|(name, made)| ((*name).to_owned(), made.iter().map(record).collect()));
    SplitsSource::new(world, splits.collect(), 3, 100)
}

/// The windows that there are if nothing is late, as rows.
fn tumbling(made: &[Made]) -> Vec<String> {
    sliding_by(made, SIZE_MS)
}

fn sliding(made: &[Made]) -> Vec<String> {
    sliding_by(made, 20)
}

fn sliding_by(made: &[Made], slide: i64) -> Vec<String> {
    let mut windows = BTreeMap::<(i64, &str), Vec<u64>>::new();
    for (number, key, time) in made {
        let last = time.div_euclid(slide) * slide;
        let starts = (0..).map(|back| last - back * slide).take_while(|start| start + SIZE_MS > *time);
        starts.for_each(|start| windows.entry((start, key)).or_default().push(*number));
    }
    rows(windows)
}

fn sessions(made: &[Made]) -> Vec<String> {
    let mut windows = BTreeMap::<(i64, &str), Vec<u64>>::new();
    for key in KEYS {
        let mut of_key: Vec<_> = made.iter().filter(|made| made.1 == key).collect();
        of_key.sort_by_key(|made| made.2);
        let mut open: Option<(i64, i64)> = None;
        for (number, _, time) in of_key {
            let start = open.filter(|(_, last)| time - last < 25).map_or(*time, |(start, _)| start);
            open = Some((start, *time));
            windows.entry((start, key)).or_default().push(*number);
        }
    }
    rows(windows)
}

fn rows(windows: BTreeMap<(i64, &str), Vec<u64>>) -> Vec<String> {
    let row = |((start, key), mut numbers): ((i64, &str), Vec<u64>)| {
        numbers.sort_unstable();
        let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
        format!("{start} {key} {}", numbers.join(" "))
    };
    let mut rows: Vec<_> = windows.into_iter().map(row).collect();
    rows.sort();
    rows
}

/// Two sources, the first of two splits, and windows over their union.
fn graph<O: Operator>(
    world: &World,
    faults: &GuestFaults,
    made: &[Vec<Made>; 3],
    (parallelism, strategy): (u32, &WatermarkStrategy),
) -> Graph {
    let says_end = strategy.idle_timeout_ms.is_some();
    let of = |splits: &[(&str, &[Made])]| {
        let source = source(world, splits);
        if says_end { source.saying_its_end() } else { source }
    };
    let operator = FaultyFactory::new(Arc::new(NativeFactory::<O>::new("{}")), faults.clone());
    Graph::every_ms(60)
        .timed_source("one", 1 + parallelism % 2, of(&[("x", &made[0]), ("y", &made[1])]), Some(strategy.clone()))
        .timed_source("two", 1, of(&[("z", &made[2])]), Some(strategy.clone()))
        .operator("windows", parallelism, operator, &[("one", 0), ("two", 0)])
        .sink("out", 1, SimSink::new(world, "out", SinkKind::Transactional), "windows")
}

const RECORDS: usize = 60;

/// Runs windows over random records: gates open bit by bit, and between, processes are killed and stopped, guests fail, and the
/// parallelism changes.
fn run<O: Operator>(seed: u64, strategy: &WatermarkStrategy) -> (Vec<Made>, Vec<String>) {
    let mut random = Random::new(seed);
    let mut simulation = Simulation::new(seed);
    let (world, faults) = (simulation.world.clone(), GuestFaults::default());
    let made = [0, 1, 2].map(|index| {
        let first = index * RECORDS as u64;
        split(&mut random, first..first + RECORDS as u64)
    });
    let mut opened = [0_usize; 3];
    let gate = |opened: &[usize; 3]| world.gate(["x", "y", "z"].into_iter().zip(*opened));
    gate(&opened);
    simulation.start(&graph::<O>(&world, &faults, &made, (2, strategy)));
    for parallelism in [3, 2, 5, 1] {
        // Some stand still for a while.
        for opened in &mut opened {
            if random.chance(600) {
                *opened += random.index(RECORDS / 4);
            }
        }
        gate(&opened);
        simulation.run_for_ms(random.below(300));
        if random.chance(300) {
            faults.add(When::Call(u32::try_from(random.below(4)).unwrap()), 1, FaultClass::Guest);
            simulation.run_for_ms(random.below(200));
        }
        if random.chance(500) {
            simulation.kill();
        } else {
            simulation.stop();
            let end = simulation.run_to_end();
            assert!(matches!(end, Some(JobEnd::Stopped { .. })), "seed {seed}: {end:?}");
        }
        simulation.start(&graph::<O>(&world, &faults, &made, (parallelism, strategy)));
    }
    simulation.run_for_ms(random.below(300));
    world.gate([]);
    finish(&mut simulation);
    let mut log = world.log("out");
    log.sort();
    (made.concat(), log)
}

#[test]
fn windows_are_what_they_are_by_definition_whatever_happens() {
    let strategy = WatermarkStrategy::out_of_orderness(JITTER_MS.unsigned_abs());
    for seed in SEEDS {
        let (made, log) = run::<Tumbling>(seed, &strategy);
        assert_eq!(log, tumbling(&made), "seed {seed}");
        let (made, log) = run::<Sliding>(seed, &strategy);
        assert_eq!(log, sliding(&made), "seed {seed}");
        let (made, log) = run::<Session>(seed, &strategy);
        assert_eq!(log, sessions(&made), "seed {seed}");
    }
}

/// With idle inputs, what is late depends on when it comes. Whatever that is, each record counts once.
#[test]
fn with_idle_inputs_each_record_is_in_one_window_or_late_and_no_window_fires_twice() {
    let strategy = WatermarkStrategy { idle_timeout_ms: Some(15), ..WatermarkStrategy::out_of_orderness(0) };
    let mut late = 0;
    for seed in SEEDS {
        let (made, log) = run::<Tumbling>(seed, &strategy);
        let (mut seen, mut fired) = (BTreeSet::new(), BTreeSet::new());
        for row in &log {
            let words: Vec<_> = row.split(' ').collect();
            late += usize::from(words[0] == "late");
            assert!(words[0] == "late" || fired.insert((words[0].to_owned(), words[1].to_owned())), "seed {seed}: {row} twice");
            for number in &words[2..] {
                let (_, key, time) = made[number.parse::<usize>().unwrap()];
                assert!(words[0] == "late" || words[0] == (time.div_euclid(SIZE_MS) * SIZE_MS).to_string(), "seed {seed}: {row}");
                assert_eq!(words[1], key);
                assert!(seen.insert((*number).to_owned()), "seed {seed}: {number} twice");
            }
        }
        assert_eq!(seen.len(), made.len(), "seed {seed}");
    }
    assert!(late > 0, "nothing was ever late: the test shows nothing");
}

#[test]
fn inputs_that_have_ended_or_are_idle_hold_no_window_and_no_checkpoint_back() {
    let strategy = WatermarkStrategy { idle_timeout_ms: Some(1000), ..WatermarkStrategy::out_of_orderness(0) };
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let (world, faults) = (simulation.world.clone(), GuestFaults::default());
        let made = |numbers: std::ops::Range<u64>| -> Vec<Made> {
            numbers.map(|number| (number, "k", 10 * i64::try_from(number % 1000).unwrap())).collect()
        };
        let (a, b, c) = (made(0..5), made(1000..1100), Vec::new());
        // The last has nothing, and does not end.
        world.gate([("b", 50), ("c", 0)]);
        let graph = || {
            let timed = |graph: Graph, name: &str, made: &[Made]| {
                let source = source(&world, &[(name, made)]).saying_its_end();
                graph.timed_source(name, 1, source, Some(strategy.clone()))
            };
            let sources = timed(timed(timed(Graph::every_ms(40), "a", &a), "b", &b), "c", &c);
            let operator = FaultyFactory::new(Arc::new(NativeFactory::<Tumbling>::new("{}")), faults.clone());
            sources.operator("windows", 1, operator, &[("a", 0), ("b", 0), ("c", 0)]).sink(
                "out",
                1,
                SimSink::new(&world, "out", SinkKind::Transactional),
                "windows",
            )
        };
        simulation.start(&graph());
        simulation.run_until(|simulation| simulation.world.reads("b") >= 50 && simulation.world.reads("a") == 5);
        let before = simulation.completed().len();
        simulation.run_until(|simulation| simulation.completed().len() > before + 1);
        // What ends by 489, four numbers a window: but for the last that is open.
        simulation.run_until(|simulation| simulation.world.log("out").len() >= 12);
        simulation.kill();
        assert_eq!(world.reads("a"), 5);
        simulation.start(&graph());
        world.gate([("c", 0)]);
        // It ends, and the one that is idle is all that is left.
        simulation.run_until(|simulation| simulation.world.reads("b") >= 100 && simulation.world.log("out").len() >= 24);
        assert_eq!(world.reads("a"), 5, "what had been read was not read again");
        world.gate([]);
        finish(&mut simulation);
        let mut log = world.log("out");
        log.sort();
        assert_eq!(log, tumbling(&[a, b].concat()), "seed {seed}");
    }
}

#[test]
fn sources_that_are_kept_together_wait_for_the_slowest_and_take_checkpoints_meanwhile() {
    let alignment = Some(Alignment { group: "all".into(), max_drift_ms: 100 });
    let strategy = WatermarkStrategy { alignment, ..WatermarkStrategy::out_of_orderness(0) };
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let (world, faults) = (simulation.world.clone(), GuestFaults::default());
        let made = |first: u64| -> Vec<Made> {
            (0..100).map(|number| (first + number, "k", 10 * i64::try_from(number).unwrap())).collect()
        };
        let made = [made(0), made(100), made(200)];
        // Of the second source, only what lies before 200 ms is there.
        world.gate([("z", 20)]);
        simulation.start(&graph::<Tumbling>(&world, &faults, &made, (1, &strategy)));
        simulation.run_until(|simulation| simulation.world.reads("z") == 20);
        simulation.run_for_ms(2000);
        let ahead = world.reads("x").max(world.reads("y"));
        // Up to 290 ms, a batch more that was begun below it, and another split that says something first.
        assert!((20..=40).contains(&ahead), "seed {seed}: {ahead} records");
        let before = simulation.completed().len();
        simulation.run_until(|simulation| simulation.completed().len() > before + 2);
        world.gate([]);
        finish(&mut simulation);
        let mut log = world.log("out");
        log.sort();
        assert_eq!(log, tumbling(&made.concat()), "seed {seed}");
    }
}
