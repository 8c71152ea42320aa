//! Silences against the sorted times of all events.

use proptest::prelude::*;
use serde::Deserialize;

use super::{Group, Told, on_time, reached, run_in_all_ways, streams};
use crate::TimeDomain;
use crate::patterns::{Silence, Span};
use crate::prelude::*;
use crate::testing::{Harness, record};

#[derive(Deserialize)]
struct Options {
    limit: i64,
}

struct Quiet<const EVENT_TIME: bool>(Silence);

impl<const EVENT_TIME: bool> Operator for Quiet<EVENT_TIME> {
    type Config = Options;

    fn declare(declare: &mut Declare) -> Self {
        Self(declare.silence("busy", if EVENT_TIME { TimeDomain::EventTime } else { TimeDomain::ProcessingTime }))
    }

    fn configure(&mut self, options: Options, _: &InstanceInfo) -> Result<(), Error> {
        self.0.after_ms(options.limit)
    }

    fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        if self.0.event(cx)? { Ok(()) } else { cx.out().keep_key().send_bytes("late") }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let tell = |Span { start_ms, last_ms }, cx: &mut Context<'_>| cx.out().keep_key().send_text((start_ms, " to ", last_ms));
        assert!(self.0.on_timer(timer, cx, tell)?);
        Ok(())
    }
}

fn model(groups: &[Group<()>], limit: i64) -> Vec<Told> {
    let mut told = vec![Told::default(); groups.len() + 1];
    let mut watermark = None;
    for (group, told) in groups.iter().zip(&mut told) {
        let late = group.events.iter().filter(|event| Some(event.1) <= watermark);
        told[0].extend(late.map(|(key, time, ())| (*key, *time, "late".to_owned())));
        told[0].sort_by_key(|told| told.0);
        watermark = Some(group.watermark);
    }
    for key in 0..3 {
        let mut times: Vec<_> =
            on_time(groups).into_iter().filter(|(_, event)| event.0 == key).map(|(_, event)| event.1).collect();
        times.sort_unstable();
        let is_gap = |pair: &[i64]| pair[0].abs_diff(pair[1]) >= limit.cast_unsigned();
        for busy in times.chunk_by(|before, after| !is_gap(&[*before, *after])) {
            let (start, last) = (busy[0], busy[busy.len() - 1]);
            let due = last.saturating_add(limit);
            told[reached(groups, due)][1].push((key, due, format!("{start} to {last}")));
        }
    }
    told
}

proptest! {
    #[test]
    fn each_silence_is_told_of_once_it_is_certain(groups in streams(Just(())), limit in prop_oneof![8 => 1..25i64, 1 => Just(i64::MAX)]) {
        let to_record = |(key, time, ()): &(u8, i64, ())| record("").key([*key]).time_ms(*time);
        let found = run_in_all_ways::<Quiet<true>, _>(&format!(r#"{{"limit": {limit}}}"#), &groups, to_record, |_, harness| {
            for key in 0..3u8 {
                let (has_state, timers) = (harness.keys("busy").contains(&&[key][..]), harness.timers(TimeDomain::EventTime, [key]));
                assert_eq!(timers.len(), usize::from(has_state), "one timer, as long as there is something");
            }
        });
        prop_assert_eq!(found, model(&groups, limit));
    }
}

#[test]
fn by_the_clock_silence_is_told_of_without_any_event() {
    let mut quiet = Harness::<Quiet<false>>::new().config(r#"{"limit": 100}"#);
    quiet.advance_processing_time(1000).unwrap();
    quiet.process([record("").key("a"), record("").key("b")]).unwrap();
    assert!(quiet.advance_processing_time(1060).unwrap().is_empty());
    quiet.process([record("").key("a").time_ms(5)]).unwrap();
    let out = quiet.advance_processing_time(1100).unwrap();
    assert_eq!(out.texts(), ["1000 to 1000"]);
    assert_eq!((out[0].key(), out[0].time_ms()), (Some(&b"b"[..]), None));
    quiet.restart();
    assert!(quiet.advance_processing_time(1159).unwrap().is_empty());
    assert_eq!(quiet.advance_processing_time(1160).unwrap().texts(), ["1000 to 1060"]);
    assert!(quiet.advance_processing_time(9000).unwrap().is_empty(), "once");
    quiet.assert_nothing_left();
    quiet.process([record("").key("a")]).unwrap();
    assert_eq!(quiet.advance_processing_time(9100).unwrap().texts(), ["9000 to 9000"], "the next event arms it again");
}

#[test]
fn the_timer_is_not_moved_with_every_event() {
    let mut quiet = Harness::<Quiet<true>>::new().config(r#"{"limit": 100}"#);
    quiet.process((0..50).map(|n| record("").key("k").time_ms(n))).unwrap();
    assert_eq!(quiet.timers(TimeDomain::EventTime, "k").iter().map(|timer| timer.0).collect::<Vec<_>>(), [100]);
    assert!(quiet.advance_watermark(148).unwrap().is_empty());
    assert_eq!(quiet.advance_watermark(149).unwrap().texts(), ["0 to 49"]);
}
