//! Leaving chunks that hold little: which ones, what is in them, and when their memory goes back.

use super::{Arena, ArenaFull, CHUNK_BYTES, Chunk, EntryRef, FREED, HEADER_BYTES, Use, lengths, size_class};

/// Chunks that are left together, at most.
const TOGETHER_MAX: usize = 256;

/// Returns how many bytes chunks may have in all before some are left, if so many are used, and how many they have after that:
/// then it takes a while before there is something to do again. Tests leave chunks whenever they can.
fn bounds(used: usize) -> (usize, usize) {
    if cfg!(test) { (used, used) } else { (used + used / 2 + 2 * CHUNK_BYTES, used + used / 4 + CHUNK_BYTES) }
}

/// How far the leaving of chunks is.
#[derive(Default)]
pub(super) struct Leaving {
    /// The chunks that are left now, the next of them to be looked at and from where.
    chunks: Vec<u32>,
    at: usize,
    offset: usize,
    /// Where lists of free places are looked through for places in these chunks: the next list and the next item of it.
    next_free: (usize, usize),
    /// Chunks in which nothing is any more.
    emptied: Vec<u32>,
    scratch: Vec<u8>,
}

impl Leaving {
    pub(super) fn emptied(&mut self, number: u32) {
        self.emptied.push(number);
    }
}

impl Arena {
    /// Whether chunks are being left.
    pub(in crate::state) fn is_leaving(&self) -> bool {
        !self.leaving.chunks.is_empty()
    }

    /// Chooses chunks to leave, if much of all of them is unused: those that hold the least. Returns whether there is one.
    pub(in crate::state) fn begin_leaving(&mut self) -> bool {
        let (most, enough) = bounds(self.kept_used);
        if self.kept <= most {
            return false;
        }
        // Two bytes are moved at most for each that is won.
        let is_worth_it = |chunk: &Chunk| {
            chunk.state == Use::Small && chunk.bytes.len() == CHUNK_BYTES && chunk.used as usize * 3 < CHUNK_BYTES * 2
        };
        let numbers = (0..).zip(&self.chunks).filter(|(number, chunk)| Some(*number) != self.open && is_worth_it(chunk));
        let mut found: Vec<(u32, u32)> = numbers.map(|(number, chunk)| (chunk.used, number)).collect();
        if found.len() > TOGETHER_MAX {
            found.select_nth_unstable(TOGETHER_MAX);
            found.truncate(TOGETHER_MAX);
        }
        found.sort_unstable();
        let mut left = self.kept;
        for (used, number) in found {
            if left <= enough {
                break;
            }
            left -= CHUNK_BYTES - used as usize;
            self.kept -= CHUNK_BYTES;
            self.kept_used -= used as usize;
            self.chunks[number as usize].state = Use::Leaving;
            self.leaving.chunks.push(number);
            if used == 0 {
                self.leaving.emptied.push(number);
            }
        }
        (self.leaving.at, self.leaving.offset, self.leaving.next_free) = (0, 0, (0, 0));
        self.is_leaving()
    }

    /// Forgets free places in the chunks that are left, looking at up to `budget`. Returns whether there may be more.
    pub(in crate::state) fn forget_free(&mut self, budget: usize) -> bool {
        let (mut list_at, mut at) = self.leaving.next_free;
        let mut left = budget;
        while let Some(list) = self.free.get_mut(list_at) {
            // What is added meanwhile, at the end, is in chunks that are kept.
            while at < list.len() && left > 0 {
                left -= 1;
                match self.chunks[super::locate(EntryRef(list[at])).0].state {
                    Use::Small => at += 1,
                    _ => drop(list.swap_remove(at)),
                }
            }
            if at < list.len() {
                break;
            }
            if list.len() * 4 < list.capacity() {
                list.shrink_to_fit();
            }
            (list_at, at) = (list_at + 1, 0);
        }
        self.leaving.next_free = (list_at, at);
        list_at < self.free.len()
    }

    /// Returns the next entry that is in a chunk that is left, looking at up to `visits` places. `None` ends the leaving of
    /// these chunks, unless `visits` is used up.
    pub(in crate::state) fn next_leaving(&mut self, visits: &mut usize) -> Option<EntryRef> {
        while let Some(number) = self.leaving.chunks.get(self.leaving.at) {
            let chunk = &self.chunks[*number as usize];
            while chunk.used > 0 && self.leaving.offset < chunk.filled as usize {
                if *visits == 0 {
                    return None;
                }
                *visits -= 1;
                let bytes = &chunk.bytes[self.leaving.offset..];
                let unit = super::bounded(self.leaving.offset / super::UNIT);
                let (key_len, value_len) = lengths(bytes);
                self.leaving.offset += size_class(HEADER_BYTES + key_len + value_len).1;
                if bytes[..4] != FREED.to_le_bytes() {
                    return Some(EntryRef(*number << super::CHUNK_UNITS_LOG2 | unit));
                }
            }
            (self.leaving.at, self.leaving.offset) = (self.leaving.at + 1, 0);
        }
        self.leaving.chunks.clear();
        None
    }

    /// Copies an entry to a place in a chunk that is kept, marks and all. Returns where; the old one must be freed.
    pub(in crate::state) fn copy(&mut self, place: EntryRef) -> Result<EntryRef, ArenaFull> {
        let mut scratch = std::mem::take(&mut self.leaving.scratch);
        let (key_len, value_len) = lengths(self.bytes(place));
        scratch.clear();
        scratch.extend_from_slice(&self.bytes(place)[..HEADER_BYTES + key_len + value_len]);
        let copy = self.allocate(scratch.len());
        if let Ok(copy) = copy {
            self.bytes_mut(copy)[..scratch.len()].copy_from_slice(&scratch);
        }
        self.leaving.scratch = scratch;
        copy
    }

    /// Gives back the memory of chunks that have been left with nothing in them, and returns their numbers. They must not be
    /// used again ([`Self::reuse`]) while anybody refers to a place in them.
    pub(in crate::state) fn take_emptied(&mut self) -> Vec<u32> {
        let emptied = std::mem::take(&mut self.leaving.emptied);
        for number in &emptied {
            let chunk = &mut self.chunks[*number as usize];
            self.allocated -= std::mem::take(&mut chunk.bytes).len();
            chunk.state = Use::Gone;
        }
        emptied
    }

    /// Nobody refers to a place in a chunk that is gone: its number may be used again.
    pub(in crate::state) fn reuse(&mut self, number: u32) {
        self.numbers.push(number);
    }
}
