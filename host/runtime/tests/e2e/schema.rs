//! An operator whose state changes its shape from version to version, over one job's checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::output::{check_counts, parts};
use super::stage::{Ended, Stage, built, repository};

const PIPELINE: &str = r#"
[pipeline]
name = "evolving"
parallelism = 2
[checkpoint]
interval = "20ms"
storage = "job"
[source.lines]
connector = "files"
path = "in/*.jsonl"
format = "json"
key = "/user"
[operator.total]
component = "evolving.wasm"
input = "lines"
[sink.totals]
connector = "files"
input = "total"
path = "out"
"#;

const MANIFEST: &str = r#"
[package]
name = "evolving"
version = "0.1.0"
edition = "2024"
[workspace]
[lib]
crate-type = ["cdylib"]
[dependencies]
cofferdam-guest = { path = "SDK" }
serde = { version = "1", features = ["derive"] }
[profile.release]
opt-level = 1
panic = "abort"
"#;

/// Counts the records of each key; `TOTALS` is what it keeps, `CHECK` what it does with it.
const SOURCE: &str = r#"
use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

TOTALS

pub struct Total {
    totals: Value<Totals>,
}

impl Operator for Total {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Total { totals: declare.value("totals") }
    }

    fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let mut totals = self.totals.get_or_default(cx)?;
        CHECK
        let count = totals.count.clone();
        self.totals.set(cx, totals);
        cx.emit_text((cx.key(), "\t", count))
    }
}

export!(Total);
"#;

const V1: [&str; 2] = [
    "#[derive(Clone, Default, Serialize, Deserialize)]
    struct Totals { gone: String, count: u32, parts: Vec<Part> }
    #[derive(Clone, Default, Serialize, Deserialize)]
    struct Part { id: u8 }",
    "totals.count += 1; totals.gone = format!(\"as of {}\", totals.count); totals.parts = vec![Part { id: 200 }];",
];

/// Without `gone`, with `unit`, a wider `count` and a part with one field more.
const V2: [&str; 2] = [
    "fn unit() -> String { \"pieces\".into() }
    #[derive(Clone, Serialize, Deserialize)]
    struct Totals { #[serde(default = \"unit\")] unit: String, count: u64, parts: Vec<Part> }
    #[derive(Clone, Serialize, Deserialize)]
    struct Part { id: u16, note: Option<String> }
    impl Default for Totals {
        fn default() -> Self { Totals { unit: unit(), count: 0, parts: vec![Part { id: 200, note: None }] } }
    }",
    "if totals.unit != \"pieces\" || totals.parts.len() != 1 || totals.parts[0].id != 200 || totals.parts[0].note.is_some() {
        return Err(Error::permanent(\"the state was not brought to its new form\"));
    }
    totals.count += 1;",
];

/// What was a number has become text.
const V3: [&str; 2] = [
    "#[derive(Clone, Default, Serialize, Deserialize)]
    struct Totals { count: String, parts: Vec<Part> }
    #[derive(Clone, Default, Serialize, Deserialize)]
    struct Part { id: u8 }",
    "totals.count.push('1'); let _ = &totals.parts;",
];

/// Builds a version of the operator in a crate that all versions share, so that what they depend on is built once.
fn version(crate_dir: &Path, [totals, check]: [&str; 2]) -> Vec<u8> {
    fs::create_dir_all(crate_dir.join("src")).unwrap();
    let sdk = repository().join("guest-sdk").canonicalize().unwrap();
    fs::write(crate_dir.join("Cargo.toml"), MANIFEST.replace("SDK", &sdk.to_string_lossy())).unwrap();
    // The versions of what it depends on are those of the other guests.
    let lock = fs::read_to_string(repository().join("host/runtime/tests/guests/faulty/Cargo.lock")).unwrap();
    fs::write(crate_dir.join("Cargo.lock"), lock.replace("name = \"faulty\"", "name = \"evolving\"")).unwrap();
    fs::write(crate_dir.join("src/lib.rs"), SOURCE.replace("TOTALS", totals).replace("CHECK", check)).unwrap();
    built(crate_dir, "evolving")
}

fn lines(folder: &Path) -> usize {
    parts(folder).into_iter().map(|path| fs::read(path).unwrap().iter().filter(|byte| **byte == b'\n').count()).sum()
}

/// Runs until something new is published, and stops.
fn run_and_stop(stage: &Stage) -> Ended {
    let out = stage.path("out");
    let published = lines(&out);
    let mut running = stage.start(&[]);
    assert!(running.wait_until(|| lines(&out) > published), "it ended too early");
    running.interrupt();
    let ended = running.wait();
    ended.ended("stopped");
    ended
}

/// Runs `plan`, which must tell one verdict and end with this code.
fn plan(stage: &Stage, exit: i32) -> serde_json::Value {
    let ended = stage.verb(&["plan", "pipeline.toml", "--no-build"]);
    assert_eq!(ended.code(), Some(exit), "{}", ended.told());
    let changes = ended.only("changes").clone();
    assert_eq!(changes["go"], exit == 0, "{changes}");
    changes
}

fn slot(changes: &serde_json::Value) -> &serde_json::Value {
    let nodes = changes["nodes"].as_array().unwrap();
    &nodes.iter().find(|node| node["id"] == "total").unwrap()["slots"][0]
}

/// Writes the input and returns the records of each key. Some keys come at the beginning of what is read first and at the
/// end of what is read last, and never between: their state must outlast checkpoints that have nothing new of them.
fn input(stage: &Stage) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for file in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"] {
        let rare: Vec<_> = (0..100).map(|user| format!("rare{user}")).collect();
        let mut users: Vec<_> = (0..40_000u64).map(|line| format!("u{}", line * line % 97)).collect();
        match file {
            "0" | "1" => drop(users.splice(0..0, rare)),
            "8" | "9" => users.extend(rare),
            _ => {}
        }
        stage.write(
            &format!("in/{file}.jsonl"),
            users.iter().map(|user| format!("{{\"user\": \"{user}\"}}\n")).collect::<String>(),
        );
        users.into_iter().for_each(|user| *counts.entry(user).or_insert(0) += 1);
    }
    counts
}

#[test]
fn state_follows_an_operator_from_version_to_version_and_is_never_lost() {
    let crate_dir: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("evolving");
    let [v1, v2, v3] = [V1, V2, V3].map(|code| version(&crate_dir, code));
    let stage = Stage::new();
    let counts = input(&stage);
    stage.write("pipeline.toml", PIPELINE);

    stage.write("evolving.wasm", &v1);
    assert_eq!(plan(&stage, 0)["against"], serde_json::Value::Null, "there is nothing yet");
    run_and_stop(&stage);
    let unchanged = plan(&stage, 0);
    assert_eq!(slot(&unchanged)["verdict"], "same", "{unchanged}");

    // What cannot be migrated is refused by name, before anything starts.
    stage.write("evolving.wasm", &v3);
    let (before, checkpoint) = (lines(&stage.path("out")), unchanged["checkpoint"].clone());
    let refused = plan(&stage, 3);
    let what = refused["obstacles"][0]["what"].as_str().unwrap();
    assert_eq!(what, "slot \"totals\" of \"total\" cannot be migrated: Totals.count: was u32 and is str");
    let ended = stage.run(&[]);
    let failed = ended.failed(3, "failed", "restore");
    assert!(
        failed["message"].as_str().unwrap().contains("restore-incompatible")
            && failed["message"].to_string().contains("Totals.count: was u32 and is str"),
        "{failed}"
    );
    assert_eq!((lines(&stage.path("out")), &plan(&stage, 3)["checkpoint"]), (before, &checkpoint), "nothing was lost or written");

    // What can be is migrated, and increments follow on the new form.
    stage.write("evolving.wasm", &v2);
    let changed = plan(&stage, 0);
    let expected = serde_json::json!([
        "Totals.gone removed",
        "Totals.count widened from u32 to u64",
        "Totals.parts[].id widened from u8 to u16",
        "Totals.parts[].note added with the default null",
        "Totals.unit added with the default \"pieces\"",
    ]);
    assert_eq!((&slot(&changed)["verdict"], &slot(&changed)["changes"]), (&"migrated".into(), &expected), "{changed}");
    let component = &changed["nodes"].as_array().unwrap().iter().find(|node| node["id"] == "total").unwrap()["component"];
    assert_ne!(component["was"], component["is"]);
    run_and_stop(&stage);
    let migrated = plan(&stage, 0);
    assert_eq!(slot(&migrated)["verdict"], "same", "{migrated}");
    // The old version is now the one that does not fit.
    stage.write("evolving.wasm", &v1);
    assert!(plan(&stage, 3)["obstacles"].to_string().contains("Totals.count: was u64 and is u32"));
    stage.write("evolving.wasm", &v2);
    stage.run(&["--parallelism", "3"]).ended("finished");
    check_counts(&stage.path("out"), &counts);
}
