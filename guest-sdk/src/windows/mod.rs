//! Windows: records of a key grouped by time, over plain state and timers.
//!
//! [`Windows`] keep an aggregate of each window's records, [`RecordWindows`] the records themselves. Which windows there
//! are, a [`Windowing`] says. Both hand windows that fire to a function of the author's, with the context, so that it can emit and use
//! other state.
//!
//! What is stored for a key: one value with its open windows, as panes (`pane`), and a map for those for which there is no room
//! (`key`). One timer for each key wakes them, at the latest when the next thing happens; early firings have another. With a
//! key's last window all of it goes.

mod core;
mod fired;
mod key;
mod pane;
mod passing;
mod records;
mod settings;
mod shape;

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::core::{Core, Event, Outcome};
pub use self::fired::{Added, Fired, Firing, Window};
pub use self::records::{FiredRecords, RecordWindows};
pub use self::settings::Windowing;
use crate::context::Context;
use crate::declare::Declare;
use crate::error::Error;
use crate::state::Aggregate;
use crate::timers::Timer;

/// The tags of timers: of the windows themselves, of early firings, and of the end of the input.
const WINDOWS: u32 = 0;
const EARLY: u32 = 1;
const END: u32 = 2;

/// Panes of a key that are read and written together, at most.
const AT_HAND_MAX: usize = 32;

/// What [`Windows`] can keep: an [`Aggregate`] whose accumulators can be copied and stored as [`crate::codec::Postcard`].
/// Implemented for all of these.
pub trait Contents: Aggregate<Accumulator: Clone + Serialize + DeserializeOwned> {}

impl<A: Aggregate<Accumulator: Clone + Serialize + DeserializeOwned>> Contents for A {}

/// Windows of each key, with an aggregate of their records.
///
/// ```
/// use std::time::Duration;
/// use cofferdam_guest::prelude::*;
/// use cofferdam_guest::testing::{Harness, record};
///
/// struct Sum;
///
/// impl Aggregate for Sum {
///     type Input = u64;
///     type Accumulator = u64;
///     type Output = u64;
///     fn add(sum: &mut u64, input: u64) { *sum += input; }
///     fn result(sum: &u64) -> u64 { *sum }
///     fn merge(sum: &mut u64, other: u64) { *sum += other; }
/// }
///
/// struct PerMinute { sums: Windows<Sum> }
///
/// impl PerMinute {
///     fn emit(fired: Fired<u64>, cx: &mut Context<'_>) -> Result<(), Error> {
///         cx.emit_text((cx.key(), " ", fired.window.start_ms(), " ", fired.result))
///     }
/// }
///
/// impl Operator for PerMinute {
///     type Config = NoConfig;
///
///     fn declare(declare: &mut Declare) -> Self {
///         PerMinute { sums: declare.windows("sums").with(&Windowing::tumbling(Duration::from_secs(60))) }
///     }
///
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.sums.add(cx, record.text()?.parse()?, Self::emit)?.or_drop();
///         Ok(())
///     }
///
///     fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.sums.on_timer(timer, cx, Self::emit)?;
///         Ok(())
///     }
/// }
///
/// let mut sums = Harness::<PerMinute>::new();
/// let at = |n: &str, time: i64| record(n).key("tea").time_ms(time);
/// assert!(sums.process([at("1", 0), at("7", 61_000), at("2", 59_999)]).unwrap().is_empty());
/// let out = sums.advance_watermark(59_999).unwrap();
/// assert_eq!((out.texts(), out[0].time_ms()), (vec!["tea 0 3"], Some(59_999)));
/// sums.process([at("9", 58_000)]).unwrap();
/// assert_eq!(sums.counter("late_records_dropped"), 1);
/// assert_eq!(sums.finish().unwrap().texts(), ["tea 60000 7"]);
/// sums.assert_nothing_left();
/// ```
pub struct Windows<A: Contents> {
    core: Core<A>,
}

impl Declare {
    /// Declares windows that keep an aggregate. They take the names `name` and `name-panes` among the slots.
    pub fn windows<A: Contents>(&mut self, name: &str) -> Windows<A> {
        Windows { core: Core::declare(self, name) }
    }

    /// Declares windows that keep their records. They take the names `name`, `name-panes` and `name-records` among the slots.
    pub fn record_windows<T: Clone + Serialize + DeserializeOwned + 'static>(&mut self, name: &str) -> RecordWindows<T> {
        RecordWindows::declare(self, name)
    }
}

impl<A: Contents> Windows<A> {
    /// Says which windows there are, in [`crate::Operator::configure`]. What a key has stored may have been added under other
    /// settings: tumbling windows and sessions that are open end as they were to; panes of sliding windows count for windows in
    /// which they end.
    ///
    /// # Errors
    /// A permanent error that says what makes no sense.
    pub fn configure(&mut self, windowing: &Windowing) -> Result<(), Error> {
        self.core.configure(windowing)
    }

    /// As [`Self::configure`], for windows that are always the same, in [`crate::Operator::declare`].
    ///
    /// # Panics
    /// If it makes no sense: the component is not loaded.
    #[must_use = "windows are declared for the handle's sake"]
    pub fn with(mut self, windowing: &Windowing) -> Self {
        if let Err(error) = self.configure(windowing) {
            panic!("{error}");
        }
        self
    }

    /// Keeps each accumulator on its own, so that one is read and written without the others of its key. For large ones, of
    /// a kilobyte and more. Otherwise the last 32 panes of a key lie together, which is faster.
    #[must_use = "windows are declared for the handle's sake"]
    pub fn apart(mut self) -> Self {
        self.core.at_hand_max = 0;
        self
    }

    /// Adds a record to the windows of its time, and hands those to `emit` that this makes fire: early, or late. What `emit`
    /// emits has the event time [`Window::last_ms`], unless it says otherwise or the windows are global or in processing time.
    ///
    /// # Errors
    /// A permanent error if it was never said which windows there are, if the record has no event time and needs one, or if
    /// stored bytes do not decode; any error of `emit`.
    #[inline]
    pub fn add(
        &self,
        cx: &mut Context<'_>,
        input: A::Input,
        mut emit: impl FnMut(Fired<A::Output>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<Added, Error> {
        let outcome = self.core.add(cx, input)?;
        let added = outcome.added;
        if !outcome.events.is_empty() {
            self.hand_out(cx, outcome, &mut emit)?;
        }
        Ok(added)
    }

    /// Hands the windows to `emit` that a timer makes fire. To be called with each timer of [`crate::Operator::on_timer`].
    /// Returns whether the timer was one of these windows'; if not, it is somebody else's.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn on_timer(
        &self,
        timer: Timer,
        cx: &mut Context<'_>,
        mut emit: impl FnMut(Fired<A::Output>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        match self.core.on_timer(timer, cx)? {
            None => Ok(false),
            Some(outcome) => self.hand_out(cx, outcome, &mut emit).map(|()| true),
        }
    }

    fn hand_out(
        &self,
        cx: &mut Context<'_>,
        outcome: Outcome<A::Output>,
        emit: &mut impl FnMut(Fired<A::Output>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shape = self.core.shape()?;
        for event in outcome.events {
            if let Event::Fires(fired) = event {
                let time = shape.time_of(fired.window, cx);
                cx.at_time(time, |cx| emit(fired, cx))?;
            }
        }
        Ok(())
    }
}
