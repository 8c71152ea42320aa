//! `savepoint`, `stop` and `drain`: what a running pipeline is asked for by another process.

use std::path::Path;

use cofferdam::config::Diagnostic;
use cofferdam::config::value::{format_bytes, format_duration_ms};
use cofferdam::control::{Answer, Client, ClientError, Request, Status};

use super::Exit;
use super::arguments::{SavepointArguments, StopArguments};
use super::checkpoints::storage_of;
use super::failure::{Failure, chain};
use super::run::exit_of;
use super::terminal::{Paint, Style, Terminal};

/// Answers that a request is under way are shown as text after so many.
const SHOW_EVERY: u32 = 5;

/// Takes a savepoint.
pub(super) fn savepoint(arguments: &SavepointArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let to = arguments.to.as_deref().map(absolute).transpose()?;
    ask(&arguments.path, &Request::Savepoint { to }, terminal)
}

/// Stops a job.
pub(super) fn stop(arguments: &StopArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let (savepoint, to) = target(arguments)?;
    ask(&arguments.path, &Request::Stop { savepoint, to }, terminal)
}

/// Drains a job.
pub(super) fn drain(arguments: &StopArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let (savepoint, to) = target(arguments)?;
    ask(&arguments.path, &Request::Drain { savepoint, to }, terminal)
}

fn target(arguments: &StopArguments) -> Result<(bool, Option<String>), Failure> {
    let to = arguments.savepoint.as_ref().and_then(Option::as_deref).map(absolute).transpose()?;
    Ok((arguments.savepoint.is_some(), to))
}

/// The other process may have another working directory.
fn absolute(path: &Path) -> Result<String, Failure> {
    let refused = |what: String| Failure::from(Diagnostic::new("bad-value", what));
    let full = std::path::absolute(path).map_err(|error| refused(format!("{}: {error}", path.display())))?;
    let entries = std::fs::read_dir(&full);
    let is_taken = entries.map_or_else(|_| full.exists(), |mut entries| entries.next().is_some());
    if is_taken {
        let message = format!("{} exists and is not an empty folder", full.display());
        return Err(Diagnostic::new("savepoint-exists", message).with_help("give a folder that does not exist yet").into());
    }
    full.into_os_string().into_string().map_err(|path| refused(format!("{} is not UTF-8", path.display())))
}

/// Asks and shows the answers until the last.
fn ask(path: &Path, request: &Request, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut asked = Asked::begin(&storage_of(path)?, request)?;
    loop {
        let answer = asked.answer(terminal)?;
        terminal.result(&answer, |paint| text(&answer, paint))?;
        if !matches!((&answer, request), (Answer::Savepoint { .. }, Request::Stop { .. } | Request::Drain { .. })) {
            return Ok(Exit::Done);
        }
    }
}

/// Asks the process that runs the job of a directory for something with one answer, and waits for it.
pub(super) fn request(dir: &Path, request: &Request, terminal: &Terminal) -> Result<Answer, Failure> {
    Asked::begin(dir, request)?.answer(terminal)
}

/// As [`request`]; `None` if nothing runs the job.
pub(super) fn request_if_running(dir: &Path, request: &Request, terminal: &Terminal) -> Result<Option<Answer>, Failure> {
    match Client::connect(dir) {
        Err(ClientError::NotRunning { .. }) => Ok(None),
        connected => Asked::over(connected, request)?.answer(terminal).map(Some),
    }
}

/// A request that is under way.
struct Asked {
    client: Client,
    waited: u32,
}

impl Asked {
    fn begin(dir: &Path, request: &Request) -> Result<Self, Failure> {
        Self::over(Client::connect(dir), request)
    }

    fn over(connected: Result<Client, ClientError>, request: &Request) -> Result<Self, Failure> {
        let mut client = connected.map_err(|error| unreachable(&error))?;
        client.ask(request).map_err(|error| unreachable(&error))?;
        Ok(Self { client, waited: 0 })
    }

    /// Waits for the next answer, and tells that it does.
    fn answer(&mut self, terminal: &Terminal) -> Result<Answer, Failure> {
        loop {
            match self.client.answer().map_err(|error| unreachable(&error))? {
                Answer::Waiting(status) => {
                    self.waited += 1;
                    if terminal.is_json() {
                        terminal.json(&Answer::Waiting(status));
                    } else if self.waited.is_multiple_of(SHOW_EVERY) {
                        terminal.note(&waiting(&status));
                    }
                }
                Answer::Error { code, message } => {
                    return Err(Failure::new(exit(&code), Diagnostic::new(stable(&code), message)));
                }
                answer => return Ok(answer),
            }
        }
    }
}

/// The code to tell for one that the other process gave. That of a failed job stands in the message.
fn stable(code: &str) -> &'static str {
    const KNOWN: &[&str] = &["request-failed", "bad-request", "bad-version", "busy", "interrupted", "not-running", "fenced"];
    KNOWN.iter().find(|known| **known == code).copied().unwrap_or("job-failed")
}

fn exit(code: &str) -> Exit {
    match code {
        "bad-request" | "bad-version" => Exit::Invalid,
        "busy" | "not-running" => Exit::Environment,
        "request-failed" | "interrupted" => Exit::JobFailed,
        code => exit_of(code),
    }
}

fn unreachable(error: &ClientError) -> Failure {
    let problem = Diagnostic::new(error.code(), chain(error));
    let problem = match error {
        ClientError::NotRunning { .. } => problem.with_help("\"cofferdam run\" starts a pipeline"),
        _ => problem,
    };
    Failure::new(Exit::Environment, problem)
}

fn waiting(status: &Status) -> String {
    let Status { pipeline, state, records_in, records_out, .. } = status;
    format!("waiting: {pipeline} is {state}, {records_in} records in, {records_out} out")
}

fn text(answer: &Answer, paint: Paint) -> String {
    match answer {
        Answer::Savepoint { id, path, duration_ms, bytes } => {
            let head = paint.paint(Style::Good, format_args!("savepoint {id}"));
            format!("{head}: {path}\n  {} in {}", format_bytes(*bytes), format_duration_ms(*duration_ms))
        }
        Answer::Stopped { checkpoint: Some(id) } => {
            format!("{}: the next run goes on from checkpoint {id}", paint.paint(Style::Strong, "stopped"))
        }
        Answer::Stopped { checkpoint: None } => {
            format!("{}: the next run begins at the beginning", paint.paint(Style::Strong, "stopped"))
        }
        Answer::Finished {} => format!("{}: nothing is left to run", paint.paint(Style::Good, "finished")),
        other => format!("{other:?}"),
    }
}
