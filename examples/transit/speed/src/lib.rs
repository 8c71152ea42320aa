//! The average speed of each vehicle, every five seconds, from positions as buses and trams send them. Positions that lack
//! their place or their speed are dropped and counted.

use std::time::Duration;

use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// The configuration, with its defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    window_ms: u64,
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

/// What a window has so far. Speeds are whole millimetres a second: unlike those of floats, their sum does not depend on the
/// order in which they come.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Speeds {
    sum: i64,
    count: u32,
    line: String,
}

/// How the speeds of a window become one.
pub struct Average;

impl Aggregate for Average {
    type Input = (i64, String);
    type Accumulator = Speeds;
    type Output = Speeds;

    fn add(speeds: &mut Speeds, (speed, line): (i64, String)) {
        Self::merge(speeds, Speeds { sum: speed, count: 1, line });
    }

    fn result(speeds: &Speeds) -> Speeds {
        speeds.clone()
    }

    fn merge(speeds: &mut Speeds, other: Speeds) {
        speeds.sum += other.sum;
        speeds.count += other.count;
        // The line of a vehicle may change: the greatest name, so that the order does not matter.
        speeds.line = std::mem::take(&mut speeds.line).max(other.line);
    }
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
    windows: Windows<Average>,
    late: OutputPort,
}

impl Speed {
    fn emit(fired: Fired<Speeds>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Speeds { sum, count, line } = fired.result;
        let (start, mm_per_s) = (fired.window.start_ms(), sum / i64::from(count.max(1)));
        let row = Row { vehicle: cx.key_text()?, line: &line, start, positions: count, mm_per_s };
        cx.out().keep_key().send_json(&row)
    }
}

impl Operator for Speed {
    type Config = Config;

    fn declare(declare: &mut Declare) -> Self {
        declare.output("speeds");
        let late = declare.output("late");
        Speed { windows: declare.windows("windows"), late }
    }

    fn configure(&mut self, config: Config, _: &InstanceInfo) -> Result<(), Error> {
        self.windows.configure(&Windowing::tumbling(Duration::from_millis(config.window_ms)))
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let Position { spd: Some(speed), lat: Some(_), long: Some(_), desi } = record.json::<Message>()?.position else {
            metrics::add("incomplete", 1);
            return Ok(());
        };
        // No vehicle is faster than that.
        let speed = (speed.clamp(-1_000.0, 1_000.0) * 1_000.0).round() as i64;
        self.windows.add(cx, (speed, desi), Self::emit)?.or_send(self.late, record, cx)
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        self.windows.on_timer(timer, cx, Self::emit)?;
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
