//! The deserializer that has no input: it gives each type a small value and takes note of what the type asked for.

use std::fmt::{self, Display, Formatter};

use serde::de::value::{StrDeserializer, U32Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::shape::{Body, Field, Shape};
use super::tracer::{Entered, Tracer};

/// A run that cannot go on. Why is not told: the messages would be a part of every component.
#[derive(Debug)]
pub(super) struct Stop;

impl Display for Stop {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("the type cannot be traced")
    }
}

impl std::error::Error for Stop {}

impl Error for Stop {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

/// Stands where a value is wanted.
pub(super) struct Probe<'t> {
    pub(super) tracer: &'t mut Tracer,
    pub(super) shape: &'t mut Shape,
}

impl Probe<'_> {
    fn leaf(self, name: &'static str, bytes: usize) -> Result<(), Stop> {
        *self.shape = Shape::Leaf(name);
        self.tracer.step(bytes)
    }

    /// Reads a struct whose parts have no names.
    fn unnamed<'de, V: Visitor<'de>>(
        self,
        name: &'static str,
        count: usize,
        read: impl FnOnce(&mut Tracer, &mut [Shape]) -> Result<V::Value, Stop>,
    ) -> Result<V::Value, Stop> {
        let entered = self.tracer.enter(std::any::type_name::<V>(), name, None)?;
        *self.shape = Shape::Named(entered.index);
        let mut shapes = unknown(count)?;
        let result = read(self.tracer, &mut shapes);
        self.tracer.leave(entered, Some(Body::Items(shapes)), result.is_ok());
        result
    }
}

/// Room for the shapes of a type's parts; a type of very many is described by its name.
fn unknown(count: usize) -> Result<Vec<Shape>, Stop> {
    if count > 4096 { Err(Stop) } else { Ok(vec![Shape::Unknown; count]) }
}

/// One as a number: 0 would not do for types that have no zero.
macro_rules! leaves {
    ($($function:ident $visit:ident $name:literal $bytes:literal $value:expr;)*) => {$(
        fn $function<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
            self.leaf($name, $bytes)?;
            visitor.$visit($value)
        }
    )*};
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Stop;

    fn is_human_readable(&self) -> bool {
        false
    }

    leaves! {
        deserialize_bool visit_bool "bool" 1 false;
        deserialize_i8 visit_i8 "i8" 1 1;
        deserialize_i16 visit_i16 "i16" 1 1;
        deserialize_i32 visit_i32 "i32" 1 1;
        deserialize_i64 visit_i64 "i64" 1 1;
        deserialize_i128 visit_i128 "i128" 1 1;
        deserialize_u8 visit_u8 "u8" 1 1;
        deserialize_u16 visit_u16 "u16" 1 1;
        deserialize_u32 visit_u32 "u32" 1 1;
        deserialize_u64 visit_u64 "u64" 1 1;
        deserialize_u128 visit_u128 "u128" 1 1;
        deserialize_f32 visit_f32 "f32" 4 1.0;
        deserialize_f64 visit_f64 "f64" 8 1.0;
        deserialize_char visit_char "char" 2 'a';
        deserialize_str visit_borrowed_str "str" 1 "";
        deserialize_string visit_borrowed_str "str" 1 "";
        deserialize_bytes visit_borrowed_bytes "bytes" 1 b"";
        deserialize_byte_buf visit_borrowed_bytes "bytes" 1 b"";
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        Err(Stop)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        Err(Stop)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        Err(Stop)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.tracer.step(1)?;
        let key = std::any::type_name::<V>();
        if let Some(known) = self.tracer.cut(key) {
            *self.shape = Shape::Option(Box::new(known));
            return visitor.visit_none();
        }
        let mut inner = Shape::Unknown;
        let result = visitor.visit_some(Probe { tracer: self.tracer, shape: &mut inner });
        if result.is_err() {
            self.tracer.unfilled(key, &inner);
        }
        *self.shape = Shape::Option(Box::new(inner));
        result
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.tracer.step(1)?;
        let key = std::any::type_name::<V>();
        if let Some(known) = self.tracer.cut(key) {
            *self.shape = Shape::Seq(Box::new(known));
            return visitor.visit_seq(Parts { tracer: self.tracer, shapes: &mut [], next: &mut 0 });
        }
        let mut inner = [Shape::Unknown];
        let result = visitor.visit_seq(Parts { tracer: self.tracer, shapes: &mut inner, next: &mut 0 });
        let [inner] = inner;
        if result.is_err() {
            self.tracer.unfilled(key, &inner);
        }
        *self.shape = Shape::Seq(Box::new(inner));
        result
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.tracer.step(1)?;
        let key = std::any::type_name::<V>();
        if let Some(known) = self.tracer.cut(key) {
            let pair = if let Shape::Tuple(pair) = known { pair } else { Vec::new() };
            let mut pair = pair.into_iter();
            let mut next = || pair.next().unwrap_or(Shape::Unknown);
            *self.shape = Shape::Map(Box::new((next(), next())));
            return visitor.visit_map(Pairs { tracer: self.tracer, shapes: &mut [], next: &mut 0 });
        }
        let mut pair = [Shape::Unknown, Shape::Unknown];
        let result = visitor.visit_map(Pairs { tracer: self.tracer, shapes: &mut pair, next: &mut 0 });
        if result.is_err() {
            self.tracer.unfilled(key, &Shape::Tuple(pair.to_vec()));
        }
        *self.shape = Shape::Map(Box::new(pair.into()));
        result
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        *self.shape = Shape::Tuple(Vec::new());
        self.tracer.step(0)?;
        visitor.visit_unit()
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        self.tracer.step(0)?;
        let mut shapes = unknown(len)?;
        let result = visitor.visit_seq(Parts { tracer: self.tracer, shapes: &mut shapes, next: &mut 0 });
        *self.shape = Shape::Tuple(shapes);
        result
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Stop> {
        self.unnamed::<V>(name, 0, |_, _| visitor.visit_unit())
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Stop> {
        self.unnamed::<V>(name, 1, |tracer, shapes| visitor.visit_newtype_struct(Probe { tracer, shape: &mut shapes[0] }))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, name: &'static str, len: usize, visitor: V) -> Result<V::Value, Stop> {
        self.unnamed::<V>(name, len, |tracer, shapes| visitor.visit_seq(Parts { tracer, shapes, next: &mut 0 }))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let entered = self.tracer.enter(std::any::type_name::<V>(), name, None)?;
        *self.shape = Shape::Named(entered.index);
        let (body, result) = read_fields(self.tracer, entered, fields, visitor);
        self.tracer.leave(entered, body, result.is_ok());
        result
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let entered = self.tracer.enter(std::any::type_name::<V>(), name, Some(variants))?;
        *self.shape = Shape::Named(entered.index);
        let mut body = None;
        let result = visitor.visit_enum(Choice { tracer: self.tracer, entered, body: &mut body });
        self.tracer.leave(entered, body, result.is_ok());
        result
    }
}

/// Reads named fields: in their order, or by name but for the one to be left out.
fn read_fields<'de, V: Visitor<'de>>(
    tracer: &mut Tracer,
    entered: Entered,
    names: &'static [&'static str],
    visitor: V,
) -> (Option<Body>, Result<V::Value, Stop>) {
    let mut shapes = vec![Shape::Unknown; names.len()];
    let mut next = 0;
    let result = match tracer.to_leave_out(entered) {
        Some(omitted) => visitor.visit_map(ByName { tracer, names, omitted, shapes: &mut shapes, next: &mut next }),
        None => visitor.visit_seq(Parts { tracer, shapes: &mut shapes, next: &mut next }),
    };
    if next < names.len() {
        // Fields with several names are listed with all of them: which is whose cannot be told.
        return (None, result);
    }
    let fields = names.iter().zip(shapes).map(|(name, shape)| Field { name, shape, default: None });
    (Some(Body::Fields(fields.collect())), result)
}

/// The items of a list or tuple, each once.
struct Parts<'t> {
    tracer: &'t mut Tracer,
    shapes: &'t mut [Shape],
    next: &'t mut usize,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Stop;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Stop> {
        let Some(shape) = self.shapes.get_mut(*self.next) else { return Ok(None) };
        *self.next += 1;
        seed.deserialize(Probe { tracer: self.tracer, shape }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.shapes.len() - *self.next)
    }
}

/// Key and value of a map, or nothing.
struct Pairs<'t> {
    tracer: &'t mut Tracer,
    shapes: &'t mut [Shape],
    next: &'t mut usize,
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = Stop;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Stop> {
        let Some(shape) = self.shapes.get_mut(*self.next) else { return Ok(None) };
        *self.next += 1;
        seed.deserialize(Probe { tracer: self.tracer, shape }).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stop> {
        let shape = self.shapes.get_mut(*self.next).ok_or(Stop)?;
        *self.next += 1;
        seed.deserialize(Probe { tracer: self.tracer, shape })
    }
}

/// The fields of a struct by name, without one of them.
struct ByName<'t> {
    tracer: &'t mut Tracer,
    names: &'static [&'static str],
    omitted: usize,
    shapes: &'t mut [Shape],
    next: &'t mut usize,
}

impl<'de> MapAccess<'de> for ByName<'_> {
    type Error = Stop;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Stop> {
        if *self.next == self.omitted {
            self.tracer.left_out_here();
            *self.next += 1;
        }
        let Some(name) = self.names.get(*self.next) else { return Ok(None) };
        let name: StrDeserializer<'_, Stop> = (*name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stop> {
        let shape = self.shapes.get_mut(*self.next).ok_or(Stop)?;
        *self.next += 1;
        seed.deserialize(Probe { tracer: self.tracer, shape })
    }
}

/// A variant of an enum, by its index.
struct Choice<'t> {
    tracer: &'t mut Tracer,
    entered: Entered,
    body: &'t mut Option<Body>,
}

impl<'de> EnumAccess<'de> for Choice<'_> {
    type Error = Stop;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Stop> {
        let index = u32::try_from(self.entered.variant).map_err(|_| Stop)?;
        let index: U32Deserializer<Stop> = index.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'_> {
    type Error = Stop;

    fn unit_variant(self) -> Result<(), Stop> {
        *self.body = Some(Body::Items(Vec::new()));
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Stop> {
        let mut shape = Shape::Unknown;
        let result = seed.deserialize(Probe { tracer: self.tracer, shape: &mut shape });
        *self.body = Some(Body::Items(vec![shape]));
        result
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        let mut shapes = unknown(len)?;
        let result = visitor.visit_seq(Parts { tracer: self.tracer, shapes: &mut shapes, next: &mut 0 });
        *self.body = Some(Body::Items(shapes));
        result
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Stop> {
        let (body, result) = read_fields(self.tracer, self.entered, fields, visitor);
        *self.body = body;
        result
    }
}
