use super::*;
use crate::subtask::AlignmentGroup;
use crate::time::ProcessingTime;

fn at_ms(ms: u64) -> Now {
    Now { monotonic_us: ms * 1000, processing_time: ProcessingTime(0) }
}

fn time(splits: usize, idle_timeout_ms: Option<u64>, restored: Option<i64>) -> SourceTime {
    let strategy = WatermarkStrategy { idle_timeout_ms, ..WatermarkStrategy::out_of_orderness(4) };
    SourceTime::new(Some(strategy), splits, None, restored.map(|ms| Watermark(EventTime(ms))))
}

fn watermark(ms: i64) -> Option<StreamElement> {
    Some(StreamElement::Watermark(Watermark(EventTime(ms))))
}

fn read(time: &mut SourceTime, split: usize, ms: i64) {
    time.records(split, Some(EventTime(ms)), None);
}

#[test]
fn the_split_that_is_furthest_behind_decides() {
    let mut time = time(2, None, None);
    read(&mut time, 0, 100);
    assert_eq!(time.due(at_ms(0), true), None, "split 1 has said nothing");
    read(&mut time, 1, 50);
    assert_eq!(time.due(at_ms(0), true), watermark(45), "4 ms out of order, and 50 itself may come again");
    read(&mut time, 1, 40);
    assert_eq!(time.due(at_ms(100), true), None);
    read(&mut time, 1, 300);
    assert_eq!(time.due(at_ms(20), false), None, "not so soon after the last");
    assert_eq!(time.due(at_ms(50), false), watermark(95));
    time.finished(0);
    assert_eq!(time.due(at_ms(100), false), watermark(295), "what is finished does not count");
}

#[test]
fn a_split_is_idle_once_it_has_been_at_its_end_for_long_enough() {
    let mut time = time(2, Some(1000), None);
    read(&mut time, 0, 100);
    time.at_end(1, at_ms(10));
    assert_eq!(time.due(at_ms(1009), true), None);
    assert_eq!(time.idle_in_ms(at_ms(1009)), Some(1));
    assert_eq!(time.due(at_ms(1010), true), watermark(95), "it has never had a record");
    time.at_end(0, at_ms(2000));
    assert_eq!(time.due(at_ms(3000), true), Some(StreamElement::Idle));
    assert_eq!(time.due(at_ms(4000), true), None, "said once");
    assert_eq!(time.idle_in_ms(at_ms(4000)), None);
    read(&mut time, 1, 20);
    assert!(time.wake(), "those downstream hear of it before the records");
    assert!(!time.wake());
    assert_eq!(time.due(at_ms(5000), true), None, "the watermark does not go back");
    read(&mut time, 1, 200);
    assert_eq!(time.due(at_ms(5000), true), watermark(195), "split 0 is still idle");
}

#[test]
fn silence_alone_is_not_idleness() {
    let mut time = time(2, Some(0), None);
    read(&mut time, 0, 100);
    assert_eq!(time.due(at_ms(1_000_000), true), None, "split 1 may be slow");
    let mut patient = self::time(1, None, None);
    patient.at_end(0, at_ms(0));
    assert_eq!(patient.due(at_ms(u64::MAX / 2000), true), None, "without a timeout, its end is waited for");
}

#[test]
fn a_restored_source_is_idle_again_by_what_its_reader_says() {
    let mut time = time(1, Some(100), Some(95));
    assert_eq!(time.due(at_ms(0), true), None, "what it was before does not count");
    time.at_end(0, at_ms(0));
    assert_eq!(time.due(at_ms(100), true), Some(StreamElement::Idle));
    assert_eq!(time.watermark(), Some(Watermark(EventTime(95))));
    read(&mut time, 0, 90);
    assert!(time.wake());
    assert_eq!(time.due(at_ms(200), true), None, "what was late is late");
    read(&mut time, 0, 101);
    assert_eq!(time.due(at_ms(300), true), watermark(96));
}

#[test]
fn records_without_event_time_hold_nobody_back() {
    let mut time = SourceTime::new(None, 1, None, None);
    assert_eq!(time.due(at_ms(0), false), Some(StreamElement::Idle));
    time.records(0, None, None);
    assert!(!time.wake());
    assert_eq!(time.due(at_ms(100), true), None);
    assert_eq!(time.activity(), SourceActivity::Untimed);
}

#[test]
fn records_may_say_themselves_how_far_a_split_is() {
    let strategy = WatermarkStrategy { progress: Progress::Declared, ..WatermarkStrategy::out_of_orderness(0) };
    let mut time = SourceTime::new(Some(strategy), 1, None, None);
    time.records(0, Some(EventTime(100)), None);
    assert_eq!(time.due(at_ms(0), true), None);
    time.records(0, Some(EventTime(200)), Some(EventTime(70)));
    assert_eq!(time.due(at_ms(0), true), watermark(70));
}

#[test]
fn a_source_that_waits_for_its_group_is_not_idle() {
    let group = AlignmentGroup::new(2);
    let strategy = WatermarkStrategy { idle_timeout_ms: Some(10), ..WatermarkStrategy::out_of_orderness(0) };
    let mut fast = SourceTime::new(Some(strategy.clone()), 1, Some(group.member(0, 50)), None);
    let mut slow = SourceTime::new(Some(strategy), 1, Some(group.member(1, 50)), None);
    read(&mut slow, 0, 11);
    assert_eq!(slow.due(at_ms(0), true), watermark(10));
    read(&mut fast, 0, 100);
    assert_eq!(fast.due(at_ms(0), true), watermark(99));
    assert!(fast.is_ahead() && !slow.is_ahead());
    assert_eq!(fast.due(at_ms(10_000), true), None);
    assert_eq!(fast.activity(), SourceActivity::Ahead { group: EventTime(10), max_drift_ms: 50 });
    slow.at_end(0, at_ms(100));
    assert_eq!(slow.due(at_ms(110), true), Some(StreamElement::Idle));
    assert!(!fast.is_ahead(), "who is idle is not waited for");
    slow.wake();
    read(&mut slow, 0, 20);
    slow.due(at_ms(200), true);
    assert!(fast.is_ahead(), "and is again once it goes on");
    slow.end();
    assert!(!fast.is_ahead());
}

#[test]
fn a_report_begins_with_the_splits_that_hold_back() {
    let mut time = time(3, Some(10), None);
    let position = |split: &str| SplitPosition {
        split: split.into(),
        position: Vec::new(),
        finished: false,
        display: format!("{split} here"),
    };
    read(&mut time, 0, 100);
    read(&mut time, 1, 50);
    time.at_end(1, at_ms(0));
    let (splits, count) = time.report(&["a", "b", "c"].map(position), at_ms(500));
    assert_eq!(count, 3);
    assert_eq!(splits.iter().map(|split| split.split.as_str()).collect::<Vec<_>>(), ["c", "a", "b"]);
    assert_eq!((splits[2].idle, splits[2].at_end_ms, splits[2].latest), (true, Some(500), Some(EventTime(50))));
}

#[test]
fn before_its_end_a_source_says_how_far_it_came() {
    let mut time = time(2, None, None);
    assert_eq!(time.last(), None);
    read(&mut time, 0, 100);
    read(&mut time, 1, 50);
    assert_eq!(time.due(at_ms(0), true), watermark(45));
    assert_eq!(time.last(), Some(Watermark(EventTime(100))), "nothing follows, late or not");
    assert_eq!(time.last(), None);
    time.end();
    assert_eq!(time.watermark(), Some(Watermark::MAX));
}

#[test]
fn when_all_splits_are_idle_it_does_not_matter_which_was_first() {
    for order in [[0, 1], [1, 0]] {
        let mut time = time(2, Some(10), None);
        read(&mut time, 0, 100);
        read(&mut time, 1, 50);
        assert_eq!(time.due(at_ms(0), true), watermark(45));
        time.at_end(order[0], at_ms(0));
        time.at_end(order[1], at_ms(5));
        let mut due = Vec::new();
        for ms in [10, 15, 16, 17] {
            due.extend(time.due(at_ms(ms), true));
        }
        assert_eq!(due, [watermark(95), Some(StreamElement::Idle)].map(Option::unwrap), "{order:?}");
    }
}

#[test]
fn a_restored_source_that_had_ended_waits_for_nobody() {
    let group = AlignmentGroup::new(2);
    let restored = |index, watermark| {
        let strategy = WatermarkStrategy::out_of_orderness(0);
        SourceTime::new(Some(strategy), 1, Some(group.member(index, 50)), Some(watermark))
    };
    let (ended, ahead) = (restored(0, Watermark::MAX), restored(1, Watermark(EventTime(500))));
    assert!(!ended.is_ahead() && !ahead.is_ahead());
    let behind = restored(0, Watermark(EventTime(10)));
    assert!(ahead.is_ahead() && !behind.is_ahead(), "where they were counts from the start");
}
