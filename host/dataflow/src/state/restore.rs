//! Loading state from a checkpoint, at whatever parallelism: nothing that is read here is trusted.

use std::collections::BTreeMap;

use super::apply::append;
use super::arena::ArenaFull;
use super::cold::Cold;
use super::entry::{Entry, split_ordered_key};
use super::list::{self, Elements};
use super::store::StoreLoad;
use super::subtask::{SlotTable, StateFull, SubtaskState, on_table};
use super::table::{Index, Table, TableKey};
use super::timers::timer_key;
use super::ttl::{STAMP_BYTES, Ttl, stamp};
use crate::guest::StateKind;
use crate::key_group::KeyGroup;
use crate::time::ProcessingTime;

/// The arena keeps a key's length in 16 bits.
pub(super) const STORED_KEY_BYTES_MAX: usize = u16::MAX as usize;

/// How the restored state of a slot gets to a subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// Everything that is read belongs where it was.
    InPlace,
    /// Lists of subtasks, one after the other, cut into `parts`: this is part `part`.
    Split {
        /// From 0.
        part: u32,
        /// How many.
        parts: u32,
    },
    /// Everybody gets all that is read, in the order of subtasks.
    All,
}

/// State that cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// There is too much of it.
    #[error(transparent)]
    Full(#[from] StateFull),
    /// It is not what a host writes.
    #[error("{0}")]
    Damaged(String),
}

/// One slot while it is being loaded.
pub struct SlotRestore {
    slot: usize,
    deal: Deal,
    /// The time to live that the slot had.
    was: Option<Ttl>,
    /// Whether what comes is not what is stored.
    rewritten: bool,
    now: ProcessingTime,
    /// What is dealt out when all of it is there: by old subtask, its entries.
    staged: BTreeMap<KeyGroup, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// What goes to a store.
    load: StoreLoad,
    scratch: Vec<u8>,
}

impl SlotRestore {
    /// Begins to load a slot. `was_ttl_ms` is the time to live that the slot had, 0 if it had none; values that have
    /// expired by `now` are left out.
    pub fn new(slot: usize, deal: Deal, was_ttl_ms: u64, now: ProcessingTime) -> Self {
        let was = (was_ttl_ms != 0).then_some(Ttl { ms: was_ttl_ms, on_read: false });
        Self { slot, deal, was, rewritten: false, now, staged: BTreeMap::new(), load: StoreLoad::default(), scratch: Vec::new() }
    }

    /// What comes was brought to another form than it is stored in: increments do not continue what is stored.
    #[must_use]
    pub fn rewritten(self, rewritten: bool) -> Self {
        Self { rewritten, ..self }
    }

    /// Forgets what a store has of a group: all that the checkpoint has of it will be applied.
    pub(crate) fn begin_group(&self, state: &SubtaskState, group: KeyGroup) {
        on_table!(&state.slots[self.slot].table, table => table.wipe_group(group));
    }

    /// Applies an entry to the store behind a table. Errors are found when the store is settled.
    fn store(
        &mut self,
        cold: &Cold,
        group: KeyGroup,
        entry: &Entry<'_>,
        (kind, is): (StateKind, Option<Ttl>),
    ) -> Result<(), RestoreError> {
        if kind != StateKind::Value && !matches!(entry, Entry::Clear { .. }) {
            split(kind, entry.key())?;
        }
        match entry {
            Entry::Put { key, value } => {
                let value = convert((kind, self.was, is), value, self.now, &mut self.scratch)?;
                self.load.set(cold, group, key, value);
            }
            Entry::Delete { key } => self.load.set(cold, group, key, None),
            Entry::Clear { .. } if kind == StateKind::Value => {
                return Err(RestoreError::Damaged("a key with one value is cleared".into()));
            }
            Entry::Clear { key } => self.load.clear(cold, group, key),
        }
        Ok(())
    }

    /// Takes one entry. Entries of a group must come in the order to apply them.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn apply(&mut self, state: &mut SubtaskState, group: KeyGroup, entry: &Entry<'_>) -> Result<(), RestoreError> {
        if entry.key().len() > STORED_KEY_BYTES_MAX {
            return Err(RestoreError::Damaged(format!("a key of {} bytes is longer than any can be", entry.key().len())));
        }
        if self.deal != Deal::InPlace {
            return self.stage(group, entry);
        }
        let kind = state.slots[self.slot].kind;
        let owns = if kind.is_keyed() { state.owner.groups.contains(&group.0) } else { group.0 == state.owner.subtask };
        if !owns {
            return Ok(());
        }
        if state.timers.holds(self.slot) {
            check_timer(entry)?;
        }
        let quota = state.quota_bytes;
        let is = state.slots[self.slot].ttl;
        if let Some(cold) = on_table!(&state.slots[self.slot].table, table => table.cold.clone()) {
            return self.store(&cold, group, entry, (kind, is));
        }
        let value = match entry {
            Entry::Put { value, .. } => convert((kind, self.was, is), value, self.now, &mut self.scratch)?,
            Entry::Delete { .. } | Entry::Clear { .. } => None,
        };
        let full = |used: u64, more: usize| move |ArenaFull| StateFull { used, more: more as u64, quota };
        match (&mut state.slots[self.slot].table, entry) {
            (SlotTable::Value(table), Entry::Put { key, .. } | Entry::Delete { key }) => {
                let full = full(table.memory_bytes(), key.len() + value.map_or(0, <[u8]>::len));
                let key = TableKey { bytes: key, hash: state.hasher.hash(key), group };
                match value {
                    Some(value) => table.restore_put(key, value).map_err(full)?,
                    None => table.find(key).into_iter().for_each(|place| table.restore_remove(place)),
                }
            }
            (SlotTable::Value(_), Entry::Clear { .. }) => {
                return Err(RestoreError::Damaged("a key with one value is cleared".into()));
            }
            (SlotTable::Ordered(table), Entry::Clear { key }) => {
                table.restore_clear(TableKey { bytes: key, hash: state.hasher.hash(key), group });
            }
            (SlotTable::Ordered(table), Entry::Put { key, .. } | Entry::Delete { key }) => {
                let full = full(table.memory_bytes(), key.len() + value.map_or(0, <[u8]>::len));
                let (key, entry_key) = split(kind, key)?;
                let key = TableKey { bytes: key, hash: state.hasher.hash(key), group };
                match value {
                    Some(value) => table.restore_put(key, entry_key, value).map_err(full)?,
                    None => table.find(key, entry_key).into_iter().for_each(|place| table.restore_remove(place)),
                }
            }
        }
        Ok(())
    }

    fn stage(&mut self, group: KeyGroup, entry: &Entry<'_>) -> Result<(), RestoreError> {
        let entries = self.staged.entry(group).or_default();
        let broken = || RestoreError::Damaged("an entry has no ordered key".into());
        match entry {
            Entry::Clear { .. } => entries.clear(),
            Entry::Put { key, value } => {
                let (_, entry_key) = split_ordered_key(key).ok_or_else(broken)?;
                entries.insert(entry_key.to_vec(), value.to_vec());
            }
            Entry::Delete { key } => {
                let (_, entry_key) = split_ordered_key(key).ok_or_else(broken)?;
                entries.remove(entry_key);
            }
        }
        Ok(())
    }

    /// Deals out what was taken. `groups` are the groups there were, each with its increments since the base and their
    /// bytes: those that stay in place are continued by increments, others are written in full by the next checkpoint.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn finish(
        mut self,
        state: &mut SubtaskState,
        groups: impl IntoIterator<Item = (KeyGroup, u32, u64)>,
    ) -> Result<(), RestoreError> {
        let slot = &mut state.slots[self.slot];
        if let Some(cold) = on_table!(&slot.table, table => table.cold.as_ref()) {
            self.load.flush(cold);
        }
        let (kind, is, subtask) = (slot.kind, slot.ttl, state.owner.subtask);
        if self.deal == Deal::InPlace {
            // Values that got or lost their stamps cannot be continued.
            let continues = !self.rewritten && self.was.is_some() == is.is_some();
            state.backing.iter_mut().for_each(|backing| backing.converted |= !continues);
            let owned = if kind.is_keyed() { state.owner.groups.clone() } else { subtask..subtask + 1 };
            for (group, deltas, delta_bytes) in groups.into_iter().filter(|(group, ..)| owned.contains(&group.0)) {
                match &mut slot.table {
                    SlotTable::Value(table) => note_group(table, group, continues, (deltas, delta_bytes)),
                    SlotTable::Ordered(table) => note_group(table, group, continues, (deltas, delta_bytes)),
                }
            }
            state.order_timers(self.slot);
            return Ok(());
        }
        let key = state.own_key();
        let SlotTable::Ordered(table) = &mut state.slots[self.slot].table else {
            return Err(RestoreError::Damaged("values of keys cannot be dealt out".into()));
        };
        note_group(table, key.group, false, (0, 0));
        let staged = std::mem::take(&mut self.staged);
        let all = staged.values().flatten();
        if kind == StateKind::Broadcast {
            for (entry_key, value) in all {
                let full = StateFull { used: table.memory_bytes(), more: value.len() as u64, quota: state.quota_bytes };
                table.restore_put(key, entry_key, value).map_err(|ArenaFull| full)?;
            }
            return Ok(());
        }
        for chunk in staged.values().flat_map(BTreeMap::values) {
            check_chunk(chunk, false)?;
        }
        let total = all.map(|(_, chunk)| list::count(chunk)).sum::<usize>();
        let mine = match self.deal {
            Deal::Split { part, parts } => part_of(total, part as usize, parts as usize),
            Deal::InPlace | Deal::All => 0..total,
        };
        let chunks = staged.values().flat_map(BTreeMap::values);
        let elements = chunks.flat_map(|chunk| Elements::new(chunk, false)).map(|(_, element)| element);
        for element in elements.skip(mine.start).take(mine.len()) {
            append(table, key, element, None, &mut self.scratch);
        }
        Ok(())
    }
}

fn check_timer(entry: &Entry<'_>) -> Result<(), RestoreError> {
    let has_its_form = match entry {
        Entry::Put { value, .. } => value.is_empty(),
        Entry::Delete { .. } => true,
        Entry::Clear { .. } => false,
    };
    if has_its_form && timer_key(entry.key()).is_some() {
        Ok(())
    } else {
        Err(RestoreError::Damaged("a timer is malformed".into()))
    }
}

fn note_group<I: Index>(table: &mut Table<I>, group: KeyGroup, continues: bool, (deltas, delta_bytes): (u32, u64)) {
    let group = table.group_mut(group);
    (group.has_base, group.may_be_stored) = (continues, true);
    (group.deltas, group.delta_bytes) = (deltas, delta_bytes);
}

/// Returns a part of a list that is cut evenly: the first `total % parts` parts are one longer.
fn part_of(total: usize, part: usize, parts: usize) -> std::ops::Range<usize> {
    let (even, longer) = (total / parts, total % parts);
    let start = |part: usize| part * even + part.min(longer);
    start(part)..start(part + 1)
}

fn split(kind: StateKind, ordered: &[u8]) -> Result<(&[u8], &[u8]), RestoreError> {
    let damaged = |what: &str| RestoreError::Damaged(what.into());
    let (key, entry_key) = split_ordered_key(ordered).ok_or_else(|| damaged("an entry has no ordered key"))?;
    if kind.is_list() && entry_key.len() != size_of::<u64>() {
        return Err(damaged("a list's chunk has no number"));
    }
    if !kind.is_keyed() && !key.is_empty() {
        return Err(damaged("state of a subtask has a key"));
    }
    Ok((key, entry_key))
}

fn check_chunk(chunk: &[u8], stamped: bool) -> Result<(), RestoreError> {
    let broken = |_| RestoreError::Damaged("a list's chunk does not hold its elements".into());
    Elements::new(chunk, stamped).check().map_err(broken)
}

/// Returns a stored value as the slot wants it now, with a stamp or without; `None` if it has expired.
fn convert<'a>(
    (kind, was, is): (StateKind, Option<Ttl>, Option<Ttl>),
    stored: &'a [u8],
    now: ProcessingTime,
    out: &'a mut Vec<u8>,
) -> Result<Option<&'a [u8]>, RestoreError> {
    if kind.is_list() {
        check_chunk(stored, was.is_some())?;
        if was.is_some() == is.is_some() {
            let is_over = is.is_some() && list::live(stored, is, now).next().is_none();
            return Ok((!is_over).then_some(stored));
        }
        out.clear();
        for (_, element) in list::live(stored, was, now) {
            list::append(out, element, is.map(|_| now));
        }
        return Ok((!out.is_empty()).then_some(out));
    }
    if was.is_some() && stored.len() < STAMP_BYTES {
        return Err(RestoreError::Damaged("a value that expires has no stamp".into()));
    }
    Ok(match (was, is) {
        (None, None) => Some(stored),
        (Some(_), Some(ttl)) => ttl.live(stored, now).map(|_| stored),
        (Some(ttl), None) => ttl.live(stored, now),
        (None, Some(_)) => {
            stamp(out, now, stored);
            Some(out)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_parts_that_differ_by_one() {
        let sizes = |parts| (0..parts).map(|part| part_of(9, part, parts).len()).collect::<Vec<_>>();
        assert_eq!(sizes(2), [5, 4]);
        assert_eq!(sizes(4), [3, 2, 2, 2]);
        assert_eq!(sizes(12), [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0]);
        assert_eq!((part_of(9, 0, 4), part_of(9, 1, 4), part_of(9, 3, 4)), (0..3, 3..5, 7..9));
    }
}
