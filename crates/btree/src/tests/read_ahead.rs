//! Scans that have their leaves read ahead.

use std::{ops::Bound, path::Path};

use foreshore_base::TxnId;
use foreshore_env::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_pages::BufferPool;

use super::support::{LATCH_MODES, Rig, TABLE, pool_options, scan};
use crate::{BTree, Direction, Isolation, LatchMode, LockKind, NoLocks, TreeEnv};

const ROWS: u32 = 3000;

fn key(row: u32) -> [u8; 4] {
    row.to_be_bytes()
}

/// A scan of more leaves than the pool has frames finds most of them there, in both directions, and what it reads is
/// right.
#[test]
fn a_scan_finds_its_leaves_in_the_pool() {
    for mode in LATCH_MODES {
        let rig = Rig::with_mode(usize::MAX, 128, mode);
        let mut session = NoLocks::new(TxnId(1));
        for row in 0..ROWS {
            rig.tree.insert(&mut session, &key(row), &[row as u8; 1000]).unwrap();
        }
        rig.env.pool.flush_all().unwrap();
        for direction in [Direction::Ascending, Direction::Descending] {
            // The readers are given time, as a slow disk would take it, and on a busy machine more.
            let found = [2, 2, 10, 50, 200].into_iter().any(|pause| {
                let (missed, brought) = scan_slowly(&rig, direction, Duration::from_millis(pause));
                println!("{mode:?}, {direction:?}: {brought} brought, {missed} missed");
                // 430 leaves, of which 128 at most were there.
                brought > 200 && brought > missed
            });
            assert!(found, "{mode:?}, {direction:?}");
        }
        rig.verify();
    }
}

/// Scans all rows, with a pause now and then; how many pages it missed, and how many were brought in before.
fn scan_slowly(rig: &Rig, direction: Direction, pause: Duration) -> (u64, u64) {
    let mut session = NoLocks::new(TxnId(1));
    let before = rig.env.pool.stats();
    let mut cursor = rig.tree.cursor(
        (Bound::Unbounded, Bound::Unbounded),
        direction,
        LockKind::Shared,
        Isolation::Serializable,
    );
    let (mut found, mut value, mut rows) = (Vec::new(), Vec::new(), 0);
    while cursor.next(&mut session, &mut found, &mut value).unwrap() {
        let row = if direction == Direction::Ascending { rows } else { ROWS - 1 - rows };
        assert_eq!((&found[..], &value[..]), (&key(row)[..], &[row as u8; 1000][..]));
        rows += 1;
        if rows % 64 == 0 {
            thread::sleep(pause);
        }
    }
    assert_eq!(rows, ROWS);
    let stats = rig.env.pool.stats();
    (stats.loads - before.loads, stats.read_ahead - before.read_ahead)
}

/// Only leaves with something of the range are named.
#[test]
fn a_range_is_not_read_beyond_its_ends() {
    let rig = Rig::new(usize::MAX);
    let mut session = NoLocks::new(TxnId(1));
    for row in 0..ROWS {
        rig.tree.insert(&mut session, &key(row), &[7; 1000]).unwrap();
    }
    rig.env.pool.flush_all().unwrap();
    for direction in [Direction::Ascending, Direction::Descending] {
        for (low, high) in [(700, 840), (0, 140), (ROWS - 140, ROWS)] {
            let (log, options) = (Arc::clone(&rig.log), pool_options(1024));
            let pool = BufferPool::open(&rig.disk, Path::new("db/data"), log, &options).unwrap();
            let env = TreeEnv::new(pool, Arc::clone(&rig.log), usize::MAX, LatchMode::Hybrid);
            let tree = BTree::open(&env, TABLE, rig.tree.root());
            let (low, high) = (key(low), key(high));
            let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
            assert_eq!(scan(&tree, &mut session, range, direction).unwrap().len(), 140);
            // What was named and has not come with the scan comes now.
            thread::sleep(Duration::from_millis(10));
            let stats = env.pool.stats();
            // 20 leaves of 7 rows, a leaf more where the range begins within one, and the root.
            assert!(stats.read_ahead + stats.loads <= 23, "{direction:?}: {stats:?}");
        }
    }
}

/// Of the leaves of many keys some come while others are looked at, and none comes twice.
#[test]
fn leaves_of_many_keys_are_brought_in_side_by_side() {
    let rig = Rig::new(usize::MAX);
    let mut session = NoLocks::new(TxnId(1));
    for row in 0..ROWS {
        rig.tree.insert(&mut session, &key(row), &[row as u8; 1000]).unwrap();
    }
    rig.env.pool.flush_all().unwrap();
    let keys: Vec<_> = (0..30).map(|number| key(number * 7919 % ROWS)).collect();
    // On a busy machine, hundreds of rounds may pass before those who read ahead get a processor.
    let begun = Instant::now();
    let brought = (0..).take_while(|_| begun.elapsed() < Duration::from_secs(60)).any(|_| {
        let (log, options) = (Arc::clone(&rig.log), pool_options(1024));
        let pool = BufferPool::open(&rig.disk, Path::new("db/data"), log, &options).unwrap();
        let env = TreeEnv::new(pool, Arc::clone(&rig.log), usize::MAX, LatchMode::Hybrid);
        let tree = BTree::open(&env, TABLE, rig.tree.root());
        let mut seen = 0;
        let read = |number: usize, value: Option<&[u8]>| {
            assert_eq!(value, Some(&[u32::from_be_bytes(keys[number]) as u8; 1000][..]));
            seen += 1;
        };
        tree.get_many(&mut session, &keys, LockKind::Shared, Isolation::Serializable, read).unwrap();
        assert_eq!(seen, keys.len());
        let stats = env.pool.stats();
        // Each has a leaf of its own; and the root.
        assert!(stats.read_ahead + stats.loads <= 31, "{stats:?}");
        stats.read_ahead > 0
    });
    assert!(brought, "all were waited for, one after the other");
}
