//! Joins against all pairs of all records.

use proptest::prelude::*;
use serde::Deserialize;

use super::{Event, Group, Told, on_time, reached, run_in_all_ways, sorted, streams};
use crate::patterns::{IntervalJoin, Joined, Span, WindowJoin};
use crate::prelude::*;
use crate::testing::{Harness, TestRecord, record};

/// A record: of which side, and a number.
type Sided = (bool, u16);

#[derive(Clone, Copy, Debug, Deserialize)]
struct Options {
    lower: i64,
    upper: i64,
    left: bool,
    right: bool,
}

impl Options {
    fn config(self) -> String {
        format!(r#"{{"lower": {}, "upper": {}, "left": {}, "right": {}}}"#, self.lower, self.upper, self.left, self.right)
    }
}

fn options() -> impl Strategy<Value = Options> {
    let bounds = prop_oneof![
        8 => (-15..15i64, -15..15i64).prop_map(|(a, b)| (a.min(b), a.max(b))),
        1 => (0..9i64).prop_map(|upper| (i64::MIN, upper)),
        1 => (-9..0i64).prop_map(|lower| (lower, i64::MAX)),
    ];
    (bounds, any::<bool>(), any::<bool>()).prop_map(|((lower, upper), left, right)| Options { lower, upper, left, right })
}

fn to_record((key, time, (is_left, number)): &Event<Sided>) -> TestRecord {
    record(number.to_string()).key([*key]).time_ms(*time).port(if *is_left { "left" } else { "right" })
}

fn text(joined: Joined<'_, u16, u16>) -> String {
    match joined {
        Joined::Both(left, right) => format!("{}@{} and {}@{}", left.value, left.time_ms, right.value, right.time_ms),
        Joined::Left(left) => format!("left {}@{}", left.value, left.time_ms),
        Joined::Right(right) => format!("right {}@{}", right.value, right.time_ms),
    }
}

struct Near<const LEFT: bool, const RIGHT: bool> {
    left: InputPort,
    join: IntervalJoin<u16, u16>,
}

fn emit(joined: Joined<'_, u16, u16>, cx: &mut Context<'_>) -> Result<(), Error> {
    cx.out().keep_key().send_text(text(joined).as_str())
}

impl<const LEFT: bool, const RIGHT: bool> Operator for Near<LEFT, RIGHT> {
    type Config = Options;

    fn declare(declare: &mut Declare) -> Self {
        let left = declare.input("left");
        declare.input("right");
        let join = declare.interval_join("join");
        let join = match (LEFT, RIGHT) {
            (false, false) => join,
            (true, false) => join.left_outer(),
            (false, true) => join.right_outer(),
            (true, true) => join.full_outer(),
        };
        Self { left, join }
    }

    fn configure(&mut self, options: Options, _: &InstanceInfo) -> Result<(), Error> {
        self.join.between(options.lower, options.upper)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let number = record.text()?.parse()?;
        let late = if cx.port() == self.left { self.join.left(cx, number, emit)? } else { self.join.right(cx, number, emit)? };
        late.map_or(Ok(()), |late| cx.out().keep_key().send_text(("late ", late)))
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        assert!(self.join.on_timer(timer, cx, emit)?);
        Ok(())
    }
}

/// What is left of late records.
fn late(groups: &[Group<Sided>], told: &mut [Told], is_late: impl Fn(i64, i64) -> bool) {
    let mut watermark = None;
    for (group, told) in groups.iter().zip(told) {
        let late = group.events.iter().filter(|event| watermark.is_some_and(|watermark| is_late(event.1, watermark)));
        told[0].extend(late.map(|(key, time, (_, number))| (*key, *time, format!("late {number}"))));
        watermark = Some(group.watermark);
    }
}

/// Whether `left + lower <= right <= left + upper`.
fn is_near(left: i64, right: i64, options: Options) -> bool {
    let distance = i128::from(right) - i128::from(left);
    (options.lower.into()..=options.upper.into()).contains(&distance)
}

fn interval_model(groups: &[Group<Sided>], options: Options) -> Vec<Told> {
    let mut told = vec![Told::default(); groups.len() + 1];
    late(groups, &mut told, |time, watermark| time <= watermark);
    let records = on_time(groups);
    let mut matched = vec![false; records.len()];
    for (index, (_, (key, time, (is_left, number)))) in records.iter().enumerate() {
        for (other_index, (group, (other_key, other_time, (other_is_left, other)))) in records.iter().enumerate() {
            if *is_left && !*other_is_left && key == other_key && is_near(*time, *other_time, options) {
                (matched[index], matched[other_index]) = (true, true);
                // Told of with whatever comes second.
                let (group, at) = if index > other_index { (records[index].0, *time) } else { (*group, *other_time) };
                told[group][0].push((*key, at, format!("{number}@{time} and {other}@{other_time}")));
            }
        }
    }
    for ((group, (key, time, (is_left, number))), _) in records.iter().zip(&matched).filter(|(_, matched)| !**matched) {
        let (side, is_wanted) = if *is_left { ("left", options.left) } else { ("right", options.right) };
        if is_wanted {
            let due = if *is_left { time.saturating_add(options.upper) } else { time.saturating_sub(options.lower) };
            let text = format!("{side} {number}@{time}");
            let reached = reached(groups, due);
            // Told at once if the watermark is there already when it comes.
            if reached < *group { told[*group][0].push((*key, *time, text)) } else { told[reached][1].push((*key, due, text)) }
        }
    }
    sorted(told)
}

proptest! {
    #[test]
    fn an_interval_join_tells_of_all_that_are_near(groups in streams(any::<Sided>()), options in options()) {
        let found = match (options.left, options.right) {
            (false, false) => join_intervals::<false, false>(&groups, options),
            (false, true) => join_intervals::<false, true>(&groups, options),
            (true, false) => join_intervals::<true, false>(&groups, options),
            (true, true) => join_intervals::<true, true>(&groups, options),
        };
        // Those without a partner come in the order in which that became certain.
        for told in &found {
            prop_assert!(told[1].is_sorted_by_key(|(key, time, _)| (*key, *time)));
        }
        prop_assert_eq!(sorted(found), interval_model(&groups, options));
    }
}

/// Runs the join, and checks that it keeps exactly what may still be needed.
fn join_intervals<const LEFT: bool, const RIGHT: bool>(groups: &[Group<Sided>], options: Options) -> Vec<Told> {
    run_in_all_ways::<Near<LEFT, RIGHT>, _>(&options.config(), groups, to_record, |index, harness| {
        let watermark = groups[index].watermark;
        for (slot, is_left) in [("join-left", true), ("join-right", false)] {
            let kept: usize = (0..3).map(|key| harness.state_map::<(i64, u64), (u16, bool)>(slot, [key]).len()).sum();
            let due = |time: i64| if is_left { time.saturating_add(options.upper) } else { time.saturating_sub(options.lower) };
            let is_needed =
                |(group, event): &&(usize, Event<Sided>)| *group <= index && event.2.0 == is_left && due(event.1) > watermark;
            assert_eq!(kept, on_time(groups).iter().filter(is_needed).count(), "in {slot} after group {index}");
        }
    })
}

struct Window<const LEFT: bool, const RIGHT: bool> {
    left: InputPort,
    join: WindowJoin<u16, u16>,
}

impl<const LEFT: bool, const RIGHT: bool> Operator for Window<LEFT, RIGHT> {
    /// The upper bound is the length of a window.
    type Config = Options;

    fn declare(declare: &mut Declare) -> Self {
        let left = declare.input("left");
        declare.input("right");
        let join = declare.window_join("join");
        let join = match (LEFT, RIGHT) {
            (false, false) => join,
            (true, false) => join.left_outer(),
            (false, true) => join.right_outer(),
            (true, true) => join.full_outer(),
        };
        Self { left, join }
    }

    fn configure(&mut self, options: Options, _: &InstanceInfo) -> Result<(), Error> {
        self.join.tumbling(options.upper)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let number = record.text()?.parse()?;
        let late = if cx.port() == self.left { self.join.left(cx, number)? } else { self.join.right(cx, number)? };
        late.map_or(Ok(()), |late| cx.out().keep_key().send_text(("late ", late)))
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let is_own = self.join.on_timer(timer, cx, |joined, Span { start_ms, last_ms }, cx| {
            assert!(cx.event_time_ms() == Some(last_ms) && start_ms <= last_ms);
            emit(joined, cx)
        })?;
        assert!(is_own);
        Ok(())
    }
}

/// The last millisecond of a window, in steps of one: there are no shortcuts at the ends of time.
fn last_of(time: i64, size: i64) -> i64 {
    let size = i128::from(size);
    let last = (i128::from(time).div_euclid(size) + 1) * size - 1;
    i64::try_from(last).unwrap_or(i64::MAX)
}

fn window_model(groups: &[Group<Sided>], options: Options) -> Vec<Told> {
    let size = options.upper;
    let mut told = vec![Told::default(); groups.len() + 1];
    late(groups, &mut told, |time, watermark| last_of(time, size) <= watermark);
    let mut watermark = None;
    let mut records = Vec::new();
    for group in groups {
        records.extend(group.events.iter().filter(|event| Some(last_of(event.1, size)) > watermark));
        watermark = Some(group.watermark);
    }
    // Within a window by time, and then as they came.
    records.sort_by_key(|(key, time, _)| (*key, *time));
    for (key, time, (is_left, number)) in &records {
        let last = last_of(*time, size);
        let others: Vec<_> =
            records.iter().filter(|other| other.0 == *key && last_of(other.1, size) == last && other.2.0 != *is_left).collect();
        let told = &mut told[reached(groups, last)][1];
        if others.is_empty() && (if *is_left { options.left } else { options.right }) {
            told.push((*key, last, format!("{} {number}@{time}", if *is_left { "left" } else { "right" })));
        }
        if *is_left {
            told.extend(
                others
                    .iter()
                    .map(|(_, other_time, (_, other))| (*key, last, format!("{number}@{time} and {other}@{other_time}"))),
            );
        }
    }
    // Windows in order.
    told.iter_mut().for_each(|told| told[1].sort_by_key(|(key, last, _)| (*key, *last)));
    told.iter_mut().for_each(|told| told[0].sort_by_key(|(key, ..)| *key));
    told
}

proptest! {
    #[test]
    fn a_window_join_tells_of_all_pairs_of_each_window(groups in streams(any::<Sided>()), options in options(), size in prop_oneof![8 => 1..20i64, 1 => Just(i64::MAX)]) {
        let options = Options { upper: size, ..options };
        let found = match (options.left, options.right) {
            (false, false) => join_windows::<false, false>(&groups, options),
            (false, true) => join_windows::<false, true>(&groups, options),
            (true, false) => join_windows::<true, false>(&groups, options),
            (true, true) => join_windows::<true, true>(&groups, options),
        };
        prop_assert_eq!(found, window_model(&groups, options));
    }
}

/// Runs the join, and checks that a window is open as long as it must be.
fn join_windows<const LEFT: bool, const RIGHT: bool>(groups: &[Group<Sided>], options: Options) -> Vec<Told> {
    run_in_all_ways::<Window<LEFT, RIGHT>, _>(&options.config(), groups, to_record, |index, harness| {
        for key in 0..3u8 {
            let open = harness.state_map::<i64, (i64, u64, u64)>("join-open", [key]);
            assert!(open.iter().all(|(last, _)| *last > groups[index].watermark), "a window is over and still open");
            let timers = harness.timers(crate::TimeDomain::EventTime, [key]);
            assert!(timers.iter().map(|timer| timer.0).eq(open.iter().map(|(last, _)| *last)), "a timer for each open window");
        }
    })
}

#[test]
fn more_than_fits_one_step_is_joined_in_several() {
    let mut near = Harness::<Near<true, true>>::new().config(r#"{"lower": 0, "upper": 5000, "left": true, "right": true}"#);
    near.process((0..1000).map(|n| to_record(&(1, 1000, (true, n))))).unwrap();
    let out = near.process([to_record(&(1, 2000, (false, 7)))]).unwrap();
    assert_eq!(out.len(), 1000);
    assert!(out.texts().iter().enumerate().all(|(n, text)| *text == format!("{n}@1000 and 7@2000")), "as they came");
    near.process((0..1000).map(|n| to_record(&(2, i64::from(n), (true, n))))).unwrap();
    let out = near.finish().unwrap();
    assert_eq!(out.len(), 1000, "those of the other key had no partner");
    near.assert_nothing_left();
}

#[test]
fn a_bad_declaration_or_record_is_named() {
    let error =
        |config: &str| Harness::<Near<true, true>>::new().config(config).process([record("1").key("k").time_ms(1)]).unwrap_err();
    assert_eq!(
        error(r#"{"lower": 2, "upper": 1, "left": true, "right": true}"#).message(),
        "join \"join\": the bound 2 is above 1"
    );
    let mut near = Harness::<Near<true, true>>::new().config(r#"{"lower": 0, "upper": 1, "left": true, "right": true}"#);
    let untimed = near.process([record("1").key("k")]).unwrap_err();
    assert_eq!(untimed.message(), "\"join\" got a record without an event time");
    let window =
        Harness::<Window<true, true>>::new().config(r#"{"lower": 0, "upper": 0, "left": true, "right": true}"#).process([]);
    assert!(window.is_ok(), "nothing is opened for nothing");
    let window = Harness::<Window<true, true>>::new()
        .config(r#"{"lower": 0, "upper": 0, "left": true, "right": true}"#)
        .open()
        .unwrap_err();
    assert_eq!(window.message(), "join \"join\": a window of 0 ms");
}
