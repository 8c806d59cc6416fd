mod compact;
mod header;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
};

use foreshore_base::{
    Lsn, PageId, StorageError, is_disk_full,
    limits::{MAX_PAGES, PAGE_BYTES},
};
use foreshore_env::{
    random::Xorshift,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_latch::Patience;
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_wal::{MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES, Urgency};
use proptest::prelude::*;

use super::{
    EXTENT_PAGES, bitmap,
    reserve::{Demand, KEPT_PAGES},
};
use crate::{
    FreeSpaceKind, PageWords, PoolOptions,
    testing::{ALLOCATE, DATA, FAR, NOTHING, Rounds, World, options, over_all},
};

/// The pages that the bitmaps say are in use.
fn allocated(world: &World) -> BTreeSet<PageId> {
    let mut pages = BTreeSet::new();
    world.pool.visit_allocated(&mut |page| assert!(pages.insert(page))).unwrap();
    // The header page and the bitmap pages are neither.
    let fixed = 1 + world.pool.page_count().div_ceil(world.pool.space.span);
    let free = world.pool.free_page_count().unwrap();
    assert_eq!(free + fixed + pages.len() as u64, world.pool.page_count());
    pages
}

/// Two spans of 128 pages and more: bitmap pages are made on the way, and never given out.
#[test]
fn the_file_grows_over_spans() {
    let world = World::create(32);
    let pages: BTreeSet<_> = (0..400).map(|number| world.allocate(number).unwrap()).collect();
    assert_eq!(pages.len(), 400);
    assert!(pages.iter().all(|page| page.0 != 0 && page.0 % 128 != 1));
    assert_eq!(allocated(&world), pages);
    assert!(pages.iter().all(|page| world.pool.is_allocated(*page).unwrap()));
    assert!(world.pool.is_allocated(PageId(129)).unwrap() && !world.pool.is_allocated(PageId(9999)).unwrap());
    assert!(world.pool.page_count() <= 512, "{} pages for 400", world.pool.page_count());
    world.pool.verify_quiescent().unwrap();
}

/// Nobody has a disk for as many pages as there may be, so the file only says that it is so long; and it is full.
#[test]
fn a_file_has_no_more_pages_than_ids() {
    let world = World::create(32);
    let space = &world.pool.space;
    let pages = world.pool.page_count();
    world.disk.set_free_space(Some(0));
    for lacking in [16, 8] {
        space.pages.store(MAX_PAGES - lacking, Ordering::Release);
        let error = space.grow(&world.pool, MAX_PAGES - lacking).unwrap_err();
        // With one extent, if there is no room for more.
        let wanted = format!("reserve space for {} pages in all", MAX_PAGES - lacking + 8);
        assert!(matches!(&error, StorageError::Io { .. }) && error.to_string().contains(&wanted), "{error}");
    }
    space.pages.store(MAX_PAGES, Ordering::Release);
    match space.grow(&world.pool, MAX_PAGES) {
        Err(StorageError::LimitExceeded { limit, got, .. }) => {
            assert_eq!((limit, got), (MAX_PAGES, MAX_PAGES + 1))
        }
        grown => panic!("{grown:?}"),
    }
    space.pages.store(pages, Ordering::Release);
    world.disk.set_free_space(None);
    (0..400).for_each(|number| _ = world.allocate(number).unwrap());
    world.pool.verify_quiescent().unwrap();
}

#[test]
fn neighbours_come_one_after_another() {
    let world = World::create(32);
    let pages: Vec<_> = (0..32).map(|number| world.allocate(number).unwrap().0).collect();
    let steps = pages.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    assert!(steps >= 28, "{pages:?}");
}

/// Shore-MT's figure for its extent cache: 95 of 100 looks at the free space go (§7.6).
#[test]
fn few_allocations_search_the_bitmaps() {
    let world =
        World::create_on(FaultyDisk::new(), &PoolOptions { bitmap_span: super::BITMAP_SPAN, ..options(256) })
            .unwrap();
    (0..2100).for_each(|number| _ = world.allocate(number).unwrap());
    let before = world.pool.stats();
    let mut pages: Vec<_> = (0..2000).map(|number| world.allocate(number).unwrap()).collect();
    let stats = world.pool.stats();
    let (allocations, searches) =
        (stats.allocations - before.allocations, stats.space_searches - before.space_searches);
    assert!(allocations == 2000 && searches * 20 <= allocations, "{searches} searches for {allocations}");
    // Runs go back as they came: nothing is given twice, and holes are found again.
    let count = world.pool.page_count();
    for page in pages.iter().step_by(3) {
        world.free(*page).unwrap();
    }
    let mut holes: BTreeSet<_> = pages.iter().step_by(3).copied().collect();
    pages.clear();
    while world.pool.page_count() == count && !holes.is_empty() {
        let page = world.allocate(1).unwrap();
        holes.remove(&page);
    }
    assert!(holes.is_empty(), "{} holes were not found before the file grew", holes.len());
    world.pool.verify_quiescent().unwrap();
}

/// What the caches spare, against the gallery, which searches for each allocation; and the gallery keeps the contract.
#[test]
fn the_caches_spare_95_of_100_searches() {
    let searches = |free_space| {
        let options = PoolOptions { free_space, bitmap_span: super::BITMAP_SPAN, ..options(256) };
        let world = World::create_on(FaultyDisk::new(), &options).unwrap();
        let before: Vec<_> = (0..2100).map(|number| world.allocate(number).unwrap()).collect();
        let searched = world.pool.stats().space_searches;
        let given = Mutex::new(before.into_iter().collect::<BTreeSet<_>>());
        thread::scope(|scope| {
            for thread in 0..4 {
                let (world, given) = (&world, &given);
                scope.spawn(move || {
                    for round in 0..500 {
                        let page = world.allocate(thread * 1000 + round).unwrap();
                        assert!(given.lock().insert(page), "page {page} is given to two");
                    }
                });
            }
        });
        assert_eq!(allocated(&world), given.into_inner());
        world.pool.verify_quiescent().unwrap();
        world.pool.stats().space_searches - searched
    };
    let [mut cached, uncached, alone @ ..] = FreeSpaceKind::ALL.map(searches);
    assert_eq!((uncached, alone), (2000, [2000; 3]));
    // Threads are dealt out to shards as they come, beside those of other tests: if some share one, they search side by
    // side.
    let start = Instant::now();
    while cached * 20 > uncached {
        assert!(start.elapsed() < FAR, "{cached} searches for 2000 allocations, again and again");
        cached = searches(FreeSpaceKind::ALL[0]);
    }
}

/// PAGE-14: a crash that loses the freeing of a page finds it as it was, though it was allocated anew; and nothing of
/// the new page is on the disk before the freeing is durable (the disk looks on: PAGE-3).
#[test]
fn a_freed_page_is_overwritten_only_when_its_freeing_is_durable() {
    let recover = |world: &World, horizon| {
        World::recover(world.disk.after_crash(CrashMode::DropUnsynced), &options(8), horizon).unwrap()
    };
    let (mut lost, mut rounds) = (0, Rounds::at_least(20));
    // A thread that needs a frame may have the log flushed before the crash: then once more.
    for round in 0.. {
        if rounds.are_over(round, lost > 0) {
            break;
        }
        let world = World::create_with_a_lazy_log(16);
        let page = world.allocate(7).unwrap();
        let horizon = world.pool.sweep().unwrap();
        let freed = world.free(page).unwrap();
        let again = (0..64).map(|_| world.allocate_logged(9).unwrap()).find(|(id, _)| *id == page);
        let (_, allocated_anew) = again.expect("the freed page was not used again");
        assert!(allocated_anew > freed);
        let crashed = recover(&world, horizon);
        if !crashed.found.contains(&freed) {
            lost += 1;
            assert!(crashed.pool.is_allocated(page).unwrap());
            assert_eq!(crashed.get(page, 64).unwrap(), 7);
        }
        drop(crashed);
        world.pool.flush_all().unwrap();
        assert!(world.log.is_durable(freed) && world.log.is_durable(allocated_anew));
        world.watch.check();
        assert_eq!(recover(&world, horizon).get(page, 64).unwrap(), 9);
    }
    assert!(lost > 0, "no crash lost the freeing");
}

#[test]
fn freed_pages_are_used_again() {
    let world = World::create(16);
    let mut pages: Vec<_> = (0..100).map(|number| world.allocate(number).unwrap()).collect();
    let count = world.pool.page_count();
    let mut random = Xorshift::new(5);
    for number in 0..500 {
        let freed = pages.swap_remove(random.below(pages.len() as u64) as usize);
        world.free(freed).unwrap();
        assert!(!world.pool.is_allocated(freed).unwrap());
        pages.push(world.allocate(number).unwrap());
    }
    assert_eq!(world.pool.page_count(), count, "400 pages were free");
    assert_eq!(allocated(&world), pages.into_iter().collect());
}

/// Where pages were taken behind others and freed at the beginning, as a table of long values does of which the oldest
/// are deleted, the cleaner lengthened the file again and again before its end was reached, and nothing that was free
/// was found: the file grew without end.
#[test]
fn a_large_file_with_free_pages_does_not_grow_ahead() {
    const QUEUE: usize = 2500;
    let world =
        World::create_on(FaultyDisk::new(), &PoolOptions { bitmap_span: super::BITMAP_SPAN, ..options(256) })
            .unwrap();
    let mut queue = VecDeque::new();
    for number in 0..10 * QUEUE as u64 {
        let last = queue.back().copied().unwrap_or(PageId::NONE);
        queue.push_back(world.allocate_near(last, number).unwrap());
        if queue.len() > QUEUE {
            world.free(queue.pop_front().unwrap()).unwrap();
        }
    }
    let count = world.pool.page_count();
    assert!(count < 2 * QUEUE as u64, "{count} pages for {QUEUE}");
    assert_eq!(allocated(&world), queue.into_iter().collect());
}

#[test]
fn what_cannot_be_freed_is_refused() {
    let world = World::create(16);
    let page = world.allocate(1).unwrap();
    for wrong in [PageId(0), PageId(1), PageId(129), PageId(page.0 + 1), PageId(u32::MAX)] {
        assert!(
            matches!(world.pool.free_page(wrong).map(|_| ()), Err(StorageError::Corrupted { .. })),
            "{wrong}"
        );
    }
    world.free(page).unwrap();
    assert!(world.free(page).is_err());
}

/// A new page that is not committed leaves no trace, neither a fresh one nor one that was in the pool since it was
/// freed.
#[test]
fn an_allocation_can_be_dropped() {
    over_all(|| {
        let world = World::create(16);
        let kept = world.allocate(1).unwrap();
        let mut dropped = world.pool.allocate(kept).unwrap();
        let fresh = dropped.id();
        assert_eq!(dropped.page().words().u64(64), 0);
        dropped.page().words().set_u64(64, 99);
        drop(dropped);
        assert!(!world.pool.is_allocated(fresh).unwrap());
        assert!(world.pool.shared(fresh).is_err(), "it was never written");
        world.pool.verify_quiescent().unwrap();

        let freed = world.allocate(7).unwrap();
        world.free(freed).unwrap();
        for _ in 0..20 {
            let before = world.pool.shared(freed).unwrap().words().snapshot();
            let recovery_lsn = world.pool.resident(freed).map(|place| place.frame.recovery_lsn());
            let mut page = world.pool.allocate(kept).unwrap();
            if page.id() == freed {
                assert_eq!(page.page().words().u64(64), 0);
                drop(page);
                assert_eq!(world.pool.shared(freed).unwrap().words().snapshot().0, before.0);
                assert_eq!(world.pool.resident(freed).map(|place| place.frame.recovery_lsn()), recovery_lsn);
                assert!(recovery_lsn.is_some_and(|lsn| lsn > Lsn::ZERO), "it was to be dirty");
                world.pool.verify_quiescent().unwrap();
                return;
            }
            let lsn = world.append(ALLOCATE, &[&page.id().0.to_le_bytes(), &[0; 8]]).unwrap();
            drop(page.commit(lsn));
        }
        panic!("the freed page was not found again");
    });
}

/// Between the choice of a page and the latch of its bitmap page the bit says that the page is free. Threads of all
/// shards, which change extents meanwhile, are told otherwise.
#[test]
fn a_page_that_is_handed_out_is_not_found_again() {
    let world = World::create(64);
    let given = Mutex::new(BTreeSet::new());
    for round in 0..2 {
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let page = world
                            .pool
                            .space
                            .candidate(
                                &world.pool,
                                Demand {
                                    hint: PageId::NONE,
                                    urgency: Urgency::Work,
                                    patience: Patience::ENDLESS,
                                },
                            )
                            .unwrap();
                        assert!(given.lock().insert(page), "page {page} was handed out twice");
                    }
                });
            }
        });
        assert_eq!(given.lock().len(), 200);
        // Given back, they are found again, all of them.
        let pages = std::mem::take(&mut *given.lock());
        let count = world.pool.page_count();
        pages.into_iter().for_each(|page| world.pool.space.settle(page, false));
        assert!(round == 0 || world.pool.page_count() == count);
    }
    assert!(world.pool.page_count() <= 384, "{} pages for 200", world.pool.page_count());
}

/// Threads allocate and free; no page is ever given to two.
#[test]
fn no_page_is_given_to_two() {
    over_all(|| {
        let world = World::create(32);
        let owners = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            for owner in 0..8_u64 {
                let (world, owners) = (&world, &owners);
                scope.spawn(move || {
                    let (mut random, mut mine) = (Xorshift::new(owner + 1), Vec::new());
                    for number in 0..300 {
                        if mine.len() > 20 || (!mine.is_empty() && random.below(3) == 0) {
                            let page = mine.swap_remove(random.below(mine.len() as u64) as usize);
                            assert_eq!(owners.lock().remove(&page), Some(owner));
                            world.free(page).unwrap();
                        } else if random.below(10) == 0 {
                            drop(world.pool.allocate(PageId::NONE).unwrap());
                        } else {
                            let page = world.allocate(number).unwrap();
                            assert_eq!(
                                owners.lock().insert(page, owner),
                                None,
                                "page {page} was given away twice"
                            );
                            mine.push(page);
                        }
                    }
                });
            }
        });
        let owned: BTreeSet<_> = owners.lock().keys().copied().collect();
        assert_eq!(allocated(&world), owned);
        world.pool.verify_quiescent().unwrap();
        world.watch.check();
        // Nothing was lost on the way: the file is hardly longer than what was ever in use at once.
        assert!(world.pool.page_count() <= 384, "{} pages for at most 168", world.pool.page_count());
    });
}

#[test]
fn a_full_disk_is_an_error_before_anything_has_changed() {
    let disk = FaultyDisk::new();
    let world = World::create_on(disk.clone(), &PoolOptions { cleaners: 0, ..options(256) }).unwrap();
    world.pool.sweep().unwrap();
    // Room for 30 pages and for the log, which has its segment already.
    disk.set_free_space(Some(30 * PAGE_BYTES as u64));
    let mut pages = BTreeSet::new();
    let error = loop {
        match world.allocate(1) {
            Ok(page) => assert!(pages.insert(page)),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&error, StorageError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{error}"
    );
    assert!(pages.len() >= 64 - 2 + 8, "only {} pages before {error}", pages.len());
    assert_eq!(allocated(&world), pages);
    assert!(world.log.poisoned().is_none());
    // It goes on where space is: inside the file, and after room was made.
    let freed = *pages.first().unwrap();
    world.free(freed).unwrap();
    assert_eq!(world.allocate(2).unwrap(), freed);
    assert!(world.allocate(3).is_err());
    disk.set_free_space(None);
    world.allocate(4).unwrap();
    world.pool.verify_quiescent().unwrap();
}

/// PAGE-16: when work gets no page any more, rollback still gets some; and work again when there is space.
#[test]
fn on_a_full_disk_rollback_still_gets_pages() {
    for free_space in FreeSpaceKind::ALL {
        let disk = FaultyDisk::new();
        let options = PoolOptions { cleaners: 0, free_space, ..options(256) };
        let world = World::create_on(disk.clone(), &options).unwrap();
        world.pool.sweep().unwrap();
        for round in 0..3 {
            disk.set_free_space(Some(round * 20 * PAGE_BYTES as u64));
            let work = (0..2000).take_while(|number| world.allocate(*number).is_ok()).count();
            assert!(work > 0 && work < 2000, "{free_space:?}, round {round}: {work}");
            let rollback = || world.allocate_for(1, Urgency::Ending);
            let kept = (0..2000).take_while(|_| rollback().is_ok()).count();
            assert!(kept >= KEPT_PAGES as usize && kept < 200, "{free_space:?}, round {round}: {kept}");
            assert!(world.allocate(1).is_err() && world.log.poisoned().is_none());
            disk.set_free_space(None);
            world.allocate(1).unwrap();
        }
        allocated(&world);
        world.pool.verify_quiescent().unwrap();
    }
}

/// A crash may keep the length of a file that has grown, and not its space; others may want that then.
#[test]
fn holes_that_a_crash_leaves_are_filled() {
    let (mut filled, mut rounds) = (0, Rounds::at_least(30));
    for seed in 0.. {
        // What a crash keeps depends on how far the cleaner has come.
        if rounds.are_over(seed, filled > 0) {
            break;
        }
        let disk = FaultyDisk::new();
        let world = World::create_on(disk.clone(), &options(64)).unwrap();
        let horizon = world.pool.sweep().unwrap();
        let pages: Vec<_> = (0..200).map(|number| world.allocate(number).unwrap()).collect();
        world.flush_log().unwrap();
        let left = disk.after_crash(CrashMode::SubsetRandom(seed));
        let again = World::recover(left.clone(), &options(64), horizon).unwrap();
        let before = left.used_space();
        again.pool.fill_holes().unwrap();
        filled += u64::from(left.used_space() > before);
        left.set_free_space(Some(0));
        pages.iter().for_each(|page| _ = again.set(*page, 72, seed).unwrap());
        again.pool.flush_all().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        again.pool.fill_holes().unwrap();
    }
    assert!(filled > 0, "no crash left holes");
}

/// The disk was full when a file with holes was opened, as a crash leaves and as a backup is. Free pages in the holes
/// were handed out all the same, and that the disk was full was met when they were written, which stopped the database.
#[test]
fn on_a_full_disk_no_page_is_handed_out_that_lies_in_a_hole() {
    let (mut refused, mut rounds) = (0, Rounds::at_least(30));
    for (seed, free_space) in (0..).zip(FreeSpaceKind::ALL.into_iter().cycle()) {
        if rounds.are_over(seed, refused > 0) {
            break;
        }
        let disk = FaultyDisk::new();
        let options = PoolOptions { free_space, ..options(256) };
        let world = World::create_on(disk.clone(), &options).unwrap();
        let horizon = world.pool.sweep().unwrap();
        (0..70).for_each(|number| _ = world.allocate(number).unwrap());
        world.flush_log().unwrap();
        let left = disk.after_crash(CrashMode::SubsetRandom(seed));
        let again = World::recover(left.clone(), &options, horizon).unwrap();
        again.pool.flush_all().unwrap();
        let has_holes = left.holes(Path::new(DATA)).unwrap() > 0;
        left.set_free_space(Some(0));
        again.pool.fill_holes().unwrap();
        let count = again.pool.page_count();
        let found = (0..count).take_while(|number| again.allocate(*number).is_ok()).count() as u64;
        again.pool.flush_all().unwrap_or_else(|error| panic!("seed {seed}, {found} of {count}: {error}"));
        assert!(found < count && again.log.poisoned().is_none());
        if has_holes {
            // Nor does a compaction move anything there.
            let (space, ceiling) = (&again.pool.space, count - EXTENT_PAGES);
            let _compaction = again.pool.begin_compaction(ceiling).unwrap();
            let (mut run, mut taken) = (None, Vec::new());
            let error = loop {
                match space.take_below(&again.pool, &mut run, ceiling, Patience::ENDLESS) {
                    Ok(page) => taken.push(page.expect("the last page below the ceiling lies in a hole")),
                    Err(error) => break error,
                }
            };
            assert!(matches!(&error, StorageError::Io { source, .. } if is_disk_full(source)), "{error}");
            taken.into_iter().for_each(|page| space.settle(page, false));
        }
        refused += u64::from(has_holes);
        left.set_free_space(None);
        again.allocate(1).unwrap();
        again.pool.verify_quiescent().unwrap();
    }
    assert!(refused > 0, "no crash left holes");
}

/// The power fails between the growth into a new span and the record that formats its bitmap page.
#[test]
fn a_span_without_a_bitmap_page_is_made_anew() {
    let world = World::create(32);
    // All there are: nothing is kept for rollback yet.
    let all = (0..126).map(|number| world.allocate_for(number, Urgency::Ending).unwrap().0);
    let pages: BTreeSet<_> = all.collect();
    assert_eq!(world.pool.page_count(), 128);
    let horizon = world.pool.sweep().unwrap();
    world.pool.file.allocate(0..256 * PAGE_BYTES as u64).unwrap();
    world.pool.file.sync().unwrap();
    let again =
        World::recover(world.disk.after_crash(CrashMode::DropUnsynced), &options(8), horizon).unwrap();
    assert_eq!(again.pool.page_count(), 128);
    assert_eq!(allocated(&again), pages);
    let next = again.allocate(1).unwrap();
    assert!(next.0 >= 128 && next.0 != 129);
    assert_eq!(allocated(&again).len(), 127);

    // And when the record is there, but neither growth nor page.
    again.flush_log().unwrap();
    let third =
        World::recover(again.disk.after_crash(CrashMode::DropUnsynced), &options(8), horizon).unwrap();
    assert_eq!(third.get(next, 64).unwrap(), 1);
    assert_eq!(allocated(&third).len(), 127);
    assert!(third.allocate(2).unwrap() != next);
}

#[test]
fn spans_are_checked() {
    for span in [0, 63, 65, super::BITMAP_SPAN + 64] {
        let result = World::create_on(FaultyDisk::new(), &PoolOptions { bitmap_span: span, ..options(8) });
        assert!(matches!(result.map(|_| ()), Err(StorageError::LimitExceeded { .. })), "{span}");
    }
    let world =
        World::create_on(FaultyDisk::new(), &PoolOptions { bitmap_span: super::BITMAP_SPAN, ..options(8) })
            .unwrap();
    assert_eq!(world.allocate(1).unwrap(), PageId(2));
}

/// A thread that looked for a free page waited for a bitmap page, and for a longer file, whatever its deadline was, and
/// though somebody had cancelled.
#[test]
fn whoever_allocates_waits_no_longer_than_it_may() {
    let world = World::create(64);
    let pool = &world.pool;
    let allocate = |patience| pool.allocate_for(PageId::NONE, Urgency::Work, patience).map(drop);
    let held = world.pool.exclusive(world.pool.space.bitmap_of(PageId(2))).unwrap();
    let result = thread::scope(|scope| {
        let deadline = Some(Instant::now() + Duration::from_millis(100));
        scope.spawn(move || allocate(Patience { deadline, cancelled: None })).join().unwrap()
    });
    drop(held);
    assert!(matches!(result, Err(StorageError::WaitEnded { cancelled: false, .. })), "{result:?}");

    (0..world.pool.page_count() - 2)
        .for_each(|number| _ = world.allocate_for(number, Urgency::Ending).unwrap());
    let (pages, cancelled) = (world.pool.page_count(), AtomicBool::new(true));
    let result = allocate(Patience { deadline: None, cancelled: Some(&cancelled) });
    assert!(matches!(result, Err(StorageError::WaitEnded { cancelled: true, .. })), "{result:?}");
    assert_eq!(world.pool.page_count(), pages);
    allocate(Patience::ENDLESS).unwrap();
    world.pool.verify_quiescent().unwrap();
}

/// A thread that allocated a page waited for room in the log with the bitmap page. When there was room, a hundred
/// others slept for that page, and each of them was woken to take it.
#[test]
fn whoever_waits_for_room_in_the_log_keeps_no_bitmap_page() {
    let world = World::create(64);
    let (start, is_over) = (Instant::now(), AtomicBool::new(false));
    let eventually = |done: &dyn Fn() -> bool| {
        while !done() && start.elapsed() < FAR {
            thread::yield_now();
        }
        if !done() {
            // Or those who wait would keep the test from its end.
            is_over.store(true, Ordering::Relaxed);
            world.disk.hold_syncs(false);
            panic!("it did not come about");
        }
    };
    // The shard of this thread has pages from here on.
    world.allocate(6).unwrap();
    world.disk.hold_syncs(true);
    let (found, allocated) = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                world.append(NOTHING, &[]).unwrap();
            }
        });
        // No spare segment is made while nothing is synced. That thread waits when it finds no room for a record of
        // this length; there may be a little for a shorter one, and never less.
        let record = (MAX_RECORD_BYTES - MAX_PAYLOAD_BYTES) as u64;
        eventually(&|| !world.log.has_room(Urgency::Work, record));
        let looking = scope.spawn(|| {
            eventually(&|| !world.pool.space.map().lock().handed_out.is_empty());
            thread::sleep(Duration::from_millis(50));
            let deadline = Some(Instant::now() + Duration::from_secs(2));
            let bitmap = world.pool.space.bitmap_of(PageId(2));
            let found = world.pool.shared_within(bitmap, Patience { deadline, cancelled: None }).map(drop);
            is_over.store(true, Ordering::Relaxed);
            world.disk.hold_syncs(false);
            found
        });
        let allocated = world.allocate(7);
        (looking.join().unwrap(), allocated)
    });
    found.unwrap();
    assert_eq!(world.get(allocated.unwrap(), 64).unwrap(), 7);
}

/// PAGE-13: a thread that was lengthening the file when the pool was closed went on, when the file could be somebody
/// else's.
#[test]
fn closing_waits_for_whoever_lengthens_the_file() {
    let world = World::create(64);
    let growing = world.pool.space.growing.lock();
    thread::scope(|scope| {
        let closing = scope.spawn(|| world.pool.close());
        thread::sleep(Duration::from_millis(100));
        world.pool.check_open().unwrap();
        drop(growing);
        closing.join().unwrap();
    });
    let grown = world.pool.space.grow(&world.pool, world.pool.page_count());
    assert!(matches!(grown, Err(StorageError::Closed)), "{grown:?}");
}

proptest! {
    #[test]
    fn bits_are_a_set(steps in prop::collection::vec((0..u64::from(super::BITMAP_SPAN), any::<bool>()), 1..200)) {
        let (words, mut model) = (PageWords::default(), BTreeSet::new());
        for (index, used) in steps {
            bitmap::set(&words, index, used);
            if used { model.insert(index); } else { model.remove(&index); }
            prop_assert_eq!(bitmap::get(&words, index), used);
        }
        for index in &model {
            prop_assert!(bitmap::get(&words, *index));
        }
        let free = |extent: u64| {
            let bits = (0..8).filter(|bit| !model.contains(&(extent + bit)));
            bits.fold(0, |free, bit| free | 1 << bit)
        };
        for extent in model.iter().map(|index| index / 8 * 8) {
            prop_assert_eq!(bitmap::free_in_extent(&words, extent), free(extent));
        }
    }

    #[test]
    fn the_first_extent_with_room_is_found(full_to in 0..2000_u64, from in 0..250_u64, to in 0..300_u64) {
        let words = PageWords::default();
        (0..full_to).for_each(|index| bitmap::set(&words, index, true));
        let expected = (from..to).map(|extent| extent * 8).find(|extent| extent + 8 > full_to);
        prop_assert_eq!(bitmap::find_extent(&words, from * 8, to * 8), expected);
    }
}
