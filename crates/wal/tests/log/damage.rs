//! Damaged and hostile files: an error or the right prefix, never a wrong record, never a panic.

use foreshore_base::CorruptionSite;
use proptest::prelude::*;

use super::*;

/// Three flushed batches in two segments, closed or not.
fn log_of_two_segments(close: bool) -> (FaultyDisk, Vec<Record>) {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let mut records: Vec<Record> = Vec::new();
    for lengths in [vec![100, 30_000, 45], vec![60_000, 33], vec![40_000, 64, 0, 9]] {
        for length in lengths {
            let prev = records.last().map_or(Lsn::ZERO, |(header, _)| header.lsn);
            records.push(append(&log, prev, payload(records.len() as u64, length)).unwrap());
        }
        log.flush(last(&records)).unwrap();
    }
    assert!(disk.files().contains(&segment_path(1)) && !disk.files().contains(&segment_path(2)));
    if close {
        log.close().unwrap();
    }
    drop(log);
    (disk, records)
}

fn image(disk: &FaultyDisk) -> FaultyDisk {
    disk.after_crash(CrashMode::KeepAll)
}

/// The places of a segment that mean something: not the void after its header, nor after its last record.
fn meaningful_bytes(records: &[Record], segment: u64) -> Vec<u64> {
    let base = segment * SEGMENT;
    let mut places: Vec<u64> = (0..64).collect();
    for (header, bytes) in records {
        let start = header.lsn.0;
        if (base..base + SEGMENT).contains(&start) {
            let end = start + 32 + bytes.len() as u64;
            // Every byte of the header and of short payloads, some of the long ones.
            places.extend((start - base..end - base).filter(|place| {
                let within = place + base - start;
                within < 200 || within.is_multiple_of(997) || place + base + 8 > end
            }));
        }
    }
    places
}

#[test]
fn every_flipped_byte_of_a_closed_log_is_found() {
    let (disk, records) = log_of_two_segments(true);
    for segment in [0, 1] {
        for place in meaningful_bytes(&records, segment) {
            let image = image(&disk);
            image.flip_bit(&segment_path(segment), place, (place % 8) as u8);
            // Also where no open scans: the bytes of the header that are zero are part of its checksum.
            match open(&image) {
                Err(StorageError::Corrupted { .. }) => {}
                Err(error) => panic!("segment {segment}, byte {place}: {error}"),
                Ok(_) => panic!("segment {segment}, byte {place}: not found"),
            }
        }
    }
}

#[test]
fn every_flipped_byte_of_a_log_that_was_not_closed_is_found_or_cuts_the_last_batch() {
    let (disk, records) = log_of_two_segments(false);
    let durable_before_the_last_batch = 5;
    let mut cut = 0;
    for segment in [0, 1] {
        for place in meaningful_bytes(&records, segment) {
            let image = image(&disk);
            image.flip_bit(&segment_path(segment), place, (place % 8) as u8);
            if let Ok(log) = open(&image) {
                let found = read_all(&log).unwrap();
                assert!(found.len() >= durable_before_the_last_batch, "segment {segment}, byte {place}");
                assert!(found.len() < records.len() && records.starts_with(&found), "byte {place}");
                cut += 1;
            }
        }
    }
    assert!(cut > 100, "{cut}");
}

#[test]
fn a_mark_tells_damage_from_a_torn_tail_within_one_segment() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let mut records: Vec<Record> = Vec::new();
    let mut batches = Vec::new();
    for _ in 0..4 {
        for length in [50, 0, 300] {
            records.push(append(&log, Lsn::ZERO, payload(4, length)).unwrap());
        }
        log.flush(last(&records)).unwrap();
        batches.push(records.len());
    }
    drop(log);
    let (last_batch, durable) = (batches[2], log_position(&records, batches[2]));
    for place in meaningful_bytes(&records, 0).into_iter().skip(64) {
        let image = image(&disk);
        image.flip_bit(&segment_path(0), place, (place % 8) as u8);
        let result = open(&image);
        if place < durable {
            assert!(is_corrupted(&result), "byte {place} was durable when the last batch was begun");
        } else {
            let found = read_all(&result.unwrap()).unwrap();
            assert!(found.len() >= last_batch && found.len() < records.len() && records.starts_with(&found));
        }
    }
}

/// A log whose last batch was followed by a quiet flush interval, and then by the death of the process. `lengths`: the
/// records of the last batch.
fn quiet_log(lengths: &[usize]) -> (FaultyDisk, Vec<Record>) {
    let patience = Instant::now() + Duration::from_secs(120);
    loop {
        let (disk, records) = perhaps_quiet_log(lengths);
        // On a busy machine the flusher may have slept through it.
        let last = last(&records).0;
        let image = disk.after_crash(CrashMode::KeepAll);
        image.flip_bit(&segment_path(last / SEGMENT), last % SEGMENT, 0);
        if is_corrupted(&open(&image)) {
            return (disk, records);
        }
        assert!(Instant::now() < patience, "a quiet log gets no mark");
    }
}

fn perhaps_quiet_log(lengths: &[usize]) -> (FaultyDisk, Vec<Record>) {
    let disk = FaultyDisk::new();
    let options = LogOptions { flush_interval: Duration::from_millis(5), ..options() };
    let log = Log::create(shared(&disk), directory(), LOG_ID, &options).unwrap();
    let mut records = append_all(&log, [50, 300]);
    log.flush(last(&records)).unwrap();
    records.extend(append_all(&log, lengths.iter().copied()));
    log.flush(last(&records)).unwrap();
    wait_for_the_quiet_mark(&disk);
    drop(log);
    (disk.after_crash(CrashMode::DropUnsynced), records)
}

/// WAL-7: the window in which damage passes for a torn tail ends a flush interval after the last batch.
#[test]
fn every_flipped_bit_of_the_last_record_of_a_quiet_log_is_damage() {
    let (disk, records) = quiet_log(&[7, 60]);
    let (header, bytes) = records.last().unwrap();
    for place in header.lsn.0..header.lsn.0 + 32 + bytes.len() as u64 {
        for bit in 0..8 {
            let image = image(&disk);
            image.flip_bit(&segment_path(0), place, bit);
            assert!(is_corrupted(&open(&image)), "byte {place}, bit {bit}");
        }
    }
    assert!(read_all(&open(&disk).unwrap()).unwrap() == records);
}

#[test]
fn the_mark_of_a_quiet_log_may_be_all_that_is_in_its_segment() {
    let used = FIRST_LSN.0 + 88 + 336 + 40;
    let mut beyond = 0;
    for room in [0, 8, 32, 40, 72, 80, 88] {
        let rest = SEGMENT - used - 65_536 - room;
        let (disk, records) = quiet_log(&[65_504, rest as usize - 32]);
        let (header, bytes) = records.last().unwrap();
        let end = header.lsn.0 + 32 + bytes.len() as u64;
        for place in [header.lsn.0, header.lsn.0 + 20, end - 1] {
            let image = image(&disk);
            image.flip_bit(&segment_path(header.lsn.0 / SEGMENT), place % SEGMENT, 3);
            assert!(is_corrupted(&open(&image)), "byte {place}, room {room}");
        }
        let log = open(&disk).unwrap();
        assert!(read_all(&log).unwrap() == records);
        beyond += u32::from(end <= SEGMENT && log.tail() > Lsn(SEGMENT));
    }
    assert!(beyond > 0, "the test's own premise");
}

/// The LSN of a record.
fn log_position(records: &[Record], index: usize) -> u64 {
    records[index].0.lsn.0
}

#[test]
fn what_a_sound_record_carries_is_no_proof() {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let lost = append(&log, Lsn::ZERO, payload(1, 100)).unwrap();
    // A user's value that looks like a mark, at the very place where it would be one.
    let place = log.tail().0 + 32;
    let mark = forged(place, 0, 255 << 48, &u64::MAX.to_le_bytes());
    let lsn = log.append(Urgency::Work, TxnId(7), Lsn::ZERO, KIND, &[&mark]).unwrap();
    assert_eq!(lsn.0 + 32, place);
    log.flush(lsn).unwrap();
    let mut bytes = disk.read_file(&segment_path(0)).unwrap();
    let gap = lost.0.lsn.0 as usize;
    bytes[gap..gap + 32].fill(0);
    disk.write_file(&segment_path(0), &bytes).unwrap();
    let log = open(&disk).unwrap();
    assert!(read_all(&log).unwrap().is_empty());
}

#[test]
fn segments_that_do_not_fit_together_are_damage() {
    let (disk, _) = log_of_two_segments(true);
    let (first, second) =
        (disk.read_file(&segment_path(0)).unwrap(), disk.read_file(&segment_path(1)).unwrap());
    let misplaced = image(&disk);
    misplaced.write_file(&segment_path(1), &first).unwrap();
    assert!(is_corrupted(&open(&misplaced)), "the first segment under the second one's name");
    let size = |bytes: u64, length: u64| {
        let mut changed = second.clone();
        changed[32..40].copy_from_slice(&bytes.to_le_bytes());
        let checksum = crc32c(&changed[..12], &changed[16..64]);
        changed[12..16].copy_from_slice(&checksum.to_le_bytes());
        changed.resize(length as usize, 0);
        let image = image(&disk);
        image.write_file(&segment_path(1), &changed).unwrap();
        open(&image)
    };
    assert!(size(SEGMENT, SEGMENT).is_ok());
    let log = open(&disk).unwrap();
    append_all(&log, [60_000; 2]);
    log.close().unwrap();
    drop(log);
    let third = disk.read_file(&segment_path(2)).unwrap();
    let mut larger = third[..64].to_vec();
    larger[32..40].copy_from_slice(&(2 * SEGMENT).to_le_bytes());
    let checksum = crc32c(&larger[..12], &larger[16..64]);
    larger[12..16].copy_from_slice(&checksum.to_le_bytes());
    larger.extend_from_slice(&third[64..]);
    larger.resize(2 * SEGMENT as usize, 0);
    let mixed = image(&disk);
    mixed.write_file(&segment_path(2), &larger).unwrap();
    assert!(is_corrupted(&open(&mixed)), "segments of two sizes");
    for bytes in [0, 1, 4096, SEGMENT / 2, SEGMENT - 8, 2 * SEGMENT, 1 << 40, u64::MAX] {
        assert!(is_corrupted(&size(bytes, 2 * SEGMENT)), "{bytes}");
    }
}

#[test]
fn damage_leaves_the_file_as_it_is() {
    let (disk, records) = log_of_two_segments(true);
    let path = segment_path(0);
    disk.flip_bit(&path, records[1].0.lsn.0 + 100, 1);
    let before = (disk.read_file(&path).unwrap(), disk.read_file(&segment_path(1)).unwrap());
    assert!(is_corrupted(&open(&disk)));
    assert!(before == (disk.read_file(&path).unwrap(), disk.read_file(&segment_path(1)).unwrap()));
}

#[test]
fn missing_cut_and_foreign_segments_are_damage() {
    let (disk, records) = log_of_two_segments(true);
    let without = |number| {
        let image = image(&disk);
        image.remove(&segment_path(number)).unwrap();
        image
    };
    assert!(is_corrupted(&open(&without(0))));
    assert!(is_corrupted(&open_from(&without(1), last(&records))));

    let image_of_three = image(&disk);
    let log = open(&image_of_three).unwrap();
    append_all(&log, [60_000; 3]);
    log.close().unwrap();
    drop(log);
    assert!(open(&image_of_three).is_ok());
    image_of_three.remove(&segment_path(1)).unwrap();
    assert!(is_corrupted(&open(&image_of_three)), "a hole in the middle");

    for bytes in [0, 10, 4096, SEGMENT - 1] {
        let image = image(&disk);
        let mut cut = image.read_file(&segment_path(1)).unwrap();
        cut.truncate(bytes as usize);
        image.write_file(&segment_path(1), &cut).unwrap();
        assert!(is_corrupted(&open(&image)), "{bytes} bytes");
    }
    let stranger = Log::open(shared(&disk), directory(), LOG_ID + 1, FIRST_LSN, &options());
    assert!(is_corrupted(&stranger), "another database's log");
    let renamed = image(&disk);
    renamed.rename(&segment_path(1), &segment_path(2)).unwrap();
    assert!(is_corrupted(&open(&renamed)));
}

/// A log of five segments, closed or not.
fn log_of_five_segments(close: bool) -> (FaultyDisk, Vec<Record>) {
    let disk = FaultyDisk::new();
    let log = create(&disk);
    let mut records = Vec::new();
    for number in 0..9 {
        records.push(append(&log, Lsn::ZERO, payload(number, 60_000)).unwrap());
        log.flush(last(&records)).unwrap();
    }
    if close {
        log.close().unwrap();
    }
    drop(log);
    assert!(disk.files().contains(&segment_path(4)) && !disk.files().contains(&segment_path(5)));
    (disk, records)
}

/// What [`open`] says is missing.
fn missing_segment(disk: &FaultyDisk) -> PathBuf {
    match open(disk) {
        Err(StorageError::Corrupted { site: CorruptionSite::File(path), detail }) => {
            assert!(detail.contains("missing") && detail.contains("salvage"), "{detail}");
            path
        }
        result => panic!("{result:?}"),
    }
}

/// WAL-14: whichever segments are gone, the first of them is named; and nothing is changed, so that it may be put back.
#[test]
fn a_log_without_its_last_segments_says_which_is_missing() {
    for close in [true, false] {
        let (disk, records) = log_of_five_segments(close);
        for gone in (1..32_u32).filter(|&gone| gone != 31) {
            let image = image(&disk);
            for number in (0..5).filter(|number| gone >> number & 1 == 1) {
                image.remove(&segment_path(number)).unwrap();
            }
            let before: Vec<_> =
                image.files().into_iter().map(|path| (image.read_file(&path).unwrap(), path)).collect();
            let first = u64::from(gone.trailing_zeros());
            assert_eq!(missing_segment(&image), segment_path(first), "without {gone:b}");
            let after: Vec<_> =
                image.files().into_iter().map(|path| (image.read_file(&path).unwrap(), path)).collect();
            assert!(before == after, "without {gone:b}");
        }
        let nothing = FaultyDisk::new();
        nothing.create_directory(directory()).unwrap();
        assert_eq!(missing_segment(&nothing), directory(), "nothing tells how a segment was called");
        assert!(read_all(&open(&disk).unwrap()).unwrap() == records);
    }
}

/// WAL-14: what is missing is missed whether the segment before it is whole or not.
#[test]
fn a_segment_that_had_a_successor_does_not_end_in_a_torn_tail() {
    let (disk, records) = log_of_five_segments(false);
    let (header, _) = records.iter().rfind(|(header, _)| header.lsn.0 < 4 * SEGMENT).unwrap();
    let image = image(&disk);
    image.remove(&segment_path(4)).unwrap();
    let mut bytes = image.read_file(&segment_path(3)).unwrap();
    bytes[(header.lsn.0 % SEGMENT) as usize..].fill(0);
    image.write_file(&segment_path(3), &bytes).unwrap();
    assert!(is_corrupted(&open(&image)), "the last record of a segment that was followed, and what followed");
    forget_successor(&image, 3);
    assert!(open(&image).is_ok(), "the test's own premise: by itself it looks like one");
}

/// What an older version has left, or a crash between making a segment and its note, is completed when the log is
/// opened.
#[test]
fn a_note_that_is_absent_or_damaged_is_made_up_for() {
    let (disk, records) = log_of_five_segments(true);
    for byte in NOTE {
        let image = image(&disk);
        image.flip_bit(&segment_path(2), byte as u64, 3);
        for number in [1, 3] {
            forget_successor(&image, number);
        }
        assert!(read_all(&open(&image).unwrap()).unwrap() == records, "byte {byte}");
        let left = image.after_crash(CrashMode::DropUnsynced);
        left.remove(&segment_path(3)).unwrap();
        left.remove(&segment_path(4)).unwrap();
        assert_eq!(missing_segment(&left), segment_path(3), "byte {byte}");
    }
}

/// A recycled file brings its old note along, which says nothing of what it holds now.
#[test]
fn a_note_of_a_former_life_is_none() {
    let (disk, _) = log_of_five_segments(true);
    let log = open_from(&disk, Lsn(4 * SEGMENT)).unwrap();
    let records = append_all(&log, [60_000; 3]);
    log.close().unwrap();
    drop(log);
    let tail = disk.read_file(&segment_path(5)).unwrap();
    assert!(tail[NOTE].iter().any(|&byte| byte != 0), "the test's own premise: it was recycled");
    let (mut found, mut bytes) = (Vec::new(), Vec::new());
    let log = open_from(&disk, last(&records)).unwrap();
    let mut reader = log.reader(last(&records));
    while let Some(header) = reader.next(&mut bytes).unwrap() {
        found.push((header, bytes.clone()));
    }
    assert!(found == records[records.len() - 1..]);
}

#[test]
fn a_start_that_is_not_there_is_damage() {
    let (disk, records) = log_of_two_segments(true);
    for from in [0, 1, 8, 4095, SEGMENT + 16, 2 * SEGMENT, 9 * SEGMENT + 4096, u64::MAX - 7, u64::MAX] {
        let result = open_from(&image(&disk), Lsn(from));
        if from == 0 {
            // The base of a segment stands for its first record.
            assert!(read_from(&result.unwrap(), Lsn(0)).unwrap() == records);
        } else {
            assert!(is_corrupted(&result), "{from}");
        }
    }
    // Inside a record: everything from there on was durable, and no record starts there.
    assert!(is_corrupted(&open_from(&image(&disk), records[2].0.lsn.advance(8))));
}

#[test]
fn other_files_in_the_directory_are_nobodys_business() {
    let (disk, records) = log_of_two_segments(true);
    for name in [
        "notes.txt",
        "0000.log",
        "000000000000000G.log",
        "+00000000000000a.log",
        "spare-",
        "spare-x",
        "ABCDEFABCDEF0000.log",
    ] {
        disk.write_file(&directory().join(name), b"?").unwrap();
    }
    let log = open(&disk).unwrap();
    assert!(read_all(&log).unwrap() == records);
}

#[test]
fn a_later_format_asks_for_a_later_version() {
    let (disk, _) = log_of_two_segments(true);
    let mut bytes = disk.read_file(&segment_path(0)).unwrap();
    bytes[8] = 2;
    let checksum = crc32c(&bytes[..12], &bytes[16..64]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    disk.write_file(&segment_path(0), &bytes).unwrap();
    assert!(matches!(open(&disk), Err(StorageError::UpgradeRequired { found: 2, supported: 1, .. })));
}

/// CRC32C bit by bit: an oracle that shares no code with the log.
fn crc32c(left: &[u8], right: &[u8]) -> u32 {
    !left.iter().chain(right).fold(!0, |checksum, &byte| {
        (0..8)
            .fold(checksum ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg()))
    })
}

/// A sound record with any content, as an attacker makes it who knows the log id.
fn forged(lsn: u64, prev: u64, tag: u64, payload: &[u8]) -> Vec<u8> {
    let length = (32 + payload.len()) as u32;
    let words = [lsn, prev, tag].map(u64::to_le_bytes).concat();
    let seed = [&LOG_ID.to_le_bytes()[..], &length.to_le_bytes(), &words, payload].concat();
    let checksum = crc32c_chained(&seed);
    [&length.to_le_bytes()[..], &checksum.to_le_bytes(), &words, payload].concat()
}

/// The log seeds its checksum with that of the log id, which is the same as checking both in a row.
fn crc32c_chained(bytes: &[u8]) -> u32 {
    crc32c(bytes, &[])
}

#[test]
fn a_forged_record_is_read_and_one_that_points_forward_is_an_error() {
    for (prev, sound) in [(0, true), (4096, false), (5000, false), (u64::MAX, false)] {
        let disk = FaultyDisk::new();
        create(&disk).close().unwrap();
        let mut bytes = disk.read_file(&segment_path(0)).unwrap();
        let record = forged(4096, prev, 70 << 48, b"forged");
        bytes[4096..4096 + record.len()].copy_from_slice(&record);
        disk.write_file(&segment_path(0), &bytes).unwrap();
        let log = open(&disk).unwrap();
        assert_eq!(log.tail(), Lsn(4096 + 40));
        assert_eq!(log.read(FIRST_LSN, &mut Vec::new()).is_ok(), sound);
        match read_all(&log) {
            Ok(records) => assert!(sound && records[0].1 == b"forged"),
            Err(error) => assert!(!sound && is_corrupted::<()>(&Err(error))),
        }
        log.close().unwrap();
    }
}

#[test]
fn a_record_of_another_segment_or_log_does_not_pass() {
    let (disk, records) = log_of_two_segments(false);
    // As a recycled file would show it: the first segment's bytes under the second one's header.
    let old = disk.read_file(&segment_path(0)).unwrap();
    let mut recycled = disk.read_file(&segment_path(1)).unwrap();
    recycled[4096..].copy_from_slice(&old[4096..]);
    let image = image(&disk);
    image.write_file(&segment_path(1), &recycled).unwrap();
    let log = open(&image).unwrap();
    let found = read_all(&log).unwrap();
    assert!(found.len() < records.len() && records.starts_with(&found));
    assert_eq!(log.tail(), Lsn(SEGMENT));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_after_a_sound_header_are_no_panic(
        pieces in proptest::collection::vec(
            (0usize..3000, 0usize..3, any::<u64>(), any::<u64>(), proptest::collection::vec(any::<u8>(), 0..100)),
            0..30,
        ),
    ) {
        let disk = FaultyDisk::new();
        create(&disk).close().unwrap();
        let mut bytes = disk.read_file(&segment_path(0)).unwrap();
        let mut at = 4096;
        for (skip, what, prev, tag, content) in pieces {
            // Forged records in a row, records of any kind, garbage, holes.
            let record = match what {
                0 => content,
                1 => forged(at as u64, prev % 5000, (tag % 256) << 48, &content),
                _ => forged(at as u64, prev, tag, &content),
            };
            bytes[at..at + record.len()].copy_from_slice(&record);
            at = (at + record.len()).next_multiple_of(8);
            if skip < 300 {
                at += skip & !7;
            }
        }
        disk.write_file(&segment_path(0), &bytes).unwrap();
        if let Ok(log) = open(&disk) {
            let _ = read_all(&log);
            let mut buffer = Vec::new();
            for lsn in (0..log.tail().0 + 64).step_by(8) {
                let _ = log.read(Lsn(lsn), &mut buffer);
            }
            let lsn = log.append(Urgency::Work, TxnId(1), Lsn::ZERO, KIND, &[b"after"]).unwrap();
            log.flush(lsn).unwrap();
            prop_assert_eq!(log.read(lsn, &mut buffer).unwrap().lsn, lsn);
        }
    }
}
