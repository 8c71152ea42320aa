//! The graph as the user wrote it ([`spec`]), and as it runs ([`plan`]).
//!
//! An operator becomes one subtask per degree of parallelism. Subtasks joined by forward edges are chained into one
//! task, which runs on one thread and hands batches on without a queue. Everything else goes through channels.

pub mod plan;
pub mod spec;
#[cfg(test)]
mod tests;
