//! The queries of Nexmark, as the examples have them, against an implementation that has all events before it: with one
//! subtask, with two, and killed in between.

mod reference;

use toml::Table;

use self::reference::Events;
use super::output::{parts, rows};
use super::stage::{Stage, example};

const EVENTS: i64 = 60_000;
/// Of event time: 30 seconds. Close enough together for bids at the very times that auctions open and close.
const EVENTS_PER_SECOND: i64 = 2000;
/// Of the clock, where a run is to be killed before its end.
const RATE: i64 = 20_000;

/// Puts an example's pipeline on stage, with fewer events, and its components beside it. It writes to the folder `run`.
fn stage_query(stage: &Stage, query: &str, run: &str, rate: Option<i64>) {
    let mut pipeline: Table = toml::from_str(&example(&format!("nexmark/{query}.toml"))).unwrap();
    set(&mut pipeline, &["checkpoint", "interval"], "50ms");
    set(&mut pipeline, &["checkpoint", "storage"], format!("{run}-job"));
    set(&mut pipeline, &["sink", "rows", "path"], run);
    set(&mut pipeline, &["source", "nexmark", "events"], EVENTS);
    set(&mut pipeline, &["source", "nexmark", "events-per-second"], EVENTS_PER_SECOND);
    if let Some(rate) = rate {
        set(&mut pipeline, &["source", "nexmark", "rate"], rate);
    }
    if let Some(operators) = pipeline.get_mut("operator") {
        for (_, operator) in operators.as_table_mut().unwrap() {
            let name = format!("nexmark-{}", operator["component"].as_str().unwrap());
            stage.components(&[&name]);
            operator.as_table_mut().unwrap().insert("component".to_owned(), format!("{name}.wasm").into());
        }
    }
    stage.write("pipeline.toml", toml::to_string(&pipeline).unwrap());
}

fn set(pipeline: &mut Table, path: &[&str], value: impl Into<toml::Value>) {
    let (key, tables) = path.split_last().unwrap();
    let table = tables.iter().fold(pipeline, |table, key| table[*key].as_table_mut().unwrap());
    table.insert((*key).to_owned(), value.into());
}

/// Returns what is published in a folder, sorted: only the order within a part is the pipeline's.
fn sorted_rows(stage: &Stage, run: &str) -> Vec<String> {
    let mut rows = rows(&stage.path(run));
    rows.sort();
    rows
}

fn compare(query: &str, run: &str, found: &[String], expected: &[String]) {
    if let Some(at) = (0..found.len().max(expected.len())).find(|at| found.get(*at) != expected.get(*at)) {
        let (found, expected) = (found.get(at), expected.get(at));
        panic!("{query}, {run}: row {at} of the sorted ones is {found:?}, and should be {expected:?}");
    }
}

/// Checks a query; `rows_min` is how many rows it has at least, so that the comparison says something.
fn check(query: &str, rows_min: usize) {
    let stage = Stage::new();
    stage_query(&stage, "q-events", "events", None);
    stage.run(&["--parallelism", "1"]).ended("finished");
    let events = rows(&stage.path("events"));
    assert_eq!(events.len() as i64, EVENTS);
    let mut expected = Events::parse(&events).answer(query);
    expected.sort();
    assert!(expected.len() >= rows_min, "{query} has only {} rows", expected.len());

    for parallelism in ["1", "2"] {
        let run = format!("parallelism-{parallelism}");
        stage_query(&stage, query, &run, None);
        stage.run(&["--parallelism", parallelism]).ended("finished");
        compare(query, &run, &sorted_rows(&stage, &run), &expected);
    }

    // With something published, and something to come; then with another parallelism to the end.
    let run = kill_halfway(&stage, query, expected.len());
    stage.run(&["--parallelism", "1"]).ended("finished");
    compare(query, &run, &sorted_rows(&stage, &run), &expected);
}

/// Kills a run of a query when it has published something but not all of `rows`. Returns the folder that it writes to.
fn kill_halfway(stage: &Stage, query: &str, rows: usize) -> String {
    // On a machine that stands still now and then, a run may come to its end unseen: the next one takes twice as long.
    for rate in [RATE, RATE / 2, RATE / 4, RATE / 8] {
        let run = format!("killed-at-{rate}");
        stage_query(stage, query, &run, Some(rate));
        let mut running = stage.start(&["--parallelism", "2"]);
        assert!(running.wait_until(|| !parts(&stage.path(&run)).is_empty()), "{}", running.wait().told());
        running.kill();
        if sorted_rows(stage, &run).len() < rows {
            return run;
        }
    }
    panic!("every run of {query} was over before it could be killed");
}

#[test]
fn q0_passes_every_event_through() {
    check("q0", 60_000);
}

#[test]
fn q1_converts_the_price_of_every_bid() {
    check("q1", 55_200);
}

#[test]
fn q2_selects_bids_for_some_auctions() {
    check("q2", 100);
}

#[test]
fn q3_joins_sellers_of_three_states_with_their_auctions() {
    check("q3", 100);
}

#[test]
fn q4_averages_what_auctions_of_a_category_sold_for() {
    check("q4", 1000);
}

#[test]
fn q5_finds_the_auctions_with_the_most_bids() {
    check("q5", 15);
}

#[test]
fn q6_averages_what_the_last_ten_auctions_of_a_seller_sold_for() {
    check("q6", 1000);
}

#[test]
fn q7_finds_the_highest_bid_of_each_window() {
    check("q7", 4);
}

#[test]
fn q8_finds_persons_who_offer_something_at_once() {
    check("q8", 100);
}
