//! Keys and values as they are stored.

use foreshore_base::{
    key::Key,
    limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES},
};

use crate::{
    error::{Error, Result},
    value::Value,
};

/// Refuses a key that is too long (DB-7).
#[inline]
pub(crate) fn check_length(key: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_BYTES { Err(Error::key_too_long(key.len())) } else { Ok(()) }
}

/// A key in the order-preserving encoding, refused when it is too long (DB-2); in `scratch` only if it is nowhere
/// yet.
#[inline]
pub(crate) fn encoded_key<'k, K: Key>(key: &'k K, scratch: &'k mut Vec<u8>) -> Result<&'k [u8]> {
    let bytes = match key.as_encoded() {
        Some(bytes) => bytes,
        None => {
            scratch.clear();
            key.encode(scratch);
            scratch
        }
    };
    check_length(bytes).map(|()| bytes)
}

/// As [`encoded_key`].
#[inline]
pub(super) fn encoded_value<'v, V: Value>(value: &'v V, scratch: &'v mut Vec<u8>) -> Result<&'v [u8]> {
    let bytes = match value.as_encoded() {
        Some(bytes) => bytes,
        None => {
            scratch.clear();
            value.encode(scratch);
            scratch
        }
    };
    if bytes.len() > MAX_VALUE_BYTES { Err(Error::value_too_long(bytes.len())) } else { Ok(bytes) }
}
