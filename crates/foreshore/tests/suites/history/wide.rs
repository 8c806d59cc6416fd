//! What transactions do beside single operations: cursors that stay open while others work, tables locked as a whole,
//! entries appended, and scans that visit.

use std::ops::{Bound, ControlFlow};

use foreshore::{Cursor, Direction, Error, Key, Result, TableLock, Transaction};
use foreshore_testkit::history::Op;

use super::{Hand, TABLES, key, table};

/// A cursor, and what of its range it has not seen yet. Each of its steps is a scan of that, which ends at once.
pub(super) struct Open {
    cursor: Cursor<Vec<u8>, Vec<u8>>,
    table: u32,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    descending: bool,
    /// It passes over what others have locked.
    skips: bool,
    over: bool,
}

impl Hand {
    /// Some of all that, or nothing; whether it was something.
    pub(super) fn wide_operation(
        &mut self,
        tx: &mut Transaction,
        ops: &mut Vec<Op>,
        cursors: &mut Vec<Open>,
        serial: u64,
    ) -> Result<bool> {
        match self.random.below(48) {
            0..12 => self.go_on(tx, ops, cursors)?,
            12 => self.lock_whole(tx)?,
            13 if !self.reads_only => self.append(tx, ops, serial)?,
            14..17 => self.visit(tx, ops)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn table(&mut self) -> u32 {
        self.random.below(TABLES.len() as u64) as u32
    }

    fn lock_whole(&mut self, tx: &mut Transaction) -> Result<()> {
        let lock = match self.random.below(if self.reads_only { 5 } else { 8 }) {
            0..5 => TableLock::Shared,
            5 | 6 => TableLock::SharedIntentExclusive,
            _ => TableLock::Exclusive,
        };
        tx.lock_table(table(self.table()), lock)
    }

    /// Some of the last keys.
    fn append(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>, serial: u64) -> Result<()> {
        let number = self.table();
        let last = self.run.keys - 1;
        let mut keys: Vec<_> = (0..=self.random.below(5)).map(|_| key(last - self.random.below(6))).collect();
        keys.sort();
        keys.dedup();
        let entries: Vec<_> = keys.into_iter().map(|key| (key, self.value(serial))).collect();
        match tx.append(table(number), entries.iter().map(|(key, value)| (&key[..], &value[..]))) {
            Ok(_) => {
                let insert = |(key, value)| Op::Insert { table: number, key, value, inserted: true };
                ops.extend(entries.into_iter().map(insert));
                Ok(())
            }
            Err(Error::NotBehind { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn visit(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>) -> Result<()> {
        let (number, low, high, descending) =
            (self.table(), self.bound(), self.bound(), self.random.below(2) == 0);
        let most = 1 + self.random.below(30) as usize;
        let (mut result, mut complete) = (Vec::new(), true);
        let slices = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        tx.scan(table(number), slices, direction(descending), |key, value| {
            let key = <&[u8]>::decode(key).expect("it was encoded");
            result.push((key, value.to_vec()));
            complete = result.len() < most;
            if complete { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        ops.push(Op::Scan { table: number, low, high, descending, complete, result });
        Ok(())
    }

    /// A few steps of a cursor, which may be a new one.
    fn go_on(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>, cursors: &mut Vec<Open>) -> Result<()> {
        if cursors.is_empty() || self.random.below(4) == 0 {
            cursors.push(self.begin(tx)?);
        }
        let place = self.random.below(cursors.len() as u64) as usize;
        let open = &mut cursors[place];
        for _ in 0..=self.random.below(3) {
            if open.over {
                break;
            }
            ops.push(open.step(tx)?);
        }
        Ok(())
    }

    fn begin(&mut self, tx: &mut Transaction) -> Result<Open> {
        let (number, low, high, descending) =
            (self.table(), self.bound(), self.bound(), self.random.below(2) == 0);
        let (definition, range) = (table(number).owned(), (low.clone(), high.clone()));
        let locks = if self.reads_only { 0 } else { self.random.below(8) };
        let cursor = match locks {
            0..6 => tx.cursor(definition, range, direction(descending))?,
            6 => tx.cursor_for_update(definition, range, direction(descending))?,
            _ => tx.cursor_skip_locked(definition, range, direction(descending))?,
        };
        Ok(Open { cursor, table: number, low, high, descending, skips: locks == 7, over: false })
    }
}

impl Open {
    fn step(&mut self, tx: &mut Transaction) -> Result<Op> {
        let (low, high) = (self.low.clone(), self.high.clone());
        let entry = self.cursor.next(tx)?;
        self.over = entry.is_none();
        if let Some((key, _)) = &entry {
            let near = if self.descending { &mut self.high } else { &mut self.low };
            *near = Bound::Excluded(key.clone());
        }
        let result = entry.into_iter().collect();
        let Open { table, descending, skips, over: complete, .. } = *self;
        Ok(match skips {
            false => Op::Scan { table, low, high, descending, complete, result },
            true => Op::Skip { table, low, high, descending, complete, result },
        })
    }
}

fn direction(descending: bool) -> Direction {
    if descending { Direction::Descending } else { Direction::Ascending }
}
