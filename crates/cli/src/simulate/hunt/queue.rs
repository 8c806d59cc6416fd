//! What only some seeds do beside the rest (`Plan::wide`): tables as queues, from whose ends entries are taken again
//! and again, and put back; and reads that ask for less isolation between those that do not.

use foreshore::{Isolation, Result, Transaction};
use foreshore_testkit::history::Op;

use super::{
    client::table,
    hand::Hand,
    wide::{Left, STEPS, direction},
};

impl Hand {
    /// Takes entries from one end of a range: each look begins there, over what was taken before (TXN-44). One in three
    /// is put back, or another key is put in its place.
    pub(super) fn take(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>, serial: u64) -> Result<()> {
        let range = self.range();
        let (descending, skips) = (self.random.below(2) == 0, self.random.below(2) == 0);
        for _ in 0..=self.random.below(STEPS) {
            let Left { table: number, low, high } = range.clone();
            let (slices, direction) = (range.slices(), direction(descending));
            let mut cursor = if skips {
                tx.cursor_skip_locked(table(number), slices, direction)?
            } else {
                tx.cursor_for_update(table(number), slices, direction)?
            };
            let entry = cursor.next(tx)?;
            let (complete, result) = (entry.is_none(), entry.into_iter().collect::<Vec<_>>());
            let taken = result.first().map(|(key, _)| key.clone());
            ops.push(if skips {
                Op::Skip { table: number, low, high, descending, complete, result }
            } else {
                Op::Scan { table: number, low, high, descending, complete, result }
            });
            let Some(key) = taken else { break };
            let existed = tx.delete(table(number), &key)?;
            ops.push(Op::Delete { table: number, key: key.clone(), existed });
            if self.random.below(3) == 0 {
                let (key, value) =
                    (if self.random.below(2) == 0 { key } else { self.key() }, self.value(serial));
                let existed = tx.put(table(number), &key, &value[..])?;
                ops.push(Op::Put { table: number, key, value, existed });
            }
        }
        Ok(())
    }

    /// Removes the first keys of a range.
    pub(super) fn remove_some(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>) -> Result<()> {
        let range = self.range();
        let most = self.random.below(STEPS);
        let removed = tx.remove_at_most(table(range.table), range.slices(), most)?;
        let Left { table, low, high } = range;
        ops.push(Op::RemoveRange { table, low, high, most, removed });
        Ok(())
    }

    /// Reads under weaker isolation. What it sees of gaps may change, so nothing of it is remembered.
    pub(super) fn glance(&mut self, tx: &mut Transaction) -> Result<()> {
        let weaker = [Isolation::RepeatableRead, Isolation::ReadCommitted];
        tx.set_isolation(weaker[self.random.below(2) as usize]);
        let number = self.random.below(2) as u32;
        let seen = if self.random.below(2) == 0 {
            tx.get(table(number), &self.key()).map(drop)
        } else {
            let (low, high) = (self.bound(), self.bound());
            let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
            tx.count_range(table(number), range).map(drop)
        };
        // It may go on after an error.
        tx.set_isolation(Isolation::Serializable);
        seen
    }
}
