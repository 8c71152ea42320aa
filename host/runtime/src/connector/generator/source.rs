//! Makes the records of the generator, a batch at a time.

use std::sync::Arc;

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::time::EventTime;

use super::shape::{Facts, Values, decimal};
use super::{KeyFormat, Settings, product_rest_ns};
use crate::connector::numbered::{BATCH_BYTES, Make};

const NS_PER_MS: u128 = 1_000_000;

/// Makes records by the options.
pub(super) struct GeneratorMaker {
    settings: Arc<Settings>,
    values: Values,
}

impl GeneratorMaker {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self { values: Values::new(&settings), settings }
    }
}

impl Make for GeneratorMaker {
    fn make(&mut self, first: u64, stride: u64, count: usize, batch: &mut Batch) -> usize {
        let settings = &*self.settings;
        let step_ns = u128::from(settings.step_ns) * u128::from(stride);
        let step_ms = i64::try_from(step_ns / NS_PER_MS).unwrap_or(i64::MAX);
        let step_rest_ns = product_rest_ns(settings.step_ns, stride);
        let (mut time_ms, mut rest_ns) = settings.time_of(first);
        let mut text = Vec::new();
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
        let (mut made, mut sequence) = (0, first);
        while made < count && column.bytes() < BATCH_BYTES {
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
            column.push(self.values.write(&Facts { sequence, key, time_ms }));
            timestamps.push(Some(EventTime(time_ms)));
            // No division: this is most of what a small record costs.
            rest_ns += step_rest_ns;
            let carries = u128::from(rest_ns) >= NS_PER_MS;
            rest_ns -= if carries { 1_000_000 } else { 0 };
            time_ms = time_ms.saturating_add(step_ms).saturating_add(i64::from(carries));
            made += 1;
            // Past the last record of all, which is `u64::MAX`, nobody asks for one.
            sequence = sequence.wrapping_add(stride);
        }
        made
    }
}
