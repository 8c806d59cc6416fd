//! The committer: one thread that follows behind the log's flusher, gives back the locks that wait for a flush, and
//! wakes those who have asked for it through a ticket.
//!
//! With early release of all locks (the road) no lock waits for a flush, and the thread sleeps unless somebody polls a
//! ticket. Without it, a transaction that does not wait for its own flush leaves its locks here, so that its thread can
//! go on (flush pipelining, Johnson et al., Aether, VLDB 2010, as Kimura et al. 2012, §4.3, use it).
//!
//! TXN-12: what waits here is given back, in the order of LSNs, when its LSN is durable or never will be, all locks of
//! which that is so before anybody is woken; nothing waits here for ever, because the flush is asked for and ends.

use std::{
    cell::Cell,
    collections::BTreeMap,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use foreshore_base::Lsn;
use foreshore_env::{
    sync::{Arc, Condvar, Mutex},
    thread, thread_local,
};
use foreshore_lock::LockOwner;

use crate::{core::Core, pipeline::Shared};

/// Transactions whose locks wait here at a time, at most, but for those that this thread itself has run: each keeps one
/// of the places of open transactions.
const MAX_PARKED: usize = 256;

/// Where the task that is to be woken leaves its waker; empty when it has gone.
pub(crate) type WakerCell = Mutex<Option<Waker>>;

/// What waits for an LSN to become durable.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// The locks of a transaction of its own.
    Locks(LockOwner),
    /// The locks of a pipeline, wherever they are.
    Pipeline(Arc<Shared>),
    /// Somebody who polls a ticket.
    Ticket(Arc<WakerCell>),
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Committer {
    queue: Mutex<Queue>,
    /// The thread sleeps here.
    work: Condvar,
    /// Those who want to park locks and must not yet.
    room: Condvar,
}

/// Guarded by the mutex of [`Committer::queue`].
#[derive(Debug, Default)]
struct Queue {
    /// By LSN; the second number tells equal ones apart.
    waiting: BTreeMap<(Lsn, u64), Waiter>,
    next: u64,
    /// How many of them are [`Waiter::Locks`].
    parked: usize,
    stop: bool,
    /// The thread has ended: nobody will be served any more.
    gone: bool,
}

impl Committer {
    /// Lets `waiter` wait for `lsn`. Given back when the engine is closing: nobody would serve it.
    pub(crate) fn add(&self, lsn: Lsn, waiter: Waiter) -> Result<(), Waiter> {
        let mut queue = self.queue.lock();
        let parks = matches!(waiter, Waiter::Locks(_));
        // A task may commit where it is woken, on the very thread that would make room.
        while parks && queue.parked >= MAX_PARKED && !queue.gone && !is_here() {
            queue = self.room.wait(queue);
        }
        if queue.gone {
            return Err(waiter);
        }
        queue.parked += usize::from(parks);
        queue.next += 1;
        let number = queue.next;
        queue.waiting.insert((lsn, number), waiter);
        self.work.notify_one();
        Ok(())
    }

    /// Serves whoever is waiting, then lets the thread end.
    pub(crate) fn stop(&self) {
        self.queue.lock().stop = true;
        self.work.notify_one();
    }

    /// The lowest LSN that is waited for; sleeps until there is one. `None`: the end.
    fn next(&self) -> Option<Lsn> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(((lsn, _), _)) = queue.waiting.first_key_value() {
                return Some(*lsn);
            }
            if queue.stop {
                queue.gone = true;
                return None;
            }
            queue = self.work.wait(queue);
        }
    }

    /// Takes out those who waited for LSNs below `durable`.
    fn take_due(&self, durable: Lsn) -> BTreeMap<(Lsn, u64), Waiter> {
        let mut queue = self.queue.lock();
        let later = queue.waiting.split_off(&(durable, 0));
        let due = mem::replace(&mut queue.waiting, later);
        let parked = due.values().filter(|waiter| matches!(waiter, Waiter::Locks(_))).count();
        queue.parked -= parked;
        if parked > 0 {
            self.room.notify_all();
        }
        due
    }

    fn end(&self) {
        let mut queue = self.queue.lock();
        queue.gone = true;
        let left = mem::take(&mut queue.waiting);
        self.room.notify_all();
        drop(queue);
        // Empty, but for a thread that died: locks are given back by being dropped.
        for waiter in left.into_values() {
            if let Waiter::Ticket(cell) = waiter {
                wake(&cell);
            }
        }
    }
}

/// Ends the service, also by a panic.
struct Farewell<'a>(&'a Core);

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.log.poison("the committer died");
        }
        self.0.committer.end();
    }
}

thread_local! {
    /// Whether this thread is a committer.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's has no constant form")]
    static IS_COMMITTER: Cell<bool> = Cell::new(false);
}

/// Whether this is the thread of a committer, of whatever database.
pub(crate) fn is_here() -> bool {
    IS_COMMITTER.with(Cell::get)
}

/// The life of the committer's thread.
pub(crate) fn run_committer(core: &Arc<Core>) {
    IS_COMMITTER.with(|is| is.set(true));
    let _farewell = Farewell(core);
    while let Some(lsn) = core.committer.next() {
        // A failure is final: what is not durable now will not be, and the locks of a database that has stopped protect
        // nothing.
        let failed = core.log.flush(lsn).is_err();
        let due = core.committer.take_due(if failed { Lsn::MAX } else { core.log.durable() });
        // Who is woken may wait for any of these locks, on this very thread.
        let mut tickets = Vec::new();
        for waiter in due.into_values() {
            match waiter {
                Waiter::Locks(mut owner) => owner.release_all(None),
                Waiter::Pipeline(pipeline) => pipeline.flushed(core, failed),
                Waiter::Ticket(cell) => tickets.push(cell),
            }
        }
        tickets.iter().for_each(|cell| wake(cell));
    }
}

fn wake(cell: &WakerCell) {
    let waker = cell.lock().take();
    if let Some(waker) = waker
        && let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake()))
    {
        // What goes wrong in somebody's runtime is nothing to the commits of others; nor is what its panic carries.
        mem::forget(panic);
    }
}
