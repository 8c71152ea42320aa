//! From a component's bytes to something that can be instantiated.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_dataflow::guest::{Descriptor, FaultPhase};
use cofferdam_dataflow::ids::OperatorId;
use wasmtime::component::{Component, Linker};

use super::bindings::OperatorExportsPre;
use super::factory::{GuestOptions, WasmGuestFactory};
use super::imports;
use super::instance::{Surroundings, WasmGuest};
use super::limits::GuestLimits;
use super::log::SilentLog;
use super::metrics::OperatorMetrics;
use super::state::HostState;
use crate::sandbox::LoadError;
use crate::sandbox::artefact::Artefact;
use crate::sandbox::cache::{ArtefactCache, CacheKey};
use crate::sandbox::compile::Compiler;
use crate::sandbox::engine::SandboxEngine;
use crate::sandbox::scan::{ComponentSummary, ScanLimits, scan};
use crate::sandbox::text;

/// Loads components: scans, compiles or finds in the cache, links, and asks each what it is.
pub struct ComponentLoader {
    engine: SandboxEngine,
    linker: Linker<HostState>,
    cache: ArtefactCache,
    compiler: Compiler,
    limits: ScanLimits,
    turn: Mutex<()>,
    compiled: AtomicU64,
    cached: AtomicU64,
}

/// What a loader has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderStats {
    /// Components that were compiled.
    pub compiled: u64,
    /// Components whose artefact was in the cache.
    pub cached: u64,
    /// Cache entries that were forged or damaged, and not loaded.
    pub rejected: u64,
}

/// A component that is an operator, ready to be instantiated. Clones share its code.
#[derive(Clone)]
pub struct LoadedComponent {
    pre: OperatorExportsPre<HostState>,
    summary: Arc<ComponentSummary>,
    descriptor: Arc<Descriptor>,
}

impl ComponentLoader {
    /// Returns a loader with its cache in `cache_directory`.
    ///
    /// # Errors
    /// [`LoadError::CacheUnusable`], or [`LoadError::Internal`] if this machine cannot run the engine.
    pub fn new(cache_directory: &Path, compiler: Compiler, limits: ScanLimits) -> Result<Self, LoadError> {
        let engine = SandboxEngine::new()?;
        let linker = imports::linker(&engine)?;
        let cache = ArtefactCache::open(cache_directory)?;
        let (compiled, cached) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { engine, linker, cache, compiler, limits, turn: Mutex::new(()), compiled, cached })
    }

    /// Loads the component in a file, reading no more of it than is allowed.
    ///
    /// # Errors
    /// [`LoadError::Read`], else as [`Self::load`].
    pub fn load_file(&self, path: &Path) -> Result<LoadedComponent, LoadError> {
        let unreadable = |source| LoadError::Read { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(self.limits.component_bytes + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        self.load(&bytes)
    }

    /// Loads a component. Blocks as long as compiling takes, if it is not cached.
    ///
    /// # Errors
    /// [`LoadError`], whose code says which step refused it.
    pub fn load(&self, bytes: &[u8]) -> Result<LoadedComponent, LoadError> {
        let summary = scan(bytes, &self.limits)?;
        let component = self.artefact(bytes, &summary)?;
        let pre = self
            .linker
            .instantiate_pre(&component)
            .and_then(OperatorExportsPre::new)
            .map_err(|error| LoadError::WorldMismatch { reason: mismatch(&error) })?;
        let descriptor = describe(&pre)?;
        descriptor.check()?;
        Ok(LoadedComponent { pre, summary: Arc::new(summary), descriptor: Arc::new(descriptor) })
    }

    /// Returns what has been done so far.
    pub fn stats(&self) -> LoaderStats {
        LoaderStats {
            compiled: self.compiled.load(Ordering::Relaxed),
            cached: self.cached.load(Ordering::Relaxed),
            rejected: self.cache.rejected(),
        }
    }

    /// Returns the engine that components are loaded for.
    pub fn engine(&self) -> &SandboxEngine {
        &self.engine
    }

    fn artefact(&self, bytes: &[u8], summary: &ComponentSummary) -> Result<Component, LoadError> {
        let key = CacheKey::new(summary, self.engine.fingerprint());
        // One at a time: a compilation may take a processor and 2 GiB, and whoever waited may find its artefact cached.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(artefact) = self.cache.get(&key) {
            self.cached.fetch_add(1, Ordering::Relaxed);
            return artefact.load(&self.engine);
        }
        let artefact = Artefact::compile(&self.compiler, bytes)?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let component = artefact.load(&self.engine)?;
        self.cache.put(&key, &artefact)?;
        Ok(component)
    }
}

impl LoadedComponent {
    /// Returns what the scan found.
    pub fn summary(&self) -> &ComponentSummary {
        &self.summary
    }

    /// Returns what the operator said it is.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Returns a factory of instances.
    pub fn factory(&self, options: GuestOptions) -> WasmGuestFactory {
        WasmGuestFactory::new(self.clone(), options)
    }

    pub(super) fn pre(&self) -> &OperatorExportsPre<HostState> {
        &self.pre
    }
}

/// Asks a component what it is, in an instance that serves for nothing else.
fn describe(pre: &OperatorExportsPre<HostState>) -> Result<Descriptor, LoadError> {
    let limits = GuestLimits { result_bytes: 1 << 20, ..GuestLimits::default() };
    let surroundings = Surroundings {
        limits: &limits,
        operator: OperatorId::new("describe").expect("the name is valid"),
        subtask: 0,
        log: Arc::new(SilentLog),
        metrics: Arc::new(OperatorMetrics::default()),
    };
    Ok(WasmGuest::instantiate(pre, surroundings, FaultPhase::Load)?.describe()?)
}

fn mismatch(error: &wasmtime::Error) -> String {
    let found = text::printable(&format!("{error:#}"), 1024);
    format!("{found}: rebuild the component with the SDK of this host")
}
