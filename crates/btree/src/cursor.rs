//! Cursors: the records of a key range, in either direction, with the locks of Kimura et al. 2012, Table 3.
//!
//! A cursor holds no latch between calls. It reads some records of one leaf at a time, locks them, and validates the
//! leaf (`fill.rs`): then what it has read is current, and the locks keep it so until the transaction ends, unless the
//! transaction itself changes something; then the cursor reads again from where it stands.

mod ahead;
mod batch;
mod fill;

use std::{cmp::Ordering, ops::Bound};

use foreshore_base::{Lsn, PageId};

use crate::{
    error::{Result, TreeError},
    session::{Isolation, Session},
    tree::BTree,
};

use ahead::Ahead;
use batch::{Batch, Rest};

/// The order in which a cursor meets keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the lowest key up.
    #[default]
    Ascending,
    /// From the highest key down.
    Descending,
}

/// How a cursor locks the keys that it meets. Gaps are locked shared in either case.
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
    /// The range behind the last batch: the bound on the side from which the cursor comes moves with it.
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    /// The end of the range was answered.
    ended: bool,
    batch: Batch,
    /// Keys to read at once. It begins with one and doubles, so that a cursor that is left early locks little more than
    /// what it gave.
    ahead: usize,
    /// The leaf of the last batch: a hint.
    leaf: PageId,
    /// How far the pool was told of the leaves to come.
    read_ahead: Ahead,
    /// The transaction's newest record when the batch was read.
    seen: Lsn,
}

impl Cursor {
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
            ended: is_empty(range),
            low: range.0.map(<[u8]>::to_vec),
            high: range.1.map(<[u8]>::to_vec),
            batch: Batch::default(),
            ahead: 1,
            leaf: PageId::NONE,
            read_ahead: Ahead::default(),
            seen: Lsn::ZERO,
        }
    }

    /// Moves to the next record and gives its key and value. False at the end of the range, now and from then on.
    ///
    /// After an error the cursor stands where it stood.
    pub fn next(
        &mut self,
        session: &mut impl Session,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool, TreeError> {
        while !self.ended {
            if self.seen != session.chain().last {
                // The transaction has written since: what was read ahead may be out of date.
                self.step_back();
                self.seen = session.chain().last;
            }
            if let Some(record) = self.batch.current() {
                key.clear();
                key.extend_from_slice(record.key);
                value.clear();
                if record.overflow {
                    // The lock on the key covers the chunks.
                    *value = self.tree.tree().read_overflow(record.value)?;
                } else {
                    value.extend_from_slice(record.value);
                }
                self.batch.advance();
                return Ok(true);
            }
            match self.batch.take_rest() {
                Rest::None => self.ended = true,
                Rest::From(bound) => *self.near_bound() = bound,
                Rest::Unread => {}
            }
            if !self.ended
                && let Err(error) = self.fill(session)
            {
                self.batch.clear();
                return Err(error);
            }
        }
        Ok(false)
    }

    /// Forgets what was read ahead and stands behind the last record given.
    fn step_back(&mut self) {
        if let Some(key) = self.batch.last_given() {
            let place = Bound::Excluded(key.to_vec());
            *self.near_bound() = place;
        }
        self.batch.clear();
    }

    /// The bound that moves.
    fn near_bound(&mut self) -> &mut Bound<Vec<u8>> {
        match self.direction {
            Direction::Ascending => &mut self.low,
            Direction::Descending => &mut self.high,
        }
    }
}

/// Whether no key lies in the range, whatever keys there are.
fn is_empty(range: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match range {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
            low.cmp(high) != Ordering::Less
        }
    }
}
