//! Savepoints beside checkpoints, and the stops and drains that end with one.

use super::tests::{Bench, TASKS, config, id, segment, snapshot};
use super::*;

pub(super) fn order() -> SavepointOrder {
    SavepointOrder { request: 9, target: SavepointTarget::Below("s".into()) }
}

#[test]
fn a_savepoint_subsumes_nothing_commits_nothing_and_tells_no_task() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.run(|coordinator, now| coordinator.savepoint(order(), now));
    assert_eq!(bench.said(), ["trigger 1 at 0,1", "trigger 2 at 0,1 in full"]);
    assert!(bench.coordinator.is_taking_savepoint());
    bench.ack_all(2);
    assert_eq!(bench.said(), ["save 2 to s/savepoint-2 with 2-1-2,2-1-3"]);
    bench.now = 1500;
    bench.run(|coordinator, now| coordinator.savepoint_published(CheckpointId(2), now));
    assert_eq!(bench.said(), ["discard 2-1-2,2-1-3"], "they have other names now");
    let savepoint = Savepoint { request: 9, path: "s/savepoint-2".into() };
    let taken = CheckpointOutcome::SavepointTaken { checkpoint: CheckpointId(2), savepoint, duration_ms: 500, bytes: 200 };
    assert_eq!(bench.outcomes(), [taken]);
    assert_eq!((bench.coordinator.newest(), bench.coordinator.is_taking_savepoint()), (None, false));
    bench.complete(1);
    assert_eq!(bench.said(), ["publish 1", "commit 1: 1", "completed 1"], "the one before it is still wanted");
    bench.tick_at(2000);
    bench.ack_all(3);
    let Some(CheckpointCommand::PublishManifest { bytes, .. }) = bench.out.commands.last() else { panic!() };
    assert_eq!(CheckpointManifest::decode(bytes).unwrap().parent, Some(CheckpointId(1)));
}

#[test]
fn a_checkpoint_that_completes_leaves_an_older_savepoint_alone() {
    let mut bench = Bench::new(config());
    bench.run(|coordinator, now| coordinator.savepoint(order(), now));
    bench.tick_at(1000);
    bench.complete(2);
    let said = bench.said();
    assert_eq!(said, ["trigger 1 at 0,1 in full", "trigger 2 at 0,1", "publish 2", "commit 2: 2", "completed 2"]);
    bench.ack_all(1);
    assert_eq!(bench.said(), ["save 1 to s/savepoint-1 with 1-1-2,1-1-3"]);
}

#[test]
fn a_savepoint_that_expires_or_is_declined_fails_alone() {
    let mut bench = Bench::new(CheckpointConfig { timeout_ms: 500, tolerable_failures: 0, ..config() });
    bench.run(|coordinator, now| coordinator.savepoint(order(), now));
    bench.ack(1, TASKS[2]);
    bench.said();
    bench.tick_at(500);
    assert_eq!(bench.said(), ["aborted 1", "discard 1-1-2"]);
    let outcomes = bench.outcomes();
    let [CheckpointOutcome::Failed { purpose: CheckpointPurpose::Savepoint, savepoint: Some(savepoint), .. }] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!(savepoint.request, 9);
    bench.run(|coordinator, now| coordinator.savepoint(order(), now));
    bench.decline(2, TASKS[3]);
    assert_eq!(bench.failures(), 0, "it counts against no limit");
}

#[test]
fn savepoints_that_are_dropped_with_the_attempt_are_reported() {
    let mut bench = Bench::new(config());
    bench.run(|coordinator, now| coordinator.savepoint(order(), now));
    bench.ack(1, TASKS[2]);
    bench.said();
    let outputs = bench.coordinator.end();
    bench.take(outputs);
    assert_eq!(bench.said(), ["discard 1-1-2"]);
    let outcomes = bench.outcomes();
    assert!(
        matches!(&outcomes[..], [CheckpointOutcome::Failed { failure: CheckpointFailure::TasksStopped, .. }]),
        "{outcomes:?}"
    );
}

#[test]
fn a_stop_with_a_savepoint_saves_then_publishes_then_commits() {
    let mut bench = Bench::new(config());
    bench.run(|coordinator, now| coordinator.request(CheckpointPurpose::Stop, Some(order()), now));
    assert_eq!(bench.said(), ["trigger 1 at 0,1 in full and stop"]);
    bench.ack_all(1);
    assert_eq!(bench.said(), ["save 1 to s/savepoint-1 with 1-1-2,1-1-3"]);
    bench.publish(1);
    bench.commit(1);
    assert!(bench.said().is_empty(), "nothing is published or committed before the savepoint exists");
    bench.run(|coordinator, now| coordinator.savepoint_published(CheckpointId(1), now));
    assert_eq!(bench.said(), ["publish 1"]);
    bench.publish(1);
    assert_eq!(bench.said(), ["commit 1: 1"]);
    bench.commit(1);
    assert_eq!(bench.said(), ["completed 1"]);
    assert_eq!(bench.coordinator.newest(), Some(CheckpointId(1)), "it is a checkpoint of the job as well");
}

#[test]
fn the_savepoint_of_a_stop_whose_attempt_failed_meanwhile_is_discarded() {
    let mut bench = Bench::new(config());
    bench.run(|coordinator, now| coordinator.request(CheckpointPurpose::Stop, Some(order()), now));
    bench.ack_all(1);
    bench.said();
    let outputs = bench.coordinator.end();
    bench.take(outputs);
    assert!(bench.coordinator.is_completing(), "the storage has yet to answer");
    bench.run(|coordinator, now| coordinator.savepoint_published(CheckpointId(1), now));
    assert_eq!(bench.said(), ["discard 1-1-2,1-1-3", "discard s/savepoint-1"]);
    assert!(!bench.coordinator.is_completing());
}

#[test]
fn while_the_job_drains_only_the_final_checkpoint_is_triggered_and_may_be_a_savepoint() {
    let mut bench = Bench::new(config());
    assert!(bench.coordinator.drain(Some(order())));
    bench.tick_at(5000);
    assert!(bench.said().is_empty(), "no checkpoint has some tasks before the end and some after it");
    TASKS.into_iter().for_each(|task| bench.run(|coordinator, now| coordinator.task_ended(task, now)));
    assert_eq!(bench.said(), ["trigger 1 at 0,1,2,3,4 in full"]);
    assert!(!bench.coordinator.drain(None), "too late");
}

#[test]
fn the_checkpoint_of_a_stop_with_a_savepoint_holds_what_the_savepoint_holds_and_nothing_older() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.complete(1);
    bench.run(|coordinator, now| coordinator.request(CheckpointPurpose::Stop, Some(order()), now));
    for task in TASKS {
        let id = id(2, 1, task);
        bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(id, false), now));
        // The last state of one operator's task has been deleted meanwhile: it writes nothing.
        let segment = segment(id).filter(|_| task != TASKS[3]);
        bench.run(|coordinator, now| coordinator.acknowledged(id, segment, now));
    }
    bench.run(|coordinator, now| coordinator.savepoint_published(CheckpointId(2), now));
    let Some(CheckpointCommand::PublishManifest { bytes, .. }) = bench.out.commands.last() else { panic!() };
    let manifest = CheckpointManifest::decode(bytes).unwrap();
    assert_eq!(manifest.state.segments().keys().copied().collect::<Vec<_>>(), [id(2, 1, TASKS[2])]);
    assert_eq!(manifest.parent, Some(CheckpointId(1)));
}
