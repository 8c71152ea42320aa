//! Where the command line meets the layers below: components, connectors, execution and storage.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cofferdam::config::{ConnectorTable, Diagnostic, NodeConfigKind, PipelineFile};
use cofferdam::connector::{ConnectorPlace, SinkOptions, SourceOptions};
use cofferdam::report::RunEvent;
use cofferdam_dataflow::connector::{ConnectorError, SinkFactory, SinkGuarantee, SourceFactory, SourceGuarantee};
use cofferdam_dataflow::guest::Descriptor;
use cofferdam_dataflow::ids::OperatorId;

use super::Exit;
use super::checkpoints::{CheckpointDetail, CheckpointList};
use super::failure::{Failure, chain};
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

/// Reads the options of all connectors and asks each what it can promise. Opens none.
pub(super) fn guarantees(file: &PipelineFile) -> Result<Guarantees, Failure> {
    let (mut sources, mut sinks, mut problems) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let pipeline = OperatorId::new(&file.name).expect("the pipeline's name was checked by the rule of ids");
    for node in &file.nodes {
        let place = ConnectorPlace { base_dir: file.base_dir.clone(), pipeline: pipeline.clone(), id: node.id.clone() };
        match &node.kind {
            NodeConfigKind::Source { connector, .. } => match source(connector, &place) {
                Ok(source) => drop(sources.insert(node.id.clone(), source.guarantee())),
                Err(problem) => problems.push(problem),
            },
            NodeConfigKind::Sink { connector } => match sink(connector, &place) {
                Ok(sink) => drop(sinks.insert(node.id.clone(), sink.guarantee())),
                Err(problem) => problems.push(problem),
            },
            NodeConfigKind::Operator(_) => {}
        }
    }
    if problems.is_empty() { Ok((sources, sinks)) } else { Err(problems.into()) }
}

/// Makes a source of its table.
fn source(table: &ConnectorTable, place: &ConnectorPlace) -> Result<Arc<dyn SourceFactory>, Diagnostic> {
    let options = table.read(|connector, options| SourceOptions::deserialize(connector, options))?;
    options.build(place).map_err(|error| refused(table, &error))
}

/// Makes a sink of its table.
fn sink(table: &ConnectorTable, place: &ConnectorPlace) -> Result<Arc<dyn SinkFactory>, Diagnostic> {
    let options = table.read(|connector, options| SinkOptions::deserialize(connector, options))?;
    options.build(place).map_err(|error| refused(table, &error))
}

fn refused(table: &ConnectorTable, error: &ConnectorError) -> Diagnostic {
    // The code stands beside the message already.
    let message = chain(error);
    let message = message.strip_prefix(error.code).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&message);
    Diagnostic::at(table.place().clone(), error.code, message)
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
