//! `check` and `run`: read the file, get the components, show the plan, and run it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cofferdam::build::{self, BuildError, BuildOptions};
use cofferdam::config::{Diagnostic, NodeConfig, NodeConfigKind, OperatorConfig, PipelineFile};
use cofferdam::guest::ComponentLoader;
use cofferdam::report::RunEvent;
use cofferdam_dataflow::graph::plan::ExecutionPlan;
use cofferdam_dataflow::graph::spec::JobSpec;
use cofferdam_dataflow::ids::OperatorId;

use super::Exit;
use super::arguments::{CheckArguments, PrepareArguments, RunArguments};
use super::failure::Failure;
use super::from::From;
use super::interrupt::Interrupts;
use super::plan::{ComponentFacts, Facts, Plan};
use super::progress::Progress;
use super::terminal::Terminal;
use super::wiring::{self, Component, Connectors};
use super::{execute, verbs};

/// A pipeline that can be run.
pub(super) struct Prepared {
    pub(super) file: PipelineFile,
    pub(super) spec: JobSpec,
    /// By operator.
    pub(super) components: BTreeMap<OperatorId, Component>,
    pub(super) connectors: Connectors,
    plan: Plan,
}

/// How to start.
#[derive(Clone, Debug)]
pub(super) struct StartOptions {
    /// Forget earlier checkpoints.
    pub(super) fresh: bool,
    /// Go back to an older checkpoint if the newest is damaged.
    pub(super) allow_rewind: bool,
    /// What to start from, other than the newest checkpoint.
    pub(super) from: Option<From>,
}

/// Shows the plan of a pipeline that could run.
pub(super) fn check(arguments: &CheckArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let prepared = prepare(&arguments.file, &arguments.prepare, terminal)?;
    terminal.result(&prepared.plan, |paint| prepared.plan.text(paint))?;
    Ok(Exit::Done)
}

/// Runs a pipeline. Text goes to standard error: standard output is the console sink's.
pub(super) fn run(arguments: &RunArguments, terminal: &Terminal, interrupts: &Interrupts) -> Result<Exit, Failure> {
    let from = From::new(arguments)?;
    let prepared = prepare(&arguments.file, &arguments.prepare, terminal)?;
    if terminal.is_json() {
        refuse_console(&prepared.file)?;
        terminal.json(&prepared.plan);
    } else {
        terminal.note(&prepared.plan.text(terminal.err()));
    }
    let options = StartOptions { fresh: arguments.fresh, allow_rewind: arguments.allow_rewind, from };
    let mut progress = Progress::new(*terminal);
    let mut exit = Exit::Done;
    execute::execute(&prepared, &options, (terminal, interrupts), &mut |event: &RunEvent| {
        exit = match event {
            RunEvent::Failed { code, .. } => exit_of(code),
            RunEvent::Interrupted { .. } => Exit::Interrupted,
            _ => exit,
        };
        progress.show(event);
    })?;
    Ok(exit)
}

/// Says how a job that failed with this code ends the process.
pub(super) fn exit_of(code: &str) -> Exit {
    match code {
        "fenced" | "restore" | "storage" | "sink-transaction-lost" | "sink-transaction-damaged" => Exit::Storage,
        code if code.starts_with("checkpoint-") || code.starts_with("storage-") => Exit::Storage,
        "input-missing" | "output-not-writable" | "output-in-use" | "disk-full" => Exit::Environment,
        _ => Exit::JobFailed,
    }
}

/// Events and console records would be mixed up on standard output.
fn refuse_console(file: &PipelineFile) -> Result<(), Diagnostic> {
    let is_console =
        |node: &&NodeConfig| matches!(&node.kind, NodeConfigKind::Sink { connector } if connector.connector == "console");
    match file.nodes.iter().find(is_console) {
        Some(node) => {
            let message = format!("the console sink \"{}\" and --output json both write to standard output", node.id);
            Err(Diagnostic::at(node.place.clone(), "contradiction", message)
                .with_help("write to files, or leave --output json out"))
        }
        None => Ok(()),
    }
}

/// Reads a pipeline file and all that it names; builds crates that have changed, unless that is not wanted.
pub(super) fn prepare(path: &std::path::Path, arguments: &PrepareArguments, terminal: &Terminal) -> Result<Prepared, Failure> {
    let mut file = PipelineFile::load(path)?;
    if let Some(parallelism) = arguments.parallelism {
        let most = file.max_parallelism.get();
        if parallelism > u32::from(most) {
            let message = format!("--parallelism is {parallelism}, above the pipeline's max-parallelism of {most}");
            return Err(Diagnostic::new("out-of-range", message).into());
        }
        file.parallelism = parallelism;
    }
    let components = components(&file, arguments.no_build, terminal)?;
    let connectors = wiring::connectors(&file)?;
    let descriptors = components.iter().map(|(id, component)| (id.clone(), component.loaded.descriptor().clone())).collect();
    let spec = file.into_job_spec(&descriptors)?;
    // The same rules have been checked with places; this is the engine's own check.
    let execution = ExecutionPlan::new(&spec).map_err(|error| Diagnostic::new("bad-graph", error.to_string()))?;
    let facts = components.iter().map(|(id, component)| {
        let facts = ComponentFacts { digest: component.summary.digest.clone(), imports: component.summary.imports.clone() };
        (id.clone(), facts)
    });
    let (sources, sinks) = (connectors.source_guarantees(), connectors.sink_guarantees());
    let facts = Facts { components: facts.collect(), sources, sinks };
    let plan = Plan::new(&file, &spec, &execution, &facts);
    Ok(Prepared { file, spec, components, connectors, plan })
}

/// Loads each operator's component; reports all that fail.
fn components(file: &PipelineFile, no_build: bool, terminal: &Terminal) -> Result<BTreeMap<OperatorId, Component>, Failure> {
    let mut loaded: BTreeMap<OperatorId, Component> = BTreeMap::new();
    let mut by_path: BTreeMap<PathBuf, Component> = BTreeMap::new();
    let mut failure: Option<Failure> = None;
    let loader = wiring::loader()?;
    for (node, operator) in file.operators() {
        let path = file.component_path(operator);
        let component = match by_path.get(&path) {
            Some(component) => Ok(component.clone()),
            None => load(&loader, &path, operator, no_build, terminal),
        };
        match component {
            Ok(component) => {
                by_path.insert(path, component.clone());
                loaded.insert(node.id.clone(), component);
            }
            Err(new) => match &mut failure {
                Some(failure) => failure.problems.extend(new.problems),
                None => failure = Some(new),
            },
        }
    }
    failure.map_or(Ok(loaded), Err)
}

fn load(
    loader: &ComponentLoader,
    path: &std::path::Path,
    operator: &OperatorConfig,
    no_build: bool,
    terminal: &Terminal,
) -> Result<Component, Failure> {
    let options = BuildOptions { force: false, quiet: terminal.quiet };
    let found = if no_build { build::locate(path).map(|path| (path, None)) } else { build::locate_or_build(path, options) };
    let loaded = found.map_err(Failure::from).and_then(|(path, built)| {
        if let Some(built) = built {
            terminal.note(&verbs::built_text(&built, terminal.err()));
        }
        wiring::load(loader, &path)
    });
    loaded.map_err(|mut failure| {
        for problem in &mut failure.problems {
            problem.place.get_or_insert_with(|| operator.component_place.clone());
        }
        failure
    })
}

/// Builds the crates that a pipeline file names.
pub(super) fn build_crates(file: &PipelineFile, options: BuildOptions) -> Vec<Result<build::Built, BuildError>> {
    let mut paths: Vec<PathBuf> = file.operators().map(|(_, operator)| file.component_path(operator)).collect();
    paths.retain(|path| path.is_dir());
    paths.sort();
    paths.dedup();
    paths.iter().map(|path| build::build(path, options)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_storage_exit_otherwise_than_failures_of_the_job() {
        for (code, exit) in [
            ("guest-trap", Exit::JobFailed),
            ("io-read", Exit::JobFailed),
            ("checkpoint-corrupt", Exit::Storage),
            ("storage-locked", Exit::Storage),
            ("fenced", Exit::Storage),
        ] {
            assert_eq!(exit_of(code), exit, "{code}");
        }
    }
}
