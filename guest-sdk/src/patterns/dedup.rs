//! The first record of each id, and none of its repetitions for a time.

use std::borrow::Borrow;
use std::time::Duration;

use super::alarm::Alarm;
use super::buffer::CHUNK;
use super::time::{due_until, is_late, reach, time_of};
use crate::context::Context;
use crate::declare::Declare;
use crate::error::Error;
use crate::state::{KeyBytes, Map, MapKey};
use crate::timers::Timer;

/// What a record is to its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The first.
    First,
    /// There was another, near enough.
    Again,
    /// At or before the watermark: it cannot be told any more.
    Late,
}

/// Tells the first record of each id from its repetitions, by event time.
///
/// A record is a repetition if a first one of its id has an event time less than the time to live away from its own, earlier or
/// later; else it is a first one itself. Which one is the first is decided by the order in which they come. Ids belong to the
/// current key, and are forgotten when the watermark shows that no repetition can come any more. For repetitions by the host's
/// clock see [`RecentlySeen`].
///
/// ```
/// # use cofferdam_guest::prelude::*;
/// # use cofferdam_guest::testing::{Harness, record};
/// # use cofferdam_guest::patterns::{Dedup, Seen};
/// /// Lets each line of a user through once in ten seconds.
/// struct Once { lines: Dedup<String> }
///
/// impl Operator for Once {
///     type Config = NoConfig;
///     fn declare(declare: &mut Declare) -> Self { Once { lines: declare.dedup("lines") } }
///     fn configure(&mut self, _: NoConfig, _: &InstanceInfo) -> Result<(), Error> { self.lines.for_ms(10_000) }
///     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
///         match self.lines.see(cx, record.text()?.to_owned())? {
///             Seen::First => cx.emit_bytes(record.bytes()),
///             Seen::Again | Seen::Late => Ok(()),
///         }
///     }
///     fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
///         self.lines.on_timer(timer, cx).map(drop)
///     }
/// }
///
/// let line = |text: &str, at| record(text).key("ada").time_ms(at);
/// let mut once = Harness::<Once>::new();
/// let out = once.process([line("hi", 0), line("ho", 1), line("hi", 9_999), line("hi", 10_000)]).unwrap();
/// assert_eq!(out.texts(), ["hi", "ho", "hi"]);
/// once.advance_watermark(20_000).unwrap();
/// once.assert_nothing_left();
/// ```
pub struct Dedup<K> {
    name: String,
    alarm: Alarm,
    /// The times of the first records of each id.
    firsts: Map<(K, i64), ()>,
    /// The same by time, to forget them.
    by_time: Map<(i64, K), ()>,
    ttl_ms: Option<i64>,
}

impl Declare {
    /// Declares a deduplication by event time; [`Dedup::for_ms`] says for how long. Its state is in the slots `name`,
    /// `name-times` and `name-due`.
    pub fn dedup<K: MapKey + Clone>(&mut self, name: &str) -> Dedup<K> {
        Dedup {
            name: name.into(),
            firsts: self.map(name),
            by_time: self.map(&format!("{name}-times")),
            alarm: Alarm::new(self, name),
            ttl_ms: None,
        }
    }

    /// Declares a deduplication by the host's clock: an id is remembered for `ttl` after its first record. Its state is in the
    /// slot `name`.
    ///
    /// # Panics
    /// If it is less than a millisecond.
    pub fn recently_seen<K: MapKey>(&mut self, name: &str, ttl: Duration) -> RecentlySeen<K> {
        RecentlySeen { ids: self.map(name).ttl(ttl) }
    }
}

impl<K: MapKey + Clone> Dedup<K> {
    /// Sets the time to live in milliseconds. Belongs into `configure`.
    ///
    /// # Errors
    /// A permanent error if it is less than a millisecond.
    pub fn for_ms(&mut self, ttl_ms: i64) -> Result<(), Error> {
        if ttl_ms < 1 {
            return Err(Error::permanent(format!("deduplication {:?} for {ttl_ms} ms", self.name)));
        }
        self.ttl_ms = Some(ttl_ms);
        Ok(())
    }

    fn ttl(&self) -> Result<i64, Error> {
        let missing = || Error::permanent(format!("deduplication {:?} has no time to live: set it in `configure`", self.name));
        self.ttl_ms.ok_or_else(missing)
    }

    /// Takes in a record of that id with the event time of the current record.
    ///
    /// # Errors
    /// A permanent error if the record has no event time, if no time to live is set, or if stored state does not decode.
    pub fn see(&self, cx: &mut Context<'_>, id: K) -> Result<Seen, Error> {
        let ttl = self.ttl()?;
        let time = time_of(cx, &self.name)?;
        if is_late(cx, time) {
            return Ok(Seen::Late);
        }
        let (first, last) = reach(time, 1 - ttl, ttl - 1).unwrap_or((time, time));
        let near = (id.clone(), first)..=(id.clone(), last);
        if self.alarm.due(cx)?[0].is_some() && self.firsts.scan(cx, near).next().transpose()?.is_some() {
            return Ok(Seen::Again);
        }
        self.alarm.add(cx, 0, time.saturating_add(ttl - 1))?;
        self.firsts.put(cx, &(id.clone(), time), ())?;
        self.by_time.put(cx, &(time, id), ())?;
        Ok(Seen::First)
    }

    /// Handles a timer, if it is this part's: forgets ids of which no repetition can come any more. Returns whether it was.
    ///
    /// # Errors
    /// A permanent error if no time to live is set, or if stored state does not decode.
    pub fn on_timer(&self, timer: Timer, cx: &mut Context<'_>) -> Result<bool, Error> {
        if !self.alarm.take(timer) {
            return Ok(false);
        }
        let ttl = self.ttl()?;
        let due_of = |time: i64| time.saturating_add(ttl - 1);
        let until = due_until(cx, timer.time_ms());
        let some = self.by_time.iter(cx).take(CHUNK + 1).collect::<Result<Vec<_>, _>>()?;
        let mut next = None;
        for (index, ((time, id), ())) in some.into_iter().enumerate() {
            if index == CHUNK || due_of(time) > until {
                next = Some(due_of(time));
                break;
            }
            self.firsts.remove(cx, &(id.clone(), time))?;
            self.by_time.remove(cx, &(time, id))?;
        }
        self.alarm.settle(cx, timer, [next, None])?;
        Ok(true)
    }
}

/// Tells the first record of each id from its repetitions, by the host's clock: for as long as its state lives.
///
/// Ids belong to the current key. A replay sees another clock, so a repetition about as old as the time to live may then be a
/// first: let that be longer than anything that is repeated takes.
pub struct RecentlySeen<K> {
    ids: Map<K, ()>,
}

impl<K: MapKey> RecentlySeen<K> {
    /// Takes in a record of that id; returns whether it is the first within the time to live.
    ///
    /// # Errors
    /// A permanent error if stored state does not decode.
    pub fn is_first<Q: KeyBytes + ?Sized>(&self, cx: &mut Context<'_>, id: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
    {
        if self.ids.contains(cx, id)? {
            return Ok(false);
        }
        self.ids.put(cx, id, ())?;
        Ok(true)
    }
}
