//! Pages that are brought in before anybody asks for them.

use std::path::Path;

use foreshore_base::{PageId, limits::PAGE_BYTES};
use foreshore_env::{
    random::Xorshift,
    thread,
    time::{Duration, Instant},
};

use foreshore_testkit::Running;

use crate::{
    PoolOptions,
    testing::{DATA, FAR, World, options, over_all},
};

const COUNT: u64 = 300;

/// A database of pages on disk, page n with the number n, opened with so many frames.
fn stored(frames: usize, read_ahead: usize) -> (World, Vec<PageId>) {
    let world = World::create(COUNT as usize * 2);
    let pages = (0..COUNT).map(|number| world.allocate(number).unwrap()).collect();
    let horizon = world.pool.sweep().unwrap();
    let disk = world.disk.clone();
    drop(world);
    let options = PoolOptions { read_ahead, ..options(frames) };
    (World::recover(disk, &options, horizon).unwrap(), pages)
}

/// Waits until the readers have brought so many pages, or failed to.
fn brought(world: &World, count: u64) {
    let start = Instant::now();
    while world.pool.stats().read_ahead + world.pool.stats().read_ahead_failures < count {
        assert!(start.elapsed() < FAR, "{:?}", world.pool.stats());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn named_pages_are_there_without_a_miss() {
    over_all(|| {
        let (world, pages) = stored(400, 32);
        assert_eq!(world.pool.read_ahead_window(), 32);
        let before = world.pool.stats();
        world.pool.read_ahead(&pages[..32]);
        brought(&world, 32);
        for (number, page) in pages.iter().enumerate().take(32) {
            assert_eq!(world.get(*page, 64).unwrap(), number as u64);
        }
        let stats = world.pool.stats();
        assert_eq!((stats.loads, stats.read_ahead), (before.loads, before.read_ahead + 32));
        // What is there is not read again, and more than the window is not named.
        world.pool.read_ahead(&pages[..64]);
        brought(&world, 64);
        thread::sleep(Duration::from_millis(5));
        assert_eq!(world.pool.stats().read_ahead, 64);
        world.pool.verify_quiescent().unwrap();
    });
}

#[test]
fn a_small_pool_reads_little_ahead_and_the_smallest_nothing() {
    for (frames, wanted, window) in
        [(400, 0, 0), (400, 7, 7), (400, 1000, 50), (24, 32, 3), (8, 1, 1), (8, 0, 0)]
    {
        let (world, pages) = stored(frames, wanted);
        assert_eq!(world.pool.read_ahead_window(), window);
        world.pool.read_ahead(&pages);
        brought(&world, window as u64);
        thread::sleep(Duration::from_millis(5));
        assert_eq!(world.pool.stats().read_ahead, window as u64, "of {frames} frames");
    }
}

/// Pages in use stay, whatever is named; dirty ones stay, too.
#[test]
fn what_is_hot_or_dirty_is_not_evicted_for_it() {
    over_all(|| {
        let (world, pages) = stored(64, 8);
        for (number, page) in pages[..62].iter().enumerate() {
            if number % 2 == 0 {
                world.set(*page, 64, number as u64).unwrap();
            } else {
                world.get(*page, 64).unwrap();
            }
        }
        let before = world.pool.stats();
        for named in pages[100..].chunks(8) {
            world.pool.read_ahead(named);
        }
        brought(&world, 1);
        thread::sleep(Duration::from_millis(10));
        assert_eq!(world.pool.stats().dirty_evictions, 0);
        for page in &pages[..62] {
            world.get(*page, 64).unwrap();
        }
        assert_eq!(world.pool.stats().loads, before.loads);
        world.pool.verify_quiescent().unwrap();
    });
}

/// A page that cannot be read, or is none, costs nobody anything but its own reader, who is told.
#[test]
fn what_cannot_be_read_leaves_nothing_behind() {
    over_all(|| {
        let (world, pages) = stored(400, 32);
        let offset = u64::from(pages[5].0) * PAGE_BYTES as u64;
        world.disk.fail_reads(Path::new(DATA), offset + 100..offset + 101);
        world.pool.read_ahead(&[PageId(0), PageId(u32::MAX), PageId(100_000)]);
        world.pool.read_ahead(&pages[..16]);
        brought(&world, 16);
        assert!(world.pool.stats().read_ahead_failures >= 1);
        world.pool.verify_quiescent().unwrap();
        assert!(world.pool.shared(pages[5]).is_err());
        for (number, page) in pages.iter().enumerate().take(16).filter(|(number, _)| *number != 5) {
            assert_eq!(world.get(*page, 64).unwrap(), number as u64);
        }
        world.disk.heal_reads();
        assert_eq!(world.get(pages[5], 64).unwrap(), 5);
        assert!(world.log.poisoned().is_none());
        world.pool.close();
        world.pool.read_ahead(&pages[100..132]);
    });
}

/// Readers, threads that read and write, and sweeps, in a pool that holds a part of the pages. The disk looks on.
#[test]
fn readers_and_threads_do_not_disturb_each_other() {
    over_all(|| {
        let (world, pages) = stored(48, 6);
        let running = Running::default();
        thread::scope(|scope| {
            let guard = running.guard();
            let scanner = scope.spawn(|| {
                // The others may be done before this one begins.
                let start = Instant::now();
                while running.is_on() || (world.pool.stats().read_ahead == 0 && start.elapsed() < FAR) {
                    for (at, page) in pages.iter().enumerate() {
                        if at % 3 == 0 {
                            world.pool.read_ahead(&pages[at + 1..(at + 7).min(pages.len())]);
                        }
                        assert_eq!(world.get(*page, 64).unwrap(), at as u64);
                    }
                }
            });
            let writers: Vec<_> = (0..3)
                .map(|seed| {
                    let (world, pages) = (&world, &pages);
                    scope.spawn(move || {
                        let mut random = Xorshift::new(seed + 1);
                        for round in 0..400 {
                            let page = pages[random.below(COUNT) as usize];
                            world.set(page, 128 + seed as usize * 8, round).unwrap();
                            if round % 100 == 0 {
                                world.pool.sweep().unwrap();
                            }
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            drop(guard);
            scanner.join().unwrap();
        });
        world.watch.check();
        assert!(world.pool.stats().read_ahead > 0);
        world.pool.verify_quiescent().unwrap();
    });
}
