//! Barriers over inputs that end, say nothing or stand still.

use cofferdam_tests::simulation::{Graph, GuestFaults, SimSink, Simulation, SinkKind, SplitsSource};

use super::{SEEDS, assert_rows, count, finish, running_counts};

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
