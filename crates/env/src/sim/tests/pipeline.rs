//! What a core does beside and between its accesses.

use super::{lines::machine_with, *};
use crate::sim::atomic::fence;

/// One core, with a change to its profile, and what some accesses to so many lines of nobody take it.
fn took(change: impl FnOnce(&mut Profile), access: impl Fn(&Line, usize) + Sync) -> (MachineReport, u64) {
    const LINES: usize = 1000;
    let mut profile = Profile::named("vm2-zen4").unwrap().clone();
    change(&mut profile);
    let settings = Settings { world: World::Machine { profile: Box::new(profile), cores: 1 }, ..machine(1) };
    // Every other line, so that none is fetched ahead.
    let words = lines(2 * LINES);
    let (report, _) = hammer(&settings, 1, |_| {
        words.iter().step_by(2).enumerate().for_each(|(number, line)| access(line, number));
    });
    let per_line = (report.computing_ps + report.memory_ps) / LINES as u64;
    (report, per_line)
}

/// A core that loads a line that nobody has may change it, too: it comes once.
#[test]
fn what_nobody_else_has_is_owned_by_who_loads_it() {
    let (report, _) = took(
        |_| {},
        |line, _| {
            line[0].load(SeqCst);
            line[1].fetch_add(1, SeqCst);
        },
    );
    assert!((1000..1020).contains(&report.lines_from_memory), "{report:?}");
    assert!(report.lines_from_socket < 20, "{report:?}");
}

/// A store does not wait for its line. A load does, and so does the change or the fence that follows a store.
#[test]
fn stores_wait_in_a_buffer() {
    let memory_ps = (Profile::named("vm2-zen4").unwrap().memory[0] as f64 * 1000.0 / 3.7) as u64;
    let own = AtomicU64::new(0);
    let (_, load) = took(|_| {}, |line, _| _ = line[0].load(SeqCst));
    let (_, store) = took(|_| {}, |line, _| line[0].store(1, Release));
    let (_, changed) = took(
        |_| {},
        |line, _| {
            line[0].store(1, Release);
            own.fetch_add(1, SeqCst);
        },
    );
    let (_, fenced) = took(
        |_| {},
        |line, _| {
            line[0].store(1, Release);
            fence(SeqCst);
        },
    );
    for waits in [load, changed, fenced] {
        assert!((memory_ps * 9 / 10..memory_ps * 12 / 10).contains(&waits), "{waits} of {memory_ps}");
    }
    assert!(store < memory_ps / 5, "{store} of {memory_ps}");
}

/// On a machine whose buffer takes a while to be empty, a change behind a store waits though both lines are there, and
/// computes meanwhile: no line is waited for.
#[test]
fn a_change_waits_for_a_store_to_a_line_that_is_there() {
    const DRAIN_CYCLES: u64 = 37;
    let own = AtomicU64::new(0);
    let access = |_: &Line, _| {
        own.store(1, Release);
        own.fetch_add(1, SeqCst);
    };
    let with = |drain| took(|profile| (profile.drain, profile.spread_percent) = (drain, 0), access).0;
    let (at_once, later) = (with(0), with(DRAIN_CYCLES));
    assert!(later.memory_ps <= at_once.memory_ps, "{at_once:?} {later:?}");
    // 10 ns for each of a thousand changes, and of the few of a thread that begins and ends.
    let waited = later.computing_ps - at_once.computing_ps;
    assert!((10_000_000..10_300_000).contains(&waited), "{waited}");
}

/// An atomic change that waits for its turn waits for the stores before it, too.
#[test]
fn a_change_of_a_line_that_is_under_way_waits_for_stores() {
    const ROUNDS: usize = 200;
    let mut profile = Profile::named("vm2-zen4").unwrap().clone();
    (profile.memory, profile.spread_percent) = ([37_000; 4], 0);
    let settings = Settings { world: World::Machine { profile: Box::new(profile), cores: 3 }, ..machine(1) };
    let cold = lines(2 * ROUNDS);
    let (word, least) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let done = AtomicU64::new(0);
    hammer(&settings, 3, |number| {
        if number > 0 {
            // So that it is under way to another all the time.
            while done.load(SeqCst) == 0 {
                word.fetch_add(1, SeqCst);
            }
            return;
        }
        for line in cold.iter().step_by(2) {
            let before = Instant::now();
            line[0].store(1, Release);
            word.fetch_add(1, SeqCst);
            least.fetch_min(before.elapsed().as_nanos() as u64, SeqCst);
        }
        done.store(1, Release);
    });
    // 37,000 cycles of 3.7 GHz.
    assert!(least.load(SeqCst) >= 10_000, "{least:?}");
}

/// Words in a row take less than words here and there.
#[test]
fn words_that_follow_each_other_need_little_computation() {
    let words = |stride: usize| {
        took(
            |profile| (profile.latch_computation, profile.memory) = (20.0, [1; 4]),
            move |line, _| (0..8).for_each(|word| _ = line[word * stride % 8].load(SeqCst)),
        )
        .1
    };
    let (row, scattered) = (words(1), words(3));
    assert!(scattered > 5 * row, "{scattered} {row}");
}

/// What follows an atomic change is done in the time that the change takes.
#[test]
fn what_follows_a_change_is_in_its_shadow() {
    let own = AtomicU64::new(0);
    let loads = |shadow: u64, count: usize| {
        took(
            |profile| (profile.shadow, profile.memory) = (shadow, [1; 4]),
            |line, _| {
                own.fetch_add(1, SeqCst);
                (0..count).for_each(|word| _ = line[word].load(SeqCst));
            },
        )
        .1
    };
    let alone = loads(8, 0);
    assert!(loads(8, 3) < alone + alone / 2, "{} {alone}", loads(8, 3));
    assert!(loads(0, 3) > loads(8, 3) + 300, "{} {}", loads(0, 3), loads(8, 3));
}

/// On x86-64 it is an exchange, which waits for the stores before it. It cost what a plain one does.
#[test]
fn a_sequentially_consistent_store_is_a_change() {
    let took = |ordering| {
        let word = AtomicU64::new(0);
        hammer(&machine_with(1, |_| ()), 1, |_| (0..10_000).for_each(|number| word.store(number, ordering))).1
    };
    let (plain, strong) = (took(Release), took(SeqCst));
    assert!(strong > 2 * plain, "{plain:?} {strong:?}");
}
