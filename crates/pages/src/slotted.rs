//! Slotted pages: sorted records of key and value, with the node's common prefix stored once.
//!
//! ```text
//! 0        64                  slots end        heap start               8192
//! ┌────────┬────────────────────┬──────────────┬───────────────────────────┐
//! │ header │ slots, in key order│     hole     │ heap: records and fences  │
//! └────────┴────────────────────┴──────────────┴───────────────────────────┘
//! ```
//!
//! A slot is one aligned word, so that even a torn page has no torn slots:
//!
//! | bits | field |
//! | --- | --- |
//! | 0..32 | head: four bytes of the key after the prefix and the skipped bytes, as a big-endian number, zeros where it is shorter |
//! | 32..48 | offset of the record |
//! | 48..61 | bytes of the key after the prefix |
//! | 61 | slack: behind the value are bytes that the record keeps |
//! | 62 | overflow: the value says where the value is |
//! | 63 | ghost: deleted, still there for locks and for undo |
//!
//! A record in the heap: the key after the prefix | value length (16 bits) | value | slack. In an inner node the value
//! is the child's page id, 32 bits. Fences lie in the heap in full; a node has a low fence and one high key: its high
//! fence or, while it has a foster child, the lowest key of that child.
//!
//! Slack is what a shorter value leaves of a longer one. The record keeps it, wherever it moves, so that the longer
//! value fits again, until somebody who knows that it will not come back has the record trimmed (BTREE-16). It begins
//! with its own length: a byte below 128, or that length's higher byte, plus 128, and its lower one.
//!
//! Skipped are first bytes behind the prefix that all records share although the fences do not: heads of nodes at the
//! rim of a tree, and of those whose keys carry over between the fences, tell one key from another all the same.
//! Whoever builds a node looks for them; a thread that inserts a key that does not share them has all heads made anew.
//!
//! PAGE-2: everything in [`SlottedView`] ends after as many steps as a page can have slots, and returns nonsense at
//! worst, whatever the bytes are. It may be used under an optimistic latch.

mod build;
mod edit;
mod extent;
mod inspect;
mod prefix;
mod records;
mod search;
mod slot;
#[cfg(test)]
mod tests;
mod view;

use foreshore_base::limits::PAGE_BYTES;

pub use build::{NodeHeader, PageBuilder};
pub use edit::{PageFull, SlottedMut};
pub use records::Records;
pub use slot::Slot;
pub use view::{Fence, SlottedView};

use crate::layout::PAGE_HEADER_BYTES;

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 8;
/// Slots that a page has room for: no slot count above it is believed.
pub(crate) const MAX_SLOTS: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / SLOT_BYTES;
/// Bytes of the length of a record's value, between its key and the value.
const RECORD_LENGTH_BYTES: usize = 2;

/// Bytes that a record takes in a page beside its key (after the prefix) and its value.
pub const RECORD_OVERHEAD_BYTES: usize = SLOT_BYTES + RECORD_LENGTH_BYTES;

/// What a record is, beside its key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFlags {
    /// Deleted, still there for locks and for undo.
    pub ghost: bool,
    /// The value says where the value is.
    pub overflow: bool,
}

/// What slack of so many bytes begins with.
#[inline]
fn slack_head(bytes: usize) -> ([u8; 2], usize) {
    match bytes {
        0 => ([0, 0], 0),
        1..128 => ([bytes as u8, 0], 1),
        _ => ([128 | (bytes >> 8) as u8, bytes as u8], 2),
    }
}

/// The offset of a slot.
#[inline]
const fn slot_offset(slot: usize) -> usize {
    PAGE_HEADER_BYTES + slot * SLOT_BYTES
}

/// The first four bytes of `suffix` as a number that sorts as they do.
#[inline]
fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk() {
        Some(head) => u32::from_be_bytes(*head),
        None => (0..4).fold(0, |head, index| head << 8 | u32::from(suffix.get(index).copied().unwrap_or(0))),
    }
}

/// The first eight bytes of `key` behind its first `prefix` ones, as a number that sorts as they do, zeros where there
/// are fewer.
#[inline]
fn sort_key_of(key: &[u8], prefix: usize) -> u64 {
    let suffix = key.get(prefix..).unwrap_or(&[]);
    match (suffix.first_chunk(), key.last_chunk()) {
        (Some(first), _) => u64::from_be_bytes(*first),
        // What is left of the key is the end of its last eight bytes. Twice: a shift by 64 is none.
        (None, Some(last)) => u64::from_be_bytes(*last) << (63 - 8 * suffix.len()) << 1,
        (None, None) => {
            (0..8).fold(0, |word, index| word << 8 | u64::from(suffix.get(index).copied().unwrap_or(0)))
        }
    }
}

/// How many first bytes two keys share.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
