//! Group commit at its best: before a batch begins, those whose records the last one made durable get a moment to come
//! back with their next.
//!
//! Without it, threads that commit one transaction after another fall into two parties: a batch carries the one while
//! the other gathers behind it. Each flush then has the commits of half of the threads, and each thread waits for two
//! flushes. With it, a batch begins when as many wait for it as waited when the last one ended, or when the moment is
//! over.
//!
//! The moment is a part of what the last flush took, so it costs nobody much. Where it was in vain, because threads do
//! other things between their commits, ever more batches do without.

use foreshore_env::time::Duration;

/// A batch waits for at most one part in this many of the time of the last flush; the longest wait of all; and the
/// shortest that is worth it.
const SHARE: u32 = 2;
const MOST: Duration = Duration::from_millis(5);
const LEAST: Duration = Duration::from_micros(10);
/// By how many vain waits may exceed the others and still raise the number of batches that do without a wait, which is
/// two to this power.
const MOST_MISSES: u32 = 6;

/// Guarded by the mutex of [`Core::waiting`](super::Core).
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// How many wait for batches with an even number and with an odd one: for the running batch, and for the next.
    waiters: [u32; 2],
    /// How many waited when the last batch ended, for it or for the next. 0: they were waited for already.
    expected: u32,
    /// Before the next batch begins so many shall wait for it; 0: nobody is waited for.
    wanted: u32,
    /// How many were there when that began.
    found: u32,
    /// What the last flush took.
    took: Duration,
    /// In how many cases more hardly anybody came than enough did.
    misses: u32,
    /// Batches that are still to do without.
    skips: u32,
}

impl Gathering {
    fn waiters(&mut self, batch: u64) -> &mut u32 {
        &mut self.waiters[(batch % 2) as usize]
    }

    /// Somebody waits for this batch.
    pub(super) fn arrive(&mut self, batch: u64) {
        *self.waiters(batch) += 1;
    }

    /// Somebody waits no longer for this batch, which has not ended.
    pub(super) fn leave(&mut self, batch: u64) {
        *self.waiters(batch) -= 1;
    }

    /// Whether others are waited for before a batch begins.
    pub(super) fn is_on(&self) -> bool {
        self.wanted > 0
    }

    /// Whether more of those who are waited for before the next batch, `next`, have to come.
    pub(super) fn lacks_some(&mut self, next: u64) -> bool {
        *self.waiters(next) < self.wanted
    }

    /// The batch has ended: all who waited for it go.
    pub(super) fn batch_ended(&mut self, batch: u64, took: Duration) {
        let gone = std::mem::take(self.waiters(batch));
        self.expected = gone + *self.waiters(batch + 1);
        self.took = took;
    }

    /// A thread is about to begin batch `next`: how long it is to wait for others first.
    pub(super) fn begin(&mut self, next: u64) -> Option<Duration> {
        let patience = (self.took / SHARE).min(MOST);
        if self.is_on() {
            // Somebody else waits for them already, and may not know yet that all are there.
            return self.lacks_some(next).then_some(patience);
        }
        let (found, expected) = (*self.waiters(next), std::mem::take(&mut self.expected));
        // Where nobody waits, nobody is in a hurry, and those who come back are not to be known.
        if found == 0 || found >= expected || patience < LEAST {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        (self.found, self.wanted) = (found, expected);
        Some(patience)
    }

    /// The batch begins: nobody is waited for any more.
    pub(super) fn end(&mut self, next: u64) {
        if !self.is_on() {
            return;
        }
        let (came, missed) =
            (self.waiters(next).saturating_sub(self.found), std::mem::take(&mut self.wanted) - self.found);
        if 2 * came >= missed {
            self.misses = self.misses.saturating_sub(1);
        } else {
            self.misses = (self.misses + 1).min(MOST_MISSES);
            self.skips = (1 << self.misses) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(10);

    /// Batch `number` ends, for which so many waited, while so many wait for the next.
    fn ended(gathering: &mut Gathering, number: u64, (this, next): (u32, u32)) {
        (0..this).for_each(|_| gathering.arrive(number));
        (0..next).for_each(|_| gathering.arrive(number + 1));
        gathering.batch_ended(number, LONG);
    }

    #[test]
    fn those_who_were_served_are_waited_for() {
        let mut gathering = Gathering::default();
        ended(&mut gathering, 4, (3, 2));
        assert!(!gathering.lacks_some(5));
        assert_eq!(gathering.begin(5), Some(MOST));
        for _ in 0..3 {
            assert!(gathering.lacks_some(5));
            gathering.arrive(5);
        }
        assert!(!gathering.lacks_some(5));
        // All are there, whoever has begun to wait for them.
        assert_eq!(gathering.begin(5), None);
        gathering.end(5);
        // Once only.
        assert_eq!(gathering.begin(5), None);
        gathering.batch_ended(5, LONG);
        // All five are gone, and whoever comes first is not left alone.
        gathering.arrive(6);
        assert_eq!(gathering.begin(6), Some(MOST));
        assert!(gathering.lacks_some(6));
    }

    #[test]
    fn nobody_is_waited_for_who_is_alone_or_in_a_hurry() {
        let mut gathering = Gathering::default();
        ended(&mut gathering, 1, (1, 0));
        assert_eq!(gathering.begin(2), None);
        gathering.arrive(2);
        gathering.batch_ended(2, LONG);
        gathering.arrive(3);
        assert_eq!(gathering.begin(3), None);
        // A fast disk.
        gathering.arrive(4);
        gathering.batch_ended(3, LEAST);
        assert_eq!(gathering.begin(4), None);
        // A thread that has given up is not expected.
        ended(&mut gathering, 4, (0, 2));
        gathering.leave(5);
        gathering.batch_ended(5, LONG);
        gathering.arrive(6);
        assert_eq!(gathering.begin(6), None);
    }

    #[test]
    fn vain_waits_become_rare_and_are_tried_again() {
        let mut gathering = Gathering::default();
        let mut waits = Vec::new();
        for number in 0..300 {
            // Two whose commits overlap, and who do not come back at once.
            gathering.arrive(number + 1);
            gathering.arrive(number);
            gathering.batch_ended(number, LONG);
            if gathering.begin(number + 1).is_some() {
                waits.push(number);
                gathering.end(number + 1);
            }
            gathering.leave(number + 1);
        }
        assert_eq!(waits, [0, 2, 6, 14, 30, 62, 126, 190, 254]);
        ended(&mut gathering, 300, (1, 1));
        while gathering.begin(301).is_none() {
            gathering.expected = 2;
        }
        gathering.arrive(301);
        gathering.end(301);
        gathering.expected = 3;
        assert!(gathering.begin(301).is_some(), "one success, and it is worth while again");
    }
}
