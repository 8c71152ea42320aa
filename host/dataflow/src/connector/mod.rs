//! What a subtask reads from and writes to: sources of splits with positions, and sinks with a two-phase protocol.
//!
//! Neither blocks on a peer: a source with nothing at hand says so. Local files may be read and written in place.

mod sink;
mod source;

pub use sink::{Prepared, Sink, SinkCommitter, SinkFactory, SinkGuarantee, Transaction};
pub use source::{Source, SourceFactory, SourceGuarantee, SourcePoll, Split, SplitPosition};

use crate::ids::OperatorId;

/// A connector that failed.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ConnectorError {
    /// A stable name, such as `io-read`, `record-malformed`, `source-changed`, `disk-full`.
    pub code: &'static str,
    /// The thing and what happened to it; lowercase, without the source's text.
    pub message: String,
    /// Whether trying again can help.
    pub transient: bool,
    /// What the world said.
    #[source]
    pub source: Option<std::io::Error>,
}

impl ConnectorError {
    /// Returns an error that trying again does not mend.
    pub fn permanent(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), transient: false, source: None }
    }

    /// Returns an error that trying again may mend.
    pub fn transient(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), transient: true, source: None }
    }

    /// Adds what the operating system said.
    #[must_use]
    pub fn with_source(mut self, source: std::io::Error) -> Self {
        self.source = Some(source);
        self
    }
}

/// Which subtask of which connector is opened.
#[derive(Clone, Debug)]
pub struct ConnectorContext {
    /// The user's name of the source or sink.
    pub id: OperatorId,
    /// The subtask's index.
    pub subtask: u32,
    /// The connector's parallelism.
    pub parallelism: u32,
}
