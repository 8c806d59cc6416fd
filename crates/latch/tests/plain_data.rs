//! What the latch guards, as plain memory: holders are alone with it, or with readers, and see what the last one wrote.
//! Under ThreadSanitizer (`scripts/tsan foreshore-latch`) a missing edge is reported even when the figures come out
//! right.

#![cfg(not(any(foreshore_loom, foreshore_sim)))]

use std::thread;
use std::time::Instant;

use foreshore_env::cell::UnsafeCell;
use foreshore_latch::{ExclusiveGuard, HybridLatch, SharedGuard};

struct Guarded {
    latch: HybridLatch,
    /// Guarded by `latch`.
    content: UnsafeCell<[u64; 8]>,
}

// SAFETY: `content` is only reached through `add` and `read`, whose callers show that they hold the latch.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn add(&self, _alone: &ExclusiveGuard<'_>) {
        self.content.with_mut(|content| {
            // SAFETY: the exclusive guard keeps everybody else out as long as this reference lives.
            let content = unsafe { &mut *content };
            for word in content {
                *word += 1;
            }
        });
    }

    fn read(&self, _shared: &SharedGuard<'_>) -> u64 {
        self.content.with(|content| {
            // SAFETY: the shared guard keeps writers out as long as this reference lives.
            let content = unsafe { &*content };
            assert!(content.iter().all(|&word| word == content[0]), "torn: {content:?}");
            content[0]
        })
    }
}

fn storm(threads: u64, rounds: u64) {
    let guarded = Guarded { latch: HybridLatch::new(), content: UnsafeCell::new([0; 8]) };
    let work = |thread: u64| {
        let guarded = &guarded;
        move || {
            let latch = &guarded.latch;
            let mut added = 0;
            for round in 0..rounds {
                match (thread + round) % 6 {
                    0 => guarded.add(&latch.exclusive()),
                    1 => {
                        let guard = latch.exclusive();
                        guarded.add(&guard);
                        guarded.read(&guard.downgrade());
                    }
                    2 => {
                        let upgraded = latch.optimistic().and_then(|version| latch.upgrade(version));
                        let Some(guard) = upgraded else { continue };
                        guarded.add(&guard);
                    }
                    3 => {
                        let Ok(guard) = latch.exclusive_until(Some(Instant::now()), &mut || true) else {
                            continue;
                        };
                        guarded.add(&guard);
                    }
                    4 => {
                        let shared = latch.optimistic().and_then(|version| latch.shared_if(version));
                        if let Some(guard) = shared {
                            guarded.read(&guard);
                        }
                        continue;
                    }
                    _ => {
                        guarded.read(&latch.shared());
                        continue;
                    }
                }
                added += 1;
            }
            added
        }
    };
    let added: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(guarded.read(&guarded.latch.shared()), added, "a change was lost");
}

#[test]
fn few_threads() {
    storm(3, 30_000);
}

#[test]
fn many_more_threads_than_processors() {
    storm(64, 1_000);
}
