//! `inspect`: what a component is, without running it in a pipeline.

use std::fmt::Write as _;

use cofferdam::build;
use cofferdam::config::value::{format_bytes, format_duration_ms};
use cofferdam_dataflow::guest::{Descriptor, TimeDomain};
use serde::Serialize;

use super::Exit;
use super::arguments::InspectArguments;
use super::failure::Failure;
use super::terminal::{Paint, Style, Terminal};
use super::wiring;

/// The outside of a component.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ComponentSummary {
    /// SHA-256, hexadecimal.
    pub(super) digest: String,
    pub(super) bytes: u64,
    /// Such as `cofferdam:operator@0.1.0`.
    pub(super) interface: String,
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<String>,
}

#[derive(Serialize)]
struct Inspection<'a> {
    event: &'static str,
    file: String,
    #[serde(flatten)]
    summary: &'a ComponentSummary,
    descriptor: &'a Descriptor,
    keyed: bool,
}

/// Shows a component, or what a crate was built to.
pub(super) fn inspect(arguments: &InspectArguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let path = build::locate(&arguments.component)?;
    let component = wiring::load(&wiring::loader()?, &path)?;
    let (summary, descriptor) = (&component.summary, component.loaded.descriptor());
    let file = path.display().to_string();
    let inspection = Inspection { event: "component", file: file.clone(), summary, descriptor, keyed: descriptor.is_keyed() };
    terminal.result(&inspection, |paint| text(&file, summary, descriptor, paint))?;
    Ok(Exit::Done)
}

fn text(file: &str, summary: &ComponentSummary, descriptor: &Descriptor, paint: Paint) -> String {
    let mut text = format!("{}\n", paint.paint(Style::Strong, file));
    let mut row = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    row("interface", &summary.interface);
    row("size", &format_bytes(summary.bytes));
    row("sha256", &summary.digest);
    row("imports", &list(&summary.imports));
    row("exports", &list(&summary.exports));
    row("keyed", if descriptor.is_keyed() { "yes: records need a key" } else { "no" });
    let inputs =
        descriptor.inputs.iter().map(|port| format!("{}{}", port.name, if port.broadcast { " (broadcast)" } else { "" }));
    row("inputs", &list(&inputs.collect::<Vec<_>>()));
    row("outputs", &list(&descriptor.outputs));
    if !descriptor.timers.is_empty() {
        let domains = descriptor.timers.iter().map(|domain| match domain {
            TimeDomain::EventTime => "event time".to_owned(),
            TimeDomain::ProcessingTime => "processing time".to_owned(),
        });
        row("timers", &list(&domains.collect::<Vec<_>>()));
    }
    if descriptor.max_batch > 0 {
        row("max batch", &descriptor.max_batch.to_string());
    }
    for slot in &descriptor.slots {
        let schema = if slot.schema.is_empty() { String::new() } else { format!(" {}", one_line(&slot.schema)) };
        let ttl = if slot.ttl_ms == 0 { String::new() } else { format!(", kept for {}", format_duration_ms(slot.ttl_ms)) };
        row("state", &format!("{}: {} in {}{schema}{ttl}", slot.name, slot.kind.name(), one_line(&slot.codec)));
    }
    text
}

/// A component's own texts are untrusted: they must not draw on the terminal.
fn one_line(text: &str) -> String {
    let shown: String = text.chars().take(200).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().count() > 200 { shown + "…" } else { shown }
}

#[cfg(test)]
mod tests {
    use cofferdam_dataflow::guest::{InputPort, StateKind, StateSlot};

    use super::*;

    #[test]
    fn a_component_is_shown_with_ports_state_and_capabilities() {
        let summary = ComponentSummary {
            digest: "00ff".into(),
            bytes: 48_000,
            interface: "cofferdam:operator@0.1.0".into(),
            imports: vec!["cofferdam:operator/logging@0.1.0".into()],
            exports: vec!["cofferdam:operator/guest@0.1.0".into()],
        };
        let slot = StateSlot {
            name: "n".into(),
            kind: StateKind::Value,
            codec: "postcard".into(),
            schema: "u64\u{1b}[31m".into(),
            ttl_ms: 0,
            ttl_on_read: false,
            prefetch: true,
        };
        let descriptor = Descriptor {
            inputs: vec![InputPort { name: "in".into(), broadcast: false }],
            outputs: vec!["out".into(), "late".into()],
            slots: vec![slot],
            timers: vec![],
            keyed: false,
            max_batch: 0,
        };
        let expected = "\
count.wasm
  interface  cofferdam:operator@0.1.0
  size       46.9 KiB
  sha256     00ff
  imports    cofferdam:operator/logging@0.1.0
  exports    cofferdam:operator/guest@0.1.0
  keyed      yes: records need a key
  inputs     in
  outputs    out, late
  state      n: value in postcard u64\u{fffd}[31m
";
        assert_eq!(text("count.wasm", &summary, &descriptor, Paint(false)), expected);
    }
}
