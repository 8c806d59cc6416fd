//! `foreshore bench elr` and `foreshore bench killpolicy`: what becomes of locks while commits are on their way to a
//! slow disk, and who gives way in a deadlock between pipelines (Kimura et al. 2012, §6, figures 7, 8 and 9).
//!
//! All sides of a comparison take turns, each on a database of its own that has just been loaded; of several rounds the
//! median counts. A [`Stage`] is where they do: this machine, or a simulated one.

mod report;
mod stage;

use std::{fs, process::ExitCode};

use clap::Args;
use foreshore::Options;
use foreshore_bench::{Durability, Silent, turns};
use foreshore_env::time::Duration;
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use self::report::Outcome;
use self::report::{Row, newest, text};
pub(crate) use self::stage::{Stage, Trial, Tried};
use crate::{
    bench::{names, parse_measured, parse_seconds, parse_setting, standing::Standing},
    directory::Directory,
    output::{CliError, counted, json_line, judged, line},
};

#[derive(Args)]
#[command(after_help = ELR_EXAMPLES)]
pub(crate) struct ElrArgs {
    /// Shares of the updates of TPC-B that only read, 0 to 1, of whole percents.
    #[arg(long, value_name = "R,…", value_delimiter = ',', default_value = "0,0.5,1", value_parser = parse_ratio)]
    read_ratio: Vec<f64>,
    /// Which locks of a commit are released while it is on its way to the disk; the others are compared with the first.
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', default_value = "off,shared,shared_and_exclusive",
          value_parser = |text: &str| setting("early_lock_release", text))]
    elr: Vec<String>,
    #[command(flatten)]
    common: SharedArgs,
}

const ELR_EXAMPLES: &str = "\
Examples:
  foreshore bench elr                                           10 ms and 30 µs, 0, 50 and 100% reads
  foreshore bench elr --read-ratio 0 --zipf 0,0.5,1,1.5,2 --log-latency 0,100us,1ms,10ms
  foreshore bench elr --elr off,shared_and_exclusive --read-ratio 1 --rounds 9
  foreshore bench elr --durability sync --threads 32            threads that wait for their commits, in place of pipelines
  cargo sim simulate bench elr --cores 6                        the paper's six cores, simulated

The paper: releasing all locks early is 5 times as fast with a disk of 10 ms and 3 times with one of 30 µs, on six
cores; releasing shared locks alone gains nothing; with reads only, tags cost at most 5%. Pipelines that keep their
locks run one at a time, so the ratio is at most the number of cores.

Interrupted, it prints what was measured until then: with --json there is \"partial\":true, beside the error.";

#[derive(Args)]
#[command(after_help = KILL_EXAMPLES)]
pub(crate) struct KillArgs {
    /// Which transaction gives way in a deadlock; the others are compared with the first.
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', default_value = "longest_pipeline,youngest,shortest_pipeline",
          value_parser = |text: &str| setting("victim_policy", text))]
    policy: Vec<String>,
    #[command(flatten)]
    common: SharedArgs,
}

const KILL_EXAMPLES: &str = "\
Examples:
  foreshore bench killpolicy
  foreshore bench killpolicy --log-latency 30us,1ms,10ms --rounds 5 --json
  cargo sim simulate bench killpolicy --cores 6 --seconds 1     the paper's six cores, simulated

The paper, on six cores: with a disk of 10 ms, ending the shortest pipeline is 2 to 4 times as fast as ending the longest
or the youngest; with one of 30 µs the difference is small.

Interrupted, it prints what was measured until then: with --json there is \"partial\":true, beside the error.";

#[derive(Args)]
struct SharedArgs {
    /// By how much every sync of the log takes longer than the disk needs, with its unit.
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "30us,10ms",
          value_parser = parse_latency)]
    log_latency: Vec<String>,
    /// Exponents of Zipf's law by which tellers and accounts are chosen, 0 (all alike) to 2.
    #[arg(long, value_name = "S,…", value_delimiter = ',', default_value = "1")]
    zipf: Vec<f64>,
    /// Threads, each a pipeline; under sync they wait for each commit.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Whether threads go on while their commits are on their way to the disk, or wait for them.
    #[arg(long, default_value = "pipelined", value_parser = names::<Durability>(&["pipelined", "sync"]))]
    durability: Durability,
    /// Branches of TPC-B.
    #[arg(long, value_name = "B", default_value_t = 20)]
    branches: u32,
    /// Accounts of each branch.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    accounts: u32,
    /// Transactions after which a pipeline waits for the disk.
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pipeline_length: u32,
    /// How long each side is measured in each round [simulated: 0.1].
    #[arg(long, value_name = "S", default_value = if cfg!(foreshore_sim) { "0.1" } else { "1" },
          value_parser = parse_measured)]
    seconds: Duration,
    /// How long each side runs before it is measured [simulated: 0.02].
    #[arg(long, value_name = "S", default_value = if cfg!(foreshore_sim) { "0.02" } else { "0.3" },
          value_parser = parse_seconds)]
    warm_up: Duration,
    /// Rounds in turn; the median counts [simulated: 1].
    #[arg(long, value_name = "N", default_value_t = if cfg!(foreshore_sim) { 1 } else { 3 },
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// An option of the engine, with its unit: `--set pool_bytes=16MiB`. May be repeated.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, String)>,
    /// The seed of all random inputs; each round has one of its own.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
    /// Only the run of this number, in the order in which they take turns: given to the process that has the run's
    /// machine.
    #[cfg(foreshore_sim)]
    #[arg(long, hide = true)]
    only: Option<usize>,
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // The workload takes percents.
        Ok(ratio) if (0.0..=1.0).contains(&ratio) && ratio == (ratio * 100.0).round() / 100.0 => Ok(ratio),
        _ => Err("give shares between 0 and 1, of whole percents, such as 0,0.05,1".to_owned()),
    }
}

/// A time with its unit; nothing needs none.
fn parse_latency(text: &str) -> Result<String, String> {
    setting("log_latency", if text == "0" { "0s" } else { text })
}

/// A value that an option of the engine can have.
fn setting(name: &str, value: &str) -> Result<String, String> {
    Options::default().set(name, value).map(|()| value.to_owned()).map_err(|error| error.to_string())
}

#[cfg(foreshore_sim)]
impl ElrArgs {
    /// How many each run has.
    pub(crate) fn threads(&self) -> usize {
        usize::from(self.common.threads)
    }

    /// Whether it is to be told to programs.
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }
}

#[cfg(foreshore_sim)]
impl KillArgs {
    /// How many each run has.
    pub(crate) fn threads(&self) -> usize {
        usize::from(self.common.threads)
    }

    /// Whether it is to be told to programs.
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }
}

impl SharedArgs {
    fn durability_name(&self) -> &'static str {
        if self.durability == Durability::Sync { "sync" } else { "pipelined" }
    }
}

/// A comparison: the option that the sides differ in, and what all of them have in common.
struct Experiment<'a> {
    name: &'static str,
    option: &'static str,
    sides: &'a [String],
    read_ratios: &'a [f64],
    fixed: Vec<(String, String)>,
    common: &'a SharedArgs,
}

/// One setting of everything but the side.
#[derive(Clone, Copy)]
struct Cell<'a> {
    log_latency: &'a str,
    zipf: f64,
    read_ratio: f64,
}

/// Runs `bench elr` on this machine.
pub(super) fn run_elr(args: &ElrArgs) -> Result<ExitCode, CliError> {
    on_this_machine(&args.experiment())
}

/// Runs `bench killpolicy` on this machine.
pub(super) fn run_kill(args: &KillArgs) -> Result<ExitCode, CliError> {
    on_this_machine(&args.experiment())
}

fn on_this_machine(experiment: &Experiment<'_>) -> Result<ExitCode, CliError> {
    let (directory, standing) = (Directory::choose(None, "bench")?, Standing::default());
    let (broken_off, json) = (standing.clone(), experiment.common.json);
    let tell = move |error: &CliError| broken_off.interrupted(error, json, newest);
    directory.end_when_interrupted_after(|| (), tell)?;
    let mut stage = |trial: &Trial| {
        let tried = Tried::from(trial.run(directory.path(), &Silent)?);
        fs::remove_dir_all(directory.path()).map_err(CliError::io("remove the database"))?;
        Ok(tried)
    };
    let outcome = compare(experiment, &mut stage, !json, &standing)?;
    print(&outcome, json)
}

/// Prints what people have not been told yet: for programs, all of it.
pub(crate) fn print(outcome: &Outcome, json: bool) -> Result<ExitCode, CliError> {
    judged(if json { json_line(outcome) } else { Ok(()) }, outcome.consistent)
}

impl ElrArgs {
    fn experiment(&self) -> Experiment<'_> {
        Experiment {
            name: "elr",
            option: "early_lock_release",
            sides: &self.elr,
            read_ratios: &self.read_ratio,
            fixed: vec![("victim_policy".to_owned(), "shortest_pipeline".to_owned())],
            common: &self.common,
        }
    }

    /// The one run that is asked for, if one alone is.
    #[cfg(foreshore_sim)]
    pub(crate) fn only(&self) -> Result<Option<Trial>, CliError> {
        self.experiment().only()
    }
}

impl KillArgs {
    fn experiment(&self) -> Experiment<'_> {
        Experiment {
            name: "killpolicy",
            option: "victim_policy",
            sides: &self.policy,
            read_ratios: &[0.0],
            fixed: vec![("early_lock_release".to_owned(), "off".to_owned())],
            common: &self.common,
        }
    }

    /// The one run that is asked for, if one alone is.
    #[cfg(foreshore_sim)]
    pub(crate) fn only(&self) -> Result<Option<Trial>, CliError> {
        self.experiment().only()
    }
}

/// `bench elr`, on another stage; people are told of each row if `tell`.
#[cfg(foreshore_sim)]
pub(crate) fn elr(args: &ElrArgs, stage: &mut Stage<'_>, tell: bool) -> Result<Outcome, CliError> {
    compare(&args.experiment(), stage, tell, &Standing::default())
}

/// `bench killpolicy`, likewise.
#[cfg(foreshore_sim)]
pub(crate) fn kill(args: &KillArgs, stage: &mut Stage<'_>, tell: bool) -> Result<Outcome, CliError> {
    compare(&args.experiment(), stage, tell, &Standing::default())
}

/// Runs all cells on a stage; people are told of each row if `tell`. `standing` has what an interruption tells.
fn compare(
    experiment: &Experiment<'_>,
    stage: &mut Stage<'_>,
    tell: bool,
    standing: &Standing<Outcome>,
) -> Result<Outcome, CliError> {
    let SharedArgs { rounds, quiet, .. } = *experiment.common;
    let cells = experiment.cells();
    experiment.check(&cells)?;
    let bar = if !tell || quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
    bar.set_length((cells.len() * experiment.sides.len() * usize::from(rounds)) as u64);
    if let Ok(style) = ProgressStyle::with_template("  measuring {bar:30} {pos} of {len} runs, {eta} left") {
        bar.set_style(style);
    }
    standing.begin(bar.clone());
    if tell {
        line(experiment.heading())?;
    }
    let mut rows: Vec<Row> = Vec::new();
    for cell in cells {
        let known = |newest: &[Row]| {
            standing.keep(experiment.outcome([&rows, newest].concat(), rows.len(), true));
        };
        let measured = experiment.measure(cell, stage, &bar, known)?;
        let first = rows.len();
        rows.extend(measured);
        let tell_all = || rows[first..].iter().try_for_each(|row| line(text(row)));
        let told = standing.tell(experiment.outcome(rows.clone(), rows.len(), true), || {
            if tell { bar.suspend(tell_all) } else { Ok(()) }
        });
        if let Err(error) = told {
            if rows.iter().all(|row| row.consistent) {
                return Err(error);
            }
            // What was found counts, whoever can be told.
            error.report(false);
            break;
        }
    }
    bar.finish_and_clear();
    standing.end();
    let told = rows.len();
    Ok(experiment.outcome(rows, told, false))
}

impl<'a> Experiment<'a> {
    fn cells(&self) -> Vec<Cell<'a>> {
        let mut cells = Vec::new();
        for log_latency in &self.common.log_latency {
            for &zipf in &self.common.zipf {
                let ratios = self.read_ratios.iter();
                cells.extend(ratios.map(|&read_ratio| Cell { log_latency, zipf, read_ratio }));
            }
        }
        cells
    }

    fn heading(&self) -> String {
        let SharedArgs { threads, rounds, branches, accounts, seconds, .. } = self.common;
        format!(
            "TPC-B, {} of {}, {}, {}, {} of {} s\n     latency  zipf  reads  \
             {:<22}{:>12}{:>10}{:>10}{:>8}{:>16}{:>15}",
            counted(branches, "branch", "branches"),
            counted(accounts, "account", "accounts"),
            counted(threads, "thread", "threads"),
            self.common.durability_name(),
            counted(rounds, "round", "rounds"),
            seconds.as_secs_f64(),
            self.option,
            "commits/s",
            "least",
            "most",
            "ratio",
            "deadlocks/1000",
            "commits/flush",
        )
    }

    /// All sides in turn, as many times as there are rounds; `known` has the rows after each of these.
    fn measure(
        &self,
        cell: Cell<'_>,
        stage: &mut Stage<'_>,
        bar: &ProgressBar,
        known: impl Fn(&[Row]),
    ) -> Result<Vec<Row>, CliError> {
        let mut reports: Vec<Vec<Tried>> = self.sides.iter().map(|_| Vec::new()).collect();
        let mut rows = Vec::new();
        for round in 0..self.common.rounds {
            for turn in turns(self.sides.len(), usize::from(round)) {
                reports[turn].push(stage(&self.trial(cell, &self.sides[turn], round)?)?);
                bar.inc(1);
            }
            let sides = self.sides.iter().zip(&reports);
            rows = sides.map(|(side, own)| Row::of(cell, side, own, &reports[0])).collect();
            known(&rows);
        }
        Ok(rows)
    }

    /// What it has come to.
    fn outcome(&self, rows: Vec<Row>, told: usize, partial: bool) -> Outcome {
        let SharedArgs { threads, branches, accounts, seconds, rounds, .. } = *self.common;
        Outcome {
            workload: self.name,
            version: env!("CARGO_PKG_VERSION"),
            threads,
            durability: self.common.durability_name(),
            rounds,
            seconds: seconds.as_secs_f64(),
            branches,
            accounts_per_branch: accounts,
            partial,
            consistent: rows.iter().all(|row| row.consistent),
            told,
            rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_ratios_are_parsed() {
        assert_eq!(parse_latency("30us"), Ok("30us".to_owned()));
        assert_eq!(parse_latency("0"), Ok("0s".to_owned()));
        assert!(parse_latency("30").is_err());
        assert!(setting("victim_policy", "oldest").is_err_and(|error| error.contains("shortest_pipeline")));
        assert_eq!(parse_ratio("0.5"), Ok(0.5));
        for wrong in ["-1", "2", "half"] {
            assert!(parse_ratio(wrong).is_err(), "{wrong}");
        }
    }
}
