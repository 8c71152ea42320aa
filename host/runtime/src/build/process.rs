//! Starting the tools that a build needs.

use std::io;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Variables that an outer cargo, or the user, sets for the host's code. They would leak into the guest's build: guests
/// take their flags from `.cargo/config.toml`.
const HOST_ONLY: &[&str] = &[
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MANIFEST_DIR",
    "CARGO_TARGET_DIR",
    "LD_LIBRARY_PATH",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
];

/// Returns a command without the host's build variables.
pub(super) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in HOST_ONLY {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a short command and returns what it printed.
pub(super) fn output(command: &mut Command) -> io::Result<Output> {
    command.stderr(Stdio::piped()).stdout(Stdio::piped()).output()
}

/// Waits for a process; kills it when the time is up.
pub(super) fn wait_at_most(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            // It may have ended by itself meanwhile: then there is nothing to kill.
            drop(child.kill());
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
