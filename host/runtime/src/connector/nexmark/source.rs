//! Writes events into batches.

use std::sync::Arc;

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::time::EventTime;

use super::EventFormat;
use super::model::Model;
use crate::connector::numbered::{BATCH_BYTES, Make};

/// Makes records of a model's events.
pub(super) struct EventMaker {
    model: Arc<Model>,
    format: EventFormat,
    value: Vec<u8>,
}

impl EventMaker {
    pub(super) fn new(model: Arc<Model>, format: EventFormat) -> Self {
        Self { model, format, value: Vec::new() }
    }
}

impl Make for EventMaker {
    fn make(&mut self, first: u64, stride: u64, count: usize, batch: &mut Batch) -> usize {
        let Batch { keys, hashes, timestamps, values: column } = batch;
        *keys = None;
        hashes.clear();
        let (mut made, mut number) = (0, first);
        while made < count && column.bytes() < BATCH_BYTES {
            let event = self.model.event(number);
            let mut value = std::mem::take(&mut self.value);
            value.clear();
            self.value = match self.format {
                EventFormat::Json => {
                    serde_json::to_writer(&mut value, &event).expect("numbers and texts have a form, and memory takes it");
                    value
                }
                EventFormat::Postcard => postcard::to_extend(&event, value).expect("numbers and texts have a form"),
            };
            column.push(&self.value);
            timestamps.push(Some(EventTime(event.time())));
            made += 1;
            // Past the last event of all, which is `u64::MAX`, nobody asks for one.
            number = number.wrapping_add(stride);
        }
        made
    }
}
