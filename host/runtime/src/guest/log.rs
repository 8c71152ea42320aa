//! Where guests' log lines go.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use cofferdam_dataflow::ids::{OperatorId, SubtaskId};

/// How important a guest finds its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GuestLogLevel {
    /// The finest detail.
    Trace,
    /// For finding faults.
    Debug,
    /// The life of the operator.
    Info,
    /// Unexpected, but handled.
    Warn,
    /// A failure.
    Error,
}

/// Takes guests' log lines. Called in the middle of a guest call, from any thread: must not block, and its outcome must
/// not be visible to the guest.
pub trait GuestLog: Send + Sync {
    /// Takes one line, which is printable and bounded.
    fn line(&self, operator: &OperatorId, subtask: u32, level: GuestLogLevel, text: &str);

    /// Takes notice of `lines` lines that were dropped unseen.
    fn dropped(&self, operator: &OperatorId, subtask: u32, lines: u64);
}

/// Drops everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentLog;

impl GuestLog for SilentLog {
    fn line(&self, _: &OperatorId, _: u32, _: GuestLogLevel, _: &str) {}

    fn dropped(&self, _: &OperatorId, _: u32, _: u64) {}
}

/// Lines that a subtask may log at once.
const BURST: u32 = 100;
/// Lines a second that it may log for ever.
const LINES_PER_SECOND: u64 = 20;

/// Passes lines on to `tracing`, with the target `guest`, at most a burst of 100 and then 20 a second for each subtask.
pub struct TracingLog {
    started: Instant,
    subtasks: Mutex<HashMap<SubtaskId, Allowance>>,
}

impl Default for TracingLog {
    fn default() -> Self {
        Self { started: Instant::now(), subtasks: Mutex::new(HashMap::new()) }
    }
}

impl TracingLog {
    /// Whether the line may pass, and how many were dropped before it since one passed last.
    fn admit(&self, operator: &OperatorId, subtask: u32) -> Option<u64> {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Counters survive a panic of another thread unharmed.
        let mut subtasks = self.subtasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let id = SubtaskId { operator: operator.clone(), index: subtask };
        subtasks.entry(id).or_default().admit(now_ms)
    }
}

impl GuestLog for TracingLog {
    fn line(&self, operator: &OperatorId, subtask: u32, level: GuestLogLevel, text: &str) {
        let Some(dropped) = self.admit(operator, subtask) else { return };
        if dropped > 0 {
            tracing::warn!(target: "guest", %operator, subtask, dropped, "log lines dropped");
        }
        match level {
            GuestLogLevel::Trace => tracing::trace!(target: "guest", %operator, subtask, "{text}"),
            GuestLogLevel::Debug => tracing::debug!(target: "guest", %operator, subtask, "{text}"),
            GuestLogLevel::Info => tracing::info!(target: "guest", %operator, subtask, "{text}"),
            GuestLogLevel::Warn => tracing::warn!(target: "guest", %operator, subtask, "{text}"),
            GuestLogLevel::Error => tracing::error!(target: "guest", %operator, subtask, "{text}"),
        }
    }

    fn dropped(&self, operator: &OperatorId, subtask: u32, lines: u64) {
        let mut subtasks = self.subtasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        subtasks.entry(SubtaskId { operator: operator.clone(), index: subtask }).or_default().dropped += lines;
    }
}

/// A token bucket, in thousandths of a line.
struct Allowance {
    left: u64,
    counted_ms: u64,
    dropped: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: u64::from(BURST) * 1000, counted_ms: 0, dropped: 0 }
    }
}

impl Allowance {
    fn admit(&mut self, now_ms: u64) -> Option<u64> {
        let gained = now_ms.saturating_sub(self.counted_ms).saturating_mul(LINES_PER_SECOND);
        self.left = self.left.saturating_add(gained).min(u64::from(BURST) * 1000);
        self.counted_ms = now_ms;
        match self.left.checked_sub(1000) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.dropped))
            }
            None => {
                self.dropped += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_lines_pass_at_the_rate_and_the_rest_is_counted() {
        let mut allowance = Allowance::default();
        let passed = (0..1000).filter(|_| allowance.admit(0).is_some()).count();
        assert_eq!(passed, 100);
        assert_eq!(allowance.admit(49), None);
        assert_eq!(allowance.admit(50), Some(901));
        assert_eq!(allowance.admit(50), None);
        let passed = (0..1000).filter(|i| allowance.admit(50 + i).is_some()).count();
        assert_eq!(passed, 19);
        assert_eq!((0..1000).filter(|_| allowance.admit(u64::MAX).is_some()).count(), 100);
    }
}
