//! How far a comparison has come: what is known is told as it comes, and what there is when it is interrupted.

use foreshore_env::sync::{Arc, Mutex};
use indicatif::ProgressBar;

use super::{
    result::{Comparison, EngineResult},
    table,
};
use crate::{
    bench::standing::Interruption,
    directory::await_interruption,
    output::{CliError, json_line, line},
};

/// Shared with whoever ends the program when it is interrupted.
#[derive(Clone)]
pub(super) struct Standing(Arc<Mutex<Known>>);

/// Guarded by the mutex.
struct Known {
    comparison: Comparison,
    /// So many results are those of combinations before the one that is measured.
    complete: usize,
    /// For a program, which is told all at the end.
    json: bool,
    bar: ProgressBar,
    /// Who measures has it, or an interruption has told it.
    taken: bool,
}

impl Standing {
    pub(super) fn new(comparison: Comparison, json: bool) -> Standing {
        let (complete, bar, taken) = (0, ProgressBar::hidden(), false);
        Standing(Arc::new(Mutex::new(Known { comparison, complete, json, bar, taken })))
    }

    /// Tells how each side is set. What is told later stands above the bar.
    pub(super) fn begin(&self, bar: ProgressBar) -> Result<(), CliError> {
        let mut known = self.0.lock();
        known.bar = bar;
        known.say(&table::head(&known.comparison))
    }

    /// The results of the combination that is measured, over all rounds that each engine has had.
    pub(super) fn round(&self, results: Vec<EngineResult>) {
        let mut guard = self.0.lock();
        let known: &mut Known = &mut guard;
        known.comparison.results.truncate(known.complete);
        known.comparison.results.extend(results);
    }

    /// All rounds of the combination are over: tells its results.
    pub(super) fn combination(&self) -> Result<(), CliError> {
        let mut guard = self.0.lock();
        let known: &mut Known = &mut guard;
        let first = std::mem::replace(&mut known.complete, known.comparison.results.len());
        if known.taken {
            return Ok(());
        }
        known.say(&table::newest(&known.comparison, first))
    }

    /// All that there is, for whoever has measured it: an interruption tells nothing of it any more. It does not return
    /// if one has told it.
    pub(super) fn take(&self) -> Comparison {
        let mut known = self.0.lock();
        known.bar.finish_and_clear();
        let comparison = known.comparison.clone();
        let told = std::mem::replace(&mut known.taken, true);
        drop(known);
        if told {
            await_interruption();
        }
        comparison
    }

    /// Tells what there is when the comparison is interrupted, which is the error.
    pub(super) fn interrupted(&self, error: &CliError) {
        let mut guard = self.0.lock();
        let known: &mut Known = &mut guard;
        known.bar.finish_and_clear();
        if std::mem::replace(&mut known.taken, true) {
            error.report(known.json);
            return;
        }
        error.report(false);
        let Known { comparison, complete, json, .. } = known;
        // If nobody can read it, nobody misses it.
        let _ = match table::broken_off(comparison, *complete) {
            _ if *json => {
                comparison.interrupt(Interruption::of(error));
                json_line(comparison)
            }
            text if text.is_empty() => Ok(()),
            text => line(text.trim_end()),
        };
    }
}

impl Known {
    fn say(&self, text: &str) -> Result<(), CliError> {
        if self.json { Ok(()) } else { self.bar.suspend(|| line(text.trim_end())) }
    }
}
