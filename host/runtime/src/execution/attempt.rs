//! The threads of one attempt: started together, stopped together.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use cofferdam_dataflow::ids::{Attempt, SubtaskId, TaskIndex};
use cofferdam_dataflow::state::MemoryPressure;
use cofferdam_dataflow::subtask::{TaskCommand, TaskCounters};

use super::build::AttemptParts;
use super::channel::{Channel, Wakeup};
use super::snapshot_writer::WriterHandle;
use super::worker::{Clock, Shared, Worker, WorkerCommand, WorkerEvent};

/// wasm may use 512 KiB of it; the rest is for the host below and above.
const STACK_BYTES: usize = 4 << 20;

/// The tasks of an attempt, running.
pub(super) struct RunningAttempt {
    pub(super) attempt: Attempt,
    tasks: Vec<RunningTask>,
    /// How many threads have not reported their end.
    pub(super) alive: usize,
    pub(super) cancelled: bool,
    holding: Holding,
}

/// Tasks that must not get more input before a checkpoint has completed.
#[derive(Debug, Default)]
pub struct Holding(BTreeSet<TaskIndex>);

impl Holding {
    /// Takes note of how short of memory a task is. Returns whether sources are to wait, if that has changed.
    pub fn note(&mut self, task: TaskIndex, pressure: MemoryPressure) -> Option<bool> {
        let was = self.0.is_empty();
        match pressure {
            MemoryPressure::Hold => self.0.insert(task),
            MemoryPressure::None | MemoryPressure::Checkpoint => self.0.remove(&task),
        };
        (was != self.0.is_empty()).then_some(was)
    }
}

struct RunningTask {
    shared: Shared,
    commands: Sender<WorkerCommand>,
    thread: Option<JoinHandle<()>>,
}

impl RunningAttempt {
    /// Starts one thread a task.
    pub(super) fn start(
        parts: AttemptParts,
        clock: Clock,
        writer: &WriterHandle,
        report: impl Fn(TaskIndex, WorkerEvent) + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let parts = Arc::new(parts);
        let plan = &parts.definition.plan;
        let shared: Vec<_> = plan
            .tasks
            .iter()
            .map(|_| Shared { wakeup: Arc::default(), stop: Arc::new(AtomicBool::new(false)), counters: Arc::default() })
            .collect();
        let wakeup = |task: TaskIndex| -> Arc<Wakeup> { Arc::clone(&shared[task.0].wakeup) };
        let channels: Vec<_> =
            plan.channels.iter().map(|channel| Arc::new(Channel::new(wakeup(channel.from), wakeup(channel.to)))).collect();
        let mut running =
            Self { attempt: parts.attempt, tasks: Vec::new(), alive: 0, cancelled: false, holding: Holding::default() };
        for (task, shared) in plan.tasks.iter().zip(&shared) {
            let (commands, receiver) = channel();
            let report = report.clone();
            let index = task.index;
            let operator = parts.definition.spec.nodes[task.nodes[0]].id.clone();
            let worker = Worker {
                index,
                attempt: parts.attempt,
                id: SubtaskId { operator: operator.clone(), index: task.subtask },
                shared: shared.clone(),
                clock,
                inputs: task.inputs.iter().map(|input| Arc::clone(&channels[input.channel.0])).collect(),
                outputs: task.outputs.iter().flat_map(|output| &output.channels).map(|c| Arc::clone(&channels[c.0])).collect(),
                commands: receiver,
                writer: writer.clone(),
                report: Box::new(move |event| report(index, event)),
            };
            let parts = Arc::clone(&parts);
            let thread = std::thread::Builder::new().name(format!("{operator}[{}]", task.subtask)).stack_size(STACK_BYTES);
            let build = move || parts.build(&parts.definition.plan.tasks[index.0], clock.processing_time());
            let spawned = thread.spawn(move || worker.run(build));
            match spawned {
                Ok(thread) => running.tasks.push(RunningTask { shared: shared.clone(), commands, thread: Some(thread) }),
                Err(error) => {
                    running.cancel();
                    running.join();
                    return Err(error);
                }
            }
        }
        running.alive = running.tasks.len();
        Ok(running)
    }

    /// Tells some tasks, or all of them.
    pub(super) fn command(&self, tasks: Option<&[TaskIndex]>, command: TaskCommand) {
        for (index, task) in self.tasks.iter().enumerate() {
            if tasks.is_none_or(|tasks| tasks.contains(&TaskIndex(index))) {
                // A task that has failed does not listen any more; its failure is on its way.
                let _ = task.commands.send(WorkerCommand::Task(command));
                task.shared.wakeup.wake();
            }
        }
    }

    /// Asks all tasks where they are in event time. Returns how many there are.
    pub(super) fn ask_times(&self) -> usize {
        for task in &self.tasks {
            let _ = task.commands.send(WorkerCommand::ReportTime);
            task.shared.wakeup.wake();
        }
        self.tasks.len()
    }

    /// As [`Holding::note`].
    pub(super) fn note_pressure(&mut self, task: TaskIndex, pressure: MemoryPressure) -> Option<bool> {
        self.holding.note(task, pressure)
    }

    /// Asks all tasks to end at once.
    pub(super) fn cancel(&mut self) {
        self.cancelled = true;
        for task in &self.tasks {
            task.shared.stop.store(true, Ordering::Relaxed);
            task.shared.wakeup.wake();
        }
    }

    /// Waits for the threads, which have all reported their end.
    pub(super) fn join(&mut self) {
        for task in &mut self.tasks {
            if let Some(thread) = task.thread.take() {
                drop(thread.join());
            }
        }
    }

    /// Returns what the tasks have done, with the plan's index of each.
    pub(super) fn counters(&self) -> Vec<TaskCounters> {
        let counters = |task: &RunningTask| task.shared.counters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.tasks.iter().map(counters).collect()
    }
}
