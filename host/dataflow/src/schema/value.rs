//! Values without their types: for tools that show state.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::number::Scalar;
use super::types::{Body, Form, Items, Schema, Shape, Type, TypeId};
use super::wire::{Codec, Reader, ValueError};

/// A decoded value. Serialises to what JSON has for it: bytes as hexadecimal text, a map whose keys are not text as a list
/// of pairs, a number that is not finite as text, a variant with content as an object with one field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The empty tuple, and `None`.
    Null,
    /// True or false.
    Bool(bool),
    /// A number without a sign.
    Unsigned(u128),
    /// A number that may be negative.
    Signed(i128),
    /// A number with a fraction.
    Float(f64),
    /// Text, a character, or a variant without content.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list or a tuple.
    List(Vec<Value>),
    /// Keys and values, in the order they were written.
    Map(Vec<(Value, Value)>),
    /// A struct, or a variant with its content.
    Fields(Vec<(String, Value)>),
}

/// Decodes a value that was written with the codec of that name.
///
/// # Errors
/// [`ValueError`]; [`ValueError::Opaque`] if schema or codec do not say what values look like.
pub fn decode(schema: &Schema, codec: &str, bytes: &[u8]) -> Result<Value, ValueError> {
    let (Form::Shape(shape), Some(codec)) = (&schema.form, Codec::named(codec)) else {
        return Err(ValueError::Opaque);
    };
    decode_as(shape, shape.root, codec, bytes)
}

/// Decodes a value of one type of a schema.
pub(super) fn decode_as(shape: &Shape, id: TypeId, codec: Codec, bytes: &[u8]) -> Result<Value, ValueError> {
    let mut decoder = Decoder { shape, reader: Reader::new(bytes, codec) };
    let value = decoder.value(id)?;
    decoder.reader.end()?;
    Ok(value)
}

struct Decoder<'a> {
    shape: &'a Shape,
    reader: Reader<'a>,
}

impl Decoder<'_> {
    fn value(&mut self, id: TypeId) -> Result<Value, ValueError> {
        self.reader.enter()?;
        let shape = self.shape;
        let value = match &shape.types[id] {
            Type::Number(kind) => match self.reader.number(*kind)? {
                Scalar::Unsigned(value) => Value::Unsigned(value),
                Scalar::Signed(value) => Value::Signed(value),
                Scalar::F32(value) => Value::Float(value.into()),
                Scalar::F64(value) => Value::Float(value),
            },
            Type::Bool => Value::Bool(self.reader.flag()?),
            Type::Char => Value::Text(self.reader.char()?.into()),
            Type::Str => Value::Text(self.reader.text()?.into()),
            Type::Bytes => Value::Bytes(self.reader.bytes()?.into()),
            Type::Option(inner) => {
                if self.reader.flag()? {
                    self.value(*inner)?
                } else {
                    Value::Null
                }
            }
            Type::Seq(inner) => {
                let mut items = Vec::new();
                for _ in 0..self.reader.length()? {
                    items.push(self.value(*inner)?);
                }
                Value::List(items)
            }
            Type::Map(key, value) => {
                let mut pairs = Vec::new();
                for _ in 0..self.reader.length()? {
                    pairs.push((self.value(*key)?, self.value(*value)?));
                }
                Value::Map(pairs)
            }
            Type::Tuple(items) => self.items(items, false)?,
            Type::Struct { body, .. } => self.body(body)?,
            Type::Enum { variants, .. } => {
                let index = self.reader.index()?;
                let variant = variants.get(index as usize).ok_or(ValueError::Invalid("there is no such variant"))?;
                match self.body(&variant.body)? {
                    Value::Null => Value::Text(variant.name.clone()),
                    content => Value::Fields(vec![(variant.name.clone(), content)]),
                }
            }
            Type::Pending => return Err(ValueError::Opaque),
        };
        self.reader.leave();
        Ok(value)
    }

    fn body(&mut self, body: &Body) -> Result<Value, ValueError> {
        match body {
            // What wraps one value is shown as that value.
            Body::Items(items) => self.items(items, true),
            Body::Fields(fields) => {
                let mut values = Vec::new();
                for field in fields {
                    values.push((field.name.clone(), self.value(field.kind)?));
                }
                Ok(Value::Fields(values))
            }
        }
    }

    fn items(&mut self, items: &Items, unwrap: bool) -> Result<Value, ValueError> {
        let mut values = Vec::new();
        for (count, kind) in items {
            for _ in 0..*count {
                values.push(self.value(*kind)?);
            }
        }
        Ok(match values.len() {
            0 => Value::Null,
            1 if unwrap => values.remove(0),
            _ => Value::List(values),
        })
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            // Most formats have no more than 64 bits.
            Self::Unsigned(value) => match u64::try_from(*value) {
                Ok(value) => serializer.serialize_u64(value),
                Err(_) => serializer.collect_str(value),
            },
            Self::Signed(value) => match i64::try_from(*value) {
                Ok(value) => serializer.serialize_i64(value),
                Err(_) => serializer.collect_str(value),
            },
            Self::Float(value) if value.is_finite() => serializer.serialize_f64(*value),
            Self::Float(value) => serializer.collect_str(value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                serializer.serialize_str(&hex)
            }
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(pairs) if pairs.iter().all(|(key, _)| matches!(key, Self::Text(_))) => {
                serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
            }
            Self::Map(pairs) => serializer.collect_seq(pairs),
            Self::Fields(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}
