//! The keyed state of a completed checkpoint, read without a job: one key group at a time, so that memory is bounded by
//! the largest key group and not by the state.
//!
//! Files are opened when they are read and closed again: a checkpoint of many segments needs no more descriptors than a
//! small one, and one that is deleted meanwhile is noticed at the next read.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::chains::StateChains;
use super::segment::{SectionInfo, SegmentError, SegmentId, SegmentReader};
use super::storage::{Codecs, SegmentSource, StorageError};
use crate::key_group::KeyGroup;
use crate::snapshot::{SectionKind, TableId};
use crate::state::entry::{Entry, EntryReader, ordered_key};

/// Opens a segment of a storage.
pub type OpenSegment = Arc<dyn Fn(SegmentId) -> Result<Box<dyn SegmentSource>, StorageError> + Send + Sync>;

/// Stored keys and values of a key group, in the order of the keys' bytes. In a table whose keys have many entries a stored key is
/// `key length varint | key | entry key`: see [`crate::state::entry::split_ordered_key`].
pub type GroupContents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads the state that chains describe. Remembers the footers of the segments it has met, not their content.
pub struct StateContents {
    open: OpenSegment,
    chains: StateChains,
    segments: BTreeMap<SegmentId, SegmentReader<Reopened>>,
}

/// What the files say of a key group before its blocks are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSize {
    /// Entries in all sections: an upper bound of its keys.
    pub entries: u64,
    /// Whether it has exactly so many keys: it is a single base, or nothing.
    pub is_exact: bool,
    /// Bytes of its blocks in the files, after compression.
    pub stored_bytes: u64,
}

impl StateContents {
    /// Returns a reader of what the chains of a manifest name. Reads nothing yet.
    pub fn new(open: OpenSegment, chains: StateChains) -> Self {
        Self { open, chains, segments: BTreeMap::new() }
    }

    /// Returns the tables that have state, in their order.
    pub fn tables(&self) -> impl Iterator<Item = &TableId> {
        self.chains.tables().keys()
    }

    /// Returns the key groups of a table that may have entries, ascending.
    pub fn groups(&self, table: &TableId) -> Vec<KeyGroup> {
        self.chains.tables().get(table).into_iter().flat_map(BTreeMap::keys).copied().collect()
    }

    /// Returns the chain of a key group; empty if there is none.
    pub fn chain(&self, table: &TableId, group: KeyGroup) -> &[SegmentId] {
        self.chains.tables().get(table).and_then(|groups| groups.get(&group)).map_or(&[], Vec::as_slice)
    }

    /// Returns what the footers say of a key group. Reads no block.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn size(&mut self, table: &TableId, group: KeyGroup) -> Result<GroupSize, SegmentError> {
        let sections = self.sections(table, group)?;
        let is_exact = sections.is_empty() || sections.len() == 1 && sections[0].1.kind == SectionKind::Base;
        let mut size = GroupSize { is_exact, ..GroupSize::default() };
        for (_, section) in sections {
            size.entries += section.entries;
            size.stored_bytes += section.blocks.iter().map(|block| u64::from(block.stored_bytes)).sum::<u64>();
        }
        Ok(size)
    }

    /// Reads a key group: the newest value of each key, without what was deleted.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn group(&mut self, table: &TableId, group: KeyGroup) -> Result<GroupContents, SegmentError> {
        let mut contents = GroupContents::new();
        for (segment, section) in self.sections(table, group)? {
            self.each(segment, &section, |entry| match entry {
                Entry::Put { key, value } => drop(contents.insert(key.to_vec(), value.to_vec())),
                Entry::Delete { key } => drop(contents.remove(key)),
                Entry::Clear { key } => {
                    let entries = key_prefix(key);
                    let cleared: Vec<_> = from_prefix(&contents, &entries).map(|(key, _)| key.clone()).collect();
                    cleared.iter().for_each(|key| drop(contents.remove(key)));
                }
            })?;
        }
        Ok(contents)
    }

    /// Reads the value of one stored key; `None` if it has none. Reads sections of its key group only, the newest first, and stops
    /// at the first that has the key.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn get(&mut self, table: &TableId, group: KeyGroup, key: &[u8]) -> Result<Option<Vec<u8>>, SegmentError> {
        for (segment, section) in self.sections(table, group)?.into_iter().rev() {
            let mut found = None;
            self.each(segment, &section, |entry| match entry {
                Entry::Put { key: put, value } if put == key => found = Some(Some(value.to_vec())),
                Entry::Delete { key: deleted } if deleted == key => found = Some(None),
                Entry::Clear { key: cleared } if key.starts_with(&key_prefix(cleared)) => found = Some(None),
                Entry::Put { .. } | Entry::Delete { .. } | Entry::Clear { .. } => {}
            })?;
            if let Some(value) = found {
                return Ok(value);
            }
        }
        Ok(None)
    }

    /// Calls `each` with the entries of a section that [`Self::sections`] returned.
    fn each(&self, segment: SegmentId, section: &SectionInfo, mut each: impl FnMut(Entry<'_>)) -> Result<(), SegmentError> {
        let reader = &self.segments[&segment];
        // The reader has checked every entry before it hands a block out.
        reader.read(section, |bytes| {
            EntryReader::new(bytes).flatten().for_each(&mut each);
            Ok(())
        })
    }

    /// Returns the sections of a key group in the order to apply them. Opens the segments that are not known yet.
    fn sections(&mut self, table: &TableId, group: KeyGroup) -> Result<Vec<(SegmentId, SectionInfo)>, SegmentError> {
        let chain = self.chain(table, group).to_vec();
        let mut sections = Vec::with_capacity(chain.len());
        for (index, segment) in chain.into_iter().enumerate() {
            let damaged = |what: &str| SegmentError::Damaged {
                segment,
                what: format!("{what} key group {} of \"{}\" in \"{}\"", group.0, table.slot, table.operator),
            };
            let found = self.reader(segment)?.sections_of(table, group);
            if found.is_empty() {
                return Err(damaged("it lacks"));
            }
            if index > 0 && found.iter().any(|section| section.kind == SectionKind::Base) {
                return Err(damaged("it has a base, after other sections, of"));
            }
            sections.extend(found.iter().map(|section| (segment, section.clone())));
        }
        Ok(sections)
    }

    fn reader(&mut self, segment: SegmentId) -> Result<&SegmentReader<Reopened>, SegmentError> {
        if !self.segments.contains_key(&segment) {
            let Some(reference) = self.chains.segment(segment) else {
                let what = "the manifest names it in a chain and does not list it".into();
                return Err(SegmentError::Damaged { segment, what });
            };
            let opened = (self.open)(segment)?;
            let (length, codecs) = (opened.length(), opened.codecs());
            let source = Reopened { open: Arc::clone(&self.open), segment, length, codecs };
            self.segments.insert(segment, SegmentReader::open(source, reference)?);
        }
        Ok(&self.segments[&segment])
    }
}

/// Returns what the stored keys of all entries of a key begin with, in a table whose keys have many.
pub fn key_prefix(key: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    ordered_key(&mut prefix, key, b"");
    prefix
}

/// Returns the entries whose stored keys begin so, in their order.
pub fn from_prefix<'a>(contents: &'a GroupContents, prefix: &'a [u8]) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    contents.range::<[u8], _>(from).take_while(move |(key, _)| key.starts_with(prefix))
}

/// A segment that is opened for every read.
struct Reopened {
    open: OpenSegment,
    segment: SegmentId,
    length: u64,
    codecs: Codecs,
}

impl SegmentSource for Reopened {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StorageError> {
        (self.open)(self.segment)?.read_exact_at(offset, buffer)
    }

    fn codecs(&self) -> Codecs {
        self.codecs
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::super::memory::MemoryStorage;
    use super::super::segment::{SegmentEncoder, SegmentHeader, SegmentInfo};
    use super::super::storage::CheckpointStorage;
    use super::*;
    use crate::ids::{Attempt, CheckpointId, OperatorId, TaskIndex};
    use crate::snapshot::StateBlock;

    fn table() -> TableId {
        TableId { operator: OperatorId::new("count").unwrap(), slot: "n".into() }
    }

    fn opener(storage: MemoryStorage) -> OpenSegment {
        Arc::new(move |id| storage.open_segment(id))
    }

    fn group_of(key: u8) -> KeyGroup {
        KeyGroup(u16::from(key % 4))
    }

    /// What a snapshot writes: for each group a kind and changes; a change without a value is a deletion.
    type Written = BTreeMap<u16, (SectionKind, Vec<(u8, Option<u8>)>)>;

    fn write(storage: &MemoryStorage, checkpoint: u64, written: &Written) -> SegmentInfo {
        let id = SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(1), task: TaskIndex(0) };
        let header = SegmentHeader { job: "words".into(), id, tables: vec![table()] };
        let mut encoder = SegmentEncoder::new(storage.create_segment(id).unwrap(), header).unwrap();
        for (group, (kind, changes)) in written {
            // Blocks of two entries, so that a section has several.
            let mut push = |changes: &[(u8, Option<u8>)]| {
                let mut bytes = Vec::new();
                for (key, value) in changes {
                    match value {
                        Some(value) => Entry::Put { key: &[*key], value: &[*value] }.encode(&mut bytes),
                        None => Entry::Delete { key: &[*key] }.encode(&mut bytes),
                    }
                }
                let entries = u32::try_from(changes.len()).unwrap();
                encoder.push(&StateBlock { table: 0, group: KeyGroup(*group), kind: *kind, entries, bytes }).unwrap();
            };
            if changes.is_empty() { push(&[]) } else { changes.chunks(2).for_each(push) }
        }
        let (file, info) = encoder.finish().unwrap();
        file.sync().unwrap();
        info
    }

    fn snapshot() -> impl Strategy<Value = Vec<(u8, Option<u8>)>> {
        proptest::collection::vec((0u8..12, proptest::option::weighted(0.7, any::<u8>())), 0..8)
    }

    proptest! {
        /// Bases and deltas, puts and deletions, in any mixture: the newest value of each key is read, and nothing else.
        #[test]
        fn what_is_read_is_the_newest(snapshots in proptest::collection::vec((snapshot(), 0u8..16), 1..6)) {
            let storage = MemoryStorage::default();
            let (mut chains, mut model) = (StateChains::default(), BTreeMap::<u8, u8>::new());
            let mut has_base = [false; 4];
            for (checkpoint, (changes, bases)) in (1..).zip(&snapshots) {
                let changes: BTreeMap<u8, Option<u8>> = changes.iter().copied().collect();
                for (key, value) in &changes {
                    match value {
                        Some(value) => drop(model.insert(*key, *value)),
                        None => drop(model.remove(key)),
                    }
                }
                let mut written = Written::new();
                for group in 0..4u16 {
                    let in_group = |key: &u8| group_of(*key).0 == group;
                    if bases & (1 << group) != 0 || !has_base[usize::from(group)] {
                        has_base[usize::from(group)] = true;
                        let all = model.iter().filter(|(key, _)| in_group(key)).map(|(key, value)| (*key, Some(*value)));
                        written.insert(group, (SectionKind::Base, all.collect()));
                    } else {
                        let own: Vec<_> = changes.iter().filter(|(key, _)| in_group(key)).map(|(k, v)| (*k, *v)).collect();
                        if !own.is_empty() {
                            written.insert(group, (SectionKind::Delta, own));
                        }
                    }
                }
                chains = chains.advance(&[write(&storage, checkpoint, &written)], &[]);
            }
            let mut contents = StateContents::new(opener(storage), chains);
            let mut read = BTreeMap::new();
            for group in contents.groups(&table()) {
                let found = contents.group(&table(), group).unwrap();
                let size = contents.size(&table(), group).unwrap();
                prop_assert!(size.entries >= found.len() as u64);
                prop_assert!(!size.is_exact || size.entries == found.len() as u64);
                read.extend(found.into_iter().map(|(key, value)| (key[0], value[0])));
            }
            prop_assert_eq!(&read, &model);
            for key in 0..12 {
                let value = contents.get(&table(), group_of(key), &[key]).unwrap();
                prop_assert_eq!(value.map(|value| value[0]), model.get(&key).copied());
            }
        }
    }

    type Reads = Arc<Mutex<Vec<(SegmentId, u64)>>>;

    /// Notes where a segment is read.
    struct Watched {
        inner: Box<dyn SegmentSource>,
        id: SegmentId,
        reads: Reads,
    }

    impl SegmentSource for Watched {
        fn length(&self) -> u64 {
            self.inner.length()
        }

        fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StorageError> {
            self.reads.lock().unwrap().push((self.id, offset));
            self.inner.read_exact_at(offset, buffer)
        }
    }

    #[test]
    fn one_key_reads_blocks_of_its_key_group_only_and_the_newest_first() {
        let storage = MemoryStorage::default();
        let put = |key: u8, value: u8| (key, Some(value));
        let base: Written = (0..4)
            .map(|group: u16| (group, (SectionKind::Base, (0..3).map(|n| put(n * 4 + group.to_le_bytes()[0], n)).collect())))
            .collect();
        let first = write(&storage, 1, &base);
        let second = write(&storage, 2, &Written::from([(1, (SectionKind::Delta, vec![put(1, 9), (5, None)]))]));
        let chains =
            StateChains::default().advance(std::slice::from_ref(&first), &[]).advance(std::slice::from_ref(&second), &[]);
        let reads = Reads::default();
        let noted = Arc::clone(&reads);
        let open: OpenSegment = Arc::new(move |id| {
            let (inner, reads) = (storage.open_segment(id)?, Arc::clone(&noted));
            Ok(Box::new(Watched { inner, id, reads }))
        });
        let mut contents = StateContents::new(open, chains);
        // The footers are read once.
        assert_eq!(contents.size(&table(), KeyGroup(1)).unwrap().entries, 5);
        let mut blocks_read = |key: u8, expected: Option<u8>| {
            reads.lock().unwrap().clear();
            let value = contents.get(&table(), group_of(key), &[key]).unwrap();
            assert_eq!(value.map(|value| value[0]), expected, "key {key}");
            let mut reads = reads.lock().unwrap().clone();
            reads.sort_unstable();
            reads
        };
        let blocks = |info: &SegmentInfo, section: usize| -> Vec<(SegmentId, u64)> {
            info.sections[section].blocks.iter().map(|block| (info.reference.id, block.offset)).collect()
        };
        assert_eq!(blocks_read(1, Some(9)), blocks(&second, 0), "the delta has it: the base is not read");
        assert_eq!(blocks_read(5, None), blocks(&second, 0), "the delta deletes it");
        assert_eq!(blocks_read(9, Some(2)), [blocks(&first, 1), blocks(&second, 0)].concat());
        assert_eq!(blocks_read(2, Some(0)), blocks(&first, 2), "another key group");
    }

    #[test]
    fn a_segment_that_is_gone_or_lacks_the_group_is_an_error() {
        let storage = MemoryStorage::default();
        let info = write(&storage, 1, &Written::from([(1, (SectionKind::Base, vec![(1, Some(1))]))]));
        let mut chains = StateChains::default().advance(std::slice::from_ref(&info), &[]);
        chains.set(&table(), KeyGroup(2), vec![info.reference.id]);
        let mut contents = StateContents::new(opener(storage.clone()), chains);
        let error = contents.group(&table(), KeyGroup(2)).unwrap_err().to_string();
        assert!(error.contains("segment 1-1-0 is damaged: it lacks key group 2 of \"n\" in \"count\""), "{error}");
        storage.delete_segment(info.reference.id).unwrap();
        assert!(matches!(contents.group(&table(), KeyGroup(1)), Err(SegmentError::Storage(_))));
    }

    #[test]
    fn clears_apply_before_the_delta_that_comes_with_them() {
        let storage = MemoryStorage::default();
        let ordered = |key: &[u8], entry: &[u8]| [key_prefix(key), entry.to_vec()].concat();
        let (a1, a2, b1) = (ordered(b"a", b"1"), ordered(b"a", b"2"), ordered(b"ab", b"1"));
        let write = |checkpoint: u64, sections: &[(SectionKind, Vec<Entry<'_>>)]| {
            let id = SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(1), task: TaskIndex(0) };
            let header = SegmentHeader { job: "words".into(), id, tables: vec![table()] };
            let mut encoder = SegmentEncoder::new(storage.create_segment(id).unwrap(), header).unwrap();
            for (kind, entries) in sections {
                let mut bytes = Vec::new();
                entries.iter().for_each(|entry| entry.encode(&mut bytes));
                let entries = u32::try_from(entries.len()).unwrap();
                encoder.push(&StateBlock { table: 0, group: KeyGroup(1), kind: *kind, entries, bytes }).unwrap();
            }
            let (file, info) = encoder.finish().unwrap();
            file.sync().unwrap();
            info
        };
        let put = |key, value| Entry::Put { key, value };
        let base = write(1, &[(SectionKind::Base, vec![put(&a1, b"old"), put(&a2, b"old"), put(&b1, b"kept")])]);
        let delta =
            write(2, &[(SectionKind::Delta, vec![put(&a2, b"new")]), (SectionKind::Clears, vec![Entry::Clear { key: b"a" }])]);
        let chains = StateChains::default().advance(&[base], &[]).advance(&[delta], &[]);
        let mut contents = StateContents::new(opener(storage), chains);
        let expected = [(a1.clone(), None), (a2, Some(&b"new"[..])), (b1, Some(b"kept"))];
        let found = contents.group(&table(), KeyGroup(1)).unwrap();
        for (key, value) in &expected {
            assert_eq!(found.get(key).map(Vec::as_slice), *value);
            assert_eq!(contents.get(&table(), KeyGroup(1), key).unwrap().as_deref(), *value);
        }
        assert_eq!((found.len(), from_prefix(&found, &key_prefix(b"a")).count()), (2, 1));
    }
}
