//! What one thread sees: grants, refusals, conversions, limits, tags.

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_base::{Lsn, TableId, TxnId};
use foreshore_lock::{
    Age, IntentLockKind, IntentMode, KeyMode, KeyRangeModes, KeyRef, LockError, LockManager, LockMode,
    LockOptions,
};

use super::{NO_WAIT, TABLE, WAIT, begin, intent_kinds, key, over_all_tables, wait_for};

/// Every pair of modes on one key, by two transactions: granted exactly if compatible; and nothing is left behind.
#[test]
fn pairs_of_modes_are_granted_if_compatible() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        for one in KeyMode::ALL {
            for other in KeyMode::ALL {
                let (mut a, mut b) = (begin(&manager, 1), begin(&manager, 2));
                a.acquire(TABLE, key(b"k"), one, &WAIT).unwrap();
                assert_eq!(b.check(TABLE, key(b"k"), other), one.compatible(other));
                assert!(a.check(TABLE, key(b"k"), other), "own locks do not count");
                assert_eq!(b.try_acquire(TABLE, key(b"k"), other).unwrap(), one.compatible(other));
                let expected = if one.compatible(other) { other } else { KeyMode::N };
                assert_eq!(b.held(TABLE, key(b"k")).unwrap(), expected);
                assert_eq!(b.lock_count(), usize::from(expected != KeyMode::N));
                match b.acquire(TABLE, key(b"k"), other, &NO_WAIT) {
                    Ok(()) => assert!(one.compatible(other)),
                    Err(LockError::WouldBlock(holders)) => {
                        assert!(!one.compatible(other));
                        assert_eq!(holders.len(), 1);
                        assert_eq!((holders[0].txn, holders[0].mode), (TxnId(1), LockMode::Key(one)));
                    }
                    Err(error) => panic!("{error}"),
                }
                drop((a, b));
                assert!(manager.is_empty());
            }
        }
    });
}

/// What two of Lomet's modes make together may be none of his: XN and S were XS.
#[test]
fn what_is_held_is_a_mode_of_the_set() {
    over_all_tables(|options| {
        for key_ranges in KeyRangeModes::ALL {
            let manager = LockManager::new(&LockOptions { key_ranges, ..options.clone() });
            for first in KeyMode::ALL {
                for second in KeyMode::ALL {
                    let mut owner = begin(&manager, 1);
                    owner.acquire(TABLE, key(b"k"), first, &NO_WAIT).unwrap();
                    owner.acquire(TABLE, key(b"k"), second, &NO_WAIT).unwrap();
                    let held = owner.held(TABLE, key(b"k")).unwrap();
                    assert!(held.covers(first.join(second)));
                    assert_eq!(key_ranges.widen(held), held, "{key_ranges:?}: {first}, then {second}");
                }
            }
        }
    });
}

/// Every pair of modes one after the other by one transaction, beside every mode of another: what is held is the join,
/// or what was held before.
#[test]
fn conversions_add_up() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        for first in KeyMode::ALL {
            for second in KeyMode::ALL {
                for others in KeyMode::ALL.into_iter().filter(|mode| mode.compatible(first)) {
                    let (mut a, mut b) = (begin(&manager, 1), begin(&manager, 2));
                    a.acquire(TABLE, key(b"k"), first, &NO_WAIT).unwrap();
                    b.acquire(TABLE, key(b"k"), others, &NO_WAIT).unwrap();
                    let joined = first.join(second);
                    let granted = a.acquire(TABLE, key(b"k"), second, &NO_WAIT).is_ok();
                    assert_eq!(granted, joined.compatible(others), "{first} {second} {others}");
                    assert_eq!(a.held(TABLE, key(b"k")).unwrap(), if granted { joined } else { first });
                    drop(b);
                    assert!(a.try_acquire(TABLE, key(b"k"), second).unwrap());
                    assert_eq!(a.held(TABLE, key(b"k")).unwrap(), joined);
                    assert_eq!(a.held_names().collect::<Vec<_>>().len(), a.lock_count());
                }
            }
        }
        assert!(manager.is_empty());
    });
}

#[test]
fn names_tell_tables_keys_and_the_low_end_apart() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let (mut a, mut b) = (begin(&manager, 1), begin(&manager, 2));
        let keys = [KeyRef::NegativeInfinity, key(b""), key(b"\0"), key(b"a"), key(&[7; 2048])];
        for (place, own) in keys.into_iter().enumerate() {
            a.acquire(TABLE, own, KeyMode::X, &NO_WAIT).unwrap();
            for (other_place, other) in keys.into_iter().enumerate() {
                assert_eq!(b.check(TABLE, other, KeyMode::X), other_place > place);
                assert!(b.check(TableId(17), other, KeyMode::X));
            }
        }
        assert!(manager.has_requests(TABLE, KeyRef::NegativeInfinity));
        assert!(!manager.has_requests(TableId(17), KeyRef::NegativeInfinity));
        b.acquire(TableId(17), keys[0], KeyMode::X, &NO_WAIT).unwrap();
        a.release_all(None);
        assert!(!manager.has_requests(TABLE, KeyRef::NegativeInfinity) && !manager.is_empty());
        drop(b);
        assert!(manager.is_empty());
    });
}

#[test]
fn limits_are_errors_and_the_engine_goes_on() {
    over_all_tables(|options| {
        let options = LockOptions { max_locks_per_transaction: 700, max_locks: 512, ..options };
        let manager = LockManager::new(&options);
        let (mut a, mut b) = (begin(&manager, 1), begin(&manager, 2));
        let name = |number: u32| number.to_be_bytes();
        for number in 0..700 {
            a.acquire(TABLE, key(&name(number)), KeyMode::S, &NO_WAIT).unwrap();
        }
        let refused = a.acquire(TABLE, key(&name(700)), KeyMode::S, &NO_WAIT);
        assert!(matches!(refused, Err(LockError::TooManyLocks { limit: 700 })), "{refused:?}");
        assert!(matches!(
            a.try_acquire(TABLE, key(&name(700)), KeyMode::S),
            Err(LockError::TooManyLocks { .. })
        ));
        // What is held can still be used and strengthened.
        a.acquire(TABLE, key(&name(3)), KeyMode::X, &NO_WAIT).unwrap();
        assert_eq!(a.lock_count(), 700);
        // The first transaction has borrowed both segments; the second one has its own 256 nevertheless.
        for number in 1000..1256 {
            b.acquire(TABLE, key(&name(number)), KeyMode::X, &NO_WAIT).unwrap();
        }
        let refused = b.acquire(TABLE, key(&name(1256)), KeyMode::X, &NO_WAIT);
        assert!(matches!(refused, Err(LockError::TooManyLocks { limit: 512 })), "{refused:?}");
        a.release_all(None);
        b.acquire(TABLE, key(&name(1256)), KeyMode::X, &NO_WAIT).unwrap();
        drop((a, b));
        assert!(manager.is_empty());
        assert_eq!(manager.stats().released, 957);
    });
}

/// Requests are handed out by the segment: the smallest limit is one of them, beside what everybody is sure of.
#[test]
fn a_limit_is_rounded_up_to_what_is_handed_out_at_a_time() {
    over_all_tables(|options| {
        for (max_locks, limit) in [(1, 256), (256, 256), (257, 512)] {
            let manager = LockManager::new(&LockOptions { max_locks, ..options.clone() });
            let mut owner = begin(&manager, 1);
            let mut acquire =
                |number: u32| owner.acquire(TABLE, key(&number.to_be_bytes()), KeyMode::S, &NO_WAIT);
            (0..256 + limit).for_each(|number| acquire(number).unwrap());
            let refused = acquire(256 + limit);
            assert!(
                matches!(refused, Err(LockError::TooManyLocks { limit: told }) if told == limit as usize),
                "{max_locks}: {refused:?}"
            );
            drop(owner);
            assert!(manager.is_empty());
        }
    });
}

#[test]
fn transactions_are_limited_and_slots_come_back() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let mut owners: Vec<_> = (0..MAX_TRANSACTIONS as u64).map(|txn| begin(&manager, txn)).collect();
        let refused = manager.begin(TxnId(9999), Age::new(0, 0), None);
        assert!(matches!(refused, Err(LockError::TooManyTransactions { limit: MAX_TRANSACTIONS })));
        for owner in &mut owners {
            owner.acquire(TABLE, key(b"shared"), KeyMode::S, &NO_WAIT).unwrap();
        }
        let freed = owners.remove(517);
        drop(freed);
        let again = begin(&manager, 5000);
        assert_eq!(again.txn(), TxnId(5000));
        drop((owners, again));
        assert!(manager.is_empty());
    });
}

/// Safe SX-ELR (Kimura et al. 2012, Alg. 6 and 7): who comes to see what an early release left undurable knows its LSN.
#[test]
fn early_release_leaves_tags_where_something_may_have_changed() {
    over_all_tables(|options| {
        let manager = LockManager::new(&LockOptions { buckets: 1 << 16, ..options });
        let mut writer = begin(&manager, 1);
        writer.acquire(TABLE, key(b"written"), KeyMode::XN, &NO_WAIT).unwrap();
        writer.acquire(TABLE, key(b"gap"), KeyMode::SX, &NO_WAIT).unwrap();
        writer.acquire(TABLE, key(b"read"), KeyMode::S, &NO_WAIT).unwrap();
        writer.release_all(Some(Lsn(700)));
        drop(writer);
        let seen = |bytes: &[u8]| {
            let mut reader = begin(&manager, 2);
            reader.acquire(TABLE, key(bytes), KeyMode::S, &NO_WAIT).unwrap();
            let tag = reader.max_tag();
            reader.release_all(None);
            assert_eq!(reader.max_tag(), tag, "it is asked for after the release");
            tag
        };
        assert_eq!([seen(b"written"), seen(b"gap"), seen(b"read")], [Lsn(700), Lsn(700), Lsn::ZERO]);
        assert_eq!(manager.tag(TABLE, key(b"written")), Lsn(700));
        // Tags only grow, survive the emptiness of the queue, and are not left by a rollback.
        let mut writer = begin(&manager, 3);
        writer.acquire(TABLE, key(b"written"), KeyMode::X, &NO_WAIT).unwrap();
        writer.release_all(Some(Lsn(600)));
        writer.acquire(TABLE, key(b"read"), KeyMode::X, &NO_WAIT).unwrap();
        writer.release_all(None);
        assert_eq!([seen(b"written"), seen(b"read")], [Lsn(700), Lsn::ZERO]);
        // A conversion sees the tag too: the first lock may have been for another part.
        let mut reader = begin(&manager, 4);
        reader.acquire(TABLE, key(b"late"), KeyMode::NS, &NO_WAIT).unwrap();
        let mut other = begin(&manager, 5);
        other.acquire(TABLE, key(b"late"), KeyMode::XN, &NO_WAIT).unwrap();
        other.release_all(Some(Lsn(900)));
        assert_eq!(reader.max_tag(), Lsn::ZERO);
        reader.acquire(TABLE, key(b"late"), KeyMode::SN, &NO_WAIT).unwrap();
        assert_eq!(reader.max_tag(), Lsn(900));
    });
}

#[test]
fn tables_have_tags_for_themselves_and_for_what_is_below() {
    use IntentMode::{IS, IX, S, SIX, X};
    for options in intent_kinds() {
        for (released, intents_see, absolutes_see) in
            [(IS, 0, 0), (S, 0, 0), (IX, 0, 50), (SIX, 0, 50), (X, 50, 50)]
        {
            let manager = LockManager::new(&options);
            let mut writer = begin(&manager, 1);
            writer.intent(TABLE, released, &NO_WAIT).unwrap();
            writer.release_all(Some(Lsn(50)));
            for mode in IntentMode::ALL {
                let mut reader = begin(&manager, 2);
                reader.intent(TABLE, mode, &NO_WAIT).unwrap();
                let expected = if mode.is_absolute() { absolutes_see } else { intents_see };
                assert_eq!(reader.max_tag(), Lsn(expected), "{:?}: {released} then {mode}", options.intents);
            }
            assert!(manager.is_empty());
        }
    }
}

/// Many tables, more than any one keeps tags apart for: a reader of a table sees its newest change, and may see more
/// than that, never less.
#[test]
fn tags_of_many_tables_are_never_too_low() {
    for options in intent_kinds() {
        let manager = LockManager::new(&options);
        let mut newest = [0; 30];
        let mut exact = 0;
        for lsn in 1..200u64 {
            let table = (lsn * 7 % 30) as usize;
            let mut writer = begin(&manager, lsn);
            writer.intent(TableId(table as u32), IntentMode::IX, &NO_WAIT).unwrap();
            writer.release_all(Some(Lsn(lsn)));
            newest[table] = lsn;
            let asked = (lsn * 11 % 30) as usize;
            let mut reader = begin(&manager, 1000 + lsn);
            reader.intent(TableId(asked as u32), IntentMode::S, &NO_WAIT).unwrap();
            assert!(reader.max_tag() >= Lsn(newest[asked]) && reader.max_tag() <= Lsn(lsn));
            exact += u32::from(reader.max_tag() == Lsn(newest[asked]));
        }
        assert!(exact == 199 || options.intents == IntentLockKind::Private && exact > 10, "{exact} of 199");
    }
}

#[test]
fn errors_name_those_in_the_way() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let mut payroll = manager.begin(TxnId(1), Age::new(1, 0), Some("payroll".into())).unwrap();
        payroll.acquire(TABLE, key(b"k"), KeyMode::XN, &NO_WAIT).unwrap();
        payroll.intent(TABLE, IntentMode::X, &NO_WAIT).unwrap();
        let mut other = begin(&manager, 2);
        let timeout = other.acquire(TABLE, key(b"k"), KeyMode::S, &wait_for(3)).unwrap_err();
        assert!(timeout.to_string().contains("transaction 1 (payroll) in mode XN"), "{timeout}");
        let blocked = other.intent(TABLE, IntentMode::IS, &NO_WAIT).unwrap_err();
        assert!(blocked.to_string().contains("transaction 1 (payroll) in mode X"), "{blocked}");
        assert!(!timeout.is_retryable() && !blocked.is_retryable());
        drop(payroll);
        // The label goes with its transaction.
        let mut next = begin(&manager, 3);
        next.acquire(TABLE, key(b"k"), KeyMode::X, &NO_WAIT).unwrap();
        let blocked = other.acquire(TABLE, key(b"k"), KeyMode::S, &NO_WAIT).unwrap_err();
        assert!(blocked.to_string().contains("transaction 3 in mode X"), "{blocked}");
        drop((other, next));
        assert!(manager.is_empty());
    });
}
