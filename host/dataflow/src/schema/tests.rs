//! Random schemas and values against a model that knows names only, the language, the verdicts, and hostile bytes.

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use super::number::{Number, Scalar};
use super::types::{Body, Field, Form, Items, Shape, Type, TypeId, Variant};
use super::wire::{Codec, put_number, put_varint};
use super::*;

fn schema(text: &str) -> Schema {
    Schema::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn shape(text: &str) -> Shape {
    match schema(text).form {
        Form::Shape(shape) => shape,
        other => panic!("{other:?}"),
    }
}

fn plan(old: &str, new: &str) -> Plan {
    match compare("postcard", old, new) {
        Verdict::Compatible(plan) => plan,
        other => panic!("{old} to {new}: {other:?}"),
    }
}

fn mismatches(codec: &str, old: &str, new: &str) -> Vec<String> {
    match compare(codec, old, new) {
        Verdict::Incompatible(mismatches) => mismatches.iter().map(ToString::to_string).collect(),
        other => panic!("{old} to {new}: {other:?}"),
    }
}

fn transcode(plan: &Plan, bytes: &[u8]) -> Result<Vec<u8>, ValueError> {
    // What is in the buffer already stays.
    let mut out = b"before".to_vec();
    plan.transcode(bytes, &mut out)?;
    assert_eq!(&out[..6], b"before");
    Ok(out.split_off(6))
}

#[test]
fn the_text_of_a_schema_comes_back() {
    for text in [
        "1 u64",
        "1 opt seq map str (u8*32,f32)",
        "1 ()",
        "1 Totals{count:u64,sum:f64,last:opt str=00}",
        "1 Unit()",
        "1 Pair(u8,Other{x:@0,y:@1})",
        "1 Tree[Leaf,Node(@0*2),Named{left:opt @0=00,right:opt @0=}]",
        "1 ?HashMap<Key, (u8, \"x\")>",
        "1 #0123456789abcdef0123456789abcdef",
        "1 opt(u8)",
        "1 Größe{a%20b:char,c-d:bytes}",
    ] {
        assert_eq!(schema(text).to_string(), text);
    }
}

#[test]
fn a_text_that_breaks_the_grammar_is_refused_with_its_place() {
    for (text, at) in [
        ("1 ", 2),
        ("1 u63", 5),
        ("1 u64 ", 5),
        ("1 opt", 5),
        ("1 opt  u8", 6),
        ("1 A{a:u8,a:u8}", 10),
        ("1 A{a:u8,}", 9),
        ("1 A{a:u8=0}", 9),
        ("1 A{a:u8=0g}", 9),
        ("1 A[B,B]", 7),
        ("1 (u8*4294967296)", 6),
        ("1 (u8*01)", 6),
        ("1 (u8*4294967295,u8)", 19),
        ("1 @0", 4),
        ("1 #12", 3),
    ] {
        assert!(
            matches!(Schema::parse(text), Err(SchemaError::Malformed { at: found, .. }) if found == at),
            "{text}: {:?}",
            Schema::parse(text)
        );
    }
    assert_eq!(Schema::parse("2 u64"), Err(SchemaError::Version));
    assert_eq!(Schema::parse("u64"), Err(SchemaError::Version));
    assert_eq!(Schema::parse(&format!("1 ?{}", "x".repeat(4094))), Err(SchemaError::Long(4097)));
    let deep = format!("1 {}u8", "opt ".repeat(200));
    assert!(Schema::parse(&deep).unwrap_err().to_string().contains("too deep"));
}

#[test]
fn added_removed_and_moved_fields_are_compatible() {
    let plan = plan("1 T{a:u8,gone:str,b:u64}", "1 T{b:u64,new:opt u8=00,a:u8,list:seq u8=020105}");
    assert_eq!(
        plan.changes(),
        [
            "T.gone removed",
            "T.new added with the default null",
            "T.list added with the default of the type",
            "T has its fields in another order"
        ]
    );
    assert!(!plan.keeps_bytes());
    assert_eq!(transcode(&plan, &[7, 2, b'h', b'i', 0x80, 1]), Ok(vec![0x80, 1, 0, 7, 2, 1, 5]));
    assert_eq!(transcode(&plan, &[7, 2, b'h']), Err(ValueError::Short));
    assert_eq!(transcode(&plan, &[7, 0, 0, 0]), Err(ValueError::Trailing(1)));
}

#[test]
fn what_cannot_be_migrated_is_named_with_its_place() {
    for (old, new, expected) in [
        ("1 T{total:u64}", "1 T{total:str}", "T.total: was u64 and is str"),
        ("1 T{total:u64}", "1 T{total:u32}", "T.total: was u64 and is u32"),
        ("1 T{total:i64}", "1 T{total:u64}", "T.total: was i64 and is u64"),
        ("1 T{a:u8}", "1 T{a:u8,b:u8}", "T.b: is new and has no default"),
        ("1 T{a:u8}", "1 T{b:u8}", "T.b: is new and has no default"),
        (
            "1 T{a:u8}",
            "1 T{a:u8,b:bool=02}",
            "T.b: is new and its default is damaged: the value does not follow its schema: a byte is neither 0 nor 1",
        ),
        ("1 T{a:u8}", "1 U{a:u8}", "the value: was T and is U"),
        ("1 opt u8", "1 u8", "the value: was opt u8 and is u8"),
        ("1 E[A,B(u8)]", "1 E[A]", "E::B: the variant is gone, and stored values may have it"),
        ("1 E[A{x:u8}]", "1 E[A{x:i8}]", "E::A.x: was u8 and is i8"),
        ("1 (u8*3)", "1 (u8*4)", "the value: had 3 items and has 4"),
        ("1 seq T{a:u8}", "1 seq T{a:bool}", "[].a: was u8 and is bool"),
        ("1 map u8 u8", "1 map u16 u8", "{key}: widened from u8 to u16, but keys of a map must stay as they are"),
        ("1 ?A", "1 ?B", "the value: was A and is B"),
        ("1 ?A", "1 u8", "the value: its schema has changed, and of A only the name is known"),
        ("u64", "1 u64", "the value: its schema has changed, and the old one cannot be read: the schema's version is not 1"),
    ] {
        assert_eq!(mismatches("postcard", old, new), [expected], "{old} to {new}");
    }
    assert_eq!(mismatches("postcard", "1 T{a:u8,b:str}", "1 T{a:bool,b:u8}").len(), 2, "all reasons are told");
    assert!(mismatches("json", "1 u8", "1 u16")[0].contains("cannot be migrated"));
    // The same change of a type that is a key elsewhere is found there, too.
    assert_eq!(mismatches("postcard", "1 T{a:K(u8),m:map @1 u8}", "1 T{a:K(u16),m:map @1 u8}").len(), 1);
}

#[test]
fn equal_texts_are_the_same_whatever_they_say() {
    let digest = "1 #0123456789abcdef0123456789abcdef";
    for text in ["", "u64", "1 ?A", digest, "1 u8"] {
        assert_eq!(compare("json", text, text), Verdict::Same);
        assert_eq!(compare("json", text, ""), Verdict::Same);
    }
    // Another default concerns nobody who has the field.
    assert_eq!(compare("postcard", "1 T{a:u8=00}", "1 T{a:u8=01}"), Verdict::Same);
    assert_eq!(compare("postcard", "1 T{a:A(u8),b:A(u8)}", "1 T{a:A(u8),b:@1}"), Verdict::Same);
    assert!(mismatches("postcard", digest, "1 u8")[0].contains("too large"));
}

#[test]
fn numbers_widen_in_either_codec() {
    let wide = plan("1 (u8,i8,u16,f32,u32)", "1 (u32,i64,u128,f64,i64)");
    assert!(!wide.keeps_bytes());
    let mut expected = vec![0xc8, 1, 0xff, 1, 0x80, 2];
    expected.extend(1.5f64.to_le_bytes());
    expected.push(6);
    let mut old = vec![200, 0x80, 0x80, 2];
    old.extend(1.5f32.to_le_bytes());
    old.push(3);
    assert_eq!(transcode(&wide, &old), Ok(expected));
    assert!(plan("1 (u16,i32)", "1 (u64,i64)").keeps_bytes(), "varints are as long as their value is large");
    let Verdict::Compatible(fixed) = compare("fixed", "1 (u8,i16*2)", "1 (i16,i32*2)") else { panic!() };
    assert_eq!(transcode(&fixed, &[200, 0xff, 0xff, 1, 0]), Ok(vec![200, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]));
}

#[test]
fn variants_may_be_added_and_moved() {
    let appended = plan("1 E[A,B(u8)]", "1 E[A,B(u8),C]");
    assert_eq!((appended.changes(), appended.keeps_bytes()), (&["E::C added".to_owned()][..], true));
    let moved = plan("1 E[A,B(u8)]", "1 E[C,B(u8),A]");
    assert!(!moved.keeps_bytes());
    assert_eq!(transcode(&moved, &[0]), Ok(vec![2]));
    assert_eq!(transcode(&moved, &[1, 9]), Ok(vec![1, 9]));
    assert_eq!(transcode(&moved, &[2]), Err(ValueError::Invalid("there is no such variant")));
}

#[test]
fn a_type_that_refers_to_itself_is_migrated_all_the_way_down() {
    let list = plan("1 List{value:u8,next:opt @0=00}", "1 List{value:u16,next:opt @0=00,mark:bool=01}");
    assert_eq!(transcode(&list, &[200, 1, 7, 0]), Ok(vec![0xc8, 1, 1, 7, 0, 1, 1]));
    let deep: Vec<u8> = std::iter::repeat_n([1u8, 1], 1000).flatten().chain([1, 0]).collect();
    assert_eq!(transcode(&list, &deep), Err(ValueError::Bound("nested too deep")));
    let endless = plan("1 A{b:opt @0,c:u8,d:B{e:@1}}", "1 A{b:opt @0,c:u16,d:B{e:@1}}");
    assert_eq!(transcode(&endless, &[0, 1]), Err(ValueError::Bound("nested too deep")));
}

#[test]
fn a_few_bytes_cannot_ask_for_endless_work() {
    let empty = plan("1 seq T{a:()}", "1 seq T{a:(),b:u8=00}");
    assert_eq!(transcode(&empty, &[0xff, 0xff, 0xff, 0xff, 0x0f]), Err(ValueError::Bound("too many parts for its size")));
    let wide = plan("1 ((()*4294967295)*4294967295,u8)", "1 ((()*4294967295)*4294967295,u16)");
    assert_eq!(transcode(&wide, &[1]), Err(ValueError::Bound("too many parts for its size")));
    // Two cycles whose lengths have no common factor meet in very many pairs.
    let cycle = |count: usize| {
        let opening: String =
            (0..count).map(|index| format!("A{{a:opt {}", if index + 1 == count { "@0" } else { "" })).collect();
        format!("1 {opening}{}", "}".repeat(count))
    };
    assert!(matches!(compare("postcard", &cycle(59), &cycle(61)), Verdict::Same | Verdict::Incompatible(_)));
}

#[test]
fn a_value_is_shown_without_its_types() {
    let bytes = [2, b'h', b'i', 1, 5, 1, 1, 0, 3, 0xfe, 0xff, 3, 1, 9];
    let text = "1 T{a:str,b:opt u8,c:seq E[A,B],d:bytes,e:N(u8)}";
    let value = decode(&schema(text), "postcard", &bytes[..12].iter().copied().chain([9]).collect::<Vec<_>>());
    let field = |name: &str, value: Value| (name.to_owned(), value);
    let expected = Value::Fields(vec![
        field("a", Value::Text("hi".into())),
        field("b", Value::Unsigned(5)),
        field("c", Value::List(vec![Value::Text("B".into())])),
        field("d", Value::Bytes(vec![])),
        field("e", Value::Unsigned(3)),
    ]);
    assert!(value.is_err(), "bytes follow");
    assert_eq!(decode(&schema(text), "postcard", &[2, b'h', b'i', 1, 5, 1, 1, 0, 3]), Ok(expected));
    assert_eq!(decode(&schema("1 str"), "raw", b"hi"), Ok(Value::Text("hi".into())));
    assert_eq!(
        decode(&schema("1 (u16,i8)"), "fixed", &[1, 1, 255]),
        Ok(Value::List(vec![Value::Unsigned(257), Value::Signed(-1)]))
    );
    assert_eq!(decode(&schema("1 str"), "fixed", b"hi"), Err(ValueError::Invalid("the codec has no lists, text or variants")));
    assert_eq!(decode(&schema("1 ?T"), "postcard", b""), Err(ValueError::Opaque));
    assert_eq!(decode(&schema("1 u8"), "json", b"1"), Err(ValueError::Opaque));
}

// Random schemas, random changes of them, random values.

/// Makes schemas and values.
struct Maker(TestRng);

impl Maker {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end as u64).unwrap()
    }

    fn number(&mut self) -> Number {
        let names = ["u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64"];
        Number::named(names[self.below(12)]).unwrap()
    }

    fn kind(&mut self, types: &mut Vec<Type>, depth: usize) -> TypeId {
        let choice = if depth > 3 { self.below(6) } else { self.below(13) };
        let kind = match choice {
            0 => Type::Bool,
            1 => Type::Char,
            2 => Type::Str,
            3 => Type::Bytes,
            4 | 5 => Type::Number(self.number()),
            6 => Type::Option(self.kind(types, depth + 1)),
            7 => Type::Seq(self.kind(types, depth + 1)),
            8 => Type::Map(self.kind(types, depth + 1), self.kind(types, depth + 1)),
            9 => Type::Tuple(self.items(types, depth)),
            10 | 11 => {
                let id = types.len();
                types.push(Type::Pending);
                types[id] = Type::Struct { name: format!("S{id}"), body: self.body(types, depth) };
                return id;
            }
            _ => {
                let id = types.len();
                types.push(Type::Pending);
                // The first variant ends all recursion.
                let mut variants = vec![Variant { name: "End".into(), body: Body::Items(vec![]) }];
                for index in 0..self.below(3) {
                    variants.push(Variant { name: format!("V{index}"), body: self.body(types, depth) });
                }
                // A type may hold itself, behind a choice.
                if self.below(2) == 0 {
                    variants.push(Variant { name: "Again".into(), body: Body::Items(vec![(1, id)]) });
                }
                types[id] = Type::Enum { name: format!("E{id}"), variants };
                return id;
            }
        };
        types.push(kind);
        types.len() - 1
    }

    fn items(&mut self, types: &mut Vec<Type>, depth: usize) -> Items {
        (0..self.below(4)).map(|_| (u32::try_from(1 + self.below(3)).unwrap(), self.kind(types, depth + 1))).collect()
    }

    fn body(&mut self, types: &mut Vec<Type>, depth: usize) -> Body {
        if self.below(3) == 0 {
            return Body::Items(self.items(types, depth));
        }
        let field = |index| Field { name: format!("f{index}"), kind: 0, default: None };
        let mut fields: Vec<_> = (0..self.below(4)).map(field).collect();
        for field in &mut fields {
            field.kind = self.kind(types, depth + 1);
        }
        Body::Fields(fields)
    }

    /// Returns a changed schema that the old one is compatible with. Keys of maps, which may not change, are left alone.
    fn changed(&mut self, old: &Shape) -> Shape {
        let mut new = old.clone();
        let mut keys = Vec::new();
        for kind in &old.types {
            if let Type::Map(key, _) = kind {
                reached(old, *key, &mut keys);
            }
        }
        for id in 0..old.types.len() {
            if !keys.contains(&id) {
                self.change_type(&mut new, id);
            }
        }
        new
    }

    fn change_type(&mut self, new: &mut Shape, id: TypeId) {
        let mut kind = std::mem::replace(&mut new.types[id], Type::Pending);
        match &mut kind {
            Type::Number(number) => loop {
                let wider = self.number();
                if number.widens_to(wider) {
                    break *number = wider;
                }
            },
            Type::Struct { body, .. } => self.change_body(new, body),
            Type::Enum { variants, .. } => {
                variants.iter_mut().for_each(|variant| self.change_body(new, &mut variant.body));
                if self.below(2) == 0 {
                    let at = self.below(variants.len() + 1);
                    variants.insert(at, Variant { name: "New".into(), body: Body::Items(vec![]) });
                }
            }
            _ => {}
        }
        new.types[id] = kind;
    }

    fn change_body(&mut self, new: &mut Shape, body: &mut Body) {
        let Body::Fields(fields) = body else { return };
        if !fields.is_empty() && self.below(3) == 0 {
            fields.remove(self.below(fields.len()));
        }
        if self.below(3) == 0 {
            new.types.push(Type::Number(Number::Unsigned(32)));
            let added = Field { name: "added".into(), kind: new.types.len() - 1, default: Some(vec![0x80, 3]) };
            fields.insert(self.below(fields.len() + 1), added);
        }
        if fields.len() > 1 && self.below(3) == 0 {
            let (a, b) = (self.below(fields.len()), self.below(fields.len()));
            fields.swap(a, b);
        }
    }

    /// Returns a value; deeper ones are smaller.
    fn value(&mut self, shape: &Shape, id: TypeId, depth: usize) -> Value {
        let count = if depth > 6 { 0 } else { self.below(3) };
        match &shape.types[id] {
            Type::Number(Number::Unsigned(bits)) => Value::Unsigned(self.bits(*bits)),
            Type::Number(Number::Signed(bits)) => Value::Signed((self.bits(*bits) << (128 - bits)).cast_signed() >> (128 - bits)),
            // Exact in either width.
            Type::Number(Number::Float(_)) => Value::Float(self.below(1 << 20) as f64 / 8.0),
            Type::Bool => Value::Bool(self.below(2) == 1),
            Type::Char => Value::Text(['a', 'ä', '\u{1f600}'][self.below(3)].into()),
            Type::Str => Value::Text("äb".repeat(self.below(100))),
            Type::Bytes => Value::Bytes(vec![7; self.below(200)]),
            // A value that is there is a list of one, to be told from an empty one within it.
            Type::Option(_) if count == 0 => Value::List(vec![]),
            Type::Option(inner) => Value::List(vec![self.value(shape, *inner, depth + 1)]),
            Type::Seq(inner) => Value::List((0..count).map(|_| self.value(shape, *inner, depth + 1)).collect()),
            Type::Map(key, value) => Value::Map(
                (0..count).map(|_| (self.value(shape, *key, depth + 1), self.value(shape, *value, depth + 1))).collect(),
            ),
            Type::Tuple(items) => self.values(shape, &Body::Items(items.clone()), depth),
            Type::Struct { body, .. } => self.values(shape, body, depth),
            Type::Enum { variants, .. } => {
                let variant = &variants[if depth > 6 { 0 } else { self.below(variants.len()) }];
                Value::Fields(vec![(variant.name.clone(), self.values(shape, &variant.body, depth))])
            }
            Type::Pending => panic!(),
        }
    }

    fn bits(&mut self, bits: u32) -> u128 {
        let all = u128::from(self.0.next_u64()) << 64 | u128::from(self.0.next_u64());
        all >> (128 - bits) >> self.below(bits as usize)
    }

    fn values(&mut self, shape: &Shape, body: &Body, depth: usize) -> Value {
        match body {
            Body::Items(items) => {
                let kinds = items.iter().flat_map(|(count, kind)| std::iter::repeat_n(*kind, *count as usize));
                Value::List(kinds.map(|kind| self.value(shape, kind, depth + 1)).collect())
            }
            Body::Fields(fields) => {
                Value::Fields(fields.iter().map(|field| (field.name.clone(), self.value(shape, field.kind, depth + 1))).collect())
            }
        }
    }
}

fn reached(shape: &Shape, id: TypeId, all: &mut Vec<TypeId>) {
    if all.contains(&id) {
        return;
    }
    all.push(id);
    let of_body = |body: &Body| -> Vec<TypeId> {
        match body {
            Body::Items(items) => items.iter().map(|(_, kind)| *kind).collect(),
            Body::Fields(fields) => fields.iter().map(|field| field.kind).collect(),
        }
    };
    let next = match &shape.types[id] {
        Type::Option(inner) | Type::Seq(inner) => vec![*inner],
        Type::Map(key, value) => vec![*key, *value],
        Type::Tuple(items) => of_body(&Body::Items(items.clone())),
        Type::Struct { body, .. } => of_body(body),
        Type::Enum { variants, .. } => variants.iter().flat_map(|variant| of_body(&variant.body)).collect(),
        _ => vec![],
    };
    next.into_iter().for_each(|id| reached(shape, id, all));
}

/// The model: writes a value as a type says that has its names, whatever the type it was made for.
#[expect(clippy::cast_possible_truncation, reason = "the numbers made here are exact in 32 bits")]
fn encode(shape: &Shape, id: TypeId, value: &Value, out: &mut Vec<u8>) {
    match (&shape.types[id], value) {
        (Type::Number(kind), Value::Unsigned(value)) => {
            put_number(out, Codec::Postcard, Scalar::Unsigned(*value), *kind).unwrap();
        }
        (Type::Number(kind), Value::Signed(value)) => put_number(out, Codec::Postcard, Scalar::Signed(*value), *kind).unwrap(),
        (Type::Number(Number::Float(32)), Value::Float(value)) => out.extend((*value as f32).to_le_bytes()),
        (Type::Number(_), Value::Float(value)) => out.extend(value.to_le_bytes()),
        (Type::Bool, Value::Bool(value)) => out.push((*value).into()),
        (_, Value::Text(text)) => {
            put_varint(out, text.len() as u128);
            out.extend(text.bytes());
        }
        (_, Value::Bytes(bytes)) => {
            put_varint(out, bytes.len() as u128);
            out.extend(bytes);
        }
        (Type::Option(inner) | Type::Seq(inner), Value::List(items)) => {
            put_varint(out, items.len() as u128);
            items.iter().for_each(|item| encode(shape, *inner, item, out));
        }
        (Type::Map(key, value), Value::Map(pairs)) => {
            put_varint(out, pairs.len() as u128);
            for (k, v) in pairs {
                encode(shape, *key, k, out);
                encode(shape, *value, v, out);
            }
        }
        (Type::Tuple(items), value) => encode_body(shape, &Body::Items(items.clone()), value, out),
        (Type::Struct { body, .. }, value) => encode_body(shape, body, value, out),
        (Type::Enum { variants, .. }, Value::Fields(content)) => {
            let index = variants.iter().position(|variant| variant.name == content[0].0).unwrap();
            put_varint(out, index as u128);
            encode_body(shape, &variants[index].body, &content[0].1, out);
        }
        other => panic!("{other:?}"),
    }
}

fn encode_body(shape: &Shape, body: &Body, value: &Value, out: &mut Vec<u8>) {
    match (body, value) {
        (Body::Items(items), Value::List(values)) => {
            let kinds = items.iter().flat_map(|(count, kind)| std::iter::repeat_n(*kind, *count as usize));
            kinds.zip(values).for_each(|(kind, value)| encode(shape, kind, value, out));
        }
        (Body::Fields(fields), Value::Fields(values)) => {
            for field in fields {
                match values.iter().find(|(name, _)| *name == field.name) {
                    Some((_, value)) => encode(shape, field.kind, value, out),
                    None => out.extend(field.default.as_ref().unwrap()),
                }
            }
        }
        other => panic!("{other:?}"),
    }
}

fn made(rng: TestRng) -> (Maker, Shape) {
    let mut maker = Maker(rng);
    let mut types = Vec::new();
    let root = maker.kind(&mut types, 0);
    (maker, Shape { types, root })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_value_of_the_old_schema_becomes_the_value_of_the_new_one_with_its_names(rng in any::<u64>().prop_perturb(|_, rng| rng)) {
        let (mut maker, old) = made(rng);
        let new = maker.changed(&old);
        let text = |shape: &Shape| Schema { form: Form::Shape(shape.clone()) }.to_string();
        let (old_text, new_text) = (text(&old), text(&new));
        prop_assume!(old_text.len() <= TEXT_BYTES_MAX && new_text.len() <= TEXT_BYTES_MAX);
        let again = schema(&old_text).to_string();
        prop_assert_eq!(schema(&again).to_string(), again, "the text comes back");
        let value = maker.value(&old, old.root, 0);
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        encode(&old, old.root, &value, &mut bytes);
        encode(&new, new.root, &value, &mut expected);
        prop_assert!(decode(&schema(&old_text), "postcard", &bytes).is_ok());
        prop_assert!(decode(&schema(&new_text), "postcard", &expected).is_ok());
        match compare("postcard", &old_text, &new_text) {
            Verdict::Same => prop_assert_eq!(bytes, expected),
            Verdict::Compatible(plan) => {
                prop_assert!(!plan.keeps_bytes() || bytes == expected);
                prop_assert_eq!(transcode(&plan, &bytes).unwrap(), expected, "{} to {}", old_text, new_text);
                for length in 0..bytes.len() {
                    prop_assert!(transcode(&plan, &bytes[..length]).is_err());
                }
            }
            Verdict::Incompatible(mismatches) => prop_assert!(false, "{} to {}: {:?}", old_text, new_text, mismatches),
        }
    }

    #[test]
    fn any_bytes_are_refused_or_transcoded_without_a_panic(rng in any::<u64>().prop_perturb(|_, rng| rng), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut maker, old) = made(rng);
        let new = maker.changed(&old);
        let text = |shape: &Shape| Schema { form: Form::Shape(shape.clone()) }.to_string();
        if let Verdict::Compatible(plan) = compare("postcard", &text(&old), &text(&new)) {
            if let Ok(written) = transcode(&plan, &bytes) {
                prop_assert!(decode(&schema(&text(&new)), "postcard", &written).is_ok());
            }
            prop_assert_eq!(transcode(&plan, &bytes).is_ok(), decode(&schema(&text(&old)), "postcard", &bytes).is_ok());
        }
    }

    #[test]
    fn any_text_is_refused_or_comes_back(text in "1 [@AaBb01{}()\\[\\]:,=*optsequ8mapr ?]{0,60}") {
        if let Ok(parsed) = Schema::parse(&text) {
            // Runs of equal items are written as one.
            prop_assert_eq!(schema(&parsed.to_string()), parsed);
        }
    }
}

#[test]
fn shapes_of_texts_share_what_is_equal() {
    assert_eq!(shape("1 (u8,u8,u8*2)"), shape("1 (u8*4)"));
}
