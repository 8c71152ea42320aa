//! Does what the engine's job master commands: owns the threads, carries messages, decides nothing.

mod build;
mod channel;
mod definition;
mod snapshot_writer;
mod worker;

pub use definition::{JobDefinition, NodeParts};
