//! Nothing has come for a time: told of without anything that comes.

use serde::{Deserialize, Serialize};

use super::Span;
use super::time::{due_until, is_late, time_of};
use crate::context::Context;
use crate::declare::{Declare, TimeDomain};
use crate::error::Error;
use crate::state::Value;
use crate::timer_tags::PartTimers;
use crate::timers::Timer;

/// Tells when there was no event of a key for a time. The next event arms it again.
///
/// In event time, it is the events' times that count, in whatever order they come: each stretch between two events, or after
/// the last, that is as long as the limit or longer is told of once, when the watermark has passed its limit. The watermark is
/// moved by events of other keys, too. In processing time, it is when they come, by the host's clock: it goes on when no event
/// comes at all, but a replay sees another clock.
///
/// A key has one value, which holds the stretches of event time in which there were events near enough to each other and that
/// are not over yet: mostly one. Some 50,000 of them meet the limit of a value.
///
/// ```
/// # use cofferdam_guest::prelude::*;
/// # use cofferdam_guest::testing::{Harness, record};
/// # use cofferdam_guest::TimeDomain;
/// # use cofferdam_guest::patterns::Silence;
/// /// Tells of devices that say nothing for a minute.
/// struct Watch { silence: Silence }
///
/// impl Operator for Watch {
///     type Config = NoConfig;
///     fn declare(declare: &mut Declare) -> Self {
///         Watch { silence: declare.silence("silence", TimeDomain::ProcessingTime) }
///     }
///     fn configure(&mut self, _: NoConfig, _: &InstanceInfo) -> Result<(), Error> { self.silence.after_ms(60_000) }
///     fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.silence.event(cx).map(drop)
///     }
///     fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.silence.on_timer(timer, cx, |busy, cx| cx.emit_text((cx.key_text()?, " silent since ", busy.last_ms)))?;
///         Ok(())
///     }
/// }
///
/// let mut watch = Harness::<Watch>::new();
/// watch.processing_time_ms(500);
/// watch.process([record("").key("pump")]).unwrap();
/// assert!(watch.advance_processing_time(60_499).unwrap().is_empty());
/// assert_eq!(watch.advance_processing_time(60_500).unwrap().texts(), ["pump silent since 500"]);
/// ```
pub struct Silence {
    name: String,
    domain: TimeDomain,
    busy: Value<Busy>,
    timers: PartTimers,
    limit_ms: Option<i64>,
}

/// When there were events.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Busy {
    /// In order, with at least the limit between two.
    spans: Vec<Span>,
    /// When the timer is pending. Not after the end of the first silence.
    timer: Option<i64>,
}

impl Declare {
    /// Declares a detector of silence in one domain of time; [`Silence::after_ms`] says after how long. Its state is in the
    /// slot `name`.
    pub fn silence(&mut self, name: &str, domain: TimeDomain) -> Silence {
        Silence { name: name.into(), domain, busy: self.value(name), timers: self.part_timers(name, domain), limit_ms: None }
    }
}

impl Silence {
    /// Sets after how many milliseconds without an event it tells. Belongs into `configure`.
    ///
    /// # Errors
    /// A permanent error if it is less than one.
    pub fn after_ms(&mut self, limit_ms: i64) -> Result<(), Error> {
        if limit_ms < 1 {
            return Err(Error::permanent(format!("silence {:?} after {limit_ms} ms", self.name)));
        }
        self.limit_ms = Some(limit_ms);
        Ok(())
    }

    fn limit(&self) -> Result<i64, Error> {
        self.limit_ms.ok_or_else(|| Error::permanent(format!("silence {:?} has no limit: set it in `configure`", self.name)))
    }

    /// There is an event: the current record. Returns whether it counts; in event time, one that is late does not.
    ///
    /// # Errors
    /// A permanent error if, in event time, the record has none, if no limit is set, or if stored state does not decode.
    pub fn event(&self, cx: &mut Context<'_>) -> Result<bool, Error> {
        let limit = self.limit()?;
        let time = match self.domain {
            TimeDomain::EventTime => time_of(cx, &self.name)?,
            TimeDomain::ProcessingTime => cx.processing_time_ms(),
        };
        if self.domain == TimeDomain::EventTime && is_late(cx, time) {
            return Ok(false);
        }
        let (before, after) = self.busy.update(cx, |busy| {
            add(&mut busy.spans, time, limit);
            let before = busy.timer;
            let wanted = busy.spans.first().map(|span| span.last_ms.saturating_add(limit));
            // A timer that comes too early costs less than moving it with every event.
            if before.is_none() || wanted < before {
                busy.timer = wanted;
            }
            (before, busy.timer)
        })?;
        if before != after {
            before.into_iter().for_each(|before| self.timers.delete(cx, before, 0));
            after.into_iter().for_each(|after| self.timers.set(cx, after, 0));
        }
        Ok(true)
    }

    /// Handles a timer, if it is this part's: passes from when to when there were events, before each silence that is long
    /// enough by now, to `each`. In event time, the context has the time at which it became so: the last event's, and the
    /// limit. Returns whether it was.
    ///
    /// # Errors
    /// That of `each`; or a permanent error if no limit is set, or if stored state does not decode.
    pub fn on_timer(
        &self,
        timer: Timer,
        cx: &mut Context<'_>,
        mut each: impl FnMut(Span, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if self.timers.take(timer).is_none() {
            return Ok(false);
        }
        let limit = self.limit()?;
        let until = match self.domain {
            TimeDomain::EventTime => due_until(cx, timer.time_ms()),
            TimeDomain::ProcessingTime => cx.processing_time_ms().max(timer.time_ms()),
        };
        let mut busy = self.busy.get_or_default(cx)?;
        let over = busy.spans.partition_point(|span| span.last_ms.saturating_add(limit) <= until);
        for span in busy.spans.drain(..over) {
            match self.domain {
                TimeDomain::EventTime => cx.at_time(Some(span.last_ms.saturating_add(limit)), |cx| each(span, cx))?,
                TimeDomain::ProcessingTime => each(span, cx)?,
            }
        }
        busy.timer = busy.spans.first().map(|span| span.last_ms.saturating_add(limit));
        match busy.timer {
            Some(next) => {
                self.timers.set(cx, next, 0);
                self.busy.set(cx, busy);
            }
            None => self.busy.delete(cx),
        }
        Ok(true)
    }
}

/// Adds an event to the spans, and joins those that it is near enough to.
fn add(spans: &mut Vec<Span>, time: i64, limit: i64) {
    let is_near = |from: i64, to: i64| i128::from(to) - i128::from(from) < i128::from(limit);
    let first = spans.partition_point(|span| !is_near(span.last_ms, time));
    let end = first + spans[first..].partition_point(|span| is_near(time, span.start_ms));
    let mut merged = Span { start_ms: time, last_ms: time };
    for span in spans.drain(first..end) {
        merged = Span { start_ms: merged.start_ms.min(span.start_ms), last_ms: merged.last_ms.max(span.last_ms) };
    }
    spans.insert(first, merged);
}
