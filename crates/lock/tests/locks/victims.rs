//! Whoever gives way is told why, and so is everybody who asks later: under every policy, over every lock table.

use foreshore_base::{TableId, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::thread;
use foreshore_env::time::Duration;
use foreshore_lock::{
    Age, DeadlockPolicy, DeadlockReport, DigestKind, IntentLockKind, IntentMode, KeyMode, LockError,
    LockManager, LockOptions, LockOwner, LockTableKind, VictimReason, WaitPolicy,
};

use super::{TABLE, WAIT, intent_kinds, key, product, side_by_side, until_waiting};

const OLD: TxnId = TxnId(1);
const YOUNG: TxnId = TxnId(2);

#[track_caller]
fn begin(manager: &Arc<LockManager>, txn: TxnId, label: &str) -> LockOwner {
    manager.begin(txn, Age::new(txn.0, 0), Some(label.into())).unwrap()
}

fn victim(result: Result<(), LockError>) -> Option<Arc<DeadlockReport>> {
    match result {
        Ok(()) => None,
        Err(LockError::Deadlock(report)) => Some(report),
        Err(error) => panic!("{error}"),
    }
}

/// The younger wants what the older has and, where that matters, the other way round. Gives what those were told who
/// gave way.
fn clash(options: &LockOptions, manager: &Arc<LockManager>) -> Vec<Arc<DeadlockReport>> {
    let (mut old, mut young) = (begin(manager, OLD, "old"), begin(manager, YOUNG, "young"));
    old.acquire(TABLE, key(b"a"), KeyMode::X, &WAIT).unwrap();
    young.acquire(TABLE, key(b"b"), KeyMode::X, &WAIT).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let result = young.acquire(TABLE, key(b"a"), KeyMode::SN, &WAIT);
            drop(young);
            result
        });
        // Under the others the younger gives way at once, or because nobody ends its wait.
        let meets = options.deadlock.detects() || options.deadlock == DeadlockPolicy::WoundWait;
        let second = if meets {
            until_waiting(manager, YOUNG.0);
            old.acquire(TABLE, key(b"b"), KeyMode::SN, &WAIT)
        } else {
            Ok(())
        };
        // The older one has to go before the younger one is granted what it waits for, if it still does.
        let second = victim(second);
        if second.is_some() {
            drop(old);
        }
        victim(waits.join().unwrap()).into_iter().chain(second).collect()
    })
}

#[test]
fn every_policy_remembers_who_gave_way_and_why() {
    let unconfirmed = LockTableKind::ALL.map(|table| LockOptions {
        table,
        digests: DigestKind::Bloom,
        confirm_deadlocks: false,
        ..LockOptions::default()
    });
    let settings: Vec<LockOptions> = product().into_iter().chain(unconfirmed).collect();
    side_by_side(&settings, remembers);
}

fn remembers(options: &LockOptions) {
    let options = &LockOptions { deadlock_timeout: Duration::from_millis(30), ..options.clone() };
    let manager = LockManager::new(options);
    let told = clash(options, &manager);
    let kept = manager.deadlocks();
    assert!(!told.is_empty(), "{options:?}");
    assert_eq!(kept.len(), told.len(), "{options:?}");
    for report in &told {
        assert!(kept.iter().any(|kept| Arc::ptr_eq(kept, report)), "{options:?}: {report}");
        check(options, report);
    }
}

fn check(options: &LockOptions, report: &DeadlockReport) {
    let text = report.to_string();
    let edge = report.cycle.iter().find(|edge| edge.txn == report.victim).expect("the victim's wait");
    let (label, other, wanted): (_, _, &[u8]) =
        if report.victim == OLD { ("old", YOUNG, b"b") } else { ("young", OLD, b"a") };
    assert_eq!(edge.label.as_deref(), Some(label), "{text}");
    assert_eq!(edge.key.map(|key| key.bytes().to_vec()).as_deref(), Some(wanted), "{text}");
    assert!(edge.begun_at.is_some_and(|at| at.file().ends_with("victims.rs")), "{text}");
    let reason = match options.deadlock {
        _ if !options.confirm_deadlocks => VictimReason::Suspicion,
        DeadlockPolicy::WaitDie => VictimReason::YoungerThan(OLD),
        DeadlockPolicy::WoundWait => VictimReason::WoundedBy(OLD),
        DeadlockPolicy::Timeout => VictimReason::TimedOut,
        DeadlockPolicy::NoWait => VictimReason::NoWait,
        _ => VictimReason::Deadlock,
    };
    assert_eq!(report.reason, reason, "{text}");
    assert_eq!(report.older.as_ref().map(|older| older.id), reason.older(), "{text}");
    if let Some(older) = &report.older {
        assert_eq!(older.label.as_deref(), Some("old"), "{text}");
    }
    if reason == VictimReason::TimedOut {
        assert!(edge.waited >= options.deadlock_timeout, "{text}");
    }
    if reason == VictimReason::Deadlock {
        assert!(report.cycle.len() == 2 && report.blockers.is_empty(), "{text}");
    } else {
        let blocker = &report.blockers[0];
        assert_eq!((report.cycle.len(), report.blockers.len()), (1, 1), "{text}");
        assert_eq!((blocker.transaction.id, blocker.holds), (other, true), "{text}");
        assert!(blocker.transaction.begun_at.is_some() && blocker.mode.to_string() == "X", "{text}");
        assert!(text.contains(&format!("in its way: transaction {other} (")), "{text}");
    }
}

/// Those who give way because of a table, and not of a key, are remembered likewise.
#[test]
fn a_wait_for_a_table_is_remembered() {
    for options in intent_kinds() {
        for deadlock in [DeadlockPolicy::WaitDie, DeadlockPolicy::NoWait, DeadlockPolicy::Timeout] {
            let options =
                LockOptions { deadlock, deadlock_timeout: Duration::from_millis(20), ..options.clone() };
            let manager = LockManager::new(&options);
            let (mut old, mut young) = (begin(&manager, OLD, "old"), begin(&manager, YOUNG, "young"));
            old.intent(TableId(100), IntentMode::X, &WAIT).unwrap();
            let report =
                victim(young.intent(TableId(100), IntentMode::IX, &WAIT).map(drop)).expect("it gives way");
            let kept = manager.deadlocks();
            assert!(kept.len() == 1 && Arc::ptr_eq(&kept[0], &report), "{options:?}");
            let edge = &report.cycle[0];
            assert_eq!((edge.txn, edge.table, edge.key), (YOUNG, TableId(100), None), "{report}");
            let blocker = &report.blockers[0];
            assert_eq!(
                (blocker.transaction.id, blocker.transaction.label.as_deref()),
                (OLD, Some("old")),
                "{report}"
            );
            assert!(blocker.holds && report.blockers.len() == 1, "{report}");
        }
    }
}

/// Thousands who may not wait: the newest are kept, eight of those in the way of each, and no more.
#[test]
fn a_storm_of_refusals_is_bounded() {
    for table in LockTableKind::ALL {
        let no_wait = LockOptions { table, deadlock: DeadlockPolicy::NoWait, ..LockOptions::default() };
        let manager = LockManager::new(&no_wait);
        let mut readers: Vec<LockOwner> =
            (0..20).map(|number| begin(&manager, TxnId(1000 + number), "reader")).collect();
        for reader in &mut readers {
            reader.acquire(TABLE, key(b"k"), KeyMode::S, &WAIT).unwrap();
        }
        thread::scope(|scope| {
            for thread in 0..4 {
                let manager = &manager;
                scope.spawn(move || {
                    for round in 0..500 {
                        let mut writer = begin(manager, TxnId(10_000 * (thread + 1) + round), "writer");
                        let report = victim(writer.acquire(TABLE, key(b"k"), KeyMode::X, &WAIT));
                        assert_eq!(report.expect("it may not wait").blockers.len(), 8);
                    }
                });
            }
        });
        let kept = manager.deadlocks();
        assert_eq!((kept.len(), manager.stats().precautions), (128, 2000));
        assert!(kept.iter().all(|report| report.reason == VictimReason::NoWait));
        // The last of all is among them.
        assert!(kept.iter().any(|report| report.victim.0 % 10_000 == 499));
        drop(readers);
        assert!(manager.is_empty());
    }
    // Nothing at all, if that is what is wanted.
    let options = LockOptions { history: 0, deadlock: DeadlockPolicy::NoWait, ..LockOptions::default() };
    let manager = LockManager::new(&options);
    assert_eq!((clash(&options, &manager).len(), manager.deadlocks().len()), (1, 0));
}

/// Who asked not to wait, or not for so long, is no victim: its error has all there is to know.
#[test]
fn who_did_not_want_to_wait_is_told_what_for() {
    for intents in IntentLockKind::ALL {
        let manager = LockManager::new(&LockOptions { intents, ..LockOptions::default() });
        let (mut holder, mut other) = (begin(&manager, OLD, "holder"), begin(&manager, YOUNG, "other"));
        holder.acquire(TABLE, key(b"k"), KeyMode::XN, &WAIT).unwrap();
        holder.intent(TABLE, IntentMode::X, &WAIT).unwrap();
        let refused = other.acquire(TABLE, key(b"k"), KeyMode::SN, &WaitPolicy { no_wait: true, ..WAIT });
        let Err(LockError::WouldBlock(refusal)) = refused else { panic!("{refused:?}") };
        let wish = refusal.wish.as_ref().unwrap();
        assert_eq!((wish.txn, wish.table, wish.mode.to_string().as_str()), (YOUNG, TABLE, "SN"));
        assert_eq!(
            LockError::WouldBlock(refusal).to_string(),
            "transaction 2 (other) was not to wait for SN on key \"k\" of table 16; in its way: transaction 1 (holder) \
             in mode XN"
        );
        let timeout = Duration::from_millis(15);
        let refused = other.intent(TABLE, IntentMode::IS, &WaitPolicy { timeout: Some(timeout), ..WAIT });
        let Err(LockError::Timeout(refusal)) = &refused else { panic!("{refused:?}") };
        assert_eq!((refusal.timeout, refusal[0].txn, refusal.len()), (Some(timeout), OLD, 1));
        assert!(refusal.wish.as_ref().is_some_and(|wish| wish.waited >= timeout), "{refusal:?}");
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("transaction 2 (other) waited") && text.contains("may wait 15 ms"), "{text}");
        let refused = other.intent(TABLE, IntentMode::IS, &super::wait_for(15));
        let Err(LockError::Timeout(refusal)) = &refused else { panic!("{refused:?}") };
        assert_eq!(refusal.timeout, None);
        assert!(refused.unwrap_err().to_string().contains("until its deadline"));
        assert!(manager.deadlocks().is_empty());
    }
}
