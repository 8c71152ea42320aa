//! The source `generator`: records made up from their number alone, the same in every run.
//!
//! Record `n` of a pipeline is a function of the options and `n`; `numbered` deals them out.

mod draw;
mod shape;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use cofferdam_dataflow::connector::{ConnectorError, SourceFactory};
use cofferdam_dataflow::time::EventTime;
use serde::Deserialize;

use self::draw::KeyDraw;
use self::source::GeneratorMaker;
use super::duration::HumanDuration;
use super::event_time::StartTime;
use super::failure::option_refused;
use super::numbered::{Numbers, numbered_source};
use super::size::ByteSize;

/// [`GeneratorOptions::payload_bytes`] if not given.
pub const PAYLOAD_BYTES: ByteSize = ByteSize(100);

/// [`GeneratorOptions::event_time_start`] if not given: 2026-01-01T00:00:00Z.
pub const EVENT_TIME_START: StartTime = StartTime(EventTime(1_767_225_600_000));

/// [`GeneratorOptions::event_time_step`] if not given.
pub const EVENT_TIME_STEP: HumanDuration = HumanDuration(Duration::from_millis(1));

/// Options of the source `generator`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GeneratorOptions {
    /// How many records there are in all; without end if not given.
    pub records: Option<u64>,
    /// Records a second in all; as fast as they are taken if not given.
    pub rate: Option<u64>,
    /// How many distinct keys there are; records have no key if not given.
    pub keys: Option<u64>,
    /// How a record's key is chosen; uniform if not given. Needs `keys`.
    pub distribution: Option<Distribution>,
    /// How a key is written; as text if not given. Needs `keys`.
    pub key_format: Option<KeyFormat>,
    /// What a record's value is.
    #[serde(default)]
    pub shape: Shape,
    /// The length of a value; 100 if not given. Text and JSON are longer where their content does not fit.
    pub payload_bytes: Option<ByteSize>,
    /// Chooses the keys and the filler; 0 if not given.
    #[serde(default)]
    pub seed: u64,
    /// The event time of record 0; 2026-01-01T00:00:00Z if not given.
    pub event_time_start: Option<StartTime>,
    /// How much later each record's event time is than the one before, to the nanosecond; 1 ms if not given.
    pub event_time_step: Option<HumanDuration>,
    /// How many splits there are; if not given, one for each subtask when the pipeline first starts. Must be given if a
    /// pipeline is to go on with another parallelism.
    pub splits: Option<u32>,
}

/// How a record's key is chosen among the `keys` there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Each as likely as any other.
    #[default]
    Uniform,
    /// In turn: record `n` has key `n` modulo `keys`.
    Sequential,
    /// Key `k` (from 0) with a likelihood in proportion to `1 / (k + 1)`. At most 16,777,216 keys.
    Zipf,
}

/// How a key is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyFormat {
    /// Decimal digits.
    #[default]
    Text,
    /// 8 bytes, the lowest first.
    #[serde(rename = "u64-le")]
    U64Le,
}

/// What a record's value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// The record's number in 8 bytes, the lowest first, then filler.
    #[default]
    Binary,
    /// The record's number in decimal, a space, then letters.
    Text,
    /// An object with `sequence` (the record's number), `key` (a text, if there are keys), `amount` (0 to 999), `time`
    /// (the event time in milliseconds) and `filler` (letters).
    Json,
}

/// Options that have been checked.
struct Settings {
    keys: Option<KeyDraw>,
    key_format: KeyFormat,
    shape: Shape,
    payload_bytes: usize,
    seed: u64,
    start: EventTime,
    step_ns: u64,
}

const PAYLOAD_BYTES_MAX: u64 = 16 << 20;

impl Settings {
    fn new(options: &GeneratorOptions) -> Result<Self, ConnectorError> {
        let needs_keys = [("distribution", options.distribution.is_some()), ("key-format", options.key_format.is_some())];
        if let Some((name, _)) = needs_keys.iter().find(|(_, given)| *given && options.keys.is_none()) {
            return Err(option_refused(format!("{name} needs keys")));
        }
        let least = if options.shape == Shape::Binary { 8 } else { 0 };
        let payload = options.payload_bytes.unwrap_or(PAYLOAD_BYTES);
        let payload_bytes = usize::try_from(payload.0).ok().filter(|_| (least..=PAYLOAD_BYTES_MAX).contains(&payload.0));
        let payload_bytes =
            payload_bytes.ok_or_else(|| option_refused(format!("payload-bytes is {payload}; it must be {least} to 16MiB")))?;
        let HumanDuration(step) = options.event_time_step.unwrap_or(EVENT_TIME_STEP);
        let step_ns = u64::try_from(step.as_nanos()).map_err(|_| option_refused("event-time-step is beyond 584 years"))?;
        let keys = options.keys.map(|keys| KeyDraw::new(keys, options.distribution.unwrap_or_default(), options.seed));
        Ok(Self {
            keys: keys.transpose().map_err(option_refused)?,
            key_format: options.key_format.unwrap_or_default(),
            shape: options.shape,
            payload_bytes,
            seed: options.seed,
            start: options.event_time_start.unwrap_or(EVENT_TIME_START).0,
            step_ns,
        })
    }

    /// Returns the event time of a record, and by how many nanoseconds it was cut off.
    fn time_of(&self, sequence: u64) -> (i64, u64) {
        let elapsed_ns = u128::from(sequence) * u128::from(self.step_ns);
        let elapsed_ms = i64::try_from(elapsed_ns / 1_000_000).unwrap_or(i64::MAX);
        (self.start.0.saturating_add(elapsed_ms), product_rest_ns(sequence, self.step_ns))
    }
}

/// Returns the nanoseconds of `a * b` beyond its whole milliseconds.
fn product_rest_ns(a: u64, b: u64) -> u64 {
    const NS_PER_MS: u64 = 1_000_000;
    (a % NS_PER_MS) * (b % NS_PER_MS) % NS_PER_MS
}

/// Returns the source `generator`.
///
/// # Errors
/// `option-refused` if an option is out of range, or contradicts another.
pub fn generator_source(options: &GeneratorOptions) -> Result<Arc<dyn SourceFactory>, ConnectorError> {
    let settings = Arc::new(Settings::new(options)?);
    let numbers = Numbers::new(options.records, options.rate, options.splits)?;
    Ok(numbered_source(numbers, move || GeneratorMaker::new(Arc::clone(&settings))))
}
