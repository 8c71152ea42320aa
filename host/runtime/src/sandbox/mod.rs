//! From untrusted bytes to machine code that this process may map.
//!
//! A component passes, in this order: [`scan`](scan::scan) (linear time, no compiler, in this process), the
//! [`cache`](cache::ArtefactCache) of artefacts made before, and the [`compiler`](compile::Compiler), which is a child
//! process under hard limits. Nothing here runs guest code; `guest` does. Untrusted bytes never reach the compiler in
//! this process, and no artefact is mapped that our own child did not make.

pub mod artefact;
pub mod cache;
pub mod compile;
pub mod engine;
mod error;
pub mod scan;
pub mod text;

pub use compile::child::compile_child_main;
pub use error::LoadError;
