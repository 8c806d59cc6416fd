//! A bitmap page with a right checksum that says of leaves in use that they are free: whoever needs a page is told at
//! once, and nothing is written over a leaf that the pool has.

use std::path::Path;

use foreshore::{Database, Error, TableDefinition};
use foreshore_env::{
    sync::Arc,
    time::{Duration, Instant},
};
use foreshore_hostile::{PAGE_BYTES, Sample, database_id, options, seal};
use foreshore_testkit::FaultyDisk;

const ACCOUNTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("accounts");

/// Leaves of the accounts, in the order of their keys.
fn leaves(disk: &FaultyDisk) -> Vec<usize> {
    let data = disk.read_file(&Sample::file("data")).unwrap();
    let mut leaves: Vec<(Vec<u8>, usize)> = Vec::new();
    for (page, bytes) in data.chunks_exact(PAGE_BYTES).enumerate() {
        let head = (bytes[21], u32::from_le_bytes(bytes[16..20].try_into().unwrap()), bytes[20], bytes[22]);
        if head == (3, 16, 0, 0) {
            let fence =
                |index: usize| usize::from(u16::from_le_bytes(bytes[index..index + 2].try_into().unwrap()));
            let (offset, length) = (fence(36), fence(38));
            leaves.push((bytes[offset..offset + length].to_vec(), page));
        }
    }
    leaves.sort();
    assert!(leaves.len() > 1, "{leaves:?}");
    leaves.into_iter().map(|(_, page)| page).collect()
}

/// The closed sample, with these pages called free.
fn with_free(pages: &[usize]) -> FaultyDisk {
    let sample = Sample::closed();
    let disk = sample.copy();
    let path: &Path = &Sample::file("data");
    let mut data = disk.read_file(path).unwrap();
    let bitmap = data.chunks_exact(PAGE_BYTES).position(|page| page[21] == 2).unwrap();
    for page in pages {
        let byte = &mut data[bitmap * PAGE_BYTES + 64 + page / 8];
        assert!(*byte >> (page % 8) & 1 == 1, "page {page} is in use");
        *byte &= !(1 << (page % 8));
    }
    seal(path, &mut data, database_id(&sample.disk));
    disk.write_file(path, &data).unwrap();
    disk
}

/// Adds records behind all others until that fails; what it fails with.
fn fill(disk: &FaultyDisk) -> Error {
    let database = Database::builder().options(options()).disk(Arc::new(disk.clone()));
    let db = database.open(Sample::directory()).unwrap();
    // So that the pool has all leaves.
    let count = db.transact(|tx| Ok(tx.range(ACCOUNTS, ..)?.count())).unwrap();
    for key in 10_000..10_500 {
        let begun = Instant::now();
        let result = db.transact(|tx| tx.put(ACCOUNTS, key, &[1; 200][..]).map(drop));
        assert!(begun.elapsed() < Duration::from_secs(120), "{result:?}");
        if let Err(error) = result {
            let still = db.transact(|tx| Ok(tx.range(ACCOUNTS, ..)?.count())).unwrap();
            assert_eq!(
                still as u64,
                count as u64 + key - 10_000,
                "all that was there, and all that was acknowledged"
            );
            return error;
        }
    }
    panic!("it is not noticed");
}

#[test]
fn a_leaf_is_not_given_to_itself() {
    let last = *leaves(&Sample::closed().disk).last().unwrap();
    let error = fill(&with_free(&[last]));
    assert!(matches!(error, Error::Corrupted { .. }), "{error}");
    assert!(error.to_string().contains("says that it is free, but it is in use"), "{error}");
}

#[test]
fn a_leaf_is_not_given_to_another() {
    let leaves = leaves(&Sample::closed().disk);
    for leaf in &leaves[..leaves.len() - 1] {
        let error = fill(&with_free(&[*leaf]));
        assert!(matches!(error, Error::Corrupted { .. }), "{error}");
        assert!(error.to_string().contains(&leaf.to_string()), "{error}");
    }
}

/// The header was given to a node, whose records nobody found from then on; the bitmap page to whoever held it already,
/// who waited for himself for a minute.
#[test]
fn neither_the_header_nor_the_bitmap_page_is_given_to_anybody() {
    for page in [0, 1] {
        let disk = with_free(&[page]);
        let begun = Instant::now();
        let error = fill(&disk);
        assert!(error.to_string().contains("it gives itself or the header page away"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody waits for himself");
        let database = Database::builder().options(options()).disk(Arc::new(disk.clone()));
        let report = database.open(Sample::directory()).unwrap().verify().unwrap();
        assert!(report.problems.iter().any(|problem| problem.contains("header page away")), "{report:?}");
    }
}
