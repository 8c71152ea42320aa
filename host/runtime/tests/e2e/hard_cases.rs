//! Bad input, bad components, damaged storage and interruptions: each a named error, and nothing lost.

use std::fs;
use std::time::Duration;

use super::kill::{stage_words, word_count};
use super::output::{check_counts, check_totals, parts, rows, staged};
use super::stage::{Stage, example};

const TOTALS: &str = r#"
[pipeline]
name = "totals"
[checkpoint]
storage = "job"
[source.payments]
connector = "files"
path = "payments.jsonl"
format = "json"
key = "/user"
[operator.total]
component = "running-total.wasm"
input = "payments"
[sink.out]
connector = "files"
input = "total"
path = "out"
"#;

fn totals(payments: &str) -> Stage {
    let stage = Stage::new();
    stage.write("payments.jsonl", payments);
    stage.components(&["running-total"]);
    stage.write("pipeline.toml", TOTALS);
    stage
}

#[test]
fn running_totals_equal_an_independent_sum() {
    let payments = example("running-total/payments.jsonl");
    let stage = totals(&payments);
    let ended = stage.run(&[]);
    assert_eq!(ended.last(), "finished", "{}", ended.stderr);
    check_totals(&stage.path("out"), &payments);
}

#[test]
fn a_record_that_does_not_parse_is_named_by_file_and_line_or_skipped() {
    let bad = "{\"user\":\"a\",\"amount\":1}\n{oops\n{\"user\":\"a\",\"amount\":2}\n";
    let stage = totals(bad);
    let ended = stage.run(&[]);
    let failed = ended.failed(1, "failed", "record-malformed");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("payments.jsonl") && message.contains("line 2"), "{message}");
    assert!(rows(&stage.path("out")).is_empty(), "nothing is published that no checkpoint covers");
    let skip = TOTALS.replace("key = \"/user\"", "key = \"/user\"\non-malformed = \"skip\"");
    stage.write("pipeline.toml", skip);
    let ended = stage.run(&[]);
    assert_eq!(ended.only("finished")["malformed"], 1);
    assert_eq!(rows(&stage.path("out")).len(), 2);
}

#[test]
fn ctrl_c_takes_a_last_checkpoint_and_the_next_runs_go_on_at_other_parallelisms() {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(1, "200ms"), 12, 20_000);
    let mut interrupted = 0;
    for parallelism in ["1", "3", "2", "1", "3", "2"] {
        let mut running = stage.start(&["--parallelism", parallelism]);
        running.run_for(Duration::from_millis(900));
        running.interrupt();
        let ended = running.wait();
        match ended.last() {
            "stopped" => interrupted += 1,
            "finished" | "already-finished" => break,
            // Killed by the signal before it was listening, or refused: subtasks have finished in part.
            other => assert!(ended.code() != Some(0), "{other}: {}", ended.stderr),
        }
        assert!(staged(&stage.path("out"), "words", "counts").is_empty(), "what is staged is published or gone");
    }
    let last = stage.run(&["--parallelism", "1"]);
    let ended = if last.code() == Some(0) { last } else { stage.run(&["--parallelism", "3"]) };
    let ended = if ended.code() == Some(0) { ended } else { stage.run(&["--parallelism", "2"]) };
    assert!(["finished", "already-finished"].contains(&ended.last()), "{}", ended.stderr);
    check_counts(&stage.path("out"), &counts);
    println!("interrupted {interrupted} times");
}

#[test]
fn damaged_checkpoints_are_named_and_not_skipped() {
    for damage in ["manifest", "segment"] {
        let stage = Stage::new();
        let counts = stage_words(&stage, &word_count(1, "100ms"), 12, 20_000);
        let mut running = stage.start(&[]);
        let out = stage.path("out");
        assert!(running.wait_until(|| parts(&out).len() > 2), "it publishes while it runs");
        running.kill();
        let path = match damage {
            "manifest" => newest(&stage, "job", "chk-").join("_manifest"),
            _ => newest(&stage, "job/segments", ""),
        };
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        if damage == "manifest" {
            bytes.truncate(whole.len() / 2);
        } else {
            bytes[whole.len() / 2] ^= 4;
        }
        fs::write(&path, bytes).unwrap();
        let ended = stage.run(&[]);
        assert_eq!(ended.code(), Some(3), "{}", ended.stderr);
        assert!(format!("{:?}", ended.events).contains("--allow-rewind"), "{:?}", ended.events);
        assert_eq!(stage.verb(&["checkpoint", "list", "job"]).code(), Some(if damage == "manifest" { 3 } else { 0 }));
        // Nothing was lost: repaired, it goes on.
        fs::write(&path, whole).unwrap();
        assert_eq!(stage.run(&[]).last(), "finished");
        check_counts(&out, &counts);
    }
}

fn newest(stage: &Stage, folder: &str, prefix: &str) -> std::path::PathBuf {
    let mut found: Vec<_> = fs::read_dir(stage.path(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(prefix));
    let number = |path: &std::path::PathBuf| -> u64 {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name[prefix.len()..].split('-').next().unwrap().parse().unwrap()
    };
    found.sort_by_key(number);
    found.pop().unwrap()
}

#[test]
fn a_job_directory_has_one_host() {
    let stage = Stage::within(&std::env::temp_dir());
    stage_words(&stage, &word_count(1, "100ms"), 12, 20_000);
    let mut first = stage.start(&[]);
    let out = stage.path("out");
    assert!(first.wait_until(|| !parts(&out).is_empty()));
    let second = stage.run(&[]);
    assert_eq!(second.code(), Some(3), "{}", second.stderr);
    assert!(format!("{:?}{}", second.events, second.stderr).contains("storage-locked"));
    first.kill();
}

#[test]
fn what_cannot_run_is_refused_by_name() {
    let stage = totals("");
    for (file, bytes, code) in [
        ("empty.wasm", &b""[..], "component-invalid"),
        ("core.wasm", &b"\0asm\x01\0\0\0"[..], "component-invalid"),
        ("text.wasm", &b"(component)"[..], "component-invalid"),
    ] {
        stage.write(file, bytes);
        stage.write("pipeline.toml", TOTALS.replace("running-total.wasm", file));
        let ended = stage.run(&[]);
        assert_eq!(ended.code(), Some(2), "{file}: {}", ended.stderr);
        assert!(format!("{:?}{}", ended.events, ended.stderr).contains(code), "{file}: {:?}", ended.events);
    }
    stage.write("pipeline.toml", TOTALS.replace("payments.jsonl", "nothing.jsonl"));
    let ended = stage.run(&[]);
    ended.failed(4, "failed", "input-missing");
    stage.write("file", "");
    stage.write("pipeline.toml", TOTALS.replace("path = \"out\"", "path = \"file/out\""));
    let ended = stage.run(&[]);
    ended.failed(4, "failed", "output-not-writable");
}
