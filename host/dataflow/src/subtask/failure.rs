//! Why a task failed, and where.

use std::fmt;

use crate::connector::ConnectorError;
use crate::guest::{GuestFault, TimeDomain};
use crate::ids::SubtaskId;

/// Which record, or records, a failure is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPosition {
    /// For people.
    pub description: String,
    /// Equal for the same record in every replay; 0 if there is none.
    pub identity: u64,
}

impl FaultPosition {
    /// Nothing is known.
    pub fn unknown() -> Self {
        Self { description: "unknown".into(), identity: 0 }
    }

    /// After the last record.
    pub fn end_of_input() -> Self {
        Self { description: "end of input".into(), identity: 1 }
    }

    /// `count` records of a port, the first of which is the subtask's `number`-th since it was opened. `hash` is that
    /// of the record's content.
    pub(super) fn record(port: u32, number: u64, count: usize, hash: u64) -> Self {
        let description = match count {
            1 => format!("record {} of port {port} since the start or restore (content hash {hash:016x})", number + 1),
            _ => format!("records {} to {} of port {port} since the start or restore", number + 1, number + count as u64),
        };
        Self { description, identity: hash | 2 }
    }

    /// `count` timers, the first of which has this key, time and tag. `hash` is that of the three.
    pub(super) fn timer(domain: TimeDomain, (key, time, tag): (&[u8], i64, u64), count: usize, hash: u64) -> Self {
        let key = key[..key.len().min(64)].escape_ascii();
        let first = format!("{} timer of key \"{key}\" for {time} ms with tag {tag}", domain.name());
        let description = match count {
            1 => first,
            _ => format!("{count} timers, the first of them the {first}"),
        };
        Self { description, identity: hash | 2 }
    }

    /// Adds where the source's splits stood.
    #[must_use]
    pub(super) fn within(mut self, splits: &str) -> Self {
        if !splits.is_empty() {
            self.description = format!("{}; source read up to {splits}", self.description);
        }
        self
    }
}

impl fmt::Display for FaultPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description)
    }
}

/// What failed.
#[derive(Debug)]
pub enum Cause {
    /// A guest call.
    Guest(GuestFault),
    /// A source or a sink.
    Connector(ConnectorError),
    /// A record that the graph cannot route, such as one without a key.
    Rejected {
        /// A stable name.
        code: &'static str,
        /// For people.
        message: String,
    },
    /// A broken invariant of the host.
    Internal(String),
}

/// A task that cannot go on. It is not stepped again; the job decides what happens.
#[derive(Debug, thiserror::Error)]
#[error("{subtask} failed: {}", cause_text(cause))]
pub struct TaskFailure {
    /// Whose call failed.
    pub subtask: SubtaskId,
    /// Why.
    pub cause: Cause,
    /// At which record.
    pub position: FaultPosition,
}

fn cause_text(cause: &Cause) -> String {
    match cause {
        Cause::Guest(fault) => fault.to_string(),
        Cause::Connector(error) => match &error.source {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
        Cause::Rejected { code, message } => format!("{code}: {message}"),
        Cause::Internal(message) => format!("host-internal: {message}"),
    }
}

impl TaskFailure {
    /// Returns a failed guest call.
    pub fn fault(subtask: SubtaskId, fault: GuestFault, position: FaultPosition) -> Self {
        Self { subtask, cause: Cause::Guest(fault), position }
    }

    /// Returns a failed connector.
    pub fn connector(subtask: SubtaskId, error: ConnectorError) -> Self {
        Self { subtask, cause: Cause::Connector(error), position: FaultPosition::unknown() }
    }

    /// Returns a record that cannot be routed; a replay gives the same.
    pub fn rejected(subtask: SubtaskId, code: &'static str, message: String) -> Self {
        Self { subtask, cause: Cause::Rejected { code, message }, position: FaultPosition::unknown() }
    }

    /// Returns a defect of the host.
    pub fn internal(subtask: SubtaskId, message: String) -> Self {
        Self { subtask, cause: Cause::Internal(message), position: FaultPosition::unknown() }
    }
}
