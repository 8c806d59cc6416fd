//! The child: works until it is killed, and tells of every commit after it was acknowledged.
//!
//! Its standard output is one line for each thing that happens: `ready` when the database is open, then
//! `THREAD COMMITS` after each acknowledged commit. A line is one write to the pipe, so a kill never leaves half of one, and what was
//! written outlives the process. When its standard input ends, the parent is gone, and it ends too.

use std::{
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
};

use foreshore_bench::{
    Attempts, Durability, Engine, EngineKind, EngineOptions, Execution, Isolation, Outcome, Workload, engines,
};
use foreshore_env::thread;

use super::ledger::{self, Page};
use crate::output::CliError;

/// Settings as one argument: `name=value,name=value`.
pub(crate) fn join_settings(settings: &[(String, String)]) -> String {
    settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

fn split_settings(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The setting that makes a child promise what is not yet on the disk.
pub(crate) const PLANTED_LOSS: [&str; 2] = ["durability", "lazy"];

/// The engine of a workload and its ledger, over the database in a directory.
pub(crate) fn options(directory: &Path, settings: &[(String, String)]) -> EngineOptions {
    let planted_loss = settings.iter().any(|(name, value)| [&**name, &**value] == PLANTED_LOSS);
    EngineOptions {
        directory: directory.to_owned(),
        durability: if planted_loss { Durability::Lazy } else { Durability::Sync },
        isolation: Isolation::Serializable,
        execution: Execution::Dynamic,
        settings: settings.to_vec(),
    }
}

/// Instead of a seed: the child only opens the database, which recovers it.
pub(crate) const ONLY_OPEN: &str = "only-open";

/// Runs the child. It ends only when it is killed, or fails.
pub(crate) fn run(
    workload: &dyn Workload,
    threads: usize,
    directory: &Path,
    told: &[String],
) -> Result<ExitCode, CliError> {
    let [seed, settings] = told else {
        return Err(CliError::usage("--child is for torture itself", "leave it out"));
    };
    thread::spawn(|| {
        // Ends with the parent, whatever the pipe says.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let options = options(directory, &split_settings(settings));
    let engine = engines::open(EngineKind::Foreshore, &ledger::tables(workload), &options)?;
    let pages =
        ledger::read(engine.as_ref(), workload, threads).map_err(foreshore_bench::BenchError::from)?;
    tell("ready")?;
    if seed == ONLY_OPEN {
        loop {
            thread::park();
        }
    }
    let seed = seed.parse::<u64>().map_err(|error| CliError::Other(error.to_string()))?;
    thread::scope(|scope| {
        for (number, page) in pages.into_iter().enumerate() {
            let engine = engine.as_ref();
            scope.spawn(move || {
                if let Err(error) = work(engine, workload, (number, threads), seed, page) {
                    error.report(false);
                    // The others would go on, and the failure would go unnoticed.
                    std::process::exit(1);
                }
            });
        }
    });
    Ok(ExitCode::SUCCESS)
}

fn tell(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{text}\n").as_bytes())
        .and_then(|()| out.flush())
        .map_err(CliError::io("report to the parent"))
}

/// One thread of the child.
fn work(
    engine: &dyn Engine,
    workload: &dyn Workload,
    (number, threads): (usize, usize),
    seed: u64,
    mut page: Page,
) -> Result<(), CliError> {
    let table = ledger::table(workload);
    let mut worker = workload.worker(number, threads, seed);
    loop {
        let kind = worker.next();
        let mut next = page.clone();
        next.count(kind);
        let outcome = engine.transact(&mut Attempts::default(), &mut |txn| {
            worker.run(txn)?;
            Ok(next.write(txn, table, number)?)
        });
        match outcome.map_err(foreshore_bench::BenchError::from)? {
            Outcome::Committed => {
                page = next;
                tell(&format!("{number} {}", page.commits))?;
                worker.committed();
            }
            Outcome::RolledBack | Outcome::GaveUp(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_command_line() {
        let settings = vec![("a".to_owned(), "1MiB".to_owned()), ("b".to_owned(), "x".to_owned())];
        assert_eq!(split_settings(&join_settings(&settings)), settings);
    }
}
