//! Scenarios in virtual time: 2 sources, an operator of parallelism 2, a sink of parallelism 1: 5 tasks.

use proptest::prelude::*;

use super::savepoint_tests::order;
use super::*;
use crate::checkpoint::segment::{ContentHash, SectionInfo, SegmentRef};
use crate::connector::Transaction;
use crate::graph::spec::{InputSpec, NodeSpec};
use crate::guest::{Descriptor, InputPort, StateKind, StateSlot};
use crate::key_group::KeyGroup;
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
    let reference = SegmentRef { id, length: 100, hash: ContentHash([0; 16]) };
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

#[test]
fn a_checkpoint_goes_through_its_steps_in_order() {
    let mut bench = Bench::new(config());
    bench.tick_at(999);
    assert!(bench.said().is_empty());
    bench.tick_at(1000);
    assert_eq!(bench.said(), ["trigger 1 at 0,1"]);
    TASKS[..4].iter().for_each(|task| bench.ack(1, *task));
    assert!(bench.said().is_empty(), "four of five");
    bench.ack(1, TASKS[4]);
    assert_eq!(bench.said(), ["publish 1"]);
    bench.commit(1);
    assert!(bench.said().is_empty(), "nothing is committed before the manifest is durable");
    bench.publish(1);
    assert_eq!(bench.said(), ["commit 1: 1"]);
    bench.now = 1200;
    bench.commit(1);
    let outcomes = bench.out.outcomes.clone();
    assert_eq!(bench.said(), ["completed 1"]);
    let expected = CheckpointOutcome::Completed {
        checkpoint: CheckpointId(1),
        purpose: CheckpointPurpose::Periodic,
        is_final: false,
        duration_ms: 200,
        written_bytes: 200,
        state_bytes: 200,
        alignment_us_max: 7,
    };
    assert_eq!(outcomes, [expected]);
}

#[test]
fn the_manifest_lists_every_subtask_and_every_segment() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack_all(1);
    let Some(CheckpointCommand::PublishManifest { bytes, .. }) = bench.out.commands.last() else { panic!() };
    let manifest = CheckpointManifest::decode(bytes).unwrap();
    let subtasks: Vec<_> = manifest.subtasks.iter().map(|subtask| subtask.id.to_string()).collect();
    assert_eq!(subtasks, ["count[0]", "count[1]", "lines[0]", "lines[1]", "out[0]"]);
    assert_eq!(manifest.state.segments().keys().copied().collect::<Vec<_>>(), [id(1, 1, TASKS[2]), id(1, 1, TASKS[3])]);
    assert_eq!(manifest.parent, None);
}

#[test]
fn a_failed_write_of_one_task_fails_only_its_checkpoint() {
    let mut bench = Bench::new(config());
    for checkpoint in 1..=2 {
        bench.tick_at(checkpoint * 1000);
        bench.complete(checkpoint);
    }
    bench.tick_at(3000);
    bench.ack(3, TASKS[2]);
    bench.said();
    bench.decline(3, TASKS[3]);
    bench.decline(3, TASKS[4]);
    assert_eq!(bench.said(), ["aborted 3", "discard 3-1-2"]);
    bench.ack(3, TASKS[3]);
    assert_eq!(bench.said(), ["discard 3-1-3"], "what comes too late is discarded");
    bench.tick_at(4000);
    bench.complete(4);
    let said = bench.said();
    assert_eq!(said[0], "trigger 4 at 0,1");
    assert!(said.contains(&"completed 4".into()) && !said.iter().any(|line| line.contains("completed 3")), "{said:?}");
}

#[test]
fn an_expired_checkpoint_is_aborted_and_its_late_segment_discarded() {
    let mut bench = Bench::new(CheckpointConfig { timeout_ms: 1000, interval_ms: Some(1500), ..config() });
    bench.tick_at(1500);
    TASKS.into_iter().filter(|task| task.0 != 3).for_each(|task| bench.ack(1, task));
    assert_eq!(bench.coordinator.next_tick(), Some(MonotonicTime(2500)));
    bench.tick_at(2499);
    assert_eq!(bench.said(), ["trigger 1 at 0,1"]);
    bench.tick_at(2500);
    let Some(CheckpointOutcome::Failed { failure, .. }) = bench.outcomes().pop() else { panic!() };
    let expected = "it expired after 1000 ms; 1 of 5 tasks had not acknowledged it, the first is task 3";
    assert_eq!(failure.to_string(), expected);
    assert_eq!(bench.said(), ["aborted 1", "discard 1-1-2"]);
    bench.tick_at(3000);
    bench.ack(1, TASKS[3]);
    bench.complete(2);
    let said = bench.said();
    assert_eq!(said, ["trigger 2 at 0,1", "discard 1-1-3", "publish 2", "commit 2: 2", "completed 2"]);
}

#[test]
fn the_pause_counts_from_the_completion_and_a_missed_tick_is_made_up_once() {
    let mut bench = Bench::new(CheckpointConfig { min_pause_ms: 800, ..config() });
    bench.tick_at(1000);
    bench.tick_at(2000);
    bench.tick_at(3000);
    assert_eq!(bench.said(), ["trigger 1 at 0,1"], "one at a time");
    bench.now = 3500;
    bench.complete(1);
    bench.said();
    assert_eq!(bench.coordinator.next_tick(), Some(MonotonicTime(4300)));
    bench.tick_at(4299);
    assert!(bench.said().is_empty());
    bench.tick_at(4300);
    assert_eq!(bench.said(), ["trigger 2 at 0,1"]);
    bench.complete(2);
    bench.said();
    bench.tick_at(5299);
    assert!(bench.said().is_empty(), "later ticks count from the trigger");
    bench.tick_at(5300);
    assert_eq!(bench.said(), ["trigger 3 at 0,1"]);
}

#[test]
fn without_a_pause_a_missed_tick_triggers_as_soon_as_there_is_room() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.tick_at(2000);
    bench.now = 2100;
    bench.complete(1);
    assert_eq!(bench.said().last().unwrap(), "trigger 2 at 0,1");
    bench.now = 2200;
    bench.complete(2);
    assert_eq!(bench.said().last().unwrap(), "completed 2", "it is not piled up");
}

#[test]
fn a_newer_checkpoint_subsumes_an_older_one_without_counting_a_failure() {
    let mut bench = Bench::new(CheckpointConfig { max_concurrent: 2, tolerable_failures: 0, ..config() });
    bench.tick_at(1000);
    bench.tick_at(2000);
    bench.tick_at(3000);
    TASKS.into_iter().filter(|task| task.0 != 3).for_each(|task| bench.ack(1, task));
    assert_eq!(bench.said(), ["trigger 1 at 0,1", "trigger 2 at 0,1"], "a third does not start");
    bench.ack_all(2);
    bench.publish(2);
    assert_eq!(bench.said(), ["publish 2", "aborted 1", "discard 1-1-2", "commit 2: 2"]);
    bench.commit(2);
    assert_eq!(bench.failures(), 0);
    bench.ack(1, TASKS[3]);
    let said = bench.said();
    assert_eq!(said.last().unwrap(), "discard 1-1-3");
}

#[test]
fn the_newest_of_several_that_are_ready_completes_next() {
    let mut bench = Bench::new(CheckpointConfig { max_concurrent: 3, ..config() });
    for ms in [1000, 2000, 3000] {
        bench.tick_at(ms);
    }
    (1..=3).for_each(|checkpoint| bench.ack_all(checkpoint));
    bench.said();
    bench.publish(1);
    bench.commit(1);
    assert_eq!(bench.said(), ["commit 1: 1", "completed 1", "publish 3"]);
    bench.publish(3);
    assert_eq!(bench.said(), ["aborted 2", "discard 2-1-2,2-1-3", "commit 3: 3"]);
}

#[test]
fn only_failures_in_a_row_count() {
    let mut bench = Bench::new(config());
    let mut total = 0;
    for (index, succeeds) in [false, false, true, false, false, false].into_iter().enumerate() {
        let checkpoint = index as u64 + 1;
        bench.tick_at(checkpoint * 1000);
        if succeeds {
            bench.complete(checkpoint);
        } else {
            bench.decline(checkpoint, TASKS[2]);
            bench.decline(checkpoint, TASKS[3]);
        }
        total += bench.failures();
        assert_eq!(total, usize::from(index == 5), "after {checkpoint}");
    }
    let mut strict = Bench::new(CheckpointConfig { tolerable_failures: 0, ..config() });
    strict.tick_at(1000);
    strict.decline(1, TASKS[2]);
    assert_eq!(strict.failures(), 1);
    let mut overtaken = Bench::new(CheckpointConfig { tolerable_failures: 0, ..config() });
    overtaken.tick_at(1000);
    let failure = CheckpointFailure::Overtaken(TASKS[2]);
    overtaken.run(|coordinator, now| coordinator.declined(id(1, 1, TASKS[2]), failure, now));
    assert_eq!(overtaken.failures(), 0);
}

#[test]
fn aborts_are_told_once_and_a_later_checkpoint_covers_their_output() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack_all(1);
    let error = StorageError::new(StorageErrorKind::Full, "no space");
    bench.run(|coordinator, now| coordinator.publish_failed(CheckpointId(1), &error, now));
    assert_eq!(bench.said(), ["trigger 1 at 0,1", "publish 1", "aborted 1", "discard 1-1-2,1-1-3"]);
    bench.tick_at(2000);
    bench.decline(2, TASKS[3]);
    assert_eq!(bench.said(), ["trigger 2 at 0,1", "aborted 2"]);
    bench.tick_at(3000);
    bench.complete(3);
    assert_eq!(bench.said(), ["trigger 3 at 0,1", "publish 3", "commit 3: 3", "completed 3"]);
    assert_eq!(bench.failures(), 0);
}

#[test]
fn only_the_newest_checkpoints_are_kept() {
    let mut bench = Bench::new(config());
    let mut said = Vec::new();
    for checkpoint in 1..=5 {
        bench.tick_at(checkpoint * 1000);
        bench.complete(checkpoint);
        said.extend(bench.said().into_iter().filter(|line| line.starts_with("delete")));
    }
    assert_eq!(
        said,
        ["delete 1 with 1-1-2,1-1-3", "delete 2 with 2-1-2,2-1-3", "delete 3 with 3-1-2,3-1-3"],
        "each checkpoint re-bases, so nothing older is named"
    );
    assert_eq!(bench.coordinator.delete_all().checkpoints, [CheckpointId(4), CheckpointId(5)]);
}

#[test]
fn a_manifest_of_unknown_outcome_keeps_its_segments() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack_all(1);
    bench.said();
    let error = StorageError::new(StorageErrorKind::Io, "directory not synced").with_unknown_outcome();
    bench.run(|coordinator, now| coordinator.publish_failed(CheckpointId(1), &error, now));
    assert!(matches!(bench.outcomes()[..], [CheckpointOutcome::Unsure { .. }]));
    bench.ack(1, TASKS[2]);
    assert!(bench.said().is_empty(), "a repeated acknowledgement deletes nothing that may be named");
}

#[test]
fn a_repeated_acknowledgement_is_harmless() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack(1, TASKS[2]);
    bench.ack(1, TASKS[2]);
    bench.complete(1);
    bench.said();
    bench.ack(1, TASKS[2]);
    assert!(bench.said().is_empty(), "the segment is named by checkpoint 1");
}

#[test]
fn messages_of_an_older_attempt_are_dropped_and_their_segments_discarded() {
    let mut bench = Bench::new(config());
    bench.run(|coordinator, _| coordinator.end());
    bench.coordinator.begin(Attempt(2), at(0));
    bench.tick_at(1000);
    bench.said();
    let old = id(1, 1, TASKS[2]);
    bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(old, false), now));
    bench.run(|coordinator, now| coordinator.acknowledged(old, segment(old), now));
    assert_eq!(bench.said(), ["discard 1-1-2"]);
    bench.decline(1, TASKS[3]);
    assert!(bench.outcomes().is_empty());
}

#[test]
fn what_does_not_fit_the_plan_fails_the_checkpoint() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    let mine = id(1, 1, TASKS[2]);
    bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(mine, false), now));
    let mut foreign = segment(mine).unwrap();
    foreign.sections[0].group = KeyGroup(15);
    bench.run(|coordinator, now| coordinator.acknowledged(mine, Some(foreign), now));
    assert_eq!(bench.said(), ["trigger 1 at 0,1", "aborted 1", "discard 1-1-2"]);
    bench.tick_at(2000);
    let early = id(2, 1, TASKS[3]);
    bench.run(|coordinator, now| coordinator.acknowledged(early, segment(early), now));
    assert!(matches!(bench.outcomes()[..], [.., CheckpointOutcome::Failed { failure: CheckpointFailure::Unfit { .. }, .. }]));
}

#[test]
fn a_task_that_has_ended_is_triggered_directly() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.said();
    bench.run(|coordinator, now| coordinator.task_ended(TASKS[0], now));
    bench.run(|coordinator, now| coordinator.task_ended(TASKS[0], now));
    bench.run(|coordinator, now| coordinator.task_ended(TASKS[2], now));
    assert_eq!(bench.said(), ["trigger 1 at 0", "trigger 1 at 2"]);
    bench.complete(1);
    bench.said();
    bench.tick_at(2000);
    assert_eq!(bench.said(), ["trigger 2 at 0,1,2"]);
}

#[test]
fn when_all_tasks_have_ended_a_final_checkpoint_is_taken_at_once_and_repeated_until_it_succeeds() {
    let mut bench = Bench::new(CheckpointConfig { interval_ms: None, ..config() });
    assert_eq!(bench.coordinator.next_tick(), None);
    for task in TASKS {
        bench.run(|coordinator, now| coordinator.task_ended(task, now));
    }
    assert_eq!(bench.said(), ["trigger 1 at 0,1,2,3,4"]);
    bench.decline(1, TASKS[4]);
    assert_eq!(bench.coordinator.next_tick(), Some(MonotonicTime(FINAL_RETRY_MS)));
    bench.tick_at(FINAL_RETRY_MS);
    assert_eq!(bench.said(), ["aborted 1", "trigger 2 at 0,1,2,3,4"]);
    for task in TASKS {
        let id = id(2, 1, task);
        bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(id, true), now));
        bench.run(|coordinator, now| coordinator.acknowledged(id, None, now));
    }
    bench.publish(2);
    bench.commit(2);
    assert!(matches!(bench.outcomes()[..], [.., CheckpointOutcome::Completed { is_final: true, .. }]));
    assert_eq!(bench.coordinator.next_tick(), None, "nothing follows a final one");
}

#[test]
fn a_checkpoint_that_completes_after_its_attempt_counts_but_is_committed_by_the_next() {
    let mut bench = Bench::new(config());
    bench.tick_at(1000);
    bench.ack_all(1);
    bench.run(|coordinator, _| coordinator.end());
    assert!(bench.coordinator.is_completing());
    bench.said();
    bench.publish(1);
    assert!(bench.said().is_empty());
    assert!(!bench.coordinator.is_completing());
    assert_eq!(bench.coordinator.newest(), Some(CheckpointId(1)));
}

/// What may happen, in any order.
#[derive(Clone, Copy, Debug)]
enum Step {
    Tick(u64),
    Snapshot(u64, usize),
    Ack(u64, usize),
    Decline(u64, usize),
    Published,
    PublishFailed(bool),
    Committed,
    Ended(usize),
    /// A savepoint is asked for.
    Save,
    Saved,
    SaveFailed,
}

fn step() -> impl Strategy<Value = Step> {
    let message = || (1u64..5, 0usize..5);
    prop_oneof![
        2 => (1u64..1500).prop_map(Step::Tick),
        6 => message().prop_map(|(checkpoint, task)| Step::Snapshot(checkpoint, task)),
        8 => message().prop_map(|(checkpoint, task)| Step::Ack(checkpoint, task)),
        1 => message().prop_map(|(checkpoint, task)| Step::Decline(checkpoint, task)),
        2 => Just(Step::Published),
        1 => any::<bool>().prop_map(Step::PublishFailed),
        2 => Just(Step::Committed),
        1 => (0usize..5).prop_map(Step::Ended),
        1 => Just(Step::Save),
        2 => Just(Step::Saved),
        1 => Just(Step::SaveFailed),
    ]
}

proptest! {
    /// Whatever the order of messages: ids ascend, nothing that a manifest may name is ever discarded, completion comes
    /// after the commit and the commit after publishing, and no checkpoint both completes and is given up. A savepoint is
    /// none of this: it is saved or given up, once, and no manifest of a checkpoint names what it wrote.
    #[test]
    fn any_order_of_messages_keeps_the_rules(steps in proptest::collection::vec(step(), 0..200)) {
        let mut bench = Bench::new(CheckpointConfig { max_concurrent: 2, tolerable_failures: 1000, ..config() });
        let (mut publishing, mut committing): (Option<u64>, Option<u64>) = (None, None);
        let (mut triggered, mut given_up, mut completed) = (0, BTreeSet::new(), BTreeSet::new());
        let mut named: BTreeSet<SegmentId> = BTreeSet::new();
        let (mut saving, mut saves): (Option<u64>, BTreeSet<u64>) = (None, BTreeSet::new());
        for step in steps {
            match step {
                Step::Save => bench.run(|coordinator, now| coordinator.savepoint(order(), now)),
                Step::Saved => if let Some(n) = saving.take() {
                    named.retain(|segment| segment.checkpoint.0 != n);
                    bench.run(|coordinator, now| coordinator.savepoint_published(CheckpointId(n), now));
                },
                Step::SaveFailed => if let Some(n) = saving.take() {
                    let error = StorageError::new(StorageErrorKind::Full, "no");
                    named.retain(|segment| segment.checkpoint.0 != n);
                    bench.run(|coordinator, now| coordinator.savepoint_failed(CheckpointId(n), &error, now));
                },
                Step::Tick(ms) => { let now = bench.now + ms; bench.tick_at(now); }
                Step::Snapshot(n, task) => {
                    bench.run(|coordinator, now| coordinator.snapshot_taken(snapshot(id(n, 1, TaskIndex(task)), false), now));
                }
                Step::Ack(n, task) => {
                    let id = id(n, 1, TaskIndex(task));
                    bench.run(|coordinator, now| coordinator.acknowledged(id, segment(id), now));
                }
                Step::Decline(n, task) => bench.decline(n, TaskIndex(task)),
                Step::Published => if let Some(n) = publishing.take() { bench.publish(n); },
                Step::PublishFailed(unknown) => if let Some(n) = publishing.take() {
                    let mut error = StorageError::new(StorageErrorKind::Io, "no");
                    error.outcome_unknown = unknown;
                    if !unknown {
                        named.retain(|segment| segment.checkpoint.0 != n);
                    }
                    bench.run(|coordinator, now| coordinator.publish_failed(CheckpointId(n), &error, now));
                },
                Step::Committed => if let Some(n) = committing.take() { bench.commit(n); },
                Step::Ended(task) => bench.run(|coordinator, now| coordinator.task_ended(TaskIndex(task), now)),
            }
            for command in std::mem::take(&mut bench.out).commands {
                match command {
                    CheckpointCommand::Trigger { checkpoint, tasks, full, .. } => {
                        prop_assert!(!full || saves.contains(&checkpoint.0) || checkpoint.0 > triggered);
                        if full {
                            saves.insert(checkpoint.0);
                        }
                        prop_assert!(checkpoint.0 == triggered + 1 || (tasks.len() == 1 && checkpoint.0 <= triggered));
                        triggered = triggered.max(checkpoint.0);
                    }
                    CheckpointCommand::PublishManifest { checkpoint, bytes, .. } => {
                        prop_assert_eq!((publishing, committing), (None, None));
                        publishing = Some(checkpoint.0);
                        let manifest = CheckpointManifest::decode(&bytes).unwrap();
                        prop_assert!(manifest.state.segments().keys().all(|segment| !saves.contains(&segment.checkpoint.0)));
                        named.extend(manifest.state.segments().keys());
                    }
                    CheckpointCommand::PublishSavepoint { checkpoint, segments, bytes, .. } => {
                        prop_assert!(saving.is_none() && saves.contains(&checkpoint.0));
                        saving = Some(checkpoint.0);
                        let manifest = CheckpointManifest::decode(&bytes).unwrap();
                        prop_assert_eq!(manifest.parent, None);
                        prop_assert_eq!(manifest.state.segments().keys().copied().collect::<Vec<_>>(), segments.clone());
                        prop_assert!(segments.iter().all(|segment| segment.checkpoint == checkpoint), "it stands on its own");
                        named.extend(segments);
                    }
                    CheckpointCommand::DiscardSavepoint { .. } => prop_assert!(false, "the attempt goes on"),
                    CheckpointCommand::CommitSinks { checkpoint, .. } => committing = Some(checkpoint.0),
                    CheckpointCommand::NotifyCompleted { checkpoint } => {
                        prop_assert!(!saves.contains(&checkpoint.0));
                        prop_assert!(committing.is_none() && !given_up.contains(&checkpoint));
                        prop_assert!(completed.last().is_none_or(|last| *last < checkpoint));
                        completed.insert(checkpoint);
                    }
                    CheckpointCommand::NotifyAborted { checkpoint } => {
                        prop_assert!(!completed.contains(&checkpoint) && given_up.insert(checkpoint));
                    }
                    CheckpointCommand::Discard { segments } => {
                        prop_assert!(segments.iter().all(|segment| !named.contains(segment)), "{:?} of {:?}", segments, named);
                    }
                    CheckpointCommand::Delete(deletion) => {
                        deletion.segments.iter().for_each(|segment| { named.remove(segment); });
                    }
                }
            }
        }
    }
}
