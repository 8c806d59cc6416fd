//! How far a run is: bars on a terminal, one line for each phase elsewhere.

use std::{
    cell::{Cell, RefCell},
    io::{self, IsTerminal, Write},
};

use foreshore_bench::Observer;
use foreshore_env::time::Duration;
use indicatif::{ProgressBar, ProgressStyle};

/// What is going on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Nothing,
    Loading,
    Running,
    Checking,
}

/// Shows a run on standard error.
pub(crate) struct Progress {
    shown: bool,
    terminal: bool,
    phase: Cell<Phase>,
    bar: RefCell<ProgressBar>,
    /// When the run was last looked at, and how many transactions had committed: for the live throughput.
    last: Cell<(Duration, u64)>,
}

impl Progress {
    /// Shows nothing at all unless `shown`.
    pub(crate) fn new(shown: bool) -> Progress {
        Progress {
            shown,
            terminal: io::stderr().is_terminal(),
            phase: Cell::new(Phase::Nothing),
            bar: RefCell::new(ProgressBar::hidden()),
            last: Cell::new((Duration::ZERO, 0)),
        }
    }

    /// Enters a phase, if it is a new one; `style` is that of its bar.
    fn enter(&self, phase: Phase, name: &'static str, style: &str) {
        if self.phase.replace(phase) == phase || !self.shown {
            return;
        }
        self.bar.borrow().finish_and_clear();
        if self.terminal {
            let bar = ProgressBar::new(1);
            // The templates are constants of this file; were one wrong, the bar would be plain.
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar.set_prefix(name);
            self.bar.replace(bar);
        } else {
            // Standard error may be closed; nobody misses the progress then.
            let _ = writeln!(io::stderr().lock(), "{name} …");
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.borrow().finish_and_clear();
    }
}

impl Observer for Progress {
    fn loading(&self, rows: u64, of: u64) {
        if of == 0 {
            return;
        }
        self.enter(
            Phase::Loading,
            "loading",
            "{prefix:>9} {bar:40} {human_pos} of {human_len} rows, {per_sec}",
        );
        let bar = self.bar.borrow();
        bar.set_length(of.max(rows));
        bar.set_position(rows);
    }

    fn running(&self, elapsed: Duration, of: Duration, commits: u64) {
        self.enter(Phase::Running, "running", "{prefix:>9} {bar:40} {msg}");
        let bar = self.bar.borrow();
        bar.set_length(of.as_millis() as u64);
        bar.set_position(elapsed.as_millis() as u64);
        let (before, commits_before) = self.last.get();
        let passed = elapsed.saturating_sub(before);
        if passed >= Duration::from_millis(500) {
            let rate = commits.saturating_sub(commits_before) as f64 / passed.as_secs_f64();
            bar.set_message(format!(
                "{:.0} of {:.0} s, {rate:.0} commits/s",
                elapsed.as_secs_f64(),
                of.as_secs_f64()
            ));
            self.last.set((elapsed, commits));
        }
    }

    fn checking(&self) {
        self.enter(Phase::Checking, "checking", "{prefix:>9}");
        self.bar.borrow().tick();
    }
}
