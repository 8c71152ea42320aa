//! Sources that are kept together in event time: none reads on that is too far ahead of the others.
//!
//! Each subtask publishes its watermark and looks at those of the others; they share numbers and nothing else. A member that
//! has said nothing yet counts as being where the first of the group began: nobody runs away while it starts. One that is
//! idle or has ended does not count. Waiting for others is not idleness: it says nothing about what there is to read.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::time::Watermark;

/// A member that has said nothing.
const SILENT: i64 = i64::MIN;
/// A member that does not count.
const LEFT: i64 = i64::MAX;

/// The watermarks of a group's members.
#[derive(Debug)]
pub struct AlignmentGroup {
    members: Box<[AtomicI64]>,
    /// The least of the first watermarks; [`LEFT`] before there is one.
    first: AtomicI64,
}

impl AlignmentGroup {
    /// Returns a group of so many members, which have said nothing.
    pub fn new(members: usize) -> Arc<Self> {
        let members = (0..members).map(|_| AtomicI64::new(SILENT)).collect();
        Arc::new(Self { members, first: AtomicI64::new(LEFT) })
    }

    /// Returns a member, by its number. `max_drift_ms` is how far it may be ahead, in milliseconds.
    pub fn member(self: &Arc<Self>, index: usize, max_drift_ms: u64) -> AlignmentMember {
        AlignmentMember { group: Arc::clone(self), index, max_drift_ms }
    }

    /// Returns the least watermark that counts, in milliseconds since the Unix epoch; the greatest number if none does.
    fn least_ms(&self) -> i64 {
        let first = self.first.load(Ordering::Relaxed);
        let ms = self.members.iter().map(|member| match member.load(Ordering::Relaxed) {
            SILENT => first,
            ms => ms,
        });
        ms.min().unwrap_or(LEFT)
    }
}

/// One member of a group.
#[derive(Debug)]
pub struct AlignmentMember {
    group: Arc<AlignmentGroup>,
    index: usize,
    max_drift_ms: u64,
}

impl AlignmentMember {
    /// Tells the others where this member is.
    pub(super) fn publish(&self, watermark: Watermark) {
        let ms = watermark.0.0.clamp(SILENT + 1, LEFT - 1);
        if self.group.members[self.index].swap(ms, Ordering::Relaxed) == SILENT {
            self.group.first.fetch_min(ms, Ordering::Relaxed);
        }
    }

    /// This member does not count until it publishes again.
    pub(super) fn leave(&self) {
        self.group.members[self.index].store(LEFT, Ordering::Relaxed);
    }

    /// Whether it is further ahead than it may be.
    pub(super) fn is_ahead(&self) -> bool {
        let own = self.group.members[self.index].load(Ordering::Relaxed);
        let ahead_ms = i128::from(own) - i128::from(self.group.least_ms());
        own != SILENT && own != LEFT && ahead_ms > i128::from(self.max_drift_ms)
    }

    /// Returns the least watermark of the group, in milliseconds since the Unix epoch.
    pub(super) fn group_ms(&self) -> i64 {
        self.group.least_ms()
    }

    pub(super) fn max_drift_ms(&self) -> u64 {
        self.max_drift_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::EventTime;

    fn at(ms: i64) -> Watermark {
        Watermark(EventTime(ms))
    }

    #[test]
    fn who_is_ahead_waits_for_the_slowest_that_counts() {
        let group = AlignmentGroup::new(3);
        let [a, b, c] = [0, 1, 2].map(|index| group.member(index, 10));
        a.publish(at(100));
        assert!(!a.is_ahead(), "nobody else has said anything");
        a.publish(at(111));
        assert!(a.is_ahead(), "it runs no further ahead of those that start than of where it began itself");
        b.publish(at(105));
        c.publish(at(200));
        assert!(!a.is_ahead() && !b.is_ahead() && c.is_ahead());
        b.leave();
        assert!(!a.is_ahead() && c.is_ahead());
        a.leave();
        assert!(!c.is_ahead(), "who is idle or has ended is not waited for");
        b.publish(at(150));
        assert!(c.is_ahead(), "and is again when it goes on");
    }

    #[test]
    fn the_ends_of_time_do_no_harm() {
        let group = AlignmentGroup::new(2);
        let [a, b] = [0, 1].map(|index| group.member(index, u64::MAX));
        a.publish(at(i64::MIN));
        b.publish(at(i64::MAX));
        assert!(!b.is_ahead() && !a.is_ahead());
        assert!(!group.member(0, 0).is_ahead());
        assert!(group.member(1, 0).is_ahead());
    }
}
