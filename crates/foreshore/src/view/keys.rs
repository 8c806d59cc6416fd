//! Keys as people read them, by the name of their type in the catalogue.

use std::fmt::Debug;

use foreshore_base::key::Key;
use foreshore_txn::KeyBytes;

use super::{KeyForm, KeyView};
use crate::table::types::fields;

/// Tuples in a type whose keys are shown by their fields: it may be named by anybody, and each may be within the one
/// before.
const MOST_TUPLES: usize = 32;

/// A key of a table with this type of keys.
pub(super) fn readable(key_type: &str, key: &KeyBytes) -> KeyView {
    let (bytes, truncated) = (key.bytes(), key.is_truncated());
    let plain = match key_type {
        "str" | "bytes" => None,
        array if array.starts_with('[') => None,
        // Of what is cut off nobody knows where it ends.
        _ if truncated || key_type.matches('(').count() > MOST_TUPLES => None,
        _ => last(key_type, bytes),
    };
    let (text, form) = match (plain, key_type, std::str::from_utf8(bytes)) {
        (Some(text), ..) => (text, KeyForm::Plain),
        (None, "str", Ok(text)) => (text.to_owned(), KeyForm::Text),
        // Cut off within a character.
        (None, "str", Err(error)) if truncated => {
            (String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned(), KeyForm::Text)
        }
        _ => (bytes.escape_ascii().to_string(), KeyForm::Escaped),
    };
    KeyView { text, bytes: bytes.to_vec(), truncated, form }
}

/// A key, or the field that ends it, as text; `None`: these bytes are no encoding of that type, or nobody knows the
/// type.
fn last(key_type: &str, bytes: &[u8]) -> Option<String> {
    match key_type {
        "str" => <&str>::decode(bytes).ok().map(|text| format!("{text:?}")),
        "bytes" => Some(quoted(bytes)),
        _ => match fields(key_type) {
            Some(types) => tuple(&types, bytes, true),
            None => inner(key_type, bytes),
        }
        .filter(|(_, rest)| rest.is_empty())
        .map(|(text, _)| text),
    }
}

/// A field that others may follow, as text, and what follows it.
fn inner<'b>(key_type: &str, bytes: &'b [u8]) -> Option<(String, &'b [u8])> {
    fn of<K: Key<Owned: Debug>>(bytes: &[u8]) -> Option<(String, &[u8])> {
        let (field, rest) = K::decode_inner(bytes).ok()?;
        Some((format!("{field:?}"), rest))
    }
    match key_type {
        "u8" => of::<u8>(bytes),
        "u16" => of::<u16>(bytes),
        "u32" => of::<u32>(bytes),
        "u64" => of::<u64>(bytes),
        "u128" => of::<u128>(bytes),
        "i8" => of::<i8>(bytes),
        "i16" => of::<i16>(bytes),
        "i32" => of::<i32>(bytes),
        "i64" => of::<i64>(bytes),
        "i128" => of::<i128>(bytes),
        "bool" => of::<bool>(bytes),
        "()" => of::<()>(bytes),
        "str" => of::<&str>(bytes),
        "bytes" => <&[u8]>::decode_inner(bytes).ok().map(|(field, rest)| (quoted(&field), rest)),
        _ => match fields(key_type) {
            Some(types) => tuple(&types, bytes, false),
            None => {
                let length = key_type.strip_prefix("[u8; ")?.strip_suffix(']')?.parse().ok()?;
                bytes.split_at_checked(length).map(|(field, rest)| (quoted(field), rest))
            }
        },
    }
}

/// The fields of a tuple, which `ends` the key or is followed by other fields, and what follows it.
fn tuple<'b>(types: &[&str], mut bytes: &'b [u8], ends: bool) -> Option<(String, &'b [u8])> {
    let mut shown = Vec::with_capacity(types.len());
    for (index, key_type) in types.iter().enumerate() {
        let (field, rest) = match ends && index + 1 == types.len() {
            true => (last(key_type, bytes)?, &bytes[bytes.len()..]),
            false => inner(key_type, bytes)?,
        };
        shown.push(field);
        bytes = rest;
    }
    Some((format!("({})", shown.join(", ")), bytes))
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<K: Key>(key: &K) -> String {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        readable(&K::type_name(), &KeyBytes::new(&bytes)).to_string()
    }

    #[test]
    fn keys_are_shown_as_they_were_written() {
        assert_eq!(shown(&"größer"), "\"größer\"");
        assert_eq!(shown(&"say \"no\"\n"), "\"say \\\"no\\\"\\n\"");
        assert_eq!(shown(&-17i64), "-17");
        assert_eq!(shown(&u128::MAX), u128::MAX.to_string());
        assert_eq!(shown(&true), "true");
        assert_eq!(shown(&()), "()");
        assert_eq!(shown(&b"a\0\xFF".as_slice()), "\"a\\x00\\xff\"");
        assert_eq!(shown(b"a\0\xFF"), "\"a\\x00\\xff\"");
        // Three bytes each: the 64th is in the middle of a character.
        assert_eq!(shown(&"€".repeat(30).as_str()), format!("\"{}\"…", "€".repeat(21)));
        // Bytes that are no encoding of the type are shown nevertheless.
        assert_eq!(readable("u64", &KeyBytes::new(b"abc")).to_string(), "\"abc\"");
        assert_eq!(readable("str", &KeyBytes::new(b"a\xFF")).to_string(), "\"a\\xff\"");
    }

    #[test]
    fn tuples_are_shown_by_their_fields() {
        assert_eq!(shown(&(3_u32, -4_i64)), "(3, -4)");
        assert_eq!(shown(&("a\0b", true, "c\0d")), r#"("a\0b", true, "c\0d")"#);
        assert_eq!(
            shown(&(&b"\0\xFF"[..], ((), [7_u8, b'x']), &b"\0"[..])),
            r#"("\x00\xff", ((), "\x07x"), "\x00")"#
        );
        assert_eq!(shown(&(("a", 1_u8), (2_u8, "b"))), r#"(("a", 1), (2, "b"))"#);
        // Cut off, of another length, of a type that nobody knows.
        assert_eq!(shown(&(1_u8, "x".repeat(70).as_str())), format!("\"\\x01{}\"…", "x".repeat(63)));
        assert_eq!(readable("(u8, u16)", &KeyBytes::new(b"abcd")).to_string(), "\"abcd\"");
        assert_eq!(readable("(u8, Point)", &KeyBytes::new(b"ab")).to_string(), "\"ab\"");
        for name in ["(", ")", "(,", "(()", "())(", "(u8,)", "[u8; 9999999999999999999999]", "[u8; 7]"] {
            assert_eq!(readable(name, &KeyBytes::new(b"ab")).to_string(), "\"ab\"", "{name}");
        }
        let nested = |tuples: usize| format!("{}u8{}", "(".repeat(tuples), ")".repeat(tuples));
        assert_eq!(readable(&nested(MOST_TUPLES), &KeyBytes::new(b"a")).form, KeyForm::Plain);
        assert_eq!(readable(&nested(20_000), &KeyBytes::new(b"a")).to_string(), "\"a\"");
    }
}
