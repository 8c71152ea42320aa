//! The host runtime of cofferdam: the world around the pure engine.
//!
//! [`config`] reads a pipeline file; [`sandbox`] scans, compiles and caches components; [`guest`] runs them;
//! [`connector`] reads and writes; [`storage`] keeps checkpoints, [`stored`] looks inside them; [`state_store`] keeps state that is
//! larger than memory; [`build`] compiles guest crates; [`execution`] does what
//! the engine's job master commands, and tells its observer in the words of [`report`]; [`control`] lets other
//! processes ask for things meanwhile.

pub mod build;
pub mod config;
pub mod connector;
pub mod control;
pub mod execution;
pub mod guest;
pub mod report;
pub mod sandbox;
pub mod state_store;
pub mod storage;
pub mod stored;
