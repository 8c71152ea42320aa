//! A subtask's state with a store behind it: opened, read in bulk, and accounted for.
//!
//! Only state of keys is in the store, without timers. What belongs to no key (lists of subtasks, broadcast state) stays in memory: it is
//! small by its nature, and everybody needs all of it.

use std::rc::Rc;

use super::cold::{Cold, StoreFailure};
use super::store::{Mark, StateStore, StoreError};
use super::subtask::{SlotTable, SubtaskState, on_table};
use super::table::{Index, Table};
use crate::ids::CheckpointId;
use crate::key_group::KeyGroup;

/// A subtask's store, and how far its memory may go.
pub(super) struct Backing {
    store: Rc<dyn StateStore>,
    pub(super) memory_bytes: u64,
    identity: Vec<u8>,
    failure: StoreFailure,
    /// The checkpoint whose state the store held when it was opened; `None` if it was emptied.
    resumed: Option<CheckpointId>,
    /// Whether the restore changed what the checkpoint holds: then the store is no copy of it.
    pub(super) converted: bool,
    /// How many candidates in a row could not be evicted.
    pub(super) idle: usize,
}

impl SubtaskState {
    /// Puts a store behind the tables of keyed slots. The state must be empty. `memory_bytes` is what the tables may take
    /// before they evict; `identity` names what the store is for: a store of another identity is emptied.
    ///
    /// The store is used as it is if it holds (at least in part) the state of a checkpoint up to `restore`, which the
    /// state will be restored to, and emptied otherwise. Returns the checkpoint whose state it holds.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn attach_store(
        &mut self,
        store: Rc<dyn StateStore>,
        memory_bytes: u64,
        identity: &[u8],
        restore: Option<CheckpointId>,
    ) -> Result<Option<CheckpointId>, StoreError> {
        let mark = Mark::read(&*store)?.filter(|mark| mark.identity == identity);
        let is_usable = |mark: &Mark| mark.applied.is_some() && mark.applied <= restore && mark.applying <= restore;
        let resumed = mark.filter(is_usable).and_then(|mark| mark.applied);
        if resumed.is_none() {
            store.wipe()?;
        }
        let failure = StoreFailure::default();
        for (number, slot) in (0_u16..).zip(&mut self.slots) {
            // Timers stay in memory: what is due next is found there, in every step.
            if slot.kind.is_keyed() && !self.timers.holds(usize::from(number)) {
                let cold = Cold::new(Rc::clone(&store), number, Rc::clone(&failure));
                on_table!(&mut slot.table, table => table.cold = Some(cold));
            }
        }
        let identity = identity.to_vec();
        let (converted, idle) = (false, 0);
        self.backing = Some(Backing { store, memory_bytes, identity, failure, resumed, converted, idle });
        Ok(resumed)
    }

    /// Returns the checkpoint from which on the store lacks what the restored checkpoint holds; `None` if it lacks all.
    pub fn resumed(&self) -> Option<CheckpointId> {
        self.backing.as_ref()?.resumed
    }

    /// Whether the state of a slot is in a store.
    pub fn is_stored(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| on_table!(&slot.table, table => table.cold.is_some()))
    }

    /// Says that the store holds the state of the checkpoint that was restored, if one was, and finds out how much it is.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn settle_store(&mut self, restored: Option<CheckpointId>) -> Result<(), StoreError> {
        let Some(backing) = &self.backing else { return Ok(()) };
        let store = Rc::clone(&backing.store);
        let mark = Mark::read(&*store)?.filter(|mark| backing.resumed.is_some() && mark.applied == restored);
        // A checkpoint leaves out what had expired at its cut and was accounted for.
        let is_exact = self.slots.iter().all(|slot| slot.ttl.is_none());
        let known = mark.filter(|mark| mark.applying.is_none() && is_exact).and_then(|mark| mark.accounts);
        if !known.is_some_and(|accounts| self.take_accounts(&accounts)) {
            for slot in &mut self.slots {
                on_table!(&mut slot.table, table => table.recount());
            }
        }
        if let Some(error) = self.store_failure() {
            return Err(error);
        }
        let identity = self.backing.as_ref().map(|backing| backing.identity.clone()).unwrap_or_default();
        let accounts = Some(self.accounts());
        let converted = self.backing.as_ref().is_some_and(|backing| backing.converted);
        let mut mark = Mark::new(&identity, restored.filter(|_| !converted));
        mark.accounts = accounts;
        mark.write(&*store)
    }

    /// Returns the first error of the store, if there was one: what was read since is worth nothing.
    pub fn store_failure(&self) -> Option<StoreError> {
        self.backing.as_ref()?.failure.borrow().clone()
    }

    /// Makes the rows of the frame resident in the slots that are handed in with each call.
    pub(super) fn load_rows(&mut self) {
        let mut rows: Vec<usize> = Vec::new();
        for column in &self.frame.columns {
            let SlotTable::Value(table) = &mut self.slots[column.slot as usize].table else { continue };
            rows.clear();
            for row in 0..self.frame.len() {
                match table.find(self.frame.table_key(row)) {
                    Some(place) => table.arena.set_used(place),
                    None => rows.push(row),
                }
            }
            // In the order of the store, so that neighbours are read together.
            rows.sort_unstable_by_key(|row| (self.frame.groups[*row], self.frame.table_key(*row).bytes));
            for row in &rows {
                table.load(self.frame.table_key(*row), &mut self.scratch);
            }
        }
    }

    /// Takes note that the store holds the state of a completed checkpoint, of which [`Self::confirm`] has been told.
    pub fn applied(&mut self, checkpoint: CheckpointId) {
        self.slots.iter_mut().for_each(|slot| on_table!(&mut slot.table, table => table.applied(checkpoint)));
        if let Some(backing) = &mut self.backing {
            backing.idle = 0;
        }
    }

    /// Notes how much there is at the cut of a checkpoint, for whoever writes it into the store.
    pub(super) fn keep_accounts(&self, checkpoint: CheckpointId) {
        if let Some(backing) = &self.backing {
            backing.store.keep_accounts(checkpoint, self.accounts());
        }
    }

    /// Returns the entries of each slot and the live bytes of each of its groups.
    fn accounts(&self) -> Vec<u8> {
        let of = |slot: &SlotTable| on_table!(slot, table => (table.len(), table.groups.iter().map(|group| group.live_bytes).collect()));
        let all: Vec<(u64, Vec<u64>)> = self.slots.iter().map(|slot| of(&slot.table)).collect();
        postcard::to_allocvec(&all).unwrap_or_default()
    }

    /// Compares the accounts with what is in memory and in the store.
    ///
    /// # Panics
    /// If they differ.
    #[cfg(test)]
    pub(crate) fn check_accounts(&self) {
        self.slots.iter().for_each(|slot| on_table!(&slot.table, table => table.check_accounts()));
    }

    fn take_accounts(&mut self, accounts: &[u8]) -> bool {
        let Ok(all) = postcard::from_bytes::<Vec<(u64, Vec<u64>)>>(accounts) else { return false };
        let groups = |slot: &SlotTable| on_table!(slot, table => table.groups.len());
        if !all.iter().map(|(_, bytes)| bytes.len()).eq(self.slots.iter().map(|slot| groups(&slot.table))) {
            return false;
        }
        for (slot, (entries, bytes)) in self.slots.iter_mut().zip(&all) {
            on_table!(&mut slot.table, table => {
                if table.cold.is_some() {
                    table.set_accounts(*entries, bytes);
                }
            });
        }
        true
    }
}

impl<I: Index> Table<I> {
    #[cfg(test)]
    fn check_accounts(&self) {
        let mut all = 0;
        for (position, group) in self.groups.iter().enumerate() {
            let (mut entries, mut live_bytes) = (0, 0);
            let mut count = |key: &[u8], value: &[u8]| {
                entries += 1;
                live_bytes += (key.len() + value.len()) as u64;
                true
            };
            for entry in group.index.places().into_iter().map(|place| self.arena.entry(place)).filter(|entry| !entry.deleted) {
                count(entry.key, entry.value);
            }
            if let Some(cold) = &self.cold {
                cold.scan_group(self.group_at(position), None, |key, value| {
                    group.index.is_resident(&self.arena, key, &self.hasher) || count(key, value)
                });
            }
            assert_eq!(group.live_bytes, live_bytes, "bytes of group {position}");
            all += entries;
        }
        assert_eq!(self.len(), all, "entries");
    }

    /// Counts what the store holds.
    fn recount(&mut self) {
        let Some(cold) = self.cold.clone() else { return };
        let (mut entries, mut live_bytes) = (0, vec![0; self.groups.len()]);
        for (position, live_bytes) in live_bytes.iter_mut().enumerate() {
            cold.scan_group(self.group_at(position), None, |stored_key, value| {
                entries += 1;
                *live_bytes += (stored_key.len() + value.len()) as u64;
                true
            });
        }
        self.set_accounts(entries, &live_bytes);
    }

    /// Removes what the store has of a group, which a restored base replaces.
    pub(super) fn wipe_group(&self, group: KeyGroup) {
        let Some(cold) = &self.cold else { return };
        let write = super::store::SectionWrite::new(&*cold.store, cold.slot, group, crate::snapshot::SectionKind::Base);
        // An empty base.
        if let Err(error) = write.finish() {
            cold.fail(error);
        }
    }
}
