//! What fails, comes too late, comes twice or does not fit.

use super::*;

#[test]
fn a_failed_write_of_one_task_fails_only_its_checkpoint() {
    let mut bench = Bench::new(config());
    for checkpoint in 1..=2 {
        bench.tick_at(checkpoint * 1000);
        bench.complete(checkpoint);
    }
    bench.tick_at(3000);
    bench.ack(3, TASKS[2]);
    bench.said();
    bench.decline(3, TASKS[3]);
    bench.decline(3, TASKS[4]);
    assert_eq!(bench.said(), ["aborted 3", "discard 3-1-2"]);
    bench.ack(3, TASKS[3]);
    assert_eq!(bench.said(), ["discard 3-1-3"], "what comes too late is discarded");
    bench.tick_at(4000);
    bench.complete(4);
    let said = bench.said();
    assert_eq!(said[0], "trigger 4 at 0,1");
    assert!(said.contains(&"completed 4".into()) && !said.iter().any(|line| line.contains("completed 3")), "{said:?}");
}

#[test]
fn an_expired_checkpoint_is_aborted_and_its_late_segment_discarded() {
    let mut bench = Bench::new(CheckpointConfig { timeout_ms: 1000, interval_ms: Some(1500), ..config() });
    bench.tick_at(1500);
    TASKS.into_iter().filter(|task| task.0 != 3).for_each(|task| bench.ack(1, task));
    assert_eq!(bench.coordinator.next_tick(), Some(MonotonicTime(2500)));
    bench.tick_at(2499);
    assert_eq!(bench.said(), ["trigger 1 at 0,1"]);
    bench.tick_at(2500);
    let Some(CheckpointOutcome::Failed { failure, .. }) = bench.outcomes().pop() else { panic!() };
    let expected = "it expired after 1000 ms; 1 of 5 tasks had not acknowledged it, the first is task 3";
    assert_eq!(failure.to_string(), expected);
    assert_eq!(bench.said(), ["aborted 1", "discard 1-1-2"]);
    bench.tick_at(3000);
    bench.ack(1, TASKS[3]);
    bench.complete(2);
    let said = bench.said();
    assert_eq!(said, ["trigger 2 at 0,1", "discard 1-1-3", "publish 2", "commit 2: 2", "completed 2"]);
}

#[test]
fn only_failures_in_a_row_count() {
    let mut bench = Bench::new(config());
    let mut total = 0;
    for (index, succeeds) in [false, false, true, false, false, false].into_iter().enumerate() {
        let checkpoint = index as u64 + 1;
        bench.tick_at(checkpoint * 1000);
        if succeeds {
            bench.complete(checkpoint);
        } else {
            bench.decline(checkpoint, TASKS[2]);
            bench.decline(checkpoint, TASKS[3]);
        }
        total += bench.failures();
        assert_eq!(total, usize::from(index == 5), "after {checkpoint}");
    }
    let mut strict = Bench::new(CheckpointConfig { tolerable_failures: 0, ..config() });
    strict.tick_at(1000);
    strict.decline(1, TASKS[2]);
    assert_eq!(strict.failures(), 1);
    let mut overtaken = Bench::new(CheckpointConfig { tolerable_failures: 0, ..config() });
    overtaken.tick_at(1000);
    let failure = CheckpointFailure::Overtaken(TASKS[2]);
    overtaken.run(|coordinator, now| coordinator.declined(id(1, 1, TASKS[2]), failure, now));
    assert_eq!(overtaken.failures(), 0);
}

#[test]
fn aborts_are_told_once_and_a_later_checkpoint_covers_their_output() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack_all(1);
    let error = StorageError::new(StorageErrorKind::Full, "no space");
    bench.run(|coordinator, now| coordinator.publish_failed(CheckpointId(1), &error, now));
    assert_eq!(bench.said(), ["trigger 1 at 0,1", "publish 1", "aborted 1", "discard 1-1-2,1-1-3"]);
    bench.tick_at(2000);
    bench.decline(2, TASKS[3]);
    assert_eq!(bench.said(), ["trigger 2 at 0,1", "aborted 2"]);
    bench.tick_at(3000);
    bench.complete(3);
    assert_eq!(bench.said(), ["trigger 3 at 0,1", "publish 3", "commit 3: 3", "completed 3"]);
    assert_eq!(bench.failures(), 0);
}

#[test]
fn a_manifest_of_unknown_outcome_keeps_its_segments() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack_all(1);
    bench.said();
    let error = StorageError::new(StorageErrorKind::Io, "directory not synced").with_unknown_outcome();
    bench.run(|coordinator, now| coordinator.publish_failed(CheckpointId(1), &error, now));
    assert!(matches!(bench.outcomes()[..], [CheckpointOutcome::Unsure { .. }]));
    bench.ack(1, TASKS[2]);
    assert!(bench.said().is_empty(), "a repeated acknowledgement deletes nothing that may be named");
}

#[test]
fn a_repeated_acknowledgement_is_harmless() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack(1, TASKS[2]);
    bench.ack(1, TASKS[2]);
    bench.complete(1);
    bench.said();
    bench.ack(1, TASKS[2]);
    assert!(bench.said().is_empty(), "the segment is named by checkpoint 1");
}

#[test]
fn messages_of_an_older_attempt_are_dropped_and_their_segments_discarded() {
    let mut bench = Bench::new(config());
    bench.run(|coordinator, _| coordinator.end());
    bench.coordinator.begin(Attempt(2), at(0));
    bench.tick_at(1000);
    bench.said();
    let old = id(1, 1, TASKS[2]);
    bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(old, false), now));
    bench.run(|coordinator, now| coordinator.acknowledged(old, segment(old), now));
    assert_eq!(bench.said(), ["discard 1-1-2"]);
    bench.decline(1, TASKS[3]);
    assert!(bench.outcomes().is_empty());
}

#[test]
fn what_does_not_fit_the_plan_fails_the_checkpoint() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    let mine = id(1, 1, TASKS[2]);
    bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(mine, false), now));
    let mut foreign = segment(mine).unwrap();
    foreign.sections[0].group = KeyGroup(15);
    bench.run(|coordinator, now| coordinator.acknowledged(mine, Some(foreign), now));
    assert_eq!(bench.said(), ["trigger 1 at 0,1", "aborted 1", "discard 1-1-2"]);
    bench.tick_at(2000);
    let early = id(2, 1, TASKS[3]);
    bench.run(|coordinator, now| coordinator.acknowledged(early, segment(early), now));
    assert!(matches!(bench.outcomes()[..], [.., CheckpointOutcome::Failed { failure: CheckpointFailure::Unfit { .. }, .. }]));
}
