//! One seed gives one run. A program of its own: simulations that fail leave memory behind, and with it other addresses
//! to the next one of the same process.
#![cfg(foreshore_sim)]

use foreshore_env::{
    CachePadded, hint, random,
    sim::{Device, MachineReport, Profile, Schedule, Settings, World, report, simulate},
    sync::{
        Mutex,
        atomic::{
            AtomicU64,
            Ordering::{Release, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

fn settings(seed: u64, world: World) -> Settings {
    Settings { seed, world, device: Device::named("ssd").unwrap(), limit: Duration::from_secs(60) }
}

fn machine(cores: usize) -> World {
    World::Machine { profile: Box::new(Profile::named("westmere8x10").unwrap().clone()), cores }
}

fn priorities() -> Schedule {
    Schedule::Priorities { changes: 3, within_steps: 1000 }
}

/// Threads that meet in many ways; what happened, in words.
fn babel() -> String {
    let log = Mutex::new(String::new());
    let word = AtomicU64::new(0);
    thread::scope(|scope| {
        for name in 0..6_u64 {
            let (log, word) = (&log, &word);
            scope.spawn(move || {
                let mut random = random::Xorshift::new(random::seed() ^ name);
                for _ in 0..20 {
                    match random.below(4) {
                        0 => thread::sleep(Duration::from_micros(random.below(50))),
                        1 => thread::yield_now(),
                        2 => hint::work(random.below(1000)),
                        _ => _ = word.fetch_add(name, SeqCst),
                    }
                    let line = format!("{name} {} {:?}\n", word.load(SeqCst), Instant::now());
                    // Addresses are the same in every run too.
                    let place = line.as_ptr().addr();
                    log.lock().push_str(&format!("{place:x} {line}"));
                }
            });
        }
    });
    log.into_inner()
}

#[test]
fn one_seed_gives_one_run() {
    let explorers = [World::Explorer(Schedule::Random), World::Explorer(priorities())];
    for world in [machine(1), machine(3), machine(80)].into_iter().chain(explorers) {
        let settings = settings(1, world);
        let first = simulate(&settings, babel).unwrap();
        let second = simulate(&settings, babel).unwrap();
        assert_eq!(first.result, second.result, "{settings:?}");
        assert_eq!(first.elapsed, second.elapsed);
        let other = simulate(&Settings { seed: 99, ..settings.clone() }, babel).unwrap();
        assert_ne!(first.result, other.result, "{settings:?}");
    }
}

#[test]
fn turns_replay() {
    for schedule in [Schedule::Random, priorities()] {
        let first = simulate(&settings(5, World::Explorer(schedule)), babel).unwrap();
        let again =
            simulate(&settings(5, World::Explorer(Schedule::Replayed(first.turns.clone()))), babel).unwrap();
        assert_eq!(first.result, again.result);
    }
}

/// ENV-9. Sleeping while nothing changes is no other machine: waits by `spin_until` and waits that run every round come
/// to the same times and counts, whatever is stored or changed under the latch, whether it is given back by a store or
/// by a change, and whether there are cores for all threads or not. The rounds end, too.
#[test]
fn a_spin_that_sleeps_takes_the_time_of_one_that_does_not() {
    const ROUNDS: u64 = 60;
    fn eager(rounds: u64, mut done: impl FnMut() -> bool) -> bool {
        (0..rounds).any(|_| {
            let is_done = done();
            if !is_done {
                hint::spin_loop();
            }
            is_done
        })
    }
    fn run(
        cores: usize,
        threads: u64,
        rounds: u64,
        changes: u32,
        sleeps: bool,
    ) -> (MachineReport, Duration, u64) {
        let held = CachePadded::new(AtomicU64::new(0));
        let (words, given_up) = (CachePadded::new([const { AtomicU64::new(0) }; 4]), AtomicU64::new(0));
        let work = &|number: u64| {
            for round in 0..ROUNDS {
                let enter = || held.load(SeqCst) == 0 && held.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
                let spin =
                    |rounds| if sleeps { hint::spin_until(rounds, enter) } else { eager(rounds, enter) };
                while !spin(rounds) {
                    given_up.fetch_add(1, SeqCst);
                    thread::yield_now();
                }
                words.iter().for_each(|word| match changes {
                    2 => _ = word.fetch_add(1, SeqCst),
                    _ => word.store(word.load(SeqCst) + 1, Release),
                });
                hint::work((number * 37 + round * 11) % 700);
                if changes > 0 {
                    held.swap(0, SeqCst);
                } else {
                    held.store(0, Release);
                }
            }
        };
        let simulated = simulate(&settings(1, machine(cores)), || {
            thread::scope(|scope| (0..threads).for_each(|number| _ = scope.spawn(move || work(number))));
            report().unwrap()
        })
        .unwrap();
        let (report, took) = (simulated.result, simulated.elapsed);
        assert!(words.iter().all(|word| word.load(SeqCst) == threads * ROUNDS));
        (report, took, given_up.into_inner())
    }
    let all = [(2, 2, 1000), (12, 12, 50), (20, 20, 1 << 40), (3, 8, 200)];
    for ((cores, threads, rounds), changes) in
        all.into_iter().flat_map(|each| [0, 1, 2].map(|changes| (each, changes)))
    {
        let (sleeping, sleeping_took, gave_up) = run(cores, threads, rounds, changes, true);
        let (eager, eager_took, also_gave_up) = run(cores, threads, rounds, changes, false);
        let took = ((sleeping_took, gave_up), (eager_took, also_gave_up));
        assert_eq!(took.0, took.1, "{cores} cores, {threads} threads, {changes}");
        // The hottest lines have names of places, which differ, and lie on stacks that do.
        let counted = |report: MachineReport| MachineReport { hottest: Vec::new(), ..report };
        assert_eq!(counted(sleeping), counted(eager));
    }
}
