//! x
pub mod child;
