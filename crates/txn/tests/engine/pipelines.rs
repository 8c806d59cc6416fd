//! Flush pipelining: tickets, and sessions whose transactions do not wait for their flushes.

use std::{
    future::Future,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll, Wake, Waker},
};

use foreshore_base::{Lsn, StorageError};
use foreshore_env::{
    disk::Disk,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{
    BeginOptions, CommitTicket, Durability, EarlyLockRelease, Engine, EngineOptions, IntentMode, LockError,
    LockOptions, Pipeline, TableInfo, Txn, TxnError, VictimPolicy,
};

use crate::{assert_sound, begin, directory, get, is_poisoned, open_with, probe::Probe, put, tiny};

const KINDS: [EarlyLockRelease; 3] =
    [EarlyLockRelease::Off, EarlyLockRelease::Shared, EarlyLockRelease::SharedAndExclusive];

fn made(options: &EngineOptions) -> (FaultyDisk, Arc<Engine>, TableInfo) {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for key in [b"a", b"b", b"c", b"d"] {
        put(&engine, &table, key, b"0");
    }
    (disk, engine, table)
}

fn kind(release: EarlyLockRelease) -> EngineOptions {
    EngineOptions { early_lock_release: release, ..tiny() }
}

fn next(pipeline: &mut Pipeline) -> Txn {
    pipeline.begin(BeginOptions::default()).unwrap()
}

/// One transaction of a pipeline that writes a key.
fn step(pipeline: &mut Pipeline, table: &TableInfo, key: &[u8], value: &[u8]) -> CommitTicket {
    let mut txn = next(pipeline);
    txn.put(table, key, value).unwrap();
    txn.commit_pipelined().unwrap()
}

fn is_free(engine: &Arc<Engine>, table: &TableInfo, key: &[u8]) -> bool {
    let mut txn = begin(engine);
    txn.set_no_wait(true);
    match get(&mut txn, table, key) {
        Ok(_) => true,
        Err(TxnError::Lock(LockError::WouldBlock(_))) => false,
        Err(error) => panic!("{error}"),
    }
}

fn shortly() {
    thread::sleep(Duration::from_millis(30));
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < limit, "{what}");
        thread::yield_now();
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(ticket: &mut CommitTicket, bell: &Arc<Bell>) -> Poll<Result<(), TxnError>> {
    let waker = Waker::from(Arc::clone(bell));
    Pin::new(ticket).poll(&mut Context::from_waker(&waker))
}

#[test]
fn a_ticket_is_waited_for_asked_and_polled() {
    let (disk, engine, table) = made(&tiny());
    disk.hold_syncs(true);
    let mut txn = begin(&engine);
    txn.put(&table, b"a", b"1").unwrap();
    let mut ticket = txn.commit_pipelined().unwrap();
    let (first, second) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    assert!(!ticket.is_durable());
    assert!(!ticket.wait_until(Instant::now() + Duration::from_millis(5)).unwrap());
    assert!(!ticket.wait_until(Instant::now()).unwrap(), "a deadline that has passed");
    assert!(poll(&mut ticket, &first).is_pending() && poll(&mut ticket, &second).is_pending());
    shortly();
    assert_eq!(second.0.load(Ordering::SeqCst), 0);
    disk.hold_syncs(false);
    until("the last who polled is woken", || second.0.load(Ordering::SeqCst) == 1);
    assert!(matches!(poll(&mut ticket, &second), Poll::Ready(Ok(()))));
    assert_eq!(first.0.load(Ordering::SeqCst), 0, "who polled before is not");
    ticket.wait().unwrap();
    assert!(ticket.wait_until(Instant::now()).unwrap());

    let mut txn = begin(&engine);
    txn.put(&table, b"a", b"2").unwrap();
    disk.hold_syncs(true);
    let mut dropped = txn.commit_pipelined().unwrap();
    let bell = Arc::new(Bell::default());
    assert!(poll(&mut dropped, &bell).is_pending());
    drop(dropped);
    assert_eq!(Arc::strong_count(&bell), 1, "a ticket that is dropped takes its waker along");
    disk.hold_syncs(false);
    assert_sound(&engine, "tickets");
}

/// A waker that panicked ended the thread that wakes all others: those of the same batch never heard, and the database
/// stopped. One that lets the last handle of a database go, or closes it, made that thread wait for its own end, or for
/// who waited for that.
#[test]
fn what_a_waker_does_is_nothing_to_others() {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("planted");
        }
    }
    struct Closer(Mutex<Option<Arc<Engine>>>, AtomicU32);
    impl Wake for Closer {
        fn wake(self: Arc<Self>) {
            if let Some(engine) = self.0.lock().take() {
                // Beside another who closes it, and waits for this thread.
                let other = Arc::clone(&engine);
                thread::spawn(move || other.close());
                shortly();
                engine.close().unwrap();
            }
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (disk, engine, table) = made(&tiny());
    let commit = |key: &[u8]| {
        let mut txn = begin(&engine);
        txn.put(&table, key, b"value").unwrap();
        txn.commit_pipelined().unwrap()
    };
    disk.hold_syncs(true);
    let mut tickets = [b"a", b"b", b"c"].map(|key| commit(key));
    let bell = Arc::new(Bell::default());
    let broken = Waker::from(Arc::new(Broken));
    for ticket in &mut tickets[..2] {
        assert!(Pin::new(ticket).poll(&mut Context::from_waker(&broken)).is_pending());
    }
    assert!(poll(&mut tickets[2], &bell).is_pending());
    disk.hold_syncs(false);
    until("the others are woken", || bell.0.load(Ordering::SeqCst) == 1);
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());

    disk.hold_syncs(true);
    let mut ticket = commit(b"last");
    let closer = Arc::new(Closer(Mutex::new(Some(Arc::clone(&engine))), AtomicU32::new(0)));
    assert!(
        Pin::new(&mut ticket).poll(&mut Context::from_waker(&Waker::from(Arc::clone(&closer)))).is_pending()
    );
    drop((engine, table));
    disk.hold_syncs(false);
    until("it is woken", || closer.1.load(Ordering::SeqCst) == 1);
    // Another thread closes it.
    let deadline = Instant::now() + Duration::from_secs(120);
    let engine = loop {
        match open_with(&disk, &tiny()) {
            Err(StorageError::AlreadyOpen { .. }) if Instant::now() < deadline => thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    let table = engine.table("t").unwrap().unwrap();
    assert!(get(&mut begin(&engine), &table, b"last").unwrap().is_some());
}

/// A task that was polled where it was woken, on the thread that gives locks back, and committed more there than may
/// leave their locks to that thread, waited for ever for itself to make room.
#[test]
fn who_is_woken_may_commit_there_as_often_as_he_likes() {
    const COMMITS: u32 = 300;
    struct Writer(Arc<Engine>, TableInfo, AtomicU32);
    impl Wake for Writer {
        fn wake(self: Arc<Self>) {
            for number in 0..COMMITS {
                let mut txn = begin(&self.0);
                txn.put(&self.1, &number.to_be_bytes(), b"value").unwrap();
                txn.commit(Durability::Lazy).unwrap();
            }
            self.2.store(1, Ordering::SeqCst);
        }
    }
    let (disk, engine, table) = made(&kind(EarlyLockRelease::Off));
    disk.hold_syncs(true);
    let mut txn = begin(&engine);
    txn.put(&table, b"a", b"1").unwrap();
    let mut ticket = txn.commit_pipelined().unwrap();
    let writer = Arc::new(Writer(Arc::clone(&engine), table.clone(), AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&writer));
    assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
    disk.hold_syncs(false);
    until("all has been committed", || writer.2.load(Ordering::SeqCst) == 1);
    until("the locks are given back", || is_free(&engine, &table, &0_u32.to_be_bytes()));
    drop((ticket, waker, writer));
    engine.flush().unwrap();
    until("all locks are given back", || is_free(&engine, &table, &(COMMITS - 1).to_be_bytes()));
    assert_sound(&engine, "commits on the thread that wakes");
}

/// Who was woken on the thread that gives locks back, and waited there for a lock of a later commit that had become
/// durable in the same flush, waited for ever: that one was served behind.
#[test]
fn what_became_durable_together_is_free_before_anybody_is_woken() {
    struct Asks(Arc<Engine>, TableInfo, AtomicU32);
    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            let free = is_free(&self.0, &self.1, b"b");
            self.2.store(1 + u32::from(free), Ordering::SeqCst);
        }
    }
    for release in KINDS {
        let (disk, engine, table) = made(&kind(release));
        let commit = |key: &[u8]| {
            let mut txn = begin(&engine);
            txn.put(&table, key, b"1").unwrap();
            txn.commit_pipelined().unwrap()
        };
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|it| it == "log");
        let content = |path: PathBuf| disk.read_file(&path).unwrap();
        let segments = || -> Vec<_> { disk.files().into_iter().filter(is_segment).map(content).collect() };
        disk.hold_syncs(true);
        // The flush of this one takes none of the others along: it has begun when something of it is in the file.
        let before = segments();
        let ahead = commit(b"c");
        until("its flush begins", || segments() != before);
        let (mut first, second) = (commit(b"a"), commit(b"b"));
        let asks = Arc::new(Asks(Arc::clone(&engine), table.clone(), AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&asks));
        assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
        disk.hold_syncs(false);
        until("it is woken", || asks.2.load(Ordering::SeqCst) > 0);
        assert_eq!(asks.2.load(Ordering::SeqCst), 2, "{release:?}: the lock of the second was not free");
        drop((ahead, second));
    }
}

/// A waker was dropped under the mutex that the committer takes to wake: one that closes the database there, as the
/// last handle does, waited for the committer, and that for the mutex.
#[test]
fn what_a_waker_does_where_it_is_dropped_may_wait_for_the_committer() {
    struct Closes(Arc<Engine>);
    impl Wake for Closes {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Closes {
        fn drop(&mut self) {
            self.0.close().unwrap();
        }
    }
    for polls in [true, false] {
        let (disk, engine, table) = made(&tiny());
        disk.hold_syncs(true);
        let mut txn = begin(&engine);
        txn.put(&table, b"a", b"1").unwrap();
        let mut ticket = txn.commit_pipelined().unwrap();
        let waker = Waker::from(Arc::new(Closes(engine)));
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        let ended = Arc::new(AtomicU32::new(0));
        let ends = Arc::clone(&ended);
        thread::spawn(move || {
            // The waker of before has no other owner.
            let _ = polls.then(|| poll(&mut ticket, &Arc::default()));
            drop(ticket);
            ends.store(1, Ordering::SeqCst);
        });
        shortly();
        disk.hold_syncs(false);
        until("the waker is dropped", || ended.load(Ordering::SeqCst) == 1);
    }
}

#[test]
fn a_reader_that_saw_nothing_new_has_a_ticket_that_is_through() {
    let (disk, engine, table) = made(&tiny());
    disk.hold_syncs(true);
    let mut txn = begin(&engine);
    get(&mut txn, &table, b"a").unwrap();
    let ticket = txn.commit_pipelined().unwrap();
    assert!(ticket.is_durable());
    disk.hold_syncs(false);
}

#[test]
fn a_pipeline_goes_on_with_its_own_locks_and_gives_them_back_by_itself() {
    for release in [EarlyLockRelease::Off, EarlyLockRelease::Shared] {
        let (disk, engine, table) = made(&kind(release));
        let mut pipeline = engine.pipeline();
        disk.hold_syncs(true);
        let first = step(&mut pipeline, &table, b"a", b"1");
        let second = step(&mut pipeline, &table, b"b", b"2");
        let mut txn = next(&mut pipeline);
        assert_eq!(get(&mut txn, &table, b"a").unwrap().unwrap(), b"1", "what it locked is not in its way");
        txn.put(&table, b"a", b"3").unwrap();
        let third = txn.commit_pipelined().unwrap();
        assert_eq!(pipeline.length(), 3);
        assert!(!is_free(&engine, &table, b"a") && !is_free(&engine, &table, b"b"));
        assert!(is_free(&engine, &table, b"c"));
        disk.hold_syncs(false);
        // Nobody touches the pipeline, or waits for a ticket.
        until("its locks go", || is_free(&engine, &table, b"a") && is_free(&engine, &table, b"b"));
        assert!(first.is_durable() && second.is_durable() && third.is_durable());
        assert!(first.lsn() < second.lsn() && second.lsn() < third.lsn());
        assert_eq!(pipeline.length(), 0);
        drop(pipeline);
        assert_sound(&engine, "idle");
    }
}

#[test]
fn a_pipeline_that_is_dropped_gives_its_locks_back() {
    let (disk, engine, table) = made(&kind(EarlyLockRelease::Off));
    let mut pipeline = engine.pipeline();
    disk.hold_syncs(true);
    drop(step(&mut pipeline, &table, b"a", b"1"));
    drop(pipeline);
    assert!(!is_free(&engine, &table, b"a"));
    disk.hold_syncs(false);
    until("its locks go", || is_free(&engine, &table, b"a"));
    assert_sound(&engine, "dropped");
}

/// TXN-13.
#[test]
fn a_ticket_covers_what_came_before_it_in_its_pipeline() {
    for release in KINDS {
        let (disk, engine, table) = made(&kind(release));
        let mut pipeline = engine.pipeline();
        disk.hold_syncs(true);
        let first = step(&mut pipeline, &table, b"a", b"1");
        let mut reader = next(&mut pipeline);
        get(&mut reader, &table, b"c").unwrap();
        let second = reader.commit_pipelined().unwrap();
        assert_eq!(second.lsn(), first.lsn(), "{release:?}");
        assert!(!second.is_durable());
        let mut stranger = begin(&engine);
        get(&mut stranger, &table, b"d").unwrap();
        assert!(stranger.commit_pipelined().unwrap().is_durable(), "{release:?}: of no concern to others");
        disk.hold_syncs(false);
        second.wait().unwrap();
        assert_eq!(pipeline.newest(), first.lsn());
    }
}

#[test]
fn a_pipeline_has_one_open_transaction() {
    let (_, engine, table) = made(&tiny());
    let mut pipeline = engine.pipeline();
    let mut txn = next(&mut pipeline);
    assert!(matches!(pipeline.begin(BeginOptions::default()), Err(TxnError::PipelineBusy)));
    txn.put(&table, b"a", b"1").unwrap();
    drop(txn);
    let txn = next(&mut pipeline);
    txn.commit(Durability::Sync).unwrap();
    assert_eq!(pipeline.newest(), Lsn::ZERO);
}

#[test]
fn a_pipeline_of_its_full_length_waits_for_the_flush() {
    for release in KINDS {
        let (disk, engine, table) = made(&EngineOptions { pipeline_length: 3, ..kind(release) });
        let mut pipeline = engine.pipeline();
        disk.hold_syncs(true);
        let tickets = [b"1", b"2", b"3"].map(|value| step(&mut pipeline, &table, b"a", value));
        thread::scope(|scope| {
            let fourth = scope.spawn(|| {
                let txn = next(&mut pipeline);
                assert!(tickets.iter().all(CommitTicket::is_durable), "{release:?}");
                txn.commit(Durability::Lazy).unwrap();
            });
            shortly();
            assert!(!fourth.is_finished(), "{release:?}");
            disk.hold_syncs(false);
            fourth.join().unwrap();
        });
        drop(pipeline);
        assert_sound(&engine, "full");
    }
}

#[test]
fn a_rollback_keeps_the_locks_of_those_before_it() {
    let (disk, engine, table) = made(&kind(EarlyLockRelease::Off));
    let mut pipeline = engine.pipeline();
    disk.hold_syncs(true);
    drop(step(&mut pipeline, &table, b"a", b"1"));
    let mut txn = next(&mut pipeline);
    txn.put(&table, b"a", b"undone").unwrap();
    txn.put(&table, b"b", b"undone").unwrap();
    txn.rollback().unwrap();
    assert!(!is_free(&engine, &table, b"a"), "the change of the first is not durable");
    disk.hold_syncs(false);
    until("its locks go", || is_free(&engine, &table, b"a") && is_free(&engine, &table, b"b"));
    let mut txn = begin(&engine);
    assert_eq!(get(&mut txn, &table, b"a").unwrap().unwrap(), b"1");
    assert_eq!(get(&mut txn, &table, b"b").unwrap().unwrap(), b"0");
    drop(txn);
    drop(pipeline);
    assert_sound(&engine, "rolled back");
}

/// Kimura et al. 2012, §4.3: the victim's pipeline must not let anybody read what is not durable.
#[test]
fn a_deadlock_victim_in_a_pipeline_flushes_before_it_releases() {
    for release in [EarlyLockRelease::Off, EarlyLockRelease::Shared] {
        let locks = LockOptions { victim: VictimPolicy::LongestPipeline, ..LockOptions::default() };
        let (disk, engine, table) = made(&EngineOptions { locks, ..kind(release) });
        let mut pipeline = engine.pipeline();
        let mut other = begin(&engine);
        other.put(&table, b"b", b"other").unwrap();
        disk.hold_syncs(true);
        let ticket = step(&mut pipeline, &table, b"a", b"1");
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let seen = get(&mut other, &table, b"a").unwrap().unwrap();
                assert!(ticket.is_durable(), "{release:?}");
                seen
            });
            until("the other waits", || !engine.locks().waiters().is_empty());
            let mut txn = next(&mut pipeline);
            txn.put(&table, b"c", b"undone").unwrap();
            let error = txn.put(&table, b"b", b"mine").unwrap_err();
            assert!(matches!(error, TxnError::Lock(LockError::Deadlock(_))), "{error}");
            let rollback = scope.spawn(|| txn.rollback());
            shortly();
            assert!(!reader.is_finished() && !rollback.is_finished(), "{release:?}: not durable yet");
            disk.hold_syncs(false);
            rollback.join().unwrap().unwrap();
            assert_eq!(reader.join().unwrap(), b"1");
        });
        next(&mut pipeline).commit(Durability::Sync).unwrap();
        other.rollback().unwrap();
        drop(pipeline);
        assert_sound(&engine, "victim");
    }
}

#[test]
fn many_may_leave_their_locks_behind_at_a_time() {
    let (disk, engine, table) = made(&kind(EarlyLockRelease::Off));
    disk.set_sync_delay(Duration::from_millis(2));
    // More than may be parked: those who come too early wait for the flush.
    let tickets: Vec<_> = (0..700_u32)
        .map(|number| {
            let mut txn = begin(&engine);
            txn.put(&table, &number.to_be_bytes(), b"x").unwrap();
            txn.commit_pipelined().unwrap()
        })
        .collect();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    until("all locks go", || engine.locks().is_empty());
    assert_sound(&engine, "many");
}

/// Who comes when as many locks as may be are left behind waits for a flush, and is told if there will be none.
#[test]
fn who_must_not_leave_his_locks_behind_yet_waits_for_a_flush() {
    for fails in [false, true] {
        // Large nodes: their pages stay in the pool as long as the log is not durable.
        let (disk, engine, table) =
            made(&EngineOptions { node_capacity: usize::MAX, ..kind(EarlyLockRelease::Off) });
        disk.hold_syncs(true);
        let commit = |number: u32| {
            let mut txn = begin(&engine);
            txn.put(&table, &number.to_be_bytes(), b"x")?;
            txn.commit_pipelined()
        };
        let tickets: Vec<_> = (0..256).map(|number| commit(number).unwrap()).collect();
        let late = thread::scope(|scope| {
            let late = scope.spawn(|| commit(256));
            shortly();
            assert!(!late.is_finished());
            if fails {
                disk.fail_next_sync_of("log");
            }
            disk.hold_syncs(false);
            late.join().unwrap()
        });
        for ticket in tickets {
            assert_eq!(ticket.wait().is_err(), fails);
        }
        assert_eq!(late.and_then(|ticket| ticket.wait()).is_err(), fails);
        until("all locks go", || engine.locks().is_empty());
    }
}

#[test]
fn closing_makes_tickets_and_pipelines_durable() {
    for release in KINDS {
        let (disk, engine, table) = made(&kind(release));
        let mut pipeline = engine.pipeline();
        let bell = Arc::new(Bell::default());
        disk.hold_syncs(true);
        let mut ticket = step(&mut pipeline, &table, b"a", b"1");
        let other = step(&mut pipeline, &table, b"b", b"1");
        assert!(poll(&mut ticket, &bell).is_pending());
        thread::scope(|scope| {
            let closing = scope.spawn(|| engine.close());
            shortly();
            disk.hold_syncs(false);
            closing.join().unwrap().unwrap();
        });
        assert_eq!(bell.0.load(Ordering::SeqCst), 1);
        assert!(ticket.is_durable() && other.is_durable());
        assert!(matches!(poll(&mut ticket, &bell), Poll::Ready(Ok(()))));
        assert!(pipeline.begin(BeginOptions::default()).is_err());
        drop((pipeline, engine));
        let reopened = open_with(&disk, &tiny()).unwrap();
        assert!(reopened.stats().recovery.clean, "{release:?}");
    }
}

#[test]
fn a_log_that_fails_ends_every_wait_for_it() {
    for release in KINDS {
        let (disk, engine, table) = made(&EngineOptions { pipeline_length: 2, ..kind(release) });
        let mut pipeline = engine.pipeline();
        let bell = Arc::new(Bell::default());
        disk.hold_syncs(true);
        drop(step(&mut pipeline, &table, b"a", b"1"));
        let mut ticket = step(&mut pipeline, &table, b"b", b"1");
        assert!(poll(&mut ticket, &bell).is_pending());
        thread::scope(|scope| {
            let full = scope.spawn(|| pipeline.begin(BeginOptions::default()).map(drop));
            shortly();
            disk.fail_next_sync_of("log");
            disk.hold_syncs(false);
            let begun = full.join().unwrap();
            assert!(is_poisoned(&begun), "{release:?}");
            // It has not begun: nothing of it is in doubt.
            assert!(!matches!(begun, Err(TxnError::OutcomeUnknown { .. })), "{release:?}");
        });
        until("who polled is woken", || bell.0.load(Ordering::SeqCst) == 1);
        assert!(matches!(poll(&mut ticket, &bell), Poll::Ready(Err(TxnError::OutcomeUnknown { .. }))));
        until("all locks go", || engine.locks().is_empty());
    }
}

/// What a ticket calls durable survives a crash anywhere, and so does all that came before it in the pipeline.
#[test]
fn a_crash_takes_the_newest_of_a_pipeline_and_none_that_was_acknowledged() {
    for release in KINDS {
        let disk = FaultyDisk::new();
        let tickets: Arc<Mutex<Vec<CommitTicket>>> = Arc::default();
        let (for_probe, snapshots) = (Arc::clone(&tickets), disk.clone());
        let crashes = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&crashes);
        let probe = Probe::new(
            disk,
            Box::new(move |change| {
                let tickets = for_probe.lock();
                if tickets.is_empty() {
                    return;
                }
                let acknowledged = tickets.iter().take_while(|ticket| ticket.is_durable()).count();
                let left = [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(change)]
                    .map(|mode| snapshots.after_crash(mode));
                drop(tickets);
                for left in left {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let engine = open_with(&left, &tiny()).unwrap();
                    let table = engine.table("t").unwrap().unwrap();
                    let mut txn = begin(&engine);
                    let count = |txn: &mut Txn, key: &[u8]| {
                        let value = get(txn, &table, key).unwrap().unwrap();
                        String::from_utf8(value).unwrap().parse::<usize>().unwrap()
                    };
                    let (one, other) = (count(&mut txn, b"a"), count(&mut txn, b"b"));
                    assert!(
                        one == other && one >= acknowledged,
                        "{release:?}: {one}, {other}, {acknowledged}"
                    );
                    drop(txn);
                    engine.close().unwrap();
                }
            }),
        );
        let engine = Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &kind(release)).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        for key in [b"a", b"b"] {
            put(&engine, &table, key, b"0");
        }
        let mut pipeline = engine.pipeline();
        for number in 1..=60_u32 {
            let mut txn = next(&mut pipeline);
            for key in [b"a", b"b"] {
                txn.put(&table, key, number.to_string().as_bytes()).unwrap();
            }
            // Under the mutex: the order of the tickets is that of the commits.
            let mut tickets = tickets.lock();
            tickets.push(txn.commit_pipelined().unwrap());
            drop(tickets);
            thread::yield_now();
        }
        drop(pipeline);
        // Not under the mutex: whoever looks at a crash takes it.
        let last = tickets.lock().last().unwrap().lsn();
        engine.log().flush(last).unwrap();
        engine.close().unwrap();
        tickets.lock().clear();
        assert!(crashes.load(Ordering::Relaxed) > 10, "{release:?}: too few to prove much");
    }
}

/// The locks of those before it count for no transaction: neither for what one may have, nor for what is reason to lock
/// a table.
#[test]
fn a_long_pipeline_runs_out_of_no_locks() {
    let mut options = kind(EarlyLockRelease::Off);
    options.locks.max_locks_per_transaction = 100;
    options.escalation_bytes = 20 * 72;
    let (disk, engine, table) = made(&options);
    disk.set_sync_delay(Duration::from_millis(5));
    let mut pipeline = engine.pipeline();
    for number in 0..1000_u64 {
        drop(step(&mut pipeline, &table, &number.to_be_bytes(), b"value"));
    }
    assert_eq!(engine.stats().locks.escalations, 0);
    pipeline.flush().unwrap();
    assert!(is_free(&engine, &table, &7_u64.to_be_bytes()));
    assert_sound(&engine, "pipeline");
}

/// What one of its transactions has locked as a whole the next one need not lock by keys.
#[test]
fn a_table_that_a_pipeline_has_is_known_to_its_next_transaction() {
    let mut options = kind(EarlyLockRelease::Off);
    options.locks.max_locks_per_transaction = 10;
    let (disk, engine, table) = made(&options);
    disk.hold_syncs(true);
    let mut pipeline = engine.pipeline();
    let mut txn = next(&mut pipeline);
    txn.lock_table(&table, IntentMode::X).unwrap();
    txn.put(&table, b"a", b"1").unwrap();
    let first = txn.commit_pipelined().unwrap();
    let mut txn = next(&mut pipeline);
    let put = (0..20_u64).try_for_each(|number| txn.put(&table, &number.to_be_bytes(), b"value").map(drop));
    disk.hold_syncs(false);
    put.unwrap();
    txn.commit(Durability::Sync).unwrap();
    first.wait().unwrap();
    assert_sound(&engine, "whole");
}
