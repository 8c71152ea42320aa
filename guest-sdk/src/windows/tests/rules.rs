//! What is refused, what is stored, and what a new version with other settings finds.

use std::time::Duration;

use super::probe::{All, Kind, Probe, Row, Settings};
use crate::declare::TimeDomain;
use crate::prelude::*;
use crate::testing::{Harness, TestRecord, record};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(time: i64) -> TestRecord {
    record("1").key([0]).time_ms(time)
}

/// The windows that fired, each with how many records it has.
fn windows(outputs: &crate::testing::Outputs) -> Vec<(i64, i64, u64)> {
    let row = |row: Row| (row.window.0, row.window.1, row.records);
    outputs.of_port("out").decode::<Row>().into_iter().map(row).collect()
}

#[test]
fn windows_that_make_no_sense_are_named() {
    let error = |windowing: Windowing| {
        let mut windows: Windows<All> = Declare::default().windows("sums");
        windows.configure(&windowing).unwrap_err().message().to_owned()
    };
    let tumbling = || Windowing::tumbling(ms(10));
    let expected = [
        (Windowing::tumbling(ms(0)), "the size of windows is 1 ms to 9007199254740992 ms, not 0 ms"),
        (Windowing::session(Duration::MAX), "the gap of windows is 1 ms to 9007199254740992 ms, not 18446744073709551615999 ms"),
        (tumbling().lateness(Duration::from_micros(1)), "the lateness of windows is 1 ms to 9007199254740992 ms, not 0 ms"),
        (
            Windowing::sliding(ms(10), ms(11)),
            "a slide of 11 ms is more than the windows' size of 10 ms: records between them would be in none",
        ),
        (Windowing::sliding(ms(9000), ms(7)), "windows of 9000 ms every 7 ms are made of 9000 panes of 1 ms, over 4096"),
        (Windowing::session(ms(1)).offset_ms(0), "only tumbling and sliding windows have an offset"),
        (Windowing::global().processing_time(), "global windows have no clock"),
        (Windowing::global().lateness(ms(1)), "global windows have no end, so no lateness"),
        (tumbling().processing_time().lateness(ms(1)), "windows in processing time have no lateness: no record is late"),
        (tumbling().late_every(2), "late firings need a lateness"),
        (Windowing::sliding(ms(10), ms(5)).lateness(ms(1)).late_every(2), "sliding windows fire with each late record"),
        (tumbling().early_every(2).purging(), "only global windows are purged when they fire early"),
        (Windowing::global().purging(), "purging needs a number of records after which to fire"),
        (tumbling().early_every(0), "windows cannot fire after every 0 records"),
        (
            tumbling().early_every_event_time(ms(1)).early_every_processing_time(ms(1)),
            "windows fire early by one interval, not by several",
        ),
        (
            tumbling().processing_time().early_every_event_time(ms(1)),
            "windows in processing time cannot fire early by event time",
        ),
        (
            tumbling().early_every_event_time(ms(0)),
            "the interval of early firings of windows is 1 ms to 9007199254740992 ms, not 0 ms",
        ),
    ];
    for (windowing, text) in expected {
        assert_eq!(error(windowing), format!("windows \"sums\": {text}"));
    }
}

/// Windows that nobody ever said anything of.
struct Unset(Windows<All>);

impl Operator for Unset {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self(declare.windows("sums"))
    }

    fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        self.0.add(cx, 1, |_, _| Ok(()))?.or_drop();
        Ok(())
    }
}

#[test]
fn windows_that_were_not_configured_say_so() {
    let error = Harness::<Unset>::new().process([at(0)]).unwrap_err();
    assert_eq!(error.message(), "nobody has said what the windows \"sums\" are: call `configure`, or `with`");
}

#[test]
fn a_record_without_a_time_is_an_error_that_names_the_windows() {
    let error = Settings::default().harness::<32>().process([record("1").key([0])]).unwrap_err();
    assert_eq!(error.message(), "a record for the windows \"all\" has no event time");
    let global = Settings { kind: Kind::Global { purging: false }, ..Settings::default() };
    let mut global = global.harness::<32>();
    global.process([record("1").key([0])]).unwrap();
    assert_eq!(windows(&global.finish().unwrap()), [(i64::MIN, i64::MAX, 1)]);
}

#[test]
fn slots_and_timers_do_not_depend_on_the_configuration() {
    let harness = Harness::<Probe<32>>::new();
    let names: Vec<_> = harness.descriptor().slots.iter().map(|slot| slot.name.as_str()).collect();
    assert_eq!(names, ["all", "all-panes", "kept", "kept-panes", "kept-records"]);
    assert_eq!(harness.descriptor().timers, [TimeDomain::EventTime, TimeDomain::ProcessingTime]);
    let schema = &harness.descriptor().slots[0].schema;
    assert!(schema.contains("span") && schema.contains("accumulator"), "{schema}");
}

#[test]
fn a_key_has_one_timer_however_many_windows_are_open() {
    let mut harness = Settings::default().harness::<32>();
    harness.process((0..20).map(|n| at(n * 10)).chain((0..20).map(|n| at(n * 10 + 3)))).unwrap();
    assert_eq!(harness.timers(TimeDomain::EventTime, [0]).iter().map(|timer| timer.0).collect::<Vec<_>>(), [9]);
    // One that opens before it moves it.
    harness.process([at(-5)]).unwrap();
    assert_eq!(harness.timers(TimeDomain::EventTime, [0]).iter().map(|timer| timer.0).collect::<Vec<_>>(), [-1]);
    let fired = windows(&harness.advance_watermark(18).unwrap());
    assert_eq!(fired, [(-10, -1, 1), (0, 9, 2)]);
    assert_eq!(harness.timers(TimeDomain::EventTime, [0]).iter().map(|timer| timer.0).collect::<Vec<_>>(), [19]);
    harness.finish().unwrap();
    harness.assert_nothing_left();
}

#[test]
fn the_newest_windows_are_at_hand_and_older_ones_are_read_when_they_are_wanted() {
    let mut harness = Settings::default().harness::<32>();
    harness.process((0..100).map(|n| at(n * 10))).unwrap();
    assert_eq!(harness.state_reads(), 0, "windows open unread");
    assert_eq!(harness.state_map::<i64, crate::windows::pane::Pane<Vec<u32>>>("all-panes", [0]).len(), 68);
    harness.process((68..100).map(|n| at(n * 10 + 1))).unwrap();
    assert_eq!(harness.state_reads(), 0);
    harness.process([at(5), at(6)]).unwrap();
    assert_eq!(harness.state_reads(), 1, "an old one is read once a call");
    let fired = windows(&harness.finish().unwrap());
    let expected: Vec<_> = (0..100).map(|n| (n * 10, n * 10 + 9, if n == 0 { 3 } else { 1 + u64::from(n >= 68) })).collect();
    assert_eq!(fired, expected);
    harness.assert_nothing_left();
}

#[test]
fn sessions_meet_before_the_gap_is_over_and_not_after() {
    let session = Settings { kind: Kind::Session { gap: 10 }, ..Settings::default() };
    let mut harness = session.harness::<32>();
    harness.process([at(0), at(10), at(19)]).unwrap();
    assert_eq!(windows(&harness.advance_watermark(28).unwrap()), [(0, 9, 1), (10, 28, 2)]);
    harness.assert_nothing_left();
}

#[test]
fn a_late_record_joins_sessions_and_the_result_is_corrected() {
    let session = Settings { kind: Kind::Session { gap: 10 }, lateness: 100, ..Settings::default() };
    let mut harness = session.harness::<32>();
    harness.process([at(0), at(15)]).unwrap();
    assert_eq!(windows(&harness.advance_watermark(50).unwrap()), [(0, 9, 1), (15, 24, 1)]);
    assert_eq!(windows(&harness.process([at(8)]).unwrap()), [(0, 24, 3)]);
    harness.finish().unwrap();
    harness.assert_nothing_left();
}

#[test]
fn open_windows_end_as_they_were_to_when_the_size_changes() {
    let mut before = Settings::default().harness::<32>();
    before.process([at(13)]).unwrap();
    let larger = Settings { kind: Kind::Aligned { size: 100, slide: 100, offset: 0 }, ..Settings::default() };
    let mut after = before.config(&serde_json::to_string(&larger).unwrap());
    after.restart();
    after.process([at(14)]).unwrap();
    assert_eq!(windows(&after.advance_watermark(200).unwrap()), [(10, 19, 1), (0, 99, 1)]);
    after.assert_nothing_left();
}

#[test]
fn timers_of_another_clock_are_set_anew_when_they_fire() {
    let mut before = Settings::default().harness::<32>();
    before.process([at(13)]).unwrap();
    let by_clock = Settings { processing: true, ..Settings::default() };
    let mut after = before.config(&serde_json::to_string(&by_clock).unwrap());
    after.restart();
    assert!(after.advance_watermark(19).unwrap().is_empty());
    assert_eq!(windows(&after.advance_processing_time(20).unwrap()), [(10, 19, 1)]);
    after.finish().unwrap();
    after.assert_nothing_left();
}

#[test]
fn less_lateness_than_before_leaves_nothing_behind() {
    let mut before = Settings { lateness: 1000, ..Settings::default() }.harness::<32>();
    before.process([at(13)]).unwrap();
    assert_eq!(windows(&before.advance_watermark(19).unwrap()).len(), 1);
    let mut after = before.config(&serde_json::to_string(&Settings::default()).unwrap());
    after.restart();
    assert!(windows(&after.finish().unwrap()).is_empty(), "it has fired");
    after.assert_nothing_left();
}
