//! Runs a prepared pipeline: opens its storage, listens for signals, and shows what happens.

use std::path::Path;
use std::sync::Arc;

use cofferdam::config::Diagnostic;
use cofferdam::execution::{Control, RunOptions, execute as execute_job};
use cofferdam::report::RunEvent;
use cofferdam::storage::LocalStorage;
use cofferdam_dataflow::checkpoint::storage::{StorageError, StorageErrorKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Exit;
use super::failure::{Failure, chain};
use super::observe::Observer;
use super::run::{Prepared, StartOptions};
use super::wiring;

/// Runs a job to its end and tells what happens. The first SIGINT or SIGTERM stops it with a last checkpoint, the second
/// at once.
pub(super) fn execute(prepared: &Prepared, options: StartOptions, show: &mut dyn FnMut(&RunEvent)) -> Result<(), Failure> {
    let definition = wiring::definition(prepared)?;
    let checkpoint = &prepared.file.checkpoint;
    let storage = open(&checkpoint.storage)?.with_compression(checkpoint.compression);
    let run = RunOptions {
        restart: wiring::restart_policy(&prepared.file.restart),
        fresh: options.fresh,
        allow_rewind: options.allow_rewind,
        seed: seed()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| host_failure(&error))?;
    let mut observer = Observer::new();
    let (end, interrupted) = runtime
        .block_on(async {
            let (controls, receiver) = unbounded_channel();
            let (interrupts, terminations) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            let listener = tokio::spawn(listen(interrupts, terminations, controls));
            let mut observe = |event| {
                if let Some(event) = observer.observe(event) {
                    show(&event);
                }
            };
            let end = execute_job(definition, Arc::new(storage), run, receiver, &mut observe).await?;
            listener.abort();
            let interrupted = listener.await.is_ok_and(|count| count > 1);
            Ok::<_, std::io::Error>((end, interrupted))
        })
        .map_err(|error| host_failure(&error))?;
    observer.end(end, interrupted).iter().for_each(show);
    Ok(())
}

/// Passes signals on until there have been two.
async fn listen(mut interrupts: Signal, mut terminations: Signal, controls: UnboundedSender<Control>) -> u32 {
    for control in [Control::Stop, Control::Cancel] {
        tokio::select! {
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {}
        }
        // The job may have ended meanwhile.
        let _ = controls.send(control);
    }
    2
}

/// Opens a job's directory for this process alone.
pub(super) fn open(path: &Path) -> Result<LocalStorage, Failure> {
    LocalStorage::open(path).map_err(|error| storage_failure(&error))
}

/// Says what is wrong with a job's directory.
pub(super) fn storage_failure(error: &StorageError) -> Failure {
    let (exit, code) = match error.kind {
        StorageErrorKind::Fenced => (Exit::Storage, "storage-locked"),
        StorageErrorKind::Damaged | StorageErrorKind::NotFound => (Exit::Storage, "storage-damaged"),
        _ => (Exit::Environment, "storage-unusable"),
    };
    Failure::new(exit, Diagnostic::new(code, chain(error)))
}

fn host_failure(error: &std::io::Error) -> Failure {
    Failure::from_error(Exit::Environment, "host", error)
}

/// Differs from run to run, so that hash tables do.
fn seed() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::Environment, Diagnostic::new("no-randomness", error.to_string())))?;
    Ok(u64::from_le_bytes(bytes))
}
