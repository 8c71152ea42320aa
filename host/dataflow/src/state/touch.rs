//! What a call has read of values that expire: after the call they are renewed, or dropped, by ordinary writes.

use super::arena::EntryRef;
use super::subtask::{SlotTable, SubtaskState, on_table};

/// Beyond this many notes, what is noted twice is looked for before the list grows.
const NOTES_MIN: usize = 1024;

/// Slots and entries.
#[derive(Default)]
pub(super) struct Touches(Vec<(u32, EntryRef)>);

impl Touches {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn note(&mut self, slot: u32, place: EntryRef) {
        if self.0.len() == self.0.capacity() && self.0.len() >= NOTES_MIN {
            self.0.sort_unstable();
            self.0.dedup();
        }
        self.0.push((slot, place));
    }
}

impl SubtaskState {
    /// Drops what the call found to have expired, and renews what it read where reading does. Nothing of it moves: the
    /// frame's places stay true.
    pub(super) fn settle_touches(&mut self) {
        let mut touches = std::mem::take(&mut self.touches.get_mut().0);
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
        self.touches.get_mut().0 = touches;
    }
}
