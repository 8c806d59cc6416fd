//! The cleaner: a thread that writes dirty pages before the clock hand comes to them, so that a thread that needs a
//! frame finds a clean one (Shore-MT §6.2.3). It looks at a part of the frames ahead of the hand, and looks again when the hand
//! has gone half of that way; while the hand stands still, because the working set fits the pool, it sleeps, and
//! checkpoints are all the writing there is.
//!
//! Whoever finds nothing but dirty pages all the same waits for the cleaner before it writes one itself: the cleaner
//! waits for the log once for many pages, and so would everybody for one.

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use super::{BufferPool, write::Batch};

/// Pages written with one wait for the log.
const BATCH_PAGES: usize = 64;
/// The share of the frames ahead of the hand that one round looks at.
const WINDOW_SHARE: usize = 4;

/// The thread and the bell that wakes it.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    bell: Arc<Bell>,
    /// When the hand has come here, in steps, the cleaner is to look at the frames ahead. Written by the cleaner, read by
    /// whoever moves the hand. Relaxed: who overlooks it meets dirty pages, and rings.
    next_round: AtomicU64,
    /// Taken by the one who joins.
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Bell {
    orders: Mutex<Orders>,
    rung: Condvar,
    /// Those who wait for clean pages sleep here.
    progress: Condvar,
    /// A copy of `Orders::clean`, written under the mutex, so that ringing twice costs nothing. Relaxed: a ring that is
    /// missed is repeated by the next thread that meets a dirty page.
    ringing: AtomicBool,
}

/// Guarded by the mutex.
#[derive(Debug, Default)]
struct Orders {
    clean: bool,
    stop: bool,
    /// There is a thread that cleans.
    working: bool,
    /// Grows with every batch that is written, and with every end of a round.
    steps: u64,
}

/// Tells those who wait that the cleaner has ended, also by a panic.
struct Farewell<'b>(&'b Bell);

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        self.0.orders.lock().working = false;
        self.0.progress.notify_all();
    }
}

impl Cleaner {
    pub(super) fn start(pool: &Arc<BufferPool>) -> Result<()> {
        let (bell, weak) = (Arc::clone(&pool.cleaner.bell), Arc::downgrade(pool));
        bell.orders.lock().working = true;
        let work = move || {
            let _farewell = Farewell(&bell);
            while bell.wait() {
                let Some(pool) = weak.upgrade() else { return };
                // A failure has stopped the database; whoever uses it next is told.
                _ = pool.clean_ahead();
                bell.tell_progress();
            }
        };
        let thread = thread::Builder::new()
            .name("foreshore-cleaner".to_owned())
            .spawn(work)
            .map_err(StorageError::io("start the page cleaner of", &pool.path))?;
        *pool.cleaner.thread.lock() = Some(thread);
        Ok(())
    }

    /// Asks for a round.
    pub(super) fn wake(&self) {
        if !self.bell.ringing.load(Ordering::Relaxed) {
            let mut orders = self.bell.orders.lock();
            orders.clean = true;
            self.bell.ringing.store(true, Ordering::Relaxed);
            self.bell.rung.notify_one();
        }
    }

    /// The hand has come to `step`.
    #[inline]
    pub(super) fn hand_is_at(&self, step: u64) {
        if step >= self.next_round.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Asks for a round, and waits until a batch is written or a round has ended, or until `deadline`. False: there is nobody
    /// who would do it.
    pub(super) fn await_progress(&self, deadline: Instant) -> bool {
        let mut orders = self.bell.orders.lock();
        let before = orders.steps;
        orders.clean = true;
        self.bell.ringing.store(true, Ordering::Relaxed);
        self.bell.rung.notify_one();
        while orders.working && !orders.stop && orders.steps == before {
            if Instant::now() >= deadline {
                return true;
            }
            orders = self.bell.progress.wait_until(orders, deadline);
        }
        orders.working && !orders.stop
    }

    /// Ends the thread and waits for it. Called any number of times.
    pub(super) fn stop(&self) {
        self.bell.orders.lock().stop = true;
        self.bell.rung.notify_all();
        self.bell.progress.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            // The pool goes with its last user, and for a moment that may be the cleaner.
            && thread.thread().id() != thread::current().id()
        {
            // A panic in there was printed when it happened; there is nothing to add.
            _ = thread.join();
        }
    }
}

impl Bell {
    /// Sleeps until there is work; false when it is to stop.
    fn wait(&self) -> bool {
        let mut orders = self.orders.lock();
        while !orders.clean && !orders.stop {
            orders = self.rung.wait(orders);
        }
        orders.clean = false;
        self.ringing.store(false, Ordering::Relaxed);
        !orders.stop
    }

    fn tell_progress(&self) {
        self.orders.lock().steps += 1;
        self.progress.notify_all();
    }
}

impl BufferPool {
    /// Writes dirty pages ahead of the hand that have not been used since it passed.
    fn clean_ahead(&self) -> Result<()> {
        let window = (self.frame_count() / WINDOW_SHARE).max(1) as u64;
        let mut step = self.hand_position();
        let end = step + window;
        self.cleaner.next_round.store(step + window / 2, Ordering::Relaxed);
        let mut batch = Batch::new(BATCH_PAGES);
        while step < end {
            let place = self.frame_of_step(step);
            if !place.frame.is_referenced() {
                batch.try_collect(place);
            }
            step += 1;
            if batch.is_full() {
                self.write_cleaned(&mut batch)?;
                // What the hand has passed meanwhile can wait for its next round.
                step = step.max(self.hand_position());
            }
        }
        self.write_cleaned(&mut batch)
    }

    fn write_cleaned(&self, batch: &mut Batch<'_>) -> Result<()> {
        let written = batch.write(self, None)?;
        if written > 0 {
            self.counters.cleaner_writes.add(written);
            self.cleaner.bell.tell_progress();
        }
        Ok(())
    }
}
