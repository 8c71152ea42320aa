//! A command that failed: what to show and how to exit.

use std::error::Error;

use cofferdam::build::BuildError;
use cofferdam::config::Diagnostic;

use super::Exit;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// At least one.
    pub(crate) problems: Vec<Diagnostic>,
}

impl Failure {
    /// Returns a failure with one reason.
    pub(crate) fn new(exit: Exit, problem: Diagnostic) -> Self {
        Self { exit, problems: vec![problem] }
    }

    /// Returns a failure for an error of the library, with what caused it.
    pub(crate) fn from_error(exit: Exit, code: &'static str, error: &dyn Error) -> Self {
        Self::new(exit, Diagnostic::new(code, chain(error)))
    }
}

/// Returns an error's text and those of its causes on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Some errors repeat their cause.
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

impl From<Vec<Diagnostic>> for Failure {
    fn from(problems: Vec<Diagnostic>) -> Self {
        Self { exit: Exit::Invalid, problems }
    }
}

impl From<Diagnostic> for Failure {
    fn from(problem: Diagnostic) -> Self {
        Self::new(Exit::Invalid, problem)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let exit = match &error {
            BuildError::ToolMissing { .. } | BuildError::NoTarget(_) | BuildError::Io { .. } => Exit::Environment,
            _ => Exit::Invalid,
        };
        Self::from_error(exit, error.code(), &error)
    }
}
