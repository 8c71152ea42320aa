//! The one wasmtime engine of a process, with every setting that matters said out loud.
//!
//! The compile child and the host build the same engine; an artefact of one is refused by an engine that differs.

use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;

use wasmtime::{
    Config, Engine, Inlining, InstanceAllocationStrategy, OperatorCost, OptLevel, Strategy, VariableOperatorCost, WasmFeatures,
};

use super::LoadError;

/// Bytes of stack that wasm may use in one call. A thread that calls guests needs [`THREAD_STACK_BYTES_MIN`].
pub const WASM_STACK_BYTES: usize = 512 << 10;

/// The stack of a thread that calls guests, at least: wasm's share is not set aside from it, and host functions run on
/// what is left.
pub const THREAD_STACK_BYTES_MIN: usize = 4 << 20;

/// Frames of a trap's backtrace.
const BACKTRACE_FRAMES: NonZeroUsize = NonZeroUsize::new(16).expect("16 is not 0");

/// What ordinary toolchains need, and nothing else. The reference-types bit is the encoding that LLVM emits: without
/// the GC types there is no `externref`.
pub const FEATURES: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::FLOATS)
    .union(WasmFeatures::COMPONENT_MODEL);

/// The version of the fuel prices, of wasm operators and of host work. To be raised when one of them changes: the same
/// call may then burn another amount, and a replay may end differently.
pub const FUEL_PRICES: u32 = 1;

/// A wasmtime engine with the settings of this crate, and the names by which its artefacts are told apart.
#[derive(Clone)]
pub struct SandboxEngine {
    engine: Engine,
    fingerprint: String,
}

impl SandboxEngine {
    /// Builds the engine. One for each process is enough; clones share it.
    ///
    /// # Errors
    /// [`LoadError::Internal`] if this machine cannot run it.
    pub fn new() -> Result<Self, LoadError> {
        let engine = Engine::new(&config())
            .map_err(|error| LoadError::Internal { reason: format!("cannot build the wasm engine: {error:#}") })?;
        let fingerprint = fingerprint(&engine);
        Ok(Self { engine, fingerprint })
    }

    /// Returns the engine itself.
    pub(crate) fn wasmtime(&self) -> &Engine {
        &self.engine
    }

    /// Returns a name of everything that an artefact depends on: wasmtime's version, the settings, the processor's
    /// features. 32 hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns a name of what a guest's results and faults depend on, whatever the machine: for checkpoints, so that a
    /// restore by another engine can say so.
    pub fn semantics() -> String {
        format!("features={:#x} fuel-prices={FUEL_PRICES} wasm-stack={WASM_STACK_BYTES}", FEATURES.bits())
    }
}

fn fingerprint(engine: &Engine) -> String {
    let mut hasher = Blake3Hasher(blake3::Hasher::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.write(SandboxEngine::semantics().as_bytes());
    hasher.0.finalize().to_hex()[..32].to_owned()
}

/// A standard hasher that is the same in every process.
struct Blake3Hasher(blake3::Hasher);

impl Hasher for Blake3Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = *self.0.finalize().as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config
        .wasm_features(WasmFeatures::all(), false)
        .wasm_features(FEATURES, true)
        .relaxed_simd_deterministic(true)
        .concurrency_support(false)
        .shared_memory(false)
        // Limits: fuel is deterministic, a deadline is not.
        .consume_fuel(true)
        .operator_cost(operator_cost())
        .epoch_interruption(false)
        .max_wasm_stack(WASM_STACK_BYTES)
        // Memory: bounds by guard pages, and growth in place.
        .allocation_strategy(InstanceAllocationStrategy::OnDemand)
        .memory_may_move(false)
        .memory_reservation(4 << 30)
        .memory_guard_size(32 << 20)
        .guard_before_linear_memory(true)
        .memory_init_cow(true)
        .signals_based_traps(true)
        // Compilation.
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_nan_canonicalization(true)
        .compiler_inlining(Inlining::No)
        // Traps: frames are numbers and names, never source lines, and nothing is read from the environment.
        .native_unwind_info(false)
        .generate_address_map(true)
        .debug_info(false)
        .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable)
        .wasm_backtrace_max_frames(Some(BACKTRACE_FRAMES));
    config
}

/// One for each operator (the default), and the most that can be asked for each page of memory. Tables are small: their
/// elements are free, so that asking for too many fails instead of burning all fuel.
fn operator_cost() -> OperatorCost {
    let variable =
        VariableOperatorCost { memory_grow_per_page: u8::MAX, table_grow_per_element: 0, ..VariableOperatorCost::new() };
    OperatorCost { variable, ..OperatorCost::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine upgrade that turns something on must fail here.
    #[test]
    fn the_engine_runs_with_exactly_the_settings_that_were_decided() {
        let engine = SandboxEngine::new().unwrap();
        let set = engine.wasmtime();
        assert_eq!(set.get_wasm_features(), FEATURES);
        for (name, found, want) in [
            ("consume_fuel", set.get_consume_fuel(), true),
            ("epoch_interruption", set.get_epoch_interruption(), false),
            ("concurrency_support", set.get_concurrency_support(), false),
            ("shared_memory", set.get_shared_memory(), false),
            ("relaxed_simd_deterministic", set.get_relaxed_simd_deterministic(), true),
            ("memory_may_move", set.get_memory_may_move(), false),
            ("guard_before_linear_memory", set.get_guard_before_linear_memory(), true),
            ("memory_init_cow", set.get_memory_init_cow(), true),
            ("signals_based_traps", set.get_signals_based_traps(), true),
            ("debug_info", set.get_debug_info(), false),
            ("guest_debug", set.get_guest_debug(), false),
            ("branch_hinting", set.get_wasm_branch_hinting(), false),
        ] {
            assert_eq!(found, want, "{name}");
        }
        assert_eq!(set.get_max_wasm_stack(), 512 << 10);
        assert_eq!(set.get_memory_reservation(), 4 << 30);
        assert_eq!(set.get_memory_guard_size(), 32 << 20);
        assert_eq!(set.get_cranelift_nan_canonicalization(), Some(true));
        assert_eq!(set.get_native_unwind_info(), Some(false));
        assert_eq!(set.get_wasm_backtrace_max_frames(), 16);
        assert_eq!(set.get_cranelift_flags_enabled().count() + set.get_cranelift_flags_set().count(), 0);
    }

    #[test]
    fn the_fingerprint_is_the_same_for_each_engine_of_a_machine() {
        let (a, b) = (SandboxEngine::new().unwrap(), SandboxEngine::new().unwrap());
        assert_eq!(a.fingerprint(), b.fingerprint());
        assert_eq!(a.fingerprint().len(), 32);
    }
}
