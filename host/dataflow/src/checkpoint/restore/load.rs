//! Loading the state that a task begins with. Blocks while it reads.

use std::collections::{BTreeMap, BTreeSet};

use super::{TableRestore, TaskRestore};
use crate::checkpoint::segment::SegmentError;
use crate::checkpoint::storage::CheckpointStorage;
use crate::ids::OperatorId;
use crate::key_group::KeyGroup;
use crate::snapshot::TableId;
use crate::state::entry::EntryReader;
use crate::state::{RestoreError, SlotRestore, SubtaskState};
use crate::time::ProcessingTime;

/// State that could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A segment could not be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// What was read does not fit.
    #[error("slot \"{}\" of \"{}\": {error}", table.slot, table.operator)]
    State {
        /// The table.
        table: TableId,
        /// What is wrong.
        error: RestoreError,
    },
    /// An operator's state is there and the operator is not.
    #[error("slot \"{}\" of \"{}\" is not declared", .0.slot, .0.operator)]
    Undeclared(TableId),
}

impl TaskRestore {
    /// Returns what a store that holds the state of an earlier checkpoint lacks, and the groups of which it lacks all that
    /// there is.
    fn lacking(&self, states: &BTreeMap<OperatorId, SubtaskState>) -> (Self, Vec<(TableId, KeyGroup)>) {
        let (mut lacking, mut renewed) = (self.clone(), Vec::new());
        for part in &mut lacking.tables {
            let state = states.get(&part.table.operator).filter(|state| state.is_stored(part.slot));
            let Some(resumed) = state.and_then(SubtaskState::resumed) else { continue };
            for (group, chain) in &mut part.groups {
                let all = chain.len();
                chain.retain(|segment| segment.checkpoint > resumed);
                if chain.len() == all {
                    renewed.push((part.table.clone(), *group));
                }
            }
        }
        let wanted: BTreeSet<_> = lacking.tables.iter().flat_map(|part| part.groups.values()).flatten().copied().collect();
        lacking.segments.retain(|id, _| wanted.contains(id));
        (lacking, renewed)
    }

    /// Loads the state of the task's operators into `states`, which must be empty. Values that have expired by `now` are
    /// left out.
    ///
    /// # Errors
    /// [`LoadError`]; the states are of no use then.
    pub fn load(
        &self,
        storage: &dyn CheckpointStorage,
        states: &mut BTreeMap<OperatorId, SubtaskState>,
        now: ProcessingTime,
    ) -> Result<(), LoadError> {
        let begin = |part: &TableRestore| {
            SlotRestore::new(part.slot, part.deal, part.was_ttl_ms, now).rewritten(part.migration.is_some())
        };
        let mut loading: BTreeMap<&TableId, SlotRestore> = self.tables.iter().map(|part| (&part.table, begin(part))).collect();
        let mut read: BTreeMap<(&TableId, KeyGroup), u64> = BTreeMap::new();
        let fail = |table: &TableId| {
            let table = table.clone();
            move |error| LoadError::State { table, error }
        };
        let (lacking, renewed) = self.lacking(states);
        for (table, group) in &renewed {
            if let (Some((_, slot)), Some(state)) = (by_id(&mut loading, table), states.get(&table.operator)) {
                slot.begin_group(state, *group);
            }
        }
        lacking.read(storage, |table, group, bytes| {
            let (Some((known, slot)), Some(state)) = (by_id(&mut loading, table), states.get_mut(&table.operator)) else {
                return Err(LoadError::Undeclared(table.clone()));
            };
            *read.entry((known, group)).or_default() += bytes.len() as u64;
            for entry in EntryReader::new(bytes) {
                let entry = entry.map_err(|error| fail(table)(RestoreError::Damaged(error.to_string())))?;
                slot.apply(state, group, &entry).map_err(fail(table))?;
            }
            Ok(())
        })?;
        for part in &self.tables {
            let (Some(slot), Some(state)) = (loading.remove(&part.table), states.get_mut(&part.table.operator)) else {
                return Err(LoadError::Undeclared(part.table.clone()));
            };
            let groups = part.groups.iter().map(|(group, chain)| {
                let deltas = u32::try_from(chain.len().saturating_sub(1)).unwrap_or(u32::MAX);
                // The increments' share, taking the base for as large as they are on average.
                let all = read.get(&(&part.table, *group)).copied().unwrap_or(0);
                (*group, deltas, all / (u64::from(deltas) + 1) * u64::from(deltas))
            });
            slot.finish(state, groups).map_err(fail(&part.table))?;
        }
        Ok(())
    }
}

fn by_id<'a, 'b>(
    loading: &'b mut BTreeMap<&'a TableId, SlotRestore>,
    table: &TableId,
) -> Option<(&'a TableId, &'b mut SlotRestore)> {
    loading.iter_mut().find(|(known, _)| **known == table).map(|(known, slot)| (*known, slot))
}
