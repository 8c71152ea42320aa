//! When a checkpoint is triggered: by time, and when the input ends.

use super::*;

#[test]
fn the_pause_counts_from_the_completion_and_a_missed_tick_is_made_up_once() {
    let mut bench = Bench::new(CheckpointConfig { min_pause_ms: 800, ..config() });
    bench.tick_at(1000);
    bench.tick_at(2000);
    bench.tick_at(3000);
    assert_eq!(bench.said(), ["trigger 1 at 0,1"], "one at a time");
    bench.now = 3500;
    bench.complete(1);
    bench.said();
    assert_eq!(bench.coordinator.next_tick(), Some(MonotonicTime(4300)));
    bench.tick_at(4299);
    assert!(bench.said().is_empty());
    bench.tick_at(4300);
    assert_eq!(bench.said(), ["trigger 2 at 0,1"]);
    bench.complete(2);
    bench.said();
    bench.tick_at(5299);
    assert!(bench.said().is_empty(), "later ticks count from the trigger");
    bench.tick_at(5300);
    assert_eq!(bench.said(), ["trigger 3 at 0,1"]);
}

#[test]
fn without_a_pause_a_missed_tick_triggers_as_soon_as_there_is_room() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.tick_at(2000);
    bench.now = 2100;
    bench.complete(1);
    assert_eq!(bench.said().last().unwrap(), "trigger 2 at 0,1");
    bench.now = 2200;
    bench.complete(2);
    assert_eq!(bench.said().last().unwrap(), "completed 2", "it is not piled up");
}

#[test]
fn a_task_that_has_ended_is_triggered_directly() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.said();
    bench.run(|coordinator, now| coordinator.task_ended(TASKS[0], now));
    bench.run(|coordinator, now| coordinator.task_ended(TASKS[0], now));
    bench.run(|coordinator, now| coordinator.task_ended(TASKS[2], now));
    assert_eq!(bench.said(), ["trigger 1 at 0", "trigger 1 at 2"]);
    bench.complete(1);
    bench.said();
    bench.tick_at(2000);
    assert_eq!(bench.said(), ["trigger 2 at 0,1,2"]);
}

#[test]
fn when_all_tasks_have_ended_a_final_checkpoint_is_taken_at_once_and_repeated_until_it_succeeds() {
    let mut bench = Bench::new(CheckpointConfig { interval_ms: None, ..config() });
    assert_eq!(bench.coordinator.next_tick(), None);
    for task in TASKS {
        bench.run(|coordinator, now| coordinator.task_ended(task, now));
    }
    assert_eq!(bench.said(), ["trigger 1 at 0,1,2,3,4"]);
    bench.decline(1, TASKS[4]);
    assert_eq!(bench.coordinator.next_tick(), Some(MonotonicTime(FINAL_RETRY_MS)));
    bench.tick_at(FINAL_RETRY_MS);
    assert_eq!(bench.said(), ["aborted 1", "trigger 2 at 0,1,2,3,4"]);
    for task in TASKS {
        let id = id(2, 1, task);
        bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(id, true), now));
        bench.run(|coordinator, now| coordinator.acknowledged(id, None, now));
    }
    bench.publish(2);
    bench.commit(2);
    assert!(matches!(bench.outcomes()[..], [.., CheckpointOutcome::Completed { is_final: true, .. }]));
    assert_eq!(bench.coordinator.next_tick(), None, "nothing follows a final one");
}

#[test]
fn one_that_a_task_waits_for_is_hastened_and_keeps_to_the_pause_and_to_the_number_in_flight() {
    let mut bench = Bench::new(CheckpointConfig { min_pause_ms: 300, ..config() });
    bench.now = 100;
    bench.run(Coordinator::hasten);
    assert_eq!(bench.said(), ["trigger 1 at 0,1"], "whatever the interval");
    bench.run(Coordinator::hasten);
    assert!(bench.said().is_empty(), "one at a time");
    bench.now = 200;
    bench.complete(1);
    assert_eq!(bench.said().last().unwrap(), "completed 1");
    assert_eq!(bench.coordinator.next_tick(), Some(MonotonicTime(500)), "the second request stands, after the pause");
    bench.tick_at(500);
    assert_eq!(bench.said(), ["trigger 2 at 0,1"]);
    bench.complete(2);
    bench.said();
    assert_eq!(bench.coordinator.next_tick(), Some(MonotonicTime(1500)), "then the interval counts again");
}

#[test]
fn one_is_hastened_in_a_job_without_an_interval_and_not_beside_a_stop() {
    let mut bench = Bench::new(CheckpointConfig { interval_ms: None, ..config() });
    bench.now = 100;
    bench.run(Coordinator::hasten);
    assert_eq!(bench.said(), ["trigger 1 at 0,1"]);
    bench.complete(1);
    bench.said();
    assert_eq!(bench.coordinator.next_tick(), None);
    bench.run(|coordinator, now| coordinator.request(CheckpointPurpose::Stop, None, now));
    bench.run(Coordinator::hasten);
    assert_eq!(bench.said(), ["trigger 2 at 0,1 and stop"]);
    bench.run(|coordinator, _| coordinator.end());
    bench.said();
    bench.run(Coordinator::hasten);
    assert!(bench.said().is_empty(), "nothing runs");
}
