//! Does what the engine's job master commands: owns the threads, carries messages, decides nothing.

mod attempt;
mod build;
mod channel;
mod definition;
mod io;
mod job;
mod snapshot_writer;
mod worker;

pub use definition::{JobDefinition, NodeParts};
pub use job::{Control, ExecutionEvent, RunOptions, execute};
