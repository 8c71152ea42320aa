//! Where the command line meets the layers below: components, connectors, execution and storage.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam::config::{Diagnostic, PipelineFile};
use cofferdam::report::RunEvent;
use cofferdam_dataflow::connector::{SinkGuarantee, SourceGuarantee};
use cofferdam_dataflow::guest::Descriptor;
use cofferdam_dataflow::ids::OperatorId;

use super::Exit;
use super::checkpoints::{CheckpointDetail, CheckpointList};
use super::failure::Failure;
use super::inspect::ComponentSummary;
use super::run::{Prepared, StartOptions};

/// A component that was scanned, compiled and asked what it is.
#[derive(Clone, Debug)]
pub(super) struct Component {
    pub(super) summary: ComponentSummary,
    pub(super) descriptor: Descriptor,
}

type Guarantees = (BTreeMap<OperatorId, SourceGuarantee>, BTreeMap<OperatorId, SinkGuarantee>);

fn unwired(what: &str) -> Failure {
    Failure::new(Exit::Environment, Diagnostic::new("not-built", format!("{what} is not part of this build")))
}

/// Loads a component file.
pub(super) fn load(path: &Path) -> Result<Component, Failure> {
    Err(unwired(&format!("loading {}", path.display())))
}

/// Asks the connectors what they can promise.
pub(super) fn guarantees(file: &PipelineFile) -> Result<Guarantees, Failure> {
    Err(unwired(&format!("the connectors of {}", file.name)))
}

/// Runs a job to its end and tells what happens.
pub(super) fn execute(prepared: &Prepared, options: StartOptions, observe: &mut dyn FnMut(&RunEvent)) -> Result<(), Failure> {
    let _ = (&prepared.spec, &prepared.execution, &prepared.components, options.fresh, options.allow_rewind, observe);
    Err(unwired("execution"))
}

/// Lists what is stored in a job's directory.
pub(super) fn checkpoints(storage: &Path) -> Result<CheckpointList, Failure> {
    Err(unwired(&format!("reading {}", storage.display())))
}

/// Reads and verifies one checkpoint, the newest if none is named.
pub(super) fn checkpoint(storage: &Path, id: Option<u64>) -> Result<CheckpointDetail, Failure> {
    Err(unwired(&format!("reading {id:?} in {}", storage.display())))
}
