//! Failing disks: the first error is final, and what was acknowledged before it is there after opening again.

use super::*;

/// Everything fails with the poison from now on.
fn assert_poisoned(log: &Log, durable: &[Record], cause: &str) {
    let poisoned = log.poisoned().expect("the log is poisoned").to_string();
    assert!(poisoned.contains(cause), "{poisoned}");
    assert!(is_poisoned(&append(log, Lsn::ZERO, vec![1])));
    assert!(is_poisoned(&log.append(Urgency::Ending, TxnId(1), Lsn::ZERO, KIND, &[])));
    assert!(is_poisoned(&log.release_before(Lsn(9000))));
    assert!(is_poisoned(&log.close()));
    for (header, _) in durable {
        log.flush(header.lsn).expect("what was durable before is durable");
    }
    assert!(log.poisoned().expect("it stays so").to_string().contains(cause), "the first cause stays");
}

#[test]
fn a_failed_sync_is_final_and_is_not_tried_again() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let first = append_all(&log, [100, 200]);
    log.flush(last(&first)).unwrap();
    disk.fail_sync(disk.counts().syncs + 1);
    let second = append_all(&log, [300]);
    assert!(is_poisoned(&log.flush(last(&second))));
    let syncs = disk.counts().syncs;
    assert!(is_poisoned(&log.flush(last(&second))));
    assert!(!log.is_durable(last(&second)));
    assert_poisoned(&log, &first, "input/output error");
    drop(log);
    assert_eq!(disk.counts().syncs, syncs);
    // The cache may show what the platter does not have; the machine may crash before the next open or after.
    let log = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
    assert!(read_all(&log).unwrap() == first);
}

#[test]
fn what_the_cache_shows_after_a_failed_sync_is_written_again() {
    for unlucky_openings in 0..3 {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let mut records = append_all(&log, [100, 200]);
        log.flush(last(&records)).unwrap();
        disk.fail_sync(disk.counts().syncs + 1);
        let prev = last(&records);
        records.push(append(&log, prev, payload(2, 3000)).unwrap());
        assert!(is_poisoned(&log.flush(last(&records))));
        drop(log);
        let lost = open(&disk.after_crash(CrashMode::KeepAll)).unwrap();
        assert!(read_all(&lost).unwrap() == records[..2], "the platter does not have it");
        for _ in 0..unlucky_openings {
            disk.fail_sync(disk.counts().syncs + 1);
            assert!(open(&disk).is_err());
        }
        let log = open(&disk).unwrap();
        assert!(read_all(&log).unwrap() == records, "the cache shows it");
        let prev = last(&records);
        records.push(append(&log, prev, payload(3, 50)).unwrap());
        log.flush(last(&records)).unwrap();
        let log = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
        assert!(read_all(&log).unwrap() == records);
    }
}

#[test]
fn a_cut_that_the_cache_alone_shows_is_made_again() {
    for unlucky_openings in 0..3 {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let mut records = append_all(&log, [100]);
        log.flush(last(&records)).unwrap();
        // The third record begins where a sector begins.
        let gap = log.tail().0 as usize;
        let length = (gap + 100).next_multiple_of(512) - 40 - gap - 32;
        let second: Vec<Record> =
            [length, 8, 1000].map(|length| append(&log, Lsn::ZERO, payload(5, length)).unwrap()).into();
        log.flush(last(&second)).unwrap();
        drop(log);
        // The first record of the last batch is torn.
        disk.flip_bit(&segment_path(0), second[0].0.lsn.0 + 40, 0);
        for _ in 0..unlucky_openings {
            disk.fail_sync(disk.counts().syncs + 1);
            assert!(open(&disk).is_err());
        }
        let log = open(&disk).unwrap();
        assert!(read_all(&log).unwrap() == records);
        // As long as the torn one, and the mark that follows as long as the next: the third would be reached.
        records.push(append(&log, Lsn::ZERO, payload(6, length)).unwrap());
        assert_eq!(last(&records), second[0].0.lsn);
        log.flush(last(&records)).unwrap();
        let log = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
        assert!(read_all(&log).unwrap() == records);
    }
}

#[test]
fn each_sync_and_each_write_may_fail_and_nothing_acknowledged_is_lost() {
    let work = |disk: &FaultyDisk| -> Vec<Record> {
        let mut acknowledged = Vec::new();
        let Ok(log) = Log::create(shared(disk), directory(), LOG_ID, &options()) else { return acknowledged };
        let mut records: Vec<Record> = Vec::new();
        for round in 0..12 {
            for length in [10, 30_000, 500] {
                let Ok(record) = append(&log, Lsn::ZERO, payload(round, length)) else { return acknowledged };
                records.push(record);
            }
            if log.flush(last(&records)).is_err() {
                assert!(log.poisoned().is_some());
                return acknowledged;
            }
            acknowledged.clone_from(&records);
        }
        acknowledged
    };
    let disk = FaultyDisk::new();
    assert_eq!(work(&disk).len(), 36);
    let counts = disk.counts();
    for (total, is_sync) in [(counts.syncs, true), (counts.writes, false)] {
        for number in 1..=total {
            let disk = FaultyDisk::new();
            if is_sync {
                disk.fail_sync(number)
            } else {
                disk.fail_write(number)
            }
            let acknowledged = work(&disk);
            for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(number)] {
                let image = disk.after_crash(mode);
                match open(&image) {
                    Ok(log) => {
                        let found = read_all(&log).unwrap();
                        assert!(found.starts_with(&acknowledged), "fault {number}, {mode:?}");
                    }
                    Err(error) => assert!(acknowledged.is_empty(), "fault {number}, {mode:?}: {error}"),
                }
            }
        }
    }
}

/// WAL-13: work is refused while there is space for taking it back, and only a log that has no space even for that
/// dies.
#[test]
fn on_a_full_disk_work_is_refused_and_what_ends_it_goes_on() {
    for blocks in 0..100_u64 {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let first = log.tail().0;
        disk.set_free_space(Some(blocks * 4096));
        let mut records: Vec<Record> = Vec::new();
        let refused = (0..400).find_map(|round| match append(&log, Lsn::ZERO, payload(round, 3000)) {
            Ok(record) => {
                log.flush(record.0.lsn).unwrap();
                records.push(record);
                None
            }
            Err(error) => Some(error),
        });
        let Some(StorageError::LogFull { used_bytes, disk_is_full: true, .. }) = refused else {
            panic!("{blocks} blocks: {refused:?}")
        };
        // Five bytes for three, and what is kept for the ends of transactions.
        let ending = |bytes: u64| {
            log.append(Urgency::Ending, TxnId(1), Lsn::ZERO, KIND, &[&vec![5; bytes as usize]])
                .and_then(|lsn| log.flush(lsn))
        };
        while log.tail().0 - first < used_bytes / 3 * 8 + SEGMENT / 4 {
            ending(1000).unwrap_or_else(|error| panic!("{blocks} blocks: {error}"));
        }
        // As of the capacity: more is needed than work may fill, unless all before the tail is let go.
        assert!(!log.is_within_work(log.low_water()) && log.is_within_work(log.tail()), "{blocks} blocks");
        assert!(matches!(log.full(), StorageError::LogFull { disk_is_full: true, .. }), "{blocks} blocks");
        // It may end here, and is opened with as little space.
        let left = disk.after_crash(CrashMode::DropUnsynced);
        left.set_free_space(Some(0));
        let opened = open(&left).unwrap_or_else(|error| panic!("{blocks} blocks: {error}"));
        assert!(read_all(&opened).unwrap().starts_with(&records), "{blocks} blocks");
        opened.close().unwrap();
        // Or go on: with what is released, or with space again.
        if blocks % 2 == 0 {
            log.release_before(log.tail()).unwrap();
        } else {
            disk.set_free_space(None);
        }
        let begun = Instant::now();
        while append(&log, Lsn::ZERO, payload(1, 3000)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{blocks} blocks");
            thread::sleep(Duration::from_millis(2));
        }
        disk.set_free_space(Some(0));
        let error = (0..2000).find_map(|_| ending(3000).err());
        assert!(matches!(error, Some(StorageError::Poisoned { .. })), "{blocks} blocks: {error:?}");
        let from = log.low_water();
        drop(log);
        disk.set_free_space(None);
        let log = open_from(&disk, from).unwrap();
        let more = append_all(&log, [60_000; 6]);
        log.flush(last(&more)).unwrap();
        log.close().unwrap();
    }
}

#[test]
fn short_reads_are_read_on_and_read_errors_are_reported() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let records = append_all(&log, [100, 20_000, 7]);
    log.close().unwrap();
    disk.set_longest_read(Some(1000));
    let log = open(&disk).unwrap();
    assert!(read_all(&log).unwrap() == records);
    let place = records[1].0.lsn.0 + 600;
    disk.fail_reads(&segment_path(0), place..place + 1);
    let mut buffer = Vec::new();
    log.read(records[0].0.lsn, &mut buffer).unwrap();
    assert!(matches!(log.read(records[1].0.lsn, &mut buffer), Err(StorageError::Io { .. })));
    assert!(matches!(read_all(&log), Err(StorageError::Io { .. })));
    log.close().unwrap();
    drop(log);
    assert!(matches!(open(&disk), Err(StorageError::Io { .. })));
    disk.heal_reads();
    assert!(read_all(&open(&disk).unwrap()).unwrap() == records);
}

#[test]
fn a_failed_recycling_poisons() {
    let poisons = || {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let records = append_all(&log, [60_000; 6]);
        log.flush(last(&records)).unwrap();
        disk.fail_sync(disk.counts().syncs + 1);
        match log.release_before(last(&records)) {
            Err(StorageError::Io { .. }) => {
                assert_poisoned(&log, &records, "input/output error");
                true
            }
            // The sync that fails may be that of a spare segment, which is made beside this, or none any more.
            Ok(()) | Err(StorageError::Poisoned { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    };
    let begun = Instant::now();
    while !poisons() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no failed sync was one of the recycling");
    }
}

#[test]
fn a_closed_log_takes_nothing_more() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let records = append_all(&log, [10]);
    log.close().unwrap();
    log.close().unwrap();
    assert!(matches!(append(&log, Lsn::ZERO, vec![]), Err(StorageError::Closed)));
    log.flush(last(&records)).unwrap();
    let tail = log.tail();
    for _ in 0..3 {
        // Opening and closing without a change adds nothing: the mark at the end still holds.
        let log = open(&disk).unwrap();
        log.close().unwrap();
        assert_eq!(log.tail(), tail);
    }
}

/// WAL-14 after a sync that failed once: the next opening saw the note in the system's cache, and took it for durable.
/// What the last segment had was missed by nobody when that was lost after a power failure.
#[test]
fn a_note_that_the_cache_alone_shows_is_written_again() {
    let work = |disk: &FaultyDisk| -> Result<()> {
        let log = Log::create(shared(disk), directory(), LOG_ID, &options())?;
        for round in 0..6 {
            let (header, _) = append(&log, Lsn::ZERO, payload(round, 40_000))?;
            log.flush(header.lsn)?;
        }
        Ok(())
    };
    let whole = FaultyDisk::new();
    work(&whole).unwrap();
    let mut tried = 0;
    for number in 1..=whole.counts().syncs {
        let disk = FaultyDisk::new();
        disk.fail_sync(number);
        let failed = work(&disk);
        disk.fail_no_more();
        // Before there is a log, there is nothing to lose; and how many syncs there are differs.
        let (Err(_), Ok(log)) = (failed, open(&disk)) else { continue };
        let records = append_all(&log, [100, 200]);
        log.flush(last(&records)).unwrap();
        log.close().unwrap();
        drop(log);
        let left = disk.after_crash(CrashMode::DropUnsynced);
        drop(open(&left.after_crash(CrashMode::KeepAll)).unwrap());
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "log");
        let newest = left.files().into_iter().filter(is_segment).max().unwrap();
        left.remove(&newest).unwrap();
        assert!(open(&left).is_err(), "sync {number} failed, and {} is not missed", newest.display());
        tried += 1;
    }
    assert!(tried > 5, "{tried}");
}
