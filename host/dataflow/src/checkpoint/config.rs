//! When checkpoints are taken, and how many are kept.

use super::segment::INLINE_TOTAL_BYTES_MAX;

/// How checkpoints are taken. Durations are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointConfig {
    /// From one trigger to the next; `None` takes only the ones that a stop and the end of all input need.
    pub interval_ms: Option<u64>,
    /// From the completion of one to the next periodic trigger, at least.
    pub min_pause_ms: u64,
    /// From a trigger until the checkpoint is given up.
    pub timeout_ms: u64,
    /// How many periodic ones may be in flight.
    pub max_concurrent: u32,
    /// How many in a row may fail without failing the job.
    pub tolerable_failures: u32,
    /// How many completed ones are kept.
    pub retained: u32,
    /// What becomes of them when the job ends.
    pub cleanup: Cleanup,
    /// Bytes of small segments that one manifest holds together; at most [`INLINE_TOTAL_BYTES_MAX`] count.
    pub inline_bytes: usize,
}

/// What becomes of the retained checkpoints when the job ends. After it has finished they are deleted in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Deleted when the job is cancelled and when it fails.
    Always,
    /// Deleted when the job is cancelled, kept when it fails.
    OnCancel,
    /// Kept when the job is cancelled and when it fails.
    Never,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            interval_ms: Some(10_000),
            min_pause_ms: 0,
            timeout_ms: 600_000,
            max_concurrent: 1,
            tolerable_failures: 3,
            retained: 3,
            cleanup: Cleanup::Never,
            inline_bytes: INLINE_TOTAL_BYTES_MAX,
        }
    }
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCheckpointConfig {
    /// A number that must be 1 or more.
    #[error("checkpoint {0} is 0; it must be at least 1")]
    Zero(&'static str),
    /// A pause between checkpoints that may overlap.
    #[error(
        "checkpoint min-pause is {min_pause_ms} ms, which implies one checkpoint at a time, but max-concurrent is {max_concurrent}"
    )]
    PauseWithConcurrency {
        /// The pause.
        min_pause_ms: u64,
        /// The number in flight.
        max_concurrent: u32,
    },
}

impl CheckpointConfig {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`InvalidCheckpointConfig`], for the first thing found.
    pub fn check(&self) -> Result<(), InvalidCheckpointConfig> {
        let numbers = [
            ("interval", self.interval_ms == Some(0)),
            ("timeout", self.timeout_ms == 0),
            ("max-concurrent", self.max_concurrent == 0),
            ("retained", self.retained == 0),
        ];
        if let Some((name, _)) = numbers.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(InvalidCheckpointConfig::Zero(name));
        }
        if self.min_pause_ms > 0 && self.max_concurrent > 1 {
            let &Self { min_pause_ms, max_concurrent, .. } = self;
            return Err(InvalidCheckpointConfig::PauseWithConcurrency { min_pause_ms, max_concurrent });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_with_several_in_flight_is_refused() {
        assert_eq!(CheckpointConfig::default().check(), Ok(()));
        let config = CheckpointConfig { min_pause_ms: 500, max_concurrent: 2, ..CheckpointConfig::default() };
        assert!(config.check().unwrap_err().to_string().contains("min-pause is 500 ms"));
        let config = CheckpointConfig { interval_ms: Some(0), ..CheckpointConfig::default() };
        assert_eq!(config.check(), Err(InvalidCheckpointConfig::Zero("interval")));
    }
}
