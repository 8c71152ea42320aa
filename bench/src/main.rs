//! Prints the figures of `docs/performance.md`: the same operators as wasm components and linked natively, in one run.

mod measure;
mod workload;

use anyhow::Result;
use clap::Parser;

/// Measures cofferdam with its own engine, in process.
#[derive(Parser)]
struct Arguments {
    /// Only workloads whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Records of each run, in millions.
    #[arg(long, default_value_t = 20)]
    millions: u64,
    /// Runs of each row; the best is printed.
    #[arg(long, default_value_t = 3)]
    runs: u32,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    workload::print_all(arguments.only.as_deref(), arguments.millions * 1_000_000, arguments.runs)
}
