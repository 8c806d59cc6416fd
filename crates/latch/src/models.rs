//! Every interleaving, and every value that weak memory lets a load see, of small programs over the latch and the lot:
//!
//! ```text
//! RUSTFLAGS="--cfg foreshore_loom" cargo test -p foreshore-latch --release --target-dir target/loom -- --nocapture
//! ```
//!
//! The content that the latch guards is two relaxed words, as page bytes are. A stale or torn read, a lost change, a
//! wake-up that does not come (loom calls it a deadlock) or a bit left in the word fails the model. Deadlines have
//! always passed and nothing times out on its own here, so no look-around hides a lost wake-up.

mod faults;
mod gallery;
mod lot;
mod pairs;
mod triples;

// Not behind the door: it counts executions, and what loom knows of ends with each of them.
use std::sync::atomic::AtomicUsize as Counter;

use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use foreshore_env::thread;

use crate::{ExclusiveGuard, HybridLatch, Version};

/// A latch and what it guards.
struct Content {
    latch: HybridLatch,
    first: AtomicU64,
    second: AtomicU64,
}

impl Content {
    fn new() -> Content {
        Content { latch: HybridLatch::new(), first: AtomicU64::new(0), second: AtomicU64::new(0) }
    }

    /// Both words, which are equal whenever nobody is changing them.
    fn read(&self) -> (u64, u64) {
        (self.first.load(Relaxed), self.second.load(Relaxed))
    }

    /// Adds one to both words. Loses changes if two threads do it at the same time or one does not see the other's.
    fn add(&self) {
        let (first, second) = self.read();
        assert_eq!(first, second, "torn under an exclusive latch");
        self.first.store(first + 1, Relaxed);
        self.second.store(second + 1, Relaxed);
    }

    fn add_under(&self, _guard: &ExclusiveGuard<'_>) {
        self.add();
    }

    fn add_exclusively(&self) {
        self.add_under(&self.latch.exclusive());
    }

    fn read_shared(&self) {
        let _guard = self.latch.shared();
        let (first, second) = self.read();
        assert_eq!(first, second, "torn under a shared latch");
    }

    /// An optimistic read; `None` if it cannot begin.
    fn read_optimistically(&self) -> Option<(Version, (u64, u64))> {
        let version = self.latch.optimistic()?;
        Some((version, self.read()))
    }

    /// After all threads have ended: so many changes arrived, each with its version, and the latch is as new.
    fn assert_rest(&self, changes: u64, versions: u64) {
        assert_eq!(self.read(), (changes, changes), "a change was lost");
        assert_eq!(
            self.latch.optimistic(),
            Some(Version::for_model(versions)),
            "versions and changes differ"
        );
        assert_eq!(self.latch.word_for_model(), 0, "something was left in the word");
    }
}

/// Runs `main` in every interleaving with at most `preemptions` preemptions (all, if `None`), and says how many.
fn explore(name: &str, preemptions: Option<usize>, main: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(Counter::new(0));
    let counter = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(move || {
        counter.fetch_add(1, Relaxed);
        main();
    });
    let bound =
        preemptions.map_or("all interleavings".to_string(), |bound| format!("up to {bound} preemptions"));
    println!("{name}: {executions:?} executions, {bound}");
}

/// Two threads over one [`Content`], in every interleaving; the caller's is one of them. Then `check`.
fn pair(
    name: &str,
    one: fn(&Content),
    other: fn(&Content),
    check: impl Fn(&Content) + Send + Sync + 'static,
) {
    two(name, None, one, other, check);
}

/// As [`pair`], for longer programs: with a bound that is well above what any known fault needs.
fn pair_bounded(
    name: &str,
    one: fn(&Content),
    other: fn(&Content),
    check: impl Fn(&Content) + Send + Sync + 'static,
) {
    two(name, Some(5), one, other, check);
}

fn two(
    name: &str,
    preemptions: Option<usize>,
    one: fn(&Content),
    other: fn(&Content),
    check: impl Fn(&Content) + Send + Sync + 'static,
) {
    explore(name, preemptions, move || {
        let content = Arc::new(Content::new());
        let also = Arc::clone(&content);
        let thread = thread::spawn(move || other(&also));
        one(&content);
        thread.join().unwrap();
        check(&content);
    });
}

/// Three threads over one [`Content`]. Then `check`.
fn triple(
    name: &str,
    preemptions: usize,
    threads: [fn(&Content); 3],
    check: impl Fn(&Content) + Send + Sync + 'static,
) {
    explore(name, Some(preemptions), move || {
        let content = Arc::new(Content::new());
        let [one, others @ ..] = threads;
        let others = others.map(|other| {
            let also = Arc::clone(&content);
            thread::spawn(move || other(&also))
        });
        one(&content);
        for other in others {
            other.join().unwrap();
        }
        check(&content);
    });
}

/// The model must fail for this reason: what was planted has to be caught. `test` is the name of the test that calls,
/// with its module.
///
/// It runs in a process of its own: loom gives up a model whose threads sleep for ever by panicking in their midst, and
/// what they then release panics again.
fn must_fail(test: &str, because: &str, model: impl FnOnce()) {
    const PLANTED: &str = "FORESHORE_PLANTED_FAULT";
    if std::env::var_os(PLANTED).is_some() {
        return model();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([&format!("models::{test}"), "--exact", "--nocapture"])
        .env(PLANTED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "planted and not caught: {test}");
    assert!(said.contains(because), "{test}: failed, but not because of \"{because}\":\n{said}");
    println!("{test}: caught");
}
