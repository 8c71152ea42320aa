//! `cofferdam:operator/state-reads`: a guest's bulk reads, answered by whoever made the call.
//!
//! The answers live in the store during a call only. Arguments are bounded before they are looked at; a page is cut at
//! [`PAGE_BYTES`], and what cannot be cut is read piece by piece until it is too much. All of it is paid for in fuel, the
//! guest's own copy included, so that reading in a loop ends.

use std::rc::Rc;

use cofferdam_dataflow::column::BytesColumn;
use cofferdam_dataflow::guest::{ReadColumn, ReadEntries, ReadError, ReadLimit, StateReads};
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower, WasmList};

use super::super::price;
use super::super::state::{HostState, charge};
use super::super::trap::HostTrap;

/// Bytes of keys and values in one page, but for a single larger item. Part of the interface.
const PAGE_BYTES: usize = 4 << 20;
/// Items in one page. Part of the interface.
const PAGE_ITEMS: u32 = 1 << 16;

/// A column as an argument, left in guest memory.
#[derive(ComponentType, Lift)]
#[component(record)]
struct ColumnArgument {
    data: WasmList<u8>,
    ends: WasmList<u32>,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Column {
    data: Vec<u8>,
    ends: Vec<u32>,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct StateColumn {
    slot: u32,
    present: Vec<u8>,
    values: Column,
}

type Rows = WasmList<u32>;
type StartAfter = Option<WasmList<u8>>;
type Store<'a> = StoreContextMut<'a, HostState>;
type Read<T> = wasmtime::Result<(T,)>;

pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut reads = linker.instance("cofferdam:operator/state-reads@0.1.0")?;
    reads.func_wrap("get-many", |store, (slot, rows): (u32, Rows)| get_many(store, slot, &rows))?;
    reads.func_wrap("get-entries", |store, (slot, rows, keys): (u32, Rows, ColumnArgument)| {
        get_entries(store, slot, &rows, &keys)
    })?;
    reads.func_wrap("scan", |store, (slot, row, after, limit): (u32, u32, StartAfter, u32)| {
        scan(store, "scan", after.as_ref(), limit, |reads, after, most| reads.scan(slot, row, after, most))
    })?;
    reads.func_wrap("get-list", |store, (slot, row, start, limit): (u32, u32, u32, u32)| {
        list(store, "get-list", (start, limit), |reads, most| reads.get_list(slot, row, start, most))
    })?;
    reads.func_wrap("get-operator-list", |store, (slot, start, limit): (u32, u32, u32)| {
        list(store, "get-operator-list", (start, limit), |reads, most| reads.get_operator_list(slot, start, most))
    })?;
    reads.func_wrap("get-broadcast", |store, (slot, keys): (u32, ColumnArgument)| get_broadcast(store, slot, &keys))?;
    reads.func_wrap("scan-broadcast", |store, (slot, after, limit): (u32, StartAfter, u32)| {
        scan(store, "scan-broadcast", after.as_ref(), limit, |reads, after, most| reads.scan_broadcast(slot, after, most))
    })
}

fn get_many(mut store: Store<'_>, slot: u32, rows: &Rows) -> Read<StateColumn> {
    let mut call = ReadCall::begin(&mut store, "get-many", 4 * rows.len())?;
    let rows = call.rows(rows);
    call.column(slot, rows.len(), |reads, from, to| reads.get_many(slot, &rows[from..to]))
}

fn get_entries(mut store: Store<'_>, slot: u32, rows: &Rows, keys: &ColumnArgument) -> Read<StateColumn> {
    let mut call = ReadCall::begin(&mut store, "get-entries", 4 * rows.len() + keys.bytes())?;
    let rows = call.rows(rows);
    let keys = call.keys(keys)?;
    if rows.len() != keys.len() {
        return Err(call.refused(&ReadError::Columns { rows: rows.len(), keys: keys.len() }));
    }
    call.column(slot, keys.len(), |reads, from, to| reads.get_entries(slot, &rows[from..to], keys.slice(from, to)))
}

fn get_broadcast(mut store: Store<'_>, slot: u32, keys: &ColumnArgument) -> Read<StateColumn> {
    let mut call = ReadCall::begin(&mut store, "get-broadcast", keys.bytes())?;
    let keys = call.keys(keys)?;
    call.column(slot, keys.len(), |reads, from, to| reads.get_broadcast(slot, keys.slice(from, to)))
}

fn list(
    mut store: Store<'_>,
    function: &'static str,
    (start, limit): (u32, u32),
    read: impl FnOnce(&dyn StateReads, ReadLimit) -> Result<BytesColumn, ReadError>,
) -> Read<Column> {
    let mut call = ReadCall::begin(&mut store, function, 0)?;
    // What is skipped is walked over.
    call.pay(price::read_skipped(start))?;
    let page = read(&*call.reads, page_of(limit)).map_err(|error| call.refused(&error))?;
    call.pay_page(page.len(), page.bytes())?;
    Ok((lower(page),))
}

fn scan(
    mut store: Store<'_>,
    function: &'static str,
    after: Option<&WasmList<u8>>,
    limit: u32,
    read: impl FnOnce(&dyn StateReads, Option<&[u8]>, ReadLimit) -> Result<ReadEntries, ReadError>,
) -> Read<(Column, Column)> {
    let mut call = ReadCall::begin(&mut store, function, after.map_or(0, WasmList::len))?;
    let after = after.map(|after| after.as_le_slice(&*call.store).to_vec());
    let page = read(&*call.reads, after.as_deref(), page_of(limit)).map_err(|error| call.refused(&error))?;
    call.pay_page(2 * page.keys.len(), page.keys.bytes() + page.values.bytes())?;
    Ok(((lower(page.keys), lower(page.values)),))
}

/// One call of a function of this interface.
struct ReadCall<'s, 'a> {
    store: &'s mut Store<'a>,
    reads: Rc<dyn StateReads>,
    function: &'static str,
    passed_over: u64,
}

impl<'s, 'a> ReadCall<'s, 'a> {
    /// Charges for a call with arguments of so many bytes, which must be few enough to look at.
    fn begin(store: &'s mut Store<'a>, function: &'static str, bytes: usize) -> wasmtime::Result<Self> {
        charge(store, price::read_call(bytes))?;
        let Some(reads) = store.data().reads() else {
            return Err(HostTrap::Abi(format!("state-reads.{function} was called outside of a call with records")).into());
        };
        let limit = store.data().import_bytes;
        if bytes as u64 > limit {
            return Err(HostTrap::ImportBytes { what: "a read of state", bytes, limit }.into());
        }
        let passed_over = reads.passed_over();
        Ok(Self { store, reads, function, passed_over })
    }

    fn refused(&self, error: &impl std::fmt::Display) -> wasmtime::Error {
        HostTrap::Abi(format!("state-reads.{}: {error}", self.function)).into()
    }

    fn pay(&mut self, price: u64) -> wasmtime::Result<()> {
        charge(self.store, price)
    }

    /// Charges for a page, and for what was walked over on the way.
    fn pay_page(&mut self, items: usize, bytes: usize) -> wasmtime::Result<()> {
        let passed_over = self.reads.passed_over().saturating_sub(self.passed_over);
        self.pay(price::read_page(items, bytes).saturating_add(price::read_passed_over(passed_over)))
    }

    fn rows(&self, rows: &Rows) -> Vec<u32> {
        rows.as_le_slice(&*self.store).iter().map(|row| u32::from_le(*row)).collect()
    }

    fn keys(&self, keys: &ColumnArgument) -> wasmtime::Result<BytesColumn> {
        let data = keys.data.as_le_slice(&*self.store).to_vec();
        let ends = self.rows(&keys.ends);
        BytesColumn::from_parts(data, ends).map_err(|error| self.refused(&format_args!("entry-keys: {error}")))
    }

    /// Reads values of `count` items, in pieces that cannot bring the answer far over its limit, each paid for before the
    /// next is read.
    fn column(
        &mut self,
        slot: u32,
        count: usize,
        read: impl Fn(&dyn StateReads, usize, usize) -> Result<ReadColumn, ReadError>,
    ) -> Read<StateColumn> {
        let (limit, value_max) = self.store.data().read_bounds();
        let mut present = vec![0; count.div_ceil(8)];
        let mut values = BytesColumn::default();
        let mut from = 0_usize;
        // Once without any item, too, for the slot to be looked at.
        loop {
            let room = limit.saturating_sub(values.bytes()) / value_max;
            let to = from.saturating_add(room.max(1)).min(count);
            let piece = read(&*self.reads, from, to).map_err(|error| self.refused(&error))?;
            self.pay(price::read_values(piece.values.len(), piece.values.bytes()))?;
            for index in from..to {
                let bit = piece.present.get((index - from) / 8).is_some_and(|byte| byte >> ((index - from) % 8) & 1 != 0);
                present[index / 8] |= u8::from(bit) << (index % 8);
            }
            values.extend(piece.values.as_slice());
            if values.bytes() > limit {
                let (what, bytes) = ("what a read of state returns", values.bytes());
                return Err(HostTrap::ImportBytes { what, bytes, limit: limit as u64 }.into());
            }
            from = to;
            if from == count {
                return Ok((StateColumn { slot, present, values: lower(values) },));
            }
        }
    }
}

impl ColumnArgument {
    fn bytes(&self) -> usize {
        self.data.len().saturating_add(self.ends.len().saturating_mul(4))
    }
}

fn page_of(limit: u32) -> ReadLimit {
    ReadLimit { items: limit.min(PAGE_ITEMS), bytes: PAGE_BYTES }
}

fn lower(column: BytesColumn) -> Column {
    let (data, ends) = column.into_parts();
    Column { data, ends }
}
