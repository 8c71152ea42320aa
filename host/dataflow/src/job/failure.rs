//! Why an attempt ended, and whether another one makes sense.

use crate::checkpoint::storage::{StorageError, StorageErrorKind};
use crate::connector::ConnectorError;
use crate::guest::{FaultClass, GuestFault};
use crate::ids::{Attempt, SubtaskId};

/// Why an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailureCause {
    /// A guest call failed.
    #[error("{0}")]
    Guest(GuestFault),
    /// A source or sink failed.
    #[error("{code}: {message}")]
    Connector {
        /// A stable name.
        code: &'static str,
        /// The thing and what happened to it.
        message: String,
        /// Whether trying again can help.
        transient: bool,
    },
    /// Too many checkpoints have failed in a row.
    #[error("checkpoint-failures: {failures} checkpoints in a row have failed, the last one because {last}")]
    Checkpoints {
        /// How many.
        failures: u32,
        /// Why the last one did.
        last: String,
    },
    /// The savepoint that the job was to stop with could not be taken: its sources had stopped for it.
    #[error("savepoint-failed: {0}")]
    Savepoint(String),
    /// The storage of checkpoints failed.
    #[error("storage: {message}")]
    Storage {
        /// What happened.
        message: String,
        /// Whether trying again can help.
        transient: bool,
    },
    /// Another process or attempt has taken the job over.
    #[error("fenced: {0}")]
    Fenced(String),
    /// The checkpoint cannot be restored.
    #[error("{0}")]
    Restore(String),
    /// A defect of the host.
    #[error("host-internal: {0}")]
    Host(String),
}

/// What a restart can do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// It may go away; at the same position again and again it does not.
    MayRepeat,
    /// It goes away some time.
    Transient,
    /// A restart gives the same failure.
    Permanent,
    /// The job belongs to somebody else: touch nothing any more.
    Fenced,
}

impl FailureCause {
    /// Returns what a restart can do about it.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Guest(fault) => match fault.class {
                FaultClass::Guest | FaultClass::Host => FailureClass::MayRepeat,
                FaultClass::Infrastructure => FailureClass::Transient,
                FaultClass::Permanent => FailureClass::Permanent,
            },
            Self::Connector { transient, .. } | Self::Storage { transient, .. } => {
                if *transient {
                    FailureClass::Transient
                } else {
                    FailureClass::Permanent
                }
            }
            Self::Checkpoints { .. } | Self::Savepoint(_) => FailureClass::Transient,
            Self::Host(_) => FailureClass::MayRepeat,
            Self::Restore(_) => FailureClass::Permanent,
            Self::Fenced(_) => FailureClass::Fenced,
        }
    }

    /// Returns the stable name that reports use.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Guest(fault) => fault.code.name(),
            Self::Connector { code, .. } => code,
            Self::Checkpoints { .. } => "checkpoint-failures",
            Self::Savepoint(_) => "savepoint-failed",
            Self::Storage { .. } => "storage",
            Self::Fenced(_) => "fenced",
            Self::Restore(_) => "restore",
            Self::Host(_) => "host-internal",
        }
    }
}

impl From<GuestFault> for FailureCause {
    fn from(fault: GuestFault) -> Self {
        Self::Guest(fault)
    }
}

impl From<&ConnectorError> for FailureCause {
    fn from(error: &ConnectorError) -> Self {
        let cause = error.source.as_ref().map(|source| format!(": {source}")).unwrap_or_default();
        Self::Connector { code: error.code, message: format!("{}{cause}", error.message), transient: error.transient }
    }
}

impl From<&StorageError> for FailureCause {
    fn from(error: &StorageError) -> Self {
        let cause = error.source.as_ref().map(|source| format!(": {source}")).unwrap_or_default();
        let message = format!("{error}{cause}");
        match error.kind {
            StorageErrorKind::Fenced => Self::Fenced(message),
            StorageErrorKind::Damaged | StorageErrorKind::NotFound => Self::Restore(format!("restore-damaged: {message}")),
            StorageErrorKind::Exists | StorageErrorKind::Full | StorageErrorKind::Io => {
                Self::Storage { message, transient: true }
            }
        }
    }
}

/// A failure and where it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The subtask, if it was one.
    pub subtask: Option<SubtaskId>,
    /// Why.
    pub cause: FailureCause,
    /// Where in the input, for people, if that is known.
    pub position: Option<String>,
    /// Equal for the same record in every replay, such as a hash of its content; 0 if no record is known.
    pub place: u64,
}

impl Failure {
    /// Returns a failure of the job as a whole.
    pub fn of_job(cause: FailureCause) -> Self {
        Self { subtask: None, cause, position: None, place: 0 }
    }
}

/// Why a job has failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFailure {
    /// The attempt that ended last; `None` if none began.
    pub attempt: Option<Attempt>,
    /// What ended it.
    pub failure: Failure,
    /// Why it is not restarted.
    pub reason: String,
}
