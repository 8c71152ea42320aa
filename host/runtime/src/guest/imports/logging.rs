//! `cofferdam:operator/logging`.

use wasmtime::component::{ComponentType, Lift, Linker, WasmStr};

use super::super::log::GuestLogLevel;
use super::super::price;
use super::super::state::{HostState, charge};
use super::with_str;

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by lifting only")]
enum Level {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

impl From<Level> for GuestLogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Trace => Self::Trace,
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}

pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.instance("cofferdam:operator/logging@0.1.0")?.func_wrap("log", |mut store, (level, message): (Level, WasmStr)| {
        charge(&mut store, price::LOG_CALL)?;
        let level = GuestLogLevel::from(level);
        let wanted = store.data().wants_line(level);
        let (bytes, text) = with_str(&store, ("a log line", &message), |line| wanted.then(|| store.data().clean_line(line)))?;
        charge(&mut store, price::log_text(bytes))?;
        store.data_mut().log(level, text);
        Ok(())
    })
}
