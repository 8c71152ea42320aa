//! The `[checkpoint]` table: when snapshots are taken, where they go, how long they stay.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use super::diagnostic::Problems;
use super::section::Section;
use crate::storage::Compression;

pub(super) const KEYS: &[&str] = &[
    "interval",
    "mode",
    "timeout",
    "min-pause",
    "max-concurrent",
    "tolerable-failures",
    "retention",
    "storage",
    "compression",
    "unaligned",
];
pub(super) const RETENTION_KEYS: &[&str] = &["keep", "on-cancel"];

const DAY_MS: u64 = 24 * 3600 * 1000;

/// When snapshots are taken, where they go and how long they stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Between triggers, in milliseconds; `None` for the final checkpoint alone.
    pub interval_ms: Option<u64>,
    /// A checkpoint that takes longer is given up, in milliseconds.
    pub timeout_ms: u64,
    /// From the completion of one to the trigger of the next, at least, in milliseconds.
    pub min_pause_ms: u64,
    /// In flight at once, at most.
    pub max_concurrent: u32,
    /// Consecutive failures that the job survives.
    pub tolerable_failures: u32,
    /// Completed checkpoints that are kept.
    pub keep: u32,
    /// Whether checkpoints stay when the job is cancelled.
    pub retain_on_cancel: bool,
    /// The job's directory.
    pub storage: PathBuf,
    /// What new files of state are compressed with.
    pub compression: Compression,
}

impl CheckpointOptions {
    /// The options of a pipeline without a `[checkpoint]` table.
    pub(super) fn new(base_dir: &Path, pipeline: &str) -> Self {
        Self {
            interval_ms: Some(10_000),
            timeout_ms: 600_000,
            min_pause_ms: 0,
            max_concurrent: 1,
            tolerable_failures: 3,
            keep: 3,
            retain_on_cancel: true,
            storage: base_dir.join(".cofferdam").join(pipeline),
            compression: Compression::default(),
        }
    }

    pub(super) fn read(self, section: &Section<'_, '_>, base_dir: &Path, problems: &mut Problems) -> Self {
        refuse_unbuilt(section, problems);
        let off = section.get("interval").is_some_and(|found| found.get_ref().as_str() == Some("off"));
        let interval = if off { None } else { section.duration_ms("interval", 1..=30 * DAY_MS, problems).or(self.interval_ms) };
        let min_pause_ms = section.duration_ms("min-pause", 0..=30 * DAY_MS, problems).unwrap_or(self.min_pause_ms);
        let max_concurrent = small(section.integer("max-concurrent", 1..=100, problems), self.max_concurrent);
        if min_pause_ms > 0 && max_concurrent > 1 {
            let message = "\"max-concurrent\" above 1 contradicts \"min-pause\"";
            let help = "a pause between checkpoints means one at a time: drop one of the two keys";
            problems.add_with_help(section.value_span("max-concurrent"), "contradiction", message, help);
        }
        let mut options = Self {
            interval_ms: interval,
            timeout_ms: section.duration_ms("timeout", 1..=DAY_MS, problems).unwrap_or(self.timeout_ms),
            min_pause_ms,
            max_concurrent,
            tolerable_failures: small(section.integer("tolerable-failures", 0..=1_000_000, problems), self.tolerable_failures),
            storage: storage(section, base_dir, problems).unwrap_or(self.storage),
            compression: section
                .word("compression", Compression::NAMES, problems)
                .and_then(|word| Compression::from_name(word.value))
                .unwrap_or(self.compression),
            ..self
        };
        options.read_retention(section, problems);
        options
    }

    fn read_retention(&mut self, section: &Section<'_, '_>, problems: &mut Problems) {
        let expected = "a table such as { keep = 3, on-cancel = \"retain\" }";
        let Some((table, span)) = section.table("retention", expected, problems) else { return };
        let retention = Section::open("retention", table, span, RETENTION_KEYS, problems);
        self.keep = small(retention.integer("keep", 1..=1000, problems), self.keep);
        if let Some(word) = retention.word("on-cancel", &["retain", "delete"], problems) {
            self.retain_on_cancel = word.value == "retain";
        }
    }
}

fn small(read: Option<u64>, default: u32) -> u32 {
    read.and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
}

fn refuse_unbuilt(section: &Section<'_, '_>, problems: &mut Problems) {
    if let Some(mode) = section.word("mode", &["exactly-once", "at-least-once"], problems)
        && mode.value == "at-least-once"
    {
        problems.not_built(mode.span, "mode \"at-least-once\"", "use mode = \"exactly-once\", or leave the key out");
    }
    match section.get("unaligned").map(Spanned::get_ref) {
        None | Some(DeValue::Boolean(false)) => {}
        Some(_) => problems.not_built(section.key_span("unaligned"), "\"unaligned\"", "barriers are aligned: leave the key out"),
    }
}

/// Reads a directory: a path beside the pipeline file, or `file://` with an absolute path.
fn storage(section: &Section<'_, '_>, base_dir: &Path, problems: &mut Problems) -> Option<PathBuf> {
    let found = section.string("storage", "a directory, as a path or as \"file:///path\"", problems)?;
    let path = match found.value.split_once("://") {
        None => Some(found.value.as_str()),
        Some(("file", path)) if path.starts_with('/') => Some(path),
        Some(("file", _)) => None,
        Some((scheme, _)) => {
            let what = format!("storage scheme \"{}\"", scheme.escape_debug());
            problems.not_built(found.span, &what, "use a directory: \"file:///path\" or a path beside the pipeline file");
            return None;
        }
    };
    match path.filter(|path| !path.is_empty() && !path.contains('\0')) {
        Some(path) => Some(base_dir.join(path)),
        None => {
            let message = format!("\"storage\" is \"{}\", expected a directory", found.value.escape_debug());
            problems.add_with_help(found.span, "bad-value", message, "such as \"file:///var/lib/job\" or \"state/job\"");
            None
        }
    }
}
