//! How long whoever wants to begin a transaction looks for a place among those that are open, of which there are
//! [`MAX_TRANSACTIONS`](foreshore_base::limits::MAX_TRANSACTIONS) at most.

use foreshore_env::time::{Duration, Instant, earlier};

/// No search is longer: prepared transactions may be open for ever.
const LONGEST: Duration = Duration::from_secs(10);

/// A search for a place, which begins when it is first asked how long it goes on.
#[derive(Debug, Default)]
pub struct PlaceSearch {
    since: Option<Instant>,
}

impl PlaceSearch {
    /// One that has begun at that time, if it has.
    pub(crate) fn since(since: Option<Instant>) -> PlaceSearch {
        PlaceSearch { since }
    }

    /// Whether it goes on: until the deadline of who searches, and for 10 s at most.
    pub fn goes_on(&mut self, deadline: Option<Instant>) -> bool {
        Instant::now() < self.end(deadline)
    }

    /// Until when it goes on.
    pub fn end(&mut self, deadline: Option<Instant>) -> Instant {
        earlier(*self.since.get_or_insert_with(Instant::now) + LONGEST, deadline)
    }
}
