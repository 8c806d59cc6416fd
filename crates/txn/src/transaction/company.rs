//! Large transactions beside one another in the log.
//!
//! Those that fill the log together all fail, though each would fit it alone: the oldest needs what all of them have
//! written, and when it has gone, so does the next. So they are kept apart before the log is full.
//!
//! TXN-38: when the log has grown by a [sixteenth](SHARES) of the room for work since a transaction began, and an
//! [eighth](PART) of that is its own, it lets the one that needs most of the log go on alone, for as long as that gets
//! on, but not for more than [`LONGEST`]; for one that stands still, which may wait for a lock of this one, it waits
//! [`PATIENCE`], and not again.
//!
//! Small ones beside many others let nobody go on, however much those write meanwhile: they need little, and are over
//! soon.
//!
//! What cannot be kept apart so, because it began while the other wrote, has to run again, alone. Whether that is worth
//! while says [`Txn::was_crowded`]. So has one whose change of many records, a long value say, was refused half-way,
//! because others had filled the log before it began: a checkpoint lets theirs go, but not what was undone, which lies
//! behind its own first record.

use foreshore_base::{Lsn, TxnId};
use foreshore_env::{
    thread,
    time::{Duration, Instant},
};

use super::{
    Txn, TxnSession,
    log_room::{LOOK_EVERY, PATIENCE},
};
use crate::error::TxnError;

/// Parts of the room for work: a transaction that has filled one of them looks whether others are there.
pub(super) const SHARES: u64 = 16;
/// Into how many parts such a share is divided: a transaction that has written less than one of them is small beside
/// the others.
const PART: u64 = 8;
/// How long a transaction waits in one place at most.
const LONGEST: Duration = Duration::from_secs(10);

/// What a transaction knows of others that fill the log beside it.
#[derive(Debug)]
pub(super) struct Company {
    /// With a record beyond this it looks again.
    look_at: Lsn,
    /// Bytes of its own records since it has looked.
    written: u64,
    /// Writers that had ended when it looked.
    ended: Option<u64>,
    /// Others filled the log beside the transaction when it looked.
    met: bool,
    /// The transaction has waited in vain for this one.
    in_vain: Option<TxnId>,
}

impl Company {
    pub(super) fn new() -> Company {
        Company { look_at: Lsn::MAX, written: 0, ended: None, met: false, in_vain: None }
    }

    /// What its transaction writes next comes at `tail` or later; `work_bytes` is the room for work.
    #[inline]
    pub(super) fn begin_share(&mut self, tail: Lsn, work_bytes: u64) {
        self.look_at = Lsn(tail.0 + work_bytes / SHARES);
        self.written = 0;
    }

    /// A record of its transaction was appended, with so many bytes.
    #[inline]
    pub(super) fn note(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }
}

impl TxnSession {
    /// Whether another part of the log has been filled, not least by it.
    #[inline]
    pub(super) fn looks_for_company(&self) -> bool {
        self.chain.last > self.company.look_at && self.is_large()
    }

    fn is_large(&self) -> bool {
        self.company.written >= self.core().log.work_bytes() / (SHARES * PART)
    }

    /// Whether there are others, or were since it has last looked; `None`: it has not looked.
    fn has_company(&self) -> Option<bool> {
        let core = self.core();
        let others = || core.transactions.holders().iter().any(|&(txn, _)| txn != self.txn());
        self.company.ended.map(|ended| ended != core.writers_ended() || others())
    }

    fn look_for_company(&mut self) {
        let core = self.core();
        let ended = core.writers_ended();
        // Others who had ended before the first look have left their records: alone it would have looked sooner.
        let were_there =
            self.company.ended.is_none() && self.growth_since_first() > 2 * (core.log.work_bytes() / SHARES);
        self.company.ended.get_or_insert(ended);
        self.company.met |= were_there || self.has_company() == Some(true);
        self.company.ended = Some(ended);
    }

    /// A change was refused for want of room, and what it has done is about to be undone: notes whether those who had
    /// ended before this transaction began have filled a part of the log. While an older one is open, that is in the
    /// way.
    pub(super) fn note_refusal(&mut self) {
        let work = self.core().log.work_bytes();
        let is_part = self.growth_since_first() < work - work / SHARES;
        self.company.met |= is_part && self.core().oldest_log_holder() == Some(self.txn());
    }

    /// Bytes by which the log has grown since its first record; none without one.
    fn growth_since_first(&self) -> u64 {
        if self.has_records() { self.core().log.tail().0.saturating_sub(self.chain.first.0) } else { 0 }
    }
}

impl Txn {
    /// Notes from now on, and not only when it has become large, who else fills the log: see [`Txn::was_crowded`].
    pub fn watch_company(&mut self) {
        self.session.look_for_company();
    }

    /// After it was refused for want of room in the log, or ended for that: whether it is large and others had a part
    /// in that, so that it may well come to its end when it runs alone.
    pub fn was_crowded(&self) -> bool {
        let session = &self.session;
        if !session.has_records() {
            return false;
        }
        session.company.met
            || session.has_company().unwrap_or_else(|| {
                // It has not written much of what it needs.
                session.growth_since_first() > session.core().log.work_bytes() / 2
            })
    }

    /// Lets the transaction that needs most of the log go on alone (TXN-38). Under no latch, and between two changes.
    ///
    /// # Errors
    /// What ends a transaction meanwhile.
    #[cold]
    pub(super) fn let_the_oldest_go_on(&mut self) -> Result<(), TxnError> {
        self.session.look_for_company();
        let begun = Instant::now();
        let (mut seen, mut seen_at) = (None, begun);
        loop {
            self.check_usable()?;
            let core = self.session.core();
            let oldest = core.transactions.oldest_holder();
            let Some((txn, _)) = oldest.filter(|&(txn, _)| txn != self.id()) else { break };
            let now = Instant::now();
            if seen != oldest {
                (seen, seen_at) = (oldest, now);
            }
            let waiting = &self.session.waiting;
            if self.session.company.in_vain == Some(txn)
                || waiting.no_wait
                || waiting.deadline.is_some_and(|deadline| deadline <= now)
            {
                break;
            }
            if now - seen_at >= PATIENCE || now - begun >= LONGEST {
                self.session.company.in_vain = Some(txn);
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
        let TxnSession { company, engine, .. } = &mut self.session;
        let log = &engine.core().log;
        company.begin_share(log.tail(), log.work_bytes());
        Ok(())
    }
}
