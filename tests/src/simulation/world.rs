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
use super::stores::StoresOnDisk;

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
    /// Finding a source's splits.
    Discover,
    /// Opening a source or a sink.
    Open,
    /// Reading from a source.
    Poll,
    /// Writing to a sink.
    WriteRows,
    /// Reading a store of state.
    ReadStore,
    /// Opening, writing or syncing one.
    WriteStore,
}

impl Op {
    /// Whether it is one that a connector does for records, and not for checkpoints.
    fn is_for_records(self) -> bool {
        matches!(self, Self::Discover | Self::Open | Self::Poll | Self::WriteRows)
    }

    fn is_of_stores(self) -> bool {
        matches!(self, Self::ReadStore | Self::WriteStore)
    }

    /// Whether a full disk refuses it.
    fn needs_space(self) -> bool {
        let is_for_checkpoints = matches!(
            self,
            Self::CreateSegment | Self::WriteSegment | Self::SyncSegment | Self::Publish | Self::Mark | Self::Stage
        );
        is_for_checkpoints || self == Self::WriteStore
    }
}

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeds.
    Done,
    /// It fails and has no effect.
    Failed,
    /// It fails for want of space and has no effect.
    Full,
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
    /// How often they have been removed.
    pub sweeps: u64,
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
    /// The stores of state.
    pub stores: StoresOnDisk,
    /// The process that holds the storage's lock. A test takes it away to let two processes work on one job.
    pub lock: Option<u64>,
    /// The process that raised the fence last.
    pub fenced_by: Option<u64>,
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
    /// The largest segment that is a part of the manifest and not a file, in bytes; 0: all are files.
    pub inline_bytes_max: usize,
    /// In how many of 1000 cases an operation for a checkpoint fails.
    pub fail_permille: u64,
    /// In how many of 10,000 cases a source or sink fails at records.
    pub connectors_fail_per_10k: u64,
    /// How many operations the disk, which is full, refuses before there is space again.
    pub full_for: u32,
    /// How often it has refused one, and how often a source or sink has failed at records.
    pub refused: [u64; 2],
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
            stores: StoresOnDisk::default(),
            lock: None,
            fenced_by: None,
            logs: BTreeMap::new(),
            tables: BTreeMap::new(),
            staged: BTreeMap::new(),
            committed: BTreeSet::new(),
            next_transaction: 0,
            gates: BTreeMap::new(),
            reads: BTreeMap::new(),
            inline_bytes_max: 0,
            fail_permille: 0,
            connectors_fail_per_10k: 0,
            full_for: 0,
            refused: [0; 2],
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

    /// A process is gone: its lock is free.
    pub(super) fn release(&self, process: u64) {
        self.state().lock.take_if(|holder| *holder == process);
    }

    /// The last process has ended: what was not durable is lost, or not.
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
        state.stores.crash(state.dead, random);
        state.dead = false;
        state.power_for = None;
    }

    pub(super) fn next_transaction(&self) -> u64 {
        let mut state = self.state();
        state.next_transaction += 1;
        state.next_transaction
    }
}

/// What a process that owns the job relies on: nobody else may change it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Owned {
    fence: Fence,
    manifests: Vec<CheckpointId>,
    committed: BTreeSet<CheckpointId>,
    finished: Option<CheckpointId>,
    visible: BTreeMap<String, usize>,
    segments: Vec<SegmentId>,
    staged: Vec<(String, u64)>,
}

impl State {
    /// Returns what belongs to the owner of the job: all checkpoints and visible rows; and of segments of its attempt and
    /// transactions, those in `before`, if that is given, for others may add theirs.
    pub(super) fn owned(&self, before: Option<&Owned>) -> Owned {
        let disk = &self.disk;
        let segments = disk.segments.keys().filter(|id| before.is_none_or(|before| before.segments.contains(id)));
        let staged = self.staged.keys().filter(|id| before.is_none_or(|before| before.staged.contains(id)));
        Owned {
            fence: disk.fence,
            manifests: disk.manifests.keys().copied().collect(),
            committed: disk.committed.clone(),
            finished: disk.finished,
            visible: self.logs.iter().map(|(sink, rows)| (sink.clone(), rows.len())).collect(),
            segments: segments.filter(|id| id.attempt.0 == disk.fence.attempt).copied().collect(),
            staged: staged.cloned().collect(),
        }
    }

    /// Decides what becomes of an operation.
    pub(super) fn enter(&mut self, op: Op) -> Outcome {
        if self.dead {
            return Outcome::Failed;
        }
        if let Some(left) = self.power_for.as_mut().filter(|_| !op.is_for_records() && op != Op::ReadStore) {
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
        if op.needs_space() && self.full_for > 0 {
            self.full_for -= 1;
            self.refused[0] += 1;
            return Outcome::Full;
        }
        if op.is_for_records() {
            let fails = self.connectors_fail_per_10k > 0 && self.random.below(10_000) < self.connectors_fail_per_10k;
            self.refused[1] += u64::from(fails);
            return if fails { Outcome::Failed } else { Outcome::Done };
        }
        if op.is_of_stores() {
            let fails = self.stores.fail_per_10k > 0 && self.random.below(10_000) < self.stores.fail_per_10k;
            return if fails { [Outcome::Failed, Outcome::FailedAfter][self.random.index(2)] } else { Outcome::Done };
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
