//! What is written beside the records: the rest of their last block, and zeros ahead.

use foreshore_env::disk::{BLOCK_BYTES, OpenMode, RealDisk};

use super::*;

/// The system would have to read the rest of a block that its cache has not, or that goes past it.
#[test]
fn blocks_are_written_whole_and_no_more_of_a_file_that_was_written_before() {
    const JUNK: u8 = 0xEE;
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let first = FIRST_LSN.0 as usize;
    let junk = vec![JUNK; SEGMENT as usize - first];
    let file = disk.open(&segment_path(0), OpenMode::ReadWrite).unwrap();
    file.write_all_at(&junk, FIRST_LSN.0).unwrap();
    let mut records = Vec::new();
    let mut before = Vec::new();
    for length in [0, 1, 8, 4000, 5000, 17, BLOCK_BYTES, 3 * BLOCK_BYTES, 25_000, 700, 20_000, 3, 30_000] {
        let prev = records.last().map_or(Lsn::ZERO, |(header, _): &Record| header.lsn);
        records.push(append(&log, prev, payload(length as u64, length)).unwrap());
        log.flush(last(&records)).unwrap();
        let end = log.durable().0 as usize;
        assert_eq!(end as u64, log.tail().0);
        let now = disk.read_file(&segment_path(0)).unwrap();
        assert!(now[first..].starts_with(&before), "the log below {end} has changed");
        let block_end = end.next_multiple_of(BLOCK_BYTES);
        assert!(now[end..block_end].iter().all(|&byte| byte == 0), "behind {end}");
        assert!(now[block_end..].iter().all(|&byte| byte == JUNK), "behind the block of {end}");
        before = now[first..end].to_vec();
    }
    // Opened within a block: its beginning stays.
    drop(log);
    let log = open(&disk).unwrap();
    for length in [40, 9000] {
        records.push(append(&log, last(&records), payload(length as u64, length)).unwrap());
        log.flush(last(&records)).unwrap();
    }
    assert!(read_all(&log).unwrap() == records);
    drop(log);
    let log = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
    assert!(read_all(&log).unwrap() == records);
}

/// In a file that has only reserved its space each sync of blocks that were never written costs more.
#[test]
fn a_fresh_file_is_written_ahead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = Log::create(Arc::new(RealDisk), &path, LOG_ID, &options()).unwrap();
    let segment = RealDisk.open(&path.join("0000000000000000.log"), OpenMode::Read).unwrap();
    let ahead = |place: u64| segment.next_data(place).unwrap() == Some(place);
    // A file system that does not know its holes has nothing to show.
    let knows = !ahead(SEGMENT - 1);
    let (header, _) = append(&log, Lsn::ZERO, payload(1, 100)).unwrap();
    log.flush(header.lsn).unwrap();
    assert!(ahead(SEGMENT / 2 - 1), "nothing was written ahead");
    assert_eq!(ahead(SEGMENT / 2), !knows, "more was written ahead than is soon needed");
}

/// Many laps of the ring and many segments, with records that end a block, a piece or a segment or miss it by a word;
/// closed and opened within a block. What the system reads from the ring itself, past its cache and through it, is what
/// was appended.
#[test]
fn what_goes_to_a_file_from_the_ring_is_what_was_appended() {
    for past_cache in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let options = LogOptions { past_cache, ..options() };
        let mut log = Log::create(Arc::new(RealDisk), &path, LOG_ID, &options).unwrap();
        let mut records: Vec<Record> = Vec::new();
        for round in 0..12 {
            for length in [0, 4064, 4056, 4072, 4096, 8, 65_504, 700, 1, 65_496, 12_256, 30_000, 16, 50_000] {
                let seed = records.len() as u64;
                let prev = records.last().map_or(Lsn::ZERO, |(header, _)| header.lsn);
                records.push(append(&log, prev, payload(seed, length)).unwrap());
                if (length + round).is_multiple_of(3) {
                    log.flush(last(&records)).unwrap();
                }
            }
            if round % 3 == 2 {
                log.flush(last(&records)).unwrap();
                drop(log);
                log = Log::open(Arc::new(RealDisk), &path, LOG_ID, FIRST_LSN, &options).unwrap();
                assert!(read_all(&log).unwrap() == records, "round {round}, past the cache: {past_cache}");
            }
        }
        let (number, end) = (log.tail().0 / SEGMENT, (log.tail().0 % SEGMENT) as usize);
        let segment = std::fs::read(path.join(format!("{:016x}.log", number * SEGMENT))).unwrap();
        let block_end = end.next_multiple_of(BLOCK_BYTES);
        assert!(segment[end..block_end].iter().all(|&byte| byte == 0), "something stands behind the end");
    }
}
