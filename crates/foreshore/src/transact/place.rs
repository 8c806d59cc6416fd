//! Waiting for a place among the transactions that are open, of which there are [`MAX_TRANSACTIONS`] at most.
//!
//! [`MAX_TRANSACTIONS`]: crate::limits::MAX_TRANSACTIONS

use std::collections::VecDeque;

use foreshore_env::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, earlier},
};
use foreshore_txn::PlaceSearch;

use crate::{
    database::Database,
    error::{Error, Result},
};

/// How many of those who wait look for a place, the first ones. Were it one, each place would wait until that thread
/// has been woken.
const LOOKING: usize = 16;
/// How often they look: whoever ends a transaction tells nobody.
const LOOK: Duration = Duration::from_millis(1);
/// How long the locks of what has committed may be on their way back to the threads of partitioned execution, for
/// whoever wants one of its places: where these have no processor for so long, nobody is helped by a longer wait.
const RETURN: Duration = Duration::from_millis(100);

/// Those who wait, in the order in which they came; those first that run again, because they have given their places
/// back for nothing. Who comes while others wait waits behind them: else those who have just ended a transaction would
/// take its place again before anybody else is awake.
#[derive(Debug, Default)]
pub(crate) struct PlaceQueue {
    /// Somebody waits. Changed with `queue` locked; relaxed, because it only has to be seen soon.
    sought: AtomicBool,
    queue: Mutex<VecDeque<Arc<Condvar>>>,
}

impl PlaceQueue {
    /// Whether others wait, behind whom a transaction has to stand that runs for the first time.
    #[inline]
    fn are_sought(&self) -> bool {
        self.sought.load(Ordering::Relaxed)
    }

    /// What `begin` gives, which finds a place or waits for one. `again`: for a run that is not the first.
    #[inline]
    pub(super) fn begin<T>(
        &self,
        deadline: Option<Instant>,
        again: bool,
        mut begin: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        if again || !self.are_sought() {
            match begin() {
                Err(Error::TooManyTransactions { .. }) => {}
                begun => return begun,
            }
        }
        self.find(deadline, again, begin)
    }

    /// What `begin` gives when its turn has come and it finds a place, or the search ends.
    #[cold]
    fn find<T>(
        &self,
        deadline: Option<Instant>,
        again: bool,
        mut begin: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let seat = Arc::new(Condvar::new());
        let mut queue = self.queue.lock();
        match again {
            true => queue.push_front(Arc::clone(&seat)),
            false => queue.push_back(Arc::clone(&seat)),
        }
        self.sought.store(true, Ordering::Relaxed);
        let _leaving = Leaving { places: self, seat: &seat };
        let mut search = PlaceSearch::default();
        loop {
            let looks = queue.iter().take(LOOKING).any(|other| Arc::ptr_eq(other, &seat));
            let goes_on = search.goes_on(deadline);
            if looks || !goes_on {
                drop(queue);
                match begin() {
                    Err(Error::TooManyTransactions { .. }) if goes_on => {}
                    begun => return begun,
                }
                queue = self.queue.lock();
            }
            let end = search.end(deadline);
            let until = if looks { end.min(Instant::now() + LOOK) } else { end };
            queue = seat.wait_until(queue, until);
        }
    }
}

impl Database {
    /// What `begin` gives that has found no place, for those who do not stand in the queue. Beside partitioned
    /// execution many transactions may have committed, and keep their places until their locks are back.
    #[cold]
    pub(crate) fn begin_when_locks_are_back<T>(
        &self,
        deadline: Option<Instant>,
        mut begin: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let end = earlier(Instant::now() + RETURN, deadline);
        loop {
            let looks_again = self.inner().partitions.get().is_some() && Instant::now() < end;
            match begin() {
                Err(Error::TooManyTransactions { .. }) if looks_again => thread::sleep(LOOK),
                begun => return begun,
            }
        }
    }
}

/// Gives up a seat, and tells whoever may look then.
struct Leaving<'a> {
    places: &'a PlaceQueue,
    seat: &'a Arc<Condvar>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut queue = self.places.queue.lock();
        let own = queue.iter().position(|seat| Arc::ptr_eq(seat, self.seat));
        own.and_then(|own| queue.remove(own));
        if queue.is_empty() {
            self.places.sought.store(false, Ordering::Relaxed);
        }
        let next = queue.get(LOOKING - 1).map(Arc::clone);
        // Whoever is woken wants the mutex.
        drop(queue);
        if let Some(next) = next {
            next.notify_one();
        }
    }
}
