//! The cleaner: a thread that writes dirty pages before the clock hand comes to them, so that a thread that needs a
//! frame finds a clean one (Shore-MT §6.2.3). It works when the hand meets dirty pages, and sleeps otherwise: while the
//! working set fits the pool, checkpoints are all the writing there is.

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
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
    /// Taken by the one who joins.
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Bell {
    orders: Mutex<Orders>,
    rung: Condvar,
    /// A copy of `Orders::clean`, written under the mutex, so that ringing twice costs nothing. Relaxed: a ring that is
    /// missed is repeated by the next thread that meets a dirty page.
    ringing: AtomicBool,
}

/// Guarded by the mutex.
#[derive(Debug, Default)]
struct Orders {
    clean: bool,
    stop: bool,
}

impl Cleaner {
    pub(super) fn start(pool: &Arc<BufferPool>) -> Result<()> {
        let (bell, weak) = (Arc::clone(&pool.cleaner.bell), Arc::downgrade(pool));
        let work = move || {
            while bell.wait() {
                let Some(pool) = weak.upgrade() else { return };
                // A failure has stopped the database; whoever uses it next is told.
                if let Ok(written) = pool.clean_ahead() {
                    pool.counters.cleaner_writes.add(written);
                }
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

    /// Ends the thread and waits for it. Called any number of times.
    pub(super) fn stop(&self) {
        self.bell.orders.lock().stop = true;
        self.bell.rung.notify_all();
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
}

impl BufferPool {
    /// Writes dirty pages ahead of the hand that have not been used since it passed.
    fn clean_ahead(&self) -> Result<u64> {
        let (mut batch, mut written) = (Batch::new(BATCH_PAGES), 0);
        for place in self.frames_ahead((self.frame_count() / WINDOW_SHARE).max(1)) {
            if !place.frame.is_referenced() {
                batch.try_collect(place);
            }
            if batch.is_full() {
                written += batch.write(self)?;
            }
        }
        Ok(written + batch.write(self)?)
    }
}
