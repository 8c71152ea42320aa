//! Handles of all kinds, through the harness.

mod model;
mod rules;
