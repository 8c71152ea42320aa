//! Tells of devices of which nothing has changed for two minutes. A device reports each change; that there is none is told of
//! by a timer, without anything that comes from the device.

use cofferdam_guest::TimeDomain;
use cofferdam_guest::patterns::{Silence, Span};
use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The configuration, with its defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    after_ms: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { after_ms: 120_000 }
    }
}

/// An output line.
#[derive(Serialize)]
struct Critical<'a> {
    device: &'a str,
    /// The last change.
    since: i64,
    critical: bool,
}

/// The operator.
pub struct Watch {
    changes: Silence,
    late: OutputPort,
}

impl Operator for Watch {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("critical");
        let late = declare.output("late");
        // In event time, so that a replay tells of the same. By the host's clock: `TimeDomain::ProcessingTime`.
        Watch { changes: declare.silence("changes", TimeDomain::EventTime), late }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.changes.after_ms(config.after_ms)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        if self.changes.event(cx)? { Ok(()) } else { cx.out_to(self.late).keep_key().send_bytes(record.bytes()) }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.changes.on_timer(timer, cx, |Span { last_ms, .. }, cx| {
            let critical = Critical { device: cx.key_text()?, since: last_ms, critical: true };
            cx.out().keep_key().send_json(&critical)
        })?;
        Ok(())
    }
}

export!(Watch);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn change(device: &str, at: i64) -> TestRecord {
        record("{}").key(device).time_ms(at)
    }

    #[test]
    fn a_silent_device_is_told_of_without_anything_from_it() {
        let mut watch = Harness::<Watch>::new();
        let changes = [change("d1", 1_000), change("d2", 1_500), change("d1", 120_000), change("d3", 200_000)];
        assert!(watch.process(changes).unwrap().is_empty());
        let out = watch.advance_watermark(200_000).unwrap();
        assert_eq!(out.texts(), [r#"{"device":"d2","since":1500,"critical":true}"#]);
        assert_eq!(out[0].time_ms(), Some(121_500));
        watch.process([change("d2", 200_001)]).unwrap();
        assert_eq!(watch.finish().unwrap().len(), 3, "at the end of the input all are silent, the re-armed one, too");
        watch.assert_nothing_left();
    }

    #[test]
    fn a_change_that_comes_out_of_order_fills_its_gap() {
        let mut watch = Harness::<Watch>::new();
        watch.process([change("d1", 0), change("d1", 200_000), change("d1", 100_000)]).unwrap();
        assert!(watch.advance_watermark(319_999).unwrap().is_empty());
        assert_eq!(watch.advance_watermark(320_000).unwrap().texts(), [r#"{"device":"d1","since":200000,"critical":true}"#]);
        assert_eq!(watch.process([change("d1", 320_000)]).unwrap().of_port("late").len(), 1);
        watch.assert_nothing_left();
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let changes = (0..60_i64).map(|i| change(["d1", "d2", "d3"][i as usize % 3], i * 7919 % 1_000_000));
        Harness::<Watch>::new().assert_batch_independent(changes);
    }
}
