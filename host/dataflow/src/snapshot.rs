//! One task's part of a checkpoint: what is known at the cut, and the blocks of state that follow it.
//!
//! At the barrier a task freezes its state (which copies nothing) and reports a [`TaskSnapshot`]. It then hands out the
//! frozen state as [`StateBlock`]s, a slice between two batches at a time, until it reports the last.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::connector::{SplitPosition, Transaction};
use crate::guest::{StateKind, StateSlot};
use crate::ids::{Attempt, CheckpointId, OperatorId, SubtaskId, TaskIndex};
use crate::key_group::KeyGroup;
use crate::time::Watermark;

/// The state of one slot of one operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId {
    /// The operator.
    pub operator: OperatorId,
    /// The slot's name.
    pub slot: String,
}

/// What a section of state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SectionKind {
    /// All entries of a key group: nothing older is needed.
    Base,
    /// What changed since the last completed checkpoint that the task knew of; applies on top of any later one, too.
    Delta,
    /// Keys that were cleared in the same time as a delta: applied before it. Only keys with many entries are cleared.
    Clears,
}

impl TaskSnapshot {
    /// Returns the kind of one of its tables.
    pub fn kind_of(&self, table: &TableId) -> Option<StateKind> {
        let subtask = self.subtasks.iter().find(|subtask| subtask.id.operator == table.operator)?;
        let SubtaskPart::Operator { slots } = &subtask.part else { return None };
        slots.iter().find(|slot| slot.name == table.slot).map(|slot| slot.kind)
    }

    /// Whether the task may write a section of a table: state of keys is that of its key groups, other state that of its
    /// subtask.
    pub fn owns(&self, table: &TableId, group: KeyGroup) -> bool {
        match self.kind_of(table) {
            Some(kind) if kind.is_keyed() => self.groups.contains(&group.0),
            Some(_) => self.subtasks.first().is_some_and(|subtask| subtask.id.index == u32::from(group.0)),
            None => false,
        }
    }
}

impl SectionKind {
    /// Returns the order in which the sections of one key group apply; two of one rank exclude each other.
    pub fn rank(self) -> u8 {
        match self {
            Self::Clears => 0,
            Self::Base | Self::Delta => 1,
        }
    }
}

/// Encoded entries of one table and key group, at most about 256 KiB. A section is all blocks of its table, key group
/// and kind in one snapshot; their order is irrelevant, for no key occurs twice with different values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateBlock {
    /// An index into [`TaskSnapshot::tables`].
    pub table: u16,
    /// The key group; for state of a subtask rather than of keys, the subtask's index.
    pub group: KeyGroup,
    /// The same for all blocks of a section.
    pub kind: SectionKind,
    /// How many entries it holds; may be 0 for the only block of an empty base.
    pub entries: u32,
    /// Entries as in [`crate::state::entry`].
    pub bytes: Vec<u8>,
}

/// What one subtask knew at the cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubtaskSnapshot {
    /// The subtask.
    pub id: SubtaskId,
    /// The watermark it had forwarded.
    pub watermark: Option<Watermark>,
    /// Whether all its input had ended and its `finish` had run.
    pub finished: bool,
    /// What it holds besides keyed state.
    pub part: SubtaskPart,
}

/// What a subtask holds besides keyed state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubtaskPart {
    /// Where a source goes on reading.
    Source {
        /// One for each split.
        positions: Vec<SplitPosition>,
    },
    /// An operator.
    Operator {
        /// Its declared slots, for compatibility checks and offline decoding.
        slots: Vec<StateSlot>,
    },
    /// A sink.
    Sink {
        /// Prepared and not known to be committed, oldest first.
        transactions: Vec<Transaction>,
    },
}

/// What a task knew at the cut. Its state follows as blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSnapshot {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The attempt that the task belongs to.
    pub attempt: Attempt,
    /// The task.
    pub task: TaskIndex,
    /// The key groups it owns; empty for a task without state.
    pub groups: Range<u16>,
    /// The tables that blocks refer to.
    pub tables: Vec<TableId>,
    /// One for each subtask of the chain, in chain order.
    pub subtasks: Vec<SubtaskSnapshot>,
    /// How long it took from the first barrier to the last, in microseconds of the engine's clock; 0 for sources.
    pub alignment_us: u64,
}
