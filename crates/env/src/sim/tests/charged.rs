//! What time is charged to.

use std::panic::Location;

use super::*;
use crate::{
    random::Xorshift,
    sim::{directory::Directory, kernel::Touch},
};

/// All that cores wait for memory is waited for some line: where an atomic change waits for the stores before it, too,
/// which were charged to nothing, so that a line that was only stored to had never been waited for.
#[test]
fn all_waiting_is_for_some_line() {
    let at = Location::caller();
    let profile = Profile::named("westmere8x10").unwrap().clone();
    let mut directory = Directory::new(profile, 3, 1);
    let mut random = Xorshift::new(5);
    let (mut clocks, mut booked, mut waited) = ([0, 1, 2], [None; 3], 0);
    for _ in 0..10_000 {
        let core = (0..3).min_by_key(|&core| clocks[core]).unwrap();
        let now = clocks[core];
        let waits = match booked[core].take() {
            Some((line, touch)) => directory.arrive(core, now, line, touch, at),
            None => {
                let touch =
                    [Touch::Load, Touch::Store, Touch::Store, Touch::Change][random.below(4) as usize];
                let cost = directory.access(core, now, (1 << 20) + 64 * random.below(40) as usize, touch, at);
                booked[core] = cost.booked.then_some((cost.line, touch));
                clocks[core] += cost.computing;
                cost.waiting
            }
        };
        let fence = if booked[core].is_none() && random.below(10) == 0 {
            directory.fence(core, clocks[core] + waits)
        } else {
            0
        };
        clocks[core] += waits + fence;
        waited += waits + fence;
    }
    let lines = directory.hottest(usize::MAX);
    assert!(lines.is_sorted_by(|hotter, other| hotter.waited >= other.waited));
    assert_eq!(lines.iter().map(|line| line.waited).sum::<u64>(), waited);
}

/// A line that is stored to, and on whose way the next atomic change waits.
#[test]
fn who_waits_for_its_stores_waits_for_their_lines() {
    let [mine, stored] = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
    let (report, _) = hammer(&machine(20), 2, |number| {
        for round in 0..1000 {
            stored.store(round, Release);
            if number == 0 {
                mine.fetch_add(1, SeqCst);
            }
            hint::work(1000);
        }
    });
    let hottest = &report.hottest[0];
    assert!(hottest.moves > 1000 && hottest.waited > report.memory_ps / 2, "{report:?}");
}

/// A thread that waits by looking computes nothing useful, whether the simulator runs each look or not.
#[test]
fn looks_of_a_spinning_loop_are_spinning() {
    for sleeps in [true, false] {
        let done = CachePadded::new(AtomicU64::new(0));
        let (report, _) = hammer(&machine(2), 2, |number| {
            let is_done = || done.load(SeqCst) == 1;
            match number {
                0 => {
                    hint::work(2_000_000);
                    done.store(1, Release);
                }
                _ if sleeps => assert!(hint::spin_until(u64::MAX, is_done)),
                _ => {
                    while !is_done() {
                        hint::spin_loop();
                    }
                }
            }
        });
        let MachineReport { computing_ps, spinning_ps, .. } = report;
        assert!((2_000_000_000..2_010_000_000).contains(&computing_ps), "{report:?}");
        assert!((1_900_000_000..2_100_000_000).contains(&spinning_ps), "{report:?}");
    }
}

/// Where a thread with a name sleeps is told if others wait for what it does, and not if it works in the background.
#[test]
fn who_works_in_the_background_waits_for_nothing() {
    for foreground in [false, true] {
        let report = simulate(&machine(2), || {
            count_anew();
            let life = move || {
                if foreground {
                    hint::foreground();
                }
                thread::sleep(Duration::from_millis(5));
            };
            let thread = thread::Builder::new().name("member".to_owned()).spawn(life).unwrap();
            // Not asleep: the core of the first thread does not idle.
            hint::work(6_000_000);
            thread.join().unwrap();
            report().unwrap()
        });
        let waited: u64 = report.unwrap().result.waited.iter().map(|waited| waited.time_ps).sum();
        assert_eq!(waited > 4_900_000_000, foreground, "{waited}");
    }
}
