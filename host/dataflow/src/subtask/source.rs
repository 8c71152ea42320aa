//! One subtask of a source: reading and positions.

use super::alignment_group::AlignmentMember;
use super::failure::TaskFailure;
use super::ports::Now;
use super::source_time::{Progress, SourceTime, WatermarkStrategy};
use super::time_report::{SourceActivity, SourceReport};
use crate::batch::Batch;
use crate::connector::{Source, SourcePoll, SplitPosition};
use crate::ids::SubtaskId;
use crate::time::Watermark;

/// Records of one poll, at most.
const POLL_RECORDS: usize = 1000;

/// How a subtask of a source takes part in event time.
#[derive(Debug, Default)]
pub struct SourceWatermarks {
    /// How its watermarks follow from its records; `None` if they have no event time: it holds nobody back then.
    pub strategy: Option<WatermarkStrategy>,
    /// Its place among the sources that it does not run ahead of.
    pub member: Option<AlignmentMember>,
}

/// One parallel instance of a source.
pub struct SourceSubtask {
    pub(super) id: SubtaskId,
    source: Box<dyn Source>,
    pub(super) time: SourceTime,
    /// The last poll's batch, recycled.
    spare: Batch,
    pub(super) records_out: u64,
    pub(super) bytes_out: u64,
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
    /// Wraps a source that reads `splits` splits. `restored` is the watermark it had sent.
    pub fn new(
        id: SubtaskId,
        source: Box<dyn Source>,
        splits: usize,
        watermarks: SourceWatermarks,
        restored: Option<Watermark>,
    ) -> Self {
        let time = SourceTime::new(watermarks.strategy, splits, watermarks.member, restored);
        Self { id, source, time, spare: Batch::default(), records_out: 0, bytes_out: 0 }
    }

    pub(super) fn poll(&mut self, now: Now) -> Result<Polled, TaskFailure> {
        let mut batch = std::mem::take(&mut self.spare);
        batch.clear();
        let polled = self.source.poll(now.processing_time, POLL_RECORDS, &mut batch);
        match polled.map_err(|error| TaskFailure::connector(self.id.clone(), error))? {
            SourcePoll::Records { split } => {
                self.time.records(split, batch.timestamps.max(), self.source.declared_watermark(split));
                self.records_out += batch.len() as u64;
                self.bytes_out += batch.values.bytes() as u64;
                Ok(Polled::Records(batch))
            }
            SourcePoll::SplitFinished { split } => {
                self.time.finished(split);
                self.spare = batch;
                Ok(Polled::Again)
            }
            SourcePoll::AtEnd { split } => {
                self.time.at_end(split, now);
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

    pub(super) fn positions(&self) -> Vec<SplitPosition> {
        self.source.positions()
    }

    /// Returns where the unfinished splits stand, for people; at most three of them.
    pub(super) fn describe_positions(&self) -> String {
        let positions = self.source.positions();
        let open = positions.iter().filter(|position| !position.finished).take(3);
        open.map(|position| format!("{} {}", position.split, position.display)).collect::<Vec<_>>().join(", ")
    }

    /// Returns where it is in event time. `held`: it reads nothing for now, `ended`: nothing any more.
    pub(super) fn report_time(&self, now: Now, (held, ended): (bool, bool)) -> SourceReport {
        let (splits, unfinished) = self.time.report(&self.source.positions(), now);
        let strategy = self.time.strategy();
        let activity = match self.time.activity() {
            _ if ended => SourceActivity::Ended,
            _ if held => SourceActivity::Held,
            activity => activity,
        };
        SourceReport {
            id: self.id.clone(),
            watermark: self.time.watermark(),
            activity,
            out_of_orderness_ms: strategy.and_then(|strategy| match strategy.progress {
                Progress::OutOfOrderness { ms } => Some(ms),
                Progress::Declared => None,
            }),
            idle_timeout_ms: strategy.and_then(|strategy| strategy.idle_timeout_ms),
            splits,
            unfinished,
        }
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
