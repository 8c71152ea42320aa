//! `explain`: why a window or a timer has not fired.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use cofferdam::config::Diagnostic;
use cofferdam::config::value::format_duration_ms;
use cofferdam::control::{Answer, Request};
use cofferdam::report::time::{InputTime, PipelineTime, SourceTime, SubtaskTime, TimersTime};
use cofferdam::stored::{StoredCheckpoint, show_bytes};
use cofferdam_dataflow::guest::TimeDomain;
use cofferdam_dataflow::snapshot::SubtaskPart;
use cofferdam_dataflow::state::split_timer;

use super::Exit;
use super::arguments::ExplainArguments;
use super::checkpoints::storage_of;
use super::control;
use super::failure::Failure;
use super::reading::{self, ReadError, Which};
use super::terminal::{Paint, Style, Terminal};
use super::times::now_ms;
use super::work::Work;

/// Shows where a pipeline is in event time, and why no further.
pub(super) fn explain(arguments: &ExplainArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let dir = storage_of(&arguments.path)?;
    let mut time = match control::request_if_running(&dir, &Request::Explain {}, terminal)? {
        Some(answer) => running(answer)?,
        None => stored(&arguments.path, terminal)?,
    };
    let all = time.clone();
    if let Some(operator) = &arguments.operator {
        time.subtasks.retain(|subtask| subtask.operator == *operator);
        if time.subtasks.is_empty() {
            let mut names: Vec<_> = all.subtasks.iter().map(|subtask| subtask.operator.as_str()).collect();
            names.dedup();
            let problem = Diagnostic::new("unknown-operator", format!("there is no source or operator \"{operator}\""));
            return Err(problem.with_help(format!("there are {}", names.join(", "))).into());
        }
    }
    let mut value = serde_json::to_value(&time).map_err(|error| Diagnostic::new("host-internal", error.to_string()))?;
    value["event"] = "time".into();
    for (subtask, shown) in time.subtasks.iter().zip(value["subtasks"].as_array_mut().into_iter().flatten()) {
        shown["why"] = why(&all, subtask).into();
    }
    terminal.result(&value, |paint| text(&all, &time, paint))?;
    Ok(Exit::Done)
}

fn running(answer: Answer) -> Result<PipelineTime, Failure> {
    match answer {
        Answer::Time(time) if time.subtasks.is_empty() => {
            let problem =
                Diagnostic::new("not-running", "no attempt of the pipeline runs just now: it starts, or waits to restart");
            Err(Failure::new(Exit::Environment, problem.with_help("ask again in a moment")))
        }
        Answer::Time(time) => Ok(*time),
        other => Err(Diagnostic::new("control-answer", format!("unexpected: {other:?}")).into()),
    }
}

/// Reads the newest checkpoint of a pipeline that does not run.
fn stored(path: &Path, terminal: &Terminal) -> Result<PipelineTime, Failure> {
    reading::read((path, Which::Newest), terminal, |checkpoint| {
        let mut work = Work::new(terminal, "reading timers", false);
        let manifest = checkpoint.manifest();
        let mut subtasks: Vec<SubtaskTime> = Vec::new();
        for subtask in &manifest.subtasks {
            let is_sink = matches!(subtask.part, SubtaskPart::Sink { .. });
            if is_sink {
                continue;
            }
            subtasks.push(SubtaskTime {
                operator: subtask.id.operator.to_string(),
                subtask: subtask.id.index,
                watermark_ms: subtask.watermark.map(|watermark| watermark.0.0),
                finished: subtask.finished,
                ..SubtaskTime::default()
            });
        }
        for info in checkpoint.slots() {
            if let Some(domain) = TimeDomain::of_table(&info.slot) {
                read_timers(checkpoint, (&info.operator, domain), &mut subtasks, &mut work)?;
            }
        }
        Ok(PipelineTime { now_ms: now_ms(), checkpoint: Some(checkpoint.id().0), subtasks })
    })
}

/// Counts an operator's timers of one domain, by subtask.
fn read_timers(
    checkpoint: &StoredCheckpoint,
    (operator, domain): (&str, TimeDomain),
    subtasks: &mut [SubtaskTime],
    work: &mut Work,
) -> Result<(), ReadError> {
    let manifest = checkpoint.manifest();
    let parallelism = manifest.nodes.iter().find(|node| node.id.as_str() == operator).map_or(1, |node| node.parallelism);
    let mut slot = checkpoint.slot(operator, domain.table())?;
    let groups = slot.groups();
    for subtask in subtasks.iter_mut().filter(|subtask| subtask.operator == operator) {
        let range = manifest.max_parallelism.range(subtask.subtask, parallelism);
        let mut timers = TimersTime { domain: domain.name().into(), pending: 0, next_ms: None, next_key: None };
        let mut next: Option<(i64, Vec<u8>)> = None;
        for (index, group) in groups.iter().enumerate().filter(|(_, group)| range.contains(&group.0)) {
            work.done(index as u64, groups.len() as u64);
            for entry in slot.group(*group)? {
                let Some((time, _)) = entry.entry_key.as_deref().and_then(split_timer) else { continue };
                timers.pending += 1;
                if next.as_ref().is_none_or(|(least, key)| (time, &entry.key) < (*least, key)) {
                    next = Some((time, entry.key));
                }
            }
        }
        (timers.next_ms, timers.next_key) = next.map(|(ms, key)| (ms, show_bytes(&key))).unzip();
        subtask.timers.push(timers);
    }
    Ok(())
}

/// Renders a moment in milliseconds.
fn moment(ms: i64) -> String {
    let time = u64::try_from(ms).ok().and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    match time {
        _ if ms == i64::MAX => "the end of time".into(),
        // The formatter takes no year after 9999.
        Some(time) if ms < 253_402_300_800_000 => humantime::format_rfc3339_millis(time).to_string(),
        _ => format!("{ms} ms"),
    }
}

fn text(all: &PipelineTime, shown: &PipelineTime, paint: Paint) -> String {
    let mut text = String::new();
    if let Some(checkpoint) = shown.checkpoint {
        // Writing to a string cannot fail; so below.
        let _ = writeln!(text, "nothing runs; in checkpoint {checkpoint}:");
    }
    for subtask in &shown.subtasks {
        let name = paint.paint(Style::Strong, format_args!("{}/{}", subtask.operator, subtask.subtask));
        let _ = match (&subtask.source, subtask.watermark_ms) {
            (Some(source), _) if source.activity == "untimed" => {
                writeln!(text, "{name}  has no event time, and holds nobody back")
            }
            (_, _) if subtask.no_answer => writeln!(text, "{name}  does not answer"),
            (_, Some(ms)) => writeln!(text, "{name}  watermark {}", moment(ms)),
            (_, None) => writeln!(text, "{name}  no watermark yet"),
        };
        for line in why(all, subtask) {
            let _ = writeln!(text, "  {line}");
        }
        for timers in &subtask.timers {
            let _ = writeln!(text, "  {}", timers_text(subtask, timers, shown.now_ms));
        }
    }
    text
}

fn timers_text(subtask: &SubtaskTime, timers: &TimersTime, now_ms: i64) -> String {
    let domain = timers.domain.replace('-', " ");
    let Some(next) = timers.next_ms else { return format!("no timers in {domain}") };
    let count = if timers.pending == 1 { "1 timer".to_owned() } else { format!("{} timers", timers.pending) };
    let key = timers.next_key.as_deref().unwrap_or_default();
    let (clock, clock_name) = match timers.domain.as_str() {
        "event-time" => (subtask.watermark_ms, "the watermark"),
        _ => (Some(now_ms), "now"),
    };
    let left = match clock.map(|clock| next.saturating_sub(clock)) {
        Some(left) if left > 0 => format!(", {} after {clock_name}", format_duration_ms(left.unsigned_abs())),
        Some(_) => ", which is due".to_owned(),
        None => String::new(),
    };
    format!("{count} in {domain}, the next at {} for key {key}{left}", moment(next))
}

/// Says why a subtask's watermark is where it is: from it to what holds it back.
fn why(time: &PipelineTime, subtask: &SubtaskTime) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at = subtask;
    // A graph has no circle.
    loop {
        if at.no_answer {
            lines.push(format!("{}/{} has not answered: it is in a long call, or waits for a disk", at.operator, at.subtask));
            return lines;
        }
        if let Some(source) = &at.source {
            lines.extend(source_text(at, source));
            return lines;
        }
        if at.inputs.is_empty() || at.watermark_ms == Some(i64::MAX) {
            return lines;
        }
        let active = at.inputs.iter().filter(|input| input.activity == "active");
        let Some(least) = active.min_by_key(|input| input.watermark_ms) else {
            lines.push("all its inputs are idle: event time stands still until one has records again, or all have ended".into());
            return lines;
        };
        let from = time.subtasks.iter().find(|other| other.operator == least.from && other.subtask == least.subtask);
        lines.push(input_text(least, from));
        match from {
            Some(from) if !least.waits_for_barriers && from.watermark_ms <= least.watermark_ms => at = from,
            _ => return lines,
        }
    }
}

fn input_text(input: &InputTime, from: Option<&SubtaskTime>) -> String {
    let name = format!("{}/{}", input.from, input.subtask);
    let at = input.watermark_ms.map_or("said nothing yet".to_owned(), moment);
    match from {
        _ if input.waits_for_barriers => {
            format!("held back by {name} ({at}), which is not read until the other inputs have a checkpoint's barrier, too")
        }
        Some(from) if from.watermark_ms > input.watermark_ms => {
            let sent = from.watermark_ms.map_or(String::new(), moment);
            format!("held back by {name} ({at}): that is at {sent}, and what it has sent is still under way")
        }
        _ => format!("held back by {name} ({at})"),
    }
}

fn source_text(subtask: &SubtaskTime, source: &SourceTime) -> Vec<String> {
    let name = format!("{}/{}", subtask.operator, subtask.subtask);
    let line = match source.activity.as_str() {
        "untimed" => return Vec::new(),
        "ended" => format!("{name} has ended"),
        "idle" => format!("{name} is idle: its reader has seen the end of all its splits"),
        "held" => format!("{name} reads nothing until a checkpoint has made room for state"),
        "ahead" => {
            let group = source.group_ms.map_or(String::new(), moment);
            let drift = format_duration_ms(source.max_drift_ms.unwrap_or(0));
            format!("{name} waits for its group, whose least watermark is {group}: it may be {drift} ahead")
        }
        _ => return split_text(&name, source),
    };
    vec![line]
}

fn split_text(name: &str, source: &SourceTime) -> Vec<String> {
    let Some(split) = source.splits.iter().find(|split| !split.idle) else {
        return vec![format!("{name} has nothing to read any more")];
    };
    let mut line = match split.latest_ms {
        Some(ms) => format!("{name} has read split {} up to {} ({})", split.split, moment(ms), split.position),
        None => format!("{name} has read no event time from split {} yet ({})", split.split, split.position),
    };
    match source.out_of_orderness_ms {
        Some(ms) if ms > 0 && split.latest_ms.is_some() => {
            let _ = write!(line, ", and records may come {} late", format_duration_ms(ms));
        }
        _ => {}
    }
    let mut lines = vec![line];
    if let Some(at_end) = split.at_end_ms {
        let since = format_duration_ms(at_end);
        lines.push(match source.idle_timeout_ms {
            Some(timeout) => format!("its reader has seen the end for {since}; it is idle after {}", format_duration_ms(timeout)),
            None => format!("its reader has seen the end for {since}; without idle-timeout, event time waits for it"),
        });
    }
    lines
}

#[cfg(test)]
mod tests;
