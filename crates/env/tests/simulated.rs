//! One seed gives one run. A program of its own: simulations that fail leave memory behind, and with it other addresses
//! to the next one of the same process.
#![cfg(foreshore_sim)]

use foreshore_env::{
    hint, random,
    sim::{Device, Profile, Schedule, Settings, World, simulate},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
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
