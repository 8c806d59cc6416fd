//! What one user after the other does, drawn at random, beside `BTreeMap`s that do the same: every operation of a
//! transaction, cursors that stay open while it writes, keys and values about their limits; and between transactions
//! what changes the files below them.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow, RangeBounds},
    panic::catch_unwind,
    sync::Arc,
};

use foreshore::{
    Cursor, Database, Direction, Durability, Error, Isolation, Options, Result, Savepoint, TableDefinition,
    TableLock, TransactOptions, Transaction,
    limits::{MAX_INLINE_VALUE_BYTES, MAX_KEY_BYTES, OVERFLOW_CHUNK_BYTES},
};
use foreshore_env::random::Xorshift;
use foreshore_testkit::FaultyDisk;

use crate::{history::effort, ways::Way};

const NAMES: [&str; 2] = ["one", "two"];
/// Transactions of a seed, and operations of a transaction.
const TRANSACTIONS: u64 = 15;
const OPERATIONS: u64 = 100;
/// Cursors and savepoints that a transaction has at a time.
const KEPT: usize = 5;

/// What may be drawn for any seed.
const CHOICES: [(&str, &[&str]); 6] = [
    ("escalation_locks", &["0", "5", "1000"]),
    ("lock_table", &["latched", "staged", "global_mutex"]),
    ("key_range_modes", &["orthogonal", "lomet", "next_key"]),
    ("latch_mode", &["hybrid", "optimistic", "always_shared", "always_exclusive"]),
    ("early_lock_release", &["off", "shared", "shared_and_exclusive"]),
    ("intent_locks", &["lightweight", "private", "in_table", "inherited"]),
];

type Content = BTreeMap<Vec<u8>, Vec<u8>>;
type Entry = (Vec<u8>, Vec<u8>);
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn table<'b>(number: usize) -> TableDefinition<'static, &'b [u8], &'b [u8]> {
    TableDefinition::new(NAMES[number])
}

fn slices((low, high): &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice))
}

/// The entries within bounds, which may be crossed.
fn within(content: &Content, bounds: &Bounds, direction: Direction) -> Vec<Entry> {
    let inside = content.iter().filter(|(key, _)| bounds.contains(*key));
    let mut entries: Vec<Entry> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
    if direction == Direction::Descending {
        entries.reverse();
    }
    entries
}

/// A cursor, and the bounds of what it has still to give.
struct Open {
    number: usize,
    cursor: Cursor<Vec<u8>, Vec<u8>>,
    bounds: Bounds,
    direction: Direction,
}

/// One run of a transaction.
struct Run {
    random: Xorshift,
    tables: [Content; 2],
    savepoints: Vec<(Savepoint, [Content; 2])>,
    cursors: Vec<Open>,
}

impl Run {
    /// Does its work; what the tables hold then.
    fn work(mut self, tx: &mut Transaction) -> Result<[Content; 2]> {
        for _ in 0..OPERATIONS {
            self.operation(tx)?;
        }
        Ok(self.tables)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    /// Few, many of them prefixes of others, and some as long as keys may be.
    fn key(&mut self) -> Vec<u8> {
        let length = self.below(6);
        match self.below(40) {
            0 => vec![b'z'; MAX_KEY_BYTES],
            1 | 2 => [vec![b'm'; MAX_KEY_BYTES - 1], vec![length as u8]].concat(),
            3..9 => vec![0; length],
            9..15 => vec![255; length],
            15..21 => (0..length).fold(b"prefix".to_vec(), |mut key, _| {
                key.push(self.below(2) as u8 * 255);
                key
            }),
            _ => (self.below(60) as u16).to_be_bytes().to_vec(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.below(14) {
            0 => 0,
            1..4 => MAX_INLINE_VALUE_BYTES - 1 + self.below(3),
            4..6 => 2 * OVERFLOW_CHUNK_BYTES + self.below(2),
            6 => 20_000,
            _ => self.below(60),
        };
        vec![self.below(256) as u8; length]
    }

    fn bounds(&mut self) -> Bounds {
        let mut bound = || match self.below(4) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        };
        (bound(), bound())
    }

    fn direction(&mut self) -> Direction {
        if self.below(2) == 0 { Direction::Ascending } else { Direction::Descending }
    }

    fn operation(&mut self, tx: &mut Transaction) -> Result<()> {
        let number = self.below(NAMES.len());
        let table = table(number);
        match self.below(26) {
            0..8 => self.write(tx, number)?,
            8..11 => {
                let key = self.key();
                assert_eq!(tx.delete(table, &key)?, self.tables[number].remove(&key).is_some());
            }
            11 => {
                let key = self.key();
                let found =
                    if self.below(2) == 0 { tx.get(table, &key)? } else { tx.get_for_update(table, &key)? };
                assert_eq!(found.as_ref(), self.tables[number].get(&key));
            }
            12 => {
                // Some are read in several rounds.
                let keys: Vec<Vec<u8>> = (0..self.below(40)).map(|_| self.key()).collect();
                let asked = keys.iter().map(Vec::as_slice);
                let found = if self.below(2) == 0 {
                    tx.get_many(table, asked)?
                } else {
                    tx.get_many_for_update(table, asked)?
                };
                assert!(
                    found.iter().map(Option::as_ref).eq(keys.iter().map(|key| self.tables[number].get(key)))
                );
            }
            13 => self.append(tx, number)?,
            14 => {
                let (bounds, most) = (self.bounds(), self.below(8));
                let content = &mut self.tables[number];
                let within: Vec<_> = content.keys().filter(|key| bounds.contains(*key)).cloned().collect();
                assert_eq!(tx.count_range(table, slices(&bounds))?, within.len() as u64, "{bounds:?}");
                let most = if most < 4 { most } else { usize::MAX };
                within.iter().take(most).for_each(|key| drop(content.remove(key)));
                let removed = match most {
                    usize::MAX => tx.remove_range(table, slices(&bounds))?,
                    most => tx.remove_at_most(table, slices(&bounds), most as u64)?,
                };
                assert_eq!(removed, within.len().min(most) as u64, "{most} of {bounds:?}");
            }
            15 => self.scan(tx, number)?,
            16 => self.range(tx, number)?,
            17 => {
                let all = |direction| {
                    within(&self.tables[number], &(Bound::Unbounded, Bound::Unbounded), direction)
                };
                assert!(tx.first(table)? == all(Direction::Ascending).into_iter().next());
                assert!(tx.last(table)? == all(Direction::Descending).into_iter().next());
            }
            18 if self.cursors.len() < KEPT => {
                let (bounds, direction) = (self.bounds(), self.direction());
                let cursor = if self.below(2) == 0 {
                    tx.cursor(table.owned(), bounds.clone(), direction)?
                } else {
                    tx.cursor_for_update(table.owned(), bounds.clone(), direction)?
                };
                self.cursors.push(Open { number, cursor, bounds, direction });
            }
            18 => self.cursors.clear(),
            19..22 => self.step(tx)?,
            22 if self.savepoints.len() < KEPT => {
                self.savepoints.push((tx.savepoint()?, self.tables.clone()));
            }
            23 if !self.savepoints.is_empty() => {
                let place = self.below(self.savepoints.len());
                tx.rollback_to(self.savepoints[place].0)?;
                self.tables = self.savepoints[place].1.clone();
                self.savepoints.truncate(place + 1);
            }
            24 if !self.savepoints.is_empty() => {
                let place = self.below(self.savepoints.len());
                tx.release(self.savepoints[place].0)?;
                self.savepoints.truncate(place);
            }
            25 => {
                let locks = [TableLock::Shared, TableLock::SharedIntentExclusive, TableLock::Exclusive];
                tx.lock_table(table, locks[self.below(locks.len())])?;
            }
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self, tx: &mut Transaction, number: usize) -> Result<()> {
        let (key, value) = (self.key(), self.value());
        let there = self.tables[number].contains_key(&key);
        let written = match self.below(4) {
            0 => {
                assert_eq!(tx.insert(table(number), &key, value.as_slice())?, !there);
                !there
            }
            1 => {
                assert_eq!(tx.update(table(number), &key, value.as_slice())?, there);
                there
            }
            _ => {
                assert_eq!(tx.put(table(number), &key, value.as_slice())?, there);
                true
            }
        };
        if written {
            self.tables[number].insert(key, value);
        }
        Ok(())
    }

    /// Mostly sorted, and often behind the last key.
    fn append(&mut self, tx: &mut Transaction, number: usize) -> Result<()> {
        let last = self.tables[number].keys().next_back().cloned();
        let base = last.clone().filter(|last| last.len() < 100 && self.below(2) == 0).unwrap_or_default();
        let longest = MAX_KEY_BYTES - base.len();
        let mut entries: Vec<Entry> = Vec::new();
        for _ in 0..self.below(7) {
            let mut key = self.key();
            key.truncate(longest);
            entries.push(([&base[..], &key].concat(), self.value()));
        }
        if self.below(3) > 0 {
            entries.sort();
            entries.dedup_by(|one, other| one.0 == other.0);
        }
        let is_behind = entries.is_sorted_by(|one, other| one.0 < other.0)
            && entries.first().is_none_or(|(key, _)| last.is_none_or(|last| last < *key));
        let given = entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
        match tx.append(table(number), given) {
            Ok(count) => {
                assert!(is_behind && count == entries.len() as u64, "{entries:?}");
                self.tables[number].extend(entries);
            }
            // Also if a key that is deleted is in the way.
            Err(Error::NotBehind { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn scan(&mut self, tx: &mut Transaction, number: usize) -> Result<()> {
        let (bounds, direction, most) = (self.bounds(), self.direction(), 1 + self.below(50));
        let mut found: Vec<Entry> = Vec::new();
        tx.scan(table(number), slices(&bounds), direction, |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let mut expected = within(&self.tables[number], &bounds, direction);
        expected.truncate(most);
        assert!(found == expected, "{bounds:?}, {direction:?}, {most}");
        Ok(())
    }

    /// From both ends, until they meet.
    fn range(&mut self, tx: &mut Transaction, number: usize) -> Result<()> {
        let bounds = self.bounds();
        let mut range = tx.range(table(number), slices(&bounds))?;
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let (entry, end) =
                if self.below(3) > 0 { (range.next(), &mut front) } else { (range.next_back(), &mut back) };
            match entry {
                Some(entry) => end.push(entry?),
                None => break,
            }
        }
        assert!(range.next().is_none() && range.next_back().is_none());
        front.extend(back.into_iter().rev());
        assert!(front == within(&self.tables[number], &bounds, Direction::Ascending), "{bounds:?}");
        Ok(())
    }

    /// Moves a cursor on: it gives what is there now.
    fn step(&mut self, tx: &mut Transaction) -> Result<()> {
        if self.cursors.is_empty() {
            return Ok(());
        }
        let place = self.below(self.cursors.len());
        let Open { number, cursor, bounds, direction } = &mut self.cursors[place];
        let expected = within(&self.tables[*number], bounds, *direction).into_iter().next();
        let found = cursor.next(tx)?;
        assert!(found == expected, "{bounds:?}, {direction:?}: {:?}", found.map(|(key, _)| key));
        match (found, direction) {
            (Some((key, _)), Direction::Ascending) => bounds.0 = Bound::Excluded(key),
            (Some((key, _)), Direction::Descending) => bounds.1 = Bound::Excluded(key),
            // It stays at its end.
            (None, _) => *bounds = (Bound::Excluded(Vec::new()), Bound::Excluded(Vec::new())),
        }
        Ok(())
    }
}

fn everything(db: &Database) -> Result<[Content; 2]> {
    db.read(|tx| {
        let [one, two] = [0, 1].map(table);
        Ok([tx.range(one, ..)?.collect::<Result<_>>()?, tx.range(two, ..)?.collect::<Result<_>>()?])
    })
}

/// One transaction after the other, and what becomes of the database between them.
fn play(seed: u64) {
    let mut random = Xorshift::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x51);
    let mut pick = |count: usize| random.below(count as u64) as usize;
    let mut options = Options {
        durability: Durability::Lazy,
        pool_bytes: 4 << 20,
        log_bytes: 64 << 20,
        node_capacity: [4, 8, usize::MAX][pick(3)],
        ..Options::default()
    };
    for (name, values) in CHOICES {
        options.set(name, values[pick(values.len())]).unwrap();
    }
    let disk = FaultyDisk::new();
    let open =
        || Database::builder().options(options.clone()).disk(Arc::new(disk.clone())).open("/db").unwrap();
    let (mut db, mut tables) = (open(), [Content::new(), Content::new()]);
    for transaction in 0..TRANSACTIONS {
        let isolations = [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];
        let isolation = Some(isolations[pick(isolations.len())]);
        let way = Way::ALL[pick(Way::ALL.len())];
        let commits = pick(6) > 0;
        let start = tables.clone();
        let result =
            way.run_with(&db, &TransactOptions { isolation, ..TransactOptions::default() }, move |tx| {
                let run = Run {
                    random: Xorshift::new(seed * TRANSACTIONS + transaction + 1),
                    tables: start.clone(),
                    savepoints: Vec::new(),
                    cursors: Vec::new(),
                };
                let after = run.work(tx)?;
                if commits { Ok(after) } else { Err(Error::application("changed its mind")) }
            });
        match result {
            Ok(after) => tables = after,
            Err(Error::Application(_)) => {}
            Err(error) => panic!("{way:?}: {error}"),
        }
        assert!(everything(&db).unwrap() == tables, "{way:?}, {options:?}");
        match pick(12) {
            0 | 1 => drop(db.compact().unwrap()),
            2 | 3 => {
                db.close().unwrap();
                db = open();
            }
            4 => {
                db.drop_table(NAMES[0]).unwrap();
                tables[0].clear();
            }
            5 => {
                for (from, to) in [(NAMES[0], "third"), (NAMES[1], NAMES[0]), ("third", NAMES[1])] {
                    db.rename_table(from, to).unwrap();
                }
                tables.swap(0, 1);
            }
            _ => {}
        }
        assert!(everything(&db).unwrap() == tables, "{options:?}");
    }
    let report = db.verify().unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn transactions_do_what_maps_do() {
    for seed in 0..16 * effort() {
        assert!(catch_unwind(|| play(seed)).is_ok(), "seed {seed}");
    }
}
