//! Copies of a log that others use.

use foreshore_base::CorruptionSite;

use super::*;

/// Segments that are copied in several pieces, and records that begin in one of them and end in the next.
#[test]
fn a_copy_has_every_record_of_large_segments() {
    const LARGE: u64 = 1 << 20;
    let disk = FaultyDisk::new();
    let options = LogOptions { segment_bytes: LARGE, ..options() };
    let log = Log::create(shared(&disk), directory(), LOG_ID, &options).unwrap();
    let records = append_all(&log, (0..45).map(|number| 50_000 + number * 37));
    log.flush(last(&records)).unwrap();
    let target = Path::new("/copy");
    disk.create_directory(target).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    let mut copied = 0;
    let end = log
        .copy_to(FIRST_LSN, &disk, target, &mut |bytes| {
            copied += bytes;
            Ok(())
        })
        .unwrap();
    assert_eq!(end, log.tail());
    // All but the headers of its three segments.
    assert!(end.0 > 2 * LARGE && copied < end.0 && copied > end.0 - 3 * 4096 - 1, "{copied} of {end:?}");
    let left = disk.after_crash(CrashMode::DropUnsynced);
    let open = || Log::open(shared(&left), target, LOG_ID, FIRST_LSN, &options);
    let copy = open().unwrap();
    assert!(read_all(&copy).unwrap() == records);
    copy.close().unwrap();
    drop(copy);
    // Each but the last says that it has a successor.
    left.remove(&target.join(format!("{:016x}.log", 2 * LARGE))).unwrap();
    let missing = open();
    assert!(missing.is_err(), "{missing:?}");
}

const RECORDS: usize = 53;

/// A log with a large first batch and a small second one, which is in use; a directory for a copy; and its records.
fn log_in_use() -> (FaultyDisk, Arc<Log>, Vec<Record>, &'static Path) {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let mut records = append_all(&log, [3000; 50]);
    log.flush(last(&records)).unwrap();
    for number in 50..RECORDS as u64 {
        records.push(append(&log, last(&records), payload(number, 100)).unwrap());
    }
    log.flush(last(&records)).unwrap();
    let target = Path::new("/copy");
    disk.create_directory(target).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    (disk, log, records, target)
}

/// What had rotted was copied as it was, and found when the copy was needed.
#[test]
fn a_rotten_record_is_not_copied() {
    for index in 0..RECORDS {
        // The log marks what is durable when it likes, so that no two are alike.
        let (disk, log, records, target) = log_in_use();
        let (header, _) = &records[index];
        let number = header.lsn.0 / SEGMENT;
        disk.flip_bit(&segment_path(number), header.lsn.0 % SEGMENT + 40, 3);
        let after = records.get(index + 1).map_or(log.tail(), |(header, _)| header.lsn);
        let copy = |from| log.copy_to(from, &disk, target, &mut |_| Ok(()));
        match copy(FIRST_LSN) {
            Err(StorageError::Corrupted { site: CorruptionSite::Log(at), .. }) => assert_eq!(at, header.lsn),
            outcome => panic!("record {index}: {outcome:?}"),
        }
        disk.list(target).unwrap().iter().for_each(|path| disk.remove(path).unwrap());
        assert_eq!(copy(after).unwrap(), log.tail(), "record {index} is needed by nobody");
    }
}

/// No later batch ever proves that the last one of a copy was durable, so a bit that flipped in it in the archive
/// passed for a torn tail: the copy was opened without its last commits.
#[test]
fn damage_to_the_last_batch_of_a_copy_is_found() {
    let (disk, log, records, target) = log_in_use();
    let end = log.copy_to(FIRST_LSN, &disk, target, &mut |_| Ok(())).unwrap();
    let open = |disk: &FaultyDisk| Log::open(shared(disk), target, LOG_ID, FIRST_LSN, &options());
    let first = records[50].0.lsn.0;
    let path = target.join(format!("{:016x}.log", first / SEGMENT * SEGMENT));
    for byte in first..end.0 {
        let rotten = disk.after_crash(CrashMode::DropUnsynced);
        rotten.flip_bit(&path, byte % SEGMENT, (byte % 8) as u8);
        let opened = open(&rotten);
        // What fills a record up to whole words is no part of it.
        let is_padding = opened.as_ref().is_ok_and(|copy| read_all(copy).unwrap() == records);
        assert!(is_padding || is_corrupted(&opened), "byte {byte}: {opened:?}");
    }
    let copy = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
    assert!(read_all(&copy).unwrap() == records);
}

/// A copy that ended so near to the end of a segment that this had no room for a mark had none.
#[test]
fn a_copy_whose_last_segment_is_full_has_its_mark_in_the_next() {
    for room in [0, 8, 16, 24, 32, 40] {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        append_all(&log, [3000; 30]);
        log.close().unwrap();
        drop(log);
        // It ends with a mark for all of it, so the next batch has none.
        let log = open_from(&disk, FIRST_LSN).unwrap();
        let mut records = read_all(&log).unwrap();
        let bytes = SEGMENT - log.tail().0 % SEGMENT - 32 - room;
        records.push(append(&log, last(&records), payload(30, bytes as usize)).unwrap());
        log.flush(last(&records)).unwrap();
        let target = Path::new("/copy");
        disk.create_directory(target).unwrap();
        disk.sync_directory(Path::new("/")).unwrap();
        let end = log.copy_to(FIRST_LSN, &disk, target, &mut |_| Ok(())).unwrap();
        assert_eq!(end.0, SEGMENT - room, "the log has put a mark under it");
        let open = |disk: &FaultyDisk| Log::open(shared(disk), target, LOG_ID, FIRST_LSN, &options());
        let rotten = disk.after_crash(CrashMode::DropUnsynced);
        rotten.flip_bit(&target.join(format!("{:016x}.log", 0)), last(&records).0 + 40, 3);
        let opened = open(&rotten).map(|_| ());
        assert!(is_corrupted(&opened), "{room} bytes of room: {opened:?}");
        let copy = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
        assert!(read_all(&copy).unwrap() == records, "{room} bytes of room");
        append(&copy, last(&records), payload(31, 100)).unwrap();
        copy.close().unwrap();
    }
}
