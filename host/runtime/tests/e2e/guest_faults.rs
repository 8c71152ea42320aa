//! Guests that break: each way is a fault of its own name, the job ends, and the host lives.

use serde_json::Value;

use super::output::rows;
use super::stage::{Ended, Stage, example};

const LINES: u64 = 200_000;

/// Lines are passed on by the operator `pass`, which breaks at one of them.
fn pipeline(how: &str, at: u64, parallelism: u32) -> String {
    format!(
        r#"
[pipeline]
name = "faulty"
parallelism = {parallelism}
[checkpoint]
interval = "5ms"
storage = "job"
[restart]
initial-delay = "1ms"
max-delay = "2ms"
[source.lines]
connector = "files"
path = "lines.txt"
[operator.pass]
component = "faulty.wasm"
input = "lines"
partition = "rebalance"
config = {{ at = "line {at}", how = "{how}" }}
limits = {{ record = "32KiB", output-records = 1500, memory = "8MiB", fuel-per-call = "1M", fuel-per-record = "100k" }}
[sink.out]
connector = "files"
input = "pass"
path = "out"
"#
    )
}

fn stage(how: &str, at: u64, parallelism: u32) -> Stage {
    let stage = Stage::new();
    stage.components(&["faulty"]);
    let lines: String = (1..=LINES).map(|n| format!("line {n}\n")).collect();
    stage.write("lines.txt", lines);
    stage.write("pipeline.toml", pipeline(how, at, parallelism));
    stage
}

/// Checks that a failed run names the operator and the record in each fault, and returns the last fault.
fn last_fault<'a>(ended: &'a Ended, code: &str) -> &'a Value {
    let failed = ended.failed(1, "failed", code);
    assert!(!failed["message"].as_str().unwrap().contains('\n'));
    assert_eq!(ended.last(), "failed");
    let faults = ended.all("fault");
    for fault in &faults {
        assert_eq!((&fault["code"], &fault["phase"]), (&code.into(), &"data".into()), "{fault}");
        assert_eq!((&fault["operator"], &fault["subtask"]), (&"pass".into(), &0.into()), "{fault}");
    }
    faults.last().unwrap()
}

#[test]
fn a_record_that_traps_each_time_ends_the_job_and_what_was_published_before_it_stays() {
    let at = LINES - 10;
    let stage = stage("panic", at, 1);
    let ended = stage.run(&[]);
    let fault = last_fault(&ended, "guest-trap");
    let faults = ended.all("fault").len();
    assert!((3..30).contains(&faults), "{faults} faults");
    let reason = ended.only("failed")["message"].as_str().unwrap();
    assert!(reason.contains("it has failed 3 times at the same position"), "{reason}");

    let message = fault["message"].as_str().unwrap();
    assert!(message.contains("panicked at src/lib.rs:") && message.contains("the record is poison"), "{message}");
    let frames: Vec<_> = fault["backtrace"].as_array().unwrap().iter().map(|frame| frame.as_str().unwrap()).collect();
    assert!(frames.contains(&"faulty::the_function_that_panics"), "{frames:?}");
    assert!(fault["restart_in_ms"].is_null(), "{fault}");
    // One record is named, not the batch that it was in.
    let position = fault["position"].as_str().unwrap();
    assert!(position.starts_with("record ") && position.contains(" of port 0"), "{position}");

    let published = rows(&stage.path("out"));
    assert!((1..at).contains(&(published.len() as u64)), "{} rows are published", published.len());
    assert!(published.iter().enumerate().all(|(i, row)| *row == format!("line {}", i + 1)), "rows are missing or doubled");

    // Repaired, the next run goes on where the last checkpoint was: each line is published once.
    stage.write("pipeline.toml", pipeline("panic", 0, 1));
    stage.run(&[]).ended("finished");
    let all = rows(&stage.path("out"));
    assert!(all.len() as u64 == LINES && all.iter().enumerate().all(|(i, row)| *row == format!("line {}", i + 1)));
}

#[test]
fn a_poison_record_among_parallel_subtasks_ends_the_job_and_publishes_nothing_twice() {
    let stage = stage("panic", LINES / 2, 2);
    let ended = stage.run(&[]);
    ended.failed(1, "failed", "guest-trap");
    let faults = ended.all("fault").len();
    assert!((3..60).contains(&faults), "{faults} faults");
    let mut published = rows(&stage.path("out"));
    let count = published.len();
    assert!(!published.contains(&format!("line {}", LINES / 2)));
    published.sort();
    published.dedup();
    assert_eq!(published.len(), count);
}

/// Breaks at a record near the beginning.
fn broken(how: &str) -> Ended {
    stage(how, 1234, 1).run(&[])
}

fn message(fault: &Value) -> &str {
    fault["message"].as_str().unwrap()
}

#[test]
fn an_endless_loop_runs_out_of_fuel() {
    let ended = broken("loop");
    let fault = last_fault(&ended, "guest-fuel");
    assert!(message(fault).contains("fuel"), "{fault}");
}

#[test]
fn an_endless_recursion_overflows_the_guests_stack_alone() {
    let ended = broken("recursion");
    let fault = last_fault(&ended, "guest-stack-overflow");
    assert_eq!(fault["backtrace"].as_array().unwrap().len(), 16, "cut");
}

#[test]
fn memory_beyond_the_limit_is_refused_and_traps_in_the_guest() {
    let ended = broken("memory");
    let fault = last_fault(&ended, "guest-trap");
    assert!(fault["backtrace"].to_string().contains("alloc"), "{fault}");
}

#[test]
fn an_error_that_may_pass_is_tried_again_and_one_that_may_not_is_final() {
    let ended = broken("transient");
    assert_eq!(message(last_fault(&ended, "guest-error")), "not today");
    assert!(ended.all("fault").len() >= 3, "{}", ended.told());
    let ended = broken("permanent");
    assert_eq!(message(last_fault(&ended, "guest-error")), "not ever");
    assert_eq!(ended.all("fault").len(), 1, "{}", ended.told());
}

#[test]
fn output_beyond_the_limits_has_a_code_of_its_own_and_names_the_limit() {
    for (how, what) in [
        ("large-record", "a record for output \"out\" has 65536 bytes, over 32768"),
        ("large-key", "a key for output \"out\" has 8192 bytes, over 4096"),
        ("many-records", "one call emits over 1500 records; a smaller `max_batch` may help"),
    ] {
        let ended = broken(how);
        assert_eq!(message(last_fault(&ended, "guest-output")), what);
        assert_eq!(ended.all("fault").len(), 1, "a replay would meet it again: {}", ended.told());
    }
}

#[test]
fn a_state_value_beyond_the_limit_has_a_code_of_its_own_and_names_the_limit() {
    let stage = Stage::new();
    let pipeline = example("running-total/pipeline.toml");
    stage.write(
        "pipeline.toml",
        pipeline.replace("component = \"total\"", "component = \"running-total.wasm\"\nlimits = { value = 1 }"),
    );
    stage.write("payments.jsonl", example("running-total/payments.jsonl"));
    stage.components(&["running-total"]);
    let ended = stage.run(&[]);
    ended.failed(1, "failed", "guest-write-budget");
    let fault = ended.only("fault");
    assert!(message(fault).starts_with("a value of slot ") && message(fault).ends_with(", over 1"), "{fault}");
}

#[test]
fn the_summary_says_what_each_operator_has_done() {
    let stage = stage("panic", 0, 1);
    let ended = stage.run(&[]);
    let summary = ended.ended("finished");
    let [usage] = &summary["operators"].as_array().unwrap()[..] else { panic!("{summary}") };
    assert_eq!((&usage["operator"], &usage["faults"]), (&"pass".into(), &0.into()), "{usage}");
    assert_eq!((&usage["records_in"], &usage["records_out"]), (&LINES.into(), &LINES.into()), "{usage}");
    let number = |key: &str| usage[key].as_u64().unwrap();
    assert!((1..=LINES + 1).contains(&number("calls")) && number("fuel") > LINES, "{usage}");
    assert!((64 << 10..=8 << 20).contains(&number("memory_peak_bytes")), "{usage}");
    assert_eq!((number("state_entries"), number("state_bytes")), (0, 0), "{usage}");
    let ended = broken("panic");
    let usage = &ended.only("failed")["summary"]["operators"][0];
    assert_eq!(usage["faults"], ended.all("fault").len(), "{usage}");
}

#[test]
fn a_configuration_that_the_operator_refuses_stops_the_job_before_the_first_record() {
    let stage = stage("panic", 1, 1);
    stage.write("pipeline.toml", pipeline("laugh", 1, 1));
    let ended = stage.run(&[]);
    ended.failed(1, "failed", "guest-error");
    let fault = ended.only("fault");
    assert_eq!(fault["phase"], "open", "{fault}");
    assert!(message(fault).contains("laugh"), "{fault}");
}
