//! The `[restart]` table: what happens after a failure.

use super::diagnostic::Problems;
use super::section::Section;

pub(super) const KEYS: &[&str] = &[
    "strategy",
    "failover",
    "attempts",
    "delay",
    "max-failures",
    "failure-interval",
    "initial-delay",
    "max-delay",
    "multiplier",
    "jitter",
    "reset-after",
];

const HOUR_MS: u64 = 3600 * 1000;
const STRATEGIES: &[&str] = &["exponential-delay", "fixed-delay", "failure-rate", "none"];

/// Whether and when a failed job starts again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RestartStrategy {
    /// The first failure ends the job.
    None,
    /// A number of restarts, each after the same wait.
    FixedDelay {
        /// Restarts, at most.
        attempts: u32,
        /// The wait, in milliseconds.
        delay_ms: u64,
    },
    /// Restarts as long as failures are rare.
    FailureRate {
        /// Failures within the interval that are survived.
        max_failures: u32,
        /// The interval, in milliseconds.
        interval_ms: u64,
        /// The wait before each restart, in milliseconds.
        delay_ms: u64,
    },
    /// At once after a healthy period, then after growing waits.
    ExponentialDelay {
        /// The first wait, in milliseconds.
        initial_ms: u64,
        /// The longest wait, in milliseconds.
        max_ms: u64,
        /// How much longer each wait is than the one before; at least 1.
        multiplier: f64,
        /// The random part of a wait, 0 to 1.
        jitter: f64,
        /// A healthy period that makes failures forgotten, in milliseconds.
        reset_ms: u64,
        /// Restarts without a healthy period between, at most; `None` for any number.
        attempts: Option<u32>,
    },
}

impl Default for RestartStrategy {
    fn default() -> Self {
        Self::ExponentialDelay {
            initial_ms: 1000,
            max_ms: 60_000,
            multiplier: 1.5,
            jitter: 0.1,
            reset_ms: HOUR_MS,
            attempts: None,
        }
    }
}

impl RestartStrategy {
    /// Returns the name that pipeline files use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::FixedDelay { .. } => "fixed-delay",
            Self::FailureRate { .. } => "failure-rate",
            Self::ExponentialDelay { .. } => "exponential-delay",
        }
    }

    pub(super) fn read(section: &Section<'_, '_>, problems: &mut Problems) -> Self {
        read_failover(section, problems);
        let strategy = section.word("strategy", STRATEGIES, problems).map_or("exponential-delay", |word| word.value);
        refuse_keys_of_others(section, strategy, problems);
        let attempts = section.integer("attempts", 0..=1_000_000, problems).and_then(|number| u32::try_from(number).ok());
        let mut duration = |key, default| section.duration_ms(key, 0..=24 * HOUR_MS, problems).unwrap_or(default);
        match strategy {
            "none" => Self::None,
            "fixed-delay" => Self::FixedDelay { attempts: attempts.unwrap_or(3), delay_ms: duration("delay", 1000) },
            "failure-rate" => Self::FailureRate {
                interval_ms: duration("failure-interval", 60_000),
                delay_ms: duration("delay", 1000),
                max_failures: section
                    .integer("max-failures", 0..=1_000_000, problems)
                    .and_then(|number| u32::try_from(number).ok())
                    .unwrap_or(3),
            },
            _ => {
                let (initial_ms, max_ms) = (duration("initial-delay", 1000), duration("max-delay", 60_000));
                if max_ms < initial_ms {
                    let message = "\"max-delay\" is shorter than \"initial-delay\"";
                    problems.add(section.value_span("max-delay"), "contradiction", message);
                }
                Self::ExponentialDelay {
                    initial_ms,
                    max_ms,
                    reset_ms: section.duration_ms("reset-after", 0..=24 * HOUR_MS, problems).unwrap_or(HOUR_MS),
                    multiplier: section.float("multiplier", 1.0..=100.0, problems).unwrap_or(1.5),
                    jitter: section.float("jitter", 0.0..=1.0, problems).unwrap_or(0.1),
                    attempts,
                }
            }
        }
    }
}

/// The keys that a strategy reads, besides `strategy` and `failover`.
fn keys_of(strategy: &str) -> &'static [&'static str] {
    match strategy {
        "none" => &[],
        "fixed-delay" => &["attempts", "delay"],
        "failure-rate" => &["max-failures", "failure-interval", "delay"],
        _ => &["attempts", "initial-delay", "max-delay", "multiplier", "jitter", "reset-after"],
    }
}

fn refuse_keys_of_others(section: &Section<'_, '_>, strategy: &str, problems: &mut Problems) {
    for key in KEYS[2..].iter().filter(|key| !keys_of(strategy).contains(key) && section.get(key).is_some()) {
        let owners: Vec<_> = STRATEGIES.iter().filter(|other| keys_of(other).contains(key)).copied().collect();
        let message = format!("\"{key}\" means nothing to the strategy \"{strategy}\"");
        let help = format!("it belongs to {}", owners.join(" and "));
        problems.add_with_help(section.key_span(key), "contradiction", message, help);
    }
}

/// "region" and "full" are served alike: a streaming graph is nearly always one region, and restarting an unconnected
/// part, too, loses nothing.
fn read_failover(section: &Section<'_, '_>, problems: &mut Problems) {
    let Some(word) = section.word("failover", &["region", "full", "individual", "none"], problems) else { return };
    if matches!(word.value, "individual" | "none") {
        let what = format!("failover \"{}\"", word.value);
        problems.not_built(word.span, &what, "use failover = \"full\", or leave the key out");
    }
}
