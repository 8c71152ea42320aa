//! The `cofferdam` command line.

mod cli;

use std::process::ExitCode;

use cofferdam::sandbox::{compile::COMPILE_VERB, compile_child_main};

fn main() -> ExitCode {
    // First of all, so that the compiler process does nothing else.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == COMPILE_VERB) {
        return compile_child_main();
    }
    cli::main()
}
