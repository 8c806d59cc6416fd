//! A transaction that may not wait for ever does not wait for a latch for ever either, whoever holds the latch and for
//! whatever reason; and it leaves nothing behind. In all latch modes, at the root and at a leaf.

use std::ops::Bound;

use foreshore_base::{Lsn, PageId};
use foreshore_env::{
    thread,
    time::{Duration, Instant},
};
use foreshore_latch::Patience;
use foreshore_lock::LockError;

use super::support::{LATCH_MODES, Locking, Rig, lock_manager, scan};
use crate::{Direction, Isolation, TreeError, node::Target};

/// How long an operation waits.
const WAIT: Duration = Duration::from_millis(30);
/// What none may take; half of what a fault in the pool would take.
const FAR: Duration = Duration::from_secs(30);

type Operation = fn(&Rig, &mut Locking) -> Result<(), TreeError>;

/// Everything that needs the leaf of this key.
const OPERATIONS: [Operation; 6] = [
    |rig, session| rig.tree.get(session, KEY, Isolation::Serializable, |_| ()).map(|_| ()),
    |rig, session| rig.tree.put(session, KEY, b"new").map(|_| ()),
    |rig, session| rig.tree.insert(session, b"key 20 and", b"new").map(|_| ()),
    |rig, session| rig.tree.delete(session, KEY).map(|_| ()),
    |rig, session| {
        let range = (Bound::Included(KEY), Bound::Included(KEY));
        scan(&rig.tree, session, range, Direction::Descending).map(|_| ())
    },
    |rig, session| rig.tree.maintain(session, KEY),
];

const KEY: &[u8] = b"key 20";

/// The root and the leaf of `KEY`, in a tree of some levels.
fn pages(rig: &Rig) -> [PageId; 2] {
    let mut session = Locking::begin(&lock_manager(), 1);
    for number in 0..40 {
        rig.tree.put(&mut session, format!("key {number}").as_bytes(), b"old").unwrap();
    }
    let leaf = rig.tree.tree().leaf(Patience::ENDLESS, Target::Key(KEY)).unwrap().page.id();
    assert_ne!(leaf, rig.tree.root());
    [rig.tree.root(), leaf]
}

#[test]
fn a_deadline_ends_a_wait_for_a_latch() {
    for mode in LATCH_MODES {
        let rig = Rig::with_mode(4, 256, mode);
        let manager = lock_manager();
        for page in pages(&rig) {
            let held = rig.env.pool.exclusive(page).unwrap();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let mut session = Locking::begin(&manager, 2);
                    for operation in OPERATIONS {
                        let begin = Instant::now();
                        session.deadline = Some(begin + WAIT);
                        let error = operation(&rig, &mut session).unwrap_err();
                        assert!(matches!(error, TreeError::Lock(LockError::Timeout(_))), "{mode:?}: {error}");
                        assert!((WAIT..FAR).contains(&begin.elapsed()), "{mode:?}: {:?}", begin.elapsed());
                    }
                    assert_eq!(session.chain.last, Lsn::ZERO, "something was logged");
                });
                waiter.join().unwrap();
            });
            drop(held);
            // Nobody is in the way: the deadline that has passed does not matter.
            let mut session = Locking { deadline: Some(Instant::now()), ..Locking::begin(&manager, 3) };
            assert!(rig.tree.put(&mut session, KEY, b"new").unwrap());
            rig.verify();
        }
    }
}

#[test]
fn cancelling_ends_a_wait_for_a_latch() {
    for mode in LATCH_MODES {
        let rig = Rig::with_mode(4, 256, mode);
        let manager = lock_manager();
        for page in pages(&rig) {
            let held = rig.env.pool.exclusive(page).unwrap();
            for operation in OPERATIONS {
                let mut session = Locking::begin(&manager, 2);
                let cancel = session.cancel.clone();
                thread::scope(|scope| {
                    let waiter = scope.spawn(|| operation(&rig, &mut session).unwrap_err());
                    thread::sleep(WAIT / 3);
                    let begin = Instant::now();
                    cancel.cancel();
                    let error = waiter.join().unwrap();
                    assert!(matches!(error, TreeError::Lock(LockError::Cancelled)), "{mode:?}: {error}");
                    assert!(begin.elapsed() < FAR, "{mode:?}: {:?}", begin.elapsed());
                });
            }
            drop(held);
            rig.verify();
        }
    }
}

/// Whoever appends looks for the last key first.
#[test]
fn a_deadline_ends_the_wait_of_an_append() {
    for mode in LATCH_MODES {
        let rig = Rig::with_mode(4, 256, mode);
        let manager = lock_manager();
        let [root, _] = pages(&rig);
        let held = rig.env.pool.exclusive(root).unwrap();
        let (ended, took) = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let begin = Instant::now();
                let mut session = Locking { deadline: Some(begin + WAIT), ..Locking::begin(&manager, 2) };
                let ended = rig.tree.append(&mut session, &[(b"key 99", b"new")]);
                (ended, begin.elapsed())
            });
            waiter.join().unwrap()
        });
        drop(held);
        let error = ended.unwrap_err();
        assert!(matches!(error, TreeError::Lock(LockError::Timeout(_))), "{mode:?}: {error}");
        assert!((WAIT..FAR).contains(&took), "{mode:?}: {took:?}");
        rig.verify();
    }
}

/// A reader waited for room in the log to merge leaves of ghosts, beyond its deadline, and a check of the database with
/// it (BTREE-13).
#[test]
fn a_scan_over_ghosts_waits_for_no_room_in_the_log() {
    let rig = Rig::new(4);
    let manager = lock_manager();
    pages(&rig);
    // One transaction deletes all: no ghost can go before it ends.
    let mut deleter = Locking::begin(&manager, 2);
    for number in 0..40 {
        assert!(rig.tree.delete(&mut deleter, format!("key {number}").as_bytes()).unwrap());
    }
    drop(deleter);
    let pages = rig.pages().len();
    let look = || {
        let mut session = Locking::begin(&manager, 3);
        let all = scan(&rig.tree, &mut session, (Bound::Unbounded, Bound::Unbounded), Direction::Ascending);
        assert!(all.unwrap().is_empty());
        drop(rig.env.without_tidying());
    };
    assert!(rig.ends_without_room(FAR, look), "it waits");
    assert_eq!(rig.pages().len(), pages);
    look();
    assert!(rig.pages().len() < pages, "the next to come tidies");
    rig.verify();
}

/// A merge needs the bitmap page of the page that it frees: it waited for that without end, with three nodes latched,
/// and those who read them stood behind it (BTREE-13).
#[test]
fn a_deadline_ends_the_wait_of_a_merge_and_nobody_stands_behind_it() {
    for mode in LATCH_MODES {
        let rig = Rig::with_mode(4, 256, mode);
        let manager = lock_manager();
        pages(&rig);
        let held = rig.env.pool.exclusive(PageId(1)).unwrap();
        thread::scope(|scope| {
            let deleter = scope.spawn(|| {
                for number in 0..30 {
                    let deadline = Some(Instant::now() + WAIT);
                    let mut session = Locking { deadline, ..Locking::begin(&manager, 2 + number) };
                    let _ = rig.tree.delete(&mut session, format!("key {number}").as_bytes());
                }
            });
            // It has come to the first merge long before that.
            thread::sleep(WAIT * 10);
            let barred = (0..40).find(|number| {
                let deadline = Some(Instant::now() + FAR / 10);
                let mut session = Locking { deadline, ..Locking::begin(&manager, 100 + number) };
                let key = format!("key {number}");
                rig.tree.get(&mut session, key.as_bytes(), Isolation::ReadCommitted, |_| ()).is_err()
            });
            let begin = Instant::now();
            while !deleter.is_finished() && begin.elapsed() < FAR {
                thread::sleep(Duration::from_millis(1));
            }
            let waits = !deleter.is_finished();
            drop(held);
            assert!(!waits && barred.is_none(), "{mode:?}: {waits}, {barred:?}");
        });
        rig.verify();
    }
}
