//! Connectors: what pipelines read from and write to, by the name that pipeline files use.
//!
//! Each connector is a struct of options (what a pipeline file may say) and a function from options to a factory.
//! Local files are read and written in place, on the thread of the task; nothing here starts a thread.

mod blackhole;
mod console;
mod duration;
mod event_time;
mod failure;
mod files_sink;
mod files_source;
mod generator;
mod keys;
mod nexmark;
mod numbered;
mod random;
mod size;

use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_dataflow::connector::{ConnectorError, SinkFactory, SourceFactory};
use cofferdam_dataflow::ids::OperatorId;
use serde::{Deserialize, Deserializer};

use keys::keys_of;

pub use blackhole::{Blackhole, BlackholeOptions, blackhole_sink};
pub use console::{ConsoleOptions, ConsoleOutput, console_sink, console_sink_to};
pub use duration::HumanDuration;
pub use event_time::{InvalidTime, StartTime, TimeUnit};
pub use files_sink::{Compression, FilesSinkOptions, Newlines, PART_BYTES, SinkFormat, files_sink};
pub use files_source::{
    DELIMITER, FilesSourceOptions, Format, InvalidPointer, JsonPointer, LINE_BYTES_MAX, OnMalformed, files_source,
};
pub use generator::{
    Distribution, EVENT_TIME_START, EVENT_TIME_STEP, GeneratorOptions, KeyFormat, PAYLOAD_BYTES, Shape, generator_source,
};
pub use nexmark::{EVENTS_PER_SECOND, EventFormat, NexmarkOptions, OUT_OF_ORDER, nexmark_source};
pub use size::{ByteSize, InvalidByteSize};

/// The names of the sources there are.
pub const SOURCES: &[&str] = &["files", "generator", "nexmark"];

/// The names of the sinks there are.
pub const SINKS: &[&str] = &["blackhole", "console", "files"];

/// Where a connector stands.
#[derive(Clone, Debug)]
pub struct ConnectorPlace {
    /// What relative paths are relative to: the folder of the pipeline file.
    pub base_dir: PathBuf,
    /// The pipeline's name: an id by the same rules as operators.
    pub pipeline: OperatorId,
    /// The name of the source or sink.
    pub id: OperatorId,
}

/// Options of one of the [`SOURCES`].
#[derive(Clone, Debug, PartialEq)]
pub enum SourceOptions {
    /// Local files.
    Files(FilesSourceOptions),
    /// Made-up records.
    Generator(GeneratorOptions),
    /// The events of the benchmark Nexmark.
    Nexmark(NexmarkOptions),
}

impl SourceOptions {
    /// Reads the options of the source of this name from a table without the keys that all sources share. `None` if
    /// there is no such source.
    pub fn deserialize<'de, D: Deserializer<'de>>(connector: &str, table: D) -> Option<Result<Self, D::Error>> {
        match connector {
            "files" => Some(Deserialize::deserialize(table).map(Self::Files)),
            "generator" => Some(Deserialize::deserialize(table).map(Self::Generator)),
            "nexmark" => Some(Deserialize::deserialize(table).map(Self::Nexmark)),
            _ => None,
        }
    }

    /// Returns the keys that the source of this name has beside those that all sources share; `None` if there is none.
    pub fn keys(connector: &str) -> Option<&'static [&'static str]> {
        match connector {
            "files" => Some(keys_of::<FilesSourceOptions>()),
            "generator" => Some(keys_of::<GeneratorOptions>()),
            "nexmark" => Some(keys_of::<NexmarkOptions>()),
            _ => None,
        }
    }

    /// Returns the source.
    ///
    /// # Errors
    /// `option-refused` if options contradict each other.
    pub fn build(&self, place: &ConnectorPlace) -> Result<Arc<dyn SourceFactory>, ConnectorError> {
        match self {
            Self::Files(options) => files_source(options, place),
            Self::Generator(options) => generator_source(options),
            Self::Nexmark(options) => nexmark_source(options),
        }
    }
}

/// Options of one of the [`SINKS`].
#[derive(Clone, Debug, PartialEq)]
pub enum SinkOptions {
    /// Drops everything.
    Blackhole(BlackholeOptions),
    /// Standard output.
    Console(ConsoleOptions),
    /// Local files.
    Files(FilesSinkOptions),
}

impl SinkOptions {
    /// Reads the options of the sink of this name from a table without the keys that all sinks share. `None` if there
    /// is no such sink.
    pub fn deserialize<'de, D: Deserializer<'de>>(connector: &str, table: D) -> Option<Result<Self, D::Error>> {
        match connector {
            "blackhole" => Some(Deserialize::deserialize(table).map(Self::Blackhole)),
            "console" => Some(Deserialize::deserialize(table).map(Self::Console)),
            "files" => Some(Deserialize::deserialize(table).map(Self::Files)),
            _ => None,
        }
    }

    /// Returns the keys that the sink of this name has beside those that all sinks share; `None` if there is none.
    pub fn keys(connector: &str) -> Option<&'static [&'static str]> {
        match connector {
            "blackhole" => Some(keys_of::<BlackholeOptions>()),
            "console" => Some(keys_of::<ConsoleOptions>()),
            "files" => Some(keys_of::<FilesSinkOptions>()),
            _ => None,
        }
    }

    /// Returns the sink.
    ///
    /// # Errors
    /// `option-refused` if options contradict each other.
    pub fn build(&self, place: &ConnectorPlace) -> Result<Arc<dyn SinkFactory>, ConnectorError> {
        match self {
            Self::Blackhole(_) => Ok(blackhole_sink()),
            Self::Console(options) => Ok(console_sink(options)),
            Self::Files(options) => files_sink(options, place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(connector: &str, text: &str) -> Option<Result<SourceOptions, String>> {
        let table = toml::Deserializer::parse(text).unwrap();
        SourceOptions::deserialize(connector, table).map(|result| result.map_err(|error| error.to_string()))
    }

    fn place() -> ConnectorPlace {
        let id = |name| OperatorId::new(name).unwrap();
        ConnectorPlace { base_dir: PathBuf::new(), pipeline: id("p"), id: id("s") }
    }

    #[test]
    fn every_name_has_options() {
        for name in SOURCES {
            assert!(SourceOptions::deserialize(name, toml::Table::new()).is_some(), "{name}");
        }
        for name in SINKS {
            assert!(SinkOptions::deserialize(name, toml::Table::new()).is_some(), "{name}");
        }
        assert!(source("kafka", "").is_none());
        assert!(SinkOptions::deserialize("kafka", toml::Table::new()).is_none());
    }

    #[test]
    fn an_unknown_option_is_an_error_that_names_it() {
        let error = source("files", "path = \"x\"\nkye = \"/a\"").unwrap().unwrap_err();
        assert!(error.contains("kye") && error.contains("line 2"), "{error}");
        let error = source("files", "path = \"x\"\nkey = \"a\"").unwrap().unwrap_err();
        assert!(error.contains("is not a field"), "{error}");
        assert!(source("files", "").unwrap().unwrap_err().contains("path"));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for text in [
            "path = \"x\"\nkey = \"/a\"",
            "path = \"x\"\nevent-time = \"/a\"",
            "path = \"x\"\nformat = \"json\"\nevent-time-unit = \"s\"",
            "path = \"x\"\nformat = \"json\"\nkey = \"/a\"\nevent-time = \"/a/b\"",
            "path = \"x\"\ndelimiter = \";\"",
            "path = \"x\"\nformat = \"csv\"\ndelimiter = \"ä\"",
            "path = \"x\"\nmax-line-bytes = 0",
            "path = \"x\"\nmax-line-bytes = \"1GiB\"",
        ] {
            let refused = source("files", text).unwrap().unwrap().build(&place()).err().unwrap();
            assert_eq!(refused.code, "option-refused", "{text}");
        }
        let full = "path = \"x\"\nformat = \"csv\"\nkey = \"/a\"\nevent-time = \"/b\"\nevent-time-unit = \"us\"\n\
                    on-malformed = \"skip\"\nmax-line-bytes = \"1MiB\"\ndelimiter = \"\\t\"";
        assert!(source("files", full).unwrap().unwrap().build(&place()).is_ok());
    }
}
