//! A large table that shrinks, with chunks of the usual size.

use cofferdam_dataflow::column::BytesColumn;
use cofferdam_dataflow::guest::{Effects, StateKind, StateSlot, StateUpdate, op};
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::key_group::MaxParallelism;
use cofferdam_dataflow::state::{StateOwner, SubtaskState};
use cofferdam_dataflow::time::ProcessingTime;

const KEYS: u32 = 1_000_000;
const CALL: usize = 1000;
/// Of a key and its value.
const PAYLOAD: u64 = 132;

fn change(state: &mut SubtaskState, numbers: impl Iterator<Item = u32>, op: u8) {
    let numbers: Vec<u32> = numbers.collect();
    for numbers in numbers.chunks(CALL) {
        let mut keys = BytesColumn::default();
        for number in numbers {
            let mut key = [1; 32];
            key[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
            keys.push(&key);
        }
        state.fill_frame(keys.as_slice(), &[], ProcessingTime(0)).expect("one subtask owns all keys");
        let values = numbers.iter().map(|_| &[7; 100][..]).collect();
        let rows = state.frame().rows().to_vec();
        let update = StateUpdate { slot: 0, ops: vec![op; rows.len()], rows, values };
        state.apply(&Effects { updates: vec![update], ..Effects::default() });
    }
}

fn checkpoint(state: &mut SubtaskState, id: u64) {
    state.begin_snapshot(CheckpointId(id), false);
    while state.collect_some(512, &mut |_, _| {}) {}
    state.confirm(CheckpointId(id));
    while state.reap_some(512) {}
}

#[test]
fn after_nine_of_ten_keys_were_deleted_memory_is_at_most_twice_the_payload() {
    let slot = StateSlot {
        name: "s".into(),
        kind: StateKind::Value,
        codec: "raw".into(),
        schema: String::new(),
        ttl_ms: 0,
        ttl_on_read: false,
        prefetch: true,
    };
    let max_parallelism = MaxParallelism::new(128).expect("within the limits");
    let owner = StateOwner { max_parallelism, groups: max_parallelism.range(0, 1), subtask: 0 };
    let mut state = SubtaskState::new(owner, &[slot], 42, 1 << 30);
    change(&mut state, 0..KEYS, op::PUT);
    checkpoint(&mut state, 1);
    let full = state.memory_bytes();
    assert!(full <= 2 * u64::from(KEYS) * PAYLOAD, "{full}");
    change(&mut state, (0..KEYS).filter(|number| number % 10 != 3), op::DELETE);
    checkpoint(&mut state, 2);
    let (left, payload) = (state.memory_bytes(), state.len(0) * PAYLOAD);
    assert_eq!(state.len(0), u64::from(KEYS) / 10);
    println!("{full} bytes, then {left} for {payload}");
    assert!(left <= 2 * payload, "{left} bytes for {payload}");
    // What is left can be written and grow again.
    change(&mut state, 0..KEYS / 4, op::PUT);
    checkpoint(&mut state, 3);
    assert!(state.memory_bytes() <= 2 * state.len(0) * PAYLOAD);
}
