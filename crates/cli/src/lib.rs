//! The program `foreshore`, as a library so that it can be fuzzed: measures, tortures, checks and shows databases. Run
//! `foreshore --help`.
//!
//! Exit status: 0 all is well; 1 a check failed, damage or a loss was found; 2 wrong usage, or the program could not do
//! its work; 130 a measurement or a campaign was interrupted, or what was ending in good order was again. With `--json`
//! a failure, too, is one object on standard output: `{"error": {"code": …, "message": …}}`.
#![forbid(unsafe_code)]

mod backup;
mod bench;
mod compact;
mod completions;
mod directory;
mod dump;
mod experiment;
mod fields;
mod file;
pub mod hostile;
mod in_use;
mod interruption;
mod load;
mod output;
mod own;
mod prepared;
mod recovery;
mod rename;
mod report;
mod salvage;
mod script;
mod settings;
mod simulate;
mod stat;
mod torture;
mod under_way;
mod usage;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::CliError;

/// The commit that this program is built from (`build.rs`).
pub(crate) const COMMIT: &str = env!("FORESHORE_COMMIT");
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("FORESHORE_COMMIT"), ")");

/// A transactional storage manager: measure it, torture it, look inside a database.
#[derive(Parser)]
#[command(name = "foreshore", version = VERSION, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench tpcc                          TPC-C, then its consistency conditions
  foreshore bench tpcb --threads 1 --durability lazy --json
  cargo sim simulate bench tpcb --cores 80      on a machine that nobody has (from the repository)
  cargo sim simulate --seeds 0..100             random schedules, disk faults and crashes, all judged
  foreshore experiment run all --quick          the figures of the papers, and which of their claims hold
  foreshore torture --seconds 60 --threads 8    kill, reopen, compare; again and again
  foreshore verify bank.foreshore               check every tree, the free space and the log
  foreshore backup bank.foreshore copy.foreshore  a copy that opens like any database
  foreshore salvage broken.foreshore saved.foreshore   what can be read of a damaged one
  foreshore script bank.foreshore < steps.jsonl  transactions as JSON lines, in many sessions; who waits for whom
  foreshore load bank.foreshore accounts.csv    real data in; `dump` gets it out

Exit status: 0 all is well, 1 a check failed or damage was found, 2 wrong usage or the work could not be done, \
130 bench, torture or experiment was interrupted, or load, backup, compact or drop was, twice.
With --json a failure is one object, too: {\"error\":{\"code\":\"…\",\"message\":\"…\"}}, on the last line of standard output; \
what a database refuses has the code of its error (\"no_such_table\", \"already_open\"; where a prepared \
transaction is in the way \"lock_timeout\", \"would_block\" or, of a check, \"busy\"); wrong usage, also of \
--set or of a place to write to, has the code \"usage\", an interruption \"interrupted\" (of a backup \
\"backup_stopped\"); a line of the input that cannot be taken has \"bad_line\", \
and its number in \"line\". Standard error has it in words.";

#[derive(Subcommand)]
enum Command {
    Bench(bench::BenchArgs),
    Simulate(Box<simulate::SimulateArgs>),
    Experiment(experiment::ExperimentArgs),
    Report(report::ReportArgs),
    Torture(torture::TortureArgs),
    Verify(verify::VerifyArgs),
    Backup(backup::BackupArgs),
    Salvage(salvage::SalvageArgs),
    Stat(stat::StatArgs),
    Dump(dump::DumpArgs),
    Load(load::LoadArgs),
    Prepared(prepared::PreparedArgs),
    Compact(compact::CompactArgs),
    Drop(compact::DropArgs),
    Rename(rename::RenameArgs),
    Script(script::ScriptArgs),
    Completions(completions::CompletionsArgs),
}

/// A file that would grow beyond the shell's limit (`ulimit -f`) is to be an error that names the file, not the end of
/// the program: a write fails so when the signal is caught.
#[cfg(not(foreshore_sim))]
fn catch_file_size_signal() {
    use foreshore_env::sync::{Arc, atomic::AtomicBool};
    // If that fails, the program ends at the limit, as programs do.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Runs the program with the process's own arguments; gives its exit status.
pub fn main() -> ExitCode {
    #[cfg(not(foreshore_sim))]
    catch_file_size_signal();
    // All subcommands call it so.
    let json = std::env::args_os().any(|argument| argument == "--json");
    let cli = match usage::parse(json) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let tried = in_use::Tried::of(&cli.command);
    let result = run(cli.command);
    directory::await_interruption();
    result.unwrap_or_else(|error| {
        let error = match &tried {
            Some(tried) => tried.retell(error),
            None => error,
        };
        error.report(json)
    })
}

/// Runs a subcommand.
fn run(command: Command) -> Result<ExitCode, CliError> {
    own::end_with_parent()
        .map_err(CliError::io("start a thread that awaits the end of the program around this one"))?;
    match command {
        Command::Simulate(args) => simulate::run(*args),
        _ if cfg!(foreshore_sim) => Err(simulate::nothing_else()),
        Command::Bench(args) => bench::run(args),
        Command::Experiment(args) => experiment::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Torture(args) => torture::run(&args),
        Command::Verify(args) => verify::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Salvage(args) => salvage::run(&args),
        Command::Stat(args) => stat::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Load(args) => load::run(args),
        Command::Prepared(args) => prepared::run(args),
        Command::Compact(args) => compact::run(args),
        Command::Drop(args) => compact::run_drop(args),
        Command::Rename(args) => rename::run(args),
        Command::Script(args) => script::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
