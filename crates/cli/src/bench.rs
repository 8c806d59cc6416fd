//! `foreshore bench`: loads a workload, runs it, prints what it measured and whether the data is consistent.

mod bar;
mod checkpoint;
pub(crate) mod commit;
mod common;
mod compare;
pub(crate) mod comparison;
mod constants;
pub(crate) mod deadlocks;
mod examples;
pub(crate) mod granularity;
pub(crate) mod intent;
pub(crate) mod keyrange;
pub(crate) mod ladder;
pub(crate) mod latch;
pub(crate) mod locks;
mod log;
pub(crate) mod memory;
mod parse;
mod progress;
mod rounds;
mod standing;
pub(crate) mod summary;
pub(crate) mod text;
pub(crate) mod txbench;
mod workload;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use foreshore_bench::{
    BenchError, DrawnBy, Durability, EngineKind, EngineOptions, Execution, Isolation, Report, RunOptions,
    Workload, engines,
};
use foreshore_env::time::Duration;
pub(crate) use parse::{any_name, names, parse_measured, parse_seconds, parse_setting};
pub(crate) use workload::WorkloadArgs;

use crate::{
    bench::progress::Progress,
    directory::{self, Directory},
    output::{CliError, json_line, judged},
};

/// Loads a workload, runs it, prints throughput and latency, and checks its consistency; or measures a part.
#[derive(Args)]
#[command(after_help = examples::BENCH)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    #[command(flatten)]
    Workload(WorkloadArgs),
    /// Engines side by side, in turn: medians, ratios, processor time, aborts, latencies, memory.
    Compare(compare::CompareArgs),
    /// Latches: acquisitions per second of the road's latch and of others, by mix and number of threads.
    Latch(latch::LatchArgs),
    /// How many tuples a latch should guard: scans and updates of a table in memory (Böttcher et al. 2020).
    Granularity(granularity::GranularityArgs),
    /// The lock manager alone: locks per second, by lock table, policy against deadlocks and number of threads.
    Locks(locks::LocksArgs),
    /// Intent locks alone: how long transactions take that only announce what they will lock.
    Intent(intent::IntentArgs),
    /// The ladder of Shore-MT: record insertion, from one mutex around everything to the engine as it is, step by step.
    Ladder(ladder::LadderArgs),
    /// Single accesses to memory: own words, lines near and far, and lines that two threads hand to each other.
    Memory(memory::MemoryArgs),
    /// The log alone: the ways of inserting into it, side by side.
    Log(log::LogArgs),
    /// Latency of commits with and without checkpoints, in turn.
    Checkpoint(checkpoint::CheckpointArgs),
    /// Lock tables under many threads: range reads and updates of three tables, side by side (Jung et al. 2013).
    Txbench(txbench::TxbenchArgs),
    /// Ways of waiting for locks: TPC-B, where nobody deadlocks, with Dreadlocks that spin, sleep or both (Kimura et
    /// al. 2012).
    Dreadlocks(deadlocks::DreadlocksArgs),
    /// Policies against deadlocks: transactions that update tellers in order, and how many give way for nothing.
    Nodeadlock(deadlocks::NodeadlockArgs),
    /// Key-range modes: ranges of a small table, read and updated, with precise modes and with coarser ones (Kimura et
    /// al. 2012).
    Keyrange(keyrange::KeyrangeArgs),
    /// Constants of the papers, as this program has them.
    Constants(constants::ConstantsArgs),
    /// Early lock release: commits that wait for a slow disk, with and without their locks, side by side.
    Elr(commit::ElrArgs),
    /// Deadlocks between pipelines: which transaction gives way, side by side.
    Killpolicy(commit::KillArgs),
}

/// How long a run is measured, and runs before, if nothing else is said; virtual time is dear.
const MEASURED: Duration =
    if cfg!(foreshore_sim) { Duration::from_millis(20) } else { Duration::from_secs(10) };
const WARM_UP: Duration = if cfg!(foreshore_sim) { Duration::from_millis(5) } else { Duration::from_secs(1) };

#[derive(Args)]
pub(crate) struct CommonArgs {
    /// The engine that runs it; rivals are in builds with the feature of their name, or with the feature rivals;
    /// rocksdb and bdb, which link libraries of Debian (librocksdb-dev, libdb5.3-dev), with debian-rivals.
    #[arg(long, default_value = "foreshore", value_parser = any_name::<EngineKind>())]
    pub(crate) engine: EngineKind,
    /// Threads that run transactions [default: 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How long to measure [default: 10; simulated: 0.02].
    #[arg(long, value_name = "S", value_parser = parse_measured)]
    seconds: Option<Duration>,
    /// How long to run before measuring [default: 1; simulated: 0.005].
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    warm_up: Option<Duration>,
    /// Measure this many transactions of one thread instead of a time; for callgrind.
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "warm_up", "threads"],
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// What a commit waits for: the disk, or nothing; pipelined: nothing, but its flush is asked for, and locks that
    /// are not released early are kept until then.
    #[arg(long, default_value = "sync", value_parser = any_name::<Durability>())]
    pub(crate) durability: Durability,
    /// The isolation of the transactions.
    #[arg(long, default_value = "serializable",
          value_parser = any_name::<Isolation>())]
    pub(crate) isolation: Isolation,
    /// How transactions get their locks: each when it is needed; all before they run, as the workload foresees them or,
    /// where it cannot, by a first run without effect; or all before they run, always by such a run. Partitioned: as
    /// planned, on threads of the engine, some of which lock and some run transactions (`--set control_threads=1`,
    /// `--set execution_threads=2`); the threads of `--threads` draw transactions, give them away and wait for results.
    /// Partitioned-store: no locks, one latch for each partition, to measure against.
    #[arg(long, default_value = "dynamic",
          value_parser = any_name::<Execution>())]
    pub(crate) execution: Execution,
    /// Divide the keys among this many partitions, as the workload says (YCSB by the number of the record, TPC-C by the
    /// warehouse): each has a control thread of its own [default: by hash, among control_threads].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    partitions: Option<u16>,
    /// Which threads draw transactions, for `--execution partitioned`: the threads of `--threads`, or the engine's own
    /// that run them, as in the paper; then the others have nothing to do.
    #[arg(long, value_name = "WHO", default_value = "clients", value_parser = any_name::<DrawnBy>())]
    pub(crate) drawn_by: DrawnBy,
    /// Transactions that each thread that draws has under way, at most; for `--execution partitioned` [default: 32].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    in_flight: Option<u16>,
    /// An option of the engine, with its unit: `--set pool_bytes=16MiB`. May be repeated.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = parse_setting)]
    pub(crate) settings: Vec<(String, String)>,
    /// A new directory for the database, which is kept [default: a temporary one, removed afterwards].
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// The seed of all random inputs.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

/// Runs the subcommand.
pub(crate) fn run(args: BenchArgs) -> Result<ExitCode, CliError> {
    match args.what {
        What::Workload(workload) => run_workload(workload),
        What::Compare(args) => compare::run(&args),
        What::Latch(args) => interruptible(args.json(), || latch::run(&args)),
        What::Granularity(args) => interruptible(args.json(), || granularity::run(&args)),
        What::Locks(args) => interruptible(args.json(), || locks::run(&args)),
        What::Intent(args) => interruptible(args.json(), || intent::run(&args)),
        What::Ladder(args) => ladder::run(&args),
        What::Log(args) => log::run(args),
        What::Checkpoint(args) => checkpoint::run(args),
        What::Txbench(args) => txbench::run(&args),
        What::Dreadlocks(args) => args.side_by_side()?.run(),
        What::Nodeadlock(args) => args.side_by_side()?.run(),
        What::Keyrange(args) => args.side_by_side()?.run(),
        What::Memory(args) => interruptible(args.json(), || memory::run(&args)),
        What::Constants(args) => constants::run(&args),
        What::Elr(args) => commit::run_elr(&args),
        What::Killpolicy(args) => commit::run_kill(&args),
    }
}

/// Runs what has no directory; an interruption ends it as it does all others.
fn interruptible(json: bool, run: impl FnOnce() -> Result<ExitCode, CliError>) -> Result<ExitCode, CliError> {
    directory::end_when_interrupted(json)?;
    run()
}

fn run_workload(workload: WorkloadArgs) -> Result<ExitCode, CliError> {
    let (workload, args) = workload.into_parts()?;
    if args.engine == EngineKind::BTreeMap && args.dir.is_some() {
        return Err(CliError::usage("the engine btreemap has no files", "leave out --dir"));
    }
    let directory = Directory::choose(args.dir.as_deref(), "bench")?;
    directory.end_when_interrupted(args.json)?;
    let options = args.engine_options(workload.as_ref(), directory.path())?;
    let report = measure(workload.as_ref(), &args, &options)?;
    let printed = if args.json { json_line(&report) } else { summary::print(&report, directory.kept()) };
    judged(printed, report.consistent)
}

fn measure(workload: &dyn Workload, args: &CommonArgs, options: &EngineOptions) -> Result<Report, CliError> {
    let engine = engines::open(args.engine, &workload.tables(), options)?;
    let run = RunOptions { threads: args.threads(), length: args.length(), seed: args.seed };
    let progress = Progress::new(!args.json && !args.quiet);
    let result = foreshore_bench::run(engine.as_ref(), workload, &run, &progress);
    progress.finish();
    let mut report = result?;
    engine.close().map_err(BenchError::from)?;
    report.options.extend(options.describe());
    Ok(report)
}
