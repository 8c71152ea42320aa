//! The examples of joins and patterns, against programs that work out the same in another way: as they are, one subtask after the
//! other, and killed at any moment.

mod made_up;
mod worked_out;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::output::rows;
use super::stage::{Random, Stage, example, seed};

const KILLS: u32 = 6;
/// Lines for a run that is left alone, and for one that must go on for long enough to be killed.
const SOME: i64 = 30_000;
const MANY: i64 = 150_000;

/// Lines by the file that they are in.
type Files = BTreeMap<&'static str, Vec<Value>>;

struct Example {
    name: &'static str,
    /// Folders of crates, and the components that they become.
    crates: &'static [(&'static str, &'static str)],
    inputs: &'static [&'static str],
    /// The folders below `out` to which it writes.
    outputs: &'static [&'static str],
    /// Makes about so many lines up.
    make_up: fn(&mut Random, i64) -> Files,
    /// Works out what should be in each folder, in any order.
    work_out: fn(&Files) -> Files,
}

const FRAUD: Example = Example {
    name: "fraud-detector",
    crates: &[("detect", "fraud-detector")],
    inputs: &["payments.jsonl"],
    outputs: &[""],
    make_up: made_up::payments,
    work_out: worked_out::frauds,
};
const RIDES: Example = Example {
    name: "ride-alerts",
    crates: &[("alerts", "ride-alerts")],
    inputs: &["rides.jsonl"],
    outputs: &[""],
    make_up: made_up::rides,
    work_out: worked_out::ride_alerts,
};
const ENRICHMENT: Example = Example {
    name: "enrichment",
    crates: &[("enrich", "enrichment")],
    inputs: &["orders.jsonl", "rates.jsonl"],
    outputs: &["rows", "unknown"],
    make_up: made_up::orders_and_rates,
    work_out: worked_out::enriched,
};
const BANK: Example = Example {
    name: "bank",
    crates: &[("entries", "bank-entries"), ("accounts", "bank-accounts")],
    inputs: &["operations.jsonl"],
    outputs: &["booked", "overdrafts"],
    make_up: made_up::operations,
    work_out: worked_out::booked,
};
const SORTER: Example = Example {
    name: "stream-sorter",
    crates: &[("sort", "stream-sorter")],
    inputs: &["readings.jsonl"],
    outputs: &["sorted", "late"],
    make_up: made_up::readings,
    work_out: worked_out::sorted,
};
const SILENCE: Example = Example {
    name: "silence",
    crates: &[("watch", "silence")],
    inputs: &["changes.jsonl"],
    outputs: &[""],
    make_up: made_up::changes,
    work_out: worked_out::silences,
};
const ORDERS: Example = Example {
    name: "paid-orders",
    crates: &[("join", "paid-orders")],
    inputs: &["orders.jsonl", "payments.jsonl"],
    outputs: &["paid", "unpaid"],
    make_up: made_up::orders_and_payments,
    work_out: worked_out::paid,
};
const TRANSIT: Example = Example {
    name: "transit",
    crates: &[("speed", "transit")],
    inputs: &["positions.jsonl"],
    outputs: &[""],
    make_up: made_up::positions,
    work_out: worked_out::speeds,
};

impl Example {
    /// Writes its files, with these inputs.
    fn stage(&self, inputs: &Files) -> Stage {
        let stage = Stage::new();
        let mut pipeline = example(&format!("{}/pipeline.toml", self.name));
        for (folder, component) in self.crates {
            stage.components(&[component]);
            pipeline = pipeline.replace(&format!("component = \"{folder}\""), &format!("component = \"{component}.wasm\""));
        }
        stage.write("pipeline.toml", pipeline.replace("interval = \"1s\"", "interval = \"50ms\"\nstorage = \"job\""));
        for (file, lines) in inputs {
            stage.write(file, lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        }
        stage
    }

    /// The data that comes with it.
    fn own_inputs(&self) -> Files {
        let read = |file: &&'static str| {
            let text = example(&format!("{}/{file}", self.name));
            (*file, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
        };
        self.inputs.iter().map(read).collect()
    }

    /// Checks all that has been published.
    fn check(&self, stage: &Stage, inputs: &Files) {
        let expected = (self.work_out)(inputs);
        for folder in self.outputs {
            let mut found: Vec<Value> = published(stage, folder).iter().map(|row| serde_json::from_str(row).unwrap()).collect();
            let mut expected = expected.get(folder).cloned().unwrap_or_default();
            found.sort_by_cached_key(Value::to_string);
            expected.sort_by_cached_key(Value::to_string);
            let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            let (name, counts) = (self.name, (found.len(), expected.len()));
            assert!(found == expected, "{name}, folder {folder:?}: found and expected {counts:?} rows; the first: {differs:?}");
            println!("{}: {} rows in {folder:?}", self.name, found.len());
        }
    }

    /// Runs it as it is, and on other data, with the parallelism of the file and without any.
    fn runs_as_worked_out(&self) {
        let mut random = Random(seed());
        for inputs in [self.own_inputs(), (self.make_up)(&mut random, SOME)] {
            for arguments in [&[][..], &["--parallelism", "1"]] {
                let stage = self.stage(&inputs);
                let ended = stage.run(arguments);
                assert_eq!(ended.code(), Some(0), "{}", ended.told());
                self.check(&stage, &inputs);
            }
        }
    }

    /// Runs it on other data and kills it again and again.
    fn survives_kills(&self) {
        let mut random = Random(seed());
        let inputs = (self.make_up)(&mut random, MANY);
        let stage = self.stage(&inputs);
        let told = || self.outputs.iter().map(|folder| published(&stage, folder).len()).sum::<usize>();
        let mut kills = 0;
        while kills < KILLS {
            let mut running = stage.start(&[]);
            // Every other time, however slow the machine is: until it has told of something more, and then a little longer.
            let (before, waits) = (told(), kills % 2 == 1);
            let mut is_running = true;
            while waits && is_running && told() == before {
                is_running = running.run_for(Duration::from_millis(5));
            }
            if !is_running || !running.run_for(Duration::from_micros(random.below(100_000))) {
                running.wait();
                break;
            }
            running.kill();
            kills += 1;
        }
        let ended = stage.run(&[]);
        assert_eq!(ended.code(), Some(0), "{}", ended.told());
        println!("{}: killed {kills} times", self.name);
        assert!(kills > 0, "the run was over before anything could be killed");
        self.check(&stage, &inputs);
    }
}

/// The lines in a folder below `out`. There is none before the first.
fn published(stage: &Stage, folder: &str) -> Vec<String> {
    let folder = stage.path("out").join(folder);
    if folder.exists() { rows(&folder) } else { Vec::new() }
}

#[test]
fn small_payments_that_large_ones_follow_are_told_of() {
    FRAUD.runs_as_worked_out();
    FRAUD.survives_kills();
}

#[test]
fn rides_without_an_end_are_told_of() {
    RIDES.runs_as_worked_out();
    RIDES.survives_kills();
}

#[test]
fn orders_get_the_rates_of_their_time() {
    ENRICHMENT.runs_as_worked_out();
    ENRICHMENT.survives_kills();
}

#[test]
fn a_bank_loses_and_makes_no_money() {
    BANK.runs_as_worked_out();
    BANK.survives_kills();
}

#[test]
fn readings_come_out_in_order() {
    SORTER.runs_as_worked_out();
    SORTER.survives_kills();
    // A sensor's readings are in the parts of one subtask, in their order.
    let inputs = SORTER.own_inputs();
    let stage = SORTER.stage(&inputs);
    assert_eq!(stage.run(&[]).code(), Some(0));
    let mut last = BTreeMap::<String, i64>::new();
    for row in published(&stage, "sorted") {
        let row: Value = serde_json::from_str(&row).unwrap();
        let (sensor, at) = (row["sensor"].as_str().unwrap().to_owned(), row["at"].as_i64().unwrap());
        assert!(last.insert(sensor, at).is_none_or(|before| before <= at), "{row} comes too late");
    }
}

#[test]
fn silent_devices_are_told_of() {
    SILENCE.runs_as_worked_out();
    SILENCE.survives_kills();
}

#[test]
fn payments_find_their_orders() {
    ORDERS.runs_as_worked_out();
    ORDERS.survives_kills();
}

#[test]
fn speeds_are_averaged() {
    TRANSIT.runs_as_worked_out();
    TRANSIT.survives_kills();
}
