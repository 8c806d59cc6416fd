//! What is deleted gives its leaves back, whatever is deleted in which order, by key and without a scan. BTREE-8,
//! BTREE-14.

use std::{collections::VecDeque, ops::RangeInclusive};

use foreshore_base::{SlotIndex, TxnId};
use foreshore_env::{sync::Arc, thread, time::Duration};
use foreshore_lock::LockManager;

use super::support::{Locking, Rig, lock_manager};
use crate::{NoLocks, node};

/// Transactions, one after the other.
struct Runs {
    rig: Rig,
    manager: Arc<LockManager>,
    txn: u64,
}

impl Runs {
    fn new() -> Runs {
        Runs { rig: Rig::with_frames(usize::MAX, 8192), manager: lock_manager(), txn: 0 }
    }

    fn run(&mut self, work: impl Fn(&Rig, &mut Locking)) -> Locking {
        self.txn += 1;
        let mut session = Locking::begin(&self.manager, self.txn);
        work(&self.rig, &mut session);
        session
    }

    fn insert(&mut self, number: u64, bytes: usize) {
        self.run(|rig, session| {
            assert!(rig.tree.insert(session, &number.to_be_bytes(), &vec![7; bytes]).unwrap());
        });
    }

    /// Gives the transaction, whose locks are there until it is dropped.
    fn delete(&mut self, numbers: RangeInclusive<u64>) -> Locking {
        self.run(|rig, session| {
            for number in numbers.clone() {
                assert!(rig.tree.delete(session, &number.to_be_bytes()).unwrap());
            }
        })
    }

    /// Verifies the tree, and that it has so many records in fewer than so many pages.
    fn check(&self, records: u64, pages: u64) {
        let report = self.rig.verify();
        println!("{report:?}");
        assert_eq!(report.records, records);
        assert!(report.pages < pages, "{report:?}");
    }
}

/// A queue whose consumers take `batch` records in a transaction, and of whom `open` have not ended yet when the next
/// one begins.
fn queue(bytes: usize, batch: u64, open: usize, pages: u64) {
    const ROWS: u64 = 20_000;
    const LIVE: u64 = 200;
    let mut runs = Runs::new();
    let mut consumers = VecDeque::new();
    for number in 1..=ROWS {
        runs.insert(number, bytes);
        if number > LIVE && (number - LIVE).is_multiple_of(batch) {
            let end = number - LIVE;
            consumers.push_back(runs.delete(end - batch + 1..=end));
            if consumers.len() > open {
                consumers.pop_front();
            }
        }
    }
    runs.check(LIVE + (ROWS - LIVE) % batch, pages);
}

#[test]
fn a_queue_is_not_longer_than_what_is_in_it() {
    queue(60, 1, 0, 12);
}

#[test]
fn a_queue_of_few_records_in_a_leaf_is_not_either() {
    queue(1500, 1, 0, 50);
}

/// At the end of a transaction that takes whole leaves, all of their ghosts are locked.
#[test]
fn what_is_taken_by_whole_leaves_is_given_back() {
    queue(60, 500, 0, 16);
    queue(60, 30, 0, 12);
}

/// When a leaf is consumed, nothing of what was taken from it lately can go yet.
#[test]
fn leaves_are_given_back_behind_consumers_that_take_their_time() {
    queue(60, 1, 1000, 24);
    queue(1500, 1, 30, 90);
}

/// Nor in the leaves beside it, nor in many more: those that can go are far behind. All of them stayed.
#[test]
fn leaves_are_given_back_far_behind() {
    queue(1500, 1, 300, 400);
    queue(1500, 30, 10, 400);
}

/// From the last key down, from a key in the middle up, and down.
#[test]
fn leaves_are_given_back_in_any_order() {
    for bytes in [60, 1500] {
        let filled = || {
            let mut runs = Runs::new();
            (0..10_000).for_each(|number| runs.insert(number, bytes));
            runs
        };
        let live = if bytes == 60 { 20 } else { 500 };
        let mut runs = filled();
        (1000..10_000).rev().for_each(|number| drop(runs.delete(number..=number)));
        runs.check(1000, live);
        let mut runs = filled();
        (500..9500).for_each(|number| drop(runs.delete(number..=number)));
        runs.check(1000, live);
        let mut runs = filled();
        (500..9500).rev().for_each(|number| drop(runs.delete(number..=number)));
        runs.check(1000, live);
    }
}

/// Whoever merged two leaves waited for whoever had one of them, or had it read from the file, with their parent
/// latched: nobody came by to any other leaf meanwhile. BTREE-13.
#[test]
fn whoever_merges_waits_for_its_neighbour_before_it_latches_their_parent() {
    let rig = Rig::new(usize::MAX);
    let key = |number: u64| number.to_be_bytes();
    for number in 0..100 {
        assert!(rig.tree.insert(&mut NoLocks::new(TxnId(1)), &key(number), &[7; 500]).unwrap());
    }
    let root = rig.env.pool.shared(rig.tree.root()).unwrap();
    assert!(root.view().slot_count() > 2, "a root of several leaves");
    let neighbour = root.view().child(SlotIndex(0));
    drop(root);
    let held = rig.env.pool.exclusive(neighbour).unwrap();
    let first = node::low_fence(held.view()).unwrap();
    let leaf = (0..100).filter(|number| key(*number)[..] < first[..]);
    thread::scope(|scope| {
        let deletes = scope.spawn(|| {
            for number in leaf.clone() {
                assert!(rig.tree.delete(&mut NoLocks::new(TxnId(2)), &key(number)).unwrap());
            }
        });
        // It has come to the merge, and waits, long before that.
        let (mut looks, mut vain) = (0, 0);
        while looks < 2000 && vain < 1000 {
            vain = if rig.env.pool.optimistic_now(rig.tree.root()).is_some() { 0 } else { vain + 1 };
            looks += 1;
            thread::sleep(Duration::from_millis(1));
        }
        let (waits, barred) = (!deletes.is_finished(), vain >= 1000);
        drop(held);
        deletes.join().unwrap();
        assert!(waits && !barred, "{waits} {barred}");
    });
    assert_eq!(rig.verify().records, 100 - leaf.count() as u64);
}
