//! Locks on the way: the locks of a planned transaction travel, while it waits for them, through the threads that look
//! after parts of the lock table, and come back to it (Ren, Faleiro, Abadi 2016, §3.1).
//!
//! A partition is a range of lock names, and so of the hash, unless the caller's partitioner chooses the range:
//! ascending partitions are the one order of TXN-17, and transactions that travel mix with those that ask for
//! themselves. Where this departs from the paper: it has lock tables that only their thread knows. Here there is one
//! lock table for everybody, because two would not exclude each other: the thread of a partition is nearly alone with
//! its part of the table, so that its latches and queues stay in its cache, and transactions of other kinds may run at
//! the same time.

use std::mem;

use foreshore_base::{Lsn, TableId};
use foreshore_env::time::Instant;
use foreshore_lock::{Crowd, IntentMode, LockError, LockOwner};

use super::{Txn, planned::Protocol, session::TxnSession, waiting::Waiting};
use crate::{
    error::TxnError, footprint::Footprint, options::Durability, ticket::CommitTicket,
    transaction::session::intent_above,
};

/// The locks of a transaction, away from it: asked for, or to be given back.
#[derive(Debug)]
pub struct Parted {
    locks: Locks,
    footprint: Box<Footprint>,
    waiting: Waiting,
    /// Keys of the footprint that were asked for.
    granted: usize,
    /// Of what is to be given back: locks that were asked for on the way. The others it has taken itself, beside its
    /// plan.
    travelled: usize,
}

/// Locks that are wherever they are.
#[derive(Debug)]
struct Locks {
    owner: LockOwner,
    /// What is left where something may have been changed, once the transaction has committed.
    tag: Option<Lsn>,
}

impl Drop for Locks {
    /// Whoever loses the locks of a transaction that has committed leaves behind what others must know (TXN-6).
    fn drop(&mut self) {
        if self.tag.is_some() {
            self.owner.release_rest(self.tag);
        }
    }
}

/// How far a partition has come with what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The transaction waits for a lock of this partition.
    Waiting,
    /// Done here; this partition is next.
    Next(usize),
    /// All is granted, or given back.
    Complete,
}

impl Parted {
    /// Where to go first, or next.
    pub fn next(&self, partitions: usize) -> Advance {
        match self.footprint.name(self.granted) {
            Some(name) => Advance::Next(name.partition(partitions)),
            None => Advance::Complete,
        }
    }

    /// Asks for the locks of a partition, in order, as far as it comes without waiting; called again, goes on. By the
    /// thread of the partition.
    pub fn advance(&mut self, partition: usize, partitions: usize) -> Result<Advance, LockError> {
        let Parted { locks: Locks { owner, .. }, footprint, waiting, granted, .. } = self;
        let policy = waiting.policy();
        if !owner.look(&policy)? {
            return Ok(Advance::Waiting);
        }
        for (name, table, key, mode) in footprint.keys_from(*granted) {
            let next = name.partition(partitions);
            if next != partition {
                return Ok(Advance::Next(next));
            }
            *granted += 1;
            if !owner.ask(table, key, mode, &policy)? {
                return Ok(Advance::Waiting);
            }
        }
        Ok(Advance::Complete)
    }

    /// Which of the places among those that are open it has.
    pub fn place(&self) -> usize {
        self.locks.owner.place()
    }

    /// Waits in a partition beside others, whose thread goes on with it when what it waits for has been decided.
    pub fn join(&self, crowd: &mut Crowd) {
        self.locks.owner.join(crowd);
    }

    /// For which of a crowd, this one or others, that may be.
    pub fn take_answered(&self, crowd: &Crowd) -> Crowd {
        self.locks.owner.take_answered(crowd)
    }

    /// Whether it may be for one of them.
    pub fn has_answered(&self, crowd: &Crowd) -> bool {
        self.locks.owner.has_answered(crowd)
    }

    /// When its thread looks, at the latest, whether it goes on waiting, and for deadlocks.
    pub fn look_by(&self) -> Option<Instant> {
        self.locks.owner.look_by(&self.waiting.policy())
    }

    /// Of a transaction that has ended: gives back what it has locked itself, beside its plan. By its own thread; then
    /// the rest goes to the partitions. `passed` is told those in which somebody has waited for one of these locks.
    pub fn release_own(&mut self, partitions: usize, mut passed: impl FnMut(usize)) {
        let Locks { owner, tag } = &mut self.locks;
        owner.release_later(self.travelled, *tag, |name| passed(name.partition(partitions)));
    }

    /// As [`Parted::release_own`], of all that it has: nothing is left for the partitions.
    pub fn release_here(&mut self, partitions: usize, passed: impl FnMut(usize)) {
        self.travelled = 0;
        self.release_own(partitions, passed);
        self.next_release(partitions);
    }

    /// Gives back the locks of a partition, of a transaction that has ended. By the thread of the partition.
    pub fn release(&mut self, partition: usize, partitions: usize) -> Advance {
        let Locks { owner, tag } = &mut self.locks;
        owner.release_some(|name| name.partition(partitions) == partition, *tag);
        self.next_release(partitions)
    }

    /// Where locks are to be given back first, or next; once there are none left, what remains (the locks on tables) is
    /// given back.
    pub fn next_release(&mut self, partitions: usize) -> Advance {
        let Locks { owner, tag } = &mut self.locks;
        match owner.held_names().map(|(name, _)| name.partition(partitions)).min() {
            Some(partition) => Advance::Next(partition),
            None => {
                owner.release_all(*tag);
                Advance::Complete
            }
        }
    }
}

impl TxnSession {
    /// Gives the locks back, or parts with them if that was asked for.
    pub(crate) fn release_all(&mut self, tag: Option<Lsn>) {
        if !self.parts {
            return self.owner.release_all(tag);
        }
        let (locks, waiting) = (Locks { owner: self.owner.hand_over(), tag }, mem::take(&mut self.waiting));
        let (footprint, travelled) = (Box::default(), self.travelled);
        self.parted = Some(Box::new(Parted { locks, footprint, waiting, granted: 0, travelled }));
    }
}

impl Txn {
    /// As [`Txn::follow`], but never waits: where a table is locked by others it enters the queue and gives nothing,
    /// and [`Txn::part_further`] is called a little later. When it has its tables, it parts with its locks for those on
    /// keys. Nothing can be done with it then before [`Txn::rejoin`]; if they do not come back, it is dropped, and
    /// whoever has them gives them back.
    pub fn part(&mut self, mut footprint: Footprint) -> Result<Option<Box<Parted>>, TxnError> {
        self.check_usable()?;
        let core = self.session.core();
        footprint.settle(core.options.escalation_locks);
        if !core.options.locking {
            footprint.forget_keys();
        }
        self.session.protocol = Protocol::Planned(Box::new(footprint));
        self.part_further()
    }

    /// Goes on with [`Txn::part`]. It has its tables below the one that it waits for, and no keys; deadlocks through
    /// this wait are found, and its limits, which are looked at here, are those of other waits.
    pub fn part_further(&mut self) -> Result<Option<Box<Parted>>, TxnError> {
        self.check_usable()?;
        let session = &mut self.session;
        let Protocol::Planned(footprint) = mem::take(&mut session.protocol) else { return Ok(None) };
        let asked =
            if session.core().options.locking { session.ask_for_tables(&footprint) } else { Ok(true) };
        if !matches!(asked, Ok(true)) {
            session.protocol = Protocol::Planned(footprint);
            return asked.map(|_| None).map_err(|error| self.note(error.into()));
        }
        self.away = true;
        let locks = Locks { owner: session.owner.hand_over(), tag: None };
        let waiting = mem::take(&mut session.waiting);
        Ok(Some(Box::new(Parted { locks, footprint, waiting, granted: 0, travelled: 0 })))
    }

    /// Takes its locks back, with what came of asking for them.
    pub fn rejoin(&mut self, parted: Parted, outcome: Result<(), LockError>) -> Result<(), TxnError> {
        let Parted { mut locks, footprint, waiting, .. } = parted;
        self.away = false;
        self.session.travelled = locks.owner.lock_count();
        self.session.owner = locks.owner.hand_over();
        self.session.waiting = waiting;
        self.session.protocol = Protocol::Planned(footprint);
        self.lock(|_| outcome)
    }

    /// As [`Txn::commit_pipelined_in_place`], but parts with the locks instead of giving them back, if early release
    /// allows for that ([`Parted::release`]). Only under `Durability::Sync` it waits for the disk.
    pub fn commit_parting(
        &mut self,
        durability: Durability,
    ) -> Result<(CommitTicket, Option<Box<Parted>>), TxnError> {
        let core = self.session.share_core();
        self.session.parts = true;
        let committed = self.commit_in_place(durability);
        if committed.is_err() {
            // It is undone, and nobody comes for its locks.
            self.session.parted = None;
        }
        let lsn = committed?;
        Ok((CommitTicket::new(core, lsn), self.session.parted.take()))
    }

    /// As [`Txn::rollback_in_place`], but parts with the locks instead of giving them back. `travels`: whether those
    /// that have travelled are to do so once more; if not, its own thread gives all of them back, in
    /// [`Parted::release_own`].
    pub fn rollback_parting(&mut self, travels: bool) -> Result<Option<Box<Parted>>, TxnError> {
        self.session.parts = true;
        if !travels {
            self.session.travelled = 0;
        }
        let undone = self.rollback_in_place();
        let parted = self.session.parted.take();
        undone.map(|()| parted)
    }
}

impl TxnSession {
    /// Asks for the locks on tables, in their order, as far as it comes without waiting; called again, goes on. Whether
    /// it has them.
    fn ask_for_tables(&mut self, footprint: &Footprint) -> Result<bool, LockError> {
        if !self.owner.look(&self.waiting.policy())? {
            return Ok(false);
        }
        for (table, mode) in tables_of(footprint) {
            if !self.ask_intent(table, mode)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The locks on tables of a footprint, in their order: what it needs on the volume is the first.
pub(super) fn tables_of(footprint: &Footprint) -> impl Iterator<Item = (TableId, IntentMode)> {
    let tables = footprint.tables();
    let above = tables.iter().map(|part| intent_above(part.mode)).reduce(IntentMode::join);
    let tables = tables.iter().map(|part| (part.table, part.mode));
    above.map(|above| (TableId::VOLUME, above)).into_iter().chain(tables)
}
