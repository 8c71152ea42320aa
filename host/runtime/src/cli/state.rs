//! `state ls`, `get`, `scan` and `export`: inside a stored checkpoint.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use cofferdam::config::Diagnostic;
use cofferdam::config::value::format_bytes;
use cofferdam::stored::{
    Renderer, SlotInfo, SlotSize, StoredCheckpoint, StoredEntry, StoredError, StoredSlot, parse_key, show_bytes,
};
use cofferdam_dataflow::guest::TimeDomain;
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::state::split_timer;
use serde::Serialize;
use serde_json::{Value, json};

use super::Exit;
use super::arguments::{ExportArguments, GetArguments, LsArguments, ScanArguments, SlotArguments};
use super::failure::Failure;
use super::reading::{self, ReadError, Which, failure};
use super::terminal::{Lines, Paint, Style, Terminal};
use super::work::Work;

/// One line of `state ls`.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Listed {
    #[serde(flatten)]
    info: SlotInfo,
    #[serde(flatten)]
    size: SlotSize,
}

/// Lists the state of a checkpoint.
pub(super) fn ls(arguments: &LsArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    reading::read((&arguments.path, Which::new(arguments.id, arguments.now)), terminal, |checkpoint| {
        let slots = sizes(checkpoint, terminal)?;
        let mut lines = terminal.lines();
        reading::tell(checkpoint, &mut lines, terminal)?;
        let value = json!({ "event": "state-list", "checkpoint": checkpoint.id().0, "slots": slots });
        lines.line(&value, |paint| ls_text(checkpoint.id(), &slots, paint))?;
        Ok(lines.end()?)
    })?;
    Ok(Exit::Done)
}

fn sizes(checkpoint: &StoredCheckpoint, terminal: &Terminal) -> Result<Vec<Listed>, StoredError> {
    let mut slots = Vec::new();
    let mut work = Work::new(terminal, "counting", false);
    let mut opened = Vec::new();
    for info in checkpoint.slots() {
        opened.push((checkpoint.slot(&info.operator, &info.slot)?, info));
    }
    let total = opened.iter().map(|(slot, _)| slot.groups().len() as u64).sum();
    let mut done = 0;
    for (mut slot, info) in opened {
        let mut size = SlotSize::default();
        for group in slot.groups() {
            work.done(done, total);
            let part = slot.group_size(group)?;
            size.keys += part.keys;
            size.entries += part.entries;
            size.key_groups += part.key_groups;
            size.stored_bytes += part.stored_bytes;
            done += 1;
        }
        slots.push(Listed { info, size });
    }
    Ok(slots)
}

fn ls_text(checkpoint: CheckpointId, slots: &[Listed], paint: Paint) -> String {
    let mut text = format!("state in checkpoint {checkpoint}\n");
    if slots.is_empty() {
        text.push_str("  there is none\n");
    }
    for Listed { info, size } in slots {
        let name = paint.paint(Style::Strong, format_args!("{}/{}", info.operator, one_line(&info.slot)));
        let keys = if size.keys == 1 { "key" } else { "keys" };
        // Writing to a string cannot fail; so below.
        let _ = write!(text, "  {name}  {} {keys}, ", size.keys);
        if size.entries != size.keys {
            let _ = write!(text, "{} entries, ", size.entries);
        }
        let _ = write!(text, "{} stored", format_bytes(size.stored_bytes));
        let _ = match info.kind.is_empty() {
            true => writeln!(text, ", not declared"),
            false => writeln!(text, ", {} in {} {}", info.kind, one_line(&info.codec), one_line(&info.schema)),
        };
    }
    text
}

/// Shows what a key has: its value, or all its entries.
pub(super) fn get(arguments: &GetArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let key = key_of(&arguments.key)?;
    read_slot(&arguments.slot, terminal, |checkpoint, slot| {
        let found = slot.entries_of(&key)?;
        let mut lines = terminal.lines();
        reading::tell(checkpoint, &mut lines, terminal)?;
        let renderer = Renderer::new(slot.info());
        if found.is_empty() {
            let (operator, name) = (&slot.info().operator, &slot.info().slot);
            let (id, key) = (checkpoint.id(), show_bytes(&key));
            let value = json!({ "event": "state-missing", "checkpoint": id.0, "operator": operator, "slot": name, "key": key });
            let none = format!("checkpoint {id} has nothing for this key");
            lines.line(&value, |paint| paint.paint(Style::Faint, none))?;
        }
        for entry in &found {
            let mut value = entry_json(slot.info(), &renderer, entry);
            value["event"] = "state-entry".into();
            let is_read = lines.line(&value, |paint| match place_of(slot.info(), entry) {
                None => renderer.render(&entry.value).line(),
                Some(place) => format!("{}\t{}", paint.paint(Style::Strong, place), renderer.render(&entry.value).line()),
            })?;
            if !is_read {
                break;
            }
        }
        Ok(lines.end()?)
    })?;
    Ok(Exit::Done)
}

/// Returns time and tag of a timer; `None` if the slot holds something else.
fn timer_of(info: &SlotInfo, entry: &StoredEntry) -> Option<(i64, u64)> {
    TimeDomain::of_table(&info.slot)?;
    split_timer(entry.entry_key.as_deref()?)
}

/// Returns which of a key's entries it is; `None` if a key has one value only.
fn place_of(info: &SlotInfo, entry: &StoredEntry) -> Option<String> {
    if let Some((due_ms, tag)) = timer_of(info, entry) {
        return Some(format!("due {due_ms} ms, tag {tag}"));
    }
    let index = entry.index.map(|index| index.to_string());
    entry.entry_key.as_deref().map(show_bytes).or(index)
}

/// Shows entries as they come.
pub(super) fn scan(arguments: &ScanArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let prefix = arguments.prefix.as_deref().map(key_of).transpose()?.unwrap_or_default();
    read_slot(&arguments.slot, terminal, |checkpoint, slot| {
        let renderer = Renderer::new(slot.info());
        let groups = slot.groups().into_iter().filter(|group| arguments.key_group.is_none_or(|only| group.0 == only));
        // Nothing is shown before the first of it has been read: if that is gone, another checkpoint will do.
        let mut shown: Option<Lines> = None;
        let mut left = arguments.limit.unwrap_or(u64::MAX);
        'all: for group in groups.collect::<Vec<_>>() {
            if left == 0 {
                break;
            }
            let entries = slot.group(group).map_err(|error| match &shown {
                Some(_) => ReadError::Other(failure(&error)),
                None => ReadError::Stored(error),
            })?;
            let lines = begun(&mut shown, checkpoint, terminal)?;
            for entry in entries.iter().filter(|entry| entry.key.starts_with(&prefix)) {
                if left == 0 || !print(lines, (slot.info(), &renderer), entry)? {
                    break 'all;
                }
                left -= 1;
            }
        }
        begun(&mut shown, checkpoint, terminal)?;
        Ok(shown.map_or(Ok(()), Lines::end)?)
    })?;
    Ok(Exit::Done)
}

/// Begins to show, unless that has been done.
fn begun<'a>(shown: &'a mut Option<Lines>, checkpoint: &StoredCheckpoint, terminal: &Terminal) -> Result<&'a mut Lines, Failure> {
    if shown.is_none() {
        let mut lines = terminal.lines();
        reading::tell(checkpoint, &mut lines, terminal)?;
        *shown = Some(lines);
    }
    Ok(shown.get_or_insert_with(|| terminal.lines()))
}

fn print(lines: &mut Lines, (info, renderer): (&SlotInfo, &Renderer), entry: &StoredEntry) -> Result<bool, Failure> {
    let mut value = entry_json(info, renderer, entry);
    value["event"] = "state-entry".into();
    lines.line(&value, |paint| {
        let place = place_of(info, entry).map_or_else(String::new, |place| format!("\t{place}"));
        format!("{}{place}\t{}\n", paint.paint(Style::Strong, show_bytes(&entry.key)), renderer.render(&entry.value).line())
    })
}

/// Writes a slot to a file.
pub(super) fn export(arguments: &ExportArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    // What is there is not overwritten, but for what a first attempt has written.
    let mut is_ours = false;
    let result = read_slot(&arguments.slot, terminal, |checkpoint, slot| {
        let file = if is_ours { rewrite(&arguments.to)? } else { create(&arguments.to)? };
        is_ours = true;
        let entries = export_to(file, slot, (&arguments.to, terminal))?;
        let mut lines = terminal.lines();
        reading::tell(checkpoint, &mut lines, terminal)?;
        let (id, shown) = (checkpoint.id(), arguments.to.display().to_string());
        let value = json!({ "event": "state-exported", "checkpoint": id.0, "file": shown, "entries": entries });
        lines.line(&value, |_| format!("wrote {entries} entries of checkpoint {id} to {shown}"))?;
        Ok(lines.end()?)
    });
    result.inspect_err(|_| {
        if is_ours && arguments.to.is_file() {
            // Half of a state is of no use.
            let _ = std::fs::remove_file(&arguments.to);
        }
    })?;
    Ok(Exit::Done)
}

fn export_to(mut file: BufWriter<File>, slot: &mut StoredSlot, (to, terminal): (&Path, &Terminal)) -> Result<u64, ReadError> {
    let mut work = Work::new(terminal, "exporting", false);
    let unwritable = |error: &io::Error| {
        let message = format!("{} cannot be written: {error}", to.display());
        Failure::new(Exit::Environment, Diagnostic::new("output-unwritable", message))
    };
    let entries = write_all(slot, &mut file, &mut work).map_err(|error| match error {
        ExportError::Read(error) => ReadError::Stored(error),
        ExportError::Write(error) => unwritable(&error).into(),
    })?;
    let file = file.into_inner().map_err(|error| unwritable(error.error()))?;
    // A device has nothing to sync.
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        file.sync_all().map_err(|error| unwritable(&error))?;
    }
    Ok(entries)
}

enum ExportError {
    Read(StoredError),
    Write(io::Error),
}

fn write_all(slot: &mut StoredSlot, file: &mut BufWriter<File>, work: &mut Work) -> Result<u64, ExportError> {
    let info = slot.info().clone();
    let renderer = Renderer::new(&info);
    let mut entries = slot.entries();
    let total = entries.groups_left() as u64;
    let mut count = 0;
    while let Some(entry) = entries.next() {
        let line = entry_json(&info, &renderer, &entry.map_err(ExportError::Read)?);
        writeln!(file, "{line}").map_err(ExportError::Write)?;
        count += 1;
        work.done(total - entries.groups_left() as u64, total);
    }
    file.flush().map_err(ExportError::Write)?;
    Ok(count)
}

/// Creates the file of an export. Devices are written to as they are.
fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    let is_device = path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    let opened = OpenOptions::new().write(true).create_new(!is_device).open(path);
    opened.map(BufWriter::new).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let message = format!("{} exists already", path.display());
            Diagnostic::new("file-exists", message).with_help("name a file that does not exist").into()
        }
        _ => {
            let message = format!("{} cannot be created: {error}", path.display());
            Failure::new(Exit::Environment, Diagnostic::new("output-unwritable", message))
        }
    })
}

/// Begins a file of this export anew.
fn rewrite(path: &Path) -> Result<BufWriter<File>, Failure> {
    OpenOptions::new().write(true).truncate(true).open(path).map(BufWriter::new).map_err(|error| {
        let message = format!("{} cannot be written: {error}", path.display());
        Failure::new(Exit::Environment, Diagnostic::new("output-unwritable", message))
    })
}

/// Returns an entry as JSON. `raw` has the bytes of what was decoded.
fn entry_json(info: &SlotInfo, renderer: &Renderer, entry: &StoredEntry) -> Value {
    let shown = renderer.render(&entry.value);
    let mut value = json!({
        "operator": info.operator,
        "slot": info.slot,
        "key_group": entry.group.0,
        "key": show_bytes(&entry.key),
        "value": shown.value,
    });
    if let Some(raw) = shown.raw(&entry.value) {
        value["raw"] = raw.into();
    }
    if let Some((due_ms, tag)) = timer_of(info, entry) {
        (value["due_ms"], value["tag"]) = (due_ms.into(), tag.into());
    }
    if let Some(entry_key) = &entry.entry_key {
        value["entry_key"] = show_bytes(entry_key).into();
    }
    if let Some(index) = entry.index {
        value["index"] = index.into();
    }
    if let Some(used_ms) = entry.used_ms {
        value["used_ms"] = used_ms.into();
    }
    value
}

fn key_of(text: &str) -> Result<Vec<u8>, Failure> {
    parse_key(text).map_err(|error| Diagnostic::new("bad-key", error.to_string()).into())
}

/// Opens a slot of the checkpoint that the command line names, and reads it.
fn read_slot(
    arguments: &SlotArguments,
    terminal: &Terminal,
    mut read: impl FnMut(&StoredCheckpoint, &mut StoredSlot) -> Result<(), ReadError>,
) -> Result<(), Failure> {
    let which = Which::new(arguments.checkpoint, arguments.now);
    reading::read((&arguments.path, which), terminal, |checkpoint| {
        let mut slot = checkpoint.slot(&arguments.slot.0, &arguments.slot.1)?;
        read(checkpoint, &mut slot)
    })
}

/// A component's own texts are untrusted: they must not draw on the terminal.
fn one_line(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use cofferdam_dataflow::key_group::KeyGroup;

    use super::*;

    fn info() -> SlotInfo {
        let [operator, slot, kind, codec] = ["count", "n", "value", "json"].map(str::to_owned);
        SlotInfo { operator, slot, kind, codec, schema: "u64\u{1b}".into(), ttl_ms: 0 }
    }

    #[test]
    fn state_is_listed_with_what_its_operator_declared() {
        let size = SlotSize { keys: 1, entries: 3, key_groups: 1, stored_bytes: 2048 };
        let stray = SlotInfo { kind: String::new(), slot: "old".into(), ..info() };
        let slots = [Listed { info: info(), size }, Listed { info: stray, size: SlotSize::default() }];
        let expected = "\
state in checkpoint 7
  count/n  1 key, 3 entries, 2 KiB stored, value in json u64\u{fffd}
  count/old  0 keys, 0 B stored, not declared
";
        assert_eq!(ls_text(CheckpointId(7), &slots, Paint(false)), expected);
        assert_eq!(serde_json::to_value(&slots[0]).unwrap()["keys"], 1);
    }

    #[test]
    fn an_entry_has_all_its_bytes() {
        let entry = StoredEntry {
            group: KeyGroup(3),
            key: vec![0xff],
            entry_key: Some(b"m".to_vec()),
            index: None,
            used_ms: Some(7),
            value: b"1 ".to_vec(),
        };
        let expected = json!({
            "operator": "count", "slot": "n", "key_group": 3, "key": "hex:ff", "value": 1, "raw": "hex:3120",
            "entry_key": "m", "used_ms": 7,
        });
        assert_eq!(entry_json(&info(), &Renderer::new(&info()), &entry), expected);
    }
}
