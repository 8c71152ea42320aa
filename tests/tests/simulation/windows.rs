//! Windows under faults: published queries with their expected rows, and sums whose every row is known, through traps, kills and
//! other parallelisms.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_dataflow::guest::FaultClass;
use cofferdam_dataflow::job::master::JobEnd;
use cofferdam_dataflow::subtask::WatermarkStrategy;
use cofferdam_guest::prelude::{
    Aggregate, Context, Declare, Error, FiredRecords, InstanceInfo, Operator, Record, RecordWindows, Timer, Windowing, Windows,
};
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{
    FaultyFactory, Graph, GuestFaults, SimSink, Simulation, SinkKind, SourceRecord, SplitsSource, When, World,
};
use serde_json::Value;
use window_queries::Queries;

use super::{SEEDS, assert_rows, finish};

/// A published query: its operators one after the other, and the field that is the key of the input.
struct Query {
    input: &'static str,
    key: &'static str,
    operators: &'static [&'static str],
    expected: &'static str,
}

const QUERIES: [Query; 4] = [
    Query { input: "cars", key: "event_type", operators: &["by-type"], expected: "hourly_by_event_type" },
    Query { input: "cars", key: "event_type", operators: &["drivers", "join"], expected: "windowed_inner_join" },
    Query { input: "impulse", key: "counter", operators: &["users", "sessions"], expected: "session_window" },
    Query { input: "impulse", key: "counter", operators: &["together", "sliding"], expected: "sliding_window_end" },
];

fn lines(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/window-queries").join(name).with_extension("json");
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A time such as `2023-10-09T17:13:20.200+00:00`, with or without its fraction and its zone, in milliseconds since 1970.
fn millis(text: &str) -> i64 {
    let number = |from: usize, to: usize| text[from..to].parse::<i64>().unwrap();
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    // Days since 1970: years begin in March, so that the leap day is the last of one.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    let fraction = if text.as_bytes().get(19) == Some(&b'.') { number(20, 23) } else { 0 };
    days * 86_400_000 + number(11, 13) * 3_600_000 + number(14, 16) * 60_000 + number(17, 19) * 1000 + fraction
}

/// A row's fields in order, with times as milliseconds.
fn normal(row: &Value) -> String {
    let field = |(name, value): (&String, &Value)| match name.as_str() {
        "hour" | "start" | "end" => format!("{name}={}", value.as_str().map_or_else(|| value.as_i64().unwrap(), millis)),
        _ => format!("{name}={value}"),
    };
    let mut fields: Vec<_> = row.as_object().unwrap().iter().map(field).collect();
    fields.sort();
    fields.join(" ")
}

impl Query {
    fn records(&self) -> Vec<SourceRecord> {
        let record = |line: Value| {
            let key = line[self.key].as_str().map_or_else(|| line[self.key].to_string(), str::to_owned);
            let time = Some(millis(line["timestamp"].as_str().unwrap()));
            SourceRecord { key: Some(key), time, value: line.to_string() }
        };
        lines(self.input).into_iter().map(record).collect()
    }

    fn graph(&self, world: &World, faults: &GuestFaults, parallelism: u32) -> Graph {
        let source = SplitsSource::new(world, vec![("records".into(), self.records())], 40, 100);
        let strategy = WatermarkStrategy::out_of_orderness(60_000);
        let mut graph = Graph::every_ms(30).timed_source("records", 1, source, Some(strategy));
        let mut last = "records";
        for name in self.operators {
            let native = NativeFactory::<Queries>::new(&format!("{{\"query\": \"{name}\"}}"));
            let operator = FaultyFactory::new(Arc::new(native), faults.clone());
            graph = graph.operator(name, parallelism, operator, &[(last, 0)]);
            last = name;
        }
        graph.sink("out", 1, SimSink::new(world, "out", SinkKind::Transactional), last)
    }

    /// Checks what is published, and that no key has anything left.
    fn check(&self, world: &World, what: &str) {
        let mut found: Vec<_> = world.log("out").iter().map(|row| normal(&serde_json::from_str(row).unwrap())).collect();
        let mut expected: Vec<_> = lines(&format!("expected/{}", self.expected)).iter().map(normal).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{what}: {}", self.expected);
    }
}

#[test]
fn queries_have_the_published_rows() {
    for query in &QUERIES {
        let mut simulation = Simulation::new(1);
        let world = simulation.world.clone();
        simulation.start(&query.graph(&world, &GuestFaults::default(), 1));
        finish(&mut simulation);
        query.check(&world, "undisturbed");
    }
}

#[test]
fn queries_have_the_published_rows_through_a_trap_and_at_another_parallelism() {
    for query in &QUERIES {
        let records = query.records().len();
        for seed in 0..4 {
            let mut simulation = Simulation::new(seed);
            let (world, faults) = (simulation.world.clone(), GuestFaults::default());
            world.gate([("records", records / 3)]);
            simulation.start(&query.graph(&world, &faults, 2));
            simulation.run_until(|simulation| simulation.completed().len() >= 3);
            faults.add(When::Call(1), 1, FaultClass::Guest);
            world.gate([("records", records / 2)]);
            let half = (records / 2) as u64;
            simulation.run_until(|simulation| simulation.world.reads("records") >= half && simulation.restarts() == 1);
            simulation.stop();
            let end = simulation.run_to_end();
            assert!(matches!(end, Some(JobEnd::Stopped { checkpoint: Some(_), .. })), "{end:?}");
            world.gate([]);
            simulation.start(&query.graph(&world, &faults, 3));
            let end = simulation.run_to_end();
            // A checkpoint that was under way then may leave a segment behind, so that is not looked for.
            assert!(matches!(end, Some(JobEnd::Finished { .. })), "{end:?}");
            query.check(&world, &format!("seed {seed}"));
        }
    }
}

struct Sum;

impl Aggregate for Sum {
    type Input = i64;
    type Accumulator = i64;
    type Output = i64;

    fn add(sum: &mut i64, n: i64) {
        *sum += n;
    }

    fn result(sum: &i64) -> i64 {
        *sum
    }

    fn merge(sum: &mut i64, other: i64) {
        *sum += other;
    }
}

/// Sums of each key in windows of ten, one beginning every `slide`; of an aggregate, or of the records.
struct Sums {
    sums: Windows<Sum>,
    records: RecordWindows<i64>,
    keeps_records: bool,
}

fn tell(start: i64, sum: i64, cx: &mut Context<'_>) -> Result<(), Error> {
    cx.emit_text((cx.key_text()?, " ", start, "\t", sum))
}

fn tell_records(fired: &FiredRecords<'_, i64>, cx: &mut Context<'_>) -> Result<(), Error> {
    let sum = fired.iter(cx).sum::<Result<i64, Error>>()?;
    tell(fired.window.start_ms(), sum, cx)
}

impl Operator for Sums {
    /// Whether records are kept, and the slide.
    type Config = (bool, u64);

    fn declare(declare: &mut Declare) -> Self {
        Self { sums: declare.windows("sums"), records: declare.record_windows("records"), keeps_records: false }
    }

    fn configure(&mut self, (keeps_records, slide): (bool, u64), _: &InstanceInfo) -> Result<(), Error> {
        self.keeps_records = keeps_records;
        let windowing = Windowing::sliding(Duration::from_millis(10), Duration::from_millis(slide));
        self.sums.configure(&windowing)?;
        self.records.configure(&windowing)
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let n = record.text()?.parse()?;
        let added = match self.keeps_records {
            true => self.records.add(cx, n, tell_records)?,
            false => self.sums.add(cx, n, |fired, cx| tell(fired.window.start_ms(), fired.result, cx))?,
        };
        added.or_drop();
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let _ = self.sums.on_timer(timer, cx, |fired, cx| tell(fired.window.start_ms(), fired.result, cx))?
            || self.records.on_timer(timer, cx, tell_records)?;
        Ok(())
    }
}

/// Ten keys with the numbers 0 to 99 each, whose times they are.
fn numbers(world: &World) -> SplitsSource {
    let record = |n: i64| SourceRecord { key: Some((n % 10).to_string()), time: Some(n / 10), value: (n / 10).to_string() };
    SplitsSource::new(world, vec![("numbers".into(), (0..1000).map(record).collect())], 9, 100)
}

fn sums(world: &World, faults: &GuestFaults, config: &str, parallelism: u32) -> Graph {
    let operator = FaultyFactory::new(Arc::new(NativeFactory::<Sums>::new(config)), faults.clone());
    Graph::every_ms(40)
        .timed_source("numbers", 1, numbers(world), Some(WatermarkStrategy::out_of_orderness(1)))
        .operator("sums", parallelism, operator, &[("numbers", 0)])
        .sink("out", 1, SimSink::new(world, "out", SinkKind::Transactional), "sums")
}

/// The sums of all windows of ten, one beginning every `slide`.
fn expected_sums(slide: i64) -> Vec<String> {
    let sum = |start: i64| (start..start + 10).filter(|n| (0..100).contains(n)).sum::<i64>();
    let starts = (0..).map(|index| index * slide + slide - 10).take_while(|start| *start < 100);
    starts.flat_map(|start| (0..10).map(move |key| format!("{key} {start}\t{}", sum(start)))).collect()
}

#[test]
fn sums_of_windows_are_exact_through_a_trap_and_a_kill() {
    assert_eq!((expected_sums(10).len(), expected_sums(5).len()), (100, 210));
    for slide in [10, 5] {
        for keeps_records in [false, true] {
            let config = format!("[{keeps_records}, {slide}]");
            for seed in SEEDS {
                for parallelism in [1, 2, 4] {
                    let mut simulation = Simulation::new(seed);
                    let (world, faults) = (simulation.world.clone(), GuestFaults::default());
                    world.gate([("numbers", 330)]);
                    simulation.start(&sums(&world, &faults, &config, parallelism));
                    simulation
                        .run_until(|simulation| simulation.world.reads("numbers") >= 330 && !simulation.completed().is_empty());
                    faults.add(When::Call(1), 1, FaultClass::Guest);
                    world.gate([("numbers", 666)]);
                    simulation.run_until(|simulation| simulation.world.reads("numbers") >= 666 && simulation.restarts() == 1);
                    simulation.kill();
                    world.gate([]);
                    simulation.start(&sums(&world, &faults, &config, parallelism));
                    finish(&mut simulation);
                    assert_rows(&world.log("out"), &expected_sums(slide));
                }
            }
        }
    }
}
