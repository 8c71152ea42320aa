//! State of all kinds: entry-level copy-on-write tables, owned by one subtask.
//!
//! A task is the only one that touches its tables, snapshots included: nothing here is shared between threads, locked or
//! unsafe. A guest reads state in the middle of its call; what it wants changed applies after it.
//!
//! * Every entry carries the epoch of its last write. A snapshot takes the list of entries written since the last one
//!   and increments the epoch: two words, whatever the size.
//! * The frozen entries are encoded later, in slices between two batches. Whoever writes an entry that a snapshot still
//!   needs first encodes its old value into that snapshot: the copy of copy-on-write is the encoding itself, so no old
//!   version is ever kept, and nothing has to be released.
//! * Lists of written entries are kept until a checkpoint that covers them is known to have completed, so every
//!   increment is relative to a completed checkpoint, and an aborted one costs nothing.
//! * A slot with one value a key has a hash table (`value`); maps, lists in chunks, and state without keys have ordered
//!   entries for each key (`ordered`). Timers are such entries, too, with the order in which they fire beside them
//!   (`timers`). Clearing a key is one mark in the increment, whatever its size.
//!
//! The idea of entries with epochs is that of Flink's `CopyOnWriteStateMap`; dirty lists and cooperative encoding differ.

mod apply;
mod arena;
mod backing;
mod cold;
mod compaction;
pub mod entry;
mod eviction;
mod frame;
mod list;
pub mod made;
pub mod memory_store;
mod ordered;
mod reads;
mod restore;
mod rewrite;
mod small;
mod snapshot;
pub mod store;
mod subtask;
mod table;
mod timers;
mod touch;
mod ttl;
mod value;

pub use eviction::MemoryPressure;
pub use frame::Frame;
pub use reads::SharedState;
pub use restore::{Deal, RestoreError, SlotRestore};
pub use rewrite::StoredForm;
pub(crate) use rewrite::rewrite_values;
pub use subtask::{KeyNotOwned, StateFull, StateOwner, SubtaskState};
pub(crate) use timers::TIMER_KEY_BYTES;
pub use timers::{Due, DueTimers, TimersFull, split_timer};

/// Bytes of a key, and of a key with an entry key, at most: whatever the configured limits are.
pub const KEY_BYTES_MAX: usize = restore::STORED_KEY_BYTES_MAX - 5;

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod tests;
