//! Killed at any moment, a pipeline publishes each result once.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::output::{check_counts, count_words, parts, published_bytes};
use super::reader::Reader;
use super::stage::{Ended, Random, Running, Stage, example, seed};

/// How often a run is killed.
const KILLS: u64 = 30;

/// Word count over all texts of the folder `in`.
pub(crate) fn word_count(parallelism: u32, interval: &str) -> String {
    format!(
        r#"
[pipeline]
name = "words"
parallelism = {parallelism}
[checkpoint]
interval = "{interval}"
storage = "job"
[source.lines]
connector = "files"
path = "in/*.txt"
[operator.split]
component = "word-count-split.wasm"
input = "lines"
[operator.count]
component = "word-count-count.wasm"
input = "split"
[sink.counts]
connector = "files"
input = "count"
path = "out"
"#
    )
}

/// Puts a word count on stage whose input is `copies` files of `lines` lines of the real text. Returns the true counts.
pub(crate) fn stage_words(stage: &Stage, pipeline: &str, copies: u64, lines: usize) -> BTreeMap<String, u64> {
    let text = example("word-count/shakespeare.txt");
    let text: String = text.split_inclusive('\n').take(lines).collect();
    for copy in 0..copies {
        stage.write(&format!("in/{copy}.txt"), &text);
    }
    stage.components(&["word-count-split", "word-count-count"]);
    stage.write("pipeline.toml", pipeline);
    let mut counts = count_words(&text);
    counts.values_mut().for_each(|count| *count *= copies);
    counts
}

fn output_bytes(counts: &BTreeMap<String, u64>) -> u64 {
    let mut row = String::new();
    let mut of_word = |(word, count): (&String, &u64)| {
        (1..=*count).fold(0, |sum, n| {
            row.clear();
            writeln!(row, "{word}\t{n}").unwrap();
            sum + row.len() as u64
        })
    };
    counts.iter().map(&mut of_word).sum()
}

/// Kills one run again and again at moments that the seed chooses, not too late for the next.
fn killed_again_and_again(parallelism: u32) {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(parallelism, "50ms"), 24, 40_000);
    kill_to_the_end(&stage, &counts, &mut |_, _| {});
}

/// Kills a word count again and again, until it has finished, and compares what it published. Between a kill and the next
/// run `meanwhile` is called.
pub(crate) fn kill_to_the_end(stage: &Stage, counts: &BTreeMap<String, u64>, meanwhile: &mut dyn FnMut(&Stage, &mut Random)) {
    let mut random = Random(seed());
    let total = output_bytes(counts);
    let out = stage.path("out");
    let reader = Reader::start(&out);
    let (mut kills, mut longest_us) = (0, 40_000);
    while kills < KILLS {
        let mut running = stage.start(&[]);
        if !running.run_for(Duration::from_micros(random.below(longest_us))) {
            check_end(&running.wait());
            break;
        }
        running.kill();
        kills += 1;
        meanwhile(stage, &mut random);
        // Each kill may take its part of nine tenths of the way, on a fast machine as on a slow one.
        let is_ahead = published_bytes(&out) * KILLS * 10 > total * kills * 9;
        longest_us = if is_ahead { longest_us / 2 } else { longest_us * 11 / 10 };
    }
    println!("killed {kills} times; {} of {total} bytes were published by then", published_bytes(&out));
    assert!(kills >= KILLS / 2, "the run was over after {kills} kills");
    // The last run may have been the one that finished: then this one has nothing to do.
    check_end(&stage.run(&[]));
    assert!(reader.finish(&out) > 1);
    check_counts(&out, counts);
    assert_eq!(published_bytes(&out), total);
}

/// Checks that a run has finished, or had before: a kill may come between the mark and the exit.
fn check_end(ended: &Ended) {
    assert!(ended.code() == Some(0) && matches!(ended.last(), "finished" | "already-finished"), "{}", ended.told());
}

#[test]
fn a_run_killed_thirty_times_publishes_each_count_once() {
    killed_again_and_again(1);
}

#[test]
fn a_parallel_run_killed_thirty_times_publishes_each_count_once() {
    killed_again_and_again(2);
}

/// Kills runs around their only checkpoint, the final one, a little after `is_moment`. The next run does the rest.
fn killed_at_the_end(is_moment: impl Fn(&Stage) -> bool) {
    let mut random = Random(seed());
    let mut ends = BTreeMap::new();
    for round in 0..8 {
        let stage = Stage::new();
        let counts = stage_words(&stage, &word_count(2, "off"), 2, 1000);
        let out = stage.path("out");
        let reader = Reader::start(&out);
        let mut running = stage.start(&[]);
        assert!(running.wait_until(|| is_moment(&stage)));
        running.run_for(Duration::from_micros(random.below(500 * (round + 1))));
        running.kill();
        let ended = stage.run(&[]);
        assert_eq!(ended.code(), Some(0), "{}", ended.told());
        *ends.entry(ended.last().to_owned()).or_insert(0) += 1;
        // And once more: what has finished stays so.
        stage.run(&[]).ended("already-finished");
        reader.finish(&out);
        check_counts(&out, &counts);
    }
    println!("the runs after the kill: {ends:?}");
    assert!(ends.keys().all(|end| end == "finished" || end == "already-finished"), "{ends:?}");
}

/// The manifest goes when the job has finished: whoever looks too late sees the mark that it has.
fn is_complete(stage: &Stage) -> bool {
    stage.path("job/chk-1/_manifest").exists() || stage.path("job/finished").exists()
}

#[test]
fn a_kill_before_the_final_commit_loses_and_doubles_nothing() {
    killed_at_the_end(is_complete);
}

#[test]
fn a_kill_during_the_final_commit_loses_and_doubles_nothing() {
    killed_at_the_end(|stage| !parts(&stage.path("out")).is_empty());
}

#[test]
fn a_finished_run_says_so_and_a_fresh_one_begins_anew_beside_what_is_published() {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(2, "50ms"), 2, 500);
    stage.run(&[]).ended("finished");
    let out = stage.path("out");
    let first = parts(&out);
    check_counts(&out, &counts);
    stage.run(&[]).ended("already-finished");
    assert_eq!(parts(&out), first);

    stage.run(&["--fresh"]).ended("finished");
    let second = parts(&out);
    assert!(first.iter().all(|part| second.contains(part)), "published output stays");
    // The second run's parts alone are a whole result.
    for part in &first {
        std::fs::remove_file(part).unwrap();
    }
    check_counts(&out, &counts);
}

#[test]
fn a_fresh_run_forgets_a_run_that_was_killed() {
    let stage = Stage::new();
    let counts = stage_words(&stage, &word_count(1, "20ms"), 4, 20_000);
    let out = stage.path("out");
    let mut running: Running = stage.start(&[]);
    assert!(running.wait_until(|| !parts(&out).is_empty()));
    running.kill();
    std::fs::remove_dir_all(&out).unwrap();
    stage.run(&["--fresh"]).ended("finished");
    check_counts(&out, &counts);
}
