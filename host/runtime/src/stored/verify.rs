//! Whether everything a checkpoint is made of is what was written: every file, every block, every entry.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::recovery::verify_segment;
use cofferdam_dataflow::checkpoint::segment::{SectionInfo, SegmentError, SegmentId, SegmentReader, SegmentRef};
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, SegmentSource, StorageError, StorageErrorKind};
use cofferdam_dataflow::guest::StateKind;
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::key_group::{MaxParallelism, key_hash};
use cofferdam_dataflow::snapshot::{SectionKind, TableId};
use cofferdam_dataflow::state::entry::{Entry, EntryReader, split_ordered_key};
use serde::Serialize;

use super::job::declared;
use super::{StoredError, StoredJob, show_bytes};

/// What came of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileCheck {
    /// Its path in the job's directory.
    pub file: String,
    /// Its length in bytes; 0 if it is not known.
    pub bytes: u64,
    /// What is wrong with it; `None` if it is what was written.
    pub damage: Option<String>,
}

/// What came of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// The checkpoints that were verified, ascending.
    pub checkpoints: Vec<u64>,
    /// Those of them that cannot be restored.
    pub damaged: Vec<u64>,
    /// Every file that was read: marks, manifests, segments.
    pub files: Vec<FileCheck>,
    /// Entries that were decoded.
    pub entries: u64,
}

impl Verification {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.files.iter().all(|file| file.damage.is_none())
    }
}

/// Verifies one checkpoint, or all of them: marks and manifests, and of each segment they name its length, its hash, every
/// block and every entry. A segment that several name is read once. Tells `progress` how many bytes of how many have been read.
///
/// # Errors
/// [`StoredError`] if something could not be read for another reason than damage, or was deleted meanwhile.
pub fn verify(
    job: &StoredJob,
    checkpoint: Option<CheckpointId>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verification, StoredError> {
    let storage = job.storage().as_ref();
    let mut found = Verification::default();
    check_marks(storage, &mut found)?;
    let mut segments: BTreeMap<SegmentId, Segment> = BTreeMap::new();
    for listed in job.checkpoints()? {
        if checkpoint.is_some_and(|wanted| wanted != listed.checkpoint) {
            continue;
        }
        let id = listed.checkpoint;
        found.checkpoints.push(id.0);
        let wrong_number = |manifest: &CheckpointManifest| {
            (manifest.checkpoint != id).then(|| format!("it is the manifest of checkpoint {}", manifest.checkpoint))
        };
        let damage = match &listed.manifest {
            Ok(manifest) => wrong_number(manifest),
            Err(what) => Some(what.clone()),
        };
        found.files.push(FileCheck { file: format!("chk-{id}/_manifest"), bytes: 0, damage: damage.clone() });
        if let Err(error) = storage.is_committed(id) {
            found.files.push(FileCheck { file: format!("chk-{id}/_committed"), bytes: 0, damage: Some(damage_of(error)?) });
        }
        match listed.manifest {
            Ok(manifest) if damage.is_none() => note(&mut segments, id, &manifest),
            Ok(_) | Err(_) => found.damaged.push(id.0),
        }
    }
    if let Some(wanted) = checkpoint.filter(|_| found.checkpoints.is_empty()) {
        return Err(StoredError::NoCheckpoint { path: job.path().to_owned(), checkpoint: Some(wanted) });
    }
    check_segments(storage, &segments, &mut found, progress)?;
    found.damaged.sort_unstable();
    found.damaged.dedup();
    Ok(found)
}

/// A segment, and what the manifests that name it say of it.
struct Segment {
    reference: SegmentRef,
    checkpoints: BTreeSet<CheckpointId>,
    max_parallelism: MaxParallelism,
    /// The sections that chains need, and whether one may be a base: it is the first of its chain.
    wanted: BTreeMap<(TableId, u16), bool>,
    /// How slots are organised.
    kinds: BTreeMap<TableId, StateKind>,
}

fn note(segments: &mut BTreeMap<SegmentId, Segment>, id: CheckpointId, manifest: &CheckpointManifest) {
    let tables = manifest.state.tables().keys();
    let kinds: BTreeMap<_, _> = tables.filter_map(|table| Some((table.clone(), declared(manifest, table)?.kind))).collect();
    for reference in manifest.state.segments().values() {
        let empty = || Segment {
            reference: reference.clone(),
            checkpoints: BTreeSet::new(),
            max_parallelism: manifest.max_parallelism,
            wanted: BTreeMap::new(),
            kinds: kinds.clone(),
        };
        segments.entry(reference.id).or_insert_with(empty).checkpoints.insert(id);
    }
    for (table, groups) in manifest.state.tables() {
        for (group, chain) in groups {
            for (index, segment) in chain.iter().enumerate() {
                if let Some(found) = segments.get_mut(segment) {
                    *found.wanted.entry((table.clone(), group.0)).or_insert(true) &= index == 0;
                }
            }
        }
    }
}

/// Reads the marks of the directory, which say nothing of a checkpoint's content.
fn check_marks(storage: &dyn CheckpointStorage, found: &mut Verification) -> Result<(), StoredError> {
    let marks = [("fence", storage.fence().map(drop)), ("finished", storage.finished().map(drop))];
    for (name, mark) in marks {
        if let Err(error) = mark {
            found.files.push(FileCheck { file: name.into(), bytes: 0, damage: Some(damage_of(error)?) });
        }
    }
    Ok(())
}

/// Returns what damage an error proves; another error is passed on.
fn damage_of(error: StorageError) -> Result<String, StoredError> {
    match error.kind {
        StorageErrorKind::Damaged | StorageErrorKind::NotFound => Ok(error.to_string()),
        _ => Err(error.into()),
    }
}

fn check_segments(
    storage: &dyn CheckpointStorage,
    segments: &BTreeMap<SegmentId, Segment>,
    found: &mut Verification,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), StoredError> {
    let total: u64 = segments.values().map(|segment| segment.reference.length).sum();
    let mut read = 0;
    for (id, segment) in segments {
        progress(read, total);
        let damage = match check_segment(storage, segment, &mut |bytes| progress(read + bytes, total)) {
            Ok(entries) => {
                found.entries += entries;
                None
            }
            Err(SegmentError::Storage(error)) => {
                let newest = *segment.checkpoints.last().expect("it is named by one");
                let error = StoredError::Storage(error).of_checkpoint(storage, newest);
                match error {
                    StoredError::Storage(error) => Some(damage_of(error)?),
                    other => return Err(other),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        if damage.is_some() {
            found.damaged.extend(segment.checkpoints.iter().map(|id| id.0));
        }
        read += segment.reference.length;
        // What is in manifests is checked like a file; the newest manifest that has it stands for all.
        let file = match (segment.reference.is_file(), segment.checkpoints.last()) {
            (false, Some(newest)) => format!("chk-{newest}/_manifest, segment {id}"),
            _ => format!("segments/{id}.seg"),
        };
        found.files.push(FileCheck { file, bytes: segment.reference.length, damage });
    }
    progress(total, total);
    Ok(())
}

/// Reads all of a segment and returns how many entries it has.
fn check_segment(storage: &dyn CheckpointStorage, segment: &Segment, read: &mut dyn FnMut(u64)) -> Result<u64, SegmentError> {
    verify_segment(storage, &segment.reference)?;
    let reader = SegmentReader::open(segment.reference.open(storage)?, &segment.reference)?;
    let damaged = |what| SegmentError::Damaged { segment: segment.reference.id, what };
    let mut missing: BTreeSet<_> = segment.wanted.keys().collect();
    let mut entries = 0;
    for section in reader.sections() {
        let table = &reader.header().tables[usize::from(section.table)];
        let place = (table.clone(), section.group.0);
        missing.remove(&place);
        let may_be_base = segment.wanted.get(&place).copied().unwrap_or(true);
        if section.kind == SectionKind::Base && !may_be_base {
            return Err(damaged(format!("key group {} has a base after other sections", section.group.0)));
        }
        check_section(&reader, section, segment.max_parallelism, segment.kinds.get(table).copied())?;
        entries += section.entries;
        read(section.blocks.last().map_or(0, |block| block.offset));
    }
    match missing.first() {
        Some((table, group)) => {
            Err(damaged(format!("it lacks key group {group} of \"{}\" in \"{}\"", table.slot, table.operator)))
        }
        None => Ok(entries),
    }
}

/// Checks that the entries of a section belong into it. A base has each key once; a delta may repeat an entry as it is.
fn check_section<S: SegmentSource>(
    reader: &SegmentReader<S>,
    section: &SectionInfo,
    max_parallelism: MaxParallelism,
    kind: Option<StateKind>,
) -> Result<(), SegmentError> {
    let group = section.group.0;
    let damaged = |what| SegmentError::Damaged { segment: reader.header().id, what };
    let mut seen: BTreeMap<Vec<u8>, Option<u64>> = BTreeMap::new();
    reader.read(section, |bytes| {
        // The reader has decoded every entry.
        for entry in EntryReader::new(bytes).flatten() {
            let Some(key) = routing_key(&entry, kind) else {
                return Err(damaged(format!("key group {group} has a malformed key: {}", show_bytes(entry.key()))));
            };
            if key.is_some_and(|key| max_parallelism.group_of(key_hash(key)) != section.group) {
                return Err(damaged(format!("key group {group} has a key of another one: {}", show_bytes(entry.key()))));
            }
            let value = match entry {
                Entry::Put { value, .. } => Some(key_hash(value)),
                Entry::Delete { .. } | Entry::Clear { .. } => None,
            };
            let before = seen.insert(entry.key().to_vec(), value);
            // An entry that changes while its section is being written may be in it twice, as it was at the cut.
            if before.is_some_and(|before| before != value) {
                return Err(damaged(format!("key group {group} has a key twice: {}", show_bytes(entry.key()))));
            }
        }
        Ok(())
    })
}

/// Returns the key by which an entry gets to its group, or that there is none; `None` if its stored key is malformed.
fn routing_key<'a>(entry: &Entry<'a>, kind: Option<StateKind>) -> Option<Option<&'a [u8]>> {
    match (kind, entry) {
        (None, _) => Some(None),
        (Some(StateKind::Value), _) | (Some(StateKind::List | StateKind::Map), Entry::Clear { .. }) => Some(Some(entry.key())),
        (Some(StateKind::List | StateKind::Map), _) => split_ordered_key(entry.key()).map(|(key, _)| Some(key)),
        // The group is that of a subtask.
        (Some(StateKind::ListSplit | StateKind::ListUnion | StateKind::Broadcast), Entry::Clear { .. }) => Some(None),
        (Some(StateKind::ListSplit | StateKind::ListUnion | StateKind::Broadcast), _) => {
            split_ordered_key(entry.key()).map(|_| None)
        }
    }
}
