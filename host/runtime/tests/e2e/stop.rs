//! Stopped and resumed, with another parallelism each time.

use std::fs;
use std::time::Duration;

use super::kill::{stage_words, word_count};
use super::output::{check_counts, check_totals, parts, published_bytes, staged};
use super::reader::Reader;
use super::stage::{Random, Stage, example, repository, seed};

#[test]
fn a_run_stopped_by_ctrl_c_is_resumed_with_another_parallelism_and_counts_once() {
    let mut random = Random(seed());
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(1, "1h"), 12, 40_000);
    let out = stage.path("out");
    let reader = Reader::start(&out);
    let mut published = 0;
    for parallelism in ["1", "3", "2", "4"] {
        let mut running = stage.start(&["--parallelism", parallelism]);
        running.run_for(Duration::from_millis(250 + random.below(100)));
        running.interrupt();
        let ended = running.wait();
        assert_eq!(ended.code(), Some(0), "{}", ended.told());
        if ended.last() == "finished" {
            break;
        }
        // The interval is long: what is published now came with the last checkpoint, whose number is told.
        let stopped = ended.ended("stopped");
        let checkpoint = stopped["checkpoint"].as_u64();
        assert_eq!(ended.all("checkpoint").last().map(|found| found["id"].as_u64()), checkpoint.map(Some), "{}", ended.told());
        assert!(published_bytes(&out) > published, "a stop publishes what was read");
        published = published_bytes(&out);
        assert_eq!(staged(&out, "words", "counts"), [""; 0]);
    }
    let ended = stage.run(&["--parallelism", "2"]);
    assert!(matches!(ended.last(), "finished" | "already-finished"), "{}", ended.told());
    reader.finish(&out);
    check_counts(&out, &counts);
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
