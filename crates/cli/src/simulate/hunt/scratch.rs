//! The table that comes and goes: what transactions do in it, and what a judge says of its drops.
//!
//! Each time the table is made anew it is another one: its first transaction leaves the number of this *generation* in
//! it, and in the history each generation is a table of its own. So the replay judges what is in it as it judges the
//! other tables. It cannot place the drops: nobody outside knows at which moment one took effect. Of these the judge
//! knows when they began and ended, and whether any generation was there all that time, or is gone without one.

use std::collections::BTreeMap;

use foreshore::{Database, Error, Result, Transaction};
use foreshore_env::sync::atomic::{AtomicU64, Ordering};
use foreshore_testkit::history::{Op, State};

use super::{
    attempt::{Attempt, told},
    client::{Acts, Bytes, Client, TABLES, body, is_usual},
    hand::Hand,
    judge::Table,
};

/// The table.
const SCRATCH: &str = "scratch";
/// Where it says which generation it is. No other key is like it.
const GENERATION: &[u8] = b"generation";
/// Rows that a transaction puts into it.
const ROWS: usize = 12;

/// A call that was to drop the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drop {
    /// The next place in the order of commits when it began, and when it ended.
    pub(super) from: u64,
    pub(super) until: u64,
    /// Whether there was a table; `None` if nobody knows what came of it.
    pub(super) dropped: Option<bool>,
}

/// Puts rows into the table, and makes it if it is not there.
pub(super) fn fill(tx: &mut Transaction, hand: &mut Hand, ops: &mut Vec<Op>, serial: u64) -> Result<()> {
    let scratch = Bytes::new(SCRATCH);
    let number = generation(hand, serial);
    let own = number.to_be_bytes();
    let table = if tx.insert(scratch, GENERATION, &own[..])? {
        let (key, value) = (GENERATION.to_vec(), own.to_vec());
        ops.push(Op::Insert { table: number, key, value, inserted: true });
        number
    } else {
        let value = tx.get(scratch, GENERATION)?;
        // Nobody has left such a number: no generation has this one, and the replay says so.
        let table = value.as_deref().and_then(number_in).unwrap_or(u32::MAX);
        ops.push(Op::Get { table, key: GENERATION.to_vec(), result: value });
        table
    };
    for _ in 0..ROWS {
        let (key, value) = (hand.key(), hand.value(serial));
        let existed = tx.put(scratch, &key[..], &value[..])?;
        ops.push(Op::Put { table, key, value, existed });
    }
    Ok(())
}

/// Drops the table; what came of it is among `drops` then, unless it is nothing.
pub(super) fn remove(db: &Database, order: &AtomicU64, drops: &mut Vec<Drop>) -> Result<()> {
    let from = order.load(Ordering::SeqCst);
    let result = db.drop_table(SCRATCH);
    let dropped = match &result {
        Ok(dropped) => Some(*dropped),
        Err(error) if is_usual(error) => return result.map(drop),
        Err(_) => None,
    };
    drops.push(Drop { from, until: order.load(Ordering::SeqCst), dropped });
    result.map(drop)
}

impl Client<'_> {
    /// Fills the table that comes and goes, or drops it.
    pub(super) fn scratch(&mut self, serial: u64) -> Result<()> {
        if self.hand.random.below(3) == 0 {
            return remove(&self.db, &self.shared.order, &mut self.drops);
        }
        let options = self.options();
        let (body, run) = body(&mut self.hand, &self.shared.order, serial, told(&options), Acts::InScratch);
        let result = self.db.transact_with(&options, body);
        match self.note(&run, result) {
            // It was dropped meanwhile.
            Err(Error::NoSuchTable { .. }) => Ok(()),
            result => result,
        }
    }
}

/// The number of a generation that this transaction makes: no table's, and no other transaction's.
fn generation(hand: &Hand, serial: u64) -> u32 {
    let name = (hand.life as u64 * 64 + hand.number) * 64 + serial;
    TABLES.len() as u32 + u32::try_from(name).expect("there are few lives, threads and transactions")
}

fn number_in(value: &[u8]) -> Option<u32> {
    value.try_into().map(u32::from_be_bytes).ok()
}

/// The table as it is found, and which generation it is: `None` if there is no table, or nobody has come to an end in
/// it.
pub(super) fn found(db: &Database) -> Result<Option<(u32, Table)>> {
    let content = db.transact(|tx| tx.range(Bytes::new(SCRATCH), ..)?.collect::<Result<Table>>());
    let rows = match content {
        Err(Error::NoSuchTable { .. }) => return Ok(None),
        content => content?,
    };
    let number = rows.iter().find(|(key, _)| key == GENERATION).and_then(|(_, value)| number_in(value));
    // Rows of no generation are rows of one that nobody has made.
    Ok((!rows.is_empty()).then(|| (number.unwrap_or(u32::MAX), rows)))
}

/// From when to when generations were certainly there, in the order of commits.
#[derive(Debug)]
pub(super) struct Lifetimes(BTreeMap<u32, (u64, u64)>);

impl Lifetimes {
    /// Those that were there before the first of all.
    pub(super) fn new(before: &State) -> Lifetimes {
        let numbers = before.keys().map(|(table, _)| *table).filter(|&table| is_generation(table));
        Lifetimes(numbers.map(|number| (number, (0, 0))).collect())
    }

    /// A transaction that is there has seen this.
    pub(super) fn note(&mut self, attempt: &Attempt) {
        let numbers = attempt.ops.iter().filter_map(|op| match op {
            Op::Get { table, .. } | Op::Insert { table, .. } | Op::Put { table, .. } => Some(*table),
            _ => None,
        });
        let at = attempt.position;
        for number in numbers.filter(|&table| is_generation(table)) {
            let (first, last) = self.0.entry(number).or_insert((at, at));
            (*first, *last) = ((*first).min(at), (*last).max(at));
        }
    }

    /// Whether the drops are a reason for what is found at the end, and nothing is found in spite of one.
    pub(super) fn judge(mut self, drops: &[Drop], found: Option<u32>) -> std::result::Result<(), String> {
        if let Some(number) = found {
            let (_, last) = self.0.get_mut(&number).ok_or("table scratch has rows of nobody")?;
            *last = u64::MAX;
        }
        for drop in drops.iter().filter(|drop| drop.dropped.is_some()) {
            let through = |(first, last): &(u64, u64)| *first < drop.from && drop.until <= *last;
            if let Some((number, life)) = self.0.iter().find(|(_, life)| through(life)) {
                return Err(format!("{drop:?} of table scratch: generation {number} was there at {life:?}"));
            }
        }
        let mut lives: Vec<(u64, u64, u32)> =
            self.0.into_iter().map(|(number, (first, last))| (first, last, number)).collect();
        lives.sort_unstable();
        let next = lives.iter().skip(1).map(|(first, ..)| *first).chain([u64::MAX]);
        for ((first, last, number), next) in
            lives.iter().zip(next).filter(|((.., number), _)| found != Some(*number))
        {
            let ends = |drop: &&Drop| drop.dropped != Some(false) && drop.until > *last && drop.from <= next;
            if !drops.iter().any(|drop| ends(&drop)) {
                return Err(format!(
                    "generation {number} of table scratch, there at {first} to {last}, is gone undropped"
                ));
            }
        }
        Ok(())
    }
}

fn is_generation(table: u32) -> bool {
    table as usize >= TABLES.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: u32 = 10;
    const NEW: u32 = 11;

    fn put(table: u32, position: u64) -> Attempt {
        let op = Op::Put { table, key: b"k".to_vec(), value: b"v".to_vec(), existed: false };
        let order = AtomicU64::new(position + 1);
        Attempt::new(position, vec![op], None, super::super::attempt::Told::Durable, &order)
    }

    fn judge(puts: &[(u32, u64)], drops: &[(u64, u64, Option<bool>)], found: Option<u32>) -> bool {
        let mut lives = Lifetimes::new(&State::new());
        puts.iter().for_each(|&(table, position)| lives.note(&put(table, position)));
        let drops: Vec<Drop> =
            drops.iter().map(|&(from, until, dropped)| Drop { from, until, dropped }).collect();
        lives.judge(&drops, found).is_ok()
    }

    #[test]
    fn a_generation_is_there_until_a_drop_and_no_longer() {
        let puts = [(OLD, 3), (OLD, 5), (NEW, 8)];
        assert!(judge(&puts, &[(6, 7, Some(true))], Some(NEW)));
        assert!(judge(&puts, &[(4, 8, Some(true))], Some(NEW)), "it took effect between 5 and 8");
        assert!(judge(&puts, &[(6, 7, None)], Some(NEW)), "it may have worked");
        assert!(judge(&puts, &[(6, 7, Some(true)), (9, 9, Some(true))], None));
        assert!(judge(&puts, &[(6, 7, Some(true)), (6, 7, Some(false))], Some(NEW)));
        assert!(judge(&[], &[(6, 7, Some(false))], None));

        assert!(!judge(&puts, &[], Some(NEW)), "nobody dropped the old one");
        assert!(!judge(&puts, &[(6, 7, Some(true))], None), "nor the new one");
        assert!(!judge(&puts, &[(6, 7, Some(true))], Some(OLD)), "a drop is lost");
        assert!(!judge(&puts, &[(1, 2, Some(true))], Some(NEW)), "it came before the old one");
        assert!(!judge(&puts, &[(9, 9, Some(true))], None), "and here behind the new one");
        assert!(
            !judge(&puts, &[(6, 7, Some(false))], Some(NEW)),
            "it found nothing, and does not explain that"
        );
        assert!(
            !judge(&puts, &[(6, 7, Some(true)), (9, 9, Some(false))], Some(NEW)),
            "the new one was there"
        );
        assert!(!judge(&[(OLD, 3), (OLD, 9)], &[(4, 5, Some(true))], Some(OLD)), "somebody went on in it");
        assert!(!judge(&[], &[], Some(OLD)), "nobody made it");
    }
}
