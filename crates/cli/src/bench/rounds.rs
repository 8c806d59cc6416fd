//! What the subcommands share that measure a part of the engine in rounds.

use std::fmt;

use clap::Args;
use serde::Serialize;

use crate::{
    bench::{bar::RoundsBar, text::written},
    output::{CliError, json_line, line},
};

/// In how many rounds something is measured if nothing else is said; virtual time is the same in each.
pub(super) const ROUNDS: u16 = if cfg!(foreshore_sim) { 1 } else { 3 };

/// The middle value; of an even number the mean of the two in the middle.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| foreshore_bench::median(values))
}

#[derive(Args)]
pub(super) struct RoundsArgs {
    /// Rounds in turn; the median counts.
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    pub(super) json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

impl RoundsArgs {
    pub(super) fn rounds(&self) -> usize {
        usize::from(self.rounds)
    }

    /// Measures with a bar on standard error, which is told how many rounds are done, of how many.
    pub(super) fn measure<R>(&self, measure: impl FnOnce(&mut dyn FnMut(usize, usize)) -> R) -> R {
        let bar = RoundsBar::new(!self.json && !self.quiet && !cfg!(foreshore_sim));
        let result = measure(&mut |done, of| bar.show(done, of));
        bar.finish();
        result
    }

    /// Prints a report for programs or, as `write` has it, for people.
    pub(super) fn print<R: Serialize>(
        &self,
        report: &R,
        write: impl FnOnce(&mut String, &R) -> fmt::Result,
    ) -> Result<(), CliError> {
        if self.json { json_line(report) } else { line(written(|out| write(out, report)).trim_end()) }
    }
}
