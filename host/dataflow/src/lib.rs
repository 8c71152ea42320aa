//! The pure dataflow engine of cofferdam.
//!
//! What decides (plan, alignment, state, checkpoints, restart) lives here, without a thread, a clock, a file, randomness
//! or wasm: the world is plugged in through the traits of [`guest`], [`connector`], [`subtask::ports`] and
//! [`checkpoint::storage`]. The same code runs in production, in unit tests and under the seeded simulator.
//!
//! In reading order: [`ids`], [`time`], [`mod@column`], [`batch`], [`element`] and [`key_group`] are the words; [`graph`]
//! turns a job into a plan; [`state`] holds keyed state; [`guest`] and [`connector`] are what a subtask calls;
//! [`subtask`] is the data path; [`snapshot`] is one subtask's part of a checkpoint; [`schema`] is what state values look
//! like; [`checkpoint`] and [`job`] are the control path.

pub mod batch;
pub mod checkpoint;
pub mod column;
pub mod connector;
pub mod element;
pub mod graph;
pub mod guest;
pub mod ids;
pub mod job;
pub mod key_group;
pub mod schema;
pub mod snapshot;
pub mod state;
pub mod subtask;
pub mod time;
