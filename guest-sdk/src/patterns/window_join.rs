//! Pairs of records that lie in the same window of time.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::buffer::each_between;
use super::time::{is_late, time_of};
use super::{Joined, Outer, Span, Timed};
use crate::context::Context;
use crate::declare::{Declare, TimeDomain};
use crate::error::Error;
use crate::state::Map;
use crate::timer_tags::PartTimers;
use crate::timers::Timer;

/// Joins two inputs by key and window: event time is cut into windows of one length, which begin at multiples of it, and each
/// left record of a window goes with each right one of the same key.
///
/// A window is told of when the watermark has passed its last millisecond, with that time: the left records in the order of
/// their event times, with each of them the right ones in theirs. A record is late if its window has been told of; until then
/// it counts, even at or before the watermark.
///
/// One call tells of all pairs of a key in a window, so they must fit its limits; the right records are all in memory
/// meanwhile: let the right input be the one with fewer.
///
/// ```
/// # use cofferdam_guest::prelude::*;
/// # use cofferdam_guest::testing::{Harness, record};
/// # use cofferdam_guest::patterns::{Joined, WindowJoin};
/// /// Puts the clicks of a user beside the pages shown in the same minute.
/// struct Minutes { shown: InputPort, join: WindowJoin<String, String> }
///
/// impl Operator for Minutes {
///     type Config = NoConfig;
///     fn declare(declare: &mut Declare) -> Self {
///         let shown = declare.input("shown");
///         declare.input("clicks");
///         Minutes { shown, join: declare.window_join("join").left_outer() }
///     }
///     fn configure(&mut self, _: NoConfig, _: &InstanceInfo) -> Result<(), Error> { self.join.tumbling(60_000) }
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         let text = record.text()?.to_owned();
///         let late = if cx.port() == self.shown { self.join.left(cx, text)? } else { self.join.right(cx, text)? };
///         late.map_or(Ok(()), |late| Err(Error::permanent(format!("{late} is late"))))
///     }
///     fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.join.on_timer(timer, cx, |joined, window, cx| match joined {
///             Joined::Both(page, click) => cx.emit_text((window.start_ms, " ", page.value.as_str(), " ", click.value.as_str())),
///             Joined::Left(page) => cx.emit_text((window.start_ms, " ", page.value.as_str(), " alone")),
///             Joined::Right(_) => Ok(()),
///         })?;
///         Ok(())
///     }
/// }
///
/// let shown = |page: &str, at| record(page).key("ada").time_ms(at);
/// let click = |what: &str, at| record(what).key("ada").time_ms(at).port("clicks");
/// let mut minutes = Harness::<Minutes>::new();
/// minutes.process([shown("shop", 1_000), click("buy", 59_999), shown("help", 60_000), click("late", 130_000)]).unwrap();
/// assert_eq!(minutes.finish().unwrap().texts(), ["0 shop buy", "60000 help alone"]);
/// minutes.assert_nothing_left();
/// ```
pub struct WindowJoin<L, R> {
    name: String,
    /// By the window's last millisecond.
    open: Map<i64, Open>,
    left: Map<Place, L>,
    right: Map<Place, R>,
    timers: PartTimers,
    size_ms: Option<i64>,
    outer: Outer,
}

/// Where a record is kept: its window's last millisecond, its time, its number.
type Place = (i64, i64, u64);

/// What is known of a window that is open.
#[derive(Clone, Serialize, Deserialize)]
struct Open {
    start_ms: i64,
    /// How many records there are of each side.
    left: u64,
    right: u64,
}

impl Declare {
    /// Declares a window join; [`WindowJoin::tumbling`] says how long the windows are. Its state is in the slots `name-left`,
    /// `name-right` and `name-open`.
    pub fn window_join<L, R>(&mut self, name: &str) -> WindowJoin<L, R>
    where
        L: Clone + Serialize + DeserializeOwned + 'static,
        R: Clone + Serialize + DeserializeOwned + 'static,
    {
        WindowJoin {
            name: name.into(),
            open: self.map(&format!("{name}-open")),
            left: self.map(&format!("{name}-left")),
            right: self.map(&format!("{name}-right")),
            timers: self.part_timers(name, TimeDomain::EventTime),
            size_ms: None,
            outer: Outer::default(),
        }
    }
}

impl<L, R> WindowJoin<L, R> {
    /// Also tells of records of the left input in whose window there is none of the right.
    #[must_use = "it is returned for the handle's sake"]
    pub fn left_outer(mut self) -> Self {
        self.outer.left = true;
        self
    }

    /// Also tells of records of the right input in whose window there is none of the left.
    #[must_use = "it is returned for the handle's sake"]
    pub fn right_outer(mut self) -> Self {
        self.outer.right = true;
        self
    }

    /// Also tells of records of either input in whose window there is none of the other.
    #[must_use = "it is returned for the handle's sake"]
    pub fn full_outer(self) -> Self {
        self.left_outer().right_outer()
    }

    /// Sets the length of the windows in milliseconds. Belongs into `configure`. Windows that are open already stay as they
    /// are.
    ///
    /// # Errors
    /// A permanent error if it is less than a millisecond.
    pub fn tumbling(&mut self, size_ms: i64) -> Result<(), Error> {
        if size_ms < 1 {
            return Err(Error::permanent(format!("join {:?}: a window of {size_ms} ms", self.name)));
        }
        self.size_ms = Some(size_ms);
        Ok(())
    }

    /// The window that a time lies in, as far as there is time.
    fn window(&self, time: i64) -> Result<Span, Error> {
        let missing = || Error::permanent(format!("join {:?} has no windows: set their length in `configure`", self.name));
        let size = self.size_ms.ok_or_else(missing)?;
        let from_start = time.rem_euclid(size);
        Ok(Span { start_ms: time.saturating_sub(from_start), last_ms: time.saturating_add(size - 1 - from_start) })
    }
}

impl<L, R> WindowJoin<L, R>
where
    L: Clone + Serialize + DeserializeOwned + 'static,
    R: Clone + Serialize + DeserializeOwned + 'static,
{
    /// Takes in a record of the left input with the event time of the current record. Gives it back if it is late.
    ///
    /// # Errors
    /// A permanent error if the record has no event time, if the join has no windows, or if stored state does not decode.
    #[must_use = "a late record is given back"]
    pub fn left(&self, cx: &mut Context<'_>, value: L) -> Result<Option<L>, Error> {
        let Some(place) = self.place(cx, |open| &mut open.left)? else { return Ok(Some(value)) };
        self.left.put(cx, &place, value)?;
        Ok(None)
    }

    /// Does the same for a record of the right input.
    ///
    /// # Errors
    /// As [`Self::left`].
    #[must_use = "a late record is given back"]
    pub fn right(&self, cx: &mut Context<'_>, value: R) -> Result<Option<R>, Error> {
        let Some(place) = self.place(cx, |open| &mut open.right)? else { return Ok(Some(value)) };
        self.right.put(cx, &place, value)?;
        Ok(None)
    }

    /// Counts the current record in its window; `None` if it is late.
    fn place(&self, cx: &mut Context<'_>, side: impl FnOnce(&mut Open) -> &mut u64) -> Result<Option<Place>, Error> {
        let time = time_of(cx, &self.name)?;
        let Span { start_ms, last_ms } = self.window(time)?;
        if is_late(cx, last_ms) {
            return Ok(None);
        }
        let mut open = match self.open.get(cx, &last_ms)? {
            Some(open) => open,
            None => {
                self.timers.set(cx, last_ms, 0);
                Open { start_ms, left: 0, right: 0 }
            }
        };
        let count = side(&mut open);
        let number = *count;
        *count += 1;
        self.open.put(cx, &last_ms, open)?;
        Ok(Some((last_ms, time, number)))
    }

    /// Handles a timer, if it is this part's: passes what its window comes to to `each`, and forgets it. Returns whether it
    /// was.
    ///
    /// # Errors
    /// That of `each`; or a permanent error if stored state does not decode.
    pub fn on_timer(
        &self,
        timer: Timer,
        cx: &mut Context<'_>,
        mut each: impl FnMut(Joined<'_, L, R>, Span, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if self.timers.take(timer).is_none() {
            return Ok(false);
        }
        let last_ms = timer.time_ms();
        let Some(open) = self.open.get(cx, &last_ms)? else { return Ok(true) };
        self.open.remove(cx, &last_ms)?;
        let window = Span { start_ms: open.start_ms, last_ms };
        let all = (last_ms, i64::MIN, 0)..=(last_ms, i64::MAX, u64::MAX);
        let mut rights = Vec::new();
        if open.right > 0 {
            each_between(&self.right, cx, all.clone(), |place, value, cx| {
                let right = Timed { time_ms: place.1, value };
                if open.left > 0 {
                    rights.push(right);
                } else if self.outer.right {
                    each(Joined::Right(&right), window, cx)?;
                }
                self.right.remove(cx, &place)
            })?;
        }
        if open.left > 0 {
            each_between(&self.left, cx, all, |place, value, cx| {
                let left = Timed { time_ms: place.1, value };
                if open.right == 0 && self.outer.left {
                    each(Joined::Left(&left), window, cx)?;
                }
                rights.iter().try_for_each(|right| each(Joined::Both(&left, right), window, cx))?;
                self.left.remove(cx, &place)
            })?;
        }
        Ok(true)
    }
}
