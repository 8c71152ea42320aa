//! State for a pipeline that has not run yet, or that runs elsewhere: a checkpoint made without a job.

mod buffers;
mod entry;
mod error;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use buffers::{BUFFERED_BYTES, Buffers};
use cofferdam_dataflow::checkpoint::chains::StateChains;
use cofferdam_dataflow::checkpoint::manifest::{CheckpointManifest, ManifestNode, ManifestNodeKind};
use cofferdam_dataflow::checkpoint::segment::{
    BLOCK_BYTES_MAX, SegmentEncoder, SegmentHeader, SegmentId, SegmentInfo, SegmentReader,
};
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, Fence};
use cofferdam_dataflow::connector::SplitPosition;
use cofferdam_dataflow::guest::{Descriptor, InputPort, StateKind, StateSlot};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, InvalidId, OperatorId, SubtaskId, TaskIndex};
use cofferdam_dataflow::key_group::{KeyGroup, MaxParallelism, key_hash};
use cofferdam_dataflow::snapshot::{SubtaskPart, SubtaskSnapshot, TableId};
use cofferdam_dataflow::state::KEY_BYTES_MAX;
use cofferdam_dataflow::state::entry::{EntryReader, split_ordered_key};
use cofferdam_dataflow::time::ProcessingTime;
pub use entry::{NewEntry, NewSlot};
pub use error::SavepointError;

use super::show_bytes;
use crate::storage::LocalStorage;

/// What an entry has in a block beside its key and value, at most: operation, lengths, a stamp, a chunk's head and number.
const ENTRY_OVERHEAD: usize = 64;

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

/// Makes a checkpoint from entries. Nothing exists before [`Self::finish`]; dropped before, it removes what it wrote.
pub struct SavepointWriter {
    storage: Box<dyn CheckpointStorage>,
    job: OperatorId,
    max_parallelism: MaxParallelism,
    attempt: Attempt,
    checkpoint: CheckpointId,
    positions: BTreeMap<OperatorId, Vec<SplitPosition>>,
    /// All slots of an operator, as far as that was told.
    declared: BTreeMap<OperatorId, Vec<StateSlot>>,
    /// Those that were written.
    slots: BTreeMap<OperatorId, Vec<StateSlot>>,
    segments: Vec<SegmentInfo>,
    buffered_bytes: usize,
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
            declared: BTreeMap::new(),
            slots: BTreeMap::new(),
            segments: Vec::new(),
            buffered_bytes: BUFFERED_BYTES,
            published: false,
        })
    }

    /// Says which slots an operator has: from then on another one, or one that is declared in another way, is refused. Slots that
    /// are not written begin empty.
    ///
    /// # Errors
    /// [`SavepointError`].
    pub fn declare(&mut self, operator: &str, slots: Vec<StateSlot>) -> Result<(), SavepointError> {
        let operator = self.operator(operator)?;
        check_slots(&operator, &slots)?;
        if self.declared.contains_key(&operator) {
            return Err(SavepointError::DeclaredTwice(operator));
        }
        let written = self.slots.get(&operator).into_iter().flatten();
        written.into_iter().try_for_each(|slot| check_declared(&operator, slot, &slots))?;
        self.declared.insert(operator, slots);
        Ok(())
    }

    /// Writes all values of a slot of kind `value`, by their keys: [`Self::fill`] with [`NewEntry::value`].
    ///
    /// # Errors
    /// [`SavepointError`]; the slot is not written, and the writer can go on.
    pub fn slot(&mut self, slot: &NewSlot, entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), SavepointError> {
        self.fill(slot, entries.into_iter().map(|(key, value)| NewEntry::value(key, value)))
    }

    /// Writes all entries of a slot of any kind. Their order does not matter, but for elements of one list, which come in the order of
    /// the list. Holds 32 MiB of them in memory, and the keys of one key group (of state without keys, all of them). Blocks.
    ///
    /// # Errors
    /// [`SavepointError`]; the slot is not written, and the writer can go on.
    pub fn fill(&mut self, slot: &NewSlot, entries: impl IntoIterator<Item = NewEntry>) -> Result<(), SavepointError> {
        let operator = self.operator(&slot.operator)?;
        check_slots(&operator, std::slice::from_ref(&slot.slot))?;
        let name = slot.slot.name.clone();
        if let Some(declared) = self.declared.get(&operator) {
            check_declared(&operator, &slot.slot, declared)?;
        }
        if self.slots.get(&operator).is_some_and(|slots| slots.iter().any(|known| known.name == name)) {
            return Err(SavepointError::SlotTwice { operator, slot: name });
        }
        let table = TableId { operator: operator.clone(), slot: name };
        let task = TaskIndex(self.segments.len());
        let id = SegmentId { checkpoint: self.checkpoint, attempt: self.attempt, task };
        let written = self.write(id, table, slot, entries).inspect_err(|_| {
            // What remains of it is an orphan.
            let _ = self.storage.delete_segment(id);
        })?;
        self.segments.push(written);
        self.slots.entry(operator).or_default().push(slot.slot.clone());
        Ok(())
    }

    fn operator(&self, id: &str) -> Result<OperatorId, SavepointError> {
        let operator = OperatorId::new(id)?;
        if self.positions.contains_key(&operator) { Err(SavepointError::Ambiguous(operator)) } else { Ok(operator) }
    }

    fn write(
        &self,
        id: SegmentId,
        table: TableId,
        slot: &NewSlot,
        entries: impl IntoIterator<Item = NewEntry>,
    ) -> Result<SegmentInfo, SavepointError> {
        let header = SegmentHeader { job: self.job.to_string(), id, tables: vec![table] };
        let encoder = SegmentEncoder::new(self.storage.create_segment(id)?, header)?.compressing(self.storage.compressor());
        let mut buffers = Buffers::new(encoder, self.buffered_bytes);
        for entry in entries {
            let stamp = check_entry(slot, &entry)?;
            // State without keys is that of the first subtask; a restore deals it out to all there are.
            let group =
                if slot.slot.kind.is_keyed() { self.max_parallelism.group_of(key_hash(entry.place.key())) } else { KeyGroup(0) };
            buffers.add(group, &entry.place, &entry.value, stamp)?;
        }
        let (file, info) = buffers.finish()?;
        file.sync()?;
        self.read_back(&info, &slot.slot)?;
        Ok(info)
    }

    /// Reads what was written, to find keys that came twice: nobody could say which value counts.
    fn read_back(&self, info: &SegmentInfo, slot: &StateSlot) -> Result<(), SavepointError> {
        let reader = SegmentReader::open(self.storage.open_segment(info.reference.id)?, &info.reference)?;
        for section in reader.sections() {
            let mut keys = BTreeSet::new();
            reader.read(section, |bytes| {
                for entry in EntryReader::new(bytes).flatten() {
                    if !keys.insert(entry.key().to_vec()) {
                        return Err(SavepointError::KeyTwice { slot: slot.name.clone(), key: show_key(slot.kind, entry.key()) });
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
        let all: BTreeMap<_, _> = self.slots.iter().chain(&self.declared).collect();
        for (id, slots) in all {
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

/// Checks what does not depend on the operator's other parts.
fn check_slots(operator: &OperatorId, slots: &[StateSlot]) -> Result<(), SavepointError> {
    let inputs = vec![InputPort { name: "in".to_owned(), broadcast: false }];
    let descriptor =
        Descriptor { inputs, outputs: Vec::new(), slots: slots.to_vec(), timers: Vec::new(), keyed: false, max_batch: 0 };
    descriptor.check().map_err(|cause| SavepointError::Slot { operator: operator.clone(), cause })
}

fn check_declared(operator: &OperatorId, slot: &StateSlot, declared: &[StateSlot]) -> Result<(), SavepointError> {
    let (operator, name) = (operator.clone(), slot.name.clone());
    let Some(known) = declared.iter().find(|known| known.name == name) else {
        let known = declared.iter().map(|slot| slot.name.clone()).collect();
        return Err(SavepointError::UnknownSlot { operator, slot: name, known });
    };
    // How the operator reads it is none of the stored state.
    let (ttl_on_read, prefetch) = (known.ttl_on_read, known.prefetch);
    let is_same = *known == StateSlot { ttl_on_read, prefetch, ..slot.clone() };
    if is_same { Ok(()) } else { Err(SavepointError::OtherSlot { operator, slot: name }) }
}

/// Returns the stamp that an entry is stored with.
fn check_entry(slot: &NewSlot, entry: &NewEntry) -> Result<Option<ProcessingTime>, SavepointError> {
    let (name, kind) = (slot.slot.name.clone(), slot.slot.kind);
    let place = &entry.place;
    if !place.fits(kind) {
        return Err(SavepointError::WrongEntry { slot: name, kind: kind.name(), what: place.what(), key: place.show() });
    }
    if place.key_bytes() > KEY_BYTES_MAX {
        return Err(SavepointError::KeyTooLong { slot: name, key: place.show(), bytes: place.key_bytes() });
    }
    let bytes = place.key_bytes().saturating_add(entry.value.len());
    if bytes > BLOCK_BYTES_MAX - ENTRY_OVERHEAD {
        return Err(SavepointError::EntryTooLarge { slot: name, key: place.show(), bytes });
    }
    match (slot.slot.ttl_ms, entry.stamp(slot.used_ms)) {
        (0, None) => Ok(None),
        (0, Some(_)) => Err(SavepointError::Stamp { slot: name, key: place.show() }),
        (_, None) => Err(SavepointError::NoStamp { slot: name, key: place.show() }),
        (_, stamp) => Ok(stamp),
    }
}

/// Shows a stored key.
fn show_key(kind: StateKind, stored: &[u8]) -> String {
    match split_ordered_key(stored).filter(|_| kind.is_map()) {
        Some((key, entry_key)) if kind == StateKind::Map => format!("{}, entry {}", show_bytes(key), show_bytes(entry_key)),
        Some((_, entry_key)) => show_bytes(entry_key),
        None => show_bytes(stored),
    }
}

fn now() -> ProcessingTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ProcessingTime(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
