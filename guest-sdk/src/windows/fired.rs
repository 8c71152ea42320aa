//! What comes out of windows.

use super::shape::Span;
use crate::context::{Context, Record};
use crate::declare::OutputPort;
use crate::error::Error;
use crate::metrics;

/// The times that a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    start: i64,
    last: i64,
}

impl Window {
    pub(super) fn of(span: Span) -> Self {
        Self { start: span.start, last: span.last() }
    }

    /// Returns where it begins, in milliseconds since the Unix epoch: that of a session is the time of its first record. That
    /// of a global window is `i64::MIN`.
    pub fn start_ms(&self) -> i64 {
        self.start
    }

    /// Returns where it ends, exclusive, in milliseconds: that of a session is its last record's time and the gap.
    pub fn end_ms(&self) -> i64 {
        self.last.saturating_add(1)
    }

    /// Returns the latest time in it, in milliseconds: the event time of its results.
    pub fn last_ms(&self) -> i64 {
        self.last
    }
}

/// Why a window fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Firing {
    /// A trigger asked for it before the end: more may come.
    Early,
    /// It has ended.
    OnTime,
    /// It had ended, and late records came: the result is the corrected one.
    Late,
}

/// A window that fires.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fired<T> {
    /// Which.
    pub window: Window,
    /// Why.
    pub firing: Firing,
    /// How many records are in it.
    pub records: u64,
    /// What was made of them.
    pub result: T,
}

/// Whether a record was in time for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a late record is in no window: say what becomes of it, with `or_drop` or `or_send`"]
pub enum Added {
    /// It is in all windows of its time that were not forgotten yet.
    InTime,
    /// All windows of its time are forgotten: it is in none.
    Late,
}

impl Added {
    /// Drops a late record, and counts it as `late_records_dropped` of the operator's metrics.
    pub fn or_drop(self) {
        if self == Self::Late {
            metrics::add("late_records_dropped", 1);
        }
    }

    /// Sends a late record on as it came, with its key and its event time.
    ///
    /// # Errors
    /// As [`Context::emit`].
    pub fn or_send(self, port: OutputPort, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match self {
            Self::InTime => Ok(()),
            Self::Late => cx.out_to(port).keep_key().send_bytes(record.bytes()),
        }
    }
}
