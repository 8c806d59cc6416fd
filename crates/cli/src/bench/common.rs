//! What the options that all workloads have come to.

use std::path::Path;

use foreshore_bench::{DrawnBy, Durability, EngineOptions, Execution, Length, Partitioning, Workload};

use super::{CommonArgs, MEASURED, WARM_UP};
use crate::output::CliError;

impl CommonArgs {
    pub(crate) fn threads(&self) -> usize {
        match self.iterations {
            Some(_) => 1,
            None => usize::from(self.threads.unwrap_or(2)),
        }
    }

    /// Threads that run transactions: those that draw them, or all of the engine's where these draw them themselves.
    #[cfg(foreshore_sim)]
    pub(crate) fn computing_threads(&self) -> usize {
        if self.drawn_by != DrawnBy::Engine {
            return self.threads();
        }
        let mut options = foreshore::Options::default();
        if let Some(partitions) = self.partitions {
            options.control_threads = partitions.into();
        }
        // Whoever opens the engine tells what is wrong with a setting.
        let _wrong: Vec<_> =
            self.settings.iter().filter_map(|(name, value)| options.set(name, value).err()).collect();
        options.control_threads + options.execution_threads
    }

    /// How the engine is opened.
    pub(crate) fn engine_options(
        &self,
        workload: &dyn Workload,
        directory: &Path,
    ) -> Result<EngineOptions, CliError> {
        if self.in_flight.is_some() && self.execution != Execution::Partitioned {
            return Err(CliError::usage(
                "--in-flight is for transactions that threads of the engine run",
                "add --execution partitioned, or leave it out",
            ));
        }
        if self.drawn_by == DrawnBy::Engine {
            self.check_drawn_by_engine()?;
        }
        let partitioning = match (self.partitions, workload.partition_of()) {
            (None, _) => None,
            (Some(count), Some(of)) => Some(Partitioning { of, count: count.into() }),
            (Some(_), None) => {
                return Err(CliError::usage(
                    format!("{} cannot be divided into partitions", workload.name()),
                    "leave out --partitions",
                ));
            }
        };
        Ok(EngineOptions {
            partitioning,
            directory: directory.to_owned(),
            durability: self.durability,
            isolation: self.isolation,
            execution: self.execution,
            drawn_by: self.drawn_by,
            in_flight: self.in_flight.map(usize::from),
            settings: self.settings.clone(),
        })
    }

    fn check_drawn_by_engine(&self) -> Result<(), CliError> {
        if self.execution != Execution::Partitioned {
            return Err(CliError::usage(
                "--drawn-by engine is for transactions that threads of the engine run",
                "add --execution partitioned, or leave it out",
            ));
        }
        if self.threads.is_some() || self.iterations.is_some() {
            return Err(CliError::usage(
                "with --drawn-by engine there are no threads but the engine's",
                "use --set execution_threads=N in place of --threads, and no --iterations",
            ));
        }
        if self.durability == Durability::Sync {
            return Err(CliError::usage(
                "with --drawn-by engine nobody waits for the disk",
                "add --durability lazy, or pipelined",
            ));
        }
        Ok(())
    }

    pub(crate) fn length(&self) -> Length {
        match self.iterations {
            Some(count) => Length::Iterations(count),
            None => Length::Time {
                warm_up: self.warm_up.unwrap_or(WARM_UP),
                measured: self.seconds.unwrap_or(MEASURED),
            },
        }
    }
}
