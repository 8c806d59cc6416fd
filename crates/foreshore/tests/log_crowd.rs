//! Several large transactions at once, each of which fits the log alone: `transact` brings all of them to their end.

use foreshore_env::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use foreshore::{Database, Durability, Error, LogFullPolicy, Options, TableDefinition, TransactOptions};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("table");

/// More rows than one transaction can write.
const ROWS: u64 = 10_000;

fn options(log_full: LogFullPolicy) -> Options {
    Options {
        log_segment_bytes: 256 << 10,
        log_bytes: 2 << 20,
        log_buffer_bytes: 256 << 10,
        pool_bytes: 8 << 20,
        log_full,
        ..Options::default()
    }
}

fn lazy() -> TransactOptions {
    TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() }
}

/// A database with the last row of each writer: nobody appends to the table, so all need as much log for a row.
fn open(policy: LogFullPolicy, writers: u64) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::builder().options(options(policy)).open(directory.path().join("db")).unwrap();
    db.transact(|tx| {
        (0..=writers).try_for_each(|writer| tx.put(TABLE, key(writer, ROWS), &b""[..]).map(drop))
    })
    .unwrap();
    (directory, db)
}

fn key(writer: u64, row: u64) -> u64 {
    writer * (ROWS + 1) + row
}

/// Rows that one transaction can write when it is alone, in each of its runs. One that runs again finds the leaves of
/// the run before, which are logged whole when they are changed for the first time since a checkpoint.
fn rows_alone(policy: LogFullPolicy, writers: u64) -> u64 {
    let (_directory, db) = open(policy, writers);
    let run = || {
        let (runs, rows) = (AtomicU64::new(0), AtomicU64::new(0));
        let error = db
            .transact_with(&lazy(), |tx| {
                runs.fetch_add(1, Ordering::Relaxed);
                rows.store(0, Ordering::Relaxed);
                (0..ROWS).try_for_each(|row| {
                    tx.put(TABLE, key(0, row), &[1; 1000][..])?;
                    rows.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
            })
            .unwrap_err();
        assert!(matches!(error, Error::LogFull { .. } | Error::LogHeld), "{error}");
        assert_eq!(runs.into_inner(), 1, "who does not fit alone is not run again");
        rows.into_inner()
    };
    let first = run();
    db.checkpoint().unwrap();
    let again = run();
    println!("{policy:?}, {writers} writers: {first} rows, {again} when they are written again");
    first.min(again)
}

#[test]
fn transactions_that_each_fit_the_log_alone_all_come_to_their_end() {
    for policy in LogFullPolicy::ALL {
        for (writers, percent) in [(2, 90), (3, 60), (8, 60), (8, 90)] {
            let rows = rows_alone(policy, writers) * percent / 100;
            let (_directory, db) = open(policy, writers);
            let have_begun = AtomicU64::new(0);
            thread::scope(|scope| {
                for writer in 0..writers {
                    let (db, have_begun) = (&db, &have_begun);
                    scope.spawn(move || {
                        let mut first_run = true;
                        let written = db.transact_with(&lazy(), |tx| {
                            for row in 0..rows {
                                tx.put(TABLE, key(writer, row), &[writer as u8; 1000][..])?;
                                if std::mem::take(&mut first_run) {
                                    have_begun.fetch_add(1, Ordering::Relaxed);
                                    while have_begun.load(Ordering::Relaxed) < writers {
                                        thread::sleep(Duration::from_millis(1));
                                    }
                                }
                            }
                            Ok(())
                        });
                        written.unwrap_or_else(|error| {
                            panic!("{policy:?}, {writers} writers, {percent} %: {error}")
                        });
                    });
                }
            });
            let found = db.transact(|tx| Ok(tx.range(TABLE, ..)?.count())).unwrap();
            assert_eq!(found as u64, writers + 1 + writers * rows);
            db.close().unwrap();
        }
    }
}
