//! What is said through the socket. A request is at most [`LINE_BYTES_MAX`] long. A line holds one object with the field `version`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::time::PipelineTime;

/// The version of the protocol. Another one is refused, with both numbers.
pub const VERSION: u64 = 1;

/// No request is longer, its end included.
pub(super) const LINE_BYTES_MAX: u64 = 64 << 10;
/// No answer is longer, its end included.
pub(super) const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What a client asks for. As JSON, the variant's name is the field `request`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// How the job is.
    Status {},
    /// Where the job is in event time.
    Explain {},
    /// Take a checkpoint at once and go on.
    Checkpoint {},
    /// Take a savepoint and go on.
    Savepoint {
        /// An absolute path that is not there or empty; a folder in the job's directory if there is none.
        to: Option<String>,
    },
    /// Stop with a last checkpoint.
    Stop {
        /// With a savepoint that is the last the sources emit.
        savepoint: bool,
        /// Where to; as in [`Self::Savepoint`].
        to: Option<String>,
    },
    /// Let the sources end where they are, and finish.
    Drain {
        /// With a savepoint of the end.
        savepoint: bool,
        /// Where to; as in [`Self::Savepoint`].
        to: Option<String>,
    },
}

/// What the server answers. As JSON, the variant's name is the field `event`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// How the job is. The last answer to `status`.
    Status(Box<Status>),
    /// Where the job is in event time. The last answer to `explain`.
    Time(Box<PipelineTime>),
    /// The request is under way; about once a second.
    Waiting(Box<Status>),
    /// The checkpoint exists and its output is published. The last answer to `checkpoint`.
    Checkpoint {
        /// Its number.
        id: u64,
    },
    /// A savepoint exists. The last answer to `savepoint`; for others, the end follows.
    Savepoint {
        /// Its id.
        id: u64,
        /// Its folder.
        path: String,
        /// From the trigger until it existed, in milliseconds.
        duration_ms: u64,
        /// Bytes of its state.
        bytes: u64,
    },
    /// The job has stopped and can be resumed. The last answer.
    Stopped {
        /// The checkpoint it goes on from.
        checkpoint: Option<u64>,
    },
    /// The job has finished. The last answer.
    Finished {},
    /// What was asked for does not happen, or the job failed meanwhile. The last answer.
    Error {
        /// A stable code.
        code: String,
        /// Why.
        message: String,
    },
}

/// How a job is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The pipeline's name.
    pub pipeline: String,
    /// The process that runs it.
    pub pid: u32,
    /// `starting`, `running`, `restarting`, `stopping` or `ended`.
    pub state: String,
    /// The attempt that runs or ran last.
    pub attempt: Option<u64>,
    /// The newest completed checkpoint.
    pub checkpoint: Option<u64>,
    /// Since the process began to run the job, in milliseconds.
    pub elapsed_ms: u64,
    /// Records read in this process, replayed ones included.
    pub records_in: u64,
    /// Records written in this process, replayed ones included.
    pub records_out: u64,
    /// Bytes of state.
    pub state_bytes: Option<u64>,
    /// Restarts of this process.
    pub restarts: u64,
}

/// Why a line is no request: a code and what to tell.
pub(super) type Refusal = (&'static str, String);

/// Reads a request.
pub(super) fn parse(line: &[u8]) -> Result<Request, Refusal> {
    let mut value: Value = serde_json::from_slice(line).map_err(|error| ("bad-request", error.to_string()))?;
    let fields = value.as_object_mut().ok_or_else(|| ("bad-request", "a request is an object".to_owned()))?;
    match fields.remove("version").as_ref().and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(other) => return Err(("bad-version", format!("the request is of version {other}; this host speaks {VERSION}"))),
        None => return Err(("bad-request", "the field \"version\" is missing".to_owned())),
    }
    serde_json::from_value(value).map_err(|error| ("bad-request", error.to_string()))
}

/// Returns an object as a line with the version.
pub(super) fn line(object: &impl Serialize) -> Vec<u8> {
    let mut value = serde_json::to_value(object).expect("what is said has string keys only");
    if let Some(fields) = value.as_object_mut() {
        fields.insert("version".into(), VERSION.into());
    }
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Reads an answer.
pub(super) fn parse_answer(line: &[u8]) -> Result<Answer, String> {
    let mut value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let version = value.as_object_mut().and_then(|fields| fields.remove("version")).and_then(|version| version.as_u64());
    match version {
        Some(VERSION) => serde_json::from_value(value).map_err(|error| error.to_string()),
        other => Err(format!("the running host speaks version {other:?} of the control protocol, this one {VERSION}")),
    }
}
