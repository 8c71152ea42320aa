use cofferdam::report::time::SplitTime;

use super::*;

/// 10:00:00 UTC of some day.
const TEN: i64 = 1_764_496_800_000;

fn split(split: &str, latest_ms: Option<i64>) -> SplitTime {
    SplitTime { split: split.into(), position: "line 7, byte 90".into(), latest_ms, idle: false, at_end_ms: None }
}

fn source(name: &str, watermark_ms: Option<i64>, splits: Vec<SplitTime>) -> SubtaskTime {
    let source = SourceTime {
        activity: "active".into(),
        out_of_orderness_ms: Some(5000),
        idle_timeout_ms: None,
        group_ms: None,
        max_drift_ms: None,
        unfinished_splits: splits.len(),
        splits,
    };
    SubtaskTime { operator: name.into(), watermark_ms, source: Some(source), ..SubtaskTime::default() }
}

fn input(from: &str, watermark_ms: Option<i64>, activity: &str) -> InputTime {
    InputTime { from: from.into(), subtask: 0, port: 0, watermark_ms, activity: activity.into(), waits_for_barriers: false }
}

fn operator(name: &str, watermark_ms: Option<i64>, inputs: Vec<InputTime>) -> SubtaskTime {
    SubtaskTime { operator: name.into(), watermark_ms, inputs, ..SubtaskTime::default() }
}

/// A window behind a union of two sources; the second is behind.
fn pipeline() -> PipelineTime {
    let a = source("a", Some(TEN + 9000), vec![split("a.jsonl", Some(TEN + 14_001))]);
    let b = source("b", Some(TEN), vec![split("b.jsonl", Some(TEN + 5001))]);
    let mut window = operator("window", Some(TEN), vec![input("a", Some(TEN + 9000), "active"), input("b", Some(TEN), "active")]);
    let timers =
        |domain: &str, pending, next_ms| TimersTime { domain: domain.into(), pending, next_ms, next_key: Some("ada".into()) };
    window.timers = vec![timers("event-time", 12, Some(TEN + 999)), timers("processing-time", 1, Some(TEN - 1))];
    PipelineTime { now_ms: TEN, checkpoint: None, subtasks: vec![a, b, window] }
}

fn shown(time: &PipelineTime, operator: &str) -> String {
    let mut one = time.clone();
    one.subtasks.retain(|subtask| subtask.operator == operator);
    text(time, &one, Paint(false))
}

#[test]
fn the_split_that_holds_a_window_back_is_found() {
    let expected = "\
window/0  watermark 2025-11-30T10:00:00.000Z
  held back by b/0 (2025-11-30T10:00:00.000Z)
  b/0 has read split b.jsonl up to 2025-11-30T10:00:05.001Z (line 7, byte 90), and records may come 5s late
  12 timers in event time, the next at 2025-11-30T10:00:00.999Z for key ada, 999ms after the watermark
  1 timer in processing time, the next at 2025-11-30T09:59:59.999Z for key ada, which is due
";
    assert_eq!(shown(&pipeline(), "window"), expected);
}

#[test]
fn a_split_at_its_end_is_waited_for_unless_it_may_be_idle() {
    let mut time = pipeline();
    let change = |time: &mut PipelineTime, change: &dyn Fn(&mut SourceTime)| change(time.subtasks[1].source.as_mut().unwrap());
    change(&mut time, &|source| {
        source.splits = vec![SplitTime { at_end_ms: Some(61_000), ..split("b.jsonl", None) }];
    });
    let why_not = |time: &PipelineTime| why(time, &time.subtasks[2])[1..].join("; ");
    assert_eq!(
        why_not(&time),
        "b/0 has read no event time from split b.jsonl yet (line 7, byte 90); its reader has seen the end for 1m 1s; without \
         idle-timeout, event time waits for it"
    );
    change(&mut time, &|source| source.idle_timeout_ms = Some(120_000));
    assert!(why_not(&time).ends_with("its reader has seen the end for 1m 1s; it is idle after 2m"));
    change(&mut time, &|source| source.activity = "ahead".into());
    change(&mut time, &|source| (source.group_ms, source.max_drift_ms) = (Some(TEN), Some(60_000)));
    assert_eq!(why_not(&time), "b/0 waits for its group, whose least watermark is 2025-11-30T10:00:00.000Z: it may be 1m ahead");
    change(&mut time, &|source| source.activity = "held".into());
    assert_eq!(why_not(&time), "b/0 reads nothing until a checkpoint has made room for state");
}

#[test]
fn what_is_under_way_idle_or_silent_is_said_to_be() {
    let mut time = pipeline();
    time.subtasks[1].watermark_ms = Some(TEN + 20_000);
    let line = "held back by b/0 (2025-11-30T10:00:00.000Z): that is at 2025-11-30T10:00:20.000Z, and what it has sent is still under way";
    assert_eq!(why(&time, &time.subtasks[2]), [line]);
    time.subtasks[2].inputs[1].waits_for_barriers = true;
    assert!(why(&time, &time.subtasks[2])[0].contains("is not read until the other inputs have a checkpoint's barrier"));
    time.subtasks[1] = SubtaskTime { no_answer: true, watermark_ms: None, ..time.subtasks[1].clone() };
    time.subtasks[2].inputs[1] = input("b", None, "active");
    let lines = why(&time, &time.subtasks[2]);
    assert_eq!(lines[0], "held back by b/0 (said nothing yet)");
    assert!(lines[1].starts_with("b/0 has not answered"), "{lines:?}");
    time.subtasks[2].inputs.iter_mut().for_each(|input| input.activity = "idle".into());
    assert!(why(&time, &time.subtasks[2])[0].starts_with("all its inputs are idle"));
    time.subtasks[2].watermark_ms = Some(i64::MAX);
    assert_eq!(shown(&time, "window").lines().next(), Some("window/0  watermark the end of time"));
}
