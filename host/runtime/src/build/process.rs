//! Starting the tools that a build needs, and ending them when the user has enough.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// The tools that run now, of all builds in this process: signals are the process's, too.
static RUNNING: Mutex<Running> = Mutex::new(Running { groups: Vec::new(), interrupted: false });

struct Running {
    /// Each tool leads a group, in which is all that it starts.
    groups: Vec<Pid>,
    interrupted: bool,
}

/// A tool that runs.
pub(super) struct Tool {
    child: Child,
    group: Pid,
}

/// Ends the tools that builds of this process have started, with all that those have started, and lets no other begin:
/// builds under way fail. For a process that is about to end.
pub fn interrupt() {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.interrupted = true;
    for group in &running.groups {
        // It may have ended by itself.
        let _ = kill_process_group(*group, Signal::TERM);
    }
}

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

/// Starts a tool in a group of its own: Ctrl-C in a terminal goes to this process alone, which decides.
pub(super) fn start(command: &mut Command) -> io::Result<Tool> {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if running.interrupted {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let child = command.process_group(0).spawn()?;
    let group = Pid::from_child(&child);
    running.groups.push(group);
    Ok(Tool { child, group })
}

/// Runs a short command and returns what it printed.
pub(super) fn output(command: &mut Command) -> io::Result<Output> {
    start(command.stderr(Stdio::piped()).stdout(Stdio::piped()))?.output()
}

impl Tool {
    /// Waits for its end and returns what it printed to pipes.
    pub(super) fn output(self) -> io::Result<Output> {
        let output = self.child.wait_with_output();
        forget(self.group);
        output
    }

    /// Waits for its end; kills it when the time is up.
    pub(super) fn wait_at_most(mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() >= end {
                // It may have ended by itself meanwhile: then there is nothing to kill.
                let _ = kill_process_group(self.group, Signal::KILL);
                self.child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        forget(self.group);
        Ok(status)
    }
}

/// Nobody has taken the number of a group meanwhile: that takes many more processes than can begin in this moment.
fn forget(group: Pid) {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).groups.retain(|running| *running != group);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Command {
        let mut shell = command("sh");
        shell.args(["-c", text]).stdout(Stdio::piped());
        shell
    }

    #[test]
    fn a_tool_that_takes_too_long_is_killed_with_what_it_started() {
        // The pipe closes when the last of its writers has ended.
        let mut tool = start(&mut script("sleep 1000 & sleep 1000")).unwrap();
        let mut stdout = tool.child.stdout.take().unwrap();
        assert_eq!(tool.wait_at_most(Duration::ZERO).unwrap(), None);
        io::copy(&mut stdout, &mut io::sink()).unwrap();
    }

    #[test]
    fn what_a_tool_prints_is_returned_with_its_status() {
        let output = output(&mut script("echo done; exit 3")).unwrap();
        assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"done\n"[..], Some(3)));
    }
}
