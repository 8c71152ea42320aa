//! Sessions by event-time timers, killed at any moment and run on: each session is told of once, and pending timers can be seen.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::output::rows;
use super::stage::{Random, Stage, example, seed};

const KILLS: u64 = 8;
const CLICKS: i64 = 60_000;
const USERS: u64 = 40;
const GAP_MS: i64 = 30_000;

/// Makes clicks up; returns their lines and the sessions that they are: user, start, end and clicks.
fn clicks(random: &mut Random) -> (String, Vec<(String, i64, i64, u64)>) {
    let (mut lines, mut open) = (String::new(), BTreeMap::<String, (i64, i64, u64)>::new());
    let mut sessions = Vec::new();
    for n in 0..CLICKS {
        let (user, at) = (format!("u{}", random.below(USERS)), n * 700);
        writeln!(lines, r#"{{"user": "{user}", "at": {at}}}"#).unwrap();
        let session = open.entry(user.clone()).or_insert((at, at, 0));
        if at - session.1 >= GAP_MS {
            let (start, end, clicks) = std::mem::replace(session, (at, at, 0));
            sessions.push((user, start, end, clicks));
        }
        (session.1, session.2) = (at, session.2 + 1);
    }
    sessions.extend(open.into_iter().map(|(user, (start, end, clicks))| (user, start, end, clicks)));
    sessions.sort();
    (lines, sessions)
}

fn told(row: &str) -> (String, i64, i64, u64) {
    let row: Value = serde_json::from_str(row).unwrap();
    let number = |name: &str| row[name].as_i64().unwrap();
    (row["user"].as_str().unwrap().to_owned(), number("start"), number("end"), row["clicks"].as_u64().unwrap())
}

fn stage(clicks: impl AsRef<[u8]>) -> Stage {
    let stage = Stage::new();
    stage.components(&["session-window"]);
    let pipeline = example("session-window/pipeline.toml")
        .replace("component = \"sessions\"", "component = \"session-window.wasm\"")
        .replace("interval = \"1s\"", "interval = \"50ms\"\nstorage = \"job\"");
    stage.write("pipeline.toml", pipeline);
    stage.write("clicks.jsonl", clicks);
    stage
}

#[test]
fn timers_survive_any_kill() {
    let mut random = Random(seed());
    let (lines, expected) = clicks(&mut random);
    let stage = stage(lines);
    let (mut kills, mut seen) = (0, false);
    while kills < KILLS {
        let mut running = stage.start(&[]);
        // However slow the machine is: until it has told of something more, and then a little longer.
        let before = told_of(&stage);
        let mut is_running = true;
        while is_running && told_of(&stage) == before {
            is_running = running.run_for(Duration::from_millis(5));
        }
        if !is_running || !running.run_for(Duration::from_micros(random.below(50_000))) {
            running.wait();
            break;
        }
        running.kill();
        kills += 1;
        seen = seen || has_timers(&stage);
    }
    let ended = stage.run(&[]);
    assert_eq!(ended.code(), Some(0), "{}", ended.told());
    println!("killed {kills} times");
    let mut found: Vec<_> = rows(&stage.path("out")).iter().map(|row| told(row)).collect();
    found.sort();
    assert_eq!(found.len(), expected.len());
    assert!(found == expected, "each session is told of once, as it was");
    assert!(seen || kills == 0, "no checkpoint had a pending timer");
}

/// How many sessions have been told of. There is no folder before the first.
fn told_of(stage: &Stage) -> usize {
    if stage.path("out").exists() { rows(&stage.path("out")).len() } else { 0 }
}

/// Whether the newest checkpoint has pending timers, of which each is shown with its time.
fn has_timers(stage: &Stage) -> bool {
    let listed = stage.verb(&["state", "scan", "pipeline.toml", "sessions/timers.event-time", "--limit", "1"]);
    let Some(timer) = listed.events.iter().find(|event| event["event"] == json!("state-entry")) else { return false };
    let (due, tag) = (timer["due_ms"].as_i64().unwrap(), timer["tag"].as_u64().unwrap());
    // A session ends a gap after a click. Tags of windows are the upper half of all.
    assert!((due + 1) % 700 == GAP_MS % 700 && due >= GAP_MS - 1 && tag >= 1 << 63, "{timer}");
    true
}

#[test]
fn the_example_tells_of_each_session() {
    let stage = stage(example("session-window/clicks.jsonl"));
    let ended = stage.run(&[]);
    assert_eq!(ended.code(), Some(0), "{}", ended.told());
    let rows = rows(&stage.path("out"));
    assert_eq!(rows.len(), 50);
    assert!(rows.contains(&r#"{"user":"ada","start":1764500030572,"end":1764500196809,"clicks":15}"#.to_owned()));
}

/// How many timers the sessions of a running pipeline have pending; `None` if it does not run.
fn pending(stage: &Stage) -> Option<u64> {
    let asked = stage.verb(&["explain", "pipeline.toml", "sessions"]);
    let time = (asked.code() == Some(0)).then(|| asked.only("time").clone()).filter(|time| time["checkpoint"].is_null())?;
    let of_subtask = |subtask: &Value| subtask["timers"][0]["pending"].as_u64();
    time["subtasks"].as_array()?.iter().map(of_subtask).sum()
}

/// Stops a pipeline that waits for more clicks, with a savepoint in `saved` that has pending timers.
fn saved() -> Stage {
    let stage = stage("{\"user\": \"ada\", \"at\": 1000}\n{\"user\": \"bob\", \"at\": 2000}\n");
    let pipeline = std::fs::read_to_string(stage.path("pipeline.toml")).unwrap();
    stage.write("pipeline.toml", pipeline.replace("format = \"json\"", "format = \"json\"\nfollow = true"));
    let mut running = stage.start(&[]);
    assert!(running.wait_until(|| pending(&stage) == Some(2)));
    stage.verb(&["stop", "pipeline.toml", "--savepoint", "saved"]).ended("stopped");
    running.wait().ended("stopped");
    stage
}

#[test]
fn pending_timers_are_dropped_by_name_only() {
    let stage = saved();
    let listed = stage.verb(&["state", "ls", "saved"]);
    assert!(listed.told().contains("timers.event-time"), "{}", listed.told());
    // An operator without timers does not take them.
    stage.components(&["running-total"]);
    let other = std::fs::read_to_string(stage.path("pipeline.toml")).unwrap();
    stage.write("other.toml", other.replace("session-window.wasm", "running-total.wasm"));
    let refused = stage.verb(&["run", "other.toml", "--from", "saved", "--drop-state", "sessions/open"]);
    assert_eq!(refused.code(), Some(3), "{}", refused.told());
    assert!(refused.told().contains("timers.event-time"), "{}", refused.told());

    let mut running = stage.start(&["--from", "saved", "--drop-state", "sessions/timers.event-time"]);
    assert!(running.wait_until(|| pending(&stage) == Some(0)));
    stage.verb(&["drain", "pipeline.toml"]).ended("finished");
    running.wait().ended("finished");
}
