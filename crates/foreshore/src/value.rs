//! What can be stored under a key.

use std::borrow::Cow;

use foreshore_base::tuple_coding;

/// Bytes that do not decode as the value type that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes do not decode as {expected}")]
pub struct ValueDecodeError {
    /// The type that was asked for.
    pub expected: Cow<'static, str>,
    /// How many bytes there were.
    pub length: usize,
}

/// A type whose values can be stored. `Owned` is what a read returns (`String` for `&str`).
///
/// Implemented for integers, floats, `bool`, `()`, `&str`, `&[u8]`, `[u8; N]`, `Option`s and tuples of two to eight of
/// these, or of tuples; `String` is stored as `&str` is, and `Vec<u8>` as `&[u8]` is, under the same name. In a table
/// of `&str` a `String` is written by `as_str()`, in one of `&[u8]` a `Vec<u8>` by `as_slice()`. For anything else,
/// store bytes in the encoding of your choice, or implement it:
///
/// ```
/// use std::borrow::Cow;
/// use foreshore::{Value, ValueDecodeError};
///
/// #[derive(Debug, PartialEq)]
/// struct Point { x: i32, y: i32 }
///
/// impl Value for Point {
///     type Owned = Point;
///     fn type_name() -> Cow<'static, str> { "Point".into() }
///     fn encode(&self, out: &mut Vec<u8>) { (self.x, self.y).encode(out) }
///     fn decode_inner(bytes: &[u8]) -> Result<(Point, &[u8]), ValueDecodeError> {
///         let ((x, y), rest) = <(i32, i32)>::decode_inner(bytes)?;
///         Ok((Point { x, y }, rest))
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Point { x: 1, y: -2 }.encode(&mut bytes);
/// assert_eq!(Point::decode(&bytes), Ok(Point { x: 1, y: -2 }));
/// ```
///
/// # How values are stored
///
/// | type | bytes |
/// | --- | --- |
/// | integer, `f32`, `f64` | little-endian |
/// | `bool` | 0 or 1 |
/// | `()` | none |
/// | `[u8; N]` | as it is |
/// | byte string, string, last in the value | as it is |
/// | the same, followed by more fields | its length as `u32`, then as it is |
/// | `Option<T>` | 0, or 1 and then the value |
/// | tuple | its fields, one after another |
///
/// Unlike keys, values are never compared, so numbers are in the machine's order.
///
/// Law: `decode(encode(v)) == v`, and `decode_inner(encode_inner(v) + rest) == (v, rest)`.
pub trait Value {
    /// What comes back from a read.
    type Owned;

    /// The type's name, stored in the catalogue so that a table is not opened with another value type.
    fn type_name() -> Cow<'static, str>;

    /// Appends the encoding as the last field of a value.
    fn encode(&self, out: &mut Vec<u8>);

    /// Appends the encoding such that another field may follow.
    fn encode_inner(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    /// What [`Value::encode`] appends, where the value holds it as it is: then nothing is copied. The default is
    /// `None`.
    fn as_encoded(&self) -> Option<&[u8]> {
        None
    }

    /// Decodes a whole value.
    ///
    /// # Errors
    /// When `bytes` is not an encoding of this type; never a panic.
    fn decode(bytes: &[u8]) -> Result<Self::Owned, ValueDecodeError> {
        match Self::decode_inner(bytes)? {
            (value, []) => Ok(value),
            _ => Err(undecodable::<Self>(bytes)),
        }
    }

    /// Decodes one field and returns what follows it.
    ///
    /// # Errors
    /// When `bytes` does not begin with an encoding of this type; never a panic.
    fn decode_inner(bytes: &[u8]) -> Result<(Self::Owned, &[u8]), ValueDecodeError>;
}

#[cold]
fn undecodable<V: Value + ?Sized>(bytes: &[u8]) -> ValueDecodeError {
    ValueDecodeError { expected: V::type_name(), length: bytes.len() }
}

macro_rules! number_value {
    ($($ty:ident)*) => {$(
        impl Value for $ty {
            type Owned = $ty;

            fn type_name() -> Cow<'static, str> {
                stringify!($ty).into()
            }

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn decode_inner(bytes: &[u8]) -> Result<($ty, &[u8]), ValueDecodeError> {
                match bytes.split_first_chunk() {
                    Some((field, rest)) => Ok(($ty::from_le_bytes(*field), rest)),
                    None => Err(undecodable::<Self>(bytes)),
                }
            }
        }
    )*};
}

number_value!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

impl Value for bool {
    type Owned = bool;

    fn type_name() -> Cow<'static, str> {
        "bool".into()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode_inner(bytes: &[u8]) -> Result<(bool, &[u8]), ValueDecodeError> {
        match bytes {
            [0, rest @ ..] => Ok((false, rest)),
            [1, rest @ ..] => Ok((true, rest)),
            _ => Err(undecodable::<Self>(bytes)),
        }
    }
}

impl Value for () {
    type Owned = ();

    fn type_name() -> Cow<'static, str> {
        "()".into()
    }

    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode_inner(bytes: &[u8]) -> Result<((), &[u8]), ValueDecodeError> {
        Ok(((), bytes))
    }
}

impl<const N: usize> Value for [u8; N] {
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

    fn decode_inner(bytes: &[u8]) -> Result<([u8; N], &[u8]), ValueDecodeError> {
        match bytes.split_first_chunk() {
            Some((field, rest)) => Ok((*field, rest)),
            None => Err(undecodable::<Self>(bytes)),
        }
    }
}

/// Appends a length and bytes. A string whose length does not fit the field is far above the limit of a value; it is
/// cut, and the write is refused whatever else the value holds.
fn encode_counted(bytes: &[u8], out: &mut Vec<u8>) {
    let bytes = &bytes[..bytes.len().min(u32::MAX as usize)];
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn decode_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

macro_rules! bytes_value {
    ($($ty:ty)*) => {$(
        impl Value for $ty {
            type Owned = Vec<u8>;

            fn type_name() -> Cow<'static, str> {
                "bytes".into()
            }

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self);
            }

            fn encode_inner(&self, out: &mut Vec<u8>) {
                encode_counted(self, out);
            }

            #[inline]
            fn as_encoded(&self) -> Option<&[u8]> {
                Some(self)
            }

            fn decode(bytes: &[u8]) -> Result<Vec<u8>, ValueDecodeError> {
                Ok(bytes.to_vec())
            }

            fn decode_inner(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), ValueDecodeError> {
                match decode_counted(bytes) {
                    Some((field, rest)) => Ok((field.to_vec(), rest)),
                    None => Err(undecodable::<Self>(bytes)),
                }
            }
        }
    )*};
}

bytes_value!(&[u8] Vec<u8>);

macro_rules! text_value {
    ($($ty:ty)*) => {$(
        impl Value for $ty {
            type Owned = String;

            fn type_name() -> Cow<'static, str> {
                "str".into()
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }

            fn encode_inner(&self, out: &mut Vec<u8>) {
                encode_counted(self.as_bytes(), out);
            }

            #[inline]
            fn as_encoded(&self) -> Option<&[u8]> {
                Some(self.as_bytes())
            }

            fn decode(bytes: &[u8]) -> Result<String, ValueDecodeError> {
                String::from_utf8(bytes.to_vec()).map_err(|_| undecodable::<Self>(bytes))
            }

            fn decode_inner(bytes: &[u8]) -> Result<(String, &[u8]), ValueDecodeError> {
                match decode_counted(bytes) {
                    Some((field, rest)) => Ok((Self::decode(field)?, rest)),
                    None => Err(undecodable::<Self>(bytes)),
                }
            }
        }
    )*};
}

text_value!(&str String);

impl<T: Value> Value for Option<T> {
    type Owned = Option<T::Owned>;

    fn type_name() -> Cow<'static, str> {
        format!("Option<{}>", T::type_name()).into()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn encode_inner(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode_inner(out);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Option<T::Owned>, ValueDecodeError> {
        match bytes {
            [0] => Ok(None),
            [1, value @ ..] => Ok(Some(T::decode(value)?)),
            _ => Err(undecodable::<Self>(bytes)),
        }
    }

    fn decode_inner(bytes: &[u8]) -> Result<(Option<T::Owned>, &[u8]), ValueDecodeError> {
        match bytes {
            [0, rest @ ..] => Ok((None, rest)),
            [1, value @ ..] => {
                let (value, rest) = T::decode_inner(value)?;
                Ok((Some(value), rest))
            }
            _ => Err(undecodable::<Self>(bytes)),
        }
    }
}

tuple_coding!(Value, ValueDecodeError: A 0; B 1);
tuple_coding!(Value, ValueDecodeError: A 0, B 1; C 2);
tuple_coding!(Value, ValueDecodeError: A 0, B 1, C 2; D 3);
tuple_coding!(Value, ValueDecodeError: A 0, B 1, C 2, D 3; E 4);
tuple_coding!(Value, ValueDecodeError: A 0, B 1, C 2, D 3, E 4; F 5);
tuple_coding!(Value, ValueDecodeError: A 0, B 1, C 2, D 3, E 4, F 5; G 6);
tuple_coding!(Value, ValueDecodeError: A 0, B 1, C 2, D 3, E 4, F 5, G 6; H 7);

#[cfg(test)]
mod tests {
    use foreshore_base::limits::MAX_VALUE_BYTES;
    use proptest::prelude::*;

    use super::*;

    fn encoded(value: &impl Value) -> Vec<u8> {
        let mut out = Vec::new();
        value.encode(&mut out);
        out
    }

    type Everything<'a> = (&'a str, Option<&'a [u8]>, f64, (i128, bool), [u8; 3], (), Option<()>, &'a [u8]);

    proptest! {
        #[test]
        fn values_come_back(
            text: String, part: Option<Vec<u8>>, float: f64, number: i128, flag: bool, array: [u8; 3], last: Vec<u8>
        ) {
            let value: Everything<'_> =
                (&text, part.as_deref(), float, (number, flag), array, (), Some(()), &last);
            let bytes = encoded(&value);
            let back = Everything::decode(&bytes).unwrap();
            let owned = (text, part, float, (number, flag), array, (), Some(()), last);
            prop_assert_eq!(encoded(&owned), bytes);
            prop_assert_eq!(back, owned);
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            if let Ok((text, part, float, (number, flag), array, (), nothing, last)) = Everything::decode(&bytes) {
                let value: Everything<'_> =
                    (&text, part.as_deref(), float, (number, flag), array, (), nothing, &last);
                prop_assert_eq!(&encoded(&value), &bytes);
            }
            let _ = <(u64, &str)>::decode(&bytes);
            let _ = <Option<Option<u16>>>::decode(&bytes);
        }
    }

    /// Texts were cut where no value may be longer; but their encoding is also for whoever stores it elsewhere.
    #[test]
    fn texts_that_are_no_value_s_last_have_their_full_length() {
        let text = "x".repeat(MAX_VALUE_BYTES + 10);
        let (back, number) = <(&str, u8)>::decode(&encoded(&(text.as_str(), 7_u8))).unwrap();
        assert!(back == text && number == 7, "{} bytes", back.len());
    }

    #[test]
    fn what_a_value_holds_encoded_is_its_encoding() {
        fn check(value: &impl Value) -> Option<&[u8]> {
            let held = value.as_encoded();
            assert!(held.is_none_or(|held| held == encoded(value)));
            held
        }
        let (bytes, text) = (b"ab", "né");
        assert_eq!([check(&&bytes[..]), check(&bytes.to_vec()), check(bytes)], [Some(&bytes[..]); 3]);
        assert_eq!([check(&text), check(&text.to_owned())], [Some(text.as_bytes()); 2]);
        assert_eq!([check(&7u64), check(&("né", 7u8)), check(&Some("né")), check(&())], [None; 4]);
    }

    #[test]
    fn what_follows_a_whole_value_is_an_error() {
        u32::decode(&[0; 5]).unwrap_err();
        bool::decode(&[2]).unwrap_err();
        <()>::decode(&[0]).unwrap_err();
        <(u8, &[u8])>::decode(&[]).unwrap_err();
        <(&[u8], u8)>::decode(&[255, 255, 255, 255, 0]).unwrap_err();
        <&str>::decode(&[0xFF]).unwrap_err();
        assert_eq!(<(&str, Option<[u8; 4]>)>::type_name(), "(str, Option<[u8; 4]>)");
    }
}
