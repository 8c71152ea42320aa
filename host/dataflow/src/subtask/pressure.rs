//! A task whose memory runs over: what it reports, when it stops to, and sources that wait for it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::operator::{OperatorRestore, OperatorSubtask};
use super::ports::{Now, Ports, TaskCommand, TaskEvent};
use super::source::{SourceSubtask, SourceWatermarks};
use super::{Head, Node, Step, Task};
use crate::batch::Batch;
use crate::connector::{ConnectorError, Source, SourcePoll, SplitPosition};
use crate::element::{Barrier, StreamElement};
use crate::graph::plan::ExecutionPlan;
use crate::graph::spec::{InputSpec, JobSpec, NodeKind, NodeSpec, Partition};
use crate::guest::{
    Descriptor, EffectLimits, Effects, Guest, GuestFactory, GuestFault, GuestUsage, InputBatch, InputPort, InstanceInfo,
    KeyedFrame, StateKind, StateReads, StateSlot, StateUpdate, TimerBatch, op,
};
use crate::ids::{Attempt, CheckpointId, OperatorId, SubtaskId};
use crate::key_group::MaxParallelism;
use crate::snapshot::StateBlock;
use crate::state::memory_store::MemoryStore;
use crate::state::store::{SectionWrite, begin_apply, finish_apply};
use crate::state::{MemoryPressure, StateOwner, SubtaskState};
use crate::time::{ProcessingTime, Watermark};

const MEMORY_BYTES: u64 = 20_000;
const NOW: Now = Now { monotonic_us: 0, processing_time: ProcessingTime(0) };

fn id(name: &str) -> OperatorId {
    OperatorId::new(name).unwrap()
}

fn descriptor() -> Descriptor {
    let slot = StateSlot {
        name: "n".into(),
        kind: StateKind::Value,
        codec: "raw".into(),
        schema: String::new(),
        ttl_ms: 0,
        ttl_on_read: false,
        prefetch: true,
    };
    let inputs = vec![InputPort { name: "in".into(), broadcast: false }];
    Descriptor { inputs, outputs: vec!["out".into()], slots: vec![slot], timers: vec![], keyed: true, max_batch: 0 }
}

/// A source of two subtasks, an operator and a sink: none is chained to another.
fn plan() -> (JobSpec, ExecutionPlan) {
    let input = |from, partition| vec![InputSpec { from: id(from), from_port: 0, to_port: 0, partition }];
    let node = |name, parallelism, kind, inputs| NodeSpec { id: id(name), parallelism, kind, inputs };
    let spec = JobSpec {
        name: "words".into(),
        max_parallelism: MaxParallelism::new(4).unwrap(),
        nodes: vec![
            node("lines", 2, NodeKind::Source, vec![]),
            node("keep", 1, NodeKind::Operator(descriptor()), input("lines", None)),
            node("out", 2, NodeKind::Sink, input("keep", Some(Partition::Rebalance))),
        ],
    };
    let plan = ExecutionPlan::new(&spec).unwrap();
    assert_eq!(plan.tasks.len(), 5);
    (spec, plan)
}

/// Keeps a value of 100 bytes for each key.
struct Keep(Descriptor);

impl GuestFactory for Keep {
    fn descriptor(&self) -> &Descriptor {
        &self.0
    }

    fn open(&self, _: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        Ok(Box::new(Keeping))
    }
}

struct Keeping;

impl Guest for Keeping {
    fn process_batch(
        &mut self,
        _: &InputBatch<'_>,
        frame: &KeyedFrame<'_>,
        _: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        let rows: Vec<u32> = (0..u32::try_from(frame.keys.len()).unwrap()).collect();
        let values = rows.iter().map(|_| &[7; 100][..]).collect();
        let update = StateUpdate { slot: 0, ops: vec![op::PUT; rows.len()], rows, values };
        Ok(Effects { updates: vec![update], ..Effects::default() })
    }

    fn on_timers(&mut self, _: &TimerBatch<'_>, _: &KeyedFrame<'_>, _: &Rc<dyn StateReads>) -> Result<Effects, GuestFault> {
        unreachable!("it declares no timers")
    }

    fn finish(&mut self, _: Option<Watermark>, _: ProcessingTime) -> Result<Effects, GuestFault> {
        Ok(Effects::default())
    }

    fn usage(&self) -> GuestUsage {
        GuestUsage::default()
    }
}

/// The world of one task.
#[derive(Default)]
struct World {
    /// Of the first channel; the second has ended.
    input: VecDeque<StreamElement>,
    second_ended: bool,
    pressures: Vec<MemoryPressure>,
    blocks: Vec<StateBlock>,
    encoded: Vec<CheckpointId>,
    taken: Vec<CheckpointId>,
    pushed: usize,
}

impl Ports for World {
    fn pop(&mut self, input: usize) -> Option<StreamElement> {
        if input == 0 {
            return self.input.pop_front();
        }
        (!std::mem::replace(&mut self.second_ended, true)).then_some(StreamElement::EndOfInput)
    }

    fn push(&mut self, _: usize, element: StreamElement) -> Result<(), StreamElement> {
        if let StreamElement::Records(batch) = element {
            self.pushed += batch.len();
        }
        Ok(())
    }

    fn is_starving(&self, _: usize) -> bool {
        true
    }

    fn has_snapshot_room(&self) -> bool {
        true
    }

    fn monotonic_us(&self) -> u64 {
        NOW.monotonic_us
    }

    fn report(&mut self, event: TaskEvent) {
        match event {
            TaskEvent::MemoryPressure(pressure) => self.pressures.push(pressure),
            TaskEvent::SnapshotTaken { snapshot, .. } => self.taken.push(snapshot.checkpoint),
            TaskEvent::SnapshotBlock { block, .. } => self.blocks.push(block),
            TaskEvent::SnapshotEncoded { checkpoint } => self.encoded.push(checkpoint),
            TaskEvent::EndOfData => {}
        }
    }
}

impl World {
    /// Steps a task until it has nothing to do, and returns what it reported of its memory.
    fn settle(&mut self, task: &mut Task) -> Vec<MemoryPressure> {
        for _ in 0..10_000 {
            if !matches!(task.step(self, NOW).unwrap(), Step::Progress | Step::WaitMs(1)) {
                return std::mem::take(&mut self.pressures);
            }
        }
        panic!("the task never rests");
    }

    fn records(&mut self, keys: std::ops::Range<u32>) {
        let mut batch = Batch::default();
        keys.for_each(|key| batch.push(Some(&key.to_le_bytes()), None, b""));
        self.input.push_back(StreamElement::Records(batch));
    }

    fn barrier(&mut self, checkpoint: u64) {
        let barrier = Barrier { checkpoint: CheckpointId(checkpoint), full: false, stop: false, cancelled: false };
        self.input.push_back(StreamElement::Barrier(barrier));
    }

    /// Writes what was encoded into the store, and tells the task.
    fn complete(&mut self, task: &mut Task, store: &MemoryStore, checkpoint: u64) {
        let checkpoint = CheckpointId(checkpoint);
        assert_eq!(self.encoded, [checkpoint]);
        self.encoded.clear();
        begin_apply(store, checkpoint).unwrap();
        for block in self.blocks.drain(..) {
            let mut write = SectionWrite::new(store, block.table, block.group, block.kind);
            write.block(&block.bytes).unwrap();
            write.finish().unwrap();
        }
        finish_apply(store, checkpoint).unwrap();
        task.command(TaskCommand::Completed(checkpoint));
        task.command(TaskCommand::Applied(checkpoint));
    }
}

fn keeper() -> (Task, Rc<MemoryStore>) {
    let (spec, plan) = plan();
    let plan = plan.tasks.into_iter().find(|task| task.nodes == [1]).unwrap();
    let info = InstanceInfo { operator: id("keep"), subtask: 0, parallelism: 1, limits: EffectLimits::default() };
    let owner = StateOwner { max_parallelism: spec.max_parallelism, groups: 0..4, subtask: 0 };
    let mut state = SubtaskState::new(owner, &descriptor().slots, 42, 1 << 30);
    let store = Rc::new(MemoryStore::default());
    state.attach_store(Rc::<MemoryStore>::clone(&store), MEMORY_BYTES, b"keep", None).unwrap();
    state.settle_store(None).unwrap();
    let operator = OperatorSubtask::open(Arc::new(Keep(descriptor())), info, Some(state), OperatorRestore::default()).unwrap();
    let head = Head::gate(&plan, None);
    (Task::new(plan, Attempt(1), spec.max_parallelism, head, vec![Node::Operator(operator)]), store)
}

#[test]
fn a_task_asks_for_a_checkpoint_over_its_budget_and_for_a_halt_at_twice_of_it_until_it_can_evict() {
    let (mut task, store) = keeper();
    let mut world = World::default();
    world.records(0..20);
    assert_eq!(world.settle(&mut task), [], "there is room");
    // Each key takes some 150 bytes.
    (1..10).for_each(|part| world.records(part * 20..part * 20 + 20));
    assert_eq!(world.settle(&mut task), [MemoryPressure::Checkpoint], "once");
    (10..20).for_each(|part| world.records(part * 20..part * 20 + 20));
    assert_eq!(world.settle(&mut task), [MemoryPressure::Hold]);
    world.barrier(1);
    assert_eq!(world.settle(&mut task), [], "a checkpoint that has not completed makes no room");
    world.complete(&mut task, &store, 1);
    assert_eq!(world.settle(&mut task).last(), Some(&MemoryPressure::None));
    // What was evicted comes back when it is asked for, and is written anew.
    (0..20).for_each(|part| world.records(part * 20..part * 20 + 20));
    assert_eq!(world.settle(&mut task), [MemoryPressure::Checkpoint, MemoryPressure::Hold]);
    assert!(store.reads() > 200, "{}", store.reads());
}

#[test]
fn a_task_that_is_short_of_memory_asks_again_when_the_checkpoint_fails() {
    let (mut task, store) = keeper();
    let mut world = World::default();
    (0..20).for_each(|part| world.records(part * 20..part * 20 + 20));
    world.barrier(1);
    assert_eq!(world.settle(&mut task).last(), Some(&MemoryPressure::Hold));
    world.blocks.clear();
    world.encoded.clear();
    task.command(TaskCommand::Aborted(CheckpointId(1)));
    assert_eq!(world.settle(&mut task), [MemoryPressure::Hold]);
    world.barrier(2);
    world.settle(&mut task);
    world.complete(&mut task, &store, 2);
    assert_eq!(world.settle(&mut task).last(), Some(&MemoryPressure::None));
}

#[test]
fn sources_hear_that_there_is_room_although_another_checkpoint_fails_just_then() {
    let (mut task, store) = keeper();
    let mut world = World::default();
    (0..20).for_each(|part| world.records(part * 20..part * 20 + 20));
    world.barrier(1);
    assert_eq!(world.settle(&mut task).last(), Some(&MemoryPressure::Hold));
    world.complete(&mut task, &store, 1);
    task.command(TaskCommand::Aborted(CheckpointId(2)));
    assert_eq!(world.settle(&mut task).last(), Some(&MemoryPressure::None));
}

/// Has one record a poll, for ever.
struct Endless;

impl Source for Endless {
    fn poll(&mut self, _: ProcessingTime, _: usize, batch: &mut Batch) -> Result<SourcePoll, ConnectorError> {
        batch.push(Some(b"key"), None, b"");
        Ok(SourcePoll::Records { split: 0 })
    }

    fn positions(&self) -> Vec<SplitPosition> {
        vec![]
    }
}

#[test]
fn a_source_that_is_held_reads_nothing_but_answers_triggers_and_ends_on_request() {
    let (spec, plan) = plan();
    let plan = plan.tasks.into_iter().find(|task| task.nodes == [0]).unwrap();
    let subtask = SubtaskId { operator: id("lines"), index: 0 };
    let head = Head::Source(SourceSubtask::new(subtask, Box::new(Endless), 1, SourceWatermarks::default(), None));
    let mut task = Task::new(plan, Attempt(1), spec.max_parallelism, head, vec![]);
    let mut world = World::default();
    let steps = |task: &mut Task, world: &mut World| {
        for _ in 0..10 {
            task.step(world, NOW).unwrap();
        }
        std::mem::take(&mut world.pushed)
    };
    assert!(steps(&mut task, &mut world) > 0);
    task.command(TaskCommand::Hold(true));
    steps(&mut task, &mut world);
    assert_eq!(steps(&mut task, &mut world), 0, "what was read has been handed on, and nothing comes after it");
    assert_eq!(task.step(&mut world, NOW).unwrap(), Step::WaitForInput);
    let trigger = |checkpoint| TaskCommand::Trigger { checkpoint: CheckpointId(checkpoint), full: false, stop: false };
    task.command(trigger(1));
    steps(&mut task, &mut world);
    assert_eq!((&world.taken[..], &world.encoded[..]), (&[CheckpointId(1)][..], &[CheckpointId(1)][..]));
    task.command(TaskCommand::Hold(false));
    assert!(steps(&mut task, &mut world) > 0);
    task.command(TaskCommand::Hold(true));
    task.command(TaskCommand::Drain);
    steps(&mut task, &mut world);
    task.command(trigger(2));
    steps(&mut task, &mut world);
    assert_eq!(world.taken, [CheckpointId(1), CheckpointId(2)]);
}
