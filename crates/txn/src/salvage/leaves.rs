//! Which leaf a key is read from, and which keys no leaf has.

use std::{cmp::Reverse, collections::BTreeMap};

use foreshore_base::{Lsn, PageId};
use foreshore_pages::{Fence, SlottedView};

/// A leaf that can be read. No key is below the empty one, which stands for −∞; `None` is +∞.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) page: PageId,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    lsn: Lsn,
    /// The bitmap says that the page is free: believed only where no other leaf says anything.
    pub(super) free: bool,
}

impl Leaf {
    pub(super) fn of(view: SlottedView<'_>, page: PageId, free: bool) -> Leaf {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        view.low_fence(&mut low);
        let bounded = view.high_fence(&mut high) == Fence::Key;
        Leaf { page, low, high: bounded.then_some(high), lsn: view.lsn(), free }
    }
}

/// A range of keys of which nothing is known: from `low`, which is part of it, to `high`, which is not; `None` is no
/// bound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyGap {
    /// The first key; the empty one is below all others.
    pub low: Vec<u8>,
    /// The first key behind it.
    pub high: Option<Vec<u8>>,
}

/// Keys that are read from one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'p> {
    low: &'p [u8],
    high: Option<&'p [u8]>,
    pub(super) page: PageId,
}

impl Piece<'_> {
    pub(super) fn encloses(&self, key: &[u8]) -> bool {
        self.low <= key && self.high.is_none_or(|high| key < high)
    }
}

/// The keys of a table, cut into pieces that do not overlap, by their low ends.
#[derive(Debug, Default)]
pub(super) struct Pieces(BTreeMap<Vec<u8>, (Option<Vec<u8>>, PageId)>);

impl Pieces {
    /// The newest leaf first: the others have what it leaves.
    pub(super) fn of(mut leaves: Vec<Leaf>) -> Pieces {
        leaves.sort_by_key(|leaf| (leaf.free, Reverse(leaf.lsn)));
        let mut pieces = Pieces::default();
        for leaf in leaves {
            pieces.add(leaf);
        }
        pieces
    }

    /// Adds those parts of a leaf that no piece has yet.
    fn add(&mut self, leaf: Leaf) {
        let mut from = leaf.low;
        loop {
            // Past the piece that has this key, if one has.
            if let Some((_, (high, _))) = self.0.range(..=from.clone()).next_back() {
                match high {
                    None => return,
                    Some(high) if *high > from => from.clone_from(high),
                    Some(_) => {}
                }
            }
            if leaf.high.as_ref().is_some_and(|high| *high <= from) {
                return;
            }
            let next = self.0.range(from.clone()..).next().map(|(low, _)| low.clone());
            if next.as_ref() == Some(&from) {
                // Two pieces side by side: past the second, too.
                continue;
            }
            let to = match (&next, &leaf.high) {
                (Some(next), Some(high)) => Some(next.min(high).clone()),
                (Some(bound), None) | (None, Some(bound)) => Some(bound.clone()),
                (None, None) => None,
            };
            self.0.insert(from, (to.clone(), leaf.page));
            match to {
                Some(to) => from = to,
                None => return,
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Piece<'_>> {
        self.0.iter().map(|(low, (high, page))| Piece { low, high: high.as_deref(), page: *page })
    }

    /// The piece that has this key.
    pub(super) fn find(&self, key: &[u8]) -> Option<Piece<'_>> {
        let before = self.0.range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Included(key)));
        let (low, (high, page)) = before.into_iter().next_back()?;
        let piece = Piece { low, high: high.as_deref(), page: *page };
        piece.encloses(key).then_some(piece)
    }

    /// What lies between the pieces, before the first and behind the last.
    pub(super) fn gaps(&self) -> Vec<KeyGap> {
        let mut gaps = Vec::new();
        let mut end = Some(Vec::new());
        for (low, (high, _)) in &self.0 {
            if let Some(end) = end.take().filter(|end| end < low) {
                gaps.push(KeyGap { low: end, high: Some(low.clone()) });
            }
            end.clone_from(high);
        }
        gaps.extend(end.map(|low| KeyGap { low, high: None }));
        gaps
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::random::Xorshift;

    use super::*;

    /// Any leaves, against a table of who has each key of one byte.
    #[test]
    fn each_key_comes_from_the_newest_leaf_that_encloses_it() {
        let mut random = Xorshift::new(11);
        for _ in 0..2000 {
            let mut owners: [Option<(bool, Lsn, PageId)>; 40] = [None; 40];
            let mut leaves = Vec::new();
            for number in 0..random.below(9) {
                let (low, high) = (random.below(40), 1 + random.below(42));
                let (free, lsn) = (random.below(4) == 0, Lsn(100 + number));
                let page = PageId(number as u32 + 1);
                let bound = (high < 40).then(|| vec![high as u8]);
                let low_key = if low == 0 { Vec::new() } else { vec![low as u8] };
                if bound.as_ref().is_some_and(|bound| *bound <= low_key) {
                    continue;
                }
                for owner in &mut owners[low as usize..(high as usize).min(40)] {
                    let better = |&(was_free, _, _): &(bool, Lsn, PageId)| free && !was_free;
                    if !owner.as_ref().is_some_and(better) {
                        *owner = Some((free, lsn, page));
                    }
                }
                leaves.push(Leaf { page, low: low_key, high: bound, lsn, free });
            }
            let pieces = Pieces::of(leaves);
            let gaps = pieces.gaps();
            for (key, owner) in (0..40_u8).zip(owners) {
                let key = if key == 0 { Vec::new() } else { vec![key] };
                assert_eq!(
                    pieces.find(&key).map(|piece| piece.page),
                    owner.map(|(_, _, page)| page),
                    "{key:?}"
                );
                let lost =
                    gaps.iter().any(|gap| gap.low <= key && gap.high.as_ref().is_none_or(|high| key < *high));
                assert_eq!(lost, owner.is_none(), "{key:?} {gaps:?}");
            }
        }
    }
}
