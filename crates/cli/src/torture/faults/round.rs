//! One class of faults on a disk in memory: rounds of work, a fault in the middle, a crash, and an examination.

use std::path::Path;

use foreshore::{Database, Error, TableDefinition, Transaction};
use foreshore_bench::{Engine, Failure, Outcome, Silent, engines::ForeshoreEngine};
use foreshore_env::{
    random::Xorshift,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk};

use super::{ClassReport, FaultClass, write_down};
use crate::{
    output::{CHECK_FAILED, CliError},
    torture::{
        Campaign, draw_settings,
        examine::examine,
        ledger::Page,
        watchdog::Watchdog,
        worker::{self, Counted},
    },
};

/// Where the database is on the disk.
const DIRECTORY: &str = "/torture";
/// The rounds after which another database is begun, so that the disk does not grow without end.
const ROUNDS_OF_A_DISK: u64 = 40;
/// The longest that the threads of a round work before the crash.
const LONGEST_WORK: Duration = Duration::from_millis(400);
/// How long they go on after the fault was met.
const AFTERMATH: Duration = Duration::from_millis(20);
/// How long whoever was refused waits before it tries again.
const REFUSED_NAP: Duration = Duration::from_millis(1);
/// Between two looks at the threads.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// When the disk has space again, every thread commits within this.
const LONGEST_RESUMPTION: Duration = Duration::from_secs(15);
/// One recovery in this many crashes, too.
const RECOVERY_CRASHED: u64 = 3;

/// What a transaction writes that is open while the disk becomes full.
const OPEN: TableDefinition<u32, &[u8]> = TableDefinition::new("torture open");
/// How many rows it writes, and their size.
const OPEN_ROWS: u32 = 40;
const OPEN_ROW_BYTES: usize = 500;

/// A class under way.
struct Rounds<'c> {
    campaign: &'c Campaign<'c>,
    class: FaultClass,
    random: Xorshift,
    disk: FaultyDisk,
    /// The same as the last crash left it: the evidence, if something is found then.
    left: FaultyDisk,
    /// What each thread was promised.
    pages: Vec<Page>,
    report: ClassReport,
}

/// What a thread does that was told of a failure.
enum Verdict {
    /// It tries again.
    Refused,
    /// The database has stopped.
    Over,
    /// That may not be.
    Wrong,
}

impl Campaign<'_> {
    /// Plays one class of faults on a disk in memory.
    pub(super) fn on_a_faulty_disk(
        &self,
        class: FaultClass,
        length: Duration,
    ) -> Result<ClassReport, CliError> {
        let begun = Instant::now();
        let loaded = self.load()?;
        let mut rounds = Rounds {
            campaign: self,
            class,
            random: Xorshift::new(self.seed ^ (class as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            disk: FaultyDisk::new(),
            left: FaultyDisk::new(),
            pages: Vec::new(),
            report: ClassReport::of(class),
        };
        while rounds.report.passed() && (rounds.report.rounds == 0 || begun.elapsed() < length) {
            if rounds.report.rounds.is_multiple_of(ROUNDS_OF_A_DISK) {
                rounds.disk = loaded.after_crash(CrashMode::KeepAll);
                rounds.pages = vec![Page::empty(self.workload); self.threads];
            }
            rounds.play();
        }
        if !rounds.report.passed() {
            self.directory.keep();
            write_down(&rounds.left, Path::new(DIRECTORY), self.directory.path())?;
        }
        Ok(rounds.report)
    }

    /// A disk with the loaded database.
    fn load(&self) -> Result<FaultyDisk, CliError> {
        let disk = FaultyDisk::new();
        let options = worker::options(Path::new(DIRECTORY), self.set, self.execution);
        let engine = worker::open(Arc::new(disk.clone()), Path::new(DIRECTORY), self.workload, &options)?;
        foreshore_bench::load(&engine, self.workload, 1, self.seed, &Silent)?;
        engine.database().transact(|tx| tx.delete(OPEN, 0))?;
        engine.close().map_err(foreshore_bench::BenchError::from)?;
        Ok(disk)
    }
}

impl Rounds<'_> {
    /// A round: from a sound database to a sound database.
    fn play(&mut self) {
        // One in four begins with the fault: then it comes while the database is opened.
        if self.random.below(4) == 0 {
            self.arm();
        }
        match self.open() {
            Some(engine) => {
                self.work(&engine);
                self.crash();
            }
            None => {
                self.report.openings_failed += 1;
                self.crash();
            }
        }
        if self.random.below(RECOVERY_CRASHED) == 0 {
            self.disk.crash_at(1 + self.random.below(200));
            drop(self.open());
            self.report.crashed_recoveries += u64::from(self.disk.is_crashed());
            self.crash();
        }
        self.report.rounds += 1;
        self.left = self.disk.after_crash(CrashMode::KeepAll);
        let Some(engine) = self.open() else {
            return self.problem("the database does not open where nothing fails any more");
        };
        self.expect_nothing_open(engine.database());
        let promised: Vec<u64> = self.pages.iter().map(|page| page.commits).collect();
        let examined = examine(&engine, self.campaign.workload, &promised, &mut self.report.found);
        self.pages = examined.unwrap_or_default();
        self.disk.set_free_space(None);
    }

    fn problem(&mut self, text: impl Into<String>) {
        self.report.found.problem(text.into());
    }

    /// Opens the database; `None`: that failed, as it may on a disk with a fault.
    fn open(&mut self) -> Option<ForeshoreEngine> {
        let mut settings = draw_settings(&mut self.random, self.campaign.threads);
        settings.extend_from_slice(self.campaign.set);
        if self.campaign.planted_loss {
            settings.push(worker::PLANTED_LOSS.map(str::to_owned).into());
        }
        let options = worker::options(Path::new(DIRECTORY), &settings, self.campaign.execution);
        let disk = Arc::new(self.disk.clone());
        let opened = worker::open(disk, Path::new(DIRECTORY), self.campaign.workload, &options);
        let error = match opened {
            Ok(engine) => return Some(engine),
            Err(error) => error.to_string(),
        };
        // There is always space enough to open what was there.
        if (self.class == FaultClass::DiskFull && !self.disk.is_crashed()) || error.contains("damaged") {
            self.problem(format!("opening: {error}"));
        }
        None
    }

    /// Tells the disk how to fail.
    fn arm(&mut self) {
        let (disk, random, counts) = (&self.disk, &mut self.random, self.disk.counts());
        let mut soon = |most: u64| 1 + random.below(most);
        match self.class {
            // From nothing to two MiB, small as likely as large.
            FaultClass::DiskFull => {
                let blocks = soon(10);
                disk.set_free_space(Some(soon(4096 << blocks)));
            }
            FaultClass::Eio => {
                // Few are read once the pool is warm: these come with the opening.
                disk.fail_read(counts.reads + soon(200));
                disk.fail_write(counts.writes + soon(1000));
            }
            FaultClass::Short => {
                disk.set_longest_read(Some(soon(5000) as usize));
                disk.fail_write(counts.writes + soon(1000));
            }
            FaultClass::Fsync => disk.fail_sync(counts.syncs + soon(100)),
            FaultClass::Power => disk.crash_at(counts.operations + soon(1500)),
            // It has no disk in memory.
            FaultClass::Kill => {}
        }
    }

    /// The power fails, or the process dies, and the disk is what it then is, with its faults gone; but a full one
    /// stays full.
    fn crash(&mut self) {
        self.report.add(self.disk.met());
        let mode = match (self.random.below(4), self.random.next_u64()) {
            (0, _) => CrashMode::DropUnsynced,
            (1, _) => CrashMode::KeepAll,
            (2, seed) => CrashMode::SubsetRandom(seed),
            (_, seed) => CrashMode::TornRandom(seed),
        };
        let free = self.disk.free_space();
        let total = free.map(|free| self.disk.used_space() + free);
        // Nobody writes to what is left behind.
        self.disk.crash();
        self.disk = self.disk.after_crash(mode);
        self.disk.set_free_space(total.map(|total| total.saturating_sub(self.disk.used_space())));
    }

    /// Lets threads work until the fault was met and its consequences are seen.
    fn work(&mut self, engine: &ForeshoreEngine) {
        let (campaign, class, disk) = (self.campaign, self.class, self.disk.clone());
        let shared = Shared {
            stop: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            wrong: Mutex::default(),
            watchdog: Arc::new(Watchdog::new(campaign.threads)),
        };
        let pages: Vec<_> = self.pages.drain(..).map(|page| Arc::new(Mutex::new(page))).collect();
        let acknowledged = || pages.iter().map(|page| page.lock().commits).collect::<Vec<_>>();
        let before = acknowledged();
        let open = if class == FaultClass::DiskFull { begin_open(engine.database()) } else { None };
        let met = |disk: &FaultyDisk| disk.met().iter().map(|(_, _, count)| count).sum::<u64>();
        let met_before = met(&disk);
        self.arm();
        let length = LONGEST_WORK.mul_f64((10 + self.random.below(90)) as f64 / 100.0);
        let (resumes, seed) = (self.random.below(2) == 0, self.random.next_u64());
        let resumed = thread::scope(|scope| {
            for (number, page) in pages.iter().enumerate() {
                let thread =
                    Thread { campaign, class, engine, number, page, seed: seed.wrapping_add(number as u64) };
                let shared = &shared;
                scope.spawn(move || thread.run(shared));
            }
            let look_on = |end: Option<Instant>, done: &dyn Fn() -> bool| {
                while end.is_none_or(|end| Instant::now() < end) && !done() {
                    if let Some(hang) = shared.watchdog.look(engine.database()) {
                        // Its thread cannot be waited for.
                        CliError::Other(format!("{}: {hang}", class.name())).report(campaign.quiet);
                        std::process::exit(i32::from(CHECK_FAILED));
                    }
                    thread::sleep(LOOK_EVERY);
                }
            };
            // Short reads are met at once, and end nothing.
            look_on(Some(Instant::now() + length), &|| class != FaultClass::Short && met(&disk) > met_before);
            look_on(Some(Instant::now() + AFTERMATH), &|| false);
            let mut resumed = false;
            if class == FaultClass::DiskFull {
                end_on_a_full_disk(engine.database(), open, &shared);
                if resumes {
                    disk.set_free_space(None);
                    let then = acknowledged();
                    let has_resumed = || acknowledged().iter().zip(&then).all(|(now, then)| now > then);
                    look_on(Some(Instant::now() + LONGEST_RESUMPTION), &|| {
                        has_resumed() || shared.watchdog.is_over()
                    });
                    resumed = has_resumed();
                    if !resumed {
                        shared.wrong("a thread does not go on when the disk has space again".to_owned());
                    }
                }
            }
            shared.stop.store(true, Ordering::Relaxed);
            look_on(None, &|| shared.watchdog.is_over());
            resumed
        });
        let report = &mut self.report;
        report.resumed += u64::from(resumed);
        let commits = acknowledged();
        report.found.commits_checked +=
            commits.iter().zip(&before).map(|(now, then)| now - then).sum::<u64>();
        report.refused += shared.refused.load(Ordering::Relaxed);
        let silence = shared.watchdog.longest_silence().as_secs_f64();
        report.longest_silence = report.longest_silence.max(silence);
        shared.wrong.into_inner().into_iter().for_each(|wrong| report.found.problem(wrong));
        self.pages = pages.iter().map(|page| page.lock().clone()).collect();
    }

    /// No transaction that was open when the disk was full has left anything.
    fn expect_nothing_open(&mut self, database: &Database) {
        let found = database.transact(|tx| {
            (0..OPEN_ROWS).map(|row| tx.get_with(OPEN, row, |_| ())).collect::<Result<Vec<_>, _>>()
        });
        match found {
            Ok(rows) if rows.iter().all(Option::is_none) => {}
            Ok(_) => self.problem("a transaction that did not commit has left rows"),
            Err(error) => self.problem(format!("rows cannot be looked for: {error}")),
        }
    }
}

/// A transaction that has changed something before the disk becomes full; `None`: it is full already.
fn begin_open(database: &Database) -> Option<Transaction> {
    let mut open = database.begin().ok()?;
    let rows = (0..OPEN_ROWS).try_for_each(|row| open.put(OPEN, row, &[7; OPEN_ROW_BYTES][..]).map(|_| ()));
    rows.is_ok().then_some(open)
}

/// On a full disk work that was admitted can be ended, and what there is can be made durable and read.
fn end_on_a_full_disk(database: &Database, open: Option<Transaction>, shared: &Shared) {
    let rolled_back = open.map_or(Ok(()), Transaction::rollback);
    for (what, result) in [("rollback", rolled_back), ("checkpoint", database.checkpoint())] {
        if let Err(error) = result {
            shared.wrong(format!("{what} on a full disk: {error}"));
        }
    }
}

/// What the threads of a round share.
struct Shared {
    /// Set by whoever looks on, when all has been seen. Relaxed: a transaction more is no harm.
    stop: AtomicBool,
    /// Transactions that were refused.
    refused: AtomicU64,
    /// What no thread may meet.
    wrong: Mutex<Vec<String>>,
    watchdog: Arc<Watchdog>,
}

impl Shared {
    fn wrong(&self, text: String) {
        self.wrong.lock().push(text);
    }
}

/// A thread that works.
struct Thread<'t> {
    campaign: &'t Campaign<'t>,
    class: FaultClass,
    engine: &'t ForeshoreEngine,
    number: usize,
    page: &'t Arc<Mutex<Page>>,
    seed: u64,
}

impl Thread<'_> {
    fn run(mut self, shared: &Shared) {
        let mut idle = None;
        while !shared.stop.load(Ordering::Relaxed) {
            let mut worker = idle.take().unwrap_or_else(|| self.worker(&shared.watchdog));
            worker.next();
            let (back, outcome) = worker::run_one(self.engine, worker);
            idle = back;
            match outcome {
                Ok(Outcome::Committed) => idle.iter_mut().for_each(|worker| worker.committed()),
                Ok(Outcome::RolledBack | Outcome::GaveUp(_)) => {}
                Err(failure) => match self.verdict(&failure) {
                    Verdict::Refused => {
                        shared.refused.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(REFUSED_NAP);
                    }
                    Verdict::Over => break,
                    Verdict::Wrong => {
                        shared.wrong(format!("thread {}: {failure}", self.number));
                        break;
                    }
                },
            }
            shared.watchdog.progress(self.number);
        }
        shared.watchdog.ended(self.number);
    }

    fn worker(&mut self, watchdog: &Arc<Watchdog>) -> Box<dyn foreshore_bench::Worker> {
        self.seed = self.seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let place = (self.number, self.campaign.threads);
        Counted::boxed(self.campaign.workload, place, self.seed, self.page, watchdog)
    }

    /// Whether a thread may be told of such a failure.
    fn verdict(&self, failure: &Failure) -> Verdict {
        let Some(error) = failure.source.downcast_ref::<Error>() else { return Verdict::Wrong };
        match (error, self.class) {
            (Error::PoolExhausted { .. } | Error::LockTimeout(_) | Error::LogFull { .. }, _)
            | (Error::DiskFull { .. }, FaultClass::DiskFull) => Verdict::Refused,
            (_, FaultClass::DiskFull) => Verdict::Wrong,
            (Error::Io { .. }, _) => Verdict::Refused,
            (Error::Poisoned { .. } | Error::Closed { .. } | Error::OutcomeUnknown { .. }, _) => {
                Verdict::Over
            }
            _ => Verdict::Wrong,
        }
    }
}
