//! Stopped and resumed, with another parallelism each time.

use std::fs;
use std::path::Path;

use super::kill::{stage_words, word_count};
use super::output::{check_counts, check_totals, parts, staged};
use super::reader::Reader;
use super::stage::{Stage, example, repository};

#[test]
fn a_run_stopped_by_ctrl_c_is_resumed_with_another_parallelism_and_counts_once() {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(1, "20ms"), 24, 40_000);
    let out = stage.path("out");
    let reader = Reader::start(&out);
    let mut published = 0;
    // Each stops soon after its first checkpoint, well before any file ends.
    for parallelism in ["1", "3", "2", "4"] {
        let mut running = stage.start(&["--parallelism", parallelism]);
        assert!(running.wait_until(|| lines(&out) > published));
        running.interrupt();
        let ended = running.wait();
        let stopped = ended.ended("stopped");
        // The last checkpoint is told, and with it all that was counted is published.
        let checkpoint = ended.all("checkpoint").last().map(|found| found["id"].clone());
        assert_eq!(Some(&stopped["checkpoint"]), checkpoint.as_ref(), "{}", ended.told());
        let counted = stopped["summary"]["records_out"].as_u64().unwrap();
        assert_eq!(lines(&out), published + counted, "{}", ended.told());
        published += counted;
        assert_eq!(staged(&out, "words", "counts"), [""; 0]);
    }
    stage.run(&["--parallelism", "2"]).ended("finished");
    reader.finish(&out);
    check_counts(&out, &counts);
}

/// Returns how many lines are published.
fn lines(folder: &Path) -> u64 {
    let newlines = |path| fs::read(path).unwrap().iter().filter(|byte| **byte == b'\n').count() as u64;
    parts(folder).into_iter().map(newlines).sum()
}

#[test]
fn a_second_interrupt_stops_at_once_and_loses_nothing() {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(2, "30ms"), 4, 40_000);
    let mut running = stage.start(&[]);
    assert!(running.wait_until(|| !parts(&stage.path("out")).is_empty()));
    running.interrupt();
    running.interrupt();
    let ended = running.wait();
    // Two signals that come together are one.
    let ends = [(Some(130), "interrupted"), (Some(0), "stopped"), (Some(0), "finished")];
    assert!(ends.contains(&(ended.code(), ended.last())), "{}", ended.told());
    stage.run(&[]);
    check_counts(&stage.path("out"), &counts);
}

#[test]
fn output_is_one_json_object_a_line_from_the_plan_to_the_summary() {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(2, "20ms"), 2, 5000);
    let ended = stage.run(&[]);
    let finished = ended.ended("finished");
    assert_eq!(ended.events[0]["event"], "plan");
    assert!(ended.events.iter().all(|event| event["event"].is_string()));
    let words: u64 = counts.values().sum();
    assert_eq!((&finished["records_in"], &finished["records_out"]), (&10_000.into(), &words.into()), "{finished}");
    let plan = &ended.events[0];
    assert!(plan["delivery"].to_string().contains("exactly-once"), "{plan}");
}

#[test]
fn the_running_totals_of_the_example_are_those_of_its_payments() {
    let stage = Stage::new();
    let pipeline = fs::read_to_string(repository().join("examples/running-total/pipeline.toml")).unwrap();
    let pipeline = pipeline.replace("component = \"total\"", "component = \"running-total.wasm\"");
    stage.write("pipeline.toml", pipeline);
    let payments = example("running-total/payments.jsonl");
    stage.write("payments.jsonl", &payments);
    stage.components(&["running-total"]);
    stage.run(&[]).ended("finished");
    check_totals(&stage.path("out"), &payments);
}
