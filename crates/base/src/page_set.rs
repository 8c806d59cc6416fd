//! Sets of pages.

use std::collections::BTreeMap;

use crate::PageId;

/// Words of a piece of a set.
const PIECE_WORDS: usize = 64;
/// Pages of a piece.
const PIECE_PAGES: u32 = PIECE_WORDS as u32 * u64::BITS;

/// A set of the pages of a file: a bit for each page, in pieces of 4,096 pages. So all pages of 100 GiB take less than
/// 2 MiB.
#[derive(Debug, Default)]
pub struct PageSet(BTreeMap<u32, Box<[u64; PIECE_WORDS]>>);

impl PageSet {
    /// Adds a page; whether it was not there.
    pub fn insert(&mut self, page: PageId) -> bool {
        let (piece, word, bit) = place(page);
        let word = &mut self.0.entry(piece).or_insert_with(|| Box::new([0; PIECE_WORDS]))[word];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Whether a page is there.
    pub fn contains(&self, page: PageId) -> bool {
        let (piece, word, bit) = place(page);
        self.0.get(&piece).is_some_and(|piece| piece[word] & bit != 0)
    }
}

/// The piece of a page, its word there, and its bit.
fn place(PageId(page): PageId) -> (u32, usize, u64) {
    let index = page % PIECE_PAGES;
    (page / PIECE_PAGES, (index / u64::BITS) as usize, 1 << (index % u64::BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_has_what_was_added_and_nothing_else() {
        let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
        let ends = [0, 1, 63, 64, 4095, 4096, 8191, 8192, u32::MAX - 1, u32::MAX].map(PageId);
        let spread = (0..10_000u32).map(|number| PageId(number.wrapping_mul(0x9E37_79B9) >> 8));
        for page in ends.into_iter().chain(spread).chain(ends) {
            assert_eq!(set.contains(page), model.contains(&page), "{page}");
            assert_eq!(set.insert(page), model.insert(page), "{page}");
            assert!(set.contains(page), "{page}");
        }
        let near = |PageId(page)| [page.wrapping_sub(1), page.wrapping_add(1)].map(PageId);
        for page in model.clone().into_iter().flat_map(near) {
            assert_eq!(set.contains(page), model.contains(&page), "{page}");
        }
    }
}
