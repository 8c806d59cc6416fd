//! What reports about those who give way show of others.

use foreshore_base::TxnId;

use super::{BlockerView, Obstacle, TransactionView};
use crate::error::LockMode;
use crate::manager::LockManager;
use crate::slot::{SlotId, WaitWord};

impl LockManager {
    /// Who is in the way of the wait `word` of a slot, the first few of them; nobody if it has ended.
    pub(crate) fn in_the_way(&self, slot: SlotId, word: WaitWord, most: usize) -> Vec<BlockerView> {
        let wait = self.wait_in(slot).filter(|wait| wait.word == word);
        let obstacles = wait.and_then(|wait| self.obstacles(&wait)).unwrap_or_default();
        let blocker = |Obstacle { slot, txn, mode, holds }| BlockerView {
            transaction: self.who(slot, txn),
            mode,
            holds,
            held_for: None,
        };
        obstacles.into_iter().take(most).map(blocker).collect()
    }

    /// Those who were found to hold a lock.
    pub(crate) fn holding(&self, holders: &[(SlotId, LockMode)]) -> Vec<BlockerView> {
        let blocker = |&(slot, mode): &(SlotId, LockMode)| BlockerView {
            transaction: self.who(slot, self.slots.get(slot).txn()),
            mode,
            holds: true,
            held_for: None,
        };
        holders.iter().map(blocker).collect()
    }

    /// A transaction by its id, with what is known of it if it is open.
    pub(crate) fn view_of_transaction(&self, txn: TxnId) -> TransactionView {
        match self.slots.used().find(|(_, slot)| slot.txn() == txn) {
            Some((slot, _)) => self.who(slot, txn),
            None => TransactionView::ended(txn),
        }
    }
}
