//! What a guest returned, moved into the engine's words. A column's shape is checked here; what it says, by the engine.

use cofferdam_dataflow::batch::TimeColumn;
use cofferdam_dataflow::column::BytesColumn;
use cofferdam_dataflow::guest::{self as engine};

use super::bindings::cofferdam::operator::types as wit;
use super::bindings::exports::cofferdam::operator::guest as exports;

/// A returned column that breaks the interface's rules.
type Broken = String;

fn column(what: &str, index: usize, column: wit::BytesColumnResult) -> Result<BytesColumn, Broken> {
    BytesColumn::from_parts(column.data, column.ends).map_err(|error| format!("{what} of item {index}: {error}"))
}

fn times(index: usize, records: usize, column: wit::TimeColumnResult) -> Result<TimeColumn, Broken> {
    let lengths = (column.times.len(), column.untimed.len());
    TimeColumn::from_parts(records, column.times, column.untimed).ok_or_else(|| {
        let (times, untimed) = lengths;
        format!("outputs.timestamps of item {index}: {times} times and {untimed} bytes of untimed do not fit {records} records")
    })
}

/// Moves a call's effects.
pub(super) fn effects(effects: wit::Effects) -> Result<engine::Effects, Broken> {
    let mut lifted = engine::Effects {
        updates: Vec::with_capacity(effects.updates.len()),
        entries: Vec::with_capacity(effects.entries.len()),
        operator_updates: Vec::with_capacity(effects.operator_updates.len()),
        timers: engine::TimerUpdate {
            rows: effects.timers.rows,
            ops: effects.timers.ops,
            times: effects.timers.times,
            tags: effects.timers.tags,
        },
        outputs: Vec::with_capacity(effects.outputs.len()),
    };
    for (index, update) in effects.updates.into_iter().enumerate() {
        let values = column("updates.values", index, update.values)?;
        lifted.updates.push(engine::StateUpdate { slot: update.slot, rows: update.rows, ops: update.ops, values });
    }
    for (index, entry) in effects.entries.into_iter().enumerate() {
        let entry_keys = column("entries.entry-keys", index, entry.entry_keys)?;
        let values = column("entries.values", index, entry.values)?;
        lifted.entries.push(engine::EntryUpdate { slot: entry.slot, rows: entry.rows, ops: entry.ops, entry_keys, values });
    }
    for (index, update) in effects.operator_updates.into_iter().enumerate() {
        let entry_keys = column("operator-updates.entry-keys", index, update.entry_keys)?;
        let values = column("operator-updates.values", index, update.values)?;
        lifted.operator_updates.push(engine::OperatorUpdate { slot: update.slot, ops: update.ops, entry_keys, values });
    }
    for (index, output) in effects.outputs.into_iter().enumerate() {
        let keys = column("outputs.keys", index, output.keys)?;
        let values = column("outputs.values", index, output.values)?;
        let timestamps = times(index, values.len(), output.timestamps)?;
        lifted.outputs.push(engine::Output { port: output.port, keys, timestamps, values });
    }
    Ok(lifted)
}

/// Moves a descriptor.
pub(super) fn descriptor(descriptor: exports::Descriptor) -> engine::Descriptor {
    let input = |port: exports::InputPort| engine::InputPort { name: port.name, broadcast: port.broadcast };
    engine::Descriptor {
        inputs: descriptor.inputs.into_iter().map(input).collect(),
        outputs: descriptor.outputs,
        slots: descriptor.slots.into_iter().map(slot).collect(),
        timers: descriptor.timers.into_iter().map(domain).collect(),
        keyed: descriptor.keyed,
        max_batch: descriptor.max_batch,
    }
}

fn slot(slot: exports::StateSlot) -> engine::StateSlot {
    engine::StateSlot {
        name: slot.name,
        kind: match slot.kind {
            exports::StateKind::Value => engine::StateKind::Value,
            exports::StateKind::List => engine::StateKind::List,
            exports::StateKind::Map => engine::StateKind::Map,
            exports::StateKind::ListSplit => engine::StateKind::ListSplit,
            exports::StateKind::ListUnion => engine::StateKind::ListUnion,
            exports::StateKind::Broadcast => engine::StateKind::Broadcast,
        },
        codec: slot.codec,
        schema: slot.schema,
        ttl_ms: slot.ttl_ms,
        ttl_on_read: slot.ttl_on_read,
        prefetch: slot.prefetch,
    }
}

fn domain(domain: wit::TimeDomain) -> engine::TimeDomain {
    match domain {
        wit::TimeDomain::EventTime => engine::TimeDomain::EventTime,
        wit::TimeDomain::ProcessingTime => engine::TimeDomain::ProcessingTime,
    }
}
