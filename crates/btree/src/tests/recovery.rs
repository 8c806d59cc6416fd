//! Redo and undo after a crash: BTREE-9 to BTREE-11.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use foreshore_base::{
    Lsn, StorageError, TableId, TxnId,
    limits::{MAX_INLINE_VALUE_BYTES, MAX_KEY_BYTES, PAGE_BYTES},
};
use foreshore_env::{disk::Disk, random::Xorshift, sync::Arc};
use foreshore_pages::{BufferPool, PAGE_HEADER_BYTES, RECORD_OVERHEAD_BYTES};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_wal::{FIRST_LSN, Log, LogOptions};

use super::support::{Rig, TABLE, pool_options};
use crate::{BTree, LatchMode, NoLocks, Session, TreeEnv, TreeError, TxnChain, is_undoable, undo, undo_next};

/// The transactions in the log that are not in `committed`, each with its chain.
fn losers(log: &Log, committed: &BTreeSet<TxnId>) -> Vec<TxnChain> {
    let mut chains: BTreeMap<TxnId, TxnChain> = BTreeMap::new();
    let (mut reader, mut payload) = (log.reader(FIRST_LSN), Vec::new());
    while let Some(header) = reader.next(&mut payload).unwrap() {
        if header.txn != TxnId::SYSTEM && !committed.contains(&header.txn) {
            chains.entry(header.txn).or_insert_with(|| TxnChain::new(header.txn)).note(header.lsn);
        }
    }
    chains.into_values().collect()
}

/// Records, without the log's own.
fn count_records(log: &Log) -> usize {
    let (mut reader, mut payload) = (log.reader(FIRST_LSN), Vec::new());
    std::iter::from_fn(|| reader.next(&mut payload).unwrap()).count()
}

/// Undoes losers until `steps` changes are taken back; returns how many there were to take back.
fn undo_steps(rig: &Rig, losers: Vec<TxnChain>, steps: usize) -> usize {
    let (tables, mut payload, mut done) = (rig.tables(), Vec::new(), 0);
    for mut chain in losers {
        let mut lsn = chain.last;
        while lsn > Lsn::ZERO {
            let header = rig.log.read(lsn, &mut payload).unwrap();
            lsn = match undo_next(&header, &payload) {
                Some(next) => next,
                None => {
                    if is_undoable(header.kind) {
                        if done == steps {
                            return done;
                        }
                        undo(&rig.env, &tables, &header, &payload, &mut chain).unwrap();
                        done += 1;
                    }
                    header.prev
                }
            };
        }
    }
    done
}

/// Transactions with keys of their own, in turns; some commit.
fn interleave(rig: &Rig, seed: u64, steps: u64) -> (BTreeMap<Vec<u8>, Vec<u8>>, BTreeSet<TxnId>) {
    interleave_with(rig, seed, steps, &mut |_| {})
}

fn interleave_with(
    rig: &Rig,
    seed: u64,
    steps: u64,
    each: &mut dyn FnMut(u64),
) -> (BTreeMap<Vec<u8>, Vec<u8>>, BTreeSet<TxnId>) {
    const TXNS: u64 = 4;
    let mut random = Xorshift::new(seed);
    let mut sessions: Vec<NoLocks> = (1..=TXNS).map(|txn| NoLocks::new(TxnId(txn))).collect();
    let mut committed = BTreeMap::new();
    // Everybody's records before.
    let mut setup = NoLocks::new(TxnId(9));
    for number in 0..60_u8 {
        rig.tree.insert(&mut setup, &[number], &[1; 20]).unwrap();
        committed.insert(vec![number], vec![1; 20]);
    }
    let mut mine: Vec<BTreeMap<Vec<u8>, Option<Vec<u8>>>> = vec![BTreeMap::new(); TXNS as usize];
    for step in 0..steps {
        each(step);
        let txn = random.below(TXNS) as usize;
        let key = vec![(random.below(24) * TXNS) as u8 + txn as u8];
        let session = &mut sessions[txn];
        // Lengths that force moves, and now and then a long value.
        let length = if random.below(12) == 0 { 4000 } else { random.below(60) as usize };
        let value = vec![step as u8; length];
        if random.below(3) == 0 {
            rig.tree.delete(session, &key).unwrap();
            mine[txn].insert(key, None);
        } else {
            rig.tree.put(session, &key, &value).unwrap();
            mine[txn].insert(key, Some(value));
        }
    }
    let winners = [1, 3];
    for winner in winners {
        for (key, value) in &mine[winner - 1] {
            match value {
                Some(value) => drop(committed.insert(key.clone(), value.clone())),
                None => drop(committed.remove(key)),
            }
        }
    }
    let ids = winners.into_iter().map(|winner| TxnId(winner as u64)).chain([TxnId(9)]).collect();
    (committed, ids)
}

/// Crash, redo, undo; and a crash after each step of the undo. What was taken back once is not taken back twice.
#[test]
fn undo_survives_a_crash_at_every_step() {
    for seed in 1..4 {
        let mut total = usize::MAX;
        let mut interrupted = 0;
        while interrupted <= total {
            let rig = Rig::with_frames(4, 256);
            let (expected, committed) = interleave(&rig, seed, 60);
            let once = rig.redone("db/once", 4);
            let done = undo_steps(&once, losers(&rig.log, &committed), interrupted);
            if done < interrupted {
                total = done;
            }
            // The crash: what the log says so far is redone into an empty file, and undo goes on from there.
            let twice = rig.redone("db/twice", 4);
            undo_steps(&twice, losers(&rig.log, &committed), usize::MAX);
            assert_eq!(twice.contents(), expected, "seed {seed}, interrupted after {interrupted}");
            twice.verify();
            // A third recovery finds nothing to do.
            let records = count_records(&rig.log);
            let thrice = rig.redone("db/thrice", 4);
            assert_eq!(undo_steps(&thrice, losers(&rig.log, &committed), usize::MAX), 0);
            assert_eq!(count_records(&rig.log), records);
            assert_eq!(thrice.contents(), expected);
            interrupted += 1;
        }
        assert!(total > 20, "only {total} steps");
    }
}

/// A crash that leaves pages of every age in the file, torn ones too, beside a log that is whole: redo from the last
/// sweep's point, undo, compare.
#[test]
fn redo_meets_pages_of_every_age() {
    for seed in 1..40 {
        let disk = FaultyDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        shared.create_directory(Path::new("/db")).unwrap();
        shared.sync_directory(Path::new("/")).unwrap();
        let options = LogOptions { buffer_bytes: 1 << 20, ..LogOptions::default() };
        let log = Log::create(Arc::clone(&shared), Path::new("/db/log"), 7, &options).unwrap();
        // So few frames that pages are written all the time.
        let pool =
            BufferPool::create(&shared, Path::new("/db/data"), Arc::clone(&log), &pool_options(16)).unwrap();
        let env = TreeEnv::new(pool, Arc::clone(&log), 4, LatchMode::Hybrid);
        let overflow = BTree::create(&env, TableId::OVERFLOW).unwrap();
        env.set_overflow(&overflow);
        let tree = BTree::create(&env, TABLE).unwrap();
        let rig = Rig { faults: disk.clone(), disk: shared, log, env, tree, overflow };
        let mut horizon = FIRST_LSN;
        let (expected, committed) = interleave_with(&rig, seed, 150, &mut |step| {
            if step % 41 == seed % 41 {
                horizon = rig.env.pool.sweep().unwrap();
            }
        });
        let mut marker = NoLocks::new(TxnId(8));
        rig.tree.insert(&mut marker, b"\xFFlast", b"").unwrap();
        rig.log.flush(marker.chain().last).unwrap();
        let mode = if seed % 3 == 0 { CrashMode::KeepAll } else { CrashMode::TornRandom(seed) };
        let faults = disk.after_crash(mode);
        let disk: Arc<dyn Disk> = Arc::new(faults.clone());
        let (tree, overflow) = (rig.tree.root(), rig.overflow.root());
        drop(rig);
        let log = Log::open(Arc::clone(&disk), Path::new("/db/log"), 7, FIRST_LSN, &options).unwrap();
        let pool =
            BufferPool::open(&disk, Path::new("/db/data"), Arc::clone(&log), &pool_options(64)).unwrap();
        pool.set_redo_horizon(horizon);
        let env = TreeEnv::new(pool, Arc::clone(&log), 4, LatchMode::Hybrid);
        let (mut reader, mut payload) = (log.reader(horizon), Vec::new());
        while let Some(header) = reader.next(&mut payload).unwrap() {
            if !env.pool.redo_record(&header, &payload).unwrap() {
                crate::redo(&env, &header, &payload).unwrap();
            }
        }
        env.pool.finish_redo().unwrap();
        let overflow = BTree::open(&env, TableId::OVERFLOW, overflow);
        env.set_overflow(&overflow);
        let tree = BTree::open(&env, TABLE, tree);
        let rig = Rig { faults, disk, log, env, tree, overflow };
        undo_steps(&rig, losers(&rig.log, &committed), usize::MAX);
        rig.verify();
        assert_eq!(rig.contents(), expected, "seed {seed}, {mode:?}, redo from {horizon}");
    }
}

/// A table that is gone needs no undo, but its compensation moves rollback on.
#[test]
fn undo_without_a_table_only_moves_on() {
    let rig = Rig::new(4);
    let mut session = NoLocks::new(TxnId(3));
    rig.tree.insert(&mut session, b"k", b"v").unwrap();
    let (mut payload, mut chain) = (Vec::new(), *session.chain());
    let header = rig.log.read(chain.last, &mut payload).unwrap();
    undo(&rig.env, &|_| None, &header, &payload, &mut chain).unwrap();
    let header = rig.log.read(chain.last, &mut payload).unwrap();
    assert_eq!(undo_next(&header, &payload), Some(Lsn::ZERO));
    assert!(!is_undoable(header.kind));
    crate::redo(&rig.env, &header, &payload).unwrap();
    assert_eq!(rig.contents().len(), 1);
}

/// When the log refuses more work, what was done can still be taken back, although undo has to split leaves.
#[test]
fn rollback_has_room_when_the_log_is_full() {
    let faults = FaultyDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(faults.clone());
    disk.create_directory(Path::new("db")).unwrap();
    let options = LogOptions {
        segment_bytes: 128 << 10,
        buffer_bytes: 256 << 10,
        capacity_bytes: 6 << 20,
        ..LogOptions::default()
    };
    let log = Log::create(Arc::clone(&disk), Path::new("db/log"), 7, &options).unwrap();
    let pool =
        BufferPool::create(&disk, Path::new("db/data"), Arc::clone(&log), &pool_options(1024)).unwrap();
    let env = TreeEnv::new(pool, Arc::clone(&log), usize::MAX, LatchMode::Hybrid);
    let overflow = BTree::create(&env, TableId::OVERFLOW).unwrap();
    env.set_overflow(&overflow);
    let tree = BTree::create(&env, TABLE).unwrap();
    let rig = Rig { faults, disk, log, env, tree, overflow };
    let key = |number: u32| number.to_be_bytes();
    let mut setup = NoLocks::new(TxnId(1));
    for number in 0..3000 {
        rig.tree.insert(&mut setup, &key(number * 2), &[1; 100]).unwrap();
    }
    let before = rig.contents();
    // Without locks, these ghosts are purged by the inserts of the other, and undo must insert them again.
    let mut loser = NoLocks::new(TxnId(2));
    for number in 0..3000 {
        rig.tree.delete(&mut loser, &key(number * 2)).unwrap();
    }
    let mut other = NoLocks::new(TxnId(3));
    let mut inserted = 0;
    let error = loop {
        match rig.tree.insert(&mut other, &key(inserted * 2 + 1), &[2; 100]) {
            Ok(true) => inserted += 1,
            Ok(false) => unreachable!("odd keys are new"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, TreeError::Storage(StorageError::LogFull { .. })), "{error}");
    assert!(inserted > 3000, "only {inserted} inserts");
    rig.roll_back(loser.chain(), Lsn::ZERO);
    rig.roll_back(other.chain(), Lsn::ZERO);
    assert_eq!(rig.contents(), before);
    rig.verify();
}

/// Ascending keys fill their leaves, whether the fence of the next finds room beside the records or not, and redo makes
/// the same pages.
#[test]
fn leaves_of_ascending_keys_are_full_and_redo_fills_them_the_same_way() {
    for (key_bytes, value_bytes) in [(8, 100), (8, 0), (600, 0), (600, 900), (MAX_KEY_BYTES, 1)] {
        let rig = Rig::new(usize::MAX);
        let key = |row: u64| [&row.to_be_bytes()[..], &vec![7; key_bytes - 8]].concat();
        let mut session = NoLocks::new(TxnId(1));
        for row in 0..1500 {
            assert!(rig.tree.insert(&mut session, &key(row), &vec![row as u8; value_bytes]).unwrap());
        }
        let report = rig.verify();
        assert_eq!(report.records, 1500);
        assert_same_after_redo(&rig);
        // The leaf that is being filled has a low fence, and no prefix.
        let room = PAGE_BYTES - PAGE_HEADER_BYTES - key_bytes;
        let record = RECORD_OVERHEAD_BYTES + key_bytes + value_bytes;
        let fence_fits = room % record >= key_bytes;
        let leaves = 1500_usize.div_ceil(room / record - usize::from(!fence_fits));
        let inspected = (report.pages - report.inner_pages) as usize;
        assert!(
            inspected <= leaves + 1,
            "{inspected} leaves for {key_bytes} and {value_bytes} bytes: {leaves}"
        );
    }
}

/// Keys that descend towards a leaf share leaves, however full it is: each does not get one of its own.
#[test]
fn keys_that_descend_to_a_full_leaf_share_leaves() {
    for below in 20..27 {
        let rig = Rig::new(usize::MAX);
        let mut session = NoLocks::new(TxnId(1));
        for row in (0..below).chain((10_000..10_300_u64).rev()) {
            assert!(rig.tree.insert(&mut session, &row.to_be_bytes(), &[7; 900]).unwrap());
        }
        let report = rig.verify();
        let (leaves, rows) = (report.pages - report.inner_pages, report.records);
        assert_eq!(rows, below + 300);
        // A full one has eight.
        assert!(leaves <= rows / 3, "{leaves} leaves for {rows} records");
    }
}

/// A leaf whose only record leaves no room for another is cut behind it whenever a key comes there. The split that
/// followed another such built the leaf anew, and redo left the record where it was.
#[test]
fn a_leaf_of_one_record_is_cut_twice_in_the_same_way() {
    let rig = Rig::new(usize::MAX);
    let mut session = NoLocks::new(TxnId(1));
    for row in [1, 2, 3, 9, 10, 8, 7, 6_u8] {
        assert!(rig.tree.insert(&mut session, &[row; 1200], &[7; MAX_INLINE_VALUE_BYTES]).unwrap());
    }
    assert_same_after_redo(&rig);
}

fn assert_same_after_redo(rig: &Rig) {
    let redone = rig.redone("db/redone", usize::MAX);
    assert_eq!(redone.verify(), rig.verify());
    for page in rig.pages() {
        assert!(rig.page(page).0 == redone.page(page).0, "page {page} differs after redo");
    }
}
