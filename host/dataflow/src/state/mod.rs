//! Keyed state: entry-level copy-on-write tables, owned by one subtask.
//!
//! A task is the only one that touches its tables, snapshots included: nothing here is shared, locked or unsafe.
//!
//! * Every entry carries the epoch of its last write. A snapshot takes the list of entries written since the last one
//!   and increments the epoch: two words, whatever the size.
//! * The frozen entries are encoded later, in slices between two batches. Whoever writes an entry that a snapshot still
//!   needs first encodes its old value into that snapshot: the copy of copy-on-write is the encoding itself, so no old
//!   version is ever kept, and nothing has to be released.
//! * Lists of written entries are kept until a checkpoint that covers them is known to have completed, so every
//!   increment is relative to a completed checkpoint, and an aborted one costs nothing.
//!
//! The idea of entries with epochs is that of Flink's `CopyOnWriteStateMap`; dirty lists and cooperative encoding differ.

mod arena;
pub mod entry;
mod frame;
mod keyed;
mod snapshot;
mod table;

pub use frame::Frame;
pub use keyed::{KeyNotOwned, KeyedState, StateFull};

#[cfg(test)]
mod tests;
