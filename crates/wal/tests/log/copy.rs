//! Copies of a log that others use.

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
