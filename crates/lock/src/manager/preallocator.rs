//! The pre-allocator of the staged table (Jung et al. 2013, §4.3): a thread that keeps some segments of requests ready.
//!
//! Nobody waits for it: a thread that finds nothing ready helps itself. It belongs to the lock manager and ends with
//! it.

use foreshore_env::sync::{Arc, Condvar, Mutex, Weak};
use foreshore_env::thread::{self, Builder, JoinHandle};

use super::LockManager;

/// What the thread is told.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    order: Mutex<Order>,
    given: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Sleep,
    Work,
    Stop,
}

impl Signal {
    /// Segments are running low.
    pub(crate) fn work(&self) {
        let mut order = self.order.lock();
        if *order == Order::Sleep {
            *order = Order::Work;
            self.given.notify_one();
        }
    }

    fn stop(&self) {
        *self.order.lock() = Order::Stop;
        self.given.notify_one();
    }

    /// Waits for an order; `false`: the thread has to end.
    fn wait(&self) -> bool {
        let mut order = self.order.lock();
        while *order == Order::Sleep {
            order = self.given.wait(order);
        }
        let goes_on = *order == Order::Work;
        if goes_on {
            *order = Order::Sleep;
        }
        goes_on
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Preallocator {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Preallocator {
    /// `None` if no thread can be had: then owners do all of it.
    pub(super) fn start(manager: Weak<LockManager>, signal: Arc<Signal>) -> Option<Preallocator> {
        signal.work();
        let orders = Arc::clone(&signal);
        let run = move || {
            while orders.wait() {
                let Some(manager) = manager.upgrade() else { return };
                manager.table.replenish();
            }
        };
        let thread = Builder::new().name("foreshore-locks".to_owned()).spawn(run).ok()?;
        Some(Preallocator { signal, thread: Mutex::new(Some(thread)) })
    }
}

impl Drop for Preallocator {
    fn drop(&mut self) {
        self.signal.stop();
        let thread = self.thread.lock().take();
        // The thread itself may have been the last to have the manager: then it ends as it returns from this.
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
