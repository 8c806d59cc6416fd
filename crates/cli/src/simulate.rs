//! `foreshore simulate`: the engine on a simulated machine, in virtual time. Needs a build of its own (`cargo sim`).

#[cfg(foreshore_sim)]
mod bench;
#[cfg(foreshore_sim)]
mod campaign;
#[cfg(foreshore_sim)]
mod hunt;
#[cfg(foreshore_sim)]
mod locks;
#[cfg(foreshore_sim)]
mod speed;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Command, Subcommand};

use foreshore_bench::{BenchError, Workload};

use crate::{
    bench::{
        CommonArgs, WorkloadArgs,
        commit::{ElrArgs, KillArgs},
        deadlocks::{DreadlocksArgs, NodeadlockArgs},
        granularity::GranularityArgs,
        intent::IntentArgs,
        keyrange::KeyrangeArgs,
        ladder::LadderArgs,
        latch::LatchArgs,
        locks::LocksArgs,
        memory::MemoryArgs,
        txbench::TxbenchWorkload,
    },
    output::CliError,
};

/// Runs the engine on a simulated machine: a benchmark on many cores, or a hunt for bugs (`--seeds`).
#[derive(Args)]
#[command(after_help = EXAMPLES, subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct SimulateArgs {
    #[command(subcommand)]
    command: Option<SimulateCommand>,
    #[command(flatten)]
    campaign: CampaignArgs,
}

const EXAMPLES: &str = "\
Built and run by the alias `sim` of the repository, with a target folder of its own:
  cargo sim simulate bench tpcb --cores 80 --threads 80 --profile westmere8x10
  cargo sim simulate bench ycsb --records 100000 --cores 64 --threads 64 --seed 7 --json
  cargo sim simulate locks --intent-locks private,lightweight,in_table,inherited
  cargo sim simulate bench tpcb --cores 80 --threads 80 --bands  what holds on machines that are a little different
  cargo sim simulate bench latch --latch ttas --threads 1,10,40 --mix write-only
  cargo sim simulate speed --cores 80,1024           how fast the simulator itself is
  cargo sim simulate bench elr --cores 6 --zipf 0,1,2   locks released early or not, on the paper's six cores
  cargo sim simulate bench ladder --profile niagara32 --cores 32 --threads 1,8,32 --commit-every 100
  cargo sim simulate --seeds 0..100                  random schedules, disk faults and crashes, checked
  cargo sim simulate --seeds 17                      one of them again, exactly as it was
  cargo sim simulate --seeds 17 --shrink             a smaller one that fails, too
  cargo sim simulate --seeds 0..4000 --plant all      does it find what is wrong? a table of planted faults

Exit status: 0 all checks hold, 1 a check failed, 2 wrong usage or the run could not be finished.";

#[derive(Subcommand)]
enum SimulateCommand {
    /// Loads a workload, runs it on simulated cores, prints what `bench` prints and what the cores did.
    Bench(Box<SimulateBenchArgs>),
    /// Counts what locks cost: atomic changes, fences, latches, allocations of each operation.
    Locks(SimulateLocksArgs),
    /// Measures the simulator itself: accesses that it charges in a second of CPU.
    Speed(SpeedArgs),
}

#[derive(Args)]
#[cfg_attr(not(foreshore_sim), allow(dead_code, reason = "parsed so that the help tells of it"))]
struct SpeedArgs {
    /// Cores, one measurement of each kind for each number.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,80,1024",
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    cores: Vec<u64>,
    /// Accesses of each measurement, in millions.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    millions: u64,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[cfg_attr(not(foreshore_sim), allow(dead_code, reason = "parsed so that the help tells of it"))]
struct SimulateLocksArgs {
    /// Lock tables, as the option lock_table has them.
    #[arg(
        long,
        value_name = "TABLE,…",
        value_delimiter = ',',
        default_value = "latched,staged,global_mutex"
    )]
    lock_tables: Vec<String>,
    /// Intent locks, as the option intent_locks has them.
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', default_value = "private")]
    intent_locks: Vec<String>,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(mut_subcommands(without_examples))]
struct SimulateBenchArgs {
    #[command(subcommand)]
    what: Simulated,
    #[command(flatten)]
    machine: MachineArgs,
}

/// The examples of a benchmark are those of `bench`, which run on the machine at hand.
fn without_examples(command: Command) -> Command {
    command.after_help("Examples: cargo sim simulate --help")
}

#[derive(Subcommand)]
#[cfg_attr(not(foreshore_sim), allow(dead_code, reason = "parsed so that the help tells of it"))]
enum Simulated {
    #[command(flatten)]
    Workload(WorkloadArgs),
    /// Range reads and updates of three tables; choose the lock table by `--set lock_table=…` (Jung et al. 2013).
    Txbench(TxbenchArgs),
    /// Latches: as `bench latch`; virtual time is expensive, so give few threads, latches and seconds.
    Latch(Seeded<LatchArgs>),
    /// How many tuples a latch should guard: as `bench granularity`, on one machine.
    Granularity(GranularityArgs),
    /// Single accesses to memory: as `bench memory`.
    Memory(Seeded<MemoryArgs>),
    /// The lock manager alone: as `bench locks`, on one machine; give few combinations and seconds.
    Locks(Seeded<LocksArgs>),
    /// Early lock release: as `bench elr`, every run on a machine of its own.
    Elr(ElrArgs),
    /// Deadlocks between pipelines: as `bench killpolicy`, likewise.
    Killpolicy(KillArgs),
    /// The ladder of Shore-MT: as `bench ladder`, on one machine.
    Ladder(LadderArgs),
    /// Ways of waiting for locks: as `bench dreadlocks`, on one machine.
    Dreadlocks(DreadlocksArgs),
    /// Policies against deadlocks: as `bench nodeadlock`, on one machine.
    Nodeadlock(NodeadlockArgs),
    /// Key-range modes: as `bench keyrange`, on one machine.
    Keyrange(KeyrangeArgs),
    /// Intent locks alone: as `bench intent`, on one machine.
    Intent(Seeded<IntentArgs>),
}

/// What has no seed in the real world, where nothing in it is drawn: what differs here is the machine.
#[derive(Args)]
#[cfg_attr(not(foreshore_sim), allow(dead_code, reason = "parsed so that the help tells of it"))]
struct Seeded<A: Args> {
    #[command(flatten)]
    args: A,
    /// The seed of the machine: of how long transfers of cache lines take.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct TxbenchArgs {
    #[command(flatten)]
    workload: TxbenchWorkload,
    #[command(flatten)]
    common: CommonArgs,
}

/// Rows of a table of txbench: loading them takes time here.
const TXBENCH_KEYS: u32 = 10_000;

impl TxbenchArgs {
    /// The workload, with how it is run.
    fn into_parts(self) -> Result<(Box<dyn Workload>, CommonArgs), BenchError> {
        Ok((Box::new(self.workload.workload(TXBENCH_KEYS)?), self.common))
    }
}

#[derive(Args, Clone)]
#[cfg_attr(not(foreshore_sim), allow(dead_code, reason = "parsed so that the help tells of it"))]
struct MachineArgs {
    /// Cores of the machine [default: as many as threads]. More than it has are further sockets of the same kind.
    #[arg(long, global = true, value_name = "N")]
    cores: Option<usize>,
    /// The machine: niagara32, r810, xeon2x10, westmere8x10, epyc2x96, gnr2x128, mesh1024, vm2,
    /// vm2-zen4 or vm2-xeon.
    #[arg(long, global = true, value_name = "NAME", default_value = "westmere8x10")]
    profile: String,
    /// What files lie on: hdd, ssd, plp (safe against power failure) or nvram.
    #[arg(long, global = true, value_name = "NAME", default_value = "plp")]
    device: String,
    /// How long the old owner of a cache line keeps hitting it, in percent of a transfer [default: the machine's].
    #[arg(long, global = true, value_name = "P", value_parser = clap::value_parser!(u64).range(..=100))]
    retention: Option<u64>,
    /// The cost of what is remote, in percent of the machine's: of everything beyond a core's own socket, and beyond
    /// its cluster where a socket has several (niagara32, epyc2x96, gnr2x128, mesh1024).
    #[arg(long, global = true, value_name = "P", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(..=10_000))]
    remote: u64,
    /// Run it on six more machines, with retention of 0 and 50 % and remote costs of half, one and one and a half
    /// times, and print the least and the most beside each figure: what all agree on may be believed. Where all cores
    /// are near each other, no costs are remote, and it runs on two more machines only.
    #[arg(long, global = true, conflicts_with_all = ["retention", "remote"])]
    bands: bool,
}

#[derive(Args, Clone)]
#[cfg_attr(not(foreshore_sim), allow(dead_code, reason = "parsed so that the help tells of it"))]
struct CampaignArgs {
    /// The seeds of a campaign: one, which is run in this process and reported, or A..B without B.
    #[arg(long, required = true, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<std::ops::Range<u64>>,
    /// Runs at the same time [default: as many as processors].
    #[arg(long, value_name = "N", value_parser = one_or_more)]
    jobs: Option<usize>,
    /// End the campaign when this many runs have failed.
    #[arg(long, value_name = "N", value_parser = one_or_more)]
    stop_after: Option<usize>,
    /// Look for a smaller run that fails, for each that fails.
    #[arg(long)]
    shrink: bool,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
    /// Switch locking off: what the checks must find shows that they can.
    #[arg(long)]
    without_locking: bool,
    /// Plant this fault, which the campaign must find; `all` for one after the other, until each is found.
    #[arg(long, value_name = "FAULT", conflicts_with = "without_locking")]
    plant: Option<String>,
    /// With `--plant all`: look for each fault at the seed first that this file names behind it, as the table does that
    /// is printed. Where it shows there no longer, it is looked for from the first seed on.
    #[arg(long, value_name = "FILE", requires = "plant", hide_short_help = true)]
    known: Option<PathBuf>,
    /// No more threads than this.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u64).range(1..))]
    most_threads: Option<u64>,
    /// No more transactions of a thread than this, from one opening to the next.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u64).range(1..))]
    most_transactions: Option<u64>,
    /// The schedule in this file instead of the seed's.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    turns: Option<PathBuf>,
    /// Write the schedule to this file.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    keep_turns: Option<PathBuf>,
    /// Report no failure before the end.
    #[arg(skip)]
    only_outcome: bool,
}

fn one_or_more(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "give a number of 1 or more".to_owned())
}

fn parse_seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let wrong = || "give one seed, or a range such as 0..100".to_owned();
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let seeds = match text.split_once("..") {
        Some((first, end)) => number(first)?..number(end)?,
        None => {
            let seed = number(text)?;
            seed..seed.checked_add(1).ok_or_else(wrong)?
        }
    };
    if seeds.is_empty() {
        Err("there is no seed in this range: it ends before its second number".to_owned())
    } else {
        Ok(seeds)
    }
}

/// Why the simulating program does nothing but simulate.
pub(crate) fn nothing_else() -> CliError {
    CliError::usage(
        "this build simulates, and does nothing else",
        "use the usual build: cargo run --release --",
    )
}

/// Runs the subcommand.
#[cfg(foreshore_sim)]
pub(crate) fn run(args: SimulateArgs) -> Result<ExitCode, CliError> {
    match args.command {
        Some(SimulateCommand::Bench(args)) => bench::run(args.what, &args.machine),
        Some(SimulateCommand::Locks(args)) => locks::run(&args),
        Some(SimulateCommand::Speed(args)) => speed::run(&args),
        None => campaign::run(&args.campaign),
    }
}

/// Refuses: the world of this build is the real one.
#[cfg(not(foreshore_sim))]
pub(crate) fn run(args: SimulateArgs) -> Result<ExitCode, CliError> {
    // What makes no sense is refused for that.
    if let Some(SimulateCommand::Bench(args)) = args.command {
        match args.what {
            Simulated::Workload(args) => args.into_parts().map(drop)?,
            Simulated::Txbench(args) => args.into_parts().map(drop)?,
            _ => {}
        }
    }
    Err(CliError::usage(
        "simulating needs a build of its own",
        "in the repository: cargo sim simulate ... (with the same arguments)",
    ))
}

#[cfg(test)]
mod tests {
    use super::parse_seeds;

    #[test]
    fn seeds_are_parsed() {
        assert_eq!(parse_seeds("7"), Ok(7..8));
        assert_eq!(parse_seeds("0..100"), Ok(0..100));
        for wrong in ["", "a", "5..5", "9..1", "1..2..3", "18446744073709551615"] {
            assert!(parse_seeds(wrong).is_err(), "{wrong}");
        }
    }
}
