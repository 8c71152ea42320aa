//! A run as people watch it: events as lines, numbers as a live display on a terminal and as a line every 5 s elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use cofferdam::config::value::{format_bytes, format_duration_ms};
use cofferdam::report::{FaultReport, ProgressSnapshot, RunEvent, Summary};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::terminal::{Paint, Style, Terminal};
use super::usage;

/// Between two lines of numbers where nothing can be redrawn.
const LINE_EVERY_MS: u64 = 5000;

/// Rates are averages over this time: steady enough to read, quick enough to show a stall.
const RATE_OVER_MS: u64 = 3000;

/// Shows the events of one run.
pub(super) struct Progress {
    terminal: Terminal,
    /// On a terminal.
    bar: Option<ProgressBar>,
    rates: Rates,
    next_line_ms: u64,
}

impl Progress {
    pub(super) fn new(terminal: Terminal) -> Self {
        let bar = (terminal.live && !terminal.is_json()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // The default style shows the same with more space.
            let style = ProgressStyle::with_template("{spinner} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { terminal, bar, rates: Rates::default(), next_line_ms: LINE_EVERY_MS }
    }

    /// Shows an event.
    pub(super) fn show(&mut self, event: &RunEvent) {
        if self.terminal.is_json() {
            self.terminal.json(event);
            return;
        }
        match event {
            RunEvent::Progress(snapshot) => self.numbers(snapshot),
            _ => {
                if let Some(text) = line(event, self.terminal.err(), self.bar.is_some()) {
                    self.print(&text, is_problem(event));
                }
            }
        }
        if is_last(event)
            && let Some(bar) = self.bar.take()
        {
            bar.finish_and_clear();
        }
    }

    fn numbers(&mut self, snapshot: &ProgressSnapshot) {
        self.rates.push(snapshot);
        let text = numbers(snapshot, &self.rates);
        if let Some(bar) = &self.bar {
            bar.set_message(text);
        } else if snapshot.elapsed_ms >= self.next_line_ms {
            self.next_line_ms = snapshot.elapsed_ms + LINE_EVERY_MS;
            self.terminal.note(&text);
        }
    }

    /// Prints above the live display, if there is one. Problems are shown even when quiet.
    fn print(&self, text: &str, problem: bool) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.terminal.complain(text)),
            None if problem => self.terminal.complain(text),
            None => self.terminal.note(text),
        }
    }
}

/// Recent numbers.
#[derive(Default)]
struct Rates {
    /// (elapsed ms, records in, records out, bytes in), oldest first.
    recent: VecDeque<[u64; 4]>,
}

impl Rates {
    fn push(&mut self, snapshot: &ProgressSnapshot) {
        self.recent.push_back([snapshot.elapsed_ms, snapshot.records_in, snapshot.records_out, snapshot.bytes_in]);
        while self.recent.len() > 2 && self.recent[1][0] + RATE_OVER_MS <= snapshot.elapsed_ms {
            self.recent.pop_front();
        }
    }

    /// Returns records in, records out and bytes in for each second.
    fn per_second(&self) -> [u64; 3] {
        let (Some(first), Some(last)) = (self.recent.front(), self.recent.back()) else { return [0; 3] };
        // With one snapshot alone, the average since the start.
        let first = if self.recent.len() == 1 { &[0; 4] } else { first };
        let ms = last[0].saturating_sub(first[0]).max(1);
        [1, 2, 3].map(|i| {
            let per_second = u128::from(last[i].saturating_sub(first[i])) * 1000 / u128::from(ms);
            u64::try_from(per_second).unwrap_or(u64::MAX)
        })
    }
}

fn numbers(snapshot: &ProgressSnapshot, rates: &Rates) -> String {
    let [records_in, records_out, bytes_in] = rates.per_second();
    let mut parts = vec![
        format_elapsed(snapshot.elapsed_ms),
        format!("in {} ({}/s, {}/s)", short(snapshot.records_in), short(records_in), format_bytes(bytes_in)),
        format!("out {} ({}/s)", short(snapshot.records_out), short(records_out)),
    ];
    if let Some(lag) = snapshot.lag_bytes {
        parts.push(format!("{} left", format_bytes(lag)));
    }
    match (snapshot.checkpoint, snapshot.checkpoint_age_ms) {
        (Some(id), Some(age)) => parts.push(format!("checkpoint {id}, {} ago", format_elapsed(age))),
        (Some(id), None) => parts.push(format!("checkpoint {id}")),
        (None, _) => parts.push("no checkpoint yet".to_owned()),
    }
    if let Some(bytes) = snapshot.state_bytes {
        parts.push(format!("state {}", format_bytes(bytes)));
    }
    if snapshot.malformed > 0 {
        parts.push(format!("{} malformed", short(snapshot.malformed)));
    }
    if snapshot.restarts > 0 {
        parts.push(format!("{} {}", snapshot.restarts, plural(snapshot.restarts, "restart")));
    }
    parts.join("  ")
}

/// Whether no event follows.
fn is_last(event: &RunEvent) -> bool {
    use RunEvent::{AlreadyFinished, Failed, Finished, Interrupted, Stopped};
    matches!(event, Finished(_) | AlreadyFinished | Stopped { .. } | Interrupted { .. } | Failed { .. })
}

/// Whether the user must see it even when quiet.
fn is_problem(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::Fault(_) | RunEvent::CheckpointFailed { .. } | RunEvent::RequestFailed { .. } | RunEvent::Failed { .. }
    )
}

/// Returns an event as text. `None` for what the live display, or the next line of numbers, shows anyway.
fn line(event: &RunEvent, paint: Paint, live: bool) -> Option<String> {
    Some(match event {
        RunEvent::Started { attempt, restored, took_ms } => {
            let from = restored.map_or("from the beginning".to_owned(), |id| format!("from checkpoint {id}"));
            format!("attempt {attempt} started {from} in {}", format_duration_ms(*took_ms))
        }
        RunEvent::Checkpoint { id, duration_ms, bytes, is_final } if *is_final || !live => {
            let last = if *is_final { "final " } else { "" };
            format!("{last}checkpoint {id}: {} in {}", format_bytes(*bytes), format_duration_ms(*duration_ms))
        }
        RunEvent::CheckpointFailed { id, reason } => {
            format!("{}: checkpoint {id} was given up: {reason}", paint.paint(Style::Warning, "warning"))
        }
        RunEvent::Savepoint { id, path, duration_ms, bytes, .. } => {
            format!("savepoint {id}: {path}, {} in {}", format_bytes(*bytes), format_duration_ms(*duration_ms))
        }
        RunEvent::RequestFailed { reason, .. } => {
            format!("{}: what was asked for does not happen: {reason}", paint.paint(Style::Warning, "warning"))
        }
        RunEvent::Fault(fault) => fault_text(fault, paint),
        RunEvent::Finished(summary) => format!("{}: {}", paint.paint(Style::Good, "finished"), summary_text(summary)),
        RunEvent::AlreadyFinished => "this pipeline has finished; run it with --fresh to start anew".to_owned(),
        RunEvent::Stopped { checkpoint, summary } => {
            let next = match checkpoint {
                Some(id) => format!("the next run goes on from checkpoint {id}"),
                None => "the next run begins at the beginning".to_owned(),
            };
            format!("{}: {}\n{next}", paint.paint(Style::Strong, "stopped"), summary_text(summary))
        }
        RunEvent::Interrupted { summary } => {
            let head = paint.paint(Style::Warning, "interrupted");
            format!("{head}: {}\nthe next run goes on from the last completed checkpoint", summary_text(summary))
        }
        RunEvent::Failed { code, message, help, summary } => {
            let head = paint.paint(Style::Error, format_args!("error[{code}]"));
            let help = help.as_ref().map_or(String::new(), |help| format!("\n = {help}"));
            format!("{head}: {message}{help}\nfailed: {}", summary_text(summary))
        }
        // Numbers, and checkpoints that the live display shows.
        _ => return None,
    })
}

fn fault_text(fault: &FaultReport, paint: Paint) -> String {
    let head = paint.paint(Style::Error, format_args!("fault[{}]", fault.code));
    let subtask = match (&fault.operator, fault.subtask) {
        (Some(operator), Some(subtask)) => format!("{operator}[{subtask}] in "),
        _ => String::new(),
    };
    let mut text = format!("{head}: {subtask}{}: {}", fault.phase, fault.message);
    if let Some(position) = &fault.position {
        text.push_str(&format!("\n  at {position}"));
    }
    for frame in &fault.backtrace {
        text.push_str(&format!("\n  {}", paint.paint(Style::Faint, frame)));
    }
    text.push_str(&match fault.restart_in_ms {
        Some(0) => "\n  restarting from the last checkpoint".to_owned(),
        Some(ms) => format!("\n  restarting from the last checkpoint in {}", format_duration_ms(ms)),
        None => "\n  not restarted".to_owned(),
    });
    text
}

fn summary_text(summary: &Summary) -> String {
    let seconds = summary.elapsed_ms.max(1);
    let rate = u64::try_from(u128::from(summary.records_in) * 1000 / u128::from(seconds)).unwrap_or(u64::MAX);
    let mut text = format!(
        "{} records in ({}, {}/s), {} out, {} {}, {} {} in {}",
        summary.records_in,
        format_bytes(summary.bytes_in),
        short(rate),
        summary.records_out,
        summary.checkpoints,
        plural(summary.checkpoints, "checkpoint"),
        summary.restarts,
        plural(summary.restarts, "restart"),
        format_elapsed(summary.elapsed_ms),
    );
    if summary.malformed > 0 {
        text.push_str(&format!("; {} malformed skipped", summary.malformed));
    }
    if summary.checkpoints_failed > 0 {
        text.push_str(&format!("; {} given up", summary.checkpoints_failed));
    }
    text + &usage::table(&summary.operators)
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// Returns a number with three digits or so: `1234567` is `1.23M`.
pub(super) fn short(number: u64) -> String {
    for (unit, factor) in [("T", 1_000_000_000_000), ("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000)] {
        if number >= factor {
            let hundredths = u128::from(number) * 100 / u128::from(factor);
            let (whole, rest) = (hundredths / 100, hundredths % 100);
            return match whole {
                0..10 => format!("{whole}.{rest:02}{unit}"),
                10..100 => format!("{whole}.{}{unit}", rest / 10),
                _ => format!("{whole}{unit}"),
            };
        }
    }
    number.to_string()
}

/// Returns a time that is still running: `0.8s`, `12s`, `3m 05s`, `2h 07m`.
fn format_elapsed(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..10 => format!("{seconds}.{}s", ms % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use cofferdam::report::OperatorUsage;

    use super::*;

    fn summary() -> Summary {
        Summary {
            elapsed_ms: 2500,
            records_in: 1_000_000,
            records_out: 900_000,
            bytes_in: 5 << 20,
            malformed: 2,
            checkpoints: 3,
            checkpoints_failed: 0,
            restarts: 1,
            operators: vec![OperatorUsage {
                operator: "count".into(),
                records_in: 1_000_000,
                records_out: 900_000,
                calls: 1000,
                fuel: 123_456_789,
                memory_peak_bytes: 1 << 20,
                state_entries: 12,
                state_bytes: 2048,
                faults: 1,
            }],
        }
    }

    fn fault() -> FaultReport {
        FaultReport {
            code: "guest-trap".into(),
            phase: "data".into(),
            operator: Some("count".into()),
            subtask: Some(1),
            position: Some("input.txt line 7".into()),
            message: "panicked: boom".into(),
            backtrace: vec!["count::process".into()],
            restart_in_ms: Some(1500),
        }
    }

    fn rendered(event: &RunEvent) -> String {
        line(event, Paint(false), false).unwrap()
    }

    #[test]
    fn events_are_told_in_plain_words() {
        let cases = [
            (RunEvent::Started { attempt: 1, restored: None, took_ms: 12 }, "attempt 1 started from the beginning in 12ms"),
            (RunEvent::Started { attempt: 4, restored: Some(9), took_ms: 3 }, "attempt 4 started from checkpoint 9 in 3ms"),
            (RunEvent::Checkpoint { id: 9, duration_ms: 40, bytes: 2048, is_final: true }, "final checkpoint 9: 2 KiB in 40ms"),
            (
                RunEvent::CheckpointFailed { id: 9, reason: "no space left".into() },
                "warning: checkpoint 9 was given up: no space left",
            ),
            (
                RunEvent::Fault(fault()),
                "fault[guest-trap]: count[1] in data: panicked: boom\n  at input.txt line 7\n  count::process\n  restarting from the last checkpoint in 1s 500ms",
            ),
            (
                RunEvent::Finished(summary()),
                "finished: 1000000 records in (5 MiB, 400k/s), 900000 out, 3 checkpoints, 1 restart in 2.5s; 2 malformed skipped\n  operator     in   out  calls  fuel  memory  entries  state  faults\n  count     1.00M  900k  1.00k  123M   1 MiB       12  2 KiB       1",
            ),
            (
                RunEvent::Failed {
                    code: "disk-full".into(),
                    message: "cannot write".into(),
                    help: Some("make room".into()),
                    summary: Summary::default(),
                },
                "error[disk-full]: cannot write\n = make room\nfailed: 0 records in (0 B, 0/s), 0 out, 0 checkpoints, 0 restarts in 0.0s",
            ),
            (
                RunEvent::Savepoint { request: 1, id: 7, path: "/s/savepoint-7".into(), duration_ms: 40, bytes: 2048 },
                "savepoint 7: /s/savepoint-7, 2 KiB in 40ms",
            ),
            (
                RunEvent::RequestFailed { request: 1, reason: "the job is stopping".into() },
                "warning: what was asked for does not happen: the job is stopping",
            ),
            (
                RunEvent::Stopped { checkpoint: Some(3), summary: Summary::default() },
                "stopped: 0 records in (0 B, 0/s), 0 out, 0 checkpoints, 0 restarts in 0.0s\nthe next run goes on from checkpoint 3",
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(rendered(&event), expected);
        }
        let passing = RunEvent::Checkpoint { id: 9, duration_ms: 40, bytes: 2048, is_final: false };
        assert_eq!(line(&passing, Paint(false), true), None, "the live display shows it");
        assert!(line(&passing, Paint(false), false).is_some());
    }

    #[test]
    fn numbers_show_rates_of_the_last_seconds() {
        let mut rates = Rates::default();
        let at = |elapsed_ms, records_in| ProgressSnapshot {
            elapsed_ms,
            records_in,
            records_out: records_in / 2,
            bytes_in: records_in * 10,
            lag_bytes: Some(4096),
            checkpoint: Some(3),
            checkpoint_age_ms: Some(800),
            ..ProgressSnapshot::default()
        };
        rates.push(&at(1000, 1000));
        assert_eq!(rates.per_second(), [1000, 500, 10_000], "since the start");
        for second in 2..=10 {
            rates.push(&at(second * 1000, 1000 + second * 5000));
        }
        let last = at(10_000, 51_000);
        assert_eq!(rates.per_second(), [5000, 2500, 50_000]);
        assert_eq!(
            numbers(&last, &rates),
            "10s  in 51.0k (5.00k/s, 48.8 KiB/s)  out 25.5k (2.50k/s)  4 KiB left  checkpoint 3, 0.8s ago"
        );
        let troubled = ProgressSnapshot { restarts: 1, malformed: 2, checkpoint: None, lag_bytes: None, ..last };
        assert!(numbers(&troubled, &rates).ends_with("no checkpoint yet  2 malformed  1 restart"));
    }

    #[test]
    fn as_json_each_event_is_an_object_with_its_name() {
        let value = serde_json::to_value(RunEvent::Fault(fault())).unwrap();
        assert_eq!(
            (&value["event"], &value["code"], &value["restart_in_ms"]),
            (&"fault".into(), &"guest-trap".into(), &1500.into())
        );
        let value = serde_json::to_value(RunEvent::Stopped { checkpoint: None, summary: summary() }).unwrap();
        assert_eq!((&value["event"], &value["summary"]["records_in"]), (&"stopped".into(), &1_000_000.into()));
        assert_eq!(serde_json::to_value(RunEvent::AlreadyFinished).unwrap()["event"], "already-finished");
        assert_eq!(
            serde_json::to_value(RunEvent::Progress(ProgressSnapshot::default())).unwrap()["lag_bytes"],
            serde_json::Value::Null
        );
    }

    #[test]
    fn numbers_and_times_stay_short() {
        assert_eq!(
            [short(7), short(1234), short(56_789), short(1_234_567), short(u64::MAX)],
            ["7", "1.23k", "56.7k", "1.23M", "18446744T"]
        );
        let times = [0, 850, 12_000, 185_000, 7_650_000].map(format_elapsed);
        assert_eq!(times, ["0.0s", "0.8s", "12s", "3m 05s", "2h 07m"]);
    }
}
