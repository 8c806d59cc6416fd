//! How lines move between caches.

use super::*;
use crate::sim::set_charging;

/// So many cores of one socket, with a change to their profile.
pub(super) fn machine_with(cores: usize, change: impl FnOnce(&mut Profile)) -> Settings {
    let mut profile = Profile::named("xeon2x10").unwrap().clone();
    (profile.threads_per_core, profile.retention_percent) = (1, 0);
    change(&mut profile);
    Settings { world: World::Machine { profile: Box::new(profile), cores }, ..machine(cores) }
}

/// Threads that add to one word: what the machine says, and how long it took.
fn add(settings: &Settings, threads: usize) -> (MachineReport, Duration) {
    let word = AtomicU64::new(0);
    let each = 10_000;
    let added = hammer(settings, threads, |_| (0..each).for_each(|_| _ = word.fetch_add(1, SeqCst)));
    assert_eq!(word.load(SeqCst), each * threads as u64);
    added
}

/// What one hardware thread of a core changes does not move to the other.
#[test]
fn threads_of_one_core_have_its_caches_in_common() {
    let moves = |threads_per_core| {
        let settings = machine_with(2, |profile| profile.threads_per_core = threads_per_core);
        add(&settings, 2).0.lines_from_socket
    };
    let (apart, together) = (moves(1), moves(2));
    assert!(apart > 1000 && together < 50, "{apart} {together}");
}

/// A line that does not move changes all the same: who sleeps while it spins is woken.
#[test]
fn a_spinning_thread_sees_what_the_other_of_its_core_changes() {
    for threads_per_core in [1, 2] {
        let flag = AtomicU64::new(0);
        let settings = machine_with(2, |profile| profile.threads_per_core = threads_per_core);
        let (_, took) = hammer(&settings, 2, |number| match number {
            0 => assert!(hint::spin_until(u64::MAX, || flag.load(SeqCst) == 1)),
            _ => {
                hint::work(100_000);
                flag.store(1, Release);
            }
        });
        assert!((100..200).contains(&took.as_micros()), "{took:?}");
    }
}

/// A change that waits until stores before it have come takes effect when its own line has been with others again: who
/// sleeps while it spins there is woken.
#[test]
fn a_spinning_thread_sees_a_change_that_waited_for_stores() {
    for threads_per_core in [1, 2] {
        let (flag, cold) = (CachePadded::new(AtomicU64::new(0)), CachePadded::new(AtomicU64::new(0)));
        let settings = machine_with(2, |profile| {
            profile.threads_per_core = threads_per_core;
            profile.memory = [(10_000.0 * profile.gigahertz) as u64; 4];
        });
        let (_, took) = hammer(&settings, 2, |number| match number {
            0 => assert!(hint::spin_until(u64::MAX, || flag.load(SeqCst) == 1)),
            _ => {
                hint::work(100_000);
                cold.store(1, Release);
                flag.swap(1, SeqCst);
            }
        });
        assert!((100..200).contains(&took.as_micros()), "{threads_per_core}: {took:?}");
    }
}

/// Transfers differ in how long they take. Who waits for a line behind somebody else changes nothing that he sees.
#[test]
fn who_is_next_comes_after_the_one_before_him() {
    let look = |seed| {
        let settings = Settings { seed, ..machine_with(4, |_| ()) };
        let run = simulate(&settings, || {
            let (word, begin) = (CachePadded::new(AtomicU64::new(0)), Instant::now());
            thread::scope(|scope| {
                // The second and the third come while the line is on its way to the first.
                let [first, second, third] = [0, 1, 2].map(|number| {
                    let word = &word;
                    scope.spawn(move || {
                        let until = begin + Duration::from_nanos(100_000 + 2 * number);
                        hint::work(until.saturating_duration_since(Instant::now()).as_nanos() as u64);
                        match number {
                            0 => word.fetch_add(1, SeqCst),
                            1 => word.load(SeqCst),
                            _ => {
                                word.store(100, Release);
                                1
                            }
                        }
                    })
                });
                [first, second, third].map(|thread| thread.join().unwrap())
            })
        });
        run.unwrap().result
    };
    for seed in 0..40 {
        assert_eq!(look(seed), [0, 1, 1], "{seed}");
    }
}

/// The system may put a stack where that of another thread lay, or elsewhere. A new thread finds no line of its stack
/// in any cache, or what a machine comes to would hang on that.
#[test]
fn a_new_stack_is_in_nobody_s_caches() {
    const THREADS: u64 = 100;
    let from_memory = |touches: bool| {
        let one_after_the_other = || {
            for _ in 0..THREADS {
                let touch = move || {
                    let word = CachePadded::new(AtomicU64::new(0));
                    if touches {
                        word.store(1, Release);
                    }
                };
                thread::spawn(touch).join().unwrap();
            }
            report().unwrap().lines_from_memory
        };
        simulate(&machine(2), one_after_the_other).unwrap().result
    };
    assert_eq!(from_memory(true) - from_memory(false), THREADS);
}

/// Where lines migrate, who loads what another has changed may change it at once; what nobody changes any more, all may
/// keep.
#[test]
fn lines_migrate_to_those_who_will_change_them() {
    let moves = |migrates, changes: u64| {
        let word = AtomicU64::new(0);
        let settings = machine_with(2, |profile| profile.migrates = migrates);
        let (report, _) = hammer(&settings, 2, |number| {
            hint::work(1000 * number as u64);
            for round in 0..100 {
                word.load(SeqCst);
                if round < changes {
                    word.fetch_add(1, SeqCst);
                }
                hint::work(2000);
            }
        });
        assert_eq!(word.load(SeqCst), 2 * changes);
        report.lines_from_socket
    };
    let (asked_twice, asked_once) = (moves(false, 100), moves(true, 100));
    assert!((350..420).contains(&asked_twice), "{asked_twice}");
    assert!((170..215).contains(&asked_once), "{asked_once}");
    let read = moves(true, 1);
    assert!(read < 50, "{read}");
}

/// Nanoseconds of a message from one core to the other, ten thousand there and back; `tell` and `heard` have the number
/// of the message.
pub(super) fn message_ns(
    change: impl FnOnce(&mut Profile),
    tell: impl Fn(u64) + Sync,
    heard: impl Fn(u64) -> bool + Sync,
) -> f64 {
    const MESSAGES: u64 = 20_000;
    let settings = machine_with(2, |profile| {
        (profile.migrates, profile.queued_percent) = (true, 100);
        change(profile);
    });
    let (_, took) = hammer(&settings, 2, |number| {
        for message in (1..=MESSAGES).filter(|message| message % 2 == number as u64) {
            while !heard(message - 1) {}
            tell(message);
        }
    });
    took.as_nanos() as f64 / MESSAGES as f64
}

/// What a word is when its line has come is seen, whoever keeps the line meanwhile: a message by exchanges takes one
/// transfer, and one to who looks at its line all the time takes two.
#[test]
fn nobody_sees_what_has_not_come() {
    let profile = Profile::named("xeon2x10").unwrap();
    let [own, load] =
        [profile.own[0], profile.load_modified[0]].map(|cycles| cycles as f64 / profile.gigahertz);
    for retention_percent in [0, 50, 100] {
        let change = |profile: &mut Profile| profile.retention_percent = retention_percent;
        let word = AtomicU64::new(0);
        let exchanges = message_ns(
            change,
            |_| (),
            |before| word.compare_exchange(before, before + 1, SeqCst, SeqCst).is_ok(),
        );
        assert!((0.95 * own..1.4 * own).contains(&exchanges), "{retention_percent}: {exchanges} of {own}");
        let words = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
        let stores = message_ns(
            change,
            |message| words[message as usize % 2].store(message, Release),
            |before| words[before as usize % 2].load(SeqCst) == before,
        );
        let both = own + load;
        assert!((0.95 * both..1.4 * both).contains(&stores), "{retention_percent}: {stores} of {both}");
    }
}

/// Transfers differ, and on average take what the profile says. One seed gives the same ones.
#[test]
fn transfers_differ_a_little() {
    let took = |spread_percent, seed| {
        let settings = machine_with(2, |profile| profile.spread_percent = spread_percent);
        // The word lies in the simulation's own memory: where a test's stack lies differs.
        let simulated = simulate(&Settings { seed, ..settings }, || {
            let word = Box::new(CachePadded::new(AtomicU64::new(0)));
            let begin = Instant::now();
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| (0..10_000).for_each(|_| _ = word.fetch_add(1, SeqCst)));
                }
            });
            begin.elapsed().as_nanos()
        });
        simulated.unwrap().result
    };
    assert_eq!(took(0, 1), took(0, 2));
    assert_eq!(took(20, 1), took(20, 1));
    assert_ne!(took(20, 1), took(20, 2));
    let ratio = took(20, 1) as f64 / took(0, 1) as f64;
    assert!((0.97..1.03).contains(&ratio), "{ratio}");
}

/// What the profile says of waking: for who wakes a thread, and until it runs.
#[test]
fn waking_takes_what_the_machine_needs() {
    let took = |wake_ns, wake_up_ns| {
        let settings = machine_with(2, |profile| {
            (profile.wake_ns, profile.wake_up_ns) = (wake_ns, wake_up_ns);
        });
        let simulated = simulate(&settings, || {
            let woken = thread::spawn(|| {
                thread::park();
                Instant::now()
            });
            thread::sleep(Duration::from_millis(1));
            let begin = Instant::now();
            woken.thread().unpark();
            let unparked = begin.elapsed();
            (unparked, woken.join().unwrap().saturating_duration_since(begin))
        });
        simulated.unwrap().result
    };
    let (short, long) = (took(1000, 3500), took(12_000, 18_000));
    assert!(
        (1000..1500).contains(&short.0.as_nanos()) && (4500..5500).contains(&short.1.as_nanos()),
        "{short:?}"
    );
    assert!(
        (12_000..12_500).contains(&long.0.as_nanos()) && (30_000..31_000).contains(&long.1.as_nanos()),
        "{long:?}"
    );
}

/// A core that has waited for a line has a part of its way behind it.
#[test]
fn lines_move_faster_when_many_want_them() {
    let took = |queued_percent| {
        let settings = machine_with(8, |profile| profile.queued_percent = queued_percent);
        add(&settings, 8).1.as_secs_f64()
    };
    let ratio = took(50) / took(100);
    assert!((0.45..0.65).contains(&ratio), "{ratio}");
}

/// Threads that are over leave their place: who comes later lies as the first ones did.
#[test]
fn new_threads_go_where_fewest_live() {
    let far_lines = |before| {
        let simulated = simulate(&machine(80), || {
            thread::scope(|scope| (0..before).for_each(|_| drop(scope.spawn(|| ()))));
            let word = AtomicU64::new(0);
            count_anew();
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| (0..20_000).for_each(|_| _ = word.fetch_add(1, SeqCst)));
                }
            });
            report().unwrap().lines_from_elsewhere
        });
        simulated.unwrap().result
    };
    // One socket has ten cores.
    for before in [0, 5, 16, 80] {
        let far = far_lines(before);
        assert!(far < 50, "{far} lines from another socket, after {before} threads");
    }
}

fn small_caches(cores: usize) -> Settings {
    machine_with(cores, |profile| (profile.own_cache_bytes, profile.cache_bytes) = (64 << 10, 1 << 20))
}

/// A core keeps what its caches have room for. The rest comes from the last cache, or from memory.
#[test]
fn caches_have_a_size() {
    let rounds = 4;
    for (count, again_from_last, again_from_memory) in [(500, 0, 0), (5000, 1, 0), (50_000, 0, 1)] {
        let words = lines(count);
        let (report, _) = hammer(&small_caches(1), 1, |_| {
            (0..rounds).for_each(|_| words.iter().for_each(|line| _ = line[0].load(SeqCst)));
        });
        let count = count as u64;
        // A few lines beside those: stacks, and the words of threads that are joined.
        let near = |seen: u64, expected: u64| (expected..expected + 20).contains(&seen);
        let from_memory = count + again_from_memory * (rounds - 1) * count;
        assert!(near(report.lines_from_memory, from_memory), "{count}: {report:?}");
        let from_last = again_from_last * (rounds - 1) * count;
        assert!(near(report.lines_from_last_cache, from_last), "{count}: {report:?}");
    }
}

/// What a core has changed is taken from it as long as it has it, and from the last cache afterwards.
#[test]
fn what_is_gone_from_a_core_is_not_taken_from_it() {
    const WHILE: u64 = 10_000_000;
    for (count, from_core, from_last) in [(500, 500..520, 0..20), (5000, 700..1300, 3700..4300)] {
        let words = lines(count);
        let (report, _) = hammer(&small_caches(3), 2, |number| match number {
            // It stays on its core, or the other would come to the same.
            0 => {
                words.iter().for_each(|line| line[0].store(1, Release));
                hint::work(2 * WHILE);
            }
            _ => {
                hint::work(WHILE);
                words.iter().for_each(|line| _ = line[0].load(SeqCst));
            }
        });
        assert!(from_core.contains(&report.lines_from_socket), "{count}: {report:?}");
        assert!(from_last.contains(&report.lines_from_last_cache), "{count}: {report:?}");
    }
}

/// What a line takes that several have is decided by the nearest of them for a load, and by the farthest for a change.
#[test]
fn a_change_waits_for_the_farthest_copy() {
    let nanoseconds = |changes: bool| {
        let settings = machine_with(4, |profile| {
            (profile.cores_per_cluster, profile.spread_percent) = (2, 0);
            (profile.load_shared, profile.own) = ([100, 1000, 1000, 1000], [100, 10_000, 10_000, 10_000]);
        });
        let (words, slowest) = (lines(100), AtomicU64::new(0));
        // The first three have each line: one beside the last, and those of the other cluster.
        hammer(&settings, 4, |number| {
            if number < 3 {
                hint::work(100_000 * number as u64);
                return words.iter().for_each(|line| _ = line[0].load(SeqCst));
            }
            hint::work(1_000_000);
            let begin = Instant::now();
            words.iter().for_each(|line| {
                _ = if changes { line[0].fetch_add(1, SeqCst) } else { line[0].load(SeqCst) }
            });
            slowest.store(begin.elapsed().as_nanos() as u64 / 100, Release);
        });
        slowest.into_inner()
    };
    let (load, change) = (nanoseconds(false), nanoseconds(true));
    assert!(load < 200, "{load} ns");
    assert!(change > 4000, "{change} ns");
}

/// The clusters of the second socket begin where it does. They were counted through: of those of `gnr2x128`, three to a
/// socket of 128 cores, one lay in both sockets.
#[test]
fn a_cluster_lies_in_one_socket() {
    let nanoseconds = |others: &[usize], changes: bool| {
        let settings = machine_with(10, |profile| {
            (profile.sockets, profile.cores_per_socket, profile.cores_per_cluster) = (2, 5, 2);
            profile.spread_percent = 0;
            (profile.load_shared, profile.load_modified) =
                ([100, 10_000, 100_000, 100_000], [100, 10_000, 100_000, 100_000]);
        });
        let (words, took) = (lines(100), AtomicU64::new(0));
        hammer(&settings, others.len() + 1, |number| {
            thread::pin(others.get(number).copied().unwrap_or(6));
            hint::work(10_000_000 * number as u64);
            let begin = Instant::now();
            words.iter().for_each(|line| match changes && number < others.len() {
                true => line[0].store(1, Release),
                false => _ = line[0].load(SeqCst),
            });
            took.store(begin.elapsed().as_nanos() as u64 / 100, Release);
        });
        took.into_inner()
    };
    for (neighbour, near) in [(5, true), (7, false), (8, false), (9, false)] {
        for (others, changes) in [(vec![neighbour], true), (vec![9, neighbour], false)] {
            let took = nanoseconds(&others, changes);
            assert!(if near { took < 200 } else { (4000..8000).contains(&took) }, "{others:?}: {took} ns");
        }
    }
}

/// What was prepared lies in the memories of all sockets, and in their last caches as far as there is room.
#[test]
fn what_was_prepared_lies_everywhere() {
    const COUNT: u64 = 10_000;
    let sources = |cores_per_socket, cache_bytes| {
        let settings = machine_with(4, |profile| {
            (profile.sockets, profile.cores_per_socket, profile.cores_per_cluster) =
                (2, cores_per_socket, cores_per_socket);
            (profile.own_cache_bytes, profile.cache_bytes, profile.spread_percent) =
                (64 << 10, cache_bytes, 0);
            (profile.cached, profile.load_shared) = (100, [100, 100, 1000, 1000]);
            profile.memory = [2000, 2000, 4000, 4000];
        });
        let simulated = simulate(&settings, || {
            set_charging(false);
            let words = lines(2 * COUNT as usize);
            words.iter().for_each(|line| line[0].store(1, Release));
            set_charging(true);
            count_anew();
            let begin = Instant::now();
            // Not one after another: those are fetched ahead.
            words.iter().step_by(2).for_each(|line| _ = line[0].load(SeqCst));
            (report().unwrap(), begin.elapsed().as_nanos() as f64 / COUNT as f64)
        });
        simulated.unwrap().result
    };
    for (cores_per_socket, cache_bytes, is_cached, expected) in [
        // Half of it at home, half on the other socket, at 2.2 GHz.
        (2, 8 << 20, true, 550.0 / 2.2),
        (2, 256 << 10, false, 3000.0 / 2.2),
        // A socket without cores has no cache to offer, and no memory.
        (4, 8 << 20, true, 100.0 / 2.2),
        (4, 1 << 20, false, 2000.0 / 2.2),
    ] {
        let (report, each) = sources(cores_per_socket, cache_bytes);
        let (from, not_from) = match is_cached {
            true => (report.lines_from_last_cache, report.lines_from_memory),
            false => (report.lines_from_memory, report.lines_from_last_cache),
        };
        assert!(from > COUNT * 9 / 10 && not_from < COUNT / 20, "{report:?}");
        assert!((expected * 0.9..expected * 1.3).contains(&each), "{each} for {expected}");
    }
}

/// A line that two have read long ago is in the caches of neither.
#[test]
fn sharers_forget_too() {
    let words = lines(1000);
    let others = lines(20_000);
    let (report, _) = hammer(&small_caches(3), 3, |number| {
        hint::work([0, 1_000_000, 40_000_000][number]);
        words.iter().for_each(|line| _ = line[0].load(SeqCst));
        if number < 2 {
            // When both have the lines they read other things; the last one comes to what nobody has.
            hint::work(10_000_000);
            others[number * 10_000..][..10_000].iter().for_each(|line| _ = line[0].load(SeqCst));
        }
    });
    assert!(report.lines_from_socket < 1200, "{report:?}");
}

/// A core that comes to a line that is on its way from memory waits until it has come.
#[test]
fn memory_answers_both_no_earlier_than_the_first() {
    let words = lines(100);
    let last = AtomicU64::new(0);
    let settings = machine_with(2, |profile| {
        (profile.memory, profile.spread_percent, profile.window) = ([22_000; 4], 0, 0);
        (profile.load_shared, profile.load_modified) = ([22; 4], [22; 4]);
    });
    hammer(&settings, 2, |number| {
        hint::work(1000 * (1 + number as u64));
        let begin = Instant::now();
        // Not one after another: those are fetched ahead.
        words.iter().step_by(2).for_each(|line| _ = line[0].load(SeqCst));
        if number == 1 {
            last.store(begin.elapsed().as_nanos() as u64 / 50, Release);
        }
    });
    // 10 us each.
    assert!(last.load(SeqCst) > 9000, "{} ns", last.load(SeqCst));
}

/// A word that two threads take in turn went to one of them for ever: whoever lost the line had always just taken it,
/// for in the time of the change it was still there. On the real machine one in 11 goes to the other (MEASURED.md).
#[test]
fn whoever_looks_gets_what_is_taken_again_and_again() {
    let profile = Profile::named("vm2-zen4").unwrap().clone();
    let settings = Settings { world: World::Machine { profile: Box::new(profile), cores: 2 }, ..machine(2) };
    let word = CachePadded::new(AtomicU64::new(0));
    let (taken, passed) = (AtomicU64::new(0), AtomicU64::new(0));
    hammer(&settings, 2, |_| {
        let (mut last, mut mine, mut others) = (0, 0, 0);
        for _ in 0..20_000 {
            let now = loop {
                let now = word.load(SeqCst);
                if now.is_multiple_of(2) && word.compare_exchange(now, now + 1, SeqCst, SeqCst).is_ok() {
                    break now;
                }
                hint::spin_loop();
            };
            mine += 1;
            others += u64::from(now != last);
            last = now + 2;
            word.store(now + 2, Release);
        }
        taken.fetch_add(mine, SeqCst);
        passed.fetch_add(others, SeqCst);
    });
    let every = taken.into_inner() / passed.into_inner().max(1);
    assert!((8..16).contains(&every), "one in {every}");
}
