//! A job's life: attempts, failures, restarts, and the one place that decides about them.

pub mod failure;
pub mod master;
pub mod restart;
