//! `foreshore torture`: a child process works and tells of every commit that it was promised; it is killed at random
//! moments; the database is opened again and compared with what was told.
//!
//! Each thread of the child writes, in every transaction, a row of the *ledger*: how many transactions it has
//! committed, in all and of each kind. After a kill, a thread's row must say what the thread told last, or one more:
//! the commit that it could not tell of any more. Less is a lost commit. The workload's own conditions, among them that
//! the number of commits in the ledger is the number that the data shows, catch a transaction that is there in part.

mod cycle;
mod examine;
mod fatal;
mod faults;
mod ledger;
mod mixed;
mod referee;
mod watchdog;
mod worker;

use std::{
    error::Error,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use foreshore::Options;
use foreshore_bench::{Execution, Mix, Named, Scale, Tpcb, Tpcc, Workload};
use foreshore_env::{
    random::{self, Xorshift},
    time::Duration,
};
use serde::Serialize;

use crate::{
    bench::{names, parse_measured, parse_setting},
    directory::{Directory, await_interruption},
    output::{CliError, counted, json_line, judged, line},
};
use examine::Findings;
use faults::{ClassReport, FaultClass, FaultClasses};
use referee::{Referee, Score};

/// Kills a working process again and again and checks that nothing acknowledged was lost.
///
/// A child process runs transactions and reports each acknowledged commit over a pipe. It is killed (SIGKILL) after 50
/// ms (or --life, if that is less) to 3 s (--life); now and then a second child is killed while it recovers from that.
/// Then the database is opened, verified, and compared with the reports: nothing acknowledged is lost, nothing is half
/// done, the workload's conditions hold.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TortureArgs {
    /// For how long, once the database is loaded; one child lives and dies in any case.
    #[arg(long, value_name = "S", default_value = "60", value_parser = parse_measured)]
    seconds: Duration,
    /// What the child does: tpcb, tpcc, cycle (a ring of records whose links are changed three at a time, beside
    /// records of up to 40 kB that come and go), or mixed (all three in one database).
    #[arg(long, default_value = "tpcb", value_parser = ["tpcb", "tpcc", "cycle", "mixed"])]
    workload: String,
    /// Threads of the child. Its log may take 256 MiB, or 4 MiB for each of them if that is more (--set
    /// log_bytes=SIZE).
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// How long a child works at most before it is killed. In one that works for long a watchdog finds threads that
    /// hang.
    #[arg(long, value_name = "S", default_value = "3", value_parser = parse_measured)]
    life: Duration,
    /// How the child's transactions get their locks: as `bench` has it.
    #[arg(long, default_value = "dynamic",
          value_parser = names::<Execution>(&["dynamic", "planned", "reconnaissance", "partitioned"]))]
    execution: Execution,
    /// Let the disk fail, too: `disk-full` (and later it has space again), `eio` (reads and writes fail), `short`
    /// (reads give less, writes end in the middle), `fsync` (a sync fails, and its data is gone), `kill` (at any
    /// moment, and at the n-th write), `power` (what was not synced is lost, or torn); `all` of them share the time.
    /// All but `kill` use a disk in memory.
    #[arg(long, value_name = "CLASS", conflicts_with_all = ["power_cut", "child", "life"],
          value_parser = PossibleValuesParser::new(FaultClass::NAMES).try_map(|name| name.parse::<FaultClasses>()))]
    faults: Option<FaultClasses>,
    /// An option of the database, with its unit, instead of what is drawn each time: `--set pool_bytes=16MiB`. May be
    /// repeated.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
    /// A new directory for the database, which is kept [default: a temporary one, removed unless something is found].
    /// Of a disk in memory it gets what the last crash left, if something is found.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The seed of the moments and of the inputs [default: another one each time; it is printed].
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
    /// Cut the power, too: this shell command shuts the file system of DIR down before each kill, while the child
    /// (process FORESHORE_WORKER) works, so that nothing is left but what was synced. `scripts/power-cut` has one, and
    /// a file system that may be lost.
    #[arg(long, value_name = "COMMAND", hide_short_help = true, requires_all = ["dir", "after_kill"])]
    power_cut: Option<String>,
    /// The shell command that, after such a kill, unmounts the file system and mounts it again.
    #[arg(long, value_name = "COMMAND", hide_short_help = true, requires = "power_cut")]
    after_kill: Option<String>,
    /// Let the child promise commits that are not yet on the disk, to see that this is found out.
    #[arg(long, hide = true)]
    planted_loss: bool,
    /// Let a thread of the child panic, to see that this is found out.
    #[arg(long, hide = true, conflicts_with = "faults")]
    planted_panic: bool,
    /// What the parent tells the child.
    #[arg(long, hide = true, value_names = ["SEED", "SETTINGS", "WRITE"], num_args = 3, requires = "dir")]
    child: Option<Vec<String>>,
}

const EXAMPLES: &str = "\
Examples:
  foreshore torture --seconds 600 --threads 8
  foreshore torture --workload cycle --seed 7
  foreshore torture --workload mixed --threads 500 --life 600 --seconds 3600     does anybody hang?
  foreshore torture --execution partitioned --threads 8
  foreshore torture --workload tpcc --dir /mnt/ssd/torture --json
  foreshore torture --faults all --seconds 60
  foreshore torture --faults disk-full --workload cycle --set log_insert=consolidated

Exit status: 0 nothing was lost, 1 something was, 2 it could not be run, or nothing was checked, 130 it was interrupted.";

/// What the log of a few threads may take.
const LEAST_LOG_BYTES: u64 = 256 << 20;
/// What it may take for each of many.
const LOG_BYTES_OF_A_THREAD: u64 = 4 << 20;
/// What the pool has for each: some pages are held by whoever stands still in the midst of them. 500 threads under
/// `mixed` had all 128 pages of one MiB in use for as long as a transaction waits for one.
const POOL_BYTES_OF_A_THREAD: u64 = 64 << 10;

/// Branches, accounts and so on are few, so that transactions meet.
fn workload(name: &str) -> Result<Box<dyn Workload>, CliError> {
    Ok(match name {
        "tpcb" => Box::new(Tpcb::new(4, 500, 0)?),
        "tpcc" => Box::new(Tpcc::new(Scale::tiny(2), Mix::Full, false)?),
        "mixed" => Box::new(mixed::Mixed::new()?),
        _ => Box::new(cycle::Cycle),
    })
}

/// Small memory, small log files and frequent checkpoints, other ones each time: so that eviction, recycling and
/// checkpoints are never far from a kill. What many threads need at once they have.
fn draw_settings(random: &mut Xorshift, threads: usize) -> Vec<(String, String)> {
    let mut pick = |values: &[u64]| values[random.below(values.len() as u64) as usize];
    let drawn = [
        ("pool_bytes", pick(&[1 << 20, 4 << 20, 32 << 20]).max(threads as u64 * POOL_BYTES_OF_A_THREAD)),
        ("log_segment_bytes", pick(&[256 << 10, 1 << 20, 4 << 20])),
        ("checkpoint_bytes", pick(&[256 << 10, 1 << 20, 8 << 20])),
        ("log_bytes", log_bytes(threads)),
        ("log_buffer_bytes", pick(&[256 << 10, 1 << 20])),
    ];
    drawn.map(|(name, bytes)| (name.to_owned(), bytes.to_string())).into()
}

/// What the log may take of a database on which so many threads work.
///
/// What is written stays in it until all have ended who were open then, and of many threads on few processors each
/// takes long to come to its end: of 500 under `cycle` the oldest had been open for 2.6 s when the others had filled
/// three eighths of 256 MiB.
fn log_bytes(threads: usize) -> u64 {
    LEAST_LOG_BYTES.max(threads as u64 * LOG_BYTES_OF_A_THREAD)
}

/// What torture needs as it is: that commits are durable when they are acknowledged, and what its workloads rely on.
const NEEDED: [(&str, &str); 4] =
    [("durability", "sync"), ("isolation", "serializable"), ("create", "true"), ("read_only", "false")];

/// Refuses options that there are not, and those under which nothing of what is found would mean anything.
fn check_settings(settings: &[(String, String)]) -> Result<(), CliError> {
    let mut options = Options::default();
    for (name, value) in settings {
        options.set(name, value)?;
    }
    for (name, needed) in NEEDED {
        match options.get(name) {
            Some(value) if value != needed => {
                return Err(CliError::usage(
                    format!(
                        "torture cannot judge {name}={value}: what it checks holds with {name}={needed} alone"
                    ),
                    format!("leave out --set {name}={value}"),
                ));
            }
            _ => {}
        }
    }
    if settings.iter().any(|(name, _)| name == "execution") {
        return Err(CliError::usage("--set execution is overruled by --execution", "give --execution alone"));
    }
    Ok(())
}

/// Whether a failure is that there is no room for files, or comes of that.
fn is_full(error: &CliError) -> bool {
    let mut next = error.of_the_database().map(|error| error as &(dyn Error + 'static));
    while let Some(error) = next {
        if matches!(error.downcast_ref(), Some(foreshore::Error::DiskFull { .. })) {
            return true;
        }
        next = error.source();
    }
    false
}

/// That the campaign's own files have no room: nothing was found then.
fn no_room(directory: &Path, cause: &str) -> CliError {
    CliError::usage(
        format!("there is no room for the campaign itself: {cause}"),
        format!("make room where {} is, or name a place that has more with --dir", directory.display()),
    )
}

/// The usual reason why nothing was checked.
const NO_COMMIT: &str = "no commit was acknowledged";

/// That nothing came of any round, `why` so that nothing could be lost: that is no verdict either.
fn nothing_checked(whose: &str, rounds: u64, why: &str, hint: &str) -> CliError {
    CliError::Retold {
        code: "nothing_checked",
        message: format!("nothing was checked: in {rounds} rounds of {whose} {why}"),
        hint: format!("{hint}, or make commits faster (--set, --threads)"),
    }
}

/// What is played, under faults of the disk or not.
struct Campaign<'c> {
    workload: &'c dyn Workload,
    threads: usize,
    execution: Execution,
    /// The database's options, beside those that are drawn.
    set: &'c [(String, String)],
    seed: u64,
    length: Duration,
    quiet: bool,
    /// Whether commits shall be promised that are not yet on the disk: then losses must be found.
    planted_loss: bool,
    /// For what needs files, and for the evidence.
    directory: &'c Directory,
}

/// Runs the subcommand.
pub(crate) fn run(args: &TortureArgs) -> Result<ExitCode, CliError> {
    let workload = workload(&args.workload)?;
    let threads = usize::from(args.threads);
    if let (Some(child), Some(directory)) = (&args.child, &args.dir) {
        return worker::run(workload.as_ref(), threads, args.execution, directory, child);
    }
    check_settings(&args.set)?;
    let directory = Directory::choose(args.dir.as_deref(), "torture")?;
    directory.end_when_interrupted(args.json)?;
    let campaign = Campaign {
        workload: workload.as_ref(),
        threads,
        execution: args.execution,
        set: &args.set,
        seed: args.seed.unwrap_or_else(random::seed),
        length: args.seconds,
        quiet: args.json,
        planted_loss: args.planted_loss,
        directory: &directory,
    };
    match &args.faults {
        Some(classes) => run_faults(args, &campaign, classes),
        None => run_kills(args, &campaign),
    }
}

fn run_faults(
    args: &TortureArgs,
    campaign: &Campaign<'_>,
    classes: &FaultClasses,
) -> Result<ExitCode, CliError> {
    let classes = campaign.run(classes)?;
    await_interruption();
    let passed = classes.iter().all(ClassReport::passed);
    if !passed {
        campaign.directory.keep();
    }
    Outcome::new(args, campaign, passed, Classes { classes }).tell(args.json, print_classes)
}

fn run_kills(args: &TortureArgs, campaign: &Campaign<'_>) -> Result<ExitCode, CliError> {
    let referee = Referee {
        campaign,
        length: campaign.length,
        longest_life: args.life.min(args.seconds),
        at_writes: false,
        planted_panic: args.planted_panic,
        power_cut: args.power_cut.as_deref().zip(args.after_kill.as_deref()),
    };
    let score = referee.run()?;
    await_interruption();
    if score.found.has_checked_nothing() {
        return Err(nothing_checked(
            "kills",
            score.cycles,
            NO_COMMIT,
            "give it more --seconds, and children more --life",
        ));
    }
    Outcome::new(args, campaign, score.passed(), score).tell(args.json, print_score)
}

/// What came of a campaign, in which so much was found.
#[derive(Serialize)]
struct Outcome<'o, F> {
    workload: &'o str,
    threads: u16,
    execution: &'static str,
    seed: u64,
    passed: bool,
    #[serde(flatten)]
    found: F,
    /// Where the database was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
}

#[derive(Serialize)]
struct Classes {
    classes: Vec<ClassReport>,
}

impl<F: Serialize> Outcome<'_, F> {
    fn new<'o>(args: &'o TortureArgs, campaign: &Campaign<'_>, passed: bool, found: F) -> Outcome<'o, F> {
        let kept = campaign.directory.kept().filter(|path| path.exists());
        Outcome {
            workload: &args.workload,
            threads: args.threads,
            execution: args.execution.name(),
            seed: campaign.seed,
            passed,
            found,
            kept: kept.map(|path| path.display().to_string()),
        }
    }

    /// Tells it; to a person what was found as `print` does.
    fn tell(&self, json: bool, print: fn(&Self) -> Result<(), CliError>) -> Result<ExitCode, CliError> {
        let printed = if json { json_line(self) } else { print(self).and_then(|()| self.print_end()) };
        judged(printed, self.passed)
    }

    fn print_head(&self) -> Result<(), CliError> {
        let Outcome { workload, threads, execution, seed, .. } = self;
        let threads = counted(threads, "thread", "threads");
        line(format!("{workload} with {threads}, {execution}, seed {seed}"))
    }

    fn print_end(&self) -> Result<(), CliError> {
        if let Some(path) = &self.kept {
            line(format!("the database is in {path}"))?;
        }
        line(if self.passed { "passed" } else { "FAILED" })
    }
}

fn print_classes(outcome: &Outcome<'_, Classes>) -> Result<(), CliError> {
    outcome.print_head()?;
    faults::print(&outcome.found.classes)
}

fn print_score(outcome: &Outcome<'_, Score>) -> Result<(), CliError> {
    let Score {
        cycles,
        kills,
        kills_in_recovery,
        kills_at_writes: _,
        power_cuts,
        found: Findings { commits_checked, unreported_kept, losses, problems },
        longest_silence,
        seconds,
    } = &outcome.found;
    for problem in problems {
        line(problem)?;
    }
    outcome.print_head()?;
    line(format!("  cycles           {cycles:>10}  in {seconds:.0} s"))?;
    line(format!("  kills            {kills:>10}  {kills_in_recovery} of them during recovery"))?;
    line(format!("  power cuts       {power_cuts:>10}"))?;
    line(format!(
        "  commits checked  {commits_checked:>10}  and {unreported_kept} that came through unreported"
    ))?;
    line(format!("  longest silence  {longest_silence:>10.1}  s, of a thread that worked"))?;
    line(format!("  losses           {losses:>10}"))?;
    line(format!("  problems         {:>10}", problems.len()))
}

/// Tells a person what happens; standard error may be closed, and nobody misses it then.
fn remark(quiet: bool, text: &str) {
    if !quiet {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_have_a_longer_log_and_a_larger_pool() {
        assert_eq!([1, 64, 65, 500].map(|threads| log_bytes(threads) >> 20), [256, 256, 260, 2000]);
        let mut random = Xorshift::new(1);
        let mut least = |threads| {
            let pools = (0..100).map(|_| draw_settings(&mut random, threads)[0].1.parse::<u64>().unwrap());
            pools.min()
        };
        assert_eq!([4, 500].map(&mut least), [Some(1 << 20), Some(500 * POOL_BYTES_OF_A_THREAD)]);
    }
}
