//! Scenarios in virtual time: 2 sources, an operator of parallelism 2, a sink of parallelism 1: 5 tasks.

mod any_order;
mod asked;
mod failures;
mod inline;
mod savepoint;
mod steps;
mod timing;

use super::*;
use crate::checkpoint::manifest::CheckpointManifest;
use crate::checkpoint::segment::{ContentHash, SectionInfo, SegmentRef};
use crate::checkpoint::storage::{StorageError, StorageErrorKind};
use crate::connector::Transaction;
use crate::graph::spec::{InputSpec, NodeSpec};
use crate::guest::{Descriptor, InputPort, StateKind, StateSlot};
use crate::ids::OperatorId;
use crate::key_group::{KeyGroup, MaxParallelism};
use crate::snapshot::{SectionKind, SubtaskPart, SubtaskSnapshot, TableId};

pub(crate) fn at(ms: u64) -> Now {
    Now { monotonic: MonotonicTime(ms), processing: ProcessingTime(0) }
}

pub(crate) fn spec() -> JobSpec {
    let id = |name: &str| OperatorId::new(name).unwrap();
    let input = |from: &str| vec![InputSpec { from: id(from), from_port: 0, to_port: 0, partition: None }];
    let slot = StateSlot {
        name: "n".into(),
        kind: StateKind::Value,
        codec: "raw".into(),
        schema: String::new(),
        ttl_ms: 0,
        ttl_on_read: false,
        prefetch: true,
    };
    let descriptor = Descriptor {
        inputs: vec![InputPort { name: "in".into(), broadcast: false }],
        outputs: vec!["out".into()],
        slots: vec![slot],
        timers: vec![],
        keyed: true,
        max_batch: 0,
    };
    let node = |name, parallelism, kind, inputs| NodeSpec { id: id(name), parallelism, kind, inputs };
    JobSpec {
        name: "words".into(),
        max_parallelism: MaxParallelism::new(16).unwrap(),
        nodes: vec![
            node("lines", 2, NodeKind::Source, vec![]),
            node("count", 2, NodeKind::Operator(descriptor), input("lines")),
            node("out", 1, NodeKind::Sink, input("count")),
        ],
    }
}

/// Two sources, two operators, one sink.
pub(crate) const TASKS: [TaskIndex; 5] = [TaskIndex(0), TaskIndex(1), TaskIndex(2), TaskIndex(3), TaskIndex(4)];

pub(crate) fn id(checkpoint: u64, attempt: u64, task: TaskIndex) -> SegmentId {
    SegmentId { checkpoint: CheckpointId(checkpoint), attempt: Attempt(attempt), task }
}

/// What a task knows at the cut. The sink has prepared a transaction for this checkpoint.
pub(crate) fn snapshot(id: SegmentId, finished: bool) -> TaskSnapshot {
    let (spec, plan) = (spec(), ExecutionPlan::new(&spec()).unwrap());
    let task = &plan.tasks[id.task.0];
    let node = &spec.nodes[task.nodes[0]];
    let part = match &node.kind {
        NodeKind::Source => SubtaskPart::Source { positions: vec![] },
        NodeKind::Operator(descriptor) => SubtaskPart::Operator { slots: descriptor.slots.clone() },
        NodeKind::Sink => {
            let transaction = Transaction { checkpoint: id.checkpoint, subtask: task.subtask, payload: vec![1] };
            SubtaskPart::Sink { transactions: vec![transaction] }
        }
    };
    let subtask = SubtaskId { operator: node.id.clone(), index: task.subtask };
    let is_operator = matches!(part, SubtaskPart::Operator { .. });
    TaskSnapshot {
        checkpoint: id.checkpoint,
        attempt: id.attempt,
        task: id.task,
        groups: task.groups.clone(),
        tables: is_operator.then(table).into_iter().collect(),
        subtasks: vec![SubtaskSnapshot { id: subtask, watermark: None, finished, part }],
        alignment_us: 7,
    }
}

fn table() -> TableId {
    TableId { operator: OperatorId::new("count").unwrap(), slot: "n".into() }
}

/// What a task has written: operators a base of their first group, others nothing.
pub(crate) fn segment(id: SegmentId) -> Option<SegmentInfo> {
    let snapshot = snapshot(id, false);
    let group = KeyGroup(snapshot.groups.start);
    let section = SectionInfo { table: 0, group, kind: SectionKind::Base, entries: 0, blocks: vec![] };
    let reference = SegmentRef { id, length: 100, hash: ContentHash([0; 16]), inline: None };
    (!snapshot.tables.is_empty()).then(|| SegmentInfo { reference, tables: snapshot.tables, sections: vec![section] })
}

pub(super) struct Bench {
    pub(super) coordinator: Coordinator,
    pub(super) out: Outputs,
    pub(super) now: u64,
}

impl Bench {
    pub(super) fn new(config: CheckpointConfig) -> Self {
        let spec = spec();
        let job = JobDescription::new(&spec, "test", &BTreeMap::new());
        let mut coordinator = Coordinator::new(config, job, &spec, &ExecutionPlan::new(&spec).unwrap());
        coordinator.begin(Attempt(1), at(0));
        Self { coordinator, out: Outputs::default(), now: 0 }
    }

    pub(super) fn take(&mut self, outputs: Outputs) {
        self.out.commands.extend(outputs.commands);
        self.out.outcomes.extend(outputs.outcomes);
    }

    pub(super) fn run(&mut self, act: impl FnOnce(&mut Coordinator, Now) -> Outputs) {
        let outputs = act(&mut self.coordinator, at(self.now));
        self.take(outputs);
    }

    pub(super) fn tick_at(&mut self, ms: u64) {
        self.now = ms;
        self.run(Coordinator::tick);
    }

    pub(super) fn ack(&mut self, checkpoint: u64, task: TaskIndex) {
        let id = id(checkpoint, 1, task);
        self.run(|coordinator, now| coordinator.snapshot_taken(snapshot(id, false), now));
        self.run(|coordinator, now| coordinator.acknowledged(id, segment(id), now));
    }

    pub(super) fn ack_all(&mut self, checkpoint: u64) {
        TASKS.into_iter().for_each(|task| self.ack(checkpoint, task));
    }

    pub(super) fn decline(&mut self, checkpoint: u64, task: TaskIndex) {
        let failure = CheckpointFailure::Declined { task, reason: "disk full".into() };
        self.run(|coordinator, now| coordinator.declined(id(checkpoint, 1, task), failure, now));
    }

    pub(super) fn publish(&mut self, checkpoint: u64) {
        self.run(|coordinator, now| coordinator.published(CheckpointId(checkpoint), now));
    }

    pub(super) fn commit(&mut self, checkpoint: u64) {
        self.run(|coordinator, now| coordinator.committed(CheckpointId(checkpoint), now));
    }

    pub(super) fn complete(&mut self, checkpoint: u64) {
        self.ack_all(checkpoint);
        self.publish(checkpoint);
        self.commit(checkpoint);
    }

    /// What was asked for since the last call, in short.
    pub(super) fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.out.commands).iter().map(say).collect()
    }

    pub(super) fn outcomes(&mut self) -> Vec<CheckpointOutcome> {
        std::mem::take(&mut self.out.outcomes)
    }

    pub(super) fn failures(&mut self) -> usize {
        self.outcomes().iter().filter(|outcome| matches!(outcome, CheckpointOutcome::TooManyFailures { .. })).count()
    }
}

pub(crate) fn say(command: &CheckpointCommand) -> String {
    let numbers = |ids: &[TaskIndex]| ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(",");
    let names = |ids: &[SegmentId]| ids.iter().map(SegmentId::to_string).collect::<Vec<_>>().join(",");
    match command {
        CheckpointCommand::Trigger { checkpoint, tasks, full, stop_sources } => {
            let (full, stop) = (if *full { " in full" } else { "" }, if *stop_sources { " and stop" } else { "" });
            format!("trigger {checkpoint} at {}{full}{stop}", numbers(tasks))
        }
        CheckpointCommand::PublishSavepoint { checkpoint, path, segments, .. } => {
            format!("save {checkpoint} to {path} with {}", names(segments))
        }
        CheckpointCommand::DiscardSavepoint { path } => format!("discard {path}"),
        CheckpointCommand::PublishManifest { checkpoint, .. } => format!("publish {checkpoint}"),
        CheckpointCommand::CommitSinks { checkpoint, transactions, .. } => {
            let all = transactions.values().flatten().map(|transaction| transaction.checkpoint.to_string());
            format!("commit {checkpoint}: {}", all.collect::<Vec<_>>().join(","))
        }
        CheckpointCommand::NotifyCompleted { checkpoint } => format!("completed {checkpoint}"),
        CheckpointCommand::NotifyAborted { checkpoint } => format!("aborted {checkpoint}"),
        CheckpointCommand::Discard { segments } => format!("discard {}", names(segments)),
        CheckpointCommand::Delete(deletion) => {
            let checkpoints: Vec<_> = deletion.checkpoints.iter().map(ToString::to_string).collect();
            format!("delete {} with {}", checkpoints.join(","), names(&deletion.segments))
        }
    }
}

pub(super) fn config() -> CheckpointConfig {
    CheckpointConfig { interval_ms: Some(1000), tolerable_failures: 2, retained: 2, ..CheckpointConfig::default() }
}
