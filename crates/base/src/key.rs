//! Order-preserving ("memcomparable") encoding of typed keys: `a < b` exactly when `encode(a) < encode(b)` as byte
//! strings, so that the B-tree compares bytes and knows no types.

mod prefix;
mod types;

pub use prefix::{KeyPrefix, Prefix, succeed};
pub use types::{Key, KeyDecodeError};
