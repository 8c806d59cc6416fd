//! Where the runs of a comparison take place: on this machine, or on simulated ones.

use std::path::Path;

use foreshore_bench::{
    BenchError, Durability, EngineKind, EngineOptions, Observer, Report, RunOptions, Tpcb, Workload, engines,
};

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

/// Where trials take place.
pub(crate) type Stage<'s> = dyn FnMut(&Trial) -> Result<Report, CliError> + 's;
