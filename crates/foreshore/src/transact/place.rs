//! Waiting for a place among the transactions that are open, of which there are [`MAX_TRANSACTIONS`] at most.
//!
//! [`MAX_TRANSACTIONS`]: crate::limits::MAX_TRANSACTIONS

use std::collections::VecDeque;

use foreshore_env::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::error::{Error, Result};

/// How long a transaction waits at most, if its deadline does not come before: prepared ones may be open for ever.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many of those who wait look for a place, the first ones. Were it one, each place would wait until that thread has
/// been woken.
const LOOKING: usize = 16;
/// How often they look: whoever ends a transaction tells nobody.
const LOOK: Duration = Duration::from_millis(1);

/// A search for a place.
#[derive(Default)]
pub(crate) struct Search {
    since: Option<Instant>,
}

impl Search {
    /// Whether it goes on, after as many transactions were open as there may be: until `by`, and for 10 s at most.
    pub(crate) fn goes_on(&mut self, by: Option<Instant>) -> bool {
        Instant::now() < self.end(by)
    }

    fn end(&mut self, by: Option<Instant>) -> Instant {
        let end = *self.since.get_or_insert_with(Instant::now) + PATIENCE;
        by.map_or(end, |by| by.min(end))
    }
}

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
    pub(super) fn are_sought(&self) -> bool {
        self.sought.load(Ordering::Relaxed)
    }

    /// What `begin` gives when its turn has come and it finds a place, or the search ends. `again`: for a run that is not
    /// the first.
    #[cold]
    pub(super) fn find<T>(
        &self,
        by: Option<Instant>,
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
        let mut search = Search::default();
        loop {
            let looks = queue.iter().take(LOOKING).any(|other| Arc::ptr_eq(other, &seat));
            let goes_on = search.goes_on(by);
            if looks || !goes_on {
                drop(queue);
                match begin() {
                    Err(Error::TooManyTransactions { .. }) if goes_on => {}
                    begun => return begun,
                }
                queue = self.queue.lock();
            }
            let end = search.end(by);
            let until = if looks { end.min(Instant::now() + LOOK) } else { end };
            queue = seat.wait_until(queue, until);
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
