//! What would change if a job went on from a checkpoint: for people, before anything starts. A restore decides by itself;
//! here all reasons against it are told, not just the first.

use serde::Serialize;

use super::coordinator::JobDescription;
use super::manifest::{CheckpointManifest, ManifestNode, ManifestNodeKind};
use super::restore::{SlotVerdict, compare_slots};
use crate::guest::StateSlot;
use crate::ids::{CheckpointId, OperatorId};
use crate::snapshot::SubtaskPart;

/// What differs between a job and a checkpoint of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The number of key groups, as it was and as it is.
    pub max_parallelism: (u16, u16),
    /// The job's nodes in their order, then those that are gone.
    pub nodes: Vec<NodeDifference>,
    /// Why the job cannot go on from there; nothing if it can.
    pub obstacles: Vec<Obstacle>,
}

/// A node, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeDifference {
    /// Its name.
    pub id: OperatorId,
    /// `source`, `operator` or `sink`; what it is now, unless it is gone.
    pub kind: &'static str,
    /// How many subtasks it had; `None` if it is new.
    pub was: Option<u32>,
    /// How many it has; `None` if it is gone.
    pub is: Option<u32>,
    /// An operator's component, if both are known.
    pub component: Option<ComponentDifference>,
    /// An operator's slots: those it has, then those that are gone.
    pub slots: Vec<SlotDifference>,
    /// Where a source goes on reading.
    pub positions: Vec<SourcePosition>,
    /// Prepared output of a sink, to be published before anything else.
    pub transactions: usize,
}

/// An operator's component, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentDifference {
    /// The digest it had; empty if it was none.
    pub was: String,
    /// The digest it has.
    pub is: String,
    /// Interfaces that it may use and could not before.
    pub imports_added: Vec<String>,
    /// Interfaces that it could use.
    pub imports_dropped: Vec<String>,
}

/// A slot, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotDifference {
    /// Its name.
    pub name: String,
    /// Whether the checkpoint has state in it.
    pub has_state: bool,
    /// What becomes of it.
    #[serde(flatten)]
    pub change: SlotChange,
}

/// What becomes of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "changes", rename_all = "kebab-case")]
pub enum SlotChange {
    /// Its values stay as they are.
    Same,
    /// They stay as they are: one side has no schema.
    Unchecked,
    /// They stay as they are, though the schema has changed in these ways.
    Compatible(Vec<String>),
    /// They are brought to the new schema.
    Migrated(Vec<String>),
    /// It begins empty.
    New,
    /// It is not declared any more, and was empty.
    Gone,
    /// It is not declared any more, and has state.
    Orphaned,
    /// Its state cannot be taken over, for these reasons.
    Incompatible(Vec<String>),
}

/// Where a source goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourcePosition {
    /// The split.
    pub split: String,
    /// The position, for people.
    pub position: String,
    /// Whether it has been read to its end.
    pub finished: bool,
}

/// Why a job cannot go on from a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// What does not fit.
    pub what: String,
    /// What would make it fit.
    pub remedy: String,
}

impl Difference {
    /// Compares a job with a checkpoint.
    pub fn new(manifest: &CheckpointManifest, job: &JobDescription) -> Self {
        let mut difference = Self {
            checkpoint: manifest.checkpoint,
            max_parallelism: (manifest.max_parallelism.get(), job.max_parallelism.get()),
            nodes: Vec::new(),
            obstacles: Vec::new(),
        };
        difference.job(manifest, job);
        for node in &job.nodes {
            let old = manifest.nodes.iter().find(|old| old.id == node.id);
            difference.node(manifest, old, Some(node));
        }
        for old in manifest.nodes.iter().filter(|old| job.nodes.iter().all(|node| node.id != old.id)) {
            difference.node(manifest, Some(old), None);
        }
        difference
    }

    fn obstacle(&mut self, what: String, remedy: impl Into<String>) {
        self.obstacles.push(Obstacle { what, remedy: remedy.into() });
    }

    fn job(&mut self, manifest: &CheckpointManifest, job: &JobDescription) {
        if manifest.job != job.name {
            let what = format!("the checkpoint belongs to the job \"{}\", not to \"{}\"", manifest.job, job.name);
            self.obstacle(what, format!("name the pipeline \"{}\", or choose another checkpoint", manifest.job));
        }
        let (was, is) = self.max_parallelism;
        if was != is {
            let what = format!("max-parallelism was {was} and cannot become {is}: keys would change their group");
            self.obstacle(what, format!("set max-parallelism = {was}"));
        }
    }

    fn node(&mut self, manifest: &CheckpointManifest, old: Option<&ManifestNode>, new: Option<&ManifestNode>) {
        let Some(node) = new.or(old) else { return };
        let subtasks = || manifest.subtasks.iter().filter(|subtask| subtask.id.operator == node.id);
        let positions = subtasks().flat_map(|subtask| match &subtask.part {
            SubtaskPart::Source { positions } => positions.as_slice(),
            _ => &[],
        });
        let positions = positions.map(|found| SourcePosition {
            split: found.split.clone(),
            position: found.display.clone(),
            finished: found.finished,
        });
        let positions: Vec<_> = positions.collect();
        let transactions = manifest.transactions().get(&node.id).map_or(0, Vec::len);
        let slots = self.slots(manifest, node, old, new);
        if let (Some(old), Some(new)) = (old, new) {
            if old.kind.name() != new.kind.name() {
                let what = format!("\"{}\" was a {} and is a {}", node.id, old.kind.name(), new.kind.name());
                self.obstacle(what, "give it another name");
            }
            let finished = subtasks().filter(|subtask| subtask.finished).count();
            let in_part = finished > 0 && finished < old.parallelism as usize;
            if in_part && old.parallelism != new.parallelism && old.kind != ManifestNodeKind::Source {
                let what = format!("{finished} of {} subtasks of \"{}\" had finished", old.parallelism, node.id);
                self.obstacle(what, format!("run it with a parallelism of {}", old.parallelism));
            }
        } else if new.is_none() && (!positions.is_empty() || transactions > 0) {
            let what = format!("{} \"{}\" has state in the checkpoint and is not in the job", node.kind.name(), node.id);
            self.obstacle(what, "keep it, or start with --fresh");
        }
        self.nodes.push(NodeDifference {
            id: node.id.clone(),
            kind: node.kind.name(),
            was: old.map(|old| old.parallelism),
            is: new.map(|new| new.parallelism),
            component: component(old, new),
            slots,
            positions,
            transactions,
        });
    }

    fn slots(
        &mut self,
        manifest: &CheckpointManifest,
        node: &ManifestNode,
        old: Option<&ManifestNode>,
        new: Option<&ManifestNode>,
    ) -> Vec<SlotDifference> {
        let (was, is) = (declared(old), declared(new));
        let gone = was.iter().filter(|slot| is.iter().all(|now| now.name != slot.name)).map(|slot| slot.name.clone());
        let mut names: Vec<String> = is.iter().map(|slot| slot.name.clone()).chain(gone).collect();
        let stored = manifest.state.tables().keys().filter(|table| table.operator == node.id);
        let stored: Vec<String> = stored.map(|table| table.slot.clone()).collect();
        names.extend(stored.iter().filter(|slot| !names.contains(slot)).cloned().collect::<Vec<_>>());
        let mut slots = Vec::new();
        for name in names {
            let has_state = stored.contains(&name);
            let find = |slots: &[StateSlot]| slots.iter().find(|slot| slot.name == name).cloned();
            let change = match (find(was), find(is)) {
                (Some(was), Some(is)) if has_state => change(compare_slots(&was, &is)),
                (_, Some(_)) if has_state => SlotChange::Incompatible(vec!["has state in it and was not declared".into()]),
                (Some(was), Some(is)) => {
                    if was == is {
                        SlotChange::Same
                    } else {
                        SlotChange::New
                    }
                }
                (_, Some(_)) => SlotChange::New,
                (_, None) => {
                    if has_state {
                        SlotChange::Orphaned
                    } else {
                        SlotChange::Gone
                    }
                }
            };
            let drop = format!("--drop-state {}/{name} starts it empty", node.id);
            match &change {
                SlotChange::Incompatible(reasons) => {
                    for why in reasons {
                        let what = format!("slot \"{name}\" of \"{}\" {why}", node.id);
                        self.obstacle(what, format!("change it back, or give the slot another name; {drop}"));
                    }
                }
                SlotChange::Orphaned => {
                    let place = if new.is_some() { "and is not declared" } else { "and its operator is not in the job" };
                    let what = format!("slot \"{name}\" of \"{}\" has state in it {place}", node.id);
                    self.obstacle(what, format!("declare it; --drop-state {}/{name} gives it up", node.id));
                }
                _ => {}
            }
            slots.push(SlotDifference { name, has_state, change });
        }
        slots
    }
}

fn declared(node: Option<&ManifestNode>) -> &[StateSlot] {
    match node.map(|node| &node.kind) {
        Some(ManifestNodeKind::Operator { slots, .. }) => slots,
        _ => &[],
    }
}

fn change(verdict: SlotVerdict) -> SlotChange {
    match verdict {
        SlotVerdict::Same => SlotChange::Same,
        SlotVerdict::Unchecked => SlotChange::Unchecked,
        SlotVerdict::Compatible(changes) => SlotChange::Compatible(changes),
        SlotVerdict::Migrated(migration) => SlotChange::Migrated(migration.changes().to_vec()),
        SlotVerdict::Incompatible(reasons) => SlotChange::Incompatible(reasons),
    }
}

fn component(old: Option<&ManifestNode>, new: Option<&ManifestNode>) -> Option<ComponentDifference> {
    let (
        ManifestNodeKind::Operator { digest: was, imports: old_imports, .. },
        ManifestNodeKind::Operator { digest: is, imports: new_imports, .. },
    ) = (&old?.kind, &new?.kind)
    else {
        return None;
    };
    let without = |all: &[String], others: &[String]| all.iter().filter(|import| !others.contains(import)).cloned().collect();
    Some(ComponentDifference {
        was: was.clone(),
        is: is.clone(),
        imports_added: without(new_imports, old_imports),
        imports_dropped: without(old_imports, new_imports),
    })
}
