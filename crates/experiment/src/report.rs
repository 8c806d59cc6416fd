//! The page of all experiments: one HTML file that needs nothing else, neither a network nor a script. It is
//! well-formed XML, too, so that a test can read it.

mod picture;
mod style;

use std::{collections::BTreeSet, fmt::Write};

use crate::{
    answer::{Answer, Spent},
    experiment::{Experiment, Plot, Run, Way},
    judgement::{Judgement, Verdict, rounded},
};

/// An experiment, what came of it, and the answers that it came from.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The experiment.
    pub experiment: Experiment,
    /// At which scale: `quick` or `full`.
    pub scale: &'static str,
    /// What came of it.
    pub judgement: Judgement,
    /// The answers to its commands, as far as they are there.
    pub answers: Vec<Answer>,
}

/// The page.
///
/// # Errors
///
/// A sentence, when a picture cannot be drawn.
pub fn page(reported: &[Reported]) -> Result<String, String> {
    let mut sections = String::new();
    for one in reported {
        section(&mut sections, one)?;
    }
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>Foreshore: the figures of five papers</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n\
         <h1>The figures of five papers</h1>\n{}\n{sections}</main>\n</body>\n</html>\n",
        style::CSS,
        front(reported),
    ))
}

/// Text as HTML has it. What XML cannot have, control characters above all, becomes a replacement character.
fn escape(text: &str) -> String {
    let allowed =
        |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}') || matches!(c, '\n' | '\t');
    let text: String = text.chars().map(|c| if allowed(c) { c } else { '\u{fffd}' }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn class(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::HoldsInShape => "shape",
        Verdict::DoesNotHold => "fails",
        Verdict::NotRun(_) => "absent",
    }
}

fn badge(verdict: &Verdict) -> String {
    format!("<span class=\"verdict {}\">{}</span>", class(verdict), verdict.words())
}

/// How many have which verdict, and the table of all.
fn front(reported: &[Reported]) -> String {
    let count = |wanted: &str| reported.iter().filter(|one| one.judgement.verdict.words() == wanted).count();
    let claims = |wanted: &str| {
        let all = reported.iter().flat_map(|one| &one.judgement.claims);
        all.filter(|claim| claim.verdict.words() == wanted).count()
    };
    let mut out = format!(
        "<p>{} experiments: {} hold, {} hold in shape, {} do not hold, {} were not run. Of {} claims that could be judged {} hold, \
         {} hold in shape. An experiment has the verdict of the claim \
         that fared worst. <em>Holds</em>: the figure lies in a band around the paper's; <em>in shape</em>: the direction or the \
         order is the paper's, the size is not. Why a claim does not is said beside it: it lies with the experiment, with the machine \
         or with the technique; figures in such a sentence are of a quick run on two processors, and may be others at the full scale or elsewhere. Simulated figures are of a simulated machine: ratios count, not absolute \
         numbers.</p>\n",
        reported.len(),
        count("holds"),
        count("holds in shape"),
        count("does not hold"),
        count("not run"),
        claims("holds") + claims("holds in shape") + claims("does not hold"),
        claims("holds"),
        claims("holds in shape"),
    );
    out.push_str(
        "<div class=\"wide\"><table class=\"front\">\n<thead><tr><th>experiment</th><th>what</th><th>verdict</th><th>claims</th><th>time</th></tr></thead>\n<tbody>\n",
    );
    let mut paper = None;
    for Reported { experiment, judgement, answers, .. } in reported {
        if paper.replace(experiment.paper) != Some(experiment.paper) {
            let citation = escape(experiment.paper.citation());
            let _ = writeln!(out, "<tr><th colspan=\"5\" class=\"paper\">{citation}</th></tr>");
        }
        let Experiment { id, title, claims, figure, .. } = experiment;
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#e{id}\">{id}</a> {}</td><td>{}</td><td>{}</td><td>{} of {}</td><td>{}</td></tr>",
            escape(figure),
            escape(title),
            badge(&judgement.verdict),
            judgement.holding(),
            claims.len(),
            if answers.is_empty() { "–".to_owned() } else { time(Spent::of(answers)) },
        );
    }
    let mut seen = BTreeSet::new();
    let all = reported.iter().flat_map(|one| &one.answers).filter(|answer| seen.insert(&answer.command));
    let _ = write!(
        out,
        "</tbody>\n</table></div>\n<p>The time is what commands take one after the other, on a machine that does nothing else; all of \
         them, each once: {}.</p>",
        time(Spent::of(all))
    );
    out
}

/// The time that was computed, or if it is not known the time that passed.
fn time(spent: Spent) -> String {
    let seconds = spent.computed_seconds.unwrap_or(spent.seconds);
    if seconds < 100.0 {
        format!("{} s", rounded(seconds))
    } else {
        format!("{} min", rounded(seconds / 60.0))
    }
}

fn section(out: &mut String, reported: &Reported) -> Result<(), String> {
    let Reported { experiment, judgement, answers, scale } = reported;
    let Experiment { id, figure, title, remark, .. } = experiment;
    let _ = writeln!(
        out,
        "<section id=\"e{id}\">\n<h2>{id} {}</h2>\n<p class=\"source\">{}, {} {}</p>",
        escape(title),
        escape(experiment.paper.citation()),
        escape(figure),
        badge(&judgement.verdict),
    );
    if let Some(why) = judgement.not_run() {
        let _ = writeln!(out, "<p class=\"why\">{}</p>", escape(why));
    }
    out.push_str("<div class=\"wide\"><table class=\"claims\">\n<thead><tr><th>claim</th><th>the paper</th><th>ours</th><th>verdict</th></tr></thead>\n<tbody>\n");
    for claim in &judgement.claims {
        let why = claim.reason.map_or_else(String::new, |reason| {
            format!("<br/><span class=\"reason\">{}: {}</span>", reason.cause.words(), escape(reason.says))
        });
        let _ = writeln!(
            out,
            "<tr><td>{}{why}</td><td data-of=\"the paper\">{}</td><td data-of=\"ours\">{}</td><td>{}</td></tr>",
            escape(claim.says),
            escape(&claim.paper),
            escape(if claim.ours.is_empty() { "–" } else { &claim.ours }),
            badge(&claim.verdict),
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
    if !remark.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(remark));
    }
    for plot in &experiment.plots {
        figure_of(out, id, plot, judgement)?;
    }
    provenance(out, experiment, answers, scale);
    out.push_str("</section>\n");
    Ok(())
}

/// A plot with its legend, if it is drawn, and its figures as a table.
fn figure_of(out: &mut String, id: &str, plot: &Plot, judgement: &Judgement) -> Result<(), String> {
    let lines = judgement.data.lines(plot.name);
    if lines.is_empty() {
        return Ok(());
    }
    let svg = picture::draw(plot, &lines)?;
    let by = if plot.x.is_empty() { String::new() } else { format!(" by {}", plot.x) };
    let label = escape(&format!("{id}: {}{by}", plot.name));
    let svg = svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1);
    let _ = writeln!(out, "<figure>\n{svg}\n<figcaption>{}", escape(plot.name));
    let unnamed = if picture::has_names(plot, &lines) { &[] } else { &lines[..] };
    for (number, line) in unnamed.iter().enumerate() {
        let key = picture::key(plot.shape, number);
        let _ = write!(out, " <span class=\"key\">{key} {}</span>", escape(&line.series));
    }
    // A table that there is instead of a picture is open.
    let open = if svg.is_empty() { " open=\"\"" } else { "" };
    let _ =
        writeln!(out, "</figcaption>\n<details{open}><summary>figures</summary><div class=\"wide\"><table>");
    for line in &lines {
        let _ = write!(out, "<tr><th>{}</th>", escape(&line.series));
        for point in &line.points {
            let band = if point.least < point.most {
                format!(" ({} to {})", rounded(point.least), rounded(point.most))
            } else {
                String::new()
            };
            let x = if plot.x.is_empty() { String::new() } else { format!("{}: ", rounded(point.x)) };
            let _ = write!(out, "<td>{x}{}{band}</td>", rounded(point.y));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div></details>\n</figure>\n");
    Ok(())
}

/// The commands, the machine, the programs and the seeds. A real run and a simulated one have a program each; answers
/// of more than these were given by programs that differ.
fn provenance(out: &mut String, experiment: &Experiment, answers: &[Answer], scale: &str) {
    let seeds: Vec<String> = answers
        .iter()
        .filter_map(|answer| answer.answer.pointer("/seed"))
        .map(ToString::to_string)
        .fold(Vec::new(), |mut seeds, seed| {
            if !seeds.contains(&seed) {
                seeds.push(seed);
            }
            seeds
        });
    let mut told: Vec<String> = Vec::new();
    for Answer { machine, commit, version, program, .. } in answers {
        let text = format!(
            "program {program} (version {version}, built from commit {commit}), on {} processors ({}; {})",
            machine.processors, machine.processor, machine.system
        );
        if !told.contains(&text) {
            told.push(text);
        }
    }
    let simulated = experiment.runs.iter().filter(|run| run.way == Way::Simulated).count();
    let _ = writeln!(
        out,
        "<p class=\"source\">To run it again: <code>foreshore experiment run {} --{scale}</code>. {} of {} commands simulated; \
         seeds: {}; {}. {}</p>",
        experiment.id,
        simulated,
        experiment.runs.len(),
        if seeds.is_empty() { "the programs' own (1)".to_owned() } else { escape(&seeds.join(", ")) },
        time(Spent::of(answers)),
        escape(&told.join("; ")),
    );
    let commits: BTreeSet<&str> = answers.iter().map(|answer| answer.commit.as_str()).collect();
    if commits.len() > 1 || Way::ALL.iter().any(|&way| programs(experiment, answers, way) > 1) {
        out.push_str(
            "<p class=\"source\"><strong>The answers are of different programs</strong>: run it again, so that all are of one commit.</p>\n",
        );
    }
    out.push_str("<details><summary>commands</summary><pre>");
    for run in &experiment.runs {
        let _ = writeln!(out, "{}", escape(&run.command()));
    }
    out.push_str("</pre></details>\n");
}

/// How many programs answered the commands that run this way.
fn programs(experiment: &Experiment, answers: &[Answer], way: Way) -> usize {
    let commands: BTreeSet<String> =
        experiment.runs.iter().filter(|run| run.way == way).map(Run::command).collect();
    let of_way = answers.iter().filter(|answer| commands.contains(&answer.command));
    of_way.map(|answer| &answer.program).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests;
