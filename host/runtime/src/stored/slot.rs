//! The state of one slot, a key group at a time.

use std::sync::Arc;

use cofferdam_dataflow::checkpoint::contents::{GroupContents, StateContents};
use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::segment::SegmentError;
use cofferdam_dataflow::checkpoint::storage::CheckpointStorage;
use cofferdam_dataflow::guest::StateSlot;
use cofferdam_dataflow::ids::{CheckpointId, OperatorId};
use cofferdam_dataflow::key_group::{KeyGroup, MaxParallelism, key_hash};
use cofferdam_dataflow::snapshot::TableId;
use serde::Serialize;

use super::StoredError;

/// What a slot is, as its operator declared it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotInfo {
    /// The operator.
    pub operator: String,
    /// The slot's name.
    pub slot: String,
    /// `value`, `list`, ...; empty if the slot is not declared.
    pub kind: String,
    /// How values are encoded.
    pub codec: String,
    /// The shape of values, as the operator wrote it.
    pub schema: String,
}

impl SlotInfo {
    pub(super) fn declared(operator: &OperatorId, slot: &StateSlot) -> Self {
        Self {
            operator: operator.to_string(),
            slot: slot.name.clone(),
            kind: slot.kind.name().to_owned(),
            codec: slot.codec.clone(),
            schema: slot.schema.clone(),
        }
    }

    pub(super) fn undeclared(table: &TableId) -> Self {
        let (operator, slot) = (table.operator.to_string(), table.slot.clone());
        Self { operator, slot, kind: String::new(), codec: String::new(), schema: String::new() }
    }
}

/// How much state a slot has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotSize {
    /// Keys with a value.
    pub keys: u64,
    /// Key groups that may have keys.
    pub key_groups: u64,
    /// Bytes of its entries in the files: compressed, and older values and deletions included.
    pub stored_bytes: u64,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The key's group.
    pub group: KeyGroup,
    /// The key.
    pub key: Vec<u8>,
    /// Its newest value, in the slot's codec.
    pub value: Vec<u8>,
}

/// The state of one slot of a checkpoint.
pub struct StoredSlot {
    storage: Arc<dyn CheckpointStorage>,
    contents: StateContents,
    checkpoint: CheckpointId,
    max_parallelism: MaxParallelism,
    table: TableId,
    info: SlotInfo,
}

impl StoredSlot {
    pub(super) fn new(
        storage: Arc<dyn CheckpointStorage>,
        contents: StateContents,
        manifest: &CheckpointManifest,
        table: TableId,
        info: SlotInfo,
    ) -> Self {
        let (checkpoint, max_parallelism) = (manifest.checkpoint, manifest.max_parallelism);
        Self { storage, contents, checkpoint, max_parallelism, table, info }
    }

    /// Returns what the slot is.
    pub fn info(&self) -> &SlotInfo {
        &self.info
    }

    /// Returns the key groups that may have keys, ascending.
    pub fn groups(&self) -> Vec<KeyGroup> {
        self.contents.groups(&self.table)
    }

    /// Returns the group of a key.
    pub fn group_of(&self, key: &[u8]) -> KeyGroup {
        self.max_parallelism.group_of(key_hash(key))
    }

    /// Returns the newest value of a key. Reads sections of its key group only.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StoredError> {
        let group = self.group_of(key);
        let value = self.contents.get(&self.table, group, key);
        self.or_gone(value)
    }

    /// Returns keys and values of a key group, in the order of the keys' bytes. All of it is in memory.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn group(&mut self, group: KeyGroup) -> Result<GroupContents, StoredError> {
        let contents = self.contents.group(&self.table, group);
        self.or_gone(contents)
    }

    /// Returns how much of the slot a key group holds. Reads it only where the files do not say.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn group_size(&mut self, group: KeyGroup) -> Result<SlotSize, StoredError> {
        let size = self.contents.size(&self.table, group);
        let size = self.or_gone(size)?;
        let keys = if size.is_exact { size.entries } else { self.group(group)?.len() as u64 };
        Ok(SlotSize { keys, key_groups: 1, stored_bytes: size.stored_bytes })
    }

    /// Returns all entries, by key group and then by key. One key group is in memory at a time; after an error it ends.
    pub fn entries(&mut self) -> Entries<'_> {
        let groups = self.groups();
        Entries { slot: self, groups: groups.into_iter(), at_hand: None }
    }

    fn or_gone<T>(&self, result: Result<T, SegmentError>) -> Result<T, StoredError> {
        result.map_err(|error| StoredError::from(error).of_checkpoint(self.storage.as_ref(), self.checkpoint))
    }
}

/// The entries of a slot: see [`StoredSlot::entries`].
pub struct Entries<'a> {
    slot: &'a mut StoredSlot,
    groups: std::vec::IntoIter<KeyGroup>,
    at_hand: Option<(KeyGroup, std::collections::btree_map::IntoIter<Vec<u8>, Vec<u8>>)>,
}

impl Entries<'_> {
    /// Returns how many key groups are left to be read.
    pub fn groups_left(&self) -> usize {
        self.groups.len()
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<StoredEntry, StoredError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((group, entries)) = &mut self.at_hand
                && let Some((key, value)) = entries.next()
            {
                return Some(Ok(StoredEntry { group: *group, key, value }));
            }
            // The old group goes before the next one comes.
            self.at_hand = None;
            let group = self.groups.next()?;
            match self.slot.group(group) {
                Ok(contents) => self.at_hand = Some((group, contents.into_iter())),
                Err(error) => {
                    self.groups = Vec::new().into_iter();
                    return Some(Err(error));
                }
            }
        }
    }
}
