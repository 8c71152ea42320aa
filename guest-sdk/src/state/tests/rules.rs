//! One rule of the handles each.

use std::time::Duration;

use crate::call::{Effects, FrameView, InputView, InstanceInfo, Limits, StateUpdate, op};
use crate::column::BytesColumn;
use crate::prelude::*;
use crate::reads::Unreadable;
use crate::testing::{Harness, record};
use crate::{Input, Runner, StateKind};

/// An operator that a test makes of a function over its state.
macro_rules! operator {
    ($name:ident { $($field:ident: $kind:ty = $declare:expr),* $(,)? } $process:expr) => {
        struct $name { $($field: $kind),* }
        impl Operator for $name {
            type Config = NoConfig;
            fn declare(declare: &mut Declare) -> Self {
                $(let $field: $kind = { let make: fn(&mut Declare) -> $kind = $declare; make(declare) };)*
                Self { $($field),* }
            }
            fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
                let process: fn(&Self, Record<'_>, &mut Context<'_>) -> Result<(), Error> = $process;
                process(self, record, cx)
            }
        }
    };
}

operator!(Log { list: List<String, Raw> = |d| d.list("list") } |own, record, cx| match record.text()? {
    "?" => {
        let all = own.list.read(cx)?.join(",");
        cx.emit_bytes(all)
    }
    "!" => {
        own.list.clear(cx);
        Ok(())
    }
    text => own.list.push(cx, &text.to_owned()),
});

operator!(Tally { map: Map<(String, u32), u64> = |d| d.map("map") } |own, record, cx| {
    match record.decode::<(String, u32, u64)>()? {
        (name, n, 0) => own.map.remove(cx, &(name, n)),
        (name, n, value) => own.map.put(cx, &(name, n), value),
    }
});

fn column<const N: usize>(items: [&str; N]) -> BytesColumn {
    let mut column = BytesColumn::default();
    items.iter().for_each(|item| column.push(item.as_bytes()));
    column
}

/// The effects of records with keys "a" and "b" on an operator that must not read.
fn effects<O: Operator, const N: usize>(rows: [u32; N], values: [&str; N]) -> Result<Effects, Error> {
    let info = InstanceInfo { operator: "o".into(), subtask: 0, parallelism: 1, limits: Limits::default() };
    let mut runner = Runner::<O>::open(b"{}", &info).unwrap();
    let (keys, values) = (column(["a", "b"]), column(values));
    let input = InputView { rows: &rows, values: values.view(), ..InputView::default() };
    runner.process_batch(&input, &FrameView { keys: keys.view(), states: &[] }, &Unreadable)
}

#[test]
fn appending_and_clearing_read_nothing_and_leave_what_counts() {
    let effects_of = effects::<Log, 3>([1, 0, 1], ["x", "y", "z"]).unwrap();
    let appended = StateUpdate { slot: 0, rows: vec![1, 0, 1], ops: vec![op::APPEND; 3], values: column(["x", "y", "z"]) };
    assert_eq!(effects_of.updates, [appended]);
    let effects_of = effects::<Log, 5>([1, 0, 1, 1, 1], ["x", "y", "!", "z", "!"]).unwrap();
    let cleared = StateUpdate { slot: 0, rows: vec![1, 0], ops: vec![op::CLEAR, op::APPEND], values: column(["", "y"]) };
    assert_eq!(effects_of.updates, [cleared]);
    // What was cleared is not read either.
    assert_eq!(effects::<Log, 3>([0, 0, 0], ["!", "z", "?"]).unwrap().outputs[0].values, column(["z"]));
    assert_eq!(effects::<Log, 1>([0], ["?"]).unwrap_err().message(), "unread");
}

#[test]
fn an_entry_is_written_once_and_unread() {
    let row = |name: &str, n: u32, value: u64| postcard::to_stdvec(&(name, n, value)).unwrap();
    let mut harness = Harness::<Tally>::new();
    let rows = [row("a", 1, 5), row("a", 1, 6), row("a\0", 7, 1), row("b", 0, 1), row("b", 0, 0)];
    harness.process(rows.map(|row| record(row).key("k"))).unwrap();
    assert_eq!(harness.state_reads(), 0);
    let entries = [(("a".to_owned(), 1), 6), (("a\0".to_owned(), 7), 1)];
    assert_eq!(harness.state_map::<(String, u32), u64>("map", "k"), entries);
}

#[test]
fn long_lists_and_maps_are_read_in_pages() {
    operator!(Sums { list: List<u32> = |d| d.list("list"), map: Map<u32, u32> = |d| d.map("map") } |own, record, cx| {
        let list = own.list.read(cx)?;
        let map = own.map.iter(cx).collect::<Result<Vec<_>, _>>()?;
        let (from, to): (u32, u32) = record.decode()?;
        let some = own.map.scan(cx, from..to).count();
        let from = own.map.scan_from(cx, &from).next().transpose()?;
        cx.emit(&(list.len(), list.is_sorted(), map.len(), map.is_sorted(), some, from))
    });
    let mut harness = Harness::<Sums>::new();
    harness.seed_list("list", "k", &(0..5000u32).collect::<Vec<_>>());
    (0..5000u32).filter(|n| n % 5 != 2).for_each(|n| harness.seed_entry("map", "k", &n, &n));
    let out = harness.process([record(postcard::to_stdvec(&(257u32, 4000u32)).unwrap()).key("k")]).unwrap();
    let expected = (5000, true, 4000, true, (257..4000u32).filter(|n| n % 5 != 2).count(), Some((258u32, 258u32)));
    assert_eq!(out[0].decode::<(usize, bool, usize, bool, usize, Option<(u32, u32)>)>(), expected);
    assert!(harness.state_reads() < 30, "{} reads", harness.state_reads());
}

#[test]
fn pages_that_are_short_for_their_bytes_are_followed_by_the_next() {
    operator!(Sizes { list: List<Vec<u8>, Raw> = |d| d.list("list") } |own, record, cx| {
        if record.bytes().is_empty() {
            let all = own.list.read(cx)?.len();
            return cx.emit(&all);
        }
        own.list.push(cx, &vec![0; 900 << 10])
    });
    let mut harness = Harness::<Sizes>::new();
    harness.process((0..11).map(|_| record("x").key("k"))).unwrap();
    assert_eq!(harness.process([record("").key("k")]).unwrap()[0].decode::<usize>(), 11);
    assert_eq!(harness.state_reads(), 3, "4 + 4 + 3 of 900 KiB fit pages of 4 MiB");
}

#[test]
fn values_on_demand_are_read_for_all_keys_at_once_and_only_if_wanted() {
    operator!(Lazy { n: Value<u32> = |d| d.value("n").on_demand() } |own, record, cx| match record.text()? {
        "get" => {
            let n = own.n.get(cx)?;
            cx.emit(&n)
        }
        "forget" => {
            own.n.delete(cx);
            Ok(())
        }
        _ => {
            own.n.set(cx, 1);
            Ok(())
        }
    });
    let mut harness = Harness::<Lazy>::new();
    ["a", "b", "c"].iter().for_each(|key| harness.seed("n", key, &7u32));
    harness.process([record("set").key("a"), record("forget").key("b")]).unwrap();
    assert_eq!(harness.state_reads(), 0);
    let out = harness.process(["a", "b", "c", "d", "c"].map(|key| record("get").key(key))).unwrap();
    assert_eq!(out.decode::<Option<u32>>(), [Some(1), None, Some(7), None, Some(7)]);
    assert_eq!(harness.state_reads(), 1);
    assert!(!harness.descriptor().slots[0].prefetch);
}

#[test]
fn several_entries_are_read_at_once() {
    operator!(Several { map: Map<String, u32> = |d| d.map("map") } |own, record, cx| {
        let names: Vec<&str> = record.text()?.split(' ').collect();
        let found = own.map.get_many(cx, names)?;
        cx.emit(&found)
    });
    let mut harness = Harness::<Several>::new();
    harness.seed_entry("map", "k", &"a".to_owned(), &1u32);
    harness.seed_entry("map", "k", &"c".to_owned(), &3u32);
    let out = harness.process(["a b c a", "b a"].map(|names| record(names).key("k"))).unwrap();
    assert_eq!(out[0].decode::<Vec<Option<u32>>>(), [Some(1), None, Some(3), Some(1)]);
    assert_eq!(out[1].decode::<Vec<Option<u32>>>(), [None, Some(1)]);
    assert_eq!(harness.state_reads(), 1, "the second record asks for what is known");
}

#[test]
fn what_has_a_time_to_live_expires_by_the_hosts_clock() {
    const TTL: Duration = Duration::from_millis(10);
    operator!(Short {
        n: Value<u32> = |d| d.value("n").ttl(TTL),
        list: List<u32> = |d| d.list("list").ttl(TTL),
        map: Map<u32, u32> = |d| d.map("map").ttl(TTL),
        kept: Value<u32> = |d| d.value("kept").ttl(TTL).ttl_renewed_by_reads(),
    } |own, record, cx| {
        if let Ok(n) = record.text()?.parse::<u32>() {
            own.n.set(cx, n);
            own.list.push(cx, &n)?;
            own.kept.set(cx, n);
            return own.map.put(cx, &n, n);
        }
        let map = own.map.iter(cx).collect::<Result<Vec<_>, _>>()?;
        cx.emit(&(own.n.get(cx)?, own.list.read(cx)?, map.len(), own.kept.get(cx)?))
    });
    let mut harness = Harness::<Short>::new();
    let mut at = |now: i64, text: &str| {
        harness.processing_time_ms(now);
        let out = harness.process([record(text).key("k")]).unwrap();
        out.first().map(|out| out.decode::<(Option<u32>, Vec<u32>, usize, Option<u32>)>())
    };
    at(100, "1");
    at(105, "2");
    assert_eq!(at(109, "?"), Some((Some(2), vec![1, 2], 2, Some(2))));
    assert_eq!(at(110, "?"), Some((Some(2), vec![2], 1, Some(2))));
    assert_eq!(at(115, "?"), Some((None, vec![], 0, Some(2))));
    assert_eq!(at(124, "?"), Some((None, vec![], 0, Some(2))), "each read renews it");
    assert_eq!(at(134, "?"), Some((None, vec![], 0, None)));
    assert_eq!(harness.keys("list"), [b""; 0]);
    let slot = &harness.descriptor().slots[3];
    assert_eq!((slot.ttl_ms, slot.ttl_on_read), (10, true));
}

#[test]
fn the_subtasks_list_is_written_to_the_end() {
    struct Tail(OperatorList<String>);
    impl Operator for Tail {
        type Config = NoConfig;
        fn declare(declare: &mut Declare) -> Self {
            Self(declare.union_list("tail"))
        }
        fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
            self.0.push(cx, &record.text()?.to_owned())
        }
        fn finish(&mut self, cx: &mut FinishContext<'_>) -> Result<(), Error> {
            self.0.push(cx, &"end".to_owned())
        }
    }
    let mut harness = Harness::<Tail>::new();
    assert!(!harness.descriptor().keyed, "the state of a subtask needs no key");
    assert_eq!(harness.descriptor().slots[0].kind, StateKind::ListUnion);
    harness.process([record("a"), record("b")]).unwrap();
    harness.finish().unwrap();
    assert_eq!(harness.operator_list::<String>("tail"), ["a", "b", "end"]);
}

#[test]
fn what_is_too_large_or_damaged_names_its_slot() {
    let limits = Limits { key_bytes: 3, value_bytes: 2, ..Limits::default() };
    let mut harness = Harness::<Log>::new().limits(limits);
    let error = harness.process([record("abc").key("k")]).unwrap_err();
    assert_eq!(error.message(), "a value of slot \"list\" has 3 bytes, over 2");
    let mut harness = Harness::<Tally>::new().limits(limits);
    let error = harness.process([record(postcard::to_stdvec(&("a", 1u32, 1u64)).unwrap()).key("k")]).unwrap_err();
    assert_eq!(error.message(), "an entry key of slot \"map\" has 7 bytes, over 3");
    operator!(Damaged { list: List<u32> = |d| d.list("list"), map: Map<u32, u32> = |d| d.map("map") } |own, record, cx| {
        match record.text()? {
            "list" => own.list.read(cx).map(drop),
            "entry" => own.map.get(cx, &1).map(drop),
            _ => own.map.iter(cx).try_for_each(|entry| entry.map(drop)),
        }
    });
    let mut harness = Harness::<Damaged>::new();
    harness.seed_list("list", "k", &["text"]);
    harness.seed_entry("map", "k", &1u32, &"text");
    let mut error = |what: &str| harness.process([record(what).key("k")]).unwrap_err().to_string();
    assert!(error("list").starts_with("the stored value of slot \"list\" does not decode as postcard"));
    assert!(error("entry").starts_with("the stored value of slot \"map\" does not decode as postcard"));
    assert!(error("scan").starts_with("the stored value of slot \"map\" does not decode as postcard"));
}

#[test]
fn a_refused_element_leaves_no_trace() {
    operator!(Stubborn { list: List<String, Raw> = |d| d.list("list") } |own, record, cx| {
        let _ = own.list.push(cx, &record.text()?.to_owned());
        Ok(())
    });
    let mut harness = Harness::<Stubborn>::new().limits(Limits { value_bytes: 2, ..Limits::default() });
    harness.process(["a", "bcd", "e"].map(|text| record(text).key("k"))).unwrap();
    assert_eq!(harness.state_list_as::<Raw, String>("list", "k"), ["a", "e"]);
}

#[test]
fn declarations_that_make_no_sense_are_named() {
    let error = |declare: &dyn Fn(&mut Declare)| {
        let mut d = Declare::default();
        declare(&mut d);
        d.descriptor().check().unwrap_err().to_string()
    };
    let alone = |d: &mut Declare| drop(d.broadcast::<String, u32, Postcard>("rules"));
    assert_eq!(error(&alone), "slot \"rules\" is broadcast state, but no input is broadcast");
    let renewed = |d: &mut Declare| drop(d.value::<u32, Postcard>("n").ttl_renewed_by_reads());
    assert_eq!(error(&renewed), "slot \"n\": reads renew a time to live that it does not have");
    let mut declare = Declare::default();
    declare.broadcast_input("rules");
    drop(declare.map::<(String, u32), u64, Postcard>("m"));
    let descriptor = declare.descriptor();
    assert_eq!(descriptor.inputs, [Input { name: "rules".into(), broadcast: true }]);
    assert_eq!((descriptor.slots[0].kind, descriptor.slots[0].schema.as_str()), (StateKind::Map, "(String, u32) -> u64"));
}

#[test]
fn a_broadcast_input_needs_its_function() {
    operator!(Deaf { _port: InputPort = |d| d.broadcast_input("rules") } | _, _, _ | Ok(()));
    let error = Harness::<Deaf>::new().process([record("x")]).unwrap_err();
    assert_eq!(error.message(), "the operator declares a broadcast input but does not implement `process_broadcast`");
}
