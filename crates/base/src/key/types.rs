//! The [`Key`] trait and its implementations.

use std::borrow::Cow;

use crate::tuple_coding;

/// Bytes that do not decode as the key type that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes do not decode as {expected}")]
pub struct KeyDecodeError {
    /// The type that was asked for.
    pub expected: Cow<'static, str>,
    /// How many bytes there were.
    pub length: usize,
}

/// A type whose values can be keys. `Owned` is what a read returns (`String` for `&str`).
///
/// Implemented for integers, `bool`, `()`, `&str`, `&[u8]`, `[u8; N]`, and tuples of two to six of these, or of tuples.
/// `String` is stored as `&str` is, and `Vec<u8>` as `&[u8]` is, under the same name: they are the same keys.
///
/// # How keys are stored
///
/// | type | bytes |
/// | --- | --- |
/// | unsigned integer | big-endian |
/// | signed integer | big-endian with the sign bit flipped |
/// | `bool` | 0 or 1 |
/// | byte string, string, last in the key | as it is |
/// | the same, followed by more fields | each 0x00 becomes 0x00 0xFF; ended by 0x00 0x00 |
/// | tuple | its fields, one after another |
///
/// So keys are in the order of their types: numbers by size, strings by their bytes, tuples by their first field, then
/// by the next.
///
/// # Keys of your own
///
/// A type of your own is a key, and a field of tuples that are keys, if it keeps these laws, which property tests check
/// for the types above:
///
/// 1. `decode(encode(k)) == k`, and if `a < b`, then `encode(a) < encode(b)` as byte strings.
/// 2. `decode_inner(encode_inner(k) + rest) == (k, rest)`, whatever comes behind.
/// 3. If `a < b`, then `encode_inner(a) + x < encode_inner(b) + y`, whatever comes behind. So the encoding of one key
///    is never the beginning of another's.
/// 4. What cannot be decoded is an error, never a panic.
///
/// `encode_inner` is `encode` by default, which keeps these laws for types whose encodings all have the same length.
/// For others it has to be written: what is made of other keys calls their `encode_inner` in its own. Here a column
/// that may be missing, and then comes first (with `use foreshore::{Key, KeyDecodeError}`):
///
/// ```
/// # use foreshore_base::key::{Key, KeyDecodeError};
/// use std::borrow::Cow;
///
/// struct Nullable<K>(Option<K>);
///
/// impl<K: Key> Key for Nullable<K> {
///     type Owned = Option<K::Owned>;
///
///     fn type_name() -> Cow<'static, str> {
///         format!("Nullable<{}>", K::type_name()).into()
///     }
///
///     fn encode(&self, out: &mut Vec<u8>) {
///         out.push(u8::from(self.0.is_some()));
///         if let Some(key) = &self.0 {
///             key.encode(out);
///         }
///     }
///
///     fn encode_inner(&self, out: &mut Vec<u8>) {
///         out.push(u8::from(self.0.is_some()));
///         if let Some(key) = &self.0 {
///             key.encode_inner(out);
///         }
///     }
///
///     fn decode(bytes: &[u8]) -> Result<Option<K::Owned>, KeyDecodeError> {
///         match bytes {
///             [0] => Ok(None),
///             [1, key @ ..] => Ok(Some(K::decode(key)?)),
///             _ => Err(KeyDecodeError { expected: Self::type_name(), length: bytes.len() }),
///         }
///     }
///
///     fn decode_inner(bytes: &[u8]) -> Result<(Option<K::Owned>, &[u8]), KeyDecodeError> {
///         match bytes {
///             [0, rest @ ..] => Ok((None, rest)),
///             [1, key @ ..] => {
///                 let (key, rest) = K::decode_inner(key)?;
///                 Ok((Some(key), rest))
///             }
///             _ => Err(KeyDecodeError { expected: Self::type_name(), length: bytes.len() }),
///         }
///     }
/// }
///
/// let encoded = |name: Option<&str>, number: u32| {
///     let mut bytes = Vec::new();
///     (Nullable(name), number).encode(&mut bytes);
///     bytes
/// };
/// assert!(encoded(None, 9) < encoded(Some(""), 1));
/// assert!(encoded(Some("a"), 9) < encoded(Some("ab"), 1)); // by the field first
/// let back = <(Nullable<&str>, u32)>::decode(&encoded(Some("a"), 9));
/// assert_eq!(back, Ok((Some("a".to_owned()), 9)));
/// ```
///
/// For a column in descending order, encode `!n` of an unsigned number `n`; of other keys, each byte `!byte` of what
/// `encode_inner` gives. A whole table is read downward without that.
pub trait Key {
    /// What comes back from a read.
    type Owned;

    /// The type's name, stored in the catalogue so that a table is not opened with another key type.
    fn type_name() -> Cow<'static, str>;

    /// Appends the encoding as the last field of a key.
    fn encode(&self, out: &mut Vec<u8>);

    /// Appends the encoding such that another field may follow. The default is wrong for types whose encodings have
    /// different lengths.
    fn encode_inner(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    /// What [`Key::encode`] appends, where the key holds it as it is: then nothing is copied. The default is `None`.
    fn as_encoded(&self) -> Option<&[u8]> {
        None
    }

    /// Decodes a whole key.
    ///
    /// # Errors
    /// When `bytes` is not an encoding of this type; never a panic.
    fn decode(bytes: &[u8]) -> Result<Self::Owned, KeyDecodeError>;

    /// Decodes one field and returns what follows it.
    ///
    /// # Errors
    /// When `bytes` does not begin with an encoding of this type; never a panic.
    fn decode_inner(bytes: &[u8]) -> Result<(Self::Owned, &[u8]), KeyDecodeError>;
}

#[cold]
fn undecodable<K: Key + ?Sized>(bytes: &[u8]) -> KeyDecodeError {
    KeyDecodeError { expected: K::type_name(), length: bytes.len() }
}

macro_rules! integer_key {
    ($($ty:ident $flip:expr),*) => {$(
        impl Key for $ty {
            type Owned = $ty;

            fn type_name() -> Cow<'static, str> {
                stringify!($ty).into()
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(*self ^ $flip).to_be_bytes());
            }

            fn decode(bytes: &[u8]) -> Result<$ty, KeyDecodeError> {
                match bytes.try_into() {
                    Ok(array) => Ok($ty::from_be_bytes(array) ^ $flip),
                    Err(_) => Err(undecodable::<Self>(bytes)),
                }
            }

            fn decode_inner(bytes: &[u8]) -> Result<($ty, &[u8]), KeyDecodeError> {
                match bytes.split_at_checked(size_of::<$ty>()) {
                    Some((field, rest)) => Ok((Self::decode(field)?, rest)),
                    None => Err(undecodable::<Self>(bytes)),
                }
            }
        }
    )*};
}

integer_key!(u8 0, u16 0, u32 0, u64 0, u128 0, i8 i8::MIN, i16 i16::MIN, i32 i32::MIN, i64 i64::MIN, i128 i128::MIN);

impl Key for bool {
    type Owned = bool;

    fn type_name() -> Cow<'static, str> {
        "bool".into()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode(bytes: &[u8]) -> Result<bool, KeyDecodeError> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(undecodable::<Self>(bytes)),
        }
    }

    fn decode_inner(bytes: &[u8]) -> Result<(bool, &[u8]), KeyDecodeError> {
        match bytes.split_at_checked(1) {
            Some((field, rest)) => Ok((Self::decode(field)?, rest)),
            None => Err(undecodable::<Self>(bytes)),
        }
    }
}

impl Key for () {
    type Owned = ();

    fn type_name() -> Cow<'static, str> {
        "()".into()
    }

    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(bytes: &[u8]) -> Result<(), KeyDecodeError> {
        if bytes.is_empty() { Ok(()) } else { Err(undecodable::<Self>(bytes)) }
    }

    fn decode_inner(bytes: &[u8]) -> Result<((), &[u8]), KeyDecodeError> {
        Ok(((), bytes))
    }
}

/// Ends an escaped byte string inside a key.
pub(super) const TERMINATOR: [u8; 2] = [0, 0];
/// What a zero byte of the string becomes: it sorts after the terminator, so a prefix sorts first.
const ESCAPED_ZERO: [u8; 2] = [0, 0xFF];

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        if byte == 0 {
            out.extend_from_slice(&ESCAPED_ZERO);
        } else {
            out.push(byte);
        }
    }
    out.extend_from_slice(&TERMINATOR);
}

fn unescape<K: Key>(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), KeyDecodeError> {
    let mut field = Vec::new();
    let mut rest = bytes;
    loop {
        match rest {
            [0, 0, after @ ..] => return Ok((field, after)),
            [0, 0xFF, after @ ..] => {
                field.push(0);
                rest = after;
            }
            [0, ..] | [] => return Err(undecodable::<K>(bytes)),
            [byte, after @ ..] => {
                field.push(*byte);
                rest = after;
            }
        }
    }
}

macro_rules! bytes_key {
    ($($ty:ty)*) => {$(
        impl Key for $ty {
            type Owned = Vec<u8>;

            fn type_name() -> Cow<'static, str> {
                "bytes".into()
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self);
            }

            fn encode_inner(&self, out: &mut Vec<u8>) {
                escape(self, out);
            }

            #[inline]
            fn as_encoded(&self) -> Option<&[u8]> {
                Some(self)
            }

            fn decode(bytes: &[u8]) -> Result<Vec<u8>, KeyDecodeError> {
                Ok(bytes.to_vec())
            }

            fn decode_inner(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), KeyDecodeError> {
                unescape::<Self>(bytes)
            }
        }
    )*};
}

bytes_key!(&[u8] Vec<u8>);

macro_rules! text_key {
    ($($ty:ty)*) => {$(
        impl Key for $ty {
            type Owned = String;

            fn type_name() -> Cow<'static, str> {
                "str".into()
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }

            fn encode_inner(&self, out: &mut Vec<u8>) {
                escape(self.as_bytes(), out);
            }

            #[inline]
            fn as_encoded(&self) -> Option<&[u8]> {
                Some(self.as_bytes())
            }

            fn decode(bytes: &[u8]) -> Result<String, KeyDecodeError> {
                String::from_utf8(bytes.to_vec()).map_err(|_| undecodable::<Self>(bytes))
            }

            fn decode_inner(bytes: &[u8]) -> Result<(String, &[u8]), KeyDecodeError> {
                let (field, rest) = unescape::<Self>(bytes)?;
                match String::from_utf8(field) {
                    Ok(field) => Ok((field, rest)),
                    Err(_) => Err(undecodable::<Self>(bytes)),
                }
            }
        }
    )*};
}

text_key!(&str String);

impl<const N: usize> Key for [u8; N] {
    type Owned = [u8; N];

    fn type_name() -> Cow<'static, str> {
        format!("[u8; {N}]").into()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    #[inline]
    fn as_encoded(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn decode(bytes: &[u8]) -> Result<[u8; N], KeyDecodeError> {
        bytes.try_into().map_err(|_| undecodable::<Self>(bytes))
    }

    fn decode_inner(bytes: &[u8]) -> Result<([u8; N], &[u8]), KeyDecodeError> {
        match bytes.split_at_checked(N) {
            Some((field, rest)) => Ok((Self::decode(field)?, rest)),
            None => Err(undecodable::<Self>(bytes)),
        }
    }
}

tuple_coding!(Key, KeyDecodeError: A 0; B 1);
tuple_coding!(Key, KeyDecodeError: A 0, B 1; C 2);
tuple_coding!(Key, KeyDecodeError: A 0, B 1, C 2; D 3);
tuple_coding!(Key, KeyDecodeError: A 0, B 1, C 2, D 3; E 4);
tuple_coding!(Key, KeyDecodeError: A 0, B 1, C 2, D 3, E 4; F 5);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(key: &impl Key) -> Vec<u8> {
        let mut out = Vec::new();
        key.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn signed_integers_keep_order_and_value(a: i64, b: i64) {
            prop_assert_eq!(a.cmp(&b), encoded(&a).cmp(&encoded(&b)));
            prop_assert_eq!(i64::decode(&encoded(&a)), Ok(a));
        }

        #[test]
        fn tuples_keep_order_and_value(
            a: (Vec<u8>, i32, String), b: (Vec<u8>, i32, String), zeros in 0usize..4
        ) {
            let mut a = a;
            a.0.extend(std::iter::repeat_n(0, zeros));
            let key = |t: &(Vec<u8>, i32, String)| encoded(&(t.0.as_slice(), t.1, t.2.as_str()));
            prop_assert_eq!(a.cmp(&b), key(&a).cmp(&key(&b)));
            prop_assert_eq!(encoded(&a), key(&a));
            prop_assert_eq!(<(&[u8], i32, &str)>::decode(&key(&a)), Ok(a));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let _ = <(&str, u16, &[u8])>::decode(&bytes);
            let _ = <(u64, bool)>::decode(&bytes);
            let _ = <[u8; 3]>::decode(&bytes);
        }
    }

    #[test]
    fn what_a_key_holds_encoded_is_its_encoding() {
        fn check(key: &impl Key) -> Option<&[u8]> {
            let held = key.as_encoded();
            assert!(held.is_none_or(|held| held == encoded(key)));
            held
        }
        let (bytes, text) = (b"a\0b", "né");
        assert_eq!([check(&&bytes[..]), check(&bytes.to_vec()), check(bytes)], [Some(&bytes[..]); 3]);
        assert_eq!([check(&text), check(&text.to_owned())], [Some(text.as_bytes()); 2]);
        assert_eq!([check(&7u64), check(&("né", 7u8)), check(&())], [None; 3]);
    }

    #[test]
    fn a_prefix_sorts_first_in_a_tuple() {
        assert!(encoded(&(&b"a"[..], 9u8)) < encoded(&(&b"a\0"[..], 0u8)));
        assert!(encoded(&(&b"a\0"[..], 9u8)) < encoded(&(&b"a\x01"[..], 0u8)));
    }
}
