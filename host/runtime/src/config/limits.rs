//! The `limits` of an operator: what a guest may use.

use cofferdam_dataflow::guest::EffectLimits;

use super::diagnostic::Problems;
use super::section::Section;

pub(super) const KEYS: &[&str] = &[
    "memory",
    "table-elements",
    "fuel-per-call",
    "fuel-per-record",
    "fuel-max",
    "fuel-instantiate",
    "fuel-lifecycle",
    "key",
    "value",
    "writes",
    "record",
    "output",
    "output-records",
    "timers",
    "timer-updates",
    "cpu",
    "state",
];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Far more than a call could burn in a day, far less than an overflow.
const FUEL_MAX: u64 = 1_000_000_000_000_000;

/// What one instance of an operator may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorLimits {
    /// All linear memories together, in bytes.
    pub memory_bytes: u64,
    /// Elements of all tables together.
    pub table_elements: u64,
    /// Fuel of a call, besides that of its records.
    pub fuel_per_call: u64,
    /// Fuel of a call for each record.
    pub fuel_per_record: u64,
    /// Fuel of a call, at most, however many records it has.
    pub fuel_max: u64,
    /// Fuel of instantiation.
    pub fuel_instantiate: u64,
    /// Fuel of `open` and of `finish`.
    pub fuel_lifecycle: u64,
    /// What the effects of one call may be.
    pub effects: EffectLimits,
}

impl Default for OperatorLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 * MIB,
            table_elements: 10_000,
            fuel_per_call: 50_000_000,
            fuel_per_record: 10_000_000,
            fuel_max: 5_000_000_000,
            fuel_instantiate: 100_000_000,
            fuel_lifecycle: 1_000_000_000,
            effects: EffectLimits::default(),
        }
    }
}

impl OperatorLimits {
    pub(super) fn read(section: &Section<'_, '_>, problems: &mut Problems) -> Self {
        if let Some(cpu) = section.word("cpu", &["fuel", "deadline"], problems)
            && cpu.value == "deadline"
        {
            problems.not_built(cpu.span, "cpu limit \"deadline\"", "use cpu = \"fuel\", or leave the key out");
        }
        if section.get("state").is_some() {
            problems.not_built(section.key_span("state"), "a quota on state", "leave the key out");
        }
        let defaults = Self::default();
        let effects = defaults.effects;
        let mut count = |key, most: u64, default: u32| {
            let read = section.count(key, 1..=most, problems).and_then(|count| u32::try_from(count).ok());
            read.unwrap_or(default)
        };
        let (output_records, timers, timer_updates) = (
            count("output-records", 10_000_000, effects.output_records),
            count("timers", 50_000_000, effects.timers),
            count("timer-updates", 1_000_000, effects.timer_updates),
        );
        let mut bytes = |key, most: u64, default: u32| {
            let read = section.bytes(key, 1..=most, problems).and_then(|bytes| u32::try_from(bytes).ok());
            read.unwrap_or(default)
        };
        let effects = EffectLimits {
            key_bytes: bytes("key", 64 * KIB, effects.key_bytes),
            value_bytes: bytes("value", 16 * MIB, effects.value_bytes),
            write_bytes: bytes("writes", 64 * MIB, effects.write_bytes),
            record_bytes: bytes("record", 64 * MIB, effects.record_bytes),
            output_bytes: bytes("output", 64 * MIB, effects.output_bytes),
            output_records,
            timers,
            timer_updates,
        };
        let mut fuel = |key, default| section.count(key, 1..=FUEL_MAX, problems).unwrap_or(default);
        Self {
            fuel_per_call: fuel("fuel-per-call", defaults.fuel_per_call),
            fuel_per_record: fuel("fuel-per-record", defaults.fuel_per_record),
            fuel_max: fuel("fuel-max", defaults.fuel_max),
            fuel_instantiate: fuel("fuel-instantiate", defaults.fuel_instantiate),
            fuel_lifecycle: fuel("fuel-lifecycle", defaults.fuel_lifecycle),
            memory_bytes: section.bytes("memory", 64 * KIB..=1024 * MIB, problems).unwrap_or(defaults.memory_bytes),
            table_elements: section.count("table-elements", 0..=10_000_000, problems).unwrap_or(defaults.table_elements),
            effects,
        }
    }
}
