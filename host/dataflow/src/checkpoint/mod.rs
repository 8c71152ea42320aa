//! Checkpoints: their files, when they are taken, and what is restored from them.

pub mod chains;
mod frame;
pub mod manifest;
pub mod segment;
pub mod storage;

pub use frame::FrameError;
