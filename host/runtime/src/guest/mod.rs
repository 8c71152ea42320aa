//! Wasm guests: the engine's operator interface, served by components in a sandbox.

pub mod text;
