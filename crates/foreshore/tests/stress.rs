//! Many more threads than cores, and a watchdog: whoever hangs is found out.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use foreshore::{Database, Durability, Options, Result, TableDefinition, TransactOptions};
use foreshore_env::random::Xorshift;

const ACCOUNTS: TableDefinition<u32, i64> = TableDefinition::new("accounts");
const JOURNAL: TableDefinition<(u64, u64), (u32, u32)> = TableDefinition::new("journal");

const THREADS: u64 = 64;
const CUSTOMERS: u64 = 40;
const OPENING: i64 = 100;
const TRANSFERS: u64 = 60;

/// Nothing at all was committed for so long: that is a hang, even on a machine with better things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the process when `progress` stands still.
fn watch(progress: &AtomicU64, done: &AtomicBool, db: &Database) {
    let (mut last, mut still) = (0, Duration::ZERO);
    let step = Duration::from_millis(100);
    while !done.load(Ordering::Relaxed) {
        thread::sleep(step);
        let now = progress.load(Ordering::Relaxed);
        still = if now == last { still + step } else { Duration::ZERO };
        last = now;
        if still > PATIENCE {
            eprintln!("hanging after {now} transactions: {:?}", db.stats());
            std::process::abort();
        }
    }
}

fn transfer(db: &Database, random: &mut Xorshift, (thread, number): (u64, u64)) -> Result<()> {
    let (from, to) = (random.below(CUSTOMERS) as u32, random.below(CUSTOMERS) as u32);
    let careless = random.below(3) == 0;
    let options = TransactOptions {
        durability: Some(if number % 8 == 0 { Durability::Sync } else { Durability::Lazy }),
        ..TransactOptions::default()
    };
    db.transact_with(&options, |tx| {
        // Reading first and writing later deadlocks with whoever does the same; that is the point.
        let mut balance = |customer| {
            let read =
                if careless { tx.get(ACCOUNTS, customer) } else { tx.get_for_update(ACCOUNTS, customer) };
            read.map(|balance| balance.unwrap_or(0))
        };
        let (from_balance, to_balance) = (balance(from)?, balance(to)?);
        if from != to {
            tx.put(ACCOUNTS, from, from_balance - 1)?;
            tx.put(ACCOUNTS, to, to_balance + 1)?;
        }
        tx.insert(JOURNAL, (thread, number), (from, to)).map(|_| ())
    })
}

#[test]
fn sixty_four_threads_on_few_accounts() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { pool_bytes: 1 << 20, checkpoint_bytes: 256 << 10, ..Options::default() };
    let db = Database::builder().options(options).open(directory.path().join("db")).unwrap();
    db.transact(|tx| {
        (0..CUSTOMERS as u32).try_for_each(|customer| tx.put(ACCOUNTS, customer, OPENING).map(|_| ()))
    })
    .unwrap();
    let (progress, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let audits = thread::scope(|scope| {
        scope.spawn(|| watch(&progress, &done, &db));
        let (finished, wait) = mpsc::channel();
        for thread in 0..THREADS {
            let (db, progress, finished) = (db.clone(), &progress, finished.clone());
            scope.spawn(move || {
                let mut random = Xorshift::new(thread + 1);
                let result = (0..TRANSFERS).try_for_each(|number| {
                    transfer(&db, &mut random, (thread, number))?;
                    progress.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, foreshore::Error>(())
                });
                finished.send(result).unwrap();
            });
        }
        let (mut running, mut audits) = (THREADS, 0);
        while running > 0 {
            if let Ok(result) = wait.recv_timeout(Duration::from_millis(20)) {
                result.unwrap();
                running -= 1;
            }
            let total: i64 = db
                .transact(|tx| {
                    tx.range(ACCOUNTS, ..)?.try_fold(0, |sum, entry| entry.map(|(_, balance)| sum + balance))
                })
                .unwrap();
            assert_eq!(total, CUSTOMERS as i64 * OPENING);
            audits += 1;
            progress.fetch_add(1, Ordering::Relaxed);
        }
        done.store(true, Ordering::Relaxed);
        audits
    });
    assert!(audits > 0);
    let entries = db.transact(|tx| Ok(tx.range(JOURNAL, ..)?.count() as u64)).unwrap();
    assert_eq!(entries, THREADS * TRANSFERS);
    let report = db.verify().unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}
