//! Which checkpoint `state` reads: the newest, one with a number, or one that a running pipeline takes for it.

use std::path::Path;

use cofferdam::config::Diagnostic;
use cofferdam::config::value::format_duration_ms;
use cofferdam::control::{Answer, Request};
use cofferdam::stored::{StoredCheckpoint, StoredError, StoredJob};
use cofferdam_dataflow::checkpoint::segment::SegmentError;
use cofferdam_dataflow::ids::CheckpointId;
use serde_json::json;

use super::Exit;
use super::checkpoints::{moment, storage_of};
use super::control;
use super::execute::storage_failure;
use super::failure::{Failure, chain};
use super::terminal::{Lines, Terminal};
use super::times::now_ms;

/// The checkpoint to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The newest there is.
    Newest,
    /// This one.
    Id(u64),
    /// One that the running pipeline takes now.
    Now,
}

impl Which {
    /// Reads what the command line says, which excludes both at once.
    pub(super) fn new(id: Option<u64>, now: bool) -> Self {
        match id {
            _ if now => Self::Now,
            Some(id) => Self::Id(id),
            None => Self::Newest,
        }
    }
}

/// Why stored state was not read.
pub(super) enum ReadError {
    Stored(StoredError),
    Other(Failure),
}

impl From<StoredError> for ReadError {
    fn from(error: StoredError) -> Self {
        Self::Stored(error)
    }
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// Opens a checkpoint and reads it. If a running job deletes the newest one meanwhile, the next newest is read instead, once:
/// `read` must not have shown anything before it fails with [`StoredError::Gone`], or must turn that into a failure.
pub(super) fn read<T>(
    (path, which): (&Path, Which),
    terminal: &Terminal,
    mut read: impl FnMut(&StoredCheckpoint) -> Result<T, ReadError>,
) -> Result<T, Failure> {
    let dir = storage_of(path)?;
    let id = match which {
        Which::Newest => None,
        Which::Id(id) => Some(CheckpointId(id)),
        Which::Now => Some(take(path, &dir, terminal)?),
    };
    let result = patiently(which, id, |id| {
        let checkpoint = StoredJob::open(&dir)?.checkpoint(id)?;
        read(&checkpoint)
    });
    result.map_err(|error| match error {
        ReadError::Stored(error) => failure(&error),
        ReadError::Other(failure) => failure,
    })
}

/// Reads once more if what was to be read has been deleted and something newer will do.
fn patiently<T>(
    which: Which,
    id: Option<CheckpointId>,
    mut attempt: impl FnMut(Option<CheckpointId>) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    let is_gone = |error: &ReadError| match error {
        ReadError::Stored(StoredError::Gone(_)) => !matches!(which, Which::Id(_)),
        // It was there a moment ago.
        ReadError::Stored(StoredError::NoCheckpoint { .. }) => which == Which::Now,
        _ => false,
    };
    match attempt(id) {
        Err(error) if is_gone(&error) => attempt(None),
        result => result,
    }
}

/// Has a checkpoint taken.
fn take(path: &Path, dir: &Path, terminal: &Terminal) -> Result<CheckpointId, Failure> {
    if dir.join("_manifest").is_file() {
        let message = format!("{} is the folder of one checkpoint or savepoint: nothing runs in it", path.display());
        let help = "with --now, give the pipeline file, or the folder that its checkpoints are in";
        return Err(Failure::new(Exit::Environment, Diagnostic::new("not-running", message).with_help(help)));
    }
    let answer = control::request(dir, &Request::Checkpoint {}, terminal).map_err(|mut failure| {
        let help = "without --now, what the pipeline has stored is read";
        failure.problems = failure.problems.into_iter().map(|problem| problem.with_help(help)).collect();
        failure
    })?;
    match answer {
        Answer::Checkpoint { id } => Ok(CheckpointId(id)),
        other => {
            let message = format!("the running pipeline answers with something else than a checkpoint: {other:?}");
            Err(Failure::new(Exit::Environment, Diagnostic::new("control-answer", message)))
        }
    }
}

/// Tells which checkpoint was read and how old it is: to people beside the result, as JSON before it.
pub(super) fn tell(checkpoint: &StoredCheckpoint, lines: &mut Lines, terminal: &Terminal) -> Result<(), Failure> {
    let (id, created) = (checkpoint.id().0, checkpoint.manifest().created.0);
    // A clock that was set back makes nothing younger than new.
    let age_ms = u64::try_from(now_ms().saturating_sub(created)).unwrap_or(0);
    if terminal.is_json() {
        let value = json!({ "event": "state-checkpoint", "checkpoint": id, "created_ms": created, "age_ms": age_ms });
        lines.line(&value, |_| String::new())?;
    } else {
        terminal.note(&format!("checkpoint {id}, taken {} ago ({})", format_duration_ms(age_ms), moment(created)));
    }
    Ok(())
}

/// Opens a checkpoint of a pipeline or a directory.
pub(super) fn open(path: &Path, id: Option<u64>) -> Result<StoredCheckpoint, Failure> {
    let job = StoredJob::open(&storage_of(path)?).map_err(|error| failure(&error))?;
    job.checkpoint(id.map(CheckpointId)).map_err(|error| failure(&error))
}

/// Says why stored state cannot be read.
pub(super) fn failure(error: &StoredError) -> Failure {
    let storage = |code| Failure::new(Exit::Storage, Diagnostic::new(code, chain(error)));
    match error {
        StoredError::NoCheckpoint { .. } => storage("no-checkpoint"),
        StoredError::NoSlot { .. } | StoredError::WrongKind { .. } => Diagnostic::new("no-slot", error.to_string()).into(),
        StoredError::NotJob(_) => Diagnostic::new("not-a-job", error.to_string()).into(),
        StoredError::Gone(_) => storage("checkpoint-gone"),
        StoredError::Storage(error) | StoredError::Segment(SegmentError::Storage(error)) => storage_failure(error),
        _ => storage("checkpoint-damaged"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails so often with what it is given; returns which checkpoints were asked for, and whether one was read.
    fn tries(which: Which, id: Option<u64>, errors: Vec<StoredError>) -> (Vec<Option<u64>>, bool) {
        let (mut asked, mut errors) = (Vec::new(), errors.into_iter());
        let result = patiently(which, id.map(CheckpointId), |id| {
            asked.push(id.map(|id| id.0));
            errors.next().map_or(Ok(()), |error| Err(error.into()))
        });
        (asked, result.is_ok())
    }

    #[test]
    fn a_checkpoint_that_is_deleted_meanwhile_is_replaced_by_the_next_newest_once() {
        let gone = || StoredError::Gone(CheckpointId(7));
        let none = || StoredError::NoCheckpoint { path: "job".into(), checkpoint: Some(CheckpointId(7)) };
        assert_eq!(tries(Which::Newest, None, vec![gone()]), (vec![None, None], true));
        assert_eq!(tries(Which::Now, Some(7), vec![gone()]), (vec![Some(7), None], true));
        assert_eq!(tries(Which::Now, Some(7), vec![none()]), (vec![Some(7), None], true));
        assert_eq!(tries(Which::Newest, None, vec![gone(), gone()]), (vec![None, None], false), "once");
        // Who names a checkpoint wants that one.
        assert_eq!(tries(Which::Id(7), Some(7), vec![gone()]), (vec![Some(7)], false));
        assert_eq!(tries(Which::Newest, None, vec![none()]), (vec![None], false));
    }
}
