//! Timers: set and deleted with the call's other effects, and handed back when they are due.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::call::{TimerUpdate, timer_op};
use crate::context::Context;
use crate::declare::TimeDomain;
use crate::error::Error;
use crate::timer_tags::{RESERVED, is_reserved};

/// Timers of the current key, in one domain of time.
///
/// A timer is its key, its time and a tag of your choice: setting it twice is setting it once. It fires once, in
/// [`crate::Operator::on_timer`], when its clock has reached its time; a time that has passed already fires soon after the
/// call. Nothing is known of a timer but by what you keep in state: to move one, delete it with the time that it has.
pub struct Timers {
    domain: TimeDomain,
    cells: Rc<TimerCells>,
}

impl Timers {
    pub(crate) fn new(domain: TimeDomain, cells: Rc<TimerCells>) -> Self {
        Self { domain, cells }
    }

    /// Sets a timer of the current key, with tag 0, for a time in milliseconds since the Unix epoch.
    pub fn set(&self, cx: &Context<'_>, time_ms: i64) {
        self.set_tagged(cx, time_ms, 0);
    }

    /// As [`Self::set`], with a tag that tells apart timers of one key at one time. Tags from 2^63 up are those of windows and
    /// other parts of the SDK: such a tag fails the call.
    pub fn set_tagged(&self, cx: &Context<'_>, time_ms: i64, tag: u64) {
        self.cells.check(tag);
        self.cells.add(cx, timer_op::set(self.domain), time_ms, tag);
    }

    /// Deletes the timer of the current key, with tag 0, for a time; does nothing if there is none.
    pub fn delete(&self, cx: &Context<'_>, time_ms: i64) {
        self.delete_tagged(cx, time_ms, 0);
    }

    /// As [`Self::delete`], for the timer with a tag.
    pub fn delete_tagged(&self, cx: &Context<'_>, time_ms: i64, tag: u64) {
        self.cells.check(tag);
        self.cells.add(cx, timer_op::delete(self.domain), time_ms, tag);
    }

    /// Sets a timer of a part of the SDK.
    #[inline]
    pub(crate) fn set_of_part(&self, cx: &Context<'_>, time_ms: i64, tag: u64) {
        self.cells.add(cx, timer_op::set(self.domain), time_ms, tag);
    }

    /// Deletes a timer of a part of the SDK.
    #[inline]
    pub(crate) fn delete_of_part(&self, cx: &Context<'_>, time_ms: i64, tag: u64) {
        self.cells.add(cx, timer_op::delete(self.domain), time_ms, tag);
    }

    /// A part has taken the timer that is due.
    pub(crate) fn note_taken(&self) {
        self.cells.taken.set(true);
    }
}

/// A timer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    domain: TimeDomain,
    time: i64,
    tag: u64,
}

impl Timer {
    pub(crate) fn new(domain: TimeDomain, time: i64, tag: u64) -> Self {
        Self { domain, time, tag }
    }

    /// Returns which clock it waited for.
    pub fn domain(&self) -> TimeDomain {
        self.domain
    }

    /// Returns the time that it was set for, in milliseconds since the Unix epoch.
    pub fn time_ms(&self) -> i64 {
        self.time
    }

    /// Returns its tag.
    pub fn tag(&self) -> u64 {
        self.tag
    }
}

/// What the call at hand sets and deletes.
#[derive(Default)]
pub(crate) struct TimerCells {
    update: RefCell<TimerUpdate>,
    /// A tag of the author's that is not theirs to use.
    refused: Cell<Option<u64>>,
    /// Whether a part of the SDK has taken the timer that is due.
    taken: Cell<bool>,
}

impl TimerCells {
    fn add(&self, cx: &Context<'_>, op: u8, time: i64, tag: u64) {
        let mut update = self.update.borrow_mut();
        update.rows.push(cx.row_number());
        update.ops.push(op);
        update.times.push(time);
        update.tags.push(tag);
    }

    fn check(&self, tag: u64) {
        if is_reserved(tag) {
            self.refused.set(Some(tag));
        }
    }

    /// Forgets the last call.
    pub(crate) fn begin(&self) {
        self.update.take();
        self.refused.take();
        self.taken.take();
    }

    /// Returns whether a part of the SDK has taken the timer that was due, and forgets it.
    pub(crate) fn was_taken(&self) -> bool {
        self.taken.take()
    }

    /// Returns what the call did.
    ///
    /// # Errors
    /// A permanent error if the author used a tag that is reserved.
    pub(crate) fn take(&self) -> Result<TimerUpdate, Error> {
        match self.refused.take() {
            Some(tag) => Err(Error::permanent(format!(
                "the tag {tag} of a timer is reserved: an operator's own tags are below {RESERVED}"
            ))),
            None => Ok(self.update.take()),
        }
    }
}
