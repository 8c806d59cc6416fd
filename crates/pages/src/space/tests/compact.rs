//! Giving space back: what is cut off, what is not, and what a crash makes of it (PAGE-15).

use std::{collections::BTreeMap, path::Path};

use foreshore_base::{Lsn, PageId, Result, limits::PAGE_BYTES};
use foreshore_env::{
    disk::{Disk, OpenMode},
    random::Xorshift,
    thread,
    time::{Duration, Instant},
};
use foreshore_latch::Patience;
use foreshore_testkit::CrashMode;
use foreshore_wal::Urgency;

use super::{
    super::{BITMAP_SPAN, compact::NewEnd, reserve::Demand},
    allocated,
};
use crate::{
    BufferPool, Compaction, PoolOptions,
    testing::{ALLOCATE, DATA, FAR, MOVE, World, options},
};

/// Pages of a span in most worlds.
const SPAN: u64 = 128;

fn file_pages(world: &World) -> u64 {
    world.disk.read_file(Path::new(DATA)).unwrap().len() as u64 / PAGE_BYTES as u64
}

/// Moves a page of the world, which nothing refers to; gives its new id.
fn relocate(world: &World, compaction: &mut Compaction<'_>, from: PageId) -> Option<PageId> {
    let mut page = world.pool.exclusive(from).unwrap();
    page.prepare(Urgency::Work).unwrap();
    let mut new = compaction.page_for(from, PageId::NONE, Patience::ENDLESS).unwrap()?;
    let (to, number) = (new.id(), page.words().u64(64));
    let payload: [&[u8]; 3] = [&to.0.to_le_bytes(), &from.0.to_le_bytes(), &number.to_le_bytes()];
    let lsn = world.append(MOVE, &payload).unwrap();
    new.page().words().set_u64(64, number);
    page.words().set_u64(64, 0);
    page.applied(lsn);
    drop(new.commit(lsn));
    Some(to)
}

/// Pages with their numbers, of which only each `kept`-th is left.
fn sparse(world: &World, count: u64, kept: usize) -> BTreeMap<PageId, u64> {
    let all: Vec<_> = (0..count).map(|number| (world.allocate(number).unwrap(), number)).collect();
    let mut pages = BTreeMap::new();
    for (place, (page, number)) in all.into_iter().enumerate() {
        if place % kept == 0 {
            pages.insert(page, number);
        } else {
            world.free(page).unwrap();
        }
    }
    pages
}

fn check(world: &World, pages: &BTreeMap<PageId, u64>) {
    for (page, number) in pages {
        assert_eq!(world.get(*page, 64).unwrap(), *number, "page {page}");
    }
    assert_eq!(allocated(world), pages.keys().copied().collect());
    world.pool.verify_quiescent().unwrap();
}

fn move_all(world: &World, compaction: &mut Compaction<'_>, pages: &mut BTreeMap<PageId, u64>) {
    for from in compaction.pages_above().unwrap() {
        let to = relocate(world, compaction, from).unwrap();
        assert!(to < from);
        let number = pages.remove(&from).unwrap();
        pages.insert(to, number);
    }
}

/// Four spans of 128 pages become one, and four again.
#[test]
fn pages_move_down_and_the_file_is_cut() {
    let world = World::create(600);
    let mut pages = sparse(&world, 450, 6);
    let before = world.pool.page_count();
    assert!(before > 450);
    world.pool.sweep().unwrap();
    let least = world.pool.least_page_count().unwrap();
    assert!(least < 128, "{least}");
    let mut compaction = world.pool.begin_compaction(least).unwrap();
    assert!(world.pool.begin_compaction(least).is_none(), "one at a time");
    // What is allocated meanwhile goes below.
    for number in 0..10 {
        let page = world.allocate(1000 + number).unwrap();
        assert!(u64::from(page.0) < least);
        pages.insert(page, 1000 + number);
    }
    move_all(&world, &mut compaction, &mut pages);
    check(&world, &pages);
    let end = compaction.choose_end().unwrap();
    let horizon = world.pool.sweep().unwrap();
    assert_eq!(compaction.cut(end).unwrap(), before - least);
    assert_eq!((world.pool.page_count(), file_pages(&world)), (least, least));
    check(&world, &pages);
    assert!(world.pool.shared(PageId(before as u32 - 1)).is_err());
    assert!(world.pool.begin_compaction(least).is_none(), "nothing is left to gain");
    // A crash now, and one after the file has grown over what was cut.
    let crash = |world: &World, pages: &BTreeMap<PageId, u64>| {
        for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(7)] {
            let crashed = World::recover(world.disk.after_crash(mode), &options(600), horizon).unwrap();
            check(&crashed, pages);
        }
    };
    world.flush_log().unwrap();
    crash(&world, &pages);
    for number in 0..400 {
        pages.insert(world.allocate(2000 + number).unwrap(), 2000 + number);
    }
    check(&world, &pages);
    world.flush_log().unwrap();
    crash(&world, &pages);
}

/// Whoever finds no page below the ceiling lifts it: nobody waits, and nothing is cut.
#[test]
fn a_compaction_makes_way() {
    let world = World::create(600);
    let mut pages = sparse(&world, 300, 10);
    let before = world.pool.page_count();
    let least = world.pool.least_page_count().unwrap();
    let mut compaction = world.pool.begin_compaction(least).unwrap();
    for number in 1000..1200 {
        pages.insert(world.allocate(number).unwrap(), number);
    }
    assert!(
        pages.keys().filter(|page| u64::from(page.0) >= least).count() > 40,
        "the ceiling was not lifted"
    );
    assert_eq!(world.pool.page_count(), before, "the file had room");
    _ = compaction.page_for(*pages.keys().next_back().unwrap(), PageId::NONE, Patience::ENDLESS);
    let end = compaction.choose_end().unwrap();
    world.pool.sweep().unwrap();
    assert_eq!(compaction.cut(end).unwrap(), 0);
    check(&world, &pages);
}

/// What is spoken for above the ceiling stays: a page that is being allocated while the end is chosen.
#[test]
fn a_page_that_is_being_allocated_is_not_cut_off() {
    let world = World::create(600);
    let pages = sparse(&world, 300, 10);
    let before = world.pool.page_count();
    // Of the last extents, because the hint says so.
    let handed_out = world
        .pool
        .space
        .candidate(
            &world.pool,
            Demand { hint: PageId(before as u32 - 2), urgency: Urgency::Work, patience: Patience::ENDLESS },
        )
        .unwrap();
    let last = *pages.keys().next_back().unwrap();
    assert!(handed_out > last);
    let compaction = world.pool.begin_compaction(64).unwrap();
    let end = compaction.choose_end().unwrap();
    world.pool.space.settle(handed_out, false);
    world.pool.sweep().unwrap();
    compaction.cut(end).unwrap();
    assert!(world.pool.page_count() > u64::from(handed_out.0));
    // The next time nothing speaks for it.
    let compaction = world.pool.begin_compaction(64).unwrap();
    let end = compaction.choose_end().unwrap();
    world.pool.sweep().unwrap();
    compaction.cut(end).unwrap();
    assert!(world.pool.page_count() > u64::from(last.0));
    check(&world, &pages);
}

/// A compaction beside threads that allocate, free, read and sweep, with few frames.
#[test]
fn a_compaction_disturbs_nobody() {
    let world = World::create_on(Default::default(), &PoolOptions { read_ahead: 4, ..options(40) }).unwrap();
    let mut pages = sparse(&world, 300, 5);
    thread::scope(|scope| {
        let others: Vec<_> = (0..3)
            .map(|seed| {
                let world = &world;
                scope.spawn(move || {
                    let (mut random, mut mine) = (Xorshift::new(seed + 1), BTreeMap::new());
                    for round in 0..250 {
                        if random.below(3) > 0 || mine.is_empty() {
                            mine.insert(world.allocate(round).unwrap(), round);
                        } else {
                            let at = random.below(mine.len() as u64) as usize;
                            let (page, number) =
                                mine.iter().nth(at).map(|(page, number)| (*page, *number)).unwrap();
                            assert_eq!(world.get(page, 64).unwrap(), number);
                            mine.remove(&page);
                            world.free(page).unwrap();
                        }
                        world.pool.read_ahead(&[PageId(random.below(400) as u32 + 2)]);
                    }
                    mine
                })
            })
            .collect();
        for _ in 0..8 {
            let least = world.pool.least_page_count().unwrap();
            if let Some(mut compaction) = world.pool.begin_compaction(least) {
                for from in compaction.pages_above().unwrap() {
                    // Those of the others are theirs.
                    if let Some(number) = pages.get(&from).copied()
                        && let Some(to) = relocate(&world, &mut compaction, from)
                    {
                        pages.remove(&from);
                        pages.insert(to, number);
                    }
                }
                let end = compaction.choose_end().unwrap();
                world.pool.sweep().unwrap();
                compaction.cut(end).unwrap();
            }
            thread::sleep(Duration::from_millis(3));
        }
        for other in others {
            pages.extend(other.join().unwrap());
        }
    });
    world.watch.check();
    check(&world, &pages);
    let horizon = world.pool.sweep().unwrap();
    let crashed =
        World::recover(world.disk.after_crash(CrashMode::DropUnsynced), &options(40), horizon).unwrap();
    check(&crashed, &pages);
    assert!(horizon > Lsn::ZERO);
}

/// Somebody who had waited for a page when it moved gets its latch while the sweep writes it, finds that it is retired,
/// and lets go: the page stays dirty, though the file has it. It was written again when it had been cut off, and the
/// file was as long as before, with holes where the bitmaps should have been.
#[test]
fn a_page_that_stayed_dirty_is_not_written_behind_the_new_end() {
    let world = World::create(600);
    let mut pages = sparse(&world, 450, 100);
    world.pool.sweep().unwrap();
    let least = world.pool.least_page_count().unwrap();
    let mut compaction = world.pool.begin_compaction(least).unwrap();
    let last = compaction.pages_above().unwrap()[0];
    assert!(last.0 > 3 * 128, "{last}: three spans behind the first");
    // The sweep waits for the log when it has copied what it writes.
    world.disk.hold_syncs(true);
    move_all(&world, &mut compaction, &mut pages);
    let end = compaction.choose_end().unwrap();
    thread::scope(|scope| {
        let sweep = scope.spawn(|| world.pool.sweep().unwrap());
        while !world.pool.resident(last).unwrap().frame.is_in_transit() {
            thread::sleep(Duration::from_millis(1));
        }
        drop(world.pool.exclusive(last).unwrap());
        world.disk.hold_syncs(false);
        sweep.join().unwrap()
    });
    assert!(compaction.cut(end).unwrap() > 0);
    assert_eq!(file_pages(&world), least);
    check(&world, &pages);
    let horizon = world.pool.sweep().unwrap();
    world.pool.flush_all().unwrap();
    assert_eq!(file_pages(&world), least);
    world.flush_log().unwrap();
    let again = World::recover(world.disk.after_crash(CrashMode::KeepAll), &options(600), horizon).unwrap();
    check(&again, &pages);
    for number in 0..400 {
        pages.insert(again.allocate(3000 + number).unwrap(), 3000 + number);
    }
    check(&again, &pages);
}

/// What such a page left behind: a file that is long again, with several spans of zeros before it. Only the last of
/// them was passed over, and the file could not be read.
#[test]
fn a_file_that_a_page_behind_its_end_made_long_again_is_healed() {
    let world = World::create(600);
    let mut pages: BTreeMap<_, _> = (0..40).map(|number| (world.allocate(number).unwrap(), number)).collect();
    let horizon = world.pool.sweep().unwrap();
    let before = world.pool.page_count();
    assert!(before <= 128);
    let stray = 3 * 128 + 60;
    let file = world.disk.open(Path::new(DATA), OpenMode::ReadWrite).unwrap();
    file.write_all_at(&[1; PAGE_BYTES], stray * PAGE_BYTES as u64).unwrap();
    file.set_len((stray + 4) * PAGE_BYTES as u64).unwrap();
    world.flush_log().unwrap();
    let again = World::recover(world.disk.after_crash(CrashMode::KeepAll), &options(600), horizon).unwrap();
    assert_eq!(again.pool.page_count(), 128);
    check(&again, &pages);
    for number in 0..400 {
        pages.insert(again.allocate(3000 + number).unwrap(), 3000 + number);
    }
    check(&again, &pages);
    again.pool.sweep().unwrap();
}

/// Pages, and a compaction that has moved them together and is to cut the file, to so many pages more than need be.
fn ready_to_cut(world: &World, more: u64) -> (BTreeMap<PageId, u64>, Compaction<'_>, NewEnd) {
    let mut pages = sparse(world, 2200, 2);
    world.pool.sweep().unwrap();
    let least = world.pool.least_page_count().unwrap();
    let mut compaction = world.pool.begin_compaction(least + more).unwrap();
    move_all(world, &mut compaction, &mut pages);
    let end = compaction.choose_end().unwrap();
    world.pool.sweep().unwrap();
    (pages, compaction, end)
}

/// Cuts the file, and ends the compaction, while `search` has asked how long the file is and waits for the bitmap page
/// `waited_for`.
fn cut_beside<T: Send>(
    world: &World,
    (compaction, end): (Compaction<'_>, NewEnd),
    waited_for: PageId,
    search: impl FnOnce() -> T + Send,
) -> T {
    let before = world.pool.page_count();
    let header = || world.disk.read_file(Path::new(DATA)).unwrap()[..PAGE_BYTES].to_vec();
    let old_header = header();
    thread::scope(|scope| {
        world.disk.hold_syncs(true);
        let cut = scope.spawn(move || compaction.cut(end).unwrap());
        // It needs no bitmap page any more, and waits for the disk.
        let start = Instant::now();
        while header() == old_header {
            if start.elapsed() >= FAR {
                world.disk.hold_syncs(false);
                panic!("nothing is cut");
            }
            thread::sleep(Duration::from_millis(10));
        }
        let bitmap = world.pool.exclusive(waited_for).unwrap();
        let search = scope.spawn(search);
        thread::sleep(Duration::from_millis(300));
        assert_eq!(world.pool.page_count(), before, "it is not cut before it may be");
        world.disk.hold_syncs(false);
        assert!(cut.join().unwrap() > 0);
        drop(bitmap);
        search.join().unwrap()
    })
}

/// A thread that looked for free pages had asked how long the file is, and waited for the bitmap page, while the file
/// was cut and the compaction ended. It took pages behind the new end, and what was written there was lost.
#[test]
fn a_search_that_began_before_a_cut_takes_nothing_behind_the_new_end() {
    let options = PoolOptions { bitmap_span: BITMAP_SPAN, ..options(3000) };
    let world = World::create_on(Default::default(), &options).unwrap();
    let (mut pages, compaction, end) = ready_to_cut(&world, 0);
    let hint = *pages.keys().next_back().unwrap();
    let new = cut_beside(&world, (compaction, end), PageId(1), || {
        let allocate = |number: u64| {
            let mut page = world.pool.allocate(hint).unwrap();
            let id = page.id();
            let payload: [&[u8]; 2] = [&id.0.to_le_bytes(), &number.to_le_bytes()];
            let lsn = world.append(ALLOCATE, &payload).unwrap();
            page.page().words().set_u64(64, number);
            drop(page.commit(lsn));
            (id, number)
        };
        (0..24).map(allocate).collect::<Vec<_>>()
    });
    pages.extend(new.iter().copied());
    let count = world.pool.page_count();
    assert!(new.iter().all(|(page, _)| u64::from(page.0) < count), "behind the end of {count}: {new:?}");
    let horizon = world.pool.sweep().unwrap();
    world.pool.flush_all().unwrap();
    assert_eq!(file_pages(&world), count);
    world.pool.check_file_end().unwrap();
    check(&world, &pages);
    world.flush_log().unwrap();
    check(&World::recover(world.disk.after_crash(CrashMode::KeepAll), &options, horizon).unwrap(), &pages);
}

/// As before, but the search waits in the last span that is left, which has nothing for it, and goes on in one that was
/// cut off with its bitmap page.
#[test]
fn a_search_that_meets_a_span_that_was_cut_off_finds_nothing_there() {
    let world = World::create(3000);
    let (pages, compaction, end) = ready_to_cut(&world, SPAN);
    let (space, count) = (&world.pool.space, world.pool.page_count());
    let last_span = (end.0 - 1) / SPAN * SPAN;
    assert!(last_span + SPAN < count, "a span is cut off");
    let search = |from, to| space.search(&world.pool, from, to, Patience::ENDLESS).unwrap();
    let taken: Vec<_> = std::iter::from_fn(|| search(last_span, end.0)).collect();
    assert!(!taken.is_empty());
    let bitmap = PageId(last_span as u32 + 1);
    let found = cut_beside(&world, (compaction, end), bitmap, || search(last_span, count));
    assert_eq!(world.pool.page_count(), end.0);
    assert!(found.is_none(), "{found:?}, behind {}", end.0);
    for run in taken {
        space.release_run(run);
    }
    check(&world, &pages);
}

/// A check of the database, which had asked how long the file is, called the bitmap page of a span damaged that was cut
/// off while it looked at another; and the free pages were said to be none.
#[test]
fn whoever_counts_pages_beside_a_cut_finds_no_damage() {
    let walks: [fn(&BufferPool) -> Result<u64>; 2] = [BufferPool::free_page_count, |pool| {
        let mut used = 0;
        pool.visit_allocated(&mut |_| used += 1).map(|()| used)
    }];
    for walk in walks {
        let world = World::create(3000);
        let (pages, compaction, end) = ready_to_cut(&world, SPAN);
        assert!((end.0 - 1) / SPAN * SPAN + SPAN < world.pool.page_count(), "a span is cut off");
        let found = cut_beside(&world, (compaction, end), PageId(1), || walk(&world.pool));
        assert_eq!(found.unwrap(), walk(&world.pool).unwrap());
        check(&world, &pages);
    }
}

/// Its run reached beyond the ceiling that somebody had lifted, and pages moved up.
#[test]
fn a_compaction_that_has_made_way_moves_no_page_up() {
    let world = World::create(600);
    _ = sparse(&world, 2300, 1);
    assert!(world.pool.page_count() >= 2048);
    let mut compaction = world.pool.begin_compaction(1000).unwrap();
    // Somebody finds no page below.
    let mut lifted = false;
    while world.allocate(1).unwrap().0 < 2300 || !lifted {
        lifted = !world.pool.space.map().lock().has_ceiling();
    }
    // What lies around the ceiling is free again.
    [999].into_iter().chain(1008..1016).for_each(|number| _ = world.free(PageId(number)).unwrap());
    for from in [PageId(1001), PageId(1000)] {
        let to = relocate(&world, &mut compaction, from);
        assert!(to.is_none_or(|to| to < from), "page {from} to {to:?}");
    }
}
