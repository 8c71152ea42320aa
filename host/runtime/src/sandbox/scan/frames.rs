//! The walk over a component's sections, with an explicit stack of what is open.
//!
//! Each component has a weight: what instantiating it makes, nested instantiations included. A weight is known when its
//! component closes and is added where the component is instantiated, so the walk needs one number a component and no
//! recursion, whatever the product comes to.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Encoding, Instance,
    Parser, Payload, SectionLimited,
};

use super::module::{self, Totals, add};
use super::types;
use super::{Counts, LoadError, ScanLimits, invalid, too_complex};
use crate::sandbox::text;

/// A component as the walk has seen it.
#[derive(Default)]
pub(super) struct Outline {
    /// Names that the outermost component imports.
    pub(super) imports: Vec<String>,
    /// Names that the outermost component exports.
    pub(super) exports: Vec<String>,
    pub(super) counts: Counts,
}

/// What instantiating a component makes.
#[derive(Clone, Copy, Default)]
struct Weight {
    core_instances: u64,
    component_instances: u64,
    canonical_functions: u64,
}

/// A component whose end has not been reached.
#[derive(Default)]
struct OpenComponent {
    /// The component index space.
    components: Vec<Weight>,
    /// Of what has been seen so far.
    weight: Weight,
}

/// What the walk is inside of.
enum Frame {
    Component(OpenComponent),
    Module,
}

struct Walk<'a> {
    bytes: &'a [u8],
    limits: &'a ScanLimits,
    /// The outermost first.
    frames: Vec<Frame>,
    totals: Totals,
    outline: Outline,
}

/// Walks over `bytes`, which begin like a component.
pub(super) fn walk(bytes: &[u8], limits: &ScanLimits) -> Result<Outline, LoadError> {
    let mut parser = Parser::new(0);
    parser.set_features(super::FEATURES);
    let mut walk = Walk { bytes, limits, frames: Vec::new(), totals: Totals::default(), outline: Outline::default() };
    for payload in parser.parse_all(bytes) {
        walk.payload(payload.map_err(|error| invalid(&error))?)?;
    }
    Ok(walk.outline)
}

impl Walk<'_> {
    fn payload(&mut self, payload: Payload<'_>) -> Result<(), LoadError> {
        match payload {
            Payload::Version { encoding, .. } => return self.open(encoding),
            Payload::End(_) => return self.close(),
            // What follows is the nested module's or component's own `Version`.
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => return Ok(()),
            _ => {}
        }
        match self.frames.last_mut() {
            Some(Frame::Module) => module::section(&payload, &mut self.totals, &mut self.outline.counts, self.limits),
            Some(Frame::Component(_)) => self.component_section(payload),
            None => Err(broken("a section outside of the component")),
        }
    }

    fn open(&mut self, encoding: Encoding) -> Result<(), LoadError> {
        match encoding {
            Encoding::Module => {
                add("core-modules", &mut self.outline.counts.core_modules, 1, self.limits.core_modules)?;
                self.frames.push(Frame::Module);
            }
            Encoding::Component => {
                too_complex("nesting", self.frames.len() as u64, self.limits.nesting)?;
                self.frames.push(Frame::Component(OpenComponent::default()));
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), LoadError> {
        let closed = self.frames.pop().ok_or_else(|| broken("an end without a beginning"))?;
        let Frame::Component(closed) = closed else { return Ok(()) };
        match self.frames.last_mut() {
            Some(Frame::Component(parent)) => parent.components.push(closed.weight),
            Some(Frame::Module) => return Err(broken("a component inside of a core module")),
            None => {
                self.outline.counts.core_instances = closed.weight.core_instances;
                self.outline.counts.component_instances = closed.weight.component_instances;
            }
        }
        Ok(())
    }

    fn component_section(&mut self, payload: Payload<'_>) -> Result<(), LoadError> {
        let limits = self.limits;
        match payload {
            Payload::CoreTypeSection(reader) => add("types", &mut self.totals.types, reader.count(), limits.types),
            Payload::ComponentTypeSection(reader) => {
                add("types", &mut self.totals.types, reader.count(), limits.types)?;
                let range = reader.range();
                let section = self.bytes.get(range.clone()).ok_or_else(|| broken("a type section past the end"))?;
                types::check_nesting(section, range.start, limits.type_nesting)
            }
            Payload::InstanceSection(reader) => {
                add("aliases", &mut self.totals.aliases, reader.count(), limits.aliases)?;
                items(reader, |instance| match instance {
                    Instance::Instantiate { .. } => self.gain(Weight { core_instances: 1, ..Weight::default() }),
                    Instance::FromExports(_) => Ok(()),
                })
            }
            Payload::ComponentInstanceSection(reader) => {
                add("aliases", &mut self.totals.aliases, reader.count(), limits.aliases)?;
                items(reader, |instance| self.component_instance(&instance))
            }
            Payload::ComponentCanonicalSection(reader) => {
                self.gain(Weight { canonical_functions: u64::from(reader.count()), ..Weight::default() })
            }
            Payload::ComponentAliasSection(reader) => {
                add("aliases", &mut self.totals.aliases, reader.count(), limits.aliases)?;
                items(reader, |alias| self.alias(&alias))
            }
            Payload::ComponentImportSection(reader) => {
                add("imports", &mut self.totals.imports, reader.count(), limits.imports)?;
                items(reader, |import| self.import(import.name.name, &import.ty))
            }
            Payload::ComponentExportSection(reader) => {
                add("exports", &mut self.totals.exports, reader.count(), limits.exports)?;
                items(reader, |export| self.export(export.name.name, export.kind, export.index))
            }
            Payload::ComponentStartSection { .. } => Err(broken("a component start function")),
            Payload::CustomSection(_) => Ok(()),
            Payload::UnknownSection { id, .. } => Err(broken(&format!("an unknown section {id}"))),
            _ => Err(broken("a core section outside of a core module")),
        }
    }

    fn component_instance(&mut self, instance: &ComponentInstance<'_>) -> Result<(), LoadError> {
        match instance {
            ComponentInstance::Instantiate { component_index, args } => {
                if args.iter().any(|arg| arg.kind == ComponentExternalKind::Component) {
                    return Err(first_class());
                }
                let mut weight = self.weight_of(0, *component_index)?;
                weight.component_instances = weight.component_instances.saturating_add(1);
                self.gain(weight)
            }
            ComponentInstance::FromExports(exports) => {
                let components = exports.iter().any(|export| export.kind == ComponentExternalKind::Component);
                if components { Err(first_class()) } else { Ok(()) }
            }
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) -> Result<(), LoadError> {
        match alias {
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                let weight = self.weight_of(*count as usize, *index)?;
                self.current()?.components.push(weight);
                Ok(())
            }
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => Err(first_class()),
            ComponentAlias::Outer { .. } | ComponentAlias::InstanceExport { .. } | ComponentAlias::CoreInstanceExport { .. } => {
                Ok(())
            }
        }
    }

    fn import(&mut self, name: &str, ty: &ComponentTypeRef) -> Result<(), LoadError> {
        too_complex("name-bytes", name.len() as u64, self.limits.name_bytes)?;
        if matches!(ty, ComponentTypeRef::Component(_)) {
            return Err(first_class());
        }
        if self.frames.len() == 1 {
            self.outline.imports.push(text::printable(name, 256));
        }
        Ok(())
    }

    fn export(&mut self, name: &str, kind: ComponentExternalKind, index: u32) -> Result<(), LoadError> {
        too_complex("name-bytes", name.len() as u64, self.limits.name_bytes)?;
        if kind == ComponentExternalKind::Component {
            // An export is a definition of its own in the index space.
            let weight = self.weight_of(0, index)?;
            self.current()?.components.push(weight);
        }
        if self.frames.len() == 1 {
            self.outline.exports.push(text::printable(name, 256));
        }
        Ok(())
    }

    /// Returns the weight of component `index` of the component `outer` levels out.
    fn weight_of(&self, outer: usize, index: u32) -> Result<Weight, LoadError> {
        let frame = self.frames.iter().rev().nth(outer);
        let Some(Frame::Component(component)) = frame else { return Err(broken("an outer alias beyond the component")) };
        component.components.get(index as usize).copied().ok_or_else(|| broken(&format!("no component {index}")))
    }

    fn current(&mut self) -> Result<&mut OpenComponent, LoadError> {
        match self.frames.last_mut() {
            Some(Frame::Component(component)) => Ok(component),
            _ => Err(broken("a component section outside of a component")),
        }
    }

    /// Adds to the weight of the component that is open.
    fn gain(&mut self, more: Weight) -> Result<(), LoadError> {
        let limits = self.limits;
        let weight = &mut self.current()?.weight;
        weight.core_instances = weight.core_instances.saturating_add(more.core_instances);
        weight.component_instances = weight.component_instances.saturating_add(more.component_instances);
        weight.canonical_functions = weight.canonical_functions.saturating_add(more.canonical_functions);
        too_complex("core-instances", weight.core_instances, limits.core_instances)?;
        too_complex("component-instances", weight.component_instances, limits.component_instances)?;
        too_complex("canonical-functions", weight.canonical_functions, limits.canonical_functions)
    }
}

/// Reads a section's items one by one.
fn items<'a, T: wasmparser::FromReader<'a>>(
    reader: SectionLimited<'a, T>,
    mut each: impl FnMut(T) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    reader.into_iter().try_for_each(|item| each(item.map_err(|error| invalid(&error))?))
}

fn broken(reason: &str) -> LoadError {
    LoadError::Invalid { reason: reason.to_owned() }
}

/// Components that are passed around as values cannot be weighed where they are defined; no toolchain makes them.
fn first_class() -> LoadError {
    broken("a component is imported, passed as an argument or taken from an instance, which is not served")
}
