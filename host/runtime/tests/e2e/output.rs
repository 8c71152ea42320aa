//! What a pipeline has published, and what it should have.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Returns the published parts of a folder, in the order of their names. None if there is no folder.
pub(crate) fn parts(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut parts: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    parts.retain(|path| !path.file_name().unwrap().as_encoded_bytes().starts_with(b"."));
    parts.sort();
    parts
}

/// Returns the published lines, in the order of the parts' names.
pub(crate) fn rows(folder: &Path) -> Vec<String> {
    let texts = parts(folder).into_iter().map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Returns how many bytes are published.
pub(crate) fn published_bytes(folder: &Path) -> u64 {
    parts(folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// Returns how many files are staged under a folder of output.
pub(crate) fn staged(folder: &Path, pipeline: &str, sink: &str) -> Vec<String> {
    let folder = folder.join(".cofferdam-staged").join(pipeline).join(sink);
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lock" && name != "committed").collect()
}

/// Counts the words of a text, in a way of its own.
pub(crate) fn count_words(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut word = String::new();
    // The last character ends the last word.
    for character in text.chars().chain(['\n']) {
        if character.is_ascii_alphabetic() || character == '\'' {
            word.push(character.to_ascii_lowercase());
            continue;
        }
        let trimmed = word.trim_matches('\'');
        if !trimmed.is_empty() {
            *counts.entry(trimmed.to_owned()).or_insert(0) += 1;
        }
        word.clear();
    }
    counts
}

/// Checks that each word has exactly the rows 1 to its count: none is missing, none is there twice.
pub(crate) fn check_counts(folder: &Path, expected: &BTreeMap<String, u64>) {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for part in parts(folder) {
        for line in fs::read_to_string(&part).unwrap().lines() {
            let (word, count) = line.split_once('\t').unwrap_or_else(|| panic!("{}: {line:?}", part.display()));
            let count = count.parse().unwrap_or_else(|_| panic!("{}: {line:?}", part.display()));
            match found.get_mut(word) {
                Some(counts) => counts.push(count),
                None => drop(found.insert(word.to_owned(), vec![count])),
            }
        }
    }
    for (word, count) in expected {
        let mut rows = found.remove(word).unwrap_or_default();
        rows.sort_unstable();
        assert!(rows.iter().copied().eq(1..=*count), "{word:?} occurs {count} times and has the rows {rows:?}");
    }
    assert!(found.is_empty(), "words that are not in the text: {:?}", found.keys());
}

/// Checks the output of running totals against the payments, whose order within a user holds.
pub(crate) fn check_totals(folder: &Path, payments: &str) {
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let mut totals: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    let mut expected: Vec<(String, u64, i64)> = Vec::new();
    for payment in payments.lines().map(parse) {
        let user = payment["user"].as_str().unwrap().to_owned();
        let total = totals.entry(user.clone()).or_default();
        *total = (total.0 + 1, total.1 + payment["amount"].as_i64().unwrap());
        expected.push((user, total.0, total.1));
    }
    let row = |line: String| {
        let row = parse(&line);
        (row["user"].as_str().unwrap().to_owned(), row["count"].as_u64().unwrap(), row["sum"].as_i64().unwrap())
    };
    let mut found: Vec<_> = rows(folder).into_iter().map(row).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}
