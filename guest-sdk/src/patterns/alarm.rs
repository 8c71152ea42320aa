//! One event-time timer a key, at the earliest of what a part waits for.
//!
//! A part that keeps entries knows for each lane of them when the earliest is due. The alarm keeps these times and the timer,
//! and also counts entries up, to tell those of one time apart. A key without entries has neither.

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::declare::{Declare, TimeDomain};
use crate::error::Error;
use crate::state::Value;
use crate::timer_tags::PartTimers;
use crate::timers::Timer;

/// When the earliest entry of each lane is due; `None` if it has none.
pub(super) type Due = [Option<i64>; 2];

/// What is known of a key with entries.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Armed {
    /// The number of the next entry.
    next: u64,
    due: Due,
}

pub(super) struct Alarm {
    armed: Value<Armed>,
    timers: PartTimers,
}

impl Alarm {
    pub(super) fn new(declare: &mut Declare, part: &str) -> Self {
        let armed = declare.value(&format!("{part}-due"));
        Self { armed, timers: declare.part_timers(part, TimeDomain::EventTime) }
    }

    /// Whether a timer is the part's.
    pub(super) fn take(&self, timer: Timer) -> bool {
        self.timers.take(timer).is_some()
    }

    /// When the earliest entry of each lane is due.
    pub(super) fn due(&self, cx: &mut Context<'_>) -> Result<Due, Error> {
        self.armed.with(cx, |armed| armed.map_or([None; 2], |armed| armed.due))
    }

    /// An entry is added that is due then. Returns its number.
    pub(super) fn add(&self, cx: &mut Context<'_>, lane: usize, due: i64) -> Result<u64, Error> {
        let (number, before, after) = self.armed.update(cx, |armed| {
            let (number, before) = (armed.next, earliest(armed.due));
            armed.next += 1;
            armed.due[lane] = Some(armed.due[lane].map_or(due, |other| other.min(due)));
            (number, before, earliest(armed.due))
        })?;
        self.move_timer(cx, before, after);
        Ok(number)
    }

    /// The timer has fired, and entries are gone: these are the earliest that are left.
    pub(super) fn settle(&self, cx: &mut Context<'_>, fired: Timer, due: Due) -> Result<(), Error> {
        let before = self.armed.modify(cx, |armed| {
            let before = armed.as_ref().and_then(|armed| earliest(armed.due));
            if due == [None; 2] {
                *armed = None;
            } else {
                armed.get_or_insert_default().due = due;
            }
            before
        })?;
        // What has fired is pending no more, even if it is the time that is wanted.
        self.move_timer(cx, before.filter(|before| *before != fired.time_ms()), earliest(due));
        Ok(())
    }

    fn move_timer(&self, cx: &Context<'_>, before: Option<i64>, after: Option<i64>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.timers.delete(cx, before, 0);
        }
        if let Some(after) = after {
            self.timers.set(cx, after, 0);
        }
    }
}

fn earliest(due: Due) -> Option<i64> {
    due.into_iter().flatten().min()
}
