//! What happens in some lives when the clients are done: a transaction has changed something, and stays open over a checkpoint
//! to the end of the life, which comes by a power failure in that checkpoint or behind it, or by closing.
//!
//! Chance alone rarely makes it so. Clients' transactions are short, and what one logs behind a checkpoint tells recovery of
//! it, whether the checkpoint did or not.

use foreshore::{Database, Durability, Result, TransactOptions, Transaction};
use foreshore_testkit::FaultyDisk;

use super::{
    hand::Hand,
    plan::{End, Life},
};

/// Operations of the transaction.
const OPERATIONS: u64 = 6;

/// A last act, if the life has one; gives the transaction that is open.
pub(super) fn play(life: &Life, hand: Hand, db: &Database, disk: &FaultyDisk) -> Result<Option<Transaction>> {
    let (Some(at), End::Power(_) | End::Closed) = (life.last_act, life.end) else { return Ok(None) };
    let tx = change(hand, db)?;
    if life.end == End::Closed {
        db.checkpoint()?;
        return Ok(Some(tx));
    }
    disk.crash_at(disk.counts().operations + at);
    let checkpoint = db.checkpoint();
    disk.crash();
    checkpoint.map(|()| Some(tx))
}

/// A transaction that has changed something.
fn change(mut hand: Hand, db: &Database) -> Result<Transaction> {
    let options = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };
    let mut tx = db.begin_with(&options)?;
    let (mut ops, mut savepoints) = (Vec::new(), Vec::new());
    for serial in 0..OPERATIONS {
        hand.operation(&mut tx, &mut ops, &mut savepoints, false, serial)?;
    }
    Ok(tx)
}
