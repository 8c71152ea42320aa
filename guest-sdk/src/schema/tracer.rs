//! What happens around the runs of a type's `Deserialize`: which variant is taken, where recursion ends, what is noted.
//!
//! Each run makes one small value. Runs go on until every variant of every enum has been seen once.

use std::collections::BTreeMap;

use super::probe::{Probe, Stop};
use super::shape::{Body, Named, Shape, Text, Variant};

/// Runs to see all variants, and parts of values in all runs for one schema: the host limits what `describe` may do. A type
/// beyond that is described by its name; fields whose default is not found in time have none.
const RUNS_MAX: u32 = 4096;
const STEPS_MAX: u32 = 200_000;
/// How deep named types may be nested.
const DEPTH_MAX: usize = 64;
/// Fields whose default is looked for.
const FIELDS_MAX: usize = 512;

/// A field of a named type: the type, the variant (0 for a struct), the field.
pub(super) type Place = (usize, usize, usize);

#[derive(Default)]
pub(super) struct Tracer {
    types: Vec<Named>,
    root: Option<Shape>,
    /// What may hold values of its own type, and is empty from now on: what it holds, by the visitor's name.
    cuts: BTreeMap<&'static str, Shape>,
    /// The field that is left out, and where its bytes would begin once it has been.
    left_out: Option<Place>,
    left_out_at: Option<usize>,
    /// Whether this run found something out.
    progress: bool,
    steps: u32,
    /// Named types that are being read, and how many of them were being read already.
    stack: Vec<usize>,
    repeated: usize,
    /// Whether the run ended because a type holds itself.
    recursed: bool,
    /// Bytes of the value's encoding so far.
    pub(super) bytes: usize,
}

/// A named type that has been entered.
#[derive(Clone, Copy)]
pub(super) struct Entered {
    pub(super) index: usize,
    pub(super) variant: usize,
    /// Whether it was being read already, or is within one that was: only a value is wanted, nothing is noted.
    is_repeated: bool,
}

impl Tracer {
    /// Runs until all is known. Returns `None` if that cannot be.
    pub(super) fn explore(&mut self, mut deserialize: impl FnMut(Probe<'_>) -> Result<(), Stop>) -> Option<()> {
        for _ in 0..RUNS_MAX {
            let result = self.run(&mut deserialize);
            let complete = self.types.iter().flat_map(|named| &named.variants).all(|variant| variant.body.is_some());
            match result {
                Ok(()) if complete => return Some(()),
                _ if self.progress => {}
                _ => return None,
            }
        }
        None
    }

    /// Makes one value.
    pub(super) fn run<T>(&mut self, deserialize: impl FnOnce(Probe<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        (self.repeated, self.bytes) = (0, 0);
        (self.recursed, self.progress, self.left_out_at) = (false, false, None);
        self.stack.clear();
        let mut shape = Shape::Unknown;
        let result = deserialize(Probe { tracer: self, shape: &mut shape });
        if result.is_ok() && self.root.is_none() && shape.is_known() {
            self.root = Some(shape);
        }
        result
    }

    /// Counts a part of a value that takes this many bytes.
    pub(super) fn step(&mut self, bytes: usize) -> Result<(), Stop> {
        self.steps += 1;
        self.bytes += bytes;
        if self.steps > STEPS_MAX { Err(Stop) } else { Ok(()) }
    }

    /// Returns what an option, list or map is known to hold, if it is to be empty.
    pub(super) fn cut(&self, key: &str) -> Option<Shape> {
        let known = self.cuts.get(key).cloned();
        if self.repeated > 0 { known.or(Some(Shape::Unknown)) } else { known }
    }

    /// Takes note that an option, list or map could not be filled. The nearest one around a repeated type is empty from
    /// now on.
    pub(super) fn unfilled(&mut self, key: &'static str, holds: &Shape) {
        if self.recursed && self.repeated == 0 && holds.is_known() {
            self.cuts.insert(key, holds.clone());
            (self.recursed, self.progress) = (false, true);
        }
    }

    /// Enters a struct, or an enum at a variant of the tracer's choice.
    pub(super) fn enter(
        &mut self,
        key: &'static str,
        name: &'static str,
        variants: Option<&'static [&'static str]>,
    ) -> Result<Entered, Stop> {
        self.step(0)?;
        let index = self.index_of(key, name, variants);
        let is_repeated = self.repeated > 0 || self.stack.contains(&index);
        if self.stack.len() >= DEPTH_MAX {
            return Err(Stop);
        }
        let variant = self.choose(index, is_repeated)?;
        self.stack.push(index);
        self.repeated += usize::from(is_repeated);
        if variants.is_some() {
            // The index, as a varint.
            self.bytes += 1 + usize::from(variant >= 1 << 7) + usize::from(variant >= 1 << 14);
        }
        Ok(Entered { index, variant, is_repeated })
    }

    /// Leaves it. `body` is what it turned out to hold.
    pub(super) fn leave(&mut self, entered: Entered, body: Option<Body>, ok: bool) {
        self.stack.pop();
        if entered.is_repeated {
            self.repeated -= 1;
            return;
        }
        let named = &mut self.types[entered.index];
        let variant = &mut named.variants[entered.variant];
        let body = body.filter(|body| body.shapes().into_iter().all(Shape::is_known));
        if ok && variant.body.is_none() && body.is_some() {
            variant.body = body;
            named.finite.get_or_insert(entered.variant);
            self.progress = true;
            self.types.iter_mut().flat_map(|named| &mut named.variants).for_each(|variant| variant.postponed = false);
        } else if !ok && self.recursed && named.is_enum && variant.body.is_none() {
            self.recursed = false;
            self.progress |= !variant.postponed;
            variant.postponed = true;
        }
    }

    fn index_of(&mut self, key: &'static str, name: &'static str, variants: Option<&'static [&'static str]>) -> usize {
        if let Some(index) = self.types.iter().position(|named| named.key == key) {
            return index;
        }
        let variant = |name: &&'static str| Variant { name, body: None, postponed: false };
        let is_enum = variants.is_some();
        let variants = variants.unwrap_or(&[""]).iter().map(variant).collect();
        self.types.push(Named { key, name, is_enum, variants, finite: None });
        self.types.len() - 1
    }

    fn choose(&mut self, index: usize, is_repeated: bool) -> Result<usize, Stop> {
        let named = &self.types[index];
        if !named.is_enum {
            return Ok(0);
        }
        if is_repeated {
            self.recursed |= named.finite.is_none();
            return named.finite.ok_or(Stop);
        }
        match self.left_out {
            Some((wanted, variant, _)) if wanted == index => return Ok(variant),
            Some(_) => {}
            None => {
                let unseen = |variant: &Variant| variant.body.is_none() && !variant.postponed;
                if let Some(variant) = named.variants.iter().position(unseen) {
                    return Ok(variant);
                }
            }
        }
        let leads = named.variants.iter().position(|variant| {
            let mut seen = vec![false; self.types.len()];
            seen[index] = true;
            variant.body.as_ref().is_some_and(|body| self.leads_on(body, &mut seen))
        });
        leads.or(named.finite).ok_or(Stop)
    }

    /// Whether a body holds a type that is to be reached: the one with the field to leave out, or one with variants that
    /// have not been seen.
    fn leads_on(&self, body: &Body, seen: &mut [bool]) -> bool {
        let mut held = Vec::new();
        body.shapes().into_iter().for_each(|shape| shape.each_named(&mut |index| held.push(index)));
        held.into_iter().any(|index| {
            if std::mem::replace(&mut seen[index], true) {
                return false;
            }
            let variants = &self.types[index].variants;
            let wanted = match self.left_out {
                Some((wanted, ..)) => wanted == index,
                None => variants.iter().any(|variant| variant.body.is_none() && !variant.postponed),
            };
            wanted || variants.iter().any(|variant| variant.body.as_ref().is_some_and(|body| self.leads_on(body, seen)))
        })
    }

    /// Returns all fields that have names.
    pub(super) fn fields(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for (index, named) in self.types.iter().enumerate() {
            for (variant, found) in named.variants.iter().enumerate() {
                if let Some(Body::Fields(fields)) = &found.body {
                    places.extend((0..fields.len()).map(|field| (index, variant, field)));
                }
            }
        }
        places.truncate(FIELDS_MAX);
        places
    }

    /// Lets the next run leave out a field, the first time that its type is met.
    pub(super) fn leave_out(&mut self, place: Place) {
        self.left_out = Some(place);
    }

    /// Returns the field to leave out of what has been entered.
    pub(super) fn to_leave_out(&self, entered: Entered) -> Option<usize> {
        let (index, variant, field) = self.left_out?;
        let is_here = (index, variant) == (entered.index, entered.variant) && !entered.is_repeated;
        (is_here && self.left_out_at.is_none()).then_some(field)
    }

    /// Takes note that the field's bytes would begin here.
    pub(super) fn left_out_here(&mut self) {
        self.left_out_at = Some(self.bytes);
    }

    /// Takes note of the default of the field that was left out: what the encoding has beyond the bytes of the rest.
    pub(super) fn note_default(&mut self, (index, variant, field): Place, encoded: Option<&[u8]>) {
        let (Some(start), Some(encoded)) = (self.left_out_at, encoded) else { return };
        let Some(length) = encoded.len().checked_sub(self.bytes) else { return };
        let Some(Body::Fields(fields)) = &mut self.types[index].variants[variant].body else { return };
        fields[field].default = encoded.get(start..start + length).map(<[u8]>::to_vec);
    }

    /// Returns the schema's text, if all is known.
    pub(super) fn text(&self) -> Option<String> {
        let mut text = Text { types: &self.types, written: Vec::new(), out: "1 ".into() };
        text.shape(self.root.as_ref()?)?;
        Some(text.out)
    }
}
