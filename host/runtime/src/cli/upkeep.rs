//! `checkpoint diff`, `verify` and `gc`.

use std::fmt::Write as _;

use cofferdam::config::value::format_bytes;
use cofferdam::stored::{self, ChangeKind, CheckpointDiff, Garbage, KeyChange, StoredJob, Verification, show_bytes};
use cofferdam_dataflow::ids::CheckpointId;
use serde_json::json;

use super::Exit;
use super::arguments::{DiffArguments, GcArguments, VerifyArguments};
use super::checkpoints::storage_of;
use super::failure::Failure;
use super::state::{failure, open};
use super::terminal::{Paint, Style, Terminal};
use super::work::Work;

/// Shows what differs between two checkpoints.
pub(super) fn diff(arguments: &DiffArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let from = open(&arguments.path, Some(arguments.from))?;
    let to = open(&arguments.path, Some(arguments.to))?;
    let keys_max = arguments.keys.and_then(|keys| usize::try_from(keys).ok()).unwrap_or(0);
    let mut work = Work::new(terminal, "comparing", false);
    let found = stored::diff(&from, &to, keys_max, &mut |done, total| work.done(done, total));
    drop(work);
    let found = found.map_err(|error| failure(&error))?;
    let value = json!({ "event": "checkpoint-diff", "diff": found });
    terminal.result(&value, |paint| diff_text(&found, paint))?;
    Ok(Exit::Done)
}

fn diff_text(diff: &CheckpointDiff, paint: Paint) -> String {
    let mut text = format!("from checkpoint {} to {}\n", diff.from, diff.to);
    if diff.slots.is_empty() && diff.positions.is_empty() {
        text.push_str("  nothing differs\n");
    }
    for slot in &diff.slots {
        // Writing to a string cannot fail; so below.
        let _ = writeln!(
            text,
            "  {}/{}  {} added, {} removed, {} changed; {} new, {} old",
            slot.operator,
            slot.slot,
            slot.added,
            slot.removed,
            slot.changed,
            format_bytes(slot.new_bytes),
            format_bytes(slot.old_bytes)
        );
        for key in &slot.keys {
            let (sign, style) = match key.change {
                ChangeKind::Added => ('+', Style::Good),
                ChangeKind::Removed => ('-', Style::Error),
                ChangeKind::Changed => ('~', Style::Warning),
            };
            let _ = writeln!(
                text,
                "    {}",
                paint.paint(style, format_args!("{sign} {}{}", show_bytes(&key.key), entry_key_of(key)))
            );
        }
        let left = (slot.added + slot.removed + slot.changed).saturating_sub(slot.keys.len() as u64);
        if !slot.keys.is_empty() && left > 0 {
            let _ = writeln!(text, "    and {left} more");
        }
    }
    for position in &diff.positions {
        let shown = |position: &Option<String>| position.clone().unwrap_or_else(|| "not there".to_owned());
        let (from, to) = (shown(&position.from), shown(&position.to));
        let _ = writeln!(text, "  position of {} in {}: {from} -> {to}", position.source, show_bytes(position.split.as_bytes()));
    }
    text
}

fn entry_key_of(key: &KeyChange) -> String {
    key.entry_key.as_deref().map_or_else(String::new, |entry| format!("[{}]", show_bytes(entry)))
}

/// Reads all that a checkpoint is made of.
pub(super) fn verify(arguments: &VerifyArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let job = StoredJob::open(&storage_of(&arguments.path)?).map_err(|error| failure(&error))?;
    let wanted = match (arguments.all, arguments.id) {
        (true, _) => None,
        (false, Some(id)) => Some(CheckpointId(id)),
        (false, None) => Some(newest(&job)?),
    };
    let mut work = Work::new(terminal, "verifying", true);
    let found = stored::verify(&job, wanted, &mut |done, total| work.done(done, total));
    drop(work);
    let found = found.map_err(|error| failure(&error))?;
    let value = json!({ "event": "checkpoint-verified", "whole": found.is_whole(), "verification": found });
    terminal.result(&value, |paint| verify_text(&found, paint))?;
    Ok(if found.is_whole() { Exit::Done } else { Exit::Storage })
}

/// Returns the newest checkpoint, damaged or not.
fn newest(job: &StoredJob) -> Result<CheckpointId, Failure> {
    let listed = job.checkpoints().map_err(|error| failure(&error))?;
    let none = || stored::StoredError::NoCheckpoint { path: job.path().to_owned(), checkpoint: None };
    listed.last().map(|newest| newest.checkpoint).ok_or_else(|| failure(&none()))
}

fn verify_text(found: &Verification, paint: Paint) -> String {
    let mut text = String::new();
    for file in &found.files {
        if let Some(damage) = &file.damage {
            let _ = writeln!(text, "{} {}", file.file, paint.paint(Style::Error, format_args!("damaged: {damage}")));
        }
    }
    let list = |ids: &[u64]| ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let names = if found.checkpoints.len() == 1 { "checkpoint" } else { "checkpoints" };
    let bytes = format_bytes(found.files.iter().map(|file| file.bytes).sum());
    let (checkpoints, files, entries) = (list(&found.checkpoints), found.files.len(), found.entries);
    let _ = match (found.checkpoints.is_empty(), found.damaged.is_empty(), found.is_whole()) {
        (true, ..) => writeln!(text, "there is no checkpoint"),
        (_, _, true) => {
            let good = paint.paint(Style::Good, "whole");
            writeln!(text, "{names} {checkpoints}: {good}; {files} files, {bytes}, {entries} entries")
        }
        (_, false, _) => writeln!(text, "cannot be restored: {}", list(&found.damaged)),
        (_, true, false) => writeln!(text, "the state of {names} {checkpoints} is whole"),
    };
    text
}

/// Deletes what no checkpoint needs.
pub(super) fn gc(arguments: &GcArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let dir = storage_of(&arguments.path)?;
    let found = if arguments.dry_run { stored::find_garbage(&dir) } else { stored::collect_garbage(&dir) };
    let found = found.map_err(|error| failure(&error))?;
    let value = json!({ "event": "checkpoint-garbage", "deleted": !arguments.dry_run, "garbage": found });
    terminal.result(&value, |paint| gc_text(&found, arguments.dry_run, paint))?;
    Ok(Exit::Done)
}

fn gc_text(found: &Garbage, dry_run: bool, paint: Paint) -> String {
    let verb = if dry_run { "would delete" } else { "deleted" };
    let mut text = String::new();
    for (file, bytes) in &found.segments {
        let _ = writeln!(text, "{verb} {file}, {}", format_bytes(*bytes));
    }
    for file in &found.leftovers {
        let _ = writeln!(text, "{verb} {file}");
    }
    if found.is_empty() {
        text.push_str("there is nothing to delete\n");
    } else {
        let _ = writeln!(text, "{} files, {}", found.segments.len() + found.leftovers.len(), format_bytes(found.bytes()));
    }
    if let Some(what) = &found.unreadable {
        let note = format!("segments stay, for nobody knows which of them are needed: {what}");
        let _ = writeln!(text, "{}", paint.paint(Style::Warning, note));
    }
    if found.in_use {
        let _ =
            writeln!(text, "{}", paint.paint(Style::Faint, "a host runs this job: what it has written itself is not looked at"));
    }
    text
}

#[cfg(test)]
mod tests {
    use cofferdam::stored::{FileCheck, PositionChange, SlotDiff};

    use super::*;

    #[test]
    fn a_difference_lists_keys_up_to_a_limit_and_positions() {
        let keys = [(ChangeKind::Added, "ann"), (ChangeKind::Changed, "bob")];
        let slot = SlotDiff {
            operator: "count".into(),
            slot: "n".into(),
            added: 1,
            removed: 0,
            changed: 2,
            new_bytes: 2048,
            old_bytes: 10,
            keys: keys.map(|(change, key)| KeyChange { change, key: key.into(), entry_key: None }).into(),
        };
        let from = Some("line 3".into());
        let position = PositionChange { source: "lines".into(), split: "a.txt".into(), from, to: None };
        let diff = CheckpointDiff { from: 3, to: 4, slots: vec![slot], positions: vec![position] };
        let expected = "\
from checkpoint 3 to 4
  count/n  1 added, 0 removed, 2 changed; 2 KiB new, 10 B old
    + ann
    ~ bob
    and 1 more
  position of lines in a.txt: line 3 -> not there
";
        assert_eq!(diff_text(&diff, Paint(false)), expected);
        let same = CheckpointDiff { slots: vec![], positions: vec![], ..diff };
        assert_eq!(diff_text(&same, Paint(false)), "from checkpoint 3 to 4\n  nothing differs\n");
    }

    #[test]
    fn damaged_files_are_named() {
        let file =
            |file: &str, damage: Option<&str>| FileCheck { file: file.into(), bytes: 1024, damage: damage.map(str::to_owned) };
        let files = vec![file("chk-3/_manifest", None), file("segments/3-1-0.seg", Some("its hash is wrong"))];
        let damaged = Verification { checkpoints: vec![3], damaged: vec![3], files, entries: 5 };
        let expected = "segments/3-1-0.seg damaged: its hash is wrong\ncannot be restored: 3\n";
        assert_eq!(verify_text(&damaged, Paint(false)), expected);
        let whole = Verification { damaged: vec![], files: vec![file("chk-3/_manifest", None)], ..damaged };
        assert_eq!(verify_text(&whole, Paint(false)), "checkpoint 3: whole; 1 files, 1 KiB, 5 entries\n");
    }
}
