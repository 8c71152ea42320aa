//! `cofferdam:operator/metrics`.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, WasmStr};

use super::super::metrics::OperatorMetrics;
use super::super::price;
use super::super::state::{HostState, charge};
use super::with_str;

pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut metrics = linker.instance("cofferdam:operator/metrics@0.1.0")?;
    metrics.func_wrap("add", |store, (name, delta): (WasmStr, u64)| {
        change(store, &name, |metrics, name| metrics.add(name, delta))
    })?;
    metrics
        .func_wrap("set", |store, (name, value): (WasmStr, f64)| change(store, &name, |metrics, name| metrics.set(name, value)))
}

fn change(
    mut store: StoreContextMut<'_, HostState>,
    name: &WasmStr,
    apply: impl FnOnce(&OperatorMetrics, &str),
) -> wasmtime::Result<()> {
    charge(&mut store, price::METRIC_CALL)?;
    let (bytes, ()) = with_str(&store, ("a metric's name", name), |name| apply(&store.data().metrics, name))?;
    charge(&mut store, price::bytes(bytes))
}
