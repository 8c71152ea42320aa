//! The guest's schemas and the host's migration against serde itself: a value that the host has brought to a new type is
//! the one that serde reads into that type from the fields' names.
#![expect(clippy::unwrap_used, reason = "tests may unwrap")]

use std::collections::BTreeMap;
use std::fmt::Debug;

use cofferdam_dataflow::schema::{Schema, Value, Verdict, compare, decode};
use cofferdam_guest::codec::Postcard;
use cofferdam_guest::schema_of;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

mod old {
    use super::{BTreeMap, Deserialize, Serialize};

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Account {
        pub(crate) owner: String,
        pub(crate) visits: u8,
        pub(crate) removed: Vec<Event>,
        pub(crate) balance: i32,
        pub(crate) events: Vec<Event>,
        pub(crate) limits: BTreeMap<String, Limit>,
        pub(crate) referrer: Option<Box<Account>>,
        pub(crate) pair: (u16, bool),
        pub(crate) rate: f32,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Event {
        Opened,
        Paid(u64, Limit),
        Moved { from: String, to: char },
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Limit {
        pub(crate) cents: u16,
        pub(crate) note: String,
    }
}

mod new {
    use super::{BTreeMap, Deserialize, Serialize};

    fn currency() -> String {
        "EUR".into()
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Account {
        /// Optional now.
        pub(crate) visits: Option<u8>,
        pub(crate) owner: String,
        #[serde(default = "currency")]
        pub(crate) currency: String,
        pub(crate) balance: i64,
        pub(crate) limits: BTreeMap<String, Limit>,
        pub(crate) events: Vec<Event>,
        #[serde(default)]
        pub(crate) tags: Vec<String>,
        pub(crate) referrer: Option<Box<Account>>,
        pub(crate) pair: (i32, bool),
        pub(crate) closed: Option<u64>,
        pub(crate) rate: f64,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Event {
        Closed,
        Moved {
            to: char,
            from: String,
            #[serde(default)]
            at: u64,
        },
        Opened,
        Paid(u64, Limit),
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Limit {
        pub(crate) cents: u32,
        #[serde(default = "seven")]
        pub(crate) days: i16,
    }

    fn seven() -> i16 {
        -7
    }
}

fn limit() -> impl Strategy<Value = old::Limit> {
    (any::<u16>(), any::<String>()).prop_map(|(cents, note)| old::Limit { cents, note })
}

fn event() -> impl Strategy<Value = old::Event> {
    prop_oneof![
        Just(old::Event::Opened),
        (any::<u64>(), limit()).prop_map(|(cents, limit)| old::Event::Paid(cents, limit)),
        (any::<String>(), any::<char>()).prop_map(|(from, to)| old::Event::Moved { from, to }),
    ]
}

fn account() -> impl Strategy<Value = old::Account> {
    let events = || proptest::collection::vec(event(), 0..4);
    let limits = proptest::collection::btree_map(any::<String>(), limit(), 0..3);
    let rest = (any::<(u16, bool)>(), any::<i16>());
    let flat = (any::<String>(), any::<u8>(), events(), any::<i32>(), events(), limits, rest).prop_map(
        |(owner, visits, removed, balance, events, limits, (pair, rate))| old::Account {
            owner,
            visits,
            removed,
            balance,
            events,
            limits,
            referrer: None,
            pair,
            // A fraction that JSON keeps.
            rate: f32::from(rate) / 4.0,
        },
    );
    flat.prop_recursive(3, 4, 1, |inner| {
        let account = inner.clone().prop_map(|mut account: old::Account| {
            account.referrer = Some(Box::new(account.clone()));
            account
        });
        prop_oneof![inner, account]
    })
}

/// The plan from one type to another, which must be compatible.
fn plan<Old, New>() -> cofferdam_dataflow::schema::Plan
where
    Old: Serialize + DeserializeOwned + 'static,
    New: Serialize + DeserializeOwned + 'static,
{
    match compare("postcard", &schema_of::<Old, Postcard>(), &schema_of::<New, Postcard>()) {
        Verdict::Compatible(plan) => plan,
        other => panic!("{other:?}"),
    }
}

/// What serde makes of the old value for the new type, by the names of the fields.
fn by_names<Old: Serialize, New: DeserializeOwned>(value: &Old) -> New {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn a_migrated_value_is_the_one_that_serde_reads_by_names(account in account()) {
        let plan = plan::<old::Account, new::Account>();
        let expected: new::Account = by_names(&account);
        let mut bytes = Vec::new();
        plan.transcode(&postcard::to_stdvec(&account).unwrap(), &mut bytes).unwrap();
        prop_assert_eq!(&postcard::from_bytes::<new::Account>(&bytes).unwrap(), &expected);
        prop_assert_eq!(bytes, postcard::to_stdvec(&expected).unwrap(), "byte by byte what serde would write");
    }

    #[test]
    fn a_value_that_is_shown_is_the_json_of_serde(account in account()) {
        let schema = Schema::parse(&schema_of::<old::Account, Postcard>()).unwrap();
        let shown: Value = decode(&schema, "postcard", &postcard::to_stdvec(&account).unwrap()).unwrap();
        prop_assert_eq!(serde_json::to_value(shown).unwrap(), serde_json::to_value(account).unwrap());
    }
}

/// Compares what the SDK finds with what the host reads, for a value of a type.
fn described<T: Serialize + DeserializeOwned + Debug + 'static>(value: &T) {
    let text = schema_of::<T, Postcard>();
    let schema = Schema::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(schema.to_string(), text);
    let bytes = postcard::to_stdvec(value).unwrap();
    let shown = decode(&schema, "postcard", &bytes).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(serde_json::to_value(shown).unwrap(), serde_json::to_value(value).unwrap(), "{text}");
}

#[test]
fn the_host_reads_the_schemas_of_the_guests_types() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Wrapped(u8);
    described(&(1u8, -300i16, u64::MAX, i64::MIN, true, 'ä', "text".to_owned()));
    described(&[Some(1.5f32), None]);
    described(&vec![(Wrapped(3), BTreeMap::from([("a".to_owned(), vec![1u32])]))]);
    described(&Ok::<u8, String>(3));
    described(&Err::<u8, String>("no".into()));
    described(&((), std::time::Duration::from_millis(1500)));
}
