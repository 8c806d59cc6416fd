//! Where a transaction has found nothing, and nothing comes but what it adds itself.
//!
//! What it deletes lies in its place until its end (BTREE-14), and each scan from the same bound would pass over all of
//! it again: one that takes the first entry of what is left would look at as many as it has taken, each time.
//!
//! TXN-44: so it remembers the stretches over which its scans have passed and met no record. They are under its locks,
//! gaps and deleted records alike, until its end, so nobody else adds anything there. Where it adds a record itself,
//! one is parted; when it takes anything back, all are forgotten. In reconnaissance nothing is locked, nor remembered.

use std::{mem, ops::Bound};

use foreshore_base::{TableId, bounds::as_slice};
use foreshore_btree::Direction;
use foreshore_env::sabotage::{Fault, planted};

/// How many stretches it remembers: those that were met last.
const MOST: usize = 32;

type Near<'k> = Bound<&'k [u8]>;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Barren(Vec<Stretch>);

/// For scans in this direction there is nothing from the near bound `from` to where the near bound `to` begins.
#[derive(Debug)]
struct Stretch {
    table: TableId,
    direction: Direction,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
}

/// Whether a scan that begins at a near bound comes to the key.
fn comes_to(direction: Direction, near: Near<'_>, key: &[u8]) -> bool {
    match (direction, near) {
        (_, Bound::Unbounded) => true,
        (Direction::Ascending, Bound::Included(near)) => near <= key,
        (Direction::Ascending, Bound::Excluded(near)) => near < key,
        (Direction::Descending, Bound::Included(near)) => key <= near,
        (Direction::Descending, Bound::Excluded(near)) => key < near,
    }
}

/// Whether, in the order of a scan, a near bound lies before another.
fn is_before(direction: Direction, bound: Near<'_>, other: Near<'_>) -> bool {
    let (Bound::Included(key) | Bound::Excluded(key)) = other else { return false };
    comes_to(direction, bound, key) && (matches!(other, Bound::Excluded(_)) || bound != other)
}

impl Stretch {
    fn is_of(&self, table: TableId, direction: Direction) -> bool {
        (self.table, self.direction) == (table, direction)
    }

    /// Whether a scan that begins at a near bound begins within it.
    fn has(&self, near: Near<'_>) -> bool {
        !is_before(self.direction, near, as_slice(&self.from)) && self.ends_behind(near)
    }

    fn ends_behind(&self, near: Near<'_>) -> bool {
        is_before(self.direction, near, as_slice(&self.to))
    }

    /// Takes in one that overlaps with it or adjoins it; gives back one that does neither.
    fn join(&mut self, other: Stretch) -> Option<Stretch> {
        let is_before = |bound: &Bound<Vec<u8>>, other: &Bound<Vec<u8>>| {
            is_before(self.direction, as_slice(bound), as_slice(other))
        };
        let is_apart = is_before(&self.to, &other.from) || is_before(&other.to, &self.from);
        if !other.is_of(self.table, self.direction) || is_apart {
            return Some(other);
        }
        let (longer_before, longer_behind) =
            (is_before(&other.from, &self.from), is_before(&self.to, &other.to));
        if longer_before {
            self.from = other.from;
        }
        if longer_behind {
            self.to = other.to;
        }
        None
    }
}

impl Barren {
    /// A scan from `from` on has met nothing before `to`.
    pub(super) fn note(&mut self, table: TableId, direction: Direction, from: Near<'_>, to: Near<'_>) {
        let [from, to] = [from, to].map(|bound| bound.map(<[u8]>::to_vec));
        let mut stretch = Stretch { table, direction, from, to };
        self.0 = mem::take(&mut self.0).into_iter().filter_map(|other| stretch.join(other)).collect();
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(stretch);
    }

    /// Moves the near bound of a scan to where it may begin as well; whether that is farther on.
    #[inline]
    pub(super) fn move_on(&self, table: TableId, direction: Direction, near: &mut Bound<Vec<u8>>) -> bool {
        !self.0.is_empty() && self.pass_stretch(table, direction, near)
    }

    #[cold]
    fn pass_stretch(&self, table: TableId, direction: Direction, near: &mut Bound<Vec<u8>>) -> bool {
        let mut of_these = self.0.iter().filter(|stretch| stretch.is_of(table, direction));
        let found = of_these.find(|stretch| stretch.has(as_slice(near)));
        if let Some(stretch) = found {
            near.clone_from(&stretch.to);
        }
        found.is_some()
    }

    /// The transaction adds a record.
    #[inline]
    pub(super) fn note_added(&mut self, table: TableId, key: &[u8]) {
        if !self.0.is_empty() {
            self.part_at(table, key);
        }
    }

    /// What lies behind the key stays as it is, and what lies before it if there is room for both: no other stretch has
    /// to go, which may be the one that spares most.
    #[cold]
    fn part_at(&mut self, table: TableId, key: &[u8]) {
        if planted(Fault::PutUnnoticed) {
            return;
        }
        for index in (0..self.0.len()).rev() {
            let (before, behind) = (Bound::Included(key), Bound::Excluded(key));
            if self.0[index].table != table || !self.0[index].has(before) {
                continue;
            }
            let Stretch { direction, from, to, .. } = self.0.remove(index);
            let [before, behind] = [before, behind].map(|bound| bound.map(<[u8]>::to_vec));
            for (from, to) in [(behind, to), (from, before)] {
                if self.0.len() < MOST && is_before(direction, as_slice(&from), as_slice(&to)) {
                    self.0.insert(index, Stretch { table, direction, from, to });
                }
            }
        }
    }

    /// The transaction takes something back, or adds more than one record.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
