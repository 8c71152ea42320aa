//! Keyed state. To be written, but for the encoding of entries.

pub mod entry;
