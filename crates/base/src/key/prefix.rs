//! Keys that begin alike.

use super::types::{Key, TERMINATOR};
use crate::limits::MAX_KEY_BYTES;

/// The keys of a table that begin with something: a range of them (`KeyRange`) wherever one is asked for.
///
/// | `Prefix(…)` of | keys | which |
/// | --- | --- | --- |
/// | `"shor"` | `&str` | strings that begin so |
/// | `&bytes[..]` | `&[u8]`, `[u8; N]` | byte strings that begin so |
/// | `("alice",)`, `("alice", 7)` and so on | tuples with more fields than that | those whose first fields are these |
/// | `("alice", Prefix("shor"))`, `(Prefix("al"),)` and so on | tuples | those whose first fields are these, but for the last one here, which begins so |
///
/// That of an empty string is every key. Of an array within a tuple at most its length is taken: more is refused, as a
/// key that is too long is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<P>(pub P);

/// What keys of type `K` may be asked to begin with, in a [`Prefix`]. Implemented for what is listed there; for keys of
/// your own it can be, if it keeps the laws below.
pub trait KeyPrefix<K> {
    /// Appends what [`Key::encode`] of the keys that are meant begins with, and of no other key.
    fn encode(&self, out: &mut Vec<u8>);

    /// Appends what [`Key::encode_inner`] of these keys begins with, and of no other key.
    fn encode_inner(&self, out: &mut Vec<u8>);
}

macro_rules! string_prefix {
    ($($prefix:ty: $key:ty),*) => {$(
        impl KeyPrefix<$key> for $prefix {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                Key::encode(self, out);
            }

            fn encode_inner(&self, out: &mut Vec<u8>) {
                Key::encode_inner(self, out);
                out.truncate(out.len() - TERMINATOR.len());
            }
        }
    )*};
}

string_prefix!(&str: &str, &str: String, &[u8]: &[u8], &[u8]: Vec<u8>);

impl<const N: usize> KeyPrefix<[u8; N]> for &[u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn encode_inner(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
        if self.len() > N {
            // No array begins so, and what follows it must not be taken for its end: refused, as longer than any key.
            out.resize(out.len() + MAX_KEY_BYTES, 0);
        }
    }
}

/// For tuples of all these fields, those in brackets given: as a whole, and the last of them by what it begins with.
macro_rules! tuple_prefix {
    ([$($given:ident $index:tt)*] $last:ident $last_index:tt; $($rest:ident)+) => {
        impl<$($given: Key,)* $last: Key, $($rest: Key,)+> KeyPrefix<($($given,)* $last, $($rest,)+)>
            for ($($given,)* $last,)
        {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$index.encode_inner(out);)*
                self.$last_index.encode_inner(out);
            }

            fn encode_inner(&self, out: &mut Vec<u8>) {
                KeyPrefix::<($($given,)* $last, $($rest,)+)>::encode(self, out);
            }
        }

        impl<$($given: Key,)* $last: Key, $($rest: Key,)+ Prefixed: KeyPrefix<$last>>
            KeyPrefix<($($given,)* $last, $($rest,)+)> for ($($given,)* Prefix<Prefixed>,)
        {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$index.encode_inner(out);)*
                self.$last_index.0.encode_inner(out);
            }

            fn encode_inner(&self, out: &mut Vec<u8>) {
                KeyPrefix::<($($given,)* $last, $($rest,)+)>::encode(self, out);
            }
        }
    };
    ([$($given:ident $index:tt)+] $last:ident $last_index:tt;) => {
        impl<$($given: Key,)+ $last: Key, Prefixed: KeyPrefix<$last>> KeyPrefix<($($given,)+ $last,)>
            for ($($given,)+ Prefix<Prefixed>,)
        {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$index.encode_inner(out);)+
                self.$last_index.0.encode(out);
            }

            fn encode_inner(&self, out: &mut Vec<u8>) {
                $(self.$index.encode_inner(out);)+
                self.$last_index.0.encode_inner(out);
            }
        }
    };
}

tuple_prefix!([] A 0; B);
tuple_prefix!([] A 0; B C);
tuple_prefix!([] A 0; B C D);
tuple_prefix!([] A 0; B C D E);
tuple_prefix!([] A 0; B C D E F);
tuple_prefix!([A 0] B 1;);
tuple_prefix!([A 0] B 1; C);
tuple_prefix!([A 0] B 1; C D);
tuple_prefix!([A 0] B 1; C D E);
tuple_prefix!([A 0] B 1; C D E F);
tuple_prefix!([A 0 B 1] C 2;);
tuple_prefix!([A 0 B 1] C 2; D);
tuple_prefix!([A 0 B 1] C 2; D E);
tuple_prefix!([A 0 B 1] C 2; D E F);
tuple_prefix!([A 0 B 1 C 2] D 3;);
tuple_prefix!([A 0 B 1 C 2] D 3; E);
tuple_prefix!([A 0 B 1 C 2] D 3; E F);
tuple_prefix!([A 0 B 1 C 2 D 3] E 4;);
tuple_prefix!([A 0 B 1 C 2 D 3] E 4; F);
tuple_prefix!([A 0 B 1 C 2 D 3 E 4] F 5;);

/// What lies behind everything that begins with `prefix`, in its place; whether there is anything.
pub fn succeed(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether a key lies in the range of a prefix, which begins there and ends before what lies behind it.
    fn begins<K: Key>(key: &K, prefix: &impl KeyPrefix<K>) -> bool {
        let (mut encoded, mut low) = (Vec::new(), Vec::new());
        key.encode(&mut encoded);
        prefix.encode(&mut low);
        let mut high = low.clone();
        encoded >= low && (!succeed(&mut high) || encoded < high)
    }

    /// Bytes that matter in encodings come often.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0, 1, b'a', 0xFE, 0xFF]), 0..4)
    }

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!['\0', '\u{1}', 'a', 'é', '\u{10FFFF}']), 0..4)
            .prop_map(|text| text.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn strings_that_begin_so_are_all_of_it(key in text(), prefix in text(), a in bytes(), b in bytes()) {
            prop_assert_eq!(begins(&key.as_str(), &prefix.as_str()), key.starts_with(&prefix));
            prop_assert_eq!(begins(&a.as_slice(), &b.as_slice()), a.starts_with(&b));
            let array: [u8; 3] = std::array::from_fn(|index| a.get(index).copied().unwrap_or(0xFF));
            prop_assert_eq!(begins(&array, &b.as_slice()), array.starts_with(&b));
        }

        #[test]
        fn tuples_that_begin_so_are_all_of_it(
            key in (bytes(), text(), -1i8..2, bytes()), given in (bytes(), text(), -1i8..2, bytes())
        ) {
            let (a, b, c, d) = &key;
            let (e, f, g, h) = &given;
            let (a, b, d, e, f, h) = (a.as_slice(), b.as_str(), d.as_slice(), e.as_slice(), f.as_str(), h.as_slice());
            let key = (a, b, *c, d);
            prop_assert_eq!(begins(&key, &(e,)), a == e);
            prop_assert_eq!(begins(&key, &(Prefix(e),)), a.starts_with(e));
            prop_assert_eq!(begins(&key, &(e, f)), (a, b) == (e, f));
            prop_assert_eq!(begins(&key, &(e, Prefix(f))), a == e && b.starts_with(f));
            prop_assert_eq!(begins(&key, &(e, f, *g)), (a, b, *c) == (e, f, *g));
            prop_assert_eq!(begins(&key, &(e, f, *g, Prefix(h))), (a, b, *c) == (e, f, *g) && d.starts_with(h));
            // A tuple within a tuple.
            let key = ((a, b), *c);
            prop_assert_eq!(begins(&key, &(Prefix((e,)),)), a == e);
            prop_assert_eq!(begins(&key, &(Prefix((e, Prefix(f))),)), a == e && b.starts_with(f));
            prop_assert_eq!(begins(&key, &((e, f),)), (a, b) == (e, f));
        }
    }

    #[test]
    fn what_follows_an_array_is_not_taken_for_its_end() {
        let begin = |bytes: &[u8]| {
            let mut low = Vec::new();
            KeyPrefix::<([u8; 2], u8)>::encode(&(Prefix(bytes),), &mut low);
            low
        };
        assert_eq!(begin(&[1, 2]), [1, 2]);
        assert!(begin(&[1, 2, 3]).len() > MAX_KEY_BYTES, "no key begins so");
    }

    #[test]
    fn nothing_lies_behind_the_last_bytes() {
        let behind = |prefix: &[u8]| {
            let mut bytes = prefix.to_vec();
            succeed(&mut bytes).then_some(bytes)
        };
        assert_eq!(behind(b""), None);
        assert_eq!(behind(&[0xFF, 0xFF]), None);
        assert_eq!(behind(&[7, 0xFF, 0xFF]), Some(vec![8]));
        assert_eq!(behind(&[7, 0]), Some(vec![7, 1]));
    }
}
