//! Why an operator could not do what was asked.

use std::fmt;

/// A failed call. None of its effects apply: state and output stay as they were before the batch.
///
/// Any [`std::error::Error`] converts with `?` into a permanent one, with the messages of its sources. For that to be
/// possible, this type itself is not a [`std::error::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    limit: Option<Limit>,
    message: String,
}

/// A limit of the host on one call, which the pipeline file sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// On emitted records: their number, their size, that of their keys. The host reports `guest-output`.
    Output,
    /// On state values. The host reports `guest-write-budget`.
    Write,
}

impl Limit {
    /// Returns the code of the fault that the host reports.
    pub fn code(self) -> &'static str {
        match self {
            Self::Output => "guest-output",
            Self::Write => "guest-write-budget",
        }
    }
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
        Self { kind: ErrorKind::Transient, limit: None, message: message.into() }
    }

    /// Returns an error that a replay repeats.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Permanent, limit: None, message: message.into() }
    }

    /// Returns a permanent error that is no decision of the operator's author: the call went over a limit.
    #[cold]
    pub(crate) fn over(limit: Limit, message: String) -> Self {
        Self { kind: ErrorKind::Permanent, limit: Some(limit), message }
    }

    /// Returns the limit that the call went over, if that is why it failed.
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }

    /// Returns the message as it crosses to the host: with the fault's code in brackets before it if a limit was the
    /// reason, which has no place of its own in the interface.
    #[cfg(any(target_arch = "wasm32", test))]
    pub(crate) fn wire_message(&self) -> String {
        match self.limit {
            Some(limit) => format!("[{}] {}", limit.code(), self.message),
            None => self.message.clone(),
        }
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
        assert_eq!(error.limit(), None);
        assert_eq!(error.wire_message(), "number too large to fit in target type");
        assert_eq!(error.context("line 7").message(), "line 7: number too large to fit in target type");
    }

    #[test]
    fn a_limit_stays_with_its_error_and_is_told_to_the_host_alone() {
        let error = Error::over(Limit::Write, "a value has 9 bytes, over 8".into()).context("user 7");
        assert_eq!((error.kind(), error.limit()), (ErrorKind::Permanent, Some(Limit::Write)));
        assert_eq!(error.message(), "user 7: a value has 9 bytes, over 8");
        assert_eq!(error.wire_message(), "[guest-write-budget] user 7: a value has 9 bytes, over 8");
    }
}
