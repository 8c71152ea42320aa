//! Types and the text that is found for them.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{hash, schema_of, short_name};
use crate::codec::{Fixed, Json, Postcard, Raw};

#[derive(Serialize, Deserialize)]
struct Totals {
    count: u64,
    sum: f64,
    last: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Wrap<T>(T);

#[derive(Serialize, Deserialize)]
struct Unit;

#[derive(Serialize, Deserialize)]
enum Shape {
    Dot,
    Circle(f64),
    Line(u8, u8, Wrap<u8>),
    Rect { w: f32, h: f32 },
}

#[derive(Serialize, Deserialize)]
enum Expr {
    Add(Box<Expr>, Box<Expr>),
    Not(Box<Wrap<Expr>>),
    Call { name: Token, arguments: Vec<Expr> },
    Number(i64),
}

#[derive(Serialize, Deserialize)]
enum Token {
    Nested(Box<Token>, Kind),
    Plain(Kind),
}

#[derive(Serialize, Deserialize)]
enum Kind {
    A,
    B,
}

#[derive(Serialize, Deserialize)]
struct Node {
    value: Kind,
    left: Option<Box<Node>>,
    more: BTreeMap<String, Node>,
    after: Kind,
}

/// Its recursion goes through an enum that cannot be made before its other variant has been seen.
#[derive(Serialize, Deserialize)]
struct Tree {
    kids: Kids,
}

#[derive(Serialize, Deserialize)]
enum Kids {
    Many(Box<Tree>, Kind),
    None,
}

fn seven() -> u16 {
    700
}

#[derive(Serialize, Deserialize)]
struct Defaults {
    before: String,
    #[serde(default = "seven")]
    seven: u16,
    needed: u8,
    #[serde(default)]
    list: Vec<Inner>,
    nested: Vec<Inner>,
    choice: Option<Choice>,
}

#[derive(Serialize, Deserialize)]
struct Inner {
    #[serde(default)]
    text: String,
    id: u64,
}

#[derive(Serialize, Deserialize)]
enum Choice {
    Other,
    This {
        id: u64,
        #[serde(default = "seven")]
        seven: u16,
    },
}

fn of<T: 'static + Serialize + for<'de> Deserialize<'de>>() -> String {
    schema_of::<T, Postcard>()
}

#[test]
fn schemas_are_read_off_the_types() {
    assert_eq!(of::<u64>(), "1 u64");
    assert_eq!(of::<usize>(), "1 u64");
    assert_eq!(of::<()>(), "1 ()");
    assert_eq!(of::<Unit>(), "1 Unit()");
    assert_eq!(of::<NonZeroU32>(), "1 u32");
    assert_eq!(of::<Totals>(), "1 Totals{count:u64,sum:f64,last:opt str=00}");
    assert_eq!(of::<(u8, u8, char, [i128; 4])>(), "1 (u8*2,char,(i128*4))");
    assert_eq!(of::<HashMap<String, Vec<Option<bool>>>>(), "1 map str seq opt bool");
    assert_eq!(of::<Duration>(), "1 Duration{secs:u64,nanos:u32}");
    assert_eq!(of::<Shape>(), "1 Shape[Dot,Circle(f64),Line(u8*2,Wrap(u8)),Rect{w:f32,h:f32}]");
    assert_eq!(of::<Result<u8, String>>(), "1 Result[Ok(u8),Err(str)]");
}

#[test]
fn a_type_is_written_once_and_types_of_one_name_are_told_apart() {
    assert_eq!(of::<(Wrap<u8>, Wrap<String>, Wrap<u8>, Option<Wrap<String>>)>(), "1 (Wrap(u8),Wrap(str),@0,opt @1)");
}

#[test]
fn types_that_hold_themselves_are_described_by_reference() {
    assert_eq!(
        of::<Expr>(),
        "1 Expr[Add(@0*2),Not(Wrap(@0)),Call{name:Token[Nested(@2,Kind[A,B]),Plain(@3)],arguments:seq @0},Number(i64)]"
    );
    assert_eq!(of::<Node>(), "1 Node{value:Kind[A,B],left:opt @0=00,more:map str @0,after:@1}");
    assert_eq!(of::<Tree>(), "1 Tree{kids:Kids[Many(@0,Kind[A,B]),None]}");
}

#[test]
fn the_default_of_a_field_is_what_serde_makes_of_a_missing_one() {
    assert_eq!(
        of::<Defaults>(),
        "1 Defaults{before:str,seven:u16=bc05,needed:u8,list:seq Inner{text:str=00,id:u64}=00,nested:seq @1,\
         choice:opt Choice[Other,This{id:u64,seven:u16=bc05}]=00}"
    );
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "A b", default)]
struct Renamed {
    #[serde(rename = "x:y")]
    x: u8,
}

impl Default for Renamed {
    fn default() -> Self {
        Self { x: 9 }
    }
}

#[test]
fn names_cannot_break_the_language() {
    assert_eq!(of::<Renamed>(), "1 A%20b{x%3ay:u8=09}");
}

/// Reads text and writes a number.
struct Uneven;

impl Serialize for Uneven {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(1 << 40)
    }
}

impl<'de> Deserialize<'de> for Uneven {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|_| Self)
    }
}

/// Takes only some texts.
struct Picky;

impl Serialize for Picky {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("picky")
    }
}

impl<'de> Deserialize<'de> for Picky {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "picky" { Ok(Self) } else { Err(serde::de::Error::custom("not picky")) }
    }
}

#[derive(Serialize, Deserialize)]
enum Endless {
    Again(Box<Endless>),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    A(u8),
}

#[derive(Serialize, Deserialize)]
struct Aliased {
    #[serde(alias = "old")]
    new: u8,
}

#[test]
fn what_cannot_be_traced_has_its_name() {
    assert_eq!(of::<Uneven>(), "1 ?Uneven");
    assert_eq!(of::<Vec<Picky>>(), "1 ?Vec<Picky>");
    assert_eq!(of::<Endless>(), "1 ?Endless");
    assert_eq!(of::<Untagged>(), "1 ?Untagged");
    assert_eq!(of::<Aliased>(), "1 ?Aliased");
    assert_eq!(schema_of::<Totals, Json>(), "1 ?Totals");
    assert_eq!(short_name("(u64, alloc::vec::Vec<my_crate::a::Session>)"), "(u64, Vec<Session>)");
}

#[test]
fn other_codecs_describe_their_own_bytes() {
    assert_eq!(schema_of::<Vec<u8>, Raw>(), "1 bytes");
    assert_eq!(schema_of::<String, Raw>(), "1 str");
    assert_eq!(schema_of::<(u8, [(i16, bool); 3], f32), Fixed>(), "1 (u8,((i16,bool)*3),f32)");
}

type Wide<T> = (T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T);

#[test]
fn a_large_schema_becomes_its_hash() {
    #[derive(Serialize, Deserialize)]
    struct AFieldWithAVeryLongNameThatFillsTheSchemaSoonIfThereAreMoreOfThem<T> {
        another_field_with_a_very_long_name_that_fills_the_schema_soon: T,
        and_another_field_with_a_very_long_name_that_fills_the_schema_soon: T,
    }
    type Long<T> = AFieldWithAVeryLongNameThatFillsTheSchemaSoonIfThereAreMoreOfThem<T>;
    type Longer<T> = Long<(Long<(T, u8)>, Long<(T, u16)>, Long<(T, u32)>, Long<(T, u64)>)>;
    type Longest = Longer<(Longer<Wide<u8>>, Longer<Wide<u16>>, Longer<Wide<u32>>)>;
    let schema = of::<Longest>();
    assert!(schema.starts_with("1 #") && schema.len() == 35, "{schema}");
    assert_eq!(schema, of::<Longest>());
    assert_eq!(hash(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18, "the published test vector of FNV-1a");
}
