//! A log that is full: room for rollbacks, who holds it, and what is done about it.

use std::ops::ControlFlow;

use foreshore_env::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};
use foreshore_testkit::CrashMode;
use foreshore_txn::{LockError, LogFullPolicy, LogHolder};

use super::*;

/// A log of so many segments of 128 KiB, with checkpoints in the background.
fn small_log(segments: u64, log_full: LogFullPolicy) -> EngineOptions {
    let log = LogOptions { capacity_bytes: segments * (128 << 10), ..tiny().log };
    EngineOptions { log, log_full, node_capacity: usize::MAX, ..tiny() }
}

fn is_log_full(error: &TxnError) -> bool {
    matches!(error, TxnError::Storage(StorageError::LogFull { .. }))
}

/// TXN-5: whatever the shape of its records, a transaction that has filled the log can be rolled back, also if
/// checkpoints made it log its pages anew.
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

/// A checkpoint makes a rollback log its pages anew. One after the other took all that was kept for it: the database
/// stopped, and could not be opened again.
#[test]
fn checkpoints_leave_rollback_its_room() {
    let options = small_log(24, LogFullPolicy::Throttle);
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut txn = begin(&engine);
    (0..2000_u32).for_each(|row| _ = txn.put(&table, &row.to_be_bytes(), &[0; 400]).unwrap());
    txn.commit(Durability::Sync).unwrap();
    engine.checkpoint().unwrap();
    let before = read_all(&engine).unwrap();

    let mut old = begin(&engine);
    let mut places = Vec::new();
    let error = (1_u8..).find_map(|pass| {
        places.push(old.savepoint().unwrap());
        // One on each page at least.
        (0..2000_u32).step_by(15).find_map(|row| {
            let mut value = [0; 400];
            value[7] = pass;
            old.put(&table, &row.to_be_bytes(), &value).err()
        })
    });
    assert!(error.is_some_and(|error| is_log_full(&error)) && places.len() > 3);
    let taken = engine.stats().checkpoints;
    for place in places.into_iter().rev() {
        if let Err(error) = engine.checkpoint() {
            assert!(matches!(error, StorageError::LogFull { .. }), "{error}");
        }
        old.rollback_to(place).unwrap();
        let left = disk.after_crash(CrashMode::KeepAll);
        assert!(
            read_all(&open_with(&left, &options).unwrap()).unwrap() == before,
            "recovered something else"
        );
    }
    assert!(matches!(engine.checkpoint(), Err(StorageError::LogFull { disk_is_full: false, .. })));
    // A backup needs none.
    let copy = Path::new("/copy");
    engine.backup(copy, &mut |_| ControlFlow::Continue(())).unwrap();
    let copied = Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, copy, &options).unwrap();
    assert!(read_all(&copied).unwrap() == before, "the copy has something else");
    assert_sound(&copied, "the copy");
    assert!(engine.stats().checkpoints <= taken + 1, "what is left is for rollbacks");
    // What closing leaves is opened, too.
    engine.close().unwrap();
    drop((old, engine));
    let engine = open_with(&disk, &options).unwrap();
    assert!(read_all(&engine).unwrap() == before, "recovered something else");
    put(&engine, &table_of(&engine), b"after", b"");
    assert_sound(&engine, "after the rollback");
}

/// The last checkpoint of a closing and the first of an opening do not eat into it either, however often.
#[test]
fn closing_and_opening_leave_a_full_log_as_it_is() {
    let options = small_log(8, LogFullPolicy::Throttle);
    let disk = FaultyDisk::new();
    let mut engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    put(&engine, &table, b"key", b"before");
    let mut old = begin(&engine);
    old.put(&table, b"key", b"after").unwrap();
    old.prepare(b"id").unwrap();
    let error = fill_by_others(&engine, &table).expect("the log gets full");
    assert!(is_log_full(&error), "{error}");
    for _ in 0..32 {
        engine.close().unwrap();
        drop(engine);
        engine = open_with(&disk, &options).unwrap();
        assert_eq!(engine.prepared().unwrap().len(), 1);
    }
    // The last that began within the part for work ended beyond it, and there is a mark under it.
    let log = engine.log_retention();
    assert!(log.used_bytes <= log.work_bytes + 500, "{log:?}");
    engine.rollback_prepared(b"id").unwrap();
    let mut reader = begin(&engine);
    assert_eq!(get(&mut reader, &table_of(&engine), b"key").unwrap().unwrap(), b"before");
    drop(reader);
    assert_sound(&engine, "after the decision");
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
    assert_eq!((view.id, view.label.as_deref()), (old.id(), Some("nightly report")));
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

/// Whether others go on, who are told of a full log now and then: whoever makes room may come late on a busy machine.
fn others_go_on(engine: &Arc<Engine>, table: &TableInfo) {
    let begun = Instant::now();
    while let Some(error) = fill_by_others(engine, table) {
        assert!(is_log_full(&error) && begun.elapsed() < Duration::from_secs(120), "{error}");
    }
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
        others_go_on(&engine, &table);
        owner.join().unwrap();
    });
    let mut reader = begin(&engine);
    assert_eq!(get(&mut reader, &table, b"old").unwrap(), None);
    drop(reader);
    assert_sound(&engine, "after the oldest was ended");
}

/// In the midst of a batch that a scan gives, the long values of the entries behind are gone: that was said to be
/// damage.
#[test]
fn a_scan_whose_transaction_is_ended_meanwhile_is_told_so() {
    for ended_behind in 15..20 {
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &small_log(16, LogFullPolicy::EndOldest)).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        let others = engine.create_table("others", b"").unwrap();
        let mut old = begin(&engine);
        (0..40_u8).for_each(|key| _ = old.put(&table, &[key], &[key; 3000]).unwrap());
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = old.cursor(&table, all, Direction::Ascending, LockKind::Shared).unwrap();
        let mut seen = 0;
        let error = loop {
            let visited = old.visit(&mut cursor, |key, value| {
                assert_eq!((key, value), (&[seen][..], &[seen; 3000][..]));
                seen += 1;
                if seen == ended_behind {
                    others_go_on(&engine, &others);
                    assert!(engine.stats().ended > 0);
                }
                ControlFlow::Continue(())
            });
            match visited {
                Ok(flow) => assert!(flow.is_some(), "all was given, though the transaction was ended"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, TxnError::LogHeld), "{seen} entries, then {error}");
        drop(old);
        assert_sound(&engine, "after the oldest was ended");
    }
}

/// Nobody waits for ever for a transaction in the hands of nobody.
#[test]
fn an_oldest_transaction_that_is_forgotten_makes_others_fail_in_time() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log(16, LogFullPolicy::Throttle)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut old = begin(&engine);
    old.put(&table, b"old", b"value").unwrap();
    let begun = Instant::now();
    let error = fill_by_others(&engine, &table).expect("the log gets full");
    assert!(is_log_full(&error), "{error}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "others are throttled");
    old.commit(Durability::Sync).unwrap();
    others_go_on(&engine, &table);
    assert_sound(&engine, "after the old one has ended");
}

/// TXN-35: a transaction that its owner has forgotten is rolled back in his place, and he is told when he comes back.
/// Whatever he does then, it is over; its locks stay until he gives them up.
#[test]
fn a_forgotten_oldest_transaction_is_ended_in_the_background() {
    for last_call in 0..6 {
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &small_log(16, LogFullPolicy::EndOldest)).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        put(&engine, &table, b"kept", b"before");
        let mut old = begin(&engine);
        let start = old.position();
        for number in 0..40_u32 {
            old.put(&table, &number.to_be_bytes().repeat(3), &[7; 300]).unwrap();
        }
        old.put(&table, b"kept", b"changed").unwrap();
        let savepoint = old.savepoint().unwrap();
        old.put(&table, b"long", &[1; 20_000]).unwrap();
        others_go_on(&engine, &table);
        assert_eq!((engine.stats().ended, engine.stats().writers_open), (1, 0));
        let mut other = begin(&engine);
        other.set_no_wait(true);
        let locked = get(&mut other, &table, b"kept");
        assert!(matches!(locked, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{locked:?}");
        drop(other);
        assert!(matches!(get(&mut old, &table, b"kept"), Err(TxnError::LogHeld)));
        assert!(matches!(old.put(&table, b"kept", b"again"), Err(TxnError::LogHeld)));
        assert!(matches!(old.rollback_to(savepoint), Err(TxnError::LogHeld)));
        match last_call {
            0 => assert!(matches!(old.commit(Durability::Sync), Err(TxnError::LogHeld))),
            1 => old.rollback().unwrap(),
            2 => assert!(matches!(old.prepare(b"id"), Err(TxnError::LogHeld))),
            3 => {
                assert!(matches!(old.roll_back_to_position(start), Err(TxnError::LogHeld)));
                drop(old);
            }
            // Its slot has another owner meanwhile.
            4 => {
                let others: Vec<_> = (0..40_u8)
                    .map(|number| {
                        let mut txn = begin(&engine);
                        txn.put(&table, &[b'x', number], b"").unwrap();
                        txn
                    })
                    .collect();
                assert!(matches!(old.put(&table, b"kept", b"again"), Err(TxnError::LogHeld)));
                drop(old);
                assert_eq!(engine.stats().writers_open, 40);
                drop(others);
            }
            _ => drop(old),
        }
        // Makes all ends durable: whoever was ended is no loser.
        put(&engine, &table, b"later", b"");
        let mut reader = begin(&engine);
        assert_eq!(get(&mut reader, &table, b"kept").unwrap().unwrap(), b"before");
        assert_eq!(get(&mut reader, &table, b"long").unwrap(), None);
        drop(reader);
        assert_sound(&engine, "after the oldest was ended");
        for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll] {
            let left = open(&disk.after_crash(mode)).unwrap();
            assert_eq!(left.stats().recovery.losers, 0, "{mode:?}");
            let mut reader = begin(&left);
            assert_eq!(get(&mut reader, &table_of(&left), b"kept").unwrap().unwrap(), b"before");
            drop(reader);
            assert_sound(&left, "recovered");
        }
    }
}

fn table_of(engine: &Engine) -> TableInfo {
    engine.table("t").unwrap().unwrap()
}

/// Owners that are at work are ended between two of their changes, or not at all: each that says it has committed has,
/// and no other.
#[test]
fn owners_at_work_and_the_background_do_not_both_end_a_transaction() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log(16, LogFullPolicy::EndOldest)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    put(&engine, &table, b"a", b"");
    let committed: Vec<Vec<Vec<u8>>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u8)
            .map(|worker| {
                let (engine, table) = (&engine, &table);
                scope.spawn(move || {
                    let mut committed = Vec::new();
                    let begun = Instant::now();
                    for round in 0_u32.. {
                        // On a slow machine it takes longer until somebody was in the way for too long.
                        let is_enough =
                            begun.elapsed() > Duration::from_millis(1500) && engine.stats().ended > 0;
                        if is_enough || begun.elapsed() > Duration::from_secs(120) {
                            return committed;
                        }
                        let mut txn = begin(engine);
                        let key = [&[worker][..], &round.to_be_bytes()].concat();
                        let keys = (0..8_u8).map(|part| [&key[..], &[part]].concat());
                        let written = keys.map(|key| {
                            // Long enough for others to fill the log.
                            if worker == 0 {
                                thread::sleep(Duration::from_millis(150));
                            }
                            txn.put(table, &key, &[worker; 900]).map(|_| key)
                        });
                        match written.collect::<Result<Vec<_>, _>>() {
                            Ok(keys) => match txn.commit(Durability::Lazy) {
                                Ok(_) => committed.extend(keys),
                                Err(error) => assert!(matches!(error, TxnError::LogHeld), "{error}"),
                            },
                            Err(error) => {
                                assert!(matches!(error, TxnError::LogHeld) || is_log_full(&error), "{error}");
                            }
                        }
                    }
                    committed
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut expected: Vec<_> = committed.into_iter().flatten().collect();
    expected.sort();
    let mut reader = begin(&engine);
    let found = scan(&mut reader, &table).unwrap().into_iter().map(|(key, _)| key).filter(|key| key != b"a");
    assert!(found.eq(expected.iter().cloned()), "what was committed is not what is there");
    drop(reader);
    assert_sound(&engine, "at the end");
    assert!(engine.stats().ended > 0, "nobody was ended: {:?}", engine.stats());
}

/// Nobody but a decision ends a prepared transaction, however full the log is.
#[test]
fn a_prepared_transaction_is_not_ended_for_a_full_log() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log(16, LogFullPolicy::EndOldest)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut old = begin(&engine);
    old.put(&table, b"old", b"value").unwrap();
    old.prepare(b"id").unwrap();
    let error = fill_by_others(&engine, &table).expect("the log gets full");
    assert!(is_log_full(&error), "{error}");
    assert_eq!(engine.stats().ended, 0);
    engine.commit_prepared(b"id").unwrap();
    others_go_on(&engine, &table);
    let mut reader = begin(&engine);
    assert_eq!(get(&mut reader, &table, b"old").unwrap().unwrap(), b"value");
    drop(reader);
    assert_sound(&engine, "after the decision");
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
            _ => unreachable!("the test knows both policies"),
        }
        put(&engine, &table, b"after", b"");
        assert_sound(&engine, "after a full log");
    }
}

/// TXN-36: whose first change was refused has nothing in the log, and keeps nothing of it from others.
#[test]
fn a_newcomer_that_found_the_log_full_keeps_none_of_it() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log(16, LogFullPolicy::Throttle)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut first = begin(&engine);
    let error = (0_usize..).find_map(|size| first.put(&table, b"first", &vec![1; 900 + size % 2]).err());
    assert!(error.is_some_and(|error| is_log_full(&error)));
    let mut newcomer = begin(&engine);
    newcomer.set_no_wait(true);
    let error = newcomer.put(&table, b"new", &[1; 3000]).unwrap_err();
    assert!(is_log_full(&error), "{error}");
    let holders = engine.log_retention().holders;
    let open = holders.iter().filter(|hold| matches!(hold.holder, LogHolder::Transaction(_)));
    assert_eq!(open.count(), 1, "{holders:?}");
    first.commit(Durability::Sync).unwrap();
    engine.checkpoint().unwrap();
    // Several times as much as the log takes.
    others_go_on(&engine, &table);
    newcomer.put(&table, b"new", &[1; 3000]).unwrap();
    newcomer.commit(Durability::Sync).unwrap();
    assert_sound(&engine, "after the newcomer");
}

/// TXN-36: nor does one that waits for a lock with its first change. It kept the log from where that began, for as long
/// as it waited: no checkpoint could shorten it, and others had no room.
#[test]
fn a_newcomer_that_waits_for_a_lock_keeps_none_of_the_log() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log(16, LogFullPolicy::Throttle)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    put(&engine, &table, b"key", b"before");
    thread::scope(|scope| {
        let mut reader = begin(&engine);
        assert_eq!(get(&mut reader, &table, b"key").unwrap().unwrap(), b"before");
        let newcomer = scope.spawn(|| put(&engine, &table, b"key", b"after"));
        while engine.locks().waiters().is_empty() {
            assert!(!newcomer.is_finished());
            thread::sleep(Duration::from_millis(1));
        }
        let holders = engine.log_retention().holders;
        assert!(matches!(&holders[..], [only] if matches!(only.holder, LogHolder::Pages)), "{holders:?}");
        // Several times as much as the log takes.
        others_go_on(&engine, &table);
        assert!(!newcomer.is_finished());
        reader.commit(Durability::Sync).unwrap();
        newcomer.join().unwrap();
    });
    let mut reader = begin(&engine);
    assert_eq!(get(&mut reader, &table, b"key").unwrap().unwrap(), b"after");
    drop(reader);
    assert_sound(&engine, "after the newcomer");
}

/// Whoever found the log full took a checkpoint for that, or waited for that of another thread, for as long as it took.
#[test]
fn a_deadline_ends_the_wait_for_a_checkpoint() {
    for cancels in [false, true] {
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &small_log(16, LogFullPolicy::Throttle)).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        put(&engine, &table, b"new", b"");
        let mut old = begin(&engine);
        let error = (0_usize..).find_map(|size| old.put(&table, b"old", &vec![1; 900 + size % 2]).err());
        assert!(error.is_some_and(|error| is_log_full(&error)));
        disk.hold_syncs(true);
        old.commit(Durability::Lazy).unwrap();
        let mut txn = begin(&engine);
        let token = cancels.then(|| txn.cancel_token());
        let (is_told, told) = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                txn.set_deadline((!cancels).then(|| Instant::now() + Duration::from_millis(50)));
                txn.put(&table, b"new", &[1; 900])
            });
            thread::sleep(Duration::from_millis(50));
            if let Some(token) = token {
                token.cancel();
            }
            let begun = Instant::now();
            while !waiting.is_finished() && begun.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(1));
            }
            let is_told = waiting.is_finished();
            disk.hold_syncs(false);
            (is_told, waiting.join().unwrap())
        });
        assert!(is_told, "it was told when the checkpoint was over: {told:?}");
        match told {
            Err(TxnError::Lock(LockError::Cancelled)) if cancels => {}
            told => assert!(!cancels && told.as_ref().is_err_and(is_log_full), "{told:?}"),
        }
        txn.rollback().unwrap();
        // There is room when the checkpoint is over.
        engine.checkpoint().unwrap();
        put(&engine, &table, b"new", &[1; 900]);
        assert_sound(&engine, "after the checkpoint");
    }
}

/// Who waits goes on when others have made room, also if it is then the one that needs most of the log.
#[test]
fn who_waits_for_room_is_not_taken_for_the_one_it_waited_for() {
    for policy in [LogFullPolicy::Throttle, LogFullPolicy::EndOldest] {
        for round in 0..5 {
            // Nobody waits for more than a second: if the others came later than that on a busy machine, once more.
            let in_time = (0..50).any(|_| waits_for_room(policy, round));
            assert!(in_time, "{policy:?}, round {round}: the others never came in time");
        }
    }
}

/// Whether the others came before the patience of the one that waits was over.
fn waits_for_room(policy: LogFullPolicy, round: u32) -> bool {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log(16, policy)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let [mut first, mut second] = [begin(&engine), begin(&engine)];
    let mut size = 0;
    while engine.log_retention().used_bytes < engine.log_retention().work_bytes - 50_000 {
        first.put(&table, b"first", &vec![1; 900 + size % 2]).unwrap();
        size += 1;
    }
    let written = AtomicU64::new(0);
    let in_time = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            for number in 0..100_u32 {
                let begun = Instant::now();
                if let Err(error) = second.put(&table, &number.to_be_bytes(), &[2; 900]) {
                    return Err((error, begun.elapsed()));
                }
                written.fetch_add(1, Ordering::Relaxed);
            }
            second.commit(Durability::Lazy).map(drop).map_err(|error| (error, Duration::ZERO))
        });
        // Until it has filled the log and waits.
        let mut before = None;
        while !waiting.is_finished() && (before != Some(written.load(Ordering::Relaxed)) || before == Some(0))
        {
            before = Some(written.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(10));
        }
        // Too late under the second policy, if this thread slept for long.
        let ended = first.commit(Durability::Lazy).map(|_| ());
        assert!(matches!(ended, Ok(()) | Err(TxnError::LogHeld)), "{ended:?}");
        engine.checkpoint().unwrap();
        match waiting.join().unwrap() {
            Ok(()) => true,
            Err((error, waited)) => {
                let too_late = is_log_full(&error) && waited >= Duration::from_secs(1);
                assert!(too_late, "{policy:?}, round {round}: {error} after {waited:?}");
                false
            }
        }
    });
    assert_sound(&engine, "after all");
    in_time
}
