//! Sequences against a walk over the sorted events, from each that begins one.

use proptest::prelude::*;
use serde::Deserialize;

use super::{Group, Told, on_time, reached, run_in_all_ways, streams};
use crate::call::Limits;
use crate::patterns::{Found, Sequence, Steps, Timed};
use crate::prelude::*;
use crate::testing::{Harness, record};

#[derive(Clone, Copy, Debug, Deserialize)]
struct Options {
    within: i64,
    /// Whether the second and the third event must come next.
    strict: [bool; 2],
    /// 1 to 3 events.
    length: usize,
}

struct Rising(Sequence<u8>);

/// Begins with a small number; each that follows is larger than the one before.
fn fits(event: u8, so_far: &[u8]) -> bool {
    so_far.last().map_or(event < 4, |last| event > *last)
}

fn values(events: &[Timed<u8>]) -> Vec<u8> {
    events.iter().map(|event| event.value).collect()
}

impl Operator for Rising {
    type Config = Options;

    fn declare(declare: &mut Declare) -> Self {
        Self(declare.sequence("rising"))
    }

    fn configure(&mut self, options: Options, _: &InstanceInfo) -> Result<(), Error> {
        let mut steps = Steps::begin(|event| fits(*event, &[])).within_ms(options.within);
        for is_next in &options.strict[..options.length - 1] {
            let fits = |event: &u8, so_far: &[Timed<u8>]| fits(*event, &values(so_far));
            steps = if *is_next { steps.next(fits) } else { steps.followed_by(fits) };
        }
        self.0.of(steps)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match self.0.add(cx, record.bytes()[0])? {
            Some(_) => cx.out().keep_key().send_bytes("late"),
            None => Ok(()),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let is_own = self.0.on_timer(timer, cx, |found, cx| match found {
            Found::Complete(events) => cx.out().keep_key().send_fmt(format_args!("{:?}", values(events))),
            Found::TimedOut(events) => cx.out().keep_key().send_fmt(format_args!("{:?} and no more", values(events))),
        })?;
        assert!(is_own);
        Ok(())
    }
}

fn model(groups: &[Group<u8>], options: Options) -> Vec<Told> {
    let mut told = vec![Told::default(); groups.len() + 1];
    let mut watermark = None;
    for (group, told) in groups.iter().zip(&mut told) {
        let late = group.events.iter().filter(|event| Some(event.1) <= watermark);
        told[0].extend(late.map(|(key, time, _)| (*key, *time, "late".to_owned())));
        watermark = Some(group.watermark);
    }
    for key in 0..3 {
        let mut events: Vec<_> = on_time(groups).into_iter().map(|(_, event)| event).filter(|event| event.0 == key).collect();
        events.sort_by_key(|event| event.1);
        for (index, (_, start, first)) in events.iter().enumerate().filter(|(_, event)| fits(event.2, &[])) {
            let deadline = start.saturating_add(options.within);
            let (mut so_far, mut is_broken, mut end) = (vec![*first], false, *start);
            for (_, time, event) in events[index + 1..].iter().filter(|event| event.1 <= deadline) {
                if so_far.len() == options.length || is_broken {
                    break;
                }
                if fits(*event, &so_far) {
                    so_far.push(*event);
                    end = *time;
                } else {
                    is_broken = options.strict[so_far.len() - 1];
                }
            }
            if so_far.len() == options.length {
                told[reached(groups, end)][1].push((key, end, format!("{so_far:?}")));
            } else if !is_broken {
                told[reached(groups, deadline)][1].push((key, deadline, format!("{so_far:?} and no more")));
            }
        }
    }
    super::sorted(told)
}

proptest! {
    #[test]
    fn sequences_are_those_of_the_sorted_events(
        groups in streams(0..10u8),
        within in prop_oneof![8 => 0..30i64, 1 => Just(i64::MAX)],
        strict in any::<[bool; 2]>(),
        length in 1..4usize,
    ) {
        let options = Options { within, strict, length };
        let config = format!(r#"{{"within": {within}, "strict": {strict:?}, "length": {length}}}"#);
        let to_record = |(key, time, event): &(u8, i64, u8)| record([*event]).key([*key]).time_ms(*time);
        let found = run_in_all_ways::<Rising, _>(&config, &groups, to_record, |index, harness| {
            for key in 0..3u8 {
                let begun = harness.state_map::<(i64, u64), Vec<Timed<u8>>>("rising-begun", [key]);
                assert!(begun.iter().all(|((first, _), _)| first.saturating_add(within) > groups[index].watermark), "kept for too long");
                assert!(harness.timers(crate::TimeDomain::EventTime, [key]).len() <= 1);
            }
        });
        for told in &found {
            prop_assert!(told[1].is_sorted_by_key(|(key, time, _)| (*key, *time)));
        }
        prop_assert_eq!(super::sorted(found), model(&groups, options));
    }
}

#[test]
fn many_events_are_handled_in_several_steps_and_many_sequences_end_together() {
    let mut rising = Harness::<Rising>::new().config(r#"{"within": 5000, "strict": [false, false], "length": 2}"#);
    rising.process((0..900).map(|n| record([3]).key("k").time_ms(n))).unwrap();
    assert_eq!(rising.advance_watermark(899).unwrap().len(), 0);
    rising.process([record([2]).key("k").time_ms(1000), record([9]).key("k").time_ms(1001)]).unwrap();
    let out = rising.advance_watermark(1001).unwrap();
    assert_eq!(out.len(), 901);
    assert!(out.texts()[..900].iter().all(|text| *text == "[3, 9]"));
    rising.assert_nothing_left();
}

#[test]
fn what_times_out_together_takes_several_calls() {
    let limits = Limits { output_records: 512, ..Limits::default() };
    let mut rising = Harness::<Rising>::new().config(r#"{"within": 5000, "strict": [false, false], "length": 2}"#).limits(limits);
    rising.process((0..2000).map(|n| record([3]).key("k").time_ms(n))).unwrap();
    assert_eq!(rising.advance_watermark(1999).unwrap().len(), 0);
    let out = rising.advance_watermark(6998).unwrap();
    assert!(out.iter().map(|out| out.time_ms().unwrap()).eq(5000..6999), "in order");
    rising.process([record([9]).key("k").time_ms(6999), record([3]).key("k").time_ms(7000)]).unwrap();
    assert_eq!(rising.finish().unwrap().texts(), ["[3, 9]", "[3] and no more"]);
    rising.assert_nothing_left();
}
