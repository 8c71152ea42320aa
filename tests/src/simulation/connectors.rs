//! Sources and sinks of the simulated world.

use std::sync::Arc;

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{
    ConnectorContext, ConnectorError, Prepared, Sink, SinkCommitter, SinkFactory, SinkGuarantee, Source, SourceFactory,
    SourceGuarantee, SourcePoll, Split, SplitPosition, Transaction,
};
use cofferdam_dataflow::ids::CheckpointId;
use cofferdam_dataflow::time::{EventTime, ProcessingTime};

use super::random::Random;
use super::world::{Op, Outcome, Row, Staged, World};

/// Lets an operation fail if the world wants that.
fn attempt(world: &World, op: Op) -> Result<(), ConnectorError> {
    match world.state().enter(op) {
        Outcome::Done => Ok(()),
        outcome => Err(ConnectorError::transient("io-injected", format!("{op:?}: {outcome:?}"))),
    }
}

/// One record of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRecord {
    /// Its key.
    pub key: Option<String>,
    /// Its event time in milliseconds.
    pub time: Option<i64>,
    /// Its value.
    pub value: String,
}

/// A source of splits in memory.
#[derive(Clone, Debug)]
pub struct SplitsSource {
    world: World,
    splits: Arc<Vec<(String, Vec<SourceRecord>)>>,
    batch_max: usize,
    /// In how many of 1000 cases nothing is at hand.
    pause_permille: u64,
    /// Whether it begins where the gates stand, without a position.
    live: bool,
    /// Whether a reader that stands before a gate says that it has seen the end.
    says_end: bool,
}

impl SplitsSource {
    /// Returns a source of these splits. A poll brings up to `batch_max` records, or in so many of 1000 cases nothing.
    pub fn new(world: &World, splits: Vec<(String, Vec<SourceRecord>)>, batch_max: usize, pause_permille: u64) -> Self {
        Self { world: world.clone(), splits: Arc::new(splits), batch_max, pause_permille, live: false, says_end: false }
    }

    /// Returns a source of one split, `split`, of records without keys, one a poll.
    pub fn lines(world: &World, split: &str, lines: impl IntoIterator<Item = impl ToString>) -> Self {
        let records = lines.into_iter().map(|line| SourceRecord { value: line.to_string(), ..SourceRecord::default() });
        Self::new(world, vec![(split.to_owned(), records.collect())], 1, 0)
    }

    /// Begins with what arrives from now on (a split has as many records as its gate says), if it has no position.
    #[must_use]
    pub fn from_live_end(self) -> Self {
        Self { live: true, ..self }
    }

    /// Its readers take a gate for the present end of a split, and say so.
    #[must_use]
    pub fn saying_its_end(self) -> Self {
        Self { says_end: true, ..self }
    }

    /// As [`Self::lines`], all with the same key.
    pub fn keyed(world: &World, split: &str, key: &str, values: impl IntoIterator<Item = impl ToString>) -> Self {
        let record = |value: String| SourceRecord { key: Some(key.into()), time: None, value };
        let records = values.into_iter().map(|value| record(value.to_string()));
        Self::new(world, vec![(split.to_owned(), records.collect())], 1, 0)
    }
}

impl SplitsSource {
    fn live_end(&self, split: usize) -> usize {
        let (id, records) = &self.splits[split];
        self.world.state().gates.get(id).copied().unwrap_or(usize::MAX).min(records.len())
    }
}

impl SourceFactory for SplitsSource {
    fn guarantee(&self) -> SourceGuarantee {
        SourceGuarantee { replayable: !self.live, bounded: true }
    }

    fn discover(&self, _: u32) -> Result<Vec<Split>, ConnectorError> {
        attempt(&self.world, Op::Discover)?;
        Ok(self.splits.iter().map(|(id, _)| Split { id: id.clone() }).collect())
    }

    fn open(&self, _: &ConnectorContext, splits: Vec<(Split, Option<SplitPosition>)>) -> Result<Box<dyn Source>, ConnectorError> {
        attempt(&self.world, Op::Open)?;
        let open = |(split, position): (Split, Option<SplitPosition>)| {
            let index = self.splits.iter().position(|(id, _)| *id == split.id).expect("splits come from discover");
            let bytes = position.as_ref().and_then(|position| position.position.as_slice().try_into().ok());
            let begin = if self.live { self.live_end(index) } else { 0 };
            let next = bytes.map_or(begin, |bytes| usize::try_from(u64::from_le_bytes(bytes)).expect("a small number"));
            OpenSplit { index, next, finished: position.is_some_and(|position| position.finished), said_end: false }
        };
        let random = self.world.state().random.fork();
        Ok(Box::new(SplitsReader { source: self.clone(), splits: splits.into_iter().map(open).collect(), random }))
    }
}

struct OpenSplit {
    index: usize,
    next: usize,
    finished: bool,
    said_end: bool,
}

struct SplitsReader {
    source: SplitsSource,
    splits: Vec<OpenSplit>,
    random: Random,
}

impl Source for SplitsReader {
    fn poll(&mut self, _: ProcessingTime, _: usize, batch: &mut Batch) -> Result<SourcePoll, ConnectorError> {
        attempt(&self.source.world, Op::Poll)?;
        let open: Vec<_> = (0..self.splits.len()).filter(|split| !self.splits[*split].finished).collect();
        if open.is_empty() {
            return Ok(SourcePoll::End);
        }
        if self.random.chance(self.source.pause_permille) {
            return Ok(SourcePoll::Pending { retry_after_ms: self.random.below(20) });
        }
        let split = open[self.random.index(open.len())];
        let reading = &mut self.splits[split];
        let (id, records) = &self.source.splits[reading.index];
        let mut state = self.source.world.state();
        let gate = state.gates.get(id).copied().unwrap_or(usize::MAX);
        if gate <= reading.next {
            if self.source.says_end && !std::mem::replace(&mut reading.said_end, true) {
                return Ok(SourcePoll::AtEnd { split });
            }
            return Ok(SourcePoll::Pending { retry_after_ms: 1 });
        }
        if reading.next == records.len() {
            reading.finished = true;
            return Ok(SourcePoll::SplitFinished { split });
        }
        let end = gate.min(records.len()).min(reading.next + 1 + self.random.index(self.source.batch_max));
        for record in &records[reading.next..end] {
            batch.push(record.key.as_ref().map(String::as_bytes), record.time.map(EventTime), record.value.as_bytes());
        }
        *state.reads.entry(id.clone()).or_default() += (end - reading.next) as u64;
        (reading.next, reading.said_end) = (end, false);
        Ok(SourcePoll::Records { split })
    }

    fn positions(&self) -> Vec<SplitPosition> {
        let position = |split: &OpenSplit| SplitPosition {
            split: self.source.splits[split.index].0.clone(),
            position: (split.next as u64).to_le_bytes().to_vec(),
            finished: split.finished,
            display: format!("record {}", split.next),
        };
        self.splits.iter().map(position).collect()
    }
}

/// How a sink makes rows visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// At once.
    Append,
    /// At once, the last value of each key.
    Upsert,
    /// With their checkpoint.
    Transactional,
}

/// A sink of the simulated world.
#[derive(Clone, Debug)]
pub struct SimSink {
    world: World,
    name: String,
    kind: SinkKind,
}

impl SimSink {
    /// Returns a sink. The name must be that of its node.
    pub fn new(world: &World, name: &str, kind: SinkKind) -> Self {
        Self { world: world.clone(), name: name.into(), kind }
    }
}

impl SinkFactory for SimSink {
    fn guarantee(&self) -> SinkGuarantee {
        if self.kind == SinkKind::Transactional { SinkGuarantee::Transactional } else { SinkGuarantee::Immediate }
    }

    fn open(&self, context: &ConnectorContext) -> Result<Box<dyn Sink>, ConnectorError> {
        attempt(&self.world, Op::Open)?;
        Ok(Box::new(SinkWriter { sink: self.clone(), subtask: context.subtask, rows: Vec::new() }))
    }

    fn committer(&self) -> Result<Option<Box<dyn SinkCommitter>>, ConnectorError> {
        let transactional = self.kind == SinkKind::Transactional;
        Ok(transactional.then(|| Box::new(Committer { sink: self.clone() }) as Box<dyn SinkCommitter>))
    }
}

struct SinkWriter {
    sink: SimSink,
    subtask: u32,
    /// Of the open transaction; gone with the process.
    rows: Vec<Row>,
}

impl Sink for SinkWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        attempt(&self.sink.world, Op::WriteRows)?;
        for record in 0..batch.len() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let key = batch.keys.as_ref().map(|keys| text(keys.get(record))).unwrap_or_default();
            let row = Row { key, value: text(batch.values.get(record)) };
            match self.sink.kind {
                SinkKind::Transactional => self.rows.push(row),
                SinkKind::Append => self.sink.world.state().logs.entry(self.sink.name.clone()).or_default().push(row),
                SinkKind::Upsert => {
                    // Rows of the form `key<tab>value` bring their key along.
                    let (key, value) = row.value.split_once('\t').unwrap_or((&row.key, &row.value));
                    let mut state = self.sink.world.state();
                    state.tables.entry(self.sink.name.clone()).or_default().insert(key.into(), value.into());
                }
            }
        }
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Option<Prepared>, ConnectorError> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let number = self.sink.world.next_transaction();
        let id = (self.sink.name.clone(), number);
        let rows = std::mem::take(&mut self.rows);
        self.sink.world.state().staged.insert(id.clone(), Staged { rows, durable: false });
        let transaction = Transaction { checkpoint, subtask: self.subtask, payload: number.to_le_bytes().to_vec() };
        let world = self.sink.world.clone();
        let make_durable = move || {
            let mut state = world.state();
            let outcome = state.enter(Op::Stage);
            if matches!(outcome, Outcome::Done | Outcome::FailedAfter)
                && let Some(staged) = state.staged.get_mut(&id)
            {
                staged.durable = true;
            }
            if outcome == Outcome::Done { Ok(()) } else { Err(ConnectorError::transient("io-write", "injected")) }
        };
        Ok(Some(Prepared { transaction, make_durable: Box::new(make_durable) }))
    }
}

struct Committer {
    sink: SimSink,
}

fn number(transaction: &Transaction) -> u64 {
    u64::from_le_bytes(transaction.payload.as_slice().try_into().expect("written by prepare"))
}

impl SinkCommitter for Committer {
    fn commit(&mut self, transactions: &[Transaction]) -> Result<(), ConnectorError> {
        for transaction in transactions {
            let mut state = self.sink.world.state();
            let outcome = state.enter(Op::Commit);
            if matches!(outcome, Outcome::Done | Outcome::FailedAfter) && !state.commit(&self.sink.name, number(transaction)) {
                return Err(ConnectorError::permanent("sink-transaction-lost", "neither prepared nor committed"));
            }
            if outcome != Outcome::Done {
                return Err(ConnectorError::transient("io-write", "injected"));
            }
        }
        Ok(())
    }

    fn abort_all_except(&mut self, keep: &[Transaction]) -> Result<(), ConnectorError> {
        let mut state = self.sink.world.state();
        let outcome = state.enter(Op::Abort);
        if matches!(outcome, Outcome::Done | Outcome::FailedAfter) {
            let kept = |id: &(String, u64)| id.0 != self.sink.name || keep.iter().any(|keep| number(keep) == id.1);
            state.staged.retain(|id, _| kept(id));
        }
        if outcome == Outcome::Done { Ok(()) } else { Err(ConnectorError::transient("io-write", "injected")) }
    }
}
