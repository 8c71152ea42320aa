//! Builds a task on its own thread: opens connectors and guests, and loads the keyed state it begins with.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_dataflow::checkpoint::restore::{RestorePlan, SubtaskRestore};
use cofferdam_dataflow::checkpoint::segment::SegmentError;
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, StorageErrorKind};
use cofferdam_dataflow::connector::{ConnectorContext, ConnectorError, SourceFactory, Split, SplitPosition};
use cofferdam_dataflow::graph::plan::TaskPlan;
use cofferdam_dataflow::guest::InstanceInfo;
use cofferdam_dataflow::ids::{Attempt, OperatorId, SubtaskId};
use cofferdam_dataflow::key_group::KeyGroup;
use cofferdam_dataflow::snapshot::TableId;
use cofferdam_dataflow::state::KeyedState;
use cofferdam_dataflow::state::entry::{Entry, EntryReader};
use cofferdam_dataflow::subtask::{
    Head, Node, OperatorRestore, OperatorSubtask, SinkSubtask, SourceSubtask, Task, TaskFailure, WatermarkStrategy,
};

use super::definition::{JobDefinition, NodeParts};
use super::snapshot_writer::error_text;

/// The splits of every source, found once an attempt.
pub type Splits = BTreeMap<OperatorId, Vec<Split>>;

/// What the tasks of one attempt are built from. Shared by their threads.
pub struct AttemptParts {
    /// What runs.
    pub definition: Arc<JobDefinition>,
    /// Which run of it.
    pub attempt: Attempt,
    /// Holds the state to begin with.
    pub storage: Arc<dyn CheckpointStorage>,
    /// What to begin with; `None` for an empty start.
    pub restore: Option<RestorePlan>,
    /// As [`discover`] found them.
    pub splits: Splits,
    /// Seeds the tables' hashes: nothing that leaves the process depends on it.
    pub seed: u64,
}

/// A restored operator's entries that do not fit.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error("{0}")]
    State(String),
}

impl LoadError {
    /// A file that cannot be read now may be readable later; one that is not what was written stays so.
    fn into_failure(self, id: SubtaskId) -> TaskFailure {
        let text = error_text(&self);
        match self {
            Self::Segment(SegmentError::Storage(error))
                if !matches!(error.kind, StorageErrorKind::NotFound | StorageErrorKind::Damaged) =>
            {
                TaskFailure::connector(id, ConnectorError::transient("restore-read", text))
            }
            Self::Segment(_) | Self::State(_) => TaskFailure::rejected(id, "restore-damaged", text),
        }
    }
}

/// Finds the splits of all sources: those of a restored checkpoint, and new ones.
///
/// # Errors
/// [`TaskFailure`] of the source's first subtask; a split that was being read and is gone is an error by name.
pub fn discover(definition: &JobDefinition, restore: Option<&RestorePlan>) -> Result<Splits, TaskFailure> {
    let mut found = Splits::new();
    for (node, parts) in definition.spec.nodes.iter().zip(&definition.parts) {
        if let NodeParts::Source { factory, .. } = parts {
            let restored = restore.and_then(|restore| restore.positions.get(&node.id));
            let id = SubtaskId { operator: node.id.clone(), index: 0 };
            let splits = splits_of(&**factory, node.parallelism, restored).map_err(|error| TaskFailure::connector(id, error))?;
            found.insert(node.id.clone(), splits);
        }
    }
    Ok(found)
}

fn splits_of(
    factory: &dyn SourceFactory,
    parallelism: u32,
    restored: Option<&BTreeMap<String, SplitPosition>>,
) -> Result<Vec<Split>, ConnectorError> {
    let Some(restored) = restored else {
        return factory.discover(parallelism);
    };
    let mut splits: Vec<_> = restored.keys().map(|id| Split { id: id.clone() }).collect();
    let all_finished = restored.values().all(|position| position.finished);
    if factory.has_fixed_splits() {
        return Ok(splits);
    }
    match factory.discover(parallelism) {
        Ok(there) => {
            let is_there = |id: &str| there.iter().any(|split| split.id == id);
            if let Some(position) = restored.values().find(|position| !position.finished && !is_there(&position.split)) {
                let text = format!("{} was being read ({}) and is gone", position.split, position.display);
                return Err(ConnectorError::permanent("source-changed", text));
            }
            splits.extend(there.into_iter().filter(|split| !restored.contains_key(&split.id)));
            Ok(splits)
        }
        // What has been read to its end may be gone.
        Err(_) if all_finished => Ok(splits),
        Err(error) => Err(error),
    }
}

impl AttemptParts {
    /// Builds one task.
    ///
    /// # Errors
    /// [`TaskFailure`] if a connector or a guest does not open, or state does not load.
    pub fn build(&self, plan: &TaskPlan) -> Result<Task, TaskFailure> {
        let max_parallelism = self.definition.spec.max_parallelism;
        let mut states = self.load(plan)?;
        let mut head = None;
        let mut nodes = Vec::new();
        for index in &plan.nodes {
            let id = SubtaskId { operator: self.definition.spec.nodes[*index].id.clone(), index: plan.subtask };
            let restored = self.restored(plan, &id);
            match &self.definition.parts[*index] {
                NodeParts::Source { watermarks, .. } => head = Some(Head::Source(self.source(plan, *index, &id, *watermarks)?)),
                NodeParts::Operator { factory, limits, .. } => {
                    let info = InstanceInfo {
                        operator: id.operator.clone(),
                        subtask: id.index,
                        parallelism: plan.parallelism,
                        limits: *limits,
                    };
                    let restore = OperatorRestore {
                        watermark: restored.and_then(|restored| restored.watermark),
                        finished: restored.is_some_and(|restored| restored.finished),
                    };
                    let state = states.remove(&id.operator);
                    nodes.push(Node::Operator(OperatorSubtask::open(Arc::clone(factory), info, state, restore)?));
                }
                NodeParts::Sink { factory } => {
                    let sink = factory.open(&context(plan, &id)).map_err(|error| TaskFailure::connector(id.clone(), error))?;
                    nodes.push(Node::Sink(SinkSubtask::new(id, sink)));
                }
            }
        }
        let first = SubtaskId { operator: self.definition.spec.nodes[plan.nodes[0]].id.clone(), index: plan.subtask };
        let watermark = self.restored(plan, &first).and_then(|restored| restored.watermark);
        let head = head.unwrap_or_else(|| Head::gate(plan, watermark));
        Ok(Task::new(plan.clone(), self.attempt, max_parallelism, head, nodes))
    }

    fn restored(&self, plan: &TaskPlan, id: &SubtaskId) -> Option<&SubtaskRestore> {
        let task = self.restore.as_ref()?.tasks.get(plan.index.0)?;
        task.subtasks.iter().find(|subtask| subtask.id == *id)
    }

    fn source(
        &self,
        plan: &TaskPlan,
        index: usize,
        id: &SubtaskId,
        watermarks: Option<WatermarkStrategy>,
    ) -> Result<SourceSubtask, TaskFailure> {
        let NodeParts::Source { factory, .. } = &self.definition.parts[index] else {
            return Err(TaskFailure::internal(id.clone(), "a source without a source's parts".into()));
        };
        let positions = self.restore.as_ref().and_then(|restore| restore.positions.get(&id.operator));
        let position = |split: &Split| -> Option<SplitPosition> { positions?.get(&split.id).cloned() };
        let all = self.splits.get(&id.operator).map_or(&[][..], Vec::as_slice);
        let mine = all.iter().skip(plan.subtask as usize).step_by(plan.parallelism as usize);
        let splits: Vec<_> = mine.map(|split| (split.clone(), position(split))).collect();
        let count = splits.len();
        let source = factory.open(&context(plan, id), splits).map_err(|error| TaskFailure::connector(id.clone(), error))?;
        let restored = self.restored(plan, id).and_then(|restored| restored.watermark);
        Ok(SourceSubtask::new(id.clone(), source, count, watermarks, restored))
    }

    /// Returns the keyed state of the chain's operators, with what the checkpoint holds of it.
    fn load(&self, plan: &TaskPlan) -> Result<BTreeMap<OperatorId, KeyedState>, TaskFailure> {
        let mut states = BTreeMap::new();
        let mut slots: BTreeMap<TableId, usize> = BTreeMap::new();
        let mut loading = None;
        for index in &plan.nodes {
            let NodeParts::Operator { factory, state_quota_bytes, .. } = &self.definition.parts[*index] else {
                continue;
            };
            let descriptor = factory.descriptor();
            if !descriptor.is_keyed() {
                continue;
            }
            let operator = &self.definition.spec.nodes[*index].id;
            for (slot, declared) in descriptor.slots.iter().enumerate() {
                slots.insert(TableId { operator: operator.clone(), slot: declared.name.clone() }, slot);
            }
            let max_parallelism = self.definition.spec.max_parallelism;
            let state =
                KeyedState::new(max_parallelism, plan.groups.clone(), descriptor.slots.len(), self.seed, *state_quota_bytes);
            loading.get_or_insert_with(|| SubtaskId { operator: operator.clone(), index: plan.subtask });
            states.insert(operator.clone(), state);
        }
        let task = self.restore.as_ref().and_then(|restore| restore.tasks.get(plan.index.0));
        if let (Some(task), Some(id)) = (task, loading) {
            let mut chains = ChainSizes::default();
            let result = task.read(&*self.storage, |table, group, bytes| {
                let (Some(state), Some(slot)) = (states.get_mut(&table.operator), slots.get(table)) else {
                    return Err(LoadError::State(format!("\"{}\" of \"{}\" is not declared", table.slot, table.operator)));
                };
                chains.note(table, group, bytes);
                apply(state, *slot, group, bytes)
            });
            result.map_err(|error| error.into_failure(id))?;
            // What has been migrated is stored in another form: its next snapshot is a base.
            for part in task.tables.iter().filter(|part| part.migration.is_none()) {
                for (group, chain) in &part.groups {
                    let (Some(state), Some(slot)) = (states.get_mut(&part.table.operator), slots.get(&part.table)) else {
                        continue;
                    };
                    let deltas = u32::try_from(chain.len().saturating_sub(1)).unwrap_or(u32::MAX);
                    state.restored_group(*slot, *group, deltas, chains.delta_bytes(&part.table, *group, deltas));
                }
            }
        }
        Ok(states)
    }
}

/// How much was read of each key group, to know when its increments outweigh it.
#[derive(Default)]
struct ChainSizes(BTreeMap<(TableId, KeyGroup), u64>);

impl ChainSizes {
    fn note(&mut self, table: &TableId, group: KeyGroup, bytes: &[u8]) {
        *self.0.entry((table.clone(), group)).or_default() += bytes.len() as u64;
    }

    /// The increments' share, taking the base for as large as they are on average.
    fn delta_bytes(&self, table: &TableId, group: KeyGroup, deltas: u32) -> u64 {
        let all = self.0.get(&(table.clone(), group)).copied().unwrap_or(0);
        all / (u64::from(deltas) + 1) * u64::from(deltas)
    }
}

fn context(plan: &TaskPlan, id: &SubtaskId) -> ConnectorContext {
    ConnectorContext { id: id.operator.clone(), subtask: id.index, parallelism: plan.parallelism }
}

fn apply(state: &mut KeyedState, slot: usize, group: KeyGroup, bytes: &[u8]) -> Result<(), LoadError> {
    for entry in EntryReader::new(bytes) {
        match entry.map_err(|error| LoadError::State(error.to_string()))? {
            Entry::Put { key, value } => {
                state.restore_put(slot, group, key, value).map_err(|full| LoadError::State(full.to_string()))?;
            }
            Entry::Delete { key } => state.restore_delete(slot, group, key),
        }
    }
    Ok(())
}
