//! `foreshore report`: the page of all experiments whose answers are stored in a directory.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

use clap::Args;
use foreshore_experiment::{Experiment, Reported, Scale, catalogue, judge, page};

use crate::{
    experiment::{DIRECTORY, Store},
    file,
    output::{CliError, json_line, line},
};

/// Makes one HTML page of stored experiments: verdicts, pictures, claims, commands; it needs no network and no script.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Where `foreshore experiment run --out DIR` stored its answers.
    #[arg(value_name = "DIR", default_value = DIRECTORY)]
    directory: PathBuf,
    /// The page [default: report.html in DIR].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  foreshore experiment run all --quick && foreshore report
  foreshore report results --out figures.html

Each experiment is shown at the full scale if all its answers are there, else at the quick one; what was not run says so.

Exit status: 0 the page was made, 2 it could not be.";

/// Runs the subcommand.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode, CliError> {
    let Some(store) = Store::open(&args.directory) else {
        return Err(CliError::usage(
            format!("no answers are stored in {}", args.directory.display()),
            "foreshore experiment run all --quick --out DIR stores some; see foreshore experiment --help",
        ));
    };
    let full = catalogue(Scale::Full).into_iter().zip(catalogue(Scale::Quick));
    let reported: Vec<Reported> = full
        .map(|(full, quick)| {
            let full = reported(full, Scale::Full, &store);
            if full.judgement.not_run().is_none() { full } else { reported(quick, Scale::Quick, &store) }
        })
        .collect();
    let shown = reported.iter().filter(|one| one.judgement.not_run().is_none()).count();
    let path = args.out.clone().unwrap_or_else(|| args.directory.join("report.html"));
    file::write(&path, page(&reported).map_err(CliError::Other)?)?;
    if args.json {
        json_line(&serde_json::json!({
            "file": path.display().to_string(),
            "experiments": reported.len(),
            "judged": shown,
        }))?;
    } else {
        line(format!("{}: {shown} of {} experiments", path.display(), reported.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn reported(experiment: Experiment, scale: Scale, store: &Store) -> Reported {
    let mut answers = Vec::new();
    let mut told = BTreeMap::new();
    for run in &experiment.runs {
        let command = run.command();
        match store.find(&command) {
            Ok(Some(answer)) => {
                told.insert(command, Ok(answer.answer.clone()));
                answers.push(answer);
            }
            Ok(None) => {}
            Err(why) => drop(told.insert(command, Err(why))),
        }
    }
    let judgement = judge(&experiment, &told);
    Reported { experiment, scale: scale.name(), judgement, answers }
}
