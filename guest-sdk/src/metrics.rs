//! Numbers about the operator. Outside of exactly-once: a restart begins at zero.
//!
//! At most 64 names of `a-z`, `0-9` and `_`, 1 to 64 long; the host ignores others. Natively, numbers go to the test
//! harness; outside of one they are discarded.

/// Adds to a counter.
pub fn add(name: &str, delta: u64) {
    crate::host::add(name, delta);
}

/// Sets a gauge.
pub fn set(name: &str, value: f64) {
    crate::host::set(name, value);
}
