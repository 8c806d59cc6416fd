//! `foreshore experiment list`.

use foreshore_experiment::{Experiment, Scale, Way};
use serde::Serialize;

use crate::output::{CliError, json_line, line};

#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    paper: &'a str,
    figure: &'a str,
    title: &'a str,
    /// Whether the simulating program is needed.
    simulated: bool,
    commands: Vec<String>,
    claims: Vec<ListedClaim<'a>>,
    remark: &'a str,
}

#[derive(Serialize)]
struct ListedClaim<'a> {
    says: &'a str,
    paper: &'a str,
}

/// Prints what there is.
pub(super) fn print(experiments: &[Experiment], scale: Scale, json: bool) -> Result<(), CliError> {
    if json {
        let listed: Vec<Listed<'_>> = experiments.iter().map(listed).collect();
        return json_line(&serde_json::json!({ "scale": scale.name(), "experiments": listed }));
    }
    let mut paper = None;
    for experiment in experiments {
        if paper.replace(experiment.paper) != Some(experiment.paper) {
            line(format!("\n{}", experiment.paper.citation()))?;
        }
        let Experiment { id, figure, title, runs, claims, .. } = experiment;
        let way = match simulated(experiment) {
            0 => "this machine",
            all if all == runs.len() => "simulated",
            _ => "simulated and this machine",
        };
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        line(format!("  {id:<5} {figure:<16} {title}"))?;
        line(format!(
            "  {:22} {way}, {}, {}",
            "",
            count(runs.len(), "command"),
            count(claims.len(), "claim")
        ))?;
    }
    line(
        "\nrun them: foreshore experiment run ID…; what they run and claim: foreshore experiment list --json",
    )
}

/// How many of its commands run on a simulated machine.
fn simulated(experiment: &Experiment) -> usize {
    experiment.runs.iter().filter(|run| run.way == Way::Simulated).count()
}

fn listed(experiment: &Experiment) -> Listed<'_> {
    Listed {
        id: experiment.id,
        paper: experiment.paper.citation(),
        figure: experiment.figure,
        title: experiment.title,
        simulated: simulated(experiment) > 0,
        commands: experiment.runs.iter().map(|run| run.command()).collect(),
        claims: experiment
            .claims
            .iter()
            .map(|claim| ListedClaim { says: claim.says, paper: &claim.paper })
            .collect(),
        remark: experiment.remark,
    }
}
