//! Ending a transaction in its owner's place, because it needs most of a full log and its owner does nothing with it
//! (`LogFullPolicy::EndOldest`).
//!
//! TXN-35: a transaction is ended by another thread only between two of its changes, when the compare-exchange on its
//! slot has given it to that thread ([`TxnTable::take`](crate::table::TxnTable::take)); never when it is prepared. It
//! is undone under its own locks: they stay until its owner gives them up, which waits with that until all is undone.
//! Whatever the owner asks before that is refused with [`TxnError::LogHeld`](crate::TxnError::LogHeld), a read that was
//! under way meanwhile too.
//!
//! All that undoing needs is in the log and in the slot, as after a crash. What is the owner's alone, and stays with
//! it, are the locks: they hang in lists that its thread changes without asking anybody, and to share them would cost
//! every lock that is taken. So others may use the log again, but not yet the keys of a transaction that its owner has
//! forgotten.

use foreshore_base::{Lsn, Result, TxnId};
use foreshore_btree::TxnChain;
use foreshore_env::thread;

use crate::{
    core::Core,
    rollback::{settle, undo_chain},
    stats::Event,
    table::SlotNumber,
};

/// Rolls a transaction back, if its owner is not at work with it at this moment.
pub(crate) fn end(core: &Core, txn: TxnId) -> Result<()> {
    let Some((slot, last)) = core.transactions.take(txn, core.log.tail()) else { return Ok(()) };
    let taken = Taken { core, slot };
    core.stats.count(Event::Rollback);
    core.stats.count(Event::Ended);
    if last == Lsn::ZERO {
        return Ok(());
    }
    let mut chain = TxnChain { txn, first: Lsn::ZERO, last };
    let mut note = |chain: &TxnChain| core.transactions.advance(slot, chain.last, core.log.tail());
    let undone = undo_chain(core, &mut chain, &mut note);
    let settled = settle(core, undone);
    drop(taken);
    core.note_log_growth(core.log.tail());
    settled
}

/// A slot that was taken over. Its owner waits until it is given back, whatever happens.
struct Taken<'c> {
    core: &'c Core,
    slot: SlotNumber,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.core.log.poison("a thread died while it rolled a transaction back");
        }
        self.core.transactions.release(self.slot);
    }
}
