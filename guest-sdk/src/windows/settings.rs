//! What an author says of windows: kind, clock, lateness and triggers. Checked as a whole, into a [`Shape`].

use std::time::Duration;

use super::shape::{Aligned, Kind, PANES_MAX, Shape, TIME_MAX};
use crate::declare::TimeDomain;
use crate::error::Error;

/// Which windows a record goes to, and when they fire.
///
/// A window `[start, end)` in event time fires *on time* once no record before its end is expected any more: when the
/// watermark reaches `end - 1`. It may fire *early*, again and again, if asked to. With a lateness it is kept for so long
/// after that, and a record that comes meanwhile fires it *late*, with the corrected result. Then it is forgotten.
///
/// ```
/// use std::time::Duration;
/// use cofferdam_guest::Windowing;
///
/// let minute = Duration::from_secs(60);
/// Windowing::tumbling(minute).lateness(Duration::from_secs(10));
/// Windowing::tumbling(24 * 60 * minute).offset_ms(-3_600_000); // Days in UTC+1.
/// Windowing::sliding(10 * minute, minute).early_every(1000);
/// Windowing::session(30 * minute).early_every_processing_time(minute);
/// Windowing::global().early_every(100).purging(); // Results of 100 records each.
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "windows are what they are told to be with `configure` or `with`"]
pub struct Windowing {
    kind: Wanted,
    offset: Option<i64>,
    clock: TimeDomain,
    lateness: Duration,
    early_records: Option<u64>,
    early_times: Vec<(TimeDomain, Duration)>,
    late_records: Option<u64>,
    purging: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Tumbling(Duration),
    Sliding(Duration, Duration),
    Session(Duration),
    Global,
}

impl Windowing {
    fn of(kind: Wanted) -> Self {
        Self {
            kind,
            offset: None,
            clock: TimeDomain::EventTime,
            lateness: Duration::ZERO,
            early_records: None,
            early_times: Vec::new(),
            late_records: None,
            purging: false,
        }
    }

    /// Windows of one size, each beginning where another ends, aligned to 1970.
    pub fn tumbling(size: Duration) -> Self {
        Self::of(Wanted::Tumbling(size))
    }

    /// Windows of one size, one beginning every `slide`, aligned to 1970: a record is in several. The slide is at most the
    /// size. They are made of panes as long as both can be divided by: at most 4096 in a window.
    pub fn sliding(size: Duration, slide: Duration) -> Self {
        Self::of(Wanted::Sliding(size, slide))
    }

    /// Windows that last until there was no record for `gap`: `[first, last + gap)`. A record that falls between two
    /// joins them. One that comes exactly `gap` after the last begins a new one.
    pub fn session(gap: Duration) -> Self {
        Self::of(Wanted::Session(gap))
    }

    /// One window for each key, without a time: it ends with the input. Triggers make it fire before.
    pub fn global() -> Self {
        Self::of(Wanted::Global)
    }

    /// Shifts where tumbling and sliding windows begin, in milliseconds; below 0 for zones east of Greenwich.
    pub fn offset_ms(self, offset: i64) -> Self {
        Self { offset: Some(offset), ..self }
    }

    /// Puts records into windows by the host's clock when they come, instead of by their event time. Such results differ
    /// from run to run. At the end of the input, all windows that are still open fire.
    pub fn processing_time(self) -> Self {
        Self { clock: TimeDomain::ProcessingTime, ..self }
    }

    /// How long after its end a window in event time is kept for late records; 0 at first.
    pub fn lateness(self, lateness: Duration) -> Self {
        Self { lateness, ..self }
    }

    /// Fires a window early after every so many of its records.
    pub fn early_every(self, records: u64) -> Self {
        Self { early_records: Some(records), ..self }
    }

    /// Fires windows early each time the watermark passes a multiple of `interval`, if they have records that they did not
    /// fire with yet.
    pub fn early_every_event_time(self, interval: Duration) -> Self {
        self.early_time(TimeDomain::EventTime, interval)
    }

    /// As [`Self::early_every_event_time`], by the host's clock.
    pub fn early_every_processing_time(self, interval: Duration) -> Self {
        self.early_time(TimeDomain::ProcessingTime, interval)
    }

    fn early_time(mut self, domain: TimeDomain, interval: Duration) -> Self {
        self.early_times.push((domain, interval));
        self
    }

    /// Fires a window late after every so many late records, and a last time, when the lateness ends, with the rest; not
    /// with each, as it does at first.
    pub fn late_every(self, records: u64) -> Self {
        Self { late_records: Some(records), ..self }
    }

    /// Forgets a global window's records each time [`Self::early_every`] fires it, so that each is in one result.
    pub fn purging(self) -> Self {
        Self { purging: true, ..self }
    }

    /// Checks it.
    pub(super) fn shape(&self) -> Result<Shape, Error> {
        self.check().map_err(Error::permanent)?;
        let millis = |what, time| millis(what, time).map_err(Error::permanent);
        let kind = match self.kind {
            Wanted::Tumbling(size) => {
                let size = millis("the size", size)?;
                Kind::Aligned(aligned(size, size, self.offset.unwrap_or(0))?)
            }
            Wanted::Sliding(size, slide) => {
                let (size, slide) = (millis("the size", size)?, millis("the slide", slide)?);
                Kind::Aligned(aligned(size, slide, self.offset.unwrap_or(0))?)
            }
            Wanted::Session(gap) => Kind::Session { gap: millis("the gap", gap)? },
            Wanted::Global => Kind::Global { purging: self.purging },
        };
        let early_time = match self.early_times.first() {
            Some((domain, interval)) => Some((*domain, millis("the interval of early firings", *interval)?)),
            None => None,
        };
        let lateness = if self.lateness.is_zero() { 0 } else { millis("the lateness", self.lateness)? };
        Ok(Shape {
            kind,
            clock: self.clock,
            lateness,
            early_records: self.early_records,
            early_time,
            late_records: self.late_records.unwrap_or(1),
        })
    }

    /// Returns what makes no sense.
    fn check(&self) -> Result<(), String> {
        let (is_global, is_event_time) = (self.kind == Wanted::Global, self.clock == TimeDomain::EventTime);
        let is_aligned = matches!(self.kind, Wanted::Tumbling(_) | Wanted::Sliding(..));
        let slides = matches!(self.kind, Wanted::Sliding(size, slide) if size != slide);
        let is_late_twice = self.late_records.is_some();
        let rules = [
            (self.offset.is_some() && !is_aligned, "only tumbling and sliding windows have an offset"),
            (is_global && !is_event_time, "global windows have no clock"),
            (is_global && !self.lateness.is_zero(), "global windows have no end, so no lateness"),
            (!is_event_time && !self.lateness.is_zero(), "windows in processing time have no lateness: no record is late"),
            (is_late_twice && self.lateness.is_zero(), "late firings need a lateness"),
            (is_late_twice && slides, "sliding windows fire with each late record"),
            (self.purging && !is_global, "only global windows are purged when they fire early"),
            (self.purging && self.early_records.is_none(), "purging needs a number of records after which to fire"),
            (self.early_records == Some(0) || self.late_records == Some(0), "windows cannot fire after every 0 records"),
            (self.early_times.len() > 1, "windows fire early by one interval, not by several"),
            (
                !is_event_time && self.early_times.first().is_some_and(|(domain, _)| *domain == TimeDomain::EventTime),
                "windows in processing time cannot fire early by event time",
            ),
        ];
        match rules.iter().find(|(is_broken, _)| *is_broken) {
            Some((_, text)) => Err((*text).into()),
            None => Ok(()),
        }
    }
}

fn millis(what: &str, time: Duration) -> Result<i64, String> {
    match i64::try_from(time.as_millis()) {
        Ok(millis) if (1..=TIME_MAX).contains(&millis) => Ok(millis),
        _ => Err(format!("{what} of windows is 1 ms to {TIME_MAX} ms, not {} ms", time.as_millis())),
    }
}

fn aligned(size: i64, slide: i64, offset: i64) -> Result<Aligned, Error> {
    if slide > size {
        return Err(Error::permanent(format!(
            "a slide of {slide} ms is more than the windows' size of {size} ms: records between them would be in none"
        )));
    }
    let aligned = Aligned::new(size, slide, offset);
    let panes = size / aligned.pane;
    if panes > PANES_MAX {
        return Err(Error::permanent(format!(
            "windows of {size} ms every {slide} ms are made of {panes} panes of {} ms, over {PANES_MAX}",
            aligned.pane
        )));
    }
    Ok(aligned)
}
