//! A crash at every operation on the disk: what was acknowledged is there, what is there is a prefix.

use foreshore_env::disk::OpenMode;

use super::*;

/// What a run has appended, and how much of it was acknowledged as durable.
#[derive(Default)]
struct Ledger {
    records: Vec<Record>,
    acknowledged: usize,
    /// Everything before this was given up, though it may still be there.
    released: Lsn,
}

/// Lengths that cross segments every few rounds.
const LENGTHS: [usize; 7] = [0, 100, 3000, 60_000, 13, 700, 30_000];
const ROUNDS: usize = 12;

/// Works until it is done or the power fails. Flushes some rounds, recycles some segments, skips some flushes.
fn work(log: &Log, ledger: &mut Ledger) -> Result<()> {
    for round in 0..ROUNDS {
        for length in &LENGTHS[round % 4..] {
            let seed = ledger.records.len() as u64;
            let prev = ledger.records.last().map_or(Lsn::ZERO, |(header, _)| header.lsn);
            ledger.records.push(append(log, prev, payload(seed, *length))?);
        }
        if round % 3 != 1 {
            log.flush(last(&ledger.records))?;
            ledger.acknowledged = ledger.records.len();
        }
        if round % 4 == 3 {
            ledger.released = ledger.records[ledger.acknowledged - 4].0.lsn;
            log.release_before(ledger.released)?;
        }
    }
    log.close()?;
    ledger.acknowledged = ledger.records.len();
    Ok(())
}

fn run(disk: &FaultyDisk) -> Ledger {
    let mut ledger = Ledger { released: FIRST_LSN, ..Ledger::default() };
    if let Ok(log) = Log::create(shared(disk), directory(), LOG_ID, &options()) {
        // The power has failed, or the work is done.
        let _ = work(&log, &mut ledger);
    }
    ledger
}

fn modes() -> impl Iterator<Item = CrashMode> {
    [CrashMode::DropUnsynced, CrashMode::KeepAll].into_iter().chain((0..4).map(CrashMode::TornRandom))
}

/// Opens what a crash has left and compares it with the ledger; gives what is there.
fn check(disk: &FaultyDisk, ledger: &Ledger, context: &str) -> Vec<Record> {
    let log = match open_from(disk, ledger.released) {
        Ok(log) => log,
        Err(error) => panic!("{context}: {error}"),
    };
    let found = read_from(&log, ledger.released).unwrap_or_else(|error| panic!("{context}: {error}"));
    let skipped = ledger.records.iter().take_while(|(header, _)| header.lsn < ledger.released).count();
    let expected = &ledger.records[skipped..];
    assert!(found.len() + skipped >= ledger.acknowledged, "{context}: acknowledged records are lost");
    assert!(expected.starts_with(&found), "{context}: what is there is no prefix of what was appended");
    found
}

/// Goes on after a crash, and crashes again: what follows the old prefix is what was appended now, nothing older.
fn go_on(disk: &FaultyDisk, from: Lsn, mut expected: Vec<Record>, context: &str) {
    let log = open_from(disk, from).unwrap();
    for length in [0, 40, 500] {
        expected.push(append(&log, Lsn::ZERO, payload(99, length)).unwrap());
    }
    log.flush(last(&expected)).unwrap();
    for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll] {
        let log = open_from(&disk.after_crash(mode), from).unwrap();
        assert!(read_from(&log, from).unwrap() == expected, "{context}: appended after the crash");
    }
}

#[test]
fn a_crash_at_every_operation_loses_nothing_acknowledged() {
    let disk = FaultyDisk::new();
    let ledger = run(&disk);
    assert_eq!(ledger.acknowledged, ledger.records.len());
    let operations = disk.counts().operations;
    assert!(operations > 60, "{operations}");
    let (mut images, mut shorter) = (0, 0);
    for operation in 1..=operations {
        let disk = FaultyDisk::new();
        disk.crash_at(operation);
        let ledger = run(&disk);
        for mode in modes() {
            let context = format!("crash at operation {operation}, {mode:?}");
            let image = disk.after_crash(mode);
            if ledger.records.is_empty() {
                // The log may not have been finished; making it again must work.
                create(&image).close().unwrap();
                continue;
            }
            let found = check(&image, &ledger, &context);
            images += 1;
            shorter += u32::from(found.last() != ledger.records.last());
            go_on(&image, ledger.released, found, &context);
        }
    }
    assert!(images > 300 && shorter > 100, "{images} images, {shorter} with a tail cut");
}

#[test]
fn a_crash_at_every_operation_of_opening_changes_nothing() {
    let disk = FaultyDisk::new();
    let total = {
        run(&disk);
        disk.counts().operations
    };
    let mut nested = 0;
    for operation in (1..=total).step_by(3) {
        let disk = FaultyDisk::new();
        disk.crash_at(operation);
        let ledger = run(&disk);
        if ledger.records.is_empty() {
            continue;
        }
        for mode in [CrashMode::KeepAll, CrashMode::TornRandom(operation)] {
            let image = disk.after_crash(mode);
            let expected = check(&image.after_crash(CrashMode::KeepAll), &ledger, "no second crash");
            for second in 1.. {
                let again = image.after_crash(CrashMode::KeepAll);
                again.crash_at(second);
                let opened = open_from(&again, ledger.released).is_ok();
                for mode in [CrashMode::DropUnsynced, CrashMode::TornRandom(second)] {
                    let context = format!("crash at {operation}, then at {second} of opening, {mode:?}");
                    let found = check(&again.after_crash(mode), &ledger, &context);
                    assert!(found == expected, "{context}: opening twice is opening once");
                    nested += 1;
                }
                if opened {
                    break;
                }
            }
        }
    }
    assert!(nested > 50, "{nested}");
}

/// A disk with some durable records and one un-synced batch; how many are durable; where the batch lies in the file.
fn torn_batch() -> (FaultyDisk, Vec<Record>, usize, std::ops::Range<usize>) {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let mut records = append_all(&log, [100, 5, 0, 700]);
    log.flush(last(&records)).unwrap();
    let start = log.tail().0 as usize;
    for length in [40, 7, 300, 0, 90] {
        let prev = last(&records);
        records.push(append(&log, prev, payload(3, length)).unwrap());
    }
    log.flush(last(&records)).unwrap();
    let end = log.tail().0 as usize;
    (disk, records, 4, start..end)
}

#[test]
fn a_tail_torn_at_each_byte_is_cut_there() {
    let (disk, records, durable, batch) = torn_batch();
    let path = segment_path(0);
    let whole = disk.read_file(&path).unwrap();
    for cut in batch.clone() {
        for filler in [0, 0xFF, 0x20] {
            let mut bytes = whole.clone();
            bytes[cut..].fill(filler);
            let image = disk.after_crash(CrashMode::KeepAll);
            image.write_file(&path, &bytes).unwrap();
            let found = read_all(&open(&image).unwrap()).unwrap();
            assert!(found.len() >= durable && records.starts_with(&found), "cut at {cut}");
            let complete = records
                .iter()
                .filter(|(header, bytes)| (header.lsn.0 as usize + 32 + bytes.len()).max(batch.start) <= cut);
            assert!(found.len() >= complete.count(), "cut at {cut}: a whole record is lost");
            go_on(&image, FIRST_LSN, found, &format!("cut at {cut}"));
        }
    }
}

#[test]
fn every_prefix_of_a_log_is_a_prefix_of_its_records() {
    let (disk, records, _, batch) = torn_batch();
    let path = segment_path(0);
    let whole = disk.read_file(&path).unwrap();
    for cut in FIRST_LSN.0 as usize..batch.end {
        let mut bytes = whole.clone();
        bytes[cut..].fill(0);
        let image = disk.after_crash(CrashMode::KeepAll);
        image.write_file(&path, &bytes).unwrap();
        let found = read_all(&open(&image).unwrap()).unwrap();
        assert!(records.starts_with(&found), "cut at {cut}");
    }
}

#[test]
fn a_hole_in_the_last_batch_is_a_torn_tail_and_what_follows_never_comes_back() {
    let (disk, records, durable, _) = torn_batch();
    let path = segment_path(0);
    let hole = records[durable].0.lsn.0 as usize;
    let mut bytes = disk.read_file(&path).unwrap();
    // The first record of the batch is lost; four sound ones follow it.
    bytes[hole..hole + 8].fill(0);
    let image = disk.after_crash(CrashMode::KeepAll);
    image.write_file(&path, &bytes).unwrap();
    let log = open(&image).unwrap();
    let mut found = read_all(&log).unwrap();
    assert!(found == records[..durable]);
    // A record of the same length as the lost one: what followed it would now be reached.
    let length = records[durable].1.len();
    let prev = last(&found);
    found.push(append(&log, prev, payload(77, length)).unwrap());
    assert_eq!(last(&found), records[durable].0.lsn);
    log.flush(last(&found)).unwrap();
    drop(log);
    for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll] {
        let log = open(&image.after_crash(mode)).unwrap();
        assert!(read_all(&log).unwrap() == found);
    }
}

#[test]
fn a_process_that_dies_without_closing_loses_only_what_was_not_flushed() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let records = append_all(&log, [10, 20, 30]);
    log.flush(records[1].0.lsn).unwrap();
    drop(log);
    let found = read_all(&open(&disk).unwrap()).unwrap();
    assert!(found.len() >= 2 && records.starts_with(&found));
}

#[test]
fn what_an_open_log_shows_is_durable() {
    let (disk, records, durable, batch) = torn_batch();
    let path = segment_path(0);
    let whole = disk.read_file(&path).unwrap();
    let mut cut = whole.clone();
    cut[batch.clone()].fill(0);
    disk.write_file(&path, &cut).unwrap();
    // The process died before its sync, the machine did not: the cache shows records that are not on the platter.
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    file.write_all_at(&whole[batch.clone()], batch.start as u64).unwrap();
    let lost = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
    assert!(read_all(&lost).unwrap() == records[..durable], "the test's own premise");
    let log = open(&disk).unwrap();
    assert!(read_all(&log).unwrap() == records);
    assert!(log.is_durable(last(&records)));
    let after = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
    assert!(read_all(&after).unwrap() == records);
}
