use foreshore_testkit::{CrashMode, FaultyDisk};

use super::*;

const PATH: &str = "/control";

fn content(checkpoint: u64) -> Control {
    Control {
        clean: true,
        checkpoint: Lsn(checkpoint),
        redo: Lsn(checkpoint / 2),
        log_from: Lsn(checkpoint / 4),
        catalog_root: PageId(2),
        overflow_root: PageId(3),
        ..Control::new(0x1234_5678_9ABC_DEF0)
    }
}

/// A durable control file, and the disk that it is on.
fn made() -> (FaultyDisk, ControlFile) {
    let disk = FaultyDisk::new();
    let file = ControlFile::create(&disk, Path::new(PATH), content(800)).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    (disk, file)
}

fn open(disk: &FaultyDisk) -> Result<Control> {
    ControlFile::open(disk, Path::new(PATH)).map(|file| file.content())
}

/// The same but for the sequence number.
fn says(control: Control, checkpoint: u64) -> bool {
    Control { sequence: 0, ..control } == Control { sequence: 0, ..content(checkpoint) }
}

#[test]
fn what_was_written_is_read() {
    let (disk, mut file) = made();
    assert!(says(open(&disk).unwrap(), 800));
    file.write(content(1600)).unwrap();
    assert!(says(open(&disk).unwrap(), 1600));
}

/// TXN-8.
#[test]
fn a_crash_at_any_step_leaves_the_old_content_or_the_new() {
    let (disk, _) = made();
    let before = disk.counts().operations;
    for step in 1..=4 {
        for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll]
            .into_iter()
            .chain((0..16).map(CrashMode::TornRandom))
        {
            let disk = disk.after_crash(CrashMode::KeepAll);
            let mut file = ControlFile::open(&disk, Path::new(PATH)).unwrap();
            disk.crash_at(disk.counts().operations + step);
            file.write(content(1600)).unwrap_err();
            let found = open(&disk.after_crash(mode)).unwrap();
            assert!(says(found, 800) || says(found, 1600), "step {step}, {mode:?}: {found:?}");
            assert!(step < 3 || says(found, 1600), "the first slot was durable: {found:?}");
        }
    }
    assert_eq!(disk.counts().operations, before, "each attempt had a disk of its own");
}

#[test]
fn any_flipped_bit_in_one_slot_is_repaired_by_the_other() {
    for byte in 0..SECTOR_BYTES as u64 {
        for slot in [0, SLOT_BYTES as u64] {
            let (disk, _) = made();
            disk.flip_bit(Path::new(PATH), slot + byte, (byte % 8) as u8);
            assert!(says(open(&disk).unwrap(), 800), "byte {byte} of the slot at {slot}");
        }
    }
}

/// What a slot is made into, whole.
const RUINS: [[u8; SLOT_BYTES]; 2] = [[0; SLOT_BYTES], [0xA5; SLOT_BYTES]];

/// One slot is all that is left, whatever the other is now: magic, checksum and all.
#[test]
fn one_slot_is_enough() {
    let (disk, _) = made();
    let whole = disk.read_file(Path::new(PATH)).unwrap();
    for ruin in RUINS {
        for lost in 0..SLOTS {
            let mut bytes = whole.clone();
            bytes[lost * SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&ruin);
            let disk = FaultyDisk::new();
            disk.write_file(Path::new(PATH), &bytes).unwrap();
            assert!(ControlFile::may_be_ours(&disk, Path::new(PATH)).unwrap(), "without slot {lost}");
            assert!(says(open(&disk).unwrap(), 800), "without slot {lost}");
            let saved = ControlFile::read_slots(&disk, Path::new(PATH)).unwrap().unwrap();
            assert!(says(saved, 800), "without slot {lost}: {saved:?}");
            // The next change makes the other anew: then that alone is enough.
            ControlFile::open(&disk, Path::new(PATH)).unwrap().write(content(1600)).unwrap();
            let mut bytes = disk.read_file(Path::new(PATH)).unwrap();
            bytes[(1 - lost) * SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&ruin);
            disk.write_file(Path::new(PATH), &bytes).unwrap();
            assert!(says(open(&disk).unwrap(), 1600), "slot {lost} was not made anew");
        }
    }
    // The file ends before, in and after the second slot.
    for length in [SLOT_BYTES, SLOT_BYTES + 100, SLOT_BYTES + SECTOR_BYTES] {
        let disk = FaultyDisk::new();
        disk.write_file(Path::new(PATH), &whole[..length]).unwrap();
        assert!(ControlFile::may_be_ours(&disk, Path::new(PATH)).unwrap(), "{length} bytes");
        assert!(says(open(&disk).unwrap(), 800), "{length} bytes");
        assert!(
            says(ControlFile::read_slots(&disk, Path::new(PATH)).unwrap().unwrap(), 800),
            "{length} bytes"
        );
    }
}

/// A crash between the two writes leaves slots that differ; and a write that was misled, or a file that was put
/// together, the newer one behind or before.
#[test]
fn the_newer_of_two_slots_counts() {
    let slot = |sequence, checkpoint| Control { sequence, ..content(checkpoint) }.encode();
    for (slots, newest) in [([slot(7, 1600), slot(6, 800)], 1600), ([slot(6, 800), slot(7, 1600)], 1600)] {
        let disk = FaultyDisk::new();
        disk.write_file(Path::new(PATH), &slots.concat()).unwrap();
        assert!(says(open(&disk).unwrap(), newest));
        assert!(says(ControlFile::read_slots(&disk, Path::new(PATH)).unwrap().unwrap(), newest));
    }
    let disk = FaultyDisk::new();
    disk.write_file(Path::new(PATH), &RUINS.concat()).unwrap();
    assert!(ControlFile::read_slots(&disk, Path::new(PATH)).unwrap().is_none());
    assert!(!ControlFile::may_be_ours(&disk, Path::new(PATH)).unwrap());
}

#[test]
fn damage_in_both_slots_is_reported() {
    let (disk, _) = made();
    disk.flip_bit(Path::new(PATH), 42, 3);
    disk.flip_bit(Path::new(PATH), SLOT_BYTES as u64 + 50, 3);
    assert!(matches!(open(&disk), Err(StorageError::Corrupted { .. })));
}

#[test]
fn a_strangers_file_is_no_database() {
    for bytes in [Vec::new(), vec![0; 8192], b"# my settings\n".to_vec(), vec![0xFF; 20_000]] {
        let disk = FaultyDisk::new();
        disk.write_file(Path::new(PATH), &bytes).unwrap();
        assert!(matches!(open(&disk), Err(StorageError::NotADatabase { .. })), "{} bytes", bytes.len());
    }
}

/// A slot of another format, with today's checksum or with one that we do not know.
fn slot_of_format(format: u32, sequence: u64, sound: bool) -> [u8; SLOT_BYTES] {
    let mut slot = Control { sequence, ..content(800) }.encode();
    slot[8..12].copy_from_slice(&format.to_le_bytes());
    if sound {
        let checksum = checksum(&slot);
        slot[12..16].copy_from_slice(&checksum.to_le_bytes());
    }
    slot
}

#[test]
fn another_format_asks_for_another_version() {
    for format in [0, FORMAT_VERSION + 1, u32::MAX] {
        for sound in [false, true] {
            let disk = FaultyDisk::new();
            let slot = slot_of_format(format, 5, sound);
            disk.write_file(Path::new(PATH), &[slot, slot].concat()).unwrap();
            match open(&disk) {
                Err(StorageError::UpgradeRequired { found, supported, .. }) => {
                    assert_eq!((found, supported), (format, FORMAT_VERSION));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn an_older_format_is_taken_on_once_and_says_the_same() {
    let older = Control { format: OLDEST_FORMAT, ..content(800) }.encode();
    let newer = Control { sequence: 2, ..content(800) }.encode();
    // The second: the power failed between the two slots of an upgrade.
    for (slots, sequence) in [([older, older], 2), ([newer, older], 3)] {
        let disk = FaultyDisk::new();
        disk.write_file(Path::new(PATH), &slots.concat()).unwrap();
        let mut file = ControlFile::open(&disk, Path::new(PATH)).unwrap();
        assert_eq!(file.content().format, OLDEST_FORMAT);
        for _ in 0..2 {
            file.upgrade().unwrap();
            let now = open(&disk).unwrap();
            assert_eq!((now.format, now.sequence), (FORMAT_VERSION, sequence));
            assert!(says(now, 800));
        }
    }
}

#[test]
fn a_half_written_upgrade_is_the_newer_format() {
    let ours = Control { sequence: 4, ..content(800) }.encode();
    let newer = slot_of_format(FORMAT_VERSION + 1, 5, true);
    let disk = FaultyDisk::new();
    disk.write_file(Path::new(PATH), &[newer, ours].concat()).unwrap();
    assert!(matches!(open(&disk), Err(StorageError::UpgradeRequired { .. })));
    let damaged = slot_of_format(FORMAT_VERSION + 1, 5, false);
    disk.write_file(Path::new(PATH), &[damaged, ours].concat()).unwrap();
    assert!(says(open(&disk).unwrap(), 800), "a flipped bit in the format number is damage");
}

#[test]
fn no_bytes_make_it_panic() {
    let mut random = foreshore_env::random::Xorshift::new(7);
    for _ in 0..2000 {
        let mut slot = content(800).encode();
        for _ in 0..random.next_u64() % 8 {
            slot[random.next_u64() as usize % 80] = random.next_u64() as u8;
        }
        let length = random.next_u64() as usize % (slot.len() + 1);
        Control::decode(&slot[..length]);
    }
}
