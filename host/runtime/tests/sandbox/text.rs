//! What guests say: logs, panics, names of functions.

use std::sync::Arc;

use cofferdam::guest::{GuestLog, GuestLogLevel, GuestOptions, MetricValue};
use cofferdam_dataflow::guest::{FaultClass, FaultCode, GuestFactory};
use cofferdam_dataflow::ids::OperatorId;

use super::guests::{Bench, IMPORT_LOG, Wat, info, process};

fn logging(fields: &str, process: &str) -> Wat<'static> {
    Wat { imports: IMPORT_LOG, memory: "512", fields: fields.into(), process: process.into(), ..Wat::default() }
}

#[test]
fn log_lines_are_inert_and_bounded() {
    let bench = Bench::new();
    let fields = r#"(data (i32.const 1300) "a\1b[31m\n\e2\80\aeb")"#;
    let wat = logging(
        fields,
        "(call $log (i32.const 3) (i32.const 1300) (i32.const 11)) (call $log (i32.const 0) (i32.const 1280) (i32.const 2))
         (call $log (i32.const 2) (i32.const 1048576) (i32.const 100000)) (i32.const 4096)",
    );
    process(&mut *bench.open(&wat), &[b"x"]).unwrap();
    let lines = bench.log.lines.lock().unwrap();
    assert_eq!(lines[0], (GuestLogLevel::Warn, "a\\u{1b}[31m\\u{a}\\u{202e}b".to_owned()));
    assert_eq!(lines[1], (GuestLogLevel::Trace, "in".to_owned()));
    assert!(lines[2].1.len() <= 4096 && lines[2].1.ends_with("..."), "{}", lines[2].1.len());
}

#[test]
fn lines_beyond_the_burst_are_dropped_and_counted_and_cost_fuel() {
    let bench = Bench::new();
    let loop_of = |times: &str| {
        format!(
            "(local $i i32) (loop $l (call $log (i32.const 2) (i32.const 1280) (i32.const 2)) (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {times})))) (i32.const 4096)"
        )
    };
    process(&mut *bench.open(&logging("", &loop_of("1000"))), &[b"x"]).unwrap();
    assert_eq!(bench.log.lines.lock().unwrap().len(), 100);
    assert_eq!(*bench.log.dropped.lock().unwrap(), 900);
    let fault = bench.fault(&logging("", &loop_of("10000000")));
    assert_eq!(fault.code, FaultCode::GuestFuel);
    assert_eq!(bench.log.lines.lock().unwrap().len(), 200);
}

#[test]
fn what_is_no_string_or_too_long_faults() {
    let bench = Bench::new();
    let call = |pointer: u32, length: u32| {
        format!("(call $log (i32.const 2) (i32.const {pointer}) (i32.const {length})) (i32.const 4096)")
    };
    let invalid = logging(r#"(data (i32.const 1300) "\ff")"#, &call(1300, 1));
    assert_eq!(bench.fault(&invalid).code, FaultCode::GuestAbi);
    assert_eq!(bench.fault(&logging("", &call(0x7fff_ffff, 9))).code, FaultCode::GuestAbi);
    let fault = bench.fault(&logging("", &call(1 << 20, 5 << 20)));
    assert_eq!(fault.code, FaultCode::GuestHostcallBytes, "{fault}");
    let level = logging("", "(call $log (i32.const 5) (i32.const 1280) (i32.const 2)) (i32.const 4096)");
    assert_eq!(bench.fault(&level).code, FaultCode::GuestAbi);
}

#[test]
fn what_a_guest_says_before_it_traps_is_the_faults_message() {
    let bench = Bench::new();
    let panics = "(call $log (i32.const 4) (i32.const 1280) (i32.const 5)) unreachable";
    let fault = bench.fault(&logging("", panics));
    assert_eq!((fault.code, fault.message.as_str()), (FaultCode::GuestTrap, "inout"));
    // What was said in an earlier call does not count.
    let fields = "(global $calls (mut i32) (i32.const 0))";
    let earlier = "(if (global.get $calls) (then unreachable)) (global.set $calls (i32.const 1))
        (call $log (i32.const 4) (i32.const 1280) (i32.const 5)) (i32.const 4096)";
    let mut guest = bench.open(&logging(fields, earlier));
    process(&mut *guest, &[b"x"]).unwrap();
    assert_eq!(process(&mut *guest, &[b"x"]).unwrap_err().message, "wasm trap: wasm `unreachable` instruction executed");
}

#[test]
fn function_names_in_a_backtrace_are_inert_and_bounded() {
    let bench = Bench::new();
    let name = "\\u{1b}[31m\\n".repeat(10_000);
    let mut fields = format!("(func $last (@name \"{name}\") unreachable)");
    for i in 0..40 {
        let callee = if i == 0 { "last".to_owned() } else { format!("f{}", i - 1) };
        fields += &format!("(func $f{i} (@name \"{name}{i}\") (call ${callee}))");
    }
    fields += "(func $mangled (@name \"_ZN5guest4work17h0123456789abcdefE\") (call $f3))";
    let fault = bench.fault(&Wat { fields: fields.clone(), process: "(call $f39) (i32.const 4096)".into(), ..Wat::default() });
    assert_eq!(fault.code, FaultCode::GuestTrap);
    assert_eq!(fault.backtrace.len(), 16);
    assert!(fault.backtrace.iter().all(|frame| frame.len() <= 64 && frame.starts_with("\\u{1b}[31m")), "{:?}", fault.backtrace);
    assert!(fault.message.len() <= 4096);
    let fault = bench.fault(&Wat { fields, process: "(call $mangled) (i32.const 4096)".into(), ..Wat::default() });
    assert_eq!(fault.backtrace[5], "guest::work");
}

#[test]
fn metrics_are_kept_for_the_operator() {
    let bench = Bench::new();
    let wat = Wat {
        imports: r#"(import "cofferdam:operator/metrics@0.1.0" "add" (func $add (param i32 i32 i64)))
            (import "cofferdam:operator/metrics@0.1.0" "set" (func $set (param i32 i32 f64)))"#,
        process:
            "(call $add (i32.const 1280) (i32.const 2) (i64.const 5)) (call $set (i32.const 1282) (i32.const 3) (f64.const 1.5))
            (call $add (i32.const 1) (i32.const 1) (i64.const 1)) (i32.const 4096)"
                .into(),
        ..Wat::default()
    };
    let factory =
        bench.load(&wat).factory(GuestOptions { config: b"{}".to_vec(), limits: bench.limits.clone(), log: bench.log.clone() });
    for _ in 0..2 {
        process(&mut *factory.open(&info()).unwrap(), &[b"x"]).unwrap();
    }
    let want = [("in".to_owned(), MetricValue::Counter(10)), ("out".to_owned(), MetricValue::Gauge(1.5))];
    assert_eq!(factory.metrics().snapshot(), want);
    assert_eq!(factory.metrics().ignored(), 2);
}

/// A defect of the host.
struct PanickingLog;

impl GuestLog for PanickingLog {
    fn line(&self, _: &OperatorId, _: u32, _: GuestLogLevel, _: &str) {
        panic!("the log is broken");
    }

    fn dropped(&self, _: &OperatorId, _: u32, _: u64) {}
}

#[test]
fn a_panic_of_the_host_is_not_the_guests_fault() {
    let bench = Bench::new();
    let loaded = bench.load(&logging("", "(call $log (i32.const 2) (i32.const 1280) (i32.const 2)) (i32.const 4096)"));
    let options = GuestOptions { config: b"{}".to_vec(), limits: bench.limits.clone(), log: Arc::new(PanickingLog) };
    let mut guest = loaded.factory(options).open(&info()).unwrap();
    let fault = process(&mut *guest, &[b"x"]).unwrap_err();
    assert_eq!((fault.code, fault.class), (FaultCode::HostInternal, FaultClass::Host));
    assert!(fault.message.contains("the log is broken"), "{fault}");
    assert!(process(&mut *guest, &[b"x"]).unwrap_err().message.contains("after a fault"));
    assert!(process(&mut *bench.open_loaded(&loaded).unwrap(), &[b"x"]).is_ok());
}
