//! Panics of the crate behind a store, at files that are not what it wrote: they become errors, and nothing is told of them
//! on standard error. All other panics are reported as ever.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use cofferdam_dataflow::state::store::StoreError;

thread_local! {
    /// Whether this thread is in code whose panics are caught here.
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Calls into the crate. No code of ours may run in it: its panics would be taken for the crate's.
pub(super) fn caught<T>(call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !CATCHING.get() {
                others(panic);
            }
        }));
    });
    CATCHING.set(true);
    // Whoever gets the error uses the store no more, but to delete it.
    let result = catch_unwind(AssertUnwindSafe(call));
    CATCHING.set(false);
    result.unwrap_or_else(|panic| Err(StoreError(format!("it cannot be read: {}", text(&*panic)))))
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    #[ignore = "a child process of the test below: it looks at what is told on standard error"]
    fn panics_of_all_sorts() {
        let error = caught::<()>(|| panic!("the crate's {}", "own")).unwrap_err();
        assert_eq!(error.0, "it cannot be read: the crate's own");
        assert_eq!(caught(|| Ok(7)), Ok(7));
        caught(|| {
            drop(thread::spawn(|| panic!("of another thread")).join());
            Ok(())
        })
        .unwrap();
        drop(catch_unwind(|| panic!("of this thread, later")));
    }

    #[test]
    fn only_what_is_caught_is_not_told() {
        let name = "state_store::caught::tests::panics_of_all_sorts";
        let child = Command::new(std::env::current_exe().unwrap()).args(["--exact", name, "--ignored", "--nocapture"]).output();
        let child = child.unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
        assert!(stderr.contains("of another thread") && stderr.contains("of this thread, later"), "{stderr}");
        assert!(!stderr.contains("the crate's own"), "{stderr}");
    }
}
