//! `foreshore simulate`: the engine on a simulated machine, in virtual time. Needs a build of its own (`cargo sim`).

#[cfg(foreshore_sim)]
mod bench;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::{bench::WorkloadArgs, output::CliError};

/// Runs the engine on a simulated machine.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimulateArgs {
    #[command(subcommand)]
    command: SimulateCommand,
}

const EXAMPLES: &str = "\
Built and run by the alias `sim` of the repository, with a target folder of its own:
  cargo sim simulate bench tpcb --cores 80 --profile westmere8x10
  cargo sim simulate bench ycsb --records 100000 --cores 64 --threads 64 --seed 7 --json

Exit status: 0 all checks hold, 1 a check failed, 2 wrong usage or the run could not be finished.";

#[derive(Subcommand)]
enum SimulateCommand {
    /// Loads a workload, runs it on so many cores, prints what `bench` prints and what the cores did.
    Bench(SimulateBenchArgs),
}

#[derive(Args)]
struct SimulateBenchArgs {
    #[command(subcommand)]
    workload: WorkloadArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Args)]
#[cfg_attr(not(foreshore_sim), allow(dead_code, reason = "parsed so that the help tells of it"))]
struct MachineArgs {
    /// Cores of the machine [default: as many as threads].
    #[arg(long, global = true, value_name = "N")]
    cores: Option<usize>,
    /// The machine: niagara32, r810, xeon2x10, westmere8x10, epyc2x96, gnr2x128, mesh1024 or vm2.
    #[arg(long, global = true, value_name = "NAME", default_value = "westmere8x10")]
    profile: String,
    /// What files lie on: hdd, ssd, plp (safe against power failure) or nvram.
    #[arg(long, global = true, value_name = "NAME", default_value = "plp")]
    device: String,
    /// How long the old owner of a cache line keeps hitting it, in percent of a transfer [default: the machine's].
    #[arg(long, global = true, value_name = "P")]
    retention: Option<u64>,
    /// The cost of everything beyond the own socket, in percent of the machine's.
    #[arg(long, global = true, value_name = "P", default_value_t = 100)]
    remote: u64,
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
    let SimulateCommand::Bench(args) = args.command;
    bench::run(args.workload, &args.machine)
}

/// Refuses: the world of this build is the real one.
#[cfg(not(foreshore_sim))]
pub(crate) fn run(args: SimulateArgs) -> Result<ExitCode, CliError> {
    let SimulateCommand::Bench(args) = args.command;
    args.workload.into_parts()?;
    Err(CliError::usage(
        "simulating needs a build of its own",
        "in the repository: cargo sim simulate ... (with the same arguments)",
    ))
}
