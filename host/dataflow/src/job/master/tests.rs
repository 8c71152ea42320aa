//! Whole jobs in virtual time.

use proptest::prelude::*;

use super::world::{Disk, Killed, RECORDS, Trouble, World, setup, trap};
use super::*;
use crate::checkpoint::config::CheckpointConfig;
use crate::checkpoint::coordinator::tests::{TASKS, at};
use crate::checkpoint::coordinator::{SavepointOrder, SavepointTarget};
use crate::checkpoint::manifest::CheckpointManifest;
use crate::checkpoint::recovery::{Claim, recover};
use crate::checkpoint::storage::{CheckpointStorage, Fence, SnapshotSource, StorageError, StorageErrorKind};
use crate::job::restart::RestartPolicy;
use crate::time::MonotonicTime;

const FOREVER: usize = usize::MAX;

fn all() -> Vec<u64> {
    (0..RECORDS).collect()
}

fn run(troubles: &[Trouble]) -> World {
    let mut world = World::new(Disk::default(), setup(), FOREVER);
    world.troubles = troubles.to_vec();
    world.run().unwrap();
    world
}

fn nothing_is_left(disk: &Disk) {
    assert_eq!(disk.committed, all(), "each record once and in order");
    assert_eq!(disk.storage.manifests().unwrap(), []);
    assert_eq!(disk.storage.segments().unwrap(), []);
    assert!(disk.storage.finished().unwrap().is_some());
}

#[test]
fn a_job_runs_to_its_end_and_leaves_only_its_mark() {
    let world = run(&[]);
    assert_eq!(
        world.log,
        [
            "running 1 from nothing",
            "completed 1 (Periodic)",
            "completed 2 (Periodic)",
            "completed 3 (Periodic)",
            "completed 4 (Final)",
            "cancel 1",
        ]
    );
    assert_eq!(world.end, Some(JobEnd::Finished { checkpoint: CheckpointId(4) }));
    nothing_is_left(&world.disk);
    let mut again = World::new(world.disk, setup(), FOREVER);
    again.run().unwrap();
    assert_eq!(again.end, Some(JobEnd::AlreadyFinished { checkpoint: CheckpointId(4) }));
    assert_eq!(again.disk.committed, all());
    let mut fresh = World::new(again.disk, JobSetup { fresh: true, ..setup() }, FOREVER);
    fresh.run().unwrap();
    assert_eq!(fresh.end, Some(JobEnd::Finished { checkpoint: CheckpointId(8) }), "ids go on");
}

#[test]
fn tasks_that_end_before_the_last_one_has_started_end_the_job() {
    // Without periodic checkpoints, a stop after the last record leaves nothing but the final one to take.
    let off = || JobSetup { checkpoints: CheckpointConfig { interval_ms: None, ..setup().checkpoints }, ..setup() };
    let mut world = World::new(Disk::default(), off(), FOREVER);
    world.send(JobEvent::Start).unwrap();
    while world.position < RECORDS {
        world.go_on().unwrap();
    }
    world.send(JobEvent::StopRequested).unwrap();
    assert_eq!(world.end, Some(JobEnd::Stopped { checkpoint: Some(CheckpointId(1)), problem: None }));
    let mut world = World::new(world.disk, off(), FOREVER);
    world.run().unwrap();
    assert_eq!(world.end, Some(JobEnd::Finished { checkpoint: CheckpointId(2) }));
    nothing_is_left(&world.disk);
}

#[test]
fn output_is_visible_only_once_its_checkpoint_is_complete() {
    let mut world = World::new(Disk::default(), setup(), FOREVER);
    world.send(JobEvent::Start).unwrap();
    let mut visible = Vec::new();
    for _ in 0..8 {
        world.go_on().unwrap();
        visible.push((world.position, world.disk.committed.len()));
    }
    assert_eq!(visible, [(1, 0), (2, 0), (3, 3), (4, 3), (5, 3), (6, 6), (7, 6), (8, 6)]);
}

#[test]
fn every_trouble_is_survived_exactly_once() {
    for trouble in [
        Trouble::Trap(0),
        Trouble::Trap(4),
        Trouble::Trap(9),
        Trouble::PublishFull,
        Trouble::PublishUnknown,
        Trouble::CommitLate,
        Trouble::CommitFails,
        Trouble::Decline,
    ] {
        let world = run(&[trouble]);
        assert!(matches!(world.end, Some(JobEnd::Finished { .. })), "{trouble:?}: {:?}", world.end);
        nothing_is_left(&world.disk);
    }
}

#[test]
fn a_restart_goes_on_from_the_last_completed_checkpoint() {
    let world = run(&[Trouble::Trap(4)]);
    assert_eq!(
        world.log[..5],
        ["running 1 from nothing", "completed 1 (Periodic)", "restart in 0: guest-trap", "cancel 1", "running 2 from 1"]
    );
}

#[test]
fn a_failed_commit_restarts_the_job_and_is_repeated() {
    let world = run(&[Trouble::CommitFails]);
    assert_eq!(world.log[1..4], ["restart in 0: io", "cancel 1", "running 2 from 1"]);
}

#[test]
fn the_same_fault_three_times_without_a_checkpoint_fails_the_job() {
    let world = run(&[Trouble::Trap(4); 3]);
    let Some(JobEnd::Failed(failed)) = &world.end else { panic!("{:?}", world.end) };
    assert_eq!(failed.reason, "it has failed 3 times at the same position without a checkpoint in between");
    assert_eq!(failed.failure, trap(4));
    assert_eq!(world.disk.committed, [0, 1, 2]);
    assert_eq!(world.disk.storage.manifests().unwrap(), [CheckpointId(1)], "checkpoints are kept on failure");
    // Another position, or a checkpoint in between, starts the count anew.
    let world = run(&[Trouble::Trap(4), Trouble::Trap(4), Trouble::Trap(5), Trouble::Trap(7), Trouble::Trap(7)]);
    assert!(matches!(world.end, Some(JobEnd::Finished { .. })), "{:?}", world.end);
}

#[test]
fn a_failure_that_a_restart_cannot_mend_is_not_retried() {
    let mut world = World::new(Disk::default(), setup(), FOREVER);
    world.send(JobEvent::Start).unwrap();
    let cause = FailureCause::Connector { code: "record-malformed", message: "line 3".into(), transient: false };
    world.send(JobEvent::Failed { attempt: Attempt(1), failure: Failure::of_job(cause) }).unwrap();
    let Some(JobEnd::Failed(failed)) = &world.end else { panic!() };
    assert_eq!((failed.attempt, failed.reason.as_str()), (Some(Attempt(1)), "a restart cannot mend it"));
}

#[test]
fn five_tasks_that_die_of_one_cause_are_one_failure() {
    let mut master = JobMaster::new(JobSetup { restart: RestartPolicy::FixedDelay { restarts: 1, delay_ms: 10_000 }, ..setup() });
    let mut send = |event| master.handle(event, at(0));
    send(JobEvent::Start);
    let storage = &Disk::default().storage;
    let recovery = recover(storage, RecoverOptions::default(), &mut Claim::default()).unwrap();
    send(JobEvent::Recovered(Box::new(recovery)));
    send(JobEvent::SinksSettled);
    let mut restarts = 0;
    for position in 0..5 {
        let commands = send(JobEvent::Failed { attempt: Attempt(1), failure: trap(position) });
        let is_restart = |command: &JobCommand| matches!(command, JobCommand::Report(JobReport::Restarting { .. }));
        restarts += commands.iter().filter(|command| is_restart(command)).count();
    }
    assert_eq!(restarts, 1);
    let commands = send(JobEvent::TasksStopped { attempt: Attempt(1) });
    assert_eq!(commands, [JobCommand::ScheduleTick { at: MonotonicTime(10_000) }]);
    let commands = send(JobEvent::CancelRequested);
    assert_eq!(commands, [JobCommand::End(JobEnd::Cancelled { checkpoint: None })], "cancel wins over the wait, at once");
}

#[test]
fn no_attempt_begins_while_the_storage_has_yet_to_answer() {
    let disk = Disk::default();
    let mut world = World::new(disk, setup(), FOREVER);
    world.send(JobEvent::Start).unwrap();
    (0..2).for_each(|_| world.go_on().unwrap());
    // Takes over from the world in the middle of a checkpoint.
    let mut master = world.master;
    let now = at(1200);
    let mut manifest = None;
    for task in TASKS {
        let id = crate::checkpoint::coordinator::tests::id(1, 1, task);
        master.handle(JobEvent::Tick, now);
        let snapshot = crate::checkpoint::coordinator::tests::snapshot(id, false);
        master.handle(JobEvent::SnapshotTaken(snapshot), now);
        let segment = crate::checkpoint::coordinator::tests::segment(id);
        manifest =
            manifest.or(master.handle(JobEvent::Acknowledged { id, segment }, now).into_iter().find_map(
                |command| match command {
                    JobCommand::Checkpoint(CheckpointCommand::PublishManifest { bytes, .. }) => Some(bytes),
                    _ => None,
                },
            ));
    }
    assert_eq!(CheckpointManifest::decode(&manifest.unwrap()).unwrap().checkpoint, CheckpointId(1));
    master.handle(JobEvent::Failed { attempt: Attempt(1), failure: trap(2) }, now);
    assert_eq!(master.handle(JobEvent::TasksStopped { attempt: Attempt(1) }, now), []);
    let commands = master.handle(JobEvent::ManifestPublished { checkpoint: CheckpointId(1) }, now);
    assert!(matches!(commands[..], [JobCommand::Recover(RecoverOptions { verify: false, .. })]), "{commands:?}");
}

#[test]
fn a_stop_takes_a_checkpoint_after_which_nothing_is_read() {
    let mut world = World::new(Disk::default(), setup(), FOREVER);
    world.send(JobEvent::Start).unwrap();
    (0..4).for_each(|_| world.go_on().unwrap());
    world.send(JobEvent::StopRequested).unwrap();
    assert_eq!(world.end, Some(JobEnd::Stopped { checkpoint: Some(CheckpointId(2)), problem: None }));
    assert_eq!(world.disk.committed, [0, 1, 2, 3]);
    let mut again = World::new(world.disk, setup(), FOREVER);
    again.run().unwrap();
    assert_eq!(again.log[0], "running 2 from 2");
    nothing_is_left(&again.disk);
}

#[test]
fn a_failed_stop_checkpoint_is_taken_once_more() {
    for (troubles, expected) in [(1, Some(CheckpointId(3))), (2, Some(CheckpointId(1)))] {
        let mut world = World::new(Disk::default(), setup(), FOREVER);
        world.send(JobEvent::Start).unwrap();
        (0..4).for_each(|_| world.go_on().unwrap());
        world.troubles = vec![Trouble::PublishFull; troubles];
        world.send(JobEvent::StopRequested).unwrap();
        let Some(JobEnd::Stopped { checkpoint, problem }) = &world.end else { panic!("{:?}", world.end) };
        assert_eq!((*checkpoint, problem.is_some()), (expected, troubles == 2), "{problem:?}");
        let mut again = World::new(world.disk, setup(), FOREVER);
        again.run().unwrap();
        nothing_is_left(&again.disk);
    }
}

#[test]
fn what_is_kept_depends_on_how_the_job_ends() {
    let failure = || {
        let cause = FailureCause::Connector { code: "io", message: "gone".into(), transient: false };
        JobEvent::Failed { attempt: Attempt(1), failure: Failure::of_job(cause) }
    };
    for (cleanup, after_cancel, after_failure) in [(Cleanup::Always, 0, 0), (Cleanup::OnCancel, 0, 2), (Cleanup::Never, 2, 2)] {
        for (event, expected) in [(JobEvent::CancelRequested, after_cancel), (failure(), after_failure)] {
            let mut setup = setup();
            setup.checkpoints.cleanup = cleanup;
            let mut world = World::new(Disk::default(), setup, FOREVER);
            world.send(JobEvent::Start).unwrap();
            (0..9).for_each(|_| world.go_on().unwrap());
            let message = format!("{cleanup:?} {event:?}");
            world.send(event).unwrap();
            assert!(world.end.is_some());
            let kept = world.disk.storage.manifests().unwrap();
            assert_eq!(kept.len(), expected, "{message}");
            assert_eq!(world.disk.storage.segments().unwrap().len(), 2 * expected, "{message}");
        }
    }
}

#[test]
fn a_fenced_job_ends_without_touching_anything() {
    let mut world = World::new(Disk::default(), setup(), FOREVER);
    world.send(JobEvent::Start).unwrap();
    (0..2).for_each(|_| world.go_on().unwrap());
    world.disk.storage.raise_fence(Fence { attempt: 7, checkpoint: 100 }).unwrap();
    world.go_on().unwrap();
    let Some(JobEnd::Failed(failed)) = &world.end else { panic!("{:?}", world.end) };
    assert_eq!(failed.failure.cause.code(), "fenced");
    assert_eq!(world.disk.committed, []);
    assert_eq!(world.disk.storage.segments().unwrap().len(), 2, "segments are left to the new owner");
}

#[test]
fn a_storage_that_cannot_be_read_is_tried_again_and_damage_is_not() {
    let mut master = JobMaster::new(setup());
    master.handle(JobEvent::Start, at(0));
    let error = StorageError::new(StorageErrorKind::Io, "stale handle");
    let commands = master.handle(JobEvent::RecoverFailed(RecoverError::Storage(error)), at(0));
    assert!(matches!(commands[1], JobCommand::Recover(RecoverOptions { verify: true, .. })), "{commands:?}");
    let error = RecoverError::Damaged { checkpoint: CheckpointId(3), what: "cut".into() };
    let commands = master.handle(JobEvent::RecoverFailed(error), at(0));
    assert!(matches!(commands[..], [JobCommand::End(JobEnd::Failed(_))]), "{commands:?}");
}

#[test]
fn killed_after_any_durable_step_the_job_still_delivers_each_record_once() {
    for budget in 0.. {
        let mut world = World::new(Disk::default(), setup(), budget);
        let killed = world.run() == Err(Killed);
        let mut again = World::new(world.disk, setup(), FOREVER);
        again.run().unwrap();
        nothing_is_left(&again.disk);
        if !killed {
            assert!(budget > 30, "the run has that many steps");
            break;
        }
    }
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        (0..RECORDS).prop_map(Trouble::Trap),
        Just(Trouble::PublishFull),
        Just(Trouble::PublishUnknown),
        Just(Trouble::CommitLate),
        Just(Trouble::CommitFails),
        Just(Trouble::Decline),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_each_record_is_delivered_once(
        lives in proptest::collection::vec((0usize..60, proptest::collection::vec(trouble(), 0..4), any::<bool>()), 0..6),
    ) {
        let mut disk = Disk::default();
        for (budget, troubles, stop) in lives {
            let mut world = World::new(disk, setup(), budget);
            world.troubles = troubles;
            let _ = if stop {
                world.send(JobEvent::Start).and_then(|()| world.go_on()).and_then(|()| world.send(JobEvent::StopRequested))
            } else {
                world.run()
            };
            disk = world.disk;
        }
        let mut last = World::new(disk, setup(), FOREVER);
        last.run().unwrap();
        nothing_is_left(&last.disk);
    }
}

fn order(request: u64) -> SavepointOrder {
    SavepointOrder { request, target: SavepointTarget::Below("s".into()) }
}

/// A job that has read four records and completed checkpoint 1 with three of them.
fn running(troubles: &[Trouble]) -> World {
    let mut world = World::new(Disk::default(), setup(), FOREVER);
    world.send(JobEvent::Start).unwrap();
    while world.position < 4 {
        world.go_on().unwrap();
    }
    assert_eq!(world.disk.committed, [0, 1, 2], "{:?}", world.log);
    world.troubles = troubles.to_vec();
    world
}

fn to_the_end(world: &mut World) {
    for _ in 0..1000 {
        if world.end.is_some() {
            return;
        }
        world.go_on().unwrap();
    }
    panic!("the job does not end: {:#?}", world.log);
}

#[test]
fn a_savepoint_commits_nothing_is_not_recovered_from_and_the_job_goes_on() {
    let mut world = running(&[Trouble::Trap(4)]);
    world.send(JobEvent::SavepointRequested(order(7))).unwrap();
    assert_eq!(world.log.last().unwrap(), "request 7: 2 saved to s/savepoint-2");
    assert_eq!(world.disk.committed, [0, 1, 2], "nothing is committed");
    assert_eq!(world.disk.storage.manifests().unwrap(), [CheckpointId(1)]);
    to_the_end(&mut world);
    assert!(world.log.contains(&"running 2 from 1".to_owned()), "{:?}", world.log);
    nothing_is_left(&world.disk);
    assert!(world.disk.storage.savepoint("s/savepoint-2").is_some(), "the runtime never deletes it");
}

#[test]
fn a_savepoint_that_fails_fails_only_the_request() {
    let mut world = running(&[Trouble::SaveFails]);
    world.send(JobEvent::SavepointRequested(order(7))).unwrap();
    assert!(world.log.last().unwrap().starts_with("request 7 failed: the savepoint could not be written"), "{:?}", world.log);
    to_the_end(&mut world);
    assert!(!world.log.iter().any(|line| line.starts_with("restart")), "{:?}", world.log);
    nothing_is_left(&world.disk);
}

#[test]
fn a_stop_with_a_savepoint_commits_and_goes_on_from_where_it_stopped() {
    let mut world = running(&[]);
    world.send(JobEvent::StopWithSavepointRequested(order(7))).unwrap();
    assert_eq!(world.end, Some(JobEnd::Stopped { checkpoint: Some(CheckpointId(2)), problem: None }));
    assert_eq!(world.disk.committed, [0, 1, 2, 3]);
    assert!(world.disk.storage.savepoint("s/savepoint-2").unwrap().is_committed().unwrap());
    let mut world = World::new(world.disk, setup(), FOREVER);
    world.run().unwrap();
    nothing_is_left(&world.disk);
}

#[test]
fn a_stop_whose_savepoint_fails_restarts_the_job() {
    for trouble in [Trouble::SaveFails, Trouble::Decline] {
        let mut world = running(&[trouble]);
        world.send(JobEvent::StopWithSavepointRequested(order(7))).unwrap();
        assert!(world.log.iter().any(|line| line.starts_with("request 7 failed: ")), "{:?}", world.log);
        assert_eq!(world.end, None);
        to_the_end(&mut world);
        assert!(world.log.contains(&"running 2 from 1".to_owned()), "{:?}", world.log);
        nothing_is_left(&world.disk);
        assert!(world.disk.storage.savepoint("s/savepoint-2").is_none());
    }
}

#[test]
fn once_the_savepoint_of_a_stop_exists_a_failure_ends_the_job_and_names_it() {
    for trouble in [Trouble::CommitFails, Trouble::CommitLate, Trouble::PublishFull, Trouble::PublishUnknown] {
        let mut world = running(&[trouble]);
        world.send(JobEvent::StopWithSavepointRequested(order(7))).unwrap();
        let Some(JobEnd::Failed(failure)) = &world.end else { panic!("{trouble:?}: {:?}", world.end) };
        assert!(failure.reason.contains("s/savepoint-2"), "{trouble:?}: {}", failure.reason);
        // By hand, it goes on, and what is missing is published, once.
        let mut world = World::new(world.disk, setup(), FOREVER);
        world.run().unwrap();
        nothing_is_left(&world.disk);
    }
}

#[test]
fn a_drain_ends_the_job_where_it_is_and_finishes_it() {
    let mut world = running(&[]);
    world.send(JobEvent::DrainRequested { request: 7, savepoint: Some(order(7)) }).unwrap();
    assert_eq!(world.end, Some(JobEnd::Finished { checkpoint: CheckpointId(2) }));
    assert_eq!(world.disk.committed, [0, 1, 2, 3]);
    assert!(world.disk.storage.savepoint("s/savepoint-2").unwrap().is_committed().unwrap());
    assert_eq!(world.disk.storage.manifests().unwrap(), []);
}

#[test]
fn what_cannot_be_done_now_is_refused() {
    let mut world = World::new(Disk::default(), setup(), FOREVER);
    for (request, event) in [
        (1, JobEvent::SavepointRequested(order(1))),
        (2, JobEvent::StopWithSavepointRequested(order(2))),
        (3, JobEvent::DrainRequested { request: 3, savepoint: None }),
    ] {
        world.send(event).unwrap();
        assert_eq!(world.log.pop().unwrap(), format!("request {request} failed: the job is starting"));
    }
}
