//! Views: what they show of a scene that stands still, and that what they show of a storm fits together (LOCK-12).

use std::collections::HashMap;

use foreshore_base::{TableId, TxnId};
use foreshore_env::random::Xorshift;
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicBool, Ordering};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};
use foreshore_lock::{
    Age, CancelToken, IntentMode, KeyBytes, KeyMode, KeyRangeModes, KeyRef, LockError, LockManager, LockMode,
    LockOptions, LockOwner, LockTarget, LockView, MAX_BLOCKERS, VictimReason, WaitPolicy, WaitView,
};

use super::{FAR, NO_WAIT, TABLE, WAIT, key, over_all_kinds, over_all_tables, until_waiting};

fn with_notes(options: &LockOptions) -> LockOptions {
    LockOptions { keep_notes: true, ..options.clone() }
}

#[track_caller]
fn begin(manager: &Arc<LockManager>, txn: u64, label: &str) -> LockOwner {
    manager.begin(TxnId(txn), Age::new(txn, 0), Some(label.into())).unwrap()
}

fn target(bytes: &[u8]) -> LockTarget {
    LockTarget::Key(TABLE, KeyBytes::new(bytes))
}

/// Transaction, target and modes, sorted for comparison.
fn rows(locks: &[LockView]) -> Vec<String> {
    let row = |lock: &LockView| {
        let mode = |mode: Option<LockMode>| mode.map_or("-".to_owned(), |mode| mode.to_string());
        let target = match lock.target {
            LockTarget::Table(table) => format!("table {table}"),
            LockTarget::Key(table, key) => format!("{key} of {table}"),
            LockTarget::BeforeAll(table) => format!("before all of {table}"),
            LockTarget::Name(_) => "?".to_owned(),
        };
        format!("{} {target} {} {}", lock.transaction.id, mode(lock.granted), mode(lock.wanted))
    };
    let mut rows: Vec<String> = locks.iter().map(row).collect();
    rows.sort();
    rows
}

/// The wait of a transaction, once it waits.
fn wait_of(manager: &LockManager, txn: u64) -> WaitView {
    until_waiting(manager, txn);
    manager.wait_of(TxnId(txn)).expect("it waits")
}

/// Blockers as transaction, mode, and whether they hold it.
fn blockers(wait: &WaitView) -> Vec<(u64, String, bool)> {
    wait.blockers
        .iter()
        .map(|blocker| (blocker.transaction.id.0, blocker.mode.to_string(), blocker.holds))
        .collect()
}

fn triple(txn: u64, mode: &str, holds: bool) -> (u64, String, bool) {
    (txn, mode.to_owned(), holds)
}

/// Cancels when it is dropped, so that a failed assertion ends the waits of the threads beside it.
struct Cancels(CancelToken);

impl Drop for Cancels {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[test]
fn a_view_shows_every_lock_with_key_modes_and_origin() {
    over_all_kinds(|options| {
        let manager = LockManager::new(&with_notes(options));
        let line = line!() + 1;
        let mut reader = begin(&manager, 7, "reader");
        let mut writer = begin(&manager, 9, "writer");
        reader.intent(TABLE, IntentMode::IS, &NO_WAIT).unwrap();
        writer.intent(TableId::VOLUME, IntentMode::IX, &NO_WAIT).unwrap();
        reader.acquire(TABLE, key(b"b"), KeyMode::S, &NO_WAIT).unwrap();
        reader.acquire(TABLE, KeyRef::NegativeInfinity, KeyMode::NS, &NO_WAIT).unwrap();
        reader.acquire(TABLE, key(b""), KeyMode::SN, &NO_WAIT).unwrap();
        writer.acquire(TABLE, key(&[b'x'; 100]), KeyMode::SN, &NO_WAIT).unwrap();
        writer.acquire(TABLE, key(&[b'x'; 100]), KeyMode::XN, &NO_WAIT).unwrap();
        writer.acquire(TABLE, key(&[b'y'; 64]), KeyMode::XS, &NO_WAIT).unwrap();
        thread::sleep(Duration::from_millis(2));
        let (locks, omitted) = manager.locks(100);
        let (long, exact) = ("x".repeat(64), "y".repeat(64));
        let mut expected = [
            format!("7 table {TABLE} IS -"),
            format!("9 table {} IX -", u32::MAX),
            format!("7 \"b\" of {TABLE} S -"),
            format!("7 before all of {TABLE} NS -"),
            format!("7 \"\" of {TABLE} SN -"),
            format!("9 \"{long}\"… of {TABLE} XN -"),
            format!("9 \"{exact}\" of {TABLE} XS -"),
        ];
        expected.sort();
        assert_eq!((rows(&locks), omitted), (expected.to_vec(), 0));
        for lock in &locks {
            let begun_at = lock.transaction.begun_at.expect("open");
            let (label, line) =
                if lock.transaction.id == TxnId(7) { ("reader", line) } else { ("writer", line + 1) };
            assert_eq!(lock.transaction.label.as_deref(), Some(label));
            assert_eq!((begun_at.file().ends_with("views.rs"), begun_at.line()), (true, line));
            assert!(lock.transaction.open_for.expect("open") >= Duration::from_millis(2));
            let on_table = matches!(lock.target, LockTarget::Table(_));
            assert_eq!(lock.held_for.is_none(), on_table);
            assert!(lock.held_for.is_none_or(|time| time >= Duration::from_millis(2)));
            assert!(lock.waited.is_none());
        }
        drop(reader);
        drop(writer);
        let mut other = manager.begin(TxnId(11), Age::new(11, 0), None).unwrap();
        other.acquire(TABLE, key(b"z"), KeyMode::X, &NO_WAIT).unwrap();
        let (locks, _) = manager.locks(100);
        assert_eq!(rows(&locks), [format!("11 \"z\" of {TABLE} X -")]);
        assert!(locks[0].transaction.label.is_none(), "nothing is left of who was in the slot before");
        drop(other);
        assert!(manager.locks(100).0.is_empty() && manager.is_empty());
    });
}

#[test]
fn a_view_has_a_limit_and_says_what_it_left_out() {
    over_all_kinds(|options| {
        let manager = LockManager::new(&with_notes(options));
        let mut owner = begin(&manager, 1, "many");
        owner.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
        for number in 0..5000u32 {
            owner.acquire(TABLE, key(&number.to_be_bytes()), KeyMode::XN, &NO_WAIT).unwrap();
        }
        let (locks, omitted) = manager.locks(100);
        assert_eq!((locks.len(), omitted), (100, 4901));
        let (locks, omitted) = manager.locks(usize::MAX);
        assert_eq!((locks.len(), omitted), (5001, 0));
        let named = locks.iter().filter(|lock| matches!(lock.target, LockTarget::Key(..))).count();
        assert_eq!(named, 4096, "as many as there are notes");
        // The notes of the last transaction are not taken for those of the next.
        owner.release_all(None);
        owner.acquire(TABLE, key(b"again"), KeyMode::SN, &NO_WAIT).unwrap();
        assert_eq!(rows(&manager.locks(100).0), [format!("1 \"again\" of {TABLE} SN -")]);
    });
}

#[test]
fn without_notes_keys_are_known_where_somebody_waits() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let token = CancelToken::new();
        thread::scope(|scope| {
            let cancels = Cancels(token.clone());
            let mut holder = begin(&manager, 1, "holder");
            holder.acquire(TABLE, key(b"a"), KeyMode::S, &NO_WAIT).unwrap();
            holder.acquire(TABLE, key(b"b"), KeyMode::S, &NO_WAIT).unwrap();
            let (manager, token) = (&manager, &token);
            scope.spawn(move || {
                let mut waiter = begin(manager, 2, "waiter");
                let wait = WaitPolicy { cancel: Some(token), ..WAIT };
                // Cancelled, or granted when the holder has gone first.
                let _ = waiter.acquire(TABLE, key(b"b"), KeyMode::NX, &wait);
            });
            until_waiting(manager, 2);
            let (locks, _) = manager.locks(100);
            let expected =
                [format!("1 \"b\" of {TABLE} S -"), "1 ? S -".to_owned(), format!("2 \"b\" of {TABLE} - NX")];
            assert_eq!(rows(&locks), expected);
            assert!(locks.iter().all(|lock| lock.waited.is_some() == (lock.transaction.id == TxnId(2))));
            drop(cancels);
        });
        assert!(manager.is_empty() && manager.waits().is_empty());
    });
}

#[test]
fn a_wait_names_everybody_in_the_way_and_how() {
    over_all_tables(|options| {
        let manager = LockManager::new(&with_notes(&options));
        let token = CancelToken::new();
        thread::scope(|scope| {
            let _cancels = Cancels(token.clone());
            let (manager, token) = (&manager, &token);
            let start = |txn, on: &'static [u8], mode| {
                scope.spawn(move || {
                    let mut owner = begin(manager, txn, "waiter");
                    let wait = WaitPolicy { cancel: Some(token), ..WAIT };
                    // Held by others as well, so that it is a conversion for who has it.
                    let _ = owner.acquire(TABLE, key(on), mode, &wait);
                });
            };
            let mut one = begin(manager, 1, "one");
            let mut two = begin(manager, 2, "two");
            one.acquire(TABLE, key(b"k"), KeyMode::NS, &NO_WAIT).unwrap();
            two.acquire(TABLE, key(b"k"), KeyMode::S, &NO_WAIT).unwrap();
            assert!(manager.wait_of(TxnId(1)).is_none(), "it does not wait");
            start(3, b"k", KeyMode::NX);
            let wait = wait_of(manager, 3);
            assert_eq!((wait.target, wait.wanted), (target(b"k"), LockMode::Key(KeyMode::NX)));
            assert_eq!((wait.transaction.id, wait.held), (TxnId(3), None));
            assert_eq!(blockers(&wait), [triple(1, "NS", true), triple(2, "S", true)]);
            assert!(wait.blockers.iter().all(|blocker| blocker.held_for >= Some(wait.waited)));
            assert_eq!(wait.blockers[1].transaction.label.as_deref(), Some("two"));
            // Compatible with what is held, but 3 came first; and the key is free of 1.
            start(4, b"k", KeyMode::NS);
            assert_eq!(blockers(&wait_of(manager, 4)), [triple(3, "NX", false)]);
            start(5, b"k", KeyMode::XN);
            assert_eq!(blockers(&wait_of(manager, 5)), [triple(2, "S", true)]);
            // A conversion looks at everybody's granted mode only.
            let converting = scope.spawn(move || {
                let wait = WaitPolicy { cancel: Some(token), ..WAIT };
                let _ = one.acquire(TABLE, key(b"k"), KeyMode::X, &wait);
            });
            let wait = wait_of(manager, 1);
            assert_eq!(
                (wait.wanted, wait.held),
                (LockMode::Key(KeyMode::X), Some(LockMode::Key(KeyMode::NS)))
            );
            assert_eq!(blockers(&wait), [triple(2, "S", true)]);
            // 5 came before the wish of 1, which stands before it all the same.
            assert_eq!(blockers(&wait_of(manager, 5)), [triple(2, "S", true), triple(1, "X", false)]);
            let everybody: Vec<u64> = manager.waits().iter().map(|wait| wait.transaction.id.0).collect();
            assert_eq!(everybody.len(), 4);
            assert!(manager.wait_of(TxnId(99)).is_none());
            token.cancel();
            converting.join().unwrap();
        });
    });
}

#[test]
fn a_wait_for_a_table_names_holders_and_who_came_first() {
    over_all_kinds(|options| {
        let manager = LockManager::new(options);
        let token = CancelToken::new();
        thread::scope(|scope| {
            let _cancels = Cancels(token.clone());
            let (manager, token) = (&manager, &token);
            let start = |txn, mode| {
                scope.spawn(move || {
                    let mut owner = begin(manager, txn, "waiter");
                    let wait = WaitPolicy { cancel: Some(token), ..WAIT };
                    let _ = owner.intent(TABLE, mode, &wait);
                });
            };
            let mut writer = begin(manager, 1, "writer");
            writer.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
            start(2, IntentMode::S);
            let wait = wait_of(manager, 2);
            assert_eq!(blockers(&wait), [triple(1, "IX", true)]);
            assert_eq!((wait.target, wait.held), (LockTarget::Table(TABLE), None));
            start(3, IntentMode::IX);
            assert_eq!(blockers(&wait_of(manager, 3)), [triple(2, "S", false)]);
            let expected = [
                format!("1 table {TABLE} IX -"),
                format!("2 table {TABLE} - S"),
                format!("3 table {TABLE} - IX"),
            ];
            assert_eq!(rows(&manager.locks(100).0), expected);
        });
    });
}

/// A table that is asked for by one who holds it in another mode; and locks on tables that have gone are not shown,
/// though their requests may be kept for heirs while others hold the same table.
#[test]
fn a_view_of_tables_shows_conversions_and_nothing_that_has_gone() {
    over_all_kinds(|options| {
        let manager = LockManager::new(options);
        let mut gone = begin(&manager, 1, "gone");
        let mut writer = begin(&manager, 2, "writer");
        gone.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
        writer.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
        drop(gone);
        assert_eq!(rows(&manager.locks(100).0), [format!("2 table {TABLE} IX -")], "{options:?}");
        let token = CancelToken::new();
        thread::scope(|scope| {
            let _cancels = Cancels(token.clone());
            let (manager, token) = (&manager, &token);
            scope.spawn(move || {
                let mut reader = begin(manager, 3, "reader");
                reader.intent(TABLE, IntentMode::IS, &NO_WAIT).unwrap();
                let wait = WaitPolicy { cancel: Some(token), ..WAIT };
                let _ = reader.intent(TABLE, IntentMode::S, &wait);
            });
            let wait = wait_of(manager, 3);
            assert_eq!(blockers(&wait), [triple(2, "IX", true)], "{options:?}");
            let table = |mode| Some(LockMode::Table(mode));
            assert_eq!((table(IntentMode::S), table(IntentMode::IS)), (Some(wait.wanted), wait.held));
            let expected = [format!("2 table {TABLE} IX -"), format!("3 table {TABLE} IS S")];
            assert_eq!(rows(&manager.locks(100).0), expected, "{options:?}");
        });
        drop(writer);
        assert!(manager.locks(100).0.is_empty() && manager.is_empty());
    });
}

/// What is shown is what is locked, wider than what was asked for under the sets of modes that know less.
#[test]
fn a_view_shows_the_modes_of_the_set_that_is_used() {
    over_all_tables(|options| {
        for key_ranges in KeyRangeModes::ALL {
            let manager = LockManager::new(&LockOptions { key_ranges, ..with_notes(&options) });
            let wide = |mode| key_ranges.widen(mode).to_string();
            let mut reader = begin(&manager, 1, "reader");
            reader.acquire(TABLE, key(b"k"), KeyMode::NS, &NO_WAIT).unwrap();
            let token = CancelToken::new();
            thread::scope(|scope| {
                let _cancels = Cancels(token.clone());
                let (manager, token) = (&manager, &token);
                scope.spawn(move || {
                    let mut inserter = begin(manager, 2, "inserter");
                    let wait = WaitPolicy { cancel: Some(token), ..WAIT };
                    let _ = inserter.acquire(TABLE, key(b"k"), KeyMode::NX, &wait);
                });
                let wait = wait_of(manager, 2);
                assert_eq!(wait.wanted.to_string(), wide(KeyMode::NX), "{key_ranges:?}");
                assert_eq!(blockers(&wait), [triple(1, &wide(KeyMode::NS), true)], "{key_ranges:?}");
                let expected = [
                    format!("1 \"k\" of {TABLE} {} -", wide(KeyMode::NS)),
                    format!("2 \"k\" of {TABLE} - {}", wide(KeyMode::NX)),
                ];
                assert_eq!(rows(&manager.locks(100).0), expected);
            });
        }
    });
}

#[test]
fn a_deadlock_report_says_where_they_began_and_why_the_victim() {
    over_all_kinds(|options| {
        let manager = LockManager::new(options);
        thread::scope(|scope| {
            let (mut one, mut two) = (begin(&manager, 1, "one"), begin(&manager, 2, "two"));
            one.acquire(TABLE, key(b"a"), KeyMode::XN, &NO_WAIT).unwrap();
            two.acquire(TABLE, key(b"b"), KeyMode::XN, &NO_WAIT).unwrap();
            scope.spawn(move || one.acquire(TABLE, key(b"b"), KeyMode::SN, &WAIT).unwrap());
            until_waiting(&manager, 1);
            let Err(LockError::Deadlock(report)) = two.acquire(TABLE, key(b"a"), KeyMode::SN, &WAIT) else {
                panic!("the younger one gives way")
            };
            assert_eq!((report.victim, report.reason), (TxnId(2), VictimReason::Deadlock));
            let at = report.cycle.iter().map(|edge| edge.begun_at.expect("open").file());
            assert!(at.len() == 2 && at.into_iter().all(|file| file.ends_with("views.rs")));
        });
    });
}

/// Hundreds in one queue: each is shown with the first hundred in its way, and that there are more.
#[test]
fn a_view_of_a_long_queue_is_bounded() {
    over_all_tables(|options| {
        let manager = LockManager::new(&options);
        let mut holder = begin(&manager, 1, "holder");
        holder.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap();
        let mut waiters: Vec<LockOwner> =
            (0..400).map(|number| begin(&manager, 2 + number, "waiter")).collect();
        for waiter in &mut waiters {
            assert!(!waiter.ask(TABLE, key(b"k"), KeyMode::X, &WAIT).unwrap());
        }
        let waits = manager.waits();
        assert_eq!(waits.len(), 400);
        for wait in &waits {
            let before = wait.transaction.id.0 as usize - 1;
            assert_eq!(wait.blockers.len() + wait.omitted, before, "{:?}", wait.transaction);
            assert_eq!(wait.blockers.len(), before.min(MAX_BLOCKERS));
            assert_eq!((wait.blockers[0].transaction.id, wait.blockers[0].holds), (TxnId(1), true));
        }
        let explained = manager.wait_of(TxnId(401)).unwrap();
        assert_eq!((explained.blockers.len(), explained.omitted), (MAX_BLOCKERS, 300));
        // Whoever looks often asks only who waits, and whether it is in the wait of before.
        let numbers: HashMap<TxnId, u64> = manager.waiters().into_iter().collect();
        assert_eq!(numbers.len(), 400);
        assert!(waits.iter().all(|wait| numbers[&wait.transaction.id] == wait.number));
        // The first is granted what it waited for, and waits for something else.
        let mut other = begin(&manager, 900, "other");
        other.acquire(TABLE, key(b"l"), KeyMode::X, &WAIT).unwrap();
        drop(holder);
        assert!(waiters[0].look(&WAIT).unwrap());
        assert!(manager.waiters().iter().all(|(txn, _)| *txn != TxnId(2)));
        assert!(!waiters[0].ask(TABLE, key(b"l"), KeyMode::X, &WAIT).unwrap());
        let again = manager.waiters().into_iter().find(|(txn, _)| *txn == TxnId(2)).unwrap();
        assert_ne!(again.1, numbers[&TxnId(2)], "another wait has another number");
        drop((waiters, other));
        assert!(manager.is_empty() && manager.waiters().is_empty());
    });
}

/// Threads lock keys that begin with their own letter or are shared, under labels that tell; somebody looks on.
#[test]
fn what_views_show_of_a_storm_fits_together() {
    const THREADS: u64 = 4;
    over_all_tables(|options| {
        let manager = LockManager::new(&LockOptions { buckets: 8, ..with_notes(&options) });
        let stop = AtomicBool::new(false);
        let (mut seen, mut waits_seen, mut commits) = (0, 0, 0);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (manager, stop) = (&manager, &stop);
                    scope.spawn(move || work(manager, thread, stop))
                })
                .collect();
            // A failure ends the others, too.
            let stops = Stops(&stop);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(250) || (seen <= 100 && begun.elapsed() < FAR) {
                let (locks, _) = manager.locks(usize::MAX);
                check(&locks);
                seen += locks.len();
                let waits = manager.waits();
                waits_seen += waits.len();
                for wait in &waits {
                    check_wait(wait);
                }
            }
            drop(stops);
            commits = workers.into_iter().map(|worker| worker.join().unwrap()).sum::<u64>();
        });
        assert!(seen > 100 && commits > 100, "{seen} locks and {waits_seen} waits seen of {commits}");
        assert!(manager.is_empty() && manager.locks(1).0.is_empty());
    });
}

/// Ends the storm when it is dropped.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn work(manager: &Arc<LockManager>, thread: u64, stop: &AtomicBool) -> u64 {
    let mut random = Xorshift::new(thread + 1);
    let letter = b'a' + thread as u8;
    let mut commits = 0;
    while !stop.load(Ordering::Relaxed) || commits < 50 {
        let txn = commits * 16 + thread + 1;
        let mut owner = begin(manager, txn, &char::from(letter).to_string());
        for _ in 0..6 {
            // Long and short, so that a note's words are written over by others.
            let mut own = vec![letter; 1 + random.below(90) as usize];
            own[0] = letter;
            owner.acquire(TABLE, key(&own), KeyMode::X, &WAIT).unwrap();
            let shared = [b'~', random.below(3) as u8];
            let mode = if random.below(2) == 0 { KeyMode::S } else { KeyMode::XN };
            match owner.acquire(TABLE, key(&shared), mode, &WAIT) {
                Ok(()) => {}
                Err(LockError::Deadlock(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        owner.release_all(None);
        commits += 1;
    }
    commits
}

fn check(locks: &[LockView]) {
    let mut on_keys: HashMap<String, Vec<KeyMode>> = HashMap::new();
    for lock in locks {
        if let LockTarget::Key(_, bytes) = lock.target {
            if let (Some(label), true) = (&lock.transaction.label, bytes.bytes()[0] != b'~') {
                let letter = label.as_bytes()[0];
                assert!(bytes.bytes().iter().all(|&byte| byte == letter), "{label} has no lock on {bytes}");
            }
            if let Some(LockMode::Key(mode)) = lock.granted {
                // Keys that are cut off may be several.
                if !bytes.is_truncated() {
                    on_keys.entry(bytes.to_string()).or_default().push(mode);
                }
            }
        }
    }
    for (key, modes) in on_keys {
        for (place, one) in modes.iter().enumerate() {
            let fit = modes[..place].iter().all(|other| one.compatible(*other));
            assert!(fit, "LOCK-3, LOCK-12: {modes:?} on {key} at one moment");
        }
    }
}

fn check_wait(wait: &WaitView) {
    let LockMode::Key(wanted) = wait.wanted else { panic!("nobody waits for a table") };
    for blocker in &wait.blockers {
        let LockMode::Key(mode) = blocker.mode else { panic!("nobody locks a table") };
        assert!(!mode.compatible(wanted), "{mode} is not in the way of {wanted}");
        assert_ne!(blocker.transaction.id, wait.transaction.id);
    }
    let LockTarget::Key(_, bytes) = wait.target else { panic!("waits are described") };
    assert_eq!(bytes.bytes()[0], b'~', "nobody waits for what only one thread locks");
}
