//! One thread a task: steps it, parks when there is nothing to do, and reports how it ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_dataflow::element::StreamElement;
use cofferdam_dataflow::ids::{Attempt, SubtaskId, TaskIndex};
use cofferdam_dataflow::state::MemoryPressure;
use cofferdam_dataflow::subtask::{Now, Ports, Step, Task, TaskCommand, TaskCounters, TaskEvent, TaskFailure, TaskTime};
use cofferdam_dataflow::time::ProcessingTime;

use rustix::time::{ClockId, clock_gettime};

use super::channel::{Channel, Wakeup};
use super::job::SnapshotPause;
use super::snapshot_writer::{SnapshotKey, WriterHandle, WriterMessage};

/// Nobody forgets to wake a waiting thread; this only bounds the harm if somebody did.
const WAIT: Duration = Duration::from_millis(500);
/// Steps between two looks at the clock for the counters.
const COUNT_STEPS: u32 = 64;
const COUNT_INTERVAL_US: u64 = 50_000;

/// What a worker reports.
pub(super) enum WorkerEvent {
    /// The task is restored, its guests are open, and it runs.
    Running,
    /// For how long the task stood still for a snapshot.
    SnapshotPause(SnapshotPause),
    /// How short of memory the task's state is.
    MemoryPressure(MemoryPressure),
    /// Where the task is in event time, as it was asked.
    Time(Box<TaskTime>),
    /// All inputs have ended.
    EndOfData,
    /// The task failed and has been dropped.
    Failed(Box<TaskFailure>),
    /// The thread ends, failed or stopped. The last report.
    Ended,
}

/// What a worker is told.
#[derive(Clone, Copy)]
pub(super) enum WorkerCommand {
    /// What its task is told.
    Task(TaskCommand),
    /// Report where the task is in event time.
    ReportTime,
}

/// Reads the clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) fn now(self) -> Now {
        let monotonic_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Now { monotonic_us, processing_time: self.processing_time() }
    }

    pub(super) fn monotonic_ms(self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn processing_time(self) -> ProcessingTime {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        ProcessingTime(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// What a worker shares with the job.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) wakeup: Arc<Wakeup>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) counters: Arc<Mutex<TaskCounters>>,
}

/// All that a worker's thread is given.
pub(super) struct Worker {
    pub(super) index: TaskIndex,
    pub(super) attempt: Attempt,
    /// Whom a failure is charged to that nobody else is named for.
    pub(super) id: SubtaskId,
    pub(super) shared: Shared,
    pub(super) clock: Clock,
    pub(super) inputs: Vec<Arc<Channel>>,
    pub(super) outputs: Vec<Arc<Channel>>,
    pub(super) commands: Receiver<WorkerCommand>,
    pub(super) writer: WriterHandle,
    pub(super) report: Box<dyn Fn(WorkerEvent) + Send>,
}

impl Worker {
    /// Builds the task on this thread and steps it until it fails or is stopped.
    pub(super) fn run(self, build: impl FnOnce() -> Result<Task, TaskFailure>) {
        self.shared.wakeup.attach();
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut task = build()?;
            (self.report)(WorkerEvent::Running);
            self.run_task(&mut task)
        }));
        let failure = match result {
            Ok(result) => result.err(),
            Err(panic) => Some(TaskFailure::internal(self.id.clone(), panic_text(&*panic))),
        };
        if let Some(failure) = failure {
            (self.report)(WorkerEvent::Failed(Box::new(failure)));
        }
        (self.report)(WorkerEvent::Ended);
    }

    fn run_task(&self, task: &mut Task) -> Result<(), TaskFailure> {
        let mut ports = ChannelPorts { worker: self, begun: Vec::new(), cut_began: None, snapshot_taken: false };
        let (mut steps, mut counted_us) = (0_u32, 0);
        while !self.shared.stop.load(Ordering::Relaxed) {
            for command in self.commands.try_iter() {
                let command = match command {
                    WorkerCommand::Task(command) => command,
                    WorkerCommand::ReportTime => {
                        (self.report)(WorkerEvent::Time(Box::new(task.time(self.clock.now()))));
                        continue;
                    }
                };
                task.command(command);
                // It may be what makes a source take a snapshot.
                ports.cut_began = Some(thread_cpu());
            }
            let now = self.clock.now();
            // What was done until a failure counts, too.
            let step = task.step(&mut ports, now).inspect_err(|_| self.count(task))?;
            let cut_began = ports.cut_began.take();
            if std::mem::take(&mut ports.snapshot_taken) {
                let wall = Duration::from_micros(self.clock.now().monotonic_us - now.monotonic_us);
                let cpu = cut_began.map(|began| thread_cpu().saturating_sub(began)).unwrap_or_default();
                (self.report)(WorkerEvent::SnapshotPause(SnapshotPause { wall, cpu }));
            }
            steps = steps.wrapping_add(1);
            let waits = step != Step::Progress;
            if (waits || steps % COUNT_STEPS == 0) && now.monotonic_us >= counted_us + COUNT_INTERVAL_US {
                counted_us = now.monotonic_us;
                self.count(task);
            }
            match step {
                Step::Progress => {}
                Step::WaitForInput | Step::WaitForOutput => self.wait(task, WAIT),
                Step::WaitMs(ms) => self.wait(task, Duration::from_millis(ms).min(WAIT)),
            }
        }
        self.count(task);
        Ok(())
    }

    fn wait(&self, task: &Task, timeout: Duration) {
        self.count(task);
        self.shared.wakeup.wait(timeout);
    }

    fn count(&self, task: &Task) {
        *self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner) = task.counters();
    }
}

struct ChannelPorts<'a> {
    worker: &'a Worker,
    /// Snapshots that the writer has not heard of: it is woken when there is something to write, not while the barrier waits.
    begun: Vec<WriterMessage>,
    /// The thread's CPU time when what may be the cause of a snapshot came.
    cut_began: Option<Duration>,
    /// Whether the step at hand has taken a snapshot, and nothing else.
    snapshot_taken: bool,
}

/// Returns the CPU time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Ports for ChannelPorts<'_> {
    fn pop(&mut self, input: usize) -> Option<StreamElement> {
        let element = self.worker.inputs[input].pop();
        if matches!(element, Some(StreamElement::Barrier(_))) {
            self.cut_began = Some(thread_cpu());
        }
        element
    }

    fn push(&mut self, output: usize, element: StreamElement) -> Result<(), StreamElement> {
        self.worker.outputs[output].push(element)
    }

    fn is_starving(&self, output: usize) -> bool {
        self.worker.outputs[output].is_empty()
    }

    fn has_snapshot_room(&self) -> bool {
        self.worker.writer.has_room()
    }

    fn monotonic_us(&self) -> u64 {
        self.worker.clock.now().monotonic_us
    }

    fn report(&mut self, event: TaskEvent) {
        let Worker { attempt, index: task, report, .. } = self.worker;
        let key = |checkpoint| SnapshotKey { attempt: *attempt, checkpoint, task: *task };
        match event {
            TaskEvent::SnapshotTaken { snapshot, prepared } => {
                self.snapshot_taken = true;
                self.begun.push(WriterMessage::Begin { snapshot, prepared });
            }
            TaskEvent::SnapshotBlock { checkpoint, block } => self.write(WriterMessage::Block { key: key(checkpoint), block }),
            TaskEvent::SnapshotEncoded { checkpoint } => self.write(WriterMessage::End { key: key(checkpoint) }),
            TaskEvent::MemoryPressure(pressure) => report(WorkerEvent::MemoryPressure(pressure)),
            TaskEvent::EndOfData => report(WorkerEvent::EndOfData),
        }
    }
}

impl ChannelPorts<'_> {
    fn write(&mut self, message: WriterMessage) {
        let writer = &self.worker.writer;
        self.begun.drain(..).chain([message]).for_each(|message| writer.send(message));
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("without a message"))
}
