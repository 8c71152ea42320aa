//! What differs between two checkpoints of one job.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_dataflow::checkpoint::contents::{GroupContents, StateContents};
use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::connector::SplitPosition;
use cofferdam_dataflow::guest::StateKind;
use cofferdam_dataflow::key_group::KeyGroup;
use cofferdam_dataflow::snapshot::{SubtaskPart, TableId};
use cofferdam_dataflow::state::entry::split_ordered_key;
use serde::{Serialize, Serializer};

use super::job::declared;
use super::{StoredCheckpoint, StoredError, show_bytes};

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// Only the second checkpoint has it.
    Added,
    /// Only the first one has it.
    Removed,
    /// Both have it, with different values.
    Changed,
}

/// A key that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyChange {
    /// What became of it.
    pub change: ChangeKind,
    /// The key.
    #[serde(serialize_with = "shown")]
    pub key: Vec<u8>,
    /// The key in the map or, for lists, the number of a chunk of elements; `None` in slots of kind value.
    #[serde(serialize_with = "shown_if_any", skip_serializing_if = "Option::is_none")]
    pub entry_key: Option<Vec<u8>>,
}

/// How the state of one slot differs. In slots with many entries a key, each entry counts as a key; in lists, each chunk of about
/// 4 KiB of elements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotDiff {
    /// The operator.
    pub operator: String,
    /// The slot.
    pub slot: String,
    /// Keys that only the second has.
    pub added: u64,
    /// Keys that only the first has.
    pub removed: u64,
    /// Keys whose values differ.
    pub changed: u64,
    /// Bytes of keys and values of what was added and changed, as in the second.
    pub new_bytes: u64,
    /// Bytes of keys and values of what was removed and changed, as in the first.
    pub old_bytes: u64,
    /// The first keys that differ, by key group and key; as many as were asked for.
    pub keys: Vec<KeyChange>,
}

/// How a source's position in a split differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PositionChange {
    /// The source.
    pub source: String,
    /// The split.
    pub split: String,
    /// Where it went on in the first; `None` if it did not know the split.
    pub from: Option<String>,
    /// Where it goes on in the second.
    pub to: Option<String>,
}

/// How two checkpoints differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckpointDiff {
    /// The first checkpoint.
    pub from: u64,
    /// The second one.
    pub to: u64,
    /// Slots that differ.
    pub slots: Vec<SlotDiff>,
    /// Positions that differ.
    pub positions: Vec<PositionChange>,
}

fn shown_if_any<S: Serializer>(key: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    key.as_deref().map(show_bytes).serialize(serializer)
}

fn shown<S: Serializer>(key: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&show_bytes(key))
}

/// Compares two checkpoints of one directory, a key group of both at a time. Key groups that are made of the same files are not
/// read. Tells `progress` how many key groups of how many have been compared. Lists up to `keys_max` keys of each slot.
///
/// # Errors
/// [`StoredError`].
pub fn diff(
    from: &StoredCheckpoint,
    to: &StoredCheckpoint,
    keys_max: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckpointDiff, StoredError> {
    let (mut old, mut new) = (from.contents(), to.contents());
    let tables: BTreeSet<TableId> = old.tables().chain(new.tables()).cloned().collect();
    let work: Vec<_> = tables.into_iter().map(|table| (differing(&old, &new, &table), table)).collect();
    let (mut done, total) = (0, work.iter().map(|(groups, _)| groups.len() as u64).sum());
    let mut slots = Vec::new();
    for (groups, table) in work {
        let (operator, slot) = (table.operator.to_string(), table.slot.clone());
        let slot_of = |checkpoint: &StoredCheckpoint| declared(checkpoint.manifest(), &table).map(|slot| slot.kind);
        let is_ordered = slot_of(to).or(slot_of(from)).is_some_and(|kind| kind != StateKind::Value);
        let mut found = SlotDiff { operator, slot, ..SlotDiff::default() };
        for group in groups {
            progress(done, total);
            let read = |contents: &mut StateContents, checkpoint: &StoredCheckpoint| {
                let gone = |error| StoredError::from(error).of_checkpoint(checkpoint.storage().as_ref(), checkpoint.id());
                contents.group(&table, group).map_err(gone)
            };
            found.compare(&read(&mut old, from)?, &read(&mut new, to)?, is_ordered, keys_max);
            done += 1;
        }
        if found.added + found.removed + found.changed > 0 {
            slots.push(found);
        }
    }
    progress(total, total);
    let positions = positions(from.manifest(), to.manifest());
    Ok(CheckpointDiff { from: from.id().0, to: to.id().0, slots, positions })
}

/// Returns the key groups whose files are not the same. A name is never used for two files.
fn differing(old: &StateContents, new: &StateContents, table: &TableId) -> Vec<KeyGroup> {
    let groups: BTreeSet<_> = old.groups(table).into_iter().chain(new.groups(table)).collect();
    groups.into_iter().filter(|group| old.chain(table, *group) != new.chain(table, *group)).collect()
}

impl SlotDiff {
    fn compare(&mut self, old: &GroupContents, new: &GroupContents, is_ordered: bool, keys_max: usize) {
        let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let bytes = |value: &Vec<u8>| (key.len() + value.len()) as u64;
            let (was, is) = (old.get(key), new.get(key));
            let (change, count) = match (was, is) {
                (None, _) => (ChangeKind::Added, &mut self.added),
                (Some(_), None) => (ChangeKind::Removed, &mut self.removed),
                (Some(was), Some(is)) if was != is => (ChangeKind::Changed, &mut self.changed),
                (Some(_), Some(_)) => continue,
            };
            *count += 1;
            self.old_bytes += was.map_or(0, bytes);
            self.new_bytes += is.map_or(0, bytes);
            if self.keys.len() < keys_max {
                let split = if is_ordered { split_ordered_key(key) } else { None };
                let (key, entry_key) = split.map_or((&key[..], None), |(key, entry_key)| (key, Some(entry_key.to_vec())));
                self.keys.push(KeyChange { change, key: key.to_vec(), entry_key });
            }
        }
    }
}

fn positions(from: &CheckpointManifest, to: &CheckpointManifest) -> Vec<PositionChange> {
    let (old, new) = (splits(from), splits(to));
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let differ = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    let shown = |position: &&SplitPosition| {
        let end = if position.finished { " (read to the end)" } else { "" };
        format!("{}{end}", position.display)
    };
    let change = |name: &(String, String)| PositionChange {
        source: name.0.clone(),
        split: name.1.clone(),
        from: old.get(name).map(shown),
        to: new.get(name).map(shown),
    };
    differ.map(change).collect()
}

fn splits(manifest: &CheckpointManifest) -> BTreeMap<(String, String), &SplitPosition> {
    let mut found = BTreeMap::new();
    for subtask in &manifest.subtasks {
        let SubtaskPart::Source { positions } = &subtask.part else { continue };
        found.extend(positions.iter().map(|position| ((subtask.id.operator.to_string(), position.split.clone()), position)));
    }
    found
}
