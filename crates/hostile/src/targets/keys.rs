//! Keys and values as bytes: what was decoded encodes to the same bytes, and bytes sort as what they stand for.

use std::fmt::Debug;

use foreshore::{Key, Value};

use crate::edit::Source;

/// Two byte strings, each taken for an encoded key of every kind, and for a value.
pub(super) fn key(data: &[u8]) {
    let mut source = Source::new(data);
    let count = usize::from(source.u8());
    let one = source.bytes(count);
    let other = source.rest();
    decoded::<u8>(one, other);
    decoded::<u16>(one, other);
    decoded::<u32>(one, other);
    decoded::<u64>(one, other);
    decoded::<u128>(one, other);
    decoded::<i8>(one, other);
    decoded::<i16>(one, other);
    decoded::<i32>(one, other);
    decoded::<i64>(one, other);
    decoded::<i128>(one, other);
    decoded::<bool>(one, other);
    decoded::<&str>(one, other);
    decoded::<&[u8]>(one, other);
    decoded::<[u8; 3]>(one, other);
    decoded::<(u32, &str)>(one, other);
    decoded::<(&str, i16)>(one, other);
    decoded::<(&[u8], &[u8])>(one, other);
    decoded::<(&str, (i8, &[u8]), bool)>(one, other);
    for bytes in [one, other] {
        value::<Option<i64>>(bytes);
        value::<(u8, Option<f64>, bool)>(bytes);
        let _ = <(&str, &[u8]) as Value>::decode(bytes);
        let _ = <Option<(bool, Option<&str>)> as Value>::decode(bytes);
    }
    encoded((one, other));
    encoded((other, one));
}

/// Two keys of one type, if both are: equal bytes after the way there and back, and the same order.
fn decoded<K: Key>(one: &[u8], other: &[u8])
where
    K::Owned: Key + Ord + Debug,
{
    for bytes in [one, other] {
        if let Ok(key) = K::decode(bytes) {
            let mut again = Vec::new();
            key.encode(&mut again);
            assert_eq!(again, bytes, "{key:?} of another encoding");
        }
    }
    let keys = (K::decode(one), K::decode(other));
    if let (Ok(first), Ok(second)) = &keys {
        assert_eq!(first.cmp(second), one.cmp(other), "{first:?} and {second:?} sort otherwise as bytes");
    }
}

fn value<V: Value<Owned = V>>(bytes: &[u8]) {
    if let Ok(value) = V::decode(bytes) {
        let mut again = Vec::new();
        value.encode(&mut again);
        assert_eq!(again, bytes, "a value of another encoding");
    }
}

/// A pair of byte strings as a key: what was encoded is decoded, and sorts as the pair does.
fn encoded(pair: (&[u8], &[u8])) {
    let mut bytes = Vec::new();
    Key::encode(&pair, &mut bytes);
    let back = <(&[u8], &[u8]) as Key>::decode(&bytes).expect("what was just encoded");
    assert_eq!((&*back.0, &*back.1), pair);
    let mut swapped = Vec::new();
    Key::encode(&(pair.1, pair.0), &mut swapped);
    assert_eq!(bytes.cmp(&swapped), pair.cmp(&(pair.1, pair.0)));
}
