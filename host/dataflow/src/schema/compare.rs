//! Whether values of one schema can become values of another, and how.

use std::collections::BTreeMap;

use super::TYPE_DEPTH_MAX;
use super::number::Number;
use super::plan::{Part, Parts, Plan, Step, StepId};
use super::types::{Body, Field, Form, Items, Schema, Shape, Type, TypeId, Variant};
use super::value::{Value, decode_as};
use super::wire::Codec;

/// Pairs of types that are compared before it is given up: schemas that refer to themselves can have very many.
const STEPS_MAX: usize = 1 << 13;
/// Reasons that are told.
const MISMATCHES_MAX: usize = 64;

/// What the comparison of two schemas says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Values of one are values of the other.
    Same,
    /// Values of the old one can be brought to the new one.
    Compatible(Plan),
    /// They cannot. There is at least one reason.
    Incompatible(Vec<Mismatch>),
}

/// A place where two schemas cannot be brought together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// From the root, such as `Totals.last`.
    pub path: String,
    /// What is wrong there.
    pub why: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.why)
    }
}

/// Compares the texts of two schemas of values in one codec. Equal texts are the same, whatever they say; a text that is
/// empty says nothing and fits everything.
pub fn compare(codec: &str, old: &str, new: &str) -> Verdict {
    if old == new || old.is_empty() || new.is_empty() {
        return Verdict::Same;
    }
    let refused = |why: String| Verdict::Incompatible(vec![Mismatch { path: "the value".into(), why }]);
    let (was, is) = match (Schema::parse(old), Schema::parse(new)) {
        (Ok(was), Ok(is)) => (was, is),
        (Err(error), _) => return refused(format!("its schema has changed, and the old one cannot be read: {error}")),
        (_, Err(error)) => return refused(format!("its schema has changed, and the new one cannot be read: {error}")),
    };
    match (&was.form, &is.form) {
        (Form::Shape(was), Form::Shape(is)) => match Codec::named(codec) {
            Some(codec) => compare_shapes(codec, was, is),
            None => refused(format!("its schema has changed, and values in the codec {codec:?} cannot be migrated")),
        },
        (Form::Digest(_), _) | (_, Form::Digest(_)) => refused("its schema has changed, and is too large to tell how".into()),
        (Form::Opaque(was), Form::Opaque(is)) => refused(format!("was {} and is {}", cut(was), cut(is))),
        (Form::Opaque(name), _) | (_, Form::Opaque(name)) => {
            refused(format!("its schema has changed, and of {} only the name is known", cut(name)))
        }
    }
}

fn cut(name: &str) -> String {
    name.chars().take(200).collect()
}

fn compare_shapes(codec: Codec, old: &Shape, new: &Shape) -> Verdict {
    let mut comparison = Comparison {
        codec,
        old,
        new,
        known: BTreeMap::new(),
        steps: Vec::new(),
        changes: Vec::new(),
        mismatches: Vec::new(),
        keeps_bytes: true,
        keys: 0,
        path: Vec::new(),
    };
    let root = comparison.pair(Side::New, old.root, new.root);
    let Comparison { steps, changes, mismatches, keeps_bytes, .. } = comparison;
    match (mismatches.is_empty(), changes.is_empty()) {
        (false, _) => Verdict::Incompatible(mismatches),
        (true, true) => Verdict::Same,
        (true, false) => Verdict::Compatible(Plan { steps, root, codec, changes, keeps_bytes }),
    }
}

/// What an old type is compared with: one of the new schema, or itself, to be read over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    New,
    /// One of the new schema that must be the same: the key of a map. In another form keys might be equal, or in another
    /// order.
    Key,
    Old,
}

struct Comparison<'a> {
    codec: Codec,
    old: &'a Shape,
    new: &'a Shape,
    /// The step of each pair that has been met. Those that refer to themselves are assumed to fit: if they do not, it
    /// shows elsewhere.
    known: BTreeMap<(Side, TypeId, TypeId), StepId>,
    steps: Vec<Step>,
    changes: Vec<String>,
    mismatches: Vec<Mismatch>,
    keeps_bytes: bool,
    /// How many keys of maps the comparison is in.
    keys: u32,
    path: Vec<String>,
}

impl<'a> Comparison<'a> {
    fn shape(&self, side: Side) -> &'a Shape {
        if side == Side::Old { self.old } else { self.new }
    }

    fn place(&self, more: &str) -> String {
        let mut place = self.path.concat();
        place.push_str(more);
        if place.is_empty() { "the value".into() } else { place.trim_start_matches('.').into() }
    }

    fn refuse(&mut self, more: &str, why: String) {
        let mismatch = Mismatch { path: self.place(more), why };
        if self.mismatches.len() < MISMATCHES_MAX && !self.mismatches.contains(&mismatch) {
            self.mismatches.push(mismatch);
        }
    }

    fn change(&mut self, more: &str, what: &str, keeps_bytes: bool) {
        if self.keys > 0 {
            return self.refuse(more, format!("{what}, but keys of a map must stay as they are"));
        }
        let change = format!("{} {what}", self.place(more));
        self.keeps_bytes &= keeps_bytes;
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    /// Compares a part, whose place is told below this one.
    fn below(&mut self, more: String, side: Side, was: TypeId, is: TypeId) -> StepId {
        self.path.push(more);
        let step = self.pair(side, was, is);
        self.path.pop();
        step
    }

    fn pair(&mut self, side: Side, was: TypeId, is: TypeId) -> StepId {
        if let Some(known) = self.known.get(&(side, was, is)) {
            return *known;
        }
        let id = self.steps.len();
        self.steps.push(Step::Pending);
        self.known.insert((side, was, is), id);
        if self.path.len() >= TYPE_DEPTH_MAX as usize || self.steps.len() >= STEPS_MAX {
            self.refuse("", "is too complex to compare".into());
            return id;
        }
        let step = self.step(side, was, is);
        self.steps[id] = step;
        id
    }

    fn step(&mut self, side: Side, was_id: TypeId, is_id: TypeId) -> Step {
        let (old, new) = (self.old, self.shape(side));
        let (was, is) = (&old.types[was_id], &new.types[is_id]);
        match (was, is) {
            (Type::Number(from), Type::Number(to)) if from.widens_to(*to) => {
                if from != to {
                    let keeps = self.codec == Codec::Postcard && keeps_varint(*from, *to);
                    self.change("", &format!("widened from {} to {}", from.name(), to.name()), keeps);
                }
                Step::Number { from: *from, to: *to }
            }
            (Type::Bool, Type::Bool) => Step::Bool,
            (Type::Char, Type::Char) => Step::Char,
            (Type::Str, Type::Str) => Step::Str,
            (Type::Bytes, Type::Bytes) => Step::Bytes,
            (Type::Option(was), Type::Option(is)) => Step::Option(self.below(String::new(), side, *was, *is)),
            (Type::Seq(was), Type::Seq(is)) => Step::Seq(self.below("[]".into(), side, *was, *is)),
            (Type::Map(was_key, was), Type::Map(is_key, is)) => {
                let key = self.key(side, *was_key, *is_key);
                Step::Map(key, self.below("{}".into(), side, *was, *is))
            }
            (Type::Tuple(was), Type::Tuple(is)) => Step::Parts(self.items(side, was, is)),
            (Type::Struct { name, body }, Type::Struct { name: new_name, body: new_body }) if name == new_name => {
                self.enter(name);
                let parts = self.body(side, body, new_body);
                self.path.pop();
                Step::Parts(parts)
            }
            (Type::Enum { name, variants }, Type::Enum { name: new_name, variants: new_variants }) if name == new_name => {
                self.enter(name);
                let step = self.variants(side, variants, new_variants);
                self.path.pop();
                step
            }
            (was, Type::Option(is)) if !matches!(was, Type::Option(_)) && self.codec == Codec::Postcard => {
                self.change("", "has become optional", false);
                Step::Some(self.below(String::new(), side, was_id, *is))
            }
            _ => {
                self.refuse("", format!("was {} and is {}", old.name(was_id), new.name(is_id)));
                Step::Pending
            }
        }
    }

    /// Enters a named type: its name is told at the root only, where there is no other.
    fn enter(&mut self, name: &str) {
        let is_root = self.path.iter().all(String::is_empty);
        self.path.push(if is_root { name.into() } else { String::new() });
    }

    fn key(&mut self, side: Side, was: TypeId, is: TypeId) -> StepId {
        self.keys += 1;
        let step = self.below("{key}".into(), if side == Side::Old { Side::Old } else { Side::Key }, was, is);
        self.keys -= 1;
        step
    }

    fn items(&mut self, side: Side, was: &Items, is: &Items) -> Parts {
        let count = |items: &Items| items.iter().map(|(count, _)| u64::from(*count)).sum::<u64>();
        if count(was) != count(is) {
            self.refuse("", format!("had {} items and has {}", count(was), count(is)));
            return Parts::default();
        }
        let mut parts = Vec::new();
        let (mut was, mut is) = (was.iter().copied().filter(|run| run.0 > 0), is.iter().copied().filter(|run| run.0 > 0));
        let (mut old, mut new) = (was.next(), is.next());
        let mut at = 0u64;
        while let (Some((old_count, old_kind)), Some((new_count, new_kind))) = (old, new) {
            let both = old_count.min(new_count);
            let step = self.below(format!(".{at}"), side, old_kind, new_kind);
            parts.push(Part::Keep(both, step));
            at += u64::from(both);
            old = if old_count > both { Some((old_count - both, old_kind)) } else { was.next() };
            new = if new_count > both { Some((new_count - both, new_kind)) } else { is.next() };
        }
        Parts { parts, order: None }
    }

    fn body(&mut self, side: Side, was: &Body, is: &Body) -> Parts {
        match (was, is) {
            (Body::Items(was), Body::Items(is)) => self.items(side, was, is),
            (Body::Fields(was), Body::Fields(is)) => self.fields(side, was, is),
            _ => {
                self.refuse("", "had fields with names where it has none, or the other way round".into());
                Parts::default()
            }
        }
    }

    fn fields(&mut self, side: Side, was: &[Field], is: &[Field]) -> Parts {
        let mut parts = Vec::new();
        // The names of what is written, in the order of `parts`.
        let mut written = Vec::new();
        for field in was {
            let place = format!(".{}", field.name);
            match is.iter().find(|new| new.name == field.name) {
                Some(new) => {
                    parts.push(Part::Keep(1, self.below(place, side, field.kind, new.kind)));
                    written.push(&field.name);
                }
                None => {
                    self.change(&place, "removed", false);
                    parts.push(Part::Drop(self.below(place, Side::Old, field.kind, field.kind)));
                }
            }
        }
        for field in is.iter().filter(|new| was.iter().all(|old| old.name != new.name)) {
            let place = format!(".{}", field.name);
            match &field.default {
                None => self.refuse(&place, "is new and has no default".into()),
                Some(default) => {
                    let shape = self.shape(side);
                    match decode_as(shape, field.kind, self.codec, default) {
                        Ok(value) => self.change(&place, &format!("added with the default {}", Shown(&value)), false),
                        Err(error) => self.refuse(&place, format!("is new and its default is damaged: {error}")),
                    }
                    parts.push(Part::Add(default.clone()));
                    written.push(&field.name);
                }
            }
        }
        let order: Vec<_> = is.iter().filter_map(|new| written.iter().position(|name| **name == new.name)).collect();
        let in_order = order.is_sorted();
        let kept = |fields: &[Field], others: &[Field]| -> Vec<String> {
            let known = fields.iter().filter(|field| others.iter().any(|other| other.name == field.name));
            known.map(|field| field.name.clone()).collect()
        };
        if kept(was, is) != kept(is, was) {
            self.change("", "has its fields in another order", false);
        }
        Parts { parts, order: (!in_order).then_some(order) }
    }

    fn variants(&mut self, side: Side, was: &[Variant], is: &[Variant]) -> Step {
        let mut steps = Vec::new();
        let mut moved = false;
        for (index, variant) in was.iter().enumerate() {
            let Some(new) = is.iter().position(|new| new.name == variant.name) else {
                self.refuse(&format!("::{}", variant.name), "the variant is gone, and stored values may have it".into());
                continue;
            };
            self.path.push(format!("::{}", variant.name));
            let parts = self.body(side, &variant.body, &is[new].body);
            self.path.pop();
            moved |= index != new;
            // A text has no more than 4096 bytes.
            steps.push((u32::try_from(new).unwrap_or(u32::MAX), parts));
        }
        for variant in is.iter().filter(|new| was.iter().all(|old| old.name != new.name)) {
            self.change(&format!("::{}", variant.name), "added", true);
        }
        if moved {
            self.change("", "has its variants at other places", false);
        }
        Step::Enum(steps)
    }
}

/// Whether a wider number has the same bytes: varints do, single bytes are no varints.
fn keeps_varint(from: Number, to: Number) -> bool {
    use Number::{Signed, Unsigned};
    matches!((from, to), (Unsigned(from), Unsigned(_)) | (Signed(from), Signed(_)) if from > 8)
}

/// A default in a message.
struct Shown<'a>(&'a Value);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Signed(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Text(text) => write!(f, "{:?}", cut(text)),
            Value::Bytes(bytes) => write!(f, "of {} bytes", bytes.len()),
            Value::List(items) if items.is_empty() => f.write_str("[]"),
            Value::Map(pairs) if pairs.is_empty() => f.write_str("{}"),
            _ => f.write_str("of the type"),
        }
    }
}
