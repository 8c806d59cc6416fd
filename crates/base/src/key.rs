//! Order-preserving ("memcomparable") encoding of typed keys: `a < b` exactly when `encode(a) < encode(b)` as byte
//! strings, so that the B-tree compares bytes and knows no types.
//!
//! | type | bytes |
//! | --- | --- |
//! | unsigned integer | big-endian |
//! | signed integer | big-endian with the sign bit flipped |
//! | `bool` | 0 or 1 |
//! | byte string, string, last in the key | as it is |
//! | the same, followed by more fields | each 0x00 becomes 0x00 0xFF; ended by 0x00 0x00 |
//! | tuple | its fields, one after another |

mod types;

pub use types::{Key, KeyDecodeError};
