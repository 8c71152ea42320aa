//! What host work costs in fuel.
//!
//! wasm's fuel counts wasm instructions and nothing that the host does for them. Prices are about what the work takes,
//! depend on sizes only, and are part of what [`crate::sandbox::engine::FUEL_PRICES`] numbers.

use cofferdam_dataflow::guest::{Effects, InputBatch, KeyedFrame, TimerBatch};

/// Any call across the boundary.
const CALL: u64 = 100;
/// A row of a frame: its key and state were looked up.
const ROW: u64 = 1_000;
/// An element or an entry of a page that was read, besides its bytes.
const ITEM: u64 = 100;
/// A change of state, besides its bytes.
const UPDATE: u64 = 2_000;
/// A timer set or deleted.
const TIMER: u64 = 1_000;
/// An output record, besides its bytes.
const RECORD: u64 = 300;
/// A log line, besides its bytes.
const LOG_LINE: u64 = 5_000;
/// A byte of a log line.
const LOG_BYTE: u64 = 10;
/// A change of a metric, besides the bytes of its name.
const METRIC: u64 = 500;

/// Before a log line's text is looked at.
pub(super) const LOG_CALL: u64 = CALL + LOG_LINE;

/// Returns the price of a log line's text.
pub(super) fn log_text(bytes: usize) -> u64 {
    LOG_BYTE.saturating_mul(bytes as u64)
}

/// Before a metric's name is looked at.
pub(super) const METRIC_CALL: u64 = CALL + METRIC;

/// Returns the price of bytes that cross the boundary.
pub(super) fn bytes(count: usize) -> u64 {
    count as u64
}

/// Returns the price of asking for state with arguments of so many bytes.
pub(super) fn read_call(bytes: usize) -> u64 {
    CALL.saturating_add(bytes as u64)
}

/// Returns the price of values that were looked up one by one.
pub(super) fn read_values(items: usize, bytes: usize) -> u64 {
    (ROW + 4).saturating_mul(items as u64).saturating_add(bytes as u64)
}

/// Returns the price of values that were read in a row.
pub(super) fn read_page(items: usize, bytes: usize) -> u64 {
    (ITEM + 4).saturating_mul(items as u64).saturating_add(bytes as u64)
}

/// Returns the price of what lies before the first element of a page.
pub(super) fn read_skipped(elements: u32) -> u64 {
    u64::from(elements)
}

/// Returns the price of what a page walked over because it had expired.
pub(super) fn read_passed_over(items: u64) -> u64 {
    ITEM.saturating_mul(items)
}

/// Returns the price of handing a batch and its frame to the guest.
pub(super) fn input(batch: &InputBatch<'_>, frame: &KeyedFrame<'_>) -> u64 {
    let crossing =
        batch.values.data().len() + 4 * (batch.values.len() + batch.rows.len()) + 8 * batch.times.len() + batch.untimed.len();
    CALL + crossing as u64 + keyed(frame)
}

/// Returns the price of handing timers and their frame to the guest.
pub(super) fn timers(timers: &TimerBatch<'_>, frame: &KeyedFrame<'_>) -> u64 {
    let crossing = 4 * timers.rows.len() + 8 * (timers.times.len() + timers.tags.len());
    CALL + crossing as u64 + keyed(frame)
}

fn keyed(frame: &KeyedFrame<'_>) -> u64 {
    let mut crossing = frame.keys.data().len() + 4 * frame.keys.len();
    let mut rows = 0;
    for state in frame.states {
        crossing += state.values.data().len() + 4 * state.values.len() + state.present.len();
        rows += state.values.len();
    }
    crossing as u64 + ROW * rows as u64
}

/// Returns the price of taking over a call's effects.
pub(super) fn output(effects: &Effects) -> u64 {
    let column = |column: &cofferdam_dataflow::column::BytesColumn| (column.bytes() + 4 * column.len()) as u64;
    let mut fuel = 0u64;
    for update in &effects.updates {
        fuel += UPDATE * update.rows.len() as u64 + 5 * update.rows.len() as u64 + column(&update.values);
    }
    for entry in &effects.entries {
        fuel += UPDATE * entry.rows.len() as u64 + column(&entry.entry_keys) + column(&entry.values);
    }
    for update in &effects.operator_updates {
        fuel += UPDATE * update.ops.len() as u64 + column(&update.entry_keys) + column(&update.values);
    }
    fuel += TIMER * effects.timers.rows.len() as u64;
    for output in &effects.outputs {
        fuel += RECORD * output.values.len() as u64 + 8 * output.timestamps.len() as u64;
        fuel += column(&output.keys) + column(&output.values);
    }
    fuel
}
