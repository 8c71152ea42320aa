//! How long a barrier stops a task: a keyed count over 5 M keys. The records come slowly, so that the snapshots are small and
//! many.

use anyhow::Result;
use cofferdam::connector::blackhole_sink;

use crate::measure::{percentile_us, run_once};
use crate::operators::{How, Operators};
use crate::workload::{Setting, job, paced_generator};

const KEYS: u64 = 5_000_000;
const INTERVAL_MS: u64 = 50;
const RECORDS_PER_S: u64 = 1_000_000;

pub(crate) fn print(operators: &Operators, records: u64) -> Result<()> {
    println!(
        "\npause: {} M keys, {RECORDS_PER_S} records a second, a checkpoint {INTERVAL_MS} ms after the last; µs of the tasks' pauses",
        KEYS / 1_000_000
    );
    println!("operator | clock | pauses | median | p90 | p99 | most | M records/CPU-s");
    for how in [How::Native, How::Wasm] {
        let setting = Setting { how, interval_ms: Some(INTERVAL_MS), parallelism: 1 };
        let run = run_once(job(
            setting,
            paced_generator(records, KEYS, RECORDS_PER_S)?,
            vec![("count", operators.keyed_count(how, false))],
            blackhole_sink(),
        )?)?;
        let (name, rate) = (how.name(), run.per_cpu_second() / 1e6);
        for (clock, times) in [("wall", &run.pauses.wall), ("thread CPU", &run.pauses.cpu)] {
            let at = |percent| percentile_us(times, percent);
            let count = times.len();
            println!("{name} | {clock} | {count} | {:.0} | {:.0} | {:.0} | {:.0} | {rate:.2}", at(50), at(90), at(99), at(100));
        }
    }
    Ok(())
}
