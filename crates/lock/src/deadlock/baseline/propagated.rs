//! Dreadlocks as printed: Kimura et al. 2012, Algorithm 5. A digest holds the closure of whom its owner waits for, one
//! step more with every look, and is as old as its owner's last look.
//!
//! | variant | between two looks | digests that are out of date |
//! | --- | --- | --- |
//! | spin | hardly anything | for a moment |
//! | sleep | a nap of 10 ms | false suspicions |
//! | sleep with backoff | a nap | passed by until their owners wake |
//! | hybrid | spins while there are no more transactions than processors, else sleeps with backoff | as either |
//!
//! The backoff is the paper's: a releaser leaves a mark on everybody who waits for it. Lock queues here take the
//! releaser out of the true digest of each waiter (see `dreadlocks.rs`), so the mark need not be written: a published
//! digest is out of date if somebody whom its owner waited for directly is not in the true one any more.
//!
//! Fingerprints are those of slots. Exact ones are a bit for each, the paper's are 3 bits of 512.

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::CachePadded;
use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use super::super::cycle::Member;
use super::super::{Digest, Pause, SlotSet};
use crate::manager::LockManager;
use crate::options::{DeadlockPolicy, DigestKind};
use crate::slot::SlotId;

/// Words of a digest: enough for a bit for each slot, and for the Bloom filter.
const WORDS: usize = MAX_TRANSACTIONS / 64;
/// Bits of a digest that is a Bloom filter (Kimura et al. 2012, §4.2: m).
pub const BLOOM_BITS: u64 = 512;
/// Bits of a transaction in it (n).
pub const BLOOM_FINGERPRINT: usize = 3;

const _: () = assert!(BLOOM_BITS as usize <= WORDS * 64);

/// How waiters pass their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Spin,
    Sleep,
    Backoff,
    Hybrid,
}

/// The digests of all slots.
#[derive(Debug)]
pub(in crate::deadlock) struct Propagated {
    style: Style,
    digests: DigestKind,
    published: Box<[CachePadded<Published>]>,
}

/// What a waiter has published. Written by the owner of the slot, read by everybody, Relaxed: hints, to be confirmed.
#[derive(Debug, Default)]
struct Published {
    closure: [AtomicU64; WORDS],
    /// Whom the owner waited for when it published.
    direct: Digest,
}

/// A set of fingerprints.
#[derive(Clone, Default)]
struct Closure([u64; WORDS]);

impl Closure {
    fn add(&mut self, fingerprint: [usize; BLOOM_FINGERPRINT]) {
        fingerprint.into_iter().for_each(|bit| self.0[bit / 64] |= 1 << (bit % 64));
    }

    fn contains(&self, fingerprint: [usize; BLOOM_FINGERPRINT]) -> bool {
        fingerprint.into_iter().all(|bit| self.0[bit / 64] >> (bit % 64) & 1 != 0)
    }

    fn union(&mut self, other: &Closure) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, others)| *mine |= others);
    }
}

impl Propagated {
    pub(in crate::deadlock) fn new(policy: DeadlockPolicy, digests: DigestKind) -> Propagated {
        let style = match policy {
            DeadlockPolicy::DreadlocksSpin => Style::Spin,
            DeadlockPolicy::DreadlocksSleep => Style::Sleep,
            DeadlockPolicy::DreadlocksHybrid => Style::Hybrid,
            _ => Style::Backoff,
        };
        let published = (0..MAX_TRANSACTIONS).map(|_| CachePadded::default()).collect();
        Propagated { style, digests, published }
    }

    /// Whether somebody whom `me` waits for has `me` in its digest. Publishes the digest of `me`.
    pub(in crate::deadlock) fn suspects(&self, manager: &LockManager, me: Member) -> bool {
        let Some(blockers) = me.blockers(manager) else { return false };
        let own = self.fingerprint(me.slot);
        let mut closure = Closure::default();
        closure.add(own);
        blockers.iter().for_each(|slot| closure.add(self.fingerprint(slot)));
        // Before others are read: of two that come to wait for each other at a time, one sees the other.
        self.published[me.slot.index()].direct.store(&blockers);
        self.publish(me.slot, &closure);
        fence(SeqCst);
        let mut suspects = false;
        for slot in blockers.iter().filter(|&slot| !self.passes_by(manager, slot)) {
            let digest = self.read(slot);
            suspects |= digest.contains(own);
            closure.union(&digest);
        }
        self.publish(me.slot, &closure);
        suspects
    }

    pub(in crate::deadlock) fn pause(&self, manager: &LockManager) -> Pause {
        match self.style {
            Style::Spin => Pause::Spin,
            Style::Hybrid => {
                let open = manager.slots.used().filter(|(_, slot)| slot.busy.load(Relaxed)).count();
                if open <= manager.processors { Pause::Spin } else { Pause::Nap }
            }
            Style::Sleep | Style::Backoff => Pause::Nap,
        }
    }

    pub(in crate::deadlock) fn clear(&self, slot: SlotId) {
        self.publish(slot, &Closure::default());
    }

    /// Whether the digest of a slot is known to be out of date, and to be ignored.
    fn passes_by(&self, manager: &LockManager, slot: SlotId) -> bool {
        if !matches!(self.style, Style::Backoff | Style::Hybrid) {
            return false;
        }
        let (mut then, mut now) = (SlotSet::default(), SlotSet::default());
        self.published[slot.index()].direct.union_into(&mut then);
        manager.slots.wait_of(slot).union_into(&mut now);
        then.first_not_in(&now).is_some()
    }

    fn publish(&self, slot: SlotId, closure: &Closure) {
        let words = self.published[slot.index()].closure.iter().zip(closure.0);
        words.for_each(|(word, bits)| word.store(bits, Relaxed));
    }

    fn read(&self, slot: SlotId) -> Closure {
        let words = &self.published[slot.index()].closure;
        Closure(std::array::from_fn(|word| words[word].load(Relaxed)))
    }

    /// The bits of a slot, not all of them different.
    fn fingerprint(&self, slot: SlotId) -> [usize; BLOOM_FINGERPRINT] {
        match self.digests {
            DigestKind::Exact => [slot.index(); BLOOM_FINGERPRINT],
            DigestKind::Bloom => bloom_fingerprint(slot),
        }
    }
}

/// Three different bits of 512, spread by the finalizer of SplitMix64.
fn bloom_fingerprint(slot: SlotId) -> [usize; BLOOM_FINGERPRINT] {
    let mut bits = (slot.index() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    let first = bits % BLOOM_BITS;
    // Steps that add up to less than a round, so that no two bits are the same.
    let second = first + 1 + (bits >> 16) % (BLOOM_BITS / 2 - 1);
    let third = second + 1 + (bits >> 32) % (BLOOM_BITS / 2 - 1);
    [first, second % BLOOM_BITS, third % BLOOM_BITS].map(|bit| bit as usize)
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Kimura et al. 2012, §4.2: n = 3 bits of m = 512, different for every fingerprint.
    #[test]
    fn bloom_fingerprints_are_three_bits_and_unique() {
        let mut seen = HashSet::new();
        for slot in 0..MAX_TRANSACTIONS as u16 {
            let mut bits = bloom_fingerprint(SlotId(slot));
            bits.sort_unstable();
            assert!(bits[0] < bits[1] && bits[1] < bits[2] && bits[2] < 512, "{bits:?}");
            assert!(seen.insert(bits), "slot {slot}");
        }
    }

    /// As many members as the theory says a filter tells apart: (1 − e^(−3·10/512))³ is 2 in 10,000.
    #[test]
    fn a_bloom_digest_contains_its_members_and_seldom_others() {
        let mut false_positives = 0;
        for start in 0..1000u16 {
            let mut closure = Closure::default();
            let members: Vec<u16> = (0..10).map(|step| (start + step * 97) % 1024).collect();
            members.iter().for_each(|&slot| closure.add(bloom_fingerprint(SlotId(slot))));
            for slot in 0..1024 {
                let contained = closure.contains(bloom_fingerprint(SlotId(slot)));
                assert!(contained || !members.contains(&slot));
                false_positives += u32::from(contained && !members.contains(&slot));
            }
        }
        let per_million = f64::from(false_positives) / (1000.0 * 1014.0) * 1e6;
        assert!((20.0..2000.0).contains(&per_million), "{per_million} in a million");
    }
}
