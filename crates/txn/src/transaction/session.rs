//! The answer of a transaction to the B-tree's questions, with intent locks taken on the way: in the dynamic protocol
//! here, for what is planned in `planned.rs`.

use std::ops::Bound;

use foreshore_base::{Lsn, PageId, Result, TableId, TxnId};
use foreshore_btree::{Direction, Finger, Patience, Session, TxnChain};
use foreshore_env::{
    Handle,
    sabotage::{Fault, planted},
};
use foreshore_lock::{CancelToken, IntentMode, KeyMode, KeyRef, LockError, LockOwner};
use foreshore_pages::{ExclusivePage, PageStamp};
use foreshore_wal::{RecordKind, Urgency};

use super::{
    barren::Barren, company::Company, escalation::Escalation, intents::Intents, parted::Parted,
    planned::Protocol, unlocked::UnlockedReads, waiting::Waiting,
};
use crate::{core::Core, engine::Engine, options::LogFullPolicy, records, table::SlotNumber};

/// The locks of a transaction and its place in the log. Only its own transaction uses it.
#[derive(Debug)]
pub(crate) struct TxnSession {
    pub(crate) owner: LockOwner,
    /// After the owner: dropping the last use of an engine closes it.
    pub(crate) engine: Handle<Engine>,
    pub(crate) chain: TxnChain,
    pub(crate) waiting: Waiting,
    /// How it comes to its locks.
    pub(super) protocol: Protocol,
    /// When the transaction ends, its locks are put into `parted`, for other threads to release.
    pub(super) parts: bool,
    /// The locks of a transaction that has ended with `parts` set, until they are taken away.
    pub(super) parted: Option<Box<Parted>>,
    /// How many of the locks on keys other threads acquired in this transaction's name: the first that it holds.
    pub(super) travelled: usize,
    /// The slot in the table of transactions, from the first change on.
    pub(crate) slot: Option<SlotNumber>,
    /// A change is announced in the slot.
    pub(super) changing: bool,
    /// The slot is marked as resting between two changes, so that others may end the transaction then (TXN-35).
    pub(super) endable: bool,
    /// The slot was marked as resting after the last change; if the mark is gone, somebody has ended the transaction.
    pub(super) resting: bool,
    /// Intent locks held, the volume's among them.
    pub(super) intents: Intents,
    /// An intent lock in `intents` is S, SIX or X, so some key locks are needless.
    pub(super) absolute: bool,
    pub(super) escalation: Escalation,
    /// Others that fill the log beside it.
    pub(super) company: Company,
    /// What it has read without locks.
    pub(crate) reads: UnlockedReads,
    /// Its first delete or shorter value that no lock on a key covers, and that was not taken back.
    pub(crate) first_unnamed_loss: Lsn,
    /// Long values that it has written or deleted.
    pub(crate) long_values: super::LongValues,
    /// Where its scans have met nothing.
    pub(crate) barren: Barren,
    /// The leaf that was used last, and where, and its table; which of the locks is on the key there, if that is known.
    finger: Option<(TableId, Finger, Option<usize>)>,
    /// Which of the locks was asked for last by [`Session::acquire`], if it was new then.
    newest: Option<usize>,
}

impl TxnSession {
    pub(crate) fn new(engine: Handle<Engine>, owner: LockOwner) -> TxnSession {
        let chain = TxnChain::new(owner.txn());
        let options = &engine.core().options;
        let endable = options.log_full == LogFullPolicy::EndOldest;
        let escalation =
            Escalation::new(options.escalation_locks, options.escalation_bytes, owner.lock_count());
        TxnSession {
            owner,
            engine,
            chain,
            waiting: Waiting::default(),
            protocol: Protocol::Dynamic,
            parts: false,
            parted: None,
            travelled: 0,
            slot: None,
            changing: false,
            endable,
            resting: false,
            intents: Intents::new(),
            absolute: false,
            escalation,
            company: Company::new(),
            reads: UnlockedReads::default(),
            first_unnamed_loss: Lsn::ZERO,
            long_values: super::LongValues::default(),
            barren: Barren::default(),
            finger: None,
            newest: None,
        }
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core {
        self.engine.core()
    }

    pub(crate) fn txn(&self) -> TxnId {
        self.chain.txn
    }

    /// Whether anything has been logged.
    #[inline]
    pub(crate) fn has_records(&self) -> bool {
        self.chain.last != Lsn::ZERO
    }

    /// Appends a record of this crate to the transaction's chain, as part of a change.
    pub(crate) fn append(&mut self, kind: RecordKind, payload: &[&[u8]]) -> Result<Lsn> {
        let lsn = self.core().log.append(Urgency::Work, self.chain.txn, self.chain.last, kind, payload)?;
        self.chain.note(lsn);
        Ok(lsn)
    }

    /// Appends the record that ends the transaction, commit or end.
    #[inline]
    pub(crate) fn append_last(&mut self, kind: RecordKind) -> Result<Lsn> {
        debug_assert!(kind == records::COMMIT || kind == records::END);
        self.core().log.append(Urgency::Ending, self.chain.txn, self.chain.last, kind, &[])
    }

    /// Makes sure of intent locks on the volume and a table. Waits; called under no latch.
    #[inline]
    pub(crate) fn enter(&mut self, table: TableId, want: IntentMode) -> Result<(), LockError> {
        if self.has_entered(table, want) { Ok(()) } else { self.enter_cold(table, want) }
    }

    /// Whether it holds at least this lock on a table, or the volume, itself.
    #[inline]
    pub(crate) fn has_entered(&self, table: TableId, want: IntentMode) -> bool {
        self.intents.find(table).is_some_and(|entered| entered.mode.covers(want))
    }

    #[cold]
    fn enter_cold(&mut self, table: TableId, want: IntentMode) -> Result<(), LockError> {
        if !self.core().options.locking {
            return Ok(());
        }
        match &mut self.protocol {
            Protocol::Dynamic => {
                self.intent(TableId::VOLUME, intent_above(want))?;
                self.intent(table, want)
            }
            Protocol::Reconnaissance(reconnaissance) => {
                reconnaissance.footprint.add_table(table, want);
                Ok(())
            }
            Protocol::Planned(_) => self.enter_beside_plan(table, want),
        }
    }
}

impl Session for TxnSession {
    #[inline]
    fn acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<(), LockError> {
        let reads = KeyMode::S.covers(mode);
        self.newest = None;
        if self.covered(table, mode) || (reads && planted(Fault::ReadUnlocked)) {
            return Ok(());
        }
        if !matches!(self.protocol, Protocol::Dynamic) {
            if !self.acquire_at_once(table, key, mode)? {
                return Err(LockError::PlanMiss);
            }
            // No latch is held here.
            self.after_unlatch(table);
            return Ok(());
        }
        if !reads {
            // A change comes, and its record: while the lock is taken, the line comes that others have appended at.
            self.core().log.prefetch_tail();
        }
        let before = self.owner.lock_count();
        if !self.changing {
            self.owner.acquire(table, key, mode, &self.waiting.policy())?;
        } else if !self.owner.try_acquire(table, key, mode)? {
            self.wait_in_change(table, key, mode)?;
        }
        if self.owner.lock_count() > before {
            self.newest = Some(before);
            if self.escalation.count(&self.owner, &mut self.intents, table, mode) {
                self.escalate(table);
            }
        }
        Ok(())
    }

    #[inline]
    fn prefetch_lock(&self, table: TableId, key: KeyRef<'_>, mode: KeyMode) {
        self.prefetch_lock_if_needed(table, key, mode);
    }

    #[inline]
    fn try_acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<bool, LockError> {
        if self.covered(table, mode) {
            return Ok(true);
        }
        let before = self.owner.lock_count();
        let granted = self.acquire_at_once(table, key, mode)?;
        if self.owner.lock_count() > before && matches!(self.protocol, Protocol::Dynamic) {
            // Whether an escalation is due is asked when the latch is gone.
            self.escalation.count(&self.owner, &mut self.intents, table, mode);
        }
        Ok(granted)
    }

    #[inline]
    fn after_unlatch(&mut self, table: TableId) {
        if self.escalation.is_due(&self.owner, &self.intents, table) {
            self.escalate(table);
        }
    }

    #[inline]
    fn held(&self, table: TableId, key: KeyRef<'_>) -> Result<KeyMode, LockError> {
        self.owner.held(table, key)
    }

    #[inline]
    fn held_and_check(
        &self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
    ) -> Result<(KeyMode, bool), LockError> {
        if self.covered(table, mode) || matches!(self.protocol, Protocol::Reconnaissance(_)) {
            return Ok((self.owner.held(table, key)?, true));
        }
        self.owner.held_and_check(table, key, mode)
    }

    /// TXN-6: a name is in use while anybody asks for it, and while the commit that last changed what it stands for is
    /// not durable. Without its name a reader would find the tag of that commit nowhere.
    fn has_requests(&self, table: TableId, key: KeyRef<'_>) -> bool {
        let core = self.core();
        if core.locks.has_requests(table, key) {
            return true;
        }
        let tag = core.locks.tag(table, key);
        tag != Lsn::ZERO && !core.log.is_durable(tag)
    }

    /// BTREE-14: of what it has deleted or shortened itself under a lock on the whole table no key is named, and while
    /// it has that lock nobody else has done so; but reconnaissance locks no table. A chunk of a long value is never
    /// named.
    fn may_purge(&self, table: TableId, leaf: Lsn) -> bool {
        if table == TableId::OVERFLOW {
            return self.core().is_settled(leaf);
        }
        let own = self.first_unnamed_loss;
        (own == Lsn::ZERO || leaf < own) && !matches!(self.protocol, Protocol::Reconnaissance(_))
    }

    #[inline]
    fn note_loss(&mut self, table: TableId, lsn: Lsn) {
        if self.first_unnamed_loss == Lsn::ZERO && self.covered(table, KeyMode::XN) {
            self.first_unnamed_loss = lsn;
        }
    }

    fn note_discarded(&mut self, long_value: u64) {
        self.long_values.delete(self.chain.last, long_value);
    }

    fn prepare_to_discard(&mut self, bytes: u64) {
        self.make_room_to_discard(bytes);
    }

    fn note_stored(&mut self, long_value: u64) {
        self.long_values.write(self.chain.last, long_value);
    }

    #[inline]
    fn patience(&self) -> Patience<'_> {
        let Waiting { deadline, cancel, .. } = &self.waiting;
        Patience { deadline: *deadline, cancelled: cancel.as_ref().map(CancelToken::flag) }
    }

    #[inline]
    fn finger(&self, table: TableId) -> Option<Finger> {
        let (of, finger, _) = self.finger?;
        (of == table).then_some(finger)
    }

    #[inline]
    fn set_finger(&mut self, table: TableId, finger: Finger) {
        // What is known of the lock stays with a key that is found where it was.
        if !self.finger.is_some_and(|(of, known, _)| (of, known) == (table, finger)) {
            self.finger = Some((table, finger, None));
        }
    }

    #[inline]
    fn set_locked_finger(&mut self, table: TableId, finger: Finger) {
        self.finger = Some((table, finger, self.newest));
    }

    #[inline]
    fn holds_at_finger(&mut self, table: TableId, mode: KeyMode) -> bool {
        let Some((of, _, Some(lock))) = self.finger else { return false };
        if of != table || !self.owner.holds_at(lock, mode) {
            return false;
        }
        self.newest = None;
        self.core().log.prefetch_tail();
        true
    }

    #[inline]
    fn held_and_check_at_finger(&self, table: TableId, mode: KeyMode) -> Option<(KeyMode, bool)> {
        let (of, _, lock) = self.finger?;
        // Under a lock on the table it need not be held, and the other question is answered at once.
        if of != table || self.covered(table, mode) {
            return None;
        }
        lock.map(|place| self.owner.held_and_check_at(place, mode))
    }

    #[inline]
    fn reads_unlocked(&mut self, table: TableId) -> bool {
        self.may_read_unlocked(table)
    }

    #[inline]
    fn is_settled(&mut self, lsn: Lsn) -> bool {
        self.is_settled_below(lsn)
    }

    #[inline]
    fn probe(&mut self, table: TableId, key: KeyRef<'_>) -> bool {
        self.probe_lock(table, key)
    }

    #[inline]
    fn remember(&mut self, table: TableId, leaf: PageStamp) -> Result<(), LockError> {
        self.remember_leaf(table, leaf)
    }

    #[inline]
    fn stand_beside(&mut self) -> Result<(), LockError> {
        self.validate_reads()
    }

    #[inline]
    fn has_remembered(&self) -> bool {
        self.reads.has_leaves()
    }

    fn is_remembered(&self, leaf: PageId) -> bool {
        self.reads.has_leaf(leaf)
    }

    fn note_barren(&mut self, table: TableId, direction: Direction, from: Bound<&[u8]>, to: Bound<&[u8]>) {
        if self.core().options.locking && !matches!(self.protocol, Protocol::Reconnaissance(_)) {
            self.barren.note(table, direction, from, to);
        }
    }

    #[inline]
    fn pass_barren(&self, table: TableId, direction: Direction, near: &mut Bound<Vec<u8>>) -> bool {
        self.barren.move_on(table, direction, near)
    }

    #[inline]
    fn note_added(&mut self, table: TableId, key: &[u8]) {
        self.barren.note_added(table, key);
    }

    #[inline]
    fn note_logged(&mut self, lsn: Lsn, bytes: usize) {
        self.chain.note(lsn);
        self.company.note(bytes);
    }

    #[inline]
    fn note_change(&mut self, leaf: &ExclusivePage<'_>, lsn: Lsn) {
        self.follow_change(leaf, lsn);
    }

    #[inline]
    fn chain(&mut self) -> &mut TxnChain {
        &mut self.chain
    }
}

/// What a lock on a table needs on the volume.
pub(super) fn intent_above(mode: IntentMode) -> IntentMode {
    match mode {
        IntentMode::IS | IntentMode::S => IntentMode::IS,
        IntentMode::IX | IntentMode::SIX | IntentMode::X => IntentMode::IX,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use foreshore_env::{
        disk::Disk,
        sync::Arc,
        thread,
        time::{Duration, Instant},
    };
    use foreshore_testkit::FaultyDisk;

    use super::*;
    use crate::{BeginOptions, Durability, EngineOptions, TxnError};

    /// What is known of the lock on the key that was read last is of that key, not of whichever has its slot later.
    #[test]
    fn who_has_read_a_key_to_change_it_has_its_lock_and_no_other() {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let table = engine.create_table("table", &[]).unwrap();
        let begin = || engine.begin(BeginOptions::default()).unwrap();
        let put = |key: &[u8]| {
            let mut txn = begin();
            txn.put(&table, key, b"old").unwrap();
            txn.commit(Durability::Lazy).unwrap();
        };
        put(b"b");
        put(b"d");
        let mut txn = begin();
        assert_eq!(txn.get(&table, b"d", <[u8]>::len).unwrap(), Some(3));
        assert!(txn.session.holds_at_finger(table.id(), KeyMode::SN));
        assert!(!txn.session.holds_at_finger(table.id(), KeyMode::XN));
        assert_eq!(txn.get_for_update(&table, b"b", <[u8]>::len).unwrap(), Some(3));
        assert!(txn.session.holds_at_finger(table.id(), KeyMode::XN));
        assert!(!txn.session.holds_at_finger(TableId::VOLUME, KeyMode::XN));
        // Now another key has the slot.
        put(b"a");
        for (locks, key) in [(3, b"a"), (3, b"b")] {
            txn.put(&table, key, b"new").unwrap();
            assert_eq!(txn.session.owner.lock_count(), locks, "{key:?}");
        }
        txn.get_for_update(&table, b"c", <[u8]>::len).unwrap();
        assert!(
            !txn.session.holds_at_finger(table.id(), KeyMode::XN),
            "of what is not there nothing is known"
        );
        txn.put(&table, b"c", b"new").unwrap();
        assert_eq!(txn.session.owner.lock_count(), 4);
        txn.commit(Durability::Lazy).unwrap();
    }

    /// A deadline and a cancellation end the wait for a latch too, and the transaction can go on when it is free.
    #[test]
    fn a_transaction_does_not_wait_for_a_latch_for_ever() {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let table = engine.create_table("table", &[]).unwrap();
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        txn.put(&table, b"key", b"old").unwrap();
        let held = engine.core().pool.exclusive(table.tree().root()).unwrap();
        thread::scope(|scope| {
            let waiting = || {
                txn.set_deadline(Some(Instant::now() + Duration::from_millis(20)));
                let error = txn.put(&table, b"key", b"new").unwrap_err();
                assert!(matches!(error, TxnError::Lock(LockError::Timeout(_))), "{error}");
                txn.set_deadline(None);
                let cancel = txn.cancel_token();
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    cancel.cancel();
                });
                let error = txn.get(&table, b"key", <[u8]>::to_vec).unwrap_err();
                assert!(matches!(error, TxnError::Lock(LockError::Cancelled)), "{error}");
            };
            scope.spawn(waiting).join().unwrap();
        });
        drop(held);
        // What it had done before is there to be taken back.
        assert!(!txn.is_read_only());
        txn.rollback().unwrap();
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        assert_eq!(txn.get(&table, b"key", <[u8]>::to_vec).unwrap(), None);
    }
}
