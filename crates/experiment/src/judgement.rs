//! The judge: what the figures say to the claims.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value as Json;

use crate::{
    claim::{ALIKE, Check, Claim, Quantity, Reason},
    data::Data,
    experiment::Experiment,
};

/// What became of a claim, or of all claims of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "why")]
pub enum Verdict {
    /// The figure is the paper's, within the claim's band.
    Holds,
    /// The direction or the order is the paper's, the size is not.
    HoldsInShape,
    /// Neither.
    DoesNotHold,
    /// It could not be seen, and why.
    NotRun(String),
}

impl Verdict {
    /// For people.
    pub fn words(&self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::HoldsInShape => "holds in shape",
            Verdict::DoesNotHold => "does not hold",
            Verdict::NotRun(_) => "not run",
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Verdict::Holds => 0,
            Verdict::HoldsInShape => 1,
            Verdict::DoesNotHold => 2,
            Verdict::NotRun(_) => 3,
        }
    }
}

/// What became of one claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimJudgement {
    /// The claim in words.
    pub says: &'static str,
    /// The paper's figure.
    pub paper: String,
    /// Ours; empty if there is none.
    pub ours: String,
    /// What follows.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Why it does not hold, or in shape only, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// What became of an experiment: its figures, and what they say.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// That of the claim that fared worst.
    pub verdict: Verdict,
    /// Claim by claim.
    pub claims: Vec<ClaimJudgement>,
    /// The figures.
    pub data: Data,
}

impl Judgement {
    /// Why it could not be judged, if it could not.
    pub fn not_run(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::NotRun(why) => Some(why),
            _ => None,
        }
    }

    /// How many claims hold, at least in shape.
    pub fn holding(&self) -> usize {
        self.claims.iter().filter(|claim| claim.verdict.rank() <= 1).count()
    }
}

/// Judges an experiment by the answers to its runs, by command; or by why there is none.
pub fn judge(experiment: &Experiment, answers: &BTreeMap<String, Result<Json, String>>) -> Judgement {
    let mut data = Data::default();
    let mut missing = None;
    for run in &experiment.runs {
        let command = run.command();
        let taken = match answers.get(&command) {
            Some(Ok(answer)) => run.take(answer, &mut data),
            Some(Err(why)) => Err(why.clone()),
            None => Err("it was not run yet".to_owned()),
        };
        if let Err(why) = taken {
            missing.get_or_insert(format!("{command}: {why}"));
        }
    }
    let claims: Vec<ClaimJudgement> =
        experiment.claims.iter().map(|claim| judge_claim(claim, &data, missing.as_deref())).collect();
    let worst = claims.iter().map(|claim| &claim.verdict).max_by_key(|verdict| verdict.rank());
    let verdict = match missing {
        Some(why) => Verdict::NotRun(why),
        None => worst.cloned().unwrap_or(Verdict::Holds),
    };
    Judgement { verdict, claims, data }
}

/// `missing`: why a run of the experiment has no figures.
fn judge_claim(claim: &Claim, data: &Data, missing: Option<&str>) -> ClaimJudgement {
    let absent = |name: &str| (String::new(), Verdict::NotRun(format!("there is no figure for {name}")));
    let (ours, verdict) = match (missing, &claim.check) {
        // Whatever else is there: ends and peaks may be elsewhere.
        (Some(why), _) => (String::new(), Verdict::NotRun(why.to_owned())),
        (None, Check::Ratio { of, to, holds, shape }) => match (of.value(data), to.value(data)) {
            (Some(of), Some(to)) if !(of / to).is_finite() => {
                let why = format!("{} divided by {} is no figure", rounded(of), rounded(to));
                (String::new(), Verdict::NotRun(why))
            }
            (Some(of), Some(to)) => {
                let ratio = of / to;
                let inside = |band: &(f64, f64)| band.0 <= ratio && ratio <= band.1;
                let verdict = if inside(holds) {
                    Verdict::Holds
                } else if inside(shape) {
                    Verdict::HoldsInShape
                } else {
                    Verdict::DoesNotHold
                };
                // Beside the paper's number stands ours.
                (
                    rounded(if matches!(claim.check, Check::Ratio { to: Quantity::Is(_), .. }) {
                        of
                    } else {
                        ratio
                    }),
                    verdict,
                )
            }
            (None, _) => absent(&of.name()),
            (_, None) => absent(&to.name()),
        },
        (None, Check::Order(quantities)) => {
            let figures: Result<Vec<f64>, String> =
                quantities.iter().map(|one| one.value(data).ok_or_else(|| one.name())).collect();
            match figures {
                Err(name) => absent(&name),
                Ok(figures) => {
                    let named = quantities.iter().zip(&figures);
                    let named: Vec<String> =
                        named.map(|(one, figure)| format!("{} {}", one.name(), rounded(*figure))).collect();
                    (named.join(", "), order(&figures))
                }
            }
        }
    };
    let reason = claim.reason.filter(|_| matches!(verdict, Verdict::HoldsInShape | Verdict::DoesNotHold));
    ClaimJudgement { says: claim.says, paper: claim.paper.clone(), ours, verdict, reason }
}

fn order(figures: &[f64]) -> Verdict {
    let above = |one: f64, other: f64| one > 0.0 && one >= other * (1.0 - ALIKE);
    let is_above_rest = |place: usize| figures[place + 1..].iter().all(|&other| above(figures[place], other));
    let (Some(&first), Some(&last)) = (figures.first(), figures.last()) else { return Verdict::DoesNotHold };
    // What is alike from end to end has no order.
    let differ = first * (1.0 - ALIKE) > last;
    if (0..figures.len()).all(is_above_rest) && figures.iter().all(|&figure| figure > 0.0) && differ {
        return Verdict::Holds;
    }
    let ends = figures.iter().all(|&figure| above(first, figure) && above(figure, last));
    if ends && differ { Verdict::HoldsInShape } else { Verdict::DoesNotHold }
}

/// Three digits that count.
pub(crate) fn rounded(figure: f64) -> String {
    if !figure.is_finite() {
        return if figure.is_nan() { "nothing by nothing".to_owned() } else { "∞".to_owned() };
    }
    let digits = match figure.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.001 => 3,
        _ => 6,
    };
    let plain = format!("{figure:.digits$}");
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), ""), |(whole, rest)| (whole, rest));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        let rest = whole.len() - place;
        if place > 0 && rest.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() { grouped } else { format!("{grouped}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        claim::{At, Cause, Quantity},
        experiment::{Paper, Run, Take, Value},
    };

    fn rate(series: &str, at: At) -> Quantity {
        Quantity::spot("rate", series, at)
    }

    /// An experiment with this claim over two series, 100 and 40 at 1, 130 and 20 at 8.
    fn judged(claim: Claim) -> ClaimJudgement {
        let take = Take::each("rate", "/rows", "{/name}", "{/threads}", Value::Of("/rate"));
        let experiment = Experiment {
            id: "0.0",
            paper: Paper::Beyond,
            figure: "none",
            title: "a test",
            runs: vec![Run::real("bench nothing", [take])],
            plots: Vec::new(),
            claims: vec![claim],
            remark: "",
        };
        let row =
            |name: &str, threads: u32, rate: f64| json!({"name": name, "threads": threads, "rate": rate});
        let rows = [row("a", 1, 100.0), row("a", 8, 130.0), row("b", 1, 40.0), row("b", 8, 20.0)];
        let answers = [("foreshore bench nothing".to_owned(), Ok(json!({ "rows": rows })))];
        let judgement = judge(&experiment, &answers.into());
        assert_eq!(judgement.verdict, judgement.claims[0].verdict);
        judgement.claims[0].clone()
    }

    fn verdict(claim: Claim) -> (String, Verdict) {
        let claim = judged(claim);
        (claim.ours, claim.verdict)
    }

    #[test]
    fn a_ratio_holds_in_its_band_and_in_shape_on_its_side() {
        let ratio = |paper, within| {
            verdict(Claim::times("", rate("a", At::Last), rate("b", At::Last), paper, within))
        };
        assert_eq!(ratio(5.0, 1.5), ("6.50".to_owned(), Verdict::Holds));
        assert_eq!(ratio(3.0, 1.5).1, Verdict::HoldsInShape);
        assert_eq!(ratio(0.5, 1.5).1, Verdict::DoesNotHold);
        let kept = |least, shape| {
            let peak = rate("b", At::Peak);
            verdict(Claim::at_least("", rate("b", At::Last), peak, least, shape, "")).1
        };
        assert_eq!(kept(0.5, 0.4), Verdict::Holds);
        assert_eq!(kept(0.8, 0.4), Verdict::HoldsInShape);
        assert_eq!(kept(0.9, 0.8), Verdict::DoesNotHold);
        let most = |most, shape| {
            verdict(Claim::at_most("", rate("b", At::Bottom), Quantity::Is(1.0), most, shape, "")).1
        };
        assert_eq!(most(20.0, 20.0), Verdict::Holds);
        assert_eq!(most(10.0, 30.0), Verdict::HoldsInShape);
        assert_eq!(most(10.0, 19.0), Verdict::DoesNotHold);
        let alike =
            |within| verdict(Claim::alike("", rate("a", At::First), rate("a", At::Last), within, "")).1;
        assert_eq!(
            [alike(1.35), alike(1.2), alike(1.1)],
            [Verdict::Holds, Verdict::HoldsInShape, Verdict::DoesNotHold]
        );
    }

    #[test]
    fn a_reason_is_given_where_a_claim_does_not_hold() {
        let reason = |paper| {
            let claim = Claim::times("", rate("a", At::Last), rate("b", At::Last), paper, 1.5);
            judged(claim.because(Cause::Machine, "it is small")).reason
        };
        assert_eq!(reason(5.0), None);
        for paper in [3.0, 0.5] {
            let reason = reason(paper).unwrap();
            assert_eq!((reason.cause.words(), reason.says), ("the machine", "it is small"));
        }
    }

    #[test]
    fn an_order_is_judged_by_its_ends_first() {
        let (one, eight) = (At::X(1.0), At::X(8.0));
        let order = |claim: [Quantity; 3]| verdict(Claim::order("", claim, "")).1;
        assert_eq!(order([rate("a", eight), rate("a", one), rate("b", eight)]), Verdict::Holds);
        assert_eq!(
            verdict(Claim::order(
                "",
                [rate("a", eight), rate("b", one), rate("a", one), rate("b", eight)],
                ""
            ))
            .1,
            Verdict::HoldsInShape
        );
        assert_eq!(order([rate("a", one), rate("a", eight), rate("b", eight)]), Verdict::DoesNotHold);
        assert_eq!(order([rate("a", one), rate("a", one), rate("a", one)]), Verdict::DoesNotHold);
        let best = Quantity::Best(vec![rate("a", one), rate("b", one)]);
        assert_eq!(order([rate("a", eight), best, rate("b", one)]), Verdict::Holds);
    }

    /// Several parts of a whole, each of which is small, are not small together.
    #[test]
    fn a_sum_has_all_of_its_parts() {
        let share = |figure| Quantity::Is(figure);
        let little = |of| verdict(Claim::at_most("", of, Quantity::Is(1.0), 0.10, 0.15, ""));
        let parts = vec![share(0.06), share(0.08)];
        assert_eq!(little(Quantity::Best(parts.clone())), ("0.080".to_owned(), Verdict::Holds));
        assert_eq!(little(Quantity::Sum(parts)), ("0.140".to_owned(), Verdict::HoldsInShape));
        let (ours, missing) = little(Quantity::Sum(vec![rate("a", At::First), rate("c", At::First)]));
        assert!(ours.is_empty() && matches!(missing, Verdict::NotRun(why) if why.contains('c')));
    }

    #[test]
    fn what_is_missing_is_not_judged() {
        for name in ["c", "a"] {
            let (ours, verdict) =
                verdict(Claim::alike("", rate(name, At::X(3.0)), rate("a", At::First), 2.0, ""));
            assert_eq!(ours, "");
            assert!(matches!(verdict, Verdict::NotRun(why) if why.contains(name)));
        }
        assert!(matches!(verdict(Claim::order("", [rate("c", At::First)], "")).1, Verdict::NotRun(_)));
    }

    #[test]
    fn figures_are_rounded_for_people() {
        let figures = [1_234_567.8, 99.96, 6.5, 0.1234, 0.0, -1234.0, f64::INFINITY];
        assert_eq!(figures.map(rounded), ["1,234,568", "100.0", "6.50", "0.123", "0", "-1,234", "∞"]);
    }
}
