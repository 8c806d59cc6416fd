//! Records of all sizes, around every boundary.

use foreshore_wal::{MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES};
use proptest::prelude::*;

use super::*;

/// Bytes before the payload.
const HEADER: usize = MAX_RECORD_BYTES - MAX_PAYLOAD_BYTES;

fn check_backward(log: &Log, records: &[Record]) {
    let (mut reader, mut buffer) = (log.backward(), vec![1, 2, 3]);
    for (header, bytes) in records.iter().rev() {
        assert_eq!(reader.read(header.lsn, &mut buffer).unwrap(), *header);
        assert!(buffer == *bytes, "the payload at {}", header.lsn);
    }
}

fn check_everywhere(disk: &FaultyDisk, log: Arc<Log>, records: &[Record]) {
    let mut buffer = vec![1, 2, 3];
    for (header, bytes) in records {
        assert_eq!(log.read(header.lsn, &mut buffer).unwrap(), *header);
        assert!(buffer == *bytes, "the payload at {}", header.lsn);
    }
    check_backward(&log, records);
    assert!(read_all(&log).unwrap() == records);
    log.close().unwrap();
    check_backward(&log, records);
    assert!(read_all(&log).unwrap() == records, "a closed log can be read");
    drop(log);
    let log = open(disk).unwrap();
    assert!(read_all(&log).unwrap() == records);
    for (header, bytes) in records.iter().rev() {
        assert_eq!(log.read(header.lsn, &mut buffer).unwrap(), *header);
        assert!(buffer == *bytes, "the payload at {}", header.lsn);
    }
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..200,
        2 => 0usize..9000,
        1 => MAX_PAYLOAD_BYTES - 40..=MAX_PAYLOAD_BYTES,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_sizes_come_back_through_many_segments_and_laps_of_the_buffer(
        lengths in proptest::collection::vec(lengths(), 1..120)
    ) {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let records = append_all(&log, lengths);
        check_everywhere(&disk, log, &records);
    }
}

/// Lets the room at the end of the first segment be `room` bytes when the next record comes.
fn fill_up_to(log: &Log, room: u64) -> Vec<Record> {
    let mut lengths = vec![];
    let mut left = SEGMENT - FIRST_LSN.0 - room;
    while left > 0 {
        // The rest is never too small for a record.
        let piece = if left > 40_000 { 20_000 } else { left };
        lengths.push(piece as usize - HEADER);
        left -= piece;
    }
    append_all(log, lengths)
}

#[test]
fn a_record_fits_the_end_of_a_segment_exactly_or_goes_to_the_next() {
    for room in (0..=104).step_by(8) {
        for length in [0, 8, 32, 33, 64, MAX_PAYLOAD_BYTES] {
            let disk = FaultyDisk::new();
            let log = create(&disk);
            let mut records = fill_up_to(&log, room);
            assert_eq!(log.tail(), Lsn(SEGMENT - room));
            let prev = last(&records);
            records.push(append(&log, prev, payload(9, length)).unwrap());
            let fits = (HEADER + length).next_multiple_of(8) as u64 <= room;
            let expected = if fits { SEGMENT - room } else { SEGMENT + FIRST_LSN.0 };
            assert_eq!(last(&records), Lsn(expected), "room {room}, length {length}");
            let prev = last(&records);
            records.push(append(&log, prev, payload(10, 3)).unwrap());
            check_everywhere(&disk, log, &records);
        }
    }
}

#[test]
fn a_log_that_ends_at_the_end_of_a_segment_goes_on_after_opening() {
    for room in [0, 8, 24, 32, 40] {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let mut records = fill_up_to(&log, room);
        log.flush(last(&records)).unwrap();
        drop(log);
        let disk = disk.after_crash(CrashMode::DropUnsynced);
        let log = open(&disk).unwrap();
        let prev = last(&records);
        records.push(append(&log, prev, payload(1, 50)).unwrap());
        check_everywhere(&disk, log, &records);
    }
}

#[test]
fn a_log_whose_next_segment_was_not_made_yet_ends_with_the_segment() {
    for room in [0, 8, 16, 24, 32, 40] {
        let disk = FaultyDisk::new();
        let log = create(&disk);
        let mut records = fill_up_to(&log, room);
        let prev = last(&records);
        let lost = append(&log, prev, payload(1, 50)).unwrap();
        log.flush(lost.0.lsn).unwrap();
        drop(log);
        // The power failed when the first segment was durable and before the second had its name.
        disk.remove(&segment_path(1)).unwrap();
        forget_successor(&disk, 0);
        let log = open(&disk).unwrap();
        assert_eq!(log.tail(), Lsn(SEGMENT));
        assert!(read_all(&log).unwrap() == records, "room {room}");
        assert!(read_from(&log, log.tail()).unwrap().is_empty());
        let prev = last(&records);
        records.push(append(&log, prev, payload(1, 50)).unwrap());
        assert_eq!(last(&records), lost.0.lsn);
        check_everywhere(&disk, log, &records);
    }
}

#[test]
fn a_reader_may_begin_at_a_former_tail() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    for room in [0, 8, 32] {
        let records = append_all(&log, [(SEGMENT / 2) as usize - HEADER - room; 2]);
        let tail = log.tail();
        let more = append_all(&log, [100, (SEGMENT / 4) as usize]);
        log.flush(last(&more)).unwrap();
        assert!(read_from(&log, tail).unwrap() == more);
        assert!(read_from(&log, last(&records)).unwrap().len() == 3);
        assert!(read_from(&log, log.tail()).unwrap().is_empty());
    }
}

#[test]
fn large_lsns_are_as_good_as_small_ones() {
    for base in [(1 << 32) - SEGMENT, (1 << 48) - SEGMENT, (1 << 60) - SEGMENT] {
        let disk = FaultyDisk::new();
        let log = Log::create_at(shared(&disk), directory(), LOG_ID, base, &options()).unwrap();
        let records = append_all(&log, vec![10_000; 40]);
        assert_eq!(records[0].0.lsn, Lsn(base + FIRST_LSN.0));
        log.close().unwrap();
        let log = open_from(&disk, records[0].0.lsn).unwrap();
        assert!(read_from(&log, records[0].0.lsn).unwrap() == records);
    }
}

#[test]
fn the_log_ends_before_lsns_overflow() {
    let disk = FaultyDisk::new();
    let base = (u64::MAX / 4).next_multiple_of(SEGMENT) - SEGMENT;
    let log = Log::create_at(shared(&disk), directory(), LOG_ID, base, &options()).unwrap();
    let refused = (0..100).find_map(|_| append(&log, Lsn::ZERO, payload(1, 10_000)).err());
    assert!(matches!(refused, Some(StorageError::LogFull { .. })), "{refused:?}");
    log.close().unwrap();
}

#[test]
fn limits_are_errors_and_append_nothing() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let tail = log.tail();
    let limit = |result: Result<Lsn>, most: u64, given: u64| match result {
        Err(StorageError::LimitExceeded { limit, got, .. }) => assert_eq!((limit, got), (most, given)),
        result => panic!("{result:?}"),
    };
    let longest = MAX_RECORD_BYTES as u64;
    limit(
        log.append(Urgency::Work, TxnId(1), Lsn::ZERO, KIND, &[&vec![0; MAX_PAYLOAD_BYTES], &[1]]),
        longest,
        longest + 1,
    );
    limit(log.append(Urgency::Work, TxnId(1 << 48), Lsn::ZERO, KIND, &[]), (1 << 48) - 1, 1 << 48);
    limit(log.append(Urgency::Work, TxnId(1), Lsn::ZERO, RecordKind(0), &[]), 254, 0);
    limit(log.append(Urgency::Ending, TxnId(1), Lsn::ZERO, RecordKind(255), &[]), 254, 255);
    assert_eq!(log.tail(), tail);
    let lsn = log
        .append(Urgency::Work, TxnId((1 << 48) - 1), Lsn::ZERO, RecordKind(254), &[&[], &[1], &[], &[2]])
        .unwrap();
    let mut bytes = Vec::new();
    let header = log.read(lsn, &mut bytes).unwrap();
    assert_eq!((header.txn, header.kind, bytes), (TxnId((1 << 48) - 1), RecordKind(254), vec![1, 2]));
}

#[test]
fn an_lsn_at_which_no_record_starts_is_an_error() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let records = append_all(&log, [100, 100, 100, 100]);
    let mut buffer = Vec::new();
    for flushed in [false, true] {
        if flushed {
            log.flush(last(&records)).unwrap();
        }
        let mut reader = log.backward();
        let starts: Vec<u64> = records.iter().map(|(header, _)| header.lsn.0).collect();
        for lsn in (0..log.tail().0 + 100).chain([SEGMENT - 8, SEGMENT, u64::MAX - 7, u64::MAX]) {
            let is_there = starts.contains(&lsn);
            assert_eq!(log.read(Lsn(lsn), &mut buffer).is_ok(), is_there, "{lsn}");
            assert_eq!(reader.read(Lsn(lsn), &mut buffer).is_ok(), is_there, "{lsn}");
        }
    }
    assert!(is_corrupted(&log.flush(Lsn(u64::MAX))));
    assert!(is_corrupted(&log.flush(log.tail())), "nothing will ever make this durable");
    log.request_flush(Lsn(u64::MAX));
    let records = append_all(&log, [5]);
    log.flush(last(&records)).unwrap();
}

/// A rollback read the file once for each record.
#[test]
fn the_way_back_through_a_file_takes_few_reads() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let records = append_all(&log, [70; 3000]);
    log.flush(last(&records)).unwrap();
    let reads = |records: &mut dyn Iterator<Item = &Record>| {
        let (mut reader, mut buffer) = (log.backward(), Vec::new());
        let before = disk.counts().reads;
        for (header, bytes) in records {
            assert_eq!(reader.read(header.lsn, &mut buffer).unwrap(), *header);
            assert!(buffer == *bytes, "the payload at {}", header.lsn);
        }
        disk.counts().reads - before
    };
    // 8 KiB, 16, … up to the beginning of the third segment, and each of the other two at once or nearly so.
    assert!(reads(&mut records.iter().rev()) <= 10);
    // Whoever leaps reads little for each record.
    disk.set_longest_read(Some(8 << 10));
    let far = 20_000 / (HEADER + 72);
    let leaps = records.iter().rev().step_by(far);
    assert_eq!(reads(&mut leaps.clone()), leaps.len() as u64);
}

#[test]
fn what_is_read_ahead_decides_nothing() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let records = append_all(&log, [400; 100]);
    log.close().unwrap();
    let log = open(&disk).unwrap();
    let lsn = |index: usize| records[index].0.lsn;
    let (mut reader, mut buffer) = (log.backward(), Vec::new());
    // A sector that nobody asks for cannot be read; those before and behind it can.
    disk.fail_reads(&segment_path(0), lsn(60).0 + 200..lsn(60).0 + 201);
    for index in [99, 62, 61, 59, 58, 1] {
        assert_eq!(reader.read(lsn(index), &mut buffer).unwrap(), records[index].0);
        assert!(buffer == records[index].1, "{index}");
    }
    assert!(matches!(reader.read(lsn(60), &mut buffer), Err(StorageError::Io { .. })));
    disk.heal_reads();
    assert_eq!(reader.read(lsn(60), &mut buffer).unwrap(), records[60].0);
    // What was given up meanwhile is not found among it.
    reader.read(lsn(55), &mut buffer).unwrap();
    log.release_before(lsn(55)).unwrap();
    assert!(is_corrupted(&reader.read(lsn(54), &mut buffer)));
    assert_eq!(reader.read(lsn(55), &mut buffer).unwrap(), records[55].0);
}
