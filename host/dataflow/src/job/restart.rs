//! Whether a failed job restarts, and when. Decides only; the wait is somebody else's. One failure is one attempt that
//! ended: however many of its tasks failed.

use std::collections::VecDeque;

use crate::time::MonotonicTime;

/// How a job restarts after a failure that a restart may mend. Durations are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Never.
    None,
    /// A number of times, always after the same wait.
    FixedDelay {
        /// How many restarts.
        restarts: u32,
        /// The wait.
        delay_ms: u64,
    },
    /// As long as failures are rare enough.
    FailureRate {
        /// How many failures the interval may hold; one more ends the job.
        failures: u32,
        /// The interval, which ends at the last failure.
        interval_ms: u64,
        /// The wait.
        delay_ms: u64,
    },
    /// At once after a healthy period, then after growing waits.
    ExponentialDelay {
        /// The second wait; the first is none.
        initial_ms: u64,
        /// No wait is longer.
        max_ms: u64,
        /// What a wait is multiplied with for the next, in thousandths: 1500 is half as much again.
        multiplier_permille: u32,
        /// How far a wait may differ from that at random, in thousandths.
        jitter_permille: u32,
        /// How long an attempt must run for the next wait to be none again.
        healthy_ms: u64,
        /// How many restarts without a healthy period; `None` for any number.
        restarts: Option<u32>,
    },
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self::ExponentialDelay {
            initial_ms: 1000,
            max_ms: 60_000,
            multiplier_permille: 1500,
            jitter_permille: 100,
            healthy_ms: 3_600_000,
            restarts: None,
        }
    }
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRestartPolicy {
    /// Waits that would shrink.
    #[error("restart multiplier is {0} thousandths; it must be at least 1000")]
    Shrinking(u32),
    /// Waits that could be negative.
    #[error("restart jitter is {0} thousandths; it must be at most 1000")]
    Jitter(u32),
    /// No failure would ever be old enough to count.
    #[error("restart interval is 0")]
    Interval,
}

/// What is to be done after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartDecision {
    /// Restart after this wait.
    After {
        /// The wait.
        delay_ms: u64,
    },
    /// The job has failed.
    GiveUp {
        /// Why it is not restarted.
        reason: String,
    },
}

/// Applies a policy to the failures of a job.
#[derive(Clone, Debug)]
pub struct Restarts {
    policy: RestartPolicy,
    random: u64,
    /// Restarts so far; under exponential delay, since the last healthy period.
    restarts: u32,
    /// Failures within the interval, under failure rate.
    recent: VecDeque<MonotonicTime>,
    wait_ms: u64,
    /// When the attempt that fails next was due to start.
    restarted: Option<MonotonicTime>,
}

impl RestartPolicy {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`InvalidRestartPolicy`].
    pub fn check(&self) -> Result<(), InvalidRestartPolicy> {
        match *self {
            Self::ExponentialDelay { multiplier_permille, .. } if multiplier_permille < 1000 => {
                Err(InvalidRestartPolicy::Shrinking(multiplier_permille))
            }
            Self::ExponentialDelay { jitter_permille, .. } if jitter_permille > 1000 => {
                Err(InvalidRestartPolicy::Jitter(jitter_permille))
            }
            Self::FailureRate { interval_ms: 0, .. } => Err(InvalidRestartPolicy::Interval),
            Self::None | Self::FixedDelay { .. } | Self::FailureRate { .. } | Self::ExponentialDelay { .. } => Ok(()),
        }
    }
}

impl Restarts {
    /// Starts counting. `seed` decides the jitter.
    pub fn new(policy: RestartPolicy, seed: u64) -> Self {
        Self { policy, random: seed, restarts: 0, recent: VecDeque::new(), wait_ms: 0, restarted: None }
    }

    /// Decides what follows a failure.
    pub fn on_failure(&mut self, now: MonotonicTime) -> RestartDecision {
        let decision = match self.policy {
            RestartPolicy::None => give_up("the restart strategy is none".into()),
            RestartPolicy::FixedDelay { restarts, delay_ms } if self.restarts < restarts => after(delay_ms),
            RestartPolicy::FixedDelay { restarts, .. } => give_up(format!("it has been restarted {restarts} times")),
            RestartPolicy::FailureRate { failures, interval_ms, delay_ms } => {
                self.recent.push_back(now);
                self.recent.retain(|failure| now.since_ms(*failure) < interval_ms);
                if self.recent.len() > failures as usize {
                    give_up(format!("it has failed more than {failures} times within {interval_ms} ms"))
                } else {
                    after(delay_ms)
                }
            }
            RestartPolicy::ExponentialDelay {
                initial_ms,
                max_ms,
                multiplier_permille,
                jitter_permille,
                healthy_ms,
                restarts,
            } => {
                if self.restarted.is_some_and(|start| now.since_ms(start) >= healthy_ms) {
                    self.restarts = 0;
                }
                if restarts.is_some_and(|most| self.restarts >= most) {
                    give_up(format!("it has been restarted {} times without a healthy period", self.restarts))
                } else {
                    self.wait_ms = match self.restarts {
                        0 => 0,
                        1 => initial_ms.min(max_ms),
                        _ => (self.wait_ms.saturating_mul(multiplier_permille.into()) / 1000).min(max_ms),
                    };
                    after(self.jitter(jitter_permille))
                }
            }
        };
        if let RestartDecision::After { delay_ms } = decision {
            self.restarts += 1;
            self.restarted = Some(now.plus_ms(delay_ms));
        }
        decision
    }

    /// Returns the wait, more or less at random.
    fn jitter(&mut self, permille: u32) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let spread = u64::from(permille);
        let factor = 1000 - spread + mixed % (2 * spread + 1);
        self.wait_ms.saturating_mul(factor) / 1000
    }
}

fn after(delay_ms: u64) -> RestartDecision {
    RestartDecision::After { delay_ms }
}

fn give_up(reason: String) -> RestartDecision {
    RestartDecision::GiveUp { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waits after failures at these seconds; `None` where the job gives up.
    fn waits(policy: RestartPolicy, failures_s: &[u64]) -> Vec<Option<u64>> {
        let mut restarts = Restarts::new(policy, 1);
        let decide = |at: &u64| match restarts.on_failure(MonotonicTime(at * 1000)) {
            RestartDecision::After { delay_ms } => Some(delay_ms / 1000),
            RestartDecision::GiveUp { .. } => None,
        };
        failures_s.iter().map(decide).collect()
    }

    fn exponential(jitter_permille: u32) -> RestartPolicy {
        RestartPolicy::ExponentialDelay {
            initial_ms: 1000,
            max_ms: 10_000,
            multiplier_permille: 2000,
            jitter_permille,
            healthy_ms: 60_000,
            restarts: None,
        }
    }

    #[test]
    fn no_restart_means_none() {
        assert_eq!(waits(RestartPolicy::None, &[5]), [None]);
    }

    #[test]
    fn a_fixed_delay_allows_a_number_of_restarts() {
        let policy = RestartPolicy::FixedDelay { restarts: 3, delay_ms: 10_000 };
        assert_eq!(waits(policy, &[1, 20, 40, 60]), [Some(10), Some(10), Some(10), None]);
    }

    #[test]
    fn a_rate_of_three_fails_the_job_at_the_fourth_within_the_interval() {
        let policy = RestartPolicy::FailureRate { failures: 3, interval_ms: 300_000, delay_ms: 1000 };
        assert_eq!(waits(policy.clone(), &[0, 60, 120, 180]), [Some(1), Some(1), Some(1), None]);
        assert_eq!(waits(policy, &[0, 60, 120, 301]), [Some(1); 4]);
    }

    #[test]
    fn waits_grow_from_none_and_a_healthy_period_begins_anew() {
        let failures = [0, 1, 3, 6, 12, 24, 36, 106, 107];
        let expected = [0, 1, 2, 4, 8, 10, 10, 0, 1].map(Some);
        assert_eq!(waits(exponential(0), &failures), expected);
    }

    #[test]
    fn a_wait_does_not_count_as_healthy() {
        // The second attempt was due at 1 + 1: it ran for 59 s.
        assert_eq!(waits(exponential(0), &[0, 1, 61]), [Some(0), Some(1), Some(2)]);
        assert_eq!(waits(exponential(0), &[0, 1, 62]), [Some(0), Some(1), Some(0)]);
    }

    #[test]
    fn jitter_stays_in_its_bounds_and_follows_the_seed() {
        let run = |seed| {
            let mut restarts = Restarts::new(exponential(100), seed);
            let decide = |_| match restarts.on_failure(MonotonicTime(0)) {
                RestartDecision::After { delay_ms } => delay_ms,
                RestartDecision::GiveUp { reason } => panic!("{reason}"),
            };
            (0..40).map(decide).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!(run(1)[10..].iter().all(|wait| (9000..=11_000).contains(wait)));
        assert!(run(1)[10..].iter().any(|wait| *wait < 10_000) && run(1)[10..].iter().any(|wait| *wait > 10_000));
    }

    #[test]
    fn settings_without_sense_are_refused() {
        let policy = RestartPolicy::ExponentialDelay {
            initial_ms: 1,
            max_ms: 1,
            multiplier_permille: 999,
            jitter_permille: 0,
            healthy_ms: 1,
            restarts: None,
        };
        assert_eq!(policy.check(), Err(InvalidRestartPolicy::Shrinking(999)));
        assert_eq!(RestartPolicy::default().check(), Ok(()));
    }
}
