//! How long things last that begin and end in many places, such as holding a lock: for the report alone.

use super::{
    arena,
    kernel::{self, Kernel},
};

/// A moment of virtual time that a measurement remembers. To look at the clock for it takes no time, and to count what
/// has lasted since then changes nothing that the program could see.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Mark {
    /// Now.
    #[inline]
    pub fn now() -> Mark {
        Mark(kernel::with(|kernel| kernel.clock).unwrap_or(0))
    }

    /// What began then and is called `what` is over.
    pub fn ends(self, what: &'static str) {
        kernel::with(|kernel| arena::outside(|| kernel.note_span(what, self.0)));
    }
}

/// Things of one kind that have come to their end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasted {
    /// Of which kind.
    pub what: &'static str,
    /// How many.
    pub count: u64,
    /// How long they lasted together, in picoseconds.
    pub time_ps: u64,
}

impl Kernel {
    fn note_span(&mut self, what: &'static str, since: u64) {
        // Cores' clocks differ: what ends on another core may seem to end before it began.
        let time = self.clock.saturating_sub(since);
        let (count, sum) = self.lasted.entry(what).or_default();
        *count += 1;
        *sum += time;
    }

    /// What has come to its end since counting began.
    pub(super) fn lasted(&self) -> Vec<Lasted> {
        self.lasted.iter().map(|(&what, &(count, time_ps))| Lasted { what, count, time_ps }).collect()
    }
}
