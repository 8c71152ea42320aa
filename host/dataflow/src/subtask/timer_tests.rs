//! Timers through whole steps of a task: order, turns with records and barriers, the end of input, what is refused.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use super::{Head, Node, Now, OperatorRestore, OperatorSubtask, Ports, Step, Task, TaskEvent, TaskFailure};
use crate::batch::{Batch, TimeColumn};
use crate::element::{Barrier, StreamElement};
use crate::graph::plan::{TaskInput, TaskOutput, TaskPlan};
use crate::graph::spec::Partition;
use crate::guest::{
    Descriptor, EffectLimits, Effects, Guest, GuestFactory, GuestFault, GuestUsage, InputBatch, InputPort, InstanceInfo,
    KeyedFrame, Output, StateReads, TimeDomain, TimerBatch, timer_op,
};
use crate::ids::{Attempt, ChannelIndex, CheckpointId, OperatorId, TaskIndex};
use crate::key_group::MaxParallelism;
use crate::snapshot::SubtaskPart;
use crate::state::{StateOwner, SubtaskState};
use crate::time::{EventTime, ProcessingTime, Watermark};

/// What a guest does when a timer fires.
#[derive(Clone, Copy)]
enum Again {
    Never,
    /// Sets one so many milliseconds later.
    After(i64),
    /// Fails.
    Fail,
}

/// Sets the timers that its records name (`e` or `p` for the domain, `+` or `-`, and a time), and emits what fires.
#[derive(Clone)]
struct Setter {
    descriptor: Descriptor,
    again: Again,
    calls: Arc<Mutex<Vec<usize>>>,
}

impl GuestFactory for Setter {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn open(&self, _: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        Ok(Box::new(self.clone()))
    }
}

fn emitted(texts: impl IntoIterator<Item = String>) -> Vec<Output> {
    let (mut output, mut timestamps) = (Output::default(), TimeColumn::default());
    for text in texts {
        output.values.push(text.as_bytes());
        timestamps.push(None);
    }
    output.timestamps = timestamps;
    vec![output]
}

impl Guest for Setter {
    fn process_batch(
        &mut self,
        batch: &InputBatch<'_>,
        _: &KeyedFrame<'_>,
        _: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        let mut effects = Effects::default();
        for (row, value) in batch.rows.iter().zip(batch.values.iter()) {
            let op = match &value[..2] {
                b"e+" => timer_op::SET_EVENT,
                b"e-" => timer_op::DELETE_EVENT,
                b"p+" => timer_op::SET_PROCESSING,
                b"p-" => timer_op::DELETE_PROCESSING,
                _ => 9,
            };
            effects.timers.rows.push(*row);
            effects.timers.ops.push(op);
            effects.timers.times.push(std::str::from_utf8(&value[2..]).unwrap().parse().unwrap());
            effects.timers.tags.push(0);
        }
        effects.outputs = emitted(batch.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()));
        Ok(effects)
    }

    fn on_timers(
        &mut self,
        timers: &TimerBatch<'_>,
        frame: &KeyedFrame<'_>,
        _: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        self.calls.lock().unwrap().push(timers.rows.len());
        let mut effects = Effects::default();
        let mut texts = Vec::new();
        for (row, time) in timers.rows.iter().zip(timers.times) {
            let key = String::from_utf8(frame.keys.get(*row as usize).to_vec()).unwrap();
            texts.push(format!("{key}@{time}"));
            if let Again::After(later) = self.again {
                effects.timers.rows.push(*row);
                effects.timers.ops.push(2 * timers.domain as u8);
                effects.timers.times.push(time.saturating_add(later));
                effects.timers.tags.push(0);
            }
            if matches!(self.again, Again::Fail) && key == "bad" {
                let (code, phase) = (crate::guest::FaultCode::GuestTrap, crate::guest::FaultPhase::Timer);
                return Err(GuestFault::new(code, phase, "it is bad"));
            }
        }
        effects.outputs = emitted(texts);
        Ok(effects)
    }

    fn finish(&mut self, watermark: Option<Watermark>, _: ProcessingTime) -> Result<Effects, GuestFault> {
        let is_last = watermark == Some(Watermark::MAX);
        Ok(Effects { outputs: emitted([format!("finish {is_last}")]), ..Effects::default() })
    }

    fn usage(&self) -> GuestUsage {
        GuestUsage::default()
    }
}

#[derive(Default)]
struct Channels {
    inputs: Vec<VecDeque<StreamElement>>,
    output: Vec<StreamElement>,
    snapshots: Vec<Option<Watermark>>,
    ended: bool,
}

impl Ports for Channels {
    fn pop(&mut self, input: usize) -> Option<StreamElement> {
        self.inputs[input].pop_front()
    }

    fn push(&mut self, _: usize, element: StreamElement) -> Result<(), StreamElement> {
        self.output.push(element);
        Ok(())
    }

    fn is_starving(&self, _: usize) -> bool {
        true
    }

    fn has_snapshot_room(&self) -> bool {
        true
    }

    fn monotonic_us(&self) -> u64 {
        0
    }

    fn report(&mut self, event: TaskEvent) {
        match event {
            TaskEvent::SnapshotTaken { snapshot, .. } => {
                let SubtaskPart::Operator { slots } = &snapshot.subtasks[0].part else { panic!() };
                assert!(slots.iter().any(|slot| slot.name == "timers.event-time"));
                self.snapshots.push(snapshot.subtasks[0].watermark);
            }
            TaskEvent::EndOfData => self.ended = true,
            _ => {}
        }
    }
}

struct World {
    task: Task,
    channels: Channels,
    calls: Arc<Mutex<Vec<usize>>>,
    clock: i64,
}

impl World {
    fn new(inputs: usize, again: Again, limits: EffectLimits, restored: Option<i64>) -> Self {
        let descriptor = Descriptor {
            inputs: vec![InputPort { name: "in".into(), broadcast: false }],
            outputs: vec!["out".into()],
            slots: vec![],
            timers: TimeDomain::ALL.to_vec(),
            keyed: false,
            max_batch: 0,
        };
        assert_eq!(descriptor.check(), Ok(()));
        let calls = Arc::default();
        let groups = 0..4;
        let max_parallelism = MaxParallelism::new(4).unwrap();
        let owner = StateOwner { max_parallelism, groups: groups.clone(), subtask: 0 };
        let state = SubtaskState::new(owner, &descriptor.tables(), 42, 1 << 30);
        let factory = Arc::new(Setter { descriptor, again, calls: Arc::clone(&calls) });
        let info = InstanceInfo { operator: OperatorId::new("op").unwrap(), subtask: 0, parallelism: 1, limits };
        let watermark = restored.map(at);
        let restore = OperatorRestore { watermark, finished: false };
        let operator = OperatorSubtask::open(factory, info, Some(state), restore).unwrap();
        let input = |channel| TaskInput { channel: ChannelIndex(channel), port: 0 };
        let plan = TaskPlan {
            index: TaskIndex(0),
            nodes: vec![0],
            subtask: 0,
            parallelism: 1,
            groups,
            inputs: (0..inputs).map(input).collect(),
            outputs: vec![TaskOutput { port: 0, partition: Partition::Rebalance, channels: vec![ChannelIndex(inputs)] }],
        };
        let head = Head::gate(&plan, watermark);
        let task = Task::new(plan, Attempt(1), max_parallelism, head, vec![Node::Operator(operator)]);
        let channels = Channels { inputs: vec![VecDeque::new(); inputs], ..Channels::default() };
        Self { task, channels, calls, clock: 0 }
    }

    fn simple(again: Again) -> Self {
        Self::new(1, again, EffectLimits::default(), None)
    }

    fn send(&mut self, input: usize, element: StreamElement) {
        self.channels.inputs[input].push_back(element);
    }

    fn records<'a>(&mut self, input: usize, records: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut batch = Batch::default();
        records.into_iter().for_each(|(key, value)| batch.push(Some(key.as_bytes()), None, value.as_bytes()));
        self.send(input, StreamElement::Records(batch));
    }

    fn watermark(&mut self, input: usize, ms: i64) {
        self.send(input, StreamElement::Watermark(at(ms)));
    }

    fn barrier(&mut self, input: usize, checkpoint: u64) {
        let barrier = Barrier { checkpoint: CheckpointId(checkpoint), full: false, stop: false, cancelled: false };
        self.send(input, StreamElement::Barrier(barrier));
    }

    fn step(&mut self) -> Result<Step, TaskFailure> {
        let now = Now { monotonic_us: 0, processing_time: ProcessingTime(self.clock) };
        self.task.step(&mut self.channels, now)
    }

    /// Steps until there is nothing to do. Returns what it then waits for.
    fn run(&mut self) -> Step {
        for _ in 0..100_000 {
            let step = self.step().unwrap();
            if step != Step::Progress {
                return step;
            }
        }
        panic!("it goes on and on");
    }

    /// What has gone out since this was last asked, records one by one.
    fn seen(&mut self) -> Vec<String> {
        let mut seen = Vec::new();
        for element in std::mem::take(&mut self.channels.output) {
            match element {
                StreamElement::Records(batch) => {
                    seen.extend(batch.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()));
                }
                StreamElement::Watermark(Watermark::MAX) => seen.push("w max".into()),
                StreamElement::Watermark(watermark) => seen.push(format!("w {}", watermark.0.0)),
                StreamElement::Barrier(barrier) => seen.push(format!("barrier {}", barrier.checkpoint.0)),
                StreamElement::EndOfInput => seen.push("end".into()),
                StreamElement::Idle | StreamElement::Active => {}
            }
        }
        seen
    }
}

fn at(ms: i64) -> Watermark {
    Watermark(EventTime(ms))
}

#[test]
fn event_time_timers_fire_once_in_order_before_the_watermark_goes_on() {
    let mut world = World::simple(Again::Never);
    world.records(0, [("7", "e+10"), ("7", "e+2"), ("7", "e+10"), ("7", "e+20"), ("7", "e-20"), ("3", "e+10")]);
    world.watermark(0, 1);
    world.run();
    assert_eq!(world.seen()[6..], ["w 1"]);
    world.watermark(0, 15);
    world.records(0, [("9", "e+15"), ("9", "e+16")]);
    world.watermark(0, 30);
    world.run();
    // What is set for a time that has passed fires before anything else comes.
    assert_eq!(world.seen(), ["7@2", "3@10", "7@10", "w 15", "e+15", "e+16", "9@15", "9@16", "w 30"]);
}

#[test]
fn a_round_is_cut_into_batches_and_lets_barriers_through_but_no_records() {
    let mut world = World::new(2, Again::Never, EffectLimits::default(), None);
    let keys: Vec<_> = (0..2500).map(|key| format!("{key:04}")).collect();
    world.records(0, keys.iter().map(|key| (key.as_str(), "e+5")));
    world.run();
    world.seen();
    for input in 0..2 {
        world.watermark(input, 5);
        world.barrier(input, 1);
        world.records(input, [("x", "e+6")]);
    }
    world.run();
    let seen = world.seen();
    let place = |what: &str| seen.iter().position(|other| other == what).unwrap();
    assert_eq!(*world.calls.lock().unwrap(), [1000, 1000, 500]);
    assert!(seen[..place("barrier 1")].iter().filter(|text| text.contains('@')).count() <= 1000, "it had its turn");
    assert!(place("barrier 1") < place("2499@5") && place("2499@5") < place("w 5") && place("w 5") < place("e+6"));
    assert_eq!(seen.iter().filter(|text| text.contains('@')).count(), 2500);
    assert_eq!(world.channels.snapshots, [Some(at(5))], "the watermark has reached the operator");
}

#[test]
fn a_restored_watermark_fires_what_is_due_and_goes_on_without_new_input() {
    let mut world = World::new(1, Again::Never, EffectLimits::default(), Some(5));
    world.run();
    assert_eq!(world.seen(), ["w 5"]);
    world.records(0, [("k", "e+5"), ("k", "e+6")]);
    world.run();
    assert_eq!(world.seen(), ["e+5", "e+6", "k@5"]);
}

#[test]
fn the_end_of_input_fires_all_of_event_time_before_the_guest_finishes_and_none_of_processing_time() {
    let mut world = World::simple(Again::Never);
    world.records(0, [("a", "e+9223372036854775807"), ("a", "e+1"), ("b", "e-1"), ("b", "p+100")]);
    world.send(0, StreamElement::EndOfInput);
    world.run();
    let expected = ["a@1", "a@9223372036854775807", "w max", "finish true", "end"];
    assert_eq!(world.seen()[4..], expected);
    assert!(world.channels.ended);
    world.clock = 1000;
    assert_eq!(world.run(), Step::WaitForInput, "it has finished");
    assert!(world.seen().is_empty());
}

#[test]
fn processing_time_timers_wake_a_task_and_fire_once_each_in_order_when_overdue() {
    let mut world = World::simple(Again::Never);
    world.records(0, [("a", "p+300"), ("b", "p+100"), ("c", "p+200"), ("a", "p+100"), ("d", "p+5000")]);
    assert_eq!(world.run(), Step::WaitMs(100));
    world.seen();
    world.clock = 100;
    assert_eq!(world.run(), Step::WaitMs(100));
    assert_eq!(world.seen(), ["a@100", "b@100"]);
    world.clock = 3_600;
    assert_eq!(world.run(), Step::WaitMs(1400));
    assert_eq!(world.seen(), ["c@200", "a@300"]);
    world.clock = 0;
    assert_eq!(world.run(), Step::WaitMs(5000), "a clock that was set back");
}

#[test]
fn a_clock_that_steps_either_way_loses_no_timer_and_fires_none_twice() {
    const HOUR: i64 = 3_600_000;
    const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;
    let start = 30 * TEN_YEARS;
    for step in [HOUR, TEN_YEARS, -HOUR, -TEN_YEARS] {
        let mut world = World::simple(Again::Never);
        world.clock = start;
        let due: Vec<i64> = (1..=20).map(|number| start + number * 1000).collect();
        for (number, due) in due.iter().enumerate() {
            world.records(0, [(format!("k{number}").as_str(), format!("p+{due}").as_str())]);
        }
        world.run();
        world.seen();
        let mut fired = Vec::new();
        // Half of them, the step there and on, then back where it was and on.
        for clock in [start + 10_000, start + 10_000 + step, start + 12_000 + step, start + 12_000, start + 20_000] {
            world.clock = clock;
            world.run();
            for row in world.seen() {
                let (_, at) = row.split_once('@').unwrap();
                assert!(at.parse::<i64>().unwrap() <= clock, "{row} at {clock}");
                fired.push(row);
            }
        }
        fired.sort();
        let mut expected: Vec<_> = due.iter().enumerate().map(|(number, due)| format!("k{number}@{due}")).collect();
        expected.sort();
        assert_eq!(fired, expected, "a step of {step} ms");
    }
}

#[test]
fn processing_time_timers_that_set_one_another_for_ever_take_turns_with_input() {
    let mut world = World::simple(Again::After(0));
    world.records(0, [("k", "p+0")]);
    world.records(0, [("l", "e+1")]);
    world.barrier(0, 1);
    for _ in 0..10 {
        world.step().unwrap();
    }
    let seen = world.seen();
    assert!(seen.iter().filter(|text| *text == "k@0").count() >= 3, "{seen:?}");
    assert!(seen.contains(&"e+1".into()) && seen.contains(&"barrier 1".into()), "{seen:?}");
}

#[test]
fn event_time_timers_that_set_one_another_without_end_are_a_fault_and_not_a_stall() {
    let limits = EffectLimits { timers: 10, ..EffectLimits::default() };
    // Standing still; and going on where all of time has passed.
    for (later, watermark) in [(0, 1), (1, i64::MAX)] {
        let mut world = World::new(1, Again::After(later), limits, None);
        world.records(0, [("k", "e+1")]);
        world.watermark(0, watermark);
        world.barrier(0, 1);
        let error = loop {
            if let Err(error) = world.step() {
                break error.to_string();
            }
        };
        assert!(error.contains("guest-timers in timer: timers set one another without end"), "{error}");
        assert!(world.seen().contains(&"barrier 1".into()), "barriers get through meanwhile");
    }
    // Catching up with the watermark step by step is no stall, however many steps it takes.
    let mut world = World::new(1, Again::After(1), limits, None);
    world.records(0, [("k", "e+1")]);
    world.watermark(0, 50_000);
    world.run();
    assert_eq!(world.calls.lock().unwrap().len(), 50_000);
}

#[test]
fn nothing_fires_after_a_cut_that_the_job_stops_at() {
    for stop in [false, true] {
        let mut world = World::simple(Again::Never);
        world.records(0, [("a", "p+5"), ("b", "e+7")]);
        world.watermark(0, 6);
        world.run();
        world.seen();
        let barrier = Barrier { checkpoint: CheckpointId(1), full: false, stop, cancelled: false };
        world.send(0, StreamElement::Barrier(barrier));
        world.run();
        world.clock = 100;
        let step = world.run();
        let seen = world.seen();
        match stop {
            true => assert_eq!((step, seen), (Step::WaitForInput, vec!["barrier 1".to_owned()])),
            false => assert_eq!(seen, ["barrier 1", "a@5"]),
        }
    }
}

#[test]
fn what_a_call_may_not_do_with_timers_is_refused_by_name() {
    let limits = EffectLimits { timers: 3, timer_updates: 5, ..EffectLimits::default() };
    let refused = |records: &[(&str, &str)]| {
        let mut world = World::new(1, Again::Never, limits, None);
        world.records(0, records.iter().copied());
        loop {
            match world.step() {
                Ok(Step::Progress) => {}
                Ok(_) => return String::new(),
                Err(error) => return error.to_string(),
            }
        }
    };
    assert!(refused(&[("k", "??1")]).contains("guest-abi in data: a timer update has op 9, which there is not"));
    let four = [("k", "e+1"), ("k", "e+2"), ("k", "p+3"), ("k", "p+4")];
    assert!(refused(&four).contains("guest-timers in data: 4 pending timers in one subtask exceed the limit of 3"));
    assert_eq!(refused(&[("k", "e+1"), ("k", "e+1"), ("k", "e+1"), ("k", "e+1")]), "");
    let error = refused(&[("k", "e+1"); 6]);
    assert!(error.contains("guest-timers in data: 6 timers set and deleted in one call exceed the limit of 5"), "{error}");
}

#[test]
fn a_fault_names_the_timer_and_nothing_of_its_batch_applies() {
    let mut world = World::simple(Again::Fail);
    world.records(0, [("a", "e+1"), ("bad", "e+2"), ("c", "e+3")]);
    world.watermark(0, 9);
    let failure = loop {
        if let Err(failure) = world.step() {
            break failure;
        }
    };
    assert_eq!(failure.position.description, "event-time timer of key \"bad\" for 2 ms with tag 0");
    assert!(failure.position.identity != 0);
    assert!(!world.seen().iter().any(|text| text.contains('@')));
}
