//! What the values of a state slot look like: the schemas that operators declare, compared, and values brought from one to
//! the other. docs/schema.md has the language and the rules.
//!
//! Schemas and values come from guests: parsing, comparing and transcoding are bounded in depth, size and steps, and never
//! panic.

mod compare;
mod number;
mod parse;
mod plan;
mod text;
mod types;
mod value;
mod wire;

#[cfg(test)]
mod tests;

pub use compare::{Mismatch, Verdict, compare};
pub use parse::SchemaError;
pub use plan::Plan;
pub use types::Schema;
pub use value::{Value, decode};
pub use wire::ValueError;

/// The longest text of a schema, in bytes. A longer one is declared as its hash.
pub const TEXT_BYTES_MAX: usize = 4096;

/// How deep types may be nested in a text, and types of two schemas compared.
const TYPE_DEPTH_MAX: u32 = 128;

/// How deep values may be nested.
const VALUE_DEPTH_MAX: u32 = 256;
