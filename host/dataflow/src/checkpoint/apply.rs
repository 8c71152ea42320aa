//! Bringing a completed checkpoint into the stores behind a task's state. Blocks; runs beside the task.

use super::segment::{SegmentError, SegmentReader, SegmentRef};
use super::storage::CheckpointStorage;
use crate::snapshot::TableId;
use crate::state::store::{SectionWrite, StateStore, StoreError};

/// A checkpoint that did not get into a store.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The segment could not be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The store could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes what a task's segment holds of the tables that `store_of` knows into their stores, with the slot's number.
/// Doing it again, in part or as a whole, changes nothing.
///
/// # Errors
/// [`ApplyError`].
pub fn apply_segment<'a>(
    storage: &dyn CheckpointStorage,
    reference: &SegmentRef,
    store_of: impl Fn(&TableId) -> Option<(&'a dyn StateStore, u16)>,
) -> Result<(), ApplyError> {
    let source = reference.open(storage).map_err(SegmentError::from)?;
    let reader = SegmentReader::open(source, reference)?;
    // Ascending by table, group and rank.
    for section in reader.sections() {
        let Some((store, slot)) = store_of(&reader.header().tables[usize::from(section.table)]) else { continue };
        let mut write = SectionWrite::new(store, slot, section.group, section.kind);
        reader.read(section, |bytes| write.block(bytes).map_err(ApplyError::from))?;
        write.finish()?;
    }
    Ok(())
}
