//! The private table of the locks that a transaction holds: what it has is found without touching shared memory, in the
//! same time whether it has three locks or a hundred thousand.

use foreshore_env::hint::Mark;

use crate::mode::KeyMode;
use crate::name::LockName;
use crate::request::RequestIndex;

/// Places of the index at the beginning, and again after a transaction with many locks.
const SMALL: usize = 64;

/// Places of the index that are kept from one transaction to the next.
const KEPT: usize = 4096;

/// A lock held.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLock {
    pub(super) name: LockName,
    pub(super) request: RequestIndex,
    pub(super) mode: KeyMode,
    /// When it was granted.
    since: Mark,
}

impl HeldLock {
    /// A lock that was granted just now.
    #[inline]
    pub(super) fn new(name: LockName, request: RequestIndex, mode: KeyMode) -> HeldLock {
        HeldLock { name, request, mode, since: Mark::now() }
    }

    /// Notes that the lock was given back; `awaited`: to somebody who waited for it.
    #[inline]
    pub(super) fn ended(self, awaited: bool) {
        self.since.ends("lock_held");
        if awaited {
            self.since.ends("lock_held_awaited");
        }
    }
}

/// The locks in the order in which they were acquired, and an index by open addressing over them.
#[derive(Debug)]
pub(super) struct HeldLocks {
    locks: Vec<HeldLock>,
    /// Generation × 2³² + place in `locks`. A place of another generation is empty. Twice as large as `locks` at least.
    index: Box<[u64]>,
    /// Of the present transaction; never 0.
    generation: u32,
    /// See [`HeldLocks::kept`].
    kept: usize,
}

impl HeldLocks {
    pub(super) fn new() -> HeldLocks {
        HeldLocks { locks: Vec::with_capacity(SMALL / 2), index: empty(SMALL), generation: 1, kept: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.locks.len()
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[HeldLock] {
        &self.locks
    }

    /// Where the index is looked at first.
    #[inline]
    fn first_place(&self, name: LockName) -> usize {
        name.scattered(u64::BITS - self.index.len().ilog2())
    }

    /// The place of the lock on a name.
    #[inline]
    pub(super) fn find(&self, name: LockName) -> Option<usize> {
        let mask = self.index.len() - 1;
        let mut at = self.first_place(name);
        loop {
            let entry = self.index[at];
            if (entry >> 32) as u32 != self.generation {
                return None;
            }
            let place = entry as u32 as usize;
            if self.locks[place].name == name {
                return Some(place);
            }
            at = (at + 1) & mask;
        }
    }

    /// The lock on a name.
    #[inline]
    pub(super) fn of(&self, name: LockName) -> Option<HeldLock> {
        self.find(name).map(|place| self.locks[place])
    }

    #[inline]
    pub(super) fn get(&self, place: usize) -> HeldLock {
        self.locks[place]
    }

    pub(super) fn set_mode(&mut self, place: usize, mode: KeyMode) {
        self.locks[place].mode = mode;
    }

    /// Adds a lock on a name that is not there yet.
    #[inline]
    pub(super) fn push(&mut self, lock: HeldLock) {
        let place = self.locks.len();
        self.locks.push(lock);
        if self.index.len() < 2 * self.locks.len() {
            self.grow();
        } else {
            self.enter(lock.name, place);
        }
    }

    #[inline]
    fn enter(&mut self, name: LockName, place: usize) {
        let mask = self.index.len() - 1;
        let mut at = self.first_place(name);
        while (self.index[at] >> 32) as u32 == self.generation {
            at = (at + 1) & mask;
        }
        self.index[at] = u64::from(self.generation) << 32 | place as u64;
    }

    #[cold]
    fn grow(&mut self) {
        self.index = empty(2 * self.index.len());
        for place in 0..self.locks.len() {
            self.enter(self.locks[place].name, place);
        }
    }

    /// Of the locks from place `from` on, takes those out that `which` chooses, and gives them to `take`. The others
    /// keep their order. In time proportional to the locks from there on, and without memory.
    pub(super) fn take_out(
        &mut self,
        from: usize,
        which: impl Fn(&HeldLock) -> bool,
        mut take: impl FnMut(HeldLock),
    ) {
        // The newest first: then no probe sequence is cut that an older one needs.
        for place in (from..self.locks.len()).rev() {
            self.leave(self.locks[place].name, place);
        }
        let mut left = from;
        for place in from..self.locks.len() {
            let lock = self.locks[place];
            if which(&lock) {
                take(lock);
            } else {
                self.locks[left] = lock;
                self.enter(lock.name, left);
                left += 1;
            }
        }
        self.locks.truncate(left);
        self.kept = self.kept.min(from);
    }

    /// Takes the name of the lock that was entered last out of the index.
    fn leave(&mut self, name: LockName, place: usize) {
        let mask = self.index.len() - 1;
        let mut at = self.first_place(name);
        while self.index[at] as u32 as usize != place || (self.index[at] >> 32) as u32 != self.generation {
            at = (at + 1) & mask;
        }
        self.index[at] = 0;
    }

    /// How many locks, the first ones, are known to be exclusive: what a pipeline has kept of its earlier transactions.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// All that are left are exclusive.
    pub(super) fn keep(&mut self) {
        debug_assert!(self.locks[self.kept..].iter().all(|lock| lock.mode.is_exclusive()));
        self.kept = self.locks.len();
    }

    /// Whether more memory than is kept from one transaction to the next waits for [`HeldLocks::clear`].
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.index.len() > KEPT
    }

    /// Forgets all locks.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.locks.clear();
        self.kept = 0;
        if self.generation == u32::MAX || self.is_large() {
            self.start_anew();
        } else {
            self.generation += 1;
        }
    }

    #[cold]
    fn start_anew(&mut self) {
        *self = HeldLocks::new();
    }
}

fn empty(places: usize) -> Box<[u64]> {
    vec![0; places].into_boxed_slice()
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::collections::HashMap;

    use foreshore_env::random::Xorshift;

    use super::*;

    /// A name with one of few first places: long probe sequences.
    fn crowded(random: &mut Xorshift) -> LockName {
        let few = random.next_u64() & 0xF700_0000_0000_FFFF;
        // Newton's iteration for the number that undoes the scattering.
        let inverse = (0..6).fold(1, |inverse: u64, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(inverse.wrapping_mul(crate::name::SCATTER)))
        });
        let name = LockName::from_bits(few.wrapping_mul(inverse));
        assert_eq!(name.scattered(48), (few >> 48) as usize);
        name
    }

    #[test]
    fn agrees_with_a_map_through_growth_and_reuse() {
        let mut held = HeldLocks::new();
        let mut random = Xorshift::new(5);
        for size in [3, 40, 5000, 2, 2049, 31, 32, 33, 0, 1] {
            let mut oracle = HashMap::new();
            for request in 0..size {
                let name = crowded(&mut random);
                assert_eq!(held.find(name), oracle.get(&name).copied());
                if oracle.contains_key(&name) {
                    continue;
                }
                oracle.insert(name, held.len());
                held.push(HeldLock::new(name, RequestIndex(request), KeyMode::S));
            }
            for (&name, &place) in &oracle {
                assert_eq!(held.find(name), Some(place));
                assert_eq!(held.get(place).name, name);
            }
            assert_eq!(held.len(), oracle.len());
            held.clear();
            assert!(oracle.keys().all(|&name| held.find(name).is_none()));
        }
    }

    #[test]
    fn what_is_taken_out_is_gone_and_the_others_stay_in_order() {
        let mut held = HeldLocks::new();
        let mut random = Xorshift::new(6);
        for round in 0..20 {
            let mut kept = Vec::new();
            for transaction in 0..30u32 {
                let mut shared = Vec::new();
                for request in 0..random.below(40) as u32 {
                    let name = crowded(&mut random);
                    if held.find(name).is_some() {
                        continue;
                    }
                    let mode = if random.below(2) == 0 { KeyMode::S } else { KeyMode::X };
                    held.push(HeldLock::new(name, RequestIndex(transaction << 8 | request), mode));
                    if mode == KeyMode::X { &mut kept } else { &mut shared }.push(name);
                }
                let mut taken = Vec::new();
                let from = if round % 2 == 0 { held.kept() } else { 0 };
                held.take_out(from, |lock| lock.mode == KeyMode::S, |lock| taken.push(lock.name));
                held.keep();
                assert_eq!(taken, shared);
                assert!(shared.iter().all(|&name| held.find(name).is_none()));
                assert_eq!(held.as_slice().iter().map(|lock| lock.name).collect::<Vec<_>>(), kept);
                for (place, &name) in kept.iter().enumerate() {
                    assert_eq!(held.find(name), Some(place));
                }
            }
            held.clear();
        }
    }

    #[test]
    fn the_index_of_many_locks_is_kept_and_that_of_very_many_is_not() {
        let mut held = HeldLocks::new();
        for (locks, places) in [(2048, KEPT), (2049, SMALL), (1, SMALL)] {
            for number in 0..locks {
                held.push(HeldLock::new(
                    LockName::from_bits(number),
                    RequestIndex(number as u32),
                    KeyMode::X,
                ));
            }
            held.clear();
            assert_eq!(held.index.len(), places, "after {locks} locks");
        }
    }

    #[test]
    fn generations_do_not_run_out() {
        let mut held = HeldLocks::new();
        held.generation = u32::MAX - 1;
        for round in 0..4u32 {
            let name = LockName::from_bits(u64::from(round));
            held.push(HeldLock::new(name, RequestIndex(round), KeyMode::X));
            assert_eq!(held.find(name), Some(0));
            assert!(round == 0 || held.find(LockName::from_bits(u64::from(round) - 1)).is_none());
            held.clear();
        }
    }
}
