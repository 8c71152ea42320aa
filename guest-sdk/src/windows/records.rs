//! Windows that keep their records.
//!
//! Records lie in a map by their time, so whichever windows they are in and however sessions merge, none is ever moved or
//! copied: a window's records are a range. Adding one reads nothing of them.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::core::{Core, Event, Outcome};
use super::fired::{Added, Firing, Window};
use super::settings::Windowing;
use super::shape::{Kind, Span};
use crate::context::Context;
use crate::declare::{Declare, TimeDomain};
use crate::error::Error;
use crate::state::{Aggregate, Map};
use crate::timers::Timer;

/// Nothing is aggregated: the records are elsewhere.
pub(super) struct Records;

impl Aggregate for Records {
    type Input = ();
    type Accumulator = ();
    type Output = ();

    fn add((): &mut (), (): ()) {}

    fn result((): &()) {}

    fn merge((): &mut (), (): ()) {}
}

/// Windows of each key, with all of their records, encoded as [`crate::codec::Postcard`]. For what no [`Aggregate`] can say:
/// it costs the more state, the more records there are.
///
/// Everything else is as with [`super::Windows`].
///
/// ```
/// use std::time::Duration;
/// use cofferdam_guest::prelude::*;
/// use cofferdam_guest::testing::{Harness, record};
///
/// struct Median { amounts: RecordWindows<u64> }
///
/// fn emit(fired: &FiredRecords<'_, u64>, cx: &mut Context<'_>) -> Result<(), Error> {
///     let mut amounts = fired.iter(cx).collect::<Result<Vec<_>, _>>()?;
///     amounts.sort_unstable();
///     cx.emit_text(amounts[amounts.len() / 2])
/// }
///
/// impl Operator for Median {
///     type Config = NoConfig;
///
///     fn declare(declare: &mut Declare) -> Self {
///         Median { amounts: declare.record_windows("amounts").with(&Windowing::session(Duration::from_secs(30))) }
///     }
///
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.amounts.add(cx, record.text()?.parse()?, emit)?.or_drop();
///         Ok(())
///     }
///
///     fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.amounts.on_timer(timer, cx, emit)?;
///         Ok(())
///     }
/// }
///
/// let mut median = Harness::<Median>::new();
/// median.process([("9", 0), ("1", 20_000), ("5", 40_000)].map(|(n, time)| record(n).key("k").time_ms(time))).unwrap();
/// assert_eq!(median.advance_watermark(69_999).unwrap().texts(), ["5"]);
/// median.assert_nothing_left();
/// ```
pub struct RecordWindows<T> {
    core: Core<Records>,
    records: Map<(i64, u64), T>,
}

/// A window that fires, and its records.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct FiredRecords<'f, T> {
    /// Which.
    pub window: Window,
    /// Why.
    pub firing: Firing,
    /// How many records are in it.
    pub records: u64,
    map: &'f Map<(i64, u64), T>,
}

impl<'f, T: Clone + Serialize + DeserializeOwned + 'static> FiredRecords<'f, T> {
    /// Returns the records, by their time and among those of one time as they came; those of a global window as they came.
    /// They are read page by page, as they are asked for.
    ///
    /// # Errors
    /// An item is a permanent error if stored bytes do not decode.
    pub fn iter<'c>(&self, cx: &Context<'c>) -> impl Iterator<Item = Result<T, Error>> + use<'c, 'f, T>
    where
        'f: 'c,
    {
        let range = (self.window.start_ms(), 0)..=(self.window.last_ms(), u64::MAX);
        self.map.scan_apart(cx, range).map(|entry| entry.map(|(_, record)| record))
    }
}

impl<T: Clone + Serialize + DeserializeOwned + 'static> RecordWindows<T> {
    pub(super) fn declare(declare: &mut Declare, name: &str) -> Self {
        Self { core: Core::declare(declare, name), records: declare.map(&format!("{name}-records")) }
    }

    /// As [`super::Windows::configure`].
    ///
    /// # Errors
    /// As [`super::Windows::configure`].
    pub fn configure(&mut self, windowing: &Windowing) -> Result<(), Error> {
        self.core.configure(windowing)
    }

    /// As [`super::Windows::with`].
    ///
    /// # Panics
    /// As [`super::Windows::with`].
    #[must_use = "windows are declared for the handle's sake"]
    pub fn with(mut self, windowing: &Windowing) -> Self {
        if let Err(error) = self.configure(windowing) {
            panic!("{error}");
        }
        self
    }

    /// Adds a record, as [`super::Windows::add`] does.
    ///
    /// # Errors
    /// As [`super::Windows::add`].
    pub fn add(
        &self,
        cx: &mut Context<'_>,
        record: T,
        mut emit: impl FnMut(&FiredRecords<'_, T>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<Added, Error> {
        let outcome = self.core.add(cx, ())?;
        let added = outcome.added;
        if added == Added::InTime {
            let key = (self.time(cx)?, outcome.sequence);
            self.records.put(cx, &key, record)?;
        }
        if !outcome.events.is_empty() {
            self.hand_out(cx, outcome, &mut emit)?;
        }
        Ok(added)
    }

    /// As [`super::Windows::on_timer`].
    ///
    /// # Errors
    /// As [`super::Windows::add`].
    pub fn on_timer(
        &self,
        timer: Timer,
        cx: &mut Context<'_>,
        mut emit: impl FnMut(&FiredRecords<'_, T>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        match self.core.on_timer(timer, cx)? {
            None => Ok(false),
            Some(outcome) => self.hand_out(cx, outcome, &mut emit).map(|()| true),
        }
    }

    /// The time that a record is kept under.
    fn time(&self, cx: &Context<'_>) -> Result<i64, Error> {
        let shape = self.core.shape()?;
        Ok(match shape.kind {
            // As they came.
            Kind::Global { .. } => 0,
            Kind::Aligned(_) | Kind::Session { .. } => self.core.now(shape, cx)?.time,
        })
    }

    fn hand_out(
        &self,
        cx: &mut Context<'_>,
        outcome: Outcome<()>,
        emit: &mut impl FnMut(&FiredRecords<'_, T>, &mut Context<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shape = self.core.shape()?;
        for event in outcome.events {
            match event {
                Event::Fires(fired) => {
                    let (window, firing, records) = (fired.window, fired.firing, fired.records);
                    let fired = FiredRecords { window, firing, records, map: &self.records };
                    let time = shape.time_of(window, cx);
                    cx.at_time(time, |cx| emit(&fired, cx))?;
                }
                // With the last window everything goes, unread.
                Event::Forgets(_) if outcome.is_empty => {}
                Event::Forgets(span) => self.forget(cx, span)?,
            }
        }
        if outcome.is_empty {
            self.records.clear(cx);
        }
        Ok(())
    }

    fn forget(&self, cx: &mut Context<'_>, span: Span) -> Result<(), Error> {
        let range = (span.start, 0)..=(span.last(), u64::MAX);
        let keys = self.records.scan(cx, range).map(|entry| entry.map(|(key, _)| key)).collect::<Result<Vec<_>, _>>()?;
        keys.iter().try_for_each(|key| self.records.remove(cx, key))
    }
}

impl super::shape::Shape {
    /// The event time of what a window emits, while a record or a timer is looked at.
    pub(super) fn time_of(&self, window: Window, cx: &Context<'_>) -> Option<i64> {
        match (&self.kind, self.clock) {
            (Kind::Aligned(_) | Kind::Session { .. }, TimeDomain::EventTime) => Some(window.last_ms()),
            // The end of the input is no time.
            _ => cx.event_time_ms().filter(|time| *time != i64::MAX),
        }
    }
}

#[cfg(test)]
impl<T> RecordWindows<T> {
    pub(super) fn core_mut(&mut self) -> &mut Core<Records> {
        &mut self.core
    }
}
