//! The child: works until it is killed, and tells of every commit after it was acknowledged.
//!
//! Its standard output is one line for each thing that happens: `ready` when the database is open, then `THREAD
//! COMMITS` after each acknowledged commit, and `silent MS` when a thread has committed nothing for longer than any
//! before. A line is one write to the pipe, so a kill never leaves half of one, and what was written outlives the
//! process. When its standard input ends, the parent is gone, and it ends too.

use std::{
    io::{self, Write},
    panic,
    path::Path,
    process::ExitCode,
};

use foreshore_bench::{
    AbortCause, Attempts, BenchError, Durability, Engine, EngineOptions, EngineTxn, Execution, Failure,
    Foresee, Isolation, Outcome, Stop, TableIndex, Worker, Workload, engines::ForeshoreEngine,
};
use foreshore_env::{
    disk::{Disk, RealDisk},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use super::{
    fatal::FatalDisk,
    is_full,
    ledger::{self, Page},
    watchdog::Watchdog,
};
use crate::output::CliError;

/// How often the watchdog looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// By how much the longest silence of a thread has to grow before it is told again.
const TELL_SILENCE: Duration = Duration::from_millis(200);

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

/// The exit status of a child for whose files there is no room.
pub(crate) const NO_ROOM: i32 = 3;

/// Instead of a seed: the child only opens the database, which recovers it.
pub(crate) const ONLY_OPEN: &str = "only-open";

/// Instead of a seed: a thread of the child panics, while others go on.
pub(crate) const PLANTED_PANIC: &str = "planted-panic";

/// Runs the child. It ends only when it is killed, or fails.
pub(crate) fn run(
    workload: &dyn Workload,
    threads: usize,
    execution: Execution,
    directory: &Path,
    told: &[String],
) -> Result<ExitCode, CliError> {
    let [seed, settings, fatal_write] = told else {
        return Err(CliError::usage("--child is for torture itself", "leave it out"));
    };
    // A thread that panics would go unnoticed while the others go on.
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(1);
    }));
    let options = options(directory, &split_settings(settings), execution);
    let number = |text: &str| text.parse::<u64>().map_err(|error| CliError::Other(error.to_string()));
    let disk: Arc<dyn Disk> = match number(fatal_write)? {
        0 => Arc::new(RealDisk),
        write => Arc::new(FatalDisk::new(write)),
    };
    let engine = open(disk, directory, workload, &options).unwrap_or_else(|error| die(&error.into()));
    let pages = ledger::read(&engine, workload, threads).map_err(BenchError::from)?;
    tell("ready")?;
    if seed == PLANTED_PANIC {
        thread::spawn(|| panic!("planted"));
    }
    if seed == ONLY_OPEN || seed == PLANTED_PANIC {
        loop {
            thread::park();
        }
    }
    let seed = number(seed)?;
    let watchdog = Arc::new(Watchdog::new(threads));
    thread::scope(|scope| {
        scope.spawn(|| watch(&watchdog, &engine));
        for (number, page) in pages.into_iter().enumerate() {
            let (engine, watchdog) = (&engine, &watchdog);
            scope.spawn(move || {
                if let Err(error) = work(engine, workload, (number, threads), seed, page, watchdog) {
                    // The others would go on, and the failure would go unnoticed.
                    die(&error);
                }
            });
        }
    });
    Ok(ExitCode::SUCCESS)
}

/// Ends the child; the parent learns by the status whether it is because of the disk that it is on.
fn die(error: &CliError) -> ! {
    error.report(false);
    std::process::exit(if is_full(error) { NO_ROOM } else { 1 })
}

fn tell(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{text}\n").as_bytes())
        .and_then(|()| out.flush())
        .map_err(CliError::io("report to the parent"))
}

/// Opens a database on a disk, with the tables of a workload and its ledger.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    directory: &Path,
    workload: &dyn Workload,
    options: &EngineOptions,
) -> Result<ForeshoreEngine, BenchError> {
    let mut set = foreshore::Options::default();
    let database = options
        .settings
        .iter()
        .try_for_each(|(name, value)| set.set(name, value))
        .and_then(|()| foreshore::Database::builder().options(set).disk(disk).open(directory));
    // As the engine itself wraps them.
    let database = database.map_err(|error| Failure { cause: AbortCause::Other, source: Box::new(error) })?;
    Ok(ForeshoreEngine::over(database, &ledger::tables(workload), options)?)
}

/// A worker whose transactions also count themselves on its thread's page.
pub(crate) struct Counted {
    worker: Box<dyn Worker>,
    table: TableIndex,
    thread: usize,
    /// As it will be once the transaction has committed that was drawn last.
    next: Page,
    /// As it was promised to be. Written by the thread that runs the worker, when it knows of a commit.
    promised: Arc<Mutex<Page>>,
    watchdog: Arc<Watchdog>,
}

impl Counted {
    /// The worker of a thread, which goes on with its page.
    pub(crate) fn boxed(
        workload: &dyn Workload,
        (thread, threads): (usize, usize),
        seed: u64,
        promised: &Arc<Mutex<Page>>,
        watchdog: &Arc<Watchdog>,
    ) -> Box<dyn Worker> {
        Box::new(Counted {
            worker: workload.worker(thread, threads, seed),
            table: ledger::table(workload),
            thread,
            next: Page::empty(workload),
            promised: Arc::clone(promised),
            watchdog: Arc::clone(watchdog),
        })
    }
}

impl Worker for Counted {
    fn next(&mut self) -> usize {
        let kind = self.worker.next();
        // What did not commit does not count.
        self.next = self.promised.lock().clone();
        self.next.count(kind);
        kind
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        self.watchdog.runs(self.thread, txn.number());
        self.worker.run(txn)?;
        Ok(self.next.write(txn, self.table, self.thread)?)
    }

    fn foresee(&self, touch: &mut Foresee<'_>) -> bool {
        touch(self.table, &Page::key(self.thread), true);
        self.worker.foresee(touch)
    }

    fn committed(&mut self) {
        self.worker.committed();
        *self.promised.lock() = self.next.clone();
    }
}

/// Runs the transaction that a worker has drawn. An engine that fails on a thread of its own does not give the worker
/// back.
pub(crate) fn run_one(
    engine: &dyn Engine,
    mut worker: Box<dyn Worker>,
) -> (Option<Box<dyn Worker>>, Result<Outcome, Failure>) {
    let Some(submitter) = engine.submitter() else {
        let outcome = engine.run(&mut Attempts::default(), worker.as_mut());
        return (Some(worker), outcome);
    };
    match submitter.submit(worker).and_then(|submission| submission.wait()) {
        Ok(ended) => (Some(ended.worker), Ok(ended.outcome)),
        Err(failure) => (None, Err(failure)),
    }
}

/// Ends the child when one of its threads hangs; the parent is told who waits for whom, in a line that says no commit.
fn watch(watchdog: &Watchdog, engine: &ForeshoreEngine) {
    let mut told = Duration::ZERO;
    loop {
        thread::sleep(LOOK_EVERY);
        let silence = watchdog.longest_silence();
        if silence >= told + TELL_SILENCE {
            told = silence;
            let _ = tell(&format!("silent {}", silence.as_millis()));
        }
        if let Some(hang) = watchdog.look(engine.database()) {
            // A parent that does not listen has gone, and the child goes with it.
            let _ = tell(&hang.replace('\n', ";"));
            std::process::exit(1);
        }
    }
}

/// One thread of the child.
fn work(
    engine: &dyn Engine,
    workload: &dyn Workload,
    (number, threads): (usize, usize),
    seed: u64,
    page: Page,
    watchdog: &Arc<Watchdog>,
) -> Result<(), CliError> {
    let promised = Arc::new(Mutex::new(page));
    let mut worker = Some(Counted::boxed(workload, (number, threads), seed, &promised, watchdog));
    while let Some(mut drawn) = worker.take() {
        drawn.next();
        let (back, outcome) = run_one(engine, drawn);
        let committed = matches!(outcome.map_err(BenchError::from)?, Outcome::Committed);
        worker = back;
        if let (true, Some(worker)) = (committed, worker.as_mut()) {
            worker.committed();
            watchdog.progress(number);
            tell(&format!("{number} {}", promised.lock().commits))?;
        }
    }
    Ok(())
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
