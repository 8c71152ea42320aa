//! Reads splits of the generator.

use std::sync::Arc;

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{ConnectorError, Source, SourcePoll, Split, SplitPosition};
use cofferdam_dataflow::time::{EventTime, ProcessingTime};

use super::shape::{Facts, Values, decimal};
use super::{KeyFormat, Settings, parse_split, product_rest_ns};

const NS_PER_MS: u128 = 1_000_000;
const BATCH_BYTES: usize = 256 << 10;
/// The longest pause between polls: the pipeline notices other things in between.
const RETRY_MS_MAX: u64 = 100;

/// Generates the records of some splits, a batch of each in turn.
pub(super) struct GeneratorSource {
    settings: Arc<Settings>,
    values: Values,
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

impl GeneratorSource {
    /// Opens splits, each at its position.
    pub(super) fn open(settings: Arc<Settings>, splits: Vec<(Split, Option<SplitPosition>)>) -> Result<Self, ConnectorError> {
        let mut readings = Vec::with_capacity(splits.len());
        for (split, position) in splits {
            let (index, count) = parse_split(&split)?;
            let (index, stride) = (u64::from(index), u64::from(count));
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
            let next = next.filter(|next| settings.has(*next));
            readings.push(Reading { split, stride, next, emitted: 0, told: false });
        }
        Ok(Self { values: Values::new(&settings), settings, splits: readings, turn: 0, started: None })
    }
}

impl Settings {
    fn has(&self, sequence: u64) -> bool {
        self.records.is_none_or(|records| sequence < records)
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
}

impl Source for GeneratorSource {
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
            let allowed = self.settings.allowed(elapsed_ms, reading.stride).saturating_sub(reading.emitted);
            if allowed == 0 {
                let due = self.settings.due_ms(reading.emitted.saturating_add(1), reading.stride);
                due_ms = Some(due_ms.map_or(due, |other| other.min(due)));
                continue;
            }
            let count = usize::try_from(allowed).map_or(max_records, |allowed| allowed.min(max_records));
            reading.generate(next, count, (&self.settings, &mut self.values), batch);
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

impl Reading {
    /// Appends records from number `first` on, until there are `count`, or enough bytes.
    fn generate(&mut self, first: u64, count: usize, (settings, values): (&Settings, &mut Values), batch: &mut Batch) {
        let step_ns = u128::from(settings.step_ns) * u128::from(self.stride);
        let step_ms = i64::try_from(step_ns / NS_PER_MS).unwrap_or(i64::MAX);
        let step_rest_ns = product_rest_ns(settings.step_ns, self.stride);
        let (mut time_ms, mut rest_ns) = settings.time_of(first);
        let mut text = Vec::new();
        let mut next = Some(first);
        // Column by column: `Batch::push` checks for each record what holds for all.
        let Batch { keys, hashes, timestamps, values: column } = batch;
        hashes.clear();
        let mut keys = match &settings.keys {
            Some(draw) => Some((draw, keys.get_or_insert_default())),
            None => {
                *keys = None;
                None
            }
        };
        while let Some(sequence) = next
            && column.len() < count
            && column.bytes() < BATCH_BYTES
        {
            let mut key = None;
            if let Some((draw, keys)) = &mut keys {
                let drawn = draw.key(sequence);
                key = Some(drawn);
                match settings.key_format {
                    KeyFormat::U64Le => keys.push(&drawn.to_le_bytes()),
                    KeyFormat::Text => {
                        text.clear();
                        decimal(drawn, &mut text);
                        keys.push(&text);
                    }
                }
            }
            column.push(values.write(&Facts { sequence, key, time_ms }));
            timestamps.push(Some(EventTime(time_ms)));
            // No division: this is most of what a small record costs.
            rest_ns += step_rest_ns;
            let carries = u128::from(rest_ns) >= NS_PER_MS;
            rest_ns -= if carries { 1_000_000 } else { 0 };
            time_ms = time_ms.saturating_add(step_ms).saturating_add(i64::from(carries));
            self.emitted += 1;
            next = sequence.checked_add(self.stride).filter(|next| settings.has(*next));
        }
        self.next = next;
    }
}
