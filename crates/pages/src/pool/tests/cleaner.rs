//! The cleaner keeps ahead of the clock's hand; and where it cannot, waits for a frame end.

use foreshore_base::StorageError;
use foreshore_env::{
    random::Xorshift,
    thread,
    time::{Duration, Instant},
};

use crate::{
    PoolOptions,
    testing::{FAR, Rounds, World, once_there_is_a_frame, options, over_all},
};

/// Every page is changed whenever it is there, so every page that gives up its frame has been dirty. The disk is slow
/// enough to make it hard. Where the cleaner does not get its turns, others write: once more then, and they give it
/// some.
#[test]
fn hardly_anybody_writes_for_himself() {
    over_all(|| {
        for cleaners in [1, 3] {
            let mut attempts = Rounds::at_least(10);
            for attempt in 1_u64.. {
                let Err(counts) = hardly_anybody_writes(cleaners, attempt > 3) else { break };
                assert!(!attempts.are_over(attempt, false), "{counts}, again and again");
            }
        }
    });
}

/// `gives_turns`: whoever changes pages waits for a moment where hardly a frame is clean.
fn hardly_anybody_writes(cleaners: usize, gives_turns: bool) -> Result<(), String> {
    const FRAMES: usize = 64;
    let pool = PoolOptions { cleaners, ..options(FRAMES) };
    let world = World::create_on(Default::default(), &pool).unwrap();
    let pages: Vec<_> = (0..320).map(|number| world.allocate(number).unwrap()).collect();
    world.disk.set_sync_delay(Duration::from_millis(1));
    let before = world.pool.stats();
    thread::scope(|scope| {
        for part in 0..2 {
            let (world, pages) = (&world, &pages);
            scope.spawn(move || {
                let mut random = Xorshift::new(part + 1);
                for number in 0..1000 {
                    let page = pages[(random.next_u64() % pages.len() as u64) as usize];
                    world.set(page, 128, number).unwrap();
                    let moment = Instant::now() + Duration::from_millis(20);
                    let is_hard = || world.pool.stats().frames_dirty > FRAMES as u64 - 4;
                    while gives_turns && is_hard() && Instant::now() < moment {
                        thread::sleep(Duration::from_micros(100));
                    }
                }
            });
        }
    });
    let after = world.pool.stats();
    let evictions = after.evictions - before.evictions;
    let own = after.dirty_evictions - before.dirty_evictions;
    let helped = after.helped_writes - before.helped_writes;
    let cleaner = after.cleaner_writes - before.cleaner_writes;
    assert!(evictions > 1000, "{after:?}");
    world.pool.verify_quiescent().unwrap();
    if own * 20 <= evictions && helped < cleaner {
        Ok(())
    } else {
        Err(format!("{own} of {evictions}, {helped} helped, {cleaner} by the cleaner"))
    }
}

/// As it was, each thread that met only dirty pages waited for the cleaner, and wrote one by itself when that was in
/// vain: of 128 threads that inserted more than fits, most slept at any time.
#[test]
fn whoever_helps_empties_a_batch() {
    over_all(|| {
        let world =
            World::create_on(Default::default(), &PoolOptions { cleaners: 0, ..options(128) }).unwrap();
        let mut number = 0;
        while world.pool.stats().evictions == 0 {
            world.allocate(number).unwrap();
            number += 1;
            world.flush_log().unwrap();
        }
        let stats = world.pool.stats();
        assert!(stats.helped_writes > 1 && stats.dirty_evictions == 0, "{stats:?}");
        let (helped, emptied) = (stats.helped_writes, stats.evictions);
        assert!(emptied > 1, "{stats:?}");
        // The others are free.
        for more in 1..emptied {
            world.allocate(number + more).unwrap();
        }
        let stats = world.pool.stats();
        assert_eq!((stats.helped_writes, stats.dirty_evictions, stats.evictions), (helped, 0, emptied));
        world.pool.verify_quiescent().unwrap();
    });
}

/// Nothing can be written while the log's disk stands still. A thread that needs a frame then is told so in bounded
/// time, whether it waits for the cleaner or writes for itself, and nothing is left behind.
#[test]
fn a_log_that_stands_still_exhausts_the_pool_in_bounded_time() {
    over_all(|| {
        for cleaners in [0, 1, 3] {
            let wait = Duration::from_millis(200);
            let pool = PoolOptions { frame_wait: wait, cleaners, ..options(8) };
            let world = World::create_on(Default::default(), &pool).unwrap();
            let allocate = |number| once_there_is_a_frame(|| world.allocate(number));
            let pages: Vec<_> = (0..12).map(allocate).collect();
            world.pool.sweep().unwrap();
            world.disk.hold_syncs(true);
            let start = Instant::now();
            let mut changed = Vec::new();
            loop {
                let (page, asked) = (pages[changed.len()], Instant::now());
                match world.set(page, 64, 100) {
                    Ok(_) => changed.push(page),
                    Err(StorageError::PoolExhausted { frames: 8, stalled }) => {
                        assert!((wait..FAR).contains(&asked.elapsed()), "{:?}", asked.elapsed());
                        // A round of the cleaner that ends just then, in vain, looks as if the disk came on.
                        if stalled {
                            break;
                        }
                        assert!(start.elapsed() < FAR, "nobody is told of the disk");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(changed.len() <= 8, "{}", changed.len());
            world.disk.hold_syncs(false);
            for (number, page) in pages.iter().enumerate() {
                let expected = if changed.contains(page) { 100 } else { number as u64 };
                assert_eq!(once_there_is_a_frame(|| world.get(*page, 64)), expected);
            }
            world.pool.verify_quiescent().unwrap();
        }
    });
}
