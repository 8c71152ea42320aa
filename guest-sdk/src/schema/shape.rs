//! What a trace has found out so far, and its text.

use std::fmt::Write;

/// What a value looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Not seen yet.
    Unknown,
    /// What has no parts, by the name that schemas use.
    Leaf(&'static str),
    Option(Box<Shape>),
    Seq(Box<Shape>),
    Map(Box<(Shape, Shape)>),
    Tuple(Vec<Shape>),
    /// A struct or an enum, by its index.
    Named(usize),
}

/// What a struct or a variant holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Items(Vec<Shape>),
    Fields(Vec<Field>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) default: Option<Vec<u8>>,
}

/// A struct or an enum. A struct is like an enum with one variant.
pub(super) struct Named {
    /// Tells types apart that have the same name.
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    pub(super) is_enum: bool,
    pub(super) variants: Vec<Variant>,
    /// The variant that was seen first: its values are finite.
    pub(super) finite: Option<usize>,
}

pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) body: Option<Body>,
    /// It needs a value of a type that none can be made of yet.
    pub(super) postponed: bool,
}

impl Shape {
    /// Whether nothing of it is unknown; named types aside.
    pub(super) fn is_known(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::Leaf(_) | Self::Named(_) => true,
            Self::Option(inner) | Self::Seq(inner) => inner.is_known(),
            Self::Map(pair) => pair.0.is_known() && pair.1.is_known(),
            Self::Tuple(items) => items.iter().all(Self::is_known),
        }
    }

    /// Calls `visit` with the index of each named type in it.
    pub(super) fn each_named(&self, visit: &mut dyn FnMut(usize)) {
        match self {
            Self::Unknown | Self::Leaf(_) => {}
            Self::Named(index) => visit(*index),
            Self::Option(inner) | Self::Seq(inner) => inner.each_named(visit),
            Self::Map(pair) => {
                pair.0.each_named(visit);
                pair.1.each_named(visit);
            }
            Self::Tuple(items) => items.iter().for_each(|item| item.each_named(visit)),
        }
    }
}

impl Body {
    pub(super) fn shapes(&self) -> Vec<&Shape> {
        match self {
            Self::Items(items) => items.iter().collect(),
            Self::Fields(fields) => fields.iter().map(|field| &field.shape).collect(),
        }
    }
}

/// Writes the text of a schema.
pub(super) struct Text<'a> {
    pub(super) types: &'a [Named],
    /// Those that have been written, in their order.
    pub(super) written: Vec<usize>,
    pub(super) out: String,
}

impl Text<'_> {
    /// Returns `None` if something is not known.
    pub(super) fn shape(&mut self, shape: &Shape) -> Option<()> {
        match shape {
            Shape::Unknown => return None,
            Shape::Leaf(name) => self.out.push_str(name),
            Shape::Option(inner) => {
                self.out.push_str("opt ");
                self.shape(inner)?;
            }
            Shape::Seq(inner) => {
                self.out.push_str("seq ");
                self.shape(inner)?;
            }
            Shape::Map(pair) => {
                self.out.push_str("map ");
                self.shape(&pair.0)?;
                self.out.push(' ');
                self.shape(&pair.1)?;
            }
            Shape::Tuple(items) => self.items(items)?,
            Shape::Named(index) => self.named(*index)?,
        }
        Some(())
    }

    fn named(&mut self, index: usize) -> Option<()> {
        if let Some(position) = self.written.iter().position(|written| *written == index) {
            // Writing to a string cannot fail; so below.
            let _ = write!(self.out, "@{position}");
            return Some(());
        }
        self.written.push(index);
        let types = self.types;
        let named = types.get(index)?;
        self.name(named.name);
        if !named.is_enum {
            return self.body(named.variants.first()?.body.as_ref()?);
        }
        self.out.push('[');
        for (index, variant) in named.variants.iter().enumerate() {
            self.comma(index);
            self.name(variant.name);
            let body = variant.body.as_ref()?;
            if *body != Body::Items(Vec::new()) {
                self.body(body)?;
            }
        }
        self.out.push(']');
        Some(())
    }

    fn body(&mut self, body: &Body) -> Option<()> {
        let fields = match body {
            Body::Items(items) => return self.items(items),
            Body::Fields(fields) => fields,
        };
        self.out.push('{');
        for (index, field) in fields.iter().enumerate() {
            self.comma(index);
            self.name(field.name);
            self.out.push(':');
            self.shape(&field.shape)?;
            if let Some(default) = &field.default {
                self.out.push('=');
                default.iter().for_each(|byte| {
                    let _ = write!(self.out, "{byte:02x}");
                });
            }
        }
        self.out.push('}');
        Some(())
    }

    /// Neighbours that are alike are written once.
    fn items(&mut self, items: &[Shape]) -> Option<()> {
        self.out.push('(');
        for (index, run) in items.chunk_by(|a, b| a == b).enumerate() {
            self.comma(index);
            self.shape(run.first()?)?;
            if run.len() > 1 {
                let _ = write!(self.out, "*{}", run.len());
            }
        }
        self.out.push(')');
        Some(())
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.out.push(',');
        }
    }

    /// Names may have been changed to anything: what the language uses is written as `%` and two digits for each byte.
    fn name(&mut self, name: &str) {
        if name.is_empty() {
            self.out.push('%');
        }
        for c in name.chars() {
            if c.is_alphanumeric() || matches!(c, '_' | '-' | '.') {
                self.out.push(c);
            } else {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| {
                    let _ = write!(self.out, "%{byte:02x}");
                });
            }
        }
    }
}
