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
    Attempts, BenchError, Durability, Engine, EngineKind, EngineOptions, EngineTxn, Execution, Foresee,
    Isolation, Outcome, Stop, TableIndex, Worker, Workload, engines,
};
use foreshore_env::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

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
pub(crate) fn options(
    directory: &Path,
    settings: &[(String, String)],
    execution: Execution,
) -> EngineOptions {
    let planted_loss = settings.iter().any(|(name, value)| [&**name, &**value] == PLANTED_LOSS);
    EngineOptions {
        directory: directory.to_owned(),
        durability: if planted_loss { Durability::Lazy } else { Durability::Sync },
        isolation: Isolation::Serializable,
        execution,
        settings: settings.to_vec(),
        ..EngineOptions::default()
    }
}

/// Instead of a seed: the child only opens the database, which recovers it.
pub(crate) const ONLY_OPEN: &str = "only-open";

/// Runs the child. It ends only when it is killed, or fails.
pub(crate) fn run(
    workload: &dyn Workload,
    threads: usize,
    execution: Execution,
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
    let options = options(directory, &split_settings(settings), execution);
    let engine = engines::open(EngineKind::Foreshore, &ledger::tables(workload), &options)?;
    let pages = ledger::read(engine.as_ref(), workload, threads).map_err(BenchError::from)?;
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

/// A worker whose transactions also count themselves on its thread's page.
struct Counted {
    worker: Box<dyn Worker>,
    table: TableIndex,
    thread: usize,
    /// As it is on the disk.
    page: Page,
    /// As it will be once the transaction has committed that was drawn last.
    next: Page,
    /// Commits on the page, for the thread that tells of them.
    commits: Arc<AtomicU64>,
}

impl Worker for Counted {
    fn next(&mut self) -> usize {
        let kind = self.worker.next();
        // What did not commit does not count.
        self.next = self.page.clone();
        self.next.count(kind);
        kind
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        self.worker.run(txn)?;
        Ok(self.next.write(txn, self.table, self.thread)?)
    }

    fn foresee(&self, touch: &mut Foresee<'_>) -> bool {
        touch(self.table, &Page::key(self.thread), true);
        self.worker.foresee(touch)
    }

    fn committed(&mut self) {
        self.worker.committed();
        self.page = self.next.clone();
        self.commits.store(self.page.commits, Ordering::Relaxed);
    }
}

/// One thread of the child.
fn work(
    engine: &dyn Engine,
    workload: &dyn Workload,
    (number, threads): (usize, usize),
    seed: u64,
    page: Page,
) -> Result<(), CliError> {
    let commits = Arc::new(AtomicU64::new(0));
    let mut worker: Box<dyn Worker> = Box::new(Counted {
        worker: workload.worker(number, threads, seed),
        table: ledger::table(workload),
        thread: number,
        next: page.clone(),
        page,
        commits: Arc::clone(&commits),
    });
    loop {
        worker.next();
        let outcome = match engine.submitter() {
            None => engine.run(&mut Attempts::default(), worker.as_mut()).map_err(BenchError::from)?,
            Some(submitter) => {
                let ended = submitter.submit(worker).and_then(|submission| submission.wait());
                let ended = ended.map_err(BenchError::from)?;
                worker = ended.worker;
                ended.outcome
            }
        };
        if matches!(outcome, Outcome::Committed) {
            worker.committed();
            tell(&format!("{number} {}", commits.load(Ordering::Relaxed)))?;
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
