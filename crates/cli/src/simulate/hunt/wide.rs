//! What only some seeds do beside the rest (`Plan::wide`): the operations of a transaction that others do not draw.
//!
//! Cursors that go on over what their own transaction changes, keys without their values, ranges from both ends, many
//! keys at a time, ranges that are removed, rows that are appended.

use std::ops::{Bound, ControlFlow};

use foreshore::{Direction, Error, ReadTransaction, Reads, Result, Transaction};
use foreshore_env::time::{Duration, Instant};
use foreshore_testkit::history::Op;

use super::{
    client::{Bytes, table},
    hand::{Course, Hand},
};

/// The most steps of a cursor, and keys that are read at a time.
pub(super) const STEPS: u64 = 10;
/// The most rows that are appended at a time.
const APPENDED: u64 = 12;
/// The longest that a transaction waits for a lock once it has asked for that, in microseconds.
pub(super) const LONGEST_WAIT_US: u64 = 2000;

/// A key, and its value if that was asked for.
type Entry = (Vec<u8>, Option<Vec<u8>>);

/// A range of which nothing was seen yet, or what is left of it.
#[derive(Clone)]
pub(super) struct Left {
    pub(super) table: u32,
    pub(super) low: Bound<Vec<u8>>,
    pub(super) high: Bound<Vec<u8>>,
}

impl Left {
    pub(super) fn slices(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.low.as_ref().map(Vec::as_slice), self.high.as_ref().map(Vec::as_slice))
    }

    /// What was found at one of its ends, as a scan of what is left that ends at once; and what is left then.
    fn found(&mut self, descending: bool, entry: Option<Entry>) -> Op {
        let Left { table, low, high } = self.clone();
        let complete = entry.is_none();
        let Some((key, value)) = entry else {
            return Op::Scan { table, low, high, descending, complete, result: Vec::new() };
        };
        let end = if descending { &mut self.high } else { &mut self.low };
        *end = Bound::Excluded(key.clone());
        match value {
            Some(value) => Op::Scan { table, low, high, descending, complete, result: vec![(key, value)] },
            None => Op::Keys { table, low, high, descending, complete, result: vec![key] },
        }
    }
}

pub(super) fn direction(descending: bool) -> Direction {
    if descending { Direction::Descending } else { Direction::Ascending }
}

impl Hand {
    pub(super) fn range(&mut self) -> Left {
        Left { table: self.random.below(2) as u32, low: self.bound(), high: self.bound() }
    }

    /// One operation of a transaction that may write.
    pub(super) fn wide_operation(&mut self, tx: &mut Transaction, course: &mut Course) -> Result<()> {
        let Course { ops, savepoints, reads_only, serial } = course;
        let (reads_only, serial) = (*reads_only, *serial);
        match self.random.below(if reads_only { 10 } else { 20 }) {
            0..7 => self.look(&mut ReadOrWrite::Write(tx), ops),
            7 => {
                let wait = Duration::from_micros(self.random.below(LONGEST_WAIT_US));
                match self.random.below(3) {
                    0 => tx.set_no_wait(self.random.below(2) == 0),
                    1 => tx.set_deadline(Some(Instant::now() + 4 * wait)),
                    _ => tx.set_lock_timeout(Some(wait)),
                }
                Ok(())
            }
            8 => self.glance(tx),
            9 => {
                let Some((made, savepoint)) = savepoints.pop() else { return Ok(()) };
                tx.release(savepoint)?;
                ops.push(Op::Release(made));
                Ok(())
            }
            10..13 => self.walk(tx, ops, serial),
            13..16 => self.take(tx, ops, serial),
            16 => self
                .get_many(ops, |table, keys| tx.get_many_for_update(table, keys.iter().map(Vec::as_slice))),
            17 => self.remove_range(tx, ops),
            18 => self.remove_some(tx, ops),
            _ => self.append(tx, ops, serial),
        }
    }

    /// One operation that only reads.
    pub(super) fn look(&mut self, tx: &mut ReadOrWrite<'_, '_>, ops: &mut Vec<Op>) -> Result<()> {
        match self.random.below(6) {
            0 => {
                let (number, key) = (self.random.below(2) as u32, self.key());
                let present = tx.contains_key(table(number), &key)?;
                ops.push(Op::Contains { table: number, key, present });
            }
            1 => self.get_many(ops, |table, keys| tx.get_many(table, keys))?,
            2 => {
                let mut left = Left { low: Bound::Unbounded, high: Bound::Unbounded, ..self.range() };
                let descending = self.random.below(2) == 0;
                let entry = tx.end(table(left.table), descending)?;
                ops.push(left.found(descending, entry.map(|(key, value)| (key, Some(value)))));
            }
            3 => self.both_ends(tx, ops)?,
            4 => self.visit(tx, ops)?,
            _ => self.keys_and_values(tx, ops)?,
        }
        Ok(())
    }

    /// Several keys at a time.
    fn get_many(
        &mut self,
        ops: &mut Vec<Op>,
        get: impl FnOnce(Bytes<'_>, &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>>,
    ) -> Result<()> {
        let number = self.random.below(2) as u32;
        let keys: Vec<_> = (0..self.random.below(STEPS)).map(|_| self.key()).collect();
        let found = get(table(number), &keys)?;
        let found = keys.into_iter().zip(found);
        ops.extend(found.map(|(key, result)| Op::Get { table: number, key, result }));
        Ok(())
    }

    /// A range from both ends.
    fn both_ends(&mut self, tx: &mut ReadOrWrite<'_, '_>, ops: &mut Vec<Op>) -> Result<()> {
        let mut left = self.range();
        let bounds = left.clone();
        let mut range = match tx {
            ReadOrWrite::Read(tx) => tx.range(table(left.table), bounds.slices())?,
            ReadOrWrite::Write(tx) => tx.range(table(left.table), bounds.slices())?,
        };
        for _ in 0..self.random.below(STEPS) {
            let descending = self.random.below(2) == 0;
            let entry = if descending { range.next_back() } else { range.next() }.transpose()?;
            let is_over = entry.is_none();
            ops.push(left.found(descending, entry.map(|(key, value)| (key, Some(value)))));
            if is_over {
                break;
            }
        }
        Ok(())
    }

    fn visit(&mut self, tx: &mut ReadOrWrite<'_, '_>, ops: &mut Vec<Op>) -> Result<()> {
        let Left { table: number, low, high } = self.range();
        let (descending, most) = (self.random.below(2) == 0, 1 + self.random.below(STEPS) as usize);
        let (mut result, mut complete) = (Vec::new(), true);
        let visit = |key: &[u8], value: &[u8]| {
            result.push((key.to_vec(), value.to_vec()));
            complete = result.len() < most;
            if complete { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let slices = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        match tx {
            ReadOrWrite::Read(tx) => tx.scan(table(number), slices, direction(descending), visit)?,
            ReadOrWrite::Write(tx) => tx.scan(table(number), slices, direction(descending), visit)?,
        }
        ops.push(Op::Scan { table: number, low, high, descending, complete, result });
        Ok(())
    }

    /// A cursor of which some steps do not ask for values.
    fn keys_and_values(&mut self, tx: &mut ReadOrWrite<'_, '_>, ops: &mut Vec<Op>) -> Result<()> {
        let mut left = self.range();
        let descending = self.random.below(2) == 0;
        let bounds = left.clone();
        let mut cursor = match tx {
            ReadOrWrite::Read(tx) => tx.cursor(table(left.table), bounds.slices(), direction(descending))?,
            ReadOrWrite::Write(tx) => tx.cursor(table(left.table), bounds.slices(), direction(descending))?,
        };
        for _ in 0..self.random.below(STEPS) {
            let keys_only = self.random.below(2) == 0;
            let entry = match tx {
                ReadOrWrite::Read(tx) => step(&mut cursor, *tx, keys_only)?,
                ReadOrWrite::Write(tx) => step(&mut cursor, *tx, keys_only)?,
            };
            let is_over = entry.is_none();
            ops.push(left.found(descending, entry));
            if is_over {
                break;
            }
        }
        Ok(())
    }

    /// A cursor that goes on over what its own transaction changes, there or elsewhere.
    fn walk(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>, serial: u64) -> Result<()> {
        let mut left = self.range();
        let number = left.table;
        let (descending, locks) = (self.random.below(2) == 0, self.random.below(2) == 0);
        let bounds = left.clone();
        let mut cursor = if locks {
            tx.cursor_for_update(table(number), bounds.slices(), direction(descending))?
        } else {
            tx.cursor(table(number), bounds.slices(), direction(descending))?
        };
        for _ in 0..self.random.below(STEPS) {
            let keys_only = self.random.below(2) == 0;
            let entry = step(&mut cursor, tx, keys_only)?;
            let met = entry.as_ref().map(|(key, _)| key.clone());
            ops.push(left.found(descending, entry));
            let Some(met) = met else { break };
            let key = if self.random.below(2) == 0 { met } else { self.key() };
            match self.random.below(5) {
                0 => {
                    let existed = tx.delete(table(number), &key)?;
                    ops.push(Op::Delete { table: number, key, existed });
                }
                1 => {
                    let value = self.value(serial);
                    let existed = tx.put(table(number), &key, &value[..])?;
                    ops.push(Op::Put { table: number, key, value, existed });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn remove_range(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>) -> Result<()> {
        let range = self.range();
        let removed = tx.remove_range(table(range.table), range.slices())?;
        let Left { table, low, high } = range;
        ops.push(Op::RemoveRange { table, low, high, most: u64::MAX, removed });
        Ok(())
    }

    /// Rows behind the last one, where there is one.
    fn append(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>, serial: u64) -> Result<()> {
        let number = self.random.below(2) as u32;
        let last = tx.last(table(number))?;
        let mut everything = Left { table: number, low: Bound::Unbounded, high: Bound::Unbounded };
        let mut key = last.as_ref().map_or_else(|| self.key(), |(key, _)| key.clone());
        ops.push(everything.found(true, last.map(|(key, value)| (key, Some(value)))));
        let mut rows = Vec::new();
        for _ in 0..self.random.below(APPENDED) {
            match key.last_mut() {
                Some(last) if *last < u8::MAX && self.random.below(3) > 0 => *last += 1,
                _ => key.push(self.random.below(256) as u8),
            }
            rows.push((key.clone(), self.value(serial)));
        }
        let appended = tx.append(table(number), rows.iter().map(|(key, value)| (&key[..], &value[..])));
        match appended {
            // Somebody's delete of a key behind these is not durable yet, or is this transaction's own.
            Err(Error::NotBehind { .. }) => return Ok(()),
            appended => _ = appended?,
        }
        if let Some((first, _)) = rows.first() {
            let (low, high) = (Bound::Included(first.clone()), Bound::Unbounded);
            let (descending, complete, result) = (false, true, Vec::new());
            ops.push(Op::Scan { table: number, low, high, descending, complete, result });
        }
        let inserted = rows.into_iter();
        ops.extend(inserted.map(|(key, value)| Op::Insert { table: number, key, value, inserted: true }));
        Ok(())
    }
}

fn step(
    cursor: &mut foreshore::Cursor<&[u8], &[u8]>,
    tx: &mut impl Reads,
    keys_only: bool,
) -> Result<Option<Entry>> {
    Ok(if keys_only {
        cursor.next_key(tx)?.map(|key| (key, None))
    } else {
        cursor.next(tx)?.map(|(key, value)| (key, Some(value)))
    })
}

/// A transaction with which one reads.
pub(super) enum ReadOrWrite<'r, 't> {
    Read(&'r mut ReadTransaction<'t>),
    Write(&'r mut Transaction),
}

impl ReadOrWrite<'_, '_> {
    fn contains_key(&mut self, table: Bytes<'_>, key: &[u8]) -> Result<bool> {
        match self {
            ReadOrWrite::Read(tx) => tx.contains_key(table, key),
            ReadOrWrite::Write(tx) => tx.contains_key(table, key),
        }
    }

    fn get_many(&mut self, table: Bytes<'_>, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys = keys.iter().map(Vec::as_slice);
        match self {
            ReadOrWrite::Read(tx) => tx.get_many(table, keys),
            ReadOrWrite::Write(tx) => tx.get_many(table, keys),
        }
    }

    fn end(&mut self, table: Bytes<'_>, descending: bool) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match (self, descending) {
            (ReadOrWrite::Read(tx), false) => tx.first(table),
            (ReadOrWrite::Read(tx), true) => tx.last(table),
            (ReadOrWrite::Write(tx), false) => tx.first(table),
            (ReadOrWrite::Write(tx), true) => tx.last(table),
        }
    }
}
