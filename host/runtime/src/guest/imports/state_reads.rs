//! `cofferdam:operator/state-reads`. This host hands state in with each call and refuses slots that are not handed in,
//! so there is nothing left to read: the functions have their types, and trap.

use wasmtime::component::{ComponentType, Lift, Linker, Lower, WasmList};

use super::super::state::HostState;
use super::super::trap::HostTrap;

/// A column as an argument, left in guest memory.
#[derive(ComponentType, Lift)]
#[component(record)]
struct ColumnArgument {
    #[expect(dead_code, reason = "only its type counts")]
    data: WasmList<u8>,
    #[expect(dead_code, reason = "only its type counts")]
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

pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut reads = linker.instance("cofferdam:operator/state-reads@0.1.0")?;
    reads.func_wrap("get-many", |_, (_, _): (u32, Rows)| not_served::<StateColumn>("get-many"))?;
    reads.func_wrap("get-entries", |_, (_, _, _): (u32, Rows, ColumnArgument)| not_served::<StateColumn>("get-entries"))?;
    reads.func_wrap("scan", |_, (_, _, _, _): (u32, u32, StartAfter, u32)| not_served::<(Column, Column)>("scan"))?;
    reads.func_wrap("get-list", |_, (_, _, _, _): (u32, u32, u32, u32)| not_served::<Column>("get-list"))?;
    reads.func_wrap("get-operator-list", |_, (_, _, _): (u32, u32, u32)| not_served::<Column>("get-operator-list"))?;
    reads.func_wrap("get-broadcast", |_, (_, _): (u32, ColumnArgument)| not_served::<StateColumn>("get-broadcast"))?;
    reads.func_wrap("scan-broadcast", |_, (_, _, _): (u32, StartAfter, u32)| not_served::<(Column, Column)>("scan-broadcast"))
}

fn not_served<T>(function: &'static str) -> wasmtime::Result<(T,)> {
    let text = format!("state-reads.{function} is not served by this host: state is handed in with the call");
    Err(HostTrap::Abi(text).into())
}
