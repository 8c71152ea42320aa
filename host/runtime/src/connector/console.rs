//! The sink `console`: a line of text a record on standard output, for people to look at.
//!
//! Lines appear at once, and again when a restart repeats their records. What could play tricks on a terminal is escaped.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_dataflow::batch::Batch;
use cofferdam_dataflow::connector::{
    ConnectorContext, ConnectorError, Prepared, Sink, SinkCommitter, SinkFactory, SinkGuarantee,
};
use cofferdam_dataflow::ids::CheckpointId;
use serde::Deserialize;

use super::failure::write_failed;

/// Options of the sink `console`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConsoleOptions {
    /// Whether a line begins with the key (nothing if there is none) and a tab.
    #[serde(default)]
    pub with_key: bool,
    /// Whether a line begins with the event time in milliseconds (nothing if there is none) and a tab.
    #[serde(default)]
    pub with_event_time: bool,
}

/// Where the lines of all subtasks go.
pub type ConsoleOutput = Arc<Mutex<dyn Write + Send>>;

/// Returns the sink `console` on standard output.
pub fn console_sink(options: &ConsoleOptions) -> Arc<dyn SinkFactory> {
    console_sink_to(options, Arc::new(Mutex::new(io::stdout())))
}

/// Returns a sink `console` that writes elsewhere.
pub fn console_sink_to(options: &ConsoleOptions, output: ConsoleOutput) -> Arc<dyn SinkFactory> {
    Arc::new(Console { options: *options, output })
}

struct Console {
    options: ConsoleOptions,
    output: ConsoleOutput,
}

impl SinkFactory for Console {
    fn guarantee(&self) -> SinkGuarantee {
        SinkGuarantee::Immediate
    }

    fn open(&self, _: &ConnectorContext) -> Result<Box<dyn Sink>, ConnectorError> {
        Ok(Box::new(ConsoleSink { options: self.options, output: Arc::clone(&self.output), lines: Vec::new() }))
    }

    fn committer(&self) -> Result<Option<Box<dyn SinkCommitter>>, ConnectorError> {
        Ok(None)
    }
}

struct ConsoleSink {
    options: ConsoleOptions,
    output: ConsoleOutput,
    lines: Vec<u8>,
}

impl Sink for ConsoleSink {
    fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.lines.clear();
        for (index, value) in batch.values.iter().enumerate() {
            if self.options.with_event_time {
                if let Some(time) = batch.timestamps.get(index) {
                    self.lines.extend_from_slice(time.0.to_string().as_bytes());
                }
                self.lines.push(b'\t');
            }
            if self.options.with_key {
                if let Some(keys) = &batch.keys {
                    escape(keys.get(index), &mut self.lines);
                }
                self.lines.push(b'\t');
            }
            escape(value, &mut self.lines);
            self.lines.push(b'\n');
        }
        // One write a batch: lines of different subtasks do not mix.
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let written = output.write_all(&self.lines).and_then(|()| output.flush());
        written.map_err(|error| write_failed("write", Path::new("standard output"), error))
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Option<Prepared>, ConnectorError> {
        Ok(None)
    }
}

/// Appends bytes as text: control characters and what is not UTF-8 as escapes, all else as it is.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                for escape in c.escape_default() {
                    out.extend_from_slice(escape.encode_utf8(&mut [0; 4]).as_bytes());
                }
            } else {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        for byte in chunk.invalid() {
            out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_dataflow::ids::OperatorId;
    use cofferdam_dataflow::time::EventTime;

    use super::*;

    fn written(options: ConsoleOptions, batch: &Batch) -> String {
        let output = Arc::new(Mutex::new(Vec::new()));
        let factory = console_sink_to(&options, output.clone());
        let context = ConnectorContext { id: OperatorId::new("show").unwrap(), subtask: 0, parallelism: 1 };
        factory.open(&context).unwrap().write(batch).unwrap();
        let bytes = output.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_could_play_tricks_on_a_terminal_is_escaped() {
        let mut batch = Batch::default();
        batch.push(None, None, b"\x1b[2Jred\r\n\x9f\xff {\"a\\b\": \"\xc3\xa9\"}");
        batch.push(None, None, "\u{9b}".as_bytes());
        assert_eq!(written(ConsoleOptions::default(), &batch), "\\u{1b}[2Jred\\r\\n\\x9f\\xff {\"a\\b\": \"é\"}\n\\u{9b}\n");
    }

    #[test]
    fn key_and_time_come_first_if_asked_for() {
        let mut batch = Batch::default();
        batch.push(Some(b"k\t1"), Some(EventTime(-5)), b"v");
        batch.push(Some(b""), None, b"w");
        let options = ConsoleOptions { with_key: true, with_event_time: true };
        assert_eq!(written(options, &batch), "-5\tk\\t1\tv\n\t\tw\n");
    }

    #[test]
    fn a_closed_output_is_an_error() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let factory = console_sink_to(&ConsoleOptions::default(), Arc::new(Mutex::new(Closed)));
        let context = ConnectorContext { id: OperatorId::new("show").unwrap(), subtask: 0, parallelism: 1 };
        let mut batch = Batch::default();
        batch.push(None, None, b"v");
        let error = factory.open(&context).unwrap().write(&batch).unwrap_err();
        assert_eq!(error.code, "io-write");
    }
}
