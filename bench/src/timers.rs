//! Pending timers without a pipeline: one thread, through the engine's public API.

use anyhow::Result;
use cofferdam_dataflow::column::BytesColumn;
use cofferdam_dataflow::guest::{Descriptor, Effects, TimeDomain, TimerUpdate, timer_op};
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::key_group::{MaxParallelism, key_hash};
use cofferdam_dataflow::state::{Due, DueTimers, StateOwner, SubtaskState};
use cofferdam_dataflow::time::ProcessingTime;

use crate::measure::{percentile_us, process_cpu, thread_cpu};
use crate::state::{Random, mb, resident};

/// Timers of a call, as the engine fires them.
const CALL: u64 = 1000;
/// Frozen entries that are encoded between two calls, as a task does.
const SLICE: usize = 512;
const GROUPS: u16 = 128;
const NOW: ProcessingTime = ProcessingTime(0);
const DOMAIN: TimeDomain = TimeDomain::EventTime;

/// Prints everything, for so many pending timers.
pub(crate) fn print(timers: u64) -> Result<()> {
    println!("\ntimers: {timers} pending, of {} keys of 16 bytes, calls of {CALL}, one thread, ns of CPU each", timers / 10);
    println!(
        "times | set | delete | fire | resident bytes each | longest look for what is due, us of CPU | snapshot pause p99, max us"
    );
    for (name, spread_ms) in [("random", i64::MAX / 4), ("10,000 in each", (timers / 10_000).cast_signed()), ("all the same", 1)]
    {
        let row = measure(timers, spread_ms.max(1))?;
        println!("{name} | {row}");
    }
    Ok(())
}

fn empty() -> SubtaskState {
    let (inputs, outputs, slots) = (Vec::new(), Vec::new(), Vec::new());
    let descriptor = Descriptor { inputs, outputs, slots, timers: vec![DOMAIN], keyed: true, max_batch: 0 };
    let max_parallelism = MaxParallelism::new(u32::from(GROUPS)).expect("in range");
    let owner = StateOwner { max_parallelism, groups: 0..GROUPS, subtask: 0 };
    SubtaskState::new(owner, &descriptor.tables(), 42, 64 << 30)
}

/// The key and the time of a timer, by its number.
fn timer(number: u64, timers: u64, spread_ms: i64) -> ([u8; 16], i64) {
    let mut key = *b"key-0123456789ab";
    key[4..12].copy_from_slice(&(Random(number % (timers / 10).max(1)).next()).to_le_bytes());
    // Times come in no order.
    let time = (Random(number ^ 0x5bd1_e995).next() >> 1).cast_signed() % spread_ms;
    (key, time)
}

/// Applies one operation to the timers of these numbers.
fn update(state: &mut SubtaskState, numbers: std::ops::Range<u64>, (timers, spread_ms): (u64, i64), op: u8) {
    let (mut keys, mut hashes, mut update) = (BytesColumn::default(), Vec::new(), TimerUpdate::default());
    for number in numbers {
        let (key, time) = timer(number, timers, spread_ms);
        hashes.push(key_hash(&key));
        keys.push(&key);
        update.ops.push(op);
        update.times.push(time);
        update.tags.push(number);
    }
    state.fill_frame(keys.as_slice(), &hashes, NOW).expect("the subtask owns all keys");
    update.rows = state.frame().rows().to_vec();
    state.apply(&Effects { timers: update, ..Effects::default() });
}

fn update_all(state: &mut SubtaskState, numbers: std::ops::Range<u64>, of: (u64, i64), op: u8) -> f64 {
    let start = process_cpu();
    let count = numbers.end - numbers.start;
    for first in numbers.clone().step_by(CALL as usize) {
        update(state, first..numbers.end.min(first + CALL), of, op);
    }
    per(start, count)
}

fn per(start: std::time::Duration, count: u64) -> f64 {
    (process_cpu() - start).as_nanos() as f64 / count as f64
}

fn measure(timers: u64, spread_ms: i64) -> Result<String> {
    let of = (timers, spread_ms);
    let before = resident()?;
    let mut state = empty();
    let set = update_all(&mut state, 0..timers, of, timer_op::SET_EVENT);
    let bytes = resident()?.saturating_sub(before) / timers;
    // A tenth more, which is deleted again.
    let more = timers..timers + timers / 10;
    update_all(&mut state, more.clone(), of, timer_op::SET_EVENT);
    let delete = update_all(&mut state, more, of, timer_op::DELETE_EVENT);
    let mut pauses = snapshots(&mut state, of);
    pauses.sort_unstable();
    let (mut due, mut fired, mut longest_us) = (DueTimers::default(), 0, 0);
    let start = process_cpu();
    while fired < timers {
        let looked = thread_cpu();
        let found = state.take_due(DOMAIN, i64::MAX, (CALL as usize, 256 << 10), &mut due);
        longest_us = longest_us.max((thread_cpu() - looked).as_micros());
        if found == Due::Timers {
            let hashes: Vec<_> = due.keys.iter().map(key_hash).collect();
            state.fill_frame(due.keys.as_slice(), &hashes, NOW).expect("the subtask owns all keys");
            fired += due.len() as u64;
            state.remove_fired(DOMAIN, &due);
            state.reap_some(SLICE);
        }
        anyhow::ensure!(found != Due::Nothing, "{fired} of {timers} timers have fired");
    }
    let fire = per(start, timers);
    let (p99, max) = (percentile_us(&pauses, 99), percentile_us(&pauses, 100));
    let total = mb(resident()?);
    Ok(format!("{set:.0} | {delete:.0} | {fire:.0} | {bytes} | {longest_us} | {p99:.1}, {max:.1} ({total} MB at the end)"))
}

/// Takes snapshots between calls that change timers. Returns for how long each held them up.
fn snapshots(state: &mut SubtaskState, (timers, spread_ms): (u64, i64)) -> Vec<std::time::Duration> {
    let mut pauses = Vec::new();
    let mut number = 2 * timers;
    for checkpoint in 1..=100 {
        let began = thread_cpu();
        state.begin_snapshot(CheckpointId(checkpoint), false);
        pauses.push(thread_cpu() - began);
        // The first is of everything; later ones of what has changed.
        for op in [timer_op::SET_EVENT, timer_op::DELETE_EVENT] {
            update(state, number..number + CALL, (timers, spread_ms), op);
            state.collect_some(SLICE, &mut |_, _| {});
        }
        number += CALL;
        while state.is_collecting() {
            state.collect_some(SLICE, &mut |_, _| {});
        }
        state.confirm(CheckpointId(checkpoint));
    }
    pauses
}
