//! A store in memory, for tests and simulations: it can be told to fail, and counts what is read.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;

use super::store::{StateStore, StoreBatch, StoreError};
use crate::ids::CheckpointId;

/// A store that is gone with the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    entries: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
    accounts: RefCell<BTreeMap<CheckpointId, Vec<u8>>>,
    reads: Cell<u64>,
    /// How many operations succeed before all fail.
    left: Cell<Option<u64>>,
}

impl MemoryStore {
    /// Returns how often it was asked for a key or a range.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Returns the number of keys, its own mark included.
    pub fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    /// Lets all operations fail after so many more; `None` lets none fail.
    pub fn fail_after(&self, operations: Option<u64>) {
        self.left.set(operations);
    }

    fn operate(&self) -> Result<(), StoreError> {
        match self.left.get() {
            Some(0) => Err(StoreError("told to fail".into())),
            left => {
                self.left.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }
}

impl StateStore for MemoryStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.operate()?;
        self.reads.set(self.reads.get() + 1);
        value.clear();
        let entries = self.entries.borrow();
        let found = entries.get(key);
        found.into_iter().for_each(|found| value.extend_from_slice(found));
        Ok(found.is_some())
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        self.operate()?;
        self.reads.set(self.reads.get() + 1);
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let entries = self.entries.borrow();
        let range = entries.range::<[u8], _>((from, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix));
        for (key, value) in range {
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, batch: StoreBatch) -> Result<(), StoreError> {
        self.operate()?;
        let mut entries = self.entries.borrow_mut();
        for (key, value) in batch {
            match value {
                Some(value) => drop(entries.insert(key, value)),
                None => drop(entries.remove(&key)),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.operate()
    }

    fn wipe(&self) -> Result<(), StoreError> {
        self.operate()?;
        self.entries.borrow_mut().clear();
        Ok(())
    }

    fn keep_accounts(&self, checkpoint: CheckpointId, accounts: Vec<u8>) {
        self.accounts.borrow_mut().insert(checkpoint, accounts);
    }

    fn take_accounts(&self, checkpoint: CheckpointId) -> Option<Vec<u8>> {
        let mut accounts = self.accounts.borrow_mut();
        *accounts = accounts.split_off(&checkpoint);
        accounts.remove(&checkpoint)
    }
}
