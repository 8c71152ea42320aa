//! The contents of core modules: counts, and the shape of each function body.

use wasmparser::{FunctionBody, Operator, Payload};

use super::{Counts, LoadError, ScanLimits, invalid, too_complex};

/// What all core modules, or all sections, of a component have together.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) globals: u64,
    pub(super) segments: u64,
    pub(super) types: u64,
    pub(super) imports: u64,
    pub(super) exports: u64,
    pub(super) aliases: u64,
}

/// Counts a section of a core module. Counts come before items: no item is read of a section that has too many.
pub(super) fn section(
    payload: &Payload<'_>,
    totals: &mut Totals,
    counts: &mut Counts,
    limits: &ScanLimits,
) -> Result<(), LoadError> {
    match payload {
        Payload::TypeSection(reader) => add("types", &mut totals.types, reader.count(), limits.types),
        Payload::ImportSection(reader) => add("imports", &mut totals.imports, reader.count(), limits.imports),
        Payload::ExportSection(reader) => {
            add("exports", &mut totals.exports, reader.count(), limits.exports)?;
            for export in reader.clone() {
                let name = export.map_err(|error| invalid(&error))?.name;
                too_complex("name-bytes", name.len() as u64, limits.name_bytes)?;
            }
            Ok(())
        }
        Payload::FunctionSection(reader) => add("functions", &mut counts.functions, reader.count(), limits.functions),
        Payload::GlobalSection(reader) => add("globals", &mut totals.globals, reader.count(), limits.globals),
        Payload::ElementSection(reader) => add("segments", &mut totals.segments, reader.count(), limits.segments),
        Payload::DataSection(reader) => add("segments", &mut totals.segments, reader.count(), limits.segments),
        Payload::CodeSectionStart { size, .. } => add("code-bytes", &mut counts.code_bytes, *size, limits.code_bytes),
        Payload::CodeSectionEntry(body) => check_body(body, limits),
        _ => Ok(()),
    }
}

/// Adds to a total and compares it with its limit.
pub(super) fn add(what: &'static str, total: &mut u64, more: u32, limit: u64) -> Result<(), LoadError> {
    *total = total.saturating_add(u64::from(more));
    too_complex(what, *total, limit)
}

fn check_body(body: &FunctionBody<'_>, limits: &ScanLimits) -> Result<(), LoadError> {
    too_complex("body-bytes", body.range().len() as u64, limits.body_bytes)?;
    let mut locals = 0u64;
    for local in body.get_locals_reader().map_err(|error| invalid(&error))? {
        let (count, _) = local.map_err(|error| invalid(&error))?;
        add("locals", &mut locals, count, limits.locals)?;
    }
    let (mut depth, mut targets) = (0u64, 0u64);
    let mut operators = body.get_operators_reader().map_err(|error| invalid(&error))?;
    while !operators.eof() {
        match operators.read().map_err(|error| invalid(&error))? {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                depth += 1;
                too_complex("control-nesting", depth, limits.control_nesting)?;
            }
            Operator::End => depth = depth.saturating_sub(1),
            Operator::BrTable { targets: table } => add("branch-targets", &mut targets, table.len(), limits.branch_targets)?,
            _ => {}
        }
    }
    Ok(())
}
