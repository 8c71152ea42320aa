//! The compiler processes that this process has started: it ends them before it ends.
//!
//! A compiler asks the system to die with its host, but is a process before it gets to ask.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All of this process: signals are the process's, too.
pub(super) static CHILDREN: Children = Children(Mutex::new(Started { running: Vec::new(), interrupted: false }));

/// Processes that have been started and not been collected.
pub(super) struct Children(Mutex<Started>);

struct Started {
    running: Vec<Arc<Mutex<Child>>>,
    interrupted: bool,
}

/// One of them. Forgotten, and killed if it still runs, when this is dropped.
pub(super) struct Tracked<'a> {
    all: &'a Children,
    child: Arc<Mutex<Child>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Children {
    /// Starts a process, unless this one is about to end.
    pub(super) fn start(&self, command: &mut Command) -> io::Result<Tracked<'_>> {
        let mut started = lock(&self.0);
        if started.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = Arc::new(Mutex::new(command.spawn()?));
        started.running.push(Arc::clone(&child));
        Ok(Tracked { all: self, child })
    }

    /// Kills what runs, and lets no other begin.
    pub(super) fn interrupt(&self) {
        let mut started = lock(&self.0);
        started.interrupted = true;
        for child in &started.running {
            // It fails only if the child has ended by itself; one that has been collected is not looked for.
            let _ = lock(child).kill();
        }
    }
}

impl Tracked<'_> {
    /// Does something with the process, which must not take long: who ends all of them waits for it.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Child) -> T) -> T {
        act(&mut lock(&self.child))
    }

    /// Returns how the process has ended, if it has.
    pub(super) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.with(Child::try_wait)
    }

    /// Ends the process and collects it; its pipes close with it.
    pub(super) fn kill(&self) {
        self.with(|child| {
            // As above. One that has been killed takes no time to end.
            let _ = child.kill();
            let _ = child.wait();
        });
    }
}

impl Drop for Tracked<'_> {
    fn drop(&mut self) {
        if !matches!(self.try_wait(), Ok(Some(_))) {
            self.kill();
        }
        lock(&self.all.0).running.retain(|child| !Arc::ptr_eq(child, &self.child));
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn none() -> Children {
        Children(Mutex::new(Started { running: Vec::new(), interrupted: false }))
    }

    fn sleep() -> Command {
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::null());
        command
    }

    #[test]
    fn what_runs_is_killed_and_no_other_begins() {
        let children = none();
        let both = [children.start(&mut sleep()).unwrap(), children.start(&mut sleep()).unwrap()];
        assert!(both.iter().all(|child| child.try_wait().unwrap().is_none()));
        children.interrupt();
        for child in &both {
            let status = child.with(Child::wait).unwrap();
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        }
        assert_eq!(children.start(&mut sleep()).err().map(|error| error.kind()), Some(io::ErrorKind::Interrupted));
        // Those that have been collected are nobody's any more.
        children.interrupt();
        drop(both);
        assert!(lock(&children.0).running.is_empty());
    }

    #[test]
    fn one_that_nobody_waits_for_is_killed() {
        let children = none();
        let child = children.start(&mut sleep()).unwrap();
        let also = Arc::clone(&child.child);
        drop(child);
        assert!(matches!(lock(&also).try_wait(), Ok(Some(_))));
    }
}
