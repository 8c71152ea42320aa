//! Work that may take long: how far it is, on a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::terminal::Terminal;

/// What ends sooner shows nothing.
const SHOWN_AFTER: Duration = Duration::from_millis(400);

/// How far a piece of work is.
pub(super) struct Work {
    what: &'static str,
    in_bytes: bool,
    start: Instant,
    live: bool,
    bar: Option<ProgressBar>,
}

impl Work {
    /// Begins work that is counted in bytes, or in parts.
    pub(super) fn new(terminal: &Terminal, what: &'static str, in_bytes: bool) -> Self {
        Self { what, in_bytes, start: Instant::now(), live: terminal.live, bar: None }
    }

    /// Tells how much of how much is done.
    pub(super) fn done(&mut self, done: u64, total: u64) {
        if !self.live || (self.bar.is_none() && self.start.elapsed() < SHOWN_AFTER) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| bar(self.what, self.in_bytes));
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &'static str, in_bytes: bool) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let template = match in_bytes {
        true => "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
        false => "{msg} {wide_bar} {pos}/{len} {eta}",
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
    bar.set_message(what);
    bar
}
