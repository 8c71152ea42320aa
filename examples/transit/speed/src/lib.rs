//! The average speed of each vehicle, every five seconds, from positions as buses and trams send them. Positions that lack
//! their place or their speed are dropped and counted.

use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The configuration, with its defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    window_ms: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { window_ms: 5_000 }
    }
}

/// An input line, of which this is a part.
#[derive(Deserialize)]
struct Message {
    #[serde(rename = "VP")]
    position: Position,
}

/// The vehicle is the key and the time the event time.
#[derive(Deserialize)]
struct Position {
    /// In metres a second.
    spd: Option<f64>,
    lat: Option<f64>,
    long: Option<f64>,
    desi: String,
}

/// What a window has so far. Speeds are whole millimetres a second: unlike those of floats, their sum does not depend on the order
/// in which they come.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Speeds {
    sum: i64,
    count: u32,
    line: String,
}

/// An output line.
#[derive(Serialize)]
struct Row<'a> {
    vehicle: &'a str,
    line: &'a str,
    start: i64,
    positions: u32,
    mm_per_s: i64,
}

/// The operator.
pub struct Speed {
    /// By the window's last millisecond.
    windows: Map<i64, Speeds>,
    ends: Timers,
    late: OutputPort,
    window_ms: i64,
}

impl Operator for Speed {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("speeds");
        let late = declare.output("late");
        Speed { windows: declare.map("windows"), ends: declare.event_timers(), late, window_ms: 0 }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        if !(1..=86_400_000).contains(&config.window_ms) {
            return Err(Error::permanent("`window_ms` must be a day at most, and more than nothing"));
        }
        self.window_ms = config.window_ms;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Position { spd: Some(speed), lat: Some(_), long: Some(_), desi } = record.json::<Message>()?.position else {
            metrics::add("incomplete", 1);
            return Ok(());
        };
        let at = cx.event_time_ms().ok_or_else(|| Error::permanent("a position has no time"))?;
        let last = at.saturating_add(self.window_ms - 1 - at.rem_euclid(self.window_ms));
        if cx.watermark_ms().is_some_and(|watermark| last <= watermark) {
            return cx.out_to(self.late).keep_key().send_bytes(record.bytes());
        }
        // No vehicle is faster than that.
        let speed = (speed.clamp(-1_000.0, 1_000.0) * 1_000.0).round() as i64;
        self.windows.update(cx, &last, |speeds| {
            speeds.sum += speed;
            speeds.count += 1;
            // The line of a vehicle may change: the greatest name, so that the order does not matter.
            speeds.line = desi.max(std::mem::take(&mut speeds.line));
        })?;
        self.ends.set(cx, last);
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let last = timer.time_ms();
        if let Some(Speeds { sum, count, line }) = self.windows.get(cx, &last)? {
            self.windows.remove(cx, &last)?;
            let start = last.saturating_sub(self.window_ms - 1);
            let mm_per_s = sum / i64::from(count.max(1));
            let row = Row { vehicle: cx.key_text()?, line: &line, start, positions: count, mm_per_s };
            cx.out().keep_key().send_json(&row)?;
        }
        Ok(())
    }
}

export!(Speed);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, TestRecord, record};

    use super::*;

    fn position(vehicle: &str, at: i64, speed: &str) -> TestRecord {
        record(format!(r#"{{"VP": {{"desi": "6T", "spd": {speed}, "lat": 60.17, "long": 24.94, "dl": -71}}}}"#))
            .key(vehicle)
            .time_ms(at)
    }

    #[test]
    fn the_average_of_a_window_comes_when_it_is_over() {
        let mut speed = Harness::<Speed>::new();
        let positions =
            [position("18", 0, "1.5"), position("18", 4_999, "2.5"), position("18", 5_000, "7"), position("18", 10, "null")];
        assert!(speed.process(positions).unwrap().is_empty());
        assert_eq!(speed.counter("incomplete"), 1);
        assert!(speed.advance_watermark(4_998).unwrap().is_empty());
        let out = speed.advance_watermark(4_999).unwrap();
        assert_eq!(out.texts(), [r#"{"vehicle":"18","line":"6T","start":0,"positions":2,"mm_per_s":2000}"#]);
        assert_eq!(speed.process([position("18", 4_999, "1")]).unwrap().of_port("late").len(), 1);
        assert_eq!(speed.finish().unwrap().len(), 1);
        speed.assert_nothing_left();
    }

    #[test]
    fn a_position_without_a_place_is_dropped() {
        let mut speed = Harness::<Speed>::new();
        let nowhere = r#"{"VP": {"desi": "1", "spd": 3.0, "lat": null, "long": null}}"#;
        let absent = r#"{"VP": {"desi": "1", "spd": 3.0}}"#;
        speed.process([nowhere, absent].map(|text| record(text).key("18").time_ms(1))).unwrap();
        assert_eq!(speed.counter("incomplete"), 2);
        speed.assert_nothing_left();
    }

    #[test]
    fn results_do_not_depend_on_batches() {
        let speeds = ["0.1", "0.2", "13.37", "null"];
        let positions = (0..60_i64).map(|i| position(["18", "19"][i as usize % 2], i * 7919 % 20_000, speeds[i as usize % 4]));
        Harness::<Speed>::new().assert_batch_independent(positions);
    }
}
