//! A store in memory, for tests and simulations: it can be told to fail, and counts what is read.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::store::{StateStore, StoreBatch, StoreError};
use crate::ids::CheckpointId;

/// A store that is gone with the process.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Content>);

#[derive(Clone, Debug, Default)]
struct Content {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    accounts: BTreeMap<CheckpointId, Vec<u8>>,
    reads: u64,
    /// How many operations succeed before all fail.
    left: Option<u64>,
}

impl MemoryStore {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often it was asked for a key or a range.
    pub fn reads(&self) -> u64 {
        self.content().reads
    }

    /// Returns the number of keys, its own mark included.
    pub fn len(&self) -> usize {
        self.content().entries.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.content().entries.is_empty()
    }

    /// Lets all operations fail after so many more; `None` lets none fail.
    pub fn fail_after(&self, operations: Option<u64>) {
        self.content().left = operations;
    }

    /// Returns another store that holds what this one holds now.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self(Mutex::new(self.content().clone()))
    }

    fn operate(&self) -> Result<MutexGuard<'_, Content>, StoreError> {
        let mut content = self.content();
        match content.left {
            Some(0) => Err(StoreError("told to fail".into())),
            left => {
                content.left = left.map(|left| left - 1);
                Ok(content)
            }
        }
    }
}

impl StateStore for MemoryStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        let mut content = self.operate()?;
        content.reads += 1;
        value.clear();
        let found = content.entries.get(key);
        found.into_iter().for_each(|found| value.extend_from_slice(found));
        Ok(found.is_some())
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        let mut content = self.operate()?;
        content.reads += 1;
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let range = content.entries.range::<[u8], _>((from, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix));
        for (key, value) in range {
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, batch: StoreBatch) -> Result<(), StoreError> {
        let mut content = self.operate()?;
        for (key, value) in batch {
            match value {
                Some(value) => drop(content.entries.insert(key, value)),
                None => drop(content.entries.remove(&key)),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.operate().map(drop)
    }

    fn wipe(&self) -> Result<(), StoreError> {
        self.operate()?.entries.clear();
        Ok(())
    }

    fn keep_accounts(&self, checkpoint: CheckpointId, accounts: Vec<u8>) {
        self.content().accounts.insert(checkpoint, accounts);
    }

    fn take_accounts(&self, checkpoint: CheckpointId) -> Option<Vec<u8>> {
        let accounts = &mut self.content().accounts;
        *accounts = accounts.split_off(&checkpoint);
        accounts.remove(&checkpoint)
    }
}
