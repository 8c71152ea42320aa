//! Stored checkpoints that are damaged, in use or of another pipeline.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::kill::{stage_words, word_count};
use super::output::{check_counts, parts, rows};
use super::stage::Stage;

/// A word count that was killed once several checkpoints were complete.
fn killed() -> (Stage, BTreeMap<String, u64>) {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(2, "20ms"), 6, 40_000);
    let mut running = stage.start(&[]);
    assert!(running.wait_until(|| manifests(&stage).len() >= 3));
    running.kill();
    assert!(!stage.path("job/finished").exists(), "it was killed on its way");
    (stage, counts)
}

/// Returns the manifests there are, the newest last.
fn manifests(stage: &Stage) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(stage.path("job")) else { return Vec::new() };
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("chk-")?.parse::<u64>().ok();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.join("_manifest").exists()).collect();
    found.sort_by_key(number);
    found.into_iter().map(|path| path.join("_manifest")).collect()
}

fn flip_bit(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(path, bytes).unwrap();
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    parts(folder).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Checks that a run with damage done is refused and touches nothing, that the damage is shown, and that the run goes on
/// once it is repaired.
fn is_refused_until_repaired(find: impl Fn(&Stage) -> PathBuf, damage: impl Fn(&Path)) {
    let (stage, counts) = killed();
    let file = find(&stage);
    let whole = fs::read(&file).unwrap();
    damage(&file);
    let published = contents(&stage.path("out"));
    for _ in 0..2 {
        let ended = stage.run(&[]);
        let failed = ended.failed(3, "failed", "restore");
        let message = failed["message"].as_str().unwrap();
        assert!(message.contains("restore-damaged: checkpoint ") && message.contains("--allow-rewind"), "{message}");
        assert!(ended.all("started").is_empty(), "{}", ended.told());
        // Nobody of the job is to blame.
        let fault = ended.only("fault");
        assert!(fault["operator"].is_null() && fault["subtask"].is_null(), "{fault}");
    }
    assert!(contents(&stage.path("out")) == published, "a run that is refused publishes nothing and takes nothing away");
    let shown = stage.verb(&["checkpoint", "show", "pipeline.toml"]);
    assert_eq!(shown.code(), Some(3), "{}", shown.told());
    assert!(shown.only("checkpoint-detail").to_string().contains("damage"), "{}", shown.told());

    fs::write(&file, whole).unwrap();
    let shown = stage.verb(&["checkpoint", "show", "pipeline.toml"]);
    assert_eq!(shown.code(), Some(0), "{}", shown.told());
    stage.run(&[]).ended("finished");
    check_counts(&stage.path("out"), &counts);
}

#[test]
fn a_truncated_manifest_is_refused_until_it_is_repaired() {
    let cut = |path: &Path| fs::write(path, &fs::read(path).unwrap()[..50]).unwrap();
    is_refused_until_repaired(|stage| manifests(stage).pop().unwrap(), cut);
}

#[test]
fn a_flipped_bit_in_a_manifest_is_refused_until_it_is_repaired() {
    is_refused_until_repaired(|stage| manifests(stage).pop().unwrap(), flip_bit);
}

#[test]
fn a_flipped_bit_in_a_segment_is_refused_until_it_is_repaired() {
    let newest = |stage: &Stage| {
        let shown = stage.verb(&["checkpoint", "show", "pipeline.toml"]);
        let detail = &shown.only("checkpoint-detail")["detail"];
        let name = detail["files"].as_array().unwrap().last().unwrap()["name"].as_str().unwrap();
        stage.path(&format!("job/segments/{name}.seg"))
    };
    is_refused_until_repaired(newest, flip_bit);
}

#[test]
fn a_rewind_behind_a_damaged_checkpoint_repeats_output_and_loses_none() {
    let (stage, counts) = killed();
    let newest = manifests(&stage).pop().unwrap();
    fs::write(&newest, "").unwrap();
    let ended = stage.run(&["--allow-rewind"]);
    ended.ended("finished");
    assert!(ended.only("started")["restored"].is_u64(), "{}", ended.told());
    let mut found = BTreeMap::new();
    for row in rows(&stage.path("out")) {
        *found.entry(row).or_insert(0_u64) += 1;
    }
    // Each row is there; those since the older checkpoint may be there twice.
    for (word, count) in &counts {
        for n in 1..=*count {
            let times = found.remove(&format!("{word}\t{n}")).unwrap_or(0);
            assert!((1..=2).contains(&times), "{word} {n} is there {times} times");
        }
    }
    assert!(found.is_empty(), "rows that should not be there: {:?}", found.keys());
}

#[test]
fn a_second_host_is_refused_while_the_first_one_lives_even_if_it_stands_still() {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(2, "20ms"), 4, 40_000);
    let mut first = stage.start(&[]);
    assert!(first.wait_until(|| !parts(&stage.path("out")).is_empty()));
    first.suspend();
    let published = contents(&stage.path("out"));
    for arguments in [&[][..], &["--fresh"], &["--allow-rewind"]] {
        let ended = stage.run(arguments);
        let error = ended.failed(3, "error", "storage-locked");
        assert!(error["message"].as_str().unwrap().contains("job"), "{error}");
    }
    // Looking is allowed.
    let listed = stage.verb(&["checkpoint", "list", "pipeline.toml"]);
    assert_eq!(listed.code(), Some(0), "{}", listed.told());
    assert!(contents(&stage.path("out")) == published);
    first.resume();
    first.wait().ended("finished");
    check_counts(&stage.path("out"), &counts);
}

#[test]
fn checkpoints_of_a_pipeline_that_has_lost_an_operator_are_refused_and_kept() {
    let (stage, counts) = killed();
    let whole = fs::read_to_string(stage.path("pipeline.toml")).unwrap();
    stage.write("pipeline.toml", whole.replace("[operator.count]", "[operator.total]").replace("\"count\"", "\"total\""));
    let ended = stage.run(&[]);
    let failed = ended.failed(3, "failed", "restore");
    assert!(failed["message"].as_str().unwrap().contains("count"), "{failed}");
    stage.write("pipeline.toml", whole);
    stage.run(&[]).ended("finished");
    check_counts(&stage.path("out"), &counts);
}
