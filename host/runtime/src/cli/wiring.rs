//! Where the command line meets the layers below: components, connectors, execution and storage.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cofferdam::config::{Diagnostic, NodeConfig, NodeConfigKind, OperatorConfig, PipelineFile, RestartStrategy, StateOptions};
use cofferdam::connector::{ConnectorPlace, SinkOptions, SourceOptions};
use cofferdam::execution::{JobDefinition, NodeParts, StateBackend};
use cofferdam::guest::{ComponentLoader, GuestLimits, GuestOptions, LoadedComponent, TracingLog};
use cofferdam::sandbox::LoadError;
use cofferdam::sandbox::compile::Compiler;
use cofferdam::sandbox::engine::SandboxEngine;
use cofferdam::sandbox::scan::ScanLimits;
use cofferdam_dataflow::checkpoint::config::{CheckpointConfig, Cleanup};
use cofferdam_dataflow::connector::{ConnectorError, SinkFactory, SinkGuarantee, SourceFactory, SourceGuarantee};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::job::restart::RestartPolicy;
use cofferdam_dataflow::subtask::WatermarkStrategy;

use super::Exit;
use super::failure::{Failure, chain};
use super::inspect::ComponentSummary;
use super::run::Prepared;
use super::watermarks;

/// Bytes of keys and values of one subtask's state, at most.
const STATE_QUOTA_BYTES: u64 = 4 << 30;
/// The same for state on disk.
const DISK_QUOTA_BYTES: u64 = 1 << 40;
/// The folder of a job's directory with the stores of its state.
const LOCAL_DIR: &str = "local";

/// A component that was scanned, compiled and asked what it is.
#[derive(Clone)]
pub(super) struct Component {
    pub(super) summary: ComponentSummary,
    pub(super) loaded: LoadedComponent,
}

/// The sources and sinks of a pipeline, made but not opened.
#[derive(Default)]
pub(super) struct Connectors {
    pub(super) sources: BTreeMap<OperatorId, (Arc<dyn SourceFactory>, Option<WatermarkStrategy>)>,
    pub(super) sinks: BTreeMap<OperatorId, Arc<dyn SinkFactory>>,
}

/// Returns the loader of this process, whose artefacts are kept for the next.
pub(super) fn loader() -> Result<ComponentLoader, Failure> {
    let cache = cofferdam::build::home()?.join("artefacts");
    let loader = Compiler::this_program().and_then(|compiler| ComponentLoader::new(&cache, compiler, ScanLimits::default()));
    loader.map_err(|error| load_failure(&error))
}

/// Loads a component file.
pub(super) fn load(loader: &ComponentLoader, path: &Path) -> Result<Component, Failure> {
    let loaded = loader.load_file(path).map_err(|error| {
        let mut failure = load_failure(&error);
        failure.problems.iter_mut().for_each(|problem| problem.message = format!("{}: {}", path.display(), problem.message));
        failure
    })?;
    let found = loaded.summary();
    let summary = ComponentSummary {
        digest: found.digest.clone(),
        bytes: found.bytes,
        interface: found.interface.clone(),
        imports: found.imports.clone(),
        exports: found.exports.clone(),
    };
    Ok(Component { summary, loaded })
}

fn load_failure(error: &LoadError) -> Failure {
    let exit = match error {
        LoadError::Read { .. } | LoadError::CacheUnusable { .. } | LoadError::CompilerUnavailable { .. } => Exit::Environment,
        _ => Exit::Invalid,
    };
    let code = error.code();
    // The code stands before the message already.
    let text = chain(error);
    let text = text.strip_prefix(&format!("{code}: ")).unwrap_or(&text).to_owned();
    Failure::new(exit, Diagnostic::new(code, text))
}

/// Makes the connectors of a pipeline from their options.
pub(super) fn connectors(file: &PipelineFile) -> Result<Connectors, Failure> {
    let pipeline = OperatorId::new(&file.name).map_err(|error| Diagnostic::new("invalid-name", error.to_string()))?;
    let mut connectors = Connectors::default();
    let mut problems = Vec::new();
    for node in &file.nodes {
        let place = ConnectorPlace { base_dir: file.base_dir.clone(), pipeline: pipeline.clone(), id: node.id.clone() };
        let refused = |error: ConnectorError| Diagnostic::at(node.place.clone(), error.code, error.message);
        let made = match &node.kind {
            NodeConfigKind::Source { connector, watermark } => connector
                .read(|name, table| SourceOptions::deserialize(name, table))
                .and_then(|options| options.build(&place).map_err(refused))
                .and_then(|factory| {
                    let watermarks = watermarks::strategy(watermark, &*factory)?;
                    connectors.sources.insert(node.id.clone(), (factory, watermarks));
                    Ok(())
                }),
            NodeConfigKind::Sink { connector } => connector
                .read(|name, table| SinkOptions::deserialize(name, table))
                .and_then(|options| options.build(&place).map_err(refused))
                .map(|factory| drop(connectors.sinks.insert(node.id.clone(), factory))),
            NodeConfigKind::Operator(_) => Ok(()),
        };
        problems.extend(made.err());
    }
    if problems.is_empty() { Ok(connectors) } else { Err(problems.into()) }
}

impl Connectors {
    /// Returns what each source can promise.
    pub(super) fn source_guarantees(&self) -> BTreeMap<OperatorId, SourceGuarantee> {
        self.sources.iter().map(|(id, (factory, _))| (id.clone(), factory.guarantee())).collect()
    }

    /// Returns what each sink can promise.
    pub(super) fn sink_guarantees(&self) -> BTreeMap<OperatorId, SinkGuarantee> {
        self.sinks.iter().map(|(id, factory)| (id.clone(), factory.guarantee())).collect()
    }
}

/// Puts a job together from what was prepared.
pub(super) fn definition(prepared: &Prepared) -> Result<JobDefinition, Failure> {
    let file = &prepared.file;
    let mut parts = Vec::new();
    for spec in &prepared.spec.nodes {
        let node = file.node(&spec.id).expect("the job was made from the file");
        parts.push(match &node.kind {
            NodeConfigKind::Source { .. } => {
                let (factory, watermarks) = prepared.connectors.sources[&spec.id].clone();
                NodeParts::Source { factory, watermarks }
            }
            NodeConfigKind::Sink { .. } => NodeParts::Sink { factory: Arc::clone(&prepared.connectors.sinks[&spec.id]) },
            NodeConfigKind::Operator(operator) => operator_parts(prepared, node, operator)?,
        });
    }
    let bad_graph = |error: cofferdam_dataflow::graph::spec::SpecError| Diagnostic::new("bad-graph", error.to_string());
    let mut definition = JobDefinition::new(prepared.spec.clone(), parts, checkpoint_config(file)).map_err(bad_graph)?;
    definition.digests =
        prepared.components.iter().map(|(id, component)| (id.clone(), component.summary.digest.clone())).collect();
    definition.local_dir = Some(file.checkpoint.storage.join(LOCAL_DIR));
    definition.imports =
        prepared.components.iter().map(|(id, component)| (id.clone(), component.summary.imports.clone())).collect();
    definition.engine = format!("cofferdam {}; {}", env!("CARGO_PKG_VERSION"), SandboxEngine::semantics());
    Ok(definition)
}

fn operator_parts(prepared: &Prepared, node: &NodeConfig, operator: &OperatorConfig) -> Result<NodeParts, Failure> {
    let limits = &operator.limits;
    let config = prepared.file.guest_config(node, operator, &|name| std::env::var(name).ok())?;
    let guest_limits = GuestLimits {
        memory_bytes: limits.memory_bytes,
        table_elements: limits.table_elements,
        fuel_per_call: limits.fuel_per_call,
        fuel_per_record: limits.fuel_per_record,
        fuel_max: limits.fuel_max,
        fuel_instantiate: limits.fuel_instantiate,
        fuel_lifecycle: limits.fuel_lifecycle,
        effects: limits.effects,
        ..GuestLimits::default()
    };
    let options = GuestOptions { config, limits: guest_limits, log: Arc::new(TracingLog::default()) };
    let factory = prepared.components[&node.id].loaded.factory(options);
    let (backend, state_quota_bytes) = match operator.state {
        StateOptions::Memory => (StateBackend::Memory, STATE_QUOTA_BYTES),
        StateOptions::Disk { memory_bytes } => (StateBackend::Disk { memory_bytes }, DISK_QUOTA_BYTES),
    };
    Ok(NodeParts::Operator { factory: Arc::new(factory), limits: limits.effects, state_quota_bytes, backend })
}

fn checkpoint_config(file: &PipelineFile) -> CheckpointConfig {
    let options = &file.checkpoint;
    CheckpointConfig {
        interval_ms: options.interval_ms,
        min_pause_ms: options.min_pause_ms,
        timeout_ms: options.timeout_ms,
        max_concurrent: options.max_concurrent,
        tolerable_failures: options.tolerable_failures,
        retained: options.keep,
        cleanup: if options.retain_on_cancel { Cleanup::Never } else { Cleanup::OnCancel },
        ..CheckpointConfig::default()
    }
}

/// Translates the file's restart strategy.
pub(super) fn restart_policy(strategy: &RestartStrategy) -> RestartPolicy {
    // Both were checked to be small where they were read.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "factors are bounded by the file's rules")]
    let permille = |factor: f64| (factor * 1000.0).round() as u32;
    match *strategy {
        RestartStrategy::None => RestartPolicy::None,
        RestartStrategy::FixedDelay { attempts, delay_ms } => RestartPolicy::FixedDelay { restarts: attempts, delay_ms },
        RestartStrategy::FailureRate { max_failures, interval_ms, delay_ms } => {
            RestartPolicy::FailureRate { failures: max_failures, interval_ms, delay_ms }
        }
        RestartStrategy::ExponentialDelay { initial_ms, max_ms, multiplier, jitter, reset_ms, attempts } => {
            RestartPolicy::ExponentialDelay {
                initial_ms,
                max_ms,
                multiplier_permille: permille(multiplier),
                jitter_permille: permille(jitter),
                healthy_ms: reset_ms,
                restarts: attempts,
            }
        }
    }
}
