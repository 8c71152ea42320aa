//! Sinks: write, prepare at the barrier, commit after the checkpoint has completed.
//!
//! A transaction goes through: written -> prepared (staged, named in the snapshot) -> durable -> named in a published
//! manifest -> committed. Whatever is staged and not named in the manifest a job restores from is aborted.

use serde::{Deserialize, Serialize};

use super::{ConnectorContext, ConnectorError};
use crate::batch::Batch;
use crate::ids::CheckpointId;

/// What a sink can promise about its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkGuarantee {
    /// Invisible until committed: exactly once.
    Transactional,
    /// Visible at once, and again after a restart: at least once.
    Immediate,
    /// Drops everything: nothing to promise.
    None,
}

/// What a sink prepared for one checkpoint; in the sink's own encoding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Transaction {
    /// The checkpoint it was prepared for.
    pub checkpoint: CheckpointId,
    /// The subtask that prepared it.
    pub subtask: u32,
    /// What `commit` needs.
    pub payload: Vec<u8>,
}

/// A transaction whose bytes are not durable yet.
pub struct Prepared {
    /// What the snapshot names.
    pub transaction: Transaction,
    /// Makes it durable; runs off the task's thread, before the subtask acknowledges the checkpoint.
    pub make_durable: Box<dyn FnOnce() -> Result<(), ConnectorError> + Send>,
}

/// Writes the records of one subtask.
pub trait Sink {
    /// Writes records to the open transaction, or out at once.
    ///
    /// # Errors
    /// [`ConnectorError`]; the sink is not used again.
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError>;

    /// Closes the open transaction for this checkpoint and opens the next. `None` if there is nothing to commit.
    ///
    /// # Errors
    /// [`ConnectorError`]; the sink is not used again.
    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepared>, ConnectorError>;

    /// Hands buffered output on, where that is visible at once. Called when the sink's input is idle.
    ///
    /// # Errors
    /// [`ConnectorError`]; the sink is not used again.
    fn flush(&mut self) -> Result<(), ConnectorError> {
        Ok(())
    }
}

/// Settles the transactions of all subtasks of one sink. Each operation may be repeated.
pub trait SinkCommitter: Send {
    /// Makes transactions visible, in order, each atomically. One that has been committed already is fine.
    ///
    /// # Errors
    /// [`ConnectorError`] with code `sink-transaction-lost` if a transaction is neither prepared nor committed; the
    /// connector's own codes otherwise. It is called again with the same transactions.
    fn commit(&mut self, transactions: &[Transaction]) -> Result<(), ConnectorError>;

    /// Aborts everything this pipeline's sink has staged, except `keep`. Called before a restart writes anything.
    ///
    /// # Errors
    /// [`ConnectorError`].
    fn abort_all_except(&mut self, keep: &[Transaction]) -> Result<(), ConnectorError>;
}

/// Opens the writers and the committer of a sink.
pub trait SinkFactory: Send + Sync {
    /// Returns what the sink can promise.
    fn guarantee(&self) -> SinkGuarantee;

    /// Opens a writer.
    ///
    /// # Errors
    /// [`ConnectorError`], such as for a folder that cannot be written.
    fn open(&self, context: &ConnectorContext) -> Result<Box<dyn Sink>, ConnectorError>;

    /// Opens the committer; `None` for sinks without transactions.
    ///
    /// # Errors
    /// [`ConnectorError`].
    fn committer(&self) -> Result<Option<Box<dyn SinkCommitter>>, ConnectorError>;
}
