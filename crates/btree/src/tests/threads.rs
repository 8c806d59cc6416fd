//! Threads on tiny nodes: structure changes, waits and restarts all the time. BTREE-1 to BTREE-8.

use std::{collections::BTreeMap, ops::Bound};

use foreshore_base::{Lsn, TxnId};
use foreshore_env::{
    random::Xorshift,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_lock::LockManager;
use foreshore_testkit::history::{History, Op};

use super::support::{LATCH_MODES, Locking, Rig, TABLE, lock_manager};
use crate::{Direction, Isolation, LatchMode, LockKind, NoLocks, TreeError};

fn key(number: u64) -> Vec<u8> {
    vec![b'k', number as u8]
}

/// One operation by chance, and what came of it.
fn operate(
    rig: &Rig,
    session: &mut Locking,
    random: &mut Xorshift,
    keys: u64,
    tag: u64,
) -> Result<Op, TreeError> {
    let (tree, table) = (&rig.tree, TABLE.0);
    let key = key(random.below(keys));
    let value = [tag.to_le_bytes().to_vec(), vec![0; random.below(30) as usize]].concat();
    Ok(match random.below(10) {
        0 | 1 => {
            let result = tree.get(session, &key, Isolation::Serializable, <[u8]>::to_vec)?;
            Op::Get { table, key, result }
        }
        2 | 3 => {
            let inserted = tree.insert(session, &key, &value)?;
            Op::Insert { table, key, value, inserted }
        }
        4 => {
            let existed = tree.put(session, &key, &value)?;
            Op::Put { table, key, value, existed }
        }
        5 => {
            let updated = tree.update(session, &key, &value)?;
            Op::Update { table, key, value, updated }
        }
        6 | 7 => {
            let existed = tree.delete(session, &key)?;
            Op::Delete { table, key, existed }
        }
        _ => scan(rig, session, random, keys)?,
    })
}

fn scan(rig: &Rig, session: &mut Locking, random: &mut Xorshift, keys: u64) -> Result<Op, TreeError> {
    let bound = |random: &mut Xorshift| match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(random.below(keys))),
        _ => Bound::Excluded(key(random.below(keys))),
    };
    let (low, high) = (bound(random), bound(random));
    let descending = random.below(2) == 0;
    let limit = if random.below(2) == 0 { usize::MAX } else { 2 };
    let direction = if descending { Direction::Descending } else { Direction::Ascending };
    let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
    let mut cursor = rig.tree.cursor(range, direction, LockKind::Shared, Isolation::Serializable);
    let (mut key, mut value, mut result) = (Vec::new(), Vec::new(), Vec::new());
    let mut complete = false;
    while result.len() < limit {
        if !cursor.next(session, &mut key, &mut value)? {
            complete = true;
            break;
        }
        result.push((key.clone(), value.clone()));
    }
    Ok(Op::Scan { table: TABLE.0, low, high, descending, complete, result })
}

struct Outcome {
    history: History,
    victims: u64,
    rig: Rig,
}

/// Transactions by chance on four threads. `gaps` off: gaps are not locked.
fn contend(mode: LatchMode, transactions: u64, keys: u64, gaps: bool, seed: u64) -> Outcome {
    let rig = Rig::with_mode(3, 256, mode);
    let manager = lock_manager();
    let history = History::new();
    let (place, next, victims) = (AtomicU64::new(1), AtomicU64::new(1), AtomicU64::new(0));
    thread::scope(|scope| {
        for worker in 0..4 {
            let (rig, manager, history) = (&rig, &manager, &history);
            let (place, next, victims) = (&place, &next, &victims);
            scope.spawn(move || {
                let mut random = Xorshift::new(seed * 31 + worker + 1);
                for _ in 0..transactions {
                    let txn = next.fetch_add(1, Ordering::Relaxed);
                    let mut session = Locking { gaps, ..Locking::begin(manager, txn) };
                    let ops = attempt(rig, &mut session, &mut random, keys, txn);
                    match ops {
                        Some(ops) => history.record(place.fetch_add(1, Ordering::SeqCst), ops),
                        None => {
                            victims.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    // Its locks go here, after its place was drawn.
                    drop(session);
                }
            });
        }
    });
    Outcome { history, victims: victims.into_inner(), rig }
}

/// A transaction; `None` if it was rolled back, as a deadlock's victim or by chance.
fn attempt(rig: &Rig, session: &mut Locking, random: &mut Xorshift, keys: u64, txn: u64) -> Option<Vec<Op>> {
    let mut ops = Vec::new();
    let mut complete = random.below(10) > 0;
    for step in 0..1 + random.below(5) {
        match operate(rig, session, random, keys, txn << 8 | step) {
            Ok(op) => ops.push(op),
            Err(TreeError::Lock(error)) => {
                assert!(error.is_retryable(), "{error}");
                complete = false;
                break;
            }
            Err(error) => panic!("{error}"),
        }
        thread::yield_now();
    }
    if complete {
        return Some(ops);
    }
    let mut chain = session.chain;
    rig.roll_back(&mut chain, Lsn::ZERO);
    session.chain = chain;
    None
}

#[test]
fn concurrent_transactions_are_serializable() {
    for mode in LATCH_MODES {
        let outcome = contend(mode, 1500, 24, true, 1);
        let state = outcome.history.replay_onto(BTreeMap::new()).unwrap();
        let expected: BTreeMap<Vec<u8>, Vec<u8>> =
            state.into_iter().map(|((_, key), value)| (key, value)).collect();
        assert_eq!(outcome.rig.contents(), expected);
        let report = outcome.rig.verify();
        let (count, victims) = (outcome.history.len(), outcome.victims);
        println!("{mode:?}: {count} transactions, {victims} rolled back, {report:?}");
        assert!(count > 1000);
    }
}

/// The test above can fail.
#[test]
fn anomalies_show_when_gaps_are_not_locked() {
    let begun = Instant::now();
    // On a busy machine threads may run one after another for a while.
    let found = (1..)
        .take_while(|_| begun.elapsed() < Duration::from_secs(120))
        .any(|seed| contend(LatchMode::Hybrid, 300, 8, false, seed).history.replay().is_err());
    assert!(found, "no run without gap locks had a phantom");
}

/// Threads that share pages but no keys, in a pool far smaller than the tree; point reads check every value.
#[test]
fn pages_come_and_go_under_readers_and_writers() {
    LATCH_MODES.into_iter().for_each(come_and_go);
}

fn come_and_go(mode: LatchMode) {
    const THREADS: u64 = 4;
    let rig = Rig::with_mode(usize::MAX, 64, mode);
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let rig = &rig;
            scope.spawn(move || {
                let mut random = Xorshift::new(worker + 1);
                let mut session = NoLocks::new(TxnId(worker + 1));
                let mut mine: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
                for step in 0..4000_u64 {
                    let key = (random.below(2000) * THREADS + worker).to_be_bytes().to_vec();
                    match random.below(7) {
                        0..=2 => {
                            let value = vec![step as u8; random.below(700) as usize];
                            let existed = rig.tree.put(&mut session, &key, &value).unwrap();
                            assert_eq!(existed, mine.insert(key, value).is_some());
                        }
                        3 => assert_eq!(
                            rig.tree.delete(&mut session, &key).unwrap(),
                            mine.remove(&key).is_some()
                        ),
                        4 => {
                            let keys: Vec<_> = (0..random.below(40))
                                .map(|_| (random.below(2000) * THREADS + worker).to_be_bytes())
                                .collect();
                            let read = |number: usize, value: Option<&[u8]>| {
                                assert_eq!(value, mine.get(&keys[number][..]).map(Vec::as_slice));
                            };
                            let (kind, isolation) = (LockKind::Shared, Isolation::Serializable);
                            rig.tree.get_many(&mut session, &keys, kind, isolation, read).unwrap();
                        }
                        _ => {
                            let read = |value: &[u8]| value.to_vec();
                            let got =
                                rig.tree.get(&mut session, &key, Isolation::Serializable, read).unwrap();
                            assert_eq!(got.as_ref(), mine.get(&key));
                        }
                    }
                    if step % 512 == 0 {
                        check_own(rig, &mut session, &mine, worker, THREADS);
                    }
                }
                check_own(rig, &mut session, &mine, worker, THREADS);
            });
        }
    });
    let report = rig.verify();
    assert!(report.pages > 3 * 64, "the tree fits the pool: {report:?}");
    assert!(rig.env.pool.stats().evictions > 0);
}

/// A scan beside writers of other keys gives each key of this thread once.
fn check_own(rig: &Rig, session: &mut NoLocks, mine: &BTreeMap<Vec<u8>, Vec<u8>>, worker: u64, threads: u64) {
    for direction in [Direction::Ascending, Direction::Descending] {
        let all = super::support::scan(&rig.tree, session, (Bound::Unbounded, Bound::Unbounded), direction)
            .unwrap();
        let mut own: Vec<_> = all
            .into_iter()
            .filter(|(key, _)| u64::from_be_bytes(key[..].try_into().unwrap()) % threads == worker)
            .collect();
        if direction == Direction::Descending {
            own.reverse();
        }
        assert!(
            own.iter().map(|(key, value)| (key, value)).eq(mine),
            "scan of worker {worker}, {direction:?}"
        );
    }
}

/// Queues: producers at the tail, consumers at the head. Ghosts and empty leaves must go while it runs.
#[test]
fn a_queue_does_not_leave_its_past_behind() {
    LATCH_MODES.into_iter().for_each(|mode| queue(mode, 0));
}

/// BTREE-15: nor where a commit is durable only 100 commits later, and its ghost stays so long. Whoever passes it does
/// not keep it.
#[test]
fn a_queue_leaves_no_more_behind_than_is_not_durable() {
    queue(LatchMode::default(), 100);
}

fn queue(mode: LatchMode, lag: u64) {
    let rig = Rig::with_mode(usize::MAX, 512, mode);
    let manager: Arc<LockManager> = lock_manager();
    let mut txn = 0;
    let mut begin = || {
        txn += 1;
        Locking::begin(&manager, txn)
    };
    let value = [7; 60];
    for number in 0..20_000_u64 {
        let mut producer = begin();
        assert!(rig.tree.insert(&mut producer, &number.to_be_bytes(), &value).unwrap());
        drop(producer);
        if number >= 200 {
            let mut consumer = begin();
            consumer.durable = Lsn(number - lag);
            let all = (Bound::Unbounded, Bound::Unbounded);
            let mut head =
                rig.tree.cursor(all, Direction::Ascending, LockKind::Exclusive, Isolation::Serializable);
            let (mut key, mut value) = (Vec::new(), Vec::new());
            assert!(head.next(&mut consumer, &mut key, &mut value).unwrap());
            assert_eq!(key, (number - 200).to_be_bytes());
            let locks = consumer.owner.lock_count();
            assert!(locks < 24 + 2 * lag as usize, "{locks} locks for one record");
            assert!(rig.tree.delete(&mut consumer, &key).unwrap());
            consumer.owner.release_all(Some(Lsn(number)));
        }
    }
    let report = rig.verify();
    println!("{report:?}");
    assert_eq!(report.records, 200);
    assert!(report.pages < 12 && report.ghosts < 200 + lag, "{report:?}");
}
