//! `foreshore experiment`: the figures of the five papers, each one command. What is run and what is claimed is data of
//! `foreshore-experiment`; here the commands are run as processes of their own, and their answers are stored.

mod listing;
mod process;
mod runner;
mod simulator;
mod store;
mod verdicts;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use foreshore_experiment::{Experiment, Scale, catalogue};

pub(crate) use self::store::Store;
use crate::output::CliError;

/// Where answers are stored if nothing else is said.
pub(crate) const DIRECTORY: &str = "experiments";

/// Lists the figures of the papers, or runs them and says which of the papers' claims hold.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExperimentArgs {
    #[command(subcommand)]
    command: ExperimentCommand,
}

const EXAMPLES: &str = "\
Examples:
  foreshore experiment list                      numbers, papers, figures, and what is run for each
  foreshore experiment run 4.6 --quick           one of them
  foreshore experiment run 2 5.12 --out results  all of the second paper, and one more
  foreshore experiment run all --quick           all of them: half an hour on two cores
  foreshore report experiments                   the page of it all

Answers are stored in the directory of --out, one file for each command; what is there, by the same command and program
(and machine, unless it is simulated), is not run again. Simulated figures need the program of `cargo sim`: it is found
in target/sim, or named by --simulator.

Exit status: 0 all could be run and judged, whatever the verdicts; 2 something could not, or wrong usage; 130 it was
interrupted, and what was run until then is judged.";

#[derive(Subcommand)]
enum ExperimentCommand {
    /// Lists the experiments.
    List(ListArgs),
    /// Runs experiments, and judges the papers' claims by them.
    Run(RunArgs),
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct ListArgs {
    /// With the commands and the claims of the full scale, not the quick one.
    #[arg(long)]
    full: bool,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// Which: numbers such as 1.5, a paper's number for all of it, or all.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Few points, little data, short runs [default].
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The papers' points, as far as possible: hours.
    #[arg(long)]
    full: bool,
    /// Where answers are stored.
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    out: PathBuf,
    /// Run again even what is stored already.
    #[arg(long)]
    again: bool,
    /// The simulating program [default: target/sim/release/foreshore, made by `cargo sim` where it is missing].
    #[arg(long, value_name = "PATH")]
    simulator: Option<PathBuf>,
    /// Simulations at the same time [default: as many as processors]. What runs on this machine runs alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

/// Runs the subcommand.
pub(crate) fn run(args: &ExperimentArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        ExperimentCommand::List(args) => {
            let scale = if args.full { Scale::Full } else { Scale::Quick };
            listing::print(&catalogue(scale), scale, args.json)?;
            Ok(ExitCode::SUCCESS)
        }
        ExperimentCommand::Run(args) => {
            let scale = if args.full { Scale::Full } else { Scale::Quick };
            runner::run(&chosen(&args.ids, scale)?, scale, args)
        }
    }
}

/// The experiments that were asked for, in their order.
fn chosen(ids: &[String], scale: Scale) -> Result<Vec<Experiment>, CliError> {
    let all = catalogue(scale);
    let fits = |experiment: &Experiment, id: &str| {
        id == "all" || experiment.id == id || experiment.id.split('.').next() == Some(id)
    };
    if let Some(id) = ids.iter().find(|id| !all.iter().any(|experiment| fits(experiment, id))) {
        return Err(CliError::usage(
            format!("there is no experiment {id}"),
            "foreshore experiment list shows their numbers",
        ));
    }
    Ok(all.into_iter().filter(|experiment| ids.iter().any(|id| fits(experiment, id))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_chosen_by_number_by_paper_and_all() {
        let ids = |wanted: &[&str]| -> Vec<&'static str> {
            let wanted: Vec<String> = wanted.iter().map(|id| (*id).to_owned()).collect();
            chosen(&wanted, Scale::Quick).unwrap().iter().map(|experiment| experiment.id).collect()
        };
        assert_eq!(ids(&["4.6", "1.5"]), ["1.5", "4.6"]);
        assert!(ids(&["2"]).iter().all(|id| id.starts_with("2.")) && ids(&["2"]).len() == 8);
        assert_eq!(ids(&["all", "1.5"]).len(), catalogue(Scale::Quick).len());
        assert!(matches!(chosen(&["9.9".to_owned()], Scale::Full), Err(CliError::Usage { .. })));
    }
}
