//! Cursors: the records of a key range, in either direction, with the locks of Kimura et al. 2012, Table 3.
//!
//! A cursor holds no latch between calls. It reads some records of one leaf at a time, locks them, and validates the
//! leaf (`fill.rs`): then what it has read is current, and the locks keep it so until the transaction ends, unless the
//! transaction itself changes something; then the cursor reads again from where it stands.

mod ahead;
mod batch;
mod fill;
mod plan;
mod scratch;

use std::{
    mem,
    ops::{Bound, ControlFlow},
};

use foreshore_base::{
    Lsn, PageId,
    bounds::{self, as_slice},
};

use crate::{
    env::TreeEnv,
    error::{Result, TreeError},
    session::{Isolation, Session},
    tree::BTree,
};

use scratch::{Lent, Scratch};

/// Keys to read at once, at most, where they have to be locked.
const MOST_AHEAD: usize = 64;
/// Keys to read at once to find one that nobody has locked.
const SKIPPED_AHEAD: usize = 16;

/// The order in which a cursor meets keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the lowest key up.
    #[default]
    Ascending,
    /// From the highest key down.
    Descending,
}

impl Direction {
    /// The low and the high end of a range as the near and the far one, or the other way round.
    #[inline]
    fn ends<T>(self, (one, other): (T, T)) -> (T, T) {
        match self {
            Direction::Ascending => (one, other),
            Direction::Descending => (other, one),
        }
    }
}

/// How a cursor locks the records that it meets. Gaps, and what is deleted, are locked shared in either case, unless it
/// skips what is locked ([`Cursor::skip_locked`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockKind {
    /// For reading.
    #[default]
    Shared,
    /// For changes that follow.
    Exclusive,
}

/// A position in a range of keys.
#[derive(Debug)]
pub struct Cursor {
    tree: BTree,
    direction: Direction,
    kind: LockKind,
    isolation: Isolation,
    /// Passes over what is locked.
    skips: bool,
    /// The end of the range was answered.
    ended: bool,
    /// Range, batch, and the key where it stands.
    scratch: Lent,
    /// Where it stands: which record of the batch, and its value if that lies in other leaves.
    record: usize,
    long_value: Option<Vec<u8>>,
    /// The key is that of a record of the batch: it begins with the leaf's prefix.
    gave: bool,
    /// Keys to read at once. It begins with one and doubles, so that a cursor that is left early locks little more than
    /// what it gave; where its own transaction makes it read again, it goes back to as many as were needed. Where what
    /// is locked is skipped, it is [`SKIPPED_AHEAD`] all the time, since one of them is locked at most.
    /// But see [`Plan::reach`](plan::Plan::reach).
    ahead: usize,
    /// The leaf of the last batch: a hint.
    leaf: PageId,
    /// The transaction's newest record when the batch was read.
    seen: Lsn,
}

impl Cursor {
    /// Whether it goes through a tree of `env`.
    #[inline]
    pub fn is_of(&self, env: &TreeEnv) -> bool {
        self.tree.is_of(env)
    }

    pub(crate) fn new(
        tree: BTree,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        kind: LockKind,
        isolation: Isolation,
    ) -> Cursor {
        Cursor {
            tree,
            direction,
            kind,
            isolation,
            skips: false,
            ended: bounds::is_empty(range),
            scratch: Lent::new(direction.ends(range)),
            record: 0,
            long_value: None,
            gave: false,
            ahead: 1,
            leaf: PageId::NONE,
            seen: Lsn::ZERO,
        }
    }

    /// From here on it waits for nobody: it passes over records on which others have a lock that is in the way, or wait
    /// for one. Neither these are locked nor gaps nor what is deleted, whatever the isolation. A record beyond those
    /// that it gives may be, if its leaf has changed before that was known.
    #[must_use]
    pub fn skip_locked(self) -> Cursor {
        Cursor { skips: true, isolation: Isolation::RepeatableRead, ahead: SKIPPED_AHEAD, ..self }
    }

    /// Moves to the next record and copies its key and value. False at the end of the range, now and from then on.
    ///
    /// After an error the cursor stands where it stood.
    pub fn next(
        &mut self,
        session: &mut impl Session,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool, TreeError> {
        let found = self.advance(session)?;
        if found {
            key.clear();
            key.extend_from_slice(self.key());
            value.clear();
            value.extend_from_slice(self.value());
        }
        Ok(found)
    }

    /// As [`Cursor::next`], for whoever looks at the record where it lies.
    #[inline]
    pub fn advance(&mut self, session: &mut impl Session) -> Result<bool, TreeError> {
        self.advance_to(session, true)
    }

    /// As [`Cursor::advance`], for whoever looks at the key alone: a value in other leaves is not read, and an empty
    /// one stands for it.
    #[inline]
    pub fn advance_key(&mut self, session: &mut impl Session) -> Result<bool, TreeError> {
        self.advance_to(session, false)
    }

    /// Reads the value of the record where [`Cursor::advance_key`] has moved it, unless the transaction has written
    /// since.
    #[cold]
    pub fn read_value(&mut self, session: &mut impl Session) -> Result<(), TreeError> {
        let records = self.scratch.batch.records();
        if self.gave && records.flags(self.record).overflow {
            self.long_value = Some(self.tree.tree().read_overflow(session, records.get(self.record).1)?);
        }
        Ok(())
    }

    #[inline]
    fn advance_to(&mut self, session: &mut impl Session, value: bool) -> Result<bool, TreeError> {
        // What was read ahead may be out of date once the transaction has written.
        if self.seen == session.chain().last && self.step(session, value)? {
            return Ok(true);
        }
        self.advance_slow(session, value)
    }

    fn advance_slow(&mut self, session: &mut impl Session, value: bool) -> Result<bool, TreeError> {
        while !self.ended {
            if self.seen != session.chain().last {
                self.step_back();
                self.seen = session.chain().last;
            }
            if self.step(session, value)? {
                return Ok(true);
            }
            let barren = !mem::take(&mut self.gave) && self.is_kept_barren(session);
            let Scratch { near, batch, .. } = &mut *self.scratch;
            self.ended = match barren {
                true => !self.move_over(session),
                false => !batch.move_on(near),
            };
            self.pass_barren(session);
            if !self.ended
                && let Err(error) = self.fill(session)
            {
                self.scratch.batch.clear();
                return Err(error);
            }
        }
        Ok(false)
    }

    /// Whether the batch had nothing to give, locks keep it so until the end of the transaction, and this may be worth
    /// knowing: where it has changed nothing, what it passes was deleted by others, and goes soon.
    fn is_kept_barren(&self, session: &mut impl Session) -> bool {
        self.scratch.batch.kept && self.isolation.locks_gaps() && session.chain().last != Lsn::ZERO
    }

    /// Moves the near bound over a batch that had nothing to give, and has the session take note of that.
    #[cold]
    fn move_over(&mut self, session: &mut impl Session) -> bool {
        let Scratch { near, batch, .. } = &mut *self.scratch;
        let from = near.clone();
        let goes_on = batch.move_on(near);
        if goes_on {
            session.note_barren(self.tree.table(), self.direction, as_slice(&from), as_slice(near));
        }
        goes_on
    }

    /// Before each look for records, and not when the cursor was made: its transaction may have added some since.
    #[inline]
    fn pass_barren(&mut self, session: &impl Session) {
        let Scratch { near, far, .. } = &mut *self.scratch;
        if session.pass_barren(self.tree.table(), self.direction, near) {
            self.ended |= bounds::is_empty(self.direction.ends((as_slice(near), as_slice(far))));
        }
    }

    /// Calls `visit` with the key and value of the record where the cursor stands, and of those that were read with it
    /// if all have their values in the leaf, until it breaks off; tells whether it did. The cursor stands on the last
    /// one.
    ///
    /// This asks the session nothing: what was read with a record was true when it was, and the transaction must have
    /// changed nothing since [`Cursor::advance`] was called.
    pub fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        let flow = visit(self.key(), self.value());
        let Scratch { batch, key, .. } = &mut *self.scratch;
        if flow.is_break() || batch.has_long_values() {
            return flow;
        }
        let (last, flow) = batch.visit(key, &mut visit);
        self.record = last.unwrap_or(self.record);
        flow
    }

    /// The key of the record where the cursor stands; empty before the first one.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.scratch.key
    }

    /// The value of the record where the cursor stands, until it is moved; of no use after an error.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match &self.long_value {
            Some(value) => value,
            None => self.scratch.batch.records().get(self.record).1,
        }
    }

    /// Moves to the next record of the batch; false if there is none.
    #[inline]
    fn step(&mut self, session: &mut impl Session, value: bool) -> Result<bool, TreeError> {
        let Scratch { batch, key, .. } = &mut *self.scratch;
        let Some(record) = batch.pass() else { return Ok(false) };
        self.long_value = None;
        if batch.records().flags(record).overflow && !value {
            self.long_value = Some(Vec::new());
        } else if batch.records().flags(record).overflow {
            // The lock on the key covers the chunks.
            match self.tree.tree().read_overflow(session, batch.records().get(record).1) {
                Ok(value) => self.long_value = Some(value),
                Err(error) => {
                    batch.unpass();
                    return Err(error);
                }
            }
        }
        if !self.gave {
            key.clear();
            key.extend_from_slice(batch.records().prefix());
        }
        batch.records().give(record, key);
        (self.record, self.gave) = (record, true);
        Ok(true)
    }

    /// Forgets what was read ahead and stands behind the last record given.
    #[cold]
    fn step_back(&mut self) {
        let Scratch { near, batch, key, .. } = &mut *self.scratch;
        if self.gave {
            *near = Bound::Excluded(key.clone());
        }
        self.gave = false;
        if !self.skips
            && let Some(passed) = batch.passed_of_more()
        {
            // Its transaction changes what it meets: more than it came to is read, and locked, in vain.
            self.ahead = self.ahead.min(passed.max(1));
        }
        batch.clear();
    }
}
