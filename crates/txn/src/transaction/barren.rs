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
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use foreshore_btree::{Append, LockKind};
    use foreshore_env::{disk::Disk, sync::Arc};
    use foreshore_lock::LockError;
    use foreshore_testkit::FaultyDisk;

    use super::*;
    use crate::{BeginOptions, Durability, Engine, EngineOptions, TableInfo, Txn, TxnError};

    const EVERYTHING: (Near<'static>, Near<'static>) = (Bound::Unbounded, Bound::Unbounded);

    fn open() -> (Arc<Engine>, TableInfo) {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let table = engine.create_table("table", b"").unwrap();
        (engine, table)
    }

    fn begin(engine: &Arc<Engine>) -> Txn {
        engine.begin(BeginOptions::default()).unwrap()
    }

    fn begins(txn: &Txn, table: &TableInfo, direction: Direction, near: Near<'_>) -> Bound<Vec<u8>> {
        let mut near = near.map(<[u8]>::to_vec);
        txn.session.barren.move_on(table.id(), direction, &mut near);
        near
    }

    fn fill(engine: &Arc<Engine>, table: &TableInfo, keys: impl IntoIterator<Item = u32>) {
        let mut txn = begin(engine);
        keys.into_iter().for_each(|key| assert!(!txn.put(table, &key.to_be_bytes(), b"value").unwrap()));
        txn.commit(Durability::Lazy).unwrap();
    }

    fn next(
        txn: &mut Txn,
        table: &TableInfo,
        range: (Near<'_>, Near<'_>),
        direction: Direction,
        kind: LockKind,
    ) -> Option<Vec<u8>> {
        let mut cursor = txn.cursor(table, range, direction, kind).unwrap();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        txn.next(&mut cursor, &mut key, &mut value).unwrap().then_some(key)
    }

    /// Each look for the first entry passed over all that the transaction had deleted before.
    #[test]
    fn who_takes_the_first_of_what_is_left_passes_each_once() {
        let (engine, table) = open();
        for direction in [Direction::Ascending, Direction::Descending] {
            fill(&engine, &table, 0..1000);
            let mut txn = begin(&engine);
            let mut taken: Vec<Vec<u8>> = Vec::new();
            while let Some(key) = next(&mut txn, &table, EVERYTHING, direction, LockKind::Exclusive) {
                let begins = begins(&txn, &table, direction, Bound::Unbounded);
                assert!(
                    taken.last().is_none_or(|last| !comes_to(direction, as_slice(&begins), last)),
                    "{}",
                    taken.len()
                );
                assert!(txn.delete(&table, &key).unwrap());
                taken.push(key);
            }
            assert_eq!(taken.len(), 1000);
            txn.commit(Durability::Sync).unwrap();
        }
        engine.close().unwrap();
    }

    /// What came back before all that was deleted had the next look pass over all of it once more.
    #[test]
    fn what_comes_back_parts_a_stretch_and_leaves_its_rest() {
        // More than there are stretches.
        const BACK: u32 = 40;
        let (engine, table) = open();
        for direction in [Direction::Ascending, Direction::Descending] {
            let place = |number: u32| match direction {
                Direction::Ascending => number,
                Direction::Descending => u32::MAX - number,
            };
            fill(&engine, &table, (100..300).map(place));
            let mut txn = begin(&engine);
            let (mut taken, mut farthest) = (0, 0);
            while let Some(key) = next(&mut txn, &table, EVERYTHING, direction, LockKind::Exclusive) {
                assert!(txn.delete(&table, &key).unwrap());
                let number = place(u32::from_be_bytes(key.try_into().unwrap()));
                taken += 1;
                if number < 100 {
                    continue;
                }
                for back in (1..=BACK).rev() {
                    assert!(!txn.put(&table, &place(back).to_be_bytes(), b"back").unwrap());
                }
                if farthest > 0 {
                    // Behind the last of what came back.
                    let begins = begins(&txn, &table, direction, Bound::Excluded(&place(BACK).to_be_bytes()));
                    assert!(
                        !comes_to(direction, as_slice(&begins), &place(farthest).to_be_bytes()),
                        "{number}"
                    );
                }
                farthest = number;
            }
            assert_eq!(taken, 200 * (1 + BACK));
            txn.commit(Durability::Sync).unwrap();
        }
        engine.close().unwrap();
    }

    /// What a scan passes over stays locked: nobody adds anything there, before the first entry or between two.
    #[test]
    fn others_add_nothing_where_a_transaction_has_found_nothing() {
        let (engine, table) = open();
        fill(&engine, &table, (10..20).map(|key| 2 * key));
        let mut txn = begin(&engine);
        for _ in 0..5 {
            let key = next(&mut txn, &table, EVERYTHING, Direction::Ascending, LockKind::Shared).unwrap();
            assert!(txn.delete(&table, &key).unwrap());
        }
        next(&mut txn, &table, EVERYTHING, Direction::Ascending, LockKind::Shared).unwrap();
        for key in [0_u32, 19, 20, 21, 28, 29] {
            let mut other = begin(&engine);
            other.set_no_wait(true);
            let added = other.insert(&table, &key.to_be_bytes(), b"other");
            assert!(matches!(added, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{key}: {added:?}");
            other.rollback().unwrap();
        }
        txn.rollback().unwrap();
        engine.close().unwrap();
    }

    /// Whatever the transaction does itself, and takes back, its scans see what is there.
    #[test]
    fn scans_see_what_their_own_transaction_does() {
        const KEYS: u64 = 40;
        let mut state = 7_u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let (engine, table) = open();
        let mut passed = 0;
        for round in 0..200 {
            let mut model: BTreeMap<Vec<u8>, ()> = BTreeMap::new();
            let mut txn = begin(&engine);
            while let Some(key) = next(&mut txn, &table, EVERYTHING, Direction::Ascending, LockKind::Shared) {
                txn.delete(&table, &key).unwrap();
            }
            txn.commit(Durability::Lazy).unwrap();
            let mut txn = begin(&engine);
            (0..KEYS as u32).for_each(|key| {
                txn.put(&table, &key.to_be_bytes(), b"value").unwrap();
                model.insert(key.to_be_bytes().to_vec(), ());
            });
            txn.commit(Durability::Lazy).unwrap();
            let mut txn = begin(&engine);
            let mut savepoint = None;
            for step in 0..120 {
                let key = (below(KEYS + 10) as u32).to_be_bytes();
                match below(12) {
                    0 => {
                        txn.put(&table, &key, b"other").unwrap();
                        model.insert(key.to_vec(), ());
                    }
                    1 if below(4) == 0 => savepoint = Some((txn.savepoint().unwrap(), model.clone())),
                    2 if below(4) == 0 => {
                        if let Some((savepoint, before)) = savepoint.take() {
                            txn.rollback_to(savepoint).unwrap();
                            model = before;
                        }
                    }
                    3 if below(8) == 0 => {
                        let key = (KEYS as u32 + 10 + step).to_be_bytes();
                        // Not behind what was deleted in an earlier round, say.
                        if matches!(txn.append(&table, &[(key, b"appended")]).unwrap(), Append::Done) {
                            model.insert(key.to_vec(), ());
                        }
                    }
                    _ => {
                        let direction = [Direction::Ascending, Direction::Descending][below(2) as usize];
                        let near = match below(6) {
                            0 => Bound::Included(&key[..]),
                            1 => Bound::Excluded(&key[..]),
                            _ => Bound::Unbounded,
                        };
                        let range = match direction {
                            Direction::Ascending => (near, Bound::Unbounded),
                            Direction::Descending => (Bound::Unbounded, near),
                        };
                        passed += u32::from(as_slice(&begins(&txn, &table, direction, near)) != near);
                        // What is added before its first step is in its way.
                        let mut cursor = txn.cursor(&table, range, direction, LockKind::Exclusive).unwrap();
                        if below(4) == 0 {
                            let key = (below(KEYS) as u32).to_be_bytes();
                            txn.put(&table, &key, b"other").unwrap();
                            model.insert(key.to_vec(), ());
                        }
                        let (mut found, mut value) = (Vec::new(), Vec::new());
                        let found = txn.next(&mut cursor, &mut found, &mut value).unwrap().then_some(found);
                        let mut there = model.keys().filter(|key| comes_to(direction, near, key));
                        let expected = match direction {
                            Direction::Ascending => there.next(),
                            Direction::Descending => there.next_back(),
                        };
                        assert_eq!(found.as_ref(), expected, "round {round}, step {step}: {range:?}");
                        if let Some(key) = found.filter(|_| below(8) > 0) {
                            txn.delete(&table, &key).unwrap();
                            model.remove(&key);
                        }
                    }
                }
            }
            txn.commit(Durability::Lazy).unwrap();
        }
        assert!(passed > 1000, "{passed}");
        engine.close().unwrap();
    }
}
