//! `foreshore simulate --seeds`: a hunt for bugs, one process for each seed.
//!
//! A process of its own makes a run the same whatever ran before, lets the campaign go on after a crash of the program,
//! and lets it end one that hangs.

mod controls;
mod process;
mod shrink;

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    ops::Range,
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use foreshore_env::{
    sabotage::{self, Fault},
    sim::Turn,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{
    CampaignArgs,
    hunt::{Changes, Told, hunt},
};
use crate::{
    file,
    output::{CliError, counted, json_line, judged, line},
};
use process::{Ended, Request, Run};

/// How often the campaign looks whether a run is over.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a campaign came to.
#[derive(Serialize)]
struct Outcome {
    /// The first seed, and the one after the last.
    seeds: [u64; 2],
    runs: u64,
    passed: bool,
    failures: Vec<Failure>,
    /// Transactions that the judge found in the databases.
    committed: u64,
    /// Commits that were lost and were allowed to be.
    lost: u64,
    /// How often a database was opened again and judged.
    lives: u64,
    /// Of people's time: no part of what a seed gives.
    #[serde(skip)]
    seconds: f64,
}

/// A run that failed.
#[derive(Serialize)]
struct Failure {
    seed: u64,
    why: String,
    /// What to type to see it again, exactly as it was.
    again: String,
    /// A smaller run that fails, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    shrunk: Option<shrink::Shrunk>,
}

pub(super) fn run(args: &CampaignArgs) -> Result<ExitCode, CliError> {
    let seeds = args.seeds.clone().ok_or_else(|| CliError::usage("no seeds", "--seeds 0..100"))?;
    check_turns(args, &seeds)?;
    if args.plant.as_deref() == Some("all") {
        return controls::run(args, &seeds);
    }
    if args.known.is_some() {
        return Err(CliError::usage(
            "--known is of all faults",
            "--plant all --known FILE, or the seed itself: --plant FAULT --seeds 17",
        ));
    }
    let planted = args.plant.as_deref().map(fault_named).transpose()?;
    if seeds.end - seeds.start == 1 && !args.shrink {
        return one(seeds.start, args, planted);
    }
    let bar = progress(seeds.end - seeds.start, args.json);
    let outcome = campaign(args, seeds, &bar)?;
    bar.finish_and_clear();
    let printed = if args.json { json_line(&outcome) } else { print(&outcome) };
    judged(printed, outcome.passed)
}

/// A schedule is that of one seed's run.
fn check_turns(args: &CampaignArgs, seeds: &Range<u64>) -> Result<(), CliError> {
    let is_one = seeds.end - seeds.start == 1 && args.plant.as_deref() != Some("all");
    if args.turns.is_some() && !is_one {
        return Err(CliError::usage(
            "--turns has the schedule of one run",
            "give its seed alone: --seeds 17 --turns FILE",
        ));
    }
    if args.keep_turns.is_some() && (!is_one || args.shrink) {
        return Err(CliError::usage(
            "--keep-turns keeps the schedule of one run as it is",
            "give one seed, and no --shrink, which leaves a schedule of its own in a file: --seeds 17 --keep-turns FILE",
        ));
    }
    Ok(())
}

fn fault_named(name: &str) -> Result<Fault, CliError> {
    let unknown =
        || CliError::usage(format!("there is no fault {name:?}"), "a name that `--plant all` shows");
    Fault::named(name).ok_or_else(unknown)
}

/// Runs all seeds, several at the same time. They count in their order, and those behind the last failure that is asked
/// for do not: what is told is the same however many run at a time.
fn campaign(args: &CampaignArgs, seeds: Range<u64>, bar: &ProgressBar) -> Result<Outcome, CliError> {
    let begun = Instant::now();
    let mut outcome = Outcome {
        seeds: [seeds.start, seeds.end],
        runs: 0,
        passed: true,
        failures: Vec::new(),
        committed: 0,
        lost: 0,
        lives: 0,
        seconds: 0.0,
    };
    let enough = args.stop_after.unwrap_or(usize::MAX);
    let jobs = args.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1);
    let mut next = seeds.start;
    let (mut waiting, mut running): (_, Vec<Run>) = (seeds, Vec::new());
    let (mut ended, mut failed): (BTreeMap<u64, Ended>, _) = (BTreeMap::new(), 0);
    while !running.is_empty() || !(waiting.is_empty() || failed >= enough) {
        while running.len() < jobs
            && failed < enough
            && let Some(seed) = waiting.next()
        {
            running.push(Run::start(&Request::new(seed, args))?);
        }
        let mut place = 0;
        while place < running.len() {
            if !running[place].is_over()? {
                place += 1;
                continue;
            }
            let run = running.swap_remove(place);
            let (seed, result) = (run.seed(), run.wait()?);
            failed += usize::from(result.failure.is_some());
            ended.insert(seed, result);
            bar.inc(1);
            bar.set_message(format!("{failed} failed"));
        }
        while outcome.failures.len() < enough
            && let Some(result) = ended.remove(&next)
        {
            count(&mut outcome, args, next, result)?;
            next += 1;
        }
        thread::sleep(LOOK_EVERY);
    }
    outcome.passed = outcome.failures.is_empty();
    outcome.seconds = begun.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Takes the result of a run in.
fn count(outcome: &mut Outcome, args: &CampaignArgs, seed: u64, result: Ended) -> Result<(), CliError> {
    outcome.runs += 1;
    if let Some(told) = &result.told {
        outcome.committed += told.committed;
        outcome.lost += told.lost;
        outcome.lives += told.lives;
    }
    let Some(why) = result.failure else { return Ok(()) };
    let again = Request::new(seed, args).command_line();
    let shrunk = if args.shrink { shrink::shrink(seed, args)? } else { None };
    if !args.json && !args.only_outcome {
        line(format!("seed {seed}: {why}\n  again: {again}"))?;
        if let Some(shrunk) = &shrunk {
            line(shrunk.to_string())?;
        }
    }
    outcome.failures.push(Failure { seed, why, again, shrunk });
    Ok(())
}

/// A bar on a terminal; nothing for programs.
fn progress(runs: u64, json: bool) -> ProgressBar {
    if json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(runs);
    // The template is a constant; were it wrong, the bar would be plain.
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len} runs, {eta} to go, {msg}") {
        bar.set_style(style);
    }
    bar
}

fn print(outcome: &Outcome) -> Result<(), CliError> {
    let Outcome { runs, committed, lost, lives, seconds, failures, .. } = outcome;
    line(format!(
        "{} in {seconds:.1} s: {} of databases, {} replayed, {lost} lost as they may be",
        counted(runs, "run", "runs"),
        counted(lives, "life", "lives"),
        counted(committed, "transaction", "transactions")
    ))?;
    let seeds: Vec<String> = failures.iter().map(|failure| failure.seed.to_string()).collect();
    line(match seeds.len() {
        0 => "nothing was found".to_owned(),
        count => format!("{count} FAILED: {}", seeds.join(", ")),
    })
}

/// Runs a seed in this process.
fn one(seed: u64, args: &CampaignArgs, planted: Option<Fault>) -> Result<ExitCode, CliError> {
    if let Some(fault) = planted {
        sabotage::plant(fault);
    }
    let turns = args.turns.as_deref().map(read_turns).transpose()?;
    let changes = Changes {
        without_locking: args.without_locking,
        threads: args.most_threads,
        transactions: args.most_transactions,
        turns,
    };
    let (told, turns) = hunt(seed, &changes).map_err(CliError::Other)?;
    if let Some(path) = &args.keep_turns {
        write_turns(path, &turns)?;
    }
    let printed = if args.json { json_line(&told) } else { tell(&told) };
    judged(printed, told.failure.is_none())
}

fn tell(told: &Told) -> Result<(), CliError> {
    let Told { seed, threads, servers, committed, lost, copies, turns, .. } = told;
    let servers = match servers {
        0 => String::new(),
        servers => format!(" and {}", counted(servers, "procedure", "procedures")),
    };
    line(format!(
        "seed {seed}: {}{servers} in {}, {} replayed, {lost} lost as they may be",
        counted(threads, "thread", "threads"),
        counted(turns, "turn", "turns"),
        counted(committed, "transaction", "transactions")
    ))?;
    if *copies > 0 {
        line(format!("  backups judged: {copies}"))?;
    }
    line(format!("  lives end by: {}", told.ends))?;
    line(format!("  options: {}", told.options))?;
    match &told.failure {
        Some(why) => line(format!("FAILED: {why}")),
        None => line("nothing was found"),
    }
}

/// A schedule as a file: a line for each turn: thread, picoseconds, leap.
fn read_turns(path: &Path) -> Result<Vec<Turn>, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(CliError::io(format!("read the turns in {}", path.display())))?;
    let turn = |line: &str| -> Option<Turn> {
        let mut numbers = line.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Turn { thread: u32::try_from(next()?).ok()?, lasts: next()?, leap: next()? })
    };
    text.lines().map(turn).collect::<Option<_>>().ok_or_else(|| {
        CliError::usage(
            format!("{} is not a schedule", path.display()),
            "use one that --keep-turns has written",
        )
    })
}

fn write_turns(path: &Path, turns: &[Turn]) -> Result<(), CliError> {
    let text: String =
        turns.iter().map(|turn| format!("{} {} {}\n", turn.thread, turn.lasts, turn.leap)).collect();
    file::write(path, text)
}
