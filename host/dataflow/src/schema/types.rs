//! A schema in memory: an arena of types, so that a type may refer to itself.

use super::number::Number;

/// An index into a schema's types.
pub(super) type TypeId = usize;

/// A parsed schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub(super) form: Form,
}

/// What is known of the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Their shape.
    Shape(Shape),
    /// The name of their type.
    Opaque(String),
    /// The hash of a text that was too long.
    Digest(String),
}

/// The shape of a value and of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) types: Vec<Type>,
    pub(super) root: TypeId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Number(Number),
    Bool,
    Char,
    Str,
    Bytes,
    Option(TypeId),
    Seq(TypeId),
    Map(TypeId, TypeId),
    Tuple(Items),
    Struct {
        name: String,
        body: Body,
    },
    Enum {
        name: String,
        variants: Vec<Variant>,
    },
    /// Stands where a definition is being read.
    Pending,
}

/// Runs of items: how many, of what. Equal neighbours are one run.
pub(super) type Items = Vec<(u32, TypeId)>;

/// What a struct or a variant holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Items(Items),
    Fields(Vec<Field>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: TypeId,
    /// The encoding of the value that stands for a missing one.
    pub(super) default: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) body: Body,
}
