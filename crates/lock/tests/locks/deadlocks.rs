//! Deadlocks: made on purpose, and looked for where there are none.

use foreshore_base::{TableId, TxnId};
use foreshore_env::random::Xorshift;
use foreshore_env::sync::Mutex;
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};
use foreshore_lock::{
    Age, DeadlockPolicy, DigestKind, IntentMode, KeyMode, LockError, LockManager, LockMode, LockOptions,
    LockOwner, VictimReason,
};

use super::{
    Gate, TABLE, WAIT, begin, intent_kinds, key, over_all_tables, policies, until_waiting, wait_for,
};

/// How a member of a cycle holds what the one before it wants, and wants what the next one holds.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Link {
    Key,
    Gap,
    Table,
    Conversion,
}

impl Link {
    fn hold(self, owner: &mut LockOwner, number: usize, next: usize) {
        let (own, next) = (number.to_be_bytes(), next.to_be_bytes());
        match self {
            Link::Key => owner.acquire(TABLE, key(&own), KeyMode::XN, &WAIT),
            Link::Gap => owner.acquire(TABLE, key(&own), KeyMode::XS, &WAIT),
            Link::Table => owner.intent(TableId(100 + number as u32), IntentMode::IX, &WAIT).map(drop),
            // Shares its own key with the one before it.
            Link::Conversion => owner
                .acquire(TABLE, key(&own), KeyMode::S, &WAIT)
                .and_then(|()| owner.acquire(TABLE, key(&next), KeyMode::S, &WAIT)),
        }
        .unwrap();
    }

    fn want(self, owner: &mut LockOwner, next: usize) -> Result<(), LockError> {
        let bytes = next.to_be_bytes();
        match self {
            Link::Key => owner.acquire(TABLE, key(&bytes), KeyMode::SN, &WAIT),
            Link::Gap => owner.acquire(TABLE, key(&bytes), KeyMode::NX, &WAIT),
            Link::Table => owner.intent(TableId(100 + next as u32), IntentMode::S, &WAIT).map(drop),
            Link::Conversion => owner.acquire(TABLE, key(&bytes), KeyMode::X, &WAIT),
        }
    }
}

/// Runs one cycle and returns how long it took to be resolved.
fn cycle(options: &LockOptions, links: &[Link]) -> Duration {
    let length = links.len();
    let manager = LockManager::new(options);
    let ready = Gate::new(length);
    let victims = Mutex::new(Vec::new());
    let began = Mutex::new(None);
    thread::scope(|scope| {
        for number in 0..length {
            let (manager, ready, victims, began) = (&manager, &ready, &victims, &began);
            scope.spawn(move || {
                let mut owner = begin(manager, number as u64);
                let next = (number + 1) % length;
                // What this one holds is wanted by the one before it, in its way.
                links[(number + length - 1) % length].hold(&mut owner, number, next);
                ready.wait();
                began.lock().get_or_insert_with(Instant::now);
                match links[number].want(&mut owner, next) {
                    Ok(()) => {}
                    Err(LockError::Deadlock(report)) => {
                        assert_eq!(report.victim, TxnId(number as u64));
                        assert_eq!(report.cycle.len(), length, "{report}");
                        for (edge, successor) in report.cycle.iter().zip(report.cycle.iter().cycle().skip(1))
                        {
                            assert_eq!((edge.txn.0 as usize + 1) % length, successor.txn.0 as usize);
                            let on_table = links[edge.txn.0 as usize] == Link::Table;
                            assert_eq!(matches!(edge.mode, LockMode::Table(_)), on_table);
                            assert_eq!(edge.held.is_some(), links[edge.txn.0 as usize] == Link::Conversion);
                        }
                        victims.lock().push(number);
                    }
                    Err(error) => panic!("{error}"),
                }
                owner.release_all(None);
            });
        }
    });
    assert_eq!(victims.into_inner(), [length - 1], "the youngest gives way, alone: {links:?}");
    let stats = manager.stats();
    assert_eq!(stats.deadlocks, 1);
    assert_eq!(manager.deadlocks().len(), 1);
    assert!(manager.is_empty() && manager.waiters().is_empty());
    let began: Option<Instant> = *began.lock();
    began.unwrap().elapsed()
}

#[test]
fn cycles_of_every_length_have_one_victim_the_youngest() {
    over_all_tables(|options| {
        let mut random = Xorshift::new(11);
        let mut times = Vec::new();
        for length in 2..=8 {
            for kind in [Link::Key, Link::Gap, Link::Table] {
                cycle(&options, &vec![kind; length]);
            }
            for _ in 0..6 {
                let kinds = [Link::Key, Link::Gap, Link::Table];
                let links: Vec<Link> = (0..length).map(|_| kinds[random.below(3) as usize]).collect();
                times.push(cycle(&options, &links));
            }
        }
        // The machine may have had better things to do for once.
        times.sort();
        assert!(times[times.len() / 2] < Duration::from_secs(1), "{times:?}");
        // Each shares one key with the one before it and one with the next, and wants the latter for itself.
        for length in 3..=8 {
            cycle(&options, &vec![Link::Conversion; length]);
        }
    });
}

/// The same under the policies of the gallery: their digests travel a step with each look, so that it takes longer.
#[test]
fn every_policy_that_detects_finds_one_victim_the_youngest() {
    for options in policies().filter(|options| options.deadlock.detects()) {
        for length in [2, 3, 6] {
            cycle(&options, &vec![Link::Key; length]);
            let mixed: Vec<Link> =
                [Link::Gap, Link::Table, Link::Key].into_iter().cycle().take(length).collect();
            cycle(&options, &mixed);
            if length > 2 {
                cycle(&options, &vec![Link::Conversion; length]);
            }
        }
    }
}

/// Cycles through tables, of every kind of intent locks.
#[test]
fn cycles_through_tables_are_found_whatever_the_intent_locks() {
    for options in intent_kinds() {
        for length in 2..=5 {
            cycle(&options, &vec![Link::Table; length]);
            let mixed: Vec<Link> =
                [Link::Table, Link::Gap, Link::Key].into_iter().cycle().take(length).collect();
            cycle(&options, &mixed);
        }
    }
}

/// S + S → X: of those that share a key and all want it for themselves, all but one must give way.
#[test]
fn all_but_one_of_converting_sharers_give_way() {
    over_all_tables(|options| {
        for sharers in 2..=6usize {
            let manager = LockManager::new(&options);
            let ready = Gate::new(sharers);
            let survivors = Mutex::new(Vec::new());
            thread::scope(|scope| {
                for number in 0..sharers {
                    let (manager, ready, survivors) = (&manager, &ready, &survivors);
                    scope.spawn(move || {
                        let mut owner = begin(manager, number as u64);
                        owner.acquire(TABLE, key(b"k"), KeyMode::S, &WAIT).unwrap();
                        ready.wait();
                        match owner.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT) {
                            Ok(()) => survivors.lock().push(number),
                            Err(LockError::Deadlock(report)) => {
                                assert_eq!(report.cycle.len(), 2);
                                assert!(report.to_string().contains("holding S"), "{report}");
                                assert_eq!(owner.held(TABLE, key(b"k")).unwrap(), KeyMode::S);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    });
                }
            });
            assert_eq!(survivors.into_inner().len(), 1);
            assert_eq!(manager.stats().deadlocks, sharers as u64 - 1);
            assert!(manager.is_empty());
        }
    });
}

/// The waiter that closes the cycle is not the victim: the other one is woken.
#[test]
fn a_sleeping_member_is_made_the_victim() {
    over_all_tables(|options| {
        let in_time = (0..10).any(|_| sleeping_victim(&options) < Duration::from_secs(1));
        assert!(in_time, "it takes too long, each time");
    });
}

/// How long it takes until the older one has what the sleeper held.
fn sleeping_victim(options: &LockOptions) -> Duration {
    let manager = LockManager::new(options);
    let mut old = begin(&manager, 1);
    old.acquire(TABLE, key(b"a"), KeyMode::X, &WAIT).unwrap();
    let took = thread::scope(|scope| {
        let young = scope.spawn(|| {
            let mut young = begin(&manager, 2);
            young.acquire(TABLE, key(b"b"), KeyMode::X, &WAIT).unwrap();
            young.acquire(TABLE, key(b"a"), KeyMode::X, &WAIT).unwrap_err()
        });
        until_waiting(&manager, 2);
        let began = Instant::now();
        old.acquire(TABLE, key(b"b"), KeyMode::X, &WAIT).unwrap();
        let took = began.elapsed();
        assert!(young.join().unwrap().is_retryable());
        took
    });
    drop(old);
    assert!(manager.is_empty());
    took
}

/// With the search switched off the same cycle lasts until the deadline: the tests above can fail.
#[test]
fn without_detection_a_deadlock_lasts_until_the_deadline() {
    over_all_tables(|options| {
        let manager = LockManager::new(&LockOptions { deadlock: DeadlockPolicy::Timeout, ..options });
        let ready = Gate::new(2);
        thread::scope(|scope| {
            for (own, next) in [(b"a", b"b"), (b"b", b"a")] {
                let (manager, ready) = (&manager, &ready);
                scope.spawn(move || {
                    let mut owner = begin(manager, u64::from(own[0]));
                    owner.acquire(TABLE, key(own), KeyMode::X, &WAIT).unwrap();
                    ready.wait();
                    let refused = owner.acquire(TABLE, key(next), KeyMode::X, &wait_for(100));
                    assert!(matches!(refused, Err(LockError::Timeout(_))), "{refused:?}");
                    ready.wait();
                });
            }
        });
        assert_eq!(manager.stats().deadlocks, 0);
        assert!(manager.is_empty());
    });
}

/// Kimura et al. 2012, Fig. 6: five resources in canonical order. Every deadlock would be a false one.
#[test]
fn canonical_order_has_no_deadlocks() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let ready = Gate::new(16);
        thread::scope(|scope| {
            for thread in 0..16u64 {
                let (manager, ready) = (&manager, &ready);
                scope.spawn(move || {
                    let mut random = Xorshift::new(thread + 1);
                    ready.wait();
                    for round in 0..150 {
                        let mut owner = begin(manager, thread << 32 | round);
                        owner.intent(TABLE, IntentMode::IX, &WAIT).unwrap();
                        let mut number = 0;
                        for _ in 0..5 {
                            number += 1 + random.below(3);
                            owner.acquire(TABLE, key(&number.to_be_bytes()), KeyMode::XN, &WAIT).unwrap();
                        }
                        if round % 4 == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
        });
        let stats = manager.stats();
        assert!(stats.waits > 0, "there was something to wait for");
        assert_eq!((stats.deadlocks, stats.timeouts), (0, 0), "{stats:?}");
        assert!(manager.is_empty());
    });
}

/// Three bits of 512 for each of 300 who wait in one queue are not told apart. Who sees itself
/// among those before it is in no cycle, and gives way only if nobody looks more closely.
#[test]
fn bloom_filters_clash_and_confirmation_refutes_that() {
    for confirm_deadlocks in [true, false] {
        let options = LockOptions { digests: DigestKind::Bloom, confirm_deadlocks, ..LockOptions::default() };
        let manager = LockManager::new(&options);
        let mut holder = begin(&manager, 1);
        holder.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap();
        let mut waiters: Vec<LockOwner> = (0..300).map(|number| begin(&manager, 2 + number)).collect();
        let mut given_way = 0;
        for waiter in &mut waiters {
            assert!(!waiter.ask(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap());
            match waiter.look(&WAIT) {
                Ok(granted) => assert!(!granted),
                Err(error) => panic!("its wait has ended already: {error}"),
            }
            // What the look has found is seen by the next one.
            given_way += u32::from(matches!(waiter.look(&WAIT), Err(LockError::Deadlock(_))));
        }
        let stats = manager.stats();
        assert_eq!(stats.deadlocks, 0);
        if confirm_deadlocks {
            assert!(given_way == 0 && stats.suspicions_refuted > 0, "{given_way} {stats:?}");
        } else {
            assert!(given_way > 0 && stats.precautions == u64::from(given_way), "{given_way} {stats:?}");
            let kept = manager.deadlocks();
            assert!(!kept.is_empty() && kept.iter().all(|report| report.reason == VictimReason::Suspicion));
        }
        drop((holder, waiters));
        assert!(manager.is_empty());
    }
}

/// One cycle was broken for each nap: where a hundred had read what somebody was going to change, and waited for what
/// it had locked before, it waited for a second, and all of them with it.
#[test]
fn all_cycles_that_somebody_closes_are_broken_at_once() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let mut old = begin(&manager, 1);
        old.acquire(TABLE, key(b"counter"), KeyMode::X, &WAIT).unwrap();
        let mut readers: Vec<LockOwner> = (0..100).map(|number| begin(&manager, 2 + number)).collect();
        for reader in &mut readers {
            reader.acquire(TABLE, key(b"row"), KeyMode::S, &WAIT).unwrap();
            assert!(!reader.ask(TABLE, key(b"counter"), KeyMode::X, &WAIT).unwrap());
            assert!(!reader.look(&WAIT).unwrap());
        }
        assert!(!old.ask(TABLE, key(b"row"), KeyMode::X, &WAIT).unwrap());
        assert!(!old.look(&WAIT).unwrap());
        assert_eq!(manager.stats().deadlocks, 100);
        for mut reader in readers {
            assert!(matches!(reader.look(&WAIT), Err(LockError::Deadlock(_))));
        }
        assert!(old.look(&WAIT).unwrap());
        drop(old);
        assert!(manager.is_empty());
    });
}

/// Who has to give way to one of those in its way breaks all cycles by that: the younger ones stay.
#[test]
fn who_gives_way_itself_keeps_others_from_giving_way() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let mut closes = begin(&manager, 100);
        closes.acquire(TABLE, key(b"counter"), KeyMode::X, &WAIT).unwrap();
        let ages = (200..210).chain([50]).chain(300..310);
        let mut readers: Vec<LockOwner> = ages.map(|age| begin(&manager, age)).collect();
        for reader in &mut readers {
            reader.acquire(TABLE, key(b"row"), KeyMode::S, &WAIT).unwrap();
            assert!(!reader.ask(TABLE, key(b"counter"), KeyMode::X, &WAIT).unwrap());
        }
        assert!(!closes.ask(TABLE, key(b"row"), KeyMode::X, &WAIT).unwrap());
        assert!(!closes.look(&WAIT).unwrap());
        assert!(matches!(closes.look(&WAIT), Err(LockError::Deadlock(_))));
        assert_eq!(manager.stats().deadlocks, 1);
        drop(closes);
        assert!(readers[0].look(&WAIT).unwrap());
        drop(readers);
        assert!(manager.is_empty());
    });
}

#[test]
fn the_newest_reports_are_kept() {
    over_all_tables(|options| {
        let manager = LockManager::new(&LockOptions { history: 3, ..options });
        for round in 0..5u64 {
            let mut old = begin(&manager, 10 * round);
            old.acquire(TABLE, key(b"a"), KeyMode::X, &WAIT).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let label = Some(format!("round {round}").into());
                    let mut young = manager.begin(TxnId(10 * round + 1), Age::new(99, 0), label).unwrap();
                    young.acquire(TABLE, key(b"b"), KeyMode::X, &WAIT).unwrap();
                    assert!(young.acquire(TABLE, key(b"a"), KeyMode::X, &WAIT).is_err());
                });
                until_waiting(&manager, 10 * round + 1);
                old.acquire(TABLE, key(b"b"), KeyMode::X, &WAIT).unwrap();
            });
        }
        let victims: Vec<u64> = manager.deadlocks().iter().map(|report| report.victim.0).collect();
        assert_eq!(victims, [21, 31, 41]);
        let text = manager.deadlocks()[0].to_string();
        assert!(
            text.contains("transaction 21 (round 2) waited") && text.contains("key \"a\" of table 16"),
            "{text}"
        );
    });
}
