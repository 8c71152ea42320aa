//! What all windows have in common: where a record goes, and what that makes fire.

use std::cell::Cell;

use super::fired::{Added, Fired, Firing, Window};
use super::key::Key;
use super::pane::{KeyWindows, Pane};
use super::settings::Windowing;
use super::shape::{Aligned, Kind, Shape, Span};
use super::{AT_HAND_MAX, Contents, EARLY, END, WINDOWS};
use crate::context::Context;
use crate::declare::{Declare, TimeDomain};
use crate::error::Error;
use crate::state::{Map, Value};
use crate::timer_tags::PartTimers;
use crate::timers::Timer;

/// The windows of an operator, whatever they keep.
pub(super) struct Core<A: Contents> {
    name: String,
    pub(super) state: Value<KeyWindows<A::Accumulator>>,
    /// Panes for which there is no room in `state`, by their ends.
    pub(super) panes: Map<i64, Pane<A::Accumulator>>,
    pub(super) event: PartTimers,
    processing: PartTimers,
    shape: Option<Shape>,
    /// How many panes of a key are in `state`, at most.
    pub(super) at_hand_max: usize,
    /// The span of the last record, which is often that of the next.
    recent: Cell<Option<Span>>,
}

/// What adding a record, or the passing of time, leads to.
pub(super) struct Outcome<T> {
    pub(super) added: Added,
    /// What identifies the record among those of its time: how many its window had before.
    pub(super) sequence: u64,
    pub(super) events: Vec<Event<T>>,
    /// Whether the key has no windows any more.
    pub(super) is_empty: bool,
}

/// In order.
pub(super) enum Event<T> {
    Fires(Fired<T>),
    /// The records of a span are of no use any more.
    Forgets(Span),
}

/// The times that count for a call.
#[derive(Clone, Copy)]
pub(super) struct Now {
    /// That of the record, by the windows' clock.
    pub(super) time: i64,
    /// Nothing at or before it is expected any more.
    pub(super) done: Option<i64>,
}

/// What came of trying to add where the window is at hand and nothing fires.
enum Quick<I> {
    Added {
        sequence: u64,
    },
    /// The input is handed back.
    Not(I),
}

impl<T> Outcome<T> {
    fn of(added: Added, sequence: u64) -> Self {
        Self { added, sequence, events: Vec::new(), is_empty: false }
    }
}

impl<A: Contents> Core<A> {
    pub(super) fn declare(declare: &mut Declare, name: &str) -> Self {
        Self {
            name: name.into(),
            state: declare.value(name),
            panes: declare.map(&format!("{name}-panes")),
            event: declare.part_timers(name, TimeDomain::EventTime),
            processing: declare.part_timers(name, TimeDomain::ProcessingTime),
            shape: None,
            at_hand_max: AT_HAND_MAX,
            recent: Cell::new(None),
        }
    }

    pub(super) fn configure(&mut self, windowing: &Windowing) -> Result<(), Error> {
        self.recent.set(None);
        self.shape = Some(windowing.shape().map_err(|error| error.context(format_args!("windows {:?}", self.name)))?);
        Ok(())
    }

    pub(super) fn timers(&self, domain: TimeDomain) -> &PartTimers {
        match domain {
            TimeDomain::EventTime => &self.event,
            TimeDomain::ProcessingTime => &self.processing,
        }
    }

    #[inline]
    pub(super) fn shape(&self) -> Result<&Shape, Error> {
        self.shape.as_ref().ok_or_else(|| {
            Error::permanent(format!("nobody has said what the windows {:?} are: call `configure`, or `with`", self.name))
        })
    }

    /// The clock that the record is put into windows by.
    #[inline]
    pub(super) fn now(&self, shape: &Shape, cx: &Context<'_>) -> Result<Now, Error> {
        if shape.clock == TimeDomain::ProcessingTime {
            let time = cx.processing_time_ms();
            return Ok(Now { time, done: Some(time.saturating_sub(1)) });
        }
        let time = match cx.event_time_ms() {
            None if matches!(shape.kind, Kind::Global { .. }) => i64::MIN,
            None => return Err(Error::permanent(format!("a record for the windows {:?} has no event time", self.name))),
            Some(time) => time,
        };
        Ok(Now { time, done: cx.watermark_ms() })
    }

    /// Adds a record.
    #[inline]
    pub(super) fn add(&self, cx: &mut Context<'_>, input: A::Input) -> Result<Outcome<A::Output>, Error> {
        let shape = self.shape()?;
        let now = self.now(shape, cx)?;
        let span = self.span_of(shape, now.time);
        let is_late = shape.is_forgotten(span, now.done);
        let is_session = matches!(shape.kind, Kind::Session { .. });
        if is_late && !is_session {
            return Ok(Outcome::of(Added::Late, 0));
        }
        let is_open = shape.lateness == 0 || shape.next_last(span, None) > now.done;
        let input = if shape.is_plain() && is_open && !is_late {
            match self.add_at_hand(cx, (span, now), is_session, input)? {
                Quick::Added { sequence } => return Ok(Outcome::of(Added::InTime, sequence)),
                Quick::Not(input) => input,
            }
        } else {
            input
        };
        self.add_with_care(cx, (span, now), is_late, input)
    }

    #[inline]
    fn span_of(&self, shape: &Shape, time: i64) -> Span {
        let Kind::Aligned(_) = shape.kind else { return shape.span_of(time) };
        if let Some(recent) = self.recent.get().filter(|recent| recent.contains(time)) {
            return recent;
        }
        let span = shape.span_of(time);
        self.recent.set(Some(span));
        span
    }

    /// Adds to a pane that is at hand, if nothing can come of it.
    #[inline]
    fn add_at_hand(
        &self,
        cx: &mut Context<'_>,
        (span, now): (Span, Now),
        is_session: bool,
        input: A::Input,
    ) -> Result<Quick<A::Input>, Error> {
        self.state.modify(cx, |state| {
            let pane = state.as_mut().and_then(|state| match is_session {
                // Within the newest session the record overlaps no other. One that has ended is not extended here.
                true => state.newest_with(now.time).filter(|pane| Some(pane.span.last()) > now.done),
                false => state.ending_at(span.last()),
            });
            let Some(pane) = pane else { return Quick::Not(input) };
            let sequence = pane.records;
            pane.records += 1;
            pane.span = pane.span.joined(span);
            A::add(&mut pane.accumulator, input);
            Quick::Added { sequence }
        })
    }

    /// Adds where a window opens, sessions merge, or something fires.
    fn add_with_care(
        &self,
        cx: &mut Context<'_>,
        (span, now): (Span, Now),
        is_late: bool,
        input: A::Input,
    ) -> Result<Outcome<A::Output>, Error> {
        let shape = self.shape()?;
        // Only a session is asked whether it saves a late record.
        if is_late && self.state.with(cx, |state| state.is_none())? {
            return Ok(Outcome::of(Added::Late, 0));
        }
        let mut key = Key::take(self, shape, cx)?;
        let Some(mut pane) = key.take_for(cx, span, now.done)? else {
            key.store(cx);
            return Ok(Outcome::of(Added::Late, 0));
        };
        let sequence = pane.records;
        pane.records += 1;
        A::add(&mut pane.accumulator, input);
        let span = pane.span;
        key.arm_early(cx, &mut pane, now);
        let mut outcome = Outcome::of(Added::InTime, sequence);
        match &shape.kind {
            Kind::Aligned(aligned) if aligned.slides() => {
                key.put_pane(cx, pane)?;
                fire_around(&key, cx, aligned, now, &mut outcome.events)?;
                key.wake_by(cx, shape.next_event(span, now.done));
            }
            Kind::Aligned(_) | Kind::Session { .. } | Kind::Global { .. } => {
                let fires = count(shape, &mut pane, now.done);
                outcome.events.extend(fires.map(|firing| fired::<A>(&pane, firing)));
                if fires.is_some() && matches!(shape.kind, Kind::Global { purging: true }) {
                    outcome.events.push(Event::Forgets(span));
                } else {
                    key.put_pane(cx, pane)?;
                    key.wake_by(cx, shape.next_event(span, now.done));
                }
            }
        }
        outcome.is_empty = key.store(cx);
        Ok(outcome)
    }

    /// Lets what is due happen, if the timer is one of these windows'. `None` if it is not.
    pub(super) fn on_timer(&self, timer: Timer, cx: &mut Context<'_>) -> Result<Option<Outcome<A::Output>>, Error> {
        let Some(own) = self.event.take(timer).or_else(|| self.processing.take(timer)) else { return Ok(None) };
        let shape = self.shape()?;
        let mut key = Key::take(self, shape, cx)?;
        let mut outcome = Outcome::of(Added::InTime, 0);
        match own {
            WINDOWS if key.timer == Some(timer.time_ms()) => {
                key.timer = None;
                // A configuration that has changed the clock since leaves timers of the other one: they are set anew.
                let done = (timer.domain() == shape.clock).then(|| key.event_of(timer.time_ms()));
                key.pass(cx, done, &mut outcome.events)?;
            }
            EARLY if key.state.early() == Some(timer.time_ms()) => {
                key.state.set_early(None);
                let done = match (shape.clock, timer.domain()) {
                    (TimeDomain::EventTime, TimeDomain::EventTime) => Some(timer.time_ms()),
                    (TimeDomain::EventTime, TimeDomain::ProcessingTime) => cx.watermark_ms(),
                    (TimeDomain::ProcessingTime, _) => Some(cx.processing_time_ms().saturating_sub(1)),
                };
                key.fire_early(cx, done, &mut outcome.events)?;
            }
            END => key.pass_all(cx, &mut outcome.events)?,
            _ => {}
        }
        outcome.is_empty = key.store(cx);
        Ok(Some(outcome))
    }
}

/// Counts a record of a window that is one pane, and returns why it fires, if it does.
fn count<T>(shape: &Shape, pane: &mut Pane<T>, done: Option<i64>) -> Option<Firing> {
    let has_ended = Some(pane.span.last()) <= done;
    let (every, firing) = if has_ended { (Some(shape.late_records), Firing::Late) } else { (shape.early_records, Firing::Early) };
    let every = every?;
    let since = pane.since() + 1;
    let fires = since >= every;
    pane.set_since(if fires { 0 } else { since });
    fires.then_some(firing)
}

/// Fires what a record makes fire of the windows around it.
fn fire_around<A: Contents>(
    key: &Key<'_, A>,
    cx: &Context<'_>,
    aligned: &Aligned,
    now: Now,
    events: &mut Vec<Event<A::Output>>,
) -> Result<(), Error> {
    for start in aligned.starts_around(now.time) {
        let window = aligned.window(start);
        let has_ended = Some(window.last()) <= now.done;
        if has_ended && Some(window.last().saturating_add(key.shape.lateness)) <= now.done {
            continue;
        }
        if !has_ended && key.shape.early_records.is_none() {
            break;
        }
        let panes = key.within(cx, window)?;
        let records: u64 = panes.iter().map(|pane| pane.records).sum();
        if has_ended {
            events.push(fired::<A>(&merged::<A>(window, panes), Firing::Late));
        } else if key.shape.early_records.is_some_and(|every| records.is_multiple_of(every)) {
            events.push(fired::<A>(&merged::<A>(window, panes), Firing::Early));
        }
    }
    Ok(())
}

/// Makes one pane of several, in their order.
pub(super) fn merged<A: Contents>(span: Span, panes: Vec<Pane<A::Accumulator>>) -> Pane<A::Accumulator> {
    let mut panes = panes.into_iter();
    let Some(mut merged) = panes.next() else { return Pane::new(span) };
    for pane in panes {
        merged.records += pane.records;
        merged.set_since(merged.since() + pane.since());
        merged.set_fresh(merged.is_fresh() || pane.is_fresh());
        A::merge(&mut merged.accumulator, pane.accumulator);
    }
    merged.span = span;
    merged
}

pub(super) fn fired<A: Contents>(pane: &Pane<A::Accumulator>, firing: Firing) -> Event<A::Output> {
    let result = A::result(&pane.accumulator);
    Event::Fires(Fired { window: Window::of(pane.span), firing, records: pane.records, result })
}
