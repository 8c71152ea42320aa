//! The side that answers: one thread that accepts, and one for each client.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_dataflow::checkpoint::coordinator::{SavepointOrder, SavepointTarget};
use tokio::sync::mpsc::UnboundedSender;

use super::address;
use super::protocol::{Answer, LINE_BYTES_MAX, Request, Status, line, parse};
use crate::execution::Control;
use crate::report::RunEvent;
use crate::report::time::PipelineTime;

/// Clients at once.
const CLIENTS_MAX: usize = 32;
/// Between two answers that a request is under way.
const WAITING_EVERY: Duration = Duration::from_secs(1);
/// For clients to take their last answer at the end of the job.
const PARTING: Duration = Duration::from_secs(2);
/// A client that takes nothing for so long is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers clients for as long as the job runs.
pub struct ControlServer {
    shared: Arc<Shared>,
    dir: PathBuf,
}

struct Shared {
    /// The job's directory, absolute.
    dir: PathBuf,
    started: Instant,
    controls: UnboundedSender<Control>,
    state: Mutex<State>,
    changed: Condvar,
    clients: AtomicUsize,
    closed: AtomicBool,
}

struct State {
    status: Status,
    next_request: u64,
    /// What came of requests that somebody waits for.
    outcomes: BTreeMap<u64, Vec<Answer>>,
    /// How the job ended.
    end: Option<Answer>,
}

impl ControlServer {
    /// Listens in a job's directory, whose lock the caller holds.
    ///
    /// # Errors
    /// If the socket cannot be made, or no thread started.
    pub fn start(dir: &Path, pipeline: &str, controls: UnboundedSender<Control>) -> io::Result<Self> {
        let dir = dir.canonicalize()?;
        let listener = address::listen(&dir)?;
        let status = Status { pipeline: pipeline.into(), pid: std::process::id(), state: "starting".into(), ..Status::default() };
        let state = State { status, next_request: 1, outcomes: BTreeMap::new(), end: None };
        let shared = Arc::new(Shared {
            dir: dir.clone(),
            started: Instant::now(),
            controls,
            state: Mutex::new(state),
            changed: Condvar::new(),
            clients: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::Builder::new().name("control".into()).spawn(move || accept(&listener, &accepting))?;
        Ok(Self { shared, dir })
    }

    /// Takes note of what happens in the run.
    pub fn note(&self, event: &RunEvent) {
        self.shared.state().note(event);
        self.shared.changed.notify_all();
    }

    /// Tells who has asked where the job is in event time.
    pub fn note_time(&self, request: u64, time: PipelineTime) {
        self.shared.state().tell(request, Answer::Time(Box::new(time)));
        self.shared.changed.notify_all();
    }

    /// The run is over: waits until everybody who waits has been told, but not long, and removes the socket.
    pub fn close(self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        let parting = Instant::now();
        let mut state = self.shared.state();
        if state.end.is_none() {
            state.end = Some(Answer::Error { code: "not-running".into(), message: "the job could not be run".into() });
        }
        self.shared.changed.notify_all();
        while !state.outcomes.is_empty() && parting.elapsed() < PARTING {
            let waited = self.shared.changed.wait_timeout(state, Duration::from_millis(50));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        address::remove(&self.dir);
        // The thread that accepts sees that it is over.
        drop(address::connect(&self.dir));
    }
}

impl State {
    fn note(&mut self, event: &RunEvent) {
        let status = &mut self.status;
        match event {
            RunEvent::Started { attempt, .. } => {
                (status.state, status.attempt) = ("running".into(), Some(*attempt));
            }
            RunEvent::Progress(numbers) => {
                (status.records_in, status.records_out) = (numbers.records_in, numbers.records_out);
                (status.state_bytes, status.restarts) = (numbers.state_bytes, numbers.restarts);
            }
            RunEvent::Checkpoint { id, .. } => status.checkpoint = Some(*id),
            RunEvent::Fault(fault) if fault.restart_in_ms.is_some() => status.state = "restarting".into(),
            RunEvent::CheckpointTaken { request, id } => self.tell(*request, Answer::Checkpoint { id: *id }),
            RunEvent::Savepoint { request, id, path, duration_ms, bytes } => {
                let (id, duration_ms, bytes) = (*id, *duration_ms, *bytes);
                self.tell(*request, Answer::Savepoint { id, path: path.clone(), duration_ms, bytes });
            }
            RunEvent::RequestFailed { request, reason } => {
                self.tell(*request, Answer::Error { code: "request-failed".into(), message: reason.clone() });
            }
            RunEvent::Finished(_) | RunEvent::AlreadyFinished => self.end = Some(Answer::Finished {}),
            RunEvent::Stopped { checkpoint, .. } => self.end = Some(Answer::Stopped { checkpoint: *checkpoint }),
            RunEvent::Interrupted { .. } => {
                let message = "the run was interrupted, without a last checkpoint".into();
                self.end = Some(Answer::Error { code: "interrupted".into(), message });
            }
            RunEvent::Failed { code, message, .. } => {
                self.end = Some(Answer::Error { code: code.clone(), message: message.clone() });
            }
            _ => {}
        }
        if self.end.is_some() {
            self.status.state = "ended".into();
        }
    }

    fn tell(&mut self, request: u64, answer: Answer) {
        if let Some(answers) = self.outcomes.get_mut(&request) {
            answers.push(answer);
        }
    }

    /// Returns a number for a request that somebody will wait for.
    fn number(&mut self) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        self.outcomes.insert(request, Vec::new());
        request
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self, state: &State) -> Status {
        let elapsed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Status { elapsed_ms, ..state.status.clone() }
    }

    fn target(&self, to: Option<String>) -> Result<SavepointTarget, Answer> {
        let error = |message: &str| Answer::Error { code: "bad-request".into(), message: message.into() };
        match to {
            Some(path) if !Path::new(&path).is_absolute() => Err(error("the savepoint's path is not absolute")),
            Some(path) if path.contains(['\n', '\0']) => Err(error("the savepoint's path holds a line break")),
            Some(path) => Ok(SavepointTarget::At(path)),
            None => match self.dir.join("savepoints").to_str() {
                Some(path) => Ok(SavepointTarget::Below(path.to_owned())),
                None => Err(error("the job's directory is not UTF-8: say where the savepoint goes")),
            },
        }
    }

    /// Hands a request to the job. Returns whether the end of the job is its answer, or the answer if it has one already.
    fn begin(&self, number: u64, request: Request) -> Result<bool, Answer> {
        let order = |request, to| self.target(to).map(|target| SavepointOrder { request, target });
        let made = match request {
            Request::Status {} => Err(Answer::Status(Box::new(self.status(&self.state())))),
            Request::Explain {} => Ok((Control::Times { request: number }, false)),
            Request::Checkpoint {} => Ok((Control::Checkpoint { request: number }, false)),
            Request::Savepoint { to } => order(number, to).map(|order| (Control::Savepoint(order), false)),
            Request::Stop { savepoint: true, to } => order(number, to).map(|order| (Control::StopWithSavepoint(order), true)),
            Request::Drain { savepoint: true, to } => {
                order(number, to).map(|order| (Control::Drain { request: number, savepoint: Some(order) }, true))
            }
            Request::Stop { to: Some(_), .. } | Request::Drain { to: Some(_), .. } => {
                let message = "\"to\" is for a savepoint".into();
                Err(Answer::Error { code: "bad-request".into(), message })
            }
            Request::Stop { .. } => Ok((Control::Stop, true)),
            Request::Drain { .. } => Ok((Control::Drain { request: number, savepoint: None }, true)),
        };
        let (control, to_the_end) = made?;
        if to_the_end {
            let mut state = self.state();
            if state.status.state == "running" {
                state.status.state = "stopping".into();
            }
        }
        // The job may have ended meanwhile: then that is the answer.
        let _ = self.controls.send(control);
        Ok(to_the_end)
    }

    /// Answers a request. An error is that of the connection.
    fn answer(&self, request: Request, mut say: impl FnMut(&Answer) -> io::Result<()>) -> io::Result<()> {
        let number = self.state().number();
        let result = match self.begin(number, request) {
            Ok(to_the_end) => self.wait(number, to_the_end, &mut say),
            Err(answer) => say(&answer),
        };
        self.state().outcomes.remove(&number);
        self.changed.notify_all();
        result
    }

    fn wait(&self, number: u64, to_the_end: bool, say: &mut impl FnMut(&Answer) -> io::Result<()>) -> io::Result<()> {
        let mut due = Instant::now() + WAITING_EVERY;
        loop {
            let (answers, end, status) = {
                let mut state = self.state();
                let nothing = |state: &State| state.outcomes.get(&number).is_none_or(Vec::is_empty) && state.end.is_none();
                if nothing(&state) {
                    let left = due.saturating_duration_since(Instant::now());
                    state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                }
                let answers = state.outcomes.get_mut(&number).map(std::mem::take).unwrap_or_default();
                (answers, state.end.clone(), self.status(&state))
            };
            for answer in &answers {
                say(answer)?;
                let is_last = matches!(answer, Answer::Error { .. }) || !to_the_end;
                if is_last {
                    return Ok(());
                }
            }
            if let Some(end) = end {
                return say(&match end {
                    end if to_the_end => end,
                    Answer::Error { code, message } => Answer::Error { code, message },
                    _ => Answer::Error { code: "request-failed".into(), message: "the job has ended before".into() },
                });
            }
            if due <= Instant::now() {
                due = Instant::now() + WAITING_EVERY;
                say(&Answer::Waiting(Box::new(status)))?;
            }
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.closed.load(Ordering::Relaxed) {
            return;
        }
        // A client that went away before it was accepted; or no descriptor is left, until somebody goes.
        let Ok(mut stream) = stream else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
        if shared.clients.load(Ordering::Relaxed) >= CLIENTS_MAX {
            let message = format!("{CLIENTS_MAX} clients are connected already");
            // Whoever does not take it sees the connection close.
            let _ = stream.write_all(&line(&Answer::Error { code: "busy".into(), message }));
            continue;
        }
        shared.clients.fetch_add(1, Ordering::Relaxed);
        let client = Arc::clone(shared);
        let serve = move || {
            // It ends with the connection, whichever way that does.
            let _ = serve(&client, stream);
            client.clients.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("control-client".into()).spawn(serve).is_err() {
            shared.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn serve(shared: &Shared, stream: UnixStream) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut bytes = Vec::new();
        (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.last() != Some(&b'\n') {
            let message = format!("a request ends with a line break and has at most {LINE_BYTES_MAX} bytes");
            return writer.write_all(&line(&Answer::Error { code: "bad-request".into(), message }));
        }
        let mut say = |answer: &Answer| writer.write_all(&line(answer));
        match parse(&bytes) {
            Ok(request) => shared.answer(request, say)?,
            Err((code, message)) => say(&Answer::Error { code: code.into(), message })?,
        }
    }
}
