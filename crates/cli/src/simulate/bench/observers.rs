//! What the machine is told while a benchmark runs: what is charged, and what counts.

use std::cell::{Cell, RefCell};

use foreshore_bench::Observer;
use foreshore_env::{
    sim::{self, MachineReport},
    time::Duration,
};

use super::outlook::Outlook;
use crate::simulate::speed::cpu_seconds;

/// Loading is not charged, and neither are the checks: what runs between them is.
pub(super) struct Charged<'o> {
    charging: Cell<bool>,
    /// Who tells how long it will take.
    outlook: &'o Outlook,
}

impl Charged<'_> {
    /// Nothing is charged from here on, until something runs.
    pub(super) fn loads(outlook: &Outlook) -> Charged<'_> {
        sim::set_charging(false);
        Charged { charging: Cell::new(false), outlook }
    }

    /// Loading is charged, too.
    pub(super) fn all(outlook: &Outlook) -> Charged<'_> {
        sim::set_charging(true);
        Charged { charging: Cell::new(true), outlook }
    }
}

impl Observer for Charged<'_> {
    fn loading(&self, rows: u64, of: u64) {
        self.outlook.loads(rows, of);
    }

    fn running(&self, elapsed: Duration, of: Duration, _commits: u64) {
        self.outlook.runs(elapsed, of);
        if !self.charging.replace(true) {
            sim::set_charging(true);
        }
    }

    fn checking(&self) {
        self.charging.set(false);
        sim::set_charging(false);
    }
}

/// Counts from the end of the warm-up to the end of what is measured.
pub(super) struct Watch<'o> {
    charged: Charged<'o>,
    warm_up: Duration,
    /// Seconds of CPU when the threads of the workload began, once they have.
    pub(super) began: Cell<Option<f64>>,
    counting: Cell<bool>,
    pub(super) seen: RefCell<Option<MachineReport>>,
}

impl<'o> Watch<'o> {
    pub(super) fn new(charged: Charged<'o>, warm_up: Duration) -> Watch<'o> {
        let (began, counting, seen) = (Cell::new(None), Cell::new(false), RefCell::new(None));
        Watch { charged, warm_up, began, counting, seen }
    }
}

impl Observer for Watch<'_> {
    fn loading(&self, rows: u64, of: u64) {
        self.charged.loading(rows, of);
    }

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
