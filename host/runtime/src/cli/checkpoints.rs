//! `checkpoint list` and `checkpoint show`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use cofferdam::config::value::format_bytes;
use cofferdam::config::{Diagnostic, PipelineFile};
use serde::Serialize;
use serde_json::json;

use super::Exit;
use super::arguments::{ListArguments, ShowArguments};
use super::failure::Failure;
use super::stored;
use super::terminal::{Paint, Style, Terminal};

/// One line of `checkpoint list`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CheckpointSummary {
    pub(super) id: u64,
    pub(super) attempt: u64,
    /// Milliseconds since the Unix epoch.
    pub(super) created_ms: i64,
    /// Bytes of the state it refers to, older files included.
    pub(super) bytes: u64,
    /// Whether it ended the job.
    pub(super) is_final: bool,
    /// Whether the sinks have published its output.
    pub(super) committed: bool,
    /// Why it cannot be read; `None` if it can.
    pub(super) damage: Option<String>,
}

/// What `checkpoint list` shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CheckpointList {
    pub(super) storage: String,
    /// The job has finished: there is nothing to resume.
    pub(super) finished: bool,
    /// Oldest first.
    pub(super) checkpoints: Vec<CheckpointSummary>,
}

/// What `checkpoint show` shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CheckpointDetail {
    #[serde(flatten)]
    pub(super) summary: CheckpointSummary,
    pub(super) job: String,
    /// The version of the host that wrote it.
    pub(super) engine: String,
    pub(super) max_parallelism: u16,
    pub(super) nodes: Vec<NodeDetail>,
    /// Where the sources go on, by split.
    pub(super) positions: Vec<PositionDetail>,
    /// Files it needs.
    pub(super) files: Vec<FileDetail>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct NodeDetail {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) parallelism: u32,
    /// `name kind codec` of each slot.
    pub(super) state: Vec<String>,
    /// Prepared output that the checkpoint publishes.
    pub(super) transactions: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PositionDetail {
    pub(super) source: String,
    pub(super) split: String,
    pub(super) position: String,
    pub(super) finished: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FileDetail {
    pub(super) name: String,
    /// Whether it is a part of the manifest and no file.
    pub(super) inline: bool,
    pub(super) bytes: u64,
    /// What is wrong with it; `None` if length and hash are right.
    pub(super) damage: Option<String>,
}

/// Lists the checkpoints of a pipeline.
pub(super) fn list(arguments: &ListArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let list = stored::checkpoints(&storage_of(&arguments.path)?)?;
    let value = json!({ "event": "checkpoint-list", "list": list });
    terminal.result(&value, |paint| list_text(&list, paint))?;
    Ok(if list.checkpoints.iter().any(|checkpoint| checkpoint.damage.is_some()) { Exit::Storage } else { Exit::Done })
}

/// Shows one checkpoint and verifies its files.
pub(super) fn show(arguments: &ShowArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let detail = stored::checkpoint(&storage_of(&arguments.path)?, arguments.id)?;
    let value = json!({ "event": "checkpoint-detail", "detail": detail });
    terminal.result(&value, |paint| detail_text(&detail, paint))?;
    Ok(if detail.is_damaged() { Exit::Storage } else { Exit::Done })
}

/// A folder is the storage itself; a file is a pipeline that names its storage.
pub(super) fn storage_of(path: &Path) -> Result<PathBuf, Failure> {
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    if !path.exists() {
        let problem = Diagnostic::new("pipeline-unreadable", format!("{} does not exist", path.display()));
        return Err(problem.with_help("give a pipeline file, or the folder that its checkpoints are in").into());
    }
    Ok(PipelineFile::load(path)?.checkpoint.storage)
}

impl CheckpointDetail {
    fn is_damaged(&self) -> bool {
        self.summary.damage.is_some() || self.files.iter().any(|file| file.damage.is_some())
    }
}

/// Renders a moment as `2026-01-31 12:00:00 UTC`.
pub(super) fn moment(ms: i64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    match time {
        // The formatter takes no year after 9999.
        Some(time) if ms < 253_402_300_800_000 => {
            humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', " UTC")
        }
        _ => format!("{ms} ms"),
    }
}

fn state_of(checkpoint: &CheckpointSummary, paint: Paint) -> String {
    match (&checkpoint.damage, checkpoint.is_final, checkpoint.committed) {
        (Some(damage), ..) => paint.paint(Style::Error, format_args!("damaged: {damage}")),
        (None, true, _) => paint.paint(Style::Good, "final"),
        (None, false, true) => paint.paint(Style::Good, "complete"),
        (None, false, false) => paint.paint(Style::Warning, "complete, output not yet published"),
    }
}

fn list_text(list: &CheckpointList, paint: Paint) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail; so below.
    let _ = writeln!(text, "checkpoints in {}", list.storage);
    for checkpoint in &list.checkpoints {
        let (id, created, bytes) = (checkpoint.id, moment(checkpoint.created_ms), format_bytes(checkpoint.bytes));
        let state = state_of(checkpoint, paint);
        let _ = writeln!(text, "  {id:>6}  {created}  attempt {:<4} {bytes:>10}  {state}", checkpoint.attempt);
    }
    let last = match (list.finished, list.checkpoints.is_empty()) {
        (true, _) => "the job has finished: there is nothing to resume",
        (false, true) => "there is no checkpoint: a run begins at the beginning",
        (false, false) => "a run goes on from the newest",
    };
    text + last + "\n"
}

fn detail_text(detail: &CheckpointDetail, paint: Paint) -> String {
    let summary = &detail.summary;
    let mut text = format!("checkpoint {} of {}: {}\n", summary.id, detail.job, state_of(summary, paint));
    let _ = writeln!(text, "  taken {} by attempt {} ({})", moment(summary.created_ms), summary.attempt, detail.engine);
    let _ = writeln!(
        text,
        "  {} of state in {} files, {} key groups",
        format_bytes(summary.bytes),
        detail.files.iter().filter(|file| !file.inline).count(),
        detail.max_parallelism
    );
    for node in &detail.nodes {
        let state = if node.state.is_empty() { String::new() } else { format!("  state: {}", node.state.join(", ")) };
        let output = if node.transactions == 0 { String::new() } else { format!("  transactions: {}", node.transactions) };
        let _ = writeln!(text, "  {} {} x{}{state}{output}", node.kind, node.id, node.parallelism);
    }
    for position in &detail.positions {
        let end = if position.finished { " (read to the end)" } else { "" };
        let _ = writeln!(text, "  position of {} in {}: {}{end}", position.source, position.split, position.position);
    }
    for file in &detail.files {
        let state = match &file.damage {
            Some(damage) => paint.paint(Style::Error, format_args!("damaged: {damage}")),
            None => "verified".to_owned(),
        };
        let what = if file.inline { "in the manifest" } else { "file" };
        let _ = writeln!(text, "  {what} {} {} {state}", file.name, format_bytes(file.bytes));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(id: u64) -> CheckpointSummary {
        CheckpointSummary {
            id,
            attempt: 2,
            created_ms: 1_700_000_000_123,
            bytes: 4096,
            is_final: false,
            committed: true,
            damage: None,
        }
    }

    #[test]
    fn checkpoints_are_listed_with_their_state() {
        let checkpoints = vec![
            summary(7),
            CheckpointSummary { committed: false, ..summary(8) },
            CheckpointSummary { damage: Some("the manifest's hash is wrong".into()), ..summary(9) },
        ];
        let list = CheckpointList { storage: "/state".into(), finished: false, checkpoints };
        let expected = "\
checkpoints in /state
       7  2023-11-14 22:13:20 UTC  attempt 2         4 KiB  complete
       8  2023-11-14 22:13:20 UTC  attempt 2         4 KiB  complete, output not yet published
       9  2023-11-14 22:13:20 UTC  attempt 2         4 KiB  damaged: the manifest's hash is wrong
a run goes on from the newest
";
        assert_eq!(list_text(&list, Paint(false)), expected);
        let empty = CheckpointList { finished: true, checkpoints: vec![], ..list };
        assert_eq!(list_text(&empty, Paint(false)), "checkpoints in /state\nthe job has finished: there is nothing to resume\n");
    }

    #[test]
    fn a_checkpoint_is_shown_with_positions_and_verified_files() {
        let detail = CheckpointDetail {
            summary: summary(7),
            job: "word-count".into(),
            engine: "cofferdam 0.1.0".into(),
            max_parallelism: 128,
            nodes: vec![NodeDetail {
                id: "count".into(),
                kind: "operator".into(),
                parallelism: 2,
                state: vec!["n value postcard".into()],
                transactions: 0,
            }],
            positions: vec![PositionDetail {
                source: "lines".into(),
                split: "a.txt".into(),
                position: "line 12, byte 340".into(),
                finished: false,
            }],
            files: vec![
                FileDetail { name: "s1.seg".into(), inline: false, bytes: 4096, damage: Some("its hash is wrong".into()) },
                FileDetail { name: "7-2-1".into(), inline: true, bytes: 200, damage: None },
            ],
        };
        let expected = "\
checkpoint 7 of word-count: complete
  taken 2023-11-14 22:13:20 UTC by attempt 2 (cofferdam 0.1.0)
  4 KiB of state in 1 files, 128 key groups
  operator count x2  state: n value postcard
  position of lines in a.txt: line 12, byte 340
  file s1.seg 4 KiB damaged: its hash is wrong
  in the manifest 7-2-1 200 B verified
";
        assert_eq!(detail_text(&detail, Paint(false)), expected);
        assert!(detail.is_damaged());
        assert_eq!(serde_json::to_value(&detail).unwrap()["id"], 7);
    }

    #[test]
    fn moments_far_away_are_still_shown() {
        assert_eq!(
            [moment(0), moment(-5), moment(i64::MAX)],
            ["1970-01-01 00:00:00 UTC", "1970-01-01 00:00:00 UTC", "9223372036854775807 ms"]
        );
    }
}
