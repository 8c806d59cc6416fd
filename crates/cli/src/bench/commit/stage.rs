//! Where the runs of a comparison take place: on this machine, or on simulated ones.

use std::path::Path;

use foreshore_bench::{
    BenchError, Durability, EngineKind, EngineOptions, Observer, Report, RunOptions, Tpcb, Workload, engines,
};
use serde::Serialize;

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
