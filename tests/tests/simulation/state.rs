//! Keyed state: isolation of snapshots, other parallelisms, other graphs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::ids::{CheckpointId, OperatorId, TaskIndex};
use cofferdam_dataflow::job::master::{JobEnd, JobReport};
use cofferdam_dataflow::key_group::{MaxParallelism, key_hash};
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{
    CountAsJson, Event, FaultyFactory, Graph, GuestFaults, Merge, Owners, SimSink, Simulation, SinkKind, SourceRecord,
    SplitsSource, Step, Store, WatchedFactory, When, stored_number,
};

use super::{SEEDS, assert_rows, count, finish, running_counts};

fn keyed(key: &impl ToString, value: &impl ToString) -> SourceRecord {
    SourceRecord { key: Some(key.to_string()), time: None, value: value.to_string() }
}

/// The numbers that a checkpoint holds in a table.
fn numbers(simulation: &Simulation, checkpoint: u64, table: &str) -> BTreeMap<String, u64> {
    let checkpoint = simulation.checkpoint(CheckpointId(checkpoint)).unwrap();
    checkpoint.state[table].iter().map(|(key, value)| (key.clone(), stored_number(value))).collect()
}

/// Everything that is done to the tables while a snapshot waits to be written is seen by the live state and by nobody else.
#[test]
fn a_snapshot_that_is_written_late_holds_the_state_of_its_cut() {
    const KEYS: usize = 100_000;
    let mut simulation = Simulation::new(0);
    simulation.dials.channel_bytes = 1 << 20;
    let world = simulation.world.clone();
    let mut records: Vec<_> = (0..KEYS).map(|key| keyed(&key, &1)).collect();
    records.extend((0..KEYS).map(|key| keyed(&key, &2)));
    records.extend((0..KEYS / 10).map(|key| keyed(&key, &"")));
    records.extend((KEYS..KEYS + KEYS / 10).map(|key| keyed(&key, &2)));
    let all = records.len();
    records.push(keyed(&"last", &0));
    let faults = GuestFaults::default();
    let store = FaultyFactory::new(Arc::new(NativeFactory::<Store>::new("{}")), faults.clone());
    let mut graph = Graph::every_ms(1000)
        .source("changes", 1, SplitsSource::new(&world, vec![("changes".into(), records)], 1000, 0))
        .operator("store", 2, store, &[("changes", 0)])
        .sink("out", 2, SimSink::new(&world, "out", SinkKind::Append), "store");
    // No other checkpoint comes in between.
    graph.checkpoint.min_pause_ms = 100_000;
    world.gate([("changes", KEYS)]);
    simulation.dials.full_writers.extend([1, 2]);
    simulation.start(&graph);
    let is_cut = |simulation: &Simulation, task| simulation.events.contains(&Event::Cut(CheckpointId(1), TaskIndex(task)));
    simulation.run_until(|simulation| is_cut(simulation, 1) && is_cut(simulation, 2));
    world.gate([("changes", all)]);
    simulation.run_until(|simulation| simulation.world.reads("changes") == all as u64);
    simulation.run_for_ms(1000);
    assert_eq!(simulation.completed(), [0; 0]);
    simulation.dials.full_writers.clear();
    simulation.run_until(|simulation| simulation.completed() == [1]);
    let ones: BTreeMap<_, _> = (0..KEYS).map(|key| (key.to_string(), 1)).collect();
    assert!(numbers(&simulation, 1, "store/n") == ones, "what came after the cut is in the checkpoint");

    faults.add(When::Call(0), 1, FaultClass::Infrastructure);
    world.gate([]);
    simulation.run_until(|simulation| simulation.restarts() == 1);
    world.gate([("changes", KEYS)]);
    simulation.run_until(|simulation| simulation.completed() == [1, 2]);
    let restored = |report: &JobReport| matches!(report, JobReport::Running { restored: Some(CheckpointId(1)), .. });
    assert!(simulation.reports().any(restored));
    assert!(numbers(&simulation, 2, "store/n") == ones, "the restored state is that of the checkpoint");
    world.gate([("changes", all)]);
    simulation.run_until(|simulation| simulation.world.reads("changes") == 2 * all as u64 - KEYS as u64 + 1);
    simulation.run_for_ms(1000);
    simulation.stop();
    let Some(JobEnd::Stopped { checkpoint: Some(last), problem: None }) = simulation.run_to_end() else { panic!() };
    simulation.start(&graph);
    let live = numbers(&simulation, last.0, "store/n");
    assert_eq!((live.len(), live.values().sum::<u64>()), (KEYS, 2 * KEYS as u64));
    assert!(!live.contains_key("9999") && live.contains_key("100000"));
}

const RESCALED_KEYS: usize = 60;

/// 60 keys; each record of key k brings k.
fn sums(simulation: &Simulation, parallelism: u32, owners: &Owners) -> Graph {
    let world = &simulation.world;
    let records = (0..501 * RESCALED_KEYS).map(|n| keyed(&(n % RESCALED_KEYS), &(n % RESCALED_KEYS))).collect();
    let sum = WatchedFactory::new(Arc::new(NativeFactory::<Merge>::new("{}")), owners.clone());
    Graph::every_ms(200)
        .source("numbers", 1, SplitsSource::new(world, vec![("numbers".into(), records)], 200, 0))
        .source("nothing", 1, SplitsSource::keyed(world, "nothing", "k", [0; 0]))
        .operator("sum", parallelism, sum, &[("numbers", 0), ("nothing", 1)])
        .sink("out", parallelism, SimSink::new(world, "out", SinkKind::Transactional), "sum")
}

fn assert_owners(owners: &Owners, parallelism: u32) {
    let groups = MaxParallelism::new(17).unwrap();
    let owner = |key: String| {
        let owner = groups.owner(groups.group_of(key_hash(key.as_bytes())), parallelism);
        (key, BTreeSet::from([owner]))
    };
    let expected: BTreeMap<_, _> = (0..RESCALED_KEYS).map(|key| owner(key.to_string())).collect();
    assert_eq!(owners.take(), expected, "at parallelism {parallelism}");
}

#[test]
fn keys_move_to_other_parallelisms_with_exact_sums_and_one_owner_each() {
    for (seed, stops) in (0..3).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut simulation = Simulation::new(seed);
        simulation.dials.channel_bytes = 1 << 16;
        let (world, owners) = (simulation.world.clone(), Owners::default());
        for (parallelism, rounds, total) in [(2, 200, 354_000), (5, 500, 885_000), (3, 500, 885_000)] {
            world.gate([("numbers", rounds * RESCALED_KEYS)]);
            simulation.start(&sums(&simulation, parallelism, &owners));
            let (reads, completed) = ((rounds * RESCALED_KEYS) as u64, simulation.completed().len());
            simulation.run_until(|simulation| simulation.world.reads("numbers") == reads);
            simulation.run_until(|simulation| simulation.completed().len() > completed);
            // One that was triggered after all had been read.
            let completed = simulation.completed().len();
            simulation.run_until(|simulation| simulation.completed().len() > completed + 1);
            let newest = *simulation.completed().last().unwrap();
            let state = numbers(&simulation, newest, "sum/total");
            let expected: BTreeMap<_, _> = (0..RESCALED_KEYS).map(|k| (k.to_string(), (k * rounds) as u64)).collect();
            assert_eq!((state.values().sum::<u64>(), &state), (total, &expected));
            if stops {
                simulation.stop();
                let end = simulation.run_to_end();
                assert!(matches!(end, Some(JobEnd::Stopped { problem: None, .. })), "{end:?}");
            } else {
                simulation.kill();
            }
            if parallelism != 3 {
                assert_owners(&owners, parallelism);
            }
        }
        world.gate([]);
        simulation.start(&sums(&simulation, 3, &owners));
        finish(&mut simulation);
        assert_owners(&owners, 3);
        assert_eq!(world.reads("numbers"), 501 * RESCALED_KEYS as u64, "nothing is read again");
        let mut rows = world.log("out");
        rows.sort();
        let mut expected: Vec<_> =
            (0..RESCALED_KEYS).flat_map(|key| (1..=501).map(move |n| format!("{key}={}", key * n))).collect();
        expected.sort();
        assert_eq!(rows, expected);
    }
}

/// A source of one key that has been counted to five and stopped.
struct Stopped {
    simulation: Simulation,
}

impl Stopped {
    fn source(simulation: &Simulation) -> Graph {
        let values = (0..10).map(|n| format!("k{n}"));
        let source = SplitsSource::keyed(&simulation.world, "numbers", "k", values);
        Graph::every_ms(1000).source("numbers", 1, source)
    }

    fn counting(simulation: &Simulation) -> Graph {
        let out = SimSink::new(&simulation.world, "out", SinkKind::Transactional);
        let counting = Self::source(simulation).operator("count", 1, count(&GuestFaults::default()), &[("numbers", 0)]);
        let mut counting = counting.sink("out", 1, out, "count");
        counting.digests.insert(OperatorId::new("count").unwrap(), "sha256:1".into());
        counting
    }

    fn new(seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        simulation.world.gate([("numbers", 5)]);
        let graph = Self::counting(&simulation);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.world.reads("numbers") == 5);
        simulation.stop();
        let end = simulation.run_to_end();
        assert!(matches!(end, Some(JobEnd::Stopped { problem: None, .. })), "{end:?}");
        assert_eq!(simulation.world.log("out"), running_counts([("k", 5)]));
        simulation.world.gate([("numbers", 6)]);
        Self { simulation }
    }

    /// The job as it was goes on, and so does this one, which counts on.
    fn goes_on(mut self, graph: &Graph) -> Simulation {
        self.simulation.start(graph);
        self.simulation.run_until(|simulation| simulation.world.log("out").len() == 6);
        assert_eq!(self.simulation.world.log("out"), running_counts([("k", 6)]));
        self.simulation
    }

    /// The job is refused, and the one that it was still goes on.
    fn refuses(mut self, graph: &Graph, because: &str) {
        let before = self.simulation.on_disk();
        self.simulation.start(graph);
        let Some(JobEnd::Failed(job)) = self.simulation.run_to_end() else { panic!("it starts, although {because}") };
        let cause = job.failure.cause.to_string();
        assert!(cause.starts_with("restore-incompatible: ") && cause.contains(because), "{cause}");
        assert_eq!((self.simulation.on_disk(), self.simulation.restarts()), (before, 0));
        let graph = Self::counting(&self.simulation);
        let mut simulation = self.goes_on(&graph);
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_rows(&simulation.world.log("out"), &running_counts([("k", 10)]));
    }
}

fn step() -> NativeFactory<Step> {
    NativeFactory::new("0")
}

#[test]
fn operators_without_state_come_and_go() {
    for seed in SEEDS {
        let stopped = Stopped::new(seed);
        let faults = GuestFaults::default();
        let sink = SimSink::new(&stopped.simulation.world, "out", SinkKind::Transactional);
        let with = Stopped::source(&stopped.simulation)
            .operator("step", 2, step(), &[("numbers", 0)])
            .operator("count", 1, count(&faults), &[("step", 0)])
            .sink("out", 1, sink, "count");
        let without = Stopped::counting(&stopped.simulation);
        let mut simulation = stopped.goes_on(&with);
        let notice = |text: &str, simulation: &Simulation| {
            let is_it = |report: &JobReport| matches!(report, JobReport::Notice(notice) if notice.contains(text));
            simulation.reports().any(is_it)
        };
        assert!(notice("\"step\" is not in the checkpoint and begins empty", &simulation));
        simulation.stop();
        let end = simulation.run_to_end();
        assert!(matches!(end, Some(JobEnd::Stopped { problem: None, .. })), "{end:?}");
        simulation.world.gate([]);
        simulation.start(&without);
        finish(&mut simulation);
        assert!(notice("operator \"step\" is gone; it had no state", &simulation));
        assert_rows(&simulation.world.log("out"), &running_counts([("k", 10)]));
    }
}

#[test]
fn state_that_nobody_takes_over_or_that_has_changed_is_refused_by_name() {
    for seed in SEEDS {
        let faults = GuestFaults::default();
        let sink = |stopped: &Stopped| SimSink::new(&stopped.simulation.world, "out", SinkKind::Transactional);
        let nobody = "operator \"count\" has state in it and is not in the job";
        let stopped = Stopped::new(seed);
        let removed = Stopped::source(&stopped.simulation).sink("out", 1, sink(&stopped), "numbers");
        stopped.refuses(&removed, nobody);
        let stopped = Stopped::new(seed);
        let renamed = Stopped::source(&stopped.simulation).operator("tally", 1, count(&faults), &[("numbers", 0)]).sink(
            "out",
            1,
            sink(&stopped),
            "tally",
        );
        stopped.refuses(&renamed, nobody);
        let stopped = Stopped::new(seed);
        let encoded = Stopped::source(&stopped.simulation)
            .operator("count", 1, NativeFactory::<CountAsJson>::new("{}"), &[("numbers", 0)])
            .sink("out", 1, sink(&stopped), "count");
        stopped.refuses(&encoded, "slot \"n\" of \"count\" was encoded as");
        let stopped = Stopped::new(seed);
        let mut groups = Stopped::counting(&stopped.simulation);
        groups.max_parallelism = 18;
        stopped.refuses(&groups, "max-parallelism was 17 and cannot become 18");
    }
}

#[test]
fn a_new_operator_begins_empty_and_a_new_component_goes_on() {
    for seed in SEEDS {
        let stopped = Stopped::new(seed);
        let faults = GuestFaults::default();
        let world = stopped.simulation.world.clone();
        let mut more = Stopped::counting(&stopped.simulation).operator("other", 1, count(&faults), &[("numbers", 0)]).sink(
            "also",
            1,
            SimSink::new(&world, "also", SinkKind::Transactional),
            "other",
        );
        more.digests.insert(OperatorId::new("count").unwrap(), "sha256:2".into());
        let mut simulation = stopped.goes_on(&more);
        let notice = |report: &JobReport| matches!(report, JobReport::Notice(text) if text.contains("the component of \"count\" has changed"));
        assert!(simulation.reports().any(notice), "{:?}", simulation.reports().collect::<Vec<_>>());
        world.gate([]);
        finish(&mut simulation);
        assert_rows(&world.log("out"), &running_counts([("k", 10)]));
        assert_rows(&world.log("also"), &running_counts([("k", 5)]));
    }
}

#[test]
fn operators_keep_their_state_by_their_ids() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let world = simulation.world.clone();
        let graph = |names: [&str; 2]| {
            let mut graph = Graph::every_ms(1000);
            for name in names {
                graph = graph
                    .source(&format!("in-{name}"), 1, SplitsSource::keyed(&world, &format!("in-{name}"), "k", 0..10))
                    .operator(name, 1, count(&GuestFaults::default()), &[(&format!("in-{name}"), 0)])
                    .sink(&format!("out-{name}"), 1, SimSink::new(&world, &format!("out-{name}"), SinkKind::Transactional), name);
            }
            graph
        };
        world.gate([("in-a", 5), ("in-b", 3)]);
        simulation.start(&graph(["a", "b"]));
        simulation.run_until(|simulation| simulation.world.reads("in-a") + simulation.world.reads("in-b") == 8);
        simulation.stop();
        drop(simulation.run_to_end());
        world.gate([("in-a", 6), ("in-b", 4)]);
        simulation.start(&graph(["b", "a"]));
        simulation.run_until(|simulation| simulation.world.log("out-a").len() + simulation.world.log("out-b").len() == 10);
        assert_eq!(world.log("out-a"), running_counts([("k", 6)]));
        assert_eq!(world.log("out-b"), running_counts([("k", 4)]));
        let twice = graph(["a", "a"]).try_plan().err().map(|error| error.to_string());
        assert_eq!(twice.as_deref(), Some("the id \"in-a\" is used twice"));
    }
}
