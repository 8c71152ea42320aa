//! The state of one slot, a key group at a time.

use std::sync::Arc;

use cofferdam_dataflow::checkpoint::contents::{GroupContents, StateContents};
use cofferdam_dataflow::checkpoint::segment::SegmentError;
use cofferdam_dataflow::checkpoint::storage::CheckpointStorage;
use cofferdam_dataflow::guest::{StateKind, StateSlot};
use cofferdam_dataflow::ids::{CheckpointId, OperatorId};
use cofferdam_dataflow::key_group::{KeyGroup, MaxParallelism, key_hash};
use cofferdam_dataflow::snapshot::TableId;
use serde::Serialize;

use super::job::declared;
use super::layout::Layout;
use super::{StoredCheckpoint, StoredError};

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
    /// Time to live in milliseconds; 0 = for ever.
    pub ttl_ms: u64,
}

impl SlotInfo {
    pub(super) fn declared(operator: &OperatorId, slot: &StateSlot) -> Self {
        Self {
            operator: operator.to_string(),
            slot: slot.name.clone(),
            kind: slot.kind.name().to_owned(),
            codec: slot.codec.clone(),
            schema: slot.schema.clone(),
            ttl_ms: slot.ttl_ms,
        }
    }

    pub(super) fn undeclared(table: &TableId) -> Self {
        let (operator, slot) = (table.operator.to_string(), table.slot.clone());
        Self { operator, slot, kind: String::new(), codec: String::new(), schema: String::new(), ttl_ms: 0 }
    }
}

/// How much state a slot has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotSize {
    /// Keys with a value or entries; for state that has no keys, subtasks with entries.
    pub keys: u64,
    /// Values, entries of maps, elements of lists.
    pub entries: u64,
    /// Key groups that may have keys.
    pub key_groups: u64,
    /// Bytes of its entries in the files: compressed, and older values and deletions included.
    pub stored_bytes: u64,
}

/// A value, an entry of a map or an element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The key's group; for state that has no keys, the subtask.
    pub group: KeyGroup,
    /// The key; empty for state that has no keys.
    pub key: Vec<u8>,
    /// The key in the map; `None` in slots of other kinds.
    pub entry_key: Option<Vec<u8>>,
    /// The element's place in its list, from 0; `None` in slots of other kinds.
    pub index: Option<u64>,
    /// When it was last used, in milliseconds since the Unix epoch; only in slots with a time to live. It may have expired.
    pub used_ms: Option<i64>,
    /// The newest value, in the slot's codec.
    pub value: Vec<u8>,
}

/// The state of one slot of a checkpoint.
pub struct StoredSlot {
    storage: Arc<dyn CheckpointStorage>,
    contents: StateContents,
    checkpoint: CheckpointId,
    max_parallelism: MaxParallelism,
    table: TableId,
    layout: Layout,
    info: SlotInfo,
}

impl StoredSlot {
    pub(super) fn new(checkpoint: &StoredCheckpoint, table: TableId, info: SlotInfo) -> Self {
        let manifest = checkpoint.manifest();
        let layout = declared(manifest, &table).map_or(Layout::RAW, Layout::of);
        Self {
            storage: Arc::clone(checkpoint.storage()),
            contents: checkpoint.contents(),
            checkpoint: manifest.checkpoint,
            max_parallelism: manifest.max_parallelism,
            table,
            layout,
            info,
        }
    }

    /// Returns what the slot is.
    pub fn info(&self) -> &SlotInfo {
        &self.info
    }

    /// Returns the key groups that may have keys, ascending; for state that has no keys, the subtasks.
    pub fn groups(&self) -> Vec<KeyGroup> {
        self.contents.groups(&self.table)
    }

    /// Returns the group of a key.
    pub fn group_of(&self, key: &[u8]) -> KeyGroup {
        self.max_parallelism.group_of(key_hash(key))
    }

    /// Returns the newest value of a key of a slot of kind value. Reads sections of its key group only, the newest first.
    ///
    /// # Errors
    /// [`StoredError`]; [`StoredError::WrongKind`] for a slot of another kind, of which [`Self::entries_of`] has the entries.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StoredError> {
        Ok(self.value_of(key)?.map(|entry| entry.value))
    }

    fn value_of(&mut self, key: &[u8]) -> Result<Option<StoredEntry>, StoredError> {
        if self.layout.kind.is_some_and(|kind| kind != StateKind::Value) {
            return Err(StoredError::WrongKind { slot: self.info.slot.clone(), kind: self.info.kind.clone() });
        }
        let group = self.group_of(key);
        let value = self.contents.get(&self.table, group, key);
        let Some(value) = self.or_gone(value)? else { return Ok(None) };
        let entry = self.layout.entries(group, key, &value).next().transpose();
        entry.map_err(|what| self.malformed(group, what))
    }

    /// Returns what a key has: its value, the entries of its map, the elements of its list. Reads its key group only; for state
    /// that has no keys, there is only the empty key, and all of it is returned.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn entries_of(&mut self, key: &[u8]) -> Result<Vec<StoredEntry>, StoredError> {
        match self.layout.kind {
            None | Some(StateKind::Value) => Ok(self.value_of(key)?.into_iter().collect()),
            Some(kind) => {
                let groups = if kind.is_keyed() { vec![self.group_of(key)] } else { self.groups() };
                let mut found = Vec::new();
                for group in groups {
                    found.extend(self.group(group)?.into_iter().filter(|entry| entry.key == key));
                }
                Ok(found)
            }
        }
    }

    /// Returns all entries of a key group, in the order of their stored keys. All of it is in memory.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn group(&mut self, group: KeyGroup) -> Result<Vec<StoredEntry>, StoredError> {
        let contents = self.contents.group(&self.table, group);
        let contents = self.or_gone(contents)?;
        self.shaped(group, &contents)
    }

    fn shaped(&self, group: KeyGroup, contents: &GroupContents) -> Result<Vec<StoredEntry>, StoredError> {
        let mut shaped: Vec<StoredEntry> = Vec::with_capacity(contents.len());
        for (key, value) in contents {
            for entry in self.layout.entries(group, key, value) {
                let mut entry = entry.map_err(|what| self.malformed(group, what))?;
                // A list goes on in its next chunk.
                let before = shaped.last().filter(|before| before.key == entry.key).and_then(|before| before.index);
                entry.index = entry.index.map(|_| before.map_or(0, |before| before + 1));
                shaped.push(entry);
            }
        }
        Ok(shaped)
    }

    /// Returns how much of the slot a key group holds. Reads it only where the files do not say.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn group_size(&mut self, group: KeyGroup) -> Result<SlotSize, StoredError> {
        let size = self.contents.size(&self.table, group);
        let size = self.or_gone(size)?;
        let mut found = SlotSize { keys: size.entries, entries: size.entries, key_groups: 1, stored_bytes: size.stored_bytes };
        if !size.is_exact || self.layout.kind != Some(StateKind::Value) {
            let entries = self.group(group)?;
            found.entries = entries.len() as u64;
            found.keys = entries.chunk_by(|a, b| a.key == b.key).count() as u64;
        }
        Ok(found)
    }

    /// Returns all entries, by key group and then by stored key. One key group is in memory at a time; after an error it ends.
    pub fn entries(&mut self) -> Entries<'_> {
        let groups = self.groups();
        Entries { slot: self, groups: groups.into_iter(), at_hand: Vec::new().into_iter() }
    }

    fn malformed(&self, group: KeyGroup, what: &'static str) -> StoredError {
        let slot = format!("{}/{}", self.info.operator, self.info.slot);
        StoredError::Malformed { checkpoint: self.checkpoint, slot, group, what }
    }

    fn or_gone<T>(&self, result: Result<T, SegmentError>) -> Result<T, StoredError> {
        result.map_err(|error| StoredError::from(error).of_checkpoint(self.storage.as_ref(), self.checkpoint))
    }
}

/// The entries of a slot: see [`StoredSlot::entries`].
pub struct Entries<'a> {
    slot: &'a mut StoredSlot,
    groups: std::vec::IntoIter<KeyGroup>,
    at_hand: std::vec::IntoIter<StoredEntry>,
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
            if let Some(entry) = self.at_hand.next() {
                return Some(Ok(entry));
            }
            // The old group goes before the next one comes.
            self.at_hand = Vec::new().into_iter();
            let group = self.groups.next()?;
            match self.slot.group(group) {
                Ok(entries) => self.at_hand = entries.into_iter(),
                Err(error) => {
                    self.groups = Vec::new().into_iter();
                    return Some(Err(error));
                }
            }
        }
    }
}
