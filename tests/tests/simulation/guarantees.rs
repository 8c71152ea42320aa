//! What each kind of sink sees of a job that fails and goes on.

use std::collections::BTreeMap;

use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::job::master::{JobEnd, JobReport};
use cofferdam_dataflow::job::restart::RestartPolicy;
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{Graph, GuestFaults, Merge, SimSink, Simulation, SinkKind, SplitsSource, When, stored_number};

use super::{SEEDS, assert_rows, count, finish, running_counts, split};

const LINES: [&str; 5] = ["a b a", "b c", "a c c", "d a b", "c d d d"];

fn word_count(simulation: &Simulation, faults: &GuestFaults) -> Graph {
    counted(simulation, faults, SplitsSource::lines(&simulation.world, "lines", LINES), SinkKind::Transactional)
}

fn counted(simulation: &Simulation, faults: &GuestFaults, lines: SplitsSource, kind: SinkKind) -> Graph {
    Graph::every_ms(1000)
        .source("lines", 1, lines)
        .operator("split", 1, split(faults), &[("lines", 0)])
        .operator("count", 1, count(&GuestFaults::default()), &[("split", 0)])
        .sink("out", 1, SimSink::new(&simulation.world, "out", kind), "count")
}

/// The rows of the words of these lines, counted one after the other on top of what has been counted before.
fn rows_of(lines: &[&str], counts: &mut BTreeMap<String, u64>) -> Vec<String> {
    let mut row = |word: &str| {
        let count = counts.entry(word.to_owned()).or_default();
        *count += 1;
        format!("{word}\t{count}")
    };
    lines.iter().flat_map(|line| line.split(' ')).map(&mut row).collect()
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

#[test]
fn a_source_that_begins_at_the_live_end_misses_what_came_before_a_restart() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let lines = SplitsSource::lines(&simulation.world, "lines", LINES).from_live_end();
        let mut graph = counted(&simulation, &GuestFaults::default(), lines, SinkKind::Transactional);
        graph.checkpoint.interval_ms = None;
        simulation.world.gate([("lines", 0)]);
        simulation.start(&graph);
        simulation.run_for_ms(500);
        simulation.world.gate([("lines", 4)]);
        simulation.run_until(|simulation| simulation.world.reads("lines") == 4);
        simulation.kill();
        simulation.start(&graph);
        simulation.run_for_ms(500);
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_rows(&simulation.world.log("out"), &running_counts([("c", 1), ("d", 3)]));
    }
}

/// There is one channel, so that state could not be inexact even if barriers did not block; what the sink shows at once
/// is shown again.
#[test]
fn output_that_is_visible_at_once_is_repeated_while_state_stays_exact() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let faults = GuestFaults::default();
        let lines = SplitsSource::lines(&simulation.world, "lines", LINES);
        let graph = counted(&simulation, &faults, lines, SinkKind::Append);
        simulation.world.gate([("lines", 2)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.completed() == [1]);
        faults.add(When::Record("c d d d".into()), 1, FaultClass::Guest);
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_eq!(simulation.restarts(), 1);
        let mut counts = BTreeMap::new();
        let mut expected = rows_of(&LINES[..2], &mut counts);
        expected.extend(rows_of(&LINES[2..4], &mut counts.clone()));
        expected.extend(rows_of(&LINES[2..], &mut counts));
        assert_eq!(simulation.world.log("out"), expected);
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [4, 3, 4, 4]);
    }
}

#[test]
fn what_arrives_on_an_aligned_channel_waits_for_the_other_barrier() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.dials.channel_bytes = 1 << 20;
        let world = simulation.world.clone();
        let graph = Graph::every_ms(1000)
            .source("a", 1, SplitsSource::keyed(&world, "a", "k", [1; 4]))
            .source("b", 1, SplitsSource::keyed(&world, "b", "k", [1; 2]))
            .operator("merge", 1, NativeFactory::<Merge>::new("{}"), &[("a", 0), ("b", 1)])
            .sink("out", 1, SimSink::new(&world, "out", SinkKind::Transactional), "merge");
        world.gate([("a", 2), ("b", 2)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.now_ms() > 500);
        // The barrier of b stays in its source while a goes on.
        simulation.dials.frozen_tasks.insert(1, u64::MAX);
        simulation.run_until(|simulation| simulation.now_ms() > 1500);
        world.gate([("a", 4), ("b", 2)]);
        simulation.run_until(|simulation| simulation.now_ms() > 1700);
        assert_eq!(world.reads("a"), 4, "the records that must wait have been read");
        simulation.dials.frozen_tasks.clear();
        simulation.run_until(|simulation| simulation.completed() == [1]);
        let checkpoint = simulation.checkpoint(CheckpointId(1)).unwrap();
        assert_eq!(stored_number(&checkpoint.state["merge/total"]["k"]), 4);
        assert_eq!([checkpoint.positions["a"], checkpoint.positions["b"]], [2, 2]);
        let aligned = |report: &JobReport| matches!(report, JobReport::CheckpointCompleted { alignment_us_max: 1.., .. });
        assert!(simulation.reports().any(aligned));
        world.gate([]);
        simulation.start(&graph);
        finish(&mut simulation);
        let rows: Vec<_> = (1..=6).map(|n| format!("k={n}")).collect();
        assert_eq!(world.log("out"), rows);
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
    world.gate([]);
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
fn a_transactional_sink_shows_exactly_what_completed_checkpoints_cover() {
    for (seed, trap) in SEEDS.flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut simulation = Simulation::new(seed);
        let world = simulation.world.clone();
        let faults = GuestFaults::default();
        let graph = Graph::every_ms(1000)
            .source("numbers", 1, SplitsSource::keyed(&world, "numbers", "k", 1..=10))
            .operator("count", 1, count(&faults), &[("numbers", 0)])
            .sink("out", 1, SimSink::new(&world, "out", SinkKind::Transactional), "count");
        let rows = |n| running_counts([("k", n)]);
        world.gate([("numbers", 5)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.now_ms() > 900);
        assert_eq!((world.reads("numbers"), world.log("out")), (5, vec![]));
        simulation.run_until(|simulation| simulation.completed() == [1]);
        assert_eq!(world.log("out"), rows(5));
        if trap {
            faults.add(When::Record("7".into()), 1, FaultClass::Guest);
        }
        world.gate([("numbers", 8)]);
        let completed_at = simulation.now_ms();
        simulation.run_until(|simulation| simulation.now_ms() > completed_at + 600);
        assert_eq!(world.reads("numbers"), if trap { 10 } else { 8 });
        assert_eq!(world.log("out"), rows(5), "what is not covered by a checkpoint is not visible");
        simulation.run_until(|simulation| simulation.completed().len() == 2);
        assert_eq!(world.log("out"), rows(8));
        world.gate([]);
        finish(&mut simulation);
        assert_eq!(world.log("out"), rows(10));
        assert_eq!(simulation.restarts(), usize::from(trap));
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| ten_records(seed, SinkKind::Transactional).trace();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
