//! Intent locks: every short history of three transactions, and races.

use foreshore_base::{TableId, TxnId};
use foreshore_env::random::Xorshift;
use foreshore_env::sync::Mutex;
use foreshore_env::sync::atomic::{AtomicU64, Ordering};
use foreshore_env::thread;
use foreshore_env::time::Duration;
use foreshore_lock::{CancelToken, IntentMode, LockError, LockManager, LockOptions, LockOwner, WaitPolicy};

use super::{NO_WAIT, TABLE, WAIT, begin, intent_kinds, wait_for};

const OTHER: TableId = TableId(7);

/// Who asks without sleeping stands in the queue as others do: newcomers do not pass, and however the wait ends, those
/// behind it go on.
#[test]
fn who_asks_for_a_table_and_does_not_sleep_stands_in_its_queue() {
    for options in intent_kinds() {
        let manager = LockManager::new(&options);
        let [mut reader, mut asker, mut newcomer] = [1, 2, 3].map(|txn| begin(&manager, txn));
        for ending in ["granted", "cancelled", "late", "handed over", "at its end"] {
            reader.intent(TABLE, IntentMode::IX, &WAIT).unwrap();
            asker.intent(TABLE, IntentMode::IS, &WAIT).unwrap();
            asker.intent(OTHER, IntentMode::IX, &WAIT).unwrap();
            assert!(!asker.ask_intent(TABLE, IntentMode::S, &WAIT).unwrap(), "{options:?}");
            assert!(!asker.look(&WAIT).unwrap());
            let held = asker.held_intent(TABLE);
            assert_eq!(held, Some(IntentMode::IS));
            let refused = newcomer.intent(TABLE, IntentMode::IX, &NO_WAIT);
            assert!(matches!(refused, Err(LockError::WouldBlock(_))), "{options:?}");
            let token = CancelToken::new();
            token.cancel();
            match ending {
                "granted" => {
                    reader.release_all(None);
                    assert!(asker.look(&WAIT).unwrap(), "{options:?}");
                    assert_eq!(asker.held_intent(TABLE), Some(IntentMode::S));
                    assert!(asker.ask_intent(TABLE, IntentMode::S, &WAIT).unwrap());
                }
                "cancelled" => {
                    let policy = WaitPolicy { cancel: Some(&token), ..WAIT };
                    assert!(matches!(asker.look(&policy), Err(LockError::Cancelled)));
                    assert_eq!(asker.held_intent(TABLE), held);
                }
                "late" => {
                    let policy = WaitPolicy { timeout: Some(Duration::ZERO), ..WAIT };
                    assert!(matches!(asker.look(&policy), Err(LockError::Timeout(_))));
                }
                "handed over" => {
                    asker = asker.hand_over();
                    assert!(!asker.look(&WAIT).unwrap());
                }
                _ => {}
            }
            asker.release_all(None);
            assert!(newcomer.intent(TABLE, IntentMode::IX, &NO_WAIT).is_ok(), "{options:?}, {ending}");
            newcomer.release_all(None);
            // A queue without S: it is free for whoever comes.
            reader.release_all(None);
            assert!(asker.ask_intent(TABLE, IntentMode::X, &WAIT).unwrap());
            // Dropped in the middle of a wait.
            let mut dropped = begin(&manager, 4);
            assert!(!dropped.ask_intent(TABLE, IntentMode::X, &WAIT).unwrap());
            drop(dropped);
            asker.release_all(None);
        }
        // Nobody passes who waits for the whole.
        reader.intent(TABLE, IntentMode::IX, &WAIT).unwrap();
        assert!(!asker.ask_intent(TABLE, IntentMode::X, &WAIT).unwrap());
        assert!(matches!(newcomer.intent(TABLE, IntentMode::IX, &NO_WAIT), Err(LockError::WouldBlock(_))));
        drop((reader, asker, newcomer));
        assert!(manager.is_empty(), "{options:?}");
    }
}

/// All histories of four steps, each by one of three transactions: ask for one of five modes without waiting, or
/// release.
#[test]
fn every_short_history_agrees_with_the_table() {
    intent_kinds().for_each(|options| every_short_history(&options));
}

fn every_short_history(options: &LockOptions) {
    let manager = LockManager::new(options);
    const CHOICES: usize = 3 * 6;
    let mut owners: Vec<LockOwner> = (0..3).map(|txn| begin(&manager, txn)).collect();
    let mut granted_in_all = 0;
    for history in 0..CHOICES.pow(4) {
        let mut held: [Option<IntentMode>; 3] = [None; 3];
        let mut rest = history;
        for _ in 0..4 {
            let (txn, choice) = (rest % CHOICES / 6, rest % 6);
            rest /= CHOICES;
            let Some(&mode) = IntentMode::ALL.get(choice) else {
                owners[txn].release_all(None);
                held[txn] = None;
                continue;
            };
            let wanted = held[txn].map_or(mode, |held| held.join(mode));
            let free =
                (0..3).all(|other| other == txn || held[other].is_none_or(|mode| mode.compatible(wanted)));
            let granted = owners[txn].intent(TABLE, mode, &NO_WAIT).is_ok();
            assert_eq!(granted, free, "history {history}: {held:?}, transaction {txn} asks for {mode}");
            if granted {
                held[txn] = Some(wanted);
                granted_in_all += 1;
            }
            assert_eq!(owners[txn].held_intent(TABLE), held[txn]);
        }
        owners.iter_mut().for_each(|owner| owner.release_all(None));
        if history % 1000 == 0 {
            assert!(manager.is_empty());
        }
    }
    assert!(granted_in_all > 0 && manager.is_empty());
}

#[test]
fn many_tables_and_the_volume_are_told_apart() {
    intent_kinds().for_each(|options| many_tables(&options));
}

fn many_tables(options: &LockOptions) {
    let manager = LockManager::new(options);
    let (mut a, mut b) = (begin(&manager, 1), begin(&manager, 2));
    let tables: Vec<TableId> = (0..200).map(|number| TableId(number * 3)).chain([TableId::VOLUME]).collect();
    for (place, &table) in tables.iter().enumerate() {
        a.intent(table, IntentMode::X, &NO_WAIT).unwrap();
        if let Some(&next) = tables.get(place + 1) {
            b.intent(next, IntentMode::IS, &NO_WAIT).unwrap();
            b.release_all(None);
        }
        let blocked = b.intent(tables[place / 2], IntentMode::IS, &NO_WAIT);
        assert!(matches!(&blocked, Err(LockError::WouldBlock(by)) if by.len() == 1), "{place} {blocked:?}");
    }
    drop((a, b));
    assert!(manager.is_empty());
}

/// An absolute request that gives up takes its announcement back.
#[test]
fn an_absolute_request_that_times_out_leaves_nothing() {
    intent_kinds().for_each(|options| absolute_request_times_out(&options));
}

fn absolute_request_times_out(options: &LockOptions) {
    // A thread that is late finds the request gone: it looks again, at one that waits longer.
    let is_seen = (0..9).any(|tries| announcement_holds_newcomers_off(options, 80 << tries));
    assert!(is_seen, "nobody was seen to wait: {options:?}");
}

/// Whether the request still waited when the newcomer had been refused.
fn announcement_holds_newcomers_off(options: &LockOptions, milliseconds: u64) -> bool {
    let manager = LockManager::new(options);
    let mut reader = begin(&manager, 1);
    reader.intent(TABLE, IntentMode::IX, &WAIT).unwrap();
    let is_seen = thread::scope(|scope| {
        let scanner = scope.spawn(|| {
            let mut scanner = begin(&manager, 2);
            scanner.intent(TABLE, IntentMode::IS, &WAIT).unwrap();
            let refused = scanner.intent(TABLE, IntentMode::S, &wait_for(milliseconds));
            assert!(matches!(refused, Err(LockError::Timeout(_))));
            assert_eq!(scanner.held_intent(TABLE), Some(IntentMode::IS));
        });
        let waits = || manager.waiters().iter().any(|(txn, _)| *txn == TxnId(2));
        while !waits() && !scanner.is_finished() {
            thread::yield_now();
        }
        // A conversion that waits holds nobody off but by what it holds: those in its way must be able to end.
        reader.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
        let mut late = begin(&manager, 3);
        let blocked = late.intent(TABLE, IntentMode::IX, &NO_WAIT);
        let is_seen = waits();
        let refused = matches!(blocked, Err(LockError::WouldBlock(_)));
        assert!(refused || !is_seen, "newcomers stand behind the announcement");
        scanner.join().unwrap();
        late.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
        is_seen
    });
    drop(reader);
    assert!(manager.is_empty());
    is_seen
}

/// Streams of intents and of absolute locks beside each other, and neither starves.
#[test]
fn neither_intents_nor_absolute_locks_starve() {
    intent_kinds().for_each(|options| neither_starves(&options));
}

fn neither_starves(options: &LockOptions) {
    let manager = LockManager::new(options);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for (thread, mode) in
            [IntentMode::IX, IntentMode::IX, IntentMode::S, IntentMode::X, IntentMode::S, IntentMode::IS]
                .into_iter()
                .enumerate()
        {
            let (manager, done) = (&manager, &done);
            scope.spawn(move || {
                for round in 0..60 {
                    let mut owner = begin(manager, thread as u64 * 100 + round);
                    owner.intent(TABLE, mode, &wait_for(120_000)).unwrap();
                    if round % 8 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.into_inner(), 6);
    assert!(manager.is_empty());
}

/// Threads ask for random modes and conversions, some with short deadlines; a shadow sees every grant.
#[test]
fn a_storm_of_intents_agrees_with_a_shadow() {
    intent_kinds().for_each(|options| storm(&options));
}

fn storm(options: &LockOptions) {
    let manager = LockManager::new(options);
    let shadow: Vec<Mutex<Vec<(u64, IntentMode)>>> = (0..3).map(|_| Mutex::default()).collect();
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let (manager, shadow) = (&manager, &shadow);
            scope.spawn(move || {
                let mut random = Xorshift::new(thread + 1);
                for round in 0..300 {
                    let txn = thread << 32 | round;
                    let mut owner = begin(manager, txn);
                    for _ in 0..3 {
                        let table = random.below(3) as usize;
                        let mode = IntentMode::ALL[[0, 0, 1, 1, 1, 2, 3, 4][random.below(8) as usize]];
                        let policy = if random.below(4) == 0 { wait_for(random.below(3)) } else { WAIT };
                        match owner.intent(TableId(table as u32), mode, &policy) {
                            Ok(_) => {
                                let mode = owner.held_intent(TableId(table as u32)).unwrap();
                                let mut holders = shadow[table].lock();
                                holders.retain(|(other, _)| *other != txn);
                                let compatible = holders.iter().all(|(_, held)| held.compatible(mode));
                                assert!(compatible, "{holders:?} {mode}");
                                holders.push((txn, mode));
                            }
                            Err(LockError::Timeout(_)) => {}
                            Err(LockError::Deadlock(_)) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    shadow.iter().for_each(|holders| holders.lock().retain(|(other, _)| *other != txn));
                    owner.release_all(None);
                }
            });
        }
    });
    assert!(manager.is_empty());
}
