//! Guests that take more time, stack or memory than they may.

use cofferdam::guest::GuestLimits;
use cofferdam::sandbox::LoadError;
use cofferdam_dataflow::guest::{FaultClass, FaultCode, FaultPhase, GuestFactory};

use super::guests::{Bench, IMPORT_LOG, Wat, process, processing};

const FOREVER: &str = "(loop $l (br $l)) (i32.const 4096)";

#[test]
fn an_endless_loop_ends_with_its_fuel_in_every_phase() {
    let bench = Bench {
        limits: GuestLimits { fuel_per_call: 100_000, fuel_per_record: 1_000, fuel_lifecycle: 100_000, ..GuestLimits::default() },
        ..Bench::new()
    };
    let fault = bench.fault(&processing(FOREVER));
    assert_eq!((fault.code, fault.phase, fault.class), (FaultCode::GuestFuel, FaultPhase::Data, FaultClass::Guest));
    let open = Wat { open: FOREVER.into(), ..Wat::default() };
    let fault = bench.try_open(&open).err().unwrap();
    assert_eq!((fault.code, fault.phase), (FaultCode::GuestFuel, FaultPhase::Open));
    let mut finishing = bench.open(&Wat { finish: FOREVER, ..Wat::default() });
    let fault = finishing.finish(None, cofferdam_dataflow::time::ProcessingTime(0)).unwrap_err();
    assert_eq!((fault.code, fault.phase), (FaultCode::GuestFuel, FaultPhase::Finish));
    for (fields, describe) in
        [("(func $f (loop $l (br $l))) (start $f)", "(i32.const 1024)"), ("", "(loop $l (br $l)) (i32.const 1024)")]
    {
        let wat = Wat { fields: fields.into(), describe, ..Wat::default() };
        match bench.refused(&wat.component()) {
            LoadError::Guest(fault) => assert_eq!((fault.code, fault.phase), (FaultCode::GuestFuel, FaultPhase::Load)),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn what_runs_while_arguments_are_handed_over_is_limited_too() {
    let bench = Bench::new();
    let cases = [
        ("", "(loop $l (br $l))", FaultCode::GuestFuel),
        ("", "(return (i32.const -64))", FaultCode::GuestAbi),
        ("", "unreachable", FaultCode::GuestTrap),
        (IMPORT_LOG, "(call $log (i32.const 2) (i32.const 1280) (i32.const 2))", FaultCode::GuestAbi),
    ];
    for (imports, harm, code) in cases {
        let realloc = format!("(if (global.get $harm) (then {harm}))");
        let wat = Wat {
            imports,
            realloc: &realloc,
            fields: "(global $harm (mut i32) (i32.const 0))".into(),
            process: "(global.set $harm (i32.const 1)) (i32.const 4096)".into(),
            ..Wat::default()
        };
        let mut guest = bench.open(&wat);
        process(&mut *guest, &[b"x"]).unwrap();
        let fault = process(&mut *guest, &[b"x"]).unwrap_err();
        assert_eq!(fault.code, code, "{harm}: {fault}");
    }
}

#[test]
fn fuel_is_the_same_in_every_run_and_grows_with_the_batch() {
    let bench = Bench::new();
    let loaded = bench.load(&processing("(local $i i32) (loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000)))) (i32.const 4096)"));
    let run = || {
        let mut guest = bench.open_loaded(&loaded).unwrap();
        let before = guest.usage();
        process(&mut *guest, &[b"x", b"yy"]).unwrap();
        let after = guest.usage();
        assert_eq!(after.calls, before.calls + 1);
        after.fuel - before.fuel
    };
    let fuel = run();
    assert!(fuel > 5_000, "{fuel}");
    assert_eq!(run(), fuel);
    let limits = GuestLimits { fuel_per_call: 5, fuel_per_record: 10, fuel_max: 100, ..GuestLimits::default() };
    assert_eq!([limits.data_fuel(0), limits.data_fuel(3), limits.data_fuel(usize::MAX)], [5, 35, 100]);
}

#[test]
fn arguments_that_cost_more_than_the_fuel_are_not_handed_over() {
    let limits = GuestLimits { fuel_per_call: 500, fuel_per_record: 0, ..GuestLimits::default() };
    let fault = Bench { limits, ..Bench::new() }.fault(&Wat::default());
    assert_eq!(fault.code, FaultCode::GuestFuel);
    assert!(fault.message.contains("handing over the call's arguments"), "{fault}");
}

#[test]
fn recursion_without_end_overflows_the_guests_stack_only() {
    let bench = Bench::new();
    let frames: String = (0..200).map(|i| format!("(local $v{i} i64)")).collect();
    for (fields, process) in [
        (String::new(), "(call $process (local.get $arguments))".to_owned()),
        (
            format!(
                "(func $f (param i32) (result i32) {frames} (i64.store (i32.const 0) (local.get $v1)) (call $f (i32.add (local.get 0) (i32.const 1))))"
            ),
            "(call $f (i32.const 0))".to_owned(),
        ),
        (
            "(table funcref (elem $g $h)) (type $t (func (result i32)))
             (func $g (result i32) (call_indirect (type $t) (i32.const 1)) (i32.const 1) i32.add)
             (func $h (result i32) (call_indirect (type $t) (i32.const 0)) (i32.const 1) i32.add)"
                .to_owned(),
            "(call $g)".to_owned(),
        ),
    ] {
        let fault = bench.fault(&Wat { fields, process, ..Wat::default() });
        assert_eq!(fault.code, FaultCode::GuestStackOverflow, "{fault}");
        assert!(fault.backtrace.len() <= 16);
    }
}

#[test]
fn memory_grows_to_the_limit_and_fails_in_the_guest() {
    let bench = Bench::new();
    // Grows by 64 KiB until it fails, and returns an error if that was not at 1024 pages.
    let grow = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        (if (i32.ne (memory.size) (i32.const 1024)) (then unreachable)) (i32.store (i32.const 67108860) (i32.const 1)) (i32.const 4096)";
    let mut guest = bench.open(&processing(grow));
    process(&mut *guest, &[b"x"]).unwrap();
    assert_eq!(guest.usage().memory_peak_bytes, 64 << 20);
    process(&mut *guest, &[b"x"]).unwrap();
}

#[test]
fn tables_grow_to_the_limit_and_fail_in_the_guest() {
    let bench = Bench::new();
    let fields = "(table $t 1 funcref)";
    let grow = "(if (i32.ne (table.grow $t (ref.null func) (i32.const -1)) (i32.const -1)) (then unreachable))
        (if (i32.ne (table.grow $t (ref.null func) (i32.const 9999)) (i32.const 1)) (then unreachable))
        (if (i32.ne (table.grow $t (ref.null func) (i32.const 1)) (i32.const -1)) (then unreachable)) (i32.const 4096)";
    let mut guest = bench.open(&Wat { fields: fields.into(), process: grow.into(), ..Wat::default() });
    process(&mut *guest, &[b"x"]).unwrap();
}

#[test]
fn an_instance_that_begins_too_large_is_never_made() {
    let bench = Bench::new();
    let large = [
        Wat { memory: "32768", ..Wat::default() },
        Wat { fields: "(table 10000000 funcref)".into(), ..Wat::default() },
        Wat { fields: "(table 6000 funcref) (table 6000 funcref)".into(), ..Wat::default() },
        Wat { fields: "(table 1 funcref)".repeat(9), ..Wat::default() },
    ];
    for wat in large {
        match bench.refused(&wat.component()) {
            LoadError::Guest(fault) => {
                assert_eq!((fault.code, fault.class), (FaultCode::InstanceLimit, FaultClass::Permanent), "{fault}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn an_operators_own_limits_hold_at_instantiation() {
    let mut bench = Bench::new();
    let loaded = bench.load(&Wat::default());
    bench.limits.memory_bytes = 1 << 16;
    let fault = bench.open_loaded(&loaded).err().unwrap();
    assert_eq!((fault.code, fault.phase), (FaultCode::InstanceLimit, FaultPhase::Instantiate));
    assert_eq!(fault.message, "a memory of 131072 bytes with 0 in use, the limit of all is 65536");
    bench.limits = GuestLimits { instances: 0, ..GuestLimits::default() };
    let fault = bench.open_loaded(&loaded).err().unwrap();
    assert_eq!(fault.code, FaultCode::InstanceLimit, "{fault}");
    bench.limits = GuestLimits { fuel_instantiate: 0, ..GuestLimits::default() };
    let started = bench.load(&Wat { fields: "(func $f nop) (start $f)".into(), ..Wat::default() });
    let fault = bench.open_loaded(&started).err().unwrap();
    assert_eq!((fault.code, fault.phase), (FaultCode::GuestFuel, FaultPhase::Instantiate));
}

#[test]
fn memories_that_fit_each_alone_are_refused_together() {
    let bench = Bench::new();
    let mut bytes = Wat { memory: "640", ..Wat::default() }.component();
    assert!(bench.loader.load(&bytes).is_ok());
    // A second core module, number 1, with as much memory, and its instance.
    let module = wat::parse_str("(module (memory 640))").unwrap();
    bytes.extend([1, u8::try_from(module.len()).unwrap()]);
    bytes.extend(module);
    bytes.extend([2, 4, 1, 0, 1, 0]);
    match bench.refused(&bytes) {
        LoadError::Guest(fault) => assert_eq!(fault.code, FaultCode::InstanceLimit, "{fault}"),
        other => panic!("{other}"),
    }
}

#[test]
fn after_a_fault_the_guest_is_never_entered_again_and_a_fresh_one_works() {
    let bench = Bench::new();
    // Traps in the second call.
    let fields = "(global $calls (mut i32) (i32.const 0))".to_owned();
    let body = "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (if (i32.eq (global.get $calls) (i32.const 2)) (then unreachable)) (i32.const 4096)";
    let loaded = bench.load(&Wat { fields, process: body.into(), ..Wat::default() });
    for _ in 0..2 {
        let mut guest = bench.open_loaded(&loaded).unwrap();
        process(&mut *guest, &[b"x"]).unwrap();
        assert_eq!(process(&mut *guest, &[b"x"]).unwrap_err().code, FaultCode::GuestTrap);
        let fault = process(&mut *guest, &[b"x"]).unwrap_err();
        assert_eq!((fault.code, fault.class), (FaultCode::HostInternal, FaultClass::Host));
        assert!(fault.message.contains("called after a fault"), "{fault}");
        let fault = guest.finish(None, cofferdam_dataflow::time::ProcessingTime(0)).unwrap_err();
        assert_eq!(fault.code, FaultCode::HostInternal);
    }
}

#[test]
fn a_factory_opens_instances_on_many_threads() {
    let bench = Bench::new();
    let loaded = bench.load(&Wat::default());
    let options = cofferdam::guest::GuestOptions { config: vec![], limits: bench.limits.clone(), log: bench.log.clone() };
    let factory = loaded.factory(options);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut guest = factory.open(&super::guests::info()).unwrap();
                process(&mut *guest, &[b"x"]).unwrap();
            });
        }
    });
}
