//! Restart strategies, stops, ends of input and damaged checkpoints.

use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::job::master::JobEnd;
use cofferdam_dataflow::job::restart::RestartPolicy;
use cofferdam_tests::simulation::{Graph, GuestFaults, Random, SimSink, Simulation, SinkKind, SplitsSource, StartOptions, When};

use super::{SEEDS, assert_rows, count, finish, running_counts};

fn ten(simulation: &Simulation, faults: &GuestFaults, kind: SinkKind) -> Graph {
    Graph::every_ms(1000)
        .source("numbers", 1, SplitsSource::keyed(&simulation.world, "numbers", "k", 1..=10))
        .operator("count", 1, count(faults), &[("numbers", 0)])
        .sink("out", 1, SimSink::new(&simulation.world, "out", kind), "count")
}

#[test]
fn a_fixed_delay_ends_the_job_after_its_restarts() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let faults = GuestFaults::default();
        let mut graph = ten(&simulation, &faults, SinkKind::Transactional);
        graph.restart = RestartPolicy::FixedDelay { restarts: 3, delay_ms: 10_000 };
        faults.add(When::Record("3".into()), 4, FaultClass::Infrastructure);
        simulation.start(&graph);
        let Some(JobEnd::Failed(failure)) = simulation.run_to_end() else { panic!("the job does not fail") };
        assert_eq!((simulation.restarts(), failure.reason.as_str()), (3, "it has been restarted 3 times"));
        assert!((30_000..33_000).contains(&simulation.now_ms()), "{} ms", simulation.now_ms());
        assert_eq!(simulation.world.log("out"), [""; 0]);
    }
}

#[test]
fn a_record_that_no_restart_gets_past_ends_the_job() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let faults = GuestFaults::default();
        let graph = ten(&simulation, &faults, SinkKind::Transactional);
        faults.add(When::Record("3".into()), u32::MAX, FaultClass::Guest);
        simulation.start(&graph);
        let Some(JobEnd::Failed(failure)) = simulation.run_to_end() else { panic!("the job does not fail") };
        assert!(failure.reason.contains("3 times at the same position"), "{failure:?}");
        assert_eq!(simulation.restarts(), 2);
    }
}

#[test]
fn cancelling_during_the_wait_for_a_restart_ends_the_job_at_once() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let faults = GuestFaults::default();
        let mut graph = ten(&simulation, &faults, SinkKind::Transactional);
        graph.restart = RestartPolicy::FixedDelay { restarts: 3, delay_ms: 100_000 };
        faults.add(When::Record("3".into()), 1, FaultClass::Infrastructure);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.restarts() == 1);
        simulation.run_for_ms(1000);
        simulation.cancel();
        assert_eq!(simulation.run_to_end(), Some(JobEnd::Cancelled { checkpoint: None }));
        assert!(simulation.now_ms() < 3000);
    }
}

#[test]
fn a_stopped_job_goes_on_without_repeating_a_record() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let world = simulation.world.clone();
        let graph = ten(&simulation, &GuestFaults::default(), SinkKind::Append);
        world.gate([("numbers", 6)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| simulation.world.reads("numbers") == 4);
        simulation.stop();
        world.gate([]);
        let end = simulation.run_to_end();
        assert!(matches!(end, Some(JobEnd::Stopped { checkpoint: Some(_), problem: None })), "{end:?}");
        assert!(world.reads("numbers") < 10, "it stops before its end");
        simulation.start(&graph);
        finish(&mut simulation);
        assert_eq!((world.reads("numbers"), world.log("out")), (10, running_counts([("k", 10)])));
    }
}

/// Two pipelines in one job, without periodic checkpoints.
fn two_pipelines(simulation: &Simulation, faults: &GuestFaults, kind: SinkKind) -> Graph {
    let world = &simulation.world;
    let mut graph = Graph::default();
    graph.checkpoint.interval_ms = None;
    graph
        .source("short", 1, SplitsSource::keyed(world, "short", "s", 1..=20))
        .source("long", 1, SplitsSource::keyed(world, "long", "l", 1..=100))
        .operator("count-short", 1, count(&GuestFaults::default()), &[("short", 0)])
        .operator("count-long", 1, count(faults), &[("long", 0)])
        .sink("out-short", 1, SimSink::new(world, "out-short", kind), "count-short")
        .sink("out-long", 1, SimSink::new(world, "out-long", kind), "count-long")
}

#[test]
fn a_job_finishes_when_the_output_of_all_its_inputs_is_committed() {
    for (seed, kind) in SEEDS.flat_map(|seed| [(seed, SinkKind::Transactional), (seed, SinkKind::Append)]) {
        let mut simulation = Simulation::new(seed);
        let world = simulation.world.clone();
        let faults = GuestFaults::default();
        let graph = two_pipelines(&simulation, &faults, kind);
        world.gate([("long", 50)]);
        simulation.start(&graph);
        simulation.run_until(|simulation| {
            let ended = |event: &cofferdam_tests::simulation::Event| format!("{event:?}").contains("Cut");
            assert!(!simulation.events.iter().any(ended), "no checkpoint is due");
            simulation.now_ms() > 2000
        });
        assert_eq!([world.reads("short"), world.reads("long")], [20, 50]);
        if kind == SinkKind::Transactional {
            assert_eq!(world.log("out-short"), [""; 0], "not visible before its checkpoint");
        }
        faults.add(When::Record("60".into()), 1, FaultClass::Infrastructure);
        world.gate([]);
        finish(&mut simulation);
        assert_eq!(simulation.restarts(), 1);
        if kind == SinkKind::Transactional {
            assert_eq!(world.log("out-short"), running_counts([("s", 20)]));
            assert_eq!(world.log("out-long"), running_counts([("l", 100)]));
        } else {
            assert_eq!(world.log("out-short").len(), 40, "all of it again, for there was no checkpoint");
            assert_eq!(world.log("out-long").len(), 59 + 100);
        }
    }
}

#[test]
fn an_input_may_end_while_other_tasks_are_still_being_built() {
    for seed in SEEDS {
        let mut simulation = Simulation::new(seed);
        let graph = two_pipelines(&simulation, &GuestFaults::default(), SinkKind::Transactional);
        simulation.dials.frozen_tasks.insert(1, 1_000_000);
        simulation.start(&graph);
        finish(&mut simulation);
        assert!(simulation.now_ms() < 2000);
        assert_eq!(simulation.world.log("out-short"), running_counts([("s", 20)]));
    }
}

#[test]
fn a_damaged_checkpoint_is_never_restored_and_never_skipped_unasked() {
    for (seed, segment) in (0..40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut random = Random::new(seed);
        let mut simulation = Simulation::new(seed);
        let world = simulation.world.clone();
        let graph = ten(&simulation, &GuestFaults::default(), SinkKind::Transactional);
        for checkpoint in [1, 2] {
            world.gate([("numbers", checkpoint * 4)]);
            if checkpoint == 1 {
                simulation.start(&graph);
            }
            simulation.run_until(|simulation| simulation.completed().len() == checkpoint);
        }
        simulation.kill();
        {
            let mut state = world.state();
            state.damaged = true;
            let disk = &mut state.disk;
            let mut bytes = match disk.segments.last_entry() {
                Some(entry) if segment => entry.get().to_vec(),
                _ => disk.manifests[&CheckpointId(2)].clone(),
            };
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.below(8);
            match disk.segments.last_entry() {
                Some(mut entry) if segment => drop(entry.insert(bytes.into())),
                _ => drop(disk.manifests.insert(CheckpointId(2), bytes)),
            }
        }
        world.gate([]);
        simulation.start(&graph);
        let Some(JobEnd::Failed(failure)) = simulation.run_to_end() else { panic!("the job runs on damaged state") };
        assert!(failure.failure.cause.to_string().contains("restore-damaged"), "{failure:?}");
        assert_rows(&world.log("out"), &running_counts([("k", 8)]));
        simulation.start_with(&graph, StartOptions { allow_rewind: true, ..StartOptions::default() });
        let end = simulation.run_to_end();
        assert!(matches!(end, Some(JobEnd::Finished { .. })), "{end:?}");
        let rewound = (1..=8).chain(5..=10).map(|n| format!("k\t{n}")).collect::<Vec<_>>();
        assert_eq!(world.log("out"), rewound, "output since the checkpoint before is repeated, with the same values");
    }
}
