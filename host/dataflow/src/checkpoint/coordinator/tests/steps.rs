//! The steps of a checkpoint, and several at once.

use super::*;

#[test]
fn a_checkpoint_goes_through_its_steps_in_order() {
    let mut bench = Bench::new(config());
    bench.tick_at(999);
    assert!(bench.said().is_empty());
    bench.tick_at(1000);
    assert_eq!(bench.said(), ["trigger 1 at 0,1"]);
    TASKS[..4].iter().for_each(|task| bench.ack(1, *task));
    assert!(bench.said().is_empty(), "four of five");
    bench.ack(1, TASKS[4]);
    assert_eq!(bench.said(), ["publish 1"]);
    bench.commit(1);
    assert!(bench.said().is_empty(), "nothing is committed before the manifest is durable");
    bench.publish(1);
    assert_eq!(bench.said(), ["commit 1: 1"]);
    bench.now = 1200;
    bench.commit(1);
    let outcomes = bench.out.outcomes.clone();
    assert_eq!(bench.said(), ["completed 1"]);
    let expected = CheckpointOutcome::Completed {
        checkpoint: CheckpointId(1),
        purpose: CheckpointPurpose::Periodic,
        is_final: false,
        duration_ms: 200,
        written_bytes: 200,
        state_bytes: 200,
        alignment_us_max: 7,
    };
    assert_eq!(outcomes, [expected]);
}

#[test]
fn the_manifest_lists_every_subtask_and_every_segment() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack_all(1);
    let Some(CheckpointCommand::PublishManifest { bytes, .. }) = bench.out.commands.last() else { panic!() };
    let manifest = CheckpointManifest::decode(bytes).unwrap();
    let subtasks: Vec<_> = manifest.subtasks.iter().map(|subtask| subtask.id.to_string()).collect();
    assert_eq!(subtasks, ["count[0]", "count[1]", "lines[0]", "lines[1]", "out[0]"]);
    assert_eq!(manifest.state.segments().keys().copied().collect::<Vec<_>>(), [id(1, 1, TASKS[2]), id(1, 1, TASKS[3])]);
    assert_eq!(manifest.parent, None);
}

#[test]
fn what_was_migrated_is_referred_to_no_more() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.complete(1);
    bench.coordinator.migrated(&BTreeSet::from([table()]));
    bench.tick_at(2000);
    for task in TASKS {
        let id = id(2, 1, task);
        bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(id, false), now));
        bench.run(|coordinator, now| coordinator.acknowledged(id, None, now));
    }
    let Some(CheckpointCommand::PublishManifest { bytes, .. }) = bench.out.commands.last() else { panic!() };
    let segments = CheckpointManifest::decode(bytes).unwrap().state.segments().len();
    assert_eq!(segments, 0, "nothing follows values of another form");
}

#[test]
fn a_newer_checkpoint_subsumes_an_older_one_without_counting_a_failure() {
    let mut bench = Bench::new(CheckpointConfig { max_concurrent: 2, tolerable_failures: 0, ..config() });
    bench.tick_at(1000);
    bench.tick_at(2000);
    bench.tick_at(3000);
    TASKS.into_iter().filter(|task| task.0 != 3).for_each(|task| bench.ack(1, task));
    assert_eq!(bench.said(), ["trigger 1 at 0,1", "trigger 2 at 0,1"], "a third does not start");
    bench.ack_all(2);
    bench.publish(2);
    assert_eq!(bench.said(), ["publish 2", "aborted 1", "discard 1-1-2", "commit 2: 2"]);
    bench.commit(2);
    assert_eq!(bench.failures(), 0);
    bench.ack(1, TASKS[3]);
    let said = bench.said();
    assert_eq!(said.last().unwrap(), "discard 1-1-3");
}

#[test]
fn the_newest_of_several_that_are_ready_completes_next() {
    let mut bench = Bench::new(CheckpointConfig { max_concurrent: 3, ..config() });
    for ms in [1000, 2000, 3000] {
        bench.tick_at(ms);
    }
    (1..=3).for_each(|checkpoint| bench.ack_all(checkpoint));
    bench.said();
    bench.publish(1);
    bench.commit(1);
    assert_eq!(bench.said(), ["commit 1: 1", "completed 1", "publish 3"]);
    bench.publish(3);
    assert_eq!(bench.said(), ["aborted 2", "discard 2-1-2,2-1-3", "commit 3: 3"]);
}

#[test]
fn only_the_newest_checkpoints_are_kept() {
    let mut bench = Bench::new(config());
    let mut said = Vec::new();
    for checkpoint in 1..=5 {
        bench.tick_at(checkpoint * 1000);
        bench.complete(checkpoint);
        said.extend(bench.said().into_iter().filter(|line| line.starts_with("delete")));
    }
    assert_eq!(
        said,
        ["delete 1 with 1-1-2,1-1-3", "delete 2 with 2-1-2,2-1-3", "delete 3 with 3-1-2,3-1-3"],
        "each checkpoint re-bases, so nothing older is named"
    );
    assert_eq!(bench.coordinator.delete_all().checkpoints, [CheckpointId(4), CheckpointId(5)]);
}

#[test]
fn a_checkpoint_that_completes_after_its_attempt_counts_but_is_committed_by_the_next() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack_all(1);
    bench.run(|coordinator, _| coordinator.end());
    assert!(bench.coordinator.is_completing());
    bench.said();
    bench.publish(1);
    assert!(bench.said().is_empty());
    assert!(!bench.coordinator.is_completing());
    assert_eq!(bench.coordinator.newest(), Some(CheckpointId(1)));
}
