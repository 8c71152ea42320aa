//! Why an operator could not do what was asked.

use std::fmt;

/// A failed call. None of its effects apply: state and output stay as they were before the batch.
///
/// Any [`std::error::Error`] converts with `?` into a permanent one, with the messages of its sources. For that to be
/// possible, this type itself is not a [`std::error::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// Whether trying again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Replaying from the last checkpoint may help: the host restarts the pipeline.
    Transient,
    /// Replaying gives the same failure: the host stops the pipeline.
    Permanent,
}

impl Error {
    /// Returns an error that a replay may cure.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Transient, message: message.into() }
    }

    /// Returns an error that a replay repeats.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Permanent, message: message.into() }
    }

    /// Returns whether trying again makes sense.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the text for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the same error with `context: ` before its message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self::permanent(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_a_permanent_one_with_its_message() {
        let parse = || -> Result<u8, Error> { Ok("300".parse::<u8>()?) };
        let error = parse().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permanent);
        assert_eq!(error.context("line 7").message(), "line 7: number too large to fit in target type");
    }
}
