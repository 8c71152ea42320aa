//! Event time of one subtask of a source: how far its splits are, which of them are idle, and what follows for those
//! downstream.
//!
//! Idleness is declared and not guessed: a reader says that it has seen the end of a split, and only a split that has been at
//! its end for the time that the pipeline allows is idle. A source that is slow, or kept from reading, never is.

use super::alignment_group::AlignmentMember;
use super::ports::Now;
use super::time_report::{SourceActivity, SplitReport};
use crate::connector::SplitPosition;
use crate::element::StreamElement;
use crate::time::{EventTime, Watermark};

/// A watermark is sent at most this often.
const INTERVAL_US: u64 = 50_000;
/// Splits in a report, at most.
const REPORTED_SPLITS: usize = 8;

/// How a source's watermarks follow from its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatermarkStrategy {
    /// What a split's watermark follows from.
    pub progress: Progress,
    /// After how many milliseconds at its end a split no longer holds event time back; `None` if it always does.
    pub idle_timeout_ms: Option<u64>,
    /// Which other sources it does not run ahead of.
    pub alignment: Option<Alignment>,
}

/// What a split's watermark follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The latest event time of its records.
    OutOfOrderness {
        /// How far behind that a record may be without being late, in milliseconds.
        ms: u64,
    },
    /// What its reader says: see [`crate::connector::Source::declared_watermark`].
    Declared,
}

/// Keeps sources together in event time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alignment {
    /// The sources of one name are kept together.
    pub group: String,
    /// How far a subtask's watermark may be ahead of the least of the group, in milliseconds.
    pub max_drift_ms: u64,
}

impl WatermarkStrategy {
    /// Returns the strategy of sources whose records may be `ms` milliseconds out of order.
    pub fn out_of_orderness(ms: u64) -> Self {
        Self { progress: Progress::OutOfOrderness { ms }, idle_timeout_ms: None, alignment: None }
    }
}

/// See the module's documentation.
pub(super) struct SourceTime {
    /// `None`: records have no event time, and hold nobody back.
    strategy: Option<WatermarkStrategy>,
    splits: Vec<SplitTime>,
    member: Option<AlignmentMember>,
    /// What was last sent, or restored.
    watermark: Option<Watermark>,
    sent_at_us: u64,
    /// Whether it was told that the source is idle.
    idle: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct SplitTime {
    /// The watermark's promise, without what records may be out of order.
    latest: Option<EventTime>,
    finished: bool,
    /// Since when its reader has been at its end.
    at_end_us: Option<u64>,
}

impl SourceTime {
    pub(super) fn new(
        strategy: Option<WatermarkStrategy>,
        splits: usize,
        member: Option<AlignmentMember>,
        restored: Option<Watermark>,
    ) -> Self {
        match (&member, restored) {
            // It had ended, and only has to say so again.
            (Some(member), Some(Watermark::MAX)) => member.leave(),
            (Some(member), Some(watermark)) => member.publish(watermark),
            _ => {}
        }
        Self { strategy, splits: vec![SplitTime::default(); splits], member, watermark: restored, sent_at_us: 0, idle: false }
    }

    pub(super) fn watermark(&self) -> Option<Watermark> {
        self.watermark
    }

    /// Records of a split have been read. `latest` is the latest event time among them; `declared` is what the reader says.
    pub(super) fn records(&mut self, split: usize, latest: Option<EventTime>, declared: Option<EventTime>) {
        let progress = self.strategy.as_ref().map(|strategy| strategy.progress);
        if let Some(state) = self.splits.get_mut(split) {
            state.at_end_us = None;
            state.latest = state.latest.max(if progress == Some(Progress::Declared) { declared } else { latest });
        }
    }

    pub(super) fn finished(&mut self, split: usize) {
        if let Some(state) = self.splits.get_mut(split) {
            state.finished = true;
        }
    }

    /// The reader has seen the end of a split.
    pub(super) fn at_end(&mut self, split: usize, now: Now) {
        if let Some(state) = self.splits.get_mut(split) {
            state.at_end_us.get_or_insert(now.monotonic_us);
        }
    }

    /// Everything has been read: returns the watermark to send before it ends, if there is one. It is what those downstream go
    /// by if another input is idle, and so event time does not end with this one.
    pub(super) fn last(&mut self) -> Option<Watermark> {
        self.strategy.as_ref()?;
        let latest = self.splits.iter().filter_map(|split| split.latest).max()?;
        let watermark = Watermark(EventTime(latest.0.min(i64::MAX - 1)));
        if Some(watermark) <= self.watermark {
            return None;
        }
        self.watermark = Some(watermark);
        self.watermark
    }

    /// It ends.
    pub(super) fn end(&mut self) {
        self.watermark = Some(Watermark::MAX);
        if let Some(member) = &self.member {
            member.leave();
        }
    }

    /// Records are about to be handed on. Returns whether those downstream must be told first that the source is active.
    pub(super) fn wake(&mut self) -> bool {
        self.strategy.is_some() && std::mem::replace(&mut self.idle, false)
    }

    /// Returns when a split that is at its end is idle, on the monotonic clock; `None` if nothing makes it idle.
    fn idle_from_us(&self, split: &SplitTime) -> Option<u64> {
        let timeout_ms = self.strategy.as_ref()?.idle_timeout_ms?;
        Some(split.at_end_us?.saturating_add(timeout_ms.saturating_mul(1000)))
    }

    fn is_idle(&self, split: &SplitTime, now: Now) -> bool {
        self.idle_from_us(split).is_some_and(|from_us| from_us <= now.monotonic_us)
    }

    /// Returns in how many milliseconds, at least 1, a split becomes idle if nothing comes.
    pub(super) fn idle_in_ms(&self, now: Now) -> Option<u64> {
        let open = self.splits.iter().filter(|split| !split.finished);
        let from_us = open.filter_map(|split| self.idle_from_us(split)).filter(|from_us| now.monotonic_us < *from_us).min()?;
        Some((from_us - now.monotonic_us).div_ceil(1000))
    }

    /// Returns what to tell those downstream, if anything. `waits`: nothing is at hand, so what has changed is due at once.
    pub(super) fn due(&mut self, now: Now, waits: bool) -> Option<StreamElement> {
        let Some(strategy) = &self.strategy else {
            return (!std::mem::replace(&mut self.idle, true)).then_some(StreamElement::Idle);
        };
        let interval_over = waits || now.monotonic_us >= self.sent_at_us + INTERVAL_US;
        if !interval_over && self.member.is_none() {
            return None;
        }
        let behind = match strategy.progress {
            Progress::OutOfOrderness { ms } => i64::try_from(ms).unwrap_or(i64::MAX).saturating_add(1),
            Progress::Declared => 0,
        };
        let mut open = self.splits.iter().filter(|split| !split.finished).peekable();
        let is_open = open.peek().is_some();
        // A split that has said nothing yet, `None`, holds it back. If all are idle, the one that came furthest counts: that is
        // what there is whichever of them became idle first.
        let least = open.filter(|split| !self.is_idle(split, now)).map(|split| split.latest).min();
        let latest = least.unwrap_or_else(|| self.splits.iter().filter_map(|split| split.latest).max());
        let watermark = latest.map(|latest| Watermark(EventTime(latest.0.saturating_sub(behind))));
        if least.is_none() && (watermark <= self.watermark || self.idle) {
            if is_open && !std::mem::replace(&mut self.idle, true) {
                self.member.iter().for_each(AlignmentMember::leave);
                return Some(StreamElement::Idle);
            }
            return None;
        }
        let watermark = watermark?;
        if let Some(member) = &self.member {
            member.publish(watermark.max(self.watermark.unwrap_or(watermark)));
        }
        if !interval_over || self.idle || Some(watermark) <= self.watermark {
            return None;
        }
        self.sent_at_us = now.monotonic_us;
        self.watermark = Some(watermark);
        Some(StreamElement::Watermark(watermark))
    }

    /// Whether it is so far ahead of its group that it must not read on.
    pub(super) fn is_ahead(&self) -> bool {
        !self.idle && self.member.as_ref().is_some_and(AlignmentMember::is_ahead)
    }

    pub(super) fn activity(&self) -> SourceActivity {
        match (&self.strategy, &self.member) {
            (None, _) => SourceActivity::Untimed,
            (Some(_), Some(member)) if self.is_ahead() => {
                SourceActivity::Ahead { group: EventTime(member.group_ms()), max_drift_ms: member.max_drift_ms() }
            }
            (Some(_), _) if self.idle => SourceActivity::Idle,
            (Some(_), _) => SourceActivity::Active,
        }
    }

    pub(super) fn strategy(&self) -> Option<&WatermarkStrategy> {
        self.strategy.as_ref()
    }

    /// Returns the splits that are furthest behind, a few of those that are not finished, and how many there are.
    pub(super) fn report(&self, positions: &[SplitPosition], now: Now) -> (Vec<SplitReport>, usize) {
        let mut open: Vec<_> = self.splits.iter().zip(positions).filter(|(split, _)| !split.finished).collect();
        let count = open.len();
        open.sort_by_key(|(split, _)| (self.is_idle(split, now), split.latest));
        let report = |(split, position): (&SplitTime, &SplitPosition)| SplitReport {
            split: position.split.clone(),
            position: position.display.clone(),
            latest: split.latest,
            idle: self.is_idle(split, now),
            at_end_ms: split.at_end_us.map(|since| now.monotonic_us.saturating_sub(since) / 1000),
        };
        (open.into_iter().take(REPORTED_SPLITS).map(report).collect(), count)
    }
}

#[cfg(test)]
mod tests;
