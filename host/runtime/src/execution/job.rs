//! Runs a job: carries messages between the job master, the tasks' threads, the snapshot writer and the storage.
//!
//! The control loop runs on tokio and never blocks: what blocks has threads of its own. It decides nothing.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use cofferdam_dataflow::checkpoint::coordinator::{CheckpointCommand, SavepointOrder};
use cofferdam_dataflow::checkpoint::restore::RestorePlan;
use cofferdam_dataflow::checkpoint::segment::SegmentId;
use cofferdam_dataflow::checkpoint::storage::CheckpointStorage;
use cofferdam_dataflow::ids::{Attempt, TaskIndex};
use cofferdam_dataflow::job::failure::{Failure, FailureCause};
use cofferdam_dataflow::job::master::{DeclineReason, JobCommand, JobEnd, JobEvent, JobMaster, JobReport, JobSetup, Now};
use cofferdam_dataflow::job::restart::RestartPolicy;
use cofferdam_dataflow::state::MemoryPressure;
use cofferdam_dataflow::subtask::{Cause, TaskCommand, TaskCounters, TaskFailure, TaskTime};
use cofferdam_dataflow::time::MonotonicTime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::applier::{self, Applied, ApplierMessage};
use super::attempt::RunningAttempt;
use super::build::{AlignmentGroups, AttemptParts, Splits};
use super::definition::JobDefinition;
use super::io::{self, Done, Work, anyone};
use super::snapshot_writer::{self, WriterHandle, WriterMessage, Written};
use super::stores::{self, Stores};
use super::times::AskedTimes;
use super::worker::{Clock, WorkerEvent};
use crate::state_store::LocalPlace;

/// How often counters are reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// How a run begins.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// How the job restarts.
    pub restart: RestartPolicy,
    /// Forget an earlier run.
    pub fresh: bool,
    /// Go back behind damaged checkpoints.
    pub allow_rewind: bool,
    /// Decides the jitter of restarts, and seeds hash tables; should differ from run to run.
    pub seed: u64,
}

/// What a user may want of a running job. Requests are numbered by who asks; their outcome is reported by that number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Take a checkpoint at once and go on.
    Checkpoint {
        /// The request.
        request: u64,
    },
    /// Take a savepoint and go on.
    Savepoint(SavepointOrder),
    /// Stop with a savepoint.
    StopWithSavepoint(SavepointOrder),
    /// Let the sources end where they are, and finish.
    Drain {
        /// The request.
        request: u64,
        /// What the final checkpoint is to be as well.
        savepoint: Option<SavepointOrder>,
    },
    /// Say where the tasks are in event time.
    Times {
        /// The request.
        request: u64,
    },
    /// Stop with a checkpoint.
    Stop,
    /// Stop at once.
    Cancel,
}

/// What a run tells its observer.
#[derive(Clone, Debug)]
pub enum ExecutionEvent {
    /// What the job master reports.
    Report(JobReport),
    /// What the tasks of the current attempt have done, by task; every 200 ms.
    Counters(Vec<TaskCounters>),
    /// Where the tasks are in event time, as it was asked.
    Times {
        /// Who asked.
        request: u64,
        /// By task; `None` for one that has not answered. Empty if no attempt runs.
        times: Vec<Option<TaskTime>>,
    },
    /// The last counters of an attempt that has ended.
    AttemptEnded(Vec<TaskCounters>),
    /// For how long a task stood still to take a snapshot.
    SnapshotPause {
        /// The task.
        task: TaskIndex,
        /// For how long.
        pause: SnapshotPause,
    },
}

/// For how long a task stood still to take a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotPause {
    /// By the clock, whatever else the machine did meanwhile.
    pub wall: Duration,
    /// What of it the task's thread has worked.
    pub cpu: Duration,
}

/// Anything that the control loop is told.
enum Message {
    Worker {
        attempt: Attempt,
        task: TaskIndex,
        event: WorkerEvent,
    },
    Written(Written),
    WriterReset {
        attempt: Attempt,
    },
    Done(Done),
    Applied(Applied),
    /// No store of an attempt is open any more.
    StoresClosed {
        attempt: Attempt,
    },
}

/// Runs a job to its end.
///
/// # Errors
/// If a thread cannot be started.
pub async fn execute(
    definition: JobDefinition,
    storage: Arc<dyn CheckpointStorage>,
    options: RunOptions,
    controls: UnboundedReceiver<Control>,
    observe: &mut dyn FnMut(ExecutionEvent),
) -> std::io::Result<JobEnd> {
    let definition = Arc::new(definition);
    let (messages, receiver) = unbounded_channel();
    let to_loop = messages.clone();
    let report = move |written| drop(to_loop.send(Message::Written(written)));
    let (writer, writer_thread) = snapshot_writer::start(definition.spec.name.clone(), Arc::clone(&storage), report)?;
    let to_loop = messages.clone();
    let report = move |done| drop(to_loop.send(Message::Done(done)));
    let (work, io_thread) = io::start(Arc::clone(&definition), Arc::clone(&storage), report)?;
    if let Some(dir) = definition.local_dir.as_ref().filter(|_| options.fresh || !definition.has_stores()) {
        stores::delete_all(dir)?;
    }
    let (applier, applier_thread) = match definition.has_stores() {
        true => {
            let to_loop = messages.clone();
            let report = move |applied| drop(to_loop.send(Message::Applied(applied)));
            let (applier, thread) = applier::start(Arc::clone(&storage), report)?;
            (Some(applier), Some(thread))
        }
        false => (None, None),
    };
    let local_dir = definition.local_dir.clone();
    let master = JobMaster::new(JobSetup {
        spec: definition.spec.clone(),
        plan: definition.plan.clone(),
        digests: definition.digests.clone(),
        imports: definition.imports.clone(),
        engine: definition.engine.clone(),
        checkpoints: definition.checkpoint.clone(),
        restart: options.restart,
        seed: options.seed,
        fresh: options.fresh,
        allow_rewind: options.allow_rewind,
    });
    let clock = Clock::start();
    let seed = options.seed;
    let (running, tick, end, asked) = (None, None, None, Vec::new());
    let job = JobLoop {
        definition,
        storage,
        master,
        clock,
        seed,
        writer,
        work,
        messages,
        applier,
        stores_suspect: false,
        running,
        asked,
        tick,
        end,
    };
    let end = job.run(receiver, controls, observe).await;
    // The loop is gone, and with it the last handles: both threads finish what they were given and end.
    let join = move || (io_thread.join(), writer_thread.join(), applier_thread.map(JoinHandle::join));
    drop(tokio::task::spawn_blocking(join).await);
    if let (JobEnd::Finished { .. } | JobEnd::AlreadyFinished { .. }, Some(dir)) = (&end, local_dir) {
        stores::delete_all(&dir)?;
    }
    Ok(end)
}

struct JobLoop {
    definition: Arc<JobDefinition>,
    storage: Arc<dyn CheckpointStorage>,
    master: JobMaster,
    clock: Clock,
    seed: u64,
    writer: WriterHandle,
    work: Sender<Work>,
    messages: UnboundedSender<Message>,
    applier: Option<Sender<ApplierMessage>>,
    /// Whether a store has failed: the next attempt builds all of them again.
    stores_suspect: bool,
    running: Option<RunningAttempt>,
    /// Questions where the tasks are in event time.
    asked: Vec<AskedTimes>,
    tick: Option<MonotonicTime>,
    end: Option<JobEnd>,
}

impl JobLoop {
    async fn run(
        mut self,
        mut receiver: UnboundedReceiver<Message>,
        mut controls: UnboundedReceiver<Control>,
        observe: &mut dyn FnMut(ExecutionEvent),
    ) -> JobEnd {
        let mut progress = tokio::time::interval(PROGRESS_INTERVAL);
        progress.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut controls_open = true;
        self.tell(JobEvent::Start, observe);
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            let tick = self.until_tick();
            tokio::select! {
                Some(message) = receiver.recv() => self.take(message, observe),
                control = controls.recv(), if controls_open => match control {
                    Some(Control::Times { request }) => self.ask_times(request, observe),
                    Some(control) => self.tell(event_of(control), observe),
                    None => controls_open = false,
                },
                () = tokio::time::sleep(tick.unwrap_or(Duration::MAX)), if tick.is_some() => {
                    self.tick = None;
                    self.tell(JobEvent::Tick, observe);
                }
                _ = progress.tick() => {
                    self.answer_times(observe);
                    if let Some(running) = &self.running {
                        observe(ExecutionEvent::Counters(running.counters()));
                    }
                }
            }
        }
    }

    fn until_tick(&self) -> Option<Duration> {
        let now = MonotonicTime(self.clock.monotonic_ms());
        self.tick.map(|at| Duration::from_millis(at.since_ms(now)))
    }

    fn tell(&mut self, event: JobEvent, observe: &mut dyn FnMut(ExecutionEvent)) {
        let now = Now { monotonic: MonotonicTime(self.clock.monotonic_ms()), processing: self.clock.processing_time() };
        for command in self.master.handle(event, now) {
            self.perform(command, observe);
        }
    }

    fn take(&mut self, message: Message, observe: &mut dyn FnMut(ExecutionEvent)) {
        match message {
            Message::Done(Done::Job(event)) => self.tell(event, observe),
            Message::Done(Done::Discovered { attempt, restore, splits }) => match splits {
                Ok(splits) => self.start_threads(attempt, restore.map(|restore| *restore), splits, observe),
                Err(failure) => self.tell(JobEvent::Failed { attempt, failure: failure_of(*failure) }, observe),
            },
            Message::Written(Written::Begun(snapshot)) => self.tell(JobEvent::SnapshotTaken(*snapshot), observe),
            Message::Written(Written::Durable { key, segment }) => {
                let id = SegmentId { checkpoint: key.checkpoint, attempt: key.attempt, task: key.task };
                let reference = segment.as_ref().map(|segment| segment.reference.clone());
                self.tell_applier(ApplierMessage::Written { key, segment: reference });
                self.tell(JobEvent::Acknowledged { id, segment }, observe);
            }
            Message::Written(Written::Failed { key, reason }) => {
                let id = SegmentId { checkpoint: key.checkpoint, attempt: key.attempt, task: key.task };
                self.tell(JobEvent::Declined { id, reason: DeclineReason::Failed(reason) }, observe);
            }
            Message::Written(Written::OutputLost { key, error }) => {
                let failure = Failure::of_job(FailureCause::from(&error));
                self.tell(JobEvent::Failed { attempt: key.attempt, failure }, observe);
            }
            Message::WriterReset { attempt } => match &self.applier {
                Some(applier) => {
                    let messages = self.messages.clone();
                    let done = Box::new(move || drop(messages.send(Message::StoresClosed { attempt })));
                    drop(applier.send(ApplierMessage::Reset { attempt, done }));
                }
                None => self.tell(JobEvent::TasksStopped { attempt }, observe),
            },
            Message::StoresClosed { attempt } => self.tell(JobEvent::TasksStopped { attempt }, observe),
            Message::Applied(Applied::Done { attempt, task, checkpoint }) => {
                if self.running.as_ref().is_some_and(|running| running.attempt == attempt) {
                    self.command_tasks(Some(&[task]), TaskCommand::Applied(checkpoint));
                }
            }
            Message::Applied(Applied::Failed { attempt, failure }) => {
                self.stores_suspect = true;
                self.tell(JobEvent::Failed { attempt, failure: failure_of(*failure) }, observe);
            }
            Message::Worker { attempt, task, event } => self.take_worker(attempt, task, event, observe),
        }
    }

    fn take_worker(&mut self, attempt: Attempt, task: TaskIndex, event: WorkerEvent, observe: &mut dyn FnMut(ExecutionEvent)) {
        match event {
            WorkerEvent::Running => self.tell(JobEvent::TaskStarted { attempt, task }, observe),
            WorkerEvent::SnapshotPause(pause) => observe(ExecutionEvent::SnapshotPause { task, pause }),
            WorkerEvent::MemoryPressure(pressure) => self.note_pressure(attempt, task, pressure, observe),
            WorkerEvent::Time(time) => {
                self.asked.iter_mut().for_each(|asked| asked.answer(attempt, task, &time));
                self.answer_times(observe);
            }
            WorkerEvent::EndOfData => self.tell(JobEvent::TaskEndOfData { attempt, task }, observe),
            WorkerEvent::Failed(failure) => {
                self.stores_suspect |= stores::is_suspect(&failure);
                let failure = failure_of(*failure);
                self.tell(JobEvent::Failed { attempt, failure }, observe);
            }
            WorkerEvent::Ended => {
                if let Some(running) = self.running.as_mut().filter(|running| running.attempt == attempt) {
                    running.alive -= 1;
                    self.forget_stopped(observe);
                }
            }
        }
    }

    /// A task is short of memory, or is not any more: a checkpoint makes room, and until then sources wait if need be.
    fn note_pressure(
        &mut self,
        attempt: Attempt,
        task: TaskIndex,
        pressure: MemoryPressure,
        observe: &mut dyn FnMut(ExecutionEvent),
    ) {
        let Some(running) = self.running.as_mut().filter(|running| running.attempt == attempt) else { return };
        if let Some(held) = running.note_pressure(task, pressure) {
            tracing::debug!(held, "sources wait for memory");
            self.command_tasks(None, TaskCommand::Hold(held));
        }
        if pressure != MemoryPressure::None {
            self.tell(JobEvent::CheckpointWanted { attempt }, observe);
        }
    }

    fn ask_times(&mut self, request: u64, observe: &mut dyn FnMut(ExecutionEvent)) {
        match &self.running {
            Some(running) => self.asked.push(AskedTimes::new(request, running.attempt, running.ask_times())),
            None => observe(ExecutionEvent::Times { request, times: Vec::new() }),
        }
    }

    fn answer_times(&mut self, observe: &mut dyn FnMut(ExecutionEvent)) {
        let running = self.running.as_ref().map(|running| running.attempt);
        for asked in self.asked.extract_if(.., |asked| asked.is_over(running)) {
            let (request, times) = asked.finish();
            observe(ExecutionEvent::Times { request, times });
        }
    }

    fn tell_applier(&self, message: ApplierMessage) {
        if let Some(applier) = &self.applier {
            // It lives as long as the loop.
            drop(applier.send(message));
        }
    }

    fn perform(&mut self, command: JobCommand, observe: &mut dyn FnMut(ExecutionEvent)) {
        match command {
            JobCommand::StartAttempt { attempt, restore } => self.send(Work::Discover { attempt, restore }),
            JobCommand::CancelTasks { attempt } => {
                match self.running.as_mut().filter(|running| running.attempt == attempt) {
                    Some(running) => running.cancel(),
                    // Its threads were never started.
                    None => self.reset_writer(attempt),
                }
                self.forget_stopped(observe);
            }
            JobCommand::DrainSources { .. } => self.command_tasks(None, TaskCommand::Drain),
            JobCommand::ScheduleTick { at } => self.tick = Some(at),
            JobCommand::Report(report) => observe(ExecutionEvent::Report(report)),
            JobCommand::End(end) => self.end = Some(end),
            JobCommand::Checkpoint(CheckpointCommand::Trigger { checkpoint, tasks, full, stop_sources }) => {
                self.command_tasks(Some(&tasks), TaskCommand::Trigger { checkpoint, full, stop: stop_sources });
            }
            JobCommand::Checkpoint(CheckpointCommand::NotifyCompleted { checkpoint }) => {
                self.command_tasks(None, TaskCommand::Completed(checkpoint));
                if let Some(running) = &self.running {
                    self.tell_applier(ApplierMessage::Completed { attempt: running.attempt, checkpoint });
                }
            }
            JobCommand::Checkpoint(CheckpointCommand::NotifyAborted { checkpoint }) => {
                self.writer.send(WriterMessage::Abort { checkpoint });
                self.command_tasks(None, TaskCommand::Aborted(checkpoint));
            }
            command @ (JobCommand::Recover(_)
            | JobCommand::SettleSinks { .. }
            | JobCommand::MarkFinished { .. }
            | JobCommand::Checkpoint(_)) => self.send(Work::Command(command)),
        }
    }

    fn send(&self, work: Work) {
        self.work.send(work).expect("the thread lives as long as the loop");
    }

    fn command_tasks(&self, tasks: Option<&[TaskIndex]>, command: TaskCommand) {
        if let Some(running) = &self.running {
            running.command(tasks, command);
        }
    }

    fn start_threads(
        &mut self,
        attempt: Attempt,
        restore: Option<RestorePlan>,
        splits: Splits,
        observe: &mut dyn FnMut(ExecutionEvent),
    ) {
        if self.master.attempt() != Some(attempt) {
            // Cancelled while its splits were being looked for; that has been answered already.
            return;
        }
        let stores = match (&self.definition.local_dir, &self.applier) {
            (Some(dir), Some(applier)) => Some(Stores::new(Arc::new(LocalPlace::new(dir.clone())), applier.clone())),
            _ => None,
        };
        let suspect = std::mem::take(&mut self.stores_suspect);
        if let Some(Err(error)) = stores.as_ref().map(|stores| stores.clean(&self.definition, suspect)) {
            let cause = FailureCause::Host(format!("stores of state could not be deleted: {error}"));
            return self.tell(JobEvent::Failed { attempt, failure: Failure::of_job(cause) }, observe);
        }
        let parts = AttemptParts {
            stores,
            definition: Arc::clone(&self.definition),
            attempt,
            storage: Arc::clone(&self.storage),
            restore,
            splits,
            alignment: AlignmentGroups::of(&self.definition),
            seed: self.seed ^ attempt.0,
        };
        let messages = self.messages.clone();
        let report = move |task, event| drop(messages.send(Message::Worker { attempt, task, event }));
        match RunningAttempt::start(parts, self.clock, &self.writer, report) {
            Ok(running) => self.running = Some(running),
            Err(error) => {
                let cause = FailureCause::Host(format!("a thread could not be started: {error}"));
                let failure = Failure { subtask: Some(anyone(&self.definition)), ..Failure::of_job(cause) };
                self.tell(JobEvent::Failed { attempt, failure }, observe);
            }
        }
    }

    /// Once all threads of a cancelled attempt have ended, waits for what the writer has under way.
    fn forget_stopped(&mut self, observe: &mut dyn FnMut(ExecutionEvent)) {
        if let Some(mut running) = self.running.take_if(|running| running.cancelled && running.alive == 0) {
            running.join();
            observe(ExecutionEvent::AttemptEnded(running.counters()));
            self.reset_writer(running.attempt);
        }
    }

    fn reset_writer(&self, attempt: Attempt) {
        let messages = self.messages.clone();
        let done = Box::new(move || drop(messages.send(Message::WriterReset { attempt })));
        self.writer.send(WriterMessage::Reset { attempt, done });
    }
}

fn event_of(control: Control) -> JobEvent {
    match control {
        Control::Times { .. } => unreachable!("the job master is not asked"),
        Control::Checkpoint { request } => JobEvent::CheckpointRequested { request },
        Control::Savepoint(order) => JobEvent::SavepointRequested(order),
        Control::StopWithSavepoint(order) => JobEvent::StopWithSavepointRequested(order),
        Control::Drain { request, savepoint } => JobEvent::DrainRequested { request, savepoint },
        Control::Stop => JobEvent::StopRequested,
        Control::Cancel => JobEvent::CancelRequested,
    }
}

/// Says what the job master needs to know of a task's failure.
pub fn failure_of(failure: TaskFailure) -> Failure {
    let place = failure.position.identity;
    let position = (place != 0).then_some(failure.position.description);
    let cause = match failure.cause {
        Cause::Guest(fault) => FailureCause::Guest(fault),
        Cause::Connector(error) => FailureCause::from(&error),
        Cause::Rejected { code, message } => FailureCause::Connector { code, message, transient: false },
        Cause::Internal(message) => FailureCause::Host(message),
    };
    Failure { subtask: Some(failure.subtask), cause, position, place }
}
