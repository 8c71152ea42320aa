//! Runs a prepared pipeline: opens its storage, hands signals to the job, and shows what happens.

use std::path::Path;
use std::sync::Arc;

use cofferdam::config::Diagnostic;
use cofferdam::control::ControlServer;
use cofferdam::execution::{ExecutionEvent, RunOptions, delete_stores, execute as execute_job};
use cofferdam::report::RunEvent;
use cofferdam::storage::LocalStorage;
use cofferdam_dataflow::checkpoint::storage::{StorageError, StorageErrorKind};

use super::Exit;
use super::failure::{Failure, chain};
use super::interrupt::Interrupts;
use super::observe::Observer;
use super::run::{Prepared, StartOptions};
use super::terminal::Terminal;
use super::times::Places;
use super::wiring;

/// Runs a job to its end and tells what happens. The first SIGINT or SIGTERM stops it with a last checkpoint, the second
/// at once; so do those who ask through the socket in its directory.
pub(super) fn execute(
    prepared: &Prepared,
    options: &StartOptions,
    (terminal, interrupts): (&Terminal, &Interrupts),
    show: &mut dyn FnMut(&RunEvent),
) -> Result<(), Failure> {
    let definition = wiring::definition(prepared)?;
    let (controls, receiver) = interrupts.hand_over();
    let checkpoint = &prepared.file.checkpoint;
    let storage = open(&checkpoint.storage)?.with_compression(checkpoint.compression);
    let adopted = match &options.from {
        Some(from) => from.adopt(&storage, &definition, options.fresh, terminal)?,
        None => false,
    };
    if adopted && let Some(dir) = &definition.local_dir {
        // They are of the time before.
        delete_stores(dir).map_err(|error| host_failure(&error))?;
    }
    let run = RunOptions {
        restart: wiring::restart_policy(&prepared.file.restart),
        // What was there before has been deleted with the adoption.
        fresh: options.fresh && !adopted,
        allow_rewind: options.allow_rewind,
        seed: seed()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| host_failure(&error))?;
    let mut observer = Observer::new(prepared.file.operators().map(|(node, _)| node.id.clone()).collect());
    let server = ControlServer::start(storage.dir(), &prepared.file.name, controls);
    // A job whose directory takes no sockets runs all the same.
    let server = server.inspect_err(|error| tracing::warn!("nothing can be asked of this run: no control socket: {error}")).ok();
    let mut show = |event: &RunEvent| {
        // Shown first: whoever waits for an answer may look at what was shown.
        show(event);
        server.iter().for_each(|server| server.note(event));
    };
    let places = Places::of(&definition);
    let mut observe = |event| {
        if let (ExecutionEvent::Times { request, times }, Some(server)) = (&event, &server) {
            server.note_time(*request, places.time(times));
        }
        if let Some(event) = observer.observe(event) {
            show(&event);
        }
    };
    let ran = runtime.block_on(execute_job(definition, Arc::new(storage), run, receiver, &mut observe));
    let ran = ran.map_err(|error| host_failure(&error));
    if let Ok(end) = &ran {
        observer.end(end.clone(), interrupts.count() > 1).iter().for_each(&mut show);
    }
    if let Some(server) = server {
        server.close();
    }
    ran.map(drop)
}

/// Opens a job's directory for this process alone.
pub(super) fn open(path: &Path) -> Result<LocalStorage, Failure> {
    let storage = LocalStorage::open(path).map_err(|error| storage_failure(&error))?;
    Ok(storage.with_owner(seed()?))
}

/// Says what is wrong with a job's directory.
pub(super) fn storage_failure(error: &StorageError) -> Failure {
    let (exit, code) = match error.kind {
        StorageErrorKind::Fenced => (Exit::Storage, "storage-locked"),
        StorageErrorKind::Damaged | StorageErrorKind::NotFound => (Exit::Storage, "storage-damaged"),
        _ => (Exit::Environment, "storage-unusable"),
    };
    let problem = Diagnostic::new(code, chain(error));
    let problem = match error.kind {
        StorageErrorKind::Fenced => {
            problem.with_help("\"cofferdam stop\" ends a running pipeline; \"state\" and \"checkpoint show\" read beside it")
        }
        _ => problem,
    };
    Failure::new(exit, problem)
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
