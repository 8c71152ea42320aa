//! The snapshot writer: a thread that turns what tasks freeze into durable segments.
//!
//! It compresses, checksums, writes and syncs, off the tasks' threads and one snapshot after another as the blocks come.
//! What waits for it is bounded: tasks stop encoding when it lags behind.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use cofferdam_dataflow::checkpoint::segment::{INLINE_BYTES_MAX, SegmentEncoder, SegmentHeader, SegmentId, SegmentInfo};
use cofferdam_dataflow::checkpoint::storage::{CheckpointStorage, SegmentFile};
use cofferdam_dataflow::connector::{ConnectorError, Prepared};
use cofferdam_dataflow::ids::{Attempt, CheckpointId, TaskIndex};
use cofferdam_dataflow::snapshot::{StateBlock, TaskSnapshot};

/// Bytes of blocks that may wait.
const QUEUE_BYTES: usize = 32 << 20;

/// What the writer is told.
pub enum WriterMessage {
    /// A snapshot has begun.
    Begin {
        /// What is known at the cut.
        snapshot: Box<TaskSnapshot>,
        /// What its sinks prepared.
        prepared: Vec<Prepared>,
    },
    /// State of it.
    Block {
        /// Which snapshot.
        key: SnapshotKey,
        /// The state.
        block: StateBlock,
    },
    /// There is no more.
    End {
        /// Which snapshot.
        key: SnapshotKey,
    },
    /// Nobody wants the snapshots of this checkpoint any more.
    Abort {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Drop the snapshots of this and older attempts, whose tasks are gone, and say so.
    Reset {
        /// The attempt.
        attempt: Attempt,
        /// Called when that is done.
        done: Box<dyn FnOnce() + Send>,
    },
}

/// Which snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotKey {
    /// The attempt.
    pub attempt: Attempt,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The task.
    pub task: TaskIndex,
}

/// What became of a snapshot.
pub enum Written {
    /// It has begun: what is known at the cut.
    Begun(Box<TaskSnapshot>),
    /// Everything it names is durable. `segment` is `None` for a task without state.
    Durable {
        /// Which snapshot.
        key: SnapshotKey,
        /// Its state; durable, or so small that it is to be part of the manifest.
        segment: Option<SegmentInfo>,
    },
    /// It could not be written; nothing of it counts.
    Failed {
        /// Which snapshot.
        key: SnapshotKey,
        /// Why.
        reason: String,
    },
    /// Output that a sink has prepared could not be made durable: no later checkpoint may promise it.
    OutputLost {
        /// Which snapshot.
        key: SnapshotKey,
        /// Why.
        error: ConnectorError,
    },
}

/// The tasks' end of the writer.
#[derive(Clone)]
pub(super) struct WriterHandle {
    sender: Sender<WriterMessage>,
    queued_bytes: Arc<AtomicUsize>,
}

impl WriterHandle {
    /// Whether blocks may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.queued_bytes.load(Ordering::Relaxed) < QUEUE_BYTES
    }

    /// Sends a message. Lost if the writer has ended, which it does last of all.
    pub(super) fn send(&self, message: WriterMessage) {
        if let WriterMessage::Block { block, .. } = &message {
            self.queued_bytes.fetch_add(block.bytes.len(), Ordering::Relaxed);
        }
        drop(self.sender.send(message));
    }
}

/// Starts the writer. It ends when every handle is gone.
pub(super) fn start(
    job: String,
    storage: Arc<dyn CheckpointStorage>,
    report: impl Fn(Written) + Send + 'static,
) -> io::Result<(WriterHandle, JoinHandle<()>)> {
    let (sender, receiver) = channel();
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    let handle = WriterHandle { sender, queued_bytes: Arc::clone(&queued_bytes) };
    let writer = Writer::new(job, storage, report);
    let thread =
        std::thread::Builder::new().name("snapshot-writer".into()).spawn(move || writer.run(&receiver, &queued_bytes))?;
    Ok((handle, thread))
}

/// Writes snapshots, block by block.
pub struct Writer<R> {
    job: String,
    storage: Arc<dyn CheckpointStorage>,
    open: BTreeMap<SnapshotKey, Snapshot>,
    /// What snapshots that came to nothing had prepared. Later snapshots of their tasks name it, too, so it becomes
    /// durable with the next that ends.
    carried: BTreeMap<(Attempt, TaskIndex), Vec<Prepared>>,
    report: R,
}

type Encoder = SegmentEncoder<SegmentOut>;

/// Where a segment is written: into memory, and from the byte on that makes it too large for a manifest, into a file.
struct SegmentOut {
    storage: Arc<dyn CheckpointStorage>,
    id: SegmentId,
    /// All of it, until there is a file.
    small: Vec<u8>,
    file: Option<BufWriter<Box<dyn SegmentFile>>>,
}

impl Write for SegmentOut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.file.is_none() {
            if self.small.len() + bytes.len() <= self.storage.inline_bytes_max().min(INLINE_BYTES_MAX) {
                self.small.extend_from_slice(bytes);
                return Ok(bytes.len());
            }
            let file = self.storage.create_segment(self.id).map_err(io::Error::other)?;
            let mut file = BufWriter::with_capacity(256 << 10, file);
            file.write_all(&std::mem::take(&mut self.small))?;
            self.file = Some(file);
        }
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

struct Snapshot {
    /// `None` until the first block: a task without state writes nothing.
    encoder: Option<Encoder>,
    header: SegmentHeader,
    prepared: Vec<Prepared>,
}

impl<R: Fn(Written)> Writer<R> {
    /// Returns a writer that tells `report` what becomes of each snapshot.
    pub fn new(job: String, storage: Arc<dyn CheckpointStorage>, report: R) -> Self {
        Self { job, storage, open: BTreeMap::new(), carried: BTreeMap::new(), report }
    }

    fn run(mut self, receiver: &Receiver<WriterMessage>, queued_bytes: &AtomicUsize) {
        while let Ok(message) = receiver.recv() {
            if let WriterMessage::Block { block, .. } = &message {
                queued_bytes.fetch_sub(block.bytes.len(), Ordering::Relaxed);
            }
            self.take(message);
        }
    }

    /// Does what a message says.
    pub fn take(&mut self, message: WriterMessage) {
        match message {
            WriterMessage::Begin { snapshot, prepared } => self.begin(snapshot, prepared),
            WriterMessage::Block { key, block } => {
                if let Err(reason) = self.block(key, &block) {
                    self.fail(key, reason);
                }
            }
            WriterMessage::End { key } => self.end(key),
            WriterMessage::Abort { checkpoint } => self.drop_where(|key| key.checkpoint == checkpoint),
            WriterMessage::Reset { attempt, done } => {
                self.drop_where(|key| key.attempt <= attempt);
                self.carried.clear();
                done();
            }
        }
    }

    fn begin(&mut self, snapshot: Box<TaskSnapshot>, prepared: Vec<Prepared>) {
        let &TaskSnapshot { attempt, checkpoint, task, ref tables, .. } = &*snapshot;
        let id = SegmentId { checkpoint, attempt, task };
        let header = SegmentHeader { job: self.job.clone(), id, tables: tables.clone() };
        self.open.insert(SnapshotKey { attempt, checkpoint, task }, Snapshot { encoder: None, header, prepared });
        // The task has told nobody else: each message wakes a thread, while everything waits for the task to go on.
        (self.report)(Written::Begun(snapshot));
    }

    fn block(&mut self, key: SnapshotKey, block: &StateBlock) -> Result<(), String> {
        // A snapshot that failed or was aborted: its last blocks may still come.
        let Some(snapshot) = self.open.get_mut(&key) else {
            return Ok(());
        };
        let encoder = match &mut snapshot.encoder {
            Some(encoder) => encoder,
            none => {
                let (storage, id) = (Arc::clone(&self.storage), snapshot.header.id);
                let out = SegmentOut { storage, id, small: Vec::new(), file: None };
                let encoder = SegmentEncoder::new(out, snapshot.header.clone()).map_err(|error| error_text(&error))?;
                none.insert(encoder.compressing(self.storage.compressor()))
            }
        };
        encoder.push(block).map_err(|error| error_text(&error))
    }

    fn end(&mut self, key: SnapshotKey) {
        let Some(snapshot) = self.open.remove(&key) else {
            return;
        };
        // A task ends its snapshots in order: an older one that is open was given up before it had begun.
        self.drop_where(|open| (open.attempt, open.task) == (key.attempt, key.task) && open.checkpoint < key.checkpoint);
        let carried = self.carried.remove(&(key.attempt, key.task)).unwrap_or_default();
        for prepared in carried.into_iter().chain(snapshot.prepared) {
            if let Err(error) = (prepared.make_durable)() {
                self.delete(key);
                return (self.report)(Written::OutputLost { key, error });
            }
        }
        match snapshot.encoder.map(finish).transpose() {
            Ok(segment) => (self.report)(Written::Durable { key, segment }),
            Err(reason) => {
                self.delete(key);
                (self.report)(Written::Failed { key, reason });
            }
        }
    }

    fn fail(&mut self, key: SnapshotKey, reason: String) {
        self.forget(key);
        (self.report)(Written::Failed { key, reason });
    }

    fn drop_where(&mut self, is_unwanted: impl Fn(&SnapshotKey) -> bool) {
        let unwanted: Vec<_> = self.open.keys().filter(|key| is_unwanted(key)).copied().collect();
        for key in unwanted {
            self.forget(key);
        }
    }

    /// Drops a snapshot, but for what it had prepared.
    fn forget(&mut self, key: SnapshotKey) {
        if let Some(snapshot) = self.open.remove(&key) {
            self.carried.entry((key.attempt, key.task)).or_default().extend(snapshot.prepared);
        }
        self.delete(key);
    }

    /// Deletes what there may be of a segment. What remains is an orphan, which the next start removes.
    fn delete(&self, key: SnapshotKey) {
        let id = SegmentId { checkpoint: key.checkpoint, attempt: key.attempt, task: key.task };
        if let Err(error) = self.storage.delete_segment(id) {
            tracing::warn!(%error, "could not delete an abandoned segment");
        }
    }
}

/// Closes a segment and makes it durable, unless it is so small that it will be durable with the manifest.
fn finish(encoder: Encoder) -> Result<SegmentInfo, String> {
    let (out, mut info) = encoder.finish().map_err(|error| error_text(&error))?;
    match out.file {
        Some(file) => {
            let file = file.into_inner().map_err(|error| error_text(error.error()))?;
            file.sync().map_err(|error| error_text(&error))?;
        }
        None => info.reference.inline = Some(out.small.into()),
    }
    Ok(info)
}

/// Returns an error's text with its sources'.
pub(super) fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
