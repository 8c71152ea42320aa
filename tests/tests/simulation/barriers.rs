//! Barriers over inputs that end, say nothing or stand still.

use cofferdam_dataflow::ids::{CheckpointId, TaskIndex};
use cofferdam_tests::simulation::{Event, Graph, GuestFaults, SimSink, Simulation, SinkKind, SplitsSource};

use super::{SEEDS, assert_rows, count, finish, running_counts, split};

/// Three sources of the same key into one count.
fn union(simulation: &Simulation, records: [usize; 3], kind: SinkKind) -> Graph {
    let world = &simulation.world;
    let mut graph = Graph::every_ms(100);
    for (name, records) in ["a", "b", "c"].into_iter().zip(records) {
        graph = graph.source(name, 1, SplitsSource::keyed(world, name, "k", 0..records));
    }
    graph.operator("count", 1, count(&GuestFaults::default()), &[("a", 0), ("b", 0), ("c", 0)]).sink(
        "out",
        1,
        SimSink::new(world, "out", kind),
        "count",
    )
}

#[test]
fn an_input_that_has_ended_or_is_silent_does_not_hold_checkpoints_up() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let world = simulation.world.clone();
        let graph = union(&simulation, [5, 100, 0], SinkKind::Transactional);
        world.gate([("b", 40), ("c", 0)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.now_ms() > 450);
        assert!(simulation.completed().len() >= 3, "{:?}", simulation.completed());
        assert_rows(&world.log("out"), &running_counts([("k", 45)]));
        world.gate([("b", 50), ("c", 0)]);
        simulation.run_until(|simulation| simulation.world.reads("b") == 50);
        simulation.kill();
        simulation.start(&graph);
        simulation.run_for_ms(500);
        assert_rows(&world.log("out"), &running_counts([("k", 55)]));
        assert!(simulation.failed().is_empty(), "{:?}", simulation.failed());
        world.gate([]);
        finish(&mut simulation);
        assert_eq!(world.reads("a"), 5, "a split that has ended is not read again");
        assert_rows(&world.log("out"), &running_counts([("k", 105)]));
    }
}

#[test]
fn an_input_that_ends_after_the_barriers_of_all_others_completes_the_alignment() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let world = simulation.world.clone();
        let mut graph = union(&simulation, [20, 20, 5], SinkKind::Transactional);
        graph.checkpoint.interval_ms = Some(1000);
        world.gate([("a", 10), ("b", 10), ("c", 5)]);
        simulation.start(&graph);
        simulation.run_for_ms(500);
        // The count reads nothing while c ends and the others send their barriers.
        simulation.dials.frozen_tasks.insert(3, 1_500_000);
        world.gate([("a", 10), ("b", 10)]);
        simulation.run_until(|simulation| !simulation.completed().is_empty());
        assert!(simulation.now_ms() < 2000, "{} ms", simulation.now_ms());
        assert_rows(&world.log("out"), &running_counts([("k", 25)]));
        world.gate([]);
        finish(&mut simulation);
        assert_rows(&world.log("out"), &running_counts([("k", 45)]));
    }
}

#[test]
fn an_alignment_that_is_given_up_releases_what_waited() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.dials.channel_bytes = 1 << 20;
        let world = simulation.world.clone();
        let mut graph = union(&simulation, [20, 20, 20], SinkKind::Append);
        (graph.checkpoint.timeout_ms, graph.checkpoint.tolerable_failures) = (300, 100);
        world.gate([("a", 5), ("b", 5), ("c", 5)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.world.log("out").len() == 15);
        let completed = simulation.completed();
        // The source of c neither reads nor sends a barrier.
        simulation.dials.frozen_tasks.insert(2, u64::MAX);
        simulation.run_for_ms(200);
        world.gate([("a", 10), ("b", 10)]);
        simulation.run_for_ms(50);
        assert_eq!((world.reads("a"), world.log("out").len()), (10, 15), "records after the barrier wait");
        simulation.run_until(|simulation| !simulation.failed().is_empty());
        assert!(simulation.failed()[0].1.contains("expired"), "{:?}", simulation.failed());
        simulation.run_until(|simulation| simulation.world.log("out").len() == 25);
        simulation.dials.frozen_tasks.clear();
        simulation.run_until(|simulation| simulation.completed().len() > completed.len() + 1);
        world.gate([]);
        finish(&mut simulation);
        assert_eq!((simulation.restarts(), world.log("out")), (0, running_counts([("k", 60)])));
    }
}

/// Waits until a checkpoint has been triggered and whoever can has sent its barrier.
fn wait_for_barriers(simulation: &mut Simulation, checkpoint: u64) {
    simulation.run_until(|simulation| simulation.events.contains(&Event::Triggered(CheckpointId(checkpoint))));
    simulation.run_for_ms(200);
}

/// Waits until so many checkpoints have failed and everybody who listens knows.
fn wait_for_failures(simulation: &mut Simulation, failures: usize) {
    simulation.run_until(|simulation| simulation.failed().len() == failures);
    simulation.run_for_ms(200);
}

fn cuts(simulation: &Simulation, task: usize) -> Vec<u64> {
    let cut = |event: &Event| match event {
        Event::Cut(id, by) if *by == TaskIndex(task) => Some(id.0),
        _ => None,
    };
    simulation.events.iter().filter_map(cut).collect()
}

/// Barriers as the count meets them: 2 of b and a, 3 of c and a, 4 of b, the ends of a and c. It is told of nothing.
#[test]
fn a_newer_barrier_gives_the_older_alignment_up_and_ended_inputs_complete_it() {
    const COUNT: usize = 3;
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.dials.channel_bytes = 1 << 20;
        let world = simulation.world.clone();
        let mut graph = union(&simulation, [14, 30, 14], SinkKind::Append);
        graph.checkpoint.interval_ms = Some(1000);
        (graph.checkpoint.timeout_ms, graph.checkpoint.tolerable_failures) = (400, 100);
        let visible = |records: usize, why: &str| assert_eq!(world.log("out").len(), records, "{why}");
        world.gate([("a", 10), ("b", 10), ("c", 10)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.completed() == [1]);
        simulation.dials.deaf_tasks.insert(COUNT, u64::MAX);
        // c sends no barrier 2.
        simulation.dials.frozen_tasks.insert(2, u64::MAX);
        wait_for_barriers(&mut simulation, 2);
        world.gate([("a", 12), ("b", 12), ("c", 10)]);
        wait_for_failures(&mut simulation, 1);
        visible(30, "a and b wait for the barrier of c");
        // b sends no barrier 3.
        simulation.dials.frozen_tasks.clear();
        simulation.dials.frozen_tasks.insert(1, u64::MAX);
        wait_for_barriers(&mut simulation, 3);
        visible(34, "what waited for barrier 2 is released by barrier 3");
        world.gate([("a", 12), ("b", 12), ("c", 12)]);
        wait_for_failures(&mut simulation, 2);
        visible(34, "c waits for the barrier of b");
        // a and c end without barrier 4.
        simulation.dials.frozen_tasks.clear();
        world.gate([("b", 14)]);
        simulation.run_for_ms(200);
        visible(36, "b does not wait for anybody");
        wait_for_barriers(&mut simulation, 4);
        visible(42, "what waited for barrier 3 is released by barrier 4");
        assert_eq!((cuts(&simulation, COUNT), simulation.completed()), (vec![1, 4], vec![1, 4]));
        assert_eq!(simulation.failed().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 3]);
        // Now it hears of 2 and 3.
        simulation.dials.deaf_tasks.clear();
        world.gate([]);
        finish(&mut simulation);
        assert_eq!((simulation.restarts(), world.log("out")), (0, running_counts([("k", 58)])));
    }
}

/// `second` reads from `first` and c; it is told of nothing, but `first` is.
#[test]
fn a_cancelled_barrier_releases_those_downstream() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.dials.channel_bytes = 1 << 20;
        let world = simulation.world.clone();
        let faults = GuestFaults::default();
        let mut graph = Graph::every_ms(1000)
            .source("a", 1, SplitsSource::keyed(&world, "a", "k", 0..10))
            .source("b", 1, SplitsSource::keyed(&world, "b", "k", 0..10))
            .source("c", 1, SplitsSource::lines(&world, "c", ["x"; 10]))
            .operator("first", 1, count(&faults), &[("a", 0), ("b", 0)])
            .operator("second", 1, split(&faults), &[("first", 0), ("c", 0)])
            .sink("out", 1, SimSink::new(&world, "out", SinkKind::Append), "second");
        (graph.checkpoint.timeout_ms, graph.checkpoint.tolerable_failures) = (500, 100);
        world.gate([("a", 5), ("b", 5), ("c", 5)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.completed() == [1]);
        simulation.dials.deaf_tasks.insert(4, u64::MAX);
        simulation.dials.frozen_tasks.insert(1, u64::MAX);
        wait_for_barriers(&mut simulation, 2);
        world.gate([("a", 7), ("b", 5), ("c", 7)]);
        simulation.run_for_ms(100);
        assert_eq!((world.reads("a"), world.reads("c"), world.log("out").len()), (7, 7, 15), "both wait");
        wait_for_failures(&mut simulation, 1);
        assert_eq!(world.log("out").len(), 19, "released at once");
        simulation.dials.frozen_tasks.clear();
        simulation.run_until(|simulation| simulation.completed() == [1, 3]);
        assert_eq!(cuts(&simulation, 4), [1, 3]);
        simulation.dials.deaf_tasks.clear();
        world.gate([]);
        finish(&mut simulation);
        assert_eq!((simulation.restarts(), world.log("out").len()), (0, 30));
    }
}
