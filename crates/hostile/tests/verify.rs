//! What a check of the whole database says of damage that has right checksums, and that nobody notices who reads and
//! writes.

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
/// The kind of a checkpoint's record.
const CHECKPOINT: u8 = 66;
/// The highest bit of a slot: deleted.
const GHOST: u8 = 1 << 7;

/// Whether something is said of a sample whose data file is changed: when it is opened, or by a check.
fn is_noticed(sample: &Sample, data: &[u8]) -> bool {
    let disk = sample.copy();
    let file = Sample::file("data");
    let mut bytes = data.to_vec();
    seal(&file, &mut bytes, database_id(&sample.disk));
    disk.write_file(&file, &bytes).unwrap();
    let database = Database::builder().options(options()).read_only(true).disk(Arc::new(disk));
    let opened = database.open(Sample::directory());
    opened.and_then(|db| db.verify()).map_or(true, |report| !report.is_sound())
}

/// Where the nodes of a data file begin.
fn nodes(data: &[u8]) -> impl Iterator<Item = usize> {
    let nodes = data.chunks_exact(PAGE_BYTES).enumerate().filter(|(_, page)| page[21] == NODE);
    nodes.map(|(page, _)| page * PAGE_BYTES)
}

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

/// A chunk of another key is not found by who reads the value, though its id, its index and all lengths are right.
#[test]
fn chunks_have_the_keys_by_which_they_are_looked_for() {
    let sample = Sample::closed();
    let mut data = sample.disk.read_file(&Sample::file("data")).unwrap();
    let leaf = page_of(&data, NODE, Some(OVERFLOW)) * PAGE_BYTES;
    let number =
        |data: &[u8], at: usize| usize::from(u16::from_le_bytes(data[at..at + 2].try_into().unwrap()));
    assert_eq!(number(&data, leaf + 30), 0, "the prefix of the first chunk's key");
    let (place, key) = (leaf + number(&data, leaf + 64 + 4), number(&data, leaf + 64 + 6));
    assert_eq!(key, 12);
    let id = u64::from_be_bytes(data[place..place + 8].try_into().unwrap());
    let length = number(&data, place + key);
    // A byte of the value becomes one of the key.
    data[leaf + 64 + 6] += 1;
    data[place + key] = 0;
    data[place + key + 1..place + key + 3].copy_from_slice(&(length as u16 - 1).to_le_bytes());
    assert!(is_noticed(&sample, &data), "of another length");
    // The shortest of the sample: of two chunks.
    let whole = 2000_u64;
    let reference = [id.to_le_bytes(), whole.to_le_bytes()].concat();
    let place = data.windows(16).position(|bytes| bytes == reference).expect("the first long value");
    data[place + 8..place + 16].copy_from_slice(&(whole - 1).to_le_bytes());
    assert!(is_noticed(&sample, &data), "the record says so, too");
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

/// One bit of each field in the header of each node, with the right checksum: id, LSN (its upper half: that it is not
/// behind the log), table, level, kind, flags, slot count, heap, garbage, prefix, foster child, where the fences lie,
/// leftmost child, the image's LSN (its upper half: that it is not newer than the page), skipped bytes, and what
/// nothing uses. Nothing can be noticed of the lengths of fences that are not there, nor of one skipped byte more or
/// less where all records share it and their heads are the same either way.
#[test]
fn every_field_of_a_node_s_header_is_looked_at() {
    const SKIPPED: usize = 56;
    let sample = Sample::closed();
    assert!(!is_noticed(&sample, &sample.disk.read_file(&Sample::file("data")).unwrap()));
    let mut data = sample.disk.read_file(&Sample::file("data")).unwrap();
    let fields = [4..8, 12..16, 16..24, 24..36, 36..38, 40..42, 44..48, 52..64];
    let nodes: Vec<_> = nodes(&data).collect();
    assert!(nodes.len() >= 8, "{nodes:?}");
    for node in nodes {
        for byte in fields.iter().cloned().flatten() {
            for bit in if byte == SKIPPED { [0x40, 0x80] } else { [1, 0x80] } {
                data[node + byte] ^= bit;
                assert!(is_noticed(&sample, &data), "page {}, byte {byte} of its header", node / PAGE_BYTES);
                data[node + byte] ^= bit;
            }
        }
    }
}

/// A page that believes in an image which the log does not have would be changed without one, and could not be repaired
/// if it was torn.
#[test]
fn the_image_of_a_page_is_in_the_log() {
    let sample = Sample::closed();
    let mut data = sample.disk.read_file(&Sample::file("data")).unwrap();
    let log = sample.disk.files().into_iter().find(|file| file.extension().is_some_and(|end| end == "log"));
    let log = sample.disk.read_file(&log.unwrap()).unwrap();
    // That of the checkpoint with which the database was closed.
    let (start, _) = *records(&log).iter().rfind(|(start, _)| log[start + 30] == CHECKPOINT).unwrap();
    let last = u64::from_le_bytes(log[start + 8..start + 16].try_into().unwrap());
    let leaf = page_of(&data, NODE, Some(ACCOUNTS)) * PAGE_BYTES;
    for (image, is_there) in [(last + 8, false), (last, true)] {
        data[leaf + 8..leaf + 16].copy_from_slice(&(last + 8).to_le_bytes());
        data[leaf + 48..leaf + 56].copy_from_slice(&image.to_le_bytes());
        assert_eq!(is_noticed(&sample, &data), !is_there, "{image}, with a record at {last}");
    }
}

/// Inner nodes: children that have changed places, one that is there twice, and one of another table.
#[test]
fn pointers_to_other_pages_are_noticed() {
    let sample = Sample::closed();
    let data = sample.disk.read_file(&Sample::file("data")).unwrap();
    let root = nodes(&data).find(|node| data[node + 20] == 1 && data[node + 16] == ACCOUNTS as u8).unwrap();
    let leftmost = root + 44..root + 48;
    // The child of the first separator: the last four bytes of its record, wherever in the heap that lies.
    let first = u32::from_le_bytes(data[leftmost.clone()].try_into().unwrap());
    let leaf = |node: &usize| data[node + 20] == 0 && data[node + 16] == ACCOUNTS as u8;
    let mut leaves = nodes(&data).filter(leaf).map(|node| (node / PAGE_BYTES) as u32);
    let other = leaves.find(|page| *page != first).unwrap().to_le_bytes();
    let heap = root + 64..root + PAGE_BYTES;
    let places: Vec<_> = heap.filter(|place| data.get(*place..place + 4) == Some(&other[..])).collect();
    assert_eq!(places.len(), 1, "the only pointer to it");
    let second = places[0]..places[0] + 4;
    let mut exchanged = data.clone();
    exchanged[leftmost].copy_from_slice(&other);
    assert!(is_noticed(&sample, &exchanged), "twice");
    exchanged[second.clone()].copy_from_slice(&first.to_le_bytes());
    assert!(is_noticed(&sample, &exchanged), "exchanged");
    let stranger = (page_of(&data, NODE, Some(LONG)) as u32).to_le_bytes();
    let mut strange = data.clone();
    strange[second].copy_from_slice(&stranger);
    assert!(is_noticed(&sample, &strange), "of another table");
}
