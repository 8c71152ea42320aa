//! What is stored of a job, for tools: read, compared, verified, cleaned up, and made without a job.
//!
//! Reading takes no lock and works beside a running job. A completed checkpoint never changes; it can be deleted
//! meanwhile, which is [`StoredError::Gone`]. Memory is bounded by the largest key group, not by the state.
//!
//! ```
//! use cofferdam::stored::{NewSlot, NewState, SavepointWriter, StoredJob};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("job");
//! // State for a pipeline that has not run yet ...
//! let mut writer = SavepointWriter::create(&path, NewState::new("shop"))?;
//! let totals = NewSlot::value("total", "cents", "fixed", "u64");
//! let entries = [("ann", 1250_u64), ("bob", 300)];
//! writer.slot(&totals, entries.map(|(key, cents)| (key.as_bytes().to_vec(), cents.to_le_bytes().to_vec())))?;
//! writer.finish()?;
//!
//! // ... and a look at what is stored.
//! let checkpoint = StoredJob::open(&path)?.checkpoint(None)?;
//! let mut slot = checkpoint.slot("total", "cents")?;
//! assert_eq!(slot.get(b"bob")?, Some(300_u64.to_le_bytes().to_vec()));
//! for entry in slot.entries() {
//!     let entry = entry?;
//!     println!("{} {}", String::from_utf8_lossy(&entry.key), entry.value.len());
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(doctest)]
#[doc = include_str!("../../../../docs/state.md")]
struct StateFromOutside;

mod diff;
mod error;
mod gc;
#[cfg(test)]
mod golden;
mod job;
mod key;
mod layout;
mod render;
mod slot;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use cofferdam_dataflow::guest::{StateKind, StateSlot};
pub use diff::{ChangeKind, CheckpointDiff, KeyChange, PositionChange, SlotDiff, diff};
pub use error::StoredError;
pub use gc::{Garbage, collect_garbage, find_garbage};
pub use job::{StoredCheckpoint, StoredJob};
pub use key::{InvalidKey, parse_key, show_bytes};
pub use render::{Rendered, Renderer};
pub use slot::{Entries, SlotInfo, SlotSize, StoredEntry, StoredSlot};
pub use verify::{FileCheck, Verification, verify};
pub use writer::{NewEntry, NewSlot, NewState, SavepointError, SavepointWriter};
