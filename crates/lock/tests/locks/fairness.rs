//! Nobody starves: the bounds of the README, under streams that never pause.

use foreshore_base::TxnId;
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};
use foreshore_lock::{IntentMode, KeyMode, LockError, LockManager, LockOptions, LockOwner};

use super::{FAR, TABLE, begin, intent_kinds, key, over_all_tables, until_waiting, wait_for};

const STREAM: u64 = 4;

type Ask = fn(&mut LockOwner) -> Result<(), LockError>;

/// Two threads and more take the same lock again and again, each keeping it until another one has got it too, so that
/// it is never free by itself. Somebody asks for what conflicts. Once it waits, no newcomer is granted before it: each
/// thread of the stream has at most one grant that was under way.
fn against_a_stream(manager: &Arc<LockManager>, stream: Ask, other: Ask) {
    let (stop, grants) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..STREAM {
            let (manager, stop, grants) = (&manager, &stop, &grants);
            scope.spawn(move || {
                for round in 0.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    let mut owner = begin(manager, (round + 1) << 8 | thread);
                    stream(&mut owner).unwrap();
                    let own = grants.fetch_add(1, SeqCst);
                    let limit = Instant::now() + Duration::from_millis(2);
                    while grants.load(SeqCst) <= own + 1 && !stop.load(SeqCst) && Instant::now() < limit {
                        thread::yield_now();
                    }
                }
            });
        }
        for round in 0..20 {
            let before = grants.load(SeqCst);
            while grants.load(SeqCst) < before + 2 * STREAM {
                thread::yield_now();
            }
            let asks = scope.spawn(move || {
                let mut owner = begin(manager, 1 << 40 | round);
                let began = Instant::now();
                other(&mut owner).unwrap();
                began.elapsed()
            });
            let mut waiting_since = None;
            while !asks.is_finished() {
                if manager.waiters().iter().any(|(txn, _)| *txn == TxnId(1 << 40 | round)) {
                    waiting_since.get_or_insert_with(|| grants.load(SeqCst));
                    // Read before it is seen to wait still: no later than its grant.
                    let seen = grants.load(SeqCst);
                    let waits_still = manager.waiters().iter().any(|(txn, _)| *txn == TxnId(1 << 40 | round));
                    if let (true, Some(since)) = (waits_still, waiting_since) {
                        assert!(seen <= since + STREAM, "{} newcomers overtook", seen - since);
                    }
                }
                thread::yield_now();
            }
            let took = asks.join().unwrap();
            assert!(took < FAR, "{took:?}");
        }
        stop.store(true, SeqCst);
    });
    assert!(manager.is_empty());
}

#[test]
fn an_exclusive_lock_is_not_starved_by_a_stream_of_shared_ones() {
    over_all_tables(|options| {
        let (shared, exclusive): (Ask, Ask) = (
            |owner| owner.acquire(TABLE, key(b"k"), KeyMode::S, &wait_for(120_000)),
            |owner| owner.acquire(TABLE, key(b"k"), KeyMode::X, &wait_for(120_000)),
        );
        against_a_stream(&LockManager::new(&options), shared, exclusive);
    });
}

#[test]
fn absolute_locks_and_intents_do_not_starve_each_other() {
    let intent: Ask = |owner| owner.intent(TABLE, IntentMode::IX, &wait_for(120_000)).map(drop);
    let absolute: Ask = |owner| owner.intent(TABLE, IntentMode::S, &wait_for(120_000)).map(drop);
    for options in intent_kinds() {
        against_a_stream(&LockManager::new(&options), intent, absolute);
        against_a_stream(&LockManager::new(&options), absolute, intent);
    }
}

/// A holder that wants more goes before all that hold nothing, however long they have waited.
#[test]
fn conversions_go_first() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let (mut a, mut b) = (begin(&manager, 1), begin(&manager, 2));
        for owner in [&mut a, &mut b] {
            owner.acquire(TABLE, key(b"k"), KeyMode::SN, &wait_for(120_000)).unwrap();
        }
        let granted = AtomicU64::new(0);
        thread::scope(|scope| {
            for txn in 3..6 {
                let (manager, granted) = (&manager, &granted);
                scope.spawn(move || {
                    let mut owner = begin(manager, txn);
                    owner.acquire(TABLE, key(b"k"), KeyMode::XN, &wait_for(120_000)).unwrap();
                    granted.fetch_add(1, SeqCst);
                });
                until_waiting(manager, txn);
            }
            let converts = scope.spawn(|| {
                a.acquire(TABLE, key(b"k"), KeyMode::XN, &wait_for(120_000)).unwrap();
                assert_eq!(granted.load(SeqCst), 0, "nobody was granted before");
                drop(a);
            });
            until_waiting(&manager, 1);
            drop(b);
            converts.join().unwrap();
        });
        assert_eq!(granted.into_inner(), 3);
    });
}

/// The first paper's idea has a price, and a bound: who stays idle with inherited locks, or with a published line,
/// keeps nobody from an absolute lock.
#[test]
fn idle_slots_are_in_nobodys_way() {
    for options in intent_kinds() {
        let manager = LockManager::new(&LockOptions { buckets: 64, ..options });
        let mut owners: Vec<LockOwner> = (1..40).map(|txn| begin(&manager, txn)).collect();
        for owner in &mut owners {
            owner.intent(TABLE, IntentMode::IX, &wait_for(1000)).unwrap();
        }
        owners.iter_mut().for_each(|owner| owner.release_all(None));
        let mut absolute = begin(&manager, 100);
        absolute.intent(TABLE, IntentMode::X, &wait_for(0)).unwrap();
        let mut late = owners.swap_remove(7);
        assert!(late.intent(TABLE, IntentMode::IS, &wait_for(1)).is_err(), "and it excludes them");
        drop(absolute);
        late.intent(TABLE, IntentMode::IS, &wait_for(1000)).unwrap();
        drop((owners, late));
        assert!(manager.is_empty());
    }
}
