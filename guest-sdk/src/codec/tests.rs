//! Codecs give back what they were given, and refuse what is not theirs.

use proptest::prelude::{any, prop_assert_eq, proptest};
use serde::{Deserialize, Serialize};

use super::{Decode, Encode, Fixed, Json, Postcard, Raw};

fn encoded<C: Encode<T>, T: ?Sized>(value: &T) -> Vec<u8> {
    // What is in the buffer already must stay: other values, in use.
    let mut out = b"before".to_vec();
    C::encode(value, &mut out).unwrap();
    out.split_off(6)
}

fn refusal<'a, C: Decode<'a, T>, T: std::fmt::Debug>(bytes: &'a [u8]) -> String {
    C::decode(bytes).unwrap_err().to_string()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Session {
    user: String,
    from: i64,
    pages: Vec<(u32, Option<bool>)>,
}

type Numbers = (u8, (i16, u128), [u32; 3], [[bool; 2]; 2], (f32, i64, u16, i8, u64, i128));

proptest! {
    #[test]
    fn serde_values_come_back(user: String, from: i64, pages: Vec<(u32, Option<bool>)>) {
        let session = Session { user, from, pages };
        prop_assert_eq!(&<Postcard as Decode<Session>>::decode(&encoded::<Postcard, _>(&session)).unwrap(), &session);
        prop_assert_eq!(&<Json as Decode<Session>>::decode(&encoded::<Json, _>(&session)).unwrap(), &session);
    }

    #[test]
    fn fixed_values_come_back(
        a: u8, b: (i16, u128), c: [u32; 3], d: [[bool; 2]; 2], e in any::<(i32, i64, u16, i8, u64, i128)>(),
    ) {
        // i32 to f32: no NaN, which equals nothing.
        let numbers: Numbers = (a, b, c, d, (e.0 as f32, e.1, e.2, e.3, e.4, e.5));
        let bytes = encoded::<Fixed, _>(&numbers);
        prop_assert_eq!(bytes.len(), 1 + 18 + 12 + 4 + 39);
        prop_assert_eq!(<Fixed as Decode<Numbers>>::decode(&bytes).unwrap(), numbers);
    }

    #[test]
    fn any_bytes_decode_or_are_refused_without_a_panic(bytes: Vec<u8>) {
        let _ = <Postcard as Decode<Session>>::decode(&bytes);
        let _ = <Json as Decode<Session>>::decode(&bytes);
        let _ = <Fixed as Decode<Numbers>>::decode(&bytes);
        prop_assert_eq!(&<Raw as Decode<Vec<u8>>>::decode(&bytes).unwrap(), &bytes);
        prop_assert_eq!(<Raw as Decode<String>>::decode(&bytes).ok(), String::from_utf8(bytes).ok());
    }
}

#[test]
fn fixed_values_are_little_endian_and_dense() {
    assert_eq!(encoded::<Fixed, _>(&(1u16, [2u8, 3], -1i32)), [1, 0, 2, 3, 255, 255, 255, 255]);
}

#[test]
fn text_and_bytes_are_written_as_they_are() {
    assert_eq!(encoded::<Raw, str>("äb"), "äb".as_bytes());
    assert_eq!(<Raw as Decode<&str>>::decode(b"ab").unwrap(), "ab");
}

#[test]
fn bytes_that_stand_for_no_value_are_refused() {
    assert_eq!(refusal::<Fixed, u32>(b"abc"), "a fixed-width value has 4 bytes, not 3");
    assert_eq!(refusal::<Fixed, (u8, bool)>(&[7, 2]), "byte 2 stands for no value");
    assert_eq!(refusal::<Postcard, u8>(&[7, 7]), "1 bytes follow the value");
    assert_eq!(refusal::<Postcard, String>(&[9, 65]), "not valid postcard");
    assert_eq!(refusal::<Json, u8>(b"7 7"), "not valid JSON");
    assert_eq!(refusal::<Raw, &str>(&[0xff]), "not valid UTF-8");
}
