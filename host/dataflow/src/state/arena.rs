//! Where state entries live: chunks of bytes, addressed by 4-byte references, recycled by size class.
//!
//! An entry is a header of 12 bytes (epoch of the last write, key length, key group, value length and two bits), the
//! key and the value, rounded up to a size class. A reference stays valid, and at its
//! place, until it is freed. Nothing here knows of snapshots or indexes.
//!
//! Chunks that hold little are left (`leaving`): nothing new comes into them, the table moves what they hold, and their memory
//! goes back. References to places in them read as freed as long as their number is not used again.

mod leaving;

use crate::key_group::KeyGroup;
use leaving::Leaving;

/// Units of 8 bytes: 2^15 chunks of 2^17 units are 32 GiB. Tests have small chunks, to leave many.
const UNIT: usize = 8;
const CHUNK_UNITS_LOG2: u32 = if cfg!(test) { 5 } else { 17 };
const CHUNK_BYTES: usize = UNIT << CHUNK_UNITS_LOG2;
/// The first chunk is small, since many operators hold little.
const FIRST_CHUNK_BYTES: usize = CHUNK_BYTES / 16;
/// Entries above this get a chunk of their own.
const LARGE_BYTES: usize = CHUNK_BYTES / if cfg!(test) { 2 } else { 4 };
const HEADER_BYTES: usize = 12;
/// Marks a tombstone in the value's length, which is kept so that the entry's size class is known.
const DELETED_BIT: u32 = 1 << 31;
/// Marks an entry that was used since somebody last looked for what to evict. Set where there is a store only.
const USED_BIT: u32 = 1 << 30;
/// Marks an entry that is queued as a candidate for eviction. Set where there is a store only.
const QUEUED_BIT: u32 = 1 << 29;
const LENGTH_MASK: u32 = !(DELETED_BIT | USED_BIT | QUEUED_BIT);
/// The most chunks that references can tell apart.
const CHUNKS_MAX: usize = 1 << (u32::BITS - CHUNK_UNITS_LOG2);

/// The bytes of a cache line, and how many of an entry's are worth touching: what follows is fetched by the processor itself.
const LINE_BYTES: usize = 64;
const WARM_LINES: usize = 4;

/// What is read at a place whose chunk is gone: a freed entry.
const GONE: [u8; HEADER_BYTES] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];

/// The `written` of a freed entry: later than any cut, so that no snapshot takes it for its own.
pub(super) const FREED: u32 = u32::MAX;

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryRef(pub(super) u32);

/// The arena is full: 32 GiB of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArenaFull;

/// An entry, read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// The epoch of the last write.
    pub(super) written: u32,
    /// Whether the key has no value: a tombstone, until the deletion is part of a completed checkpoint.
    pub(super) deleted: bool,
    pub(super) group: KeyGroup,
    pub(super) key: &'a [u8],
    /// Empty if deleted.
    pub(super) value: &'a [u8],
}

/// What an entry's header says of its key and value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    pub(super) deleted: bool,
    /// A byte of no meaning, read so that its cache line is on its way.
    _next_line: u8,
    key_len: u16,
    value_len: u32,
}

/// What a chunk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Entries one after the other.
    Small,
    /// One entry.
    Large,
    /// What it holds is to move.
    Leaving,
    /// Nothing: its memory has been given back.
    Gone,
}

struct Chunk {
    bytes: Box<[u8]>,
    /// Up to where entries have been placed.
    filled: u32,
    /// Bytes of entries that are there.
    used: u32,
    state: Use,
}

#[derive(Default)]
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    /// Places of freed entries, by size class. Those in chunks that are left are passed by.
    free: Vec<Vec<u32>>,
    /// Chunks that are gone and whose numbers nobody refers to.
    numbers: Vec<u32>,
    /// The chunk that is being filled.
    open: Option<u32>,
    /// Bytes of all chunks.
    allocated: usize,
    /// Bytes of chunks with entries one after the other that are not left, and of the entries in them.
    kept: usize,
    kept_used: usize,
    /// Bytes of entries that are there, and their number.
    used: usize,
    entries: usize,
    leaving: Leaving,
}

impl Arena {
    /// Returns the bytes that the arena holds from the allocator.
    pub(super) fn allocated_bytes(&self) -> usize {
        let lists = self.free.iter().map(|list| list.capacity() * 4).sum::<usize>();
        self.allocated + lists + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// Returns the bytes that entries take: what a chunk has room for again does not count.
    pub(super) fn used_bytes(&self) -> usize {
        self.used
    }

    /// Returns how many more chunks there can be: an entry takes a new one at most.
    pub(super) fn chunks_left(&self) -> usize {
        CHUNKS_MAX - self.chunks.len() + self.numbers.len()
    }

    /// Returns the number of entries.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// Notes that an entry was used.
    pub(super) fn set_used(&mut self, place: EntryRef) {
        self.set_bit(place, USED_BIT);
    }

    /// Returns whether an entry was used since this was last asked.
    pub(super) fn take_used(&mut self, place: EntryRef) -> bool {
        self.take_bit(place, USED_BIT)
    }

    /// Notes that an entry is queued. Returns whether that is news.
    pub(super) fn set_queued(&mut self, place: EntryRef) -> bool {
        self.set_bit(place, QUEUED_BIT)
    }

    /// Returns whether an entry was queued, and forgets it.
    pub(super) fn take_queued(&mut self, place: EntryRef) -> bool {
        self.take_bit(place, QUEUED_BIT)
    }

    /// Returns whether an entry is queued.
    pub(super) fn is_queued(&self, place: EntryRef) -> bool {
        self.bytes(place)[11] & QUEUED_BIT.to_le_bytes()[3] != 0
    }

    fn set_bit(&mut self, place: EntryRef, bit: u32) -> bool {
        let byte = &mut self.bytes_mut(place)[11];
        let was = *byte;
        *byte |= bit.to_le_bytes()[3];
        *byte != was
    }

    fn take_bit(&mut self, place: EntryRef, bit: u32) -> bool {
        let (chunk, offset) = locate(place);
        // None is set where a chunk is gone.
        let Some(byte) = self.chunks[chunk].bytes.get_mut(offset + 11) else { return false };
        let was = *byte;
        *byte &= !bit.to_le_bytes()[3];
        *byte != was
    }

    /// Places a new entry.
    pub(super) fn insert(&mut self, written: u32, group: KeyGroup, key: &[u8], value: &[u8]) -> Result<EntryRef, ArenaFull> {
        let place = self.allocate(HEADER_BYTES + key.len() + value.len())?;
        let bytes = self.bytes_mut(place);
        bytes[0..4].copy_from_slice(&written.to_le_bytes());
        let key_len = u16::try_from(key.len()).expect("keys are bounded by 64 KiB");
        bytes[4..6].copy_from_slice(&key_len.to_le_bytes());
        bytes[6..8].copy_from_slice(&group.0.to_le_bytes());
        bytes[HEADER_BYTES..HEADER_BYTES + key.len()].copy_from_slice(key);
        write_value(bytes, key.len(), value);
        Ok(place)
    }

    /// Replaces the value in place, if the entry's size class stays the same and its chunk is not left.
    #[inline]
    pub(super) fn set_value(&mut self, place: EntryRef, value: &[u8]) -> bool {
        if self.chunks[locate(place).0].state == Use::Leaving {
            return false;
        }
        let bytes = self.bytes_mut(place);
        let (key_len, value_len) = lengths(bytes);
        let fits = value.len() == value_len
            || size_class(HEADER_BYTES + key_len + value.len()) == size_class(HEADER_BYTES + key_len + value_len);
        if fits {
            write_value(bytes, key_len, value);
        }
        fits
    }

    /// Returns the value, to be changed at its place.
    #[inline]
    pub(super) fn value_mut(&mut self, place: EntryRef) -> &mut [u8] {
        let bytes = self.bytes_mut(place);
        let (key_len, value_len) = lengths(bytes);
        &mut bytes[HEADER_BYTES + key_len..HEADER_BYTES + key_len + value_len]
    }

    /// Turns the entry into a tombstone, in place.
    pub(super) fn set_deleted(&mut self, place: EntryRef) {
        let bytes = self.bytes_mut(place);
        bytes[11] |= DELETED_BIT.to_le_bytes()[3];
    }

    #[inline]
    pub(super) fn set_written(&mut self, place: EntryRef, epoch: u32) {
        self.bytes_mut(place)[0..4].copy_from_slice(&epoch.to_le_bytes());
    }

    #[inline]
    pub(super) fn written(&self, place: EntryRef) -> u32 {
        u32::from_le_bytes(self.bytes(place)[0..4].try_into().expect("4 bytes"))
    }

    #[inline]
    pub(super) fn key(&self, place: EntryRef) -> &[u8] {
        let bytes = self.bytes(place);
        let (key_len, _) = lengths(bytes);
        &bytes[HEADER_BYTES..HEADER_BYTES + key_len]
    }

    /// Reads an entry's header, and touches the cache line after it: short entries end there.
    #[inline]
    pub(super) fn header(&self, place: EntryRef) -> Header {
        let bytes = self.bytes(place);
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Header::default();
        };
        let lengths = u64::from_le_bytes([head[4], head[5], head[6], head[7], head[8], head[9], head[10], head[11]]);
        let value = (lengths >> 32) as u32;
        Header {
            deleted: value & DELETED_BIT != 0,
            _next_line: rest.get(20).copied().unwrap_or_default(),
            key_len: (lengths & 0xffff) as u16,
            value_len: value & LENGTH_MASK,
        }
    }

    /// Returns key and value (what is left of it, if it is deleted) of an entry whose header is known.
    #[inline]
    pub(super) fn key_and_value(&self, place: EntryRef, header: Header) -> (&[u8], &[u8]) {
        let (key_len, value_len) = (usize::from(header.key_len), header.value_len as usize);
        self.bytes(place)[HEADER_BYTES..HEADER_BYTES + key_len + value_len].split_at(key_len)
    }

    #[inline]
    pub(super) fn entry(&self, place: EntryRef) -> Entry<'_> {
        let bytes = self.bytes(place);
        let (key_len, value_len) = lengths(bytes);
        let (key, rest) = bytes[HEADER_BYTES..].split_at(key_len);
        let deleted = bytes[11] & DELETED_BIT.to_le_bytes()[3] != 0;
        let written = u32::from_le_bytes(bytes[0..4].try_into().expect("4 bytes"));
        let group = KeyGroup(u16::from_le_bytes([bytes[6], bytes[7]]));
        Entry { written, deleted, group, key, value: if deleted { &[] } else { &rest[..value_len] } }
    }

    /// Touches the entries' cache lines. A loop over entries at places all over the arena waits for one after the other; this
    /// waits for all of them at once.
    pub(super) fn warm(&self, places: &[EntryRef]) {
        let headers = places.iter().fold(0, |seen, place| seen ^ self.bytes(*place)[4]);
        let seen = places.iter().fold(headers, |seen, place| {
            let bytes = self.bytes(*place);
            let (key_len, value_len) = lengths(bytes);
            let end = HEADER_BYTES + key_len + value_len;
            let lines = (LINE_BYTES..end.min(WARM_LINES * LINE_BYTES)).step_by(LINE_BYTES);
            lines.fold(seen ^ bytes[end - 1], |seen, at| seen ^ bytes[at])
        });
        std::hint::black_box(seen);
    }

    /// Gives the entry's place back. References to it read as written at [`FREED`] until it is used again.
    pub(super) fn free(&mut self, place: EntryRef) {
        let (key_len, value_len) = lengths(self.bytes(place));
        let size = HEADER_BYTES + key_len + value_len;
        let (class, rounded) = size_class(size);
        self.used -= rounded;
        self.entries -= 1;
        self.set_written(place, FREED);
        let number = place.0 >> CHUNK_UNITS_LOG2;
        let chunk = &mut self.chunks[number as usize];
        chunk.used -= bounded(rounded);
        match chunk.state {
            Use::Large => {
                self.allocated -= std::mem::take(&mut chunk.bytes).len();
                chunk.state = Use::Gone;
                // Whoever refers to it refers to its beginning, where the next chunk of that number has an entry, too.
                self.numbers.push(number);
            }
            Use::Leaving if chunk.used == 0 => self.leaving.emptied(number),
            Use::Leaving | Use::Gone => {}
            Use::Small => {
                self.kept_used -= rounded;
                if self.free.len() <= class {
                    self.free.resize_with(class + 1, Vec::new);
                }
                self.free[class].push(place.0);
            }
        }
    }

    fn allocate(&mut self, size: usize) -> Result<EntryRef, ArenaFull> {
        let (class, rounded) = size_class(size);
        let place = match size > LARGE_BYTES {
            true => EntryRef(self.new_chunk(rounded, Use::Large)? << CHUNK_UNITS_LOG2),
            false => match self.pop_free(class) {
                Some(place) => place,
                None => self.append(rounded)?,
            },
        };
        let chunk = &mut self.chunks[locate(place).0];
        chunk.used += bounded(rounded);
        if chunk.state == Use::Small {
            self.kept_used += rounded;
        }
        self.used += rounded;
        self.entries += 1;
        Ok(place)
    }

    /// Takes a place that was freed.
    fn pop_free(&mut self, class: usize) -> Option<EntryRef> {
        let list = self.free.get_mut(class)?;
        while let Some(place) = list.pop().map(EntryRef) {
            let (chunk, offset) = locate(place);
            let chunk = &mut self.chunks[chunk];
            if chunk.state == Use::Small {
                // The old entry's lengths and flags go; `insert` writes the rest.
                chunk.bytes[offset..offset + HEADER_BYTES].fill(0);
                return Some(place);
            }
        }
        None
    }

    /// Takes a place behind all others.
    fn append(&mut self, rounded: usize) -> Result<EntryRef, ArenaFull> {
        let has_room = |number: &u32| {
            let chunk = &self.chunks[*number as usize];
            chunk.filled as usize + rounded <= chunk.bytes.len()
        };
        let number = match self.open.filter(has_room) {
            Some(number) => number,
            // The small first chunk would be too short for an entry that is nearly large.
            None if self.chunks.is_empty() && rounded <= FIRST_CHUNK_BYTES => self.new_chunk(FIRST_CHUNK_BYTES, Use::Small)?,
            None => self.new_chunk(CHUNK_BYTES, Use::Small)?,
        };
        self.open = Some(number);
        let chunk = &mut self.chunks[number as usize];
        let unit = chunk.filled / bounded(UNIT);
        chunk.filled += bounded(rounded);
        Ok(EntryRef(number << CHUNK_UNITS_LOG2 | unit))
    }

    fn new_chunk(&mut self, bytes: usize, state: Use) -> Result<u32, ArenaFull> {
        let chunk = Chunk { bytes: vec![0; bytes].into(), filled: 0, used: 0, state };
        let number = match self.numbers.pop() {
            Some(number) => {
                self.chunks[number as usize] = chunk;
                number
            }
            None if self.chunks.len() == CHUNKS_MAX => return Err(ArenaFull),
            None => {
                self.chunks.push(chunk);
                u32::try_from(self.chunks.len() - 1).expect("bounded by CHUNKS_MAX")
            }
        };
        self.allocated += bytes;
        if state == Use::Small {
            self.kept += bytes;
        }
        Ok(number)
    }

    #[inline]
    fn bytes(&self, place: EntryRef) -> &[u8] {
        let (chunk, offset) = locate(place);
        self.chunks[chunk].bytes.get(offset..).filter(|bytes| !bytes.is_empty()).unwrap_or(&GONE)
    }

    #[inline]
    fn bytes_mut(&mut self, place: EntryRef) -> &mut [u8] {
        let (chunk, offset) = locate(place);
        &mut self.chunks[chunk].bytes[offset..]
    }
}

/// Returns how many chunks the entries of a call that writes so many bytes may need: some of them twice, where they are
/// and where they were.
pub(super) fn chunks_of(bytes: u64) -> u64 {
    2 * bytes / LARGE_BYTES as u64 + 4
}

/// Bytes within a chunk.
fn bounded(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a chunk is below 4 GiB")
}

#[inline]
fn locate(place: EntryRef) -> (usize, usize) {
    let unit = place.0 & ((1 << CHUNK_UNITS_LOG2) - 1);
    ((place.0 >> CHUNK_UNITS_LOG2) as usize, unit as usize * UNIT)
}

/// Returns the lengths of key and value from an entry's header.
#[inline]
fn lengths(bytes: &[u8]) -> (usize, usize) {
    let key_len = u16::from_le_bytes([bytes[4], bytes[5]]);
    let value_len = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) & LENGTH_MASK;
    (usize::from(key_len), value_len as usize)
}

/// Writes the value and its length, and takes a tombstone and all marks back.
#[inline]
fn write_value(bytes: &mut [u8], key_len: usize, value: &[u8]) {
    let value_len = u32::try_from(value.len()).expect("values are bounded far below 1 GiB");
    bytes[8..12].copy_from_slice(&value_len.to_le_bytes());
    bytes[HEADER_BYTES + key_len..HEADER_BYTES + key_len + value.len()].copy_from_slice(value);
}

/// Returns an entry's size class and rounded size: multiples of 8 up to 256 bytes, then four steps a doubling.
#[inline]
fn size_class(size: usize) -> (usize, usize) {
    if size <= 256 {
        let class = size.div_ceil(UNIT);
        return (class, class * UNIT);
    }
    let log2 = (size - 1).ilog2() as usize;
    let step = 1 << (log2 - 2);
    let quarter = (size - 1 - (1 << log2)) / step;
    (33 + (log2 - 8) * 4 + quarter, (1 << log2) + (quarter + 1) * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_tight_and_ordered() {
        let mut last = (0, 0);
        for size in HEADER_BYTES..=LARGE_BYTES {
            let (class, rounded) = size_class(size);
            assert!(rounded >= size && rounded % UNIT == 0, "{size}");
            assert!(rounded <= size + (size / 4).max(UNIT), "{size} {rounded}");
            assert!(class == last.0 && rounded == last.1 || class > last.0 && rounded > last.1, "{size}");
            last = (class, rounded);
        }
    }

    #[test]
    fn freed_places_are_used_again_and_read_as_freed_until_then() {
        let mut arena = Arena::default();
        let first = arena.insert(1, KeyGroup(0), b"key", b"value").unwrap();
        arena.set_deleted(first);
        arena.free(first);
        assert_eq!(arena.written(first), FREED);
        let second = arena.insert(2, KeyGroup(0), b"kez", b"walue").unwrap();
        assert_eq!(second, first);
        let entry = arena.entry(second);
        assert_eq!((entry.written, entry.deleted, entry.key, entry.value), (2, false, &b"kez"[..], &b"walue"[..]));
    }

    #[test]
    fn large_entries_have_chunks_of_their_own_which_are_given_back() {
        let mut arena = Arena::default();
        let small = arena.insert(1, KeyGroup(0), b"a", b"b").unwrap();
        let before = arena.allocated_bytes();
        for round in 0..5 {
            let large = arena.insert(1, KeyGroup(0), b"large", &vec![round; 3 << 20]).unwrap();
            assert_eq!(arena.entry(large).value, vec![round; 3 << 20]);
            arena.free(large);
            assert_eq!(arena.written(large), FREED);
        }
        assert!(arena.allocated_bytes() <= before + 64);
        assert_eq!(arena.entry(small).value, b"b");
        let just_not_large = arena.insert(1, KeyGroup(0), b"k", &[7; LARGE_BYTES - 100]).unwrap();
        assert_eq!(arena.entry(just_not_large).value.len(), LARGE_BYTES - 100);
    }
}
