//! What a guest may call. Each function charges fuel for what it does, blocks on nothing and never calls a guest.
//!
//! Linked by hand, because generated bindings do not hand over the store, and without it no fuel can be charged.

mod logging;
mod metrics;
mod state_reads;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, WasmStr};

use super::state::HostState;
use super::trap::HostTrap;
use crate::sandbox::LoadError;
use crate::sandbox::engine::SandboxEngine;

/// Returns a linker with all that the world of operators imports.
pub(super) fn linker(engine: &SandboxEngine) -> Result<Linker<HostState>, LoadError> {
    let mut linker = Linker::new(engine.wasmtime());
    logging::link(&mut linker)
        .and_then(|()| metrics::link(&mut linker))
        .and_then(|()| state_reads::link(&mut linker))
        .map_err(|error| LoadError::Internal { reason: format!("cannot link the imports: {error:#}") })?;
    Ok(linker)
}

/// Looks at a string argument where it lies, and checks its size.
fn with_str<R>(
    store: &StoreContextMut<'_, HostState>,
    (what, string): (&'static str, &WasmStr),
    look: impl FnOnce(&str) -> R,
) -> wasmtime::Result<(usize, R)> {
    let text = string.to_str(store).map_err(|error| HostTrap::Abi(format!("{what} is no valid string: {error}")))?;
    let limit = store.data().import_bytes;
    if text.len() as u64 > limit {
        return Err(HostTrap::ImportBytes { what, bytes: text.len(), limit }.into());
    }
    Ok((text.len(), look(&text)))
}
