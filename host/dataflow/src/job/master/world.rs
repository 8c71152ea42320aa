//! A world for the master's tests: storage, a transactional sink and tasks, all single-threaded, in virtual time. It dies
//! after any number of durable steps and can be started again.
//!
//! The job counts records 0, 1, 2, ...: its state is how many there were, its output is the records themselves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::checkpoint::config::CheckpointConfig;
use crate::checkpoint::coordinator::CheckpointCommand;
use crate::checkpoint::coordinator::tests::{TASKS, at, id, snapshot, spec};
use crate::checkpoint::memory::MemoryStorage;
use crate::checkpoint::recovery::{Claim, recover};
use crate::checkpoint::segment::{SegmentEncoder, SegmentError, SegmentHeader, SegmentId, SegmentInfo};
use crate::checkpoint::storage::{CheckpointStorage, NewSavepoint, StorageError, StorageErrorKind};
use crate::connector::{SplitPosition, Transaction};
use crate::graph::plan::ExecutionPlan;
use crate::guest::{FaultCode, FaultPhase, GuestFault};
use crate::ids::OperatorId;
use crate::ids::SubtaskId;
use crate::job::restart::RestartPolicy;
use crate::key_group::KeyGroup;
use crate::snapshot::{SectionKind, StateBlock, SubtaskPart};
use crate::state::entry::{Entry, EntryReader};

pub(super) const RECORDS: u64 = 10;
const SOURCE: TaskIndex = TASKS[0];
const SINK: TaskIndex = TASKS[4];

/// The process has been killed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Killed;

/// What outlives a process.
#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) storage: MemoryStorage,
    /// Records by transaction.
    staged: BTreeMap<CheckpointId, Vec<u64>>,
    done: BTreeSet<CheckpointId>,
    /// What a reader of the sink sees.
    pub(super) committed: Vec<u64>,
}

/// What goes wrong; each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A guest traps at this record.
    Trap(u64),
    /// Publishing fails.
    PublishFull,
    /// Publishing succeeds, but the storage cannot tell.
    PublishUnknown,
    /// A commit fails, having done its work.
    CommitLate,
    /// A commit fails, having done nothing.
    CommitFails,
    /// A task cannot write its segment.
    Decline,
    /// A savepoint cannot be written where it is to go.
    SaveFails,
}

pub(super) struct World {
    pub(super) disk: Disk,
    pub(super) master: JobMaster,
    pub(super) log: Vec<String>,
    pub(super) end: Option<JobEnd>,
    pub(super) now: u64,
    /// Durable steps until the process dies.
    budget: usize,
    pub(super) troubles: Vec<Trouble>,
    todo: VecDeque<JobCommand>,
    claim: Claim,
    running: Option<Attempt>,
    /// Records read, and records in the sink's open transaction.
    pub(super) position: u64,
    open: Vec<u64>,
    /// Prepared and not known to be committed.
    prepared: Vec<CheckpointId>,
    source_stopped: bool,
    ended: bool,
    tick: Option<u64>,
}

pub(super) fn setup() -> JobSetup {
    let spec = spec();
    let checkpoints = CheckpointConfig { interval_ms: Some(1000), retained: 2, ..CheckpointConfig::default() };
    JobSetup {
        plan: ExecutionPlan::new(&spec).unwrap(),
        spec,
        digests: BTreeMap::new(),
        imports: BTreeMap::new(),
        engine: "test".into(),
        checkpoints,
        restart: RestartPolicy::default(),
        seed: 1,
        fresh: false,
        allow_rewind: false,
    }
}

impl World {
    pub(super) fn new(disk: Disk, setup: JobSetup, budget: usize) -> Self {
        Self {
            disk,
            master: JobMaster::new(setup),
            log: Vec::new(),
            end: None,
            now: 0,
            budget,
            troubles: Vec::new(),
            todo: VecDeque::new(),
            claim: Claim::default(),
            running: None,
            position: 0,
            open: Vec::new(),
            prepared: Vec::new(),
            source_stopped: false,
            ended: false,
            tick: None,
        }
    }

    /// Runs until the job ends, reading a record every 400 ms.
    pub(super) fn run(&mut self) -> Result<(), Killed> {
        self.send(JobEvent::Start)?;
        for _ in 0..1000 {
            if self.end.is_some() {
                return Ok(());
            }
            self.go_on()?;
        }
        panic!("the job does not end: {:#?}", self.log);
    }

    /// Lets 400 ms pass and the source read a record.
    pub(super) fn go_on(&mut self) -> Result<(), Killed> {
        self.now += 400;
        self.read()?;
        if self.tick.is_some_and(|tick| tick <= self.now) {
            self.tick = None;
            self.send(JobEvent::Tick)?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Killed> {
        let Some(attempt) = self.running else { return Ok(()) };
        if self.source_stopped || self.ended {
            return Ok(());
        }
        if self.position == RECORDS {
            self.ended = true;
            for task in TASKS {
                self.send(JobEvent::TaskEndOfData { attempt, task })?;
            }
            return Ok(());
        }
        if self.strikes(Trouble::Trap(self.position)) {
            return self.send(JobEvent::Failed { attempt, failure: trap(self.position) });
        }
        self.open.push(self.position);
        self.position += 1;
        Ok(())
    }

    fn strikes(&mut self, trouble: Trouble) -> bool {
        let found = self.troubles.iter().position(|other| *other == trouble);
        found.map(|index| self.troubles.remove(index)).is_some()
    }

    pub(super) fn send(&mut self, event: JobEvent) -> Result<(), Killed> {
        let commands = self.master.handle(event, at(self.now));
        self.todo.extend(commands);
        while let Some(command) = self.todo.pop_front() {
            assert!(self.end.is_none(), "nothing follows the end: {command:?}");
            if let Some(event) = self.execute(command)? {
                let commands = self.master.handle(event, at(self.now));
                self.todo.extend(commands);
            }
        }
        Ok(())
    }

    /// One durable step.
    fn step(&mut self) -> Result<(), Killed> {
        self.budget = self.budget.checked_sub(1).ok_or(Killed)?;
        Ok(())
    }

    fn execute(&mut self, command: JobCommand) -> Result<Option<JobEvent>, Killed> {
        match command {
            JobCommand::Recover(options) => {
                self.step()?;
                Ok(Some(match recover(&self.disk.storage, options, &mut self.claim) {
                    Ok(recovery) => JobEvent::Recovered(Box::new(recovery)),
                    Err(error) => JobEvent::RecoverFailed(error),
                }))
            }
            JobCommand::SettleSinks { attempt, checkpoint, commit } => {
                self.disk.storage.check_fence(attempt).unwrap();
                for transaction in commit.values().flatten() {
                    self.commit(transaction)?;
                }
                if let Some(checkpoint) = checkpoint {
                    self.step()?;
                    self.disk.storage.mark_committed(checkpoint).unwrap();
                }
                self.step()?;
                self.disk.staged.clear();
                Ok(Some(JobEvent::SinksSettled))
            }
            JobCommand::StartAttempt { attempt, restore } => self.start(attempt, restore.as_deref()),
            JobCommand::Checkpoint(command) => self.checkpoint(command),
            JobCommand::CancelTasks { attempt } => {
                self.log.push(format!("cancel {attempt}"));
                self.running = None;
                Ok(Some(JobEvent::TasksStopped { attempt }))
            }
            JobCommand::MarkFinished { checkpoint } => {
                self.step()?;
                self.disk.storage.mark_finished(checkpoint).unwrap();
                Ok(Some(JobEvent::FinishedMarked))
            }
            JobCommand::DrainSources { attempt } => {
                self.ended = true;
                for task in TASKS {
                    let commands = self.master.handle(JobEvent::TaskEndOfData { attempt, task }, at(self.now));
                    self.todo.extend(commands);
                }
                Ok(None)
            }
            JobCommand::ScheduleTick { at } => {
                self.tick = Some(at.0);
                Ok(None)
            }
            JobCommand::Report(report) => {
                self.log.push(describe(&report));
                Ok(None)
            }
            JobCommand::End(end) => {
                self.end = Some(end);
                Ok(None)
            }
        }
    }

    /// Starts all tasks: checks that the restored state fits the restored position.
    fn start(&mut self, attempt: Attempt, restore: Option<&RestorePlan>) -> Result<Option<JobEvent>, Killed> {
        (self.running, self.source_stopped, self.ended) = (Some(attempt), false, false);
        (self.position, self.open, self.prepared) = (0, Vec::new(), Vec::new());
        if let Some(restore) = restore {
            let splits = restore.positions.values().next().unwrap();
            self.position = splits["numbers"].position[0].into();
            let mut counts = Vec::new();
            for task in &restore.tasks {
                task.read(&self.disk.storage, |_, _, entries| {
                    for entry in EntryReader::new(entries) {
                        let Ok(Entry::Put { value, .. }) = entry else { panic!() };
                        counts.push(u64::from(value[0]));
                    }
                    Ok::<(), SegmentError>(())
                })
                .unwrap();
            }
            assert_eq!(counts, [self.position; 2], "state and position are of one cut");
        }
        // With nothing left to read, tasks end before the others have started.
        self.ended = self.position == RECORDS;
        for task in TASKS {
            let commands = self.master.handle(JobEvent::TaskStarted { attempt, task }, at(self.now));
            self.todo.extend(commands);
            if self.ended {
                let commands = self.master.handle(JobEvent::TaskEndOfData { attempt, task }, at(self.now));
                self.todo.extend(commands);
            }
        }
        Ok(None)
    }

    fn checkpoint(&mut self, command: CheckpointCommand) -> Result<Option<JobEvent>, Killed> {
        match command {
            CheckpointCommand::Trigger { checkpoint, tasks, stop_sources, .. } => {
                if self.running.is_some() && tasks.contains(&SOURCE) {
                    self.source_stopped |= stop_sources;
                    self.take(checkpoint)?;
                }
                Ok(None)
            }
            CheckpointCommand::PublishManifest { attempt, checkpoint, bytes, spilled } => {
                assert_eq!(spilled, [], "all of it is files");
                if self.strikes(Trouble::PublishFull) {
                    let error = StorageError::new(StorageErrorKind::Full, "no space");
                    return Ok(Some(JobEvent::ManifestFailed { checkpoint, error }));
                }
                self.step()?;
                if let Err(error) = self.disk.storage.publish_manifest(attempt, checkpoint, &bytes) {
                    return Ok(Some(JobEvent::ManifestFailed { checkpoint, error }));
                }
                if self.strikes(Trouble::PublishUnknown) {
                    let error = StorageError::new(StorageErrorKind::Io, "not synced").with_unknown_outcome();
                    return Ok(Some(JobEvent::ManifestFailed { checkpoint, error }));
                }
                Ok(Some(JobEvent::ManifestPublished { checkpoint }))
            }
            command @ CheckpointCommand::PublishSavepoint { .. } => self.save(command),
            CheckpointCommand::DiscardSavepoint { path } => {
                self.step()?;
                self.disk.storage.delete_savepoint(&path).unwrap();
                Ok(None)
            }
            CheckpointCommand::CommitSinks { attempt, checkpoint, transactions, savepoint } => {
                self.disk.storage.check_fence(attempt).unwrap();
                self.commit_all(checkpoint, &transactions, savepoint)
            }
            CheckpointCommand::NotifyCompleted { checkpoint } => {
                self.prepared.retain(|prepared| *prepared > checkpoint);
                Ok(None)
            }
            CheckpointCommand::NotifyAborted { .. } => Ok(None),
            CheckpointCommand::Discard { segments } => {
                for segment in segments {
                    self.step()?;
                    self.disk.storage.delete_segment(segment).unwrap();
                }
                Ok(None)
            }
            CheckpointCommand::Delete(deletion) => {
                for checkpoint in deletion.checkpoints {
                    self.step()?;
                    self.disk.storage.delete_checkpoint(checkpoint).unwrap();
                }
                for segment in deletion.segments {
                    self.step()?;
                    self.disk.storage.delete_segment(segment).unwrap();
                }
                Ok(None)
            }
        }
    }

    fn save(&mut self, command: CheckpointCommand) -> Result<Option<JobEvent>, Killed> {
        let CheckpointCommand::PublishSavepoint { attempt, checkpoint, path, segments, bytes, .. } = command else {
            return Ok(None);
        };
        if self.strikes(Trouble::SaveFails) {
            let error = StorageError::new(StorageErrorKind::Full, "no space");
            return Ok(Some(JobEvent::SavepointFailed { checkpoint, error }));
        }
        self.step()?;
        let savepoint = NewSavepoint { checkpoint, path: &path, segments: &segments, manifest: &bytes };
        Ok(Some(match self.disk.storage.publish_savepoint(attempt, savepoint) {
            Ok(()) => JobEvent::SavepointPublished { checkpoint },
            Err(error) => JobEvent::SavepointFailed { checkpoint, error },
        }))
    }

    fn commit_all(
        &mut self,
        checkpoint: CheckpointId,
        transactions: &BTreeMap<OperatorId, Vec<Transaction>>,
        savepoint: Option<String>,
    ) -> Result<Option<JobEvent>, Killed> {
        let cause = FailureCause::Connector { code: "io", message: "no".into(), transient: true };
        if self.strikes(Trouble::CommitFails) {
            return Ok(Some(JobEvent::CommitFailed { checkpoint, cause }));
        }
        for transaction in transactions.values().flatten() {
            self.commit(transaction)?;
        }
        if self.strikes(Trouble::CommitLate) {
            return Ok(Some(JobEvent::CommitFailed { checkpoint, cause }));
        }
        self.step()?;
        self.disk.storage.mark_committed(checkpoint).unwrap();
        if let Some(path) = savepoint {
            self.step()?;
            self.disk.storage.mark_savepoint_committed(&path, checkpoint).unwrap();
        }
        Ok(Some(JobEvent::SinksCommitted { checkpoint }))
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<(), Killed> {
        self.step()?;
        if self.disk.done.insert(transaction.checkpoint) {
            let records = self.disk.staged.remove(&transaction.checkpoint).expect("prepared or committed");
            self.disk.committed.extend(records);
        }
        Ok(())
    }

    /// All tasks take their snapshot, write and acknowledge.
    fn take(&mut self, checkpoint: CheckpointId) -> Result<(), Killed> {
        let attempt = self.running.expect("only running tasks are triggered");
        let records = std::mem::take(&mut self.open);
        if !records.is_empty() {
            self.step()?;
            self.disk.staged.insert(checkpoint, records);
            self.prepared.push(checkpoint);
        }
        for task in TASKS {
            let id = id(checkpoint.0, attempt.0, task);
            let mut snapshot = snapshot(id, self.ended);
            match &mut snapshot.subtasks[0].part {
                SubtaskPart::Source { positions } if task == SOURCE => positions.push(SplitPosition {
                    split: "numbers".into(),
                    position: vec![u8::try_from(self.position).unwrap()],
                    finished: self.ended,
                    display: String::new(),
                }),
                SubtaskPart::Sink { transactions } => {
                    let prepared = self.prepared.iter();
                    *transactions = prepared.map(|id| Transaction { checkpoint: *id, subtask: 0, payload: vec![] }).collect();
                }
                SubtaskPart::Source { .. } | SubtaskPart::Operator { .. } => {}
            }
            let has_state = !snapshot.tables.is_empty();
            let commands = self.master.handle(JobEvent::SnapshotTaken(snapshot.clone()), at(self.now));
            self.todo.extend(commands);
            if has_state && self.strikes(Trouble::Decline) {
                let reason = DeclineReason::Failed("disk full".into());
                let commands = self.master.handle(JobEvent::Declined { id, reason }, at(self.now));
                self.todo.extend(commands);
                continue;
            }
            let segment = if has_state { Some(self.write(id, &snapshot)?) } else { None };
            let commands = self.master.handle(JobEvent::Acknowledged { id, segment }, at(self.now));
            self.todo.extend(commands);
        }
        debug_assert!(TASKS.contains(&SINK));
        Ok(())
    }

    fn write(&mut self, id: SegmentId, snapshot: &crate::snapshot::TaskSnapshot) -> Result<SegmentInfo, Killed> {
        self.step()?;
        let header = SegmentHeader { job: "words".into(), id, tables: snapshot.tables.clone() };
        let mut encoder = SegmentEncoder::new(self.disk.storage.create_segment(id).unwrap(), header).unwrap();
        let mut bytes = Vec::new();
        Entry::Put { key: b"n", value: &[u8::try_from(self.position).unwrap()] }.encode(&mut bytes);
        let group = KeyGroup(snapshot.groups.start);
        encoder.push(&StateBlock { table: 0, group, kind: SectionKind::Base, entries: 1, bytes }).unwrap();
        let (file, info) = encoder.finish().unwrap();
        file.sync().unwrap();
        Ok(info)
    }
}

pub(super) fn trap(position: u64) -> Failure {
    let fault = GuestFault::new(FaultCode::GuestTrap, FaultPhase::Data, "unreachable");
    let subtask = SubtaskId { operator: OperatorId::new("count").unwrap(), index: 0 };
    Failure { subtask: Some(subtask), cause: fault.into(), position: Some(format!("record {position}")), place: position + 1 }
}

fn describe(report: &JobReport) -> String {
    match report {
        JobReport::Notice(text) => format!("notice: {text}"),
        JobReport::Running { attempt, restored } => {
            format!("running {attempt} from {}", restored.map_or("nothing".into(), |id| id.to_string()))
        }
        JobReport::CheckpointCompleted { checkpoint, purpose, .. } => format!("completed {checkpoint} ({purpose:?})"),
        JobReport::CheckpointFailed { checkpoint, failure, .. } => format!("failed {checkpoint}: {failure}"),
        JobReport::AskedCheckpointTaken { request, checkpoint } => format!("request {request}: checkpoint {checkpoint}"),
        JobReport::SavepointTaken { request, checkpoint, path, .. } => format!("request {request}: {checkpoint} saved to {path}"),
        JobReport::RequestFailed { request, reason } => format!("request {request} failed: {reason}"),
        JobReport::Restarting { failure, delay_ms, .. } => format!("restart in {delay_ms}: {}", failure.cause.code()),
    }
}
