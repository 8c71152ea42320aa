//! Snapshots of a table: begun at the cut, encoded in slices, or by whoever writes first.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::arena::{Entry, EntryRef};
use super::entry::Entry as Change;
use super::table::{Clear, Group, Index, Table};
use crate::ids::CheckpointId;
use crate::key_group::KeyGroup;
use crate::snapshot::{SectionKind, StateBlock};
use crate::time::ProcessingTime;

/// Blocks are closed at this size, or earlier where many groups share the budget.
const BLOCK_BYTES: usize = 64 << 10;
/// What the open blocks of one snapshot may take together.
const OPEN_BLOCKS_BYTES: usize = 8 << 20;
/// Increments after which a group is written in full, whatever their size: bounds what a restore reads.
const DELTAS_MAX: u32 = 64;
/// Entries of a store that are read in one go. Tests interrupt the reading of few.
const SCAN_ENTRIES: usize = if cfg!(test) { 2 } else { 256 };
/// Entries that are touched together before they are encoded: they lie anywhere, and the processor can wait for many cache
/// misses at once. Tests interrupt a group of few.
const PASS: usize = if cfg!(test) { 2 } else { 32 };

/// A snapshot of one table that is not encoded yet.
pub(super) struct Collecting {
    pub(super) checkpoint: CheckpointId,
    first_group: u16,
    /// Entries written in `(since, cut]` are in an increment, those written up to `cut` in a base.
    since: u32,
    cut: u32,
    /// What was written since the last completed checkpoint, with each list's own cut.
    lists: Vec<(u32, Rc<Vec<EntryRef>>)>,
    /// The keys that were cleared meanwhile, the next of these lists, and the next item in it.
    clears: Vec<Rc<Vec<Clear>>>,
    next_clear: (usize, usize),
    /// The blocks of cleared keys that are being filled, and how many keys they hold.
    clear_blocks: BTreeMap<usize, (Vec<u8>, u32)>,
    /// The next list and the next item in it.
    next: (usize, usize),
    /// The state of each group's section.
    groups: Vec<GroupSection>,
    /// Groups to be written in full, and the entries of the one at hand.
    bases: Vec<u16>,
    base: Option<BaseWork>,
    /// The time at the cut: what has expired by then is not written in full again...
    now: ProcessingTime,
    /// ... and is dropped after the slice at hand.
    expired: Vec<EntryRef>,
    /// The same of the store: group and stored key.
    expired_cold: Vec<(KeyGroup, Vec<u8>)>,
    block_bytes: usize,
    full_blocks: Vec<StateBlock>,
}

/// A group that is being written in full: first its entries in memory, then those that are in the store only.
struct BaseWork {
    position: u16,
    places: Vec<EntryRef>,
    /// What has been read of the store: up to and with this stored key. `None` before that begins.
    scanned: Option<Vec<u8>>,
}

pub(super) struct GroupSection {
    kind: SectionKind,
    /// Whether everything has been encoded: nothing needs to be saved any more.
    done: bool,
    bytes: Vec<u8>,
    entries: u32,
    blocks: u32,
    written_bytes: u64,
}

impl<I: Index> Table<I> {
    /// Freezes the table at the cut of a checkpoint. Costs the same whatever its size, but for a word a key group. A
    /// `full` snapshot holds every group in full and is never built upon: it closes an interval like any other, which
    /// stays listed for the next increment, and no group gets a base by it.
    pub(super) fn begin_snapshot(&mut self, checkpoint: CheckpointId, now: ProcessingTime, full: bool) {
        let cut = self.close_interval(checkpoint);
        let mut bases = Vec::new();
        let (mut renewals, is_stored) = (self.renewals(), self.cold.is_some());
        let mut groups = std::mem::take(&mut self.spare_sections);
        groups.reserve(self.groups.len());
        for (position, group) in self.groups.iter_mut().enumerate() {
            let is_due = full || (needs_base(position, group) && (!group.has_base || renewals > 0));
            renewals = renewals.saturating_sub(usize::from(is_due && group.has_base));
            let kind = if is_due { SectionKind::Base } else { SectionKind::Delta };
            // What a full snapshot lacks is empty: nothing comes before it.
            let is_news = !group.index.is_empty() || (group.may_be_stored && (!full || is_stored));
            if kind == SectionKind::Base && is_news {
                bases.push(u16::try_from(position).expect("at most 32,768 groups"));
                group.may_be_stored |= !full;
            }
            groups.push(GroupSection { kind, done: false, bytes: Vec::new(), entries: 0, blocks: 0, written_bytes: 0 });
        }
        let (mut lists, mut clears) = (Vec::new(), Vec::new());
        if !full {
            lists.extend(self.unconfirmed.iter().map(|interval| (interval.cut, Rc::clone(&interval.dirty))));
            clears.extend(self.unconfirmed.iter().map(|interval| Rc::clone(&interval.clears)));
            if let Some(interval) = self.unconfirmed.back_mut() {
                interval.bases.clone_from(&bases);
            }
        }
        let block_bytes = (OPEN_BLOCKS_BYTES / self.groups.len().max(1)).clamp(1 << 10, BLOCK_BYTES);
        self.collecting.push(Collecting {
            checkpoint,
            first_group: self.group_at(0).0,
            since: self.confirmed,
            cut,
            lists,
            clears,
            next_clear: (0, 0),
            clear_blocks: BTreeMap::new(),
            next: (0, 0),
            groups,
            bases,
            base: None,
            now,
            expired: Vec::new(),
            expired_cold: Vec::new(),
            block_bytes,
            full_blocks: Vec::new(),
        });
    }

    /// Encodes up to about `budget` entries of the oldest snapshot and hands its full blocks to `emit`. Returns the
    /// checkpoint if that was the last of it.
    pub(super) fn collect_some(&mut self, budget: usize, emit: &mut dyn FnMut(CheckpointId, StateBlock)) -> Option<CheckpointId> {
        let mut collecting = if self.collecting.is_empty() { return None } else { self.collecting.remove(0) };
        let mut left = budget;
        let mut finished = false;
        while left > 0 && !finished {
            finished = !collecting.encode_next(self, &mut left);
        }
        if finished {
            for position in 0..collecting.groups.len() {
                collecting.close_block(position);
            }
            for (position, (bytes, entries)) in std::mem::take(&mut collecting.clear_blocks) {
                collecting.emit_clears(position, bytes, entries);
            }
        }
        // This snapshot is done with them, and others are handed them as at any write.
        collecting.expired.drain(..).for_each(|place| self.delete(place));
        let expired_cold = std::mem::take(&mut collecting.expired_cold);
        let checkpoint = collecting.checkpoint;
        for block in collecting.full_blocks.drain(..) {
            emit(checkpoint, block);
        }
        if finished {
            for (group, section) in self.groups.iter_mut().zip(&collecting.groups) {
                if section.kind == SectionKind::Delta && section.written_bytes > 0 {
                    group.delta_bytes += section.written_bytes;
                    group.deltas += 1;
                }
            }
            collecting.groups.clear();
            self.spare_sections = collecting.groups;
        } else {
            self.collecting.insert(0, collecting);
        }
        // Loading may bring more of their keys into memory, which the snapshot must hear of.
        for (group, stored_key) in expired_cold {
            if let Some(place) = I::load_stored(self, group, &stored_key) {
                self.delete(place);
            }
        }
        finished.then_some(checkpoint)
    }

    /// How many groups that have a base may be written in full again by one snapshot. Those in a store are large, and
    /// reading them is work: a tenth at a time keeps checkpoints even.
    fn renewals(&self) -> usize {
        if self.cold.is_some() { self.groups.len().div_ceil(10) } else { self.groups.len() }
    }

    /// Whether a group's stored entries are being read: none of its keys may leave memory meanwhile.
    pub(super) fn is_scanning(&self, position: usize) -> bool {
        self.collecting.iter().any(|collecting| collecting.is_scanning(position))
    }

    /// Whether `checkpoint` has frozen entries that wait to be encoded.
    pub(super) fn is_collecting_for(&self, checkpoint: CheckpointId) -> bool {
        self.collecting.iter().any(|collecting| collecting.checkpoint == checkpoint)
    }

    /// Forgets a snapshot that nobody wants any more. What it covered stays listed for the next.
    pub(super) fn drop_snapshot(&mut self, checkpoint: CheckpointId) {
        self.collecting.retain(|collecting| collecting.checkpoint != checkpoint);
    }
}

/// Whether a group is written in full: it has no base yet, or its increments outweigh it. The weight differs from group
/// to group, so that not all of them are due at once.
fn needs_base<I>(position: usize, group: &Group<I>) -> bool {
    let stagger = position as u64 * 37 % 64;
    let bytes_due = group.live_bytes / 2 + group.live_bytes * stagger / 128;
    let deltas_due = DELTAS_MAX / 2 + u32::try_from(stagger / 2).expect("less than 32");
    !group.has_base || group.deltas > deltas_due || (group.deltas > 0 && group.delta_bytes > bytes_due)
}

impl Collecting {
    /// Encodes the old value of an entry that is about to change, if this snapshot still needs it.
    pub(super) fn save(&mut self, entry: Entry<'_>) {
        let position = self.position(entry);
        let section = &self.groups[position];
        let wanted = match section.kind {
            // What is in memory when the store is read has been written already.
            SectionKind::Base => entry.written <= self.cut && !entry.deleted && !self.is_scanning(position),
            _ => entry.written > self.since && entry.written <= self.cut,
        };
        if wanted && !section.done {
            self.encode(position, entry);
        }
    }

    /// Encodes an entry that moves as it is, if this snapshot would look for it where it was.
    pub(super) fn save_moved(&mut self, entry: Entry<'_>) {
        let position = self.position(entry);
        let section = &self.groups[position];
        let base = self.base.as_ref().filter(|base| usize::from(base.position) == position);
        let wanted = match section.kind {
            // A group that has not been begun finds it where it will be.
            SectionKind::Base => entry.written <= self.cut && base.is_some_and(|base| base.scanned.is_none()),
            _ => entry.written > self.since && entry.written <= self.cut,
        };
        if wanted && !section.done {
            self.encode(position, entry);
        }
    }

    /// Returns the epoch of the oldest list that it reads, or that was read for it.
    pub(super) fn oldest_list(&self) -> u32 {
        self.lists.first().map_or(self.cut, |(cut, _)| self.cut.min(*cut))
    }

    fn is_scanning(&self, position: usize) -> bool {
        self.base.as_ref().is_some_and(|base| usize::from(base.position) == position && base.scanned.is_some())
    }

    /// An entry has come into memory: reading the store will pass its key by.
    pub(super) fn note_loaded(&mut self, entry: Entry<'_>) {
        let position = self.position(entry);
        let scanned = self.base.as_ref().filter(|base| usize::from(base.position) == position);
        if scanned.and_then(|base| base.scanned.as_ref()).is_some_and(|scanned| entry.key > &scanned[..]) {
            self.encode(position, entry);
        }
    }

    fn position(&self, entry: Entry<'_>) -> usize {
        usize::from(entry.group.0 - self.first_group)
    }

    fn encode(&mut self, position: usize, entry: Entry<'_>) {
        let section = &mut self.groups[position];
        let change = match entry.deleted {
            true => Change::Delete { key: entry.key },
            false => Change::Put { key: entry.key, value: entry.value },
        };
        if section.bytes.capacity() == 0 {
            // A block of a base will be full, one of an increment may hold little.
            section.bytes.reserve(if section.kind == SectionKind::Base {
                self.block_bytes + change.encoded_len()
            } else {
                1 << 10
            });
        }
        change.encode(&mut section.bytes);
        section.entries += 1;
        if section.bytes.len() >= self.block_bytes {
            self.close_block(position);
        }
    }

    fn close_block(&mut self, position: usize) {
        if self.groups[position].entries > 0 {
            self.emit_block(position);
        }
    }

    fn emit_block(&mut self, position: usize) {
        let section = &mut self.groups[position];
        section.written_bytes += section.bytes.len() as u64;
        section.blocks += 1;
        self.full_blocks.push(StateBlock {
            table: 0,
            group: KeyGroup(self.first_group + u16::try_from(position).expect("at most 32,768 groups")),
            kind: section.kind,
            entries: std::mem::take(&mut section.entries),
            bytes: std::mem::take(&mut section.bytes),
        });
    }

    /// Encodes the next cleared key. Returns whether there was one.
    fn encode_clear(&mut self) -> bool {
        let Some(list) = self.clears.get(self.next_clear.0) else {
            return false;
        };
        let Some(Clear { group, key }) = list.get(self.next_clear.1) else {
            self.next_clear = (self.next_clear.0 + 1, 0);
            return true;
        };
        self.next_clear.1 += 1;
        let position = usize::from(group.0 - self.first_group);
        if self.groups[position].kind == SectionKind::Delta {
            let (bytes, entries) = self.clear_blocks.entry(position).or_default();
            Change::Clear { key }.encode(bytes);
            *entries += 1;
            if bytes.len() >= self.block_bytes {
                let (bytes, entries) = std::mem::take(self.clear_blocks.entry(position).or_default());
                self.emit_clears(position, bytes, entries);
            }
        }
        true
    }

    fn emit_clears(&mut self, position: usize, bytes: Vec<u8>, entries: u32) {
        if entries > 0 {
            self.groups[position].written_bytes += bytes.len() as u64;
            let group = KeyGroup(self.first_group + u16::try_from(position).expect("at most 32,768 groups"));
            self.full_blocks.push(StateBlock { table: 0, group, kind: SectionKind::Clears, entries, bytes });
        }
    }

    /// Encodes the next few entries, or prepares the next group. Returns whether there was anything to do.
    fn encode_next<I: Index>(&mut self, table: &Table<I>, left: &mut usize) -> bool {
        *left -= 1;
        if self.encode_clear() {
            return true;
        }
        if let Some(base) = self.base.take() {
            self.encode_base(table, base, left);
            return true;
        }
        if let Some(position) = self.bases.pop() {
            // With a store, they are listed when it is read.
            let mut places = if table.cold.is_none() { table.groups[usize::from(position)].index.places() } else { Vec::new() };
            // From the last place to the first, for they are taken from the end: neighbours share pages.
            places.sort_unstable_by(|a, b| b.cmp(a));
            *left = left.saturating_sub(places.len() / 8);
            self.base = Some(BaseWork { position, places, scanned: None });
            return true;
        }
        let Some((own_cut, list)) = self.lists.get(self.next.0) else {
            return false;
        };
        let (own_cut, list) = (*own_cut, Rc::clone(list));
        let from = self.next.1;
        if from == list.len() {
            self.next = (self.next.0 + 1, 0);
            return true;
        }
        let pass = &list[from..list.len().min(from + PASS.min(*left + 1))];
        *left -= pass.len() - 1;
        self.next.1 += pass.len();
        table.arena.warm(pass);
        for place in pass {
            let entry = table.arena.entry(*place);
            // An entry written again in a later interval is listed there, too; a freed one is written never.
            let wanted = entry.written > self.since && entry.written <= own_cut;
            if wanted && self.groups[self.position(entry)].kind == SectionKind::Delta {
                self.encode(self.position(entry), entry);
            }
        }
        true
    }

    /// Encodes the next few entries of a group that is written in full.
    fn encode_base<I: Index>(&mut self, table: &Table<I>, mut base: BaseWork, left: &mut usize) {
        let position = usize::from(base.position);
        if table.cold.is_some() {
            // All at once: what comes into memory from here on is told apart by what has been read of the store.
            let places = if base.scanned.is_none() { table.groups[position].index.places() } else { Vec::new() };
            *left = left.saturating_sub(places.len());
            places.into_iter().for_each(|place| self.encode_resident(table, position, place));
            if self.scan_some(table, &mut base, left) {
                self.base = Some(base);
                return;
            }
        } else if !base.places.is_empty() {
            let pass = base.places.split_off(base.places.len().saturating_sub(PASS.min(*left + 1)));
            *left -= pass.len() - 1;
            table.arena.warm(&pass);
            pass.into_iter().for_each(|place| self.encode_resident(table, position, place));
            self.base = Some(base);
            return;
        }
        let section = &mut self.groups[position];
        section.done = true;
        // An empty base is a section, too: it says that nothing is left of what was there.
        if section.entries > 0 || section.blocks == 0 {
            self.emit_block(position);
        }
    }

    fn encode_resident<I: Index>(&mut self, table: &Table<I>, position: usize, place: EntryRef) {
        let entry = table.arena.entry(place);
        if entry.written <= self.cut && !entry.deleted {
            match table.expiry {
                Some(expiry) if expiry.is_over(entry.value, self.now) => self.expired.push(place),
                _ => self.encode(position, entry),
            }
        }
    }

    /// Encodes entries that are in the store only: they are as they were at the cut, for what has been written since is
    /// in memory. Returns whether there may be more.
    fn scan_some<I: Index>(&mut self, table: &Table<I>, base: &mut BaseWork, left: &mut usize) -> bool {
        let Some(cold) = &table.cold else { return false };
        let position = usize::from(base.position);
        let group = table.group_at(position);
        let most = SCAN_ENTRIES.min(*left + 1);
        *left = left.saturating_sub(most);
        let after = base.scanned.take();
        let (mut seen, mut last) = (0, Vec::new());
        cold.scan_group(group, after.as_deref(), |stored_key, value| {
            if !table.groups[position].index.is_resident(&table.arena, stored_key, &table.hasher) {
                match table.expiry {
                    Some(expiry) if expiry.is_over(value, self.now) => self.expired_cold.push((group, stored_key.to_vec())),
                    _ => self.encode(position, Entry { written: 0, deleted: false, group, key: stored_key, value }),
                }
            }
            seen += 1;
            last.clear();
            last.extend_from_slice(stored_key);
            seen < most
        });
        base.scanned = Some(last);
        seen == most
    }
}
