//! Arithmetic with event times that may lie anywhere in 64 bits.

use crate::context::Context;
use crate::error::Error;

/// The times from `time + lower` to `time + upper`, `None` if no time is among them.
pub(super) fn reach(time: i64, lower: i64, upper: i64) -> Option<(i64, i64)> {
    let (low, high) = (i128::from(time) + i128::from(lower), i128::from(time) + i128::from(upper));
    let first = i64::try_from(low.max(i64::MIN.into())).ok()?;
    let last = i64::try_from(high.min(i64::MAX.into())).ok()?;
    (first <= last).then_some((first, last))
}

/// The same in the other direction: the times whose reach this time is in.
pub(super) fn reached_from(time: i64, lower: i64, upper: i64) -> Option<(i64, i64)> {
    let (low, high) = (i128::from(time) - i128::from(upper), i128::from(time) - i128::from(lower));
    let first = i64::try_from(low.max(i64::MIN.into())).ok()?;
    let last = i64::try_from(high.min(i64::MAX.into())).ok()?;
    (first <= last).then_some((first, last))
}

/// The record's event time, without which a part cannot place it.
pub(super) fn time_of(cx: &Context<'_>, part: &str) -> Result<i64, Error> {
    cx.event_time_ms().ok_or_else(|| Error::permanent(format!("{part:?} got a record without an event time")))
}

/// Whether a time is at or before the watermark.
pub(super) fn is_late(cx: &Context<'_>, time: i64) -> bool {
    cx.watermark_ms().is_some_and(|watermark| time <= watermark)
}

/// Up to which time everything is due when a timer for `time` fires.
pub(super) fn due_until(cx: &Context<'_>, time: i64) -> i64 {
    cx.watermark_ms().map_or(time, |watermark| watermark.max(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reach_ends_where_time_does() {
        assert_eq!(reach(5, -2, 3), Some((3, 8)));
        assert_eq!(reached_from(5, -2, 3), Some((2, 7)));
        assert_eq!(reach(i64::MAX, -1, i64::MAX), Some((i64::MAX - 1, i64::MAX)));
        assert_eq!(reach(i64::MIN, i64::MIN, 0), Some((i64::MIN, i64::MIN)));
        assert_eq!(reach(i64::MAX, 1, 2), None, "nothing is after the last time");
        assert_eq!(reach(i64::MIN, -2, -1), None);
        assert_eq!(reached_from(i64::MAX, i64::MIN, -1), None);
        assert_eq!(reached_from(i64::MIN, i64::MIN, i64::MAX), Some((i64::MIN, 0)));
        assert_eq!(reach(0, i64::MIN, i64::MAX), Some((i64::MIN, i64::MAX)));
    }
}
