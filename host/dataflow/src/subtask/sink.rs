//! One subtask of a sink: writing, and the transactions that wait for their checkpoint.

use super::failure::TaskFailure;
use crate::batch::Batch;
use crate::connector::{ConnectorError, Prepared, Sink, Transaction};
use crate::ids::{CheckpointId, SubtaskId};

/// One parallel instance of a sink.
pub struct SinkSubtask {
    pub(super) id: SubtaskId,
    sink: Box<dyn Sink>,
    /// Prepared and not known to be committed, oldest first.
    pending: Vec<Transaction>,
    pub(super) records_in: u64,
    pub(super) bytes_in: u64,
    dirty: bool,
}

impl SinkSubtask {
    /// Wraps a sink.
    pub fn new(id: SubtaskId, sink: Box<dyn Sink>) -> Self {
        Self { id, sink, pending: Vec::new(), records_in: 0, bytes_in: 0, dirty: false }
    }

    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), TaskFailure> {
        self.records_in += batch.len() as u64;
        self.bytes_in += batch.values.bytes() as u64;
        self.dirty = true;
        let result = self.sink.write(batch);
        self.wrap(result)
    }

    pub(super) fn flush(&mut self) -> Result<(), TaskFailure> {
        if !std::mem::take(&mut self.dirty) {
            return Ok(());
        }
        let result = self.sink.flush();
        self.wrap(result)
    }

    /// Prepares a checkpoint's transaction. Returns all that wait, and what must be made durable first.
    pub(super) fn prepare(&mut self, checkpoint: CheckpointId) -> Result<(Vec<Transaction>, Option<Prepared>), TaskFailure> {
        let result = self.sink.prepare(checkpoint);
        let prepared = self.wrap(result)?;
        self.pending.extend(prepared.iter().map(|prepared| prepared.transaction.clone()));
        Ok((self.pending.clone(), prepared))
    }

    /// The transactions of this checkpoint and of older ones are committed.
    pub(super) fn committed(&mut self, checkpoint: CheckpointId) {
        self.pending.retain(|transaction| transaction.checkpoint > checkpoint);
    }

    fn wrap<T>(&self, result: Result<T, ConnectorError>) -> Result<T, TaskFailure> {
        result.map_err(|error| TaskFailure::connector(self.id.clone(), error))
    }
}
