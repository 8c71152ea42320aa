//! State on disk: killed at any moment, with its store kept, lost or broken, a pipeline publishes each result once.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::kill::{kill_to_the_end, word_count};
use super::stage::Stage;

/// Distinct words: with their counts, several times the memory that is allowed.
const WORDS: u64 = 120_000;
/// How each file goes through the words: in steps that have no divisor in common with their number.
const STEPS: [u64; 24] = [1, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 7919, 104_729];

const ON_DISK: &str = "[state]\nbackend = \"disk\"\nmemory = \"4MiB\"\n";

/// Returns a word of its own for each number: of letters, as all else parts words.
fn word(number: u64) -> String {
    let letter = |place: u32| char::from(b'a' + u8::try_from(number / 16_u64.pow(place) % 16).unwrap());
    (0..16).rev().map(letter).collect()
}

/// Puts a word count of many words on stage. Returns the true counts.
fn stage_many_words(stage: &Stage, pipeline: &str) -> BTreeMap<String, u64> {
    for (file, step) in STEPS.into_iter().enumerate() {
        let mut text = String::new();
        for number in 0..WORDS {
            let word = word(number * step % WORDS);
            write!(text, "{word}{}", if number % 10 == 9 { '\n' } else { ' ' }).unwrap();
        }
        stage.write(&format!("in/{file}.txt"), &text);
    }
    stage.components(&["word-count-split", "word-count-count"]);
    stage.write("pipeline.toml", pipeline);
    (0..WORDS).map(|number| (word(number), STEPS.len() as u64)).collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    all.sort();
    all
}

#[test]
fn a_run_with_state_on_disk_killed_again_and_again_publishes_each_count_once() {
    let stage = Stage::new();
    let counts = stage_many_words(&stage, &format!("{}{ON_DISK}", word_count(2, "50ms")));
    let (mut stored, mut kept) = (0, 0);
    kill_to_the_end(&stage, &counts, &mut |stage, random| {
        let local = stage.path("job/local");
        let files = files(&local);
        stored += usize::from(!files.is_empty());
        match random.below(5) {
            0 => drop(fs::remove_dir_all(&local)),
            // A store whose files are not what they were is built again.
            1 if !files.is_empty() => {
                let file = &files[usize::try_from(random.below(files.len() as u64)).unwrap()];
                let mut bytes = fs::read(file).unwrap_or_default();
                bytes.truncate(bytes.len() / 2);
                fs::write(file, bytes).unwrap();
            }
            _ => kept += 1,
        }
    });
    assert!(stored > 0 && kept > 0);
    assert_eq!(files(&stage.path("job/local")), [] as [PathBuf; 0], "nothing stays of a job that has finished");
}

#[test]
fn state_moves_between_memory_and_disk_with_any_parallelism() {
    let stage = Stage::new();
    let counts = stage_many_words(&stage, &word_count(2, "50ms"));
    kill_to_the_end(&stage, &counts, &mut |stage, random| {
        let parallelism = u32::try_from(random.below(3)).unwrap() + 1;
        let state = if random.below(2) == 0 { "" } else { ON_DISK };
        stage.write("pipeline.toml", format!("{}{state}", word_count(parallelism, "50ms")));
    });
}
