//! One process: the job master, its tasks, the writer of snapshots and the thread for blocking work, all of them stepped
//! by the scheduler. Whatever one says to another waits in a queue; the order of one sender is kept, no other.

mod stores;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam::execution::JobDefinition;
use cofferdam::execution::parts::{
    AlignmentGroups, Applied, ApplierMessage, AttemptParts, Done, Holding, Io, SnapshotKey, Splits, Work, Writer, WriterMessage,
    Written, failure_of, is_suspect,
};
use cofferdam::state_store::StorePlace;
use cofferdam_dataflow::checkpoint::coordinator::CheckpointCommand;
use cofferdam_dataflow::checkpoint::restore::RestorePlan;
use cofferdam_dataflow::checkpoint::segment::SegmentId;
use cofferdam_dataflow::checkpoint::storage::CheckpointStorage;
use cofferdam_dataflow::ids::{Attempt, CheckpointId, TaskIndex};
use cofferdam_dataflow::job::failure::{Failure, FailureCause};
use cofferdam_dataflow::job::master::{
    DeclineReason, JobCommand, JobEnd, JobEvent, JobMaster, JobReport, JobSetup, Now as JobNow,
};
use cofferdam_dataflow::state::MemoryPressure;
use cofferdam_dataflow::subtask::{Now, Step, Task, TaskCommand, TaskEvent};
use cofferdam_dataflow::time::{MonotonicTime, ProcessingTime};

use super::applying::Applying;
use super::channels::{SimChannel, SimPorts};
use super::dials::Dials;
use super::job::Graph;
use super::random::Random;

/// Never, unless something happens.
pub(super) const NEVER: u64 = u64::MAX;
/// The wall clock at the start of the monotonic one.
const EPOCH_MS: i64 = 1_700_000_000_000;

/// Something that happened, for tests to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The job master reported.
    Report(JobReport),
    /// A checkpoint was triggered.
    Triggered(CheckpointId),
    /// A task reached the cut of a checkpoint.
    Cut(CheckpointId, TaskIndex),
    /// A task's part of a checkpoint is durable, and the job master knows.
    Acknowledged(CheckpointId, TaskIndex),
    /// A manifest was published, and the job master knows.
    Published(CheckpointId),
    /// A task was told of a completed checkpoint.
    Completed(CheckpointId, TaskIndex),
    /// A task was told of a checkpoint that was given up.
    Aborted(CheckpointId, TaskIndex),
    /// A task's stores hold a checkpoint, and the task will be told.
    Applied(CheckpointId, TaskIndex),
    /// A task handled a step's worth of work and failed.
    TaskFailed(TaskIndex, String),
    /// The process was killed.
    Killed,
    /// The job ended.
    Ended(JobEnd),
}

/// Who sends to the job master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    Task(usize),
    /// Of a snapshot that takes longer than later ones.
    Late(CheckpointId, usize),
    Io,
    Applier,
    Control,
}

enum Message {
    Event(JobEvent),
    Pressure(Attempt, TaskIndex, MemoryPressure),
    Applied(Applied),
    Discovered { attempt: Attempt, restore: Option<Box<RestorePlan>>, splits: Splits },
}

/// Who can do something next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actor {
    Master(usize),
    Tick,
    Io,
    Applier,
    Writer(usize),
    Reset,
    Task(usize),
}

impl Actor {
    /// Whether it is one of the executor's threads that finish what they were given when the job has ended.
    pub(super) fn is_blocking_work(self) -> bool {
        matches!(self, Self::Io | Self::Applier)
    }
}

struct Slot {
    /// `None` before it is built.
    task: Option<Task>,
    gone: bool,
    stop_at: u64,
    ready_at: u64,
    commands: VecDeque<(u64, TaskCommand)>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

struct Running {
    parts: AttemptParts,
    slots: Vec<Slot>,
    channels: Vec<SimChannel>,
    cancelled: bool,
    holding: Holding,
}

type Reports = Arc<Mutex<VecDeque<Written>>>;

/// See the module's documentation.
pub(super) struct Process {
    /// No other ever had it.
    pub(super) id: u64,
    pub(super) definition: Arc<JobDefinition>,
    storage: Arc<dyn CheckpointStorage>,
    master: JobMaster,
    seed: u64,
    io: Io,
    io_queue: VecDeque<Work>,
    io_ready_at: u64,
    place: Arc<dyn StorePlace>,
    /// If any state is on disk.
    applying: Option<Applying>,
    writer: Writer<Box<dyn Fn(Written)>>,
    writer_queues: BTreeMap<usize, VecDeque<WriterMessage>>,
    written: Reports,
    resets: VecDeque<(Attempt, WriterMessage, Arc<AtomicBool>)>,
    inbox: BTreeMap<Sender, VecDeque<(u64, Message)>>,
    running: Option<Running>,
    tick: Option<MonotonicTime>,
    pub(super) end: Option<JobEnd>,
    pub(super) events: Vec<Event>,
}

impl Process {
    pub(super) fn new(
        id: u64,
        graph: &Graph,
        (storage, place): (Arc<dyn CheckpointStorage>, Arc<dyn StorePlace>),
        options: &StartOptions,
        seed: u64,
    ) -> Self {
        let definition = graph.plan();
        let definition = Arc::new(definition);
        if options.fresh || !definition.has_stores() {
            place.retain(&BTreeSet::new()).expect("nothing fails here");
        }
        let applying = definition.has_stores().then(|| Applying::new(Arc::clone(&storage), Arc::clone(&place)));
        let master = JobMaster::new(JobSetup {
            spec: definition.spec.clone(),
            plan: definition.plan.clone(),
            digests: definition.digests.clone(),
            imports: definition.imports.clone(),
            engine: "simulator".into(),
            checkpoints: definition.checkpoint.clone(),
            restart: graph.restart.clone(),
            seed,
            fresh: options.fresh,
            allow_rewind: options.allow_rewind,
        });
        let written = Reports::default();
        let to_queue = Arc::clone(&written);
        let report: Box<dyn Fn(Written)> =
            Box::new(move |written| to_queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(written));
        let mut process = Self {
            id,
            io: Io::new(Arc::clone(&definition), Arc::clone(&storage)),
            writer: Writer::new(definition.spec.name.clone(), Arc::clone(&storage), report),
            definition,
            storage,
            master,
            seed,
            io_queue: VecDeque::new(),
            io_ready_at: 0,
            place,
            applying,
            writer_queues: BTreeMap::new(),
            written,
            resets: VecDeque::new(),
            inbox: BTreeMap::new(),
            running: None,
            tick: None,
            end: None,
            events: Vec::new(),
        };
        process.send_event(Sender::Control, 0, JobEvent::Start);
        process
    }

    /// The job has ended, and nobody has anything left to do: a finished job needs no store.
    pub(super) fn close(&self) {
        if let Some(JobEnd::Finished { .. } | JobEnd::AlreadyFinished { .. }) = self.end {
            self.place.retain(&BTreeSet::new()).expect("nothing fails here");
        }
    }

    pub(super) fn control(&mut self, event: JobEvent) {
        self.send_event(Sender::Control, 0, event);
    }

    fn send_event(&mut self, sender: Sender, at: u64, event: JobEvent) {
        self.inbox.entry(sender).or_default().push_back((at, Message::Event(event)));
    }

    /// Returns who can do something, and from when on.
    pub(super) fn actors(&self, dials: &Dials) -> Vec<(u64, Actor)> {
        let mut actors = Vec::new();
        for (index, queue) in self.inbox.values().enumerate() {
            actors.extend(queue.front().map(|(at, _)| (*at, Actor::Master(index))));
        }
        actors.extend(self.tick.map(|at| (at.0.saturating_mul(1000), Actor::Tick)));
        if !self.io_queue.is_empty() {
            actors.push((self.io_ready_at.max(dials.frozen_io_us), Actor::Io));
        }
        actors.extend(self.applying.iter().filter_map(Applying::due).map(|at| (at, Actor::Applier)));
        for task in self.writer_queues.keys() {
            actors.push((dials.frozen_writers.get(task).copied().unwrap_or(0), Actor::Writer(*task)));
        }
        if self.writer_queues.is_empty() && !self.resets.is_empty() {
            actors.push((0, Actor::Reset));
        }
        let slots = self.running.iter().flat_map(|running| running.slots.iter().enumerate());
        for (index, slot) in slots.filter(|(_, slot)| !slot.gone) {
            let command = slot.commands.front().map_or(NEVER, |(at, _)| (*at).max(dials.deaf(index)));
            let frozen = dials.frozen_tasks.get(&index).copied().unwrap_or(0);
            let at = slot.ready_at.min(command).max(frozen).min(slot.stop_at);
            if at < NEVER {
                actors.push((at, Actor::Task(index)));
            }
        }
        actors
    }

    pub(super) fn act(&mut self, actor: Actor, now_us: u64, dials: &Dials, random: &mut Random) {
        match actor {
            Actor::Master(index) => {
                let message = self.inbox.values_mut().nth(index).and_then(VecDeque::pop_front);
                self.inbox.retain(|_, queue| !queue.is_empty());
                match message {
                    Some((_, Message::Event(event))) => self.tell(event, now_us, dials, random),
                    Some((_, Message::Pressure(attempt, task, pressure))) => {
                        self.note_pressure((attempt, task, pressure), now_us, dials, random);
                    }
                    Some((_, Message::Applied(applied))) => self.note_applied(applied, now_us, dials, random),
                    Some((_, Message::Discovered { attempt, restore, splits })) => {
                        self.start_tasks(attempt, restore, splits, (now_us, dials, random));
                    }
                    None => {}
                }
            }
            Actor::Tick => {
                self.tick = None;
                self.tell(JobEvent::Tick, now_us, dials, random);
            }
            Actor::Io => self.act_io(now_us + dials.delay(random)),
            Actor::Applier => self.act_applier(now_us, dials, random),
            Actor::Writer(task) => {
                let message = self.writer_queues.get_mut(&task).and_then(VecDeque::pop_front);
                self.writer_queues.retain(|_, queue| !queue.is_empty());
                message.into_iter().for_each(|message| self.writer.take(message));
                self.forward_written(now_us + dials.delay(random), dials);
            }
            Actor::Reset => {
                if let Some((attempt, message, done)) = self.resets.pop_front() {
                    self.writer.take(message);
                    assert!(done.load(Ordering::Relaxed), "the writer answers a reset at once");
                    match &self.applying {
                        Some(applying) => applying.reset(attempt),
                        None => {
                            self.send_event(Sender::Control, now_us + dials.delay(random), JobEvent::TasksStopped { attempt });
                        }
                    }
                }
            }
            Actor::Task(index) => self.act_task(index, now_us, dials, random),
        }
        self.applying.iter_mut().for_each(Applying::gather);
    }

    fn tell(&mut self, event: JobEvent, now_us: u64, dials: &Dials, random: &mut Random) {
        match &event {
            JobEvent::Acknowledged { id, segment } => {
                self.events.push(Event::Acknowledged(id.checkpoint, id.task));
                if let Some(applying) = &self.applying {
                    let key = SnapshotKey { attempt: id.attempt, checkpoint: id.checkpoint, task: id.task };
                    let segment = segment.as_ref().map(|segment| segment.reference.clone());
                    applying.tell(ApplierMessage::Written { key, segment });
                }
            }
            JobEvent::ManifestPublished { checkpoint } => self.events.push(Event::Published(*checkpoint)),
            _ => {}
        }
        let processing = processing_time(now_us);
        let now = JobNow { monotonic: MonotonicTime(now_us / 1000), processing };
        for command in self.master.handle(event, now) {
            self.perform(command, now_us, dials, random);
        }
    }

    fn perform(&mut self, command: JobCommand, now_us: u64, dials: &Dials, random: &mut Random) {
        match command {
            JobCommand::StartAttempt { attempt, restore } => self.io_queue.push_back(Work::Discover { attempt, restore }),
            JobCommand::CancelTasks { attempt } => {
                match self.running.as_mut().filter(|running| running.parts.attempt == attempt) {
                    Some(running) => {
                        running.cancelled = true;
                        running.slots.iter_mut().for_each(|slot| slot.stop_at = now_us + dials.delay(random));
                    }
                    None => self.reset_writer(attempt),
                }
                self.forget_stopped();
            }
            JobCommand::DrainSources { .. } => self.command_tasks(None, TaskCommand::Drain, (now_us, dials, random)),
            JobCommand::ScheduleTick { at } => self.tick = Some(at),
            JobCommand::Report(report) => self.events.push(Event::Report(report)),
            JobCommand::End(end) => {
                self.events.push(Event::Ended(end.clone()));
                self.end = Some(end);
            }
            JobCommand::Checkpoint(CheckpointCommand::Trigger { checkpoint, tasks, full, stop_sources }) => {
                self.events.push(Event::Triggered(checkpoint));
                let command = TaskCommand::Trigger { checkpoint, full, stop: stop_sources };
                self.command_tasks(Some(&tasks), command, (now_us, dials, random));
            }
            JobCommand::Checkpoint(CheckpointCommand::NotifyCompleted { checkpoint }) => {
                self.command_tasks(None, TaskCommand::Completed(checkpoint), (now_us, dials, random));
                if let (Some(running), Some(applying)) = (&self.running, &self.applying) {
                    applying.tell(ApplierMessage::Completed { attempt: running.parts.attempt, checkpoint });
                }
            }
            JobCommand::Checkpoint(CheckpointCommand::NotifyAborted { checkpoint }) => {
                for queue in self.writer_queues.values_mut() {
                    queue.push_back(WriterMessage::Abort { checkpoint });
                }
                if self.writer_queues.is_empty() {
                    self.writer.take(WriterMessage::Abort { checkpoint });
                }
                self.command_tasks(None, TaskCommand::Aborted(checkpoint), (now_us, dials, random));
            }
            command @ (JobCommand::Recover(_)
            | JobCommand::SettleSinks { .. }
            | JobCommand::MarkFinished { .. }
            | JobCommand::Checkpoint(_)) => self.io_queue.push_back(Work::Command(command)),
        }
    }

    fn command_tasks(
        &mut self,
        tasks: Option<&[TaskIndex]>,
        command: TaskCommand,
        (now_us, dials, random): (u64, &Dials, &mut Random),
    ) {
        for (index, slot) in self.running.iter_mut().flat_map(|running| running.slots.iter_mut().enumerate()) {
            if tasks.is_none_or(|tasks| tasks.contains(&TaskIndex(index))) {
                // Never before the command that was sent before it.
                let after = slot.commands.back().map_or(0, |(at, _)| *at);
                slot.commands.push_back((after.max(now_us + dials.delay(random)), command));
            }
        }
    }

    fn act_io(&mut self, answer_at: u64) {
        let Some(work) = self.io_queue.pop_front() else { return };
        self.io_ready_at = answer_at;
        let message = match self.io.perform(work) {
            Some(Done::Job(event)) => Message::Event(event),
            Some(Done::Discovered { attempt, restore, splits: Ok(splits) }) => Message::Discovered { attempt, restore, splits },
            Some(Done::Discovered { attempt, splits: Err(failure), .. }) => {
                Message::Event(JobEvent::Failed { attempt, failure: failure_of(*failure) })
            }
            None => return,
        };
        self.inbox.entry(Sender::Io).or_default().push_back((answer_at, message));
    }

    fn forward_written(&mut self, at: u64, dials: &Dials) {
        let written: Vec<_> = self.written.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        for written in written {
            let id = |key: SnapshotKey| SegmentId { checkpoint: key.checkpoint, attempt: key.attempt, task: key.task };
            let (key, event) = match written {
                Written::Begun(snapshot) => {
                    self.send_event(Sender::Task(snapshot.task.0), at, JobEvent::SnapshotTaken(*snapshot));
                    continue;
                }
                Written::Durable { key, segment } => (key, JobEvent::Acknowledged { id: id(key), segment }),
                Written::Failed { key, reason } => {
                    (key, JobEvent::Declined { id: id(key), reason: DeclineReason::Failed(reason) })
                }
                Written::OutputLost { key, error } => {
                    let failure = Failure::of_job(FailureCause::from(&error));
                    (key, JobEvent::Failed { attempt: key.attempt, failure })
                }
            };
            match dials.late_snapshots.get(&(key.checkpoint, key.task)) {
                Some(late) => self.send_event(Sender::Late(key.checkpoint, key.task.0), at.max(*late), event),
                None => self.send_event(Sender::Task(key.task.0), at, event),
            }
        }
    }

    fn start_tasks(
        &mut self,
        attempt: Attempt,
        restore: Option<Box<RestorePlan>>,
        splits: Splits,
        (now_us, dials, random): (u64, &Dials, &mut Random),
    ) {
        if self.master.attempt() != Some(attempt) {
            return;
        }
        let definition = Arc::clone(&self.definition);
        let stores = self.applying.as_mut().map(|applying| applying.stores(&definition).expect("nothing fails here"));
        let plan = &definition.plan;
        let slot = |random: &mut Random, task: &cofferdam_dataflow::graph::plan::TaskPlan| Slot {
            task: None,
            gone: false,
            stop_at: NEVER,
            ready_at: now_us + dials.delay(random),
            commands: VecDeque::new(),
            inputs: task.inputs.iter().map(|input| input.channel.0).collect(),
            outputs: task.outputs.iter().flat_map(|output| &output.channels).map(|channel| channel.0).collect(),
        };
        let slots = plan.tasks.iter().map(|task| slot(random, task)).collect();
        let capacity = |random: &mut Random| 1 + random.index(dials.channel_bytes);
        let channels = plan.channels.iter().map(|c| SimChannel::new(c.from.0, c.to.0, capacity(random))).collect();
        let parts = AttemptParts {
            stores,
            attempt,
            storage: Arc::clone(&self.storage),
            restore: restore.map(|restore| *restore),
            splits,
            seed: self.seed ^ attempt.0,
            alignment: AlignmentGroups::of(&definition),
            definition,
        };
        self.running = Some(Running { parts, slots, channels, cancelled: false, holding: Holding::default() });
    }

    fn act_task(&mut self, index: usize, now_us: u64, dials: &Dials, random: &mut Random) {
        let Some(running) = &mut self.running else { return };
        let attempt = running.parts.attempt;
        let (task, at) = (TaskIndex(index), now_us + dials.delay(random));
        let slot = &mut running.slots[index];
        if slot.stop_at <= now_us {
            (slot.gone, slot.task) = (true, None);
            return self.forget_stopped();
        }
        let Some(state) = &mut slot.task else {
            match running.parts.build(&running.parts.definition.plan.tasks[index], processing_time(now_us)) {
                Ok(built) => {
                    (slot.task, slot.ready_at) = (Some(built), at);
                    self.send_event(Sender::Task(index), at, JobEvent::TaskStarted { attempt, task });
                }
                Err(failure) => self.fail_task(index, at, failure),
            }
            return;
        };
        let is_deaf = dials.deaf(index) > now_us;
        while let Some((_, command)) = slot.commands.pop_front_if(|(at, _)| *at <= now_us && !is_deaf) {
            match command {
                TaskCommand::Completed(id) => self.events.push(Event::Completed(id, task)),
                TaskCommand::Aborted(id) => self.events.push(Event::Aborted(id, task)),
                TaskCommand::Trigger { .. } | TaskCommand::Drain | TaskCommand::Applied(_) | TaskCommand::Hold(_) => {}
            }
            state.command(command);
        }
        let (channels, inputs, outputs) = (&mut running.channels[..], &slot.inputs[..], &slot.outputs[..]);
        let has_snapshot_room = !random.chance(200) && !dials.full_writers.contains(&index);
        let mut ports = SimPorts { channels, inputs, outputs, has_snapshot_room, woken: Vec::new(), events: Vec::new() };
        let now = Now { monotonic_us: now_us, processing_time: processing_time(now_us) };
        let result = state.step(&mut ports, now);
        let (woken, events) = (ports.woken, ports.events);
        slot.ready_at = match &result {
            Ok(Step::Progress) => at,
            Ok(Step::WaitMs(ms)) => now_us + ms * 1000,
            Ok(Step::WaitForInput | Step::WaitForOutput) | Err(_) => NEVER,
        };
        for other in woken {
            let ready_at = &mut running.slots[other].ready_at;
            *ready_at = (*ready_at).min(at);
        }
        for event in events {
            self.report(index, attempt, event, at);
        }
        if let Err(failure) = result {
            self.fail_task(index, at, failure);
        }
    }

    fn fail_task(&mut self, index: usize, at: u64, failure: cofferdam_dataflow::subtask::TaskFailure) {
        let Some(running) = &mut self.running else { return };
        let attempt = running.parts.attempt;
        (running.slots[index].gone, running.slots[index].task) = (true, None);
        if is_suspect(&failure) {
            self.suspect();
        }
        let failure = failure_of(failure);
        self.events.push(Event::TaskFailed(TaskIndex(index), failure.cause.to_string()));
        self.send_event(Sender::Task(index), at, JobEvent::Failed { attempt, failure });
        self.forget_stopped();
    }

    fn report(&mut self, index: usize, attempt: Attempt, event: TaskEvent, at: u64) {
        let task = TaskIndex(index);
        let key = |checkpoint| SnapshotKey { attempt, checkpoint, task };
        let message = match event {
            TaskEvent::SnapshotTaken { snapshot, prepared } => {
                self.events.push(Event::Cut(snapshot.checkpoint, task));
                WriterMessage::Begin { snapshot, prepared }
            }
            TaskEvent::SnapshotBlock { checkpoint, block } => WriterMessage::Block { key: key(checkpoint), block },
            TaskEvent::SnapshotEncoded { checkpoint } => WriterMessage::End { key: key(checkpoint) },
            TaskEvent::MemoryPressure(pressure) => {
                let message = Message::Pressure(attempt, task, pressure);
                return self.inbox.entry(Sender::Task(index)).or_default().push_back((at, message));
            }
            TaskEvent::EndOfData => {
                return self.send_event(Sender::Task(index), at, JobEvent::TaskEndOfData { attempt, task });
            }
        };
        self.writer_queues.entry(index).or_default().push_back(message);
    }

    fn forget_stopped(&mut self) {
        let stopped = |running: &mut Running| running.cancelled && running.slots.iter().all(|slot| slot.gone);
        if let Some(running) = self.running.take_if(stopped) {
            self.reset_writer(running.parts.attempt);
        }
    }

    fn reset_writer(&mut self, attempt: Attempt) {
        let done = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&done);
        let message = WriterMessage::Reset { attempt, done: Box::new(move || flag.store(true, Ordering::Relaxed)) };
        self.resets.push_back((attempt, message, done));
    }

    /// Says where everything stands, for a run that is stuck.
    pub(super) fn describe(&self) -> String {
        let slots = self.running.iter().flat_map(|running| running.slots.iter().enumerate());
        let slots: Vec<_> = slots
            .map(|(index, slot)| {
                format!("task {index}: built {} gone {} ready {}", slot.task.is_some(), slot.gone, slot.ready_at)
            })
            .collect();
        let channels = self.running.iter().flat_map(|running| &running.channels);
        let channels: Vec<_> =
            channels.map(|channel| format!("{}->{}: {}", channel.from, channel.to, channel.elements.len())).collect();
        format!("{slots:?} {channels:?} io {} tick {:?} {:?}", self.io_queue.len(), self.tick, self.master)
    }
}

fn processing_time(now_us: u64) -> ProcessingTime {
    ProcessingTime(EPOCH_MS + i64::try_from(now_us / 1000).expect("a simulation is short"))
}

/// How a process begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartOptions {
    /// Forget an earlier run.
    pub fresh: bool,
    /// Go back behind damaged checkpoints.
    pub allow_rewind: bool,
}
