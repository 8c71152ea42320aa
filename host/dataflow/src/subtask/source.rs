//! One subtask of a source: reading, positions, and the watermarks that its splits add up to.

use super::failure::TaskFailure;
use super::ports::Now;
use crate::batch::Batch;
use crate::connector::{Source, SourcePoll, SplitPosition};
use crate::ids::SubtaskId;
use crate::time::{EventTime, Watermark};

/// Records of one poll, at most.
const POLL_RECORDS: usize = 1000;
/// A watermark is sent at most this often.
const WATERMARK_INTERVAL_US: u64 = 50_000;

/// How a source's watermarks follow its records' event times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkStrategy {
    /// How far behind the latest event time of its split a record may be without being late, in milliseconds.
    pub out_of_orderness_ms: u64,
}

/// One parallel instance of a source.
pub struct SourceSubtask {
    pub(super) id: SubtaskId,
    source: Box<dyn Source>,
    strategy: Option<WatermarkStrategy>,
    splits: Vec<SplitTime>,
    watermark: Option<Watermark>,
    sent_at_us: u64,
    /// The last poll's batch, recycled.
    spare: Batch,
    pub(super) records_out: u64,
    pub(super) bytes_out: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct SplitTime {
    latest: Option<EventTime>,
    finished: bool,
}

/// What a poll brought.
pub(super) enum Polled {
    Records(Batch),
    /// Nothing to hand on, but poll again at once.
    Again,
    Pending {
        retry_after_ms: u64,
    },
    End,
}

impl SourceSubtask {
    /// Wraps a source that reads `splits` splits. `strategy` is `None` for records without event time; `restored` is
    /// the watermark it had sent.
    pub fn new(
        id: SubtaskId,
        source: Box<dyn Source>,
        splits: usize,
        strategy: Option<WatermarkStrategy>,
        restored: Option<Watermark>,
    ) -> Self {
        Self {
            id,
            source,
            strategy,
            splits: vec![SplitTime::default(); splits],
            watermark: restored,
            sent_at_us: 0,
            spare: Batch::default(),
            records_out: 0,
            bytes_out: 0,
        }
    }

    pub(super) fn poll(&mut self, now: Now) -> Result<Polled, TaskFailure> {
        let mut batch = std::mem::take(&mut self.spare);
        batch.clear();
        let polled = self.source.poll(now.processing_time, POLL_RECORDS, &mut batch);
        match polled.map_err(|error| TaskFailure::connector(self.id.clone(), error))? {
            SourcePoll::Records { split } => {
                if let (Some(state), Some(latest)) = (self.splits.get_mut(split), batch.timestamps.max()) {
                    state.latest = state.latest.max(Some(latest));
                }
                self.records_out += batch.len() as u64;
                self.bytes_out += batch.values.bytes() as u64;
                Ok(Polled::Records(batch))
            }
            SourcePoll::SplitFinished { split } => {
                if let Some(state) = self.splits.get_mut(split) {
                    state.finished = true;
                }
                self.spare = batch;
                Ok(Polled::Again)
            }
            SourcePoll::Pending { retry_after_ms } => {
                self.spare = batch;
                Ok(Polled::Pending { retry_after_ms })
            }
            SourcePoll::End => Ok(Polled::End),
        }
    }

    /// Takes a batch back whose records have been handed on, to fill its buffers again.
    pub(super) fn recycle(&mut self, batch: Batch) {
        self.spare = batch;
    }

    /// Returns the watermark to send, if it has advanced and one is due. `idle`: nothing is at hand, so it is due.
    pub(super) fn due_watermark(&mut self, now: Now, idle: bool) -> Option<Watermark> {
        let strategy = self.strategy?;
        if !idle && now.monotonic_us < self.sent_at_us + WATERMARK_INTERVAL_US {
            return None;
        }
        // A split that has said nothing yet holds it back.
        let latest = self.splits.iter().filter(|split| !split.finished).map(|split| split.latest).min().flatten()?;
        let behind = i64::try_from(strategy.out_of_orderness_ms).unwrap_or(i64::MAX);
        let watermark = Watermark(EventTime(latest.0.saturating_sub(behind).saturating_sub(1)));
        if Some(watermark) <= self.watermark {
            return None;
        }
        self.sent_at_us = now.monotonic_us;
        self.watermark = Some(watermark);
        self.watermark
    }

    pub(super) fn set_watermark(&mut self, watermark: Watermark) {
        self.watermark = Some(watermark);
    }

    pub(super) fn watermark(&self) -> Option<Watermark> {
        self.watermark
    }

    pub(super) fn positions(&self) -> Vec<SplitPosition> {
        self.source.positions()
    }

    /// Returns where the unfinished splits stand, for people; at most three of them.
    pub(super) fn describe_positions(&self) -> String {
        let positions = self.source.positions();
        let open = positions.iter().filter(|position| !position.finished).take(3);
        open.map(|position| format!("{} {}", position.split, position.display)).collect::<Vec<_>>().join(", ")
    }

    /// Returns how much is left to read, in bytes, if that is known.
    pub fn remaining_bytes(&self) -> Option<u64> {
        self.source.remaining_bytes()
    }

    /// Returns how many records were skipped as malformed.
    pub fn malformed(&self) -> u64 {
        self.source.malformed()
    }
}
