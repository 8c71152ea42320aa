//! Operators in the text format, and how to run one.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use cofferdam::guest::{ComponentLoader, GuestLimits, GuestLog, GuestLogLevel, GuestOptions, LoadedComponent};
use cofferdam::sandbox::LoadError;
use cofferdam::sandbox::compile::{CompileLimits, Compiler};
use cofferdam::sandbox::scan::ScanLimits;
use cofferdam_dataflow::column::{BytesColumn, BytesSlice};
use cofferdam_dataflow::guest::{
    EffectLimits, Effects, Guest, GuestFactory, GuestFault, InputBatch, InstanceInfo, KeyedFrame, NoState, StateColumn,
    StateReads,
};
use cofferdam_dataflow::ids::OperatorId;
use cofferdam_dataflow::time::ProcessingTime;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The bodies of an operator's functions. Each returns the address of its result; 4096 is zeroed, which reads as
/// success without effects.
pub(crate) struct Wat<'a> {
    pub(crate) imports: &'static str,
    pub(crate) memory: &'static str,
    /// The beginning of `cabi_realloc`.
    pub(crate) realloc: &'a str,
    pub(crate) fields: String,
    pub(crate) describe: &'static str,
    pub(crate) open: String,
    pub(crate) process: String,
    pub(crate) finish: &'static str,
}

impl Default for Wat<'_> {
    fn default() -> Self {
        Self {
            imports: "",
            memory: "2",
            realloc: "",
            fields: String::new(),
            describe: "(i32.const 1024)",
            open: "(i32.const 4096)".into(),
            process: "(i32.const 4096)".into(),
            finish: "(i32.const 4096)",
        }
    }
}

/// An operator that does `process` with each batch.
pub(crate) fn processing(process: impl Into<String>) -> Wat<'static> {
    Wat { process: process.into(), ..Wat::default() }
}

/// Imports `cofferdam:operator/logging` as `$log`.
pub(crate) const IMPORT_LOG: &str = r#"(import "cofferdam:operator/logging@0.1.0" "log" (func $log (param i32 i32 i32)))"#;

impl Wat<'_> {
    /// The core module. One input `in`, one output `out`, one prefetched value slot `s`.
    fn module(&self) -> String {
        let Self { imports, memory, realloc, fields, describe, open, process, finish } = self;
        format!(
            r#"(module {imports}
            (memory (export "memory") {memory})
            (global $next (mut i32) (i32.const 65536))
            (data (i32.const 1024) "\60\04\00\00\01\00\00\00\70\04\00\00\01\00\00\00\80\04\00\00\01\00\00\00")
            (data (i32.const 1120) "\00\05\00\00\02\00\00\00\00")
            (data (i32.const 1136) "\02\05\00\00\03\00\00\00")
            (data (i32.const 1152) "\05\05\00\00\01\00\00\00\00\00\00\00\06\05\00\00\03\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\01")
            (data (i32.const 1280) "inoutsraw")
            {fields}
            (func (export "cabi_realloc") (param $old i32) (param $size i32) (param $align i32) (param $new i32) (result i32)
                {realloc}
                (global.set $next (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
                (global.get $next)
                (global.set $next (i32.add (global.get $next) (local.get $new))))
            (func (export "cofferdam:operator/guest@0.1.0#describe") (result i32) {describe})
            (func (export "cofferdam:operator/guest@0.1.0#open")
                (param $config i32) (param $config_len i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) {open})
            (func $process (export "cofferdam:operator/guest@0.1.0#process-batch") (param $arguments i32) (result i32) {process})
            (func (export "cofferdam:operator/guest@0.1.0#on-timers")
                (param i32 i64 i64 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)
            (func (export "cofferdam:operator/guest@0.1.0#finish") (param i32 i64 i64) (result i32) {finish})
            )"#
        )
    }

    /// The component.
    pub(crate) fn component(&self) -> Vec<u8> {
        let mut module = wat::parse_str(self.module()).unwrap();
        let mut resolve = Resolve::default();
        let mut wit = String::from("package cofferdam:operator@0.1.0;\n");
        for file in ["types", "state-reads", "logging", "metrics", "guest", "world"] {
            let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../wit/{file}.wit"));
            wit += &std::fs::read_to_string(path).unwrap().replace("package cofferdam:operator@0.1.0;", "");
        }
        let package = resolve.push_source("operator.wit", &wit).unwrap();
        let world = resolve.select_world(&[package], Some("operator")).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().module(&module).unwrap().validate(false).encode().unwrap()
    }
}

/// Keeps what was logged.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) lines: Mutex<Vec<(GuestLogLevel, String)>>,
    pub(crate) dropped: Mutex<u64>,
}

impl GuestLog for Lines {
    fn line(&self, operator: &OperatorId, subtask: u32, level: GuestLogLevel, text: &str) {
        assert_eq!((operator.as_str(), subtask), ("op", 3));
        self.lines.lock().unwrap().push((level, text.to_owned()));
    }

    fn dropped(&self, _: &OperatorId, _: u32, lines: u64) {
        *self.dropped.lock().unwrap() += lines;
    }
}

/// A loader with a cache of its own, and the compiler process of the real program.
pub(crate) struct Bench {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) loader: ComponentLoader,
    pub(crate) limits: GuestLimits,
    pub(crate) log: Arc<Lines>,
}

pub(crate) fn compiler() -> Compiler {
    Compiler { program: env!("CARGO_BIN_EXE_cofferdam").into(), limits: CompileLimits::default() }
}

impl Bench {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let loader = ComponentLoader::new(&directory.path().join("cache"), compiler(), ScanLimits::default()).unwrap();
        Self { directory, loader, limits: GuestLimits::default(), log: Arc::default() }
    }

    pub(crate) fn load(&self, wat: &Wat<'_>) -> LoadedComponent {
        self.loader.load(&wat.component()).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn open_loaded(&self, component: &LoadedComponent) -> Result<Box<dyn Guest>, GuestFault> {
        let options = GuestOptions { config: b"{}".to_vec(), limits: self.limits.clone(), log: self.log.clone() };
        component.factory(options).open(&info())
    }

    pub(crate) fn try_open(&self, wat: &Wat<'_>) -> Result<Box<dyn Guest>, GuestFault> {
        self.open_loaded(&self.load(wat))
    }

    pub(crate) fn open(&self, wat: &Wat<'_>) -> Box<dyn Guest> {
        self.try_open(wat).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Loads, opens and calls; the fault of the call.
    pub(crate) fn fault(&self, wat: &Wat<'_>) -> GuestFault {
        process(&mut *self.open(wat), &[b"x"]).expect_err("the call must fail")
    }

    pub(crate) fn refused(&self, bytes: &[u8]) -> LoadError {
        match self.loader.load(bytes) {
            Ok(_) => panic!("the component must be refused"),
            Err(error) => error,
        }
    }
}

pub(crate) fn info() -> InstanceInfo {
    let operator = OperatorId::new("op").unwrap();
    InstanceInfo { operator, subtask: 3, parallelism: 4, limits: EffectLimits::default() }
}

/// Calls with records of one key "k" that has the state "state".
pub(crate) fn process(guest: &mut dyn Guest, records: &[&[u8]]) -> Result<Effects, GuestFault> {
    // A first item to be left out, so that the views do not begin at 0.
    let all: BytesColumn = [&b"left out"[..]].into_iter().chain(records.iter().copied()).collect();
    let keys: BytesColumn = [&b"left out"[..], b"k"].into_iter().collect();
    let state: BytesColumn = [&b"left out"[..], b"state"].into_iter().collect();
    let states = [StateColumn { slot: 0, present: &[1], values: state.slice(1, 2) }];
    call(guest, all.slice(1, all.len()), &KeyedFrame { keys: keys.slice(1, 2), states: &states })
}

pub(crate) fn call(guest: &mut dyn Guest, values: BytesSlice<'_>, frame: &KeyedFrame<'_>) -> Result<Effects, GuestFault> {
    call_reading(guest, values, frame, &(Rc::new(NoState) as Rc<dyn StateReads>))
}

/// As [`call`], with answers to reads.
pub(crate) fn call_reading(
    guest: &mut dyn Guest,
    values: BytesSlice<'_>,
    frame: &KeyedFrame<'_>,
    reads: &Rc<dyn StateReads>,
) -> Result<Effects, GuestFault> {
    let rows = vec![0; values.len()];
    let batch = InputBatch {
        port: 0,
        watermark: None,
        processing_time: ProcessingTime(7),
        rows: &rows,
        times: &[],
        untimed: &[],
        values,
    };
    guest.process_batch(&batch, frame, reads)
}
