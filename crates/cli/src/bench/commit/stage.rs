//! Where the runs of a comparison take place: on this machine, or on simulated ones.

use std::path::Path;

#[cfg(foreshore_sim)]
use foreshore_bench::turns;
use foreshore_bench::{
    BenchError, Durability, EngineKind, EngineOptions, Length, Observer, Report, RunOptions, Tpcb, Workload,
    engines,
};
use serde::Serialize;

use super::{Cell, Experiment, SharedArgs};
use crate::output::CliError;

/// One run that a comparison asks for, wherever it takes place.
pub(crate) struct Trial {
    pub(super) workload: Tpcb,
    pub(super) durability: Durability,
    pub(super) settings: Vec<(String, String)>,
    pub(super) run: RunOptions,
}

impl Trial {
    /// Runs it on a new database in `directory`.
    pub(crate) fn run(&self, directory: &Path, observer: &dyn Observer) -> Result<Report, BenchError> {
        let options = EngineOptions {
            directory: directory.to_owned(),
            durability: self.durability,
            settings: self.settings.clone(),
            ..EngineOptions::default()
        };
        let engine = engines::open(EngineKind::Foreshore, &self.workload.tables(), &options)?;
        let report = foreshore_bench::run(engine.as_ref(), &self.workload, &self.run, observer)?;
        engine.close()?;
        Ok(report)
    }

    /// What everything random follows from.
    #[cfg(foreshore_sim)]
    pub(crate) fn seed(&self) -> u64 {
        self.run.seed
    }

    #[cfg(foreshore_sim)]
    pub(crate) fn threads(&self) -> usize {
        self.run.threads
    }

    /// How long it runs.
    #[cfg(foreshore_sim)]
    pub(crate) fn length(&self) -> Length {
        self.run.length
    }
}

impl Experiment<'_> {
    /// The run that is asked for alone: cells take turns, within each the rounds, and within each of those the sides.
    #[cfg(foreshore_sim)]
    pub(super) fn only(&self) -> Result<Option<Trial>, CliError> {
        let Some(number) = self.common.only else { return Ok(None) };
        let (sides, rounds) = (self.sides.len(), usize::from(self.common.rounds));
        let cells = self.cells();
        let cell = cells.get(number / (sides * rounds)).ok_or_else(|| {
            CliError::usage(
                format!("there is no run {number}"),
                format!("the last is {}", cells.len() * sides * rounds - 1),
            )
        })?;
        let round = (number / sides % rounds) as u16;
        let side = turns(sides, usize::from(round))[number % sides];
        Ok(Some(self.trial(*cell, &self.sides[side], round)?))
    }

    /// Refuses what would be refused when others have been measured for hours, and settings that would make something
    /// else of a row than it says of itself.
    pub(super) fn check(&self, cells: &[Cell<'_>]) -> Result<(), CliError> {
        let is_set = |option: &str| self.common.settings.iter().any(|(name, _)| name == option);
        if is_set(self.option) {
            let message = format!("--set {}=… is what this compares", self.option);
            return Err(CliError::usage(message, "leave it out"));
        }
        for (option, own) in [("log_latency", "--log-latency"), ("pipeline_length", "--pipeline-length")] {
            if is_set(option) {
                return Err(CliError::usage(
                    format!("--set {option}=… would overrule {own}, by which rows are told"),
                    format!("use {own}"),
                ));
            }
        }
        Ok(cells.iter().try_for_each(|cell| self.trial(*cell, &self.sides[0], 0).map(drop))?)
    }

    /// One side, once.
    pub(super) fn trial(&self, cell: Cell<'_>, side: &str, round: u16) -> Result<Trial, BenchError> {
        let SharedArgs { threads, branches, accounts, pipeline_length, seconds, warm_up, seed, .. } =
            *self.common;
        let workload = Tpcb::new(branches, accounts, (cell.read_ratio * 100.0).round() as u32)?;
        let workload = workload.with_zipf(cell.zipf)?;
        let mut settings = self.fixed.clone();
        settings.extend([
            // A flush comes because somebody asks for it, not because time goes by.
            ("flush_interval".to_owned(), "10s".to_owned()),
            ("pipeline_length".to_owned(), pipeline_length.to_string()),
            // As in the paper.
            ("escalation_locks".to_owned(), "0".to_owned()),
            ("escalation_bytes".to_owned(), "0".to_owned()),
            ("log_latency".to_owned(), cell.log_latency.to_owned()),
            (self.option.to_owned(), side.to_owned()),
        ]);
        settings.extend(self.common.settings.iter().cloned());
        let run = RunOptions {
            threads: usize::from(threads),
            length: Length::Time { warm_up, measured: seconds },
            seed: seed.wrapping_add(u64::from(round)),
        };
        Ok(Trial { workload, durability: self.common.durability, settings, run })
    }
}

/// What of a run's report is compared.
#[derive(Serialize)]
#[cfg_attr(foreshore_sim, derive(serde::Deserialize))]
pub(crate) struct Tried {
    pub(super) commits_per_s: f64,
    pub(super) commits: u64,
    pub(super) deadlocks: u64,
    pub(super) commits_per_flush: Option<f64>,
    pub(super) consistent: bool,
}

impl From<Report> for Tried {
    fn from(report: Report) -> Tried {
        Tried {
            commits_per_s: report.commits_per_s,
            commits: report.ended,
            deadlocks: report.aborts.deadlock,
            commits_per_flush: report.commits_per_flush,
            consistent: report.consistent,
        }
    }
}

/// Where trials take place.
pub(crate) type Stage<'s> = dyn FnMut(&Trial) -> Result<Tried, CliError> + 's;
