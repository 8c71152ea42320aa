//! Tells of rides that have no end within two hours, by hand: one value and one timer for each ride.
//!
//! Start and end may come in any order, and either may be missing. Of each ride the half that came first is kept until the
//! other comes, or until it is certain that it will not: for an end, when the watermark has passed it, and for a start, after
//! two hours.

use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The configuration, with its defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    limit_ms: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { limit_ms: 7_200_000 }
    }
}

/// An input line, beside its ride and its time.
#[derive(Deserialize)]
struct Event {
    kind: Kind,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Start,
    End,
}

/// The half of a ride that came first, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Half {
    Start(i64),
    End(i64),
}

/// An output line.
#[derive(Serialize)]
struct Alert<'a> {
    ride: &'a str,
    started: i64,
}

/// The operator.
pub struct Alerts {
    half: Value<Half>,
    timers: Timers,
    late: OutputPort,
    limit_ms: i64,
}

impl Alerts {
    /// When a half is of no use any more.
    fn due(&self, half: Half) -> i64 {
        match half {
            Half::Start(at) => at.saturating_add(self.limit_ms),
            Half::End(at) => at,
        }
    }

    /// The alert has the time at which it is due, whenever it is known: so it does not matter which half came first.
    fn alert(&self, started: i64, cx: &mut Context<'_>) -> Result<(), Error> {
        let alert = Alert { ride: cx.key_text()?, started };
        cx.out().keep_key().time_ms(self.due(Half::Start(started))).send_json(&alert)
    }
}

impl Operator for Alerts {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("alerts");
        let late = declare.output("late");
        Alerts { half: declare.value("half"), timers: declare.event_timers(), late, limit_ms: 0 }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        if config.limit_ms < 1 {
            return Err(Error::permanent("`limit_ms` must be more than nothing"));
        }
        self.limit_ms = config.limit_ms;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let at = cx.event_time_ms().ok_or_else(|| Error::permanent("an event has no time"))?;
        if cx.watermark_ms().is_some_and(|watermark| at <= watermark) {
            // Its other half may have been forgotten.
            return cx.out_to(self.late).keep_key().send_bytes(record.bytes());
        }
        let new = match record.json::<Event>()?.kind {
            Kind::Start => Half::Start(at),
            Kind::End => Half::End(at),
        };
        let (started, ended, old) = match (self.half.get(cx)?, new) {
            (Some(old @ Half::Start(started)), Half::End(ended)) | (Some(old @ Half::End(ended)), Half::Start(started)) => {
                (started, ended, old)
            }
            // A repetition.
            (Some(_), _) => return Ok(()),
            (None, _) => {
                self.half.set(cx, new);
                self.timers.set(cx, self.due(new));
                return Ok(());
            }
        };
        self.half.delete(cx);
        self.timers.delete(cx, self.due(old));
        if ended > self.due(Half::Start(started)) { self.alert(started, cx) } else { Ok(()) }
    }

    fn on_timer(&mut self, _: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let half = self.half.get(cx)?;
        self.half.delete(cx);
        match half {
            Some(Half::Start(started)) => self.alert(started, cx),
            Some(Half::End(_)) | None => Ok(()),
        }
    }
}

export!(Alerts);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn event(ride: &str, kind: &str, at: i64) -> TestRecord {
        record(format!(r#"{{"kind": "{kind}"}}"#)).key(ride).time_ms(at)
    }

    #[test]
    fn a_ride_without_an_end_is_told_of_after_two_hours() {
        let mut alerts = Harness::<Alerts>::new();
        let events = [event("1", "start", 0), event("2", "start", 10), event("2", "end", HOUR)];
        assert!(alerts.process(events).unwrap().is_empty());
        assert!(alerts.advance_watermark(2 * HOUR - 1).unwrap().is_empty());
        let out = alerts.advance_watermark(2 * HOUR).unwrap();
        assert_eq!(out.texts(), [r#"{"ride":"1","started":0}"#]);
        alerts.assert_nothing_left();
        alerts.process([event("1", "end", 3 * HOUR)]).unwrap();
        assert!(alerts.advance_watermark(3 * HOUR).unwrap().is_empty(), "an end that comes after the alert");
        alerts.assert_nothing_left();
    }

    #[test]
    fn the_order_of_start_and_end_does_not_matter() {
        let long = [event("1", "start", 5), event("1", "end", 2 * HOUR + 6)];
        let short = [event("2", "start", 5), event("2", "end", 2 * HOUR + 5)];
        let mut swapped = long.clone();
        swapped.reverse();
        for events in [long, swapped] {
            let mut alerts = Harness::<Alerts>::new();
            let out = alerts.process(events).unwrap();
            assert_eq!(out.texts(), [r#"{"ride":"1","started":5}"#]);
            assert_eq!(out[0].time_ms(), Some(2 * HOUR + 5));
            assert!(alerts.process(short.clone().into_iter().rev()).unwrap().is_empty());
            alerts.assert_nothing_left();
        }
    }

    #[test]
    fn half_a_ride_is_not_kept_for_ever() {
        let mut alerts = Harness::<Alerts>::new();
        alerts.process([event("1", "end", 100), event("2", "start", 100), event("2", "start", 300)]).unwrap();
        assert!(alerts.advance_watermark(100).unwrap().is_empty());
        assert_eq!(alerts.keys("half"), [b"2"], "no start of an earlier time will come");
        let out = alerts.process([event("1", "start", 100)]).unwrap();
        assert_eq!(out.of_port("late").len(), 1);
        assert_eq!(alerts.finish().unwrap().len(), 1);
        alerts.assert_nothing_left();
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let kind = |i: i64| if i % 2 == 0 { "start" } else { "end" };
        let records = (0..60).map(|i| event(["1", "2", "3"][i as usize / 20], kind(i / 3), i * 7919 % 40 * HOUR / 10));
        Harness::<Alerts>::new().assert_batch_independent(records);
    }
}
