//! What a call has read of values that expire: after the call they are renewed, or dropped, by ordinary writes.

use std::collections::BTreeSet;

use super::arena::EntryRef;
use super::subtask::{SlotTable, SubtaskState, on_table};

/// Beyond this many notes, what is noted twice is looked for before the list grows.
const NOTES_MIN: usize = 1024;

/// Slots and entries.
#[derive(Default)]
pub(super) struct Touches {
    resident: Vec<(u32, EntryRef)>,
    /// What was read of the store: slot, row, and entry key if the slot has such.
    cold: BTreeSet<(u32, u32, Option<Vec<u8>>)>,
}

impl Touches {
    pub(super) fn clear(&mut self) {
        self.resident.clear();
        self.cold.clear();
    }

    pub(super) fn note(&mut self, slot: u32, place: EntryRef) {
        let notes = &mut self.resident;
        if notes.len() == notes.capacity() && notes.len() >= NOTES_MIN {
            notes.sort_unstable();
            notes.dedup();
        }
        notes.push((slot, place));
    }

    pub(super) fn note_cold(&mut self, slot: u32, row: u32, entry_key: Option<&[u8]>) {
        self.cold.insert((slot, row, entry_key.map(<[u8]>::to_vec)));
    }
}

impl SubtaskState {
    /// Drops what the call found to have expired, and renews what it read where reading does. Nothing of it moves: the
    /// frame's places stay true.
    pub(super) fn settle_touches(&mut self) {
        self.load_touched();
        let mut touches = std::mem::take(&mut self.touches.get_mut().resident);
        if touches.is_empty() {
            return;
        }
        touches.sort_unstable();
        touches.dedup();
        for (slot, place) in touches.drain(..) {
            let slot = &mut self.slots[slot as usize];
            on_table!(&mut slot.table, table => {
                let (Some(expiry), Some(stored)) = (table.expiry, table.value(place)) else { continue };
                if expiry.is_over(stored, self.now) {
                    table.delete(place);
                } else if expiry.ttl.on_read {
                    let stamps = expiry.live_stamps(stored, self.now);
                    table.patch(place, stamps, &self.now.0.to_le_bytes());
                }
            });
        }
        self.touches.get_mut().resident = touches;
    }

    /// Makes resident what the call has read of the store and must change.
    fn load_touched(&mut self) {
        for (slot, row, entry_key) in std::mem::take(&mut self.touches.get_mut().cold) {
            let key = self.frame.table_key(row as usize);
            let place = match (&mut self.slots[slot as usize].table, entry_key) {
                (SlotTable::Value(table), _) => table.load(key, &mut self.scratch),
                (SlotTable::Ordered(table), Some(entry_key)) => {
                    table.load(key);
                    table.find(key, &entry_key)
                }
                (SlotTable::Ordered(_), None) => None,
            };
            place.into_iter().for_each(|place| self.touches.get_mut().note(slot, place));
        }
    }
}
