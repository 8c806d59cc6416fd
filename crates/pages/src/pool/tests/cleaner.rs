//! The cleaner keeps ahead of the clock's hand; and where it cannot, waits for a frame end.

use foreshore_base::StorageError;
use foreshore_env::{
    random::Xorshift,
    thread,
    time::{Duration, Instant},
};

use crate::{
    PoolOptions,
    testing::{FAR, World, options, over_all},
};

/// Every page is changed whenever it is there, so every page that gives up its frame has been dirty. The disk is slow enough
/// to make it hard.
#[test]
fn hardly_anybody_writes_for_himself() {
    over_all(|| [1, 3].into_iter().for_each(hardly_anybody_writes));
}

fn hardly_anybody_writes(cleaners: usize) {
    let pool = PoolOptions { cleaners, ..options(64) };
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
                }
            });
        }
    });
    let after = world.pool.stats();
    let evictions = after.evictions - before.evictions;
    let own = after.dirty_evictions - before.dirty_evictions;
    assert!(evictions > 1000, "{after:?}");
    assert!(own * 20 <= evictions, "{own} of {evictions}");
    world.pool.verify_quiescent().unwrap();
}

/// Nothing can be written while the log's disk stands still. Who needs a frame then is told so in bounded time, whether it
/// waits for the cleaner or writes for itself, and nothing is left behind.
#[test]
fn a_log_that_stands_still_exhausts_the_pool_in_bounded_time() {
    over_all(|| {
        for cleaners in [0, 1, 3] {
            let wait = Duration::from_millis(200);
            let pool = PoolOptions { frame_wait: wait, cleaners, ..options(8) };
            let world = World::create_on(Default::default(), &pool).unwrap();
            let pages: Vec<_> = (0..12).map(|number| world.allocate(number).unwrap()).collect();
            world.pool.sweep().unwrap();
            world.disk.hold_syncs(true);
            let start = Instant::now();
            let mut changed = Vec::new();
            let refused = loop {
                let page = pages[changed.len()];
                match world.set(page, 64, 100) {
                    Ok(_) => changed.push(page),
                    Err(error) => break error,
                }
            };
            assert!(matches!(refused, StorageError::PoolExhausted { frames: 8, stalled: true }), "{refused}");
            assert!((wait..FAR).contains(&start.elapsed()), "{:?}", start.elapsed());
            assert!(changed.len() <= 8, "{}", changed.len());
            world.disk.hold_syncs(false);
            for (number, page) in pages.iter().enumerate() {
                let expected = if changed.contains(page) { 100 } else { number as u64 };
                assert_eq!(world.get(*page, 64).unwrap(), expected);
            }
            world.pool.verify_quiescent().unwrap();
        }
    });
}
