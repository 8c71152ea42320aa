//! Events in the order of their event times, however they come.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::alarm::Alarm;
use super::buffer::{Buffer, Front};
use super::time::{due_until, is_late, time_of};
use crate::context::Context;
use crate::declare::Declare;
use crate::error::Error;
use crate::timers::Timer;

/// Holds the events of a key until the watermark has passed them, and hands them on in the order of their event times; those
/// of one time in the order in which they came.
pub struct Sorter<T> {
    name: String,
    alarm: Alarm,
    events: Buffer<T>,
}

impl Declare {
    /// Declares a sorter of the events of each key. Its state is in the slots `name` and `name-due`.
    pub fn sorter<T: Clone + Serialize + DeserializeOwned + 'static>(&mut self, name: &str) -> Sorter<T> {
        Sorter { name: name.into(), events: self.map(name), alarm: Alarm::new(self, name) }
    }
}

impl<T: Clone + Serialize + DeserializeOwned + 'static> Sorter<T> {
    /// Takes in an event with the event time of the record. Gives it back if it is late.
    ///
    /// # Errors
    /// A permanent error if the record has no event time, or if stored state does not decode.
    #[must_use = "a late event is given back"]
    pub fn add(&self, cx: &mut Context<'_>, event: T) -> Result<Option<T>, Error> {
        let time = time_of(cx, &self.name)?;
        if is_late(cx, time) {
            return Ok(Some(event));
        }
        let number = self.alarm.add(cx, 0, time)?;
        self.events.put(cx, &(time, number), event)?;
        Ok(None)
    }

    /// Handles a timer, if it is this part's: passes the events that the watermark has passed to `each`, in order. In there,
    /// the context has the event's time. Returns whether it was.
    ///
    /// # Errors
    /// That of `each`, or a permanent error if stored state does not decode.
    pub fn on_timer(
        &self,
        timer: Timer,
        cx: &mut Context<'_>,
        mut each: impl FnMut(T, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if !self.alarm.take(timer) {
            return Ok(false);
        }
        let until = due_until(cx, timer.time_ms());
        let mut front = Front::load(&self.events, cx, |time| time <= until)?;
        while let Some((place, event)) = front.pop() {
            self.events.remove(cx, &place)?;
            cx.at_time(Some(place.0), |cx| each(event, cx))?;
        }
        self.alarm.settle(cx, timer, [front.time(), None])?;
        Ok(true)
    }
}
