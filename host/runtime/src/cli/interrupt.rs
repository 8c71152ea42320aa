//! SIGINT and SIGTERM, listened for before anything is done: until a job begins they end the command, from then on they
//! are the job's.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use cofferdam::build;
use cofferdam::execution::Control;
use cofferdam::sandbox::compile;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Exit;
use super::failure::Failure;
use super::terminal::Terminal;

/// Of the thread that does the command: as much as a program's first thread has.
const STACK_BYTES: usize = 8 << 20;

/// Where signals go.
#[derive(Default)]
pub(super) struct Interrupts {
    /// There once a job begins.
    job: OnceLock<UnboundedSender<Control>>,
    count: AtomicU32,
}

impl Interrupts {
    /// From now on, the first signal stops the job with a last checkpoint, and the second at once. Returns both ends of
    /// what tells the job so: others may have something to say to it, too.
    pub(super) fn hand_over(&self) -> (UnboundedSender<Control>, UnboundedReceiver<Control>) {
        let (sender, receiver) = unbounded_channel();
        // A process runs one job: nobody has been here before.
        let _ = self.job.set(sender.clone());
        (sender, receiver)
    }

    /// Returns how many signals there were.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a signal has ended the command before a job began.
    pub(super) fn has_ended_command(&self) -> bool {
        self.count() > 0 && self.job.get().is_none()
    }

    /// Takes a signal. Returns whether it is the job's business.
    fn take(&self) -> bool {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        let Some(job) = self.job.get() else { return false };
        // The job may have ended meanwhile.
        let _ = job.send(if before == 0 { Control::Stop } else { Control::Cancel });
        true
    }
}

/// Does a command on a thread of its own, while this one listens. If a signal ends it, what it has started ends, too.
pub(super) fn guarded(terminal: Terminal, command: impl FnOnce(&Interrupts) -> Exit + Send + 'static) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().thread_stack_size(STACK_BYTES).build();
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(listen(terminal, command));
        // A command that was interrupted is not waited for: the process ends.
        runtime.shutdown_background();
        ended
    });
    let exit = ended.unwrap_or_else(|error| {
        terminal.failure(&Failure::from_error(Exit::Environment, "host", &error));
        Exit::Environment
    });
    exit.into()
}

async fn listen(terminal: Terminal, command: impl FnOnce(&Interrupts) -> Exit + Send + 'static) -> std::io::Result<Exit> {
    let (mut interrupts, mut terminations) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let shared = Arc::new(Interrupts::default());
    let taker = Arc::clone(&shared);
    let mut command = tokio::task::spawn_blocking(move || command(&taker));
    loop {
        tokio::select! {
            biased;
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {}
            ended = &mut command => return ended.map_err(std::io::Error::other),
        }
        if !shared.take() {
            build::interrupt();
            compile::interrupt();
            tell(terminal);
            return Ok(Exit::Interrupted);
        }
    }
}

fn tell(terminal: Terminal) {
    if terminal.is_json() {
        terminal.json(&serde_json::json!({ "event": "interrupted", "summary": null }));
    } else {
        terminal.complain("interrupted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_the_jobs_once_it_begins() {
        let interrupts = Interrupts::default();
        assert!(!interrupts.has_ended_command());
        assert!(!interrupts.take() && interrupts.has_ended_command());
        let interrupts = Interrupts::default();
        let (_, mut job) = interrupts.hand_over();
        assert!(interrupts.take() && interrupts.take());
        assert_eq!((job.try_recv(), job.try_recv()), (Ok(Control::Stop), Ok(Control::Cancel)));
        assert!(job.try_recv().is_err());
        assert!(!interrupts.has_ended_command());
        drop(job);
        assert!(interrupts.take(), "a job that has ended does not mind");
        assert_eq!(interrupts.count(), 3);
    }
}
