//! Values that break the canonical ABI or the interface's rules.

use cofferdam::guest::GuestLimits;
use cofferdam_dataflow::column::{BytesColumn, BytesSlice};
use cofferdam_dataflow::guest::{FaultClass, FaultCode, KeyedFrame, StateColumn};

use super::guests::{Bench, Wat, call, process, processing};

/// Stores 32-bit words and returns the address of the result, 8192.
fn returning(words: &[(u32, u32)]) -> Wat<'static> {
    let stores: String =
        words.iter().map(|(at, word)| format!("(i32.store (i32.const {}) (i32.const {}))", 8192 + at, *word as i32)).collect();
    processing(format!("{stores} (i32.const 8192)"))
}

/// Where the list of outputs lies in a result: address, then length.
const OUTPUTS: u32 = 60;
/// Where the test builds its one output, after the result.
const OUTPUT: u32 = 256;

/// One output at 8448: port, keys (data, ends), times, untimed, values (data, ends).
fn output(fields: [u32; 13]) -> Vec<(u32, u32)> {
    let mut words = vec![(OUTPUTS, 8192 + OUTPUT), (OUTPUTS + 4, 1)];
    words.extend(fields.iter().enumerate().map(|(index, word)| (OUTPUT + 4 * index as u32, *word)));
    words
}

#[test]
fn effects_arrive_as_they_were_returned() {
    let bench = Bench::new();
    // One output on port 9 with the values "in" and "out", from the descriptor's names.
    let mut words = output([9, 0, 0, 0, 0, 0, 0, 0, 0, 1280, 5, 8192 + 512, 2]);
    words.extend([(512, 2), (516, 5)]);
    let mut guest = bench.open(&returning(&words));
    let effects = process(&mut *guest, &[b"x"]).unwrap();
    assert_eq!(effects.outputs.len(), 1);
    assert_eq!(effects.outputs[0].port, 9);
    assert_eq!(effects.outputs[0].values.iter().collect::<Vec<_>>(), [&b"in"[..], b"out"]);
    assert_eq!(effects.outputs[0].timestamps.len(), 2);
    assert!(effects.updates.is_empty() && effects.entries.is_empty() && effects.operator_updates.is_empty());
}

#[test]
fn the_guest_sees_the_columns_of_the_batch_and_the_frame() {
    let bench = Bench::new();
    // Arguments: values at 44 (data, ends), frame keys at 60, states at 76; a state: slot, present, values at 12.
    // Returns one output whose values are the batch's column as it came.
    let echo = "(i32.store (i32.const 8252) (i32.const 8448)) (i32.store (i32.const 8256) (i32.const 1))
        (memory.copy (i32.const 8452) (i32.add (local.get $arguments) (i32.const KEYS)) (i32.const 16))
        (i64.store (i32.const 8468) (i64.const 0)) (i64.store (i32.const 8476) (i64.const 0))
        (memory.copy (i32.const 8484) (i32.add (BASE) (i32.const AT)) (i32.const 16)) (i32.const 8192)";
    let text = |base: &str, at: &str| echo.replace("BASE", base).replace("AT", at).replace("KEYS", "72");
    let values = process(&mut *bench.open(&processing(text("local.get $arguments", "56"))), &[b"one", b"", b"three"]).unwrap();
    assert_eq!(values.outputs[0].values.iter().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
    assert_eq!(values.outputs[0].keys.iter().collect::<Vec<_>>(), [b"k"]);
    let state = "i32.load (i32.add (local.get $arguments) (i32.const 88))";
    let values = process(&mut *bench.open(&processing(text(state, "12"))), &[b"x"]).unwrap();
    assert_eq!(values.outputs[0].values.iter().collect::<Vec<_>>(), [b"state"]);
}

#[test]
fn a_frame_with_many_slots_is_handed_over_whole() {
    let bench = Bench::new();
    let values: BytesColumn = [&b"x"[..]].into_iter().collect();
    let states: Vec<_> = (0..20).map(|slot| StateColumn { slot, present: &[1], values: values.as_slice() }).collect();
    // Traps unless there are 20 states and the last one is of slot 19.
    let check = "(if (i32.ne (i32.load (i32.add (local.get $arguments) (i32.const 92))) (i32.const 20)) (then unreachable))
        (if (i32.ne (i32.load (i32.add (i32.load (i32.add (local.get $arguments) (i32.const 88))) (i32.const 532))) (i32.const 19)) (then unreachable))
        (i32.const 4096)";
    let mut guest = bench.open(&processing(check));
    call(&mut *guest, values.as_slice(), &KeyedFrame { keys: values.as_slice(), states: &states }).unwrap();
    let fault = call(&mut *guest, values.as_slice(), &KeyedFrame { keys: BytesSlice::EMPTY, states: &[] }).unwrap_err();
    assert_eq!(fault.code, FaultCode::GuestTrap);
}

#[test]
fn columns_that_do_not_fit_are_the_guests_fault() {
    let bench = Bench::new();
    let data = 1280;
    let ends = 8192 + 512;
    let cases = [
        ("end 1 of the column descends", [0, 0, 0, 0, 0, 0, 0, 0, 0, data, 2, ends, 2]),
        ("the column's last end is 2, but it has 9 bytes", [0, 0, 0, 0, 0, 0, 0, 0, 0, data, 9, ends, 1]),
        ("the column's last end is 0, but it has 2 bytes", [0, 0, 0, 0, 0, 0, 0, 0, 0, data, 2, ends, 0]),
        ("2 times and 0 bytes of untimed do not fit 1 records", [0, 0, 0, 0, 0, 4096, 2, 0, 0, data, 2, ends, 1]),
        ("0 times and 1 bytes of untimed do not fit 1 records", [0, 0, 0, 0, 0, 0, 0, 4096, 1, data, 2, ends, 1]),
    ];
    for (want, fields) in cases {
        let mut words = output(fields);
        words.extend([(512, 2), (516, 1)]);
        let fault = bench.fault(&returning(&words));
        assert_eq!(fault.code, FaultCode::GuestAbi);
        assert!(fault.message.contains(want), "{fault}");
    }
}

#[test]
fn pointers_out_of_memory_are_the_guests_fault() {
    let bench = Bench::new();
    let far = 0xffff_fff0;
    for words in [
        vec![(OUTPUTS, 8192), (OUTPUTS + 4, 0x7fff_ffff)],
        vec![(OUTPUTS, far), (OUTPUTS + 4, 1)],
        vec![(OUTPUTS, 8193), (OUTPUTS + 4, 1)],
        vec![(4, 131_072), (8, 1)],
        output([0, 0, 0, 0, 0, 0, 0, 0, 0, 131_070, 4, 0, 0]),
        output([0, 0, 0, 0, 0, 0, 0, 0, 0, far, 64, 0, 0]),
        output([0, 0, 0, 0, 0, 8196, 0x2000_0001, 0, 0, 0, 0, 0, 0]),
    ] {
        let fault = bench.fault(&returning(&words));
        assert_eq!((fault.code, fault.class), (FaultCode::GuestAbi, FaultClass::Guest), "{words:?}: {fault}");
    }
    for pointer in ["8193", "-8", "131060"] {
        let fault = bench.fault(&processing(format!("(i32.const {pointer})")));
        assert_eq!(fault.code, FaultCode::GuestAbi, "{fault}");
    }
}

#[test]
fn discriminants_that_do_not_exist_are_the_guests_fault() {
    let bench = Bench::new();
    for words in [vec![(0, 2)], vec![(0, 255)], vec![(0, 1), (4, 2)]] {
        assert_eq!(bench.fault(&returning(&words)).code, FaultCode::GuestAbi);
    }
}

#[test]
fn results_are_bounded_as_the_host_stores_them() {
    let mut bench = Bench::new();
    // 50 MB in one list, all over the same bytes; and 600,000 outputs of 100 bytes, which take more in the host.
    bench.limits = GuestLimits { result_bytes: 8 << 20, ..GuestLimits::default() };
    let wat = Wat { memory: "1000", ..returning(&output([0, 0, 0, 0, 0, 0, 0, 0, 0, 65_536, 50_000_000, 0, 0])) };
    assert_eq!(bench.fault(&wat).code, FaultCode::GuestHostcallBytes);
    bench.limits = GuestLimits::default();
    let wat = Wat { memory: "1000", ..returning(&[(OUTPUTS, 65_536), (OUTPUTS + 4, 600_000)]) };
    let fault = bench.fault(&wat);
    assert_eq!(fault.code, FaultCode::GuestHostcallBytes, "{fault}");
}

#[test]
fn effects_cost_fuel_by_record_and_byte() {
    let limits = GuestLimits { fuel_per_call: 100_000, fuel_per_record: 0, ..GuestLimits::default() };
    let bench = Bench { limits, ..Bench::new() };
    // 1000 empty records at 300 each.
    let fault = bench.fault(&returning(&output([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16_384, 1000])));
    assert_eq!(fault.code, FaultCode::GuestFuel);
    assert!(fault.message.starts_with("taking over the call's effects costs 312000 fuel"), "{fault}");
}

#[test]
fn an_error_that_the_guest_returns_keeps_its_class() {
    let bench = Bench::new();
    for (variant, class) in [(0, FaultClass::Guest), (1, FaultClass::Permanent)] {
        let fault = bench.fault(&returning(&[(0, 1), (4, variant), (8, 1280), (12, 5)]));
        assert_eq!((fault.code, fault.class), (FaultCode::GuestError, class));
        assert_eq!(fault.message, "inout");
    }
    let invalid =
        Wat { fields: r#"(data (i32.const 1290) "\ff\fe")"#.into(), ..returning(&[(0, 1), (4, 1), (8, 1290), (12, 2)]) };
    assert_eq!(bench.fault(&invalid).code, FaultCode::GuestAbi);
}
