//! The product from end to end: the real program, real components, real files.
//!
//! Guests are built by the program itself when they have changed; the first run on a machine takes some minutes.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests may unwrap, and print their seeds")]

mod bootstrap;
mod disk;
mod event_time;
mod faults;
mod guest_faults;
mod input;
mod interrupt;
mod kill;
mod kinds;
mod live;
mod nexmark;
mod output;
mod patterns;
mod pipeline_file;
mod plan;
mod reader;
mod rejected;
mod rescale;
mod savepoint;
mod schema;
mod stage;
mod stop;
mod storage;
mod stored;
mod timers;
mod toolchain;
mod windows;
