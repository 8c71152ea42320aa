//! The sandbox from outside: components that are built to do harm, and what becomes of them.
//!
//! Each is loaded with the real compiler process. None may reach further than its own call.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests may")]

mod abi;
mod cpu_memory;
mod guests;
mod loading;
mod reads;
mod text;
