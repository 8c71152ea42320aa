//! Queries with windows: each operator of a pipeline does one of them, or prepares one, as its configuration says.

use std::collections::BTreeSet;
use std::time::Duration;

use cofferdam_guest::prelude::*;
use serde::{Deserialize, Serialize};

/// Which query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    query: Query,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Query {
    /// How many records each type of event has in an hour.
    #[default]
    ByType,
    /// How many distinct drivers each type of event has in an hour.
    Drivers,
    /// The two numbers of distinct drivers of an hour, side by side.
    Join,
    /// Gives records the key of their user.
    Users,
    /// Sessions of each user, with a gap of 20 seconds.
    Sessions,
    /// Gives all records one key.
    Together,
    /// How many, and the least and the largest counter, of ten seconds, every two seconds.
    Sliding,
}

/// What is read of an input record, whichever it is.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(default)]
    counter: i64,
    #[serde(default)]
    driver_id: u64,
    #[serde(borrow, default)]
    event_type: &'a str,
    #[serde(default)]
    drivers: u64,
}

/// How many, and the least and the largest.
pub struct Stats;

impl Aggregate for Stats {
    type Input = i64;
    type Accumulator = Option<(u64, i64, i64)>;
    type Output = (u64, i64, i64);

    fn add(stats: &mut Self::Accumulator, n: i64) {
        Self::merge(stats, Some((1, n, n)));
    }

    fn result(stats: &Self::Accumulator) -> Self::Output {
        stats.unwrap_or_default()
    }

    fn merge(stats: &mut Self::Accumulator, other: Self::Accumulator) {
        *stats = match (*stats, other) {
            (Some(a), Some(b)) => Some((a.0 + b.0, a.1.min(b.1), a.2.max(b.2))),
            (a, b) => a.or(b),
        };
    }
}

/// How many distinct ones.
pub struct Distinct;

impl Aggregate for Distinct {
    type Input = u64;
    type Accumulator = BTreeSet<u64>;
    type Output = usize;

    fn add(all: &mut BTreeSet<u64>, one: u64) {
        all.insert(one);
    }

    fn result(all: &BTreeSet<u64>) -> usize {
        all.len()
    }

    fn merge(all: &mut BTreeSet<u64>, other: BTreeSet<u64>) {
        all.extend(other);
    }
}

/// One number from each of two sides.
pub struct Sides;

impl Aggregate for Sides {
    type Input = (Option<u64>, Option<u64>);
    type Accumulator = (Option<u64>, Option<u64>);
    type Output = Option<(u64, u64)>;

    fn add(sides: &mut Self::Accumulator, input: Self::Input) {
        *sides = (sides.0.or(input.0), sides.1.or(input.1));
    }

    fn result(sides: &Self::Accumulator) -> Self::Output {
        sides.0.zip(sides.1)
    }

    fn merge(sides: &mut Self::Accumulator, other: Self::Accumulator) {
        Self::add(sides, other);
    }
}

#[derive(Serialize)]
struct HourRow<'a> {
    event_type: &'a str,
    hour: i64,
    count: u64,
}

#[derive(Serialize)]
struct DriversRow<'a> {
    event_type: &'a str,
    drivers: usize,
}

#[derive(Serialize)]
struct JoinRow {
    hour: i64,
    drivers: u64,
    pickups: u64,
}

#[derive(Serialize)]
struct SessionRow {
    user_id: i64,
    start: i64,
    end: i64,
    rows: u64,
}

#[derive(Serialize)]
struct SlidingRow {
    count: u64,
    min: i64,
    max: i64,
    start: i64,
    end: i64,
}

/// The operator.
pub struct Queries {
    stats: Windows<Stats>,
    distinct: Windows<Distinct>,
    sides: Windows<Sides>,
    query: Query,
}

impl Operator for Queries {
    type Config = Options;

    fn declare(declare: &mut Declare) -> Self {
        Self {
            stats: declare.windows("stats"),
            distinct: declare.windows("distinct").apart(),
            sides: declare.windows("sides"),
            query: Query::default(),
        }
    }

    fn configure(&mut self, options: Options, _: &InstanceInfo) -> Result<(), Error> {
        self.query = options.query;
        let windowing = match options.query {
            Query::Sessions => Windowing::session(Duration::from_secs(20)),
            Query::Sliding => Windowing::sliding(Duration::from_secs(10), Duration::from_secs(2)),
            _ => Windowing::tumbling(Duration::from_secs(3600)),
        };
        self.stats.configure(&windowing)?;
        self.distinct.configure(&windowing)?;
        self.sides.configure(&windowing)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let query = self.query;
        let event: Event<'_> = record.json()?;
        match query {
            Query::Users if event.counter % 10 == 0 => cx.out().key("0").send_bytes(record.bytes())?,
            Query::Users => cx.out().key(&event.counter.to_string()).send_bytes(record.bytes())?,
            Query::Together => cx.out().key("").send_bytes(record.bytes())?,
            Query::Drivers => self.distinct.add(cx, event.driver_id, emit_distinct)?.or_drop(),
            Query::Join => {
                let is_dropoff = event.event_type == "dropoff";
                let sides = (is_dropoff.then_some(event.drivers), (!is_dropoff).then_some(event.drivers));
                self.sides.add(cx, sides, emit_sides)?.or_drop();
            }
            _ => self.stats.add(cx, event.counter, |fired, cx| emit_stats(query, &fired, cx))?.or_drop(),
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let query = self.query;
        let _ = self.stats.on_timer(timer, cx, |fired, cx| emit_stats(query, &fired, cx))?
            || self.distinct.on_timer(timer, cx, emit_distinct)?
            || self.sides.on_timer(timer, cx, emit_sides)?;
        Ok(())
    }
}

fn emit_stats(query: Query, fired: &Fired<(u64, i64, i64)>, cx: &mut Context<'_>) -> Result<(), Error> {
    let (start, end, (count, min, max)) = (fired.window.start_ms(), fired.window.end_ms(), fired.result);
    match query {
        Query::Sessions => {
            let user_id = cx.key_text()?.parse()?;
            cx.out().send_json(&SessionRow { user_id, start, end, rows: fired.records })
        }
        Query::Sliding => cx.out().send_json(&SlidingRow { count, min, max, start, end }),
        _ => {
            let event_type = cx.key_text()?;
            cx.out().send_json(&HourRow { event_type, hour: start, count })
        }
    }
}

fn emit_distinct(fired: Fired<usize>, cx: &mut Context<'_>) -> Result<(), Error> {
    let event_type = cx.key_text()?;
    let hour = fired.window.start_ms().to_string();
    cx.out().key(&hour).send_json(&DriversRow { event_type, drivers: fired.result })
}

fn emit_sides(fired: Fired<Option<(u64, u64)>>, cx: &mut Context<'_>) -> Result<(), Error> {
    match fired.result {
        Some((drivers, pickups)) => cx.out().send_json(&JoinRow { hour: fired.window.start_ms(), drivers, pickups }),
        None => Ok(()),
    }
}

export!(Queries);

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Harness, record};

    use super::*;

    #[test]
    fn a_session_is_told_of_with_its_user() {
        let mut sessions = Harness::<Queries>::new().config(r#"{"query": "sessions"}"#);
        let at = |counter: i64, time| record(format!("{{\"counter\": {counter}}}")).key("0").time_ms(time);
        sessions.process([at(0, 0), at(10, 19_999), at(20, 40_000)]).unwrap();
        let rows = [r#"{"user_id":0,"start":0,"end":39999,"rows":2}"#, r#"{"user_id":0,"start":40000,"end":60000,"rows":1}"#];
        assert_eq!(sessions.finish().unwrap().texts(), rows);
        sessions.assert_nothing_left();
    }

    #[test]
    fn hours_with_one_side_are_not_told_of() {
        let mut join = Harness::<Queries>::new().config(r#"{"query": "join"}"#);
        let side = |of: &str, hour: i64, n: u64| {
            let row = format!("{{\"event_type\": \"{of}\", \"drivers\": {n}}}");
            record(row).key((hour * 3_600_000).to_string()).time_ms(hour * 3_600_000 + 3_599_999)
        };
        join.process([side("pickup", 0, 3), side("dropoff", 1, 4), side("pickup", 1, 5)]).unwrap();
        assert_eq!(join.finish().unwrap().texts(), [r#"{"hour":3600000,"drivers":4,"pickups":5}"#]);
        join.assert_nothing_left();
    }
}
