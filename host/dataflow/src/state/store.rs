//! The ordered store behind tables that are larger than memory: what a subtask needs of it, and what is written to it.
//!
//! A store holds the state of a completed checkpoint, never anything newer: it is written from what a snapshot wrote,
//! after the checkpoint has completed, by [`SectionWrite`]. It is a cache of the checkpoint, so nothing in it is trusted
//! over one, and an aborted checkpoint has nothing to undo.
//!
//! A store's key is `slot u16 BE | key group u16 BE | the key as segments hold it`. Slot 0xffff is the store's own mark.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cold::Cold;
use super::entry::{Entry, EntryReader, put_length};
use crate::ids::CheckpointId;
use crate::key_group::KeyGroup;
use crate::snapshot::SectionKind;

/// Bytes before the stored key.
pub(super) const PREFIX_BYTES: usize = 4;
/// Bytes that are written at once, about.
const BATCH_BYTES: usize = 256 << 10;
const MARK_KEY: [u8; PREFIX_BYTES] = [0xff; PREFIX_BYTES];
/// The layout of keys, values and the mark; a store of another one is built again.
const STORE_FORMAT: u32 = 1;

/// What a store could not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("state store: {0}")]
pub struct StoreError(pub String);

/// Changes that are made together, or not at all. No key occurs twice.
pub type StoreBatch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Keys and values in the order of their keys. The task reads while somebody else writes, but never what is being written:
/// that is in its memory.
pub trait StateStore {
    /// Puts the value of a key into `value`, which is cleared. Returns whether there is one.
    ///
    /// # Errors
    /// [`StoreError`].
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Hands keys that begin with `prefix` to `each` with their values, in order, from the first after the key `after`,
    /// until it returns `false`. What is written meanwhile is not seen.
    ///
    /// # Errors
    /// [`StoreError`].
    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError>;

    /// Puts what has a value and removes what has none. Survives the end of the process, in order.
    ///
    /// # Errors
    /// [`StoreError`].
    fn write(&self, batch: StoreBatch) -> Result<(), StoreError>;

    /// Makes durable what has been written.
    ///
    /// # Errors
    /// [`StoreError`].
    fn sync(&self) -> Result<(), StoreError>;

    /// Removes everything.
    ///
    /// # Errors
    /// [`StoreError`].
    fn wipe(&self) -> Result<(), StoreError>;

    /// Keeps the accounts of the state at the cut of a checkpoint, until they are taken.
    fn keep_accounts(&self, checkpoint: CheckpointId, accounts: Vec<u8>);

    /// Returns the accounts of a checkpoint, and forgets older ones.
    fn take_accounts(&self, checkpoint: CheckpointId) -> Option<Vec<u8>>;
}

/// A store that the task and whoever writes checkpoints into it share.
pub type SharedStore = Arc<dyn StateStore + Send + Sync>;

impl StateStore for SharedStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        (**self).get(key, value)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        (**self).scan(prefix, after, each)
    }

    fn write(&self, batch: StoreBatch) -> Result<(), StoreError> {
        (**self).write(batch)
    }

    fn sync(&self) -> Result<(), StoreError> {
        (**self).sync()
    }

    fn wipe(&self) -> Result<(), StoreError> {
        (**self).wipe()
    }

    fn keep_accounts(&self, checkpoint: CheckpointId, accounts: Vec<u8>) {
        (**self).keep_accounts(checkpoint, accounts);
    }

    fn take_accounts(&self, checkpoint: CheckpointId) -> Option<Vec<u8>> {
        (**self).take_accounts(checkpoint)
    }
}

/// What a store says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    format: u32,
    /// Whose state it is.
    pub(super) identity: Vec<u8>,
    /// The checkpoint whose state it holds.
    pub(super) applied: Option<CheckpointId>,
    /// A later one that it may hold a part of.
    pub(super) applying: Option<CheckpointId>,
    /// The accounts of the state of `applied`.
    pub(super) accounts: Option<Vec<u8>>,
}

impl Mark {
    pub(super) fn new(identity: &[u8], applied: Option<CheckpointId>) -> Self {
        Self { format: STORE_FORMAT, identity: identity.into(), applied, applying: None, accounts: None }
    }

    /// Returns the mark; `None` if there is none that this version understands.
    pub(super) fn read(store: &dyn StateStore) -> Result<Option<Self>, StoreError> {
        let mut bytes = Vec::new();
        if !store.get(&MARK_KEY, &mut bytes)? {
            return Ok(None);
        }
        Ok(postcard::from_bytes::<Self>(&bytes).ok().filter(|mark| mark.format == STORE_FORMAT))
    }

    /// Writes the mark behind everything that was written before.
    pub(super) fn write(&self, store: &dyn StateStore) -> Result<(), StoreError> {
        store.sync()?;
        let bytes = postcard::to_allocvec(self).map_err(|error| StoreError(error.to_string()))?;
        store.write(vec![(MARK_KEY.into(), Some(bytes))])?;
        store.sync()
    }
}

/// Puts a store's key into `out`, which is cleared.
pub(super) fn store_key(out: &mut Vec<u8>, slot: u16, group: KeyGroup, stored_key: &[u8]) {
    out.clear();
    out.extend_from_slice(&slot.to_be_bytes());
    out.extend_from_slice(&group.0.to_be_bytes());
    out.extend_from_slice(stored_key);
}

/// Puts what all entries of a key with many of them begin with into `out`, which is cleared.
pub(super) fn node_prefix(out: &mut Vec<u8>, slot: u16, group: KeyGroup, key: &[u8]) {
    store_key(out, slot, group, &[]);
    put_length(out, key.len());
    out.extend_from_slice(key);
}

/// Fills a store that nobody reads yet.
#[derive(Default)]
pub(super) struct StoreLoad {
    batch: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

impl StoreLoad {
    /// Sets or removes the value of a key.
    pub(super) fn set(&mut self, cold: &Cold, group: KeyGroup, stored_key: &[u8], value: Option<&[u8]>) {
        let mut key = Vec::with_capacity(PREFIX_BYTES + stored_key.len());
        store_key(&mut key, cold.slot, group, stored_key);
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.batch.insert(key, value.map(<[u8]>::to_vec));
        if self.bytes >= BATCH_BYTES {
            self.flush(cold);
        }
    }

    /// Removes all entries of a key.
    pub(super) fn clear(&mut self, cold: &Cold, group: KeyGroup, key: &[u8]) {
        self.flush(cold);
        let mut write = SectionWrite::new(&*cold.store, cold.slot, group, SectionKind::Clears);
        if let Err(error) = write.clear(key).and_then(|()| write.finish()) {
            cold.fail(error);
        }
    }

    /// Writes what has been collected.
    pub(super) fn flush(&mut self, cold: &Cold) {
        self.bytes = 0;
        if let Err(error) = cold.store.write(std::mem::take(&mut self.batch).into_iter().collect()) {
            cold.fail(error);
        }
    }
}

/// Says that parts of a completed checkpoint will be in the store from now on.
///
/// # Errors
/// [`StoreError`].
pub fn begin_apply(store: &dyn StateStore, checkpoint: CheckpointId) -> Result<(), StoreError> {
    let mut mark = Mark::read(store)?.ok_or_else(|| StoreError("it has lost its mark".into()))?;
    mark.applying = Some(checkpoint);
    mark.write(store)
}

/// Says that all of a completed checkpoint is in the store.
///
/// # Errors
/// [`StoreError`].
pub fn finish_apply(store: &dyn StateStore, checkpoint: CheckpointId) -> Result<(), StoreError> {
    let mark = Mark::read(store)?.ok_or_else(|| StoreError("it has lost its mark".into()))?;
    let accounts = store.take_accounts(checkpoint);
    Mark { applied: Some(checkpoint), applying: None, accounts, ..mark }.write(store)
}

/// Writes one section of a completed checkpoint into a store. Sections of a key group come in the order of their rank.
///
/// Meanwhile others read: a key that the checkpoint did not change keeps its value at every moment. So a base does not
/// replace its group at once: it is put key by key, and then what it does not hold is removed.
pub struct SectionWrite<'a> {
    store: &'a dyn StateStore,
    slot: u16,
    group: KeyGroup,
    batch: StoreBatch,
    batch_bytes: usize,
    /// The hashes of a base's keys.
    base: Option<BTreeSet<u128>>,
    value: Vec<u8>,
}

impl<'a> SectionWrite<'a> {
    /// Begins a section.
    pub fn new(store: &'a dyn StateStore, slot: u16, group: KeyGroup, kind: SectionKind) -> Self {
        let base = (kind == SectionKind::Base).then(BTreeSet::new);
        Self { store, slot, group, batch: Vec::new(), batch_bytes: 0, base, value: Vec::new() }
    }

    /// Takes encoded entries of the section.
    ///
    /// # Errors
    /// [`StoreError`], for bytes that are no entries, too.
    pub fn block(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        for entry in EntryReader::new(bytes) {
            let entry = entry.map_err(|error| StoreError(error.to_string()))?;
            let mut key = Vec::with_capacity(PREFIX_BYTES + entry.key().len());
            store_key(&mut key, self.slot, self.group, entry.key());
            match entry {
                Entry::Put { value, .. } => {
                    if let Some(base) = &mut self.base {
                        base.insert(xxhash_rust::xxh3::xxh3_128(&key));
                        // Most of a base is there already.
                        if self.store.get(&key, &mut self.value)? && self.value == value {
                            continue;
                        }
                    }
                    self.push(key, Some(value.to_vec()))?;
                }
                Entry::Delete { .. } => self.push(key, None)?,
                Entry::Clear { key } => self.clear(key)?,
            }
        }
        Ok(())
    }

    fn clear(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let mut prefix = Vec::new();
        node_prefix(&mut prefix, self.slot, self.group, key);
        self.remove_where(&prefix, &|_| true)
    }

    /// Removes what begins with a prefix, in bounded batches.
    fn remove_where(&mut self, prefix: &[u8], unwanted: &dyn Fn(&[u8]) -> bool) -> Result<(), StoreError> {
        self.flush()?;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let (mut last, mut bytes) = (None, 0);
            let batch = &mut self.batch;
            self.store.scan(prefix, after.as_deref(), &mut |key, _| {
                bytes += key.len() + 1;
                if unwanted(key) {
                    batch.push((key.to_vec(), None));
                }
                let goes_on = bytes < BATCH_BYTES;
                if !goes_on {
                    last = Some(key.to_vec());
                }
                goes_on
            })?;
            self.flush()?;
            if last.is_none() {
                return Ok(());
            }
            after = last;
        }
    }

    fn push(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), StoreError> {
        self.batch_bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.batch.push((key, value));
        if self.batch_bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.batch_bytes = 0;
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch.sort_by(|a, b| a.0.cmp(&b.0));
        // A section may name a key twice, with the same value.
        self.batch.dedup_by(|a, b| a.0 == b.0);
        self.store.write(std::mem::take(&mut self.batch))
    }

    /// Ends the section.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.flush()?;
        if let Some(base) = self.base.take() {
            let mut prefix = Vec::new();
            store_key(&mut prefix, self.slot, self.group, &[]);
            self.remove_where(&prefix, &|key| !base.contains(&xxhash_rust::xxh3::xxh3_128(key)))?;
        }
        Ok(())
    }
}
