//! One file as records: its lines, its format, its position.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::ConnectorError;
use cofferdam_dataflow::time::EventTime;

use super::csv::{CsvRows, Parsed};
use super::lines::{Lines, Next, Resumed};
use super::options::{Format, OnMalformed, Settings};
use super::pick::{Slot, scalar};
use super::position::FilePosition;
use super::stream::{ByteStream, is_compressed};
use crate::connector::failure::{option_refused, read_failed};

/// How much of a file one poll reads, in uncompressed bytes; a longer line is read whole.
const POLL_BYTES: u64 = 256 << 10;
/// How large a batch grows: records can be larger than what they were read from.
const BATCH_BYTES: usize = 512 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Records.
    Some,
    /// None yet: what was read was blank or malformed.
    NoneYet,
    /// None any more; if the file is followed, for now.
    End,
}

/// Reads one file.
pub(super) struct FileReader {
    name: String,
    path: PathBuf,
    settings: Arc<Settings>,
    lines: Lines,
    stored_bytes: u64,
    csv: Option<CsvFile>,
    malformed: u64,
    fields: Fields,
}

/// A CSV file's rows, and where key and event time are in them.
struct CsvFile {
    rows: CsvRows,
    key: Option<usize>,
    time: Option<usize>,
    watermark: Option<usize>,
}

/// Key and event time of the record at hand.
#[derive(Default)]
struct Fields {
    key: Vec<u8>,
    time_text: Vec<u8>,
    time: Option<EventTime>,
    /// The latest of all records so far.
    watermark: Option<EventTime>,
}

impl FileReader {
    /// Opens a file and goes to a position in it.
    ///
    /// # Errors
    /// `source-changed` if the position does not fit; what else comes with reading.
    pub(super) fn open(
        name: &str,
        path: &Path,
        settings: &Arc<Settings>,
        position: Option<&FilePosition>,
    ) -> Result<Self, ConnectorError> {
        let failed = |error| read_failed(path, error);
        if settings.follow && is_compressed(path) {
            return Err(option_refused(format!("\"{name}\" is compressed and cannot be followed")));
        }
        let stored_bytes = std::fs::metadata(path).map_err(failed)?.len();
        let mut lines = Lines::new(ByteStream::open(path).map_err(failed)?, settings.follow);
        let csv = match settings.format {
            Format::Csv => Some(CsvFile::open(name, path, settings, &mut lines)?),
            Format::Text | Format::Json => None,
        };
        if let Some(position) = position.filter(|position| position.offset > 0) {
            let FilePosition { offset, lines: line, .. } = position;
            let problem = match lines.resume(position).map_err(failed)? {
                Resumed::Fits => None,
                Resumed::TooShort(length) => Some(format!("it is only {length} bytes long")),
                Resumed::Differs => Some("its contents are not what they were".to_owned()),
            };
            if let Some(problem) = problem {
                let message = format!("\"{name}\" changed since byte {offset} (line {line}) was recorded: {problem}");
                return Err(ConnectorError::permanent("source-changed", message));
            }
        }
        let (name, path, settings) = (name.to_owned(), path.to_owned(), Arc::clone(settings));
        Ok(Self { name, path, settings, lines, stored_bytes, csv, malformed: 0, fields: Fields::default() })
    }

    /// Returns the position before the next record.
    pub(super) fn position(&self) -> FilePosition {
        self.lines.position()
    }

    /// Whether all has been read, as far as that is known.
    pub(super) fn exhausted(&self) -> bool {
        self.lines.exhausted()
    }

    /// Returns up to which event time its records say that it is complete.
    pub(super) fn declared_watermark(&self) -> Option<EventTime> {
        self.fields.watermark
    }

    /// Checks that a file that is followed is still there, and has not become shorter than what was read of it.
    ///
    /// # Errors
    /// `source-changed` if not.
    pub(super) fn check_followed(&self) -> Result<(), ConnectorError> {
        let changed = |what: String| ConnectorError::permanent("source-changed", format!("\"{}\" {what}", self.name));
        let taken = self.lines.taken_bytes();
        match self.lines.is_file_at(&self.path) {
            Ok(None) => Err(changed("was replaced by another file while it was followed".into())),
            Ok(Some(length)) if length < taken => Err(changed(format!("has only {length} bytes left, and {taken} were read"))),
            Ok(Some(_)) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(changed("is gone while it was followed".into())),
            Err(error) => Err(read_failed(&self.path, error)),
        }
    }

    /// Returns how many records were skipped.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns how much of the stored file is left, in bytes.
    pub(super) fn remaining_bytes(&self) -> u64 {
        self.stored_bytes.saturating_sub(self.lines.taken_bytes())
    }

    /// Appends records until there are `max_records`, or enough was read.
    ///
    /// # Errors
    /// `record-malformed` where that fails; what else comes with reading.
    pub(super) fn read(&mut self, max_records: usize, batch: &mut Batch) -> Result<Read, ConnectorError> {
        let settings = Arc::clone(&self.settings);
        if settings.follow {
            self.lines.look_again();
        }
        let until = self.lines.offset() + POLL_BYTES;
        let mut more = true;
        while more && batch.len() < max_records && self.lines.offset() < until && batch.bytes() < BATCH_BYTES {
            if self.lines.drop_some().map_err(|error| read_failed(&self.path, error))? {
                continue;
            }
            more = match settings.format {
                Format::Text => self.text_line(&settings, batch)?,
                Format::Json => self.json_line(&settings, batch)?,
                Format::Csv => self.csv_row(&settings, batch)?,
            };
        }
        Ok(if !batch.is_empty() {
            Read::Some
        } else if more {
            Read::NoneYet
        } else {
            Read::End
        })
    }

    fn text_line(&mut self, settings: &Settings, batch: &mut Batch) -> Result<bool, ConnectorError> {
        match self.lines.next(settings.line_max).map_err(|error| read_failed(&self.path, error))? {
            Next::Line(length, taken) => {
                let line = &self.lines.at_hand()[..length];
                batch.push(None, None, line.strip_suffix(b"\r").unwrap_or(line));
                self.lines.consume(taken, 1);
            }
            Next::TooLong => self.too_long(settings)?,
            Next::End => return Ok(false),
        }
        Ok(true)
    }

    fn json_line(&mut self, settings: &Settings, batch: &mut Batch) -> Result<bool, ConnectorError> {
        match self.lines.next(settings.line_max).map_err(|error| read_failed(&self.path, error))? {
            Next::Line(length, taken) => {
                let mut line = &self.lines.at_hand()[..length];
                line = line.strip_suffix(b"\r").unwrap_or(line);
                if self.lines.offset() == 0 {
                    line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
                }
                if !line.trim_ascii().is_empty() {
                    match self.fields.of_json(line, settings) {
                        Ok(()) => self.fields.push(settings, line, batch),
                        Err(reason) => self.refuse(settings, &reason)?,
                    }
                }
                self.lines.consume(taken, 1);
            }
            Next::TooLong => self.too_long(settings)?,
            Next::End => return Ok(false),
        }
        Ok(true)
    }

    fn csv_row(&mut self, settings: &Settings, batch: &mut Batch) -> Result<bool, ConnectorError> {
        let csv = self.csv.as_mut().expect("a file of the format csv is opened with its rows");
        if skip_blank_lines(&mut self.lines) {
            return Ok(true);
        }
        let input = self.lines.at_hand();
        if input.is_empty() && self.lines.ended() {
            return Ok(false);
        }
        match csv.rows.parse(input, self.lines.ended()) {
            Parsed::Record(taken) if taken <= settings.line_max => {
                let newlines = memchr::memchr_iter(b'\n', &input[..taken]).count() as u64;
                let unterminated = u64::from(input[taken - 1] != b'\n');
                match self.fields.of_csv(csv, settings).and_then(|()| csv.rows.write_json()) {
                    Ok(value) => self.fields.push(settings, value, batch),
                    Err(reason) => self.refuse(settings, &reason)?,
                }
                self.lines.consume(taken, newlines + unterminated);
            }
            Parsed::Incomplete if input.len() <= settings.line_max => {
                self.lines.fill().map_err(|error| read_failed(&self.path, error))?;
            }
            Parsed::Record(_) | Parsed::Incomplete => self.too_long(settings)?,
            Parsed::Unclosed => {
                self.refuse(settings, "a quoted field has no closing quote")?;
                self.lines.drop_line();
            }
        }
        Ok(true)
    }

    fn too_long(&mut self, settings: &Settings) -> Result<(), ConnectorError> {
        let reason = format!("longer than {} bytes (max-line-bytes)", settings.line_max);
        self.refuse(settings, &reason)?;
        self.lines.drop_line();
        Ok(())
    }

    /// Fails for the record at hand, or counts it.
    fn refuse(&mut self, settings: &Settings, reason: &str) -> Result<(), ConnectorError> {
        let line = self.lines.count() + 1;
        let message = format!("\"{}\" line {line} (byte {}): {reason}", self.name, self.lines.offset());
        match settings.on_malformed {
            OnMalformed::Fail => Err(ConnectorError::permanent("record-malformed", message)),
            OnMalformed::Skip => {
                tracing::debug!(file = self.name, line, reason, "skipped a malformed record");
                self.malformed += 1;
                Ok(())
            }
        }
    }
}

/// Consumes blank lines at hand. Whether there were any.
fn skip_blank_lines(lines: &mut Lines) -> bool {
    let input = lines.at_hand();
    let mut bytes = 0;
    let mut count = 0;
    loop {
        match &input[bytes..] {
            [b'\n', ..] => bytes += 1,
            [b'\r', b'\n', ..] => bytes += 2,
            [b'\r'] if lines.ended() => bytes += 1,
            _ => break,
        }
        count += 1;
    }
    lines.consume(bytes, count);
    count > 0
}

impl CsvFile {
    /// Reads the header.
    fn open(name: &str, path: &Path, settings: &Settings, lines: &mut Lines) -> Result<Self, ConnectorError> {
        let wrong = |reason: &str| ConnectorError::permanent("csv-header", format!("\"{name}\": {reason}"));
        let mut rows = CsvRows::new(settings.delimiter);
        loop {
            skip_blank_lines(lines);
            let input = lines.at_hand();
            match rows.parse(input, lines.ended()) {
                _ if input.is_empty() && lines.ended() => {
                    return Ok(Self { rows, key: None, time: None, watermark: None });
                }
                _ if input.is_empty() => {}
                Parsed::Record(taken) => {
                    rows.take_header().map_err(|reason| wrong(&reason))?;
                    let newlines = memchr::memchr_iter(b'\n', &input[..taken]).count() as u64;
                    lines.consume(taken, newlines.max(1));
                    break;
                }
                Parsed::Incomplete if input.len() <= settings.line_max => {}
                Parsed::Incomplete => return Err(wrong("the header is longer than max-line-bytes")),
                Parsed::Unclosed => return Err(wrong("a quoted field has no closing quote")),
            }
            lines.fill().map_err(|error| read_failed(path, error))?;
        }
        let find = |option: &str, pointer: &Option<_>| match pointer {
            Some(pointer) => match rows.column(pointer) {
                Some(column) => Ok(Some(column)),
                None => Err(wrong(&format!("the header has no column for {option} = \"{pointer}\""))),
            },
            None => Ok(None),
        };
        let (key, time) = (find("key", &settings.key)?, find("event-time", &settings.event_time)?);
        let watermark = find("watermark-field", &settings.watermark)?;
        Ok(Self { rows, key, time, watermark })
    }
}

impl Fields {
    fn of_json(&mut self, line: &[u8], settings: &Settings) -> Result<(), String> {
        let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8 at column {}", error.valid_up_to() + 1))?;
        let found = settings.picker.pick(text).map_err(|error| json_reason(&error))?;
        if let Some(pointer) = &settings.key {
            let text = found[Slot::Key as usize].ok_or_else(|| format!("no field \"{pointer}\" for the key"))?;
            scalar(text, &mut self.key).map_err(|what| format!("the key \"{pointer}\" {what}"))?;
        }
        if let Some(pointer) = &settings.event_time {
            let text = found[Slot::Time as usize].ok_or_else(|| format!("no field \"{pointer}\" for the event time"))?;
            scalar(text, &mut self.time_text).map_err(|what| format!("the event time \"{pointer}\" {what}"))?;
            self.time = Some(parse_time(&self.time_text, settings)?);
        }
        if let Some((pointer, text)) = settings.watermark.as_ref().zip(found[Slot::Watermark as usize]) {
            scalar(text, &mut self.time_text).map_err(|what| format!("the watermark \"{pointer}\" {what}"))?;
            self.watermark = self.watermark.max(Some(parse_time(&self.time_text, settings)?));
        }
        Ok(())
    }

    fn of_csv(&mut self, csv: &CsvFile, settings: &Settings) -> Result<(), String> {
        if csv.rows.is_ragged() {
            // Told by the conversion to JSON.
            return Ok(());
        }
        let field = |index| csv.rows.field(index).map_err(|_| format!("field {} is not UTF-8", index + 1));
        if let Some(index) = csv.key {
            self.key.clear();
            self.key.extend_from_slice(field(index)?.as_bytes());
        }
        if let Some(index) = csv.time {
            self.time = Some(parse_time(field(index)?.as_bytes(), settings)?);
        }
        if let Some(text) = csv.watermark.map(field).transpose()?.filter(|text| !text.is_empty()) {
            self.watermark = self.watermark.max(Some(parse_time(text.as_bytes(), settings)?));
        }
        Ok(())
    }

    fn push(&self, settings: &Settings, value: &[u8], batch: &mut Batch) {
        batch.push(settings.key.as_ref().map(|_| self.key.as_slice()), self.time, value);
    }
}

fn parse_time(text: &[u8], settings: &Settings) -> Result<EventTime, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the event time is not UTF-8".to_owned())?;
    settings.event_time_unit.parse(text).map_err(|error| format!("the event time {error}"))
}

/// The parser's words without its line number, which is always 1.
fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let words = text.rsplit_once(" at line ").map_or(text.as_str(), |(words, _)| words);
    format!("not JSON: {words} at column {}", error.column())
}
