//! The order in which timers fire, in runs that do not fit a slice, with stale items, and its size.

use proptest::prelude::*;

use super::*;
use crate::guest::{Descriptor, Effects, InputPort};
use crate::key_group::MaxParallelism;
use crate::state::StateOwner;
use crate::time::ProcessingTime;

const EVENT: TimeDomain = TimeDomain::EventTime;
const ALL: (usize, usize) = (1000, 1 << 20);

fn state() -> SubtaskState {
    let descriptor = Descriptor {
        inputs: vec![InputPort { name: "in".into(), broadcast: false }],
        outputs: vec![],
        slots: vec![],
        timers: vec![EVENT],
        keyed: false,
        max_batch: 0,
    };
    let owner = StateOwner { max_parallelism: MaxParallelism::new(8).unwrap(), groups: 0..8, subtask: 0 };
    SubtaskState::new(owner, &descriptor.tables(), 42, 1 << 30)
}

/// Changes timers of one key each, in one call.
fn change<'a>(state: &mut SubtaskState, changes: impl IntoIterator<Item = (&'a [u8], u8, i64, u64)>) {
    let (mut keys, mut effects) = (BytesColumn::default(), Effects::default());
    for (key, op, time, tag) in changes {
        keys.push(key);
        effects.timers.ops.push(op);
        effects.timers.times.push(time);
        effects.timers.tags.push(tag);
    }
    state.fill_frame(keys.as_slice(), &[], ProcessingTime(0)).unwrap();
    effects.timers.rows = state.frame().rows().to_vec();
    state.apply(&effects);
}

/// Fires everything up to a time, and returns the batches.
fn fire(state: &mut SubtaskState, until: i64, most: (usize, usize)) -> Vec<Vec<(i64, Vec<u8>, u64)>> {
    let (mut batches, mut due) = (Vec::new(), DueTimers::default());
    loop {
        match state.take_due(EVENT, until, most, &mut due) {
            Due::Nothing => return batches,
            Due::Gathering => {}
            Due::Timers => {
                state.remove_fired(EVENT, &due);
                let timers = due.times.iter().zip(due.keys.iter()).zip(&due.tags);
                batches.push(timers.map(|((time, key), tag)| (*time, key.to_vec(), *tag)).collect());
            }
        }
    }
}

#[test]
fn entry_keys_sort_as_time_and_tag_and_come_back() {
    let all = [(i64::MIN, 0), (-1, u64::MAX), (0, 0), (0, 1), (1, 0), (i64::MAX, u64::MAX)];
    let keys = all.map(|(time, tag)| join_timer(time, tag));
    assert!(keys.is_sorted());
    assert_eq!(keys[2], [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "part of the checkpoint format");
    assert_eq!(keys.map(|key| split_timer(&key)), all.map(Some));
    assert_eq!((split_timer(&[0; 15]), split_timer(&[0; 17])), (None, None));
}

#[test]
fn a_batch_has_a_key_once_and_ends_before_it_would_have_it_again() {
    let mut state = state();
    let set = |key, time, tag| (key, timer_op::SET_EVENT, time, tag);
    change(
        &mut state,
        [set(&b"b"[..], 1, 0), set(b"a", 1, 0), set(b"c", 2, 0), set(b"a", 2, 7), set(b"a", 2, 7), set(b"b", 9, 0)],
    );
    let timer = |time, key: &[u8], tag| (time, key.to_vec(), tag);
    let expected = vec![vec![timer(1, b"a", 0), timer(1, b"b", 0)], vec![timer(2, b"a", 7), timer(2, b"c", 0)]];
    assert_eq!(fire(&mut state, 8, ALL), expected);
    assert_eq!((state.next_timer(EVENT), state.pending_timers()), (Some(9), 1));
    assert_eq!(fire(&mut state, 9, ALL), [[timer(9, b"b", 0)]]);
    assert_eq!((state.next_timer(EVENT), state.pending_timers()), (None, 0));
}

#[test]
fn many_timers_of_one_time_fire_in_the_order_of_their_keys() {
    let mut state = state();
    // More than are gathered in one go, with keys that differ only where the prefix ends.
    let keys: Vec<_> =
        (0..3 * GATHER).map(|number| format!("a-prefix-of-many-bytes-{:05}", number * 7919 % (3 * GATHER))).collect();
    for keys in keys.chunks(500) {
        change(&mut state, keys.iter().map(|key| (key.as_bytes(), timer_op::SET_EVENT, 5, 0)));
    }
    let batches = fire(&mut state, 5, ALL);
    assert!(batches.iter().all(|batch| batch.len() <= 1000));
    let fired: Vec<_> = batches.concat().into_iter().map(|(_, key, _)| String::from_utf8(key).unwrap()).collect();
    assert!(fired.is_sorted() && fired.len() == keys.len());
}

#[test]
fn keys_of_many_bytes_make_short_batches() {
    let mut state = state();
    let keys = [[1; 40], [2; 40], [3; 40]];
    change(&mut state, keys.iter().map(|key| (&key[..], timer_op::SET_EVENT, 5, 0)));
    let lengths: Vec<_> = fire(&mut state, 5, (1000, 80)).iter().map(Vec::len).collect();
    assert_eq!(lengths, [2, 1]);
    change(&mut state, keys.iter().map(|key| (&key[..], timer_op::SET_EVENT, 5, 0)));
    let lengths: Vec<_> = fire(&mut state, 5, (1000, 8)).iter().map(Vec::len).collect();
    assert_eq!(lengths, [1, 1, 1]);
}

#[test]
fn what_is_set_and_deleted_again_and_again_does_not_pile_up() {
    let mut state = state();
    for round in 0..20_000 {
        let (time, tag) = (100 + i64::from(round % 3), 0);
        change(&mut state, [(&b"k"[..], timer_op::SET_EVENT, time, tag)]);
        if round % 5 != 0 {
            change(&mut state, [(&b"k"[..], timer_op::DELETE_EVENT, time, tag)]);
        }
        assert!(state.queued(EVENT) <= 2 * 3 + 1026);
    }
    let timers = [100, 101, 102].map(|time| (&b"k"[..], timer_op::SET_EVENT, time, 0));
    change(&mut state, timers);
    assert_eq!(fire(&mut state, 1000, ALL).len(), 3);
    assert_eq!(state.pending_timers(), 0);
}

#[test]
fn the_limit_counts_what_is_pending_after_the_call() {
    let mut state = state();
    let set = |key, time| (key, timer_op::SET_EVENT, time, 0);
    change(&mut state, [set(&b"a"[..], 1), set(b"b", 2)]);
    let update = |ops: &[u8], times: &[i64]| {
        let rows = vec![0; ops.len()];
        TimerUpdate { rows, ops: ops.to_vec(), times: times.to_vec(), tags: vec![0; ops.len()] }
    };
    let check = |ops: &[u8], times: &[i64], fired, limit| state.check_timers(&update(ops, times), fired, limit);
    // Row 0 is "a".
    assert_eq!(check(&[0], &[3], 0, 3), Ok(()));
    assert_eq!(check(&[0], &[3], 0, 2), Err(TimersFull { pending: 3, limit: 2 }));
    assert_eq!(check(&[0], &[1], 0, 2), Ok(()), "it is there already");
    assert_eq!(check(&[0, 1], &[3, 1], 0, 2), Ok(()), "another goes");
    assert_eq!(check(&[0, 1], &[3, 3], 0, 2), Ok(()), "it goes again");
    assert_eq!(check(&[0], &[3], 1, 2), Ok(()), "one has fired");
    assert_eq!(check(&[1], &[1], 0, 0), Ok(()), "deleting is always possible");
}

proptest! {
    /// Batches in flight while others are set and deleted, and freed places are used again.
    #[test]
    fn timers_fire_in_order_whatever_happens_meanwhile(
        calls in prop::collection::vec(
            (prop::collection::vec((0..6_u8, any::<bool>(), 0..5_i64, 0..2_u64), 0..8), 0..6_i64, 1..4_usize, any::<bool>()),
            1..60,
        ),
    ) {
        let mut state = state();
        let mut model = std::collections::BTreeSet::new();
        let mut due = DueTimers::default();
        for (number, (changes, until, most, confirms)) in (1..).zip(calls) {
            let keys: Vec<[u8; 1]> = changes.iter().map(|(key, ..)| [*key]).collect();
            let ops = changes.iter().zip(&keys).map(|((_, sets, time, tag), key)| (&key[..], u8::from(!sets), *time, *tag));
            change(&mut state, ops);
            for (key, sets, time, tag) in changes {
                let timer = (time, vec![key], tag);
                if sets { model.insert(timer); } else { model.remove(&timer); }
            }
            if confirms {
                let checkpoint = crate::ids::CheckpointId(number);
                state.begin_snapshot(checkpoint, false);
                while state.collect_some(1000, &mut |_, _| {}) {}
                state.confirm(checkpoint);
                (0..20).for_each(|_| _ = state.reap_some(1000));
            }
            let mut expected: Vec<(i64, Vec<u8>, u64)> = Vec::new();
            for timer in model.iter().filter(|timer| timer.0 <= until) {
                if expected.len() == most || expected.iter().any(|other| other.1 == timer.1) {
                    break;
                }
                expected.push(timer.clone());
            }
            let next = model.first().map(|timer| timer.0);
            if expected.is_empty() {
                prop_assert!(state.next_timer(EVENT) >= next.filter(|next| *next <= until));
            } else {
                prop_assert!(state.next_timer(EVENT).is_some_and(|next| next <= until));
            }
            let found = state.take_due(EVENT, until, (most, 1000), &mut due);
            prop_assert_eq!(found == Due::Timers, !expected.is_empty());
            let timers = due.times.iter().zip(due.keys.iter()).zip(&due.tags);
            let taken: Vec<_> = timers.map(|((time, key), tag)| (*time, key.to_vec(), *tag)).collect();
            prop_assert_eq!(&taken, &expected);
            state.remove_fired(EVENT, &due);
            for timer in &expected {
                model.remove(timer);
            }
            prop_assert_eq!(state.list_timers(EVENT), model.iter().cloned().collect::<Vec<_>>());
        }
    }
}

#[test]
fn timers_that_move_fire_in_their_order_and_leave_no_chunk_behind() {
    let mut state = state();
    let left = |state: &SubtaskState| match &state.slots[0].table {
        SlotTable::Ordered(table) => table.arena.chunks_left(),
        SlotTable::Value(_) => panic!(),
    };
    let (before, mut used) = (left(&state), Vec::new());
    for round in 0..40_u64 {
        let key = |number: u32| number.wrapping_mul(0x9e37_79b9).to_le_bytes();
        let keys: Vec<_> = (0..400).map(key).collect();
        let time = |number: usize| i64::try_from(number * 7 % 50).unwrap();
        let all = || keys.iter().enumerate();
        change(&mut state, all().map(|(number, key)| (&key[..], 0, time(number), round)));
        // A part of those that are due is taken off the heap, so that some move that are in the run.
        let mut due = DueTimers::default();
        while state.take_due(EVENT, 25, (1, 100), &mut due) == Due::Gathering {}
        state.remove_fired(EVENT, &due);
        let first = (due.times[0], due.keys.get(0).to_vec());
        let gone = all().filter(|(number, key)| number % 5 != 0 && (time(*number), key.to_vec()) != first);
        change(&mut state, gone.map(|(number, key)| (&key[..], 1, time(number), round)));
        state.begin_snapshot(crate::ids::CheckpointId(round + 1), false);
        while state.collect_some(100, &mut |_, _| {}) {}
        state.confirm(crate::ids::CheckpointId(round + 1));
        while state.reap_some(50) {}
        used.push(before - left(&state));
        let mut expected: Vec<_> =
            all().filter(|(number, _)| number % 5 == 0).map(|(number, key)| (time(number), key.to_vec())).collect();
        expected.retain(|timer| *timer != first);
        expected.sort();
        let fired: Vec<_> = fire(&mut state, 100, (7, 1000)).concat().into_iter().map(|(time, key, _)| (time, key)).collect();
        assert_eq!(fired, expected, "round {round}");
        assert_eq!(state.pending_timers(), 0);
    }
    let most = 6 * used.first().unwrap().max(&20);
    assert!(used.iter().all(|used| used <= &most), "{used:?}");
}
