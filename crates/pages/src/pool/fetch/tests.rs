use std::io::ErrorKind;

use foreshore_env::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use foreshore_testkit::FaultyDisk;

use super::*;
use crate::{
    TransitKind,
    pool::PoolOptions,
    testing::{self, World},
};

/// PAGE-17. A program with 500 threads was stopped for longer than a minute, as a debugger or a machine that sleeps
/// does it: when it went on, everybody who waited for a latch was told that something hangs, also where the holder had
/// just let it go.
#[test]
fn a_wait_while_the_process_was_stopped_is_no_fault() {
    let world = World::create(8);
    let page = world.allocate(1).unwrap();
    let past = Instant::now();
    let wait = |patience, looks: u32, times: usize| {
        let mut limits = Vec::new();
        let outcome = world.pool.wait_for_latch(page, past, patience, |until, look| {
            limits.push(until);
            (0..looks).for_each(|_| assert!(look()));
            if limits.len() == times { Ok(()) } else { Err(WaitEnded::Deadline) }
        });
        (outcome, limits)
    };
    let (outcome, limits) = wait(Patience::ENDLESS, 1, 3);
    outcome.unwrap();
    assert_eq!(limits[0], past);
    assert!(limits[1] > past + Duration::from_secs(50) && limits[2] >= limits[1], "{limits:?}");

    // A thread that was there all the time has a reason to complain.
    let (outcome, limits) = wait(Patience::ENDLESS, FEWEST_LOOKS / 2, 9);
    assert!(matches!(outcome, Err(StorageError::Io { source, .. }) if source.kind() == ErrorKind::TimedOut));
    assert_eq!(limits.len(), 2);

    // The caller's own deadline is one of the clock.
    let patience = Patience { deadline: past.checked_sub(Duration::from_millis(1)), ..Patience::ENDLESS };
    let (outcome, limits) = wait(patience, 0, 9);
    assert!(matches!(outcome, Err(StorageError::WaitEnded { cancelled: false, .. })), "{outcome:?}");
    assert_eq!(limits.len(), 1);
}

/// The same with latches and writes that are there.
#[test]
fn what_was_let_go_after_the_deadline_is_had_all_the_same() {
    let world = World::create(8);
    let page = world.allocate(1).unwrap();
    let past = Instant::now();
    let place = world.pool.resident(page).unwrap();
    for way in 0..3 {
        let held = (way < 2).then(|| world.pool.exclusive(page).unwrap());
        let write = (way == 2).then(|| place.frame.begin_write().unwrap());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| match way {
                0 => world.pool.wait_shared(place, page, past, Patience::ENDLESS).is_ok(),
                1 => world.pool.wait_exclusive(place, page, past, Patience::ENDLESS).is_ok(),
                _ => place.frame.await_write(past),
            });
            thread::sleep(Duration::from_millis(50));
            drop((held, write));
            assert!(waiter.join().unwrap(), "way {way}");
        });
    }
}

/// Whoever wants a page that another thread brings in, or still waits for a frame for, waits for that no longer than it
/// may, however the pool knows of it.
#[test]
fn whoever_wants_a_page_on_its_way_waits_no_longer_than_it_may() {
    const WAIT: Duration = Duration::from_millis(30);
    for transit in TransitKind::ALL {
        let options = PoolOptions { transit, ..testing::options(8) };
        let world = World::create_on(FaultyDisk::new(), &options).unwrap();
        let page = world.allocate(1).unwrap();
        while world.pool.resident(page).is_some() {
            world.allocate(2).unwrap();
        }
        let permit = world.pool.enter_transit(page, Patience::ENDLESS).unwrap().unwrap();
        let flag = AtomicBool::new(false);
        for cancelled in [false, true] {
            let outcome = thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let begin = Instant::now();
                    let patience = match cancelled {
                        true => Patience { deadline: None, cancelled: Some(&flag) },
                        false => Patience { deadline: Some(begin + WAIT), cancelled: None },
                    };
                    let outcome = world.pool.enter_transit(page, patience).map(|permit| permit.is_some());
                    // Half of what a fault would take.
                    assert!(begin.elapsed() < Duration::from_secs(30), "{transit:?}");
                    outcome
                });
                thread::sleep(WAIT);
                flag.store(cancelled, Ordering::Release);
                waiter.join().unwrap()
            });
            let ended =
                matches!(&outcome, Err(StorageError::WaitEnded { cancelled: by, .. }) if *by == cancelled);
            // On the road a page on its way is in its frame, latched.
            let in_frame = transit == TransitKind::InFrame && matches!(outcome, Ok(true));
            assert!(ended || in_frame, "{transit:?}: {outcome:?}");
        }
        drop(permit);
        assert_eq!(world.get(page, 64).unwrap(), 1, "{transit:?}");
    }
}
