//! What came of experiments, for people and for programs.

use foreshore_experiment::{ClaimJudgement, Experiment, Judgement, Line, Scale, Spent, Verdict};
use serde::Serialize;

use crate::output::{CliError, json_line, line};

/// What came of one.
pub(super) struct Outcome<'e> {
    pub(super) experiment: &'e Experiment,
    pub(super) judgement: Judgement,
    pub(super) spent: Spent,
}

#[derive(Serialize)]
struct Outcomes<'a> {
    scale: &'static str,
    /// What all commands took, each once.
    spent: Spent,
    experiments: Vec<Judged<'a>>,
}

#[derive(Serialize)]
struct Judged<'a> {
    id: &'a str,
    title: &'a str,
    #[serde(flatten)]
    verdict: &'a Verdict,
    claims: &'a [ClaimJudgement],
    spent: Spent,
    /// How this run differs from the paper's, and why a claim does not hold.
    remark: &'a str,
    commands: Vec<String>,
    figures: Vec<Line>,
}

/// Prints all verdicts as one JSON object.
pub(super) fn print_json(scale: Scale, outcomes: &[Outcome<'_>], spent: Spent) -> Result<(), CliError> {
    let experiments = outcomes.iter().map(|Outcome { experiment, judgement, spent }| Judged {
        id: experiment.id,
        title: experiment.title,
        verdict: &judgement.verdict,
        claims: &judgement.claims,
        spent: *spent,
        remark: experiment.remark,
        commands: experiment.runs.iter().map(|run| run.command()).collect(),
        figures: experiment.plots.iter().flat_map(|plot| judgement.data.lines(plot.name)).collect(),
    });
    json_line(&Outcomes { scale: scale.name(), spent, experiments: experiments.collect() })
}

/// Prints what came of one.
pub(super) fn print(outcome: &Outcome<'_>) -> Result<(), CliError> {
    let Outcome { experiment, judgement, spent } = outcome;
    let Experiment { id, figure, title, claims, .. } = experiment;
    line(format!(
        "{id:<5} {}: {figure}, {title} ({} of {} claims, {})",
        judgement.verdict.words(),
        judgement.holding(),
        claims.len(),
        in_words(*spent)
    ))?;
    if let Some(why) = judgement.not_run() {
        line(format!("      {why}"))?;
    }
    for claim in &judgement.claims {
        let ours = if claim.ours.is_empty() { "–" } else { &claim.ours };
        line(format!("      {:<15} {}", claim.verdict.words(), claim.says))?;
        line(format!("      {:15} ours {ours}; the paper: {}", "", claim.paper))?;
        if let Some(reason) = claim.reason {
            line(format!("      {:15} {}: {}", "", reason.cause.words(), reason.says))?;
        }
    }
    if !experiment.remark.is_empty() {
        line(format!("      {}", experiment.remark))?;
    }
    Ok(())
}

fn in_words(spent: Spent) -> String {
    match spent.computed_seconds {
        Some(computed) => format!("{:.0} s, {computed:.0} s computed", spent.seconds),
        None => format!("{:.0} s", spent.seconds),
    }
}

/// Prints how many have which verdict, and what all commands took.
pub(super) fn print_count(outcomes: &[Outcome<'_>], spent: Spent) -> Result<(), CliError> {
    let count = |words: &str| {
        let with = outcomes.iter().filter(|outcome| outcome.judgement.verdict.words() == words);
        format!("{} {words}", with.count())
    };
    line(format!(
        "\n{} experiment{}: {}, {}, {}, {}; one command after the other {}",
        outcomes.len(),
        if outcomes.len() == 1 { "" } else { "s" },
        count("holds"),
        count("holds in shape"),
        count("does not hold"),
        count("not run"),
        in_words(spent)
    ))
}
