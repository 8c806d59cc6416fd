//! Keys and values as JSON and back, by the type names in the catalogue.
//!
//! Each kind has one JSON form that gives the same bytes back. What JSON cannot say becomes `{"bytes": "…"}`, which
//! every kind reads: floats that are not finite, and bytes that are no encoding of their table's type, which only a
//! tool can have written.

use std::{fmt::Display, str::FromStr};

use foreshore::{Key, Value};
use serde_json::{Number, Value as Json, json};

/// How a type is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
    /// As a value; no key is a float.
    F32,
    F64,
    Bool,
    Str,
    /// Byte strings, and everything else: as text with escapes.
    Bytes,
}

/// Calls a macro with each integer kind and its type.
macro_rules! for_integers {
    ($each:ident) => {
        $each! {
            U8 u8, U16 u16, U32 u32, U64 u64, U128 u128, I8 i8, I16 i16, I32 i32, I64 i64, I128 i128
        }
    };
}

fn encoded_key(key: &impl Key) -> Vec<u8> {
    let mut out = Vec::new();
    key.encode(&mut out);
    out
}

fn encoded_value(value: &impl Value) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

macro_rules! conversions {
    ($($kind:ident $ty:ident),*) => {
        impl Kind {
            /// The kind of a type by its name.
            pub(crate) fn of(type_name: &str) -> Kind {
                match type_name {
                    $(stringify!($ty) => Kind::$kind,)*
                    "f32" => Kind::F32,
                    "f64" => Kind::F64,
                    "bool" => Kind::Bool,
                    "str" => Kind::Str,
                    _ => Kind::Bytes,
                }
            }

            /// An encoded key as JSON.
            pub(crate) fn key_to_json(self, bytes: &[u8]) -> Json {
                let json = match self {
                    $(Kind::$kind => <$ty as Key>::decode(bytes).ok().map(whole),)*
                    Kind::Bool => <bool as Key>::decode(bytes).ok().map(Json::from),
                    Kind::Str => <&str as Key>::decode(bytes).ok().map(Json::from),
                    Kind::Bytes | Kind::F32 | Kind::F64 => Some(escape(bytes).into()),
                };
                json.unwrap_or_else(|| json!({ "bytes": escape(bytes) }))
            }

            /// How many bytes each encoded key has, if all have as many.
            fn key_width(self) -> Option<usize> {
                match self {
                    $(Kind::$kind => Some(size_of::<$ty>()),)*
                    Kind::Bool => Some(1),
                    Kind::F32 | Kind::F64 | Kind::Str | Kind::Bytes => None,
                }
            }

            /// An encoded value as JSON.
            pub(crate) fn value_to_json(self, bytes: &[u8]) -> Json {
                let json = match self {
                    $(Kind::$kind => <$ty as Value>::decode(bytes).ok().map(whole),)*
                    Kind::F32 => <f32 as Value>::decode(bytes).ok().and_then(|number| float(number.into())),
                    Kind::F64 => <f64 as Value>::decode(bytes).ok().and_then(float),
                    Kind::Bool => <bool as Value>::decode(bytes).ok().map(Json::from),
                    Kind::Str => <&str as Value>::decode(bytes).ok().map(Json::from),
                    Kind::Bytes => Some(escape(bytes).into()),
                };
                json.unwrap_or_else(|| json!({ "bytes": escape(bytes) }))
            }

            /// The encoded key; or what it should have been.
            pub(crate) fn key_from_json(self, json: &Json) -> Result<Vec<u8>, String> {
                let bytes = match self {
                    $(Kind::$kind => integer::<$ty>(json).map(|number| encoded_key(&number)),)*
                    Kind::Bool => json.as_bool().map(|truth| encoded_key(&truth)),
                    Kind::Str => json.as_str().map(|text| encoded_key(&text)),
                    Kind::Bytes | Kind::F32 | Kind::F64 => json.as_str().map(unescape).transpose()?,
                };
                self.or_bytes(bytes, json)
            }

            /// The encoded value; or what it should have been.
            pub(crate) fn value_from_json(self, json: &Json) -> Result<Vec<u8>, String> {
                let bytes = match self {
                    $(Kind::$kind => integer::<$ty>(json).map(|number| encoded_value(&number)),)*
                    Kind::F32 => {
                        let number = json.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
                        number.map(|number| encoded_value(&number))
                    }
                    Kind::F64 => json.as_f64().map(|number| encoded_value(&number)),
                    Kind::Bool => json.as_bool().map(|truth| encoded_value(&truth)),
                    Kind::Str => json.as_str().map(|text| encoded_value(&text)),
                    Kind::Bytes => json.as_str().map(unescape).transpose()?,
                };
                self.or_bytes(bytes, json)
            }

            /// The encoded key of a text, as CSV has it.
            pub(crate) fn key_from_text(self, text: &str) -> Result<Vec<u8>, String> {
                match self {
                    $(Kind::$kind => match text.trim().parse::<$ty>() {
                        Ok(number) => Ok(encoded_key(&number)),
                        Err(error) => Err(format!("{text:?} does not parse as {}: {error}", stringify!($ty))),
                    })*
                    Kind::Bool => match text.trim() {
                        "true" => Ok(encoded_key(&true)),
                        "false" => Ok(encoded_key(&false)),
                        _ => Err(format!("{text:?} is neither true nor false")),
                    },
                    Kind::Str => Ok(encoded_key(&text)),
                    Kind::Bytes | Kind::F32 | Kind::F64 => unescape(text),
                }
            }

            /// What a cell of this kind looks like.
            fn expected(self) -> &'static str {
                match self {
                    $(Kind::$kind => concat!("a whole number that fits ", stringify!($ty)),)*
                    Kind::F32 | Kind::F64 => "a number",
                    Kind::Bool => "true or false",
                    Kind::Str | Kind::Bytes => "a string",
                }
            }
        }
    };
}
for_integers!(conversions);

impl Kind {
    /// Where a range of keys begins or ends, as the key that comes first from there on: between two pages stands no
    /// more of one than tells their keys apart, which may be too short for a number.
    pub(crate) fn bound_to_json(self, bytes: &[u8]) -> Json {
        let mut whole = bytes.to_vec();
        whole.resize(bytes.len().max(self.key_width().unwrap_or(0)), 0);
        self.key_to_json(&whole)
    }

    fn or_bytes(self, bytes: Option<Vec<u8>>, json: &Json) -> Result<Vec<u8>, String> {
        match (bytes, json.get("bytes").and_then(Json::as_str)) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(escaped)) => unescape(escaped),
            (None, None) => Err(self.unlike(json)),
        }
    }

    /// What is wrong with a cell that is not of this kind.
    pub(crate) fn unlike(self, json: &Json) -> String {
        format!("expected {}, found {json}", self.expected())
    }

    /// The encoded number, if it is in the form of older dumps: they have numbers of these types as bytes, in a string.
    /// Where they may be met this is asked first, since some bytes are digits.
    pub(crate) fn number_from_older_json(self, json: &Json) -> Option<Vec<u8>> {
        let length = match self {
            Kind::U128 | Kind::I128 => 16,
            Kind::F64 => 8,
            Kind::F32 => 4,
            _ => return None,
        };
        unescape(json.as_str()?).ok().filter(|bytes| bytes.len() == length)
    }
}

/// A whole number: as a string, if programs that read JSON would not have all of its digits.
fn whole<T: Copy + TryInto<u64> + TryInto<i64> + Display>(number: T) -> Json {
    let (unsigned, signed): (Result<u64, _>, Result<i64, _>) = (number.try_into(), number.try_into());
    match (unsigned, signed) {
        (Ok(number), _) => number.into(),
        (_, Ok(number)) => number.into(),
        _ => number.to_string().into(),
    }
}

fn integer<T: TryFrom<u64> + TryFrom<i64> + FromStr>(json: &Json) -> Option<T> {
    match (json.as_u64(), json.as_i64()) {
        (Some(number), _) => number.try_into().ok(),
        (None, Some(number)) => number.try_into().ok(),
        (None, None) => json.as_str()?.parse().ok(),
    }
}

/// A float that JSON can say.
fn float(number: f64) -> Option<Json> {
    Number::from_f64(number).map(Json::from)
}

/// Any bytes as text: printable text stays as it is, a backslash becomes two, and every other byte `\xNN`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escaped = |text: &mut String, byte: u8| text.push_str(&format!("\\x{byte:02x}"));
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                character if character.is_control() => {
                    let mut buffer = [0; 4];
                    character.encode_utf8(&mut buffer).bytes().for_each(|byte| escaped(&mut text, byte));
                }
                character => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|&byte| escaped(&mut text, byte));
    }
    text
}

/// What [`escape`] was given.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                after
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                match (digit(*high), digit(*low)) {
                    (Some(high), Some(low)) => bytes.push((high << 4 | low) as u8),
                    _ => {
                        return Err(format!(
                            "\\x must be followed by two hexadecimal digits; in {text:?} it is not"
                        ));
                    }
                }
                after
            }
            (b'\\', _) => {
                return Err(format!(
                    "a backslash must be followed by x or a backslash; in {text:?} one is not"
                ));
            }
            (byte, after) => {
                bytes.push(byte);
                after
            }
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [&str; 16] = [
        "u8",
        "u16",
        "u32",
        "u64",
        "u128",
        "i8",
        "i16",
        "i32",
        "i64",
        "i128",
        "f32",
        "f64",
        "bool",
        "str",
        "bytes",
        "(str, f64)",
    ];

    /// All byte strings of up to two bytes, and some longer ones.
    fn samples() -> impl Iterator<Item = Vec<u8>> {
        let short = (0..=2_u32).flat_map(|length| {
            (0..256_u32.pow(length)).map(move |number| number.to_le_bytes()[..length as usize].to_vec())
        });
        let long = [4, 8, 9, 16]
            .into_iter()
            .flat_map(|length| [0x00, 0x01, 0x7F, 0x80, 0xC3, 0xFF].map(|byte| vec![byte; length]));
        short.chain(long).chain([
            // A float that the quick way of reading it would miss, and floats that are none.
            0.12345678901234567_f64.to_le_bytes().to_vec(),
            8.5e-323_f64.to_le_bytes().to_vec(),
            f32::INFINITY.to_le_bytes().to_vec(),
            f64::NAN.to_le_bytes().to_vec(),
            (-0.0_f64).to_le_bytes().to_vec(),
            b"1234567890123456".to_vec(),
            "tschüß \\x41 \u{85}\n\"".into(),
            b"\xF0\x9F\x92".to_vec(),
            "\u{10FFFF}".into(),
        ])
    }

    #[test]
    fn any_bytes_of_any_kind_come_back() {
        for kind in KINDS.map(Kind::of) {
            for bytes in samples() {
                let key = kind.key_to_json(&bytes).to_string();
                let value = kind.value_to_json(&bytes).to_string();
                assert!(!key.contains('\n'));
                assert_eq!(kind.key_from_json(&key.parse().unwrap()).as_ref(), Ok(&bytes), "{kind:?} {key}");
                assert_eq!(
                    kind.value_from_json(&value.parse().unwrap()).as_ref(),
                    Ok(&bytes),
                    "{kind:?} {value}"
                );
            }
        }
    }

    #[test]
    fn the_forms_are_what_one_expects() {
        assert_eq!(Kind::U32.key_to_json(&[0, 0, 1, 0]), json!(256));
        assert_eq!(Kind::U32.value_to_json(&[0, 1, 0, 0]), json!(256));
        assert_eq!(Kind::I8.key_to_json(&[0x7F]), json!(-1));
        assert_eq!(Kind::Bool.value_to_json(&[1]), json!(true));
        assert_eq!(Kind::Str.key_to_json("ü\\".as_bytes()), json!("ü\\"));
        assert_eq!(Kind::Bytes.key_to_json(b"\0a\\\xFF"), json!("\\x00a\\\\\\xff"));
        assert_eq!(Kind::Str.key_to_json(b"\xFF"), json!({ "bytes": "\\xff" }));
        assert_eq!(Kind::U16.key_from_text(" 7 "), Ok(vec![0, 7]));
        // What is no whole number is the least that begins so.
        assert_eq!(Kind::U32.bound_to_json(&[0, 1]), json!(1 << 16));
        assert_eq!(Kind::I16.bound_to_json(&[0x7F]), json!(-256));
        assert_eq!(Kind::U16.bound_to_json(&[0, 7]), json!(7));
        assert_eq!(Kind::U8.bound_to_json(&[7, 0]), json!({ "bytes": "\\x07\\x00" }));
        assert_eq!(Kind::Str.bound_to_json(b"al"), json!("al"));
    }

    #[test]
    fn digits_are_a_number_and_bytes_only_in_older_dumps() {
        for (json, number) in [(json!("42"), 42_u128), (json!("1234567890123456"), 1_234_567_890_123_456)] {
            assert_eq!(Kind::U128.key_from_json(&json), Ok(number.to_be_bytes().to_vec()));
            assert_eq!(Kind::U128.value_from_json(&json), Ok(number.to_le_bytes().to_vec()));
        }
        assert_eq!(Kind::U64.key_from_json(&json!("7")), Ok(7_u64.to_be_bytes().to_vec()));
        let digits = Some(b"1234567890123456".to_vec());
        assert_eq!(Kind::U128.number_from_older_json(&json!("1234567890123456")), digits);
        assert_eq!(
            Kind::F32.number_from_older_json(&json!("\\x00\\x00\\x80?")),
            Some(vec![0, 0, 0x80, 0x3F])
        );
        for (kind, json) in [
            (Kind::U128, json!("42")),
            (Kind::I128, json!("-170141183460469231731687303715884105728")),
            (Kind::F64, json!("1.5")),
            (Kind::F64, json!(1.5)),
            (Kind::U64, json!("12345678")),
        ] {
            assert_eq!(kind.number_from_older_json(&json), None, "{json}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (kind, json) in [
            (Kind::U128, json!("x")),
            (Kind::U128, json!("-1")),
            (Kind::I128, json!("1234567890123456x")),
            (Kind::I128, json!("\\x00")),
            (Kind::U8, json!(256)),
            (Kind::U8, json!(-1)),
            (Kind::I8, json!(128)),
            (Kind::U64, json!(1.5)),
            (Kind::Bool, json!("true")),
            (Kind::Str, json!(1)),
            (Kind::Bytes, json!("\\x4")),
            (Kind::Bytes, json!("\\n")),
            (Kind::Bytes, json!("\\xgg")),
            (Kind::Str, json!({ "bytes": 1 })),
        ] {
            kind.key_from_json(&json).unwrap_err();
            kind.value_from_json(&json).unwrap_err();
        }
        Kind::U8.key_from_text("300").unwrap_err();
        Kind::Bool.key_from_text("yes").unwrap_err();
    }
}
