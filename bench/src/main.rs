//! Prints the figures of `docs/performance.md`: the same operators as wasm components and linked natively, in one run.

mod boundary;
mod disk;
mod latency;
mod measure;
mod nexmark;
mod operators;
mod pause;
mod small;
mod state;
mod timers;
mod workload;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use cofferdam::sandbox::{compile::COMPILE_VERB, compile_child_main};

/// Measures cofferdam with its own engine, in process. Rates are of records read from the source.
#[derive(Parser)]
struct Arguments {
    /// Only workloads whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Records of each run, in millions.
    #[arg(long, default_value_t = 20)]
    millions: u64,
    /// Runs of each row, wasm and native in turn; the best by CPU time is printed.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Entries of 132 bytes in the large tables of `state`.
    #[arg(long, default_value_t = 8_000_000)]
    state_entries: u64,
    /// Pending timers of `timers`.
    #[arg(long, default_value_t = 10_000_000)]
    timers: u64,
}

fn main() -> ExitCode {
    // The sandbox compiles components in this program, started again.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == COMPILE_VERB) {
        return compile_child_main();
    }
    match print(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(arguments: &Arguments) -> Result<()> {
    let operators = operators::Operators::load()?;
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    workload::print_all(&operators, &wanted, arguments.millions * 1_000_000, arguments.runs)?;
    nexmark::print(&wanted, arguments.runs)?;
    if wanted("boundary") {
        boundary::print(&operators)?;
    }
    if wanted("pause") {
        pause::print(&operators, arguments.millions * 1_000_000)?;
    }
    if wanted("small") {
        small::print()?;
    }
    if wanted("disk") {
        disk::print(&operators, arguments.millions * 1_000_000)?;
    }
    if wanted("state") {
        state::print(arguments.state_entries)?;
    }
    if wanted("timers") {
        timers::print(arguments.timers)?;
    }
    if wanted("latency") {
        latency::print()?;
    }
    Ok(())
}
