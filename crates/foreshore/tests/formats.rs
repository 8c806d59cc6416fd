//! Databases that earlier builds have made, one for each format there was: this version opens all of them.
//!
//! A sample was killed in the middle of its work. It is kept without the sectors that are zero, after the magic `FIXTURE1`: for each file the
//! length of its name (2 bytes), the name, its length (8), the number of its sectors (4), and these: number (4) and
//! 512 bytes. All numbers are little-endian.

use std::{fs, path::Path};

use foreshore::{Database, Error, TableDefinition};

const FORMAT_1: &[u8] = include_bytes!("formats/format-1.bin");
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("default");
const SECTOR_BYTES: usize = 512;

/// Takes the first bytes off.
fn take<'s>(sample: &mut &'s [u8], bytes: usize) -> &'s [u8] {
    let (first, rest) = sample.split_at(bytes);
    *sample = rest;
    first
}

fn number(sample: &mut &[u8], bytes: usize) -> u64 {
    take(sample, bytes).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Writes the files of a sample into a directory.
fn unpack(mut sample: &[u8], directory: &Path) {
    assert_eq!(take(&mut sample, 8), b"FIXTURE1");
    while !sample.is_empty() {
        let length = number(&mut sample, 2) as usize;
        let path = directory.join(std::str::from_utf8(take(&mut sample, length)).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut content = vec![0; number(&mut sample, 8) as usize];
        for _ in 0..number(&mut sample, 4) {
            let start = number(&mut sample, 4) as usize * SECTOR_BYTES;
            content[start..start + SECTOR_BYTES].copy_from_slice(take(&mut sample, SECTOR_BYTES));
        }
        fs::write(&path, content).unwrap();
    }
}

/// What was committed is there, and of the rest nothing.
fn check(db: &Database) {
    let get = |key: &str| db.transact(|tx| tx.get(ROWS, key.as_bytes())).unwrap();
    for number in 0..60 {
        let expected = match number {
            1 => Some("changed".to_owned()),
            _ if number % 3 == 0 => None,
            _ => Some(format!("value {number} ").repeat(3)),
        };
        assert_eq!(get(&format!("key {number:02}")), expected.map(String::into_bytes), "key {number}");
    }
    assert_eq!(get("long").unwrap(), "0123456789".repeat(1200).into_bytes());
    assert_eq!(get("last").as_deref(), Some(&b"committed"[..]));
    assert_eq!(get("never"), None);
    let report = db.verify().unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
}

#[test]
fn a_database_of_format_1_is_recovered_and_used() {
    let home = tempfile::tempdir().unwrap();
    unpack(FORMAT_1, home.path());
    check(&Database::builder().read_only(true).open(home.path()).unwrap());
    for _ in 0..2 {
        let db = Database::builder().create(false).open(home.path()).unwrap();
        check(&db);
        db.transact(|tx| tx.put(ROWS, b"new".as_slice(), b"row".as_slice()).map(drop)).unwrap();
        db.close().unwrap();
    }
}

/// The format's number is at the same place in every format there will be; another one changes nothing.
#[test]
fn a_format_that_is_not_known_is_refused_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    unpack(FORMAT_1, home.path());
    let control = home.path().join("control");
    for format in [0_u8, 2, 200] {
        let mut bytes = fs::read(&control).unwrap();
        (bytes[8], bytes[4096 + 8]) = (format, format);
        fs::write(&control, &bytes).unwrap();
        for read_only in [true, false] {
            let error = Database::builder().read_only(read_only).open(home.path()).unwrap_err();
            let Error::UpgradeRequired { found, .. } = &error else { panic!("{error}") };
            assert_eq!(*found, u32::from(format));
            assert!(error.to_string().contains("matching version"), "{error}");
        }
        assert_eq!(fs::read(&control).unwrap(), bytes);
    }
}
