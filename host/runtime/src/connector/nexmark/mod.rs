//! The source `nexmark`: the events of the benchmark Nexmark, an auction house that somebody watches.
//!
//! Event `n` of a pipeline is a function of the options and `n`; `numbered` deals them out. `model` says what is in them, after
//! the generator that Apache Beam has published.

mod event;
mod model;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use cofferdam_dataflow::connector::{ConnectorError, SourceFactory};
use serde::Deserialize;

use self::model::Model;
use self::source::EventMaker;
use super::duration::HumanDuration;
use super::event_time::StartTime;
use super::failure::option_refused;
use super::generator::EVENT_TIME_START;
use super::numbered::{Numbers, numbered_source};

/// [`NexmarkOptions::events_per_second`] if not given.
pub const EVENTS_PER_SECOND: u64 = 10_000;

/// [`NexmarkOptions::out_of_order`] if not given.
pub const OUT_OF_ORDER: HumanDuration = HumanDuration(Duration::ZERO);

const OUT_OF_ORDER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Options of the source `nexmark`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NexmarkOptions {
    /// How many events there are in all; without end if not given.
    pub events: Option<u64>,
    /// Events a second in all; as fast as they are taken if not given.
    pub rate: Option<u64>,
    /// Chooses the events; 0 if not given.
    #[serde(default)]
    pub seed: u64,
    /// How many events a second of event time has; 10,000 if not given.
    pub events_per_second: Option<u64>,
    /// The event time of event 0; 2026-01-01T00:00:00Z if not given.
    pub event_time_start: Option<StartTime>,
    /// How much earlier than its turn an event's time may be, at most; at most a day, 0 if not given.
    pub out_of_order: Option<HumanDuration>,
    /// How an event is written.
    #[serde(default)]
    pub format: EventFormat,
    /// How many splits there are; if not given, one for each subtask when the pipeline first starts. Must be given if a
    /// pipeline is to go on with another parallelism.
    pub splits: Option<u32>,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventFormat {
    /// An object with one field, `person`, `auction` or `bid`.
    #[default]
    Json,
    /// The same as an enum of the crate `postcard`, in that order.
    Postcard,
}

/// Returns the source `nexmark`.
///
/// # Errors
/// `option-refused` if an option is out of range.
pub fn nexmark_source(options: &NexmarkOptions) -> Result<Arc<dyn SourceFactory>, ConnectorError> {
    let events_per_second = options.events_per_second.unwrap_or(EVENTS_PER_SECOND);
    if events_per_second == 0 {
        return Err(option_refused("events-per-second is 0; it must be at least 1".to_owned()));
    }
    let HumanDuration(out_of_order) = options.out_of_order.unwrap_or(OUT_OF_ORDER);
    if out_of_order > OUT_OF_ORDER_MAX {
        return Err(option_refused(format!("out-of-order is {out_of_order:?}; it must be at most a day")));
    }
    // A day fits.
    let out_of_order_ms = u64::try_from(out_of_order.as_millis()).unwrap_or(u64::MAX);
    let start = options.event_time_start.unwrap_or(EVENT_TIME_START).0;
    let model = Arc::new(Model::new(options.seed, start.0, events_per_second, out_of_order_ms));
    let numbers = Numbers::new(options.events, options.rate, options.splits)?;
    let format = options.format;
    Ok(numbered_source(numbers, move || EventMaker::new(Arc::clone(&model), format)))
}
