//! Savepoints, stops with them and drains: what they commit, what follows when they fail, and what goes on from them.

use cofferdam_dataflow::checkpoint::adopt::{AdoptError, StateName};
use cofferdam_dataflow::checkpoint::coordinator::{SavepointOrder, SavepointTarget};
use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::job::master::{JobEnd, JobEvent, JobReport};
use cofferdam_tests::simulation::{
    Graph, GuestFaults, Op, Outcome, Random, SimSink, Simulation, SinkKind, SplitsSource, When, World,
};

use super::{SEEDS, count, finish, running_counts};

const PATH: &str = "/saved/one";

fn order() -> SavepointOrder {
    SavepointOrder { request: 1, target: SavepointTarget::At(PATH.into()) }
}

/// Sixty records of one key, a running count of them, and a checkpoint a second.
fn sixty(world: &World, faults: &GuestFaults, parallelism: u32) -> Graph {
    Graph::every_ms(1000)
        .source("numbers", 1, SplitsSource::keyed(world, "numbers", "k", 1..=60))
        .operator("count", parallelism, count(faults), &[("numbers", 0)])
        .sink("out", 1, SimSink::new(world, "out", SinkKind::Transactional), "count")
}

fn rows(n: u64) -> Vec<String> {
    running_counts([("k", n)])
}

fn is_saved(simulation: &Simulation) -> bool {
    simulation.world.state().disk.savepoints.contains_key(PATH)
}

/// Runs up to a checkpoint at record 30, then on to record 40.
fn at_forty(seed: u64, faults: &GuestFaults) -> (Simulation, Graph) {
    let mut simulation = Simulation::new(seed);
    let graph = sixty(&simulation.world, faults, 1);
    simulation.world.gate([("numbers", 30)]);
    simulation.start(&graph);
    simulation.run_until(|simulation| simulation.completed() == [1]);
    assert_eq!(simulation.world.log("out"), rows(30));
    simulation.world.gate([("numbers", 40)]);
    simulation.run_until(|simulation| simulation.world.reads("numbers") == 40);
    (simulation, graph)
}

#[test]
fn a_savepoint_commits_nothing_and_a_restart_goes_back_to_the_checkpoint_before_it() {
    for seed in SEEDS {
        let faults = GuestFaults::default();
        let (mut simulation, _) = at_forty(seed, &faults);
        simulation.ask(JobEvent::SavepointRequested(order()));
        simulation.run_until(is_saved);
        assert_eq!((simulation.world.log("out"), simulation.on_disk()), (rows(30), vec![1]));
        faults.add(When::Record("45".into()), 1, FaultClass::Guest);
        simulation.world.gate([]);
        finish(&mut simulation);
        let restored = |report: &JobReport| match report {
            JobReport::Running { restored, .. } => restored.map(|id| id.0),
            _ => None,
        };
        assert_eq!((simulation.restarts(), simulation.reports().filter_map(restored).collect::<Vec<_>>()), (1, vec![1]));
        assert_eq!(simulation.world.log("out"), rows(60));
        assert!(is_saved(&simulation), "it is never deleted by the job");
    }
}

#[test]
fn a_job_that_was_stopped_with_a_savepoint_goes_on_from_it_at_any_parallelism() {
    for (seed, parallelism) in SEEDS.flat_map(|seed| [(seed, 1), (seed, 3)]) {
        let (mut simulation, _) = at_forty(seed, &GuestFaults::default());
        simulation.ask(JobEvent::StopWithSavepointRequested(order()));
        let end = simulation.run_to_end();
        assert!(matches!(end, Some(JobEnd::Stopped { checkpoint: Some(_), problem: None })), "{end:?}");
        assert_eq!(simulation.world.log("out"), rows(40));
        simulation.world.gate([]);
        let graph = sixty(&simulation.world, &GuestFaults::default(), parallelism);
        // From the savepoint or from the checkpoint of the stop, which are the same cut.
        if seed % 2 == 0 {
            simulation.adopt(&graph, PATH, &[]).unwrap();
        }
        simulation.start(&graph);
        finish(&mut simulation);
        assert_eq!(simulation.world.log("out"), rows(60));
    }
}

#[test]
fn a_drained_job_has_published_what_it_read_and_is_finished() {
    for seed in SEEDS {
        let (mut simulation, graph) = at_forty(seed, &GuestFaults::default());
        simulation.ask(JobEvent::DrainRequested { request: 1, savepoint: Some(order()) });
        finish(&mut simulation);
        assert_eq!(simulation.world.log("out"), rows(40));
        let error = simulation.adopt(&graph, PATH, &[]).unwrap_err();
        assert!(matches!(error, AdoptError::Final), "{error}");
        simulation.start(&graph);
        assert!(matches!(simulation.run_to_end(), Some(JobEnd::AlreadyFinished { .. })));
    }
}

#[test]
fn a_failure_after_the_savepoint_exists_ends_the_job_and_a_run_by_hand_publishes_the_rest() {
    for seed in SEEDS {
        let (mut simulation, graph) = at_forty(seed, &GuestFaults::default());
        simulation.world.state().scripted.push((Op::Commit, 0, Outcome::Failed));
        simulation.ask(JobEvent::StopWithSavepointRequested(order()));
        let Some(JobEnd::Failed(failure)) = simulation.run_to_end() else { panic!("the job does not fail") };
        assert!(failure.reason.contains(PATH), "{failure:?}");
        assert_eq!((simulation.restarts(), simulation.world.log("out")), (0, rows(30)));
        simulation.world.gate([]);
        if seed % 2 == 0 {
            simulation.adopt(&graph, PATH, &[]).unwrap();
        }
        simulation.start(&graph);
        finish(&mut simulation);
        assert_eq!(simulation.world.log("out"), rows(60));
    }
}

#[test]
fn a_savepoint_that_cannot_be_written_restarts_a_stopping_job_and_leaves_nothing() {
    for seed in SEEDS {
        let (mut simulation, _) = at_forty(seed, &GuestFaults::default());
        simulation.world.state().scripted.push((Op::Save, 0, Outcome::Failed));
        simulation.ask(JobEvent::StopWithSavepointRequested(order()));
        let refused = |report: &JobReport| matches!(report, JobReport::RequestFailed { request: 1, .. });
        simulation.run_until(|simulation| simulation.reports().any(refused));
        simulation.world.gate([]);
        finish(&mut simulation);
        assert_eq!((simulation.restarts(), is_saved(&simulation)), (1, false));
        assert_eq!(simulation.world.log("out"), rows(60));
    }
}

#[test]
fn two_jobs_from_one_savepoint_publish_its_output_once() {
    for seed in SEEDS {
        let (mut simulation, graph) = at_forty(seed, &GuestFaults::default());
        simulation.ask(JobEvent::SavepointRequested(order()));
        simulation.run_until(is_saved);
        let saved = simulation.world.state().disk.savepoints[PATH].clone();
        // The fork lives in a world of its own: output that the first job has prepared is not there.
        let mut fork = Simulation::new(seed + 1000);
        fork.world.state().disk.savepoints.insert(PATH.into(), saved);
        let mut other = sixty(&fork.world, &GuestFaults::default(), 2);
        other.name = "fork".into();
        assert!(matches!(fork.adopt(&other, PATH, &[]), Err(AdoptError::Unpublished { .. })));
        fork.adopt(&other, PATH, &[StateName::parse("out").unwrap()]).unwrap();
        fork.start(&other);
        finish(&mut fork);
        assert_eq!(fork.world.log("out"), rows(60)[40..]);
        simulation.kill();
        simulation.world.gate([]);
        simulation.start(&graph);
        finish(&mut simulation);
        assert_eq!(simulation.world.log("out"), rows(60));
    }
}

/// Savepoints, stops with them, kills, faults and adoptions at random: output is exact, and every savepoint can be read.
#[test]
fn savepoints_at_random_moments_change_nothing_about_the_output() {
    for seed in 0..60 {
        let mut simulation = Simulation::new(seed);
        let mut random = Random::new(seed ^ 0x5afe);
        let world = simulation.world.clone();
        let graph = |parallelism| {
            let mut graph = sixty(&world, &GuestFaults::default(), parallelism);
            graph.checkpoint.interval_ms = Some(20);
            graph
        };
        simulation.dials.delay_us = 3000;
        simulation.kill_per_100k = 30;
        simulation.world.state().fail_permille = 3;
        for process in 0..200_u64 {
            if process > 12 {
                simulation.kill_per_100k = 0;
                simulation.world.state().fail_permille = 0;
            }
            simulation.start(&graph(1 + u32::try_from(random.below(3)).unwrap()));
            let mut number = 0;
            let end = loop {
                if !simulation.is_running() {
                    break None;
                }
                if random.chance(3) && process <= 12 {
                    number += 1;
                    let target = SavepointTarget::At(format!("/saved/{process}-{number}"));
                    let order = SavepointOrder { request: number, target };
                    simulation.ask(match random.below(4) {
                        0 => JobEvent::StopWithSavepointRequested(order),
                        _ => JobEvent::SavepointRequested(order),
                    });
                }
                if let Some(end) = simulation.step() {
                    break Some(end);
                }
            };
            if matches!(end, Some(JobEnd::Finished { .. } | JobEnd::AlreadyFinished { .. })) {
                break;
            }
        }
        assert_eq!(simulation.world.log("out"), rows(60), "seed {seed}");
    }
}
