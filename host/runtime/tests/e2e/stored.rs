//! Looking inside the checkpoints of a job that was killed, and state that was made before a job.

use std::fs;
use std::process::Stdio;

use super::kill::{stage_words, word_count};
use super::output::check_counts;
use super::stage::Stage;

/// A word count that was killed once several checkpoints were complete.
fn killed() -> Stage {
    let stage = Stage::new();
    stage_words(&stage, &word_count(2, "20ms"), 6, 40_000);
    let mut running = stage.start(&[]);
    let manifests = || {
        let entries = fs::read_dir(stage.path("job")).into_iter().flatten();
        entries.filter(|entry| entry.as_ref().unwrap().path().join("_manifest").exists()).count()
    };
    assert!(running.wait_until(|| manifests() >= 3));
    running.kill();
    stage
}

#[test]
fn state_of_a_killed_job_is_listed_got_scanned_exported_compared_verified_and_swept() {
    let stage = killed();
    let listed = stage.verb(&["checkpoint", "list", "pipeline.toml"]);
    let ids: Vec<u64> = listed.only("checkpoint-list")["list"]["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_u64().unwrap())
        .collect();
    let [older, newest] = [ids[ids.len() - 2], ids[ids.len() - 1]].map(|id| id.to_string());

    let slots = stage.verb(&["state", "ls", "pipeline.toml"]);
    let slot = slots.only("state-list")["slots"][0].clone();
    assert_eq!(slots.code(), Some(0), "{}", slots.told());
    let name = format!("{}/{}", slot["operator"].as_str().unwrap(), slot["slot"].as_str().unwrap());
    let keys = usize::try_from(slot["keys"].as_u64().unwrap()).unwrap();
    assert!(keys > 0, "{slot}");

    let scanned = stage.verb(&["state", "scan", "pipeline.toml", &name]);
    let entries = scanned.all("state-entry");
    assert_eq!(entries.len(), keys, "{}", scanned.told());
    let limited = stage.verb(&["state", "scan", "pipeline.toml", &name, "--limit", "2"]);
    assert_eq!(limited.all("state-entry").len(), 2.min(keys));
    for entry in entries.iter().take(3) {
        let got = stage.verb(&["state", "get", "pipeline.toml", &name, entry["key"].as_str().unwrap()]);
        assert_eq!(got.only("state-entry"), *entry);
    }
    let missing = stage.verb(&["state", "get", "pipeline.toml", &name, "hex:00ff00ff"]);
    assert_eq!((missing.code(), missing.last()), (Some(0), "state-missing"), "{}", missing.told());

    let exported = stage.verb(&["state", "export", "pipeline.toml", &name, "--to", "state.jsonl"]);
    assert_eq!(exported.only("state-exported")["entries"], keys);
    assert_eq!(fs::read_to_string(stage.path("state.jsonl")).unwrap().lines().count(), keys);
    let again = stage.verb(&["state", "export", "pipeline.toml", &name, "--to", "state.jsonl"]);
    again.failed(2, "error", "file-exists");
    stage.verb(&["state", "export", "pipeline.toml", &name, "--to", "/dev/full"]).failed(4, "error", "output-unwritable");
    stage.verb(&["state", "get", "pipeline.toml", "count/none", "a"]).failed(2, "error", "no-slot");
    stage.verb(&["state", "get", "pipeline.toml", &name, "u64:x"]).failed(2, "error", "bad-key");

    let same = stage.verb(&["checkpoint", "diff", "pipeline.toml", &newest, &newest]);
    assert_eq!(same.only("checkpoint-diff")["diff"]["slots"].as_array().unwrap().len(), 0);
    let diff = stage.verb(&["checkpoint", "diff", "pipeline.toml", &older, &newest, "--keys", "3"]);
    assert_eq!(diff.code(), Some(0), "{}", diff.told());
    assert!(diff.only("checkpoint-diff")["diff"]["slots"][0]["keys"].as_array().is_none_or(|keys| keys.len() <= 3));

    let verified = stage.verb(&["checkpoint", "verify", "pipeline.toml", "--all"]);
    assert_eq!((verified.code(), &verified.only("checkpoint-verified")["whole"]), (Some(0), &true.into()), "{}", verified.told());
    let dry = stage.verb(&["checkpoint", "gc", "pipeline.toml", "--dry-run"]);
    let swept = stage.verb(&["checkpoint", "gc", "pipeline.toml"]);
    assert_eq!(dry.only("checkpoint-garbage")["garbage"], swept.only("checkpoint-garbage")["garbage"]);
    let verified = stage.verb(&["checkpoint", "verify", "pipeline.toml", "--all"]);
    assert_eq!(verified.code(), Some(0), "{}", verified.told());

    let segment = fs::read_dir(stage.path("job/segments")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let damaged = stage.verb(&["checkpoint", "verify", "pipeline.toml", "--all"]);
    assert_eq!(damaged.code(), Some(3), "{}", damaged.told());
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(damaged.only("checkpoint-verified").to_string().contains(name), "{}", damaged.told());
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_reader_that_goes_away_is_none() {
    let stage = killed();
    for arguments in [
        &["check", "pipeline.toml", "--no-build"][..],
        &["inspect", "word-count-count.wasm"],
        &["state", "ls", "job"],
        &["state", "scan", "job", "count/n"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = stage.command(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {told}");
        assert!(told.contains("output-unwritable"), "{arguments:?}: {told}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = stage.command(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), told.contains("error")), (Some(0), false), "{arguments:?}: {told}");
    }
}

#[test]
fn every_compression_gives_the_same_counts_and_may_be_changed() {
    let stage = Stage::new();
    let pipeline = |name: &str| word_count(2, "20ms").replace("interval =", &format!("compression = \"{name}\"\ninterval ="));
    let counts = stage_words(&stage, &pipeline("zstd"), 6, 40_000);
    let mut running = stage.start(&[]);
    assert!(running.wait_until(|| stage.path("job/segments").read_dir().is_ok_and(|files| files.count() > 4)));
    running.kill();
    stage.write("pipeline.toml", pipeline("none"));
    stage.run(&[]).ended("finished");
    check_counts(&stage.path("out"), &counts);
}
