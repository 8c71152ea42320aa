//! Runs a prepared pipeline: opens its storage, hands signals to the job, and shows what happens.

use std::path::Path;
use std::sync::Arc;

use cofferdam::config::Diagnostic;
use cofferdam::execution::{RunOptions, execute as execute_job};
use cofferdam::report::RunEvent;
use cofferdam::storage::LocalStorage;
use cofferdam_dataflow::checkpoint::storage::{StorageError, StorageErrorKind};

use super::Exit;
use super::failure::{Failure, chain};
use super::interrupt::Interrupts;
use super::observe::Observer;
use super::run::{Prepared, StartOptions};
use super::wiring;

/// Runs a job to its end and tells what happens. The first SIGINT or SIGTERM stops it with a last checkpoint, the second
/// at once.
pub(super) fn execute(
    prepared: &Prepared,
    options: StartOptions,
    interrupts: &Interrupts,
    show: &mut dyn FnMut(&RunEvent),
) -> Result<(), Failure> {
    let definition = wiring::definition(prepared)?;
    let controls = interrupts.hand_over();
    let checkpoint = &prepared.file.checkpoint;
    let storage = open(&checkpoint.storage)?.with_compression(checkpoint.compression);
    let run = RunOptions {
        restart: wiring::restart_policy(&prepared.file.restart),
        fresh: options.fresh,
        allow_rewind: options.allow_rewind,
        seed: seed()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| host_failure(&error))?;
    let mut observer = Observer::new(prepared.file.operators().map(|(node, _)| node.id.clone()).collect());
    let mut observe = |event| {
        if let Some(event) = observer.observe(event) {
            show(&event);
        }
    };
    let end = runtime
        .block_on(execute_job(definition, Arc::new(storage), run, controls, &mut observe))
        .map_err(|error| host_failure(&error))?;
    observer.end(end, interrupts.count() > 1).iter().for_each(show);
    Ok(())
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
