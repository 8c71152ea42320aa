//! Checkpoints: their files, when they are taken, and what is restored from them.

pub mod adopt;
pub mod apply;
pub mod chains;
pub mod config;
pub mod contents;
pub mod coordinator;
pub mod difference;
mod frame;
#[cfg(test)]
mod fuzz;
pub mod manifest;
pub mod memory;
pub mod recovery;
pub mod restore;
pub mod retention;
pub mod segment;
pub mod storage;

pub use frame::FrameError;
