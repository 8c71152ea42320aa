//! Jobs under the simulator: scenarios with exact results, and random runs from seeds.
#![expect(clippy::unwrap_used, reason = "tests may unwrap")]

mod barriers;
mod coordinator;
mod event_time;
mod guarantees;
mod kinds;
mod patterns;
mod recovery;
mod redistribution;
mod savepoints;
mod seeds;
mod state;
mod takeover;
mod timers;
mod windows;

use std::collections::BTreeMap;

use cofferdam_dataflow::job::master::JobEnd;
use cofferdam_tests::native::NativeFactory;
use cofferdam_tests::simulation::{FaultyFactory, GuestFaults, Simulation};
use word_count_count::Count;
use word_count_split::Split;

/// Every scenario holds whatever the order of events: it runs under so many seeds.
const SEEDS: std::ops::Range<u64> = 0..20;

fn count(faults: &GuestFaults) -> FaultyFactory {
    FaultyFactory::new(std::sync::Arc::new(NativeFactory::<Count>::new("{}")), faults.clone())
}

fn split(faults: &GuestFaults) -> FaultyFactory {
    FaultyFactory::new(std::sync::Arc::new(NativeFactory::<Split>::new("{}")), faults.clone())
}

/// The rows that `Count` writes for keys that have been counted up to here.
fn running_counts<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<String> {
    counts.into_iter().flat_map(|(key, count)| (1..=count).map(move |n| format!("{key}\t{n}"))).collect()
}

/// Asserts that a log has exactly these rows, and that those of a key are in their order.
fn assert_rows(log: &[String], expected: &[String]) {
    let sorted = |rows: &[String]| {
        let mut rows = rows.to_vec();
        rows.sort();
        rows
    };
    assert_eq!(sorted(log), sorted(expected));
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, n) in log.iter().filter_map(|row| row.split_once('\t')) {
        let n = n.parse().unwrap();
        assert!(last.insert(key, n).is_none_or(|before| before < n), "the rows of {key} are out of order: {log:?}");
    }
}

/// Runs a job that must finish, and looks at what it leaves.
fn finish(simulation: &mut Simulation) {
    let end = simulation.run_to_end();
    assert!(matches!(end, Some(JobEnd::Finished { .. })), "{end:?}");
    assert_eq!(simulation.on_disk(), [0; 0], "a finished job needs no checkpoint");
    simulation.assert_no_orphans();
}
