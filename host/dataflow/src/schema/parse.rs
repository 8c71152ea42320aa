//! From text to schema. Strict: one text has one meaning, and anything else is refused with its place.

use super::number::Number;
use super::types::{Body, Field, Form, Items, Schema, Shape, Type, TypeId, Variant};
use super::{TEXT_BYTES_MAX, TYPE_DEPTH_MAX};

/// A text that is no schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is too long.
    #[error("a schema of {0} bytes exceeds {TEXT_BYTES_MAX}")]
    Long(usize),
    /// It is written in another language, or a newer version of this one.
    #[error("the schema's version is not 1")]
    Version,
    /// It breaks the grammar.
    #[error("the schema is malformed at byte {at}: {what}")]
    Malformed {
        /// The offset.
        at: usize,
        /// What was expected or is wrong.
        what: &'static str,
    },
}

impl Schema {
    /// Reads a schema's text.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(SchemaError::Long(text.len()));
        }
        let body = text.strip_prefix("1 ").ok_or(SchemaError::Version)?;
        if let Some(name) = body.strip_prefix('?') {
            return Ok(Self { form: Form::Opaque(name.into()) });
        }
        if let Some(hash) = body.strip_prefix('#') {
            let is_hash = hash.len() == 32 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            let malformed = SchemaError::Malformed { at: 3, what: "a hash is 32 hexadecimal digits" };
            return if is_hash { Ok(Self { form: Form::Digest(hash.into()) }) } else { Err(malformed) };
        }
        let mut parser = Parser { text, at: 2, types: Vec::new(), named: Vec::new() };
        let root = parser.kind(0)?;
        if parser.at != text.len() {
            return parser.malformed("something follows the type");
        }
        Ok(Self { form: Form::Shape(Shape { types: parser.types, root }) })
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    types: Vec<Type>,
    /// The named types in the order of their definitions.
    named: Vec<TypeId>,
}

type Parsed<T> = Result<T, SchemaError>;

impl<'a> Parser<'a> {
    fn malformed<T>(&self, what: &'static str) -> Parsed<T> {
        Err(SchemaError::Malformed { at: self.at, what })
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn expect(&mut self, c: char, what: &'static str) -> Parsed<()> {
        if self.eat(c) { Ok(()) } else { self.malformed(what) }
    }

    fn word(&mut self) -> Parsed<&'a str> {
        let is_end = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '%'));
        let rest = self.rest();
        let word = &rest[..rest.find(is_end).unwrap_or(rest.len())];
        if word.is_empty() {
            return self.malformed("a name or a type is expected");
        }
        self.at += word.len();
        Ok(word)
    }

    fn number(&mut self) -> Parsed<u32> {
        let rest = self.rest();
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        match digits.parse() {
            Ok(number) if digits == "0" || !digits.starts_with('0') => {
                self.at += digits.len();
                Ok(number)
            }
            _ => self.malformed("a number of 32 bits is expected"),
        }
    }

    fn push(&mut self, kind: Type) -> TypeId {
        // Equal types without parts share a place, so that neighbours in a tuple can be told to be equal.
        let is_leaf = matches!(kind, Type::Number(_) | Type::Bool | Type::Char | Type::Str | Type::Bytes);
        if let Some(known) = self.types.iter().position(|known| is_leaf && *known == kind) {
            return known;
        }
        self.types.push(kind);
        self.types.len() - 1
    }

    fn kind(&mut self, depth: u32) -> Parsed<TypeId> {
        if depth >= TYPE_DEPTH_MAX {
            return self.malformed("types are nested too deep");
        }
        if self.eat('@') {
            let index = self.number()?;
            return match self.named.get(index as usize) {
                Some(known) => Ok(*known),
                None => self.malformed("the type that is referred to is not defined before"),
            };
        }
        if self.eat('(') {
            let items = self.items(depth)?;
            return Ok(self.push(Type::Tuple(items)));
        }
        let word = self.word()?;
        if let Some(c @ ('{' | '(' | '[')) = self.rest().chars().next() {
            return self.definition(word, c, depth);
        }
        let kind = match word {
            "bool" => Type::Bool,
            "char" => Type::Char,
            "str" => Type::Str,
            "bytes" => Type::Bytes,
            "opt" => Type::Option(self.argument(depth)?),
            "seq" => Type::Seq(self.argument(depth)?),
            "map" => Type::Map(self.argument(depth)?, self.argument(depth)?),
            word => match Number::named(word) {
                Some(number) => Type::Number(number),
                None => return self.malformed("the type before is not known"),
            },
        };
        Ok(self.push(kind))
    }

    fn argument(&mut self, depth: u32) -> Parsed<TypeId> {
        self.expect(' ', "a blank and a type are expected")?;
        self.kind(depth + 1)
    }

    fn definition(&mut self, name: &str, opening: char, depth: u32) -> Parsed<TypeId> {
        let id = self.push(Type::Pending);
        self.named.push(id);
        self.types[id] = if opening == '[' {
            self.eat('[');
            Type::Enum { name: name.into(), variants: self.variants(depth)? }
        } else {
            Type::Struct { name: name.into(), body: self.body(depth)? }
        };
        Ok(id)
    }

    fn body(&mut self, depth: u32) -> Parsed<Body> {
        if self.eat('(') {
            return Ok(Body::Items(self.items(depth)?));
        }
        self.expect('{', "'(' or '{' is expected")?;
        let mut fields: Vec<Field> = Vec::new();
        while !self.eat('}') {
            if !fields.is_empty() {
                self.expect(',', "',' or '}' is expected")?;
            }
            let name = self.word()?;
            if fields.iter().any(|field| field.name == name) {
                return self.malformed("a field occurs twice");
            }
            self.expect(':', "':' is expected")?;
            let kind = self.kind(depth + 1)?;
            let default = if self.eat('=') { Some(self.hex()?) } else { None };
            fields.push(Field { name: name.into(), kind, default });
        }
        Ok(Body::Fields(fields))
    }

    fn variants(&mut self, depth: u32) -> Parsed<Vec<Variant>> {
        let mut variants: Vec<Variant> = Vec::new();
        while !self.eat(']') {
            if !variants.is_empty() {
                self.expect(',', "',' or ']' is expected")?;
            }
            let name = self.word()?;
            if variants.iter().any(|variant| variant.name == name) {
                return self.malformed("a variant occurs twice");
            }
            let has_body = self.rest().starts_with(['(', '{']);
            let body = if has_body { self.body(depth)? } else { Body::Items(Vec::new()) };
            variants.push(Variant { name: name.into(), body });
        }
        Ok(variants)
    }

    /// The rest of a list of items, whose '(' has been read.
    fn items(&mut self, depth: u32) -> Parsed<Items> {
        let mut items = Items::new();
        let mut first = true;
        while !self.eat(')') {
            if !std::mem::take(&mut first) {
                self.expect(',', "',' or ')' is expected")?;
            }
            let kind = self.kind(depth + 1)?;
            let count = if self.eat('*') { self.number()? } else { 1 };
            match items.last_mut() {
                Some((before, last)) if *last == kind => match before.checked_add(count) {
                    Some(sum) => *before = sum,
                    None => return self.malformed("there are too many items"),
                },
                _ => items.push((count, kind)),
            }
        }
        Ok(items)
    }

    fn hex(&mut self) -> Parsed<Vec<u8>> {
        let rest = self.rest();
        let digits = &rest[..rest.find(|c: char| !matches!(c, '0'..='9' | 'a'..='f')).unwrap_or(rest.len())];
        if !digits.len().is_multiple_of(2) {
            return self.malformed("a default has an odd number of digits");
        }
        self.at += digits.len();
        let digit = |byte: u8| if byte.is_ascii_digit() { byte - b'0' } else { byte - b'a' + 10 };
        Ok(digits.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect())
    }
}
