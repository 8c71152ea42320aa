//! Sessions of each user: a session ends when its user has done nothing for 30 seconds of event time.

use std::time::Duration;

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

/// An output line.
#[derive(Serialize)]
struct Row<'a> {
    user: &'a str,
    start: i64,
    end: i64,
    clicks: u64,
}

/// The operator. Windows count their records by themselves: nothing else is kept of a click.
pub struct Sessions {
    open: Windows<Nothing>,
    late: OutputPort,
    gap_ms: i64,
}

/// What is kept of a session beside its number of clicks.
pub struct Nothing;

impl Aggregate for Nothing {
    type Input = ();
    type Accumulator = ();
    type Output = ();

    fn add((): &mut (), (): ()) {}
    fn result((): &()) {}
    fn merge((): &mut (), (): ()) {}
}

impl Sessions {
    /// Tells of a session that has ended. It ended with its last click, `gap_ms` before its window.
    fn tell(&self, session: &Fired<()>, cx: &mut Context<'_>) -> Result<(), Error> {
        let (start, end) = (session.window.start_ms(), session.window.end_ms().saturating_sub(self.gap_ms));
        let row = Row { user: cx.key_text()?, start, end, clicks: session.records };
        cx.out().keep_key().time_ms(end).send_json(&row)
    }
}

impl Operator for Sessions {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("sessions");
        let late = declare.output("late");
        Sessions { open: declare.windows("open"), late, gap_ms: 0 }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        if !(1..=86_400_000).contains(&config.gap_ms) {
            return Err(Error::permanent("`gap_ms` must be a day at most, and more than nothing"));
        }
        self.gap_ms = config.gap_ms;
        self.open.configure(&Windowing::session(Duration::from_millis(config.gap_ms.unsigned_abs())))
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let added = self.open.add(cx, (), |session, cx| self.tell(&session, cx))?;
        // A click whose session has been told of already.
        added.or_send(self.late, record, cx)
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.open.on_timer(timer, cx, |session, cx| self.tell(&session, cx))?;
        Ok(())
    }
}

export!(Sessions);

#[cfg(test)]
mod tests {
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
        assert_eq!(sessions.advance_watermark(59_998).unwrap().texts(), [r#"{"user":"bob","start":2000,"end":2000,"clicks":1}"#]);
        assert_eq!(
            sessions.advance_watermark(59_999).unwrap().texts(),
            [r#"{"user":"ada","start":1000,"end":30000,"clicks":2}"#]
        );
        assert!(sessions.finish().unwrap().is_empty());
        sessions.assert_nothing_left();
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
        let out = sessions.process([click("ada", 70_001), click("ada", 70_002)]).unwrap();
        assert_eq!(out.of_port("late").len(), 1);
        assert_eq!(sessions.finish().unwrap().len(), 1);
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let records = (0..40).map(|i| click(["ada", "bob", "eve"][i % 3], (i as i64 * 7919) % 200_000));
        Harness::<Sessions>::new().assert_batch_independent(records);
    }
}
