//! Guests that fault now and then, in a job within this process: real components behind a decorator that injects faults.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cofferdam::config::{NodeConfigKind, PipelineFile};
use cofferdam::connector::{ConnectorPlace, SinkOptions, SourceOptions};
use cofferdam::execution::{ExecutionEvent, JobDefinition, NodeParts, RunOptions, StateBackend, execute};
use cofferdam::guest::{ComponentLoader, GuestLimits, GuestOptions, TracingLog};
use cofferdam::sandbox::compile::{CompileLimits, Compiler};
use cofferdam::sandbox::scan::ScanLimits;
use cofferdam::storage::LocalStorage;
use cofferdam_dataflow::checkpoint::config::CheckpointConfig;
use cofferdam_dataflow::guest::{
    Descriptor, Effects, FaultCode, FaultPhase, Guest, GuestFactory, GuestFault, GuestUsage, InputBatch, InstanceInfo,
    KeyedFrame, StateReads, TimerBatch,
};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::job::master::{JobEnd, JobReport};
use cofferdam_dataflow::job::restart::RestartPolicy;
use cofferdam_dataflow::subtask::WatermarkStrategy;
use cofferdam_dataflow::time::{ProcessingTime, Watermark};

use super::kill::word_count;
use super::output::{check_counts, count_words};
use super::reader::Reader;
use super::stage::{Stage, example};

/// Says whether a batch faults.
trait Trap: Send + Sync {
    fn springs(&self, batch: &InputBatch<'_>) -> bool;
}

/// Faults at every record whose line number is a multiple, the first time that it is met. Lines begin with their number.
struct AtLines {
    every: NonZeroU64,
    met: Mutex<BTreeSet<Vec<u8>>>,
    sprung: AtomicU64,
}

impl Trap for AtLines {
    fn springs(&self, batch: &InputBatch<'_>) -> bool {
        let due = |line: &&[u8]| {
            let digits = line.iter().take_while(|byte| byte.is_ascii_digit());
            digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')) % self.every == 0
        };
        let mut met = self.met.lock().unwrap();
        let springs = batch.values.iter().filter(due).any(|line| met.insert(line.to_vec()));
        self.sprung.fetch_add(u64::from(springs), Ordering::Relaxed);
        springs
    }
}

/// Faults when so many more records have been met, replayed ones included. Each time it takes `every` more than the last
/// time, so that a replay gets beyond the record of the fault before.
struct AfterRecords {
    every: u64,
    state: Mutex<Met>,
}

#[derive(Default)]
struct Met {
    since_fault: u64,
    sprung: u64,
}

impl AfterRecords {
    fn new(every: u64) -> Arc<Self> {
        Arc::new(Self { every, state: Mutex::default() })
    }

    fn sprung(&self) -> u64 {
        self.state.lock().unwrap().sprung
    }
}

impl Trap for AfterRecords {
    fn springs(&self, batch: &InputBatch<'_>) -> bool {
        let mut met = self.state.lock().unwrap();
        met.since_fault += batch.values.len() as u64;
        let springs = met.since_fault >= self.every * (met.sprung + 1);
        if springs {
            *met = Met { since_fault: 0, sprung: met.sprung + 1 };
        }
        springs
    }
}

/// Makes guests that fault when the trap springs, and are the real ones otherwise.
struct Trapped {
    real: Arc<dyn GuestFactory>,
    trap: Arc<dyn Trap>,
}

struct TrappedGuest {
    real: Box<dyn Guest>,
    trap: Arc<dyn Trap>,
    has_faulted: bool,
}

impl GuestFactory for Trapped {
    fn descriptor(&self) -> &Descriptor {
        self.real.descriptor()
    }

    fn open(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        let real = self.real.open(info)?;
        Ok(Box::new(TrappedGuest { real, trap: Arc::clone(&self.trap), has_faulted: false }))
    }

    fn open_probe(&self, info: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        self.real.open_probe(info)
    }
}

impl Guest for TrappedGuest {
    fn process_batch(
        &mut self,
        batch: &InputBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        assert!(!self.has_faulted, "a guest that has faulted was called again");
        // The real guest works first: what it did with the batch must vanish.
        let effects = self.real.process_batch(batch, frame, reads)?;
        if self.trap.springs(batch) {
            self.has_faulted = true;
            return Err(GuestFault::new(FaultCode::GuestTrap, FaultPhase::Data, "injected"));
        }
        Ok(effects)
    }

    fn on_timers(
        &mut self,
        timers: &TimerBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        assert!(!self.has_faulted, "a guest that has faulted was called again");
        self.real.on_timers(timers, frame, reads)
    }

    fn finish(&mut self, watermark: Option<Watermark>, now: ProcessingTime) -> Result<Effects, GuestFault> {
        assert!(!self.has_faulted, "a guest that has faulted was called again");
        self.real.finish(watermark, now)
    }

    fn usage(&self) -> GuestUsage {
        self.real.usage()
    }
}

/// Puts the pipeline on stage together as the program does, with traps around the operators that have one.
fn definition(stage: &Stage, traps: &BTreeMap<&str, Arc<dyn Trap>>, interval_ms: u64) -> JobDefinition {
    let file = PipelineFile::load(&stage.path("pipeline.toml")).unwrap();
    let compiler = Compiler { program: env!("CARGO_BIN_EXE_cofferdam").into(), limits: CompileLimits::default() };
    let loader = ComponentLoader::new(&stage.path("cache"), compiler, ScanLimits::default()).unwrap();
    let mut factories: BTreeMap<OperatorId, Arc<dyn GuestFactory>> = BTreeMap::new();
    for (node, operator) in file.operators() {
        let loaded = loader.load_file(&file.component_path(operator)).unwrap();
        let log = Arc::new(TracingLog::default());
        let options = GuestOptions { config: b"{}".to_vec(), limits: GuestLimits::default(), log };
        let real: Arc<dyn GuestFactory> = Arc::new(loaded.factory(options));
        let factory = match traps.get(node.id.as_str()) {
            Some(trap) => Arc::new(Trapped { real, trap: Arc::clone(trap) }),
            None => real,
        };
        factories.insert(node.id.clone(), factory);
    }
    let descriptors = factories.iter().map(|(id, factory)| (id.clone(), factory.descriptor().clone())).collect();
    let spec = file.into_job_spec(&descriptors).unwrap();
    let pipeline = OperatorId::new(&file.name).unwrap();
    let mut parts = Vec::new();
    for node in &spec.nodes {
        let place = ConnectorPlace { base_dir: file.base_dir.clone(), pipeline: pipeline.clone(), id: node.id.clone() };
        parts.push(match &file.node(&node.id).unwrap().kind {
            NodeConfigKind::Source { connector, .. } => {
                let options = connector.read(|name, table| SourceOptions::deserialize(name, table)).unwrap();
                let watermarks = Some(WatermarkStrategy::out_of_orderness(0));
                NodeParts::Source { factory: options.build(&place).unwrap(), watermarks }
            }
            NodeConfigKind::Sink { connector } => {
                let options = connector.read(|name, table| SinkOptions::deserialize(name, table)).unwrap();
                NodeParts::Sink { factory: options.build(&place).unwrap() }
            }
            NodeConfigKind::Operator(operator) => {
                let factory = Arc::clone(&factories[&node.id]);
                NodeParts::Operator {
                    factory,
                    limits: operator.limits.effects,
                    state_quota_bytes: 1 << 30,
                    backend: StateBackend::Memory,
                }
            }
        });
    }
    let checkpoint = CheckpointConfig { interval_ms: Some(interval_ms), ..CheckpointConfig::default() };
    JobDefinition::new(spec, parts, checkpoint).unwrap()
}

/// What a run told.
struct Told {
    end: JobEnd,
    restarts: u64,
    checkpoints: u64,
}

fn run(stage: &Stage, definition: JobDefinition, restart: RestartPolicy) -> Told {
    let storage = Arc::new(LocalStorage::open(&stage.path("job")).unwrap());
    let counts = RefCell::new((0, 0));
    let mut observe = |event| match event {
        ExecutionEvent::Report(JobReport::Restarting { failure, .. }) => {
            assert_eq!(failure.cause.code(), "guest-trap", "{failure:?}");
            counts.borrow_mut().0 += 1;
        }
        ExecutionEvent::Report(JobReport::CheckpointCompleted { .. }) => counts.borrow_mut().1 += 1,
        _ => {}
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_controls, receiver) = tokio::sync::mpsc::unbounded_channel();
    let options = RunOptions { restart, seed: 7, ..RunOptions::default() };
    let end = runtime.block_on(execute(definition, storage, options, receiver, &mut observe)).unwrap();
    let (restarts, checkpoints) = counts.into_inner();
    Told { end, restarts, checkpoints }
}

/// Runs the word count over the numbered real text with both operators trapped.
fn faults_all_the_way(parallelism: u32, restart: RestartPolicy) {
    let stage = Stage::new();
    let text = example("word-count/shakespeare.txt");
    // A number is no word.
    let numbered: Vec<String> = text.lines().enumerate().map(|(i, line)| format!("{} {line}\n", i + 1)).collect();
    for (file, lines) in numbered.chunks(10_000).enumerate() {
        stage.write(&format!("in/{file}.txt"), lines.concat());
    }
    stage.components(&["word-count-split", "word-count-count"]);
    stage.write("pipeline.toml", word_count(parallelism, "20ms"));
    let every = NonZeroU64::new(7000).unwrap();
    let at_lines = Arc::new(AtLines { every, met: Mutex::default(), sprung: AtomicU64::new(0) });
    let after_records = AfterRecords::new(20_000);
    let traps: BTreeMap<&str, Arc<dyn Trap>> =
        BTreeMap::from([("split", Arc::clone(&at_lines) as Arc<dyn Trap>), ("count", Arc::clone(&after_records) as _)]);
    let out = stage.path("out");
    let reader = Reader::start(&out);
    let told = run(&stage, definition(&stage, &traps, 20), restart);
    assert!(matches!(told.end, JobEnd::Finished { .. }), "{:?}", told.end);
    reader.finish(&out);
    check_counts(&out, &count_words(&text));
    let (lines, records) = (at_lines.sprung.load(Ordering::Relaxed), after_records.sprung());
    println!("{lines} and {records} faults, {} restarts, {} checkpoints", told.restarts, told.checkpoints);
    // Five lines of 40,000 trap; in one batch, or in tasks that fail together, several count as one restart.
    assert!((1..=5).contains(&lines) && records >= 2, "{lines} {records}");
    assert!(told.restarts >= 2 && told.restarts <= lines + records, "{}", told.restarts);
}

fn exponential() -> RestartPolicy {
    RestartPolicy::ExponentialDelay {
        initial_ms: 1,
        max_ms: 5,
        multiplier_permille: 1500,
        jitter_permille: 100,
        healthy_ms: 60_000,
        restarts: None,
    }
}

#[test]
fn a_guest_that_traps_now_and_then_counts_each_record_once() {
    faults_all_the_way(1, RestartPolicy::FixedDelay { restarts: 100, delay_ms: 1 });
}

#[test]
fn guests_of_two_subtasks_that_trap_now_and_then_count_each_record_once() {
    faults_all_the_way(2, exponential());
}

#[test]
fn a_job_that_may_restart_twice_fails_at_the_third_fault_and_publishes_no_half() {
    let stage = Stage::new();
    let text: String = example("word-count/shakespeare.txt").lines().take(5000).map(|line| format!("{line}\n")).collect();
    stage.write("in/0.txt", &text);
    stage.components(&["word-count-split", "word-count-count"]);
    stage.write("pipeline.toml", word_count(1, "1h"));
    let trap = AfterRecords::new(1000);
    let traps: BTreeMap<&str, Arc<dyn Trap>> = BTreeMap::from([("split", Arc::clone(&trap) as Arc<dyn Trap>)]);
    let policy = RestartPolicy::FixedDelay { restarts: 2, delay_ms: 1 };
    let told = run(&stage, definition(&stage, &traps, 3_600_000), policy);
    let JobEnd::Failed(failed) = &told.end else { panic!("{:?}", told.end) };
    assert_eq!((failed.failure.cause.code(), told.restarts), ("guest-trap", 2), "{failed:?}");
    assert!(super::output::parts(&stage.path("out")).is_empty());

    // Without the traps, the next run does all of it.
    let told = run(&stage, definition(&stage, &BTreeMap::new(), 20), RestartPolicy::None);
    assert!(matches!(told.end, JobEnd::Finished { .. }), "{:?}", told.end);
    check_counts(&stage.path("out"), &count_words(&text));
}
