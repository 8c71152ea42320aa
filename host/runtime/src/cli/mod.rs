//! Verbs, options and exit codes. What a verb does lives in the library; this only asks and shows.

mod arguments;
mod changes;
mod checkpoints;
mod control;
mod decide;
mod diagnostics;
mod execute;
mod explain;
mod failure;
mod from;
mod inspect;
mod interrupt;
mod observe;
mod plan;
mod progress;
mod reading;
mod run;
mod state;
mod stored;
mod terminal;
mod times;
mod upkeep;
mod usage;
mod verbs;
mod watermarks;
mod wiring;
mod work;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, CheckpointVerb, StateVerb, Verb};
use failure::Failure;
use interrupt::Interrupts;
use terminal::Terminal;

/// How a command ended, for scripts. Documented in `docs/cli.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; a run has finished or was stopped and can be resumed.
    Done = 0,
    /// The job failed for good, or does not do what it was asked for.
    JobFailed = 1,
    /// The command line, the pipeline file, a component or a crate is not right.
    Invalid = 2,
    /// Stored checkpoints are damaged, do not fit or are in use by another host.
    Storage = 3,
    /// Something this needs is missing: a tool, a file, a permission, room.
    Environment = 4,
    /// Interrupted twice, or before a job began: stopped at once, without a last checkpoint.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Parses the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    // clap exits with 2 for a wrong command line, and with 0 for --help.
    let arguments = Arguments::parse();
    let terminal = Terminal::new(&arguments.global);
    interrupt::guarded(terminal, move |interrupts| match dispatch(arguments.verb, &terminal, interrupts) {
        Ok(exit) => exit,
        Err(failure) => {
            // What breaks because it was ended is no news.
            if !interrupts.has_ended_command() {
                terminal.failure(&failure);
            }
            failure.exit
        }
    })
}

fn dispatch(verb: Verb, terminal: &Terminal, interrupts: &Interrupts) -> Result<Exit, Failure> {
    match verb {
        Verb::New(arguments) => verbs::new(&arguments, terminal),
        Verb::Build(arguments) => verbs::build(&arguments, terminal),
        Verb::Inspect(arguments) => inspect::inspect(&arguments, terminal),
        Verb::Check(arguments) => run::check(&arguments, terminal),
        Verb::Plan(arguments) => changes::plan(&arguments, terminal),
        Verb::Run(arguments) => run::run(&arguments, terminal, interrupts),
        Verb::Explain(arguments) => explain::explain(&arguments, terminal),
        Verb::Savepoint(arguments) => control::savepoint(&arguments, terminal),
        Verb::Stop(arguments) => control::stop(&arguments, terminal),
        Verb::Drain(arguments) => control::drain(&arguments, terminal),
        Verb::Checkpoint(CheckpointVerb::List(arguments)) => checkpoints::list(&arguments, terminal),
        Verb::Checkpoint(CheckpointVerb::Show(arguments)) => checkpoints::show(&arguments, terminal),
        Verb::Checkpoint(CheckpointVerb::Diff(arguments)) => upkeep::diff(&arguments, terminal),
        Verb::Checkpoint(CheckpointVerb::Verify(arguments)) => upkeep::verify(&arguments, terminal),
        Verb::Checkpoint(CheckpointVerb::Gc(arguments)) => upkeep::gc(&arguments, terminal),
        Verb::State(StateVerb::Ls(arguments)) => state::ls(&arguments, terminal),
        Verb::State(StateVerb::Get(arguments)) => state::get(&arguments, terminal),
        Verb::State(StateVerb::Scan(arguments)) => state::scan(&arguments, terminal),
        Verb::State(StateVerb::Export(arguments)) => state::export(&arguments, terminal),
    }
}
