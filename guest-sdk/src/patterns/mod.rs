//! Joins and other patterns over time, ready to use: each is a handle, declared as state is, over plain state and timers.
//!
//! What all of them have in common:
//! - They belong to the current key, as state does.
//! - A record is **late** if its event time is at or before the watermark. What it could have changed may have been told of
//!   already, so a late record changes nothing: the handle gives it back, and the operator decides what becomes of it.
//! - With records that are not late, results depend on the records and their order of arrival within the key, never on where
//!   batches end or when the watermark moves.
//! - An operator hands each timer on with `on_timer`, which returns whether the timer was the handle's. One that nobody takes
//!   fails the call.
//! - When the watermark has passed all of a key's records, the key has neither state nor timers left. One handle has one
//!   pending timer a key, but for [`WindowJoin`], which has one for each open window.
//! - One timer handles at most some hundred entries and is then set again, so that much that is due at once takes several
//!   calls instead of one that is too large.
//!
//! ```
//! use cofferdam_guest::patterns::{IntervalJoin, Joined};
//! use cofferdam_guest::prelude::*;
//! use cofferdam_guest::testing::{Harness, record};
//!
//! /// Which order each payment is for: one within ten seconds after it.
//! struct Paid {
//!     orders: InputPort,
//!     join: IntervalJoin<String, u64>,
//! }
//!
//! impl Paid {
//!     fn emit(joined: Joined<'_, String, u64>, cx: &mut Context<'_>) -> Result<(), Error> {
//!         match joined {
//!             Joined::Both(order, amount) => cx.emit_text((order.value.as_str(), " paid ", amount.value)),
//!             Joined::Left(order) => cx.emit_text((order.value.as_str(), " not paid")),
//!             Joined::Right(amount) => cx.emit_text((amount.value, " for nothing")),
//!         }
//!     }
//! }
//!
//! impl Operator for Paid {
//!     type Config = NoConfig;
//!
//!     fn declare(declare: &mut Declare) -> Self {
//!         let orders = declare.input("orders");
//!         declare.input("payments");
//!         Paid { orders, join: declare.interval_join("join").left_outer() }
//!     }
//!
//!     fn configure(&mut self, _: NoConfig, _: &InstanceInfo) -> Result<(), Error> {
//!         self.join.between(0, 10_000)
//!     }
//!
//!     fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
//!         let is_late = if cx.port() == self.orders {
//!             self.join.left(cx, record.text()?.to_owned(), Self::emit)?.is_some()
//!         } else {
//!             self.join.right(cx, record.text()?.parse()?, Self::emit)?.is_some()
//!         };
//!         if is_late {
//!             metrics::add("late", 1);
//!         }
//!         Ok(())
//!     }
//!
//!     fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
//!         self.join.on_timer(timer, cx, Self::emit)?;
//!         Ok(())
//!     }
//! }
//!
//! let order = |name: &str, at| record(name).key("ada").time_ms(at);
//! let payment = |amount: &str, at| record(amount).key("ada").time_ms(at).port("payments");
//! let mut paid = Harness::<Paid>::new();
//! let out = paid.process([order("tea", 0), payment("5", 9_000), order("jam", 1_000), payment("7", 12_000)]).unwrap();
//! assert_eq!(out.texts(), ["tea paid 5", "jam paid 5"]);
//! assert_eq!(paid.process([order("milk", 20_000)]).unwrap().len(), 0);
//! assert_eq!(paid.finish().unwrap().texts(), ["milk not paid"]);
//! ```

mod alarm;
mod buffer;
mod dedup;
mod interval_join;
mod sequence;
mod silence;
mod sorter;
mod time;
mod top_n;
mod window_join;

pub use self::dedup::{Dedup, RecentlySeen, Seen};
pub use self::interval_join::IntervalJoin;
pub use self::sequence::{Found, Sequence, Steps};
pub use self::silence::Silence;
pub use self::sorter::Sorter;
pub use self::top_n::TopN;
pub use self::window_join::WindowJoin;

/// A value and its event time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Timed<T> {
    /// In milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The value.
    pub value: T,
}

/// A stretch of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// Its first millisecond since the Unix epoch.
    pub start_ms: i64,
    /// Its last millisecond.
    pub last_ms: i64,
}

/// What a join tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined<'j, L, R> {
    /// Two records that belong together.
    Both(&'j Timed<L>, &'j Timed<R>),
    /// A record of the left input to which none of the right belongs. Only from a left or full outer join.
    Left(&'j Timed<L>),
    /// A record of the right input to which none of the left belongs. Only from a right or full outer join.
    Right(&'j Timed<R>),
}

/// Which records a join tells of that have no partner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outer {
    left: bool,
    right: bool,
}

#[cfg(test)]
mod tests;
