//! Wasm guests: the engine's operator interface, served by components in a sandbox.
//!
//! A [`ComponentLoader`] turns bytes into a [`LoadedComponent`]; a [`WasmGuestFactory`] opens instances of it, each in a
//! store of its own with limits on fuel, memory and everything that crosses the boundary. The host checks the form of
//! what a guest returns here; the engine checks what it says.
//!
//! A call ends in effects or in a fault. After a fault the instance is never entered again.

mod bindings;
mod factory;
mod fault;
mod imports;
mod instance;
mod lift;
mod limiter;
mod limits;
mod loader;
mod log;
mod metrics;
mod price;
mod state;
pub mod text;
mod trap;

pub use factory::{GuestOptions, WasmGuestFactory};
pub use limits::GuestLimits;
pub use loader::{ComponentLoader, LoadedComponent, LoaderStats};
pub use log::{GuestLog, GuestLogLevel, SilentLog, TracingLog};
pub use metrics::{MetricValue, OperatorMetrics};
