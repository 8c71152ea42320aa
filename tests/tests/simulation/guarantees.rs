//! What each kind of sink sees of a job that fails and goes on.

use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::job::master::JobEnd;
use cofferdam_dataflow::job::restart::RestartPolicy;
use cofferdam_tests::simulation::{Graph, GuestFaults, SimSink, Simulation, SinkKind, SplitsSource, When, stored_number};

use super::{SEEDS, assert_rows, count, finish, running_counts, split};

fn word_count(simulation: &Simulation, faults: &GuestFaults) -> Graph {
    let lines = SplitsSource::lines(&simulation.world, "lines", ["a b a", "b c", "a c c", "d a b", "c d d d"]);
    Graph::every_ms(1000)
        .source("lines", 1, lines)
        .operator("split", 1, split(faults), &[("lines", 0)])
        .operator("count", 1, count(&GuestFaults::default()), &[("split", 0)])
        .sink("out", 1, SimSink::new(&simulation.world, "out", SinkKind::Transactional), "count")
}

#[test]
fn a_word_count_that_traps_after_a_checkpoint_counts_each_word_once() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let faults = GuestFaults::default();
        let graph = word_count(&simulation, &faults);
        simulation.world.gate([("lines", 2)]);
        simulation.checks.push(Box::new(|checkpoint, _| {
            let counts = &checkpoint.state["count/n"];
            let counts: Vec<_> = counts.iter().map(|(word, n)| (word.as_str(), stored_number(n))).collect();
            let expected = if checkpoint.positions["lines"] == 2 {
                vec![("a", 2), ("b", 2), ("c", 1)]
            } else {
                vec![("a", 4), ("b", 3), ("c", 4), ("d", 4)]
            };
            (counts == expected).then_some(()).ok_or(format!("{counts:?}"))
        }));
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.completed() == [1]);
        assert_rows(&simulation.world.log("out"), &running_counts([("a", 2), ("b", 2), ("c", 1)]));
        faults.add(When::Record("c d d d".into()), 1, FaultClass::Guest);
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_eq!(simulation.restarts(), 1);
        assert_rows(&simulation.world.log("out"), &running_counts([("a", 4), ("b", 3), ("c", 4), ("d", 4)]));
    }
}

#[test]
fn without_restarts_a_trap_fails_the_job_and_nothing_is_visible() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let faults = GuestFaults::default();
        let mut graph = word_count(&simulation, &faults);
        graph.checkpoint.interval_ms = None;
        graph.restart = RestartPolicy::None;
        faults.add(When::Record("c d d d".into()), 1, FaultClass::Guest);
        simulation.start(&graph);
        let Some(JobEnd::Failed(failure)) = simulation.run_to_end() else { panic!("the job does not fail") };
        assert!(failure.failure.cause.to_string().contains("guest-trap"), "{failure:?}");
        assert_eq!((simulation.restarts(), simulation.world.log("out")), (0, vec![]));
    }
}

#[test]
fn without_periodic_checkpoints_a_restart_begins_anew_and_output_is_exact() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let faults = GuestFaults::default();
        let mut graph = word_count(&simulation, &faults);
        graph.checkpoint.interval_ms = None;
        faults.add(When::Record("c d d d".into()), 1, FaultClass::Guest);
        simulation.start(&graph);
        finish(&mut simulation);
        assert_eq!(simulation.restarts(), 1);
        assert_rows(&simulation.world.log("out"), &running_counts([("a", 4), ("b", 3), ("c", 4), ("d", 4)]));
    }
}

/// Ten records of one key, counted by one chained task, with a trap at the eighth after a checkpoint at the fifth.
fn ten_records(seed: u64, kind: SinkKind) -> Simulation {
    let mut simulation = Simulation::new(seed);
    let world = simulation.world.clone();
    let faults = GuestFaults::default();
    let graph = Graph::every_ms(1000)
        .source("numbers", 1, SplitsSource::keyed(&world, "numbers", "k", 1..=10))
        .operator("count", 1, count(&faults), &[("numbers", 0)])
        .sink("out", 1, SimSink::new(&world, "out", kind), "count");
    assert_eq!(graph.plan().plan.tasks.len(), 1);
    simulation.checks.push(Box::new(|checkpoint, _| {
        let (count, position) = (stored_number(&checkpoint.state["count/n"]["k"]), checkpoint.positions["numbers"]);
        (count == position).then_some(()).ok_or(format!("the count is {count} at position {position}"))
    }));
    world.gate([("numbers", 5)]);
    simulation.start(&graph);
    simulation.run_until(|simulation| simulation.completed() == [1]);
    faults.add(When::Record("8".into()), 1, FaultClass::Guest);
    world.gate([("numbers", 10)]);
    finish(&mut simulation);
    assert_eq!(simulation.restarts(), 1);
    simulation
}

#[test]
fn an_appending_sink_repeats_what_came_after_the_checkpoint_with_the_same_values() {
    for seed in SEEDS {
        let rows = ten_records(seed, SinkKind::Append).world.log("out");
        let expected = [1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10].map(|n| format!("k\t{n}"));
        assert_eq!(rows, expected);
    }
}

#[test]
fn an_upserting_sink_ends_with_the_exact_value() {
    for seed in SEEDS {
        let simulation = ten_records(seed, SinkKind::Upsert);
        let state = simulation.world.state();
        let table: Vec<_> = state.tables["out"].iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(table, [("k", "10")]);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| ten_records(seed, SinkKind::Transactional).trace();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
