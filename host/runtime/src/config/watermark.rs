//! The key `watermark` of a source: how watermarks follow from event times.

use toml::Spanned;
use toml::de::DeValue;

use super::diagnostic::{Place, Problems};
use super::section::Section;

pub(super) const WATERMARK_KEYS: &[&str] = &["out-of-orderness", "idle-timeout", "align", "max-drift"];

const EXPECTED: &str = "a table such as { out-of-orderness = \"5s\" }, or \"none\"";
const YEAR_MS: u64 = 366 * 24 * 3600 * 1000;

/// How a source's watermarks follow from event times, as the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatermarkOptions {
    /// Nothing is said.
    Default,
    /// `"none"`: records have event times, but no watermarks follow from them.
    None,
    /// A table.
    Given {
        /// Where.
        place: Place,
        /// How far the watermark stays behind the latest event time, in milliseconds.
        out_of_orderness_ms: Option<u64>,
        /// After how many milliseconds at its end a split no longer holds event time back.
        idle_timeout_ms: Option<u64>,
        /// The name of the sources that are kept together, and how many milliseconds one may be ahead.
        alignment: Option<(String, u64)>,
    },
}

pub(super) fn read(section: &Section<'_, '_>, problems: &mut Problems) -> WatermarkOptions {
    match section.get("watermark").map(Spanned::get_ref) {
        None => WatermarkOptions::Default,
        Some(DeValue::String(text)) if text == "none" => WatermarkOptions::None,
        Some(DeValue::String(text)) => {
            let message = format!("\"watermark\" is \"{text}\", expected {EXPECTED}");
            problems.add(section.value_span("watermark"), "bad-value", message);
            WatermarkOptions::Default
        }
        Some(_) => read_table(section, problems),
    }
}

fn read_table(section: &Section<'_, '_>, problems: &mut Problems) -> WatermarkOptions {
    let Some((table, span)) = section.table("watermark", EXPECTED, problems) else { return WatermarkOptions::Default };
    let watermark = Section::open("watermark", table, span.clone(), WATERMARK_KEYS, problems);
    let out_of_orderness_ms = watermark.duration_ms("out-of-orderness", 0..=YEAR_MS, problems);
    let idle_timeout_ms = watermark.duration_ms("idle-timeout", 0..=YEAR_MS, problems);
    let group = watermark.string("align", "the name of a group of sources, such as \"clicks\"", problems);
    if let Some(group) = group.as_ref().filter(|group| group.value.is_empty() || group.value.len() > 64) {
        problems.add(group.span.clone(), "bad-value", "\"align\" is the name of a group, of 1 to 64 bytes".to_owned());
    }
    let max_drift_ms = watermark.duration_ms("max-drift", 1..=YEAR_MS, problems);
    let (has_group, has_drift) = (watermark.get("align").is_some(), watermark.get("max-drift").is_some());
    if has_group != has_drift {
        let (given, lacking) = if has_group { ("align", "max-drift") } else { ("max-drift", "align") };
        let message = format!("\"{given}\" needs \"{lacking}\"");
        problems.add(watermark.key_span(given), "missing-key", message);
    }
    let alignment = group.map(|group| group.value).zip(max_drift_ms);
    WatermarkOptions::Given { place: problems.place(span), out_of_orderness_ms, idle_timeout_ms, alignment }
}
