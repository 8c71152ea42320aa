//! Server and client over a real socket; the test is the job.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use cofferdam_dataflow::checkpoint::coordinator::SavepointTarget;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::execution::Control;
use crate::report::{RunEvent, Summary};

fn start(dir: &Path) -> (ControlServer, UnboundedReceiver<Control>) {
    let (controls, receiver) = unbounded_channel();
    (ControlServer::start(dir, "words", controls).unwrap(), receiver)
}

/// Returns the last answer to a request.
fn last(client: &mut Client) -> Answer {
    loop {
        match client.answer().unwrap() {
            Answer::Waiting(_) => {}
            answer => return answer,
        }
    }
}

fn saved(request: u64) -> RunEvent {
    RunEvent::Savepoint { request, id: 7, path: "/s".into(), duration_ms: 3, bytes: 9 }
}

#[test]
fn each_client_hears_what_came_of_its_own_request() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut controls) = start(dir.path());
    let (mut one, mut two) = (Client::connect(dir.path()).unwrap(), Client::connect(dir.path()).unwrap());
    one.ask(&Request::Savepoint { to: Some("/s".into()) }).unwrap();
    let Some(Control::Savepoint(first)) = controls.blocking_recv() else { panic!() };
    assert_eq!(first.target, SavepointTarget::At("/s".into()));
    two.ask(&Request::Savepoint { to: None }).unwrap();
    let Some(Control::Savepoint(second)) = controls.blocking_recv() else { panic!() };
    assert!(matches!(&second.target, SavepointTarget::Below(path) if path.ends_with("/savepoints")), "{second:?}");
    server.note(&RunEvent::RequestFailed { request: second.request, reason: "one at a time".into() });
    let refused = Answer::Error { code: "request-failed".into(), message: "one at a time".into() };
    assert_eq!(last(&mut two), refused);
    server.note(&saved(first.request));
    assert_eq!(last(&mut one), Answer::Savepoint { id: 7, path: "/s".into(), duration_ms: 3, bytes: 9 });
    two.ask(&Request::Status {}).unwrap();
    let Answer::Status(status) = last(&mut two) else { panic!() };
    assert_eq!((status.pipeline.as_str(), status.pid, status.state.as_str()), ("words", std::process::id(), "starting"));
    server.close();
}

#[test]
fn who_waits_for_the_end_of_the_job_is_told_before_it_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut controls) = start(dir.path());
    let mut client = Client::connect(dir.path()).unwrap();
    client.ask(&Request::Stop { savepoint: true, to: Some("/s".into()) }).unwrap();
    let Some(Control::StopWithSavepoint(order)) = controls.blocking_recv() else { panic!() };
    server.note(&saved(order.request));
    server.note(&RunEvent::Stopped { checkpoint: Some(7), summary: Summary::default() });
    server.close();
    assert!(matches!(last(&mut client), Answer::Savepoint { .. }));
    assert_eq!(last(&mut client), Answer::Stopped { checkpoint: Some(7) });
    assert!(matches!(Client::connect(dir.path()), Err(ClientError::NotRunning { .. })));
}

#[test]
fn a_stale_socket_is_replaced_and_only_its_owner_may_use_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("control")).unwrap());
    assert!(matches!(Client::connect(dir.path()), Err(ClientError::NotRunning { .. })));
    let (server, _controls) = start(dir.path());
    let mode = std::fs::metadata(dir.path().join("control")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    Client::connect(dir.path()).unwrap();
    server.close();
    assert!(!dir.path().join("control").exists());
}

#[test]
fn clients_beyond_the_limit_are_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _controls) = start(dir.path());
    let path = dir.path().join("control");
    let connected: Vec<_> = (0..32).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let mut line = String::new();
    BufReader::new(UnixStream::connect(&path).unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"busy\""), "{line}");
    drop(connected);
    // Places become free as the threads see that their clients have gone.
    let mut client = loop {
        let mut client = Client::connect(dir.path()).unwrap();
        if client.ask(&Request::Status {}).is_ok() && matches!(client.answer(), Ok(Answer::Status(_))) {
            break client;
        }
        std::thread::yield_now();
    };
    client.ask(&Request::Status {}).unwrap();
    assert!(matches!(client.answer().unwrap(), Answer::Status(_)));
    server.close();
}
