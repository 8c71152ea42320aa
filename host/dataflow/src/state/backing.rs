//! A subtask's state with a store behind it: opened, read in bulk, evicted, and accounted for.
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

/// Beyond this multiple of its memory a subtask takes no more input until a checkpoint has let it evict.
const HOLD_FACTOR: u64 = 2;
/// Groups that are looked through in one slice, at most, while memory runs over.
const EVICT_GROUPS: usize = 8;
/// After so many entries have been read, there may be something to evict again.
const LOADED_STEP: u64 = 1024;

/// A subtask's store, and how far its memory may go.
pub(super) struct Backing {
    store: Rc<dyn StateStore>,
    memory_bytes: u64,
    identity: Vec<u8>,
    failure: StoreFailure,
    /// The checkpoint whose state the store held when it was opened; `None` if it was emptied.
    resumed: Option<CheckpointId>,
    /// Whether the restore changed what the checkpoint holds: then the store is no copy of it.
    pub(super) converted: bool,
    /// Where eviction goes on: slot and position of the group.
    hand: (usize, usize),
    /// How many groups in a row had nothing to evict, and how many entries had been read by then.
    idle: usize,
    loaded: u64,
}

/// What a subtask lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPressure {
    /// Nothing.
    None,
    /// Memory: a checkpoint would let it evict.
    Checkpoint,
    /// Memory: it must not take more input before a checkpoint has completed.
    Hold,
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
        let (converted, hand, idle, loaded) = (false, (0, 0), 0, 0);
        self.backing = Some(Backing { store, memory_bytes, identity, failure, resumed, converted, hand, idle, loaded });
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

    /// Returns the memory of what could be evicted at some time.
    fn resident_bytes(&self) -> u64 {
        let of = |slot: &SlotTable| on_table!(slot, table => if table.cold.is_some() { table.resident_bytes() } else { 0 });
        self.slots.iter().map(|slot| of(&slot.table)).sum()
    }

    fn loaded(&self) -> u64 {
        self.slots.iter().map(|slot| on_table!(&slot.table, table => table.loaded)).sum()
    }

    /// Evicts a slice of what the store holds, if memory runs over. Returns whether there was anything.
    pub fn evict_some(&mut self) -> bool {
        let Some(mut backing) = self.backing.take() else { return false };
        let mut any = false;
        if self.resident_bytes() > backing.memory_bytes {
            let loaded = self.loaded();
            if loaded >= backing.loaded + LOADED_STEP {
                (backing.idle, backing.loaded) = (0, loaded);
            }
            for _ in 0..EVICT_GROUPS {
                // Twice around: what has been used has a second chance.
                if backing.is_stuck(self) || self.resident_bytes() <= backing.memory_bytes {
                    break;
                }
                let evicted = self.evict_group(&mut backing);
                backing.idle = if evicted == 0 { backing.idle + 1 } else { 0 };
                any = true;
            }
        }
        self.backing = Some(backing);
        any
    }

    fn evict_group(&mut self, backing: &mut Backing) -> usize {
        let (number, position) = backing.hand;
        let slot = &mut self.slots[number];
        on_table!(&mut slot.table, table => {
            let evicted = table.evict_group(position);
            backing.hand = if position + 1 < table.groups.len() { (number, position + 1) } else { (number + 1, 0) };
            if backing.hand.0 == self.slots.len() {
                backing.hand = (0, 0);
            }
            evicted
        })
    }

    /// Returns whether memory is short and nothing can be evicted.
    pub fn memory_pressure(&self) -> MemoryPressure {
        let Some(backing) = self.backing.as_ref().filter(|backing| backing.is_stuck(self)) else {
            return MemoryPressure::None;
        };
        match self.resident_bytes() {
            resident if resident <= backing.memory_bytes => MemoryPressure::None,
            resident if resident <= backing.memory_bytes * HOLD_FACTOR => MemoryPressure::Checkpoint,
            _ => MemoryPressure::Hold,
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

impl Backing {
    fn is_stuck(&self, state: &SubtaskState) -> bool {
        let groups = |slot: &SlotTable| on_table!(slot, table => table.groups.len());
        self.idle > 2 * state.slots.iter().map(|slot| groups(&slot.table)).sum::<usize>()
    }
}

impl<I: Index> Table<I> {
    fn evict_group(&mut self, position: usize) -> usize {
        if self.cold.is_none() || self.is_scanning(position) {
            return 0;
        }
        self.groups[position].index.evict(&mut self.arena, self.applied)
    }

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
