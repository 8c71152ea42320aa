//! One rule of the SDK each.

use serde::Deserialize;

use crate::call::{FrameView, InputView, InstanceInfo, Limits, StateView, op};
use crate::column::{BytesColumn, BytesView};
use crate::log::Level;
use crate::prelude::*;
use crate::reads::Unreadable;
use crate::testing::{Harness, record};
use crate::{ErrorKind, Runner};

/// An operator that a test makes of a function.
macro_rules! operator {
    ($name:ident, $process:expr) => {
        struct $name(Value<u64>);
        impl Operator for $name {
            type Config = NoConfig;
            fn declare(declare: &mut Declare) -> Self {
                Self(declare.value("n"))
            }
            fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
                let process: fn(&Value<u64>, Record<'_>, &mut Context<'_>) -> Result<(), Error> = $process;
                process(&self.0, record, cx)
            }
        }
    };
}

operator!(Count, |n, _, cx| {
    let count = n.update(cx, |n| {
        *n += 1;
        *n
    })?;
    cx.emit(&count)
});

fn info() -> InstanceInfo {
    InstanceInfo { operator: "o".into(), subtask: 0, parallelism: 1, limits: Limits::default() }
}

fn error_of<O: Operator>(limits: Limits, value: &str) -> String {
    let mut harness = Harness::<O>::new().limits(limits);
    harness.process([record(value).key("k")]).unwrap_err().to_string()
}

#[test]
fn a_row_is_encoded_once_however_often_it_was_written() {
    let mut runner = Runner::<Count>::open(b"{}", &info()).unwrap();
    let (keys, values): (BytesColumn, BytesColumn) = (column(["a", "b"]), column(["", "", "", ""]));
    let stored: BytesColumn = column(["", "\x07"]);
    let states = [StateView { slot: 0, present: &[0b10], values: stored.view() }];
    let input = InputView { rows: &[1, 0, 1, 1], values: values.view(), ..InputView::default() };
    let effects = runner.process_batch(&input, &FrameView { keys: keys.view(), states: &states }, &Unreadable).unwrap();
    let [update] = effects.updates.as_slice() else { panic!("one update, not {:?}", effects.updates) };
    assert_eq!((&*update.rows, &*update.ops), (&[1, 0][..], &[op::PUT, op::PUT][..]));
    assert_eq!(update.values, column(["\x0a", "\x01"]));
    assert_eq!(effects.outputs[0].values, column(["\x08", "\x01", "\x09", "\x0a"]));
}

fn column<const N: usize>(items: [&str; N]) -> BytesColumn {
    let mut column = BytesColumn::default();
    items.iter().for_each(|item| column.push(item.as_bytes()));
    column
}

#[test]
fn reading_and_deleting_nothing_writes_nothing() {
    operator!(Idle, |n, _, cx| {
        n.delete(cx);
        n.get(cx)?;
        n.delete(cx);
        n.get_or_default(cx).map(drop)
    });
    let mut runner = Runner::<Idle>::open(b"{}", &info()).unwrap();
    let (keys, values, stored) = (column(["a"]), column([""]), column([""]));
    let states = [StateView { slot: 0, present: &[0], values: stored.view() }];
    let input = InputView { rows: &[0], values: values.view(), ..InputView::default() };
    let effects = runner.process_batch(&input, &FrameView { keys: keys.view(), states: &states }, &Unreadable).unwrap();
    assert_eq!(effects, crate::call::Effects::default());
}

#[test]
fn a_deleted_value_is_gone() {
    operator!(Delete, |n, _, cx| {
        n.delete(cx);
        let gone = n.get(cx)?.is_none();
        cx.emit(&gone)
    });
    let mut harness = Harness::<Delete>::new();
    harness.seed("n", "a", &7u64);
    harness.seed("n", "b", &8u64);
    assert!(harness.process([record("").key("a")]).unwrap()[0].decode::<bool>());
    assert_eq!(harness.keys("n"), [b"b"]);
}

#[test]
fn state_that_does_not_decode_is_an_error_that_names_the_slot() {
    let mut harness = Harness::<Count>::new();
    harness.seed_bytes("n", "a", b"\x07\x07");
    let error = harness.process([record("").key("a")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permanent);
    assert_eq!(error.message(), "the stored value of slot \"n\" does not decode as postcard: 1 bytes follow the value");
}

#[test]
fn output_has_the_records_time_and_no_key_unless_told_otherwise() {
    struct Side(OutputPort, OutputPort);
    impl Operator for Side {
        type Config = NoConfig;
        fn declare(declare: &mut Declare) -> Self {
            let main = declare.output("main");
            declare.keyed();
            Self(main, declare.output("late"))
        }
        fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
            cx.emit_bytes(record.bytes())?;
            cx.out_to(self.0).time_ms(-1).send_bytes("1")?;
            cx.out().untimed().send_fmt(format_args!("{}", 2))?;
            cx.out_to(self.1).keep_key().send_with(|out| serde_json::to_writer(out, "3"))?;
            cx.out_to(self.1).key("own").send_as::<Raw, _>("4")
        }
    }
    let mut harness = Harness::<Side>::new();
    let out = harness.process([record("0").key("k").time_ms(5), record("0").key("k")]).unwrap();
    let seen: Vec<_> =
        out.of_port("main").iter().map(|out| (out.text().to_owned(), out.key().is_some(), out.time_ms())).collect();
    let expected = [("0", Some(5)), ("1", Some(-1)), ("2", None), ("0", None), ("1", Some(-1)), ("2", None)];
    assert_eq!(seen, expected.map(|(text, time)| (text.to_owned(), false, time)));
    let late: Vec<_> =
        out.of_port("late")[..2].iter().map(|out| (out.text().to_owned(), out.key().map(<[u8]>::to_vec))).collect();
    assert_eq!(late, [("\"3\"".to_owned(), Some(b"k".to_vec())), ("4".to_owned(), Some(b"own".to_vec()))]);
}

#[test]
fn one_port_cannot_mix_records_with_and_without_a_key() {
    operator!(Mixed, |_, record, cx| { if record.bytes().is_empty() { cx.emit(&1) } else { cx.out().key("k").send(&1) } });
    let mut harness = Harness::<Mixed>::new();
    harness.process([record("").key("a")]).unwrap();
    let error = harness.process([record("keyed").key("a")]).unwrap_err();
    assert_eq!(error.message(), "output \"out\" gets records with and without a key");
}

#[test]
fn what_is_too_large_is_named() {
    operator!(Echo, |_, record, cx| cx.out().key(record.bytes()).send_bytes(record.bytes()));
    operator!(Keep, |n, record, cx| {
        n.set(cx, record.text()?.len() as u64);
        Ok(())
    });
    let limits = Limits { key_bytes: 4, value_bytes: 1, record_bytes: 3, output_bytes: 5, ..Limits::default() };
    assert_eq!(error_of::<Echo>(limits, "12345"), "a key for output \"out\" has 5 bytes, over 4");
    assert_eq!(error_of::<Echo>(limits, "1234"), "a record for output \"out\" has 4 bytes, over 3");
    let over = "one call emits over 5 bytes of keys and values; a smaller `max_batch` may help";
    assert_eq!(error_of::<Echo>(limits, "123"), over);
    let none = Limits { output_records: 0, ..limits };
    assert_eq!(error_of::<Echo>(none, "12"), "one call emits over 0 records; a smaller `max_batch` may help");
    assert_eq!(error_of::<Keep>(limits, &"x".repeat(300)), "a value of slot \"n\" has 2 bytes, over 1");
    let limit = |error: Error| error.limit();
    let of = Harness::<Echo>::new().limits(limits).process([record("12345").key("k")]).map_err(limit);
    assert_eq!(of.unwrap_err(), Some(crate::Limit::Output));
    let of = Harness::<Keep>::new().limits(limits).process([record("x".repeat(300)).key("k")]).map_err(limit);
    assert_eq!(of.unwrap_err(), Some(crate::Limit::Write));
}

#[test]
fn a_refused_record_leaves_no_trace_in_the_output() {
    operator!(Stubborn, |_, record, cx| {
        let refused = cx.emit_bytes(record.bytes()).is_err();
        cx.emit_fmt(format_args!("{refused}"))?;
        let failed = cx.out().send_with(|out| {
            out.push("half");
            Err(Error::transient("no more"))
        });
        assert_eq!(failed, Err(Error::transient("no more")));
        Ok(())
    });
    let mut harness = Harness::<Stubborn>::new().limits(Limits { record_bytes: 5, ..Limits::default() });
    let out = harness.process(["a", "123456", "b"].map(|value| record(value).key("k"))).unwrap();
    assert_eq!(out.texts(), ["a", "false", "true", "b", "false"]);
}

#[test]
fn an_operator_without_output_cannot_emit() {
    struct Silent;
    impl Operator for Silent {
        type Config = NoConfig;
        fn declare(declare: &mut Declare) -> Self {
            declare.no_output();
            Self
        }
        fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
            cx.emit(&1)
        }
    }
    assert_eq!(Runner::<Silent>::descriptor().outputs, [""; 0]);
    assert_eq!(error_of::<Silent>(Limits::default(), ""), "the operator has 0 outputs, so none with index 0");
}

struct Sampler {
    every: u32,
    seen: u32,
    events: InputPort,
}

#[derive(Deserialize)]
struct Every {
    every: u32,
}

impl Operator for Sampler {
    type Config = Every;

    fn declare(declare: &mut Declare) -> Self {
        declare.max_batch(2);
        let events = declare.input("events");
        declare.input("control");
        Self { every: 0, seen: 0, events }
    }

    fn configure(&mut self, config: Every, info: &InstanceInfo) -> Result<(), Error> {
        if config.every == 0 {
            return Err(Error::permanent("`every` is 0"));
        }
        self.every = config.every;
        info!("{} keeps 1 of {}", info.operator, self.every);
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        if cx.port() == self.events {
            self.seen += 1;
            metrics::add("seen", 1);
            metrics::set("last", f64::from(self.seen));
            return cx.emit(&(record.bytes(), cx.watermark_ms(), cx.processing_time_ms()));
        }
        warn!("control: {}", record.text()?);
        Ok(())
    }

    fn finish(&mut self, cx: &mut FinishContext<'_>) -> Result<(), Error> {
        cx.emit(&(self.seen / self.every, cx.watermark_ms()))
    }
}

#[test]
fn configuration_clocks_ports_logs_metrics_and_finish_reach_the_operator() {
    let mut harness = Harness::<Sampler>::new().config(r#"{"every": 2}"#);
    harness.watermark_ms(10);
    harness.processing_time_ms(99);
    let records = [record("a"), record("stop").port("control"), record("b").port("events"), record("c").port("events")];
    let out = harness.process(records).unwrap();
    let row = |value| (value, Some(10), 99);
    assert_eq!(out.decode::<(&[u8], Option<i64>, i64)>(), [row(&b"a"[..]), row(b"b"), row(b"c")]);
    assert_eq!(harness.finish().unwrap()[0].decode::<(u32, Option<i64>)>(), (1, Some(10)));
    let lines: Vec<_> = harness.logs().iter().map(|(level, text)| (*level, text.as_str())).collect();
    assert_eq!(lines, [(Level::Info, "test keeps 1 of 2"), (Level::Warn, "control: stop")]);
    assert_eq!((harness.counter("seen"), harness.gauge("last")), (3, Some(3.0)));
}

#[test]
fn a_bad_configuration_is_refused_before_any_record() {
    let refused = |config: &str| Harness::<Sampler>::new().config(config).open().unwrap_err().to_string();
    assert_eq!(refused("{}"), "the configuration: missing field `every` at line 1 column 2");
    assert_eq!(refused(r#"{"every": 0}"#), "`every` is 0");
    let unknown = Harness::<Count>::new().config(r#"{"evry": 1}"#).open().unwrap_err();
    assert!(unknown.message().contains("unknown field `evry`"), "{unknown}");
}

#[test]
fn input_that_does_not_fit_together_is_an_error() {
    let mut runner = Runner::<Count>::open(b"{}", &info()).unwrap();
    let values = BytesView::new(b"", &[0]);
    let mut refused = |input: InputView<'_>, states: &[StateView<'_>]| {
        let keys = BytesView::new(b"k", &[1]);
        runner.process_batch(&input, &FrameView { keys, states }, &Unreadable).unwrap_err().to_string()
    };
    let state = StateView { slot: 0, present: &[0], values };
    let port = refused(InputView { port: 1, values, rows: &[0], ..InputView::default() }, &[state]);
    assert_eq!(port, "the host broke the operator interface: a batch for input 1 of 1");
    let rows = refused(InputView { values, ..InputView::default() }, &[state]);
    assert_eq!(rows, "the host broke the operator interface: 0 rows for 1 records");
    let states = refused(InputView { values, rows: &[0], ..InputView::default() }, &[]);
    assert_eq!(states, "the host broke the operator interface: state columns that do not fit 1 slots and 1 rows");
}

#[test]
#[should_panic(expected = "all records in one batch (left) or in batches of 1")]
fn an_operator_that_remembers_outside_of_state_is_caught() {
    struct Forgetful(u64);
    impl Operator for Forgetful {
        type Config = NoConfig;
        fn declare(_: &mut Declare) -> Self {
            Self(0)
        }
        fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
            self.0 += 1;
            cx.emit(&self.0)
        }
    }
    Harness::<Forgetful>::new().assert_batch_independent([record("a"), record("b")]);
}

/// Tells of each timer; one of event time that its record asks for, and one of processing time.
struct Alarm(Timers, Timers);

impl Operator for Alarm {
    type Config = NoConfig;

    fn declare(declare: &mut Declare) -> Self {
        Self(declare.event_timers(), declare.processing_timers())
    }

    fn process(&mut self, record: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
        let time: i64 = record.text()?.parse().map_err(|_| Error::permanent("not a number"))?;
        self.0.set_tagged(cx, time, 7);
        self.0.set(cx, time);
        self.0.delete(cx, time);
        self.1.set(cx, time);
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_>) -> Result<(), Error> {
        let tag = timer.tag();
        cx.emit_fmt(format_args!("{}@{} tag {tag} of {:?}", cx.key_text()?, timer.time_ms(), timer.domain()))
    }
}

#[test]
fn timers_fire_in_order_once_their_clock_has_reached_them() {
    use crate::TimeDomain::{EventTime, ProcessingTime};
    assert_eq!(Runner::<Alarm>::descriptor().timers, [EventTime, ProcessingTime]);
    assert!(Runner::<Alarm>::descriptor().keyed);
    let mut alarm = Harness::<Alarm>::new();
    let records = [("b", "5"), ("a", "5"), ("a", "9"), ("a", "5")].map(|(key, time)| record(time).key(key));
    assert!(alarm.process(records).unwrap().is_empty());
    assert_eq!(alarm.timers(EventTime, "a"), [(5, 7), (9, 7)]);
    assert!(alarm.advance_watermark(4).unwrap().is_empty());
    let out = alarm.advance_watermark(5).unwrap();
    assert_eq!(out.texts(), ["a@5 tag 7 of EventTime", "b@5 tag 7 of EventTime"]);
    assert_eq!((out[0].time_ms(), out[0].key()), (Some(5), None));
    let out = alarm.advance_processing_time(5).unwrap();
    assert_eq!(out.texts(), ["a@5 tag 0 of ProcessingTime", "b@5 tag 0 of ProcessingTime"]);
    assert_eq!(out[0].time_ms(), None);
    // A time that has passed fires at once, here in both kinds of time.
    assert_eq!(alarm.process([record("3").key("c")]).unwrap().len(), 2);
    assert_eq!(alarm.finish().unwrap().texts(), ["a@9 tag 7 of EventTime"]);
    assert_eq!(alarm.timers(ProcessingTime, "a"), [(9, 0)], "the end of input is none of processing time");
}

#[test]
fn timers_without_a_callback_are_an_error_and_stay() {
    struct Mute(Timers);
    impl Operator for Mute {
        type Config = NoConfig;
        fn declare(declare: &mut Declare) -> Self {
            Self(declare.event_timers())
        }
        fn process(&mut self, _: Record<'_>, cx: &mut Context<'_>) -> Result<(), Error> {
            self.0.set(cx, 1);
            Ok(())
        }
    }
    let mut harness = Harness::<Mute>::new();
    harness.process([record("").key("k")]).unwrap();
    let error = harness.advance_watermark(1).unwrap_err();
    assert_eq!(error.message(), "the operator declares timers but does not implement `on_timer`");
    assert_eq!(harness.timers(crate::TimeDomain::EventTime, "k"), [(1, 0)]);
}
