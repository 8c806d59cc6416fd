//! What a check of the whole database says of damage that has right checksums, and that nobody notices who reads and writes.

use foreshore::{Database, TableDefinition, VerifyReport};
use foreshore_env::sync::Arc;
use foreshore_hostile::{PAGE_BYTES, Sample, database_id, options, records, seal};
use foreshore_testkit::FaultyDisk;

/// Kinds of pages, and tables.
const BITMAP: u8 = 2;
const NODE: u8 = 3;
const OVERFLOW: u32 = 1;
const ACCOUNTS: u32 = 16;
const LONG: u32 = 18;
/// The highest bit of a slot: deleted.
const GHOST: u8 = 1 << 7;

/// Of a sample whose data file is changed.
fn check(sample: &Sample, change: impl FnOnce(&mut [u8])) -> VerifyReport {
    let disk = sample.copy();
    let file = Sample::file("data");
    let mut bytes = disk.read_file(&file).unwrap();
    change(&mut bytes);
    seal(&file, &mut bytes, database_id(&sample.disk));
    disk.write_file(&file, &bytes).unwrap();
    let database = Database::builder().options(options()).read_only(true).disk(Arc::new(disk));
    database.open(Sample::directory()).unwrap().verify().unwrap()
}

/// The number of the first page of a kind, and of a table's leaves.
fn page_of(data: &[u8], kind: u8, table: Option<u32>) -> usize {
    let is_one = |page: &[u8]| {
        let owner = u32::from_le_bytes(page[16..20].try_into().unwrap());
        page[21] == kind && table.is_none_or(|table| (owner, page[20]) == (table, 0))
    };
    data.chunks_exact(PAGE_BYTES).position(is_one).unwrap()
}

/// The byte of the bitmap that has a page's bit.
fn bit_of(data: &mut [u8], page: usize) -> &mut u8 {
    let bitmap = page_of(data, BITMAP, None);
    &mut data[bitmap * PAGE_BYTES + 64 + page / 8]
}

/// The flags of a slot in the first leaf of a table.
fn flags_of(data: &mut [u8], table: u32, slot: usize) -> &mut u8 {
    let leaf = page_of(data, NODE, Some(table));
    &mut data[leaf * PAGE_BYTES + 64 + slot * 8 + 7]
}

#[test]
fn a_sound_database_has_no_problem() {
    for sample in [Sample::closed(), Sample::crashed()] {
        let report = check(&sample, |_| {});
        assert!(report.is_sound(), "{}: {:?}", sample.name, report.problems);
    }
}

#[test]
fn pages_in_use_and_free_ones_are_told_apart() {
    let sample = Sample::closed();
    let mut leaf = 0;
    let report = check(&sample, |data| {
        leaf = page_of(data, NODE, Some(ACCOUNTS));
        *bit_of(data, leaf) &= !(1 << (leaf % 8));
    });
    assert_eq!(report.problems, [format!("page {leaf} of table accounts is marked as free")]);

    let mut free = 0;
    let report = check(&sample, |data| {
        let pages = data.len() / PAGE_BYTES;
        free = (1..pages).find(|page| *bit_of(data, *page) >> (page % 8) & 1 == 0).unwrap();
        *bit_of(data, free) |= 1 << (free % 8);
    });
    assert_eq!(report.problems, [format!("page {free} is marked as in use, but no table has it")]);
}

#[test]
fn long_values_are_whole_and_somebody_has_them() {
    let sample = Sample::closed();
    let report = check(&sample, |data| *flags_of(data, LONG, 0) |= GHOST);
    assert_eq!(report.problems, ["there are 3 long values, and 2 records that refer to one"]);

    // Values of one chunk and more: each one's first chunk, and those behind it.
    let (mut gaps, mut begins) = (0, 0);
    for slot in 0..5 {
        let report = check(&sample, |data| *flags_of(data, OVERFLOW, slot) |= GHOST);
        let says = |what: &str| report.problems.iter().any(|problem| problem.contains(what));
        gaps += u32::from(says("does not follow on the one before it"));
        begins += u32::from(says("there are 2 long values, and 3 records that refer to one"));
    }
    assert!(gaps > 1 && begins > 1, "{gaps} gaps, {begins} beginnings");
}

/// Each record of a transaction refers to the one before it. Nobody follows those of who has committed but a check.
#[test]
fn records_of_a_transaction_form_a_chain() {
    const TABLE: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("t");
    for (back, says) in [(true, "does not refer to the one before it"), (false, "a later one precedes it")] {
        let disk = FaultyDisk::new();
        let database = Database::builder().options(options()).disk(Arc::new(disk.clone()));
        let db = database.open(Sample::directory()).unwrap();
        for round in 0..10 {
            db.transact(|tx| (0..10).try_for_each(|key| tx.put(TABLE, key, &[round; 300][..]).map(drop)))
                .unwrap();
        }
        assert!(db.verify().unwrap().is_sound());
        let log =
            disk.files().into_iter().find(|file| file.extension().is_some_and(|end| end == "log")).unwrap();
        let mut bytes = disk.read_file(&log).unwrap();
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let all = records(&bytes);
        let chained: Vec<_> = all.iter().filter(|(start, _)| number(start + 16) > 0).collect();
        let (start, _) = *chained[chained.len() / 2];
        let other = if back { number(start + 16) - 8 } else { number(start + 8) + 8 };
        bytes[start + 16..start + 24].copy_from_slice(&other.to_le_bytes());
        seal(&log, &mut bytes, database_id(&disk));
        disk.write_file(&log, &bytes).unwrap();
        let report = db.verify().unwrap();
        assert!(report.problems.iter().any(|problem| problem.contains(says)), "{:?}", report.problems);
    }
}
