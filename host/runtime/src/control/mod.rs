//! Control of a running pipeline: a socket in its directory, and the two sides of what is said through it.
//!
//! One request a line and its answers, one a line, as JSON. Only the owner of the directory can reach it. The server
//! decides nothing: it hands requests to the job and tells what came of them.

mod address;
mod client;
mod protocol;
mod server;

#[cfg(test)]
mod tests;

pub use client::{Client, ClientError};
pub use protocol::{Answer, Request, Status, VERSION};
pub use server::ControlServer;
