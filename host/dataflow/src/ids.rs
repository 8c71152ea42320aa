//! Names and numbers of the things a job is made of.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The user's name of an operator, source or sink; unique in a job. Names state in checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OperatorId(Arc<str>);

/// A name that is not 1 to 64 of `[a-z0-9._-]`, beginning with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid id: use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit")]
pub struct InvalidId(pub String);

impl OperatorId {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// [`InvalidId`] if the name is not 1 to 64 of `[a-z0-9._-]`, beginning with a letter or digit.
    pub fn new(name: &str) -> Result<Self, InvalidId> {
        let first_is_plain = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        if first_is_plain && name.len() <= 64 && name.bytes().all(plain) {
            Ok(Self(name.into()))
        } else {
            Err(InvalidId(name.to_owned()))
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for OperatorId {
    type Error = InvalidId;
    fn try_from(name: String) -> Result<Self, InvalidId> {
        Self::new(&name)
    }
}

impl From<OperatorId> for String {
    fn from(id: OperatorId) -> Self {
        id.0.to_string()
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A checkpoint of a job. Strictly ascending over all attempts and processes: above every one that storage has a
    /// manifest or a segment of. One that had left nothing there when its process died may come again; nothing refers to
    /// it then, and what its sinks had prepared is taken back before.
    CheckpointId(u64)
);
number!(
    /// The n-th run of a job, counted over all processes. Messages of an older attempt are dropped by it.
    Attempt(u64)
);
number!(
    /// An index into [`crate::graph::plan::ExecutionPlan::tasks`]: a chain of subtasks that runs on one thread.
    TaskIndex(usize)
);
number!(
    /// An index into [`crate::graph::plan::ExecutionPlan::channels`]: a FIFO from one task to another.
    ChannelIndex(usize)
);

/// One parallel instance of an operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubtaskId {
    /// The operator.
    pub operator: OperatorId,
    /// From 0 to the operator's parallelism, exclusive.
    pub index: u32,
}

impl fmt::Display for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.operator, self.index)
    }
}
