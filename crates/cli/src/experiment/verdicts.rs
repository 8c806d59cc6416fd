//! What came of experiments, for people and for programs.

use foreshore_experiment::{ClaimJudgement, Experiment, Judgement, Line, Scale, Verdict};
use serde::Serialize;

use crate::output::{CliError, json_line, line};

#[derive(Serialize)]
struct Outcome<'a> {
    scale: &'static str,
    experiments: Vec<Judged<'a>>,
}

#[derive(Serialize)]
struct Judged<'a> {
    id: &'a str,
    title: &'a str,
    #[serde(flatten)]
    verdict: &'a Verdict,
    claims: &'a [ClaimJudgement],
    /// How this run differs from the paper's, and why a claim does not hold.
    remark: &'a str,
    commands: Vec<String>,
    figures: Vec<Line>,
}

/// Prints all verdicts as one JSON object.
pub(super) fn print_json(scale: Scale, judged: &[(&Experiment, Judgement)]) -> Result<(), CliError> {
    let experiments = judged.iter().map(|(experiment, judgement)| Judged {
        id: experiment.id,
        title: experiment.title,
        verdict: &judgement.verdict,
        claims: &judgement.claims,
        remark: experiment.remark,
        commands: experiment.runs.iter().map(|run| run.command()).collect(),
        figures: experiment.plots.iter().flat_map(|plot| judgement.data.lines(plot.name)).collect(),
    });
    json_line(&Outcome { scale: scale.name(), experiments: experiments.collect() })
}

/// Prints what came of one.
pub(super) fn print(experiment: &Experiment, judgement: &Judgement) -> Result<(), CliError> {
    let Experiment { id, figure, title, claims, .. } = experiment;
    line(format!(
        "{id:<5} {}: {figure}, {title} ({} of {} claims)",
        judgement.verdict.words(),
        judgement.holding(),
        claims.len()
    ))?;
    if let Some(why) = judgement.not_run() {
        line(format!("      {why}"))?;
    }
    for claim in &judgement.claims {
        let ours = if claim.ours.is_empty() { "–" } else { &claim.ours };
        line(format!("      {:<15} {}", claim.verdict.words(), claim.says))?;
        line(format!("      {:15} ours {ours}; the paper: {}", "", claim.paper))?;
    }
    if !experiment.remark.is_empty() {
        line(format!("      {}", experiment.remark))?;
    }
    Ok(())
}

/// Prints how many have which verdict.
pub(super) fn print_count(judged: &[(&Experiment, Judgement)]) -> Result<(), CliError> {
    let count = |words: &str| {
        let with = judged.iter().filter(|(_, judgement)| judgement.verdict.words() == words);
        format!("{} {words}", with.count())
    };
    line(format!(
        "\n{} experiments: {}, {}, {}, {}",
        judged.len(),
        count("holds"),
        count("holds in shape"),
        count("does not hold"),
        count("not run")
    ))
}
