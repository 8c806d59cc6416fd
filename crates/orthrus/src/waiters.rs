//! Those who wait for a lock in a partition. There may be hundreds, of whom one goes on at a time: a turn of the thread
//! that looks after them costs no more where they are many.

use std::collections::{BTreeMap, BTreeSet};

use foreshore_env::time::Instant;
use foreshore_txn::{Crowd, Parted};

use crate::mesh::Origin;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Waiters {
    /// By the places of their transactions, each with when it is looked at, at the latest.
    line: BTreeMap<usize, (Waiter, Instant)>,
    /// These times, and places.
    due: BTreeSet<(Instant, usize)>,
    /// The places.
    crowd: Crowd,
}

/// Somebody who waits.
pub(crate) struct Waiter {
    pub(crate) parted: Box<Parted>,
    pub(crate) from: Origin,
}

impl Waiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(crate) fn put(&mut self, waiter: Waiter) {
        let (place, by) = (waiter.parted.place(), waiter.parted.look_by().unwrap_or_else(Instant::now));
        waiter.parted.join(&mut self.crowd);
        self.due.insert((by, place));
        let before = self.line.insert(place, (waiter, by));
        debug_assert!(before.is_none(), "two transactions are in one place");
    }

    fn take(&mut self, place: usize) -> Option<Waiter> {
        let (waiter, by) = self.line.remove(&place)?;
        self.due.remove(&(by, place));
        self.crowd.remove(place);
        Some(waiter)
    }

    /// Whether somebody may have got what it waits for, or is told that it does not get it.
    pub(crate) fn has_answered(&self) -> bool {
        self.line.first_key_value().is_some_and(|(_, (any, _))| any.parted.has_answered(&self.crowd))
    }

    /// Takes out those of whom that is so, and those at whom it is time to look.
    pub(crate) fn take_due(&mut self) -> Vec<Waiter> {
        let Some((_, (any, _))) = self.line.first_key_value() else { return Vec::new() };
        let answered = any.parted.take_answered(&self.crowd);
        let mut taken: Vec<_> = answered.places().filter_map(|place| self.take(place)).collect();
        let now = Instant::now();
        while let Some(&(_, place)) = self.due.first().filter(|(by, _)| *by <= now) {
            taken.extend(self.take(place));
        }
        taken
    }
}
