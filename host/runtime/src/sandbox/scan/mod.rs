//! The look at untrusted bytes before anything expensive happens to them.
//!
//! Linear in the size of the file and without recursion over its nesting. What a compiler would multiply is counted
//! here as it would be multiplied: a valid component of 1 KB can ask for 10^8 instances. May not compile, instantiate or
//! trust a length it has not checked.

mod frames;
mod limits;
mod module;
mod types;
mod world;

use serde::Serialize;
use sha2::{Digest, Sha256};
use wasmparser::{Parser, Validator};

pub use limits::ScanLimits;

use super::LoadError;
use super::engine::FEATURES;
use crate::sandbox::text;

/// What a component is, as far as it can be told without running it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentSummary {
    /// SHA-256 of the file, in hexadecimal.
    pub digest: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// The operator interface it was built for, such as `cofferdam:operator@0.1.0`.
    pub interface: String,
    /// The names it imports.
    pub imports: Vec<String>,
    /// The names it exports.
    pub exports: Vec<String>,
    /// Counts of what it contains.
    pub counts: Counts,
}

/// What a component contains. Instances are counted as instantiation would make them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Core modules defined anywhere in it.
    pub core_modules: u64,
    /// Core instances that instantiating it makes.
    pub core_instances: u64,
    /// Component instances that instantiating it makes, itself not counted.
    pub component_instances: u64,
    /// Functions of all core modules.
    pub functions: u64,
    /// Bytes of all function bodies.
    pub code_bytes: u64,
}

/// Returns the SHA-256 of `bytes` in hexadecimal: a component's digest.
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|nibble| char::from(b"0123456789abcdef"[usize::from(nibble)]))
        .collect()
}

/// Checks a component and says what it is.
///
/// # Errors
/// [`LoadError`], for the first thing found.
pub fn scan(bytes: &[u8], limits: &ScanLimits) -> Result<ComponentSummary, LoadError> {
    let size = bytes.len() as u64;
    if size > limits.component_bytes {
        return Err(LoadError::TooLarge { bytes: size, limit: limits.component_bytes });
    }
    check_kind(bytes)?;
    let outline = frames::walk(bytes, limits)?;
    Validator::new_with_features(FEATURES).validate_all(bytes).map_err(|error| invalid(&error))?;
    let interface = world::check(&outline)?;
    Ok(ComponentSummary {
        digest: digest(bytes),
        bytes: size,
        interface,
        imports: outline.imports,
        exports: outline.exports,
        counts: outline.counts,
    })
}

/// Refuses what is no component, in words that say what it is instead.
fn check_kind(bytes: &[u8]) -> Result<(), LoadError> {
    if wasmtime::Engine::detect_precompiled(bytes).is_some() || bytes.starts_with(b"\x7fELF") {
        return Err(LoadError::Precompiled);
    }
    if Parser::is_component(bytes) {
        return Ok(());
    }
    let found = if Parser::is_core_wasm(bytes) {
        "a core module; turn it into a component (`cofferdam build` does)"
    } else if bytes.is_empty() {
        "an empty file"
    } else if bytes.starts_with(b"\0asm") {
        "wasm of an unknown version"
    } else if bytes.trim_ascii_start().starts_with(b"(") {
        "the text format"
    } else {
        "something else"
    };
    Err(LoadError::Invalid { reason: format!("expected a binary component, found {found}") })
}

fn invalid(error: &wasmparser::BinaryReaderError) -> LoadError {
    let reason = format!("{} (at offset {:#x})", text::printable(error.message(), 512), error.offset());
    LoadError::Invalid { reason }
}

fn too_complex(what: &'static str, found: u64, limit: u64) -> Result<(), LoadError> {
    if found > limit { Err(LoadError::TooComplex { what, found, limit }) } else { Ok(()) }
}
