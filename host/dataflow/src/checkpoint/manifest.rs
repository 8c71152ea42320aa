//! The manifest: the file that makes a checkpoint exist and binds all its parts. docs/checkpoint-format.md has the bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::chains::{Chain, StateChains};
use super::frame::{self, FrameError};
use super::segment::{ContentHash, INLINE_TOTAL_BYTES_MAX, SegmentRef};
use crate::connector::Transaction;
use crate::guest::StateSlot;
use crate::ids::{Attempt, CheckpointId, OperatorId};
use crate::key_group::{KeyGroup, MaxParallelism};
use crate::snapshot::{SubtaskPart, SubtaskSnapshot, TableId};
use crate::time::ProcessingTime;

/// The version of the manifest format that is written, and the newest that is read.
pub const MANIFEST_FORMAT: u32 = 2;
/// The version before segments could be parts of a manifest. It lacks the list of them and is otherwise the same.
const FORMAT_WITHOUT_INLINE: u32 = 1;

/// The id of the way from a key to its group: see [`crate::key_group`].
pub const KEY_GROUP_HASH: u8 = 1;

pub(super) const MAGIC: [u8; 8] = *b"cofman\r\n";

/// What is known of a job's node beside its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestNode {
    /// The user's name.
    pub id: OperatorId,
    /// How many subtasks it had.
    pub parallelism: u32,
    /// What it was.
    pub kind: ManifestNodeKind,
}

/// What a node was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ManifestNodeKind {
    /// A source.
    Source,
    /// An operator.
    Operator {
        /// Names the component's bytes; empty for a native twin.
        digest: String,
        /// Its declared slots.
        slots: Vec<StateSlot>,
        /// The interfaces that the component imports: what it could use.
        imports: Vec<String>,
    },
    /// A sink.
    Sink,
}

impl ManifestNodeKind {
    /// Returns the name that messages use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Operator { .. } => "operator",
            Self::Sink => "sink",
        }
    }
}

/// A completed checkpoint: everything a restore needs, but for the segments that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointManifest {
    /// The job's name.
    pub job: String,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The attempt that took it.
    pub attempt: Attempt,
    /// The completed checkpoint before it.
    pub parent: Option<CheckpointId>,
    /// When it was triggered, for people.
    pub created: ProcessingTime,
    /// The host that wrote it, for people.
    pub engine: String,
    /// The number of key groups.
    pub max_parallelism: MaxParallelism,
    /// Whether all input had ended: nothing is left to run.
    pub is_final: bool,
    /// The job's nodes.
    pub nodes: Vec<ManifestNode>,
    /// One for each subtask of each node.
    pub subtasks: Vec<SubtaskSnapshot>,
    /// Where the keyed state is.
    pub state: StateChains,
}

/// A manifest that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The file as a whole.
    #[error("the manifest cannot be read: {0}")]
    Frame(FrameError),
    /// The body, though its hash is right.
    #[error("the manifest cannot be read: {0}")]
    Body(String),
    /// Keys are mapped to groups in a way that this host does not know.
    #[error("the manifest uses key-group hash {0}; this host knows {KEY_GROUP_HASH}")]
    KeyGroupHash(u8),
}

impl CheckpointManifest {
    /// Returns the transactions to commit, by sink, in the order of subtasks and checkpoints.
    pub fn transactions(&self) -> BTreeMap<OperatorId, Vec<Transaction>> {
        let mut by_sink: BTreeMap<OperatorId, Vec<Transaction>> = BTreeMap::new();
        for subtask in &self.subtasks {
            if let SubtaskPart::Sink { transactions } = &subtask.part {
                by_sink.entry(subtask.id.operator.clone()).or_default().extend(transactions.iter().cloned());
            }
        }
        by_sink.retain(|_, transactions| !transactions.is_empty());
        by_sink
    }

    /// Returns the bytes of the file. The same manifest gives the same bytes.
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(&Body::from(self)).expect("a manifest has no unsized parts");
        frame::wrap(MAGIC, MANIFEST_FORMAT, &body)
    }

    /// Reads a file and checks that it fits together.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (version, body) =
            frame::unwrap(MAGIC, FORMAT_WITHOUT_INLINE..=MANIFEST_FORMAT, bytes).map_err(ManifestError::Frame)?;
        let mut body = Cow::Borrowed(body);
        if version == FORMAT_WITHOUT_INLINE {
            // An empty list.
            body.to_mut().push(0);
        }
        match postcard::take_from_bytes::<Body>(&body) {
            Ok((body, [])) => body.check(),
            Ok(_) => Err(ManifestError::Body("it has trailing bytes".into())),
            Err(error) => Err(ManifestError::Body(error.to_string())),
        }
    }
}

/// The manifest as it is encoded: chains that many key groups share are written once.
#[derive(Serialize, Deserialize)]
struct Body {
    job: String,
    checkpoint: CheckpointId,
    attempt: Attempt,
    parent: Option<CheckpointId>,
    created: ProcessingTime,
    engine: String,
    max_parallelism: u16,
    key_group_hash: u8,
    is_final: bool,
    nodes: Vec<ManifestNode>,
    subtasks: Vec<SubtaskSnapshot>,
    segments: Vec<SegmentRef>,
    /// Indices into `segments`, oldest first.
    chains: Vec<Vec<u32>>,
    tables: Vec<TableBody>,
    /// The segments that are no files, ascending by index.
    inline: Vec<InlineBody>,
}

#[derive(Serialize, Deserialize)]
struct InlineBody {
    /// An index into `segments`.
    segment: u32,
    bytes: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct TableBody {
    table: TableId,
    /// Ascending; key groups outside of all runs are empty.
    runs: Vec<Run>,
}

/// Neighbouring key groups with the same chain.
#[derive(Serialize, Deserialize)]
struct Run {
    first: u16,
    groups: u16,
    /// An index into `chains`.
    chain: u32,
}

impl From<&CheckpointManifest> for Body {
    fn from(manifest: &CheckpointManifest) -> Self {
        let segments: Vec<SegmentRef> = manifest.state.segments().values().cloned().collect();
        let position = |id| segments.binary_search_by_key(id, |segment| segment.id).expect("chains name noted segments");
        let index = |position: usize| u32::try_from(position).expect("far below 4 billion segments");
        let mut chains: Vec<Vec<u32>> = Vec::new();
        let mut known: BTreeMap<&Chain, u32> = BTreeMap::new();
        let mut tables = Vec::new();
        for (table, groups) in manifest.state.tables() {
            let mut runs: Vec<Run> = Vec::new();
            for (group, chain) in groups {
                let chain = *known.entry(chain).or_insert_with(|| {
                    chains.push(chain.iter().map(|id| index(position(id))).collect());
                    index(chains.len() - 1)
                });
                match runs.last_mut() {
                    Some(run) if run.chain == chain && run.first + run.groups == group.0 => run.groups += 1,
                    _ => runs.push(Run { first: group.0, groups: 1, chain }),
                }
            }
            tables.push(TableBody { table: table.clone(), runs });
        }
        let inlined = segments.iter().enumerate().filter_map(|(at, segment)| Some((at, segment.inline.as_deref()?)));
        let inline = inlined.map(|(at, bytes)| InlineBody { segment: index(at), bytes: bytes.to_vec() }).collect();
        Self {
            job: manifest.job.clone(),
            checkpoint: manifest.checkpoint,
            attempt: manifest.attempt,
            parent: manifest.parent,
            created: manifest.created,
            engine: manifest.engine.clone(),
            max_parallelism: manifest.max_parallelism.get(),
            key_group_hash: KEY_GROUP_HASH,
            is_final: manifest.is_final,
            nodes: manifest.nodes.clone(),
            subtasks: manifest.subtasks.clone(),
            segments,
            chains,
            tables,
            inline,
        }
    }
}

impl Body {
    fn check(mut self) -> Result<CheckpointManifest, ManifestError> {
        if self.key_group_hash != KEY_GROUP_HASH {
            return Err(ManifestError::KeyGroupHash(self.key_group_hash));
        }
        let broken = |what: String| Err(ManifestError::Body(what));
        let Some(max_parallelism) = MaxParallelism::new(self.max_parallelism.into()) else {
            return broken(format!("max-parallelism {} is not 1 to 32768", self.max_parallelism));
        };
        let names: BTreeSet<_> = self.nodes.iter().map(|node| &node.id).collect();
        if names.len() != self.nodes.len() {
            return broken("a node is listed twice".into());
        }
        if let Some(node) = self.nodes.iter().find(|node| !(1..=u32::from(self.max_parallelism)).contains(&node.parallelism)) {
            return broken(format!("\"{}\" has parallelism {}", node.id, node.parallelism));
        }
        let expected: usize = self.nodes.iter().map(|node| node.parallelism as usize).sum();
        let subtasks: BTreeSet<_> = self.subtasks.iter().map(|subtask| &subtask.id).collect();
        let parallelism = |id: &OperatorId| self.nodes.iter().find(|node| node.id == *id).map_or(0, |node| node.parallelism);
        let belong = subtasks.iter().all(|id| id.index < parallelism(&id.operator));
        if subtasks.len() != expected || self.subtasks.len() != expected || !belong {
            return broken("the subtasks are not those of the nodes".into());
        }
        self.take_inline()?;
        let state = self.state()?;
        Ok(CheckpointManifest {
            job: self.job,
            checkpoint: self.checkpoint,
            attempt: self.attempt,
            parent: self.parent,
            created: self.created,
            engine: self.engine,
            max_parallelism,
            is_final: self.is_final,
            nodes: self.nodes,
            subtasks: self.subtasks,
            state,
        })
    }

    /// Puts the bytes of segments that are no files where they are referred to.
    fn take_inline(&mut self) -> Result<(), ManifestError> {
        let broken = |what: &str| Err(ManifestError::Body(what.into()));
        if !self.inline.is_sorted_by(|a, b| a.segment < b.segment) {
            return broken("its inlined segments are not in order");
        }
        if self.inline.iter().map(|inline| inline.bytes.len()).sum::<usize>() > INLINE_TOTAL_BYTES_MAX {
            return broken("its inlined segments have too many bytes");
        }
        for inline in std::mem::take(&mut self.inline) {
            let Some(segment) = self.segments.get_mut(inline.segment as usize) else {
                return broken("an inlined segment is not listed");
            };
            if inline.bytes.len() as u64 != segment.length || ContentHash::of(&inline.bytes) != segment.hash {
                return broken("an inlined segment is not the one that is listed");
            }
            segment.inline = Some(Arc::from(inline.bytes));
        }
        Ok(())
    }

    fn state(&self) -> Result<StateChains, ManifestError> {
        let broken = |what: &str| Err(ManifestError::Body(what.into()));
        let mut state = StateChains::default();
        for segment in &self.segments {
            state.note(segment.clone());
        }
        if !self.segments.is_sorted_by(|a, b| a.id < b.id) {
            return broken("its segments are not in order");
        }
        // What applies later must come later: a restore reads the segments in the order of their names.
        if !self.chains.iter().all(|chain| chain.is_sorted_by(|a, b| a < b)) {
            return broken("a chain is not in order");
        }
        if !self.tables.is_sorted_by(|a, b| a.table < b.table) {
            return broken("its tables are not in order");
        }
        for table in &self.tables {
            let mut free_from = 0;
            for run in &table.runs {
                let end = u32::from(run.first) + u32::from(run.groups);
                if u32::from(run.first) < free_from || end > u32::from(self.max_parallelism) {
                    return broken("its key groups overlap or exceed max-parallelism");
                }
                free_from = end;
                let Some(indices) = self.chains.get(run.chain as usize) else {
                    return broken("a key group refers to a chain that is not listed");
                };
                let segments: Option<Chain> =
                    indices.iter().map(|index| self.segments.get(*index as usize).map(|segment| segment.id)).collect();
                let Some(chain) = segments else {
                    return broken("a chain refers to a segment that is not listed");
                };
                for group in run.first..run.first + run.groups {
                    state.set(&table.table, KeyGroup(group), chain.clone());
                }
            }
        }
        Ok(state)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::chains::tests::{table, written};
    use super::*;
    use crate::checkpoint::segment::{SegmentId, SegmentInfo};
    use crate::connector::SplitPosition;
    use crate::ids::{SubtaskId, TaskIndex};
    use crate::snapshot::SectionKind::{Base, Delta};
    use crate::time::{EventTime, Watermark};

    fn subtask(operator: &str, index: u32, part: SubtaskPart) -> SubtaskSnapshot {
        let id = SubtaskId { operator: OperatorId::new(operator).unwrap(), index };
        SubtaskSnapshot { id, watermark: Some(Watermark(EventTime(-5))), finished: false, part }
    }

    fn transaction(checkpoint: u64, subtask: u32) -> Transaction {
        Transaction { checkpoint: CheckpointId(checkpoint), subtask, payload: vec![1, 2] }
    }

    /// Makes a segment a part of the manifest.
    pub(in crate::checkpoint) fn inlined(mut segment: SegmentInfo) -> SegmentInfo {
        let bytes: Arc<[u8]> = vec![7; usize::try_from(segment.reference.length).unwrap()].into();
        segment.reference.hash = ContentHash::of(&bytes);
        segment.reference.inline = Some(bytes);
        segment
    }

    pub(in crate::checkpoint) fn manifest() -> CheckpointManifest {
        let node = |id: &str, parallelism, kind| ManifestNode { id: OperatorId::new(id).unwrap(), parallelism, kind };
        let position = SplitPosition { split: "a".into(), position: vec![9], finished: true, display: "line 4".into() };
        let all: Vec<_> = (0..100).map(|group| (group, Base)).collect();
        let (base, delta) = (inlined(written(1, &all)), inlined(written(2, &[(40, Delta), (41, Delta)])));
        let state = StateChains::default().advance(&[base], &[]).advance(&[delta], &[]);
        CheckpointManifest {
            job: "words".into(),
            checkpoint: CheckpointId(2),
            attempt: Attempt(1),
            parent: Some(CheckpointId(1)),
            created: ProcessingTime(1_700_000_000_000),
            engine: "cofferdam 0.1.0".into(),
            max_parallelism: MaxParallelism::new(128).unwrap(),
            is_final: false,
            nodes: vec![
                node("lines", 1, ManifestNodeKind::Source),
                node("count", 1, ManifestNodeKind::Operator { digest: "abc".into(), slots: vec![], imports: vec!["log".into()] }),
                node("out", 2, ManifestNodeKind::Sink),
            ],
            subtasks: vec![
                subtask("lines", 0, SubtaskPart::Source { positions: vec![position] }),
                subtask("count", 0, SubtaskPart::Operator { slots: vec![] }),
                subtask("out", 0, SubtaskPart::Sink { transactions: vec![transaction(1, 0), transaction(2, 0)] }),
                subtask("out", 1, SubtaskPart::Sink { transactions: vec![transaction(2, 1)] }),
            ],
            state,
        }
    }

    fn decode_changed(change: impl FnOnce(&mut Body)) -> Result<CheckpointManifest, ManifestError> {
        let mut body = Body::from(&manifest());
        change(&mut body);
        let body = postcard::to_stdvec(&body).unwrap();
        CheckpointManifest::decode(&frame::wrap(MAGIC, MANIFEST_FORMAT, &body))
    }

    #[test]
    fn a_manifest_comes_back_as_it_went_in() {
        let manifest = manifest();
        assert_eq!(CheckpointManifest::decode(&manifest.encode()), Ok(manifest.clone()));
        let sink = OperatorId::new("out").unwrap();
        assert_eq!(manifest.transactions()[&sink], [transaction(1, 0), transaction(2, 0), transaction(2, 1)]);
        assert_eq!(manifest.state.tables()[&table()][&KeyGroup(41)].len(), 2);
    }

    #[test]
    fn key_groups_that_share_a_chain_share_its_bytes() {
        let body = Body::from(&manifest());
        assert_eq!(body.chains, [vec![0], vec![0, 1]]);
        assert_eq!(body.tables[0].runs.len(), 3);
    }

    #[test]
    fn a_manifest_of_the_version_before_lacks_the_list_of_inlined_segments_alone() {
        let mut manifest = manifest();
        manifest.state.set_file(SegmentId { checkpoint: CheckpointId(1), attempt: Attempt(1), task: TaskIndex(0) });
        manifest.state.set_file(SegmentId { checkpoint: CheckpointId(2), attempt: Attempt(1), task: TaskIndex(0) });
        let body = postcard::to_stdvec(&Body::from(&manifest)).unwrap();
        let (list, before) = body.split_last().unwrap();
        assert_eq!(*list, 0);
        assert_eq!(CheckpointManifest::decode(&frame::wrap(MAGIC, FORMAT_WITHOUT_INLINE, before)), Ok(manifest));
        assert!(CheckpointManifest::decode(&frame::wrap(MAGIC, FORMAT_WITHOUT_INLINE, &body)).is_err());
    }

    #[test]
    fn a_flipped_bit_or_a_cut_is_an_error() {
        let bytes = manifest().encode();
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            assert!(CheckpointManifest::decode(&broken).is_err(), "byte {at}");
            assert!(CheckpointManifest::decode(&bytes[..at]).is_err(), "length {at}");
        }
    }

    #[test]
    fn a_manifest_that_does_not_fit_together_is_refused() {
        assert!(decode_changed(|_| ()).is_ok());
        for (index, change) in [
            (|body: &mut Body| body.max_parallelism = 0) as fn(&mut Body),
            |body| body.max_parallelism = 50,
            |body| body.key_group_hash = 2,
            |body| body.nodes[1].id = body.nodes[0].id.clone(),
            |body| body.nodes[2].parallelism = 3,
            |body| body.nodes[2].parallelism = u32::MAX,
            |body| drop(body.subtasks.pop()),
            |body| body.subtasks[3].id.index = 2,
            |body| body.subtasks[3].id.index = 0,
            |body| body.chains.truncate(1),
            |body| body.segments.truncate(1),
            |body| body.segments.swap(0, 1),
            |body| body.segments[1] = body.segments[0].clone(),
            |body| body.chains[1].reverse(),
            |body| body.chains[1] = vec![0, 0],
            |body| body.tables.push(TableBody { table: table(), runs: vec![] }),
            |body| body.tables[0].runs[1].first = 39,
            |body| body.tables[0].runs[2].groups = u16::MAX,
            |body| body.inline.swap(0, 1),
            |body| body.inline[1].segment = 2,
            |body| body.inline[1].segment = 0,
            |body| body.inline[0].bytes[0] ^= 1,
            |body| body.inline[0].bytes.push(0),
            |body| body.inline[0].bytes = vec![0; INLINE_TOTAL_BYTES_MAX],
        ]
        .into_iter()
        .enumerate()
        {
            assert!(decode_changed(change).is_err(), "change {index}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_with_both_numbers() {
        let bytes = frame::wrap(MAGIC, 3, b"");
        let error = CheckpointManifest::decode(&bytes).unwrap_err().to_string();
        assert_eq!(error, "the manifest cannot be read: it has format 3; this host reads up to 2");
    }
}
