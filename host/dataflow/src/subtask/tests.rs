//! Calls of an operator with state of every kind: what its effects may be, and what a guest reads meanwhile.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use super::operator::{OperatorRestore, OperatorSubtask};
use super::ports::Now;
use super::{Cause, TaskFailure};
use crate::batch::Batch;
use crate::column::BytesColumn;
use crate::guest::{
    Descriptor, EffectLimits, Effects, EntryUpdate, Guest, GuestFactory, GuestFault, GuestUsage, InputBatch, InputPort,
    InstanceInfo, KeyedFrame, OperatorUpdate, ReadLimit, StateKind, StateReads, StateSlot, StateUpdate, TimerBatch, op,
};
use crate::ids::OperatorId;
use crate::key_group::MaxParallelism;
use crate::state::{StateOwner, SubtaskState};
use crate::time::{ProcessingTime, Watermark};

const ALL: ReadLimit = ReadLimit { items: u32::MAX, bytes: usize::MAX };
const RECORDS: u32 = 0;
const RULES: u32 = 1;

/// Returns the effects that it was given last, and notes what it reads.
struct Script {
    descriptor: Descriptor,
    next: Arc<Mutex<Vec<Effects>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

struct Scripted {
    next: Arc<Mutex<Vec<Effects>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl GuestFactory for Script {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn open(&self, _: &InstanceInfo) -> Result<Box<dyn Guest>, GuestFault> {
        Ok(Box::new(Scripted { next: Arc::clone(&self.next), seen: Arc::clone(&self.seen) }))
    }
}

impl Guest for Scripted {
    fn process_batch(
        &mut self,
        batch: &InputBatch<'_>,
        frame: &KeyedFrame<'_>,
        reads: &Rc<dyn StateReads>,
    ) -> Result<Effects, GuestFault> {
        let keep = Rc::clone(reads);
        let list = keep.get_operator_list(3, 0, ALL).unwrap();
        let rules = keep.scan_broadcast(4, None, ALL).unwrap();
        let (list, rules) = (list.len(), rules.keys.len());
        let rows = (batch.rows.len(), frame.keys.len());
        self.seen.lock().unwrap().push(format!("port {} rows {rows:?} list {list} rules {rules}", batch.port));
        Ok(self.next.lock().unwrap().last().cloned().unwrap_or_default())
    }

    fn on_timers(&mut self, _: &TimerBatch<'_>, _: &KeyedFrame<'_>, _: &Rc<dyn StateReads>) -> Result<Effects, GuestFault> {
        Ok(self.next.lock().unwrap().last().cloned().unwrap_or_default())
    }

    fn finish(&mut self, _: Option<Watermark>, _: ProcessingTime) -> Result<Effects, GuestFault> {
        Ok(self.next.lock().unwrap().last().cloned().unwrap_or_default())
    }

    fn usage(&self) -> GuestUsage {
        GuestUsage::default()
    }
}

struct World {
    subtask: OperatorSubtask,
    next: Arc<Mutex<Vec<Effects>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new(quota_bytes: u64) -> Self {
        let kinds = [StateKind::Value, StateKind::Map, StateKind::List, StateKind::ListUnion, StateKind::Broadcast];
        let slot = |kind: &StateKind| StateSlot {
            name: kind.name().into(),
            kind: *kind,
            codec: "raw".into(),
            schema: String::new(),
            ttl_ms: 0,
            ttl_on_read: false,
            prefetch: *kind == StateKind::Value,
        };
        let slots: Vec<_> = kinds.iter().map(slot).collect();
        let port = |name: &str, broadcast| InputPort { name: name.into(), broadcast };
        let descriptor = Descriptor {
            inputs: vec![port("records", false), port("rules", true)],
            outputs: vec![],
            slots: slots.clone(),
            timers: vec![],
            keyed: false,
            max_batch: 0,
        };
        assert_eq!(descriptor.check(), Ok(()));
        let (next, seen) = (Arc::default(), Arc::default());
        let factory = Arc::new(Script { descriptor, next: Arc::clone(&next), seen: Arc::clone(&seen) });
        let limits = EffectLimits { key_bytes: 8, value_bytes: 64, write_bytes: 100, ..EffectLimits::default() };
        let info = InstanceInfo { operator: OperatorId::new("op").unwrap(), subtask: 0, parallelism: 1, limits };
        let owner = StateOwner { max_parallelism: MaxParallelism::new(4).unwrap(), groups: 0..4, subtask: 0 };
        let state = SubtaskState::new(owner, &slots, 42, quota_bytes);
        let subtask = OperatorSubtask::open(factory, info, Some(state), OperatorRestore::default()).unwrap();
        Self { subtask, next, seen }
    }

    /// One call for two records: with the keys "a" and "b", or without keys.
    fn call(&mut self, port: u32, effects: Effects) -> Result<(), TaskFailure> {
        self.next.lock().unwrap().push(effects);
        let mut batch = Batch::default();
        for key in [b"a", b"b"] {
            batch.push((port == RECORDS).then_some(&key[..]), None, b"record");
        }
        let now = Now { monotonic_us: 0, processing_time: ProcessingTime(0) };
        self.subtask.process(port, &batch, now, &mut |_| Ok(()))
    }

    fn refused(&mut self, port: u32, effects: Effects) -> String {
        let before = self.entries();
        let failure = self.call(port, effects).unwrap_err();
        assert_eq!(self.entries(), before, "nothing of a refused call applies");
        let Cause::Guest(fault) = failure.cause else { panic!("{failure}") };
        fault.to_string()
    }

    fn entries(&self) -> u64 {
        self.subtask.state.as_ref().map_or(0, |state| RefCell::borrow(state).entries())
    }
}

fn column(items: &[&[u8]]) -> BytesColumn {
    items.iter().copied().collect()
}

fn update(slot: u32, row: u32, op: u8, value: &[u8]) -> Effects {
    let update = StateUpdate { slot, rows: vec![row], ops: vec![op], values: column(&[value]) };
    Effects { updates: vec![update], ..Effects::default() }
}

fn entry(slot: u32, row: u32, op: u8, key: &[u8], value: &[u8]) -> Effects {
    let (entry_keys, values) = (column(&[key]), column(&[value]));
    let update = EntryUpdate { slot, rows: vec![row], ops: vec![op], entry_keys, values };
    Effects { entries: vec![update], ..Effects::default() }
}

fn own(slot: u32, op: u8, key: &[u8], value: &[u8]) -> Effects {
    let update = OperatorUpdate { slot, ops: vec![op], entry_keys: column(&[key]), values: column(&[value]) };
    Effects { operator_updates: vec![update], ..Effects::default() }
}

#[test]
fn effects_that_break_a_rule_are_refused_whole() {
    let mut world = World::new(1 << 20);
    let uneven = EntryUpdate { slot: 1, rows: vec![0], ops: vec![op::PUT], ..EntryUpdate::default() };
    let lopsided = OperatorUpdate { slot: 3, ops: vec![op::APPEND], ..OperatorUpdate::default() };
    let partly_good = Effects { operator_updates: own(4, op::PUT, b"r", b"").operator_updates, ..update(0, 0, op::PUT, b"good") };
    for (port, effects, expected) in [
        (
            RECORDS,
            update(0, 0, op::APPEND, b""),
            "guest-abi in data: an update of slot 0 has op 2, which value state does not know",
        ),
        (RECORDS, update(0, 0, op::CLEAR, b""), "op 3, which value state does not know"),
        (RECORDS, update(1, 0, op::PUT, b""), "op 0, which map state does not know"),
        (RECORDS, update(2, 0, op::PUT, b""), "op 0, which list state does not know"),
        (RECORDS, update(2, 2, op::APPEND, b""), "names row 2 of 2"),
        (RECORDS, update(3, 0, op::APPEND, b""), "slot 3 is not a declared value, list or map slot"),
        (RECORDS, update(9, 0, op::PUT, b""), "slot 9 is not a declared"),
        (RECORDS, entry(0, 0, op::PUT, b"", b""), "slot 0 is not a declared map slot"),
        (RECORDS, entry(1, 5, op::PUT, b"", b""), "names row 5 of 2"),
        (RECORDS, entry(1, 0, op::CLEAR, b"", b""), "op 3, which map state does not know"),
        (
            RECORDS,
            entry(1, 0, op::PUT, &[0; 9], b""),
            "guest-write-budget in data: an entry key of 9 bytes exceeds the limit of 8",
        ),
        (RECORDS, entry(1, 0, op::PUT, b"", &[0; 65]), "a state value of 65 bytes exceeds the limit of 64"),
        (RECORDS, Effects { entries: vec![uneven], ..Effects::default() }, "1 rows, 1 ops, 0 entry keys and 0 values"),
        (RECORDS, own(1, op::APPEND, b"", b""), "slot 1 is not a declared operator or broadcast slot"),
        (RECORDS, own(3, op::PUT, b"", b""), "op 0, which list-union state does not know"),
        (RECORDS, own(3, op::APPEND, b"key", b""), "an update of list slot 3 has entry keys"),
        (RECORDS, Effects { operator_updates: vec![lopsided], ..Effects::default() }, "1 ops, 0 entry keys and 0 values"),
        (RECORDS, own(4, op::PUT, b"rule", b""), "broadcast slot 4 is written in a call that not every subtask makes"),
        (RULES, own(4, op::APPEND, b"", b""), "op 2, which broadcast state does not know"),
        (RULES, update(0, 0, op::PUT, b""), "names row 0 of 0"),
        (RECORDS, partly_good, "broadcast slot 4 is written"),
    ] {
        let error = world.refused(port, effects);
        assert!(error.contains(expected), "{error}, not {expected}");
    }
    assert_eq!(world.entries(), 0);
}

#[test]
fn the_write_budget_and_the_quota_are_over_all_kinds() {
    let mut world = World::new(500);
    let effects = Effects {
        entries: entry(1, 0, op::PUT, b"e", &[1; 40]).entries,
        operator_updates: own(3, op::APPEND, b"", &[1; 40]).operator_updates,
        ..update(0, 0, op::PUT, &[1; 20])
    };
    assert!(world.refused(RECORDS, effects).contains("guest-write-budget in data: state writes of one call exceed 100 bytes"));
    let mut last = String::new();
    for number in 0..20_u8 {
        if let Err(failure) = world.call(RECORDS, entry(1, 0, op::PUT, &[number], &[1; 40])) {
            last = failure.to_string();
            break;
        }
    }
    assert!(last.contains("state-quota") && last.contains("exceeds the quota of 500 bytes"), "{last}");
}

#[test]
fn a_call_for_a_broadcast_input_has_no_rows_and_its_rules_are_seen_by_the_next() {
    let mut world = World::new(1 << 20);
    world.call(RECORDS, own(3, op::APPEND, b"", b"x")).unwrap();
    world.call(RULES, own(4, op::PUT, b"rule", b"r")).unwrap();
    world.call(RECORDS, Effects::default()).unwrap();
    let seen = world.seen.lock().unwrap().clone();
    let expected =
        ["port 0 rows (2, 2) list 0 rules 0", "port 1 rows (0, 0) list 1 rules 0", "port 0 rows (2, 2) list 1 rules 1"];
    assert_eq!(seen, expected);
}

#[test]
fn the_last_call_may_write_lists_of_the_subtask_and_nothing_else() {
    let now = Now { monotonic_us: 0, processing_time: ProcessingTime(0) };
    let mut world = World::new(1 << 20);
    world.next.lock().unwrap().push(own(3, op::APPEND, b"", b"last"));
    world.subtask.finish(now).unwrap();
    assert_eq!(world.entries(), 1);
    for effects in [update(0, 0, op::PUT, b""), own(4, op::PUT, b"rule", b""), entry(1, 0, op::PUT, b"", b"")] {
        let mut world = World::new(1 << 20);
        world.next.lock().unwrap().push(effects);
        let error = world.subtask.finish(now).unwrap_err().to_string();
        assert!(error.contains("guest-abi in finish"), "{error}");
    }
}
