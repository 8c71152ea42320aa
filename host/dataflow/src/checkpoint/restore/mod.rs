//! From a completed checkpoint to what each task of a plan begins with. Works at any parallelism: key groups move as
//! units, splits are found by name, watermarks are the least of those that contribute.

mod load;
mod migration;
#[cfg(test)]
mod model;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

pub use load::LoadError;
pub use migration::{Migration, SlotVerdict, compare_slots};

use crate::checkpoint::chains::{Chain, StateChains};
use crate::checkpoint::manifest::{CheckpointManifest, ManifestNode, ManifestNodeKind};
use crate::checkpoint::segment::{SegmentError, SegmentId, SegmentReader, SegmentRef};
use crate::checkpoint::storage::CheckpointStorage;
use crate::connector::SplitPosition;
use crate::graph::plan::{ExecutionPlan, TaskPlan};
use crate::graph::spec::{JobSpec, NodeKind};
use crate::guest::{StateKind, StateSlot};
use crate::ids::{CheckpointId, OperatorId, SubtaskId};
use crate::key_group::KeyGroup;
use crate::snapshot::{SectionKind, SubtaskPart, SubtaskSnapshot, TableId};
use crate::state::Deal;
use crate::time::Watermark;

/// What the tasks of an attempt begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorePlan {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// One for each task of the plan.
    pub tasks: Vec<TaskRestore>,
    /// Where to go on reading, by source and split; whichever subtask gets the split.
    pub positions: BTreeMap<OperatorId, BTreeMap<String, SplitPosition>>,
    /// For people: what differs from the job that took the checkpoint.
    pub notices: Vec<String>,
}

/// What one task begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRestore {
    /// One for each subtask of the chain, in chain order.
    pub subtasks: Vec<SubtaskRestore>,
    /// The state to load.
    pub tables: Vec<TableRestore>,
    /// The segments that tables name.
    pub segments: BTreeMap<SegmentId, SegmentRef>,
}

/// What one subtask begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtaskRestore {
    /// The subtask.
    pub id: SubtaskId,
    /// The watermark it had forwarded.
    pub watermark: Option<Watermark>,
    /// Whether all its input had ended and its `finish` had run: it does not run again.
    pub finished: bool,
}

/// The part of a table that a task begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRestore {
    /// The table.
    pub table: TableId,
    /// The slot's index in the operator's descriptor.
    pub slot: usize,
    /// How what is read gets to the task.
    pub deal: Deal,
    /// The time to live that the slot had, in milliseconds; 0 if it had none.
    pub was_ttl_ms: u64,
    /// Key groups (for state of subtasks: the old subtasks) with state, and the segments to apply for each, oldest first.
    pub groups: BTreeMap<KeyGroup, Chain>,
    /// Brings stored values to the slot's present schema. What is stored is then no base for increments.
    pub migration: Option<Arc<Migration>>,
}

/// A checkpoint that this job cannot start from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("restore-incompatible: checkpoint {checkpoint}: {what}")]
pub struct Incompatible {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What does not fit.
    pub what: String,
}

impl RestorePlan {
    /// Deals a checkpoint out to the tasks of a plan. `digests` names the component of each operator.
    ///
    /// # Errors
    /// [`Incompatible`] for a job of another name or number of key groups, state that nobody takes over, a slot whose
    /// kind, codec or schema has changed beyond what can be migrated, and an operator that had finished in part and runs at
    /// another parallelism.
    pub fn new(
        manifest: &CheckpointManifest,
        spec: &JobSpec,
        plan: &ExecutionPlan,
        digests: &BTreeMap<OperatorId, String>,
    ) -> Result<Self, Incompatible> {
        let mut dealing = Dealing { manifest, spec, notices: Vec::new(), migrations: BTreeMap::new() };
        dealing.check_job()?;
        for node in &manifest.nodes {
            dealing.check_node(node, digests)?;
        }
        for node in spec.nodes.iter().filter(|node| !manifest.nodes.iter().any(|old| old.id == node.id)) {
            dealing.notices.push(format!("\"{}\" is not in the checkpoint and begins empty", node.id));
        }
        let tasks = plan.tasks.iter().map(|task| dealing.task(task)).collect::<Result<_, _>>()?;
        let positions = dealing.positions()?;
        Ok(Self { checkpoint: manifest.checkpoint, tasks, positions, notices: dealing.notices })
    }

    /// Returns the tables whose values are brought to another schema: the next checkpoint holds them in full.
    pub fn migrated(&self) -> BTreeSet<TableId> {
        let tables = self.tasks.iter().flat_map(|task| &task.tables).filter(|part| part.migration.is_some());
        tables.map(|part| part.table.clone()).collect()
    }
}

impl TaskRestore {
    /// Reads all state of the task: hands encoded entries to `each`, in the order to apply them, with values as the slot's
    /// schema now says. Blocks.
    ///
    /// # Errors
    /// [`SegmentError`] if a segment is missing or damaged, or what `each` returned.
    pub fn read<E: From<SegmentError>>(
        &self,
        storage: &dyn CheckpointStorage,
        mut each: impl FnMut(&TableId, KeyGroup, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // A chain names segments of ascending checkpoints, so one pass over all segments meets each chain in its order.
        for reference in self.segments.values() {
            let source = reference.open(storage).map_err(SegmentError::from)?;
            let reader = SegmentReader::open(source, reference)?;
            let mut wanted = self.wanted(reference.id);
            for section in reader.sections() {
                let table = &reader.header().tables[usize::from(section.table)];
                let Some((is_first, found)) = wanted.get_mut(&(table, section.group)) else { continue };
                *found = true;
                if section.kind == SectionKind::Base && !*is_first {
                    let what = format!("key group {} has a base after other sections", section.group.0);
                    return Err(SegmentError::Damaged { segment: reference.id, what }.into());
                }
                let migration = self.tables.iter().find(|part| part.table == *table).and_then(|part| part.migration.as_ref());
                let mut migrated = Vec::new();
                reader.read(section, |bytes| match migration {
                    None => each(table, section.group, bytes),
                    Some(migration) => {
                        migrated.clear();
                        migration.apply(bytes, &mut migrated).map_err(|error| {
                            let what = format!("slot \"{}\" of \"{}\": {error}", table.slot, table.operator);
                            SegmentError::Damaged { segment: reference.id, what }
                        })?;
                        each(table, section.group, &migrated)
                    }
                })?;
            }
            if let Some(((table, group), _)) = wanted.iter().find(|(_, (_, found))| !found) {
                let what = format!("it lacks key group {} of \"{}\" in \"{}\"", group.0, table.slot, table.operator);
                return Err(SegmentError::Damaged { segment: reference.id, what }.into());
            }
        }
        Ok(())
    }

    /// Returns what to read from a segment: whether it is the first of its chain, and that it has not been found yet.
    fn wanted(&self, segment: SegmentId) -> BTreeMap<(&TableId, KeyGroup), (bool, bool)> {
        let groups = self.tables.iter().flat_map(|part| part.groups.iter().map(|(group, chain)| (&part.table, *group, chain)));
        let wanted = groups.filter(|(_, _, chain)| chain.contains(&segment));
        wanted.map(|(table, group, chain)| ((table, group), (chain.first() == Some(&segment), false))).collect()
    }
}

struct Dealing<'a> {
    manifest: &'a CheckpointManifest,
    spec: &'a JobSpec,
    notices: Vec<String>,
    migrations: BTreeMap<TableId, Arc<Migration>>,
}

impl Dealing<'_> {
    fn refuse<T>(&self, what: String) -> Result<T, Incompatible> {
        Err(Incompatible { checkpoint: self.manifest.checkpoint, what })
    }

    fn check_job(&self) -> Result<(), Incompatible> {
        let (was, is) = (self.manifest.max_parallelism.get(), self.spec.max_parallelism.get());
        if self.manifest.job != self.spec.name {
            return self.refuse(format!("it belongs to the job \"{}\", not to \"{}\"", self.manifest.job, self.spec.name));
        }
        if was != is {
            return self.refuse(format!("max-parallelism was {was} and cannot become {is}: keys would change their group"));
        }
        Ok(())
    }

    /// Whether a node left anything behind that somebody must take over.
    fn has_state(&self, id: &OperatorId) -> bool {
        let in_tables = self.manifest.state.tables().keys().any(|table| table.operator == *id);
        in_tables
            || self.subtasks(id).any(|subtask| match &subtask.part {
                SubtaskPart::Source { positions } => !positions.is_empty(),
                SubtaskPart::Operator { .. } => false,
                SubtaskPart::Sink { transactions } => !transactions.is_empty(),
            })
    }

    fn subtasks(&self, id: &OperatorId) -> impl Iterator<Item = &SubtaskSnapshot> {
        self.manifest.subtasks.iter().filter(move |subtask| subtask.id.operator == *id)
    }

    fn check_node(&mut self, old: &ManifestNode, digests: &BTreeMap<OperatorId, String>) -> Result<(), Incompatible> {
        let id = &old.id;
        let Some(node) = self.spec.node(id) else {
            if self.has_state(id) {
                return self.refuse(format!("{} \"{id}\" has state in it and is not in the job", old.kind.name()));
            }
            self.notices.push(format!("{} \"{id}\" is gone; it had no state", old.kind.name()));
            return Ok(());
        };
        match (&old.kind, &node.kind) {
            (ManifestNodeKind::Operator { digest, .. }, NodeKind::Operator(_)) => {
                match digests.get(id) {
                    Some(_) if digest.is_empty() => {
                        self.notices.push(format!("the state of \"{id}\" was made without a component"));
                    }
                    Some(now) if now != digest => self.notices.push(format!("the component of \"{id}\" has changed")),
                    _ => {}
                }
                self.check_slots(old)
            }
            (ManifestNodeKind::Source, NodeKind::Source) | (ManifestNodeKind::Sink, NodeKind::Sink) => Ok(()),
            (kind, _) => self.refuse(format!("\"{id}\" was a {} and is something else", kind.name())),
        }
    }

    fn check_slots(&mut self, old: &ManifestNode) -> Result<(), Incompatible> {
        let (ManifestNodeKind::Operator { slots, .. }, Some(NodeKind::Operator(descriptor))) =
            (&old.kind, self.spec.node(&old.id).map(|node| &node.kind))
        else {
            return Ok(());
        };
        let declared = descriptor.tables();
        for table in self.manifest.state.tables().keys().filter(|table| table.operator == old.id) {
            let what = format!("slot \"{}\" of \"{}\"", table.slot, old.id);
            let was = slots.iter().find(|slot| slot.name == table.slot);
            let is = declared.iter().find(|slot| slot.name == table.slot);
            let (Some(was), Some(is)) = (was, is) else {
                return self.refuse(format!("{what} has state in it and is not declared"));
            };
            match compare_slots(was, is) {
                SlotVerdict::Same => {}
                SlotVerdict::Unchecked => {
                    self.notices.push(format!("{what} has a schema on one side only: its values are taken as they are"));
                }
                SlotVerdict::Compatible(changes) => {
                    self.notices.push(format!("{what} has another schema: {}; its values stay as they are", changes.join(", ")));
                }
                SlotVerdict::Migrated(migration) => {
                    let changes = migration.changes().join(", ");
                    self.notices.push(format!("{what} is brought to its new schema: {changes}"));
                    self.migrations.insert(table.clone(), Arc::new(migration));
                }
                SlotVerdict::Incompatible(reasons) => {
                    return self.refuse(format!("{what} {}", reasons.join("; and it ")));
                }
            }
            match (was.ttl_ms, is.ttl_ms) {
                (0, 1..) => self.notices.push(format!("{what} has a time to live now, which begins with the restore")),
                (1.., 0) => self.notices.push(format!("{what} has no time to live any more")),
                _ => {}
            }
        }
        Ok(())
    }

    fn task(&self, task: &TaskPlan) -> Result<TaskRestore, Incompatible> {
        let nodes = task.nodes.iter().map(|index| &self.spec.nodes[*index]);
        let ids: Vec<&OperatorId> = nodes.map(|node| &node.id).collect();
        let subtasks = ids.iter().map(|id| self.subtask(id, task)).collect::<Result<_, _>>()?;
        let (mut tables, mut segments) = (Vec::new(), BTreeMap::new());
        for (table, groups) in self.manifest.state.tables().iter().filter(|(table, _)| ids.contains(&&table.operator)) {
            let Some((slot, kind)) = self.slot(table) else {
                return self.refuse(format!("slot \"{}\" of \"{}\" is not declared", table.slot, table.operator));
            };
            let Some((was, parallelism)) = self.old_slot(table) else {
                return self.refuse(format!("slot \"{}\" of \"{}\" has state but no declaration", table.slot, table.operator));
            };
            let (deal, wanted) = deal(kind, parallelism, task);
            let groups: BTreeMap<_, _> = groups.range(wanted).map(|(group, chain)| (*group, chain.clone())).collect();
            segments.extend(groups.values().flatten().map(|id| (*id, reference(&self.manifest.state, *id))));
            let migration = self.migrations.get(table).cloned();
            tables.push(TableRestore { table: table.clone(), slot, deal, was_ttl_ms: was.ttl_ms, groups, migration });
        }
        Ok(TaskRestore { subtasks, tables, segments })
    }

    /// Returns a table's index among those of its operator now, and its kind.
    fn slot(&self, table: &TableId) -> Option<(usize, StateKind)> {
        let NodeKind::Operator(descriptor) = &self.spec.node(&table.operator)?.kind else { return None };
        let tables = descriptor.tables();
        tables.iter().enumerate().find(|(_, slot)| slot.name == table.slot).map(|(index, slot)| (index, slot.kind))
    }

    /// Returns how a table's slot was declared, and the parallelism that its operator had.
    fn old_slot(&self, table: &TableId) -> Option<(&StateSlot, u32)> {
        let node = self.manifest.nodes.iter().find(|node| node.id == table.operator)?;
        let ManifestNodeKind::Operator { slots, .. } = &node.kind else { return None };
        Some((slots.iter().find(|slot| slot.name == table.slot)?, node.parallelism))
    }

    fn subtask(&self, operator: &OperatorId, task: &TaskPlan) -> Result<SubtaskRestore, Incompatible> {
        let id = SubtaskId { operator: operator.clone(), index: task.subtask };
        let Some(old) = self.manifest.nodes.iter().find(|node| node.id == *operator) else {
            return Ok(SubtaskRestore { id, watermark: None, finished: false });
        };
        if old.parallelism == task.parallelism {
            let Some(own) = self.subtasks(operator).find(|subtask| subtask.id == id) else {
                return self.refuse(format!("subtask {id} is missing"));
            };
            return Ok(SubtaskRestore { id, watermark: own.watermark, finished: own.finished });
        }
        let finished = self.subtasks(operator).filter(|subtask| subtask.finished).count();
        let all_finished = finished == old.parallelism as usize;
        // A source that has finished in part goes on with the splits that have not.
        if finished > 0 && !all_finished && old.kind != ManifestNodeKind::Source {
            let (was, is) = (old.parallelism, task.parallelism);
            return self.refuse(format!(
                "{finished} of {was} subtasks of \"{operator}\" had finished; it cannot go on with {is}, only with {was}: \
                 run it to its end with a parallelism of {was}, or --fresh"
            ));
        }
        let contributes = |subtask: &&SubtaskSnapshot| {
            old.kind == ManifestNodeKind::Source || overlap(&self.old_range(subtask.id.index, old), &task.groups)
        };
        let watermark = self.subtasks(operator).filter(contributes).map(|subtask| subtask.watermark).min().flatten();
        Ok(SubtaskRestore { id, watermark, finished: all_finished })
    }

    fn old_range(&self, index: u32, old: &ManifestNode) -> Range<u16> {
        self.manifest.max_parallelism.range(index, old.parallelism)
    }

    fn positions(&self) -> Result<BTreeMap<OperatorId, BTreeMap<String, SplitPosition>>, Incompatible> {
        let mut positions: BTreeMap<OperatorId, BTreeMap<String, SplitPosition>> = BTreeMap::new();
        for subtask in &self.manifest.subtasks {
            let SubtaskPart::Source { positions: found } = &subtask.part else { continue };
            let splits = positions.entry(subtask.id.operator.clone()).or_default();
            for position in found {
                if splits.insert(position.split.clone(), position.clone()).is_some() {
                    let what = format!("source \"{}\" has two positions for split {:?}", subtask.id.operator, position.split);
                    return self.refuse(what);
                }
            }
        }
        let known: BTreeSet<_> = self.spec.nodes.iter().map(|node| &node.id).collect();
        positions.retain(|id, _| known.contains(id));
        Ok(positions)
    }
}

/// Returns how a slot's state of an operator with `old` subtasks gets to a task, and which of its groups the task needs.
fn deal(kind: StateKind, old: u32, task: &TaskPlan) -> (Deal, Range<KeyGroup>) {
    // Parallelism is at most max-parallelism, which is a u16.
    let group = |index: u32| KeyGroup(u16::try_from(index).unwrap_or(u16::MAX));
    let only = |index: u32| group(index)..group(index + 1);
    match kind {
        StateKind::Value | StateKind::List | StateKind::Map => {
            (Deal::InPlace, KeyGroup(task.groups.start)..KeyGroup(task.groups.end))
        }
        StateKind::ListSplit if old == task.parallelism => (Deal::InPlace, only(task.subtask)),
        StateKind::ListSplit => (Deal::Split { part: task.subtask, parts: task.parallelism }, group(0)..group(old)),
        StateKind::ListUnion => (Deal::All, group(0)..group(old)),
        StateKind::Broadcast if task.subtask < old => (Deal::InPlace, only(task.subtask)),
        StateKind::Broadcast => (Deal::All, only(task.subtask % old)),
    }
}

fn overlap(a: &Range<u16>, b: &Range<u16>) -> bool {
    a.start < b.end && b.start < a.end
}

fn reference(state: &StateChains, id: SegmentId) -> SegmentRef {
    state.segment(id).cloned().expect("a manifest's chains name listed segments")
}
