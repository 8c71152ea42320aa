//! How much memory a table keeps that has shrunk, and that neither slices nor references to chunks grow without end.

use crate::column::BytesColumn;
use crate::guest::{Effects, EntryUpdate, StateKind, StateSlot, StateUpdate, op};
use crate::ids::CheckpointId;
use crate::key_group::MaxParallelism;
use crate::state::{StateOwner, SubtaskState};
use crate::time::ProcessingTime;

use super::{SlotTable, on_table};

const KEYS: u32 = 8000;
const VALUE: [u8; 60] = [7; 60];

fn state(kind: StateKind) -> SubtaskState {
    let slot = StateSlot {
        name: "s".into(),
        kind,
        codec: "raw".into(),
        schema: String::new(),
        ttl_ms: 0,
        ttl_on_read: false,
        prefetch: kind == StateKind::Value,
    };
    let owner = StateOwner { max_parallelism: MaxParallelism::new(16).unwrap(), groups: 0..16, subtask: 0 };
    SubtaskState::new(owner, &[slot], 42, 1 << 30)
}

fn key(number: u32) -> [u8; 16] {
    let mut key = [1; 16];
    key[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
    key
}

/// Puts or deletes keys: values, or one entry of a map each.
fn change(state: &mut SubtaskState, numbers: impl IntoIterator<Item = u32>, op: u8) {
    let keys: BytesColumn = numbers.into_iter().map(key).collect::<Vec<_>>().iter().map(|key| &key[..]).collect();
    state.fill_frame(keys.as_slice(), &[], ProcessingTime(0)).unwrap();
    let rows: Vec<u32> = (0..u32::try_from(keys.len()).unwrap()).collect();
    let (ops, values) = (vec![op; rows.len()], rows.iter().map(|_| &VALUE[..]).collect());
    let is_value = matches!(state.slots[0].table, SlotTable::Value(_));
    let effects = match is_value {
        true => Effects { updates: vec![StateUpdate { slot: 0, rows, ops, values }], ..Effects::default() },
        false => {
            let entry_keys = rows.iter().map(|_| &b"e"[..]).collect();
            Effects { entries: vec![EntryUpdate { slot: 0, rows, ops, entry_keys, values }], ..Effects::default() }
        }
    };
    state.apply(&effects);
}

fn snapshot(state: &mut SubtaskState, id: u64) {
    state.begin_snapshot(CheckpointId(id), false);
    while state.collect_some(100, &mut |_, _| {}) {}
    state.confirm(CheckpointId(id));
}

/// Does all there is to do, slice by slice.
fn tidy(state: &mut SubtaskState) {
    let mut slices = 0;
    while state.reap_some(50) {
        slices += 1;
        assert!(slices < 100_000, "it does not come to an end");
    }
}

/// Chunks are so small here that what is kept for each, even one that is gone, weighs as much as what is left. `tests/shrink.rs`
/// has the bound for chunks of the usual size.
#[test]
fn a_table_that_has_shrunk_gives_its_memory_back() {
    for kind in [StateKind::Value, StateKind::Map] {
        let mut state = state(kind);
        change(&mut state, 0..KEYS, op::PUT);
        snapshot(&mut state, 1);
        tidy(&mut state);
        let full = state.memory_bytes();
        change(&mut state, (0..KEYS).filter(|number| number % 10 != 3), op::DELETE);
        snapshot(&mut state, 2);
        tidy(&mut state);
        let left = state.memory_bytes();
        assert_eq!(state.len(0), u64::from(KEYS) / 10);
        assert!(left * 3 <= full, "{kind:?}: {full} then {left} bytes");
    }
}

#[test]
fn what_is_written_all_the_time_moves_as_well() {
    let mut state = state(StateKind::Value);
    change(&mut state, 0..KEYS, op::PUT);
    snapshot(&mut state, 1);
    let full = state.memory_bytes();
    let hot = || (0..KEYS).filter(|number| number % 10 == 3);
    change(&mut state, (0..KEYS).filter(|number| number % 10 != 3), op::DELETE);
    // Always one in flight, and what is left is written between any two slices: never is it all in a checkpoint.
    for id in 2..60 {
        state.begin_snapshot(CheckpointId(id), false);
        while state.collect_some(100, &mut |_, _| {}) {
            change(&mut state, hot().take(100), op::PUT);
            state.reap_some(50);
        }
        state.confirm(CheckpointId(id));
        change(&mut state, hot(), op::PUT);
        (0..100).for_each(|_| _ = state.reap_some(50));
    }
    assert!(state.memory_bytes() * 3 <= full, "{full} then {} bytes", state.memory_bytes());
}

#[test]
fn tables_that_grow_and_shrink_again_and_again_use_few_numbers_of_chunks() {
    for has_checkpoints in [true, false] {
        let mut state = state(StateKind::Value);
        let mut used = Vec::new();
        let left = |state: &SubtaskState| on_table!(&state.slots[0].table, table => table.arena.chunks_left());
        let before = left(&state);
        for round in 1..30_u32 {
            change(&mut state, 0..2000, op::PUT);
            if has_checkpoints {
                snapshot(&mut state, u64::from(round));
            }
            // Longer values: they move to places of another size, and all that was there is free.
            let keys = (0..2000).map(key).collect::<Vec<_>>();
            let keys: BytesColumn = keys.iter().map(|key| &key[..]).collect();
            state.fill_frame(keys.as_slice(), &[], ProcessingTime(0)).unwrap();
            let length = 10 + usize::try_from(round % 2).unwrap() * 50;
            let values = (0..2000).map(|_| &VALUE[..length]).collect();
            let update = StateUpdate { slot: 0, rows: (0..2000).collect(), ops: vec![op::PUT; 2000], values };
            state.apply(&Effects { updates: vec![update], ..Effects::default() });
            tidy(&mut state);
            used.push(before - left(&state));
        }
        let most = 8 * used.first().unwrap();
        assert!(used.iter().all(|used| *used <= most), "{used:?}");
    }
}
