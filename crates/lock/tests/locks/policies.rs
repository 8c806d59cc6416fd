//! The contract of the policies against deadlocks, over all of them: whoever is run again until it succeeds succeeds,
//! and nobody is harmed without need by those that look for cycles.

use foreshore_base::{TableId, TxnId};
use foreshore_env::random::Xorshift;
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};
use foreshore_lock::{
    Age, DeadlockPolicy, DeadlockReport, DigestKind, IntentMode, KeyMode, LockError, LockManager,
    LockOptions, LockOwner, LockTableKind, VictimReason, WaitPolicy,
};

use super::shadow::Shadow;
use super::{
    FAR, Gate, TABLE, WAIT, begin, key, policies, product, side_by_side, tables_and_policies, until_waiting,
    wait_for,
};

/// Runs a transaction again, with its age, until it is no victim. Returns how often it was one.
fn again_and_again(
    manager: &Arc<LockManager>,
    age: u64,
    mut body: impl FnMut(&mut LockOwner) -> Result<(), LockError>,
) -> u64 {
    let mut random = Xorshift::new(age + 1);
    for attempt in 0.. {
        let txn = TxnId(age << 24 | attempt);
        let mut owner = manager.begin(txn, Age::new(age, 0), None).unwrap();
        match body(&mut owner) {
            Ok(()) => return attempt,
            Err(LockError::Deadlock(report)) => {
                assert_eq!(report.victim, txn);
                assert_eq!(report.reason == VictimReason::Deadlock, report.cycle.len() > 1, "{report}");
            }
            Err(error) => panic!("{error}"),
        }
        assert!(attempt < 10_000, "transaction {age} does not come to its end");
        drop(owner);
        thread::sleep(Duration::from_micros(random.below(50 << attempt.min(7))));
    }
    unreachable!()
}

#[test]
fn cycles_are_resolved_and_everybody_gets_through() {
    side_by_side(&product(), |options| {
        cycle(options, 2);
        cycle(options, 3);
    });
    policies().for_each(|options| cycle(&options, 5));
}

/// Each waits for the next: through a key or, every other one, through a table.
fn cycle(options: &LockOptions, length: usize) {
    let manager = LockManager::new(options);
    let ready = Gate::new(length);
    let victims = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..length {
            let (manager, ready, victims) = (&manager, &ready, &victims);
            scope.spawn(move || {
                let mut first = true;
                let given_way = again_and_again(manager, number as u64, |owner| {
                    let next = (number + 1) % length;
                    owner.acquire(TABLE, key(&number.to_be_bytes()), KeyMode::X, &WAIT)?;
                    owner.intent(TableId(100 + number as u32), IntentMode::IX, &WAIT)?;
                    if std::mem::take(&mut first) {
                        ready.wait();
                    }
                    if number % 2 == 0 {
                        owner.acquire(TABLE, key(&next.to_be_bytes()), KeyMode::SN, &WAIT)
                    } else {
                        owner.intent(TableId(100 + next as u32), IntentMode::S, &WAIT).map(drop)
                    }
                });
                victims.fetch_add(given_way, Relaxed);
            });
        }
    });
    let (victims, stats) = (victims.into_inner(), manager.stats());
    assert!(victims > 0, "{options:?}");
    assert_eq!(stats.deadlocks + stats.precautions, victims, "{options:?}: {stats:?}");
    let others = if options.deadlock.detects() { stats.precautions } else { stats.deadlocks };
    assert_eq!(others, 0, "{options:?}: {stats:?}");
    assert!(manager.is_empty() && manager.waiters().is_empty(), "{options:?}");
}

/// Kimura et al. 2012, Fig. 6: in canonical order there is no deadlock, and who looks for cycles finds none.
#[test]
fn canonical_order_has_no_victims_under_policies_that_detect() {
    side_by_side(&tables_and_policies(), canonical_order);
}

fn canonical_order(options: &LockOptions) {
    let begun = Instant::now();
    // Until they meet: on a busy machine they may run one after another.
    while !meet_in_canonical_order(options) {
        assert!(begun.elapsed() < FAR, "there was something to wait for: {options:?}");
    }
}

/// Whether anybody had to wait, or to give way.
fn meet_in_canonical_order(options: &LockOptions) -> bool {
    let manager = LockManager::new(options);
    let ready = Gate::new(6);
    let victims = AtomicU64::new(0);
    let rounds = match options.deadlock {
        DeadlockPolicy::DreadlocksSpin => 8,
        _ if options.table == LockTableKind::default() => 40,
        _ => 10,
    };
    thread::scope(|scope| {
        for thread in 0..6u64 {
            let (manager, victims, ready) = (&manager, &victims, &ready);
            scope.spawn(move || {
                let mut random = Xorshift::new(thread + 1);
                ready.wait();
                for round in 0..rounds {
                    let mut steps = [0u64; 4];
                    steps.iter_mut().for_each(|step| *step = 1 + random.below(2));
                    let given_way = again_and_again(manager, round << 3 | thread, |owner| {
                        owner.intent(TABLE, IntentMode::IX, &WAIT)?;
                        let mut number = 0;
                        for step in steps {
                            number += step;
                            owner.acquire(TABLE, key(&number.to_be_bytes()), KeyMode::XN, &WAIT)?;
                            thread::yield_now();
                        }
                        Ok(())
                    });
                    victims.fetch_add(given_way, Relaxed);
                }
            });
        }
    });
    let stats = manager.stats();
    assert_eq!(stats.deadlocks, 0, "{options:?}");
    assert_eq!(stats.precautions, victims.into_inner(), "{options:?}");
    if options.deadlock.detects() {
        assert_eq!(stats.precautions, 0, "{options:?}");
    }
    assert!(manager.is_empty(), "{options:?}");
    stats.waits + stats.precautions > 0
}

/// Random locks, conversions, tables and deadlines; every grant is checked by a shadow.
#[test]
fn storms_under_every_policy() {
    policies().for_each(|options| storm(&options, 6, 30));
}

#[test]
fn storms_over_all_tables_intents_and_policies() {
    side_by_side(&product(), |options| storm(options, 4, 6));
}

fn storm(options: &LockOptions, threads: u64, rounds: u64) {
    const KEYS: u64 = 6;
    let manager = LockManager::new(options);
    let shadow = Shadow::new(KEYS as usize);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (manager, shadow) = (&manager, &shadow);
            scope.spawn(move || {
                let mut random = Xorshift::new(thread + 77);
                for round in 0..rounds {
                    again_and_again(manager, round << 3 | thread, |owner| {
                        let txn = owner.txn();
                        let result = (0..4).try_for_each(|_| {
                            let number = random.below(KEYS);
                            let mode = KeyMode::ALL[1 + random.below(8) as usize];
                            let wait = if random.below(8) == 0 { wait_for(random.below(3)) } else { WAIT };
                            let result = if random.below(6) == 0 {
                                let mode = IntentMode::ALL[random.below(5) as usize];
                                owner.intent(TableId(3), mode, &wait).map(drop)
                            } else {
                                let acquired = owner.acquire(TABLE, key(&number.to_be_bytes()), mode, &wait);
                                acquired.inspect(|()| shadow.granted(number as usize, txn, mode))
                            };
                            match result {
                                Err(LockError::Timeout(_)) => Ok(()),
                                other => other,
                            }
                        });
                        shadow.release(txn);
                        result
                    });
                }
            });
        }
    });
    shadow.assert_empty();
    assert!(manager.is_empty() && manager.waiters().is_empty(), "{options:?}");
}

fn with(deadlock: DeadlockPolicy) -> LockOptions {
    LockOptions { deadlock, ..LockOptions::default() }
}

/// Runs a test of a policy over every lock table.
fn over_tables(deadlock: DeadlockPolicy, test: impl Fn(&LockOptions)) {
    LockTableKind::ALL.into_iter().for_each(|table| test(&LockOptions { table, ..with(deadlock) }));
}

fn victim(result: Result<(), LockError>) -> Arc<DeadlockReport> {
    match result {
        Err(LockError::Deadlock(report)) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn wait_die_lets_the_older_wait_and_the_younger_give_way() {
    over_tables(DeadlockPolicy::WaitDie, wait_die);
}

fn wait_die(options: &LockOptions) {
    let manager = LockManager::new(options);
    let (mut old, mut young) = (begin(&manager, 1), begin(&manager, 2));
    old.acquire(TABLE, key(b"old's"), KeyMode::X, &WAIT).unwrap();
    young.acquire(TABLE, key(b"young's"), KeyMode::X, &WAIT).unwrap();
    let report = victim(young.acquire(TABLE, key(b"old's"), KeyMode::S, &WAIT));
    assert_eq!(report.reason, VictimReason::YoungerThan(TxnId(1)));
    assert!(report.to_string().contains("gave way to the older transaction 1"), "{report}");
    thread::scope(|scope| {
        let waits = scope.spawn(|| old.acquire(TABLE, key(b"young's"), KeyMode::S, &WAIT));
        until_waiting(&manager, 1);
        young.release_all(None);
        waits.join().unwrap().unwrap();
    });
    assert_eq!(manager.stats().precautions, 1);
}

#[test]
fn wound_wait_lets_the_younger_wait_and_the_older_wound() {
    over_tables(DeadlockPolicy::WoundWait, wound_wait);
}

fn wound_wait(options: &LockOptions) {
    let manager = LockManager::new(options);
    let (mut old, mut young) = (begin(&manager, 1), begin(&manager, 2));
    old.acquire(TABLE, key(b"old's"), KeyMode::X, &WAIT).unwrap();
    young.acquire(TABLE, key(b"young's"), KeyMode::X, &WAIT).unwrap();
    thread::scope(|scope| {
        // The younger waits in peace until the older wants what it holds.
        let (young, manager) = (&mut young, &manager);
        let waits = scope.spawn(move || {
            let result = young.acquire(TABLE, key(b"old's"), KeyMode::S, &WAIT);
            young.release_all(None);
            result
        });
        until_waiting(manager, 2);
        thread::sleep(Duration::from_millis(30));
        assert!(!waits.is_finished());
        old.acquire(TABLE, key(b"young's"), KeyMode::S, &WAIT).unwrap();
        assert_eq!(victim(waits.join().unwrap()).reason, VictimReason::WoundedBy(TxnId(1)));
    });
    old.release_all(None);
    // One that does not wait goes on, and gives way when it would have to.
    young.acquire(TABLE, key(b"young's"), KeyMode::X, &WAIT).unwrap();
    let mut other = begin(&manager, 3);
    other.acquire(TABLE, key(b"other's"), KeyMode::X, &WAIT).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| old.acquire(TABLE, key(b"young's"), KeyMode::S, &WAIT));
        until_waiting(&manager, 1);
        let limit = Instant::now() + FAR;
        young.acquire(TABLE, key(b"free"), KeyMode::X, &WAIT).unwrap();
        let report = victim(young.acquire(TABLE, key(b"other's"), KeyMode::S, &WAIT));
        assert!(report.to_string().contains("in the way of the older transaction 1"), "{report}");
        assert!(Instant::now() < limit);
        young.release_all(None);
        waits.join().unwrap().unwrap();
    });
    // The wound is the transaction's, not its slot's.
    drop((old, young));
    let mut next = begin(&manager, 4);
    thread::scope(|scope| {
        let waits = scope.spawn(|| next.acquire(TABLE, key(b"other's"), KeyMode::S, &WAIT));
        until_waiting(&manager, 4);
        other.release_all(None);
        waits.join().unwrap().unwrap();
    });
}

/// The oldest of all is never a victim, however many younger ones are about.
#[test]
fn the_oldest_never_gives_way_to_ages() {
    for options in tables_and_policies() {
        if !matches!(options.deadlock, DeadlockPolicy::WaitDie | DeadlockPolicy::WoundWait) {
            continue;
        }
        let manager = LockManager::new(&options);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 1..5u64 {
                let (manager, stop) = (&manager, &stop);
                scope.spawn(move || {
                    let mut random = Xorshift::new(thread);
                    for round in 1.. {
                        if stop.load(Relaxed) {
                            break;
                        }
                        again_and_again(manager, round << 3 | thread, |owner| {
                            (0..3).try_for_each(|_| {
                                let number = random.below(4).to_be_bytes();
                                owner.acquire(TABLE, key(&number), KeyMode::X, &WAIT)
                            })
                        });
                    }
                });
            }
            let mut random = Xorshift::new(99);
            for round in 0..40 {
                let mut owner = manager.begin(TxnId(1 << 40 | round), Age::new(0, 0), None).unwrap();
                for _ in 0..3 {
                    let number = random.below(4).to_be_bytes();
                    owner.acquire(TABLE, key(&number), KeyMode::X, &WAIT).unwrap();
                }
            }
            stop.store(true, Relaxed);
        });
        assert!(manager.is_empty());
    }
}

#[test]
fn no_wait_and_timeout_give_way_and_can_be_run_again() {
    over_tables(DeadlockPolicy::NoWait, no_wait);
    over_tables(DeadlockPolicy::Timeout, timeout);
}

fn no_wait(options: &LockOptions) {
    let manager = LockManager::new(options);
    let (mut holder, mut other) = (begin(&manager, 1), begin(&manager, 2));
    holder.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap();
    let refused = other.acquire(TABLE, key(b"k"), KeyMode::S, &WAIT).unwrap_err();
    assert!(refused.is_retryable() && refused.to_string().contains("rather than wait"), "{refused}");
    assert_eq!(victim(Err(refused)).reason, VictimReason::NoWait);
    // Who asked not to wait gets the answer that it asked for.
    let refused = other.acquire(TABLE, key(b"k"), KeyMode::S, &WaitPolicy { no_wait: true, ..WAIT });
    assert!(matches!(refused, Err(LockError::WouldBlock(_))));
    assert_eq!(manager.stats().precautions, 1);
}

fn timeout(options: &LockOptions) {
    let options = LockOptions { deadlock_timeout: Duration::from_millis(40), ..options.clone() };
    let manager = LockManager::new(&options);
    let (mut holder, mut other) = (begin(&manager, 1), begin(&manager, 2));
    holder.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap();
    let began = Instant::now();
    let report = victim(other.acquire(TABLE, key(b"k"), KeyMode::S, &WAIT));
    assert!(began.elapsed() >= Duration::from_millis(40));
    assert_eq!(report.reason, VictimReason::TimedOut);
    drop((holder, other));
    let manager = LockManager::new(&LockOptions { deadlock_timeout: FAR, ..options });
    let (mut holder, mut other) = (begin(&manager, 1), begin(&manager, 2));
    holder.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap();
    let refused = other.acquire(TABLE, key(b"k"), KeyMode::S, &wait_for(5));
    assert!(matches!(refused, Err(LockError::Timeout(_))), "its own deadline is shorter");
}

/// Kimura et al. 2012, §4.2: B and C wait for A. A commits, B is granted, C sleeps on with A in its digest, and when
/// the next transaction of A's thread comes to the same resource it finds itself there. How often, in some rounds? At
/// least 60 rounds, and more until that is enough.
fn stale_digests(options: &LockOptions, enough: impl Fn(u64, u64) -> bool) -> (u64, u64) {
    let manager = LockManager::new(options);
    // How long it is tried: behind those rounds, which may take as long by themselves where the machine stands still.
    let (mut given_way, mut behind) = (0, None);
    for round in 0.. {
        if round >= 60
            && (enough(given_way, manager.stats().suspicions_refuted)
                || behind.get_or_insert_with(Instant::now).elapsed() > FAR)
        {
            break;
        }
        let mut a = begin(&manager, round * 10);
        a.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap();
        let handed_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (manager, handed_over) = (&manager, &handed_over);
            scope.spawn(move || {
                let mut b = begin(manager, round * 10 + 1);
                b.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap();
                while !handed_over.load(Relaxed) {
                    thread::yield_now();
                }
            });
            until_waiting(manager, round * 10 + 1);
            scope.spawn(move || {
                let mut c = begin(manager, round * 10 + 2);
                c.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap();
            });
            until_waiting(manager, round * 10 + 2);
            drop(a);
            let mut a = begin(manager, round * 10 + 3);
            let result = a.acquire(TABLE, key(b"k"), KeyMode::X, &wait_for(1));
            given_way += u64::from(matches!(result, Err(LockError::Deadlock(_))));
            handed_over.store(true, Relaxed);
        });
    }
    (given_way, manager.stats().suspicions_refuted)
}

#[test]
fn only_sleepers_without_backoff_have_false_deadlocks_and_only_unconfirmed() {
    let sleep = with(DeadlockPolicy::DreadlocksSleep);
    let (given_way, refuted) = stale_digests(&sleep, |_, refuted| refuted > 0);
    assert!(given_way == 0 && refuted > 0, "confirmed: {given_way} victims, {refuted} refuted");
    let unconfirmed = LockOptions { confirm_deadlocks: false, ..sleep };
    let (given_way, _) = stale_digests(&unconfirmed, |given_way, _| given_way > 0);
    assert!(given_way > 0, "the paper's false deadlocks");
    for (policy, digests) in
        [(DeadlockPolicy::Dreadlocks, DigestKind::Exact), (DeadlockPolicy::Dreadlocks, DigestKind::Bloom)]
    {
        let options = LockOptions { confirm_deadlocks: false, digests, ..with(policy) };
        assert_eq!(stale_digests(&options, |_, _| true).0, 0, "{digests:?}");
    }
}
