//! Where output goes: results to standard output, everything else to standard error, and how it is coloured.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};

use cofferdam::config::Diagnostic;
use serde::Serialize;

use super::Exit;
use super::arguments::{Color, Global, OutputFormat};
use super::diagnostics;
use super::failure::Failure;

/// The user's wishes about output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    pub(crate) format: OutputFormat,
    pub(crate) quiet: bool,
    /// Whether standard error is a terminal that can be redrawn.
    pub(crate) live: bool,
    out: Paint,
    err: Paint,
}

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint(pub(crate) bool);

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Error,
    Good,
    Warning,
    Place,
    Strong,
    Faint,
}

impl Paint {
    /// Returns the text in the colour of what it is.
    pub(crate) fn paint(self, style: Style, text: impl fmt::Display) -> String {
        let code = match style {
            Style::Error => "1;31",
            Style::Good => "32",
            Style::Warning => "33",
            Style::Place => "34",
            Style::Strong => "1",
            Style::Faint => "2",
        };
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

impl Terminal {
    pub(crate) fn new(global: &Global) -> Self {
        let colour = |terminal: bool| match global.color {
            Color::Always => Paint(true),
            Color::Never => Paint(false),
            Color::Auto => Paint(terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())),
        };
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let live = err && !dumb && !global.quiet && global.output == OutputFormat::Text;
        start_logging(global, colour(err).0);
        Self { format: global.output, quiet: global.quiet, live, out: colour(out), err: colour(err) }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    pub(crate) fn err(&self) -> Paint {
        self.err
    }

    /// Prints a result: as text, or as one line of JSON. A reader that has gone away (`| head`) is no failure of ours.
    ///
    /// # Errors
    /// A failure if standard output cannot be written: a full disk, say.
    pub(crate) fn result<T: Serialize>(&self, value: &T, text: impl FnOnce(Paint) -> String) -> Result<(), Failure> {
        let mut lines = self.lines();
        lines.line(value, text)?;
        lines.end()
    }

    /// Begins a result of many lines.
    pub(crate) fn lines(&self) -> Lines {
        let terminal = *self;
        Lines { terminal, out: BufWriter::new(Box::new(io::stdout().lock())) }
    }

    /// Prints one line of JSON to standard output, if that can be written.
    pub(crate) fn json<T: Serialize>(&self, value: &T) {
        print(&mut io::stdout().lock(), &to_json(value));
    }

    /// Tells what is going on; not with `--quiet` and not as JSON.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && !self.is_json() {
            self.complain(text);
        }
    }

    /// Prints to standard error, whatever the user wished.
    pub(crate) fn complain(&self, text: &str) {
        print(&mut io::stderr().lock(), text);
    }

    /// Shows why a command failed.
    pub(crate) fn failure(&self, failure: &Failure) {
        for problem in &failure.problems {
            // Where standard output cannot be written, the failure may be just that.
            let told = self.is_json() && self.result(&diagnostics::json(problem), |_| String::new()).is_ok();
            if !told {
                self.complain(&diagnostics::text(problem, self.err));
            }
        }
    }
}

/// A result of many lines on standard output.
pub(crate) struct Lines {
    terminal: Terminal,
    out: BufWriter<Box<dyn Write>>,
}

impl Lines {
    /// Prints a line, or as much text as there is. Returns whether anybody still reads.
    ///
    /// # Errors
    /// A failure if standard output cannot be written.
    pub(crate) fn line<T: Serialize>(&mut self, value: &T, text: impl FnOnce(Paint) -> String) -> Result<bool, Failure> {
        let line = if self.terminal.is_json() { to_json(value) } else { text(self.terminal.out) };
        let written = writeln!(self.out, "{}", line.strip_suffix('\n').unwrap_or(&line));
        is_read(written)
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// A failure if standard output cannot be written.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        is_read(self.out.flush()).map(drop)
    }
}

/// Tells a reader that has gone away from an output that cannot be written.
fn is_read(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            let message = format!("standard output cannot be written: {error}");
            Err(Failure::new(Exit::Environment, Diagnostic::new("output-unwritable", message)))
        }
    }
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("what is printed has string keys only")
}

/// Prints text with a newline: what nobody can read is no failure of ours.
fn print(out: &mut dyn Write, text: &str) {
    let text = text.strip_suffix('\n').unwrap_or(text);
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        tracing::debug!("nobody reads the output");
    }
}

/// Logs go to standard error. `COFFERDAM_LOG` overrides -v and -q, with the syntax of tracing's filters.
fn start_logging(global: &Global, ansi: bool) {
    use tracing_subscriber::EnvFilter;
    let default = match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) => "warn,cofferdam=info",
        (false, 1) => "info,cofferdam=debug,cofferdam_dataflow=debug",
        (false, _) => "debug,cofferdam=trace,cofferdam_dataflow=trace",
    };
    let filter = EnvFilter::try_from_env("COFFERDAM_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let logger = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(ansi).with_target(false);
    let started = match global.output {
        OutputFormat::Json => logger.json().try_init(),
        OutputFormat::Text => logger.without_time().try_init(),
    };
    // Only a test that starts two command lines in one process has a logger already.
    drop(started);
}
