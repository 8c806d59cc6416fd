//! Sets of slots, and the sets that waiters publish.
//!
//! Kimura et al. use Bloom filters because they do not know how many threads there are; here the slots are counted, and
//! a bit for each makes a digest exact in 128 bytes.

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::slot::{SLOTS, SlotId};

const WORDS: usize = SLOTS.div_ceil(64);

const _: () = assert!(MAX_TRANSACTIONS.is_multiple_of(64) && MAX_TRANSACTIONS <= 1 << 16);

/// A set of slots.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct SlotSet([u64; WORDS]);

impl SlotSet {
    pub(crate) fn insert(&mut self, slot: SlotId) {
        self.0[slot.index() / 64] |= 1 << (slot.index() % 64);
    }

    pub(crate) fn contains(&self, slot: SlotId) -> bool {
        self.0[slot.index() / 64] >> (slot.index() % 64) & 1 != 0
    }

    pub(crate) fn union(&mut self, other: &SlotSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, others)| *mine |= others);
    }

    pub(crate) fn remove(&mut self, slot: SlotId) {
        self.0[slot.index() / 64] &= !(1 << (slot.index() % 64));
    }

    pub(crate) fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64; WORDS] {
        &mut self.0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = SlotId> {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            let mut left = bits;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                (left != 0).then(|| {
                    left &= left - 1;
                    SlotId((word * 64) as u16 + bit as u16)
                })
            })
        })
    }

    /// The first member that is not in `other`.
    pub(crate) fn first_not_in(&self, other: &SlotSet) -> Option<SlotId> {
        let pairs = self.0.iter().zip(&other.0).enumerate();
        let mut rest =
            pairs.map(|(word, (mine, others))| (word, mine & !others)).filter(|&(_, bits)| bits != 0);
        rest.next().map(|(word, bits)| SlotId((word * 64) as u16 + bits.trailing_zeros() as u16))
    }
}

/// A set that is written by one thread at a time and read by all, word by word: a reader may see half of a change. It
/// is a hint, to be confirmed.
#[derive(Debug, Default)]
pub(crate) struct Digest([AtomicU64; WORDS]);

impl Digest {
    pub(crate) fn store(&self, set: &SlotSet) {
        for (word, &bits) in self.0.iter().zip(&set.0) {
            word.store(bits, Relaxed);
        }
    }

    pub(crate) fn remove(&self, slot: SlotId) {
        let (word, bit) = (&self.0[slot.index() / 64], 1 << (slot.index() % 64));
        let bits = word.load(Relaxed);
        // Looking first leaves the line shared where there is nothing to do.
        if bits & bit != 0 {
            word.store(bits & !bit, Relaxed);
        }
    }

    pub(crate) fn insert(&self, slot: SlotId) {
        let word = &self.0[slot.index() / 64];
        word.store(word.load(Relaxed) | 1 << (slot.index() % 64), Relaxed);
    }

    pub(crate) fn union_into(&self, set: &mut SlotSet) {
        for (word, bits) in self.0.iter().zip(&mut set.0) {
            *bits |= word.load(Relaxed);
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_every_slot_exactly() {
        let all: Vec<u16> = (0..MAX_TRANSACTIONS as u16).collect();
        for step in [1, 7, 64, 333] {
            let members: Vec<u16> = all.iter().copied().step_by(step).collect();
            let mut set = SlotSet::default();
            members.iter().for_each(|&slot| set.insert(SlotId(slot)));
            assert_eq!(set.iter().map(|slot| slot.0).collect::<Vec<_>>(), members);
            assert!(all.iter().all(|slot| set.contains(SlotId(*slot)) == members.contains(slot)));
            let digest = Digest::default();
            digest.store(&set);
            let mut copy = SlotSet::default();
            assert_eq!(set.first_not_in(&copy), Some(SlotId(0)));
            digest.union_into(&mut copy);
            assert!(copy == set && set.first_not_in(&copy).is_none());
            digest.remove(SlotId(0));
            digest.remove(SlotId(1));
            digest.insert(SlotId(3));
            let mut changed = SlotSet::default();
            digest.union_into(&mut changed);
            let expected = |slot| (members.contains(&slot) && slot > 1) || slot == 3;
            assert!(all.iter().all(|&slot| changed.contains(SlotId(slot)) == expected(slot)));
        }
    }
}
