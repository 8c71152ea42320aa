//! Builds a task on its own thread: opens connectors and guests, and loads the state it begins with.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_dataflow::checkpoint::restore::{LoadError, RestorePlan, SubtaskRestore};
use cofferdam_dataflow::checkpoint::segment::SegmentError;
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, StorageErrorKind};
use cofferdam_dataflow::connector::{ConnectorContext, ConnectorError, SourceFactory, Split, SplitPosition};
use cofferdam_dataflow::graph::plan::TaskPlan;
use cofferdam_dataflow::guest::InstanceInfo;
use cofferdam_dataflow::ids::{Attempt, OperatorId, SubtaskId};
use cofferdam_dataflow::state::{StateOwner, SubtaskState};
use cofferdam_dataflow::subtask::{
    AlignmentGroup, AlignmentMember, Head, Node, OperatorRestore, OperatorSubtask, SinkSubtask, SourceSubtask, SourceWatermarks,
    Task, TaskFailure, WatermarkStrategy,
};
use cofferdam_dataflow::time::ProcessingTime;

use super::definition::{JobDefinition, NodeParts, StateBackend};
use super::snapshot_writer::error_text;
use super::stores::{Stores, store_failure};

/// The splits of every source, found once an attempt.
pub type Splits = BTreeMap<OperatorId, Vec<Split>>;

/// The sources of one attempt that are kept together in event time.
pub struct AlignmentGroups {
    groups: BTreeMap<String, Arc<AlignmentGroup>>,
    /// Each source's group, and the number of its first subtask in it.
    first: BTreeMap<OperatorId, (String, usize)>,
}

impl AlignmentGroups {
    /// Returns the groups of a job's sources, of which nobody has said anything.
    pub fn of(definition: &JobDefinition) -> Self {
        let (mut sizes, mut first) = (BTreeMap::<String, usize>::new(), BTreeMap::new());
        for (node, parts) in definition.spec.nodes.iter().zip(&definition.parts) {
            if let NodeParts::Source { watermarks: Some(WatermarkStrategy { alignment: Some(alignment), .. }), .. } = parts {
                let size = sizes.entry(alignment.group.clone()).or_default();
                first.insert(node.id.clone(), (alignment.group.clone(), *size));
                *size += node.parallelism as usize;
            }
        }
        Self { groups: sizes.into_iter().map(|(name, size)| (name, AlignmentGroup::new(size))).collect(), first }
    }

    fn member(&self, source: &SubtaskId, max_drift_ms: u64) -> Option<AlignmentMember> {
        let (group, first) = self.first.get(&source.operator)?;
        Some(self.groups.get(group)?.member(first + source.index as usize, max_drift_ms))
    }
}

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
    /// The sources that are kept together in event time.
    pub alignment: AlignmentGroups,
    /// The stores of state; needed if any operator's state is on disk.
    pub stores: Option<Stores>,
    /// Seeds the tables' hashes: nothing that leaves the process depends on it.
    pub seed: u64,
}

/// A file that cannot be read now may be readable later; one that is not what was written stays so.
fn load_failure(error: &LoadError, id: SubtaskId) -> TaskFailure {
    let text = error_text(error);
    match error {
        LoadError::Segment(SegmentError::Storage(error))
            if !matches!(error.kind, StorageErrorKind::NotFound | StorageErrorKind::Damaged) =>
        {
            TaskFailure::connector(id, ConnectorError::transient("restore-read", text))
        }
        LoadError::Segment(_) | LoadError::State { .. } | LoadError::Undeclared(_) => {
            TaskFailure::rejected(id, "restore-damaged", text)
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
    /// Builds one task. State that has expired by `now` is left behind.
    ///
    /// # Errors
    /// [`TaskFailure`] if a connector or a guest does not open, or state does not load.
    pub fn build(&self, plan: &TaskPlan, now: ProcessingTime) -> Result<Task, TaskFailure> {
        let max_parallelism = self.definition.spec.max_parallelism;
        let mut states = self.load(plan, now)?;
        let mut head = None;
        let mut nodes = Vec::new();
        for index in &plan.nodes {
            let id = SubtaskId { operator: self.definition.spec.nodes[*index].id.clone(), index: plan.subtask };
            let restored = self.restored(plan, &id);
            match &self.definition.parts[*index] {
                NodeParts::Source { watermarks, .. } => {
                    head = Some(Head::Source(self.source(plan, *index, &id, watermarks.clone())?));
                }
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
        let alignment = watermarks.as_ref().and_then(|strategy| strategy.alignment.as_ref());
        let member = alignment.and_then(|alignment| self.alignment.member(id, alignment.max_drift_ms));
        Ok(SourceSubtask::new(id.clone(), source, count, SourceWatermarks { strategy: watermarks, member }, restored))
    }

    /// Returns the state of the chain's operators, with what the checkpoint holds of it.
    fn load(&self, plan: &TaskPlan, now: ProcessingTime) -> Result<BTreeMap<OperatorId, SubtaskState>, TaskFailure> {
        let mut states = BTreeMap::new();
        let owner = StateOwner {
            max_parallelism: self.definition.spec.max_parallelism,
            groups: plan.groups.clone(),
            subtask: u16::try_from(plan.subtask).expect("parallelism is at most the number of key groups"),
        };
        for index in &plan.nodes {
            if let NodeParts::Operator { factory, state_quota_bytes, backend, .. } = &self.definition.parts[*index]
                && factory.descriptor().has_state()
            {
                let mut state = SubtaskState::new(owner.clone(), &factory.descriptor().tables(), self.seed, *state_quota_bytes);
                if let StateBackend::Disk { memory_bytes } = backend {
                    let id = SubtaskId { operator: self.definition.spec.nodes[*index].id.clone(), index: plan.subtask };
                    let Some(stores) = &self.stores else {
                        return Err(TaskFailure::internal(id, "state on disk without a directory for it".into()));
                    };
                    let of = (self.attempt, &*self.definition);
                    let restore = self.restore.as_ref().map(|restore| restore.checkpoint);
                    stores.attach(of, (plan, &id), &factory.descriptor().tables(), *memory_bytes, restore, &mut state)?;
                }
                states.insert(self.definition.spec.nodes[*index].id.clone(), state);
            }
        }
        let task = self.restore.as_ref().and_then(|restore| restore.tasks.get(plan.index.0));
        let first = states.keys().next().cloned();
        if let (Some(task), Some(operator)) = (task, first) {
            let id = SubtaskId { operator, index: plan.subtask };
            task.load(&*self.storage, &mut states, now).map_err(|error| load_failure(&error, id))?;
        }
        let restored = self.restore.as_ref().map(|restore| restore.checkpoint);
        for (operator, state) in &mut states {
            let id = SubtaskId { operator: operator.clone(), index: plan.subtask };
            state.settle_store(restored).map_err(|error| store_failure(&id, &error))?;
        }
        Ok(states)
    }
}

fn context(plan: &TaskPlan, id: &SubtaskId) -> ConnectorContext {
    ConnectorContext { id: id.operator.clone(), subtask: id.index, parallelism: plan.parallelism }
}
