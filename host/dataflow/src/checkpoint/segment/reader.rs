//! Reading a segment, from its end: the footer first, then the blocks that are wanted.

use serde::de::DeserializeOwned;

use super::block::{self, BLOCK_BYTES_MAX, BlockFault};
use super::{
    ContentHash, MAGIC_END, MAGIC_START, SEGMENT_FORMAT, SectionInfo, SegmentError, SegmentHeader, SegmentId, SegmentRef,
    TAIL_BYTES,
};
use crate::checkpoint::storage::{SegmentSource, StorageError};
use crate::key_group::KeyGroup;
use crate::snapshot::{SectionKind, TableId};
use crate::state::entry::{Entry, EntryReader};

/// Magic, version, header length.
const START_BYTES: u64 = 16;
const CHUNK_BYTES: usize = 256 << 10;

/// An opened segment whose header and footer have been checked.
pub struct SegmentReader<S> {
    source: S,
    header: SegmentHeader,
    sections: Vec<SectionInfo>,
}

impl<S: SegmentSource> SegmentReader<S> {
    /// Checks length, header and footer of the segment that a manifest names. Does not read the blocks.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn open(source: S, expected: &SegmentRef) -> Result<Self, SegmentError> {
        let file = File { source: &source, id: expected.id, length: source.length() };
        if file.length != expected.length {
            return file.damaged(format!("it has {} bytes instead of {}", file.length, expected.length));
        }
        let (header, blocks_start) = file.header()?;
        if header.id != expected.id {
            return file.damaged(format!("it says that it is segment {}", header.id));
        }
        let sections = file.sections(&header, blocks_start)?;
        Ok(Self { source, header, sections })
    }

    /// Returns what the segment says about itself.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Returns the file.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Returns its sections, ascending by table, group and rank.
    pub fn sections(&self) -> &[SectionInfo] {
        &self.sections
    }

    /// Returns what there is of a table's key group, in the order to apply it.
    pub fn sections_of(&self, table: &TableId, group: KeyGroup) -> &[SectionInfo] {
        let Some(table) = self.header.tables.iter().position(|listed| listed == table) else { return &[] };
        let place = |section: &SectionInfo| (usize::from(section.table), section.group);
        let start = self.sections.partition_point(|section| place(section) < (table, group));
        let end = self.sections.partition_point(|section| place(section) <= (table, group));
        &self.sections[start..end]
    }

    /// Reads a section, block by block: hands encoded entries, all of them checked, to `each`.
    ///
    /// # Errors
    /// [`SegmentError`], or what `each` returned.
    pub fn read<E: From<SegmentError>>(
        &self,
        section: &SectionInfo,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let segment = self.header.id;
        let damaged = |what| SegmentError::Damaged { segment, what };
        let mut entries = 0;
        for place in &section.blocks {
            let bytes = block::read(&self.source, *place).map_err(|fault| match fault {
                BlockFault::Damaged(what) => damaged(what),
                BlockFault::Storage(error) => SegmentError::Storage(error),
            })?;
            for entry in EntryReader::new(&bytes) {
                let entry = entry.map_err(|error| damaged(format!("block at byte {}: {error}", place.offset)))?;
                if !belongs(&entry, section.kind) {
                    let what = format!("block at byte {} has entries that do not belong into its section", place.offset);
                    return Err(damaged(what).into());
                }
                entries += 1;
            }
            each(&bytes)?;
        }
        if entries != section.entries {
            let what = format!("key group {} has {entries} entries instead of {}", section.group.0, section.entries);
            return Err(damaged(what).into());
        }
        Ok(())
    }
}

/// Whether a section of this kind may hold an entry.
fn belongs(entry: &Entry<'_>, kind: SectionKind) -> bool {
    match entry {
        Entry::Put { .. } => kind != SectionKind::Clears,
        Entry::Delete { .. } => kind == SectionKind::Delta,
        Entry::Clear { .. } => kind == SectionKind::Clears,
    }
}

/// Returns the hash of a whole file, read in pieces.
///
/// # Errors
/// [`StorageError`].
pub fn hash_source(source: &dyn SegmentSource) -> Result<ContentHash, StorageError> {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut at, length) = (0, source.length());
    while at < length {
        let step = usize::try_from(length - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        source.read_exact_at(at, &mut buffer[..step])?;
        hash.update(&buffer[..step]);
        at += step as u64;
    }
    Ok(ContentHash(hash.digest128().to_be_bytes()))
}

/// A file whose length is known and whose content is not trusted.
struct File<'a> {
    source: &'a dyn SegmentSource,
    id: SegmentId,
    length: u64,
}

impl File<'_> {
    fn damaged<T>(&self, what: impl Into<String>) -> Result<T, SegmentError> {
        Err(SegmentError::Damaged { segment: self.id, what: what.into() })
    }

    /// Reads `length` bytes if the file has them.
    fn bytes(&self, offset: u64, length: u64, what: &str) -> Result<Vec<u8>, SegmentError> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return self.damaged(format!("its {what} goes beyond its end"));
        }
        let Ok(length) = usize::try_from(length) else {
            return self.damaged(format!("its {what} is too long"));
        };
        let mut bytes = vec![0; length];
        self.source.read_exact_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8], what: &str) -> Result<T, SegmentError> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok(_) => self.damaged(format!("its {what} has trailing bytes")),
            Err(error) => self.damaged(format!("its {what} cannot be decoded: {error}")),
        }
    }

    /// Reads the header; returns it and where the blocks begin.
    fn header(&self) -> Result<(SegmentHeader, u64), SegmentError> {
        let start = self.bytes(0, START_BYTES, "start")?;
        if &start[..8] != MAGIC_START {
            return self.damaged("it does not begin as a segment");
        }
        let found = u32_at(&start, 8);
        if found > SEGMENT_FORMAT {
            return Err(SegmentError::NewerFormat { segment: self.id, found });
        }
        if found != SEGMENT_FORMAT {
            return self.damaged(format!("it has the unknown format {found}"));
        }
        let end = START_BYTES + u64::from(u32_at(&start, 12));
        let all = self.bytes(0, end + 4, "header")?;
        let (header, crc) = all.split_at(all.len() - 4);
        if crc32c::crc32c(header) != u32_at(crc, 0) {
            return self.damaged("the checksum of its header does not match");
        }
        Ok((self.decode(&header[16..], "header")?, end + 4))
    }

    /// Reads the footer and checks all it says.
    fn sections(&self, header: &SegmentHeader, blocks_start: u64) -> Result<Vec<SectionInfo>, SegmentError> {
        let Some(tail_at) = self.length.checked_sub(TAIL_BYTES) else {
            return self.damaged("it is too short for a footer");
        };
        let tail = self.bytes(tail_at, TAIL_BYTES, "tail")?;
        if &tail[8..] != MAGIC_END {
            return self.damaged("it does not end as a segment");
        }
        let Some(footer_at) = tail_at.checked_sub(u64::from(u32_at(&tail, 0))).filter(|at| *at >= blocks_start) else {
            return self.damaged("its footer is longer than the file");
        };
        let footer = self.bytes(footer_at, tail_at - footer_at + 4, "footer")?;
        if crc32c::crc32c(&footer) != u32_at(&tail, 4) {
            return self.damaged("the checksum of its footer does not match");
        }
        let sections: Vec<SectionInfo> = self.decode(&footer[..footer.len() - 4], "footer")?;
        if !sections.is_sorted_by(|a, b| (a.table, a.group, a.kind.rank()) < (b.table, b.group, b.kind.rank())) {
            return self.damaged("its sections are not in order");
        }
        let is_torn = |pair: &[SectionInfo]| {
            let same = (pair[0].table, pair[0].group) == (pair[1].table, pair[1].group);
            same && pair[1].kind == SectionKind::Base
        };
        if sections.windows(2).any(is_torn) {
            return self.damaged("it clears keys of a key group that it holds in full");
        }
        for section in &sections {
            if usize::from(section.table) >= header.tables.len() {
                return self.damaged(format!("a section refers to table {}", section.table));
            }
            for place in &section.blocks {
                let end = place.offset.checked_add(block::HEAD_BYTES as u64 + u64::from(place.stored_bytes));
                let inside = place.offset >= blocks_start && end.is_some_and(|end| end <= footer_at);
                if !inside || place.raw_bytes as usize > BLOCK_BYTES_MAX {
                    return self.damaged(format!("its footer names a block at byte {} that does not fit", place.offset));
                }
            }
        }
        Ok(sections)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{SegmentEncoder, SegmentInfo};
    use super::*;
    use crate::ids::{Attempt, CheckpointId, OperatorId, TaskIndex};
    use crate::snapshot::StateBlock;

    fn block(table: u16, group: u16, keys: &[u8], value: &[u8]) -> StateBlock {
        let mut bytes = Vec::new();
        for key in keys {
            Entry::Put { key: &[*key], value }.encode(&mut bytes);
        }
        let entries = u32::try_from(keys.len()).unwrap();
        StateBlock { table, group: KeyGroup(group), kind: SectionKind::Base, entries, bytes }
    }

    fn segment(blocks: &[StateBlock]) -> (Vec<u8>, SegmentInfo) {
        let table = |slot: &str| TableId { operator: OperatorId::new("count").unwrap(), slot: slot.into() };
        let id = SegmentId { checkpoint: CheckpointId(3), attempt: Attempt(1), task: TaskIndex(0) };
        let header = SegmentHeader { job: "words".into(), id, tables: vec![table("n"), table("m")] };
        let mut encoder = SegmentEncoder::new(Vec::new(), header).unwrap();
        blocks.iter().for_each(|block| encoder.push(block).unwrap());
        encoder.finish().unwrap()
    }

    type Content = Vec<(u16, u16, Vec<Vec<u8>>)>;

    fn read_all(bytes: &[u8], info: &SegmentInfo) -> Result<Content, SegmentError> {
        let reader = SegmentReader::open(bytes, &info.reference)?;
        let mut content = Vec::new();
        for section in reader.sections() {
            let mut blocks = Vec::new();
            reader.read(section, |bytes| {
                blocks.push(bytes.to_vec());
                Ok::<(), SegmentError>(())
            })?;
            content.push((section.table, section.group.0, blocks));
        }
        Ok(content)
    }

    fn sample() -> (Vec<u8>, SegmentInfo, Content) {
        let blocks = [block(1, 5, &[1, 2], &[0; 400]), block(0, 7, &[3], b"x"), block(1, 5, &[9], b""), block(0, 2, &[], b"")];
        let (bytes, info) = segment(&blocks);
        let raw = |index: usize| blocks[index].bytes.clone();
        let content = vec![(0, 2, vec![raw(3)]), (0, 7, vec![raw(1)]), (1, 5, vec![raw(0), raw(2)])];
        (bytes, info, content)
    }

    #[test]
    fn blocks_come_back_by_table_and_group() {
        let (bytes, info, content) = sample();
        assert_eq!(read_all(&bytes, &info).unwrap(), content);
        assert_eq!(info.reference.length, bytes.len() as u64);
        assert_eq!(info.reference.hash, ContentHash::of(&bytes));
        assert_eq!(hash_source(&bytes.as_slice()).unwrap(), info.reference.hash);
        let shrunk = &info.sections[2].blocks[0];
        assert!(shrunk.stored_bytes < shrunk.raw_bytes, "800 equal bytes are compressed");
        let plain = &info.sections[1].blocks[0];
        assert_eq!(plain.stored_bytes, plain.raw_bytes, "what does not shrink is stored as it is");
    }

    #[test]
    fn every_single_flipped_bit_is_an_error_or_changes_nothing() {
        let (bytes, info, content) = sample();
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            match read_all(&broken, &info) {
                Ok(read) => panic!("bit {bit} was not noticed: {} sections", read.len()),
                Err(error) => assert!(error.to_string().contains("segment 3-1-0"), "{error}"),
            }
        }
        assert_eq!(read_all(&bytes, &info).unwrap(), content);
    }

    #[test]
    fn a_truncated_segment_is_an_error_even_if_the_manifest_agrees() {
        let (bytes, mut info, _) = sample();
        for length in 0..bytes.len() {
            info.reference.length = length as u64;
            assert!(read_all(&bytes[..length], &info).is_err(), "{length}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_with_both_numbers() {
        let (mut bytes, info, _) = sample();
        bytes[8] = 2;
        assert_eq!(read_all(&bytes, &info).unwrap_err().to_string(), "segment 3-1-0 has format 2; this host reads up to 1");
    }

    #[test]
    fn a_base_and_a_delta_of_one_group_are_refused() {
        let id = SegmentId { checkpoint: CheckpointId(3), attempt: Attempt(1), task: TaskIndex(0) };
        let tables = vec![TableId { operator: OperatorId::new("count").unwrap(), slot: "n".into() }];
        let mut encoder = SegmentEncoder::new(Vec::new(), SegmentHeader { job: "words".into(), id, tables }).unwrap();
        encoder.push(&block(0, 1, &[1], b"")).unwrap();
        let delta = StateBlock { kind: SectionKind::Delta, ..block(0, 1, &[2], b"") };
        assert!(encoder.push(&delta).unwrap_err().to_string().contains("both base and delta"));
        assert!(encoder.push(&block(1, 1, &[1], b"")).unwrap_err().to_string().contains("table 1"));
    }

    #[test]
    fn clears_come_before_a_delta_and_never_with_a_base() {
        let of = |kind, entry: Entry<'_>| {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            StateBlock { table: 0, group: KeyGroup(1), kind, entries: 1, bytes }
        };
        let clear = of(SectionKind::Clears, Entry::Clear { key: b"k" });
        let delete = of(SectionKind::Delta, Entry::Delete { key: b"d" });
        let (bytes, info) = segment(&[delete.clone(), clear.clone()]);
        let read = read_all(&bytes, &info).unwrap();
        assert_eq!(read, [(0, 1, vec![clear.bytes.clone()]), (0, 1, vec![delete.bytes])]);
        let (bytes, info) = segment(&[block(0, 1, &[1], b""), clear]);
        assert!(read_all(&bytes, &info).unwrap_err().to_string().contains("that it holds in full"));
    }

    #[test]
    fn a_section_holds_only_what_its_kind_allows() {
        use SectionKind::{Base, Clears, Delta};
        let (put, delete, clear) = (Entry::Put { key: b"", value: b"" }, Entry::Delete { key: b"" }, Entry::Clear { key: b"" });
        for (kind, entry) in [(Base, delete), (Base, clear), (Delta, clear), (Clears, put), (Clears, delete)] {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            let (bytes, info) = segment(&[StateBlock { table: 0, group: KeyGroup(1), kind, entries: 1, bytes }]);
            assert!(read_all(&bytes, &info).unwrap_err().to_string().contains("do not belong into its section"), "{kind:?}");
        }
    }

    proptest! {
        #[test]
        fn damage_is_never_read_as_data(
            cuts in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            drop in 0usize..8,
        ) {
            let (bytes, mut info, content) = sample();
            let mut broken = bytes.clone();
            for (place, byte) in cuts {
                let at = place.index(broken.len());
                broken[at] = byte;
            }
            broken.truncate(broken.len() - drop);
            info.reference.length = broken.len() as u64;
            if let Ok(read) = read_all(&broken, &info) {
                prop_assert_eq!(read, content);
            }
        }
    }
}
