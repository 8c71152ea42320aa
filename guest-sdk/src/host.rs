//! Where log lines and metrics go: to the host in wasm, natively to whoever collects them on this thread.

#[cfg(target_arch = "wasm32")]
pub(crate) use crate::wasm::{add, log, set};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::{Collected, add, collect, log, set};

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use crate::log::Level;

    thread_local! {
        static COLLECTED: RefCell<Option<Collected>> = const { RefCell::new(None) };
    }

    /// What an operator logged and counted.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Collected {
        pub(crate) lines: Vec<(Level, String)>,
        pub(crate) counters: BTreeMap<String, u64>,
        pub(crate) gauges: BTreeMap<String, f64>,
    }

    /// Runs `work` and returns what it logged and counted on this thread. It must not nest.
    pub(crate) fn collect<R>(into: &mut Collected, work: impl FnOnce() -> R) -> R {
        /// Takes the collection back even if `work` panics.
        struct Restore<'a>(&'a mut Collected);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                *self.0 = COLLECTED.take().unwrap_or_default();
            }
        }
        COLLECTED.set(Some(std::mem::take(into)));
        let _restore = Restore(into);
        work()
    }

    fn with(act: impl FnOnce(&mut Collected)) {
        COLLECTED.with_borrow_mut(|collected| {
            if let Some(collected) = collected {
                act(collected);
            }
        });
    }

    pub(crate) fn log(level: Level, message: &str) {
        with(|collected| collected.lines.push((level, message.to_owned())));
    }

    pub(crate) fn add(name: &str, delta: u64) {
        with(|collected| {
            let counter = collected.counters.entry(name.to_owned()).or_default();
            *counter = counter.saturating_add(delta);
        });
    }

    pub(crate) fn set(name: &str, value: f64) {
        with(|collected| {
            collected.gauges.insert(name.to_owned(), value);
        });
    }
}
