//! What is saved of a database of which one thing is damaged: the log, a header, the control file, a bitmap page, the
//! end of the data file.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use foreshore::{Database, Options, Salvage, SalvageSource, TableDefinition};
use foreshore_env::{
    disk::Disk,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_hostile::{Content, PAGE_BYTES, Sample, database_id, options, records, seal};
use foreshore_testkit::{CrashMode, FaultyDisk};

/// What was saved, and how.
struct Saved {
    salvage: Salvage,
    content: Content,
}

fn save(disk: &FaultyDisk) -> Saved {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let salvage = Salvage::on(&disk, Sample::directory(), |_| ControlFlow::Continue(())).unwrap();
    let mut content = Content::new();
    for table in salvage.tables() {
        let entries = content.entry(table.name.clone()).or_default();
        let rows = salvage.rows(&table, |key, value| {
            entries.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        });
        rows.unwrap();
    }
    Saved { salvage, content }
}

fn edit(disk: &FaultyDisk, file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.read_file(file).unwrap();
    change(&mut bytes);
    disk.write_file(file, &bytes).unwrap();
}

fn segments(disk: &FaultyDisk) -> Vec<PathBuf> {
    let mut files = disk.files();
    files.retain(|file| file.extension().is_some_and(|end| end == "log"));
    files.sort();
    files
}

/// The crashed sample as its log leaves it if nobody is rolled back.
fn not_rolled_back(sample: &Sample) -> Content {
    let mut content = sample.states[sample.states.len() - 1].clone();
    let accounts = content.get_mut("accounts").unwrap();
    accounts.insert(7_u64.to_be_bytes().to_vec(), b"never committed".to_vec());
    accounts.insert(500_u64.to_be_bytes().to_vec(), vec![9; 200]);
    let names = content.get_mut("names").unwrap();
    let gone = names.keys().find(|key| key.windows(9).any(|part| part == b"names 003")).unwrap().clone();
    names.remove(&gone);
    content
}

/// Pages of this kind, and of this table where it matters.
fn pages(disk: &FaultyDisk, kind: u8, table: Option<u32>) -> Vec<usize> {
    let data = disk.read_file(&Sample::file("data")).unwrap();
    let is_one = |page: &[u8]| {
        let owner = u32::from_le_bytes(page[16..20].try_into().unwrap());
        page[21] == kind && page[20] == 0 && table.is_none_or(|table| owner == table)
    };
    (0..).zip(data.chunks_exact(PAGE_BYTES)).filter(|(_, page)| is_one(page)).map(|(page, _)| page).collect()
}

/// The kinds of pages, and the ids of the catalogue and of the first table.
const BITMAP: u8 = 2;
const NODE: u8 = 3;
const CATALOG: u32 = 0;
const FIRST_TABLE: u32 = 16;

#[test]
fn sound_databases_are_recovered() {
    for sample in [Sample::closed(), Sample::crashed()] {
        let saved = save(&sample.copy());
        assert_eq!(saved.salvage.source(), SalvageSource::Recovered);
        assert!(Some(&saved.content) == sample.states.last(), "{}", sample.name);
        assert_eq!((saved.salvage.pages_called_free(), saved.salvage.damaged_pages().1), (0, 0));
        assert!(saved.salvage.catalog_is_complete() && saved.salvage.failure().is_none());
    }
}

#[test]
fn a_control_file_that_cannot_be_read_costs_nothing() {
    for sample in [Sample::closed(), Sample::crashed()] {
        for slots in [vec![0], vec![4096], vec![0, 4096]] {
            let disk = sample.copy();
            // One that can be read is enough to open the database.
            let source = if slots.len() < 2 { SalvageSource::Recovered } else { SalvageSource::Rebuilt };
            for slot in slots {
                disk.fail_reads(&Sample::file("control"), slot..slot + 512);
            }
            let saved = save(&disk);
            assert_eq!(saved.salvage.source(), source, "{:?}", saved.salvage.failure());
            assert!(Some(&saved.content) == sample.states.last(), "{}", sample.name);
        }
    }
}

/// Records say themselves where they belong: a header that is damaged, of a segment or of the data file, costs nothing
/// but the rollback of who was open.
#[test]
fn a_damaged_header_costs_nothing() {
    let sample = Sample::crashed();
    let segment = segments(&sample.disk)[0].clone();
    for file in [segment, Sample::file("data")] {
        for unreadable in [false, true] {
            let disk = sample.copy();
            if unreadable {
                disk.fail_reads(&file, 0..512);
            } else {
                disk.flip_bit(&file, 20, 3);
            }
            let saved = save(&disk);
            assert_eq!(saved.salvage.source(), SalvageSource::Repeated, "{:?}", saved.salvage.failure());
            assert!(saved.content == not_rolled_back(&sample), "{}", file.display());
        }
    }
}

/// One bit of the number of the format in the data file's header page, whose checksum does not fit then.
#[test]
fn a_flipped_bit_of_the_data_file_s_format_is_damage() {
    let sample = Sample::crashed();
    for byte in 72..76 {
        let disk = sample.copy();
        disk.flip_bit(&Sample::file("data"), byte, 0);
        let opened = Database::builder()
            .options(options())
            .create(false)
            .disk(Arc::new(disk.clone()))
            .open(Sample::directory());
        assert!(matches!(opened, Err(foreshore::Error::Corrupted { .. })), "byte {byte}: {opened:?}");
        let saved = save(&disk);
        assert!(saved.content == not_rolled_back(&sample), "byte {byte}");
    }
}

/// A record with a right checksum writes a page 16 TiB behind the end of the file. Recovery refuses it. Where the log
/// is only repeated, because a header is damaged, too, the file is that long, and its holes are passed over.
#[test]
fn a_page_far_behind_the_end_holds_nobody_up() {
    let sample = Sample::crashed();
    let file = segments(&sample.disk)[0].clone();
    let far = |disk: &FaultyDisk| {
        edit(disk, &file, |bytes| {
            let mut images = records(bytes).into_iter().filter(|(start, _)| bytes[start + 30] == 1);
            let (start, _) = images.next_back().unwrap();
            bytes[start + 32..start + 36].copy_from_slice(&(1_u32 << 31).to_le_bytes());
            seal(&file, bytes, database_id(&sample.disk));
        });
    };
    let disk = sample.copy();
    far(&disk);
    let opened = Database::builder().options(options()).create(false).disk(Arc::new(disk.clone()));
    let error = opened.open(Sample::directory()).unwrap_err();
    assert!(error.to_string().contains("no record before it made that"), "{error}");
    disk.flip_bit(&Sample::file("data"), 20, 3);
    let begun = Instant::now();
    let saved = save(&disk);
    assert_eq!(saved.salvage.source(), SalvageSource::Repeated, "{:?}", saved.salvage.failure());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// One byte of one record, in turn: what the log says before it is saved, under the names that the catalogue gives, and
/// nothing that was never written.
#[test]
fn a_damaged_record_costs_what_comes_behind_it() {
    let sample = Sample::crashed();
    let file = segments(&sample.disk)[0].clone();
    let all = records(&sample.disk.read_file(&file).unwrap());
    let mut known = not_rolled_back(&sample);
    let mut written: BTreeSet<(Vec<u8>, Vec<u8>)> =
        known.values().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    for state in sample.states.iter().chain(&Sample::closed().states) {
        for (name, table) in state {
            known.entry(name.clone()).or_default();
            written.extend(table.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
    // Written, and deleted by a later transaction.
    let value: Vec<u8> = 50_u64.to_le_bytes().into_iter().cycle().take(95).collect();
    written.insert((50_u64.to_be_bytes().to_vec(), value));
    let (mut repeated, mut lost) = (0, BTreeSet::new());
    for (start, length) in all.iter().rev().take(160).step_by(4) {
        let disk = sample.copy();
        disk.flip_bit(&file, (start + length - 1) as u64, 5);
        let saved = save(&disk);
        assert_ne!(saved.salvage.source(), SalvageSource::Pages, "{:?}", saved.salvage.failure());
        if saved.salvage.source() == SalvageSource::Repeated {
            repeated += 1;
            assert!(saved.salvage.log_damage().is_some(), "the record at {start}");
        }
        assert!(saved.salvage.catalog_is_complete());
        let mut rows = 0;
        for (name, table) in &saved.content {
            // Its name may be in the part that is lost.
            assert!(known.contains_key(name) || name.starts_with("lost-table-"), "{name}");
            for (key, value) in table {
                assert!(written.contains(&(key.clone(), value.clone())), "{name}: {key:?}");
                rows += 1;
            }
        }
        lost.insert(rows);
    }
    assert!(repeated > 20 && lost.len() > 3, "{repeated} repeated, {lost:?}");
}

/// A log without its last segments: what is left of it is repeated.
#[test]
fn segments_that_are_gone_cost_what_was_in_them() {
    const TABLE: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("t");
    let disk = FaultyDisk::new();
    // No checkpoint comes between.
    let options = Options { log_bytes: 32 << 20, ..options() };
    let database = Database::builder().options(options).disk(Arc::new(disk.clone()));
    let db = database.open(Sample::directory()).unwrap();
    db.checkpoint().unwrap();
    for number in 0..900 {
        db.transact(|tx| tx.put(TABLE, number, &[number as u8; 900][..]).map(drop)).unwrap();
    }
    let left = disk.after_crash(CrashMode::DropUnsynced);
    drop(db);
    let files = segments(&left);
    assert!(files.len() >= 3, "{files:?}");
    let mut before = 900;
    for kept in (1..files.len()).rev() {
        left.remove(&files[kept]).unwrap();
        let saved = save(&left);
        assert_eq!(saved.salvage.source(), SalvageSource::Repeated, "{:?}", saved.salvage.failure());
        let damage = saved.salvage.log_damage().unwrap();
        assert!(damage.contains("missing"), "{damage}");
        let table = &saved.content["t"];
        assert!(table.len() < before && table.len() > 100, "{} of {before}", table.len());
        let numbers: Vec<_> = (0..table.len() as u32).map(|number| number.to_be_bytes().to_vec()).collect();
        assert!(table.keys().eq(&numbers), "what was committed first, without a gap");
        before = table.len();
    }
}

/// Pages are looked at whatever the bitmap says of them; and of one that cannot be read nobody knows what it says.
#[test]
fn a_bitmap_page_is_not_believed() {
    let sample = Sample::closed();
    let bitmaps = pages(&sample.disk, BITMAP, None);
    let free = sample.copy();
    edit(&free, &Sample::file("data"), |data| {
        for page in &bitmaps {
            data[page * PAGE_BYTES + 64..(page + 1) * PAGE_BYTES].fill(0);
        }
        seal(&Sample::file("data"), data, database_id(&sample.disk));
    });
    let saved = save(&free);
    assert!(Some(&saved.content) == sample.states.last());
    let leaves = pages(&sample.disk, NODE, Some(FIRST_TABLE)).len() as u64;
    assert!(saved.salvage.pages_called_free() > leaves, "{}", saved.salvage.pages_called_free());

    let unreadable = sample.copy();
    for page in &bitmaps {
        let start = (page * PAGE_BYTES) as u64;
        unreadable.fail_reads(&Sample::file("data"), start..start + PAGE_BYTES as u64);
    }
    let saved = save(&unreadable);
    assert!(Some(&saved.content) == sample.states.last());
    let (named, count) = saved.salvage.damaged_pages();
    assert_eq!(count, bitmaps.len() as u64, "pages that were never written are no loss: {named:?}");
}

/// A file that was cut within an extent still has the pages before the cut.
#[test]
fn the_last_pages_of_a_cut_file_are_saved() {
    let sample = Sample::closed();
    let leaves = pages(&sample.disk, NODE, Some(FIRST_TABLE));
    let rows = |pages: usize| {
        let disk = sample.copy();
        edit(&disk, &Sample::file("data"), |data| data.truncate(pages * PAGE_BYTES + 77));
        save(&disk).content.get("accounts").map_or(0, |table| table.len())
    };
    let mut tried = 0;
    for leaf in leaves.into_iter().filter(|leaf| leaf % 8 != 7) {
        assert!(rows(leaf + 1) > rows(leaf), "page {leaf}");
        tried += 1;
    }
    assert!(tried > 1, "{tried}");
}

/// Without the catalogue the tables have no names; nothing else is lost, and the two tables that are not the user's are
/// none.
#[test]
fn tables_without_a_row_in_the_catalogue_are_saved_without_their_names() {
    let sample = Sample::closed();
    let disk = sample.copy();
    for page in pages(&disk, NODE, Some(CATALOG)) {
        let start = (page * PAGE_BYTES) as u64;
        disk.fail_reads(&Sample::file("data"), start..start + PAGE_BYTES as u64);
    }
    let saved = save(&disk);
    assert!(!saved.salvage.catalog_is_complete());
    // In the order in which they were made.
    let numbered = (FIRST_TABLE..).zip(["accounts", "names", "long"]);
    let last = &sample.states[sample.states.len() - 1];
    let nameless = numbered.map(|(table, name)| (format!("lost-table-{table}"), last[name].clone()));
    assert!(saved.content == nameless.collect(), "{:?}", saved.content.keys());
}

/// A table that was dropped is none that was lost, whether its pages are free already or not.
#[test]
fn a_dropped_table_is_not_lost() {
    const KEPT: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("kept");
    const DROPPED: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("dropped");
    let open = |disk: &FaultyDisk, read_only: bool| {
        let database =
            Database::builder().options(options()).read_only(read_only).disk(Arc::new(disk.clone()));
        database.open(Sample::directory()).unwrap()
    };
    let disk = FaultyDisk::new();
    let db = open(&disk, false);
    db.transact(|tx| tx.put(KEPT, 1, &b"kept"[..]).map(drop)).unwrap();
    let only_the_other = |left: &FaultyDisk| {
        let saved = save(left);
        assert_eq!(saved.salvage.source(), SalvageSource::Recovered, "{:?}", saved.salvage.failure());
        assert!(saved.content.keys().eq(["kept"]), "{:?}", saved.content.keys());
        assert_eq!(saved.content["kept"].len(), 1);
    };
    // Whose pages are freed is quick: once it must be caught at it.
    let caught = (0..100).any(|_| {
        db.transact(|tx| (0..400).try_for_each(|key| tx.put(DROPPED, key, &[7; 600][..]).map(drop))).unwrap();
        assert!(db.drop_table("dropped").unwrap());
        let left = disk.after_crash(CrashMode::DropUnsynced);
        let begun = open(&left, true).stats().tables_dropped == 1;
        only_the_other(&left);
        begun
    });
    assert!(caught, "its pages were free at once, each time");
    while db.stats().tables_dropped > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    db.close().unwrap();
    only_the_other(&disk);
}

/// A key that no program can have stored, because it is too long: a check called its page sound, and what was saved of
/// it was refused wherever it should go, with all that came behind it.
#[test]
fn a_key_that_is_too_long_is_damage() {
    const BAD: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bad");
    const GOOD: TableDefinition<'_, u32, u32> = TableDefinition::new("good");
    let disk = FaultyDisk::new();
    let open =
        || Database::builder().options(options()).disk(Arc::new(disk.clone())).open(Sample::directory());
    let db = open().unwrap();
    let longest = [0xFF; 2048];
    // If the key were four bytes longer, the length of the value behind it would be 6.
    let value = [1, 1, 6, 0, 1, 1, 1, 1, 1, 1];
    db.transact(|tx| {
        tx.put(BAD, &longest[..], &value[..])?;
        tx.put(GOOD, 1, 1).map(drop)
    })
    .unwrap();
    db.close().unwrap();
    drop(db);
    let leaf = pages(&disk, NODE, Some(FIRST_TABLE))[0];
    edit(&disk, &Sample::file("data"), |data| {
        let slot = leaf * PAGE_BYTES + 64;
        assert_eq!(data[slot + 6..slot + 8], 2048_u16.to_le_bytes());
        data[slot + 6] += 4;
        seal(&Sample::file("data"), data, database_id(&disk));
    });
    let report = open().unwrap().verify().unwrap();
    let said = report.problems.join("\n");
    assert!(said.contains("slot 0 has a key of 2052 bytes"), "{said}");
    let saved = save(&disk);
    let (damaged, _) = saved.salvage.damaged_pages();
    assert!(damaged.iter().any(|(page, _)| *page == leaf as u64), "{damaged:?}");
    assert!(saved.content.get("bad").is_none_or(|table| table.is_empty()));
    assert_eq!(saved.content["good"].len(), 1);
}

/// A row of the catalogue under a name that no table can have: its table was saved under one that looks like it, as if
/// that were its own.
#[test]
fn a_name_that_no_table_can_have_is_lost() {
    let sample = Sample::closed();
    let disk = sample.copy();
    let leaves = pages(&disk, NODE, Some(CATALOG));
    edit(&disk, &Sample::file("data"), |data| {
        for leaf in leaves {
            let page = &mut data[leaf * PAGE_BYTES..][..PAGE_BYTES];
            let place = page.windows(5).position(|bytes| bytes == b"names").unwrap();
            page[place + 4] = 0xFF;
        }
        seal(&Sample::file("data"), data, database_id(&sample.disk));
    });
    let saved = save(&disk);
    let mut expected = sample.states[0].clone();
    let names = expected.remove("names").unwrap();
    expected.insert(format!("lost-table-{}", FIRST_TABLE + 1), names);
    assert!(saved.content == expected, "{:?}", saved.content.keys());
}
