//! What happens in some lives when the clients are done: a transaction has changed something, and stays open, or
//! prepared, over a checkpoint to the end of the life, which comes by a power failure in that checkpoint or behind it,
//! or by closing. One that is prepared has deleted a long value that was new, and now and then there is no checkpoint.
//! Or a table is dropped, and the power fails.
//!
//! Chance alone rarely makes it so. Clients' transactions are short, and what one logs behind a checkpoint tells
//! recovery of it, whether the checkpoint did or not.

use foreshore::{Database, Durability, Result, TransactOptions, Transaction};
use foreshore_env::sync::atomic::AtomicU64;
use foreshore_testkit::{FaultyDisk, history::Op};

use super::{
    attempt::{Attempt, Told, refusal, unprepared},
    client::{enter, table},
    hand::{Course, Hand},
    judge::Said,
    plan::{End, Life},
    scratch,
};

/// Operations of the transaction.
const OPERATIONS: u64 = 6;
/// How many acts there are for one in which a table is dropped.
const DROPS_EVERY: u64 = 5;
/// The key of the long value, which clients do not use.
const KEY: &[u8] = b"last";

/// A last act, if the life has one; gives the transaction that is open. `prepares`: every other one is prepared
/// instead, with a place in the order of commits; it and what it deletes are among the attempts of `said`.
pub(super) fn play(
    life: &Life,
    hand: Hand,
    db: &Database,
    disk: &FaultyDisk,
    prepares: bool,
    order: &AtomicU64,
    said: &mut Said,
) -> Result<Option<Transaction>> {
    let (Some(at), End::Power(_) | End::Closed) = (life.last_act, life.end) else { return Ok(None) };
    if at % DROPS_EVERY == 0 && life.end != End::Closed {
        let removed = scratch::remove(db, order, &mut said.drops);
        disk.crash();
        return removed.map(|()| None);
    }
    let attempts = &mut said.attempts;
    let open = match prepares && at % 2 == 0 {
        false => Some(change(hand, db)?.0),
        true => {
            let name = |part: &str| format!("{}-{}-{part}", hand.life, hand.number).into_bytes();
            let rows = [name("long"), name("last")];
            write(db, rows[0].clone(), order, attempts)?;
            prepare(change(hand, db)?, rows[1].clone(), order, attempts)?;
            None
        }
    };
    if life.end == End::Closed {
        db.checkpoint()?;
        return Ok(open);
    }
    if open.is_none() && at % 4 == 0 {
        disk.crash();
        return Ok(None);
    }
    disk.crash_at(disk.counts().operations + at);
    let checkpoint = db.checkpoint();
    disk.crash();
    checkpoint.map(|()| open)
}

/// A transaction that has changed something, and what that was.
fn change(mut hand: Hand, db: &Database) -> Result<(Transaction, Vec<Op>)> {
    let options = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };
    let mut tx = db.begin_with(&options)?;
    let mut course = Course::new(false, 0);
    for serial in 0..OPERATIONS {
        course.serial = serial;
        hand.operation(&mut tx, &mut course)?;
    }
    Ok((tx, course.ops))
}

/// Writes the long value, durably.
fn write(db: &Database, row: Vec<u8>, order: &AtomicU64, attempts: &mut Vec<Attempt>) -> Result<()> {
    let options = TransactOptions { durability: Some(Durability::Sync), ..TransactOptions::default() };
    let mut tx = db.begin_with(&options)?;
    let value = [&row[..], &[b'.'; 3000]].concat();
    let existed = tx.put(table(0), KEY, &value[..])?;
    let mut ops = vec![Op::Put { table: 0, key: KEY.to_vec(), value, existed }];
    let position = enter(&mut tx, &mut ops, Some(&row), order)?;
    let result = tx.commit();
    let told = result.as_ref().map_or_else(refusal, |()| Told::Durable);
    attempts.push(Attempt::new(position, ops, Some(row), told, order));
    result
}

/// Deletes the long value, too, and prepares the transaction, about which the judge is to decide.
fn prepare(
    (mut tx, mut ops): (Transaction, Vec<Op>),
    row: Vec<u8>,
    order: &AtomicU64,
    attempts: &mut Vec<Attempt>,
) -> Result<()> {
    let existed = tx.delete(table(0), KEY)?;
    ops.push(Op::Delete { table: 0, key: KEY.to_vec(), existed });
    let position = enter(&mut tx, &mut ops, Some(&row), order)?;
    let result = tx.prepare(&row);
    let told = result.as_ref().map_or_else(unprepared, |()| Told::Prepared);
    attempts.push(Attempt::new(position, ops, Some(row), told, order));
    result
}
