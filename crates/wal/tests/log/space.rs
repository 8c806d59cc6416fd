//! Capacity, recycling, and what is flushed when nobody asks.

use super::*;

#[test]
fn five_eighths_of_the_capacity_are_for_ending_work() {
    let disk = FaultyDisk::new();
    let capacity_bytes = 8 * SEGMENT;
    let options = LogOptions { capacity_bytes, ..options() };
    let log = Log::create(shared(&disk), directory(), LOG_ID, &options).unwrap();
    let is_full = |result: &Result<Lsn>| match result {
        Ok(_) => false,
        Err(StorageError::LogFull { used_bytes, capacity_bytes: capacity, .. }) => {
            assert!(*used_bytes <= capacity_bytes && *capacity == capacity_bytes);
            true
        }
        Err(error) => panic!("{error}"),
    };
    let work = || log.append(Urgency::Work, TxnId(1), Lsn::ZERO, KIND, &[&[1; 1000]]);
    let ending = || log.append(Urgency::Ending, TxnId(1), Lsn::ZERO, KIND, &[&[2; 1000]]);
    // A record, and at the end of a segment what it leaves and the next header.
    let slack = 2 * 1040 + 4096;
    work().unwrap();
    let second = work().unwrap();
    let mut last = second;
    let refused = loop {
        match work() {
            Ok(lsn) => last = lsn,
            refused => break refused,
        }
    };
    assert!(is_full(&refused));
    let work_bytes = capacity_bytes * 3 / 8;
    assert_eq!((log.work_bytes(), log.capacity_bytes()), (work_bytes, capacity_bytes));
    // Marks may come behind the last record of work, which ends where it may.
    assert!(last.0 + 1000 <= FIRST_LSN.0 + work_bytes && log.used_bytes() > work_bytes - slack);
    assert!(log.is_within_work(second));
    let middle = ending().unwrap();
    while !is_full(&ending()) {}
    assert!(log.used_bytes() <= capacity_bytes && log.used_bytes() > capacity_bytes - slack);
    assert!(is_full(&work()) && !log.is_within_work(middle) && log.is_within_work(log.tail()));
    // What is full is not broken.
    log.flush(middle).unwrap();
    log.release_before(middle).unwrap();
    assert_eq!(log.low_water(), middle);
    assert!(is_full(&work()), "more than that is still held");
    let lsn = ending().unwrap();
    log.release_before(lsn).unwrap();
    work().unwrap();
    log.close().unwrap();
}

/// Marks took what they needed beyond the capacity: a log that was full to the last record held more than it may.
#[test]
fn a_full_log_has_room_for_its_marks() {
    let disk = FaultyDisk::new();
    let options = LogOptions { capacity_bytes: 4 * SEGMENT, ..options() };
    let log = Log::create(shared(&disk), directory(), LOG_ID, &options).unwrap();
    let mut last = FIRST_LSN;
    for length in [30_000, 1000, 100, 0] {
        while let Ok(lsn) = log.append(Urgency::Ending, TxnId(1), Lsn::ZERO, KIND, &[&[3; 30_000][..length]])
        {
            last = lsn;
        }
    }
    log.flush(last).unwrap();
    log.close().unwrap();
    assert!(log.used_bytes() <= log.capacity_bytes(), "{} of {}", log.used_bytes(), log.capacity_bytes());
}

/// Each segment is an open file, and nothing bounded their number: a log of small ones stopped for good where the
/// process may open no more.
#[test]
fn small_segments_bound_the_capacity() {
    let disk = FaultyDisk::new();
    let most = 16 * SEGMENT;
    for (wanted, capacity) in [(most - 8, most - 8), (most, most), (most + 8, most), (1 << 40, most)] {
        let options = LogOptions { capacity_bytes: wanted, most_segments: 16, ..options() };
        let log = Log::create(shared(&disk), directory(), LOG_ID, &options).unwrap();
        assert_eq!((log.capacity_bytes(), log.work_bytes()), (capacity, capacity / 8 * 3));
        log.close().unwrap();
        // It keeps the size of its segments.
        let larger = LogOptions { segment_bytes: 2 * SEGMENT, ..options };
        let log = Log::open(shared(&disk), directory(), LOG_ID, FIRST_LSN, &larger).unwrap();
        assert_eq!(log.capacity_bytes(), capacity);
    }
}

#[test]
fn released_segments_become_the_next_ones_and_files_do_not_add_up() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let mut prev = Lsn::ZERO;
    let mut most = 0;
    for round in 0..60 {
        let (header, _) = append(&log, prev, payload(round, 50_000)).unwrap();
        log.flush(header.lsn).unwrap();
        prev = header.lsn;
        if round % 3 == 2 {
            log.release_before(prev).unwrap();
        }
        // Nothing of it will be taken back.
        log.keep_before(prev);
        most = most.max(disk.files().len());
    }
    // Two that are needed, one that is written, and what space is kept in for what may be appended next (WAL-13).
    assert!(most <= 8, "{most} files");
    assert!(log.low_water() > Lsn(20 * SEGMENT));
    // Going back is not possible.
    let low_water = log.low_water();
    log.release_before(FIRST_LSN).unwrap();
    assert_eq!(log.low_water(), low_water);
    // Nor past the end.
    let tail = log.tail();
    log.release_before(Lsn::MAX).unwrap();
    assert_eq!(log.low_water(), tail);
    assert!(is_corrupted(&log.read(FIRST_LSN, &mut Vec::new())));
    log.close().unwrap();
    drop(log);
    let log = open_from(&disk, prev).unwrap();
    assert_eq!(read_from(&log, prev).unwrap().len(), 1);
}

#[test]
fn more_spares_than_are_kept_are_removed() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let records = append_all(&log, vec![60_000; 2 * 30]);
    // Nothing of it will be taken back.
    log.keep_before(log.tail());
    log.flush(last(&records)).unwrap();
    assert!(disk.files().len() >= 30);
    // The maker of spares may have one in hand, from the time when it was needed: that goes the next time.
    let patience = Instant::now() + Duration::from_secs(120);
    while {
        log.release_before(log.tail()).unwrap();
        disk.files().len() != 1 + LogOptions::SPARE_SEGMENTS
    } {
        assert!(Instant::now() < patience, "{} files", disk.files().len());
        thread::sleep(Duration::from_millis(1));
    }
    let more = append_all(&log, vec![60_000; 2 * 30]);
    log.flush(last(&more)).unwrap();
    let first = more[0].0.lsn;
    drop(log);
    let log = open_from(&disk.after_crash(CrashMode::DropUnsynced), first).unwrap();
    assert!(read_from(&log, first).unwrap() == more);
}

#[test]
fn what_a_recycled_segment_held_never_passes_for_a_record() {
    // Records of one size lie at the same offsets in every segment.
    for seed in 0..40 {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let mut records: Vec<Record> = Vec::new();
        for round in 0..70 {
            records.push(append(&log, Lsn::ZERO, payload(round, 10_000 - 32)).unwrap());
            if round % 7 == 6 {
                log.flush(last(&records)).unwrap();
                log.release_before(last(&records)).unwrap();
            }
        }
        let released = log.low_water();
        let acknowledged = records.len();
        // The power fails in the middle of the last batch, which the writer may begin before anybody asks for it.
        disk.crash_at(disk.counts().operations + 2);
        records.extend((0..5).map_while(|round| append(&log, Lsn::ZERO, payload(round, 10_000 - 32)).ok()));
        assert!(records.len() == acknowledged || log.flush(last(&records)).is_err());
        assert!(disk.is_crashed());
        let log = open_from(&disk.after_crash(CrashMode::TornRandom(seed)), released).unwrap();
        let found = read_from(&log, released).unwrap();
        let skipped = records.iter().take_while(|(header, _)| header.lsn < released).count();
        assert!(skipped + found.len() >= acknowledged && records[skipped..].starts_with(&found));
    }
}

/// The writer fills the next segment under the name of a spare while the one before it is not durable. When the power
/// fails then, its records lie where others will have the same LSNs.
#[test]
fn what_a_coming_segment_held_never_passes_for_a_record() {
    const LENGTH: usize = 10_000 - 32;
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let old = append_all(&log, [LENGTH; 5]);
    log.flush(last(&old)).unwrap();
    let crashed = disk.after_crash(CrashMode::DropUnsynced);
    // Segments of 131,072 bytes: 12 records in the first one, the others in the next.
    let mut lost = old.clone();
    lost.extend((0..15).map(|round| append(&log, Lsn::ZERO, payload(round, LENGTH)).unwrap()));
    log.flush(last(&lost)).unwrap();
    let coming = disk.read_file(&segment_path(1)).unwrap();
    let spare = directory().join("spare-77");
    crashed.write_file(&spare, &coming).unwrap();
    crashed.sync_directory(directory()).unwrap();

    let log = open(&crashed).unwrap();
    let mut records = old;
    records.extend((0..8).map(|round| append(&log, Lsn::ZERO, payload(round + 50, LENGTH)).unwrap()));
    assert_eq!(last(&records).0 / SEGMENT, 1, "the next segment has a record");
    log.flush(last(&records)).unwrap();
    assert!(!crashed.files().contains(&spare), "it was made of that spare");
    for mode in [CrashMode::KeepAll, CrashMode::DropUnsynced] {
        let log = open(&crashed.after_crash(mode)).unwrap();
        assert!(read_all(&log).unwrap() == records, "{mode:?}");
    }
}

/// A sync that takes long holds up nobody who appends: somebody else makes room meanwhile.
#[test]
fn appends_go_on_during_a_long_sync() {
    // A machine that stands still for so long is given a longer one.
    let go_on = [4, 16, 60].into_iter().any(|seconds| {
        let disk = FaultyDisk::new();
        let options = LogOptions { latency: Duration::from_secs(seconds), ..options() };
        let log = Log::create(shared(&disk), directory(), LOG_ID, &options).unwrap();
        let records = append_all(&log, [100]);
        let begun = Instant::now();
        log.request_flush(last(&records));
        // More than the ring, and two segments.
        let more = append_all(&log, [60_000; 6]);
        // Nothing of them is durable, and all can be read: some in the ring, some in a segment that is still called a
        // spare.
        let durable = log.durable();
        assert!(read_from(&log, more[0].0.lsn).unwrap() == more);
        let is_in_time = begun.elapsed() < options.latency;
        assert!(!is_in_time || durable <= more[0].0.lsn);
        is_in_time
    });
    assert!(go_on, "they waited for it");
}

#[test]
fn segments_before_the_start_are_recycled_on_opening() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let records = append_all(&log, [60_000; 8]);
    log.close().unwrap();
    drop(log);
    let files = disk.files().len();
    let log = open_from(&disk, last(&records)).unwrap();
    assert_eq!(log.low_water(), last(&records));
    assert!(!disk.files().contains(&segment_path(0)));
    assert!(disk.files().len() >= files, "what is recycled is not removed");
    assert!(is_corrupted(&log.read(records[0].0.lsn, &mut Vec::new())));
    assert_eq!(read_from(&log, last(&records)).unwrap().len(), 1);
}

#[test]
fn making_a_log_again_throws_away_what_was_left() {
    let disk = FaultyDisk::new();
    append_all(&create(&disk), [60_000; 8]);
    disk.write_file(&directory().join("spare-3"), b"old").unwrap();
    let log = create(&disk);
    let spares = || disk.files().into_iter().filter(|path| path.extension().is_none());
    let segments: Vec<_> = disk.files().into_iter().filter(|path| path.extension().is_some()).collect();
    assert_eq!(segments, [segment_path(0)]);
    // One that is being made has not its space yet.
    let is_whole = |spare: PathBuf| disk.read_file(&spare).unwrap().len() as u64 == SEGMENT;
    let patience = Instant::now() + Duration::from_secs(120);
    while !spares().all(is_whole) {
        assert!(Instant::now() < patience, "{:?} are not all whole", spares().collect::<Vec<_>>());
        thread::sleep(Duration::from_millis(1));
    }
    assert!(read_all(&log).unwrap().is_empty());
}

#[test]
fn a_record_that_nobody_waits_for_is_flushed_in_time_and_an_idle_log_is_left_alone() {
    // What a tick is depends on the clock, and the flusher may sleep longer than it wanted to: judged by the best of
    // some.
    let begun = Instant::now();
    while let Err(fault) = ticks_and_then_nothing() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{fault}");
    }
}

/// What is wrong with the flushes of a log that nobody waits for, and that is idle then.
fn ticks_and_then_nothing() -> std::result::Result<(), String> {
    let disk = FaultyDisk::new();
    let options = LogOptions { flush_interval: Duration::from_millis(20), ..options() };
    let log = Log::create(shared(&disk), directory(), LOG_ID, &options).unwrap();
    thread::sleep(Duration::from_millis(60));
    let idle = disk.counts();
    let records = append_all(&log, [100; 50]);
    let patience = Instant::now() + Duration::from_secs(120);
    while !log.is_durable(last(&records)) {
        assert!(Instant::now() < patience, "not flushed");
        thread::sleep(Duration::from_millis(1));
    }
    wait_for_the_quiet_mark(&disk);
    let flushed = disk.counts();
    let syncs = flushed.syncs - idle.syncs;
    if !(2..=5).contains(&syncs) {
        return Err(format!("a few ticks and the mark, not one for each record: {syncs}"));
    }
    if log.used_bytes() != 50 * 136 + 40 * syncs {
        return Err(format!("a mark for each of {syncs}: {}", log.used_bytes()));
    }
    thread::sleep(Duration::from_millis(100));
    if disk.counts() != flushed {
        return Err(format!("nothing to do, but done: {:?} after {flushed:?}", disk.counts()));
    }
    log.request_flush(FIRST_LSN);
    thread::sleep(Duration::from_millis(30));
    if disk.counts() != flushed {
        return Err(format!("it is durable already: {:?} after {flushed:?}", disk.counts()));
    }
    Ok(())
}

#[test]
fn asking_for_a_flush_brings_it_about() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let records = append_all(&log, [100]);
    assert!(!log.is_durable(last(&records)));
    log.request_flush(last(&records));
    let patience = Instant::now() + Duration::from_secs(120);
    while !log.is_durable(last(&records)) {
        assert!(Instant::now() < patience, "not flushed");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What a spare holds nobody needs, and a sector of one that could not be read kept the log from being opened.
#[test]
fn a_spare_that_cannot_be_read_does_not_keep_the_log_shut() {
    // Its header, and records of a segment that was coming.
    for range in [0..512, 8192..8704] {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let records = append_all(&log, [60_000; 8]);
        log.flush(last(&records)).unwrap();
        drop(log);
        let crashed = disk.after_kill();
        // Its next segment.
        let coming = crashed.read_file(&segment_path(records.len() as u64 / 2 - 1)).unwrap();
        let spare = directory().join("spare-77");
        crashed.write_file(&spare, &coming).unwrap();
        crashed.fail_reads(&spare, range.clone());
        let log = open(&crashed).unwrap_or_else(|error| panic!("{range:?}: {error}"));
        assert!(read_all(&log).unwrap() == records);
        assert!(!crashed.files().contains(&spare), "{range:?}");
    }
}
