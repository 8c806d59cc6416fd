//! What transactions do: operations drawn at random. A copy of a hand draws the same again, for those that run several
//! times.

use std::ops::Bound;

use foreshore::{Result, Savepoint, Transaction};
use foreshore_env::{random::Xorshift, thread, time::Duration};
use foreshore_testkit::history::Op;

use super::{client::table, wide::direction};

/// The longest that a transaction rests between two operations, in microseconds: checkpoints pass meanwhile.
const LONGEST_REST_US: u64 = 1000;
/// More entries than there are keys.
const ALL: usize = usize::MAX;

/// How a scan locks what it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locks {
    Shared,
    Exclusive,
    /// As `Exclusive`, and what others have locked is skipped.
    WhatIsFree,
}

/// Draws the operations of one thread of one life.
#[derive(Clone)]
pub(super) struct Hand {
    pub(super) random: Xorshift,
    /// Which life, and which thread: part of the names of its transactions.
    pub(super) life: usize,
    pub(super) number: u64,
    pub(super) keys: u64,
    pub(super) long_values: u64,
    /// Whether it draws what only some seeds do.
    pub(super) wide: bool,
}

/// A transaction as it is drawn: what it has done, and what it may do.
pub(super) struct Course {
    pub(super) ops: Vec<Op>,
    /// Its savepoints, each with the number of those that were made before.
    pub(super) savepoints: Vec<(usize, Savepoint)>,
    pub(super) reads_only: bool,
    /// Part of its values.
    pub(super) serial: u64,
}

impl Course {
    pub(super) fn new(reads_only: bool, serial: u64) -> Course {
        Course { ops: Vec::new(), savepoints: Vec::new(), reads_only, serial }
    }
}

impl Hand {
    pub(super) fn key(&mut self) -> Vec<u8> {
        // Two lengths, so that one key may be the prefix of another.
        let number = self.random.below(self.keys);
        let mut key = vec![b'k', b'0' + (number / 2 % 64) as u8];
        key.extend((number >= 128).then_some((number / 128) as u8));
        if number % 2 == 1 {
            key.push(b'x');
        }
        key
    }

    /// A value that nobody else writes; now and then one that needs the overflow table.
    pub(super) fn value(&mut self, serial: u64) -> Vec<u8> {
        let mut value =
            format!("{}-{}-{serial}-{}", self.life, self.number, self.random.below(10_000)).into_bytes();
        if self.random.below(self.long_values) == 0 {
            value.resize(3000 + self.random.below(4000) as usize, b'.');
        }
        value
    }

    pub(super) fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }

    pub(super) fn operation(&mut self, tx: &mut Transaction, course: &mut Course) -> Result<()> {
        if self.wide && self.random.below(3) == 0 {
            return self.wide_operation(tx, course);
        }
        let Course { ops, savepoints, reads_only, serial } = course;
        let (reads_only, serial) = (*reads_only, *serial);
        let number = self.random.below(2) as u32;
        let key = self.key();
        let op = match self.random.below(if reads_only { 8 } else { 20 }) {
            0..4 => {
                let for_update = !reads_only && self.random.below(3) == 0;
                let result = if for_update {
                    tx.get_for_update(table(number), &key)?
                } else {
                    tx.get(table(number), &key)?
                };
                Op::Get { table: number, key, result }
            }
            4..8 => self.scan(tx, number, reads_only)?,
            8..11 => {
                let value = self.value(serial);
                let inserted = tx.insert(table(number), &key, &value[..])?;
                Op::Insert { table: number, key, value, inserted }
            }
            11..13 => {
                let value = self.value(serial);
                let existed = tx.put(table(number), &key, &value[..])?;
                Op::Put { table: number, key, value, existed }
            }
            13 => {
                let value = self.value(serial);
                let updated = tx.update(table(number), &key, &value[..])?;
                Op::Update { table: number, key, value, updated }
            }
            14..18 => {
                let existed = tx.delete(table(number), &key)?;
                Op::Delete { table: number, key, existed }
            }
            18 => {
                let made = ops.iter().filter(|op| matches!(op, Op::Savepoint)).count();
                savepoints.push((made, tx.savepoint()?));
                Op::Savepoint
            }
            _ => {
                if savepoints.is_empty() {
                    return Ok(());
                }
                let place = self.random.below(savepoints.len() as u64) as usize;
                let (made, savepoint) = savepoints[place];
                tx.rollback_to(savepoint)?;
                savepoints.truncate(place + 1);
                Op::RollbackTo(made)
            }
        };
        let got = match &op {
            Op::Skip { result, .. } => result.last().map(|(key, _)| key.clone()),
            _ => None,
        };
        ops.push(op);
        match got {
            // It has done what is there to be done.
            Some(key) if self.random.below(2) == 0 => {
                let existed = tx.delete(table(number), &key)?;
                ops.push(Op::Delete { table: number, key, existed });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn scan(&mut self, tx: &mut Transaction, number: u32, reads_only: bool) -> Result<Op> {
        let (low, high, descending) = (self.bound(), self.bound(), self.random.below(2) == 0);
        let most = self.random.below(12) as usize;
        let locks = match self.random.below(if reads_only { 1 } else { 8 }) {
            0..6 => Locks::Shared,
            6 => Locks::Exclusive,
            _ => Locks::WhatIsFree,
        };
        scan(tx, number, (low, high), descending, most, locks)
    }

    /// Operations that chance rarely puts in a row: a table is read, gets a key between those that were there, and is
    /// read again after a while. Whoever else gets into the gaps meanwhile shows.
    pub(super) fn read_twice(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>, serial: u64) -> Result<()> {
        let number = self.random.below(2) as u32;
        let descending = self.random.below(2) == 0;
        let all = || (Bound::Unbounded, Bound::Unbounded);
        ops.push(scan(tx, number, all(), descending, ALL, Locks::Shared)?);
        let (key, value) = (self.key(), self.value(serial));
        let inserted = tx.insert(table(number), &key, &value[..])?;
        ops.push(Op::Insert { table: number, key, value, inserted });
        self.rest();
        ops.push(scan(tx, number, all(), descending, ALL, Locks::Shared)?);
        Ok(())
    }

    /// Rests for a while.
    pub(super) fn rest(&mut self) {
        thread::sleep(Duration::from_micros(self.random.below(LONGEST_REST_US)));
    }
}

fn scan(
    tx: &mut Transaction,
    number: u32,
    (low, high): (Bound<Vec<u8>>, Bound<Vec<u8>>),
    descending: bool,
    most: usize,
    locks: Locks,
) -> Result<Op> {
    let direction = direction(descending);
    let slices = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
    let mut cursor = match locks {
        Locks::Shared => tx.cursor(table(number), slices, direction)?,
        Locks::Exclusive => tx.cursor_for_update(table(number), slices, direction)?,
        Locks::WhatIsFree => tx.cursor_skip_locked(table(number), slices, direction)?,
    };
    let (mut result, mut complete) = (Vec::new(), false);
    while result.len() < most && !complete {
        match cursor.next(tx)? {
            Some(entry) => result.push(entry),
            None => complete = true,
        }
    }
    Ok(match locks {
        Locks::WhatIsFree => Op::Skip { table: number, low, high, descending, complete, result },
        _ => Op::Scan { table: number, low, high, descending, complete, result },
    })
}
