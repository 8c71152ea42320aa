//! Checkpoints from trigger to deletion: order, failures, timeouts, retention.

use cofferdam_dataflow::checkpoint::config::Cleanup;
use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::ids::{CheckpointId, TaskIndex};
use cofferdam_dataflow::job::master::JobEnd;
use cofferdam_dataflow::job::restart::RestartPolicy;
use cofferdam_tests::simulation::{
    Event, Graph, GuestFaults, Op, Outcome, SimSink, Simulation, SinkKind, SourceRecord, SplitsSource, When,
};

use super::{SEEDS, assert_rows, count, finish, running_counts};

/// Numbers under five keys, read from one split up to a gate, counted.
fn counting(simulation: &Simulation, faults: &GuestFaults, parallelism: u32) -> Graph {
    let world = &simulation.world;
    let record = |n: u32| SourceRecord { key: Some(format!("k{}", n % 5)), time: None, value: n.to_string() };
    let splits = vec![("numbers".to_owned(), (0..100).map(record).collect())];
    Graph::every_ms(1000)
        .source("numbers", 1, SplitsSource::new(world, splits, 3, 0))
        .operator("count", parallelism, count(faults), &[("numbers", 0)])
        .sink("out", 1, SimSink::new(world, "out", SinkKind::Transactional), "count")
}

fn rows(records: u64) -> Vec<String> {
    running_counts(["k0", "k1", "k2", "k3", "k4"].into_iter().zip((0..5).map(|key| (records + 4 - key) / 5)))
}

/// Lets records pass and waits for so many checkpoints to have completed or failed.
fn next_checkpoint(simulation: &mut Simulation, records: usize, settled: usize) {
    simulation.world.gate([("numbers", records)]);
    simulation.run_until(|simulation| simulation.completed().len() + simulation.failed().len() == settled);
}

#[test]
fn a_checkpoint_goes_from_trigger_to_notice_in_its_order() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let world = simulation.world.clone();
        let record = |n: u32| SourceRecord { key: Some(format!("k{}", n % 5)), time: None, value: n.to_string() };
        let splits = ["x", "y"].map(|split| (split.to_owned(), (0..50).map(record).collect()));
        let graph = Graph::every_ms(1000)
            .source("numbers", 2, SplitsSource::new(&world, splits.to_vec(), 3, 0))
            .operator("count", 2, count(&GuestFaults::default()), &[("numbers", 0)])
            .sink("out", 1, SimSink::new(&world, "out", SinkKind::Transactional), "count");
        assert_eq!(graph.plan().plan.tasks.len(), 5);
        simulation.start(&graph);
        for settled in 1..=4 {
            if settled == 3 {
                world.state().scripted.push((Op::SyncSegment, 0, Outcome::Failed));
            }
            world.gate([("x", settled * 10), ("y", settled * 10)]);
            simulation.run_until(|simulation| simulation.completed().len() + simulation.failed().len() == settled);
        }
        simulation.run_for_ms(500);
        assert_eq!(simulation.completed(), [1, 2, 4]);
        assert_eq!(simulation.failed().len(), 1);
        assert_order(&simulation.events);
        assert_eq!(simulation.checkpoint(CheckpointId(4)).unwrap().manifest.subtasks.len(), 5);
        world.gate([]);
        finish(&mut simulation);
        assert_eq!(simulation.restarts(), 0);
    }
}

fn assert_order(events: &[Event]) {
    let places = |wanted: &Event| -> Vec<usize> {
        events.iter().enumerate().filter(|(_, event)| *event == wanted).map(|(place, _)| place).collect()
    };
    let once = |wanted: Event| match places(&wanted)[..] {
        [place] => place,
        ref places => panic!("{wanted:?} happens at {places:?}"),
    };
    let tasks = || (0..5).map(TaskIndex);
    for id in [1, 2, 4].map(CheckpointId) {
        let triggered = once(Event::Triggered(id));
        let cuts: Vec<_> = tasks().map(|task| once(Event::Cut(id, task))).collect();
        assert!(triggered < cuts[0].min(cuts[1]), "a source cuts when it is told");
        assert!(cuts[0].max(cuts[1]) < cuts[2].min(cuts[3]), "an operator cuts when all its inputs have");
        assert!(cuts[2].max(cuts[3]) < cuts[4], "a sink cuts when all its inputs have");
        let published = once(Event::Published(id));
        for task in tasks() {
            let acknowledged = once(Event::Acknowledged(id, task));
            assert!(cuts[task.0] < acknowledged && acknowledged < published);
            assert!(published < once(Event::Completed(id, task)));
            assert!(places(&Event::Aborted(id, task)).is_empty());
        }
    }
    for task in tasks() {
        once(Event::Aborted(CheckpointId(3), task));
        assert!(places(&Event::Completed(CheckpointId(3), task)).is_empty());
    }
    assert!(places(&Event::Published(CheckpointId(3))).is_empty());
}

#[test]
fn a_checkpoint_that_takes_too_long_is_given_up_and_its_late_files_are_removed() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let mut graph = counting(&simulation, &GuestFaults::default(), 2);
        (graph.checkpoint.timeout_ms, graph.checkpoint.retained) = (1000, 1);
        // The first of the two counts.
        simulation.dials.frozen_writers.insert(1, 4_000_000);
        simulation.world.gate([("numbers", 20)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| !simulation.failed().is_empty());
        assert!((2000..2500).contains(&simulation.now_ms()), "{}", simulation.now_ms());
        assert!(simulation.failed()[0].1.contains("expired after 1000 ms"), "{:?}", simulation.failed());
        simulation.run_until(|simulation| !simulation.completed().is_empty());
        simulation.run_for_ms(300);
        let late = Event::Acknowledged(CheckpointId(1), TaskIndex(1));
        assert!(simulation.events.contains(&late), "it arrives");
        assert!(simulation.events.contains(&Event::Aborted(CheckpointId(1), TaskIndex(0))));
        simulation.assert_no_orphans();
        assert_eq!(simulation.on_disk()[..], simulation.completed()[simulation.completed().len() - 1..]);
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_rows(&simulation.world.log("out"), &rows(100));
    }
}

#[test]
fn no_more_checkpoints_are_in_flight_than_allowed() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let mut graph = counting(&simulation, &GuestFaults::default(), 1);
        (graph.checkpoint.interval_ms, graph.checkpoint.max_concurrent) = (Some(100), 2);
        simulation.dials.frozen_writers.insert(0, 2_000_000);
        simulation.world.gate([("numbers", 20)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.now_ms() > 1000);
        let triggered =
            |simulation: &Simulation| simulation.events.iter().filter(|event| matches!(event, Event::Triggered(_))).count();
        assert_eq!(triggered(&simulation), 2);
        simulation.run_until(|simulation| simulation.completed().starts_with(&[1, 2]));
        assert_rows(&simulation.world.log("out"), &rows(20));
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_rows(&simulation.world.log("out"), &rows(100));
    }
}

/// The part of one task is written only after all of the next checkpoint is.
#[test]
fn a_checkpoint_that_completes_first_subsumes_the_older_one() {
    let late = (CheckpointId(1), TaskIndex(1));
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let mut graph = counting(&simulation, &GuestFaults::default(), 2);
        (graph.checkpoint.max_concurrent, graph.checkpoint.tolerable_failures) = (2, 0);
        simulation.dials.late_snapshots.insert(late, 6_500_000);
        simulation.world.gate([("numbers", 10)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.events.contains(&Event::Cut(CheckpointId(1), TaskIndex(3))));
        simulation.world.gate([("numbers", 20)]);
        simulation.run_until(|simulation| !simulation.completed().is_empty());
        assert_eq!(simulation.completed(), [2]);
        let failed = simulation.failed();
        assert_eq!((failed.len(), failed[0].0), (1, 1));
        assert!(failed[0].1.contains("checkpoint 2 completed before it"), "{failed:?}");
        assert_rows(&simulation.world.log("out"), &rows(20));
        simulation.run_for_ms(500);
        let segments_of_1 = |simulation: &Simulation| {
            let state = simulation.world.state();
            state.disk.segments.keys().filter(|id| id.checkpoint == CheckpointId(1)).count()
        };
        assert_eq!(segments_of_1(&simulation), 1, "only what is not known to be written remains");
        simulation.run_until(|simulation| simulation.events.contains(&Event::Acknowledged(late.0, late.1)));
        simulation.run_for_ms(300);
        assert_eq!(segments_of_1(&simulation), 0, "what comes too late goes");
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_rows(&simulation.world.log("out"), &rows(100));
        assert_eq!(simulation.restarts(), 0, "subsumed is not failed");
    }
}

#[test]
fn of_checkpoints_that_wait_for_a_slow_storage_only_the_newest_is_published() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let mut graph = counting(&simulation, &GuestFaults::default(), 2);
        (graph.checkpoint.max_concurrent, graph.checkpoint.tolerable_failures) = (3, 0);
        simulation.world.gate([("numbers", 10)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.events.contains(&Event::Cut(CheckpointId(1), TaskIndex(3))));
        simulation.dials.frozen_io_us = 3_800_000;
        for checkpoint in [2, 3] {
            simulation.world.gate([("numbers", 10 * checkpoint)]);
            let last = CheckpointId(checkpoint as u64);
            simulation.run_until(|simulation| simulation.events.contains(&Event::Cut(last, TaskIndex(3))));
        }
        simulation.run_until(|simulation| simulation.completed().len() == 2);
        assert_eq!(simulation.completed(), [1, 3]);
        assert_eq!(simulation.failed().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2]);
        assert_rows(&simulation.world.log("out"), &rows(30));
        simulation.run_for_ms(300);
        simulation.assert_no_orphans();
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_rows(&simulation.world.log("out"), &rows(100));
        assert_eq!(simulation.restarts(), 0);
    }
}

#[test]
fn only_failures_in_a_row_beyond_the_tolerable_number_restart_the_job() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let mut graph = counting(&simulation, &GuestFaults::default(), 1);
        graph.checkpoint.tolerable_failures = 2;
        simulation.start(&graph);
        for (checkpoint, fails) in [true, true, false, true, true, true].into_iter().enumerate() {
            assert_eq!(simulation.restarts(), 0, "before checkpoint {}", checkpoint + 1);
            if fails {
                simulation.world.state().scripted.push((Op::SyncSegment, 0, Outcome::Failed));
            }
            next_checkpoint(&mut simulation, 10 * (checkpoint + 1), checkpoint + 1);
        }
        simulation.run_for_ms(100);
        assert_eq!((simulation.restarts(), simulation.completed()), (1, vec![3]));
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_rows(&simulation.world.log("out"), &rows(100));
    }
}

#[test]
fn output_of_failed_checkpoints_is_committed_with_the_next_that_completes() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let mut graph = counting(&simulation, &GuestFaults::default(), 2);
        graph.checkpoint.tolerable_failures = 2;
        simulation.start(&graph);
        simulation.world.state().scripted.push((Op::Publish, 0, Outcome::Failed));
        next_checkpoint(&mut simulation, 10, 1);
        simulation.world.state().scripted.push((Op::SyncSegment, 1, Outcome::Failed));
        next_checkpoint(&mut simulation, 20, 2);
        assert_eq!((simulation.failed().len(), simulation.world.log("out")), (2, vec![]));
        next_checkpoint(&mut simulation, 30, 3);
        simulation.run_for_ms(300);
        assert_rows(&simulation.world.log("out"), &rows(30));
        for task in (0..4).map(TaskIndex) {
            let times = |wanted: Event| simulation.events.iter().filter(|event| **event == wanted).count();
            let aborted = |id| times(Event::Aborted(CheckpointId(id), task));
            let completed = |id| times(Event::Completed(CheckpointId(id), task));
            assert_eq!([1, 2, 3].map(aborted), [1, 1, 0], "task {task}");
            assert_eq!([1, 2, 3].map(completed), [0, 0, 1], "task {task}");
        }
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_eq!(simulation.restarts(), 0);
    }
}

#[test]
fn what_is_kept_depends_on_how_the_job_ends() {
    for (seed, cleanup) in SEEDS.flat_map(|seed| [Cleanup::Always, Cleanup::OnCancel, Cleanup::Never].map(|c| (seed, c))) {
        for fails in [false, true] {
            let mut simulation = Simulation::new(seed);
            let faults = GuestFaults::default();
            let mut graph = counting(&simulation, &faults, 2);
            (graph.checkpoint.retained, graph.checkpoint.cleanup, graph.restart) = (2, cleanup, RestartPolicy::None);
            simulation.start(&graph);
            for checkpoint in 1..=5 {
                next_checkpoint(&mut simulation, 10 * checkpoint, checkpoint);
            }
            simulation.run_for_ms(100);
            assert_eq!(simulation.on_disk(), [4, 5]);
            if fails {
                faults.add(When::Call(0), 1, FaultClass::Guest);
                simulation.world.gate([]);
            } else {
                simulation.cancel();
            }
            let end = simulation.run_to_end();
            assert!(
                matches!((&end, fails), (Some(JobEnd::Failed(_)), true) | (Some(JobEnd::Cancelled { .. }), false)),
                "{end:?}"
            );
            let kept = cleanup == Cleanup::Never || (cleanup == Cleanup::OnCancel && fails);
            assert_eq!(simulation.on_disk(), if kept { vec![4, 5] } else { vec![] });
            if kept {
                // It goes on exactly, at another parallelism.
                simulation.world.gate([]);
                simulation.start(&counting(&simulation, &faults, 3));
                finish(&mut simulation);
                assert_rows(&simulation.world.log("out"), &rows(100));
            }
        }
    }
}
