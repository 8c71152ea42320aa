//! Checkpoints: their files, when they are taken, and what is restored from them.

pub mod segment;
pub mod storage;
