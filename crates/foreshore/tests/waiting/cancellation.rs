//! How soon a wait ends that is cancelled, by kinds of waits, beside those for locks (`waits.rs`) and for latches (in
//! `txn`).
//!
//! What is promised is 20 ms beyond what the machine takes to let a thread run that was woken. So by turns with the
//! waits a plain wake-up by a condition variable is timed, and of a series of both, half of the waits end within 20 ms
//! more than half of those take. That is what is measured; of a single wait on a busy machine nothing can be said.
//!
//! `cargo test -p foreshore --test waiting --release cancellation -- --nocapture` prints the figures.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    CancelHandle, Database, Durability, Error, Execution, Options, Result, TableDefinition, TableLock,
    TransactOptions,
};
use foreshore_env::sync::{Condvar, Mutex};
use foreshore_testkit::FaultyDisk;

const TABLE: TableDefinition<u32, &[u8]> = TableDefinition::new("table");
/// How often each wait is cancelled.
const ROUNDS: usize = 30;
/// What a waiting thread is given to come to its wait. By then who waits for a lock sleeps for 80 ms at a time, so
/// whoever is not woken comes too late.
const SETTLED: Duration = Duration::from_millis(100);
/// What is promised: the first of a series ends within this, half of it within this and half of the plain wake-ups.
const PROMISED: Duration = Duration::from_millis(20);
/// And nine of ten within this.
const SOON: Duration = Duration::from_millis(200);
/// Half of what the shortest of these waits takes by itself. Who comes later to cancel it may find it over.
const TOO_LATE: Duration = Duration::from_millis(500);
/// How long a machine may be too busy for all that.
const PATIENCE: Duration = Duration::from_secs(180);

fn open(disk: &FaultyDisk, options: Options) -> Database {
    Database::builder().options(options).disk(Arc::new(disk.clone())).open("/db").unwrap()
}

/// Cancels a wait again and again. `wait` hands over its handle before it waits, and comes back with the error.
fn cancel(kind: &str, wait: impl Fn(mpsc::Sender<CancelHandle>) -> Error + Sync) {
    let patience = Instant::now() + PATIENCE;
    while !is_as_promised(kind, &wait) {
        assert!(Instant::now() < patience, "{kind}: not as promised, in any of many series");
    }
}

/// How long a thread that sleeps takes to run again, once it is woken.
fn plain_wake_up() -> Duration {
    let (is_woken, bell) = (Mutex::new(false), Condvar::new());
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut woken = is_woken.lock();
            while !*woken {
                woken = bell.wait(woken);
            }
            Instant::now()
        });
        thread::sleep(SETTLED);
        let begun = Instant::now();
        *is_woken.lock() = true;
        bell.notify_all();
        sleeper.join().unwrap().saturating_duration_since(begun)
    })
}

/// Whether a series of waits ended as soon as is promised.
fn is_as_promised(kind: &str, wait: &(impl Fn(mpsc::Sender<CancelHandle>) -> Error + Sync)) -> bool {
    let (mut took, mut plain): (Vec<Duration>, Vec<Duration>) = (0..ROUNDS)
        .map(|_| {
            let plain = plain_wake_up();
            let took = thread::scope(|scope| {
                let (sender, handles) = mpsc::channel();
                // At the earliest.
                let waits_since = Instant::now();
                let waiter = scope.spawn(|| (wait(sender), Instant::now()));
                let mut handle = handles.recv().unwrap();
                thread::sleep(SETTLED);
                // A run that was repeated has another one.
                while let Ok(newer) = handles.try_recv() {
                    handle = newer;
                }
                let is_over = waiter.is_finished();
                let begun = Instant::now();
                handle.cancel();
                let (error, end) = waiter.join().unwrap();
                if waits_since.elapsed() > TOO_LATE {
                    return Duration::MAX;
                }
                assert!(!is_over, "{kind}: {error}");
                assert!(matches!(error, Error::Cancelled), "{kind}: {error}");
                end.saturating_duration_since(begun)
            });
            (took, plain)
        })
        .unzip();
    took.sort();
    plain.sort();
    let (first, half, most) = (took[0], took[ROUNDS / 2], took[ROUNDS - 1]);
    let plain = plain[ROUNDS / 2];
    println!(
        "{kind}: the first within {first:?}, half within {half:?}, all within {most:?}; of plain wake-ups half within {plain:?}"
    );
    first < PROMISED && half < PROMISED + plain && took[ROUNDS * 9 / 10] < SOON
}

/// Waits that last until a deadline end soon after it, though not each of them on a busy machine.
fn soon_over(wait: impl Fn(Instant)) {
    let patience = Instant::now() + PATIENCE;
    loop {
        let deadline = Instant::now() + SETTLED;
        wait(deadline);
        if deadline.elapsed() < SOON {
            return;
        }
        assert!(Instant::now() < patience, "never soon after the deadline");
    }
}

#[test]
fn waits_for_rows_and_tables() {
    let db = open(&FaultyDisk::new(), Options::default());
    db.transact(|tx| tx.put(TABLE, 1, &b""[..])).unwrap();
    let mut holder = db.begin().unwrap();
    holder.put(TABLE, 1, &b"held"[..]).unwrap();
    cancel("a row", |handles| {
        let mut tx = db.begin().unwrap();
        handles.send(tx.cancel_handle()).unwrap();
        tx.get(TABLE, 1).unwrap_err()
    });
    cancel("a table", |handles| {
        let mut tx = db.begin().unwrap();
        handles.send(tx.cancel_handle()).unwrap();
        tx.lock_table(TABLE, TableLock::Exclusive).unwrap_err()
    });
    holder.rollback().unwrap();
    db.transact(|tx| tx.lock_table(TABLE, TableLock::Exclusive)).unwrap();
}

#[test]
fn waits_for_all_locks_of_a_plan() {
    let db = open(&FaultyDisk::new(), Options::default());
    db.transact(|tx| tx.put(TABLE, 1, &b""[..])).unwrap();
    let mut holder = db.begin().unwrap();
    holder.put(TABLE, 1, &b"held"[..]).unwrap();
    let planned = TransactOptions { execution: Some(Execution::Planned), ..TransactOptions::default() };
    cancel("a footprint", |handles| {
        // The first run takes no lock, and looks what will be locked.
        let body = |tx: &mut foreshore::Transaction| {
            handles.send(tx.cancel_handle()).unwrap();
            tx.put(TABLE, 1, &b"waits"[..])
        };
        db.transact_with(&planned, body).unwrap_err()
    });
    holder.rollback().unwrap();
    db.transact(|tx| tx.lock_table(TABLE, TableLock::Exclusive)).unwrap();
}

/// Whoever needs room in a full log waits for others for up to a second.
#[test]
fn waits_for_room_in_the_log() {
    let options = Options {
        log_bytes: 4 << 20,
        log_segment_bytes: 256 << 10,
        log_buffer_bytes: 256 << 10,
        pool_bytes: 1 << 20,
        ..Options::default()
    };
    let db = open(&FaultyDisk::new(), options);
    let fill = |tx: &mut foreshore::Transaction, key: u32| -> Result<()> {
        (0..10_000_u32).try_for_each(|round| tx.put(TABLE, key, &[round as u8; 900][..]).map(|_| ()))
    };
    let mut oldest = db.begin().unwrap();
    assert!(matches!(fill(&mut oldest, 1), Err(Error::LogFull { .. })));
    cancel("room in the log", |handles| {
        let mut tx = db.begin().unwrap();
        handles.send(tx.cancel_handle()).unwrap();
        fill(&mut tx, 2).unwrap_err()
    });
    oldest.rollback().unwrap();
    db.transact(|tx| tx.put(TABLE, 3, &[1; 900][..]).map(|_| ())).unwrap();
}

/// While the log's disk stands still no changed page can be written, so in the end there is no frame for another page.
#[test]
fn waits_for_frames_of_the_pool() {
    const ROWS: u32 = 3000;
    let disk = FaultyDisk::new();
    let db =
        open(&disk, Options { pool_bytes: 512 << 10, durability: Durability::Lazy, ..Options::default() });
    let value = [7; 900];
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.put(TABLE, key, &value[..]).map(|_| ()))).unwrap();
    db.checkpoint().unwrap();
    disk.hold_syncs(true);
    // Its changes stay in the pool's frames, until the hand has gone round in vain twice and more.
    let mut writer = db.begin().unwrap();
    let (mut key, mut refused) = (0, 0);
    while refused < 5 {
        writer.set_deadline(Some(Instant::now() + Duration::from_millis(200)));
        match writer.put(TABLE, key, &[8; 900][..]) {
            Ok(_) => (key, refused) = (key + 1, 0),
            Err(error) => {
                assert!(matches!(error, Error::LockTimeout(_)), "{error}");
                refused += 1;
            }
        }
    }
    writer.set_deadline(None);
    cancel("a frame", |handles| {
        let mut tx = db.begin().unwrap();
        handles.send(tx.cancel_handle()).unwrap();
        (0..ROWS).rev().find_map(|key| tx.get(TABLE, key).err()).unwrap()
    });
    soon_over(|deadline| {
        let mut tx = db.begin().unwrap();
        tx.set_deadline(Some(deadline));
        let error = (0..ROWS).rev().find_map(|key| tx.get(TABLE, key).err()).unwrap();
        assert!(matches!(error, Error::LockTimeout(_)), "{error}");
    });
    // Whoever has all the time is told in the end what holds it up.
    let mut tx = db.begin().unwrap();
    let error = (0..ROWS).rev().find_map(|key| tx.get(TABLE, key).err()).unwrap();
    assert!(matches!(error, Error::PoolExhausted { stalled: true, .. }), "{error}");
    drop(tx);
    disk.hold_syncs(false);
    writer.rollback().unwrap();
    db.transact(|tx| {
        (0..ROWS).try_for_each(|key| {
            assert_eq!(tx.get(TABLE, key)?.unwrap(), value);
            Ok(())
        })
    })
    .unwrap();
}

/// Nobody takes a commit back; who waits for one may stop waiting.
#[test]
fn waits_for_commits_end_at_their_deadline() {
    let disk = FaultyDisk::new();
    let db = open(&disk, Options::default());
    db.transact(|tx| tx.put(TABLE, 1, &b""[..])).unwrap();
    disk.hold_syncs(true);
    let mut tx = db.begin().unwrap();
    tx.put(TABLE, 1, &b"later"[..]).unwrap();
    let ticket = tx.commit_pipelined().unwrap();
    soon_over(|deadline| assert!(!ticket.wait_until(deadline).unwrap()));
    disk.hold_syncs(false);
    ticket.wait().unwrap();
}
