//! Events that follow one another within a time, and those that should have and did not.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Timed;
use super::alarm::Alarm;
use super::buffer::{Buffer, CHUNK, Front, Place};
use super::time::{due_until, is_late, time_of};
use crate::context::Context;
use crate::declare::Declare;
use crate::error::Error;
use crate::timers::Timer;

/// Says whether an event is the next one of a sequence, of which it gets what there is so far.
type Fits<E> = Box<dyn Fn(&E, &[Timed<E>]) -> bool>;

/// What a sequence is made of: `Steps::begin(..).followed_by(..).within_ms(..)`.
pub struct Steps<E> {
    steps: Vec<Step<E>>,
    within_ms: i64,
}

struct Step<E> {
    fits: Fits<E>,
    /// Whether no other event may come between.
    is_next: bool,
}

impl<E> Steps<E> {
    /// A sequence begins with each event that fits. Without [`Self::within_ms`], all of it has to happen in the same
    /// millisecond.
    pub fn begin(fits: impl Fn(&E) -> bool + 'static) -> Self {
        Self { steps: vec![Step { fits: Box::new(move |event, _| fits(event)), is_next: false }], within_ms: 0 }
    }

    /// Then the first event that fits follows, whatever comes between.
    #[must_use = "it is returned to go on with"]
    pub fn followed_by(mut self, fits: impl Fn(&E, &[Timed<E>]) -> bool + 'static) -> Self {
        self.steps.push(Step { fits: Box::new(fits), is_next: false });
        self
    }

    /// Then the next event of the key must fit, or the sequence is forgotten and not told of.
    #[must_use = "it is returned to go on with"]
    pub fn next(mut self, fits: impl Fn(&E, &[Timed<E>]) -> bool + 'static) -> Self {
        self.steps.push(Step { fits: Box::new(fits), is_next: true });
        self
    }

    /// The last event comes at most so many milliseconds of event time after the first.
    #[must_use = "it is returned to go on with"]
    pub fn within_ms(mut self, within_ms: i64) -> Self {
        self.within_ms = within_ms;
        self
    }
}

/// What a [`Sequence`] tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'s, E> {
    /// A sequence with all of its events.
    Complete(&'s [Timed<E>]),
    /// One that was not complete in time, with the events that there are.
    TimedOut(&'s [Timed<E>]),
}

/// Finds sequences among the events of each key, in the order of their event times; those of one time in the order in which
/// they came.
///
/// Events are held until the watermark has passed them. Each event that begins a sequence begins one of its own, and one event
/// may go on with several; each takes the first event that fits, and that one only. All sequences of a key that are not
/// complete are read when one of its events is handled: their number is that of the beginnings within the time that a sequence
/// has.
///
/// ```
/// # use cofferdam_guest::patterns::{Found, Sequence, Steps};
/// # use cofferdam_guest::prelude::*;
/// # use cofferdam_guest::testing::{Harness, record};
/// /// Tells of rides that have no end within two hours.
/// struct Rides { ride: Sequence<String> }
///
/// impl Operator for Rides {
///     type Config = NoConfig;
///     fn declare(declare: &mut Declare) -> Self { Rides { ride: declare.sequence("ride") } }
///     fn configure(&mut self, _: NoConfig, _: &InstanceInfo) -> Result<(), Error> {
///         let start = Steps::begin(|event: &String| event == "start");
///         self.ride.of(start.followed_by(|event, _| event == "end").within_ms(7_200_000))
///     }
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         if self.ride.add(cx, record.text()?.to_owned())?.is_some() {
///             metrics::add("late", 1);
///         }
///         Ok(())
///     }
///     fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.ride.on_timer(timer, cx, |found, cx| match found {
///             Found::Complete(_) => Ok(()),
///             Found::TimedOut(events) => cx.emit_text((cx.key_text()?, " began at ", events[0].time_ms)),
///         })?;
///         Ok(())
///     }
/// }
///
/// let event = |ride: &str, what: &str, at| record(what).key(ride).time_ms(at);
/// let mut rides = Harness::<Rides>::new();
/// rides.process([event("7", "start", 5), event("8", "end", 3_600_000), event("8", "start", 9)]).unwrap();
/// assert_eq!(rides.advance_watermark(7_200_005).unwrap().texts(), ["7 began at 5"]);
/// rides.assert_nothing_left();
/// ```
pub struct Sequence<E> {
    name: String,
    alarm: Alarm,
    events: Buffer<E>,
    /// By the place of their first event.
    begun: Buffer<Vec<Timed<E>>>,
    steps: Option<Steps<E>>,
}

/// The lane of the alarm for events that are held; the other is for the deadlines of sequences.
const EVENTS: usize = 0;

impl Declare {
    /// Declares a sequence; [`Sequence::of`] says what it is made of. Its state is in the slots `name`, `name-begun` and
    /// `name-due`.
    pub fn sequence<E: Clone + Serialize + DeserializeOwned + 'static>(&mut self, name: &str) -> Sequence<E> {
        Sequence {
            name: name.into(),
            events: self.map(name),
            begun: self.map(&format!("{name}-begun")),
            alarm: Alarm::new(self, name),
            steps: None,
        }
    }
}

/// A sequence that is not complete.
struct Begun<E> {
    events: Vec<Timed<E>>,
    /// Whether it is not stored as it is.
    is_changed: bool,
}

impl<E: Clone + Serialize + DeserializeOwned + 'static> Sequence<E> {
    /// Sets what it is made of. Belongs into `configure`.
    ///
    /// # Errors
    /// A permanent error if it may take less than no time.
    pub fn of(&mut self, steps: Steps<E>) -> Result<(), Error> {
        if steps.within_ms < 0 {
            return Err(Error::permanent(format!("sequence {:?} within {} ms", self.name, steps.within_ms)));
        }
        self.steps = Some(steps);
        Ok(())
    }

    fn steps(&self) -> Result<&Steps<E>, Error> {
        self.steps
            .as_ref()
            .ok_or_else(|| Error::permanent(format!("sequence {:?} has no steps: set them in `configure`", self.name)))
    }

    /// Takes in an event with the event time of the current record. Gives it back if it is late.
    ///
    /// # Errors
    /// A permanent error if the record has no event time, or if stored state does not decode.
    #[must_use = "a late event is given back"]
    pub fn add(&self, cx: &mut Context<'_>, event: E) -> Result<Option<E>, Error> {
        let time = time_of(cx, &self.name)?;
        if is_late(cx, time) {
            return Ok(Some(event));
        }
        let number = self.alarm.add(cx, EVENTS, time)?;
        self.events.put(cx, &(time, number), event)?;
        Ok(None)
    }

    /// Handles a timer, if it is this part's: passes the sequences that are complete, and those that cannot become so in time
    /// any more, to `each`. In there, the context has the time of the last event, or that until which there was time. Returns
    /// whether it was.
    ///
    /// # Errors
    /// That of `each`; or a permanent error if no steps are set, or if stored state does not decode.
    pub fn on_timer(
        &self,
        timer: Timer,
        cx: &mut Context<'_>,
        mut each: impl FnMut(Found<'_, E>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if !self.alarm.take(timer) {
            return Ok(false);
        }
        let steps = self.steps()?;
        let until = due_until(cx, timer.time_ms());
        let [has_events, has_begun] = self.alarm.due(cx)?.map(|due| due.is_some());
        let mut front = Front::load_if(has_events, &self.events, cx, |time| time <= until)?;
        let deadline = |first: i64| first.saturating_add(steps.within_ms);
        if !front.has_some() {
            // Without an event there is no need to look at all sequences.
            let mut late = Front::load_if(has_begun, &self.begun, cx, |first| deadline(first) <= until)?;
            while let Some((place, events)) = late.pop() {
                self.begun.remove(cx, &place)?;
                cx.at_time(Some(deadline(place.0)), |cx| each(Found::TimedOut(&events), cx))?;
            }
            self.alarm.settle(cx, timer, [front.time(), late.time().map(deadline)])?;
            return Ok(true);
        }
        let mut begun = if has_begun { self.begun(cx)? } else { BTreeMap::new() };
        for _ in 0..2 * CHUNK {
            let next = begun.keys().next().map(|(first, _)| deadline(*first));
            if next.is_some_and(|next| next <= until && front.time().is_none_or(|event| next < event)) {
                let Some((place, late)) = begun.pop_first() else { break };
                self.begun.remove(cx, &place)?;
                cx.at_time(next, |cx| each(Found::TimedOut(&late.events), cx))?;
                continue;
            }
            let Some((place, event)) = front.pop() else { break };
            self.events.remove(cx, &place)?;
            cx.at_time(Some(place.0), |cx| self.step(steps, &mut begun, (place, event), cx, &mut each))?;
        }
        let due = [front.time(), begun.keys().next().map(|(first, _)| deadline(*first))];
        for (place, begun) in begun.into_iter().filter(|(_, begun)| begun.is_changed) {
            self.begun.put(cx, &place, begun.events)?;
        }
        self.alarm.settle(cx, timer, due)?;
        Ok(true)
    }

    /// Reads all sequences of the key that are not complete.
    fn begun(&self, cx: &Context<'_>) -> Result<BTreeMap<Place, Begun<E>>, Error> {
        let stored = self.begun.iter(cx);
        stored.map(|entry| entry.map(|(place, events)| (place, Begun { events, is_changed: false }))).collect()
    }

    /// Takes all sequences on by one event.
    fn step(
        &self,
        steps: &Steps<E>,
        begun: &mut BTreeMap<Place, Begun<E>>,
        (place, value): (Place, E),
        cx: &mut Context<'_>,
        each: &mut impl FnMut(Found<'_, E>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let event = Timed { time_ms: place.0, value };
        let mut over = Vec::new();
        for (first, sequence) in begun.iter_mut() {
            // What an older version has begun may have as many events as there are steps now.
            let step = steps.steps.get(sequence.events.len());
            if step.is_some_and(|step| (step.fits)(&event.value, &sequence.events)) {
                sequence.events.push(event.clone());
                sequence.is_changed = true;
                if sequence.events.len() >= steps.steps.len() {
                    each(Found::Complete(&sequence.events), cx)?;
                    over.push(*first);
                }
            } else if step.is_none_or(|step| step.is_next) {
                over.push(*first);
            }
        }
        for first in over {
            begun.remove(&first);
            self.begun.remove(cx, &first)?;
        }
        if (steps.steps[0].fits)(&event.value, &[]) {
            let events = vec![event];
            if steps.steps.len() == 1 {
                return each(Found::Complete(&events), cx);
            }
            begun.insert(place, Begun { events, is_changed: true });
        }
        Ok(())
    }
}
