//! Asking all tasks where they are in event time, and waiting for their answers, but not long.

use std::time::{Duration, Instant};

use cofferdam_dataflow::ids::{Attempt, TaskIndex};
use cofferdam_dataflow::subtask::TaskTime;

/// A task that has not answered by then is in a long call.
const PATIENCE: Duration = Duration::from_secs(2);

/// A question that is under way.
pub(super) struct AskedTimes {
    request: u64,
    attempt: Attempt,
    asked_at: Instant,
    answers: Vec<Option<TaskTime>>,
}

impl AskedTimes {
    /// A question to so many tasks.
    pub(super) fn new(request: u64, attempt: Attempt, tasks: usize) -> Self {
        Self { request, attempt, asked_at: Instant::now(), answers: vec![None; tasks] }
    }

    /// Takes a task's answer, if it is one to this question.
    pub(super) fn answer(&mut self, attempt: Attempt, task: TaskIndex, time: &TaskTime) {
        if attempt == self.attempt
            && let Some(answer) = self.answers.get_mut(task.0)
        {
            *answer = Some(time.clone());
        }
    }

    /// Whether every task has answered, or the time is up, or the tasks are gone.
    pub(super) fn is_over(&self, running: Option<Attempt>) -> bool {
        self.answers.iter().all(Option::is_some) || self.asked_at.elapsed() >= PATIENCE || running != Some(self.attempt)
    }

    /// Returns who asked, and the answers by task; `None` for those that gave none.
    pub(super) fn finish(self) -> (u64, Vec<Option<TaskTime>>) {
        (self.request, self.answers)
    }
}
