//! Two processes that work on one job: only the one that came last may change anything.

use cofferdam_dataflow::checkpoint::config::Cleanup;
use cofferdam_dataflow::checkpoint::storage::StorageErrorKind;
use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::job::master::{JobEnd, JobEvent, JobReport};
use cofferdam_tests::simulation::{
    Event, Graph, GuestFaults, Random, SimSink, Simulation, SinkKind, SourceRecord, SplitsSource, When,
};

use super::{SEEDS, assert_rows, count, finish, running_counts};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// Two splits of a hundred records of four keys, counted.
fn counting(simulation: &Simulation, faults: &GuestFaults, parallelism: u32) -> Graph {
    let world = &simulation.world;
    let record = |n: usize| SourceRecord { key: Some(KEYS[n % 4].into()), time: None, value: n.to_string() };
    let splits = ["x", "y"].map(|split| (split.to_owned(), (0..100).map(record).collect())).to_vec();
    let mut graph = Graph::every_ms(20)
        .source("numbers", 2, SplitsSource::new(world, splits, 3, 300))
        .operator("count", parallelism, count(faults), &[("numbers", 0)])
        .sink("out", parallelism, SimSink::new(world, "out", SinkKind::Transactional), "count");
    (graph.checkpoint.tolerable_failures, graph.checkpoint.cleanup) = (1000, Cleanup::Always);
    graph
}

fn expected() -> Vec<String> {
    running_counts(KEYS.map(|key| (key, 50)))
}

fn is_running(event: &Event) -> bool {
    matches!(event, Event::Report(JobReport::Running { .. }))
}

/// Starts a job and lets it come some way.
fn some_way(simulation: &mut Simulation, graph: &Graph, random: &mut Random) {
    simulation.start(graph);
    simulation.run_until(|simulation| simulation.events.iter().any(is_running));
    for _ in 0..random.below(400) {
        assert_eq!(simulation.step(), None, "the job is longer than this");
    }
}

#[test]
fn nobody_takes_over_from_a_process_that_holds_the_lock() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let graph = counting(&simulation, &GuestFaults::default(), 2);
        some_way(&mut simulation, &graph, &mut Random::new(seed));
        let error = simulation.take_over(&graph, false).unwrap_err();
        assert_eq!((error.kind, error.to_string().as_str()), (StorageErrorKind::Fenced, "the storage is in use by process 1"));
        // Its death frees the lock.
        simulation.kill();
        simulation.start(&graph);
        finish(&mut simulation);
        assert_rows(&simulation.world.log("out"), &expected());
    }
}

/// What a process does that has lost its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Old {
    /// It sleeps until its successor runs, and goes on.
    Sleeps,
    /// It sleeps, and is told to end when it wakes up.
    IsCancelled,
    /// It sleeps, and is told to stop with a checkpoint.
    IsStopped,
    /// It sleeps, and a guest of its fails at once.
    Restarts,
    /// It runs all the time.
    Runs,
}

fn take_over(seed: u64, old: Old) {
    let mut random = Random::new(seed);
    let mut simulation = Simulation::new(seed);
    let faults = GuestFaults::default();
    let graph = counting(&simulation, &GuestFaults::default(), 2);
    let old_graph = counting(&simulation, &faults, 2);
    simulation.dials.stall_permille = [5, 30][random.index(2)];
    some_way(&mut simulation, &old_graph, &mut random);
    simulation.world.state().lock = None;
    simulation.take_over(&graph, old == Old::Runs).unwrap();
    let before = simulation.events.len();
    simulation.run_until(|simulation| simulation.events[before..].iter().any(is_running));
    simulation.run_for_ms(random.below(60));
    let order = match old {
        Old::IsCancelled => Some(JobEvent::CancelRequested),
        Old::IsStopped => Some(JobEvent::StopRequested),
        Old::Restarts | Old::Sleeps | Old::Runs => None,
    };
    if old == Old::Restarts {
        (0..3).for_each(|_| faults.add(When::Call(0), 1, FaultClass::Infrastructure));
    }
    simulation.wake(order);
    if random.chance(300) && simulation.is_running() {
        // The successor has a successor.
        simulation.run_for_ms(random.below(30));
        simulation.kill();
        simulation.start(&graph);
    }
    if simulation.is_running() {
        let end = simulation.run_to_end();
        assert!(matches!(end, Some(JobEnd::Finished { .. } | JobEnd::AlreadyFinished { .. })), "{end:?}");
    }
    assert_rows(&simulation.world.log("out"), &expected());
    assert_eq!(simulation.on_disk(), [0; 0]);
    assert_eq!(simulation.restarts(), 0, "nobody disturbs the successor");
    match simulation.run_zombie_to_end() {
        JobEnd::Failed(job) => {
            assert_eq!((job.failure.cause.code(), job.reason.as_str()), ("fenced", "the job belongs to another process"));
        }
        JobEnd::Cancelled { .. } => assert_eq!(old, Old::IsCancelled),
        end => panic!("the process that was taken over from ends with {end:?}"),
    }
    // Its files go at the next start.
    simulation.start(&graph);
    let end = simulation.run_to_end();
    assert!(matches!(end, Some(JobEnd::AlreadyFinished { .. })), "{end:?}");
    assert_eq!(simulation.on_disk(), [0; 0]);
    simulation.assert_no_orphans();
    assert_rows(&simulation.world.log("out"), &expected());
}

#[test]
fn a_process_that_was_taken_over_from_changes_nothing_and_fails_for_good() {
    for seed in 0..30 {
        for old in [Old::Sleeps, Old::IsCancelled, Old::IsStopped, Old::Restarts, Old::Runs] {
            take_over(seed, old);
        }
    }
}
