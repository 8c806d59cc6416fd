mod cleaner;
mod crash;
mod faults;
mod races;
mod read_ahead;

use foreshore_base::{CorruptionSite, Lsn, PageId, StorageError, limits::PAGE_BYTES};
use foreshore_env::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};
use foreshore_wal::Urgency;

use crate::{
    PoolOptions,
    testing::{FAR, World, once_there_is_a_frame, options, over_all},
};

fn is_corrupt_page<T>(result: Result<T, StorageError>, page: PageId, words: &str) -> bool {
    matches!(result, Err(StorageError::Corrupted { site: CorruptionSite::Page(found), detail })
        if found == page && detail.contains(words))
}

#[test]
fn pages_that_do_not_exist_are_errors() {
    over_all(|| {
        let world = World::create(8);
        for page in [PageId(0), PageId(64), PageId(u32::MAX)] {
            assert!(is_corrupt_page(world.pool.optimistic(page), page, "the file has 64 pages"));
            assert!(is_corrupt_page(world.pool.shared(page), page, "the file has 64 pages"));
            assert!(is_corrupt_page(world.pool.exclusive(page), page, "the file has 64 pages"));
        }
        // More often than there are frames: a failed load gives its frame back.
        for _ in 0..20 {
            assert!(is_corrupt_page(world.pool.shared(PageId(7)), PageId(7), "never written"));
        }
        world.pool.verify_quiescent().unwrap();
    });
}

#[test]
fn a_table_larger_than_the_pool_works() {
    over_all(|| {
        let world = World::create(8);
        let pages: Vec<_> = (0..100).map(|number| world.allocate(number).unwrap()).collect();
        for round in 0..3 {
            for (number, page) in pages.iter().enumerate() {
                assert_eq!(world.get(*page, 64).unwrap(), number as u64 + round * 1000);
                world.set(*page, 64, number as u64 + (round + 1) * 1000).unwrap();
            }
        }
        let stats = world.pool.stats();
        // Whatever the hand and the cleaner do: at the start of a round, no more than eight of its pages are there.
        let least = 3 * (100 - 8);
        assert!(stats.evictions >= least && stats.loads >= least, "{stats:?}");
        assert_eq!(stats.frames, 8);
        assert_eq!(stats.allocations, 100);
        assert!(stats.cleaner_writes + stats.dirty_evictions >= least, "{stats:?}");
        world.pool.verify_quiescent().unwrap();
    });
}

#[test]
fn a_pool_without_a_cleaner_writes_for_itself() {
    over_all(|| {
        let world = World::create_on(Default::default(), &PoolOptions { cleaners: 0, ..options(8) }).unwrap();
        let pages: Vec<_> = (0..50).map(|number| world.allocate(number).unwrap()).collect();
        for (number, page) in pages.iter().enumerate() {
            assert_eq!(world.get(*page, 64).unwrap(), number as u64);
        }
        let stats = world.pool.stats();
        assert_eq!(stats.cleaner_writes, 0);
        assert!(stats.dirty_evictions + stats.helped_writes >= 42, "{stats:?}");
    });
}

#[test]
fn a_clean_pool_stays_clean_and_reads_nothing() {
    over_all(|| {
        let world = World::create(64);
        let pages: Vec<_> = (0..30).map(|number| world.allocate(number).unwrap()).collect();
        world.pool.sweep().unwrap();
        let before = world.pool.stats();
        assert_eq!(before.frames_dirty, 0);
        for page in &pages {
            world.get(*page, 64).unwrap();
            world.get_optimistic(*page, |words| words.u64(64)).unwrap();
            drop(world.pool.exclusive(*page).unwrap());
        }
        world.pool.sweep().unwrap();
        assert_eq!(world.pool.stats(), before);
    });
}

#[test]
fn an_exhausted_pool_is_an_error_in_bounded_time() {
    over_all(|| {
        let wait = Duration::from_millis(300);
        let world =
            World::create_on(Default::default(), &PoolOptions { frame_wait: wait, ..options(8) }).unwrap();
        let allocate = |number| once_there_is_a_frame(|| world.allocate(number));
        let pages: Vec<_> = (0..9).map(allocate).collect();
        let hold = |page: &PageId| once_there_is_a_frame(|| world.pool.shared(*page));
        let held: Vec<_> = pages[..8].iter().map(hold).collect();
        let start = Instant::now();
        let result = world.pool.shared(pages[8]);
        assert!(matches!(result, Err(StorageError::PoolExhausted { frames: 8, .. })), "{result:?}");
        assert!((wait..FAR).contains(&start.elapsed()), "{:?}", start.elapsed());
        drop(held);
        assert_eq!(once_there_is_a_frame(|| world.get(pages[8], 64)), 8);
        world.pool.verify_quiescent().unwrap();
    });
}

/// Many threads, each with a page that it keeps and one that it wants: some must be told, all of them end, and then
/// there is room again.
#[test]
fn more_pages_held_than_frames_is_an_error_for_all() {
    over_all(|| {
        let wait = Duration::from_millis(100);
        let world =
            World::create_on(Default::default(), &PoolOptions { frame_wait: wait, ..options(12) }).unwrap();
        let allocate = |number| once_there_is_a_frame(|| world.allocate(number));
        let pages: Vec<_> = (0..40).map(allocate).collect();
        world.pool.sweep().unwrap();
        let start = Instant::now();
        let answered = AtomicUsize::new(0);
        let refused: usize = thread::scope(|scope| {
            let holders: Vec<_> = (0..20)
                .map(|holder| {
                    let (world, pages, answered) = (&world, &pages, &answered);
                    scope.spawn(move || {
                        let first = world.pool.shared(pages[holder]);
                        // Whoever has a page keeps it until all have been answered.
                        answered.fetch_add(1, Ordering::SeqCst);
                        let _first = match first {
                            Ok(page) => page,
                            Err(error) => {
                                assert!(
                                    matches!(error, StorageError::PoolExhausted { frames: 12, .. }),
                                    "{error}"
                                );
                                return 1;
                            }
                        };
                        while answered.load(Ordering::SeqCst) < 20 {
                            thread::sleep(Duration::from_millis(1));
                        }
                        match world.pool.exclusive(pages[20 + holder]) {
                            Ok(_) => 0,
                            Err(StorageError::PoolExhausted { frames: 12, .. }) => 1,
                            Err(error) => panic!("{error}"),
                        }
                    })
                })
                .collect();
            holders.into_iter().map(|holder| holder.join().unwrap()).sum()
        });
        assert!(refused >= 8, "{refused} were refused");
        assert!(start.elapsed() < FAR, "{:?}", start.elapsed());
        for (number, page) in pages.iter().enumerate() {
            assert_eq!(once_there_is_a_frame(|| world.get(*page, 64)), number as u64);
        }
        world.pool.verify_quiescent().unwrap();
    });
}

#[test]
fn optimistic_pages_tell_when_they_are_outdated() {
    over_all(|| {
        let world = World::create(8);
        let id = world.allocate(1).unwrap();
        let page = world.pool.optimistic(id).unwrap();
        assert!(page.validate());
        assert!(page.share().is_some() && page.validate());
        // A shared holder stops nobody who only reads, and everybody who wants to write.
        let shared = world.pool.shared(id).unwrap();
        assert!(page.upgrade().is_none() && page.validate());
        assert_eq!(shared.version(), page.version());
        let again = shared.release();
        let mut exclusive = page.upgrade().unwrap();
        assert!(!page.validate() && page.share().is_none() && page.upgrade().is_none());
        world.set_on(&mut exclusive, 64, 2).unwrap();
        let shared = exclusive.downgrade();
        assert!(!again.validate() && shared.words().u64(64) == 2 && shared.release().validate());

        // Eviction outdates it too, though the bytes are the same when the page comes back.
        let page = world.pool.optimistic(id).unwrap();
        let others: Vec<_> = (0..20).map(|number| world.allocate(number).unwrap()).collect();
        // As often as it takes: a page that the cleaner is writing stays where it is.
        let start = Instant::now();
        while world.pool.resident(id).is_some() && start.elapsed() < FAR {
            others.iter().for_each(|other| drop(world.pool.shared(*other).unwrap()));
        }
        assert!(!page.validate() && page.upgrade().is_none() && page.share().is_none());
        assert_eq!(world.get(id, 64).unwrap(), 2);
    });
}

#[test]
fn one_image_for_each_horizon() {
    let world = World::create(16);
    let id = world.allocate(0).unwrap();
    let images = || world.pool.stats().images;
    let start = images();
    // The record that made the page holds it whole.
    world.set(id, 64, 1).unwrap();
    world.set(id, 64, 2).unwrap();
    assert_eq!(images(), start);
    world.pool.sweep().unwrap();
    for number in 3..6 {
        world.set(id, 64, number).unwrap();
        assert_eq!(images(), start + 1);
    }
    // Written or not does not matter.
    world.pool.flush_all().unwrap();
    world.set(id, 64, 6).unwrap();
    assert_eq!(images(), start + 1);
    world.pool.sweep().unwrap();
    world.set(id, 64, 7).unwrap();
    assert_eq!(images(), start + 2);
}

#[test]
fn a_failed_preparation_changes_nothing() {
    let world = World::create(16);
    let id = world.allocate(5).unwrap();
    world.pool.sweep().unwrap();
    world.log.poison("a test");
    let mut page = world.pool.exclusive(id).unwrap();
    let before = page.words().snapshot();
    assert!(matches!(page.prepare(Urgency::Work), Err(StorageError::Poisoned { .. })));
    assert!(matches!(page.prepare(Urgency::Ending), Err(StorageError::Poisoned { .. })));
    assert_eq!(page.words().snapshot().0, before.0);
    drop(page);
    assert_eq!(world.pool.stats().frames_dirty, 0);
}

/// A page that was prepared and then not changed depends on its image all the same (PAGE-3; the disk looks on).
#[test]
fn an_image_is_durable_before_its_page() {
    let world = World::create(16);
    let pages: Vec<_> = (0..10).map(|number| world.allocate(number).unwrap()).collect();
    for round in 0..10 {
        world.pool.sweep().unwrap();
        let images = world.pool.stats().images;
        for page in &pages {
            world.pool.exclusive(*page).unwrap().prepare(Urgency::Work).unwrap();
        }
        assert_eq!(world.pool.stats().images, images + 10, "round {round}");
        world.pool.flush_all().unwrap();
    }
    world.watch.check();
}

#[test]
fn a_pool_opens_what_it_closed() {
    over_all(|| {
        let world = World::create(16);
        let pages: Vec<_> = (0..40).map(|number| world.allocate(number).unwrap()).collect();
        let horizon = world.pool.sweep().unwrap();
        let disk = world.disk.clone();
        drop(world);
        for frames in [8, 64] {
            let world = World::recover(disk.clone(), &options(frames), horizon).unwrap();
            for (number, page) in pages.iter().enumerate() {
                assert_eq!(world.get(*page, 64).unwrap(), number as u64);
            }
            assert!(world.pool.page_count() >= 64);
            assert_eq!(world.pool.stats().loads, 40);
            world.pool.verify_quiescent().unwrap();
        }
    });
}

/// PAGE-13: whoever still uses the pool may read, but neither a sweep nor an eviction writes.
#[test]
fn nothing_is_written_after_closing() {
    over_all(|| {
        let world = World::create(8);
        let pages: Vec<_> = (0..8).map(|number| world.allocate(number).unwrap()).collect();
        world.pool.sweep().unwrap();
        for page in &pages {
            world.set(*page, 64, 7).unwrap();
        }
        world.pool.close();
        let before = world.watch.pages_written.load(Ordering::Relaxed);
        assert!(matches!(world.pool.sweep(), Err(StorageError::Closed)));
        assert!(matches!(world.pool.flush_all(), Err(StorageError::Closed)));
        assert_eq!(world.get(pages[7], 64).unwrap(), 7);
        // Until there is no clean frame for another page.
        while world.allocate(9).is_ok() {}
        assert_eq!(world.watch.pages_written.load(Ordering::Relaxed), before);
    });
}

#[test]
fn limits_of_a_pool() {
    let world = World::create_on(Default::default(), &PoolOptions { bytes: 0, ..options(8) }).unwrap();
    assert_eq!(world.pool.frame_count(), 8);
    let too_many = PoolOptions { bytes: (u32::MAX as usize + 7) * PAGE_BYTES, ..options(8) };
    let result = World::create_on(Default::default(), &too_many);
    assert!(matches!(result.map(|_| ()), Err(StorageError::LimitExceeded { .. })));
    assert_eq!(world.pool.horizon(), world.log.tail());
    world.pool.set_redo_horizon(Lsn(9));
    assert_eq!(world.pool.horizon(), Lsn(9));
}
