//! Threads that do for an engine, again and again, what its library has no thread for.

use std::mem;

use foreshore_env::{
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::engine::Failure;

/// How often lazy commits that stay in memory are made durable: as often as Foreshore writes its log.
pub(super) const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// The threads of an engine. They end when they are stopped, or dropped with the engine; an engine that wants to know
/// how they fared stops them.
#[derive(Default)]
pub(super) struct Keepers {
    end: Arc<End>,
    /// Taken by whoever stops them first.
    threads: Mutex<Vec<Keeper>>,
}

/// A thread, and how it fared.
type Keeper = thread::JoinHandle<Result<(), Failure>>;

/// When threads are to end.
#[derive(Default)]
struct End {
    has_come: Mutex<bool>,
    comes: Condvar,
}

impl End {
    /// Waits so long, or until the end comes; whether it has.
    fn comes_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut has_come = self.has_come.lock();
        while !*has_come && Instant::now() < deadline {
            has_come = self.comes.wait_until(has_come, deadline);
        }
        *has_come
    }
}

impl Keepers {
    /// Calls `keep` in a thread, so often, until it fails or the threads are stopped; fails if there can be no thread.
    pub(super) fn keep(
        &self,
        every: Duration,
        mut keep: impl FnMut() -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let end = Arc::clone(&self.end);
        let keeper = thread::Builder::new().spawn(move || {
            while !end.comes_within(every) {
                keep()?;
            }
            Ok(())
        });
        let failed = |error| Failure::fatal(format!("cannot start a thread beside the engine: {error}"));
        self.threads.lock().push(keeper.map_err(failed)?);
        Ok(())
    }

    /// Ends the threads. The failure is that of the first that failed.
    pub(super) fn stop(&self) -> Result<(), Failure> {
        *self.end.has_come.lock() = true;
        self.end.comes.notify_all();
        let keepers = mem::take(&mut *self.threads.lock());
        let join = |keeper: Keeper| keeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let ended: Vec<_> = keepers.into_iter().map(join).collect();
        ended.into_iter().collect()
    }
}

impl Drop for Keepers {
    fn drop(&mut self) {
        // Whoever wants to know how they fared has stopped them.
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_keeper_comes_again_until_it_is_stopped_or_fails() {
        let keepers = Keepers::default();
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        keepers
            .keep(Duration::from_millis(1), move || {
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
        while count.load(Ordering::Relaxed) < 3 {
            thread::yield_now();
        }
        keepers.stop().unwrap();
        assert_eq!(Arc::strong_count(&count), 1, "what it kept is gone");

        let keepers = Keepers::default();
        keepers.keep(Duration::from_secs(3600), || Ok(())).unwrap();
        keepers.keep(Duration::ZERO, || Err(Failure::fatal("the disk is full"))).unwrap();
        while !keepers.threads.lock()[1].is_finished() {
            thread::yield_now();
        }
        assert_eq!(keepers.stop().unwrap_err().to_string(), "the disk is full");
    }
}
