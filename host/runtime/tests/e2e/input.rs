//! Input that is wrong or missing, and output that cannot be written.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::kill::{stage_words, word_count};
use super::output::{check_counts, check_totals, parts, rows, staged};
use super::stage::{Stage, example};

/// Running totals; `source` are further keys of the source.
fn totals(source: &str, out: &str, restart: &str) -> String {
    format!(
        r#"
[pipeline]
name = "totals"
[checkpoint]
interval = "20ms"
storage = "job"
[restart]
{restart}
[source.payments]
connector = "files"
path = "payments.jsonl"
format = "json"
key = "/user"
{source}
[operator.total]
component = "running-total.wasm"
input = "payments"
[sink.totals]
connector = "files"
input = "total"
path = "{out}"
"#
    )
}

const NO_RESTART: &str = "strategy = \"none\"";

fn stage(pipeline: &str, payments: &str) -> Stage {
    let stage = Stage::new();
    stage.components(&["running-total"]);
    stage.write("pipeline.toml", pipeline);
    stage.write("payments.jsonl", payments);
    stage
}

#[test]
fn a_folder_without_a_file_is_missing_input_unless_that_is_allowed() {
    let folder = |source: &str| totals(source, "out", NO_RESTART).replace("\"payments.jsonl\"", "\"in/\"");
    let stage = stage(&folder(""), "");
    stage.write("in/.hidden", "{}\n");
    let ended = stage.run(&[]);
    let message = ended.failed(4, "failed", "input-missing")["message"].as_str().unwrap();
    assert!(message.contains("the folder path = \"in\" has no file to read") && message.contains("allow-empty"), "{message}");
    assert!(ended.all("started").is_empty(), "{}", ended.told());

    stage.write("pipeline.toml", folder("allow-empty = true"));
    let ended = stage.run(&["--fresh"]);
    assert_eq!(ended.ended("finished")["records_in"], 0);
    assert!(parts(&stage.path("out")).is_empty());
}

#[test]
fn a_malformed_record_fails_the_job_with_file_line_and_byte() {
    let good = example("running-total/payments.jsonl");
    let (before, after) = good.split_at(good.match_indices('\n').nth(49).unwrap().0 + 1);
    let payments = format!("{before}{{\"user\": \"ada\", \"amount\":\n{after}");
    let stage = stage(&totals("", "out", NO_RESTART), &payments);
    let ended = stage.run(&[]);
    let failed = ended.failed(1, "failed", "record-malformed");
    let message = failed["message"].as_str().unwrap();
    let place = format!("\"payments.jsonl\" line 51 (byte {})", before.len());
    assert!(message.contains(&place), "{message}");
    assert_eq!(ended.only("fault")["operator"], "payments");

    // Told to skip it, the job counts it and does the rest.
    stage.write("pipeline.toml", totals("on-malformed = \"skip\"", "out", NO_RESTART));
    let ended = stage.run(&[]);
    let finished = ended.ended("finished");
    assert_eq!((&finished["malformed"], &finished["restarts"]), (&1.into(), &0.into()), "{finished}");
    check_totals(&stage.path("out"), &good);
}

#[test]
fn a_record_that_the_operator_cannot_read_is_an_error_that_says_why() {
    let stage =
        stage(&totals("", "out", NO_RESTART), "{\"user\": \"ada\", \"amount\": 1}\n{\"user\": \"ada\", \"amount\": \"2\"}\n");
    let ended = stage.run(&[]);
    ended.failed(1, "failed", "guest-error");
    let fault = ended.only("fault");
    assert!(fault["message"].as_str().unwrap().contains("invalid type: string"), "{fault}");
    assert!(fault["position"].as_str().unwrap().starts_with("record 2 "), "{fault}");
}

#[test]
fn a_record_without_its_key_is_malformed() {
    let stage = stage(&totals("", "out", NO_RESTART), "{\"amount\": 1}\n");
    let ended = stage.run(&[]);
    let failed = ended.failed(1, "failed", "record-malformed");
    assert!(failed["message"].as_str().unwrap().contains("/user"), "{failed}");
}

#[test]
fn input_that_does_not_exist_is_named() {
    let stage = stage(&totals("", "out", NO_RESTART), "");
    fs::remove_file(stage.path("payments.jsonl")).unwrap();
    let ended = stage.run(&[]);
    let failed = ended.failed(4, "failed", "input-missing");
    assert!(failed["message"].as_str().unwrap().contains("\"payments.jsonl\" does not exist"), "{failed}");
}

#[test]
fn empty_input_is_a_job_that_finishes_without_output() {
    let stage = stage(&totals("", "out", NO_RESTART), "");
    stage.run(&[]).ended("finished");
    assert!(parts(&stage.path("out")).is_empty());
}

#[test]
fn a_last_line_without_newline_counts() {
    let stage = stage(&totals("", "out", NO_RESTART), "{\"user\": \"ada\", \"amount\": 7}");
    stage.run(&[]).ended("finished");
    assert_eq!(rows(&stage.path("out")), ["{\"user\":\"ada\",\"count\":1,\"sum\":7}"]);
}

#[test]
fn an_output_folder_that_cannot_be_made_is_named_before_anything_is_read() {
    // Below a file: not even root can make a folder there.
    let stage = stage(&totals("", "payments.jsonl/out", NO_RESTART), &example("running-total/payments.jsonl"));
    let ended = stage.run(&[]);
    let failed = ended.failed(4, "failed", "output-not-writable");
    assert!(failed["message"].as_str().unwrap().contains("payments.jsonl/out"), "{failed}");
    assert!(ended.all("started").is_empty(), "{}", ended.told());
    // With another folder, the same run goes on.
    stage.write("pipeline.toml", totals("", "out", NO_RESTART));
    stage.run(&[]).ended("finished");
    check_totals(&stage.path("out"), &example("running-total/payments.jsonl"));
}

/// A small file system in memory; unmounted when dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Mounts it, unless this process may not.
    fn mount(path: &'a Path, size: &str) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(path).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(path));
        }
        println!("skipped: a small file system cannot be mounted here");
        None
    }

    fn resize(&self, size: &str) {
        let resized = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(self.0).status().unwrap();
        assert!(resized.success());
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // Whatever became of the test, the folder must be free to be removed.
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_fails_the_output_by_name_and_the_next_run_goes_on_once_there_is_room() {
    let payments = example("running-total/payments.jsonl").repeat(40);
    let restart = "strategy = \"fixed-delay\"\nattempts = 2\ndelay = \"1ms\"";
    let stage = stage(&totals("", "small/out", restart), &payments);
    let small = stage.path("small");
    let Some(disk) = SmallDisk::mount(&small, "256k") else { return };
    let ended = stage.run(&[]);
    let failed = ended.failed(4, "failed", "disk-full");
    assert!(failed["message"].as_str().unwrap().contains("small/out"), "{failed}");
    assert_eq!(ended.all("fault").len(), 3, "{}", ended.told());
    disk.resize("64m");
    stage.run(&[]).ended("finished");
    check_totals(&small.join("out"), &payments);
    assert_eq!(staged(&small.join("out"), "totals", "totals"), [""; 0]);
}

#[test]
fn a_full_disk_fails_checkpoints_by_name_and_what_was_published_is_not_published_again() {
    let stage = Stage::new();
    let pipeline = word_count(2, "20ms").replace("\"job\"", "\"small/job\"");
    let restart = "[restart]\nstrategy = \"fixed-delay\"\nattempts = 1\ndelay = \"1ms\"\n";
    let counts = stage_words(&stage, &format!("{pipeline}{restart}"), 2, 40_000);
    let small = stage.path("small");
    let Some(disk) = SmallDisk::mount(&small, "96k") else { return };
    let ended = stage.run(&[]);
    let failed = ended.all("failed");
    assert_eq!((ended.last(), failed.len()), ("failed", 1), "{}", ended.told());
    assert!(!ended.all("checkpoint-failed").is_empty(), "{}", ended.told());
    assert!(
        ended.all("checkpoint-failed").iter().all(|failed| failed["reason"].to_string().contains("space")),
        "{}",
        ended.told()
    );
    disk.resize("64m");
    stage.run(&[]).ended("finished");
    check_counts(&stage.path("out"), &counts);
}
