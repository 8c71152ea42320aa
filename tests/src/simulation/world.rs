//! What survives a process: the disk with its checkpoints, and the systems that sources read from and sinks write to.
//!
//! Every operation may fail, before or after it took effect, and may be the last one before the power goes. What has not
//! been made durable by then may be lost. Rules that must hold at every moment are checked here, where they could break.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_dataflow::checkpoint::manifest::CheckpointManifest;
use cofferdam_dataflow::checkpoint::segment::SegmentId;
use cofferdam_dataflow::checkpoint::storage::Fence;
use cofferdam_dataflow::ids::CheckpointId;

use super::random::Random;

/// An operation on the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Reading anything of a checkpoint storage.
    Read,
    /// Creating a segment.
    CreateSegment,
    /// Writing to a segment.
    WriteSegment,
    /// Syncing a segment.
    SyncSegment,
    /// Deleting a segment or a checkpoint.
    Delete,
    /// Publishing a manifest.
    Publish,
    /// Publishing a savepoint.
    Save,
    /// Any other mark or counter of a storage.
    Mark,
    /// Making a sink's transaction durable.
    Stage,
    /// Committing one transaction.
    Commit,
    /// Aborting a sink's transactions.
    Abort,
}

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeds.
    Done,
    /// It fails and has no effect.
    Failed,
    /// It fails, has no effect, and nobody knows whether it had.
    Unknown,
    /// It has its effect and reports an error.
    FailedAfter,
}

/// One row that a sink has written: its key, if it has one, and its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// The record's key.
    pub key: String,
    /// The record's value.
    pub value: String,
}

/// Rows of a transaction that is not committed.
#[derive(Clone, Debug, Default)]
pub struct Staged {
    /// In the order of writing.
    pub rows: Vec<Row>,
    /// Whether they survive the process.
    pub durable: bool,
}

/// A savepoint.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    pub(super) manifest: Vec<u8>,
    pub(super) segments: BTreeMap<SegmentId, Arc<[u8]>>,
    pub(super) committed: bool,
}

/// The files of checkpoints.
#[derive(Debug, Default)]
pub struct Disk {
    /// The counters.
    pub fence: Fence,
    /// Synced segments.
    pub segments: BTreeMap<SegmentId, Arc<[u8]>>,
    /// Deleted segments whose deletion may be undone by a crash.
    pub ghosts: BTreeMap<SegmentId, Arc<[u8]>>,
    /// Manifests that can be read.
    pub manifests: BTreeMap<CheckpointId, Vec<u8>>,
    /// Manifests that may be gone after a crash.
    pub volatile: BTreeSet<CheckpointId>,
    /// Checkpoints that are marked as committed.
    pub committed: BTreeSet<CheckpointId>,
    /// Savepoints by their path.
    pub savepoints: BTreeMap<String, Saved>,
    /// The paths of savepoints that go with a checkpoint.
    pub claimed: BTreeMap<CheckpointId, String>,
    /// The mark of a finished job.
    pub finished: Option<CheckpointId>,
    /// Half-written files under temporary names.
    pub leftovers: usize,
    /// All names that were ever used.
    pub ever: BTreeSet<SegmentId>,
    /// The largest id that was ever published.
    pub published_max: u64,
}

/// All that there is outside of the process.
#[derive(Debug)]
pub struct State {
    pub(super) random: Random,
    /// The files.
    pub disk: Disk,
    /// Visible rows of each sink, in the order in which they became visible.
    pub logs: BTreeMap<String, Vec<Row>>,
    /// Upserted rows of each sink: key to value.
    pub tables: BTreeMap<String, BTreeMap<String, String>>,
    /// Open transactions by sink and number.
    pub staged: BTreeMap<(String, u64), Staged>,
    committed: BTreeSet<(String, u64)>,
    next_transaction: u64,
    /// How far each split may be read.
    pub gates: BTreeMap<String, usize>,
    /// How many records of each split have been read, in all attempts.
    pub reads: BTreeMap<String, u64>,
    /// In how many of 1000 cases an operation fails.
    pub fail_permille: u64,
    /// The n-th operation of its kind from now on, and what becomes of it.
    pub scripted: Vec<(Op, u32, Outcome)>,
    /// So many operations from now, the power goes.
    pub power_for: Option<u64>,
    /// Whether the process is dead and what it does has no effect any more.
    pub dead: bool,
    /// Rules that were broken.
    pub violations: Vec<String>,
    /// Whether checks that need every checkpoint to be whole are left out: a test has damaged one.
    pub damaged: bool,
}

/// Shared by storage, sources, sinks and the test.
#[derive(Clone, Debug)]
pub struct World(Arc<Mutex<State>>);

impl World {
    /// Returns an empty world.
    pub fn new(random: Random) -> Self {
        let state = State {
            random,
            disk: Disk::default(),
            logs: BTreeMap::new(),
            tables: BTreeMap::new(),
            staged: BTreeMap::new(),
            committed: BTreeSet::new(),
            next_transaction: 0,
            gates: BTreeMap::new(),
            reads: BTreeMap::new(),
            fail_permille: 0,
            scripted: Vec::new(),
            power_for: None,
            dead: false,
            violations: Vec::new(),
            damaged: false,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Returns everything. Nothing else may be called meanwhile.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the visible rows of a sink, as `key=value` where there is a key.
    pub fn log(&self, sink: &str) -> Vec<String> {
        self.state().logs.get(sink).into_iter().flatten().map(Row::to_string).collect()
    }

    /// Returns how many records of a split have been read, in all attempts.
    pub fn reads(&self, split: &str) -> u64 {
        self.state().reads.get(split).copied().unwrap_or(0)
    }

    /// Lets these splits be read up to here, not even to their end, and all others to the end.
    pub fn gate(&self, limit: impl IntoIterator<Item = (&'static str, usize)>) {
        self.state().gates = limit.into_iter().map(|(split, limit)| (split.to_owned(), limit)).collect();
    }

    /// The process has ended: what was not durable is lost, or not.
    pub fn crash(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let random = &mut state.random;
        for (id, bytes) in std::mem::take(&mut state.disk.ghosts) {
            if random.chance(300) {
                state.disk.segments.insert(id, bytes);
            }
        }
        for id in std::mem::take(&mut state.disk.volatile) {
            if random.chance(500) {
                state.disk.manifests.remove(&id);
            }
        }
        state.staged.retain(|_, staged| staged.durable || random.chance(500));
        state.dead = false;
        state.power_for = None;
    }

    pub(super) fn next_transaction(&self) -> u64 {
        let mut state = self.state();
        state.next_transaction += 1;
        state.next_transaction
    }
}

impl State {
    /// Decides what becomes of an operation.
    pub(super) fn enter(&mut self, op: Op) -> Outcome {
        if self.dead {
            return Outcome::Failed;
        }
        if let Some(left) = &mut self.power_for {
            if *left == 0 {
                self.dead = true;
                return if self.random.chance(500) { Outcome::Failed } else { Outcome::FailedAfter };
            }
            *left -= 1;
        }
        for index in 0..self.scripted.len() {
            let (kind, countdown, outcome) = &mut self.scripted[index];
            if *kind == op {
                if *countdown == 0 {
                    let outcome = *outcome;
                    self.scripted.remove(index);
                    return outcome;
                }
                *countdown -= 1;
            }
        }
        if self.fail_permille > 0 && self.random.chance(self.fail_permille) {
            return [Outcome::Failed, Outcome::Unknown, Outcome::FailedAfter][self.random.index(3)];
        }
        Outcome::Done
    }

    pub(super) fn violated(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Makes a transaction's rows visible. Returns whether there is such a transaction.
    pub(super) fn commit(&mut self, sink: &str, number: u64) -> bool {
        let id = (sink.to_owned(), number);
        if self.committed.contains(&id) {
            return true;
        }
        if !self.is_promised(sink, number) {
            self.violated(format!("transaction {number} of {sink} is committed, and no checkpoint names it"));
        }
        let Some(staged) = self.staged.remove(&id) else {
            self.violated(format!("transaction {number} of {sink} is to be committed and is gone"));
            return false;
        };
        if !staged.durable {
            self.violated(format!("transaction {number} of {sink} is committed and was not durable"));
        }
        self.logs.entry(sink.to_owned()).or_default().extend(staged.rows);
        self.committed.insert(id);
        true
    }

    /// Whether a checkpoint that exists names a transaction.
    fn is_promised(&self, sink: &str, number: u64) -> bool {
        let manifests = self.disk.manifests.values().filter_map(|bytes| CheckpointManifest::decode(bytes).ok());
        manifests.flat_map(|manifest| manifest.transactions()).any(|(id, transactions)| {
            id.as_str() == sink && transactions.iter().any(|transaction| transaction.payload == number.to_le_bytes())
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() { f.write_str(&self.value) } else { write!(f, "{}={}", self.key, self.value) }
    }
}
