//! Reads without locks (hybrid reads): the latch paper's idea, one level up. No paper has it; README.md has the
//! argument.
//!
//! A transaction whose [`ReadMode`] is hybrid, and that has written nothing yet, reads a leaf under a version, makes
//! sure that what it reads there is committed, validates the version, and remembers the leaf. What it remembers is
//! validated with each further leaf and once more before it commits. Should that fail it has to run again, with locks.
//! Whatever cannot be read in this way at the moment is locked as ever: the two kinds of reads stand beside each other.

use foreshore_base::{Lsn, PageId, TableId};
use foreshore_btree::TreeError;
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::atomic::{AtomicU32, Ordering},
};
use foreshore_lock::{KeyMode, KeyRef, LockError};
use foreshore_pages::{ExclusivePage, PageStamp};

use super::{Failure, Txn, planned::Protocol, session::TxnSession};
use crate::{core::Core, error::TxnError, options::ReadMode, stats::Event};

/// Leaves that a transaction reads without locks at most. All of them are validated when another one joins them and
/// somebody has written meanwhile, so that there is a limit to what it costs; from then on it locks.
const MAX_LEAVES: usize = 256;
/// Leaves of most transactions: more of them cost another allocation.
const USUAL_LEAVES: usize = 16;

/// Counters for tables whose reads fail.
const COUNTERS: usize = 64;
/// What a failure adds to a table's counter; a success takes one away. So a table's reads come to lock at once where
/// more than one transaction in this many fails.
const FAILURE_WEIGHT: u32 = 16;
/// The count from which on a table's reads lock, and the highest that it reaches.
const LOCKS_FROM: u32 = 32;
const HIGHEST_COUNT: u32 = 1024;

/// How often reads without locks have failed lately, by table: each failure adds, each transaction that is done with
/// the table takes one away. Tables that share a place share their luck. Written and read by everybody, relaxed; a lost
/// update is of no consequence, and nothing is written while all is well.
#[derive(Debug)]
pub(crate) struct StaleReadCounters([AtomicU32; COUNTERS]);

impl StaleReadCounters {
    pub(crate) fn new() -> StaleReadCounters {
        StaleReadCounters(std::array::from_fn(|_| AtomicU32::new(0)))
    }

    #[inline]
    fn of(&self, table: TableId) -> &AtomicU32 {
        &self.0[table.0 as usize % COUNTERS]
    }

    fn note_failure(&self, table: TableId) {
        let counter = self.of(table);
        let count = counter.load(Ordering::Relaxed);
        counter.store((count + FAILURE_WEIGHT).min(HIGHEST_COUNT), Ordering::Relaxed);
    }

    #[inline]
    fn note_success(&self, table: TableId) {
        let counter = self.of(table);
        let count = counter.load(Ordering::Relaxed);
        if count > 0 {
            counter.store(count - 1, Ordering::Relaxed);
        }
    }

    /// Whether reads of the table lock at once.
    #[inline]
    fn demands_locks(&self, table: TableId) -> bool {
        self.of(table).load(Ordering::Relaxed) >= LOCKS_FROM
    }
}

/// What a transaction has read without locks.
#[derive(Debug, Default)]
pub(crate) struct UnlockedReads {
    mode: ReadMode,
    leaves: Vec<(TableId, PageStamp)>,
    /// Where the log ended when all of `leaves` were validated last.
    validated: Lsn,
    /// A leaf in `leaves` has been changed by others: no look will ever find it as it was.
    changed: bool,
    /// How far the log was settled when it looked last; and whether it has asked for more.
    settled: Lsn,
    has_looked: bool,
    /// The newest commit that is perhaps not durable, and on which what it has read depends.
    tag: Lsn,
    /// A table that it locks, because reads without locks fail there too often.
    locked_table: Option<TableId>,
    /// It has come to lock what it would have read without locks, and is counted.
    fell_back: bool,
}

impl UnlockedReads {
    /// Whether there are any.
    #[inline]
    pub(super) fn has_leaves(&self) -> bool {
        !self.leaves.is_empty()
    }

    /// Whether this one is among them.
    pub(super) fn has_leaf(&self, leaf: PageId) -> bool {
        self.leaves.iter().rev().any(|(_, stamp)| stamp.id() == leaf)
    }

    /// The newest commit on which they depend, if it may not be durable yet.
    pub(crate) fn tag(&self) -> Lsn {
        self.tag
    }
}

impl Txn {
    /// Whether it reads without locks where it can. Then its reads, and its commit, may give [`LockError::StaleReads`]:
    /// it has to be rolled back, and run again, best with locks. Before its first read; what is planned locks in any
    /// case.
    pub fn set_read_mode(&mut self, mode: ReadMode) {
        self.session.reads.mode = mode;
    }

    /// How it reads.
    pub fn read_mode(&self) -> ReadMode {
        self.session.reads.mode
    }

    /// Whether what it has read without locks was changed by others.
    pub fn has_stale_reads(&self) -> bool {
        self.failed == Some(Failure::StaleReads)
    }

    /// READ-4: what was read, perhaps under locks, stands beside what was read without.
    #[inline]
    pub(super) fn read_beside<R>(&mut self, result: Result<R, TreeError>) -> Result<R, TxnError> {
        self.session.check_not_ended()?;
        let found = result.map_err(|error| self.note(error.into()))?;
        match self.session.validate_reads() {
            Ok(()) => Ok(found),
            Err(error) => Err(self.note(error.into())),
        }
    }
}

impl TxnSession {
    /// See [`foreshore_btree::Session::reads_unlocked`]. From its first change on a transaction locks what it reads.
    #[inline]
    pub(super) fn may_read_unlocked(&mut self, table: TableId) -> bool {
        self.reads_without_locks() && self.may_read_unlocked_now(table)
    }

    /// See [`foreshore_btree::Session::prefetch_lock`].
    #[inline]
    pub(super) fn prefetch_lock_if_needed(&self, table: TableId, key: KeyRef<'_>, mode: KeyMode) {
        let unlocked = self.reads_without_locks() && KeyMode::S.covers(mode);
        if !unlocked && !self.covered(table, mode) {
            self.owner.prefetch_lock(table, key);
        }
    }

    /// Whether it tries to read without locks.
    #[inline]
    fn reads_without_locks(&self) -> bool {
        self.reads.mode == ReadMode::Hybrid
    }

    #[inline]
    fn may_read_unlocked_now(&mut self, table: TableId) -> bool {
        if self.has_records() || self.absolute {
            return false;
        }
        if self.reads.leaves.len() >= MAX_LEAVES {
            self.fall_back();
            return false;
        }
        if self.core().stale_reads.demands_locks(table) {
            self.reads.locked_table = Some(table);
            self.fall_back();
            return false;
        }
        matches!(self.protocol, Protocol::Dynamic)
    }

    /// Counts it, once; what is planned locks in any case.
    #[cold]
    fn fall_back(&mut self) {
        let is_dynamic = matches!(self.protocol, Protocol::Dynamic);
        if is_dynamic && !std::mem::replace(&mut self.reads.fell_back, true) {
            self.core().stats.count(Event::UnlockedFallback);
        }
    }

    /// See [`foreshore_btree::Session::is_settled`].
    #[inline]
    pub(super) fn is_settled_below(&mut self, lsn: Lsn) -> bool {
        lsn < self.reads.settled || self.is_settled_by_now(lsn)
    }

    #[cold]
    fn is_settled_by_now(&mut self, lsn: Lsn) -> bool {
        let core = self.engine.core();
        let mut settled = core.settled.lsn();
        if lsn >= settled && !self.reads.has_looked {
            self.reads.has_looked = true;
            core.settled.look(&core.life, &core.log, &core.transactions);
            settled = core.settled.lsn();
        }
        self.reads.settled = settled;
        lsn < settled
    }

    /// See [`foreshore_btree::Session::probe`].
    #[inline]
    pub(super) fn probe_lock(&mut self, table: TableId, key: KeyRef<'_>) -> bool {
        let core = self.engine.core();
        if planted(Fault::ProbeBlind) {
            return true;
        }
        let Some(tag) = core.locks.probe(table, key) else { return false };
        if tag > self.reads.tag && !planted(Fault::TagForgotten) {
            self.reads.tag = tag;
        }
        true
    }

    /// See [`foreshore_btree::Session::remember`].
    #[inline]
    pub(super) fn remember_leaf(&mut self, table: TableId, leaf: PageStamp) -> Result<(), LockError> {
        let leaves = &mut self.reads.leaves;
        if leaves.last().is_none_or(|(_, last)| *last != leaf) {
            if leaves.capacity() == 0 {
                leaves.reserve(USUAL_LEAVES);
            }
            leaves.push((table, leaf));
        }
        self.validate_reads()
    }

    /// See [`foreshore_btree::Session::note_change`]: what it has read stays as it is but for its own changes.
    #[inline]
    pub(super) fn follow_change(&mut self, page: &ExclusivePage<'_>, lsn: Lsn) {
        let UnlockedReads { leaves, changed, .. } = &mut self.reads;
        for (_, leaf) in leaves.iter_mut().filter(|(_, leaf)| leaf.id() == page.id()) {
            *changed |= !leaf.follow(page, lsn);
        }
    }

    /// Makes sure that everything that was read without locks is as it was (READ-4).
    ///
    /// # Errors
    /// [`LockError::StaleReads`] if it is not.
    #[inline]
    pub(crate) fn validate_reads(&mut self) -> Result<(), LockError> {
        if self.reads.leaves.is_empty() {
            return Ok(());
        }
        // Read first: a change whose record lies before it has its leaf latched or changed by now.
        let tail = self.core().log.tail();
        if tail == self.reads.validated { Ok(()) } else { self.validate_leaves(tail) }
    }

    fn validate_leaves(&mut self, tail: Lsn) -> Result<(), LockError> {
        let core = self.engine.core();
        if !core.options.read_validation || planted(Fault::StaleReadsKept) {
            return Ok(());
        }
        let leaves = match self.reads.leaves.split_last() {
            Some((_, others)) if planted(Fault::LastLeafUnvalidated) => others,
            _ => &self.reads.leaves[..],
        };
        let stale = leaves.iter().find(|(_, leaf)| !core.pool.is_current(leaf));
        match stale.or_else(|| leaves.first().filter(|_| self.reads.changed)) {
            None => {
                self.reads.validated = tail;
                Ok(())
            }
            Some((table, _)) => Err(stale_reads(core, *table)),
        }
    }

    /// It has ended well: what it has read without locks can be so read again.
    #[inline]
    pub(crate) fn end_reads(&mut self) {
        if self.reads.mode == ReadMode::Locking {
            return;
        }
        let counters = &self.engine.core().stale_reads;
        if let Some(table) = self.reads.locked_table {
            counters.note_success(table);
        }
        if let Some((table, _)) = self.reads.leaves.first() {
            counters.note_success(*table);
        }
    }
}

#[cold]
fn stale_reads(core: &Core, table: TableId) -> LockError {
    core.stale_reads.note_failure(table);
    core.stats.count(Event::StaleReads);
    LockError::StaleReads
}
