//! First records against a list of all first records.

use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;

use super::{Group, Told, run_in_all_ways, streams};
use crate::patterns::{Dedup, RecentlySeen, Seen};
use crate::prelude::*;
use crate::testing::{Harness, record};

#[derive(Deserialize)]
struct Options {
    ttl: i64,
}

struct Firsts(Dedup<String>);

impl Operator for Firsts {
    type Config = Options;

    fn declare(declare: &mut Declare) -> Self {
        Self(declare.dedup("ids"))
    }

    fn configure(&mut self, options: Options, _: &InstanceInfo) -> Result<(), Error> {
        self.0.for_ms(options.ttl)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let seen = self.0.see(cx, record.text()?.to_owned())?;
        cx.out().keep_key().send_fmt(format_args!("{seen:?} {}", record.text()?))
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        assert!(self.0.on_timer(timer, cx)?);
        Ok(())
    }
}

fn model(groups: &[Group<u8>], ttl: i64) -> Vec<Told> {
    let mut told = vec![Told::default(); groups.len() + 1];
    let (mut watermark, mut firsts) = (None, Vec::<(u8, i64, u8)>::new());
    for (group, told) in groups.iter().zip(&mut told) {
        for (key, time, id) in &group.events {
            let is_near =
                |first: &(u8, i64, u8)| (first.0, first.2) == (*key, *id) && first.1.abs_diff(*time) < ttl.cast_unsigned();
            let seen = match firsts.iter().any(is_near) {
                _ if Some(*time) <= watermark => Seen::Late,
                true => Seen::Again,
                false => Seen::First,
            };
            if seen == Seen::First {
                firsts.push((*key, *time, *id));
            }
            told[0].push((*key, *time, format!("{seen:?} id-{id}")));
        }
        told[0].sort_by_key(|told| told.0);
        watermark = Some(group.watermark);
    }
    told
}

proptest! {
    #[test]
    fn repetitions_are_known_for_the_time_to_live(groups in streams(0..4u8), ttl in prop_oneof![8 => 1..25i64, 1 => Just(i64::MAX)]) {
        let to_record = |(key, time, id): &(u8, i64, u8)| record(format!("id-{id}")).key([*key]).time_ms(*time);
        let found = run_in_all_ways::<Firsts, _>(&format!(r#"{{"ttl": {ttl}}}"#), &groups, to_record, |index, harness| {
            for key in 0..3u8 {
                let ids = harness.state_map::<(String, i64), ()>("ids", [key]);
                assert!(ids.iter().all(|((_, time), ())| time.saturating_add(ttl - 1) > groups[index].watermark), "kept for too long");
                assert_eq!(ids.len(), harness.state_map::<(i64, String), ()>("ids-times", [key]).len());
            }
        });
        prop_assert_eq!(found, model(&groups, ttl));
    }
}

#[test]
fn many_ids_are_forgotten_in_several_steps() {
    let mut firsts = Harness::<Firsts>::new().config(r#"{"ttl": 10}"#);
    let out = firsts.process((0..1500).map(|n| record(format!("{n}")).key("k").time_ms(n % 3))).unwrap();
    assert!(out.texts().iter().all(|text| text.starts_with("First")));
    assert_eq!(firsts.advance_watermark(8).unwrap().len(), 0);
    assert_eq!(firsts.state_map::<(String, i64), ()>("ids", "k").len(), 1500);
    firsts.advance_watermark(9).unwrap();
    assert_eq!(firsts.state_map::<(String, i64), ()>("ids", "k").len(), 1000);
    firsts.advance_watermark(11).unwrap();
    firsts.assert_nothing_left();
}

struct Recent(RecentlySeen<String>);

impl Operator for Recent {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self(declare.recently_seen("ids", Duration::from_millis(100)))
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        if self.0.is_first(cx, record.text()?)? { cx.emit_bytes(record.bytes()) } else { Ok(()) }
    }
}

#[test]
fn by_the_clock_an_id_is_known_from_its_first_record_on() {
    let mut recent = Harness::<Recent>::new();
    let mut at = |now: i64, ids: &[&str]| {
        recent.processing_time_ms(now);
        let out = recent.process(ids.iter().map(|id| record(id).key("k"))).unwrap();
        out.texts().join(" ")
    };
    assert_eq!(at(1000, &["a", "b", "a"]), "a b");
    assert_eq!(at(1050, &["b", "c"]), "c");
    assert_eq!(at(1100, &["a", "c", "a"]), "a", "repetitions do not renew it");
    assert_eq!(at(1250, &[]), "");
    recent.assert_nothing_left();
    Harness::<Recent>::new().assert_batch_independent(["a", "b", "a", "c", "b"].map(|id| record(id).key("k")));
}
