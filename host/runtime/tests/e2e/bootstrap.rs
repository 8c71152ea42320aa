//! State that is written from Rust before a pipeline runs: it begins with it as if it had made it.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam::stored::{NewSlot, NewState, SavepointWriter, StoredJob};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::output::{parts, rows};
use super::stage::{Stage, example};

/// What the example keeps for each user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Totals {
    count: u64,
    sum: i64,
}

#[derive(Deserialize)]
struct Payment {
    user: String,
    amount: i64,
}

fn pipeline() -> String {
    let pipeline = example("running-total/pipeline.toml").replace("component = \"total\"", "component = \"running-total.wasm\"");
    pipeline.replace("interval = \"1s\"", "interval = \"10ms\"\nstorage = \"job\"")
}

/// Pays; returns the rows that are told of it.
fn pay(totals: &mut BTreeMap<String, Totals>, payments: &str) -> Vec<String> {
    let row = |line: &str| {
        let Payment { user, amount } = serde_json::from_str(line).unwrap();
        let total = totals.entry(user.clone()).or_default();
        *total = Totals { count: total.count + 1, sum: total.sum + amount };
        format!("{{\"user\":\"{user}\",\"count\":{},\"sum\":{}}}", total.count, total.sum)
    };
    payments.lines().map(row).collect()
}

/// Writes the totals into a folder, as the operator declares them.
fn write(folder: &Path, declared: &Value, totals: &BTreeMap<String, Totals>) {
    let [name, codec, schema] = ["name", "codec", "schema"].map(|field| declared[field].as_str().unwrap());
    let mut writer = SavepointWriter::create(folder, NewState::new("running-total")).unwrap();
    let entries = totals.iter().map(|(user, total)| (user.as_bytes().to_vec(), postcard::to_allocvec(total).unwrap()));
    writer.slot(&NewSlot::value("total", name, codec, schema), entries).unwrap();
    assert_eq!(writer.finish().unwrap().0, 1);
}

/// The later half of the payments as input, and the slot of the operator; the totals of the earlier half, and what is to come.
fn stage() -> (Stage, Value, BTreeMap<String, Totals>, Vec<String>) {
    let payments = example("running-total/payments.jsonl");
    let half = payments.match_indices('\n').nth(499).unwrap().0 + 1;
    let mut totals = BTreeMap::new();
    pay(&mut totals, &payments[..half]);
    let before = totals.clone();
    let mut expected = pay(&mut totals, &payments[half..]);
    expected.sort();
    let stage = Stage::new();
    stage.components(&["running-total"]);
    stage.write("payments.jsonl", &payments[half..]);
    stage.write("pipeline.toml", pipeline());
    let declared = stage.verb(&["inspect", "running-total.wasm"]).only("component")["descriptor"]["slots"][0].clone();
    assert_eq!((&declared["codec"], &declared["schema"]), (&"postcard".into(), &"1 Totals{count:u64,sum:i64}".into()));
    (stage, declared, before, expected)
}

fn check(stage: &Stage, expected: &[String]) {
    let mut found = rows(&stage.path("out"));
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_pipeline_begins_with_state_that_was_written_into_its_directory() {
    let (stage, declared, totals, expected) = stage();
    write(&stage.path("job"), &declared, &totals);
    let changes = stage.verb(&["plan", "pipeline.toml", "--no-build"]).only("changes").clone();
    assert_eq!(changes["go"], true, "{changes}");
    let node = changes["nodes"].as_array().unwrap().iter().find(|node| node["id"] == "total").unwrap().clone();
    assert_eq!((&node["component"]["was"], &node["slots"][0]["verdict"]), (&"".into(), &"same".into()), "{node}");
    let text = stage.text(&["plan", "pipeline.toml", "--no-build"]).0;
    assert!(text.contains("the state was made without a component"), "{text}");

    let ended = stage.run(&[]);
    ended.ended("finished");
    assert_eq!(ended.only("started")["restored"], 1);
    assert!(ended.stderr.contains("the state of \\\"total\\\" was made without a component"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("has changed"), "{}", ended.stderr);
    check(&stage, &expected);
}

#[test]
fn it_begins_with_a_checkpoint_of_such_a_directory_and_keeps_to_it_through_a_kill() {
    let (stage, declared, totals, expected) = stage();
    write(&stage.path("made"), &declared, &totals);
    let mut running = stage.start(&["--from", "made/chk-1", "--parallelism", "3"]);
    running.wait_until(|| !parts(&stage.path("out")).is_empty());
    running.kill();
    let ended = stage.run(&["--parallelism", "1"]);
    assert!(["finished", "already-finished"].contains(&ended.last()), "{}", ended.told());
    check(&stage, &expected);
    // The folder is as it was.
    let checkpoint = StoredJob::open(&stage.path("made")).unwrap().checkpoint(None).unwrap();
    let mut slot = checkpoint.slot("total", "totals").unwrap();
    for (user, total) in &totals {
        let value = slot.get(user.as_bytes()).unwrap().unwrap();
        assert_eq!(postcard::from_bytes::<Totals>(&value).unwrap(), *total);
    }
}

#[test]
fn state_of_another_form_or_number_of_groups_is_refused_by_name() {
    let (stage, declared, totals, _) = stage();
    let mut state = NewState::new("running-total");
    state.max_parallelism = 64;
    let mut writer = SavepointWriter::create(&stage.path("narrow"), state).unwrap();
    writer.slot(&NewSlot::value("total", "totals", "postcard", ""), []).unwrap();
    writer.finish().unwrap();
    let error = stage.run(&["--from", "narrow/chk-1"]);
    let error = error.failed(3, "error", "restore-incompatible");
    assert!(error["message"].as_str().unwrap().contains("max-parallelism was 64"), "{error}");

    let wrong = Value::from_iter([("name", "totals"), ("codec", "json"), ("schema", declared["schema"].as_str().unwrap())]);
    write(&stage.path("wrong"), &wrong, &totals);
    let error = stage.run(&["--from", "wrong/chk-1"]);
    let error = error.failed(3, "error", "restore-incompatible");
    assert!(error["message"].as_str().unwrap().contains("encoded as"), "{error}");
}
