//! What a pipeline needs: locks that outlive their transaction, shared ones that need not, victims by the length of
//! pipelines.

use std::panic::Location;

use foreshore_base::{Lsn, TableId, TxnId};
use foreshore_env::sync::Mutex;
use foreshore_env::thread;
use foreshore_lock::{Age, IntentMode, KeyMode, LockError, LockManager, LockOptions, VictimPolicy};

use super::{Gate, NO_WAIT, TABLE, WAIT, begin, key, over_all_tables, until_waiting};

/// More than a slot publishes without a mutex.
const TABLES: u32 = 40;

#[test]
fn what_is_handed_over_is_held_until_the_heir_releases_it() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let mut first = begin(&manager, 1);
        first.acquire(TABLE, key(b"a"), KeyMode::XN, &WAIT).unwrap();
        first.intent(TABLE, IntentMode::IX, &WAIT).unwrap();
        let mut heir = first.hand_over();
        drop(first);
        let mut other = begin(&manager, 2);
        assert!(!other.try_acquire(TABLE, key(b"a"), KeyMode::SN).unwrap());
        assert!(other.intent(TABLE, IntentMode::S, &NO_WAIT).is_err());

        heir.renew(TxnId(3), Age::new(3, 0), Some("third".into()), 1, Location::caller());
        assert_eq!((heir.txn(), heir.held(TABLE, key(b"a")).unwrap()), (TxnId(3), KeyMode::XN));
        heir.acquire(TABLE, key(b"b"), KeyMode::XN, &WAIT).unwrap();
        let error = other.acquire(TABLE, key(b"b"), KeyMode::SN, &NO_WAIT).unwrap_err();
        assert!(error.to_string().contains("transaction 3 (third)"), "{error}");
        heir.release_all(None);
        assert!(other.try_acquire(TABLE, key(b"a"), KeyMode::SN).unwrap());
        drop((heir, other));
        assert!(manager.is_empty());
        let next = begin(&manager, 4);
        assert_eq!(next.max_tag(), Lsn::ZERO);
    });
}

#[test]
fn who_has_waited_says_so_and_the_next_of_its_pipeline_does_not() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let (mut holder, mut waiter) = (begin(&manager, 1), begin(&manager, 2));
        holder.acquire(TABLE, key(b"a"), KeyMode::X, &WAIT).unwrap();
        assert!(!waiter.ask(TABLE, key(b"a"), KeyMode::S, &WAIT).unwrap());
        holder.release_all(None);
        assert!(waiter.look(&WAIT).unwrap() && waiter.has_waited());
        let mut heir = waiter.hand_over();
        heir.renew(TxnId(3), Age::new(3, 0), None, 1, Location::caller());
        assert!(!heir.has_waited());
        drop(heir);
    });
}

#[test]
fn shared_locks_go_alone_and_exclusive_ones_stay() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let mut owner = begin(&manager, 1);
        let modes: Vec<KeyMode> = KeyMode::ALL.into_iter().filter(|&mode| mode != KeyMode::N).collect();
        for round in 0..100u32 {
            for (number, &mode) in modes.iter().enumerate() {
                let name = [round.to_be_bytes().as_slice(), &[number as u8]].concat();
                owner.acquire(TABLE, key(&name), mode, &WAIT).unwrap();
            }
        }
        use IntentMode::{IS, IX, S, SIX, X};
        let intents = |table: u32| [IS, IX, S, SIX, X][table as usize % 5];
        for table in 100..100 + TABLES {
            owner.intent(TableId(table), intents(table), &WAIT).unwrap();
        }
        owner.release_shared();

        let mut other = begin(&manager, 2);
        for round in 0..100u32 {
            for (number, &mode) in modes.iter().enumerate() {
                let name = [round.to_be_bytes().as_slice(), &[number as u8]].concat();
                let kept = if mode.is_exclusive() { mode } else { KeyMode::N };
                assert_eq!(owner.held(TABLE, key(&name)).unwrap(), kept);
                assert_eq!(other.try_acquire(TABLE, key(&name), KeyMode::X).unwrap(), !mode.is_exclusive());
            }
        }
        for table in 100..100 + TABLES {
            let kept = intents(table).writes();
            assert_eq!(owner.held_intent(TableId(table)), kept.then_some(intents(table)), "{table}");
            match other.intent(TableId(table), X, &NO_WAIT) {
                Ok(_) => assert!(!kept, "{table}"),
                Err(LockError::WouldBlock(holders)) => {
                    assert!(kept && holders.len() == 1 && holders[0].txn == TxnId(1), "{table}: {holders:?}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        // The places that became free are used again, and what is there is seen.
        owner.intent(TableId(300), S, &WAIT).unwrap();
        let error = other.intent(TableId(300), IX, &NO_WAIT).unwrap_err();
        assert!(matches!(&error, LockError::WouldBlock(holders) if holders[0].txn == TxnId(1)), "{error}");
        owner.release_all(Some(Lsn(77)));
        other.acquire(TABLE, key(&[0, 0, 0, 0, 1]), KeyMode::X, &WAIT).unwrap();
        assert_eq!(other.max_tag(), Lsn(77), "what stayed leaves its tag when it goes");
        drop((owner, other));
        assert!(manager.is_empty());
    });
}

#[test]
fn a_restored_lock_is_like_the_one_that_it_was() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let mut before = begin(&manager, 1);
        before.acquire(TABLE, key(b"a"), KeyMode::XS, &WAIT).unwrap();
        let names: Vec<_> = before.held_names().collect();
        drop(before);
        let mut after = begin(&manager, 2);
        for (name, mode) in names {
            after.restore(name, mode).unwrap();
            assert!(begin(&manager, 3).restore(name, KeyMode::SN).is_err(), "somebody else has it");
        }
        assert_eq!(after.held(TABLE, key(b"a")).unwrap(), KeyMode::XS);
        drop(after);
        assert!(manager.is_empty());
    });
}

/// Two transactions, each with what the other wants; the lengths of their pipelines; who dies.
fn victim(policy: VictimPolicy, lengths: [u32; 2]) -> u64 {
    let manager = LockManager::new(&LockOptions { victim: policy, ..LockOptions::default() });
    let ready = Gate::new(2);
    let victims = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in [0u64, 1] {
            let (manager, ready, victims) = (&manager, &ready, &victims);
            scope.spawn(move || {
                let mut owner = begin(manager, 100 + number);
                let (age, length) = (Age::new(number, 0), lengths[number as usize]);
                owner.renew(TxnId(number), age, None, length, Location::caller());
                owner.acquire(TABLE, key(&[number as u8]), KeyMode::XN, &WAIT).unwrap();
                ready.wait();
                if number == 1 {
                    until_waiting(manager, 0);
                }
                if let Err(error) = owner.acquire(TABLE, key(&[1 - number as u8]), KeyMode::XN, &WAIT) {
                    assert!(matches!(error, LockError::Deadlock(_)), "{error}");
                    victims.lock().push(number);
                }
            });
        }
    });
    let victims = victims.lock().clone();
    assert_eq!(victims.len(), 1);
    victims[0]
}

#[test]
fn pipelines_give_way_by_their_length() {
    use VictimPolicy::{LongestPipeline, ShortestPipeline, Youngest};
    for (policy, lengths, expected) in [
        (Youngest, [9, 1], 1),
        (Youngest, [1, 9], 1),
        (ShortestPipeline, [9, 1], 1),
        (ShortestPipeline, [1, 9], 0),
        (ShortestPipeline, [5, 5], 1),
        (LongestPipeline, [9, 1], 0),
        (LongestPipeline, [1, 9], 1),
        (LongestPipeline, [0, 0], 1),
    ] {
        assert_eq!(victim(policy, lengths), expected, "{policy:?} {lengths:?}");
    }
}
