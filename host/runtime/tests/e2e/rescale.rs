//! State of every kind through one change of parallelism after another: in the end it is that of a run without any.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use super::output::{check_counts, rows};
use super::stage::{Random, Stage, seed};

const PAYMENTS: usize = 40_000;
const SLOTS: [&str; 8] = ["count", "last", "amounts", "largest", "sum", "some", "met", "rules"];

/// The second source never ends, nor does the job: what it has kept can be looked at.
const PIPELINE: &str = r#"
[pipeline]
name = "kinds"
parallelism = 1
[checkpoint]
interval = "20ms"
storage = "STORAGE"
[source.payments]
connector = "files"
path = "in/*.jsonl"
format = "json"
key = "/user"
parallelism = 1
[source.ticks]
connector = "generator"
rate = 100
shape = "json"
splits = 1
parallelism = 1
[operator.kinds]
component = "every-kind.wasm"
input = ["payments", "ticks"]
[sink.rows]
connector = "files"
input = "kinds"
path = "OUT"
"#;

/// Writes payments; returns how many there are of each user. Those of a user are in one file, so that their order holds.
fn payments(stage: &Stage, random: &mut Random) -> BTreeMap<String, u64> {
    let (mut files, mut counts) = (vec![String::new(); 4], BTreeMap::new());
    for _ in 0..PAYMENTS {
        let (user, amount) = (random.below(40), random.below(60));
        let file = &mut files[usize::try_from(user % 4).unwrap()];
        writeln!(file, "{{\"user\": \"u{user}\", \"amount\": {amount}}}").unwrap();
        *counts.entry(format!("u{user}")).or_insert(0) += 1;
    }
    for (number, text) in files.iter().enumerate() {
        stage.write(&format!("in/{number}.jsonl"), text);
    }
    counts
}

/// Runs with each parallelism in turn, at the last until all is done; returns what is kept then, by slot, sorted.
fn run(stage: &Stage, name: &str, parallelisms: &[u32], counts: &BTreeMap<String, u64>) -> BTreeMap<String, Vec<String>> {
    stage.write("pipeline.toml", PIPELINE.replace("STORAGE", &format!("{name}/job")).replace("OUT", &format!("{name}/out")));
    let out = stage.path(&format!("{name}/out"));
    for (index, parallelism) in parallelisms.iter().enumerate() {
        let some_more = rows(&out).len() + PAYMENTS / 8;
        let goal = if index + 1 == parallelisms.len() { PAYMENTS } else { some_more.min(PAYMENTS) };
        let mut running = stage.start(&["--parallelism", &parallelism.to_string()]);
        let is_running = || stage.verb(&["state", "ls", "pipeline.toml", "--now"]).code() == Some(0);
        assert!(running.wait_until(|| rows(&out).len() >= goal && is_running()), "{}", running.wait().told());
        if index % 2 == 1 {
            running.kill();
        } else {
            stage.verb(&["stop", "pipeline.toml"]).ended("stopped");
            running.wait().ended("stopped");
        }
    }
    check_counts(&out, counts);
    let export = |slot: &str| {
        let file = format!("{name}/{slot}.jsonl");
        let ended = stage.verb(&["state", "export", "pipeline.toml", &format!("kinds/{slot}"), "--to", &file]);
        assert_eq!(ended.code(), Some(0), "{}", ended.told());
        let text = fs::read_to_string(stage.path(&file)).unwrap();
        // The places in the lists are those that their elements happened to get.
        let placed = |line: &str| match slot {
            "some" | "met" => serde_json::from_str::<serde_json::Value>(line).unwrap()["value"].to_string(),
            _ => line.to_owned(),
        };
        let mut lines: Vec<_> = text.lines().map(placed).collect();
        lines.sort();
        if slot == "met" {
            // Every subtask that met nobody since has what all others had, too.
            lines.dedup();
        }
        (slot.to_owned(), lines)
    };
    SLOTS.map(export).into_iter().collect()
}

#[test]
fn every_kind_of_state_comes_through_any_change_of_parallelism() {
    let mut random = Random(seed());
    let stage = Stage::new();
    stage.components(&["every-kind"]);
    let counts = payments(&stage, &mut random);
    let undisturbed = run(&stage, "undisturbed", &[1], &counts);
    assert_eq!(undisturbed["count"].len(), counts.len());
    assert_eq!(undisturbed["met"].len(), counts.len());
    assert!(undisturbed["some"].len() > PAYMENTS / 20 && undisturbed["rules"].len() == 1, "{undisturbed:?}");
    let rescaled = run(&stage, "rescaled", &[1, 3, 2, 5, 1], &counts);
    for slot in SLOTS {
        assert!(undisturbed[slot] == rescaled[slot], "{slot}: {:?}\nand {:?}", undisturbed[slot], rescaled[slot]);
    }
}
