use std::{mem, ops::ControlFlow, path::Path};

use foreshore_base::StorageError;
use foreshore_env::{disk::Disk, thread};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_wal::Urgency;

use super::*;
use crate::{BeginOptions, Durability, Engine, EngineOptions, LogOptions, TxnError};

/// A transaction that was preempted between its look at the log's tail and its first slot announces a place that a
/// checkpoint has released meanwhile. The next checkpoint made recovery begin there, and the database could not be
/// opened again: "… is not in the log".
#[test]
fn an_announcement_that_comes_late_does_not_reach_below_the_log() {
    let options = EngineOptions {
        log: LogOptions { segment_bytes: 128 << 10, buffer_bytes: 256 << 10, ..LogOptions::default() },
        ..EngineOptions::default()
    };
    let disk = FaultyDisk::new();
    let open = |disk: &FaultyDisk| {
        Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, Path::new("db"), &options).unwrap()
    };
    let engine = open(&disk);
    let table = engine.create_table("t", b"").unwrap();
    let core = engine.core();
    let (txn, tail) = (core.transactions.draw(), core.log.tail());
    for number in 0..400_u32 {
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        txn.put(&table, &(number % 8).to_be_bytes(), &[7; 2000]).unwrap();
        txn.commit(Durability::Sync).unwrap();
    }
    engine.checkpoint().unwrap();
    assert!(core.log.low_water() > tail, "nothing was released");
    let slot = core.transactions.claim(txn, tail).unwrap();
    core.transactions.begin_change(slot, tail);
    engine.checkpoint().unwrap();
    let again = open(&disk.after_crash(CrashMode::DropUnsynced));
    assert!(again.table("t").unwrap().is_some());
}

/// A record whose transaction had the last number that there is made a database that could be opened once more, and
/// then never again: the next checkpoint said a number that no sound one says.
#[test]
fn when_the_numbers_of_transactions_have_run_out_the_database_is_still_opened() {
    let mut disk = FaultyDisk::new();
    let open = |disk: &FaultyDisk| {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap()
    };
    let engine = open(&disk);
    engine.create_table("t", b"").unwrap();
    let last = TxnId(records::MOST_TRANSACTIONS - 1);
    let lsn = engine.core().log.append(Urgency::Work, last, Lsn::ZERO, records::COMMIT, &[]).unwrap();
    engine.log().flush(lsn).unwrap();
    for _ in 0..3 {
        disk = disk.after_crash(CrashMode::DropUnsynced);
        let engine = open(&disk);
        let table = engine.table("t").unwrap().unwrap();
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        assert!(txn.get(&table, b"key", |_| ()).unwrap().is_none());
        let refused = txn.put(&table, b"key", b"value");
        assert!(matches!(refused, Err(TxnError::Storage(StorageError::LimitExceeded { .. }))), "{refused:?}");
        drop(txn);
        engine.checkpoint().unwrap();
    }
}

/// The checkpointer had its order, and somebody else took a checkpoint before it came to that: it took a second one at
/// once, after which all pages were logged anew.
#[test]
fn who_asked_for_a_checkpoint_is_content_with_that_of_another() {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
    let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
    let core = engine.core();
    let taken = |is_wanted: fn(&Wanted) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(120);
        while is_wanted(&core.growth.wanted.lock()) {
            assert!(Instant::now() < deadline, "the checkpointer takes no orders");
            thread::sleep(Duration::from_millis(1));
        }
    };
    let before = engine.stats().checkpoints;
    let mut control = core.control.lock();
    core.growth.ask();
    taken(|wanted| wanted.checkpoint);
    core.checkpoint_as(&mut control, false).unwrap();
    drop(control);
    // It takes this order when it is done with the other.
    core.growth.ask_reaper();
    taken(|wanted| wanted.reaper);
    assert_eq!(engine.stats().checkpoints, before + 1);
    core.growth.ask();
    taken(|wanted| wanted.checkpoint);
    core.growth.ask_reaper();
    taken(|wanted| wanted.reaper);
    assert_eq!(engine.stats().checkpoints, before + 2);
}

/// A thread that waited for the mutex of the control file while the database was closed wrote that file when the lock
/// file had been given back.
#[test]
fn nobody_takes_a_checkpoint_behind_the_last_one() {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
    let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
    let core = engine.core();
    let control = core.control.lock();
    thread::scope(|scope| {
        let late = scope.spawn(|| core.checkpoint());
        // For long enough that it waits; if it comes later, it is refused as well.
        thread::sleep(Duration::from_millis(20));
        core.life.close();
        drop(control);
        assert!(matches!(late.join().unwrap(), Err(StorageError::Closed)));
    });
    assert!(matches!(core.shorten_log(), Err(StorageError::Closed)));
    engine.close().unwrap();
}

/// Somebody else's checkpoint was under way when a large value was to be deleted, and let go of little, because it had
/// begun long before. That was taken for the room that was wanted: the delete was refused half-way, and lay in its own
/// way from then on.
#[test]
fn who_makes_room_ahead_is_not_content_with_a_checkpoint_that_began_before() {
    let log = LogOptions {
        segment_bytes: 256 << 10,
        buffer_bytes: 256 << 10,
        capacity_bytes: 4 << 20,
        ..LogOptions::default()
    };
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
    let engine =
        Engine::open(disk, Path::new("db"), &EngineOptions { log, ..EngineOptions::default() }).unwrap();
    let core = engine.core();
    let table = engine.create_table("table", b"").unwrap();
    let put = |key: &[u8], value: &[u8]| {
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        txn.put(&table, key, value).unwrap();
        txn.commit(Durability::Lazy).unwrap();
    };
    put(b"large", &[1; 480 << 10]);
    let mut rows = (0_u32..).map(u32::to_be_bytes);
    // No checkpoint of the background comes between.
    let without_others = || core.growth.asked.store(true, Ordering::Relaxed);
    let mut fills = true;
    let backup = engine.backup(Path::new("copy"), &mut |_| {
        if mem::take(&mut fills) {
            without_others();
            rows.by_ref().take(100).for_each(|row| put(&row, &[1; 2000]));
            engine.checkpoint().unwrap();
            without_others();
        }
        ControlFlow::Continue(())
    });
    backup.unwrap();
    // The backup has kept more of the log than that.
    let let_go = core.control.lock().content().log_from;
    assert!(core.log.low_water() < let_go);
    while core.log.work_left_bytes() > 500 << 10 {
        put(&rows.next().unwrap(), &[1; 2000]);
    }
    let mut txn = engine.begin(BeginOptions::default()).unwrap();
    txn.put(&table, b"first", b"").unwrap();
    let control = core.control.lock();
    thread::scope(|scope| {
        let deleting = scope.spawn(|| txn.delete(&table, b"large"));
        // For long enough that it waits; if it comes later, it finds the log as short.
        thread::sleep(Duration::from_millis(100));
        core.log.release_before(let_go).unwrap();
        drop(control);
        assert!(deleting.join().unwrap().unwrap());
    });
    txn.commit(Durability::Lazy).unwrap();
    engine.close().unwrap();
}
