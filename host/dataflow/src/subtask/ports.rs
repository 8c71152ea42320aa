//! What a task needs of the world: its channels, and somebody to report to.

use crate::connector::Prepared;
use crate::element::StreamElement;
use crate::ids::CheckpointId;
use crate::snapshot::{StateBlock, TaskSnapshot};
use crate::state::MemoryPressure;
use crate::time::ProcessingTime;

/// The clocks, as read by whoever steps the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since an arbitrary start; never goes back.
    pub monotonic_us: u64,
    /// The wall clock.
    pub processing_time: ProcessingTime,
}

/// A task's channels and its line to the job. Inputs and outputs are numbered as in the task's plan: inputs in order,
/// outputs by edge and then by channel.
pub trait Ports {
    /// Takes the next element of an input.
    fn pop(&mut self, input: usize) -> Option<StreamElement>;

    /// Hands an element to an output. Control elements and the first element of an empty channel are always accepted.
    ///
    /// # Errors
    /// Gives the element back if it is records and the channel is full.
    #[expect(clippy::result_large_err, reason = "what is refused is given back by move")]
    fn push(&mut self, output: usize, element: StreamElement) -> Result<(), StreamElement>;

    /// Whether the consumer of an output has nothing queued, so that waiting for a fuller batch only costs time.
    fn is_starving(&self, output: usize) -> bool;

    /// Whether blocks of state may be reported: whoever writes them keeps up.
    fn has_snapshot_room(&self) -> bool;

    /// Returns the time on the clock that a step's `now.monotonic_us` is read from, in microseconds.
    fn monotonic_us(&self) -> u64;

    /// Reports.
    fn report(&mut self, event: TaskEvent);
}

/// What a task reports.
pub enum TaskEvent {
    /// A snapshot has begun; its blocks follow. The prepared transactions must be made durable before it counts.
    SnapshotTaken {
        /// What is known at the cut.
        snapshot: Box<TaskSnapshot>,
        /// The transactions that the snapshot names, to be made durable.
        prepared: Vec<Prepared>,
    },
    /// State of a snapshot.
    SnapshotBlock {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Its table is an index into the snapshot's tables.
        block: StateBlock,
    },
    /// All blocks of a snapshot have been reported.
    SnapshotEncoded {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// How short of memory its state is; reported when it changes.
    MemoryPressure(MemoryPressure),
    /// All inputs have ended and everything has been handed on. The task goes on answering triggers.
    EndOfData,
}

/// What a task is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskCommand {
    /// Take a snapshot and send the barrier. For sources, and for tasks that have reported the end of data; others
    /// wait for their barriers and ignore it.
    Trigger {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Whether the snapshot holds all state.
        full: bool,
        /// Whether a source reads nothing after it.
        stop: bool,
    },
    /// Read nothing more, and end as if the input had ended here. For sources; others wait for their channels to end.
    Drain,
    /// A checkpoint has completed, and its transactions are committed.
    Completed(CheckpointId),
    /// The stores behind its state hold a completed checkpoint, of which it has been told.
    Applied(CheckpointId),
    /// Whether a source reads nothing for now: somebody's memory is short until a checkpoint completes.
    Hold(bool),
    /// A checkpoint will not complete.
    Aborted(CheckpointId),
}
