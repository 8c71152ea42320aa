//! Log lines: `info!("{n} users")`. Outside of exactly-once: a replay logs again.
//!
//! The host tags lines with operator and subtask, cuts long ones and drops floods. Natively, lines go to the test
//! harness; outside of one they are discarded.

use std::fmt;

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Each step.
    Trace,
    /// For finding faults.
    Debug,
    /// Worth knowing.
    Info,
    /// Unexpected, but handled.
    Warn,
    /// Someone must act.
    Error,
}

/// Writes one line. The macros are shorter.
pub fn write(level: Level, text: fmt::Arguments<'_>) {
    match text.as_str() {
        Some(text) => crate::host::log(level, text),
        None => crate::host::log(level, &text.to_string()),
    }
}

/// Logs at level trace; arguments as for `format!`.
#[macro_export]
macro_rules! trace {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Trace, ::core::format_args!($($arg)+)) };
}

/// Logs at level debug; arguments as for `format!`.
#[macro_export]
macro_rules! debug {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Debug, ::core::format_args!($($arg)+)) };
}

/// Logs at level info; arguments as for `format!`.
#[macro_export]
macro_rules! info {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Info, ::core::format_args!($($arg)+)) };
}

/// Logs at level warn; arguments as for `format!`.
#[macro_export]
macro_rules! warn {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Warn, ::core::format_args!($($arg)+)) };
}

/// Logs at level error; arguments as for `format!`.
#[macro_export]
macro_rules! error {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Error, ::core::format_args!($($arg)+)) };
}
