//! What a lock costs: `cargo test --release -p foreshore-lock -- --ignored cost --nocapture`.

use std::hint::black_box;

use foreshore_base::{TableId, TxnId};
use foreshore_env::thread;
use foreshore_env::time::Instant;
use foreshore_lock::{Age, IntentMode, KeyMode, LockManager, LockOptions, LockOwner};

use super::{NO_WAIT, TABLE, intent_kinds, key, over_all_tables};

fn per_operation(what: &str, operations: u64, mut run: impl FnMut(u64)) {
    run(operations / 10);
    let began = Instant::now();
    run(operations);
    println!("{what:44} {:8.1} ns", began.elapsed().as_nanos() as f64 / operations as f64);
}

// cargo test --release -p foreshore-lock --test locks cost -- --ignored --nocapture
#[test]
#[ignore = "prints figures, for release builds"]
fn cost() {
    over_all_tables(|options| {
        println!("{:?}", options.table);
        let manager = LockManager::new(&LockOptions { buckets: 1 << 16, ..options.clone() });
        for keys in [1u64, 8, 64, 1000, 100_000] {
            let what = format!("acquire + release, {keys} locks a transaction");
            per_operation(&what, 2_000_000 / keys * keys, |operations| {
                for round in 0..operations / keys {
                    let mut owner = manager.begin(TxnId(round), Age::new(round, 0), None).unwrap();
                    for number in 0..keys {
                        let bytes = (round * keys + number).to_be_bytes();
                        owner.acquire(TABLE, key(&bytes), KeyMode::XN, &NO_WAIT).unwrap();
                    }
                    owner.release_all(None);
                }
            });
        }
        let noting = LockManager::new(&LockOptions { keep_notes: true, buckets: 1 << 16, ..options });
        per_operation("acquire + release, 8 locks, with notes", 2_000_000, |operations| {
            for round in 0..operations / 8 {
                let mut owner = noting.begin(TxnId(round), Age::new(round, 0), None).unwrap();
                for number in 0..8 {
                    let bytes = (round * 8 + number).to_be_bytes();
                    owner.acquire(TABLE, key(&bytes), KeyMode::XN, &NO_WAIT).unwrap();
                }
                owner.release_all(None);
            }
        });
        per_operation("acquire + release, 8 of 256 warm keys", 2_000_000, |operations| {
            for round in 0..operations / 8 {
                let mut owner = manager.begin(TxnId(round), Age::new(round, 0), None).unwrap();
                for number in 0..8 {
                    let bytes = ((round * 8 + number) % 256).to_be_bytes();
                    owner.acquire(TABLE, key(&bytes), KeyMode::XN, &NO_WAIT).unwrap();
                }
                owner.release_all(None);
            }
        });
        let mut owner = manager.begin(TxnId(1), Age::new(1, 0), None).unwrap();
        owner.acquire(TABLE, key(b"12345678"), KeyMode::XN, &NO_WAIT).unwrap();
        per_operation("acquire what is held", 20_000_000, |operations| {
            for _ in 0..operations {
                owner.acquire(TABLE, key(black_box(b"12345678")), KeyMode::XN, &NO_WAIT).unwrap();
            }
        });
        per_operation("check an empty bucket", 20_000_000, |operations| {
            for number in 0..operations {
                black_box(owner.check(TABLE, key(&number.to_be_bytes()), KeyMode::NX));
            }
        });
        drop(owner);
        per_operation("begin + end", 5_000_000, |operations| {
            for round in 0..operations {
                black_box(manager.begin(TxnId(round), Age::new(round, 0), None).unwrap());
            }
        });
    });
}

// cargo test --release -p foreshore-lock --test locks cost_of_intents -- --ignored --nocapture
#[test]
#[ignore = "prints figures, for release builds"]
fn cost_of_intents() {
    for options in intent_kinds() {
        println!("{:?}, {:?}", options.intents, options.table);
        let manager = LockManager::new(&LockOptions { buckets: 1 << 16, ..options });
        let mut owner = manager.begin(TxnId(1), Age::new(1, 0), None).unwrap();
        let intents = |owner: &mut LockOwner, operations: u64| {
            for _ in 0..operations / 3 {
                for table in [u32::MAX, 16, 17] {
                    owner.intent(TableId(table), IntentMode::IX, &NO_WAIT).unwrap();
                }
                owner.release_all(None);
            }
        };
        per_operation("intent lock + release, 3 a transaction", 6_000_000, |operations| {
            intents(&mut owner, operations);
        });
        drop(owner);
        per_operation("the same by two threads", 6_000_000, |operations| {
            thread::scope(|scope| {
                for number in 0..2 {
                    let manager = &manager;
                    let mut owner = manager.begin(TxnId(number), Age::new(number, 0), None).unwrap();
                    scope.spawn(move || intents(&mut owner, operations));
                }
            });
        });
        per_operation("S lock on a table + release", 300_000, |operations| {
            let mut owner = manager.begin(TxnId(1), Age::new(1, 0), None).unwrap();
            for _ in 0..operations {
                owner.intent(TABLE, IntentMode::S, &NO_WAIT).unwrap();
                owner.release_all(None);
            }
        });
    }
}
