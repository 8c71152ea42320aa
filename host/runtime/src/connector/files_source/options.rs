//! The options of the source `files`, as written and as checked.

use cofferdam_dataflow::connector::ConnectorError;
use serde::Deserialize;

use super::pick::{JsonPointer, Picker, Slot};
use crate::connector::event_time::TimeUnit;
use crate::connector::failure::option_refused;
use crate::connector::size::ByteSize;

/// [`FilesSourceOptions::max_line_bytes`] if not given.
pub const LINE_BYTES_MAX: ByteSize = ByteSize::mib(4);

/// [`FilesSourceOptions::delimiter`] if not given.
pub const DELIMITER: char = ',';

/// Options of the source `files`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FilesSourceOptions {
    /// A file, a folder (its files, not those of folders in it) or a glob such as `logs/*.gz`; relative to the pipeline
    /// file's folder. Names that begin with a dot are left out.
    pub path: String,
    /// Whether a folder or glob without a file is an input that ends at once, not an error.
    #[serde(default)]
    pub allow_empty: bool,
    /// How records are told apart.
    #[serde(default)]
    pub format: Format,
    /// The field that becomes the record's key; for `csv`, `/` and the column's name. Not for `text`.
    pub key: Option<JsonPointer>,
    /// The field that becomes the record's event time: a number, or an RFC 3339 text. Not for `text`.
    pub event_time: Option<JsonPointer>,
    /// The unit of event times that are numbers; milliseconds if not given.
    pub event_time_unit: Option<TimeUnit>,
    /// A field that says up to which event time the file is complete: no record at or before it follows. As `event_time`,
    /// but a record may lack it. Needs that.
    pub watermark_field: Option<JsonPointer>,
    /// Whether what is appended to a file is read as it comes, without an end. For files that are not compressed, and not for
    /// `csv`.
    #[serde(default)]
    pub follow: bool,
    /// What a record that cannot be read does.
    #[serde(default)]
    pub on_malformed: OnMalformed,
    /// The longest line, or CSV record, that is read; longer ones are malformed. 1 byte to 64 MiB, 4 MiB if not given.
    pub max_line_bytes: Option<ByteSize>,
    /// What separates the fields of a CSV record; a comma if not given. Only for `csv`.
    pub delimiter: Option<char>,
}

/// How a file is divided into records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A record a line, without its newline and a carriage return before that.
    #[default]
    Text,
    /// A JSON value a line; blank lines are left out. The record is the line.
    Json,
    /// CSV with a header. The record is a JSON object that maps each column's name to the field's text.
    Csv,
}

/// What a record that cannot be read does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnMalformed {
    /// It fails the source.
    #[default]
    Fail,
    /// It is left out, and counted.
    Skip,
}

/// Options that have been checked.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) format: Format,
    pub(super) key: Option<JsonPointer>,
    pub(super) event_time: Option<JsonPointer>,
    pub(super) event_time_unit: TimeUnit,
    pub(super) watermark: Option<JsonPointer>,
    pub(super) follow: bool,
    pub(super) on_malformed: OnMalformed,
    pub(super) line_max: usize,
    pub(super) delimiter: u8,
    /// Finds key, event time and watermark in JSON.
    pub(super) picker: Picker,
}

impl Settings {
    /// Checks options against each other.
    pub(super) fn new(options: &FilesSourceOptions) -> Result<Self, ConnectorError> {
        let given = [("key", options.key.is_some()), ("event-time", options.event_time.is_some())];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given && options.format == Format::Text) {
            return Err(option_refused(format!("{name} needs format = \"json\" or \"csv\"; a text line has no fields")));
        }
        if options.event_time_unit.is_some() && options.event_time.is_none() {
            return Err(option_refused("event-time-unit needs event-time"));
        }
        if options.watermark_field.is_some() && options.event_time.is_none() {
            return Err(option_refused("watermark-field needs event-time"));
        }
        if options.delimiter.is_some() && options.format != Format::Csv {
            return Err(option_refused("delimiter needs format = \"csv\""));
        }
        if options.follow && options.format == Format::Csv {
            return Err(option_refused("follow needs format = \"text\" or \"json\""));
        }
        let fields = [
            (Slot::Key, "key", &options.key),
            (Slot::Time, "event-time", &options.event_time),
            (Slot::Watermark, "watermark-field", &options.watermark_field),
        ];
        let fields: Vec<_> = fields.iter().filter_map(|(slot, name, pointer)| Some((*slot, *name, pointer.as_ref()?))).collect();
        let mut picker = Picker::default();
        for (index, (slot, name, pointer)) in fields.iter().enumerate() {
            picker.add(*slot, pointer);
            if let Some((_, other, outer)) = fields[..index].iter().find(|(_, _, other)| pointer.nests_with(other)) {
                let text = format!("one of {other} = \"{outer}\" and {name} = \"{pointer}\" lies within the other");
                return Err(option_refused(text));
            }
        }
        let delimiter = options.delimiter.unwrap_or(DELIMITER);
        let delimiter_byte = u8::try_from(delimiter).ok().filter(|b| b.is_ascii() && !matches!(b, b'"' | b'\n' | b'\r'));
        let line_max = options.max_line_bytes.unwrap_or(LINE_BYTES_MAX);
        let line_max_bytes = usize::try_from(line_max.0).ok().filter(|_| (1..=64 << 20).contains(&line_max.0));
        Ok(Self {
            format: options.format,
            key: options.key.clone(),
            event_time: options.event_time.clone(),
            event_time_unit: options.event_time_unit.unwrap_or_default(),
            watermark: options.watermark_field.clone(),
            follow: options.follow,
            on_malformed: options.on_malformed,
            line_max: line_max_bytes
                .ok_or_else(|| option_refused(format!("max-line-bytes is {line_max}; it must be 1 byte to 64MiB")))?,
            delimiter: delimiter_byte
                .ok_or_else(|| option_refused(format!("delimiter is {delimiter:?}; it must be an ASCII character, no quote")))?,
            picker,
        })
    }
}
