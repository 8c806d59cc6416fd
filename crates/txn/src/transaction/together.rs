//! Several keys with one call: read, or added behind all others.

use foreshore_base::Lsn;
use foreshore_btree::{Append, BTree, LockKind};
use foreshore_env::time::Instant;
use foreshore_lock::IntentMode;

use super::{Txn, TxnSession, log_room::LOOK_EVERY};
use crate::{catalog::TableInfo, error::TxnError};

impl Txn {
    /// As [`Txn::get`] of one key after the other, or [`Txn::get_for_update`] for [`LockKind::Exclusive`], with the
    /// waits for memory and disk side by side. `read` is called with each one's number and value, in this order; what a
    /// call that fails has read counts for nothing.
    #[inline]
    pub fn get_many<K: AsRef<[u8]>>(
        &mut self,
        table: &TableInfo,
        keys: &[K],
        kind: LockKind,
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TxnError> {
        let intent = match kind {
            LockKind::Shared => IntentMode::IS,
            LockKind::Exclusive => IntentMode::IX,
        };
        let isolation = self.isolation;
        if self.session.reconnaissance().is_some() {
            for (number, key) in keys.iter().enumerate() {
                let value = |value: &[u8]| read(number, Some(value));
                let found = match kind {
                    LockKind::Shared => self.get(table, key.as_ref(), value)?,
                    LockKind::Exclusive => self.get_for_update(table, key.as_ref(), value)?,
                };
                if found.is_none() {
                    read(number, None);
                }
            }
            return Ok(());
        }
        self.read(table, intent, |tree, session| tree.get_many(session, keys, kind, isolation, read))
    }

    /// Adds keys behind all others of the table: much faster than one by one. No change if they do not ascend, or the
    /// first is not behind the table's last key, which may be one that this transaction has deleted. Locks the table
    /// exclusively.
    pub fn append<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        table: &TableInfo,
        entries: &[(K, V)],
    ) -> Result<Append, TxnError> {
        self.enter(table, IntentMode::X)?;
        if self.session.reconnaissance().is_some() {
            return self.append_ahead(table, entries);
        }
        let longest = entries.iter().map(|(_, value)| value.as_ref().len()).max();
        self.make_room_ahead(longest.unwrap_or(0))?;
        self.session.barren.forget();
        let append = |tree: &BTree, session: &mut TxnSession| tree.append(session, entries);
        let ended = self.change_in_tree(table, append)?;
        // What others have deleted counts until that is durable, or what anybody did whose locks have their tags in the
        // same place.
        if matches!(ended, Append::NotBehind { of_ghost: true, .. }) && self.wait_for_durable_log()? {
            return self.change_in_tree(table, append);
        }
        Ok(ended)
    }

    /// Waits until what is in the log by now is durable, if it is not; false: it was, or does not become so in the time
    /// that there is.
    ///
    /// # Errors
    /// Whatever ends a transaction, and a failure of the log.
    #[cold]
    fn wait_for_durable_log(&self) -> Result<bool, TxnError> {
        let core = self.session.core();
        let tail = core.log.tail();
        if core.log.durable() >= tail {
            return Ok(false);
        }
        let waiting = &self.session.waiting;
        let (no_wait, deadline) = (waiting.no_wait, waiting.deadline);
        while !no_wait && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            self.check_usable()?;
            if core.log.flush_until(Lsn(tail.0 - 1), Instant::now() + LOOK_EVERY)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
