//! The disk fails: errors are typed, for the page that they are about, and leave no frame behind.

use std::path::Path;

use foreshore_base::{Lsn, PageId, StorageError, limits::PAGE_BYTES};
use foreshore_env::thread;
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_wal::Urgency;

use super::is_corrupt_page;
use crate::{
    PoolOptions,
    testing::{DATA, SET, World, options, over_all},
};

/// A database of 40 pages on disk, page n with the number n; the pages and the horizon to recover from.
fn stored() -> (FaultyDisk, Vec<PageId>, Lsn) {
    let world = World::create(16);
    let pages = (0..40).map(|number| world.allocate(number).unwrap()).collect();
    let horizon = world.pool.sweep().unwrap();
    (world.disk.clone(), pages, horizon)
}

#[test]
fn a_bad_sector_is_an_error_of_its_page_alone() {
    over_all(|| {
        let (disk, pages, horizon) = stored();
        let world = World::recover(disk.clone(), &options(8), horizon).unwrap();
        let offset = u64::from(pages[7].0) * PAGE_BYTES as u64;
        disk.fail_reads(Path::new(DATA), offset + 5000..offset + 5512);
        for _ in 0..20 {
            assert!(matches!(world.pool.shared(pages[7]), Err(StorageError::Io { .. })));
            assert!(matches!(world.pool.optimistic(pages[7]), Err(StorageError::Io { .. })));
            assert!(matches!(world.pool.exclusive(pages[7]), Err(StorageError::Io { .. })));
        }
        world.pool.verify_quiescent().unwrap();
        for (number, page) in pages.iter().enumerate().filter(|(number, _)| *number != 7) {
            assert_eq!(world.get(*page, 64).unwrap(), number as u64);
        }
        // Reads do not stop a database.
        assert!(world.log.poisoned().is_none());
        disk.heal_reads();
        assert_eq!(world.get(pages[7], 64).unwrap(), 7);
    });
}

#[test]
fn short_reads_are_read_on() {
    let (disk, pages, horizon) = stored();
    disk.set_longest_read(Some(700));
    let world = World::recover(disk, &options(8), horizon).unwrap();
    for (number, page) in pages.iter().enumerate() {
        assert_eq!(world.get(*page, 64).unwrap(), number as u64);
    }
}

#[test]
fn every_flipped_bit_is_found() {
    over_all(|| {
        let (disk, pages, horizon) = stored();
        for (byte, bit) in (0..PAGE_BYTES as u64).step_by(97).zip((0..8).cycle()) {
            let world = World::recover(disk.clone(), &options(8), horizon).unwrap();
            let place = u64::from(pages[3].0) * PAGE_BYTES as u64 + byte;
            disk.flip_bit(Path::new(DATA), place, bit);
            assert!(
                is_corrupt_page(world.pool.shared(pages[3]), pages[3], "checksum"),
                "byte {byte}, bit {bit}"
            );
            disk.flip_bit(Path::new(DATA), place, bit);
            assert_eq!(world.get(pages[3], 64).unwrap(), 3);
            world.pool.verify_quiescent().unwrap();
        }
    });
}

#[test]
fn a_page_in_another_page_s_place_is_found() {
    let (disk, pages, horizon) = stored();
    let mut bytes = disk.read_file(Path::new(DATA)).unwrap();
    let (from, to) = (pages[3].0 as usize * PAGE_BYTES, pages[4].0 as usize * PAGE_BYTES);
    bytes.copy_within(from..from + PAGE_BYTES, to);
    disk.write_file(Path::new(DATA), &bytes).unwrap();
    let world = World::recover(disk, &options(8), horizon).unwrap();
    let text = format!("it holds page {}", pages[3]);
    assert!(is_corrupt_page(world.pool.shared(pages[4]), pages[4], &text));
}

#[test]
fn a_page_from_behind_the_log_s_end_is_found() {
    let world = World::create(16);
    let id = world.allocate(1).unwrap();
    let horizon = world.pool.sweep().unwrap();
    let early = world.disk.after_crash(CrashMode::DropUnsynced);
    world.set(id, 64, 2).unwrap();
    world.pool.sweep().unwrap();
    // The log loses what it had called durable; the data file does not.
    early.write_file(Path::new(DATA), &world.disk.read_file(Path::new(DATA)).unwrap()).unwrap();
    let again = World::recover(early, &options(8), horizon).unwrap();
    let result = again.pool.shared(id);
    assert!(result.is_err_and(|error| error.to_string().contains("but the log ends at")));
}

#[test]
fn a_failed_write_stops_the_database() {
    over_all(|| {
        let world = World::create_on(FaultyDisk::new(), &PoolOptions { cleaners: 0, ..options(8) }).unwrap();
        let pages: Vec<_> = (0..8).map(|number| world.allocate(number).unwrap()).collect();
        world.log.flush(Lsn(world.log.tail().0 - 1)).ok();
        let writes = world.disk.counts().writes;
        (1..200).for_each(|write| world.disk.fail_write(writes + write));
        assert!(world.pool.sweep().is_err());
        assert!(world.log.poisoned().is_some());
        // Nothing is written from here on, and nothing pretends.
        let writes = world.disk.counts().writes;
        assert!(matches!(world.pool.sweep(), Err(StorageError::Poisoned { .. })));
        assert!(matches!(world.pool.flush_all(), Err(StorageError::Poisoned { .. })));
        assert!(world.set(pages[0], 64, 3).is_err());
        assert!((2..40).any(|page| world.pool.shared(PageId(page)).is_err()));
        assert_eq!(world.disk.counts().writes, writes);
        world.pool.verify_quiescent().unwrap();
    });
}

#[test]
fn a_failed_sync_stops_the_database() {
    let world = World::create(16);
    world.allocate(1).unwrap();
    world.log.flush(Lsn(world.log.tail().0 - 1)).unwrap();
    let syncs = world.disk.counts().syncs;
    (1..20).for_each(|sync| world.disk.fail_sync(syncs + sync));
    assert!(world.pool.sweep().is_err());
    assert!(world.log.poisoned().is_some());
    assert!(matches!(world.pool.sweep(), Err(StorageError::Poisoned { .. })));
}

#[test]
fn a_damaged_header_page_is_refused() {
    let (disk, _, horizon) = stored();
    let good = disk.read_file(Path::new(DATA)).unwrap();
    let open = |bytes: &[u8]| {
        disk.write_file(Path::new(DATA), bytes).unwrap();
        World::recover(disk.clone(), &options(8), horizon).map(|_| ())
    };
    for byte in 0..200 {
        let mut bytes = good.clone();
        bytes[byte] ^= 1 << (byte % 8);
        let result = open(&bytes);
        let expected = match byte {
            64..72 => matches!(result, Err(StorageError::NotADatabase { .. })),
            _ => is_corrupt_page(result, PageId(0), "checksum"),
        };
        assert!(expected, "byte {byte}");
    }
    // Another format is one that says so under its own checksum.
    let mut newer = good.clone();
    newer[72..76].copy_from_slice(&99_u32.to_le_bytes());
    World::create(16).pool.seal.set(newer.first_chunk_mut::<PAGE_BYTES>().unwrap());
    assert!(matches!(open(&newer), Err(StorageError::UpgradeRequired { found: 99, .. })));
    for length in [0, 1, PAGE_BYTES - 1] {
        assert!(matches!(open(&good[..length]), Err(StorageError::Corrupted { .. })));
    }
    open(&good).unwrap();
}

/// A missing data file is damage, not a new database.
#[test]
fn a_missing_data_file_is_refused() {
    use foreshore_env::disk::Disk;
    let (disk, _, horizon) = stored();
    disk.remove(Path::new(DATA)).unwrap();
    assert!(matches!(
        World::recover(disk, &options(8), horizon).map(|_| ()),
        Err(StorageError::Corrupted { .. })
    ));
}

/// A sync of the data file fails, the process starts again, the machine does not, and the power fails after the
/// recovery. The page was prepared before a sweep and its record came behind the horizon (PAGE-8, the straddle), so the
/// first record that redo meets of it is no image: redo read the page from the kernel's cache, found all of its records
/// there, and left it clean. It was never written again, and what was committed was gone with the log that the next
/// checkpoint released.
#[test]
fn what_only_the_cache_has_after_a_failed_sync_is_written_again() {
    // The log syncs nothing that the test does not ask for.
    let world = World::create_with_a_lazy_log(16);
    let id = world.allocate(1).unwrap();
    world.pool.sweep().unwrap();
    let before = world.pool.horizon();
    let horizon = thread::scope(|scope| {
        let mut page = world.pool.exclusive(id).unwrap();
        page.prepare(Urgency::Work).unwrap();
        let sweep = scope.spawn(|| world.pool.sweep().unwrap());
        while world.pool.horizon() == before {
            thread::yield_now();
        }
        let payload: [&[u8]; 3] = [&id.0.to_le_bytes(), &72_u64.to_le_bytes(), &2_u64.to_le_bytes()];
        let lsn = world.append(SET, &payload).unwrap();
        page.words().set_u64(72, 2);
        page.applied(lsn);
        drop(page);
        sweep.join().unwrap()
    });
    world.set(id, 80, 3).unwrap();
    world.flush_log().unwrap();
    world.pool.write_dirty(|_| true).unwrap();
    world.disk.fail_sync(world.disk.counts().syncs + 1);
    world.pool.flush_all().unwrap_err();

    let again = World::recover(world.disk.after_kill(), &options(16), horizon).unwrap();
    assert_eq!(again.get(id, 80).unwrap(), 3);
    let horizon = again.pool.sweep().unwrap();
    let last =
        World::recover(again.disk.after_crash(CrashMode::DropUnsynced), &options(16), horizon).unwrap();
    assert_eq!([64, 72, 80].map(|offset| last.get(id, offset).unwrap()), [1, 2, 3]);
}

/// A record with a right checksum that writes a page far behind the end of the file: the file would be made so long,
/// with a hole for as much as 32 TiB. One in the span that comes next is what growth leaves that no checkpoint has made
/// durable (PAGE-20).
#[test]
fn a_page_far_behind_the_end_of_the_file_is_damage() {
    let world = World::create(16);
    let (count, span) = (world.pool.page_count(), 128);
    assert!(count < span, "{count}");
    let write =
        |world: &World, page: u64| world.pool.redo_format(PageId(page as u32), world.log.tail(), |_| Ok(()));
    for page in [2 * span, 1 << 20, u64::from(u32::MAX)] {
        let refused = write(&world, page);
        assert!(
            matches!(&refused, Err(error @ StorageError::Corrupted { .. }) if error.to_string().contains("no record before")),
            "{page}: {refused:?}"
        );
        assert_eq!(world.pool.page_count(), count);
    }
    write(&world, 2 * span - 1).unwrap();
    assert_eq!(world.pool.page_count(), 2 * span);
}
