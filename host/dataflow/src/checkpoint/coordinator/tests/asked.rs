//! Checkpoints that somebody waits for.

use super::*;

fn ask(bench: &mut Bench, request: u64) {
    bench.run(|coordinator, now| coordinator.ask(request, now));
}

/// What became of requests since the last call.
fn answers(bench: &mut Bench) -> Vec<String> {
    let answer = |outcome: CheckpointOutcome| match outcome {
        CheckpointOutcome::AskedTaken { request, checkpoint } => Some(format!("{request}: {checkpoint}")),
        CheckpointOutcome::AskedFailed { request, failure } => Some(format!("{request}: {failure}")),
        _ => None,
    };
    bench.outcomes().into_iter().filter_map(answer).collect()
}

#[test]
fn one_that_is_asked_for_waits_for_room_but_for_no_interval_and_no_pause() {
    let mut bench = Bench::new(CheckpointConfig { min_pause_ms: 10_000, ..config() });
    ask(&mut bench, 7);
    assert_eq!(bench.said(), ["trigger 1 at 0,1"]);
    ask(&mut bench, 8);
    assert!(bench.said().is_empty(), "the cut of the first is older than the second request");
    ask(&mut bench, 9);
    bench.complete(1);
    assert_eq!(bench.said(), ["publish 1", "commit 1: 1", "completed 1", "trigger 2 at 0,1"]);
    assert_eq!(answers(&mut bench), ["7: 1"]);
    bench.complete(2);
    assert_eq!(answers(&mut bench), ["8: 2", "9: 2"], "one is enough for both");
    bench.tick_at(9999);
    assert_eq!(bench.said(), ["publish 2", "commit 2: 2", "completed 2"]);
}

#[test]
fn it_is_told_when_its_output_is_committed_and_when_it_fails() {
    let mut bench = Bench::new(CheckpointConfig { interval_ms: None, ..config() });
    ask(&mut bench, 7);
    bench.ack_all(1);
    bench.publish(1);
    assert!(answers(&mut bench).is_empty());
    bench.commit(1);
    assert_eq!(answers(&mut bench), ["7: 1"]);
    ask(&mut bench, 8);
    bench.decline(2, TASKS[3]);
    assert_eq!(answers(&mut bench), ["8: task 3 declined it: disk full"]);
    ask(&mut bench, 9);
    bench.run(|coordinator, _| coordinator.end());
    assert_eq!(answers(&mut bench), ["9: the job's tasks were stopped before it was complete"]);
    ask(&mut bench, 10);
    assert_eq!(answers(&mut bench).len(), 1, "nothing runs");
}

#[test]
fn a_newer_one_will_do_and_one_that_is_overtaken_is_taken_again() {
    let mut bench = Bench::new(CheckpointConfig { max_concurrent: 2, ..config() });
    ask(&mut bench, 7);
    bench.tick_at(1000);
    bench.ack_all(2);
    bench.publish(2);
    assert!(answers(&mut bench).is_empty(), "it is subsumed, and its successor not committed");
    bench.commit(2);
    assert_eq!(answers(&mut bench), ["7: 2"]);
    bench.said();
    ask(&mut bench, 8);
    bench.run(|coordinator, now| coordinator.declined(id(3, 1, TASKS[2]), CheckpointFailure::Overtaken(TASKS[2]), now));
    assert_eq!(bench.said(), ["trigger 3 at 0,1", "aborted 3", "trigger 4 at 0,1"]);
    bench.complete(4);
    assert_eq!(answers(&mut bench), ["8: 4"]);
}

#[test]
fn a_savepoint_is_no_answer_and_a_job_that_ends_has_the_last() {
    let mut bench = Bench::new(CheckpointConfig { max_concurrent: 1, ..config() });
    bench.tick_at(1000);
    ask(&mut bench, 7);
    bench.run(|coordinator, now| coordinator.savepoint(savepoint::order(), now));
    bench.complete(1);
    assert_eq!(bench.said().last().unwrap(), "trigger 3 at 0,1");
    bench.complete(3);
    assert_eq!(answers(&mut bench), ["7: 3"]);
}
