//! How long a barrier stops a task: a keyed count over 5 M keys with checkpoints as fast as they go.

use anyhow::Result;
use cofferdam::connector::blackhole_sink;

use crate::measure::run_once;
use crate::operators::{How, Operators};
use crate::workload::{Setting, generator_of, job};

const KEYS: u64 = 5_000_000;
const INTERVAL_MS: u64 = 50;

pub(crate) fn print(operators: &Operators, records: u64) -> Result<()> {
    println!(
        "\npause: one task, {} M keys, a checkpoint {INTERVAL_MS} ms after the last; microseconds of wall time",
        KEYS / 1_000_000
    );
    println!("operator | pauses | median | p90 | p99 | most | M records/CPU-s");
    for how in [How::Native, How::Wasm] {
        let setting = Setting { how, interval_ms: Some(INTERVAL_MS), parallelism: 1 };
        let run = run_once(job(
            setting,
            generator_of(records, KEYS)?,
            vec![("count", operators.keyed_count(how, false))],
            blackhole_sink(),
        )?)?;
        let at = |percent| run.pause_us(percent).unwrap_or_default();
        let (name, pauses, rate) = (how.name(), run.pauses_us.len(), run.per_cpu_second() / 1e6);
        println!("{name} | {pauses} | {} | {} | {} | {} | {rate:.2}", at(50), at(90), at(99), at(100));
    }
    Ok(())
}
