//! One task's part of a checkpoint: what is known at the cut, and the blocks of state that follow it.
//!
//! At the barrier a task freezes its state (which copies nothing) and reports a [`TaskSnapshot`]. It then hands out the
//! frozen state as [`StateBlock`]s, a slice between two batches at a time, until it reports the last.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::connector::{SplitPosition, Transaction};
use crate::guest::StateSlot;
use crate::ids::{Attempt, CheckpointId, OperatorId, SubtaskId, TaskIndex};
use crate::key_group::KeyGroup;
use crate::time::Watermark;

/// The keyed state of one slot of one operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId {
    /// The operator.
    pub operator: OperatorId,
    /// The slot's name.
    pub slot: String,
}

/// Whether a section of state stands on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SectionKind {
    /// All entries of a key group: nothing older is needed.
    Base,
    /// What changed since the last completed checkpoint that the task knew of; applies on top of any later one, too.
    Delta,
}

/// Encoded entries of one table and key group, at most about 256 KiB. A section is all blocks of its table and key
/// group in one snapshot; their order is irrelevant, for no key occurs twice with different values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateBlock {
    /// An index into [`TaskSnapshot::tables`].
    pub table: u16,
    /// The key group.
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
    /// The key groups it owns; empty for a task without keyed state.
    pub groups: Range<u16>,
    /// The tables that blocks refer to.
    pub tables: Vec<TableId>,
    /// One for each subtask of the chain, in chain order.
    pub subtasks: Vec<SubtaskSnapshot>,
    /// How long it took from the first barrier to the last, in microseconds of the engine's clock; 0 for sources.
    pub alignment_us: u64,
}
