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
pub(crate) mod summary;
pub(crate) mod txbench;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use foreshore_bench::{
    ACCOUNTS, BenchError, Distribution, DrawnBy, Durability, EngineKind, EngineOptions, Execution,
    HotPosition, HotRecords, Insert, Isolation, Mix, NAMED, Order, Report, RunOptions, Scale, Scan, Tpcb,
    Tpcc, Workload, Ycsb, YcsbOptions, engines,
};
use foreshore_env::time::Duration;
use parse::{Touched, parse_distribution, parse_measured, parse_touched};
pub(crate) use parse::{names, parse_seconds, parse_setting};

use crate::{
    bench::progress::Progress,
    directory::Directory,
    output::{CHECK_FAILED, CliError, json_line},
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
    /// Single accesses to memory: own words, lines near and far, and such as two threads hand to each other.
    Memory(memory::MemoryArgs),
    /// The log alone: the ways of inserting into it, side by side.
    Log(log::LogArgs),
    /// Latency of commits with and without checkpoints, in turn.
    Checkpoint(checkpoint::CheckpointArgs),
    /// Lock tables under many threads: range reads and updates of three tables, side by side (Jung et al. 2013).
    Txbench(txbench::TxbenchArgs),
    /// Ways of waiting for locks: TPC-B, where nobody deadlocks, with Dreadlocks that spin, sleep or both (Kimura et al. 2012).
    Dreadlocks(deadlocks::DreadlocksArgs),
    /// Policies against deadlocks: transactions that update tellers in order, and who gives way for nothing.
    Nodeadlock(deadlocks::NodeadlockArgs),
    /// Key-range modes: ranges of a small table, read and updated, with precise modes and with coarser ones (Kimura et al. 2012).
    Keyrange(keyrange::KeyrangeArgs),
    /// Constants of the papers, as this program has them.
    Constants(constants::ConstantsArgs),
    /// Early lock release: commits that wait for a slow disk, with and without their locks, side by side.
    Elr(commit::ElrArgs),
    /// Deadlocks between pipelines: who gives way, side by side.
    Killpolicy(commit::KillArgs),
}

/// How long a run is measured, and runs before, if nothing else is said; virtual time is dear.
const MEASURED: Duration =
    if cfg!(foreshore_sim) { Duration::from_millis(20) } else { Duration::from_secs(10) };
const WARM_UP: Duration = if cfg!(foreshore_sim) { Duration::from_millis(5) } else { Duration::from_secs(1) };

#[derive(Subcommand)]
pub(crate) enum WorkloadArgs {
    /// TPC-C: wholesale supplier; nine tables, five transactions, twelve consistency conditions.
    Tpcc(TpccArgs),
    /// TPC-B: bank; one update each of account, teller and branch, and a row of history.
    Tpcb(TpcbArgs),
    /// YCSB in transactions: reads and read-modify-writes of records chosen uniformly, by Zipf's law or from a hot set.
    Ycsb(YcsbArgs),
    /// Record insertion: every thread appends to a table of its own.
    Insert(InsertArgs),
    /// Scans: each transaction reads many records in order; with a small pool, from the file.
    Scan(ScanArgs),
}

#[derive(Args)]
#[command(after_help = examples::TPCC)]
pub(crate) struct TpccArgs {
    /// Warehouses, about 110 MB each.
    #[arg(long, visible_alias = "scale", value_name = "W", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    warehouses: u32,
    /// Customers of a district. Fewer than TPC-C has, for tests and simulated machines, are another benchmark.
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(10..=3000))]
    customers: u32,
    /// Items. Fewer than TPC-C has, likewise.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    items: u32,
    /// Which of the five transactions run.
    #[arg(long, default_value = "full", value_parser = names::<Mix>(&["full", "neworder-payment", "neworder", "payment"]))]
    mix: Mix,
    /// Each thread stays at one warehouse instead of drawing one for each transaction.
    #[arg(long)]
    warehouse_per_client: bool,
    /// Percent of the customers that are named by last name, and have to be looked up. Other than TPC-C has it is another benchmark.
    #[arg(long, value_name = "P", default_value_t = NAMED, value_parser = clap::value_parser!(u32).range(0..=100))]
    by_name: u32,
    /// Each partition (`--partitions`) of the warehouses has tables of its own.
    #[arg(long, requires = "partitions")]
    split: bool,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Args)]
#[command(after_help = examples::TPCB)]
pub(crate) struct TpcbArgs {
    /// Branches.
    #[arg(long, visible_alias = "scale", value_name = "B", default_value_t = 10)]
    branches: u32,
    /// Accounts of each branch.
    #[arg(long, value_name = "N", default_value_t = ACCOUNTS)]
    accounts: u32,
    /// Percent of the updates turned into reads.
    #[arg(long, value_name = "P", default_value_t = 0)]
    read_percent: u32,
    /// Choose tellers, and accounts within a branch, by Zipf's law with this exponent, 0 to 2 [default: all alike].
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Args)]
#[command(after_help = examples::YCSB)]
pub(crate) struct YcsbArgs {
    /// Records in the table.
    #[arg(long, visible_alias = "scale", value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// Bytes of a record.
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: u32,
    /// Records that a transaction touches.
    #[arg(long, value_name = "N", default_value_t = 10)]
    operations: u32,
    /// Percent of the operations that only read; the others read, modify and write.
    #[arg(long, value_name = "P", default_value_t = 50)]
    read_percent: u32,
    /// How records are chosen: uniform, zipf[:EXPONENT], hot[:RECORDS[:PERCENT]].
    #[arg(long, default_value = "uniform", value_parser = parse_distribution)]
    distribution: Distribution,
    /// Take exactly so many of a transaction's records from the hot set, and the others from outside of it, in place of a
    /// percentage by chance.
    #[arg(long, value_name = "N")]
    hot_operations: Option<u32>,
    /// When a transaction comes to these.
    #[arg(long, value_name = "WHEN", requires = "hot_operations", default_value = "first",
          value_parser = names::<HotPosition>(&["first", "last", "random"]))]
    hot_position: HotPosition,
    /// From how many of the partitions (`--partitions`) a transaction takes its records, in turn: a number, or random, which is
    /// as it comes.
    #[arg(long, value_name = "N", default_value = "random", value_parser = parse_touched)]
    partitions_per_transaction: Touched,
    /// Percent of the transactions that take them from so many partitions; the others, from one.
    #[arg(long, value_name = "P", default_value_t = 100, requires = "partitions_per_transaction")]
    multi_partition_percent: u32,
    /// The first of these is the thread's own, by its number.
    #[arg(long, requires = "partitions_per_transaction")]
    own_partition: bool,
    /// Each partition is a table of its own.
    #[arg(long, requires = "partitions")]
    split: bool,
    /// A transaction asks for what it only reads with one call, before it modifies anything; engines without such a call answer
    /// one record after the other.
    #[arg(long, conflicts_with = "split")]
    together: bool,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Args)]
#[command(after_help = examples::INSERT)]
pub(crate) struct InsertArgs {
    /// Records in a transaction.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    commit_every: u32,
    /// Bytes of a record.
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: u32,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Args)]
#[command(after_help = examples::SCAN)]
pub(crate) struct ScanArgs {
    /// Records in the table.
    #[arg(long, visible_alias = "scale", value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// Bytes of a record.
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: u32,
    /// Records that a transaction reads, from a random one on [default: all].
    #[arg(long, value_name = "N")]
    length: Option<u64>,
    /// Read from the highest key down.
    #[arg(long)]
    descending: bool,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Args)]
pub(crate) struct CommonArgs {
    /// The engine that runs it; rivals are in builds with the feature of their name, or with the feature rivals; rocksdb and bdb,
    /// which link libraries of Debian (librocksdb-dev, libdb5.3-dev), with debian-rivals.
    #[arg(long, default_value = "foreshore", value_parser = names::<EngineKind>(&EngineKind::NAMES))]
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
    /// Measure so many transactions of one thread instead of a time; for callgrind.
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "warm_up", "threads"],
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// When a commit counts: on the disk, or at once; pipelined: at once, but its flush is asked for, and locks that are not
    /// released early are kept until then.
    #[arg(long, default_value = "sync", value_parser = names::<Durability>(&["sync", "pipelined", "lazy"]))]
    pub(crate) durability: Durability,
    /// The isolation of the transactions.
    #[arg(long, default_value = "serializable",
          value_parser = names::<Isolation>(&["serializable", "repeatable-read", "read-committed"]))]
    pub(crate) isolation: Isolation,
    /// How transactions come to their locks: each when it is needed; all before they run, as the workload foresees them or,
    /// where it cannot, by a first run without effect; or all before they run, always by such a run. Partitioned: as planned,
    /// on threads of the engine, some of which lock and some run transactions (`--set control_threads=1`,
    /// `--set execution_threads=2`); the threads of `--threads` draw transactions, give them away and wait for results.
    /// Partitioned-store: no locks, one latch for each partition, to measure against.
    #[arg(long, default_value = "dynamic",
          value_parser = names::<Execution>(
              &["dynamic", "planned", "reconnaissance", "partitioned", "partitioned-store"]))]
    pub(crate) execution: Execution,
    /// Divide the keys among so many partitions, as the workload says (YCSB by the number of the record, TPC-C by the
    /// warehouse): each has a control thread of its own [default: by hash, among control_threads].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    partitions: Option<u16>,
    /// Who draws transactions, for `--execution partitioned`: the threads of `--threads`, or the engine's own that run them, as in
    /// the paper; then the others have nothing to do.
    #[arg(long, value_name = "WHO", default_value = "clients", value_parser = names::<DrawnBy>(&["clients", "engine"]))]
    pub(crate) drawn_by: DrawnBy,
    /// Transactions that each of those who draw has under way, at most; for `--execution partitioned` [default: 32].
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

impl WorkloadArgs {
    pub(crate) fn into_parts(self) -> Result<(Box<dyn Workload>, CommonArgs), BenchError> {
        Ok(match self {
            WorkloadArgs::Tpcc(args) => {
                let TpccArgs { warehouses, customers, items, .. } = args;
                let scale = Scale { warehouses, customers, items };
                let workload =
                    Tpcc::new(scale, args.mix, args.warehouse_per_client)?.with_names(args.by_name)?;
                let workload = match args.common.partitions {
                    Some(partitions) if args.split => workload.with_split(partitions),
                    _ => workload,
                };
                (Box::new(workload), args.common)
            }
            WorkloadArgs::Tpcb(args) => {
                let uniform = Tpcb::new(args.branches, args.accounts, args.read_percent)?;
                let workload = match args.zipf {
                    None => uniform,
                    Some(exponent) => uniform.with_zipf(exponent)?,
                };
                (Box::new(workload), args.common)
            }
            WorkloadArgs::Ycsb(args) => {
                let workload = Ycsb::new(YcsbOptions {
                    records: args.records,
                    value_bytes: args.value_bytes,
                    operations: args.operations,
                    read_percent: args.read_percent,
                    distribution: args.distribution,
                    partitions: args.common.partitions.map_or(1, u32::from),
                    touched: args.partitions_per_transaction.0,
                    touched_percent: args.multi_partition_percent,
                    own_partition: args.own_partition,
                    split: args.split,
                    together: args.together,
                    hot: args.hot_operations.map(|count| HotRecords { count, position: args.hot_position }),
                })?;
                (Box::new(workload), args.common)
            }
            WorkloadArgs::Insert(args) => {
                let workload = Insert::new(args.common.threads(), args.commit_every, args.value_bytes)?;
                (Box::new(workload), args.common)
            }
            WorkloadArgs::Scan(args) => {
                let order = if args.descending { Order::Descending } else { Order::Ascending };
                let length = args.length.unwrap_or(args.records);
                (Box::new(Scan::new(args.records, args.value_bytes, length, order)?), args.common)
            }
        })
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: BenchArgs) -> Result<ExitCode, CliError> {
    match args.what {
        What::Workload(workload) => run_workload(workload),
        What::Compare(args) => compare::run(&args),
        What::Latch(args) => latch::run(&args),
        What::Granularity(args) => granularity::run(&args),
        What::Locks(args) => locks::run(&args),
        What::Intent(args) => intent::run(&args),
        What::Ladder(args) => ladder::run(&args),
        What::Log(args) => log::run(args),
        What::Checkpoint(args) => checkpoint::run(args),
        What::Txbench(args) => txbench::run(&args),
        What::Dreadlocks(args) => args.side_by_side()?.run(),
        What::Nodeadlock(args) => args.side_by_side()?.run(),
        What::Keyrange(args) => args.side_by_side()?.run(),
        What::Memory(args) => memory::run(&args),
        What::Constants(args) => constants::run(&args),
        What::Elr(args) => commit::run_elr(&args),
        What::Killpolicy(args) => commit::run_kill(&args),
    }
}

fn run_workload(workload: WorkloadArgs) -> Result<ExitCode, CliError> {
    let (workload, args) = workload.into_parts()?;
    if args.engine == EngineKind::BTreeMap && args.dir.is_some() {
        return Err(CliError::usage("the engine btreemap has no files", "leave out --dir"));
    }
    let directory = Directory::choose(args.dir.as_deref(), "bench")?;
    directory.remove_when_interrupted()?;
    let options = args.engine_options(workload.as_ref(), directory.path())?;
    let report = measure(workload.as_ref(), &args, &options)?;
    if args.json {
        json_line(&report)?;
    } else {
        summary::print(&report, directory.kept())?;
    }
    Ok(if report.consistent { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
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
