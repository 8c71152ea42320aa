//! Patterns against brute force: streams out of order, with late records, restarts and times at the ends of what there is.
//!
//! Each model looks at all records of a stream at once and works out what should be told of, and when; it knows nothing of
//! buffers and timers.

mod dedup;
mod joins;
mod limits;
mod sequence;
mod silence;
mod sorter;
mod top_n;

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::operator::Operator;
use crate::testing::{Harness, Outputs, TestRecord};

/// A key, a time and what it is about.
type Event<E> = (u8, i64, E);

/// Records that come one after the other, then a watermark.
#[derive(Clone, Debug)]
struct Group<E> {
    /// Whether the instance is replaced before.
    restart: bool,
    events: Vec<Event<E>>,
    watermark: i64,
}

/// What is told of in a group: at once, and when the watermark moves; key, time and text.
type Told = [Vec<(u8, i64, String)>; 2];

/// Streams of some groups around the beginning, the middle or the end of time. About every fifth record is late.
fn streams<E: Debug + Clone + 'static>(
    event: impl Strategy<Value = E> + Clone + 'static,
) -> impl Strategy<Value = Vec<Group<E>>> {
    let base = prop_oneof![4 => Just(0), 1 => Just(i64::MIN), 1 => Just(i64::MAX - 70)];
    let group = (prop::bool::weighted(0.3), vec((0..3u8, 0..40i64, event), 0..14), 0..14i64);
    (base, vec(group, 1..8)).prop_map(|(base, groups)| {
        let mut passed = 0;
        let group = |(restart, events, step): (bool, Vec<Event<E>>, i64)| {
            let place = |offset: i64| base.saturating_add(passed + offset - 8);
            let events = events.into_iter().map(|(key, offset, event)| (key, place(offset), event)).collect();
            passed += step;
            Group { restart, events, watermark: base.saturating_add(passed) }
        };
        groups.into_iter().map(group).collect()
    })
}

/// The records that are not late, with the index of their group, in the order in which they come.
fn on_time<E: Clone>(groups: &[Group<E>]) -> Vec<(usize, Event<E>)> {
    let mut watermark = None;
    let mut events = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        events.extend(group.events.iter().filter(|event| Some(event.1) > watermark).map(|event| (index, event.clone())));
        watermark = Some(group.watermark);
    }
    events
}

/// In which group the watermark reaches a time; after the last, the input ends.
fn reached<E>(groups: &[Group<E>], time: i64) -> usize {
    groups.iter().position(|group| group.watermark >= time).unwrap_or(groups.len())
}

/// Sorts what is told of by key, and leaves the order within a key as it is.
fn by_key(outputs: &Outputs) -> Vec<(u8, i64, String)> {
    let told = |out: &crate::testing::Emitted| (out.key().unwrap()[0], out.time_ms().unwrap(), out.text().to_owned());
    let mut all: Vec<_> = outputs.iter().map(told).collect();
    all.sort_by_key(|told| told.0);
    all
}

/// Runs an operator over a stream to its end, in batches of a size, and checks that nothing is left. `check` sees the harness
/// after each group.
fn run<O: Operator, E>(
    config: &str,
    groups: &[Group<E>],
    batch: usize,
    record: impl Fn(&Event<E>) -> TestRecord,
    mut check: impl FnMut(usize, &Harness<O>),
) -> Vec<Told> {
    let mut harness = Harness::<O>::new().config(config).batch_size(batch);
    let mut told = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        if group.restart {
            harness.restart();
        }
        let at_once = by_key(&harness.process(group.events.iter().map(&record)).unwrap());
        told.push([at_once, by_key(&harness.advance_watermark(group.watermark).unwrap())]);
        check(index, &harness);
    }
    told.push([Vec::new(), by_key(&harness.finish().unwrap())]);
    harness.assert_nothing_left();
    told
}

/// Does the same in batches of several sizes, which must not matter.
fn run_in_all_ways<O: Operator, E>(
    config: &str,
    groups: &[Group<E>],
    record: impl Fn(&Event<E>) -> TestRecord,
    mut check: impl FnMut(usize, &Harness<O>),
) -> Vec<Told> {
    let whole = run(config, groups, 1000, &record, &mut check);
    for batch in [1, 2] {
        assert_eq!(whole, run(config, groups, batch, &record, &mut check), "in batches of 1000 (left) and {batch} (right)");
    }
    whole
}

/// Sorts all lists of what is told of.
fn sorted(mut told: Vec<Told>) -> Vec<Told> {
    told.iter_mut().flatten().for_each(|told| told.sort());
    told
}
