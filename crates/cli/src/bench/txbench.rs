//! `foreshore bench txbench`: lock tables under many threads that read ranges and update rows (Jung et al. 2013).

use std::process::ExitCode;

use clap::Args;
use foreshore_bench::{BenchError, TXBENCH_KEYS, Txbench, TxbenchOptions, Variant};

use crate::{
    bench::comparison::{self, ComparisonArgs},
    output::CliError,
};

/// What the transactions do, on this machine and on simulated ones.
#[derive(Args)]
pub(crate) struct TxbenchWorkload {
    /// Consecutive rows that a transaction reads; one that updates does so to a fifth as many rows of the next table.
    #[arg(long, value_name = "S", default_value_t = 10)]
    rows: u32,
    /// The share of the transactions that update.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    updates: f64,
    /// The share of the rows that are used at all.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    hot: f64,
    /// Rows of each of the three tables [default: 100000; simulated: 10000].
    #[arg(long, value_name = "N")]
    keys: Option<u32>,
}

impl TxbenchWorkload {
    /// `keys`: rows of a table, if nothing else was asked for.
    pub(crate) fn workload(&self, keys: u32) -> Result<Txbench, BenchError> {
        let TxbenchWorkload { rows, updates, hot, keys: asked } = *self;
        Txbench::new(TxbenchOptions { keys: asked.unwrap_or(keys), rows, updates, hot })
    }
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TxbenchArgs {
    #[command(flatten)]
    workload: TxbenchWorkload,
    /// Lock tables to compare [default: that of `--set lock_table=…`, or else all]. `none` locks nothing: what such
    /// threads keep of their peak is what the machine leaves to any lock table. Only without updates.
    #[arg(long, value_name = "TABLE,…", value_delimiter = ',', value_parser = ["latched", "staged", "global_mutex", "global_mcs", "always_latched", NONE])]
    lock_tables: Vec<String>,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// The control among the lock tables.
const NONE: &str = "none";

const EXAMPLES: &str = "\
Examples:
  foreshore bench txbench                                    range reads, all lock tables, 1 to 500 threads
  foreshore bench txbench --rows 100 --updates 0.2           a fifth of the transactions update
  foreshore bench txbench --updates 0.2 --hot 0.05           everybody in 5 % of the rows
  foreshore bench txbench --lock-tables latched,none         what locks cost, and what 500 threads cost without any
  foreshore bench txbench --set lock_table=latched --threads 2,500 --seconds 10 --json

of peak: relative to the lock table's own highest. /s computed: commits in a second that the process computed on one
processor. busy: how many processors did, on average. aborts: share of all attempts.

Interrupted, it prints what was measured until then: with --json there is \"partial\":true, beside the error.";

/// Runs the subcommand.
pub(super) fn run(args: &TxbenchArgs) -> Result<ExitCode, CliError> {
    let workload = args.workload.workload(TXBENCH_KEYS)?;
    let set = args.comparison.setting("lock_table");
    let tables: Vec<&str> = match (args.lock_tables.is_empty(), set) {
        (true, None) => vec!["latched", "staged", "global_mutex"],
        (true, Some(set)) => vec![set],
        (false, None) => args.lock_tables.iter().map(String::as_str).collect(),
        (false, Some(_)) => {
            let message = "--lock-tables and --set lock_table=… contradict each other";
            return Err(CliError::usage(message, "leave out one of them"));
        }
    };
    if tables.contains(&NONE) && args.workload.updates > 0.0 {
        let message = "without locks updates are lost";
        return Err(CliError::usage(message, "leave out `none`, or `--updates`"));
    }
    let variant = |table| match table {
        NONE => Variant::without_locks(NONE),
        table => Variant::of("lock_table", table),
    };
    let variants = tables.into_iter().map(variant).collect();
    comparison::run("txbench", &workload, variants, &args.comparison)
}
