//! What the header page says of the file's length (PAGE-19), and what a crash makes of it.

use std::{collections::BTreeMap, path::Path};

use foreshore_base::{PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::disk::{Disk, OpenMode};
use foreshore_testkit::{CrashMode, FaultyDisk};

use crate::{
    PoolOptions,
    testing::{DATA, World, options},
};

/// Whose disk does the same in every run.
fn quiet() -> PoolOptions {
    PoolOptions { cleaners: 0, read_ahead: 0, ..options(350) }
}

/// Grows over two spans of 128 pages, with sweeps of so few pages that each has one sync, is cut to half of one, and
/// grows again. Calls `done` when pages are
/// sure to be there, with those from where recovery begins.
fn grow_and_shrink(world: &World, done: &mut dyn FnMut(foreshore_base::Lsn, &[PageId])) -> Result<()> {
    for count in [200, 100] {
        let mut pages = Vec::new();
        for number in 0..count {
            pages.push(world.allocate(number)?);
            if number % 10 == 9 {
                world.flush_log()?;
                done(world.pool.sweep()?, &pages);
            }
        }
        for page in pages.split_off(10) {
            world.free(page)?;
        }
        let Some(compaction) = world.pool.begin_compaction(64) else { panic!("nothing to cut") };
        let end = compaction.choose_end()?;
        world.flush_log()?;
        done(world.pool.sweep()?, &pages);
        assert!(compaction.cut(end)? > 0);
        for page in pages {
            world.free(page)?;
        }
    }
    Ok(())
}

/// A count that said more than was durable would make damage of what a crash leaves; the header is synced together with
/// pages, and may be there without them.
#[test]
fn the_header_counts_only_what_a_crash_leaves() {
    let operations = {
        let disk = FaultyDisk::new();
        let world = World::create_on(disk.clone(), &quiet()).unwrap();
        let created = disk.counts().operations;
        grow_and_shrink(&world, &mut |_, _| {}).unwrap();
        created + 1..=disk.counts().operations
    };
    let mut recoveries = 0;
    for crash_at in operations {
        let disk = FaultyDisk::new();
        disk.crash_at(crash_at);
        let world = World::create_on(disk.clone(), &quiet()).unwrap();
        let (mut horizon, mut sure) = (world.log.low_water(), Vec::new());
        _ = grow_and_shrink(&world, &mut |swept, pages| {
            horizon = swept;
            sure = pages.to_vec();
        });
        let torn = (0..2).map(|seed| CrashMode::TornRandom(crash_at * 2 + seed));
        let subsets = (0..2).map(|seed| CrashMode::SubsetRandom(crash_at * 2 + seed));
        for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll].into_iter().chain(torn).chain(subsets) {
            let again = World::recover(disk.after_crash(mode), &quiet(), horizon);
            let again = again.unwrap_or_else(|error| panic!("crash at {crash_at}, {mode:?}: {error}"));
            for page in &sure {
                again.get(*page, 64).unwrap_or_else(|error| panic!("crash at {crash_at}, {mode:?}: {error}"));
            }
            recoveries += 1;
        }
    }
    assert!(recoveries > 200, "{recoveries}");
}

/// Nothing of the log is needed any more, so nothing but the header knows of what is lost.
#[test]
fn what_the_header_counts_and_the_file_lacks_is_damage() {
    let world = World::create_on(FaultyDisk::new(), &quiet()).unwrap();
    let pages: BTreeMap<_, _> = (0..300).map(|number| (world.allocate(number).unwrap(), number)).collect();
    world.flush_log().unwrap();
    let horizon = world.pool.sweep().unwrap();
    let count = world.pool.page_count();
    let with = |damage: &dyn Fn(&dyn foreshore_env::disk::DiskFile)| {
        let disk = world.disk.after_crash(CrashMode::KeepAll);
        damage(&*disk.open(Path::new(DATA), OpenMode::ReadWrite).unwrap());
        World::recover(disk, &quiet(), horizon).map(|world| world.pool.page_count())
    };
    assert_eq!(with(&|_| {}).unwrap(), count);
    for left in [count - 8, 256, 128] {
        let cut = with(&|file| file.set_len(left * PAGE_BYTES as u64).unwrap());
        assert!(matches!(cut, Err(StorageError::Corrupted { .. })), "{left} of {count}: {cut:?}");
    }
    let blank = with(&|file| file.write_all_at(&[0; PAGE_BYTES], 257 * PAGE_BYTES as u64).unwrap());
    assert!(matches!(blank, Err(StorageError::Corrupted { .. })), "{blank:?}");
    assert!(pages.keys().any(|page| page.0 > 257));

    // An older version has no count: the end is found as before.
    let older = with(&|file| {
        let mut page = [0; PAGE_BYTES];
        file.read_exact_at(&mut page, 0).unwrap();
        page[96..104].fill(0);
        world.pool.seal.set(&mut page);
        file.write_all_at(&page, 0).unwrap();
        file.set_len(256 * PAGE_BYTES as u64).unwrap();
    });
    assert_eq!(older.unwrap(), 256);

    // A record behind the horizon writes it whole: it is as good as new.
    world.pool.exclusive(PageId(257)).unwrap().prepare(foreshore_wal::Urgency::Work).unwrap();
    world.flush_log().unwrap();
    assert_eq!(
        with(&|file| file.write_all_at(&[0; PAGE_BYTES], 257 * PAGE_BYTES as u64).unwrap()).unwrap(),
        count
    );
}
