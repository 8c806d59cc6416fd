//! BTREE-12: whatever writers do to a leaf, a reader of it gets through after so many attempts, and they are counted.

use std::{collections::BTreeSet, ops::Bound};

use foreshore_base::{TableId, TxnId};
use foreshore_lock::{KeyMode, KeyRef, LockError};

use super::support::{LATCH_MODES, Rig, scan};
use crate::{
    Direction, Isolation, LatchMode, NoLocks, Patience, Session, TxnChain, descend::RESTARTS, node::Target,
};

const KEYS: u8 = 40;

/// A session whose locks are always granted late: somebody has changed the leaf since it was read. Under a latch, where
/// nobody can, each lock is refused the first time.
struct Harassed<'r> {
    rig: &'r Rig,
    chain: TxnChain,
    /// Whether locks are refused.
    refuses: bool,
    /// Those that have been refused.
    refused: BTreeSet<Option<Vec<u8>>>,
    /// How often it was asked for locks in any attempt but the last.
    in_vain: usize,
    /// Locks tried under the present latch.
    tried: usize,
    /// Locks granted under a latch that the reader then did without.
    granted: usize,
}

impl<'r> Harassed<'r> {
    fn new(rig: &'r Rig, refuses: bool) -> Harassed<'r> {
        let chain = TxnChain::new(TxnId(7));
        Harassed { rig, chain, refuses, refused: BTreeSet::new(), in_vain: 0, tried: 0, granted: 0 }
    }

    fn check(&self, mode: LatchMode, what: &str) {
        assert!(self.granted >= usize::from(KEYS), "{what}: a lock for each key at least");
        let is_optimistic = matches!(mode, LatchMode::Hybrid | LatchMode::Optimistic);
        let optimistic = if is_optimistic { RESTARTS as usize } else { 0 };
        let bound = optimistic * self.granted + self.refused.len();
        assert_eq!(self.in_vain, bound, "{mode:?}, {what}: {} locks", self.granted);
    }
}

fn name(key: KeyRef<'_>) -> Option<Vec<u8>> {
    match key {
        KeyRef::Key(key) => Some(key.to_vec()),
        KeyRef::NegativeInfinity => None,
    }
}

impl Session for Harassed<'_> {
    fn acquire(&mut self, _: TableId, key: KeyRef<'_>, _: KeyMode) -> Result<(), LockError> {
        self.in_vain += 1;
        let target = name(key).unwrap_or_default();
        let leaf = self.rig.tree.tree().leaf(Patience::ENDLESS, Target::Key(&target)).unwrap();
        // The lock may be on the border of the leaf that is read, so its neighbour is changed as well.
        let (leaf, first) =
            (leaf.page.id(), self.rig.tree.tree().leaf(Patience::ENDLESS, Target::Below(&target)));
        drop(self.rig.env.pool.exclusive(leaf).unwrap());
        if let Ok(below) = first.map(|landing| landing.page.id())
            && below != leaf
        {
            drop(self.rig.env.pool.exclusive(below).unwrap());
        }
        Ok(())
    }

    fn try_acquire(&mut self, _: TableId, key: KeyRef<'_>, _: KeyMode) -> Result<bool, LockError> {
        let granted = !(self.refuses && self.refused.insert(name(key)));
        self.tried = if granted { self.tried + 1 } else { 0 };
        Ok(granted)
    }

    fn after_unlatch(&mut self, _: TableId) {
        self.granted += std::mem::take(&mut self.tried);
    }

    fn held(&self, _: TableId, _: KeyRef<'_>) -> Result<KeyMode, LockError> {
        Ok(KeyMode::N)
    }

    fn held_and_check(&self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<(KeyMode, bool), LockError> {
        Ok((KeyMode::N, true))
    }

    fn has_requests(&self, _: TableId, _: KeyRef<'_>) -> bool {
        true
    }

    fn chain(&mut self) -> &mut TxnChain {
        &mut self.chain
    }
}

fn filled(mode: LatchMode) -> Rig {
    let rig = Rig::with_mode(4, 256, mode);
    let mut session = NoLocks::new(TxnId(1));
    for key in 0..KEYS {
        rig.tree.put(&mut session, &[key], b"value").unwrap();
    }
    rig
}

#[test]
fn a_scan_gets_through_after_a_dozen_attempts_at_each_batch() {
    for mode in LATCH_MODES {
        let rig = filled(mode);
        for (direction, refuses) in [
            (Direction::Ascending, false),
            (Direction::Descending, false),
            (Direction::Ascending, true),
            (Direction::Descending, true),
        ] {
            let mut session = Harassed::new(&rig, refuses);
            let all = (Bound::Unbounded, Bound::Unbounded);
            let records = scan(&rig.tree, &mut session, all, direction).unwrap();
            assert_eq!(records.len(), usize::from(KEYS));
            session.check(mode, &format!("{direction:?}, refuses: {refuses}"));
        }
    }
}

#[test]
fn a_read_of_a_key_gets_through_after_a_dozen_attempts() {
    for mode in LATCH_MODES {
        let rig = filled(mode);
        for refuses in [false, true] {
            let mut session = Harassed::new(&rig, refuses);
            for key in 0..KEYS {
                let found = rig.tree.get(&mut session, &[key], Isolation::Serializable, |_| ()).unwrap();
                assert!(found.is_some());
            }
            session.check(mode, &format!("reads, refuses: {refuses}"));
        }
    }
}
