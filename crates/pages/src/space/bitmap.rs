//! The bits of a bitmap page. Bit n of the body is page n of the span; set means in use.

use crate::{layout::PAGE_HEADER_BYTES, words::PageWords};

const WORD_BITS: u64 = 64;

fn word_offset(index: u64) -> usize {
    PAGE_HEADER_BYTES + (index / WORD_BITS) as usize * 8
}

/// Whether page `index` of the span is in use.
pub(crate) fn get(words: &PageWords, index: u64) -> bool {
    words.u64(word_offset(index)) >> (index % WORD_BITS) & 1 != 0
}

/// Marks page `index` of the span. Needs the latch exclusively.
pub(super) fn set(words: &PageWords, index: u64, used: bool) {
    let (offset, bit) = (word_offset(index), 1 << (index % WORD_BITS));
    let word = words.u64(offset);
    words.set_u64(offset, if used { word | bit } else { word & !bit });
}

/// The bits of the extent that begins with page `index`, inverted: 1 is free.
pub(super) fn free_in_extent(words: &PageWords, index: u64) -> u8 {
    !words.u8(PAGE_HEADER_BYTES + (index / 8) as usize)
}

/// The first extent in `from..to` (page indexes in the span, whole extents) that has a free page.
pub(super) fn find_extent(words: &PageWords, from: u64, to: u64) -> Option<u64> {
    let mut index = from;
    while index < to {
        if index.is_multiple_of(WORD_BITS) && words.u64(word_offset(index)) == u64::MAX {
            index += WORD_BITS;
            continue;
        }
        if free_in_extent(words, index) != 0 {
            return Some(index);
        }
        index += 8;
    }
    None
}
