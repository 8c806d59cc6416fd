//! What the machine is told while a benchmark runs: what is charged, and what counts.

use std::cell::{Cell, RefCell};

use foreshore_bench::Observer;
use foreshore_env::{
    sim::{self, MachineReport},
    time::Duration,
};

use crate::simulate::speed::cpu_seconds;

/// Loading is not charged, and neither are the checks: what runs between them is.
pub(super) struct Charged(Cell<bool>);

impl Charged {
    /// Nothing is charged from here on, until something runs.
    pub(super) fn loads() -> Charged {
        sim::set_charging(false);
        Charged(Cell::new(false))
    }

    /// Loading is charged, too.
    pub(super) fn all() -> Charged {
        sim::set_charging(true);
        Charged(Cell::new(true))
    }
}

impl Observer for Charged {
    fn loading(&self, _rows: u64, _of: u64) {}

    fn running(&self, _elapsed: Duration, _of: Duration, _commits: u64) {
        if !self.0.replace(true) {
            sim::set_charging(true);
        }
    }

    fn checking(&self) {
        self.0.set(false);
        sim::set_charging(false);
    }
}

/// Counts from the end of the warm-up to the end of what is measured.
pub(super) struct Watch {
    charged: Charged,
    warm_up: Duration,
    /// Seconds of CPU when the threads of the workload began, once they have.
    pub(super) began: Cell<Option<f64>>,
    counting: Cell<bool>,
    pub(super) seen: RefCell<Option<MachineReport>>,
}

impl Watch {
    pub(super) fn new(charged: Charged, warm_up: Duration) -> Watch {
        let (began, counting, seen) = (Cell::new(None), Cell::new(false), RefCell::new(None));
        Watch { charged, warm_up, began, counting, seen }
    }
}

impl Observer for Watch {
    fn loading(&self, _rows: u64, _of: u64) {}

    fn running(&self, elapsed: Duration, of: Duration, commits: u64) {
        self.charged.running(elapsed, of, commits);
        if self.began.get().is_none() {
            self.began.set(Some(cpu_seconds()));
        }
        if elapsed >= self.warm_up && !self.counting.replace(true) {
            sim::count_anew();
        }
    }

    fn measured(&self) {
        *self.seen.borrow_mut() = sim::report();
    }

    fn checking(&self) {
        self.seen.borrow_mut().get_or_insert_with(|| sim::report().expect("a machine is simulated"));
        self.charged.checking();
    }
}
