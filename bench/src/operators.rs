//! The benchmarks' operators, as components and linked natively.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use bench_json_parse::JsonParse;
use bench_keyed_count::KeyedCount;
use bench_tumbling_sum::TumblingSum;
use cofferdam::build::{BuildOptions, home, locate_or_build};
use cofferdam::guest::{ComponentLoader, GuestLimits, GuestOptions, LoadedComponent, SilentLog};
use cofferdam::sandbox::compile::Compiler;
use cofferdam::sandbox::scan::ScanLimits;
use cofferdam_dataflow::guest::GuestFactory;
use cofferdam_tests::native::NativeFactory;
use word_count_count::Count;
use word_count_split::Split;

/// How an operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// As a component, in the sandbox.
    Wasm,
    /// Linked into this program.
    Native,
}

impl How {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Native => "native",
        }
    }
}

/// The components, loaded.
pub(crate) struct Operators {
    keyed_count: LoadedComponent,
    tumbling_sum: LoadedComponent,
    json_parse: LoadedComponent,
    split: LoadedComponent,
    count: LoadedComponent,
}

impl Operators {
    /// Builds the crates if they have changed, and loads their components.
    pub(crate) fn load() -> Result<Self> {
        let loader = Loader::new()?;
        Ok(Self {
            keyed_count: loader.load("benchmark/keyed-count")?,
            tumbling_sum: loader.load("benchmark/tumbling-sum")?,
            json_parse: loader.load("benchmark/json-parse")?,
            split: loader.load("word-count/split")?,
            count: loader.load("word-count/count")?,
        })
    }

    /// Counts and sums; `emit` sends the running count and sum of each record on.
    pub(crate) fn keyed_count(&self, how: How, emit: bool) -> Arc<dyn GuestFactory> {
        let config = format!("{{\"emit\":{emit}}}");
        match how {
            How::Wasm => wasm(&self.keyed_count, &config),
            How::Native => Arc::new(NativeFactory::<KeyedCount>::new(&config)),
        }
    }

    /// Sums of each key in windows of ten seconds.
    pub(crate) fn tumbling_sum(&self, how: How) -> Arc<dyn GuestFactory> {
        match how {
            How::Wasm => wasm(&self.tumbling_sum, "{}"),
            How::Native => Arc::new(NativeFactory::<TumblingSum>::new("{}")),
        }
    }

    /// Reads two fields of JSON and re-keys.
    pub(crate) fn json_parse(&self, how: How) -> Arc<dyn GuestFactory> {
        match how {
            How::Wasm => wasm(&self.json_parse, "{}"),
            How::Native => Arc::new(NativeFactory::<JsonParse>::new("{}")),
        }
    }

    /// Splits lines into words.
    pub(crate) fn split(&self, how: How) -> Arc<dyn GuestFactory> {
        match how {
            How::Wasm => wasm(&self.split, "{}"),
            How::Native => Arc::new(NativeFactory::<Split>::new("{}")),
        }
    }

    /// Counts words and emits a row for each.
    pub(crate) fn count(&self, how: How) -> Arc<dyn GuestFactory> {
        match how {
            How::Wasm => wasm(&self.count, "{}"),
            How::Native => Arc::new(NativeFactory::<Count>::new("{}")),
        }
    }
}

/// Builds and loads the components of the examples.
pub(crate) struct Loader {
    examples: PathBuf,
    loader: ComponentLoader,
}

impl Loader {
    pub(crate) fn new() -> Result<Self> {
        let cache = home()?.join("artefacts");
        let loader = ComponentLoader::new(&cache, Compiler::this_program()?, ScanLimits::default())?;
        Ok(Self { examples: examples()?, loader })
    }

    /// Loads the component of an example's crate, built if it has changed.
    pub(crate) fn load(&self, name: &str) -> Result<LoadedComponent> {
        let (path, _) = locate_or_build(&self.examples.join(name), BuildOptions { force: false, quiet: true })?;
        Ok(self.loader.load_file(&path)?)
    }
}

/// Returns the folder of the examples.
pub(crate) fn examples() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?.join("examples"))
}

/// Opens a component with a configuration, a JSON object.
pub(crate) fn wasm(component: &LoadedComponent, config: &str) -> Arc<dyn GuestFactory> {
    let options = GuestOptions { config: config.as_bytes().to_vec(), limits: GuestLimits::default(), log: Arc::new(SilentLog) };
    Arc::new(component.factory(options))
}
