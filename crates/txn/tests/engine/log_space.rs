//! A log that is full: room for rollbacks, who holds it, and what is done about it.

use foreshore_env::{thread, time::Instant};
use foreshore_txn::{LogFullPolicy, LogHolder};

use super::*;

/// A log of so many segments of 128 KiB, with checkpoints in the background.
fn small_log(segments: u64, log_full: LogFullPolicy) -> EngineOptions {
    let log = LogOptions { capacity_bytes: segments * (128 << 10), ..tiny().log };
    EngineOptions { log, log_full, node_capacity: usize::MAX, ..tiny() }
}

fn is_log_full(error: &TxnError) -> bool {
    matches!(error, TxnError::Storage(StorageError::LogFull { .. }))
}

/// TXN-5: whatever the shape of its records, a transaction that has filled the log can be rolled back, also if checkpoints
/// made it log its pages anew.
#[test]
fn a_transaction_that_fills_the_log_can_always_roll_back() {
    // Compensations of the first three are longer than what they take back.
    type Change = fn(&mut Txn, &TableInfo, u32) -> Result<bool, TxnError>;
    let changes: [(&str, Change); 4] = [
        ("short keys come and go", |txn, table, number| {
            let key = (number / 2 % 64).to_be_bytes();
            if number % 2 == 0 { txn.put(table, &key, b"") } else { txn.delete(table, &key) }
        }),
        ("short values change", |txn, table, number| {
            txn.put(table, &(number % 64).to_be_bytes(), &number.to_be_bytes())
        }),
        ("values grow and shrink", |txn, table, number| {
            txn.put(table, &(number % 64).to_be_bytes(), &vec![1; (number % 300) as usize])
        }),
        ("many pages", |txn, table, number| {
            txn.put(table, &(number.wrapping_mul(2_654_435_761) % 4096).to_be_bytes(), &[2; 400])
        }),
    ];
    for (name, change) in changes {
        for segments in [8, 24] {
            for checkpoint in [false, true] {
                let context = format!("{name}, {segments} segments, checkpoint {checkpoint}");
                let disk = FaultyDisk::new();
                let engine = open_with(&disk, &small_log(segments, LogFullPolicy::Throttle)).unwrap();
                let table = engine.create_table("t", b"").unwrap();
                put(&engine, &table, &7_u32.to_be_bytes(), b"before");
                let mut txn = begin(&engine);
                let error = (0..).find_map(|number| change(&mut txn, &table, number).err()).unwrap();
                assert!(is_log_full(&error), "{context}: {error}");
                if checkpoint {
                    engine.checkpoint().unwrap();
                }
                txn.rollback().unwrap_or_else(|error| panic!("{context}: {error}"));
                let content = read_all(&engine).unwrap();
                assert_eq!(content.len(), 1, "{context}");
                put(&engine, &table, b"after", b"");
                assert_sound(&engine, &context);
            }
        }
    }
}

#[test]
fn who_holds_the_log_is_told_with_label_and_age() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log(64, LogFullPolicy::Throttle)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let options = BeginOptions { label: Some("nightly report".into()), ..BeginOptions::default() };
    let mut old = engine.begin(options).unwrap();
    old.put(&table, b"old", b"value").unwrap();
    let mut reader = begin(&engine);
    get(&mut reader, &table, b"new").unwrap();
    reader.commit(Durability::Sync).unwrap();
    put(&engine, &table, b"new", &[1; 1000]);
    engine.checkpoint().unwrap();
    put(&engine, &table, b"new", &[2; 1000]);

    let retention = engine.log_retention();
    assert!(retention.used_bytes < retention.work_bytes && retention.work_bytes < retention.capacity_bytes);
    let [first, second] = &retention.holders[..] else { panic!("{retention:?}") };
    let LogHolder::Transaction(view) = &first.holder else { panic!("{retention:?}") };
    assert_eq!((view.txn, view.label.as_deref()), (old.id(), Some("nightly report")));
    assert!(view.open_for.is_some() && first.held_bytes > second.held_bytes + 1000);
    assert!(matches!(second.holder, LogHolder::Pages) && second.held_bytes > 1000);

    old.rollback().unwrap();
    engine.checkpoint().unwrap();
    let retention = engine.log_retention();
    assert!(matches!(&retention.holders[..], [only] if matches!(only.holder, LogHolder::Pages)));
}

/// Writes until the log is full, each time in a transaction of its own; gives the error.
fn fill_by_others(engine: &Arc<Engine>, table: &TableInfo) -> Option<TxnError> {
    (0..3000_u32).find_map(|number| {
        let mut txn = begin(engine);
        let key = (number % 100).to_be_bytes();
        txn.put(table, &key, &number.to_be_bytes().repeat(250))
            .map(|_| txn.commit(Durability::Lazy).map(|_| ()))
            .err()
    })
}

/// The oldest transaction gets a typed error, is rolled back, and nobody else notices.
#[test]
fn the_oldest_transaction_is_ended_when_the_log_is_full() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log(16, LogFullPolicy::EndOldest)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut old = begin(&engine);
            old.put(&table, b"old", b"value").unwrap();
            loop {
                thread::sleep(Duration::from_millis(2));
                // A read is enough to learn it.
                if let Err(error) = get(&mut old, &table, b"old") {
                    assert!(matches!(error, TxnError::LogHeld), "{error}");
                    assert!(matches!(old.put(&table, b"x", b""), Err(TxnError::LogHeld)));
                    assert!(matches!(old.commit(Durability::Sync), Err(TxnError::LogHeld)));
                    return;
                }
            }
        });
        assert!(fill_by_others(&engine, &table).is_none());
        owner.join().unwrap();
    });
    let mut reader = begin(&engine);
    assert_eq!(get(&mut reader, &table, b"old").unwrap(), None);
    drop(reader);
    assert_sound(&engine, "after the oldest was ended");
}

/// Nobody waits for ever for a transaction in the hands of nobody.
#[test]
fn an_oldest_transaction_that_is_forgotten_makes_others_fail_in_time() {
    for policy in [LogFullPolicy::Throttle, LogFullPolicy::EndOldest] {
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &small_log(16, policy)).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        let mut old = begin(&engine);
        old.put(&table, b"old", b"value").unwrap();
        let begun = Instant::now();
        let error = fill_by_others(&engine, &table).expect("the log gets full");
        assert!(is_log_full(&error), "{error}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "others are throttled");
        match policy {
            LogFullPolicy::Throttle => old.commit(Durability::Sync).map(|_| ()).unwrap(),
            LogFullPolicy::EndOldest => {
                assert!(matches!(old.put(&table, b"old", b"new"), Err(TxnError::LogHeld)));
                old.rollback().unwrap();
            }
        }
        assert!(fill_by_others(&engine, &table).is_none());
        assert_sound(&engine, "after the old one has ended");
    }
}

/// A transaction that alone has filled the log need not wait for anybody.
#[test]
fn a_transaction_that_fills_the_log_alone_is_told_at_once() {
    for policy in [LogFullPolicy::Throttle, LogFullPolicy::EndOldest] {
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &small_log(16, policy)).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        let mut txn = begin(&engine);
        let fill = |txn: &mut Txn| {
            (0_u32..).find_map(|number| txn.put(&table, &number.to_be_bytes(), &[1; 500]).err())
        };
        let error = fill(&mut txn).unwrap();
        match policy {
            LogFullPolicy::Throttle => {
                assert!(is_log_full(&error), "{error}");
                txn.commit(Durability::Sync).unwrap();
            }
            LogFullPolicy::EndOldest => {
                assert!(matches!(error, TxnError::LogHeld), "{error}");
                drop(txn);
            }
        }
        put(&engine, &table, b"after", b"");
        assert_sound(&engine, "after a full log");
    }
}
