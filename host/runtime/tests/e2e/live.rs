//! Looking inside a pipeline while it runs.

use std::path::Path;

use super::stage::{Running, Stage};

const PIPELINE: &str = r#"
[pipeline]
name = "live"
parallelism = 2
[checkpoint]
interval = "INTERVAL"
storage = "job"
retention = { keep = 1 }
[source.numbers]
connector = "generator"
keys = 6
distribution = "sequential"
shape = "json"
rate = 20000
splits = 2
[operator.total]
component = "running-total.wasm"
input = "numbers"
[sink.nowhere]
connector = "blackhole"
input = "total"
"#;

/// A pipeline without end.
fn running(interval: &str) -> (Stage, Running) {
    let stage = Stage::new();
    stage.components(&["running-total"]);
    stage.write("pipeline.toml", PIPELINE.replace("INTERVAL", interval));
    let mut running = stage.start(&[]);
    // It answers before it runs: until then, it says so.
    let is_ready = || stage.verb(&["state", "ls", "pipeline.toml", "--now"]).code() == Some(0);
    assert!(running.wait_until(is_ready));
    (stage, running)
}

#[test]
fn a_key_is_looked_up_now_and_again_in_a_pipeline_that_takes_no_checkpoints_by_itself() {
    let (stage, running) = running("1h");
    let mut before = (0, 0);
    for _ in 0..3 {
        let got = stage.verb(&["state", "get", "pipeline.toml", "total/totals", "3", "--now"]);
        assert_eq!(got.code(), Some(0), "{}", got.told());
        let read = got.only("state-checkpoint");
        let (id, count) = (&read["checkpoint"], &got.only("state-entry")["value"]["count"]);
        let now = (id.as_u64().unwrap(), count.as_u64().unwrap());
        assert!(now.0 > before.0 && now.1 > before.1, "{before:?}, then {now:?}");
        assert!(read["age_ms"].as_u64().is_some() && read["created_ms"].as_u64().is_some(), "{read}");
        // Without it, the same one is read again.
        let again = stage.verb(&["state", "get", "job", "total/totals", "3"]);
        assert_eq!((&again.only("state-checkpoint")["checkpoint"], again.only("state-entry")), (id, got.only("state-entry")));
        before = now;
    }
    let text = stage.text(&["state", "get", "pipeline.toml", "total/totals", "3", "--now"]);
    assert!(text.1.contains("checkpoint ") && text.1.contains(" ago ("), "{}", text.1);
    assert!(text.0.contains("count") && !text.0.contains("ago"), "the note is not in the result: {}", text.0);

    let exported = stage.verb(&["state", "export", "pipeline.toml", "total/totals", "--to", "totals.jsonl", "--now"]);
    assert_eq!(exported.only("state-exported")["entries"], 6, "{}", exported.told());
    let scanned = stage.verb(&["state", "scan", "job", "total/totals", "--now"]);
    assert_eq!((scanned.code(), scanned.all("state-entry").len()), (Some(0), 6), "{}", scanned.told());

    stage.verb(&["savepoint", "pipeline.toml", "--to", "saved"]).ended("savepoint");
    stage.verb(&["state", "ls", "saved", "--now"]).failed(4, "error", "not-running");
    stage.verb(&["state", "ls", "saved"]).only("state-list");
    stage.verb(&["stop", "pipeline.toml"]).ended("stopped");
    running.wait().ended("stopped");
    let error = stage.verb(&["state", "get", "pipeline.toml", "total/totals", "3", "--now"]);
    let error = error.failed(4, "error", "not-running");
    assert!(error["message"].as_str().unwrap().contains("job"), "{error}");
}

/// Returns how many checkpoints there are.
fn newest(job: &Path) -> u64 {
    let names = std::fs::read_dir(job).into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("chk-")?.parse().ok()).max().unwrap_or(0)
}

#[test]
fn state_is_read_while_checkpoints_come_and_go() {
    let (stage, running) = running("1ms");
    let before = newest(&stage.path("job"));
    let mut read = 0;
    for _ in 0..20 {
        for arguments in
            [&["state", "scan", "job", "total/totals"][..], &["state", "ls", "job"], &["state", "ls", "job", "--now"]]
        {
            let ended = stage.verb(arguments);
            if ended.code() == Some(0) {
                ended.only("state-checkpoint");
                read += 1;
            } else {
                // The next newest has gone as well.
                ended.failed(3, "error", "checkpoint-gone");
            }
        }
    }
    let taken = newest(&stage.path("job")) - before;
    println!("{read} of 60 reads while {taken} checkpoints were taken");
    assert!(taken > 20, "{taken} checkpoints are no trouble");
    assert!(read > 30, "{read} of 60 reads");
    stage.verb(&["stop", "job"]).ended("stopped");
    running.wait().ended("stopped");
}
