//! How large increments, memory and reads become: what the model of all kinds does not see.

use std::cell::RefCell;

use super::entry::{Entry, EntryReader};
use super::*;
use crate::column::BytesColumn;
use crate::guest::{
    Effects, EntryUpdate, OperatorUpdate, ReadError, ReadLimit, StateKind, StateReads, StateSlot, StateUpdate, op,
};
use crate::ids::CheckpointId;
use crate::key_group::MaxParallelism;
use crate::snapshot::{SectionKind, StateBlock};
use crate::time::ProcessingTime;

const ALL: ReadLimit = ReadLimit { items: u32::MAX, bytes: usize::MAX };

fn state(kind: StateKind, ttl_ms: u64) -> SubtaskState {
    let slot = StateSlot {
        name: "s".into(),
        kind,
        codec: "raw".into(),
        schema: String::new(),
        ttl_ms,
        ttl_on_read: ttl_ms != 0,
        prefetch: kind == StateKind::Value,
    };
    let owner = StateOwner { max_parallelism: MaxParallelism::new(1).unwrap(), groups: 0..1, subtask: 0 };
    SubtaskState::new(owner, &[slot], 42, 1 << 30)
}

fn column(items: &[&[u8]]) -> BytesColumn {
    items.iter().copied().collect()
}

fn at(state: &mut SubtaskState, now: i64) {
    state.fill_frame(column(&[b"k"]).as_slice(), &[], ProcessingTime(now)).unwrap();
}

fn update(state: &mut SubtaskState, op: u8, value: &[u8]) {
    let update = StateUpdate { slot: 0, rows: vec![0], ops: vec![op], values: column(&[value]) };
    state.apply(&Effects { updates: vec![update], ..Effects::default() });
}

fn put_entry(state: &mut SubtaskState, entry_key: &[u8], value: &[u8]) {
    let (entry_keys, values) = (column(&[entry_key]), column(&[value]));
    let update = EntryUpdate { slot: 0, rows: vec![0], ops: vec![op::PUT], entry_keys, values };
    state.apply(&Effects { entries: vec![update], ..Effects::default() });
}

/// Takes a snapshot that completes at once.
fn snapshot(state: &mut SubtaskState, id: u64) -> Vec<StateBlock> {
    let mut blocks = Vec::new();
    state.begin_snapshot(CheckpointId(id), false);
    while state.is_collecting() {
        state.collect_some(100, &mut |_, block| blocks.push(block));
    }
    state.confirm(CheckpointId(id));
    while state.reap_some(100) {}
    blocks
}

fn elements(state: &RefCell<SubtaskState>) -> Vec<Vec<u8>> {
    state.get_list(0, 0, 0, ALL).unwrap().iter().map(<[u8]>::to_vec).collect()
}

#[test]
fn an_append_to_a_long_list_adds_little_to_an_increment() {
    let mut state = state(StateKind::List, 0);
    at(&mut state, 0);
    (0..10_000_u32).for_each(|number| update(&mut state, op::APPEND, &number.to_le_bytes()));
    assert!((10..40).contains(&state.len(0)), "chunks of about 4 KiB: {}", state.len(0));
    snapshot(&mut state, 1);
    update(&mut state, op::APPEND, b"new");
    let bytes: usize = snapshot(&mut state, 2).iter().map(|block| block.bytes.len()).sum();
    assert!(bytes < 300, "{bytes}");
    (3..103).for_each(|checkpoint| {
        update(&mut state, op::APPEND, b"one element between two cuts");
        snapshot(&mut state, checkpoint);
    });
    assert!(state.len(0) < 70, "tiny chunks grow even then: {}", state.len(0));
}

#[test]
fn a_clear_is_one_mark_whatever_was_there() {
    let mut state = state(StateKind::Map, 0);
    at(&mut state, 0);
    (0..5000_u32).for_each(|number| put_entry(&mut state, &number.to_be_bytes(), b"value"));
    snapshot(&mut state, 1);
    update(&mut state, op::CLEAR, b"");
    put_entry(&mut state, b"after", b"v");
    let blocks = snapshot(&mut state, 2);
    let kinds: Vec<_> = blocks.iter().map(|block| (block.kind, block.entries)).collect();
    assert_eq!(kinds.len(), 2);
    assert!(kinds.contains(&(SectionKind::Clears, 1)) && kinds.contains(&(SectionKind::Delta, 1)), "{kinds:?}");
    let clears = blocks.iter().find(|block| block.kind == SectionKind::Clears).unwrap();
    assert_eq!(EntryReader::new(&clears.bytes).collect::<Vec<_>>(), [Ok(Entry::Clear { key: b"k" })]);
    let next: Vec<_> = snapshot(&mut state, 3).iter().map(|block| (block.kind, block.entries)).collect();
    assert_eq!(next, [(SectionKind::Base, 1)], "the increments outweigh what is left");
    assert_eq!(snapshot(&mut state, 4), [], "nothing is left of the mark");
}

#[test]
fn memory_is_bounded_when_keys_are_filled_and_cleared_again_and_again() {
    let mut state = state(StateKind::Map, 0);
    at(&mut state, 0);
    for round in 0..200_000_u32 {
        put_entry(&mut state, &(round % 7).to_be_bytes(), &[7; 100]);
        update(&mut state, op::CLEAR, b"");
    }
    assert!(state.memory_bytes() < 400 << 10, "{}", state.memory_bytes());
    assert_eq!(state.len(0), 0);
}

#[test]
fn keys_that_were_cleared_count_as_memory_until_a_checkpoint_holds_them() {
    let mut state = state(StateKind::Map, 0);
    for number in 0..1000_u32 {
        let mut key = vec![0; 4000];
        key[..4].copy_from_slice(&number.to_le_bytes());
        state.fill_frame(column(&[&key]).as_slice(), &[], ProcessingTime(0)).unwrap();
        put_entry(&mut state, b"e", b"");
        update(&mut state, op::CLEAR, b"");
    }
    assert!(state.memory_bytes() > 4_000_000, "{}", state.memory_bytes());
    snapshot(&mut state, 1);
    assert!(state.memory_bytes() < 1_000_000, "{}", state.memory_bytes());
}

#[test]
fn what_has_expired_leaves_memory_when_its_group_is_written_in_full() {
    let mut state = state(StateKind::Map, 10);
    at(&mut state, 0);
    (0..1000_u32).for_each(|number| put_entry(&mut state, &number.to_be_bytes(), b"value"));
    at(&mut state, 100);
    put_entry(&mut state, b"young", b"value");
    // The first snapshot has no base to continue.
    let blocks = snapshot(&mut state, 1);
    assert_eq!(blocks.iter().map(|block| block.entries).sum::<u32>(), 1);
    assert_eq!(state.len(0), 1);
    let deletes: u32 = snapshot(&mut state, 2).iter().map(|block| block.entries).sum();
    assert_eq!(deletes, 1000, "older checkpoints may hold them");
    let next: Vec<_> = snapshot(&mut state, 3).iter().map(|block| (block.kind, block.entries)).collect();
    assert_eq!(next, [(SectionKind::Base, 1)], "the increments outweigh what is left");
    assert_eq!(snapshot(&mut state, 4), []);
}

#[test]
fn reading_a_list_renews_it_and_what_has_expired_is_not_there() {
    let mut state = state(StateKind::List, 10);
    at(&mut state, 0);
    update(&mut state, op::APPEND, b"a");
    at(&mut state, 8);
    let state = RefCell::new(state);
    assert_eq!(elements(&state), [b"a"]);
    state.borrow_mut().apply(&Effects::default());
    at(&mut state.borrow_mut(), 15);
    assert_eq!(elements(&state), [b"a"], "renewed at 8");
    // The call that read it faults: its effects do not apply, and neither does the renewal.
    at(&mut state.borrow_mut(), 18);
    assert_eq!(elements(&state), Vec::<Vec<u8>>::new());
    assert_eq!(state.borrow().len(0), 1);
    state.borrow_mut().apply(&Effects::default());
    assert_eq!(state.borrow().len(0), 0, "dropped after the call that met it");
}

#[test]
fn reads_that_the_interface_does_not_allow_are_refused_by_name() {
    let map = RefCell::new(state(StateKind::Map, 0));
    at(&mut map.borrow_mut(), 0);
    let text = |error: ReadError| error.to_string();
    assert_eq!(text(map.get_many(0, &[0]).unwrap_err()), "slot 0 is not a declared value slot");
    assert_eq!(text(map.get_many(7, &[0]).unwrap_err()), "slot 7 is not a declared value slot");
    assert_eq!(text(map.get_list(0, 0, 0, ALL).unwrap_err()), "slot 0 is not a declared list slot");
    assert!(map.get_operator_list(0, 0, ALL).is_err() && map.scan_broadcast(0, None, ALL).is_err());
    assert!(map.get_broadcast(0, column(&[]).as_slice()).is_err());
    assert_eq!(text(map.scan(0, 1, None, ALL).unwrap_err()), "row 1 is read of a frame of 1");
    assert_eq!(text(map.get_entries(0, &[0], column(&[]).as_slice()).unwrap_err()), "1 rows are read with 0 entry keys");
    let changed = map.borrow_mut();
    assert_eq!(map.scan(0, 0, None, ALL).unwrap_err(), ReadError::OutsideOfCall);
    drop(changed);
    let mut large = state(StateKind::Map, 0);
    at(&mut large, 0);
    put_entry(&mut large, b"e", &vec![0; 1 << 20]);
    let large = RefCell::new(large);
    let keys: BytesColumn = (0..65).map(|_| &b"e"[..]).collect();
    assert_eq!(large.get_entries(0, &[0; 65], keys.as_slice()).unwrap_err(), ReadError::TooLarge);
}

#[test]
fn state_without_keys_is_written_without_a_frame() {
    let mut state = state(StateKind::ListSplit, 0);
    state.clear_frame(ProcessingTime(0));
    let (entry_keys, values) = (column(&[b"", b""]), column(&[b"a", b"b"]));
    let update = OperatorUpdate { slot: 0, ops: vec![op::APPEND; 2], entry_keys, values };
    state.apply(&Effects { operator_updates: vec![update], ..Effects::default() });
    let state = RefCell::new(state);
    let read = state.get_operator_list(0, 1, ALL).unwrap();
    assert_eq!(read.iter().collect::<Vec<_>>(), [b"b"]);
}

#[test]
fn damaged_state_is_refused_and_never_believed() {
    let refused = |kind, ttl_ms, entry: Entry<'_>| {
        let mut state = state(kind, ttl_ms);
        let mut slot = SlotRestore::new(0, Deal::InPlace, ttl_ms, ProcessingTime(0));
        slot.apply(&mut state, crate::key_group::KeyGroup(0), &entry).unwrap_err().to_string()
    };
    let long = vec![0; 70_000];
    for (error, expected) in [
        (refused(StateKind::Value, 0, Entry::Put { key: &long, value: b"" }), "a key of 70000 bytes"),
        (refused(StateKind::Value, 0, Entry::Clear { key: b"k" }), "one value is cleared"),
        (refused(StateKind::Value, 5, Entry::Put { key: b"k", value: b"short" }), "no stamp"),
        (refused(StateKind::Map, 0, Entry::Put { key: &[9, 1], value: b"" }), "no ordered key"),
        (refused(StateKind::List, 0, Entry::Put { key: &[1, 1, 0, 0], value: &[0; 4] }), "has no number"),
        (
            refused(StateKind::List, 0, Entry::Put { key: &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0], value: &[9; 8] }),
            "does not hold its elements",
        ),
        (refused(StateKind::Broadcast, 0, Entry::Delete { key: &[1, 1, 0] }), "state of a subtask has a key"),
    ] {
        assert!(error.contains(expected), "{error}");
    }
}
