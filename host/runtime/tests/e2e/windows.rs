//! Pipelines with windows, as components: published queries have their published rows, and the most frequent words of each window
//! are those that a count of the input gives.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::output::rows;
use super::stage::{Stage, example};

/// A row with times as milliseconds since 1970.
fn normal(row: &str) -> String {
    let mut row: Value = serde_json::from_str(row).unwrap();
    for name in ["hour", "start", "end"] {
        if let Some(text) = row[name].as_str() {
            let time = humantime::parse_rfc3339_weak(text).unwrap().duration_since(UNIX_EPOCH).unwrap();
            row[name] = json!(u64::try_from(time.as_millis()).unwrap());
        }
    }
    row.to_string()
}

/// Each query's pipeline, and the name of its expected rows.
const QUERIES: [(&str, &str); 4] = [
    ("hourly", "hourly_by_event_type"),
    ("join", "windowed_inner_join"),
    ("sessions", "session_window"),
    ("sliding", "sliding_window_end"),
];

#[test]
fn queries_have_the_published_rows_over_both_backends() {
    for backend in ["memory", "disk"] {
        let stage = Stage::new();
        stage.components(&["window-queries"]);
        for input in ["cars.json", "impulse.json"] {
            stage.write(input, example(&format!("window-queries/{input}")));
        }
        for (query, expected) in QUERIES {
            let pipeline = example(&format!("window-queries/{query}.toml"));
            let pipeline = pipeline.replace("component = \"queries\"", "component = \"window-queries.wasm\"");
            stage.write("pipeline.toml", format!("{pipeline}\n[state]\nbackend = \"{backend}\"\n"));
            stage.run(&[]).ended("finished");
            let mut found: Vec<_> = rows(&stage.path(&format!("out/{query}"))).iter().map(|row| normal(row)).collect();
            let mut expected: Vec<_> = example(&format!("window-queries/expected/{expected}.json")).lines().map(normal).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{query}, state in {backend}");
        }
    }
}

#[test]
fn the_most_frequent_words_of_each_window_are_those_of_a_count() {
    let stage = Stage::new();
    let names = ["split", "count", "top"].map(|name| format!("windowed-top-n-{name}"));
    stage.components(&names.each_ref().map(String::as_str));
    let mut pipeline = example("windowed-top-n/pipeline.toml");
    for name in ["split", "count", "top"] {
        pipeline = pipeline.replace(&format!("component = \"{name}\""), &format!("component = \"windowed-top-n-{name}.wasm\""));
    }
    stage.write("pipeline.toml", pipeline);
    let lines = example("windowed-top-n/lines.jsonl");
    stage.write("lines.jsonl", &lines);
    stage.run(&[]).ended("finished");

    let mut counts: BTreeMap<i64, BTreeMap<String, u64>> = BTreeMap::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let window = line["at"].as_i64().unwrap() / 20_000 * 20_000;
        for word in line["text"].as_str().unwrap().split(|c: char| !c.is_alphabetic() && c != '\'') {
            let word = word.trim_matches('\'').to_lowercase();
            if !word.is_empty() {
                *counts.entry(window).or_default().entry(word).or_default() += 1;
            }
        }
    }
    let mut expected = Vec::new();
    for (window, counts) in counts {
        let mut counts: Vec<_> = counts.into_iter().map(|(word, count)| (std::cmp::Reverse(count), word)).collect();
        counts.sort();
        let row = |(rank, (count, word)): (usize, (std::cmp::Reverse<u64>, String))| {
            json!({"window": window, "rank": rank, "word": word, "count": count.0}).to_string()
        };
        expected.extend((1..).zip(counts.into_iter().take(3)).map(row));
    }
    let mut found: Vec<_> = rows(&stage.path("out")).iter().map(|row| normal(row)).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
