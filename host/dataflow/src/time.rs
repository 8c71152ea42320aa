//! Event time and processing time. Nothing here reads a clock.

use serde::{Deserialize, Serialize};

/// When something happened, by the record's own account: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventTime(pub i64);

/// When something is handled, by the host's clock: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessingTime(pub i64);

/// A monotonic instant of the host, for pauses and timeouts: milliseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicTime(pub u64);

impl MonotonicTime {
    /// Returns the instant `ms` milliseconds later, at most the end of time.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to `self`, 0 if it is not earlier.
    pub fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The promise that no record with an event time at or before it follows. Beyond it, a record is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Watermark(pub EventTime);

impl Watermark {
    /// The watermark of an input that has ended.
    pub const MAX: Self = Self(EventTime(i64::MAX));
}
