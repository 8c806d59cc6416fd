//! Many threads.

use std::collections::BTreeMap;

use foreshore_env::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use foreshore_testkit::Running;

use super::*;

/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(120);

/// Each thread's own records; returns what was acknowledged, by LSN.
fn append_in_parallel(
    log: &Log,
    threads: u64,
    rounds: u64,
    sizes: fn(u64) -> usize,
) -> (BTreeMap<Lsn, Record>, BTreeMap<Lsn, Record>) {
    let all = Mutex::new(BTreeMap::new());
    let acknowledged = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for thread in 0..threads {
            let (all, acknowledged) = (&all, &acknowledged);
            scope.spawn(move || {
                let mut prev = Lsn::ZERO;
                let mut chain: Vec<Record> = Vec::new();
                let mut buffer = Vec::new();
                for round in 0..rounds {
                    let bytes = payload(thread * 1000 + round, sizes(thread + round));
                    let txn = TxnId(thread + 1);
                    let Ok(lsn) = log.append(Urgency::Work, txn, prev, KIND, &[&bytes]) else { return };
                    assert!(lsn > prev);
                    let record = (RecordHeader { lsn, prev, txn, kind: KIND }, bytes);
                    all.lock().insert(lsn, record.clone());
                    chain.push(record);
                    prev = lsn;
                    if round % 5 == thread % 5 {
                        if log.flush(lsn).is_err() {
                            return;
                        }
                        assert!(log.is_durable(lsn));
                        acknowledged.lock().extend(chain.iter().map(|record| (record.0.lsn, record.clone())));
                    }
                    if round % 7 == 3 {
                        // A rollback: backwards along the chain, out of the ring or the file.
                        for (header, bytes) in chain.iter().rev().take(5) {
                            match log.read(header.lsn, &mut buffer) {
                                Ok(found) => assert_eq!(found, *header),
                                // The power has failed.
                                Err(StorageError::Io { .. }) => return,
                                Err(error) => panic!("{error}"),
                            }
                            assert!(buffer == *bytes);
                        }
                    }
                }
            });
        }
    });
    (all.into_inner(), acknowledged.into_inner())
}

fn check_all(log: &Log, all: &BTreeMap<Lsn, Record>) {
    let found = read_all(log).unwrap();
    assert_eq!(found.len(), all.len());
    assert!(found.iter().eq(all.values()));
}

#[test]
fn many_threads_append_flush_and_read_back() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let (all, _) = append_in_parallel(&log, 8, 400, |number| (number * 37 % 300) as usize);
    check_all(&log, &all);
    log.close().unwrap();
    drop(log);
    check_all(&open(&disk).unwrap(), &all);
}

#[test]
fn many_more_threads_than_cores_fight_for_a_small_buffer() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let (all, _) = append_in_parallel(&log, 128, 12, |number| (number * 7919 % 60_000) as usize);
    assert_eq!(all.len(), 128 * 12);
    check_all(&log, &all);
    log.close().unwrap();
    drop(log);
    check_all(&open(&disk).unwrap(), &all);
}

#[test]
fn a_crash_among_many_threads_loses_nothing_acknowledged() {
    for seed in 0..30 {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        disk.crash_at(disk.counts().operations + 3 + seed * 5);
        let (all, acknowledged) = append_in_parallel(&log, 6, 400, |number| (number * 131 % 3000) as usize);
        assert!(disk.is_crashed() && log.poisoned().is_some());
        for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(seed)] {
            let log = open(&disk.after_crash(mode)).unwrap();
            let found = read_all(&log).unwrap();
            // No hole: an LSN is there only if all before it are.
            assert!(found.iter().eq(all.values().take(found.len())), "seed {seed}, {mode:?}");
            let last_acknowledged = acknowledged.keys().next_back();
            assert!(
                last_acknowledged
                    .is_none_or(|&lsn| found.last().is_some_and(|(header, _)| header.lsn >= lsn)),
                "seed {seed}, {mode:?}: acknowledged records are lost"
            );
        }
    }
}

/// So many threads, each of which makes so many records durable, one after another.
fn commit_and_nothing_else(log: &Log, threads: u64, rounds: u64) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let (header, _) = append(log, Lsn::ZERO, vec![1; 100]).unwrap();
                    log.flush(header.lsn).unwrap();
                }
            });
        }
    });
}

#[test]
fn one_sync_serves_many_commits() {
    let (threads, rounds) = (16, 20);
    let syncs = || {
        let disk = FaultyDisk::new();
        disk.set_sync_delay(Duration::from_millis(2));
        let log = create(&disk);
        let before = disk.counts().syncs;
        commit_and_nothing_else(&log, threads, rounds);
        let syncs = disk.counts().syncs - before;
        assert!(syncs >= rounds, "{syncs} syncs");
        syncs
    };
    // On a busy machine they may come one by one for once.
    let begun = Instant::now();
    while syncs() >= threads * rounds / 3 {
        assert!(begun.elapsed() < FAR, "no sync serves more than three");
    }
}

/// Threads that do nothing but commit share every flush, all of them; in two parties that take turns it would be half.
/// On a busy machine some may come too late for once.
#[test]
fn a_flush_waits_for_those_whom_the_last_one_served() {
    let per_flush = || {
        let disk = FaultyDisk::new();
        disk.set_sync_delay(Duration::from_millis(10));
        let log = create(&disk);
        let before = log.flushes();
        let (threads, rounds) = (6, 20);
        commit_and_nothing_else(&log, threads, rounds);
        (threads * rounds) as f64 / (log.flushes() - before) as f64
    };
    let begun = Instant::now();
    while per_flush() <= 4.0 {
        assert!(begun.elapsed() < FAR, "never more than 4 of 6 shared a flush");
    }
}

#[test]
fn poison_and_close_wake_everybody_who_waits() {
    for close in [false, true] {
        let disk = FaultyDisk::new();
        disk.set_sync_delay(Duration::from_millis(30));
        let log = create(&disk);
        let begun = Instant::now();
        let waited = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                // Some wait for a flush, some for room in the buffer.
                scope.spawn(|| {
                    loop {
                        let result = append(&log, Lsn::ZERO, vec![1; 30_000])
                            .and_then(|(header, _)| log.flush(header.lsn));
                        match result {
                            Ok(()) => waited.fetch_add(1, Ordering::Relaxed),
                            Err(StorageError::Poisoned { .. }) if !close => return,
                            Err(StorageError::Closed) if close => return,
                            Err(error) => panic!("{error}"),
                        };
                    }
                });
            }
            while waited.load(Ordering::Relaxed) < 8 {
                thread::sleep(Duration::from_millis(1));
            }
            if close {
                log.close().unwrap();
            } else {
                log.poison("the test says so");
            }
        });
        assert!(begun.elapsed() < FAR);
        assert_eq!(log.poisoned().is_some(), !close);
    }
}

#[test]
fn a_reader_runs_beside_those_who_append() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let running = Running::default();
    thread::scope(|scope| {
        let _guard = running.guard();
        for thread in 0..3 {
            let (log, running) = (&log, &running);
            scope.spawn(move || {
                let mut round = 0;
                while running.is_on() {
                    round += 1;
                    let (header, _) = append(log, Lsn::ZERO, payload(thread, 300)).unwrap();
                    if round % 64 == 0 {
                        log.flush(header.lsn).unwrap();
                    }
                }
            });
        }
        let begun = Instant::now();
        let mut most = 0;
        // The others may come late to their first records.
        while begun.elapsed() < Duration::from_millis(300) || (most <= 100 && begun.elapsed() < FAR) {
            let records = read_all(&log).unwrap();
            assert!(records.windows(2).all(|pair| pair[0].0.lsn < pair[1].0.lsn));
            assert!(records.iter().all(|(_, bytes)| (0..3).any(|thread| *bytes == payload(thread, 300))));
            assert!(records.len() >= most);
            most = records.len();
        }
        assert!(most > 100, "{most}");
    });
}

/// A thread that had looked at the gate and not yet claimed its place when the log was closed was told that its record
/// was appended, and it was nowhere (WAL-18). Nor may one be found later that was refused.
#[test]
fn what_was_appended_beside_a_close_is_there() {
    let (mut lost, mut found_more) = (0, 0);
    for _ in 0..150 {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let (newest, appended) = (Mutex::new(Vec::new()), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| {
                    let mut last = Lsn::ZERO;
                    while let Ok((header, _)) = append(&log, Lsn::ZERO, Vec::new()) {
                        last = header.lsn;
                        appended.fetch_add(1, Ordering::Relaxed);
                    }
                    newest.lock().push(last);
                });
            }
            thread::sleep(Duration::from_millis(2));
            log.close().unwrap();
        });
        lost += newest.lock().iter().filter(|lsn| !log.is_durable(**lsn)).count();
        drop(log);
        let found = read_all(&open(&disk).unwrap()).unwrap().len() as u64;
        found_more += found.saturating_sub(appended.into_inner());
    }
    assert_eq!(lost, 0, "appended, and lost without a crash");
    assert_eq!(found_more, 0, "refused, and found by the next opening");
}
