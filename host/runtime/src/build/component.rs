//! A core module becomes a component; what a component imports and exports by name.

use wasmparser::{Parser, Payload};
use wit_component::ComponentEncoder;

use super::BuildError;

/// The names at the outside of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentNames {
    /// Imported interfaces and functions.
    pub imports: Vec<String>,
    /// Exported interfaces and functions.
    pub exports: Vec<String>,
}

/// Makes a component of a core module that carries its world, as the SDK's macros do.
pub(super) fn from_module(name: &str, module: &[u8]) -> Result<Vec<u8>, BuildError> {
    let no_operator = |message: String| BuildError::NoOperator { name: name.to_owned(), message };
    let encode = || ComponentEncoder::default().validate(true).module(module)?.encode();
    let component = encode().map_err(|error| no_operator(format!("{error:#}")))?;
    let found = names(&component).map_err(no_operator)?;
    // A module without a world becomes an empty component.
    if !found.exports.iter().any(|export| export.starts_with("cofferdam:operator/guest@")) {
        let message = "it does not export cofferdam:operator/guest; does its lib.rs call the SDK's `export!`?";
        return Err(no_operator(message.to_owned()));
    }
    Ok(component)
}

/// Returns the names that a component imports and exports. For components of our own making: it bounds nothing.
///
/// # Errors
/// Why the bytes are no component.
pub fn names(component: &[u8]) -> Result<ComponentNames, String> {
    if !Parser::is_component(component) {
        return Err("it is no component".to_owned());
    }
    let mut names = ComponentNames::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(|error| error.to_string())? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    names.imports.push(import.map_err(|error| error.to_string())?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    names.exports.push(export.map_err(|error| error.to_string())?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_no_operator_is_refused_by_name() {
        // The empty core module: valid, but without the interface.
        let error = from_module("plain", b"\0asm\x01\0\0\0").unwrap_err();
        assert!(error.to_string().starts_with("the crate \"plain\" is no operator:"), "{error}");
        assert!(names(b"\0asm\x01\0\0\0").is_err());
        assert!(names(b"text").is_err());
    }
}
