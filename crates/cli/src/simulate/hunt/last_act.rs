//! What happens in some lives when the clients are done: a transaction has changed something, and stays open, or prepared, over a
//! checkpoint to the end of the life, which comes by a power failure in that checkpoint or behind it, or by closing.
//!
//! Chance alone rarely makes it so. Clients' transactions are short, and what one logs behind a checkpoint tells recovery of
//! it, whether the checkpoint did or not.

use foreshore::{Database, Durability, Result, TransactOptions, Transaction};
use foreshore_env::sync::atomic::{AtomicU64, Ordering};
use foreshore_testkit::{FaultyDisk, history::Op};

use super::{
    client::{Attempt, LEDGER, Told, WRITTEN, table, unprepared},
    hand::Hand,
    plan::{End, Life},
};

/// Operations of the transaction.
const OPERATIONS: u64 = 6;

/// A last act, if the life has one; gives the transaction that is open. `prepares`: every other one is prepared instead, with a place in
/// the order of commits, and is the last attempt.
pub(super) fn play(
    life: &Life,
    hand: Hand,
    db: &Database,
    disk: &FaultyDisk,
    prepares: Option<(&AtomicU64, &mut Vec<Attempt>)>,
) -> Result<Option<Transaction>> {
    let (Some(at), End::Power(_) | End::Closed) = (life.last_act, life.end) else { return Ok(None) };
    let row = format!("{}-{}-last", hand.life, hand.number).into_bytes();
    let (tx, ops) = change(hand, db)?;
    let open = match prepares.filter(|_| at % 2 == 0) {
        None => Some(tx),
        Some((order, attempts)) => {
            let (attempt, result) = prepare(tx, ops, row, order)?;
            attempts.push(attempt);
            result?;
            None
        }
    };
    if life.end == End::Closed {
        db.checkpoint()?;
        return Ok(open);
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
    let (mut ops, mut savepoints) = (Vec::new(), Vec::new());
    for serial in 0..OPERATIONS {
        hand.operation(&mut tx, &mut ops, &mut savepoints, false, serial)?;
    }
    Ok((tx, ops))
}

/// Prepares a transaction, about which the judge is to decide.
fn prepare(
    mut tx: Transaction,
    mut ops: Vec<Op>,
    row: Vec<u8>,
    order: &AtomicU64,
) -> Result<(Attempt, Result<()>)> {
    let inserted = tx.insert(table(LEDGER), &row[..], WRITTEN)?;
    ops.push(Op::Insert { table: LEDGER, key: row.clone(), value: WRITTEN.to_vec(), inserted });
    let position = order.fetch_add(1, Ordering::SeqCst);
    let result = tx.prepare(&row);
    let told = result.as_ref().map_or_else(unprepared, |()| Told::Prepared);
    Ok((Attempt { position, ops, row: Some(row), told }, result))
}
