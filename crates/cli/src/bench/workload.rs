//! The workloads, as the command line names and shapes them.

use clap::{Args, Subcommand};
use foreshore_bench::{
    ACCOUNTS, BenchError, Distribution, HotPosition, HotRecords, Insert, Mix, NAMED, Order, Scale, Scan,
    Tpcb, Tpcc, Workload, Ycsb, YcsbOptions,
};

use super::{
    CommonArgs, examples,
    parse::{Touched, any_name, parse_distribution, parse_touched},
};

#[derive(Subcommand)]
pub(crate) enum WorkloadArgs {
    /// TPC-C: wholesale supplier; nine tables, five transactions, twelve consistency conditions.
    Tpcc(TpccArgs),
    /// TPC-B: bank; one update each of account, teller and branch, and a row of history.
    Tpcb(TpcbArgs),
    /// YCSB in transactions: reads and read-modify-writes of records chosen uniformly, by Zipf's law or from a hot set.
    Ycsb(YcsbArgs),
    /// Record insertion: every thread appends to a table of its own; where threads of the engine run the transactions,
    /// those on their way share as many tables.
    Insert(InsertArgs),
    /// Scans: each transaction reads many records in order; with a small pool, from the file.
    Scan(ScanArgs),
}

#[derive(Args)]
#[command(after_help = examples::TPCC)]
pub(crate) struct TpccArgs {
    /// Warehouses, about 80 MB each.
    #[arg(long, visible_alias = "scale", value_name = "W", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    warehouses: u32,
    /// Customers of a district. With fewer than TPC-C has, for tests and simulated machines, it is another benchmark.
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(10..=3000))]
    customers: u32,
    /// Items. Fewer than TPC-C has, likewise.
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(20..=100_000))]
    items: u32,
    /// Which of the five transactions run.
    #[arg(long, default_value = "full", value_parser = any_name::<Mix>())]
    mix: Mix,
    /// Each thread stays at one warehouse instead of drawing one for each transaction.
    #[arg(long)]
    warehouse_per_client: bool,
    /// Percent of the customers that are named by last name, and have to be looked up. With another value than TPC-C's
    /// it is another benchmark.
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
    /// Take exactly this many of a transaction's records from the hot set, and the others from outside of it, in place
    /// of a percentage by chance.
    #[arg(long, value_name = "N")]
    hot_operations: Option<u32>,
    /// When a transaction comes to these.
    #[arg(long, value_name = "WHEN", requires = "hot_operations", default_value = "first",
          value_parser = any_name::<HotPosition>())]
    hot_position: HotPosition,
    /// From how many of the partitions (`--partitions`) a transaction takes its records, in turn: a number, or random,
    /// which is as it comes.
    #[arg(long, value_name = "N", default_value = "random", value_parser = parse_touched)]
    partitions_per_transaction: Touched,
    /// Percent of the transactions that take them from that many partitions; the others, from one.
    #[arg(long, value_name = "P", default_value_t = 100, requires = "partitions_per_transaction")]
    multi_partition_percent: u32,
    /// The first of these is the thread's own, by its number.
    #[arg(long, requires = "partitions_per_transaction")]
    own_partition: bool,
    /// Each partition is a table of its own.
    #[arg(long, requires = "partitions")]
    split: bool,
    /// A transaction asks for what it only reads with one call, before it modifies anything; engines without such a
    /// call answer one record after the other.
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
    /// A transaction gives its records with one call, by which an engine adds what comes behind all others; engines
    /// without such a call take one after the other.
    #[arg(long)]
    together: bool,
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
                (Box::new(workload.together(args.together)), args.common)
            }
            WorkloadArgs::Scan(args) => {
                let order = if args.descending { Order::Descending } else { Order::Ascending };
                let length = args.length.unwrap_or(args.records);
                (Box::new(Scan::new(args.records, args.value_bytes, length, order)?), args.common)
            }
        })
    }
}
