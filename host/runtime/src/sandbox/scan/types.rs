//! How deep type definitions of components nest.
//!
//! The parser and the validator follow nested component and instance types by recursion and have no limit of their own:
//! a file of 300 KB would overflow the stack, which no process survives. So nothing reads a type section before this
//! has followed it with a counter for each open type instead.

use wasmparser::{
    BinaryReader, ComponentAlias, ComponentExternName, ComponentImport, ComponentType, ComponentTypeRef, CoreType, Result,
};

use super::{LoadError, invalid, too_complex};

/// The first byte of a component type and of an instance type.
const NESTING: [u8; 2] = [0x41, 0x42];

/// Checks the type section `section`, which lies at `offset` in the file.
pub(super) fn check_nesting(section: &[u8], offset: usize, limit: u64) -> std::result::Result<(), LoadError> {
    let mut reader = BinaryReader::new(section, offset);
    // Definitions that are left, of the section and of each type that is open.
    let mut open = vec![reader.read_var_u32().map_err(|error| invalid(&error))?];
    while let Some(left) = open.last_mut() {
        let Some(fewer) = left.checked_sub(1) else {
            open.pop();
            continue;
        };
        *left = fewer;
        let within = open.len() > 1;
        if let Some(definitions) = definition(&mut reader, within).map_err(|error| invalid(&error))? {
            open.push(definitions);
            too_complex("type-nesting", open.len() as u64 - 1, limit)?;
        }
    }
    Ok(())
}

/// Reads one definition; of a type that contains others, only how many there are.
fn definition(reader: &mut BinaryReader<'_>, within: bool) -> Result<Option<u32>> {
    if within {
        match reader.read_u8()? {
            0x00 => return reader.read::<CoreType<'_>>().map(|_| None),
            0x02 => return reader.read::<ComponentAlias<'_>>().map(|_| None),
            0x03 => return reader.read::<ComponentImport<'_>>().map(|_| None),
            0x04 => {
                reader.read::<ComponentExternName<'_>>()?;
                return reader.read::<ComponentTypeRef>().map(|_| None);
            }
            // 0x01 is a type; anything else is for the validator to refuse, and contains nothing.
            _ => {}
        }
    }
    if NESTING.contains(&reader.clone().read_u8()?) {
        reader.read_u8()?;
        return reader.read_var_u32().map(Some);
    }
    reader.read::<ComponentType<'_>>().map(|_| None)
}
