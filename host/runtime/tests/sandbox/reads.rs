//! Reads of state in the middle of a call: what arrives, what is refused, and what they cost.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use cofferdam::guest::GuestLimits;
use cofferdam_dataflow::column::{BytesColumn, BytesSlice};
use cofferdam_dataflow::guest::{
    Effects, FaultClass, FaultCode, Guest, GuestFault, KeyedFrame, ReadColumn, ReadEntries, ReadError, ReadLimit, StateReads,
};

use super::guests::{Bench, Wat, call_reading, process};

const MANY: &str = r#"(import "cofferdam:operator/state-reads@0.1.0" "get-many" (func $many (param i32 i32 i32 i32)))"#;
const ENTRIES: &str = r#"(import "cofferdam:operator/state-reads@0.1.0" "get-entries"
    (func $entries (param i32 i32 i32 i32 i32 i32 i32 i32)))"#;
const SCAN: &str = r#"(import "cofferdam:operator/state-reads@0.1.0" "scan" (func $scan (param i32 i32 i32 i32 i32 i32 i32)))"#;
const LIST: &str = r#"(import "cofferdam:operator/state-reads@0.1.0" "get-list" (func $list (param i32 i32 i32 i32 i32)))"#;

/// Answers as state of one slot 0 with two rows would, and notes what it was asked.
#[derive(Default)]
struct Answers {
    /// The bytes of every value.
    value_bytes: usize,
    /// The most items that one read asked for.
    asked_most: Cell<usize>,
    asked: Cell<u64>,
    /// What every page walks over, and what all have.
    expired: u64,
    passed_over: Cell<u64>,
    limit: Cell<Option<ReadLimit>>,
    seen: RefCell<Vec<Vec<u8>>>,
}

impl Answers {
    fn ask(&self, slot: u32, rows: &[u32], items: usize) -> Result<(), ReadError> {
        self.asked.set(self.asked.get() + 1);
        self.asked_most.set(self.asked_most.get().max(items));
        if slot != 0 {
            return Err(ReadError::Slot { slot, wanted: "fitting" });
        }
        match rows.iter().find(|row| **row > 1) {
            Some(row) => Err(ReadError::Row { row: *row, rows: 2 }),
            None => Ok(()),
        }
    }

    fn values(&self, items: usize) -> ReadColumn {
        let value = vec![b'v'; self.value_bytes];
        // Every other one is there.
        let present = (0..items.div_ceil(8)).map(|_| 0b0101_0101).collect();
        let values = (0..items).map(|item| if item % 2 == 0 { value.as_slice() } else { &[] }).collect();
        ReadColumn { present, values }
    }
}

impl StateReads for Answers {
    fn get_many(&self, slot: u32, rows: &[u32]) -> Result<ReadColumn, ReadError> {
        self.ask(slot, rows, rows.len())?;
        Ok(self.values(rows.len()))
    }

    fn get_entries(&self, slot: u32, rows: &[u32], entry_keys: BytesSlice<'_>) -> Result<ReadColumn, ReadError> {
        self.ask(slot, rows, rows.len())?;
        self.seen.borrow_mut().extend(entry_keys.iter().map(<[u8]>::to_vec));
        Ok(self.values(rows.len()))
    }

    fn scan(&self, slot: u32, row: u32, start_after: Option<&[u8]>, most: ReadLimit) -> Result<ReadEntries, ReadError> {
        self.ask(slot, &[row], most.items as usize)?;
        self.limit.set(Some(most));
        self.seen.borrow_mut().extend(start_after.map(<[u8]>::to_vec));
        let (keys, values) = (column(&[b"a", b"b"]), column(&[b"first", b"second"]));
        Ok(ReadEntries { keys, values })
    }

    fn get_list(&self, slot: u32, row: u32, start: u32, most: ReadLimit) -> Result<BytesColumn, ReadError> {
        self.ask(slot, &[row], most.items as usize)?;
        self.limit.set(Some(most));
        self.passed_over.set(self.passed_over.get() + self.expired);
        Ok(if start == 0 { column(&[b"one", b"", b"three"]) } else { BytesColumn::default() })
    }

    fn get_operator_list(&self, slot: u32, _: u32, _: ReadLimit) -> Result<BytesColumn, ReadError> {
        Err(ReadError::Slot { slot, wanted: "list-split" })
    }

    fn get_broadcast(&self, slot: u32, _: BytesSlice<'_>) -> Result<ReadColumn, ReadError> {
        Err(ReadError::Slot { slot, wanted: "broadcast" })
    }

    fn scan_broadcast(&self, slot: u32, _: Option<&[u8]>, _: ReadLimit) -> Result<ReadEntries, ReadError> {
        Err(ReadError::Slot { slot, wanted: "broadcast" })
    }

    fn passed_over(&self) -> u64 {
        self.passed_over.get()
    }
}

fn column(items: &[&[u8]]) -> BytesColumn {
    items.iter().copied().collect()
}

/// Returns the column at an address as the values of the one output.
fn returning(address: u32) -> String {
    format!(
        "(i32.store (i32.const 8252) (i32.const 8448)) (i32.store (i32.const 8256) (i32.const 1))
        (memory.copy (i32.const 8484) (i32.const {address}) (i32.const 16)) (i32.const 8192)"
    )
}

fn reading(imports: &'static str, process: String) -> Wat<'static> {
    Wat { imports, memory: "512", process, ..Wat::default() }
}

/// Calls with one record, and checks that nothing of the reads is kept.
fn run(guest: &mut dyn Guest, answers: &Rc<Answers>) -> Result<Effects, GuestFault> {
    let (keys, values) = (column(&[b"k", b"l"]), column(&[b"x"]));
    let reads: Rc<dyn StateReads> = Rc::<Answers>::clone(answers);
    let effects = call_reading(guest, values.as_slice(), &KeyedFrame { keys: keys.as_slice(), states: &[] }, &reads);
    assert_eq!(Rc::strong_count(answers), 2, "the reads are forgotten with the call");
    effects
}

fn fault(bench: &Bench, wat: &Wat<'_>, answers: &Rc<Answers>) -> GuestFault {
    run(&mut *bench.open(wat), answers).expect_err("the call must fail")
}

#[test]
fn what_is_read_arrives_in_the_guest() {
    let (bench, answers) = (Bench::new(), Rc::new(Answers { value_bytes: 2, ..Answers::default() }));
    let items = |wat: &Wat<'_>| -> Vec<Vec<u8>> {
        let effects = run(&mut *bench.open(wat), &answers).unwrap();
        effects.outputs[0].values.iter().map(<[u8]>::to_vec).collect()
    };
    let all = "(call $list (i32.const 0) (i32.const 1) (i32.const 0) (i32.const -1) (i32.const 9000))";
    assert_eq!(items(&reading(LIST, format!("{all} {}", returning(9000)))), [&b"one"[..], b"", b"three"]);
    assert_eq!(answers.limit.get(), Some(ReadLimit { items: 65_536, bytes: 4 << 20 }), "whatever the guest asks for");
    let scan = "(call $scan (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 1282) (i32.const 3) (i32.const 9)
        (i32.const 9000))";
    assert_eq!(items(&reading(SCAN, format!("{scan} {}", returning(9000)))), [b"a", b"b"]);
    assert_eq!(items(&reading(SCAN, format!("{scan} {}", returning(9016)))), [&b"first"[..], b"second"]);
    assert_eq!(answers.seen.take(), [b"out", b"out"]);
    // Rows 1, 0, 1 at 1200; the entry keys "in", "", "out".
    let rows = r#"(data (i32.const 1200) "\01\00\00\00\00\00\00\00\01\00\00\00") (data (i32.const 1220) "\02\00\00\00\02\00\00\00\05\00\00\00")"#;
    let many = "(call $many (i32.const 0) (i32.const 1200) (i32.const 3) (i32.const 9000))
        (if (i32.ne (i32.load8_u (i32.load (i32.const 9004))) (i32.const 5)) (then unreachable))";
    let wat = Wat { fields: rows.into(), ..reading(MANY, format!("{many} {}", returning(9012))) };
    assert_eq!(items(&wat), [&b"vv"[..], b"", b"vv"]);
    let entries = "(call $entries (i32.const 0) (i32.const 1200) (i32.const 3) (i32.const 1280) (i32.const 5)
        (i32.const 1220) (i32.const 3) (i32.const 9000))";
    let wat = Wat { fields: rows.into(), ..reading(ENTRIES, format!("{entries} {}", returning(9012))) };
    assert_eq!(items(&wat), [&b"vv"[..], b"", b"vv"]);
    assert_eq!(answers.seen.take(), [&b"in"[..], b"", b"out"]);
}

#[test]
fn a_read_that_the_interface_does_not_allow_traps_by_name() {
    let (bench, answers) = (Bench::new(), Rc::new(Answers::default()));
    let list = |slot: u32, row: u32| {
        format!("(call $list (i32.const {slot}) (i32.const {row}) (i32.const 0) (i32.const 9) (i32.const 9000)) (i32.const 4096)")
    };
    let fault_of = |wat: &Wat<'_>, want: &str| {
        let fault = fault(&bench, wat, &answers);
        assert_eq!((fault.code, fault.class), (FaultCode::GuestAbi, FaultClass::Guest), "{fault}");
        assert!(fault.message.contains(want), "{fault}");
    };
    fault_of(&reading(LIST, list(7, 0)), "state-reads.get-list: slot 7 is not a declared fitting slot");
    fault_of(&reading(LIST, list(0, 2)), "state-reads.get-list: row 2 is read of a frame of 2");
    // 2 rows with 1 entry key, and an end that does not fit.
    let entries = |keys: &str| {
        let call =
            format!("(call $entries (i32.const 0) (i32.const 4096) (i32.const 2) {keys} (i32.const 9000)) (i32.const 4096)");
        Wat { fields: r#"(data (i32.const 1220) "\02\00\00\00\01\00\00\00")"#.into(), ..reading(ENTRIES, call) }
    };
    let short = entries("(i32.const 1280) (i32.const 2) (i32.const 1220) (i32.const 1)");
    fault_of(&short, "2 rows are read with 1 entry keys");
    let descending = entries("(i32.const 1280) (i32.const 1) (i32.const 1220) (i32.const 2)");
    fault_of(&descending, "state-reads.get-entries: entry-keys: end 1 of the column descends");
    let far = format!("(call $many (i32.const 0) (i32.const {}) (i32.const 9) (i32.const 9000)) (i32.const 4096)", 512 << 16);
    assert_eq!(fault(&bench, &reading(MANY, far), &answers).code, FaultCode::GuestAbi);
}

#[test]
fn outside_of_a_call_with_records_nothing_can_be_read() {
    let bench = Bench::new();
    let read = "(call $list (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 9) (i32.const 9000)) (i32.const 4096)";
    let fault = bench.try_open(&Wat { open: read.into(), ..reading(LIST, "(i32.const 4096)".into()) }).err().unwrap();
    assert_eq!(fault.code, FaultCode::GuestAbi);
    assert!(fault.message.contains("state-reads.get-list was called outside of a call with records"), "{fault}");
    let mut guest = bench.open(&Wat { finish: read, ..reading(LIST, "(i32.const 4096)".into()) });
    process(&mut *guest, &[b"x"]).unwrap();
    let fault = guest.finish(None, cofferdam_dataflow::time::ProcessingTime(7)).unwrap_err();
    assert!(fault.message.contains("outside of a call with records"), "{fault}");
}

#[test]
fn reading_in_a_loop_burns_fuel() {
    let bench = Bench::new();
    let forever = |call: &str| format!("(loop $l {call} (global.set $next (i32.const 65536)) (br $l)) unreachable");
    let first = "(call $list (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 9) (i32.const 9000))";
    let far = "(call $list (i32.const 0) (i32.const 0) (i32.const 10000000) (i32.const 9) (i32.const 9000))";
    // What is skipped, and what has expired and is walked over, is paid for.
    for (call, expired, fuel_of_one) in [(first, 0, 300), (far, 0, 10_000_000), (first, 100_000, 10_000_000)] {
        let answers = Rc::new(Answers { expired, ..Answers::default() });
        let fault = fault(&bench, &reading(LIST, forever(call)), &answers);
        assert_eq!(fault.code, FaultCode::GuestFuel, "{fault}");
        let fuel = GuestLimits::default().data_fuel(1);
        assert!((2..=fuel / fuel_of_one + 1).contains(&answers.asked.get()), "{} reads for {fuel} fuel", answers.asked.get());
    }
}

#[test]
fn arguments_and_answers_are_bounded() {
    let (mut bench, small) = (Bench::new(), Rc::new(Answers::default()));
    // With the usual fuel of one record, that would be the first to end.
    bench.limits = GuestLimits { fuel_per_call: 1_000_000_000, ..GuestLimits::default() };
    // 4 MiB of rows are looked at, and a row more is not.
    let rows = |count: u32| {
        reading(
            MANY,
            format!("(call $many (i32.const 0) (i32.const 1048576) (i32.const {count}) (i32.const 9000)) (i32.const 4096)"),
        )
    };
    let too_many = fault(&bench, &rows((1 << 20) + 1), &small);
    assert_eq!(too_many.code, FaultCode::GuestHostcallBytes, "{too_many}");
    assert!(too_many.message.contains("a read of state has 4194308 bytes"), "{too_many}");
    assert_eq!(small.asked.get(), 0);
    // 600 values of 1 MiB, every other one there: read in pieces of 64 at most, and given up after 64 MiB.
    let large = Rc::new(Answers { value_bytes: 1 << 20, ..Answers::default() });
    let too_large = fault(&bench, &rows(600), &large);
    assert_eq!(too_large.code, FaultCode::GuestHostcallBytes, "{too_large}");
    assert!(large.asked_most.get() <= 64 && large.asked.get() < 600, "{} at once", large.asked_most.get());
}
