//! Event time with inputs that end, fall silent and never speak; who is kept together; and what is said of it.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;

use serde_json::Value;

use super::output::rows;
use super::stage::{Running, Stage};

const PIPELINE: &str = r#"
[pipeline]
name = "times"
[checkpoint]
interval = "50ms"
storage = "job"
[source.a]
connector = "files"
path = "a.jsonl"
format = "json"
key = "/user"
event-time = "/at"
[source.b]
connector = "files"
path = "b.jsonl"
format = "json"
key = "/user"
event-time = "/at"
[source.c]
connector = "files"
path = "c.jsonl"
format = "json"
key = "/user"
event-time = "/at"
follow = true
WATERMARK
[operator.sessions]
component = "session-window.wasm"
input = [["a", "b", "c"]]
config = { gap_ms = 5 }
[sink.out]
connector = "files"
path = "out"
input = "sessions"
[sink.late]
connector = "files"
path = "late"
input = "sessions.late"
"#;

/// Makes a line for each time, each of a user of its own.
fn lines(name: &str, times: impl Iterator<Item = i64>) -> String {
    times.fold(String::new(), |mut text, at| {
        writeln!(text, r#"{{"user": "{name}{at}", "at": {at}}}"#).unwrap();
        text
    })
}

fn stage(watermark: &str) -> Stage {
    let stage = Stage::new();
    stage.components(&["session-window"]);
    stage.write("pipeline.toml", PIPELINE.replace("WATERMARK", watermark));
    stage.write("a.jsonl", lines("a", 0..5));
    stage.write("b.jsonl", lines("b", (0..100).map(|n| n * 10)));
    stage.write("c.jsonl", "");
    stage
}

fn append(stage: &Stage, text: &str) {
    OpenOptions::new().append(true).open(stage.path("c.jsonl")).unwrap().write_all(text.as_bytes()).unwrap();
}

/// Returns the users whose sessions were told of.
fn users(stage: &Stage) -> Vec<String> {
    let user = |row: &String| serde_json::from_str::<Value>(row).unwrap()["user"].as_str().unwrap().to_owned();
    let mut users: Vec<_> = rows(&stage.path("out")).iter().map(user).collect();
    users.sort();
    users
}

fn explained(stage: &Stage, operator: &str) -> Value {
    let asked = stage.verb(&["explain", "pipeline.toml", operator]);
    assert_eq!(asked.code(), Some(0), "{}", asked.told());
    asked.only("time")["subtasks"][0].clone()
}

/// Whether the pipeline answers by itself: before, its newest checkpoint would.
fn is_up(stage: &Stage) -> bool {
    let asked = stage.verb(&["explain", "pipeline.toml"]);
    asked.code() == Some(0) && asked.only("time")["checkpoint"].is_null()
}

fn finish(stage: &Stage, running: Running) {
    stage.verb(&["drain", "pipeline.toml"]).ended("finished");
    running.wait().ended("finished");
}

#[test]
fn windows_close_without_inputs_that_have_ended_or_are_idle() {
    let stage = stage("watermark = { idle-timeout = \"100ms\" }");
    let mut running = stage.start(&[]);
    // b came to 990: all of a, and of b what ends by then.
    assert!(running.wait_until(|| users(&stage).len() >= 5 + 99));
    let shown = explained(&stage, "sessions");
    assert_eq!(shown["watermark_ms"], 990);
    let of = |from: &str| shown["inputs"].as_array().unwrap().iter().find(|input| input["from"] == from).unwrap().clone();
    assert_eq!((of("a")["activity"].as_str(), of("c")["activity"].as_str()), (Some("ended"), Some("idle")));
    assert!(shown["why"][0].as_str().unwrap().starts_with("all its inputs are idle"), "{shown}");
    assert_eq!((&shown["timers"][0]["pending"], &shown["timers"][0]["next_key"]), (&1.into(), &"b990".into()));

    // The one that was idle goes on where event time is: what lies before is late.
    append(&stage, &lines("c", [500, 2000].into_iter()));
    assert!(running.wait_until(|| users(&stage).contains(&"b990".to_owned())));
    running.kill();
    let mut running = stage.start(&[]);
    assert!(running.wait_until(|| is_up(&stage)));
    finish(&stage, running);
    let found = users(&stage);
    assert_eq!(found.len(), 5 + 100 + 1, "{found:?}");
    assert!(found.contains(&"c2000".to_owned()) && !found.contains(&"c500".to_owned()));
    assert_eq!(rows(&stage.path("late")), [r#"{"user": "c500", "at": 500}"#]);
}

#[test]
fn an_input_that_never_spoke_is_waited_for_and_explain_says_so() {
    let stage = stage("");
    let mut running = stage.start(&[]);
    let waits = |why: &str| explained(&stage, "sessions")["why"].to_string().contains(why);
    assert!(running.wait_until(|| is_up(&stage)));
    assert!(running.wait_until(|| waits("c/0 has read no event time from split c.jsonl yet (line 0, byte 0)")));
    assert!(running.wait_until(|| waits("without idle-timeout, event time waits for it")));
    assert_eq!(explained(&stage, "c")["watermark_ms"], Value::Null);
    assert!(running.wait_until(|| explained(&stage, "sessions")["timers"][0]["pending"] == 105));
    let text = stage.text(&["explain", "pipeline.toml", "sessions"]).0;
    assert!(text.starts_with("sessions/0  no watermark yet\n  held back by c/0 (said nothing yet)\n"), "{text}");
    assert!(text.contains("105 timers in event time, the next at 1970-01-01T00:00:00.004Z for key "), "{text}");
    append(&stage, &lines("c", [300].into_iter()));
    assert!(running.wait_until(|| explained(&stage, "sessions")["watermark_ms"] == 299));
    stage.verb(&["explain", "pipeline.toml", "nobody"]).failed(2, "error", "unknown-operator");

    stage.verb(&["stop", "pipeline.toml"]).ended("stopped");
    running.wait().ended("stopped");
    // Of a pipeline that does not run, the newest checkpoint tells.
    let stored = stage.verb(&["explain", "pipeline.toml"]).only("time").clone();
    let sessions = stored["subtasks"].as_array().unwrap().iter().find(|of| of["operator"] == "sessions").unwrap();
    assert!(stored["checkpoint"].as_u64().is_some());
    assert_eq!(sessions["watermark_ms"], 299);
    assert_eq!((&sessions["timers"][0]["pending"], &sessions["timers"][0]["next_ms"]), (&71.into(), &304.into()));
    let before = users(&stage);
    let mut running = stage.start(&[]);
    assert!(running.wait_until(|| is_up(&stage)));
    assert_eq!(users(&stage), before, "what was closed is not closed again");
    finish(&stage, running);
    assert_eq!(users(&stage).len(), 5 + 100 + 1);
}

#[test]
fn a_source_waits_for_those_it_is_kept_together_with() {
    let group = "watermark = { align = \"all\", max-drift = \"500ms\" }";
    let stage = stage(group);
    let pipeline = PIPELINE.replace("event-time = \"/at\"\n[", &format!("event-time = \"/at\"\n{group}\n["));
    stage.write("pipeline.toml", pipeline.replace("WATERMARK", group));
    // Enough for several reads.
    stage.write("b.jsonl", lines("b", 0..20_000));
    append(&stage, &lines("c", [100].into_iter()));
    let mut running = stage.start(&[]);
    assert!(running.wait_until(|| is_up(&stage)));
    assert!(running.wait_until(|| explained(&stage, "b")["source"]["activity"] == "ahead"));
    let b = explained(&stage, "b");
    assert_eq!((&b["source"]["group_ms"], &b["source"]["max_drift_ms"]), (&99.into(), &500.into()));
    assert!(b["watermark_ms"].as_i64().unwrap() < 10_000, "it has read on: {b}");
    append(&stage, &lines("c", [30_000].into_iter()));
    assert!(running.wait_until(|| explained(&stage, "b")["source"]["activity"] == "ended"));
    finish(&stage, running);
    assert_eq!(users(&stage).len(), 5 + 20_000 + 2);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |watermark: &str, change: &dyn Fn(String) -> String, message: &str| {
        let stage = stage(watermark);
        stage.write("pipeline.toml", change(PIPELINE.replace("WATERMARK", watermark)));
        let check = stage.verb(&["check", "pipeline.toml"]);
        let error = check.failed(2, "error", "option-refused");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    };
    let same = |text: String| text;
    let unfollowed = |text: String| text.replace("follow = true", "");
    refused("watermark = { idle-timeout = \"1s\" }", &unfollowed, "idle-timeout is for sources that wait for records");
    let untimed = |text: String| text.replace("event-time = \"/at\"", "");
    refused("watermark = { out-of-orderness = \"1s\" }", &untimed, "watermark needs records with an event time");
    let both = "watermark-field = \"/w\"\nwatermark = { out-of-orderness = \"1s\" }";
    refused(both, &same, "out-of-orderness does not go with watermark-field");
}
