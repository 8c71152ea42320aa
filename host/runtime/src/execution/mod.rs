//! Does what the engine's job master commands: owns the threads, carries messages, decides nothing.

mod applier;
mod attempt;
mod build;
mod channel;
mod definition;
mod io;
mod job;
mod snapshot_writer;
mod stores;
mod times;
mod worker;

pub use definition::{JobDefinition, NodeParts, StateBackend};
pub use job::{Control, ExecutionEvent, RunOptions, SnapshotPause, execute};
pub use stores::delete_all as delete_stores;

/// The executor's parts that hold no thread, for those who schedule them in another way: the simulator.
#[doc(hidden)]
pub mod parts {
    pub use super::applier::{Applied, Applier, ApplierMessage};
    pub use super::attempt::Holding;
    pub use super::build::{AlignmentGroups, AttemptParts, Splits, discover};
    pub use super::io::{Done, Io, Work};
    pub use super::job::failure_of;
    pub use super::snapshot_writer::{SnapshotKey, Writer, WriterMessage, Written};
    pub use super::stores::{Stores, is_suspect};
}
