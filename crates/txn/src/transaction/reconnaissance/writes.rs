//! What a reconnaissance would write, kept beside the trees.

use std::{collections::BTreeMap, mem::size_of, ops::Bound};

use foreshore_base::{Lsn, TableId};
use foreshore_btree::Direction;

/// What was written.
#[derive(Debug, Default)]
pub(in crate::transaction) struct Writes {
    values: BTreeMap<(TableId, Vec<u8>), Written>,
    /// What was replaced by the first write to each place since a mark, oldest first.
    replaced: Vec<Replaced>,
    /// How many these were at the last mark; `None`: nobody can want anything back.
    marked: Option<usize>,
    /// What all of that takes, about.
    bytes: usize,
}

#[derive(Debug)]
struct Written {
    /// `None`: it was deleted.
    value: Option<Vec<u8>>,
    /// How many were in [`Writes::replaced`] when the last one of this place was; 0: none is.
    replaced: usize,
}

#[derive(Debug)]
struct Replaced {
    place: (TableId, Vec<u8>),
    /// `None`: nothing had been written there.
    before: Option<Written>,
}

impl Written {
    fn bytes(&self) -> usize {
        self.value.as_ref().map_or(0, Vec::len)
    }
}

/// What a place takes, beside its value.
fn bytes_of((_, key): &(TableId, Vec<u8>)) -> usize {
    size_of::<Replaced>() + key.len()
}

impl Writes {
    /// What they take in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn set(&mut self, table: TableId, key: &[u8], value: Option<&[u8]>) {
        let (place, value) = ((table, key.to_vec()), value.map(<[u8]>::to_vec));
        let before = self.values.get_mut(&place);
        let replaced = before.as_ref().map_or(0, |before| before.replaced);
        let is_new = before.is_none();
        self.bytes += value.as_ref().map_or(0, Vec::len);
        if self.marked.is_some_and(|marked| replaced <= marked) {
            let replaced = self.replaced.len() + 1;
            let before = self.values.insert(place.clone(), Written { value, replaced });
            self.bytes += bytes_of(&place) * (1 + usize::from(is_new));
            self.replaced.push(Replaced { place, before });
        } else if let Some(before) = before {
            self.bytes -= before.bytes();
            before.value = value;
        } else {
            self.bytes += bytes_of(&place);
            self.values.insert(place, Written { value, replaced });
        }
    }

    pub(super) fn get(&self, table: TableId, key: &[u8]) -> Option<Option<&[u8]>> {
        // The map's key is owned, so a look needs one too; reconnaissance is not in a hurry.
        self.values.get(&(table, key.to_vec())).map(|written| written.value.as_deref())
    }

    /// How far it has come, as a savepoint names it.
    pub(in crate::transaction) fn mark(&mut self) -> Lsn {
        let mark = self.replaced.len();
        self.marked = Some(mark);
        Lsn(mark as u64)
    }

    /// Takes back what was written since a mark.
    pub(in crate::transaction) fn back_to(&mut self, mark: Lsn) {
        while self.replaced.len() as u64 > mark.0 {
            let Some(Replaced { place, before }) = self.replaced.pop() else { return };
            self.bytes -= bytes_of(&place) * (1 + usize::from(before.is_none()));
            let undone = match before {
                Some(written) => self.values.insert(place, written),
                None => self.values.remove(&place),
            };
            self.bytes -= undone.map_or(0, |undone| undone.bytes());
        }
        self.marked = self.marked.map(|marked| marked.min(self.replaced.len()));
    }

    /// The next key that was written, in the range and behind the near bound.
    pub(super) fn next(
        &self,
        table: TableId,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Option<(&[u8], Option<&[u8]>)> {
        let place = |key: &[u8]| (table, key.to_vec());
        let low = match low {
            Bound::Unbounded => Bound::Included(place(&[])),
            bound => bound.map(place),
        };
        let high = match high {
            Bound::Unbounded => Bound::Excluded((TableId(table.0.saturating_add(1)), Vec::new())),
            bound => bound.map(place),
        };
        let mut range = self.values.range((low, high));
        let found = match direction {
            Direction::Ascending => range.next(),
            Direction::Descending => range.next_back(),
        };
        found.map(|((_, key), written)| (key.as_slice(), written.value.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::random::Xorshift;

    use super::*;

    const TABLE: TableId = TableId::FIRST_USER;

    /// What every write replaced was kept, though nobody could want it back: a body that counts one record up a million
    /// times took a gigabyte.
    #[test]
    fn what_nobody_can_want_back_is_not_kept() {
        let mut writes = Writes::default();
        let write = |writes: &mut Writes| (0..100_u8).for_each(|n| writes.set(TABLE, b"key", Some(&[n])));
        write(&mut writes);
        assert_eq!(writes.replaced.len(), 0);
        let mark = writes.mark();
        write(&mut writes);
        assert_eq!(writes.replaced.len(), 1);
        writes.back_to(mark);
        assert_eq!(writes.get(TABLE, b"key"), Some(Some(&[99][..])));
        assert_eq!(writes.bytes, bytes_of(&(TABLE, b"key".to_vec())) + 1);
    }

    /// Against copies of all that was written at each mark.
    #[test]
    fn marks_are_come_back_to() {
        let mut random = Xorshift::new(7);
        for _ in 0..500 {
            let (mut writes, mut model, mut marks) = (Writes::default(), BTreeMap::new(), Vec::new());
            for number in 0..40_u8 {
                let key = [random.below(3) as u8];
                match random.below(8) {
                    0 => marks.push((writes.mark(), model.clone())),
                    1 if !marks.is_empty() => {
                        marks.truncate(random.below(marks.len() as u64) as usize + 1);
                        let (mark, then) = marks.last().expect("there is one");
                        writes.back_to(*mark);
                        model.clone_from(then);
                    }
                    2 => {
                        writes.set(TABLE, &key, None);
                        model.insert(key, None);
                    }
                    _ => {
                        writes.set(TABLE, &key, Some(&[number]));
                        model.insert(key, Some([number]));
                    }
                }
                for key in 0..3 {
                    let expected = model.get(&[key]).map(|value| value.as_ref().map(<[u8; 1]>::as_slice));
                    assert_eq!(writes.get(TABLE, &[key]), expected);
                }
                let kept = writes.replaced.iter().map(|replaced| {
                    bytes_of(&replaced.place) + replaced.before.as_ref().map_or(0, Written::bytes)
                });
                let here = writes.values.iter().map(|(place, written)| bytes_of(place) + written.bytes());
                assert_eq!(writes.bytes, kept.sum::<usize>() + here.sum::<usize>());
            }
        }
    }
}
