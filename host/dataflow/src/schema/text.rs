//! From schema to text, and the names of types in messages.

use std::fmt::{self, Display, Formatter, Write};

use super::types::{Body, Form, Items, Schema, Shape, Type, TypeId};

impl Display for Schema {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.form {
            Form::Opaque(name) => write!(f, "1 ?{name}"),
            Form::Digest(hash) => write!(f, "1 #{hash}"),
            Form::Shape(shape) => {
                f.write_str("1 ")?;
                Writer { shape, named: Vec::new(), out: f }.kind(shape.root)
            }
        }
    }
}

impl Shape {
    /// Returns a short name of a type, for messages: its parts are left out.
    pub(super) fn name(&self, id: TypeId) -> String {
        match &self.types[id] {
            Type::Number(number) => number.name().into(),
            Type::Bool => "bool".into(),
            Type::Char => "char".into(),
            Type::Str => "str".into(),
            Type::Bytes => "bytes".into(),
            Type::Option(inner) => format!("opt {}", self.short(*inner)),
            Type::Seq(inner) => format!("seq {}", self.short(*inner)),
            Type::Map(key, value) => format!("map {} {}", self.short(*key), self.short(*value)),
            Type::Tuple(items) => match items.iter().map(|(count, _)| u64::from(*count)).sum() {
                0u64 => "()".into(),
                count => format!("a tuple of {count}"),
            },
            Type::Struct { name, .. } | Type::Enum { name, .. } => name.clone(),
            Type::Pending => "?".into(),
        }
    }

    /// As [`Self::name`], one level deep only.
    fn short(&self, id: TypeId) -> String {
        match &self.types[id] {
            Type::Option(_) => "opt ..".into(),
            Type::Seq(_) => "seq ..".into(),
            Type::Map(..) => "map ..".into(),
            _ => self.name(id),
        }
    }
}

struct Writer<'a, 'b> {
    shape: &'a Shape,
    named: Vec<TypeId>,
    out: &'a mut Formatter<'b>,
}

impl Writer<'_, '_> {
    fn kind(&mut self, id: TypeId) -> fmt::Result {
        let shape = self.shape;
        if let Some(index) = self.named.iter().position(|known| *known == id) {
            return write!(self.out, "@{index}");
        }
        match &shape.types[id] {
            Type::Option(inner) => self.prefixed("opt ", *inner),
            Type::Seq(inner) => self.prefixed("seq ", *inner),
            Type::Map(key, value) => {
                self.prefixed("map ", *key)?;
                self.prefixed(" ", *value)
            }
            Type::Tuple(items) => self.items(items),
            Type::Struct { name, body } => {
                self.named.push(id);
                self.out.write_str(name)?;
                self.body(body)
            }
            Type::Enum { name, variants } => {
                self.named.push(id);
                write!(self.out, "{name}[")?;
                for (index, variant) in variants.iter().enumerate() {
                    self.out.write_str(if index == 0 { "" } else { "," })?;
                    self.out.write_str(&variant.name)?;
                    if variant.body != Body::Items(Items::new()) {
                        self.body(&variant.body)?;
                    }
                }
                self.out.write_char(']')
            }
            _ => self.out.write_str(&shape.name(id)),
        }
    }

    fn prefixed(&mut self, prefix: &str, id: TypeId) -> fmt::Result {
        self.out.write_str(prefix)?;
        self.kind(id)
    }

    fn body(&mut self, body: &Body) -> fmt::Result {
        let fields = match body {
            Body::Items(items) => return self.items(items),
            Body::Fields(fields) => fields,
        };
        self.out.write_char('{')?;
        for (index, field) in fields.iter().enumerate() {
            self.out.write_str(if index == 0 { "" } else { "," })?;
            write!(self.out, "{}:", field.name)?;
            self.kind(field.kind)?;
            if let Some(default) = &field.default {
                self.out.write_char('=')?;
                default.iter().try_for_each(|byte| write!(self.out, "{byte:02x}"))?;
            }
        }
        self.out.write_char('}')
    }

    fn items(&mut self, items: &Items) -> fmt::Result {
        self.out.write_char('(')?;
        for (index, (count, kind)) in items.iter().enumerate() {
            self.out.write_str(if index == 0 { "" } else { "," })?;
            self.kind(*kind)?;
            if *count != 1 {
                write!(self.out, "*{count}")?;
            }
        }
        self.out.write_char(')')
    }
}
