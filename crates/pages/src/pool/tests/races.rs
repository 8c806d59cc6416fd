//! Many threads, few frames.

use foreshore_base::{Lsn, PageId};
use foreshore_env::{
    random::Xorshift,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use foreshore_latch::Patience;
use foreshore_testkit::{CrashMode, Running};
use foreshore_wal::Urgency;

use crate::testing::{FAR, SET, World, options, over_all};

/// Where a page has its number, twice: far apart, so that a torn read sees two.
const FIRST: usize = 64;
const SECOND: usize = 8000;

const THREADS: u64 = 8;

/// Threads count up pages in a pool that holds a part of them, read them without latches, and checkpoints sweep. The
/// disk looks on (see `WatchedDisk`).
fn counters(frames: usize, page_count: u64, rounds: u64) {
    let world = World::create(frames);
    let pages: Vec<PageId> = (0..page_count).map(|_| world.allocate(0).unwrap()).collect();
    let (total, running) = (AtomicU64::new(0), Running::default());
    thread::scope(|scope| {
        let guard = running.guard();
        let sweeper = scope.spawn(|| {
            while running.is_on() {
                world.pool.sweep().unwrap();
                thread::sleep(Duration::from_millis(2));
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|seed| {
                let (world, pages, total) = (&world, &pages, &total);
                scope.spawn(move || {
                    let mut random = Xorshift::new(seed + 1);
                    for _ in 0..rounds {
                        let page = pages[random.below(page_count) as usize];
                        if random.below(3) == 0 {
                            let mut page = world.pool.exclusive(page).unwrap();
                            let number = page.words().u64(FIRST) + 1;
                            world.set_on(&mut page, FIRST, number).unwrap();
                            world.set_on(&mut page, SECOND, number).unwrap();
                            total.fetch_add(1, Ordering::Relaxed);
                        } else {
                            let read = |words: &crate::PageWords| {
                                (words.u64(FIRST), words.u64(SECOND), words.page_id())
                            };
                            let (first, second, id) = world.get_optimistic(page, read).unwrap();
                            assert_eq!((first, id), (second, page));
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop(guard);
        sweeper.join().unwrap();
    });
    let sum: u64 = pages.iter().map(|page| world.get(*page, FIRST).unwrap()).sum();
    assert_eq!(sum, total.load(Ordering::Relaxed));
    world.watch.check();
    world.pool.verify_quiescent().unwrap();
    let stats = world.pool.stats();
    assert_eq!(stats.loads, world.watch.pages_read.load(Ordering::Relaxed), "every load is one read");
    assert!(page_count < frames as u64 || stats.evictions > rounds / 4, "{stats:?}");

    // What is on the disk, and the log, is the same.
    let horizon = world.pool.sweep().unwrap();
    let disk = world.disk.clone();
    drop(world);
    let world = World::recover(disk, &options(32), horizon).unwrap();
    let again: u64 = pages.iter().map(|page| world.get(*page, SECOND).unwrap()).sum();
    assert_eq!(again, sum);
}

#[test]
fn threads_on_8_frames() {
    over_all(|| {
        counters(12, 40, 600);
    });
}

#[test]
fn threads_on_64_frames() {
    over_all(|| {
        counters(64, 200, 2000);
    });
}

#[test]
fn threads_on_frames_enough() {
    counters(256, 20, 3000);
}

/// All threads want the same absent page at once: it is read once. There are more frames than they can use up on the
/// way, so that nobody evicts it again.
#[test]
fn a_page_is_loaded_once() {
    over_all(|| {
        let world = World::create(20);
        let pages: Vec<_> = (0..60).map(|number| world.allocate(number).unwrap()).collect();
        world.pool.sweep().unwrap();
        let mut absent = 0;
        for (round, page) in pages.iter().enumerate() {
            let before = world.pool.stats();
            // Mostly not in the pool: so many others have been used since.
            for step in 1..40 {
                world.get(pages[(round + step) % pages.len()], 64).unwrap();
            }
            let resident = world.pool.resident(*page).is_some();
            let loads = world.pool.stats().loads;
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let number = world.get_optimistic(*page, |words| words.u64(64)).unwrap();
                        assert_eq!(number, round as u64);
                    });
                }
            });
            assert_eq!(world.pool.stats().loads - loads, u64::from(!resident), "{before:?}");
            absent += u64::from(!resident);
        }
        assert!(absent > 30, "{absent} of 60 pages were not there");
        world.watch.check();
    });
}

/// The sweep meets a page whose change was prepared before the horizon moved and logged after it (PAGE-8): its image is
/// older than the horizon, so it must be in the file when the sweep ends, though its recovery LSN is not below it.
#[test]
fn a_change_that_straddles_the_horizon_is_swept() {
    // Its log gets no mark by the time, which would lie between the change and the horizon.
    let world = World::create_with_a_lazy_log(16);
    let id = world.allocate(1).unwrap();
    world.pool.flush_all().unwrap();
    let mut page = world.pool.exclusive(id).unwrap();
    page.prepare(Urgency::Work).unwrap();
    let recovery_lsn = page.place().frame.recovery_lsn();
    let before = world.pool.horizon();
    thread::scope(|scope| {
        let sweep = scope.spawn(|| world.pool.sweep().unwrap());
        let start = Instant::now();
        while world.pool.horizon() == before {
            assert!(start.elapsed() < FAR, "the sweep has not begun");
            thread::sleep(Duration::from_millis(1));
        }
        let payload: [&[u8]; 3] = [&id.0.to_le_bytes(), &(FIRST as u64).to_le_bytes(), &2_u64.to_le_bytes()];
        let lsn = world.append(SET, &payload).unwrap();
        page.words().set_u64(FIRST, 2);
        page.applied(lsn);
        drop(page);
        let horizon = sweep.join().unwrap();
        assert!(recovery_lsn >= horizon && lsn >= horizon);
    });
    assert_eq!(world.pool.stats().frames_dirty, 0);
    // Not even a torn write can follow without an image behind the horizon.
    let images = world.pool.stats().images;
    world.set(id, FIRST, 3).unwrap();
    assert_eq!(world.pool.stats().images, images + 1);
    let crashed = world.disk.after_crash(CrashMode::DropUnsynced);
    let world = World::recover(crashed, &options(8), world.pool.horizon()).unwrap();
    assert_eq!(world.get(id, FIRST).unwrap(), 2);
}

/// A sweep in a pool of which every frame is dirty and wanted: those who hold latches and need frames get them.
#[test]
fn a_sweep_does_not_starve_those_who_look_for_frames() {
    over_all(|| {
        let world = World::create(8);
        let pages: Vec<_> = (0..24).map(|number| world.allocate(number).unwrap()).collect();
        let running = Running::default();
        thread::scope(|scope| {
            let _guard = running.guard();
            scope.spawn(|| {
                while running.is_on() {
                    world.pool.sweep().unwrap();
                }
            });
            let workers: Vec<_> = (0..3)
                .map(|seed| {
                    let (world, pages) = (&world, &pages);
                    scope.spawn(move || {
                        let mut random = Xorshift::new(seed + 1);
                        for _ in 0..150 {
                            // Two latches at a time, in one order.
                            let (one, other) = (random.below(12) as usize, 12 + random.below(12) as usize);
                            let mut one = world.pool.exclusive(pages[one]).unwrap();
                            let number = world.pool.shared(pages[other]).unwrap().words().u64(FIRST);
                            world.set_on(&mut one, FIRST, number).unwrap();
                        }
                    })
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
        world.pool.verify_quiescent().unwrap();
    });
}

#[test]
fn dropping_a_pool_ends_its_cleaner() {
    for _ in 0..20 {
        let world = World::create(8);
        (0..20).for_each(|number| _ = world.allocate(number).unwrap());
        let weak = foreshore_env::sync::Arc::downgrade(&world.pool);
        drop(world);
        let start = Instant::now();
        while weak.strong_count() > 0 {
            assert!(start.elapsed() < FAR, "somebody keeps the pool");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn horizons_only_rise() {
    let world = World::create(8);
    let mut last = Lsn::ZERO;
    for number in 0..5 {
        world.allocate(number).unwrap();
        let horizon = world.pool.sweep().unwrap();
        assert!(horizon > last && horizon <= world.log.tail());
        last = horizon;
    }
}

/// Readers that share a page one after the other, so that at any time somebody does, passed whoever waited to change
/// it: he was told after a minute that the page could not be latched.
#[test]
fn a_stream_of_sharers_starves_no_writer() {
    let world = World::create(16);
    let page = world.allocate(1).unwrap();
    let running = Running::default();
    thread::scope(|scope| {
        let _guard = running.guard();
        for _ in 0..THREADS {
            scope.spawn(|| {
                while running.is_on() {
                    let shared = world.pool.shared(page).unwrap();
                    thread::sleep(Duration::from_millis(1));
                    drop(shared);
                }
            });
        }
        thread::sleep(Duration::from_millis(100));
        let patience =
            Patience { deadline: Instant::now().checked_add(Duration::from_secs(20)), cancelled: None };
        for number in 0..10 {
            let mut page = world.pool.exclusive_within(page, patience).unwrap();
            world.set_on(&mut page, FIRST, number).unwrap();
        }
    });
}
