//! What is forgotten is named.

use super::*;
use crate::TimeDomain;
use crate::patterns::{Dedup, IntervalJoin, Sequence, Silence, Sorter, Steps, TopN, WindowJoin};
use crate::prelude::*;
use crate::testing::record;

/// All parts in one operator, none of them configured.
struct All {
    interval: IntervalJoin<u8, u8>,
    window: WindowJoin<u8, u8>,
    dedup: Dedup<u8>,
    top: TopN<u8, u8>,
    silence: Silence,
    sequence: Sequence<u8>,
    sorter: Sorter<u8>,
}

impl Operator for All {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self {
            interval: declare.interval_join("interval"),
            window: declare.window_join("window"),
            dedup: declare.dedup("dedup"),
            top: declare.top_n("top"),
            silence: declare.silence("silence", TimeDomain::EventTime),
            sequence: declare.sequence("sequence"),
            sorter: declare.sorter("sorter"),
        }
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        match record.text()? {
            "interval" => self.interval.left(cx, 1, |_, _| Ok(())).map(drop),
            "window" => self.window.left(cx, 1).map(drop),
            "dedup" => self.dedup.see(cx, 1).map(drop),
            "top" => self.top.offer(cx, 1, 1).map(drop),
            "silence" => self.silence.event(cx).map(drop),
            "sequence" => self.sequence.add(cx, 1).map(drop),
            "configure" => {
                self.interval.between(-5, 5)?;
                self.window.tumbling(10)?;
                self.dedup.for_ms(10)?;
                self.silence.after_ms(10)?;
                self.sequence.of(Steps::begin(|_| true).followed_by(|_, _| true).within_ms(10))
            }
            _ => self.sorter.add(cx, 1).map(drop),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let taken = [
            self.interval.on_timer(timer, cx, |_, _| Ok(()))?,
            self.window.on_timer(timer, cx, |_, _, _| Ok(()))?,
            self.dedup.on_timer(timer, cx)?,
            self.silence.on_timer(timer, cx, |_, _| Ok(()))?,
            self.sequence.on_timer(timer, cx, |_, _| Ok(()))?,
            self.sorter.on_timer(timer, cx, |_, _| Ok(()))?,
        ];
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "a timer belongs to one part");
        Ok(())
    }
}

#[test]
fn a_part_without_its_setting_says_so() {
    let errors = ["interval", "window", "dedup", "top", "silence"].map(|part| {
        let error = Harness::<All>::new().process([record(part).key("k").time_ms(1)]).unwrap_err();
        error.message().to_owned()
    });
    assert_eq!(
        errors,
        [
            "join \"interval\" has no bounds: set them in `configure`",
            "join \"window\" has no windows: set their length in `configure`",
            "deduplication \"dedup\" has no time to live: set it in `configure`",
            "the top of \"top\" has no length: set it in `configure`",
            "silence \"silence\" has no limit: set it in `configure`",
        ]
    );
    let mut all = Harness::<All>::new();
    all.process([record("sequence").key("k").time_ms(1)]).unwrap();
    let error = all.advance_watermark(5).unwrap_err();
    assert_eq!(error.message(), "sequence \"sequence\" has no steps: set them in `configure`");
}

#[test]
fn parts_of_one_operator_do_not_meet() {
    let mut all = Harness::<All>::new();
    let parts = ["configure", "interval", "window", "dedup", "silence", "sequence", "sorter"];
    all.process(parts.map(|part| record(part).key("k").time_ms(3))).unwrap();
    assert_eq!(all.timers(TimeDomain::EventTime, "k").len(), 6);
    all.finish().unwrap();
    all.assert_nothing_left();
}

#[test]
#[should_panic(expected = "have state left in \"sorter")]
fn what_is_left_is_named() {
    let mut all = Harness::<All>::new();
    all.process([record("sorter").key("k").time_ms(3)]).unwrap();
    all.assert_nothing_left();
}
