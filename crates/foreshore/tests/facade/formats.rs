//! Databases that earlier builds have made, one for each format there was: this version opens all of them.
//!
//! A sample was killed in the middle of its work. It is kept without the sectors that are zero, after the magic
//! `FIXTURE1`: for each file the length of its name (2 bytes), the name, its length (8), the number of its sectors (4),
//! and these: number (4) and 512 bytes. All numbers are little-endian.

use std::{fs, path::Path};

use foreshore::{Database, Error, TableDefinition};

const SAMPLES: [(u8, &[u8]); 4] = [
    (1, include_bytes!("formats/format-1.bin")),
    (2, include_bytes!("formats/format-2.bin")),
    (3, include_bytes!("formats/format-3.bin")),
    (4, include_bytes!("formats/format-4.bin")),
];
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("default");
/// Locked exclusively by what is appended.
const APPENDED: TableDefinition<&[u8], &[u8]> = TableDefinition::new("appended");
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

/// The format that a database says it has.
fn format_of(directory: &Path) -> u8 {
    fs::read(directory.join("control")).unwrap()[8]
}

#[test]
fn a_database_of_each_format_is_recovered_and_used() {
    let newest = SAMPLES.map(|(format, _)| format).into_iter().max();
    for (format, sample) in SAMPLES {
        let home = tempfile::tempdir().unwrap();
        unpack(sample, home.path());
        check(&Database::builder().read_only(true).open(home.path()).unwrap());
        assert_eq!(format_of(home.path()), format, "who may not write leaves the format as it is");
        for _ in 0..2 {
            let db = Database::builder().create(false).open(home.path()).unwrap();
            // At once, so that an older version refuses what this one may have written by now.
            assert_eq!(Some(format_of(home.path())), newest);
            check(&db);
            db.transact(|tx| tx.put(ROWS, b"new".as_slice(), b"row".as_slice()).map(drop)).unwrap();
            db.close().unwrap();
        }
    }
}

/// `cargo test -p foreshore --test facade -- --ignored --nocapture a_sample_is_made` tells where the sample is. It is
/// not compared with the one that is kept, which shows what the first build of its format wrote.
#[test]
#[ignore = "makes a sample of this version's format, in the directory for temporary files"]
fn a_sample_is_made() {
    let home = tempfile::tempdir().unwrap();
    let db = Database::builder().pool_bytes(1 << 20).open(home.path()).unwrap();
    let put = |key: String, value: String| {
        db.transact(|tx| tx.put(ROWS, key.as_bytes(), value.as_bytes()).map(drop)).unwrap();
    };
    for number in 0..60 {
        put(format!("key {number:02}"), format!("value {number} ").repeat(3));
    }
    put("long".to_owned(), "0123456789".repeat(1200));
    db.checkpoint().unwrap();
    put("key 01".to_owned(), "changed".to_owned());
    for number in (0..60).step_by(3) {
        db.transact(|tx| tx.delete(ROWS, format!("key {number:02}").as_bytes()).map(drop)).unwrap();
    }
    put("last".to_owned(), "committed".to_owned());
    let mut open = db.begin().unwrap();
    open.put(ROWS, b"never".as_slice(), b"uncommitted".as_slice()).unwrap();
    let begun = open.savepoint().unwrap();
    let rows: Vec<String> = (0..10).map(|number| format!("taken back {number}")).collect();
    open.append(APPENDED, rows.iter().map(|row| (row.as_bytes(), row.as_bytes()))).unwrap();
    open.rollback_to(begun).unwrap();
    // What is durable of the open one is there, too.
    put("last".to_owned(), "committed".to_owned());
    let sample = pack(home.path());
    drop(open);
    let copy = tempfile::tempdir().unwrap();
    unpack(&sample, copy.path());
    check(&Database::builder().create(false).open(copy.path()).unwrap());
    let place = std::env::temp_dir().join(format!("format-{}.bin", format_of(home.path())));
    fs::write(&place, sample).unwrap();
    println!("{}", place.display());
}

/// The files of a directory as a sample.
fn pack(directory: &Path) -> Vec<u8> {
    let mut sample = b"FIXTURE1".to_vec();
    let entries = |directory: &Path| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (folders, mut files): (Vec<_>, Vec<_>) = entries(directory).partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| entries(folder)));
    files.sort();
    for path in files {
        let name = path.strip_prefix(directory).unwrap().to_str().unwrap();
        let content = fs::read(&path).unwrap();
        let mut sectors = content.chunks(SECTOR_BYTES).map(<[u8]>::to_vec).collect::<Vec<_>>();
        sectors.iter_mut().for_each(|sector| sector.resize(SECTOR_BYTES, 0));
        let said = sectors.iter().enumerate().filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
        sample.extend_from_slice(&(name.len() as u16).to_le_bytes());
        sample.extend_from_slice(name.as_bytes());
        sample.extend_from_slice(&(content.len() as u64).to_le_bytes());
        sample.extend_from_slice(&(said.clone().count() as u32).to_le_bytes());
        for (number, sector) in said {
            sample.extend_from_slice(&(number as u32).to_le_bytes());
            sample.extend_from_slice(sector);
        }
    }
    sample
}

/// The format's number is at the same place in every format there will be; another one changes nothing.
#[test]
fn a_format_that_is_not_known_is_refused_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    unpack(SAMPLES[0].1, home.path());
    let control = home.path().join("control");
    for format in [0_u8, 5, 200] {
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
