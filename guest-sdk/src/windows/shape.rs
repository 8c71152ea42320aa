//! Where windows lie: arithmetic on times, and no state. Spans are inclusive at both ends and clamped to what 64 bits hold, so
//! that nothing overflows, whatever time a record has.

use serde::{Deserialize, Serialize};

use crate::declare::TimeDomain;

/// Panes of one window, at most: so many are merged when it fires.
pub(super) const PANES_MAX: i64 = 4096;

/// The longest size, gap, interval or lateness in milliseconds, 285,000 years: sums of a few stay far from overflow.
pub(super) const TIME_MAX: i64 = 1 << 53;

/// The times from `start` to `last`, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) start: i64,
    /// `last - start`: a short number where `last` is a long one.
    length: u64,
}

impl Span {
    pub(super) const ALL: Self = Self { start: i64::MIN, length: u64::MAX };

    pub(super) fn new(start: i64, last: i64) -> Self {
        Self { start, length: last.wrapping_sub(start).cast_unsigned() }
    }

    #[inline]
    pub(super) fn last(self) -> i64 {
        self.start.saturating_add_unsigned(self.length)
    }

    #[inline]
    pub(super) fn contains(self, time: i64) -> bool {
        self.start <= time && time <= self.last()
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.start <= other.last() && other.start <= self.last()
    }

    /// From the earlier start to the later end.
    pub(super) fn joined(self, other: Self) -> Self {
        Self::new(self.start.min(other.start), self.last().max(other.last()))
    }
}

/// Windows as they were asked for, checked.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// What puts records into windows.
    pub(super) clock: TimeDomain,
    pub(super) lateness: i64,
    pub(super) early_records: Option<u64>,
    pub(super) early_time: Option<(TimeDomain, i64)>,
    pub(super) late_records: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Aligned(Aligned),
    Session { gap: i64 },
    Global { purging: bool },
}

/// Windows of `size` that begin at `offset` and every `slide` from there, in both directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aligned {
    pub(super) size: i64,
    pub(super) slide: i64,
    /// What both sizes are multiples of: state is kept for so long a piece of time.
    pub(super) pane: i64,
    /// 0 to `slide` - 1.
    offset: i64,
    /// 0 to `pane` - 1.
    pane_offset: i64,
}

/// How far a time lies into a period that begins at `offset`, which is 0 to `period` - 1.
#[inline]
fn into(time: i64, period: i64, offset: i64) -> i64 {
    let into = time.rem_euclid(period) - offset;
    if into < 0 { into + period } else { into }
}

fn divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Aligned {
    /// `size` and `slide` are above 0.
    pub(super) fn new(size: i64, slide: i64, offset: i64) -> Self {
        let pane = divisor(size, slide);
        Self { size, slide, pane, offset: offset.rem_euclid(slide), pane_offset: offset.rem_euclid(pane) }
    }

    pub(super) fn slides(&self) -> bool {
        self.slide != self.size
    }

    /// The pane that a time is in.
    #[inline]
    pub(super) fn pane_of(&self, time: i64) -> Span {
        let into = into(time, self.pane, self.pane_offset);
        Span::new(time.saturating_sub(into), time.saturating_add(self.pane - 1 - into))
    }

    /// The end of the last window that a time is in.
    #[inline]
    fn final_last(&self, time: i64) -> i64 {
        time.saturating_add(self.size - 1 - into(time, self.slide, self.offset))
    }

    /// The end of the first window that ends at a time or after it.
    fn next_last(&self, time: i64) -> i64 {
        // Where a window ends lies as far into the slide as one that begins there would, after `size - 1`.
        let end = (self.offset + self.size % self.slide + self.slide - 1) % self.slide;
        let past = into(time, self.slide, end);
        if past == 0 { time } else { time.saturating_add(self.slide - past) }
    }

    /// The starts of the windows that contain a time, earliest first. They may lie below what 64 bits hold.
    pub(super) fn starts_around(&self, time: i64) -> impl Iterator<Item = i128> + use<> {
        let slide = i128::from(self.slide);
        let latest = i128::from(time) - i128::from(into(time, self.slide, self.offset));
        let count = (latest + i128::from(self.size) - 1 - i128::from(time)).div_euclid(slide) + 1;
        (0..count).rev().map(move |back| latest - back * slide)
    }

    /// The starts of the windows that end at `last`, as far as 64 bits tell, and have something of what lies up to `newest`.
    pub(super) fn starts_ending_at(&self, last: i64, newest: i64) -> impl Iterator<Item = i128> + use<> {
        let (slide, size) = (i128::from(self.slide), i128::from(self.size));
        let earliest = i128::from(last) - size + 1;
        let first = earliest + (i128::from(self.offset) - earliest).rem_euclid(slide);
        // Ends beyond all time are all the end of time.
        let latest = if last == i64::MAX { i128::from(newest) } else { earliest };
        (0..).map(move |index: i128| first + index * slide).take_while(move |start| *start <= latest)
    }

    /// The span of the window that begins at a start.
    pub(super) fn window(&self, start: i128) -> Span {
        let clamp = |time: i128| i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX });
        Span::new(clamp(start), clamp(start + i128::from(self.size) - 1))
    }
}

impl Shape {
    /// Whether a window is made of several pieces of state, and a piece is in several windows.
    pub(super) fn slides(&self) -> bool {
        matches!(&self.kind, Kind::Aligned(aligned) if aligned.slides())
    }

    /// Whether nothing happens when a record comes to a window that is open and has not ended.
    pub(super) fn is_plain(&self) -> bool {
        self.early_records.is_none() && self.early_time.is_none()
    }

    /// The span that a record belongs to, for itself.
    #[inline]
    pub(super) fn span_of(&self, time: i64) -> Span {
        match &self.kind {
            Kind::Aligned(aligned) => aligned.pane_of(time),
            Kind::Session { gap } => Span::new(time, time.saturating_add(gap - 1)),
            Kind::Global { .. } => Span::ALL,
        }
    }

    /// The end of the last window that a span of state is in.
    #[inline]
    pub(super) fn final_last(&self, span: Span) -> i64 {
        match &self.kind {
            Kind::Aligned(aligned) if aligned.slides() => aligned.final_last(span.start),
            _ => span.last(),
        }
    }

    /// The end of the first window that a span of state is in and that ends after `done`, if there is one.
    pub(super) fn next_last(&self, span: Span, done: Option<i64>) -> Option<i64> {
        if Some(self.final_last(span)) <= done {
            return None;
        }
        match &self.kind {
            Kind::Aligned(aligned) if aligned.slides() => {
                let after = done.map_or(i64::MIN, |done| done.saturating_add(1));
                Some(aligned.next_last(after.max(span.last())))
            }
            _ => Some(span.last()),
        }
    }

    /// When a span of state is of no use any more.
    #[inline]
    pub(super) fn forgotten_at(&self, span: Span) -> i64 {
        self.final_last(span).saturating_add(self.lateness)
    }

    /// Whether it is of no use any more when everything up to `done` has come.
    #[inline]
    pub(super) fn is_forgotten(&self, span: Span, done: Option<i64>) -> bool {
        Some(self.forgotten_at(span)) <= done
    }

    /// What next happens to a span of state after `done`: the end of a window, or that it is forgotten.
    pub(super) fn next_event(&self, span: Span, done: Option<i64>) -> i64 {
        self.next_last(span, done).unwrap_or_else(|| self.forgotten_at(span))
    }
}

/// The first multiple of `interval` after a time.
pub(super) fn next_multiple(time: i64, interval: i64) -> i64 {
    time.saturating_add(interval - time.rem_euclid(interval))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::*;

    fn times() -> impl Strategy<Value = i64> {
        prop_oneof![
            -100..100i64,
            any::<i64>(),
            i64::MIN..i64::MIN + 50,
            i64::MAX - 50..i64::MAX,
            proptest::strategy::Just(i64::MAX)
        ]
    }

    /// All windows that contain a time, by counting up.
    fn brute(size: i64, slide: i64, offset: i64, time: i64) -> Vec<(i128, i128)> {
        let (size, slide) = (i128::from(size), i128::from(slide));
        let index = (i128::from(time) - i128::from(offset)).div_euclid(slide);
        let starts = (index - size - 2..=index + 2).map(|index| i128::from(offset) + index * slide);
        starts.filter(|start| (*start..*start + size).contains(&time.into())).map(|start| (start, start + size - 1)).collect()
    }

    proptest! {
        #[test]
        fn windows_are_those_that_contain_the_time(
            size in 1..40i64,
            slide in 1..40i64,
            offset in prop_oneof![-100..100i64, any::<i64>()],
            time in times(),
        ) {
            let slide = slide.min(size);
            let aligned = Aligned::new(size, slide, offset);
            let expected = brute(size, slide, offset, time);
            let starts: Vec<i128> = aligned.starts_around(time).collect();
            prop_assert_eq!(&starts, &expected.iter().map(|window| window.0).collect::<Vec<_>>());
            let clamp = |time: i128| time.clamp(i64::MIN.into(), i64::MAX.into());
            let pane = aligned.pane_of(time);
            prop_assert!(pane.contains(time));
            prop_assert_eq!(i128::from(aligned.final_last(time)), clamp(expected.last().unwrap().1));
            prop_assert_eq!(aligned.final_last(pane.start), aligned.final_last(time));
            // A pane lies in or out of a window as a whole.
            for (start, last) in &expected {
                prop_assert!(clamp(*start) <= pane.start.into() && i128::from(pane.last()) <= clamp(*last));
            }
            prop_assert_eq!(i128::from(aligned.next_last(time)), clamp(expected[0].1));
            let ending: Vec<i128> = aligned.starts_ending_at(aligned.final_last(time), time).collect();
            let same = |start: &&i128| clamp(**start + i128::from(size) - 1) == i128::from(aligned.final_last(time));
            prop_assert_eq!(ending, starts.iter().filter(same).copied().collect::<Vec<_>>());
        }

        #[test]
        fn the_next_multiple_is_after_the_time(time in times(), interval in 1..1000i64) {
            let next = next_multiple(time, interval);
            prop_assert!(next > time || next == i64::MAX);
            prop_assert!(next == i64::MAX || (next.rem_euclid(interval) == 0 && i128::from(next) - i128::from(time) <= interval.into()));
        }

        #[test]
        fn a_span_is_what_it_was_made_of(a in any::<i64>(), b in any::<i64>()) {
            let span = Span::new(a.min(b), a.max(b));
            prop_assert_eq!((span.start, span.last()), (a.min(b), a.max(b)));
            prop_assert_eq!(span.joined(Span::new(a, a)), span);
        }
    }
}
