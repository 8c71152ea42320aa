//! Sessions of each user, by hand: a session ends when its user has done nothing for 30 seconds of event time.
//!
//! The open sessions of a user are a map, start to (end, clicks); a timer stands where each may end. A click extends the
//! sessions that it is near enough to, and joins two when it falls between them.

use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The configuration, with its defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    gap_ms: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { gap_ms: 30_000 }
    }
}

/// An open session; its start is its key.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Session {
    end: i64,
    clicks: u64,
}

/// An output line.
#[derive(Serialize)]
struct Row<'a> {
    user: &'a str,
    start: i64,
    end: i64,
    clicks: u64,
}

/// The operator.
pub struct Sessions {
    open: Map<i64, Session>,
    ends: Timers,
    late: OutputPort,
    gap_ms: i64,
}

impl Operator for Sessions {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("sessions");
        let late = declare.output("late");
        Sessions { open: declare.map("open"), ends: declare.event_timers(), late, gap_ms: 0 }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        if !(1..=86_400_000).contains(&config.gap_ms) {
            return Err(Error::permanent("`gap_ms` must be a day at most, and more than nothing"));
        }
        self.gap_ms = config.gap_ms;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let at = cx.event_time_ms().ok_or_else(|| Error::permanent("a click has no event time"))?;
        if cx.watermark_ms().is_some_and(|watermark| at.saturating_add(self.gap_ms) <= watermark) {
            // Its session, if it had one, has been told of.
            return cx.out_to(self.late).keep_key().send_bytes(record.bytes());
        }
        let (mut start, mut merged) = (at, Session { end: at, clicks: 1 });
        let open = self.open.iter(cx).collect::<Result<Vec<_>, _>>()?;
        for (other_start, other) in open {
            if at < other.end.saturating_add(self.gap_ms) && other_start < at.saturating_add(self.gap_ms) {
                self.ends.delete_tagged(cx, other.end.saturating_add(self.gap_ms), tag(other_start));
                self.open.remove(cx, &other_start)?;
                (start, merged) =
                    (start.min(other_start), Session { end: merged.end.max(other.end), clicks: merged.clicks + other.clicks });
            }
        }
        self.ends.set_tagged(cx, merged.end.saturating_add(self.gap_ms), tag(start));
        self.open.put(cx, &start, merged)
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let start = timer.tag().cast_signed();
        if let Some(Session { end, clicks }) = self.open.get(cx, &start)? {
            self.open.remove(cx, &start)?;
            let row = Row { user: cx.key_text()?, start, end, clicks };
            cx.out().keep_key().time_ms(end).send_json(&row)?;
        }
        Ok(())
    }
}

/// The tag of a session's timer tells which session it is.
fn tag(start: i64) -> u64 {
    start.cast_unsigned()
}

export!(Sessions);

#[cfg(test)]
mod tests {
    use cofferdam_guest::TimeDomain;
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn click(user: &str, at: i64) -> TestRecord {
        record("{}").key(user).time_ms(at)
    }

    #[test]
    fn a_session_ends_after_the_gap_and_is_told_of_once() {
        let mut sessions = Harness::<Sessions>::new();
        let out = sessions.process([click("ada", 1_000), click("bob", 2_000), click("ada", 30_000)]).unwrap();
        assert!(out.is_empty());
        assert_eq!(sessions.timers(TimeDomain::EventTime, "ada"), [(60_000, 1_000)]);
        assert_eq!(sessions.advance_watermark(59_999).unwrap().texts(), [r#"{"user":"bob","start":2000,"end":2000,"clicks":1}"#]);
        assert_eq!(
            sessions.advance_watermark(60_000).unwrap().texts(),
            [r#"{"user":"ada","start":1000,"end":30000,"clicks":2}"#]
        );
        assert!(sessions.finish().unwrap().is_empty());
        assert!(sessions.keys("open").is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_click_between_two_sessions_joins_them() {
        let mut sessions = Harness::<Sessions>::new().config(r#"{"gap_ms": 10}"#);
        sessions.process([click("ada", 0), click("ada", 16), click("ada", 40), click("ada", 8)]).unwrap();
        let out = sessions.finish().unwrap();
        assert_eq!(
            out.texts(),
            [r#"{"user":"ada","start":0,"end":16,"clicks":3}"#, r#"{"user":"ada","start":40,"end":40,"clicks":1}"#]
        );
        assert_eq!(out[0].time_ms(), Some(16));
    }

    #[test]
    fn a_click_of_a_session_that_is_over_is_late() {
        let mut sessions = Harness::<Sessions>::new();
        sessions.advance_watermark(100_000).unwrap();
        let out = sessions.process([click("ada", 70_000), click("ada", 70_001)]).unwrap();
        assert_eq!(out.of_port("late").len(), 1);
        assert_eq!(sessions.finish().unwrap().len(), 1);
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let records = (0..40).map(|i| click(["ada", "bob", "eve"][i % 3], (i as i64 * 7919) % 200_000));
        Harness::<Sessions>::new().assert_batch_independent(records);
    }
}
