//! The only place where bytes become machine code.
//!
//! wasmtime trusts an artefact: forged bytes would run outside of the sandbox. So an [`Artefact`] can be made in two ways
//! only, from what the compiler process has just answered and from a cache entry whose authentication code was right.

use wasmtime::component::Component;

use super::LoadError;
use super::compile::Compiler;
use super::engine::SandboxEngine;

/// Machine code that our own compiler process made for this engine.
pub struct Artefact(Vec<u8>);

impl Artefact {
    /// Has the compiler process make an artefact of a scanned component.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn compile(compiler: &Compiler, component: &[u8]) -> Result<Self, LoadError> {
        compiler.compile(component).map(Self)
    }

    /// Wraps what the cache has authenticated. To be called by the cache, and by nobody else.
    pub(super) fn authenticated(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for the cache to store.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Maps the machine code.
    ///
    /// # Errors
    /// [`LoadError::CompileCrashed`] if it was not made for this engine.
    pub(crate) fn load(&self, engine: &SandboxEngine) -> Result<Component, LoadError> {
        #[expect(
            unsafe_code,
            reason = "mapping machine code is unsafe by nature; the type's two constructors vouch for its origin"
        )]
        // SAFETY: the bytes came from `precompile_component`, in a child of this program or in an earlier run of it, and
        // were not changed since: they were never outside of a pipe, this process and an authenticated file.
        let component = unsafe { Component::deserialize(engine.wasmtime(), &self.0) };
        component.map_err(|error| LoadError::CompileCrashed { reason: format!("the artefact does not load: {error:#}") })
    }
}
