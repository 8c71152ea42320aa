//! Pairs of records whose event times are near enough to each other.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::alarm::Alarm;
use super::buffer::{Buffer, Front, each_between};
use super::time::{due_until, is_late, reach, reached_from, time_of};
use super::{Joined, Outer, Timed};
use crate::context::Context;
use crate::declare::Declare;
use crate::error::Error;
use crate::timers::Timer;

/// The lanes of the alarm.
const LEFT: usize = 0;
const RIGHT: usize = 1;

/// Joins two inputs by key and event time: a left and a right record of one key belong together if
/// `left time + lower <= right time <= left time + upper`.
///
/// A pair is told of when the second of its records comes, with that record's event time. A record is kept until the watermark
/// shows that no partner can come any more; an outer join then tells of it if it had none, with that time.
///
/// What a record matches is handled in the call that it comes in: a key with very many records within reach of one another
/// meets the limits of a call.
pub struct IntervalJoin<L, R> {
    name: String,
    alarm: Alarm,
    left: Buffer<Kept<L>>,
    right: Buffer<Kept<R>>,
    bounds: Option<(i64, i64)>,
    outer: Outer,
}

/// A record that waits for partners.
#[derive(Clone, Serialize, Deserialize)]
struct Kept<T> {
    value: T,
    /// Whether it had one. Only kept up where somebody wants to know.
    matched: bool,
}

impl Declare {
    /// Declares an interval join; [`IntervalJoin::between`] says what belongs together. Its state is in the slots `name-left`,
    /// `name-right` and `name-due`.
    pub fn interval_join<L, R>(&mut self, name: &str) -> IntervalJoin<L, R>
    where
        L: Clone + Serialize + DeserializeOwned + 'static,
        R: Clone + Serialize + DeserializeOwned + 'static,
    {
        let (left, right) = (self.map(&format!("{name}-left")), self.map(&format!("{name}-right")));
        IntervalJoin { name: name.into(), left, right, alarm: Alarm::new(self, name), bounds: None, outer: Outer::default() }
    }
}

impl<L, R> IntervalJoin<L, R> {
    /// Also tells of records of the left input without a partner.
    #[must_use = "it is returned for the handle's sake"]
    pub fn left_outer(mut self) -> Self {
        self.outer.left = true;
        self
    }

    /// Also tells of records of the right input without a partner.
    #[must_use = "it is returned for the handle's sake"]
    pub fn right_outer(mut self) -> Self {
        self.outer.right = true;
        self
    }

    /// Also tells of records of either input without a partner.
    #[must_use = "it is returned for the handle's sake"]
    pub fn full_outer(self) -> Self {
        self.left_outer().right_outer()
    }

    /// Says which records belong together, in milliseconds from the left record's time to the right one's; below 0 is before
    /// it. Belongs into `configure`. Records that are kept already are held to the new bounds.
    ///
    /// # Errors
    /// A permanent error if `lower_ms` is above `upper_ms`.
    pub fn between(&mut self, lower_ms: i64, upper_ms: i64) -> Result<(), Error> {
        if lower_ms > upper_ms {
            return Err(Error::permanent(format!("join {:?}: the bound {lower_ms} is above {upper_ms}", self.name)));
        }
        self.bounds = Some((lower_ms, upper_ms));
        Ok(())
    }

    fn bounds(&self) -> Result<(i64, i64), Error> {
        self.bounds.ok_or_else(|| Error::permanent(format!("join {:?} has no bounds: set them in `configure`", self.name)))
    }
}

impl<L, R> IntervalJoin<L, R>
where
    L: Clone + Serialize + DeserializeOwned + 'static,
    R: Clone + Serialize + DeserializeOwned + 'static,
{
    /// Takes in a record of the left input with the event time of the current record, and passes what it completes to `each`.
    /// Gives it back if it is late.
    ///
    /// # Errors
    /// That of `each`; or a permanent error if the record has no event time, if the join has no bounds, or if stored state does
    /// not decode.
    #[must_use = "a late record is given back"]
    pub fn left(
        &self,
        cx: &mut Context<'_>,
        value: L,
        mut each: impl FnMut(Joined<'_, L, R>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<Option<L>, Error> {
        let (lower, upper) = self.bounds()?;
        let time_ms = time_of(cx, &self.name)?;
        if is_late(cx, time_ms) {
            return Ok(Some(value));
        }
        let own = Timed { time_ms, value };
        let [_, has_others] = self.has(cx)?;
        let others = reach(time_ms, lower, upper).filter(|_| has_others);
        let matched = matches(&self.right, cx, others, self.outer.right, |other, cx| each(Joined::Both(&own, other), cx))?;
        let due = left_due(time_ms, upper);
        if !is_late(cx, due) {
            let number = self.alarm.add(cx, LEFT, due)?;
            self.left.put(cx, &(time_ms, number), Kept { value: own.value, matched })?;
        } else if self.outer.left && !matched {
            // Whatever it could go with has come already, or will be late.
            each(Joined::Left(&own), cx)?;
        }
        Ok(None)
    }

    /// Does the same for a record of the right input.
    ///
    /// # Errors
    /// As [`Self::left`].
    #[must_use = "a late record is given back"]
    pub fn right(
        &self,
        cx: &mut Context<'_>,
        value: R,
        mut each: impl FnMut(Joined<'_, L, R>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<Option<R>, Error> {
        let (lower, upper) = self.bounds()?;
        let time_ms = time_of(cx, &self.name)?;
        if is_late(cx, time_ms) {
            return Ok(Some(value));
        }
        let own = Timed { time_ms, value };
        let [has_others, _] = self.has(cx)?;
        let others = reached_from(time_ms, lower, upper).filter(|_| has_others);
        let matched = matches(&self.left, cx, others, self.outer.left, |other, cx| each(Joined::Both(other, &own), cx))?;
        let due = right_due(time_ms, lower);
        if !is_late(cx, due) {
            let number = self.alarm.add(cx, RIGHT, due)?;
            self.right.put(cx, &(time_ms, number), Kept { value: own.value, matched })?;
        } else if self.outer.right && !matched {
            each(Joined::Right(&own), cx)?;
        }
        Ok(None)
    }

    /// Handles a timer, if it is this part's: forgets records to which no partner can come any more and, in an outer join,
    /// passes those that had none to `each`. Returns whether it was.
    ///
    /// # Errors
    /// As [`Self::left`].
    pub fn on_timer(
        &self,
        timer: Timer,
        cx: &mut Context<'_>,
        mut each: impl FnMut(Joined<'_, L, R>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if !self.alarm.take(timer) {
            return Ok(false);
        }
        let (lower, upper) = self.bounds()?;
        let until = due_until(cx, timer.time_ms());
        let [has_left, has_right] = self.has(cx)?;
        let mut left = Front::load_if(has_left, &self.left, cx, |time| left_due(time, upper) <= until)?;
        let mut right = Front::load_if(has_right, &self.right, cx, |time| right_due(time, lower) <= until)?;
        loop {
            let due = [left.time().map(|time| left_due(time, upper)), right.time().map(|time| right_due(time, lower))];
            let first = due.into_iter().flatten().min().filter(|first| *first <= until);
            let is_done = match first {
                None => true,
                Some(first) if due[LEFT] == Some(first) => forget(&self.left, cx, &mut left, |kept, cx| {
                    let tell = self.outer.left && !kept.1;
                    if tell { cx.at_time(Some(first), |cx| each(Joined::Left(&kept.0), cx)) } else { Ok(()) }
                })?,
                Some(first) => forget(&self.right, cx, &mut right, |kept, cx| {
                    let tell = self.outer.right && !kept.1;
                    if tell { cx.at_time(Some(first), |cx| each(Joined::Right(&kept.0), cx)) } else { Ok(()) }
                })?,
            };
            if is_done {
                return self.alarm.settle(cx, timer, due).map(|()| true);
            }
        }
    }

    /// Whether there are records of each side.
    fn has(&self, cx: &mut Context<'_>) -> Result<[bool; 2], Error> {
        self.alarm.due(cx).map(|due| due.map(|due| due.is_some()))
    }
}

/// When no right record can come any more that a left one of that time goes with.
fn left_due(time: i64, upper: i64) -> i64 {
    time.saturating_add(upper)
}

/// When no left record can come any more that a right one of that time goes with.
fn right_due(time: i64, lower: i64) -> i64 {
    time.saturating_sub(lower)
}

/// Passes the kept records of these times to `each`; returns whether there was one. Notes it with them, if that is wanted.
fn matches<T>(
    buffer: &Buffer<Kept<T>>,
    cx: &mut Context<'_>,
    times: Option<(i64, i64)>,
    is_noted: bool,
    mut each: impl FnMut(&Timed<T>, &mut Context<'_>) -> Result<(), Error>,
) -> Result<bool, Error>
where
    T: Clone + Serialize + DeserializeOwned + 'static,
{
    let Some((first, last)) = times else { return Ok(false) };
    let mut matched = false;
    each_between(buffer, cx, (first, 0)..=(last, u64::MAX), |place, kept, cx| {
        matched = true;
        if is_noted && !kept.matched {
            buffer.put(cx, &place, Kept { value: kept.value.clone(), matched })?;
        }
        each(&Timed { time_ms: place.0, value: kept.value }, cx)
    })?;
    Ok(matched)
}

/// Takes the first record off a buffer, and passes it and whether it had a partner to `told`. Returns whether it was not in
/// memory, so that it has to wait for the next timer.
fn forget<T>(
    buffer: &Buffer<Kept<T>>,
    cx: &mut Context<'_>,
    front: &mut Front<Kept<T>>,
    told: impl FnOnce((Timed<T>, bool), &mut Context<'_>) -> Result<(), Error>,
) -> Result<bool, Error>
where
    T: Clone + Serialize + DeserializeOwned + 'static,
{
    let Some((place, kept)) = front.pop() else { return Ok(true) };
    buffer.remove(cx, &place)?;
    told((Timed { time_ms: place.0, value: kept.value }, kept.matched), cx)?;
    Ok(false)
}
