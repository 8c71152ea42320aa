//! Sources whose records are made from their number alone: how they are dealt to splits, where each split stands, and when
//! the next is due.
//!
//! Records are dealt by their number modulo the number of splits; a split's position is the number of its next record. No
//! clock: the rate goes by the time of the polls.

use std::sync::{Arc, OnceLock};

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{
    ConnectorContext, ConnectorError, Source, SourceFactory, SourceGuarantee, SourcePoll, Split, SplitPosition,
};
use cofferdam_dataflow::time::ProcessingTime;

use super::failure::option_refused;

/// A batch ends when its values have so many bytes.
pub(super) const BATCH_BYTES: usize = 256 << 10;
/// The longest pause between polls: the pipeline notices other things in between.
const RETRY_MS_MAX: u64 = 100;

/// How many records there are, how fast they come, and how they are dealt out.
pub(super) struct Numbers {
    total: Option<u64>,
    rate: Option<u64>,
    splits: Option<u32>,
    /// How many splits there are by the splits opened first.
    opened: OnceLock<u32>,
}

/// Makes records.
pub(super) trait Make: Send {
    /// Appends the records `first`, `first + stride` and so on to a batch: `count` of them, or fewer once the batch's values
    /// have [`BATCH_BYTES`]. Returns how many.
    fn make(&mut self, first: u64, stride: u64, count: usize, batch: &mut Batch) -> usize;
}

/// Opens readers of numbered records, each with a maker of its own.
struct NumberedFactory<F> {
    numbers: Arc<Numbers>,
    maker: F,
}

/// Returns the source of these numbers; `maker` returns what makes the records of one subtask.
pub(super) fn numbered_source<M: Make + 'static>(
    numbers: Numbers,
    maker: impl Fn() -> M + Send + Sync + 'static,
) -> Arc<dyn SourceFactory> {
    Arc::new(NumberedFactory { numbers: Arc::new(numbers), maker })
}

impl<M: Make + 'static, F: Fn() -> M + Send + Sync> SourceFactory for NumberedFactory<F> {
    fn guarantee(&self) -> SourceGuarantee {
        SourceGuarantee { replayable: true, bounded: self.numbers.total.is_some() }
    }

    fn has_fixed_splits(&self) -> bool {
        true
    }

    fn discover(&self, parallelism: u32) -> Result<Vec<Split>, ConnectorError> {
        let count = self.numbers.splits.unwrap_or(parallelism);
        Ok((0..count).map(|index| Split { id: format!("{index}-of-{count}") }).collect())
    }

    fn open(&self, _: &ConnectorContext, splits: Vec<(Split, Option<SplitPosition>)>) -> Result<Box<dyn Source>, ConnectorError> {
        Ok(Box::new(NumberedSource::open(Arc::clone(&self.numbers), (self.maker)(), splits)?))
    }
}

/// Makes the records of some splits, a batch of each in turn.
struct NumberedSource<M> {
    numbers: Arc<Numbers>,
    maker: M,
    splits: Vec<Reading>,
    /// The split to poll next.
    turn: usize,
    started: Option<ProcessingTime>,
}

struct Reading {
    split: Split,
    /// How many splits there are in all: from one record of this split to the next.
    stride: u64,
    /// The number of the next record; `None` once there is none.
    next: Option<u64>,
    /// Records since the source was opened.
    emitted: u64,
    /// Whether the end has been told.
    told: bool,
}

impl Numbers {
    /// Returns the numbers `0 .. total`, at `rate` a second in all, in so many splits; the splits of the first start if
    /// that is not given.
    ///
    /// # Errors
    /// `option-refused` if `rate` or `splits` is 0.
    pub(super) fn new(total: Option<u64>, rate: Option<u64>, splits: Option<u32>) -> Result<Self, ConnectorError> {
        for (name, zero) in [("rate", rate == Some(0)), ("splits", splits == Some(0))] {
            if zero {
                return Err(option_refused(format!("{name} is 0; it must be at least 1")));
            }
        }
        Ok(Self { total, rate, splits, opened: OnceLock::new() })
    }

    fn has(&self, sequence: u64) -> bool {
        self.total.is_none_or(|total| sequence < total)
    }

    /// Returns how many records from `next` on, a stride apart, there are.
    fn left(&self, next: u64, stride: u64) -> u64 {
        self.total.map_or(u64::MAX, |total| total.saturating_sub(next).div_ceil(stride))
    }

    /// Returns how many records of one split of `stride` may have been emitted `elapsed_ms` after the start.
    fn allowed(&self, elapsed_ms: u64, stride: u64) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let allowed = u128::from(elapsed_ms) * u128::from(rate) / (1000 * u128::from(stride));
        u64::try_from(allowed).unwrap_or(u64::MAX)
    }

    /// Returns after how many milliseconds a split of `stride` may emit `count` records.
    fn due_ms(&self, count: u64, stride: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let due = (u128::from(count) * 1000 * u128::from(stride)).div_ceil(u128::from(rate));
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// Checks that a split is one of as many as all others; returns its index and their number.
    fn check(&self, split: &Split) -> Result<(u64, u64), ConnectorError> {
        let (index, count) = parse_split(split)?;
        let expected = self.splits.unwrap_or(*self.opened.get_or_init(|| count));
        if expected != count {
            let message = format!(
                "records are dealt to {expected} splits and to {count}; set splits to the number at the pipeline's first start"
            );
            return Err(ConnectorError::permanent("source-changed", message));
        }
        Ok((index.into(), count.into()))
    }
}

/// Reads a split's index and the number of splits.
fn parse_split(split: &Split) -> Result<(u32, u32), ConnectorError> {
    let parts = split.id.split_once("-of-").and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    parts
        .filter(|(index, count)| index < count)
        .ok_or_else(|| ConnectorError::permanent("position-invalid", format!("\"{}\" is no split of a generator", split.id)))
}

impl<M: Make> NumberedSource<M> {
    /// Opens splits, each at its position.
    ///
    /// # Errors
    /// `source-changed` if there were another number of splits before; `position-invalid` for what is no position.
    fn open(numbers: Arc<Numbers>, maker: M, splits: Vec<(Split, Option<SplitPosition>)>) -> Result<Self, ConnectorError> {
        let mut readings = Vec::with_capacity(splits.len());
        for (split, position) in splits {
            let (index, stride) = numbers.check(&split)?;
            let next = match position {
                None => Some(index),
                Some(position) if position.finished => None,
                Some(position) => {
                    let next = <[u8; 8]>::try_from(position.position.as_slice()).map(u64::from_le_bytes).ok();
                    Some(next.filter(|next| next % stride == index).ok_or_else(|| {
                        let message = format!("the recorded position of split {} cannot be read", split.id);
                        ConnectorError::permanent("position-invalid", message)
                    })?)
                }
            };
            let next = next.filter(|next| numbers.has(*next));
            readings.push(Reading { split, stride, next, emitted: 0, told: false });
        }
        Ok(Self { numbers, maker, splits: readings, turn: 0, started: None })
    }
}

impl<M: Make> Source for NumberedSource<M> {
    fn poll(&mut self, now: ProcessingTime, max_records: usize, batch: &mut Batch) -> Result<SourcePoll, ConnectorError> {
        let started = *self.started.get_or_insert(now);
        let elapsed_ms = u64::try_from(now.0.saturating_sub(started.0)).unwrap_or(0);
        let mut due_ms: Option<u64> = None;
        for _ in 0..self.splits.len() {
            let index = self.turn;
            self.turn = (self.turn + 1) % self.splits.len();
            let reading = &mut self.splits[index];
            let Some(next) = reading.next else {
                if !std::mem::replace(&mut reading.told, true) {
                    return Ok(SourcePoll::SplitFinished { split: index });
                }
                continue;
            };
            let allowed = self.numbers.allowed(elapsed_ms, reading.stride).saturating_sub(reading.emitted);
            if allowed == 0 {
                let due = self.numbers.due_ms(reading.emitted.saturating_add(1), reading.stride);
                due_ms = Some(due_ms.map_or(due, |other| other.min(due)));
                continue;
            }
            let allowed = allowed.min(self.numbers.left(next, reading.stride));
            let count = usize::try_from(allowed).map_or(max_records, |allowed| allowed.min(max_records));
            let made = self.maker.make(next, reading.stride, count, batch) as u64;
            reading.emitted = reading.emitted.saturating_add(made);
            let after = made.checked_mul(reading.stride).and_then(|numbers| next.checked_add(numbers));
            reading.next = after.filter(|next| self.numbers.has(*next));
            return Ok(SourcePoll::Records { split: index });
        }
        Ok(match due_ms {
            Some(due) => SourcePoll::Pending { retry_after_ms: due.saturating_sub(elapsed_ms).clamp(1, RETRY_MS_MAX) },
            None => SourcePoll::End,
        })
    }

    fn positions(&self) -> Vec<SplitPosition> {
        let position = |reading: &Reading| SplitPosition {
            split: reading.split.id.clone(),
            position: reading.next.map_or(Vec::new(), |next| next.to_le_bytes().to_vec()),
            finished: reading.next.is_none(),
            display: reading.next.map_or_else(|| "end".to_owned(), |next| format!("record {next}")),
        };
        self.splits.iter().map(position).collect()
    }
}
