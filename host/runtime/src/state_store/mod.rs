//! State that is larger than memory: the engine's ordered store on a local disk, by way of the crate `fjall`.
//!
//! A store is a cache of a checkpoint. It is not made durable but at its marks, and one that cannot be opened is deleted.

mod caught;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::state::store::{StateStore, StoreBatch, StoreError};
use fjall::config::{HashRatioPolicy, PartitioningPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use caught::caught;
pub use place::{LocalPlace, StorePlace};

/// Memory tables that may exist beside the one that is being filled, about.
const SEALED_TABLES: u64 = 3;
const MEMTABLE_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=64 << 20;
/// The least that `fjall` takes.
const JOURNAL_BYTES: u64 = 64 << 20;
/// Entries of a data block's hash index to its entries: spares most of the search in a block.
const HASH_RATIO: f32 = 0.75;
/// Files that are kept open.
const OPEN_FILES: usize = 64;

/// How the memory of one subtask's state is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateMemory {
    /// For tables.
    pub table_bytes: u64,
    /// For blocks of the store.
    pub cache_bytes: u64,
    /// For what is written to the store, each time before a file is made of it.
    pub memtable_bytes: u64,
}

impl StateMemory {
    /// Divides so many bytes: a quarter for blocks that were read, a quarter for what is being written.
    pub fn divide(bytes: u64) -> Self {
        let share = (bytes / 4 / (SEALED_TABLES + 1)).clamp(*MEMTABLE_BYTES.start(), *MEMTABLE_BYTES.end());
        let cache_bytes = bytes / 4;
        let table_bytes = bytes.saturating_sub(cache_bytes + share * (SEALED_TABLES + 1)).max(bytes / 4);
        Self { table_bytes, cache_bytes, memtable_bytes: share }
    }
}

/// An open store. Clones share it; the last one closes it, and waits for its threads.
#[derive(Clone)]
pub struct DiskStore {
    database: Database,
    entries: Keyspace,
    accounts: Arc<Mutex<BTreeMap<CheckpointId, Vec<u8>>>>,
}

fn failed(error: fjall::Error) -> StoreError {
    StoreError(match error {
        fjall::Error::Io(error) => error.to_string(),
        fjall::Error::Poisoned => "an earlier write has failed".into(),
        other => other.to_string(),
    })
}

impl DiskStore {
    /// Opens the store in a directory, or makes one. What cannot be opened is deleted: the second result says why.
    ///
    /// # Errors
    /// [`StoreError`] if none can be made either.
    pub fn open(dir: &Path, memory: StateMemory) -> Result<(Self, Option<StoreError>), StoreError> {
        let told = |error: std::io::Error| StoreError(format!("{}: {error}", dir.display()));
        if let Some(parent) = dir.parent() {
            std::fs::create_dir_all(parent).map_err(told)?;
        }
        match caught(|| Self::try_open(dir, memory)) {
            Ok(store) => Ok((store, None)),
            Err(problem) => {
                match std::fs::remove_dir_all(dir) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(told(error)),
                    _ => {}
                }
                let store = caught(|| Self::try_open(dir, memory))?;
                Ok((store, Some(problem)))
            }
        }
    }

    fn try_open(dir: &Path, memory: StateMemory) -> Result<Self, StoreError> {
        let database = Database::builder(dir)
            .cache_size(memory.cache_bytes)
            .worker_threads(1)
            .max_cached_files(Some(OPEN_FILES))
            .max_journaling_size(JOURNAL_BYTES.max(memory.memtable_bytes * (SEALED_TABLES + 1)))
            .open()
            .map_err(failed)?;
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memory.memtable_bytes)
                // Whole ones have megabytes: more than the cache holds, and each look-up would read them anew.
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
                .filter_block_partitioning_policy(PartitioningPolicy::all(true))
                // Who asks for a key that is not resident has most likely written it before.
                .expect_point_read_hits(true)
                .data_block_hash_ratio_policy(HashRatioPolicy::all(HASH_RATIO))
        };
        let entries = database.keyspace("state", options).map_err(failed)?;
        Ok(Self { database, entries, accounts: Arc::default() })
    }

    fn accounts(&self) -> MutexGuard<'_, BTreeMap<CheckpointId, Vec<u8>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateStore for DiskStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        value.clear();
        let found = caught(|| self.entries.get(key).map_err(failed))?;
        found.iter().for_each(|found| value.extend_from_slice(found));
        Ok(found.is_some())
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let end = end_of(prefix);
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut entries = caught(|| Ok(self.entries.range::<&[u8], _>((from, to))))?;
        while let Some((key, value)) = caught(|| entries.next().map(|entry| entry.into_inner().map_err(failed)).transpose())? {
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, batch: StoreBatch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        caught(|| {
            // Handed to the operating system: it survives the end of the process.
            let mut writes = self.database.batch().durability(Some(PersistMode::Buffer));
            for (key, value) in batch {
                match value {
                    Some(value) => writes.insert(&self.entries, key, value),
                    None => writes.remove(&self.entries, key),
                }
            }
            writes.commit().map_err(failed)
        })
    }

    fn sync(&self) -> Result<(), StoreError> {
        caught(|| self.database.persist(PersistMode::SyncData).map_err(failed))
    }

    fn wipe(&self) -> Result<(), StoreError> {
        caught(|| self.entries.clear().map_err(failed))
    }

    fn keep_accounts(&self, checkpoint: CheckpointId, accounts: Vec<u8>) {
        self.accounts().insert(checkpoint, accounts);
    }

    fn take_accounts(&self, checkpoint: CheckpointId) -> Option<Vec<u8>> {
        let mut accounts = self.accounts();
        *accounts = accounts.split_off(&checkpoint);
        accounts.remove(&checkpoint)
    }
}

/// Returns the first key after all that begin with a prefix.
fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}
