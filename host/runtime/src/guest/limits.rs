//! What one instance of an operator may use.

use cofferdam_dataflow::guest::EffectLimits;

/// Limits of one instance. Those that a guest can notice depend on its input and configuration only, so that a replay
/// meets them at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestLimits {
    /// Bytes of all linear memories together. Growth beyond fails in the guest.
    pub memory_bytes: u64,
    /// Linear memories.
    pub memories: u32,
    /// Tables.
    pub tables: u32,
    /// Elements of all tables together. Growth beyond fails in the guest.
    pub table_elements: u64,
    /// Core instances and component instances.
    pub instances: u32,
    /// Live component handles.
    pub handles: u32,
    /// Fuel to instantiate with.
    pub fuel_instantiate: u64,
    /// Fuel of `open` and of `finish`.
    pub fuel_lifecycle: u64,
    /// Fuel of a data call, whatever the batch.
    pub fuel_per_call: u64,
    /// Fuel of a data call for each record.
    pub fuel_per_record: u64,
    /// Fuel of a data call, at most.
    pub fuel_max: u64,
    /// Bytes, as the host stores them, of what one export returns.
    pub result_bytes: u64,
    /// Bytes of the arguments of one import.
    pub import_bytes: u64,
    /// Log lines of one call; the others are dropped and counted.
    pub log_lines_per_call: u32,
    /// Bytes of one log line, escaped.
    pub log_line_bytes: u32,
    /// Bounds of one call's effects, for whoever makes the [`cofferdam_dataflow::guest::InstanceInfo`]: the engine
    /// enforces them.
    pub effects: EffectLimits,
}

impl Default for GuestLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            memories: 4,
            tables: 8,
            table_elements: 10_000,
            instances: 64,
            handles: 10_000,
            fuel_instantiate: 100_000_000,
            fuel_lifecycle: 1_000_000_000,
            fuel_per_call: 50_000_000,
            fuel_per_record: 10_000_000,
            fuel_max: 5_000_000_000,
            result_bytes: 64 << 20,
            import_bytes: 4 << 20,
            log_lines_per_call: 100,
            log_line_bytes: 4 << 10,
            effects: EffectLimits::default(),
        }
    }
}

impl GuestLimits {
    /// Returns the fuel of a call with `records` records.
    pub fn data_fuel(&self, records: usize) -> u64 {
        self.fuel_per_call.saturating_add(self.fuel_per_record.saturating_mul(records as u64)).min(self.fuel_max)
    }
}
