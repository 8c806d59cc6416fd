//! Commits that do not wait for the disk, through the facade.

use std::{
    future::{Future, IntoFuture},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use foreshore::{Database, Durability, Error, TableDefinition, TransactOptions, TxnId};

const TABLE: TableDefinition<u32, u64> = TableDefinition::new("table");

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// All that a runtime must be able to do.
fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// A database whose log is slow.
fn slow(settings: &[(&str, &str)]) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let mut builder = Database::builder().pool_bytes(4 << 20);
    for (name, value) in settings {
        builder = builder.set(name, value).unwrap();
    }
    let db = builder.open(directory.path().join("db")).unwrap();
    db.transact(|tx| (0..8).try_for_each(|key| tx.put(TABLE, key, 0).map(drop))).unwrap();
    (directory, db)
}

#[test]
fn tickets_are_awaited_and_waited_for() {
    for release in ["off", "shared", "shared_and_exclusive"] {
        let begun = Instant::now();
        // If each waited for the disk, it would take twice as long, at least. The machine may be slow for once.
        while commit_fifty(release) > 50 * LATENCY / 2 {
            assert!(begun.elapsed() < Duration::from_secs(120), "{release}: each waited for the disk");
        }
    }
}

/// What the log takes for each flush.
const LATENCY: Duration = Duration::from_millis(20);

/// How long it takes to commit fifty transactions of a pipeline, which are awaited afterwards.
fn commit_fifty(release: &str) -> Duration {
    let (directory, db) = slow(&[("log_latency", "20ms"), ("early_lock_release", release)]);
    let mut pipeline = db.pipeline();
    let begin = Instant::now();
    let mut tickets = Vec::new();
    for number in 1..=50 {
        let (before, ticket) = pipeline
            .transact(|tx| {
                let before = tx.get_for_update(TABLE, 0)?.unwrap_or(0);
                tx.put(TABLE, 0, before + 1)?;
                Ok(before)
            })
            .unwrap();
        assert_eq!(before + 1, number, "{release}: a pipeline reads what it wrote");
        tickets.push(ticket);
    }
    let committed = begin.elapsed();
    let last = tickets.pop().unwrap();
    block_on(last).unwrap();
    assert!(tickets.iter().all(foreshore::CommitTicket::is_durable), "{release}");
    let tx = db.begin().unwrap();
    let ticket = tx.commit_pipelined().unwrap();
    assert!(ticket.wait_until(Instant::now()).unwrap(), "it has seen nothing");
    pipeline.flush().unwrap();
    drop(pipeline);
    db.close().unwrap();
    let again = Database::open(directory.path().join("db")).unwrap();
    assert_eq!(again.transact(|tx| tx.get(TABLE, 0)).unwrap(), Some(50));
    committed
}

#[test]
fn a_commit_can_be_pipelined_without_a_ticket() {
    let (_directory, db) = slow(&[("log_latency", "50ms")]);
    let options = TransactOptions { durability: Some(Durability::Pipelined), ..TransactOptions::default() };
    // The machine may be slow for once, not each time.
    let does_not_wait = (7..107).any(|value| {
        let begin = Instant::now();
        db.transact_with(&options, |tx| tx.put(TABLE, 1, value)).unwrap();
        let took = begin.elapsed();
        // Whoever reads it and wants to be sure waits.
        assert_eq!(db.transact(|tx| tx.get(TABLE, 1)).unwrap(), Some(value));
        assert!(begin.elapsed() >= Duration::from_millis(50));
        took < Duration::from_millis(50)
    });
    assert!(does_not_wait, "the commit waited for the log");
}

#[test]
fn pipelines_that_deadlock_run_again() {
    for (release, victim) in [
        ("off", "shortest_pipeline"),
        ("off", "youngest"),
        ("shared", "longest_pipeline"),
        ("off", "youngest"),
    ] {
        let (_directory, db) = slow(&[
            ("early_lock_release", release),
            ("victim_policy", victim),
            ("pipeline_length", "10"),
            ("log_latency", "1ms"),
        ]);
        thread::scope(|scope| {
            for thread in 0..3_u32 {
                let db = db.clone();
                scope.spawn(move || {
                    let mut pipeline = db.pipeline();
                    for round in 0..25_u32 {
                        let (_, ticket) = pipeline
                            .transact(|tx| {
                                for key in [(thread + round) % 3, (2 * round + 2 * thread) % 3, 3] {
                                    let value = tx.get_for_update(TABLE, key)?.unwrap_or(0);
                                    tx.put(TABLE, key, value + 1)?;
                                }
                                Ok(())
                            })
                            .unwrap();
                        drop(ticket);
                    }
                });
            }
        });
        let sum = db.transact(|tx| {
            let mut sum = 0;
            for entry in tx.range(TABLE, ..)? {
                sum += entry?.1;
            }
            Ok(sum)
        });
        assert_eq!(sum.unwrap(), 3 * 25 * 3, "{release}, {victim}");
        assert_eq!(db.transact(|tx| tx.get(TABLE, 3)).unwrap(), Some(75));
    }
}

#[test]
fn a_pipeline_has_one_open_transaction_and_cancelled_ones_do_not_commit() {
    let (_directory, db) = slow(&[]);
    let mut pipeline = db.pipeline();
    let mut tx = pipeline.begin().unwrap();
    assert!(matches!(pipeline.begin(), Err(Error::PipelineBusy)));
    tx.put(TABLE, 1, 1).unwrap();
    tx.cancel_handle().cancel();
    assert!(matches!(tx.commit_pipelined(), Err(Error::Cancelled)));
    assert_eq!(db.transact(|tx| tx.get(TABLE, 1)).unwrap(), Some(0));
    assert_eq!(pipeline.length(), 0);
    pipeline.begin().unwrap().commit().unwrap();
}

/// Whether it begins with new locks or with those that its predecessors have left.
#[test]
fn reports_name_the_call_that_began_a_transaction_of_a_pipeline() {
    let (_directory, db) = slow(&[("early_lock_release", "off")]);
    let begun_at = |id: TxnId| {
        let mut locks = db.locks().locks.into_iter().filter(|lock| lock.transaction.id == id);
        let at = locks.find_map(|lock| lock.transaction.begun_at).unwrap();
        assert_eq!(at.file(), file!());
        at.line()
    };
    let mut pipeline = db.pipeline();
    for key in 0..3 {
        let line = line!() + 1;
        let run = pipeline.transact(|tx| tx.put(TABLE, key, 1).map(|_| begun_at(tx.id())));
        assert_eq!(run.unwrap().0, line);
        let mut tx = pipeline.begin().unwrap();
        tx.put(TABLE, key, 2).unwrap();
        assert_eq!(begun_at(tx.id()), line + 2);
        drop(tx.commit_pipelined().unwrap());
    }
}
