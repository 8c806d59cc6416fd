//! What the simulated machine promises.

mod charged;
mod computed;
mod devices;
mod lines;
mod overlap;
mod panics;
mod pipeline;
mod queues;
mod spinning;

use std::{cell::Cell, ops::Deref, sync::Arc};

use super::{
    Cause, Device, Failed, MachineReport, Profile, Schedule, Settings, Simulated, World, count_anew, report,
    simulate, simulate_watched,
};
use crate::{
    CachePadded,
    disk::{Disk, OpenMode, RealDisk},
    hint,
    sync::{
        Condvar, Mutex, OnceLock, RwLock,
        atomic::{
            AtomicU64,
            Ordering::{Release, SeqCst},
        },
    },
    thread, thread_local,
    time::{Duration, Instant},
};

/// A cache line. What merely has the size of one may lie in two.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

impl Deref for Line {
    type Target = [AtomicU64; 8];

    fn deref(&self) -> &[AtomicU64; 8] {
        &self.0
    }
}

/// So many lines in a row.
fn lines(count: usize) -> Vec<Line> {
    (0..count).map(|_| Line::default()).collect()
}

fn machine(cores: usize) -> Settings {
    Settings {
        seed: 1,
        world: World::Machine { profile: Box::new(Profile::named("westmere8x10").unwrap().clone()), cores },
        device: Device::named("ssd").unwrap(),
        limit: Duration::from_secs(60),
    }
}

fn explorer(seed: u64, schedule: Schedule) -> Settings {
    Settings { seed, world: World::Explorer(schedule), ..machine(1) }
}

/// All kinds of world.
fn worlds() -> Vec<Settings> {
    let priorities = Schedule::Priorities { changes: 3, within_steps: 1000 };
    vec![machine(1), machine(3), machine(80), explorer(3, Schedule::Random), explorer(4, priorities)]
}

fn everywhere<R: Clone + PartialEq + std::fmt::Debug>(expected: &R, program: impl Fn() -> R) {
    for settings in worlds() {
        let run = simulate(&settings, &program).unwrap();
        assert_eq!(run.result, *expected, "{settings:?}");
        assert!(run.left.is_empty(), "{:?}", run.left);
    }
}

#[test]
fn threads_share_memory_and_return_results() {
    everywhere(&(4 * 100), || {
        let sum = AtomicU64::new(0);
        let returned: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            sum.fetch_add(1, SeqCst);
                        }
                        100
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(sum.load(SeqCst), returned);
        returned
    });
}

#[test]
fn a_mutex_excludes() {
    everywhere(&(8 * 50), || {
        let counter = Arc::new(Mutex::new((0, 0)));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let counter = Arc::clone(&counter);
                thread::spawn(move || {
                    for _ in 0..50 {
                        let mut guard = counter.lock();
                        guard.0 += 1;
                        thread::yield_now();
                        guard.1 += 1;
                        assert_eq!(guard.0, guard.1);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let counts = *counter.lock();
        counts.0
    });
}

/// What may happen for no reason does under the explorer, as often in a run that is replayed, and never where things
/// have costs.
#[test]
fn a_weak_exchange_may_fail_and_a_wait_end_for_no_reason() {
    let whims = || {
        let word = AtomicU64::new(7);
        let failed = (0..1000).filter(|_| word.compare_exchange_weak(7, 7, SeqCst, SeqCst).is_err()).count();
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let early = (0..200).filter(|_| {
            let deadline = Instant::now() + Duration::from_millis(1);
            drop(condvar.wait_until(mutex.lock(), deadline));
            Instant::now() < deadline
        });
        (failed, early.count())
    };
    assert_eq!(simulate(&machine(2), whims).unwrap().result, (0, 0));
    let run = simulate(&explorer(3, Schedule::Random), whims).unwrap();
    let (failed, early) = run.result;
    assert!((1..100).contains(&failed) && (1..50).contains(&early), "{:?}", run.result);
    let again = explorer(3, Schedule::Replayed(run.turns.clone()));
    assert_eq!(simulate(&again, whims).unwrap().result, run.result);
}

/// A load and a store instead of one addition lose something in nearly every world with more than one thread running:
/// that they do shows that threads interleave at every access.
#[test]
fn a_lost_update_is_found() {
    const ROUNDS: u64 = 50_000;
    let lossy = || {
        let word = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let seen = word.load(SeqCst);
                        word.store(seen + 1, Release);
                    }
                });
            }
        });
        word.load(SeqCst)
    };
    assert!(simulate(&machine(4), lossy).unwrap().result < 4 * ROUNDS);
    let lost = |seed| simulate(&explorer(seed, Schedule::Random), lossy).unwrap().result < 4 * ROUNDS;
    assert!((1..5).any(lost));
    assert_eq!(
        simulate(&machine(1), lossy).unwrap().result,
        4 * ROUNDS,
        "one core, and slices longer than the run"
    );
}

#[test]
fn sleepers_are_notified_or_wake_by_themselves() {
    everywhere(&(), || {
        let (gate, changed) = (Mutex::new(false), Condvar::new());
        let begin = Instant::now();
        let slept = changed.wait_until(gate.lock(), begin + Duration::from_millis(5));
        assert!(!*slept && begin.elapsed() >= Duration::from_millis(5), "nobody notifies");
        drop(slept);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut open = gate.lock();
                while !*open {
                    open = changed.wait(open);
                }
            });
            let waiting = thread::current();
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(1));
                waiting.unpark();
            });
            thread::park();
            *gate.lock() = true;
            changed.notify_all();
        });
    });
}

#[test]
fn a_reader_writer_lock_excludes_writers() {
    everywhere(&(6 * 40), || {
        let lock = RwLock::new((0, 0));
        thread::scope(|scope| {
            for number in 0..6 {
                let lock = &lock;
                scope.spawn(move || {
                    for round in 0..40 {
                        let read = if number % 2 == 0 { Some(lock.read()) } else { lock.try_read() };
                        assert!(read.as_ref().is_none_or(|pair| pair.0 == pair.1));
                        drop(read);
                        let mut pair = if round % 4 == 0 { lock.try_write() } else { None }
                            .unwrap_or_else(|| lock.write());
                        pair.0 += 1;
                        thread::yield_now();
                        pair.1 += 1;
                    }
                });
            }
        });
        let counts = *lock.read();
        assert!(lock.try_write().is_some() && counts.0 == counts.1);
        counts.0
    });
}

/// A thread without a stack dropped what it was to run while the kernel was borrowed.
#[test]
fn a_thread_without_a_stack_drops_its_body_in_peace() {
    struct Sleeps(Arc<AtomicU64>);
    impl Drop for Sleeps {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(1));
            self.0.fetch_add(1, SeqCst);
        }
    }
    everywhere(&1, || {
        let dropped = Arc::new(AtomicU64::new(0));
        let captured = Sleeps(Arc::clone(&dropped));
        let started = thread::Builder::new().stack_size(1 << 50).spawn(move || drop(captured));
        assert!(started.is_err());
        dropped.load(SeqCst)
    });
}

/// Whoever slept beyond the end of time did not sleep at all.
#[test]
fn the_longest_sleep_does_not_end() {
    for settings in worlds() {
        let run = simulate(&settings, || {
            let awake = Arc::new(AtomicU64::new(0));
            let also = Arc::clone(&awake);
            drop(thread::spawn(move || {
                thread::sleep(Duration::MAX);
                also.fetch_add(1, SeqCst);
            }));
            thread::sleep(Duration::from_secs(1));
            awake.load(SeqCst)
        });
        let run = run.unwrap();
        assert!(run.result == 0 && run.left.len() == 1, "{:?}", run.left);
    }
}

thread_local! {
    static MINE: Cell<u64> = Cell::new(7);
}

#[test]
fn thread_locals_belong_to_one_thread_and_end_with_it() {
    struct Ends(Arc<AtomicU64>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    thread_local! {
        static ENDS: std::cell::RefCell<Option<Ends>> = std::cell::RefCell::new(None);
    }
    everywhere(&3, || {
        let ended = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let ended = Arc::clone(&ended);
                thread::spawn(move || {
                    ENDS.with(|ends| *ends.borrow_mut() = Some(Ends(ended)));
                    assert_eq!(MINE.get(), 7);
                    MINE.set(number);
                    thread::yield_now();
                    assert_eq!(MINE.get(), number);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(MINE.get(), 7);
        ended.load(SeqCst)
    });
}

#[test]
fn a_once_cell_is_made_once() {
    everywhere(&1, || {
        let (cell, made) = (OnceLock::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let value = *cell.get_or_init(|| {
                        thread::yield_now();
                        made.fetch_add(1, SeqCst) + 40
                    });
                    assert_eq!(value, 40);
                });
            }
        });
        assert_eq!(cell.set(3), Err(3));
        made.load(SeqCst)
    });
}

#[test]
fn a_panic_is_its_threads_own() {
    everywhere(&true, || thread::spawn(|| panic!("on purpose")).join().is_err());
    for settings in worlds() {
        match simulate(&settings, || panic!("on purpose {}", 5)) {
            Err(failed @ Failed::Panicked { .. }) => assert_eq!(failed.to_string(), "panicked: on purpose 5"),
            other => panic!("{:?}", other.map(|run: Simulated<()>| run.result)),
        }
    }
}

#[test]
fn a_deadlock_is_reported_with_who_sleeps_where() {
    for settings in worlds() {
        let run = simulate(&settings, || {
            let mutex = Mutex::new(());
            let guard = mutex.lock();
            thread::scope(|scope| {
                scope.spawn(|| drop(mutex.lock()));
            });
            drop(guard);
        });
        match run {
            Err(Failed::Stopped { cause: Cause::Deadlock, threads, .. }) => {
                assert_eq!(threads.len(), 2, "{threads:?}");
                assert!(threads[1].contains("sim/tests.rs"), "{threads:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_never_ends_reaches_the_limit() {
    for settings in worlds() {
        let settings = Settings { limit: Duration::from_millis(1), ..settings };
        let run = simulate(&settings, || {
            let never = AtomicU64::new(0);
            while never.load(SeqCst) == 0 {
                hint::spin_loop();
            }
        });
        assert!(matches!(run, Err(Failed::Stopped { cause: Cause::Limit, .. })), "{run:?}");
    }
}

/// What watches may be slow, and have memory of its own: the machine does not notice.
#[test]
fn who_watches_sees_time_pass_and_changes_nothing() {
    let program = || {
        let (words, begin) = (lines(1), Instant::now());
        let count = || {
            while begin.elapsed() < Duration::from_millis(1) {
                words[0][0].fetch_add(1, SeqCst);
            }
        };
        thread::scope(|scope| {
            scope.spawn(count);
            count();
        });
        words[0][0].load(SeqCst)
    };
    let settings = machine(2);
    let plain = simulate(&settings, program).unwrap();
    let mut seen: Vec<Box<Duration>> = Vec::new();
    let watched = simulate_watched(&settings, program, &mut |now| seen.push(Box::new(now))).unwrap();
    assert_eq!(
        (watched.result, watched.accesses, watched.elapsed),
        (plain.result, plain.accesses, plain.elapsed)
    );
    assert!(seen.is_sorted() && (5..=11).contains(&seen.len()), "{seen:?}");
}

#[test]
fn files_are_there_and_syncs_take_time() {
    everywhere(&(), || {
        let directory = std::path::Path::new("/files");
        let path = directory.join("file");
        assert!(RealDisk.open(&path, OpenMode::CreateNew).is_err(), "no directory yet");
        RealDisk.create_directory(directory).unwrap();
        let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        file.write_all_at(&[7; 100_000], 65_000).unwrap();
        let mut buffer = [1; 4];
        file.read_exact_at(&mut buffer, 64_998).unwrap();
        assert_eq!(buffer, [0, 0, 7, 7]);
        file.set_len(65_001).unwrap();
        file.allocate(0..65_003).unwrap();
        file.read_exact_at(&mut buffer[..3], 65_000).unwrap();
        assert_eq!((buffer, file.len().unwrap()), ([7, 0, 0, 7], 65_003));
        let begin = Instant::now();
        file.sync().unwrap();
        assert!(begin.elapsed() >= Duration::from_micros(200), "100 µs, and 100,000 bytes at 1 GB/s");
        let also = directory.join("also");
        RealDisk.rename(&path, &also).unwrap();
        assert_eq!(RealDisk.list(directory).unwrap(), std::slice::from_ref(&also));
        let lock = RealDisk.lock(&directory.join("LOCK")).unwrap();
        assert!(RealDisk.lock(&directory.join("LOCK")).unwrap().is_none());
        drop(lock);
        assert!(RealDisk.lock(&directory.join("LOCK")).unwrap().is_some());
        RealDisk.remove(&also).unwrap();
        assert!(!RealDisk.exists(&also).unwrap());
    });
}

/// Threads that hammer memory for a while, and what the machine says of it.
fn hammer(settings: &Settings, threads: usize, body: impl Fn(usize) + Sync) -> (MachineReport, Duration) {
    let run = simulate(settings, || {
        count_anew();
        let begin = Instant::now();
        thread::scope(|scope| {
            for number in 0..threads {
                let body = &body;
                scope.spawn(move || body(number));
            }
        });
        (report().unwrap(), begin.elapsed())
    });
    run.unwrap().result
}

/// Conservation: nobody's time is lost or counted twice.
#[test]
fn the_time_of_all_cores_is_accounted_for() {
    for (cores, threads) in [(1, 5), (4, 3), (20, 50), (80, 80)] {
        let (mutex, word) = (Mutex::new(0), AtomicU64::new(0));
        let (report, _) = hammer(&machine(cores), threads, |number| {
            for round in 0..50 {
                word.fetch_add(1, SeqCst);
                *mutex.lock() += 1;
                hint::work(100);
                if round % 10 == 0 {
                    thread::sleep(Duration::from_micros(number as u64));
                    hint::spin_loop();
                }
            }
        });
        let MachineReport { computing_ps, memory_ps, spinning_ps, system_ps, idle_ps, .. } = report;
        assert_eq!(
            computing_ps + memory_ps + spinning_ps + system_ps + idle_ps,
            report.total_ps,
            "{cores} cores, {threads} threads: {report:?}"
        );
        assert!(computing_ps > 0 && system_ps > 0);
        let waited: u64 = report.waited.iter().map(|waited| waited.time_ps).sum();
        assert!(waited <= idle_ps, "{waited} of {idle_ps}");
    }
}

/// A word that all change moves once for each change when it never stays; words of their own never move.
#[test]
fn a_shared_word_does_not_scale_and_words_apart_do() {
    let changes = 20_000;
    let apart: Vec<CachePadded<AtomicU64>> = (0..20).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
    let shared = AtomicU64::new(0);
    let (alone, alone_took) = hammer(&machine(20), 1, |_| {
        (0..changes).for_each(|_| _ = shared.fetch_add(1, SeqCst));
    });
    let (together, together_took) = hammer(&machine(20), 20, |_| {
        (0..changes).for_each(|_| _ = shared.fetch_add(1, SeqCst));
    });
    let (own, own_took) = hammer(&machine(20), 20, |number| {
        (0..changes).for_each(|_| _ = apart[number].fetch_add(1, SeqCst));
    });
    assert!(together_took > alone_took * 10, "{together_took:?} {alone_took:?}");
    assert!(
        own_took < alone_took * 3,
        "twenty threads start one after the other: {own_took:?} {alone_took:?}"
    );
    let moves = |report: &MachineReport| report.lines_from_socket + report.lines_from_elsewhere;
    assert!(moves(&together) > 100 * (moves(&own) + moves(&alone)), "{together:?}");
    let hottest = &together.hottest[0];
    assert!(hottest.places[0].0.contains("sim/tests.rs"), "{hottest:?}");
}

#[test]
fn more_threads_than_cores_share_them() {
    let took =
        |cores| hammer(&machine(cores), 8, |_| (0..100).for_each(|_| hint::work(100_000))).1.as_millis();
    // Eighty milliseconds of work.
    assert!((80..90).contains(&took(1)), "{}", took(1));
    assert!((20..25).contains(&took(4)), "{}", took(4));
    assert!((10..12).contains(&took(8)), "{}", took(8));
}

/// A thread that was told to stay on a core comes back to it after each sleep, though others are idle, and nobody takes
/// it away.
#[test]
fn pinned_threads_stay_on_their_core() {
    const THREADS: usize = 4;
    const CORES: usize = THREADS + 1;
    let took = |core_of: fn(usize) -> Option<usize>| {
        let program = || {
            let (began, turns) = (Instant::now(), AtomicU64::new(0));
            thread::scope(|scope| {
                for number in 0..THREADS {
                    let turns = &turns;
                    scope.spawn(move || {
                        if let Some(core) = core_of(number) {
                            assert!(thread::pin(core));
                            assert_eq!(thread::processor(), Some(core % CORES));
                        }
                        let processors = if core_of(number).is_some() { 1 } else { CORES };
                        assert_eq!(thread::processors(), processors);
                        for _ in 0..10 {
                            hint::work(1_000_000);
                            // Until the others are as far.
                            turns.fetch_add(1, SeqCst);
                            thread::sleep(Duration::from_micros(10));
                        }
                    });
                }
                // Its core is idle now and then, and looks for somebody to run.
                (0..400).for_each(|_| thread::sleep(Duration::from_micros(10)));
            });
            began.elapsed().as_micros()
        };
        simulate(&machine(CORES), program).unwrap().result
    };
    let anywhere = took(|_| None);
    assert!((10_000..11_000).contains(&anywhere), "{anywhere} us");
    // The numbers of cores are taken modulo how many there are.
    let apart = took(|number| Some(number + 7 * CORES));
    assert!((10_000..11_000).contains(&apart), "{apart} us");
    let together = took(|_| Some(2));
    assert!((40_000..41_000).contains(&together), "{together} us");
}

/// Which cores those are: the first ten of this machine are one socket's.
#[test]
fn pinned_threads_are_as_far_apart_as_their_cores() {
    let moves = |cores: [usize; 2]| {
        let program = || {
            let [word, there] = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
            thread::scope(|scope| {
                for core in cores {
                    let (word, there) = (&word, &there);
                    scope.spawn(move || {
                        assert!(thread::pin(core));
                        there.fetch_add(1, SeqCst);
                        assert!(hint::spin_until(1_000_000, || there.load(SeqCst) == 2));
                        (0..1000).for_each(|_| _ = word.fetch_add(1, SeqCst));
                    });
                }
            });
            let report = report().unwrap();
            (report.lines_from_socket, report.lines_from_elsewhere)
        };
        simulate(&machine(20), program).unwrap().result
    };
    let (near, far) = (moves([3, 9]), moves([3, 10]));
    assert!(near.0 > 20 * near.1.max(1), "{near:?}");
    assert!(far.1 > 20 * far.0.max(1), "{far:?}");
}

/// The explorer's world has no cores.
#[test]
fn nobody_is_pinned_where_there_are_no_cores() {
    let run = simulate(&explorer(1, Schedule::Random), || {
        (thread::pin(0), thread::processors(), thread::processor())
    });
    assert_eq!(run.unwrap().result, (false, 4, None));
}

#[test]
fn impossible_machines_are_refused() {
    for cores in [0, 1025] {
        assert!(matches!(simulate(&machine(cores), || ()), Err(Failed::Settings(_))));
    }
}
