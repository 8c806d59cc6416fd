//! The limits of what is stored, and of how much may be open at a time. Reaching one is a typed error, never a panic or
//! a hang. How far an option goes is said where it is.

/// Bytes in a page, in memory and on disk.
pub const PAGE_BYTES: usize = 8192;
/// Longest key in bytes, after encoding.
pub const MAX_KEY_BYTES: usize = 2048;
/// Longest value in bytes. Values longer than [`MAX_INLINE_VALUE_BYTES`] are stored in chunks of the overflow table.
pub const MAX_VALUE_BYTES: usize = 16 << 20;
/// Longest value that is stored inside its leaf: with the longest key beside it, a record still fits a leaf whose
/// two fences are of the longest kind.
pub const MAX_INLINE_VALUE_BYTES: usize = 1792;
/// Bytes of a long value in one record of the overflow table.
pub const OVERFLOW_CHUNK_BYTES: usize = 1750;
/// Pages in the data file: page ids are 32 bits, so the file ends at 32 TiB.
pub const MAX_PAGES: u64 = 1 << 32;
/// Transactions open at the same time; also the size of an exact deadlock digest in bits.
pub const MAX_TRANSACTIONS: usize = 1024;
/// Length of the global id of a prepared transaction in bytes.
pub const MAX_GLOBAL_ID_BYTES: usize = 200;
/// Length of a table's name in bytes.
pub const MAX_TABLE_NAME_BYTES: usize = 255;
/// Length of the names of a table's types in bytes: of its keys, of its values, and one byte between them.
pub const MAX_TABLE_TYPES_BYTES: usize = MAX_INLINE_VALUE_BYTES - 8;
/// Tables in a database.
pub const MAX_TABLES: usize = 65_536;
/// Levels of a B-tree: a longer descent is damage, not depth.
pub const MAX_TREE_LEVELS: usize = 64;
