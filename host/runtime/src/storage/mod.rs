//! Where checkpoints are kept: a directory of this host.
//!
//! [`local`] is the storage that the engine asks for, in terms of the file operations of [`files`], so that a simulated
//! disk can stand in for the real one. [`savepoint`] writes and reads the folders
//! of savepoints, [`inspect`] reads checkpoints for people. docs/checkpoint-format.md has the layout.

pub mod compression;
#[cfg(test)]
mod damage;
pub mod files;
pub mod inspect;
pub mod local;
mod mark;
pub mod savepoint;
mod segment_file;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

pub use compression::Compression;
pub use local::LocalStorage;
pub use savepoint::LocalSnapshot;
