//! State for a pipeline that has not run yet, or that runs elsewhere: a checkpoint made without a job.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cofferdam_dataflow::checkpoint::chains::StateChains;
use cofferdam_dataflow::checkpoint::manifest::{CheckpointManifest, ManifestNode, ManifestNodeKind};
use cofferdam_dataflow::checkpoint::segment::{
    BLOCK_BYTES_MAX, SegmentEncoder, SegmentError, SegmentHeader, SegmentId, SegmentInfo, SegmentReader, SegmentWriteError,
};
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, Fence, SegmentFile, StorageError};
use cofferdam_dataflow::connector::SplitPosition;
use cofferdam_dataflow::guest::{StateKind, StateSlot};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, InvalidId, OperatorId, SubtaskId, TaskIndex};
use cofferdam_dataflow::key_group::{KeyGroup, MaxParallelism, key_hash};
use cofferdam_dataflow::snapshot::{SectionKind, StateBlock, SubtaskPart, SubtaskSnapshot, TableId};
use cofferdam_dataflow::state::entry::{Entry, EntryReader};
use cofferdam_dataflow::time::ProcessingTime;

use super::show_bytes;
use crate::storage::LocalStorage;

/// A block of a key group is written at this size.
const BLOCK_BYTES: usize = 64 << 10;
/// What all key groups may hold back together.
const BUFFERED_BYTES: usize = 32 << 20;

/// What the state is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewState {
    /// The pipeline's name.
    pub job: String,
    /// The pipeline's number of key groups, 1 to 32,768.
    pub max_parallelism: u16,
    /// Where sources go on, by their ids; a source that is not named begins at the beginning.
    pub positions: BTreeMap<String, Vec<SplitPosition>>,
}

impl NewState {
    /// Returns state for a pipeline of this name with 128 key groups (the default of pipeline files) and no positions.
    pub fn new(job: &str) -> Self {
        Self { job: job.to_owned(), max_parallelism: 128, positions: BTreeMap::new() }
    }
}

/// A slot to fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSlot {
    /// The operator's id in the pipeline.
    pub operator: String,
    /// The slot as the operator declares it.
    pub slot: StateSlot,
}

impl NewSlot {
    /// Returns a slot of kind `value`, without a time to live.
    pub fn value(operator: &str, name: &str, codec: &str, schema: &str) -> Self {
        let slot = StateSlot {
            name: name.to_owned(),
            kind: StateKind::Value,
            codec: codec.to_owned(),
            schema: schema.to_owned(),
            ttl_ms: 0,
            ttl_on_read: false,
            prefetch: true,
        };
        Self { operator: operator.to_owned(), slot }
    }
}

/// State that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavepointError {
    /// The folder has checkpoints already.
    #[error("{} has checkpoints already; state is written to a new folder", .0.display())]
    Exists(PathBuf),
    /// The name of the pipeline, an operator or a source.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// A number of key groups that no pipeline can have.
    #[error("max-parallelism is {0}, expected 1 to 32768")]
    MaxParallelism(u16),
    /// One id for an operator and a source.
    #[error("\"{0}\" is both an operator and a source")]
    Ambiguous(OperatorId),
    /// A slot that was filled before.
    #[error("slot \"{slot}\" of \"{operator}\" was written before")]
    SlotTwice {
        /// The operator.
        operator: OperatorId,
        /// The slot.
        slot: String,
    },
    /// A kind of state that is not written.
    #[error("slot \"{slot}\" is of kind {kind}; only kind value can be written")]
    Kind {
        /// The slot.
        slot: String,
        /// Its kind.
        kind: &'static str,
    },
    /// Values that would need the time of their last use.
    #[error("slot \"{0}\" has a time to live; such a slot cannot be written")]
    Ttl(String),
    /// A key that came twice.
    #[error("slot \"{slot}\" has the key {key} twice")]
    KeyTwice {
        /// The slot.
        slot: String,
        /// The key, shown.
        key: String,
    },
    /// An entry that fits into no block.
    #[error("the entry of key {key} in slot \"{slot}\" has {bytes} bytes; at most {BLOCK_BYTES_MAX} are possible")]
    EntryTooLarge {
        /// The slot.
        slot: String,
        /// The beginning of the key, shown.
        key: String,
        /// Bytes of key and value.
        bytes: usize,
    },
    /// A file of state could not be written.
    #[error(transparent)]
    Write(#[from] SegmentWriteError),
    /// A file of state could not be read back.
    #[error(transparent)]
    ReadBack(#[from] SegmentError),
    /// The storage.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Makes a checkpoint from entries. Nothing exists before [`Self::finish`]; dropped before, it removes what it wrote.
pub struct SavepointWriter {
    storage: Box<dyn CheckpointStorage>,
    job: OperatorId,
    max_parallelism: MaxParallelism,
    attempt: Attempt,
    checkpoint: CheckpointId,
    positions: BTreeMap<OperatorId, Vec<SplitPosition>>,
    slots: BTreeMap<OperatorId, Vec<StateSlot>>,
    segments: Vec<SegmentInfo>,
    published: bool,
}

impl SavepointWriter {
    /// Begins a job's directory at `path`, which must not hold checkpoints. It is a directory that `run` goes on from: name it as
    /// the `storage` of the pipeline. Locks it until the writer is dropped.
    ///
    /// # Errors
    /// [`SavepointError`].
    pub fn create(path: &Path, state: NewState) -> Result<Self, SavepointError> {
        Self::in_storage(path, Box::new(LocalStorage::open(path)?), state)
    }

    /// Begins a checkpoint in a storage that has none. `path` is for messages.
    ///
    /// # Errors
    /// [`SavepointError`].
    pub fn in_storage(path: &Path, storage: Box<dyn CheckpointStorage>, state: NewState) -> Result<Self, SavepointError> {
        if !storage.manifests()?.is_empty() || !storage.segments()?.is_empty() || storage.finished()?.is_some() {
            return Err(SavepointError::Exists(path.to_owned()));
        }
        let job = OperatorId::new(&state.job)?;
        let groups = u32::from(state.max_parallelism);
        let max_parallelism = MaxParallelism::new(groups).ok_or(SavepointError::MaxParallelism(state.max_parallelism))?;
        let named = state.positions.into_iter().map(|(id, positions)| Ok((OperatorId::new(&id)?, positions)));
        let positions = named.collect::<Result<_, InvalidId>>()?;
        let fence = storage.fence()?;
        let fence = Fence { attempt: fence.attempt + 1, checkpoint: fence.checkpoint };
        storage.raise_fence(fence)?;
        Ok(Self {
            storage,
            job,
            max_parallelism,
            attempt: Attempt(fence.attempt),
            checkpoint: CheckpointId(fence.checkpoint + 1),
            positions,
            slots: BTreeMap::new(),
            segments: Vec::new(),
            published: false,
        })
    }

    /// Writes all entries of a slot, in any order: keys as the pipeline's records carry them, values in the slot's codec. Holds
    /// 32 MiB of them in memory, and the keys of one key group. Blocks.
    ///
    /// # Errors
    /// [`SavepointError`]; the slot is not written, and the writer can go on.
    pub fn slot(&mut self, slot: &NewSlot, entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), SavepointError> {
        let operator = OperatorId::new(&slot.operator)?;
        let name = slot.slot.name.clone();
        if slot.slot.kind != StateKind::Value {
            return Err(SavepointError::Kind { slot: name, kind: slot.slot.kind.name() });
        }
        if slot.slot.ttl_ms != 0 {
            return Err(SavepointError::Ttl(name));
        }
        if self.positions.contains_key(&operator) {
            return Err(SavepointError::Ambiguous(operator));
        }
        if self.slots.get(&operator).is_some_and(|slots| slots.iter().any(|known| known.name == name)) {
            return Err(SavepointError::SlotTwice { operator, slot: name });
        }
        let table = TableId { operator: operator.clone(), slot: name };
        let task = TaskIndex(self.segments.len());
        let id = SegmentId { checkpoint: self.checkpoint, attempt: self.attempt, task };
        let written = self.write(id, table, entries).inspect_err(|_| {
            // What remains of it is an orphan.
            let _ = self.storage.delete_segment(id);
        })?;
        self.segments.push(written);
        self.slots.entry(operator).or_default().push(slot.slot.clone());
        Ok(())
    }

    fn write(
        &self,
        id: SegmentId,
        table: TableId,
        entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<SegmentInfo, SavepointError> {
        let slot = table.slot.clone();
        let header = SegmentHeader { job: self.job.to_string(), id, tables: vec![table] };
        let encoder = SegmentEncoder::new(self.storage.create_segment(id)?, header)?.compressing(self.storage.compressor());
        let mut buffers = Buffers { encoder, groups: BTreeMap::new(), bytes: 0 };
        for (key, value) in entries {
            let bytes = key.len().saturating_add(value.len());
            if bytes > BLOCK_BYTES_MAX - 16 {
                let key = show_bytes(&key[..key.len().min(100)]);
                return Err(SavepointError::EntryTooLarge { slot, key, bytes });
            }
            let group = self.max_parallelism.group_of(key_hash(&key));
            buffers.add(group, Entry::Put { key: &key, value: &value })?;
        }
        let (file, info) = buffers.finish()?;
        file.sync()?;
        self.read_back(&info, &slot)?;
        Ok(info)
    }

    /// Reads what was written, to find keys that came twice: nobody could say which value counts.
    fn read_back(&self, info: &SegmentInfo, slot: &str) -> Result<(), SavepointError> {
        let reader = SegmentReader::open(self.storage.open_segment(info.reference.id)?, &info.reference)?;
        for section in reader.sections() {
            let mut keys = BTreeSet::new();
            reader.read(section, |bytes| {
                for entry in EntryReader::new(bytes).flatten() {
                    if !keys.insert(entry.key().to_vec()) {
                        return Err(SavepointError::KeyTwice { slot: slot.to_owned(), key: show_bytes(entry.key()) });
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Publishes the checkpoint and returns its number. From then on it exists, durably.
    ///
    /// # Errors
    /// [`SavepointError`].
    pub fn finish(mut self) -> Result<CheckpointId, SavepointError> {
        let manifest = self.manifest();
        let published = self.storage.publish_manifest(self.attempt, self.checkpoint, &manifest.encode());
        // If it may exist, nothing that it names is removed.
        self.published = published.as_ref().map_or_else(|error| error.outcome_unknown, |()| true);
        published?;
        Ok(self.checkpoint)
    }

    fn manifest(&self) -> CheckpointManifest {
        let mut nodes = Vec::new();
        let mut subtasks = Vec::new();
        let mut add = |id: &OperatorId, kind, part| {
            nodes.push(ManifestNode { id: id.clone(), parallelism: 1, kind });
            let id = SubtaskId { operator: id.clone(), index: 0 };
            subtasks.push(SubtaskSnapshot { id, watermark: None, finished: false, part });
        };
        for (id, positions) in &self.positions {
            add(id, ManifestNodeKind::Source, SubtaskPart::Source { positions: positions.clone() });
        }
        for (id, slots) in &self.slots {
            let kind = ManifestNodeKind::Operator { digest: String::new(), imports: Vec::new(), slots: slots.clone() };
            add(id, kind, SubtaskPart::Operator { slots: slots.clone() });
        }
        let state = StateChains::default().advance(&self.segments, &nodes);
        CheckpointManifest {
            job: self.job.to_string(),
            checkpoint: self.checkpoint,
            attempt: self.attempt,
            parent: None,
            created: now(),
            engine: concat!("cofferdam ", env!("CARGO_PKG_VERSION"), ", made without a job").to_owned(),
            max_parallelism: self.max_parallelism,
            is_final: false,
            nodes,
            subtasks,
            state,
        }
    }
}

impl Drop for SavepointWriter {
    fn drop(&mut self) {
        if !self.published {
            for segment in &self.segments {
                // What remains is an orphan, which the next run removes.
                let _ = self.storage.delete_segment(segment.reference.id);
            }
        }
    }
}

fn now() -> ProcessingTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ProcessingTime(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Entries by key group, until a block of them is full.
struct Buffers {
    encoder: SegmentEncoder<Box<dyn SegmentFile>>,
    groups: BTreeMap<KeyGroup, (Vec<u8>, u32)>,
    bytes: usize,
}

impl Buffers {
    fn add(&mut self, group: KeyGroup, entry: Entry<'_>) -> Result<(), SegmentWriteError> {
        let bytes = entry.encoded_len();
        if self.groups.get(&group).is_some_and(|(block, _)| block.len() + bytes > BLOCK_BYTES) {
            self.write(group)?;
        }
        let (block, entries) = self.groups.entry(group).or_default();
        entry.encode(block);
        *entries += 1;
        self.bytes += bytes;
        if self.bytes > BUFFERED_BYTES {
            self.write_all()?;
        }
        Ok(())
    }

    fn write(&mut self, group: KeyGroup) -> Result<(), SegmentWriteError> {
        let Some((bytes, entries)) = self.groups.remove(&group) else { return Ok(()) };
        self.bytes -= bytes.len();
        self.encoder.push(&StateBlock { table: 0, group, kind: SectionKind::Base, entries, bytes })
    }

    fn write_all(&mut self) -> Result<(), SegmentWriteError> {
        let groups: Vec<_> = self.groups.keys().copied().collect();
        groups.into_iter().try_for_each(|group| self.write(group))
    }

    fn finish(mut self) -> Result<(Box<dyn SegmentFile>, SegmentInfo), SegmentWriteError> {
        self.write_all()?;
        self.encoder.finish()
    }
}
