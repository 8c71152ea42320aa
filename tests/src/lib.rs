//! What the tests of the whole product share.

pub mod native;
pub mod simulation;
