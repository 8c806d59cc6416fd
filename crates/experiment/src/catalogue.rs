//! All experiments, paper by paper.

mod beyond;
mod hybrid_latches;
mod key_range;
mod orthrus;
mod shore_mt;
mod staged_locks;

use crate::{
    claim::{At, Claim, Quantity},
    experiment::{Experiment, Plot, Run, Scale, Shape, Take, Value},
    judgement::rounded,
};

/// The experiments at this scale, by their numbers. At the full scale simulated figures have bands.
pub fn catalogue(scale: Scale) -> Vec<Experiment> {
    let all = [
        shore_mt::experiments(scale),
        staged_locks::experiments(scale),
        key_range::experiments(scale),
        hybrid_latches::experiments(scale),
        orthrus::experiments(scale),
        beyond::experiments(scale),
    ]
    .concat();
    let in_bands = |mut experiment: Experiment| {
        experiment.runs = experiment.runs.into_iter().map(Run::in_bands).collect();
        experiment
    };
    match scale {
        Scale::Quick => all,
        Scale::Full => all.into_iter().map(in_bands).collect(),
    }
}

/// Commits in a second, of all threads together.
const RATE: Value = Value::Of("/commits_per_s");

/// What the time of simulated cores goes to, and what that is called where locks are what counts.
const TIME: &str = "share of the time of all cores";
const PARTS: [(&str, &str); 12] = [
    ("useful", "/simulation/cores_time/useful"),
    ("memory", "/simulation/cores_time/memory"),
    ("spinning", "/simulation/cores_time/spinning"),
    ("system", "/simulation/cores_time/system"),
    ("waiting for locks", "/simulation/cores_time/lock_wait"),
    ("waiting for messages", "/simulation/cores_time/message_wait"),
    ("waiting for latches", "/simulation/cores_time/latch_wait"),
    ("waiting for the log", "/simulation/cores_time/log_wait"),
    ("waiting for the disk", "/simulation/cores_time/disk_wait"),
    ("waiting for frames", "/simulation/cores_time/frame_wait"),
    ("waiting to be let in", "/simulation/cores_time/admission_wait"),
    ("idle", "/simulation/cores_time/idle"),
];

fn lines(name: &'static str, x: &'static str) -> Plot {
    Plot { name, x, shape: Shape::Lines }
}

fn log_lines(name: &'static str, x: &'static str) -> Plot {
    Plot { name, x, shape: Shape::LogLines }
}

/// A constant of a paper: the name that `bench constants` gives it, its unit, and what the paper has.
type Constant = (&'static str, &'static str, f64);

/// Constants of a paper: the run, the plot, and the claims.
fn constants(all: &[Constant]) -> (Run, Plot, Vec<Claim>) {
    const PLOT: &str = "constants";
    let series = |name: &str, unit: &str| format!("{name}, {unit}");
    let take = |&(name, unit, _): &Constant| {
        Take::each(PLOT, "/results", series(name, unit), "1", Value::Of("/value")).only("/name", name)
    };
    let claim = |&(name, unit, paper): &Constant| {
        let claim = Claim::exactly(name, Quantity::spot(PLOT, series(name, unit), At::First), paper);
        Claim { paper: format!("{} {unit}", rounded(paper)), ..claim }
    };
    let run = Run::real("bench constants", all.iter().map(take).collect::<Vec<_>>());
    (run, Plot { name: PLOT, x: "", shape: Shape::Table }, all.iter().map(claim).collect())
}

fn bars(name: &'static str, x: &'static str) -> Plot {
    Plot { name, x, shape: Shape::Bars }
}

fn marks(name: &'static str, x: &'static str) -> Plot {
    Plot { name, x, shape: Shape::Marks }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::{
        claim::{ALIKE, Check},
        experiment::{Paper, Way},
    };

    /// Up to here a bound says that somebody is not ahead of another, and not by how much at most.
    const NOT_AHEAD: f64 = 1.2;

    fn quantities(check: &Check) -> Vec<Quantity> {
        let all = match check {
            Check::Ratio { of, to, .. } => vec![of.clone(), to.clone()],
            Check::Order(all) => all.clone(),
        };
        all.into_iter().flat_map(parts).collect()
    }

    fn parts(one: Quantity) -> Vec<Quantity> {
        match one {
            Quantity::Best(several) | Quantity::Sum(several) => several.into_iter().flat_map(parts).collect(),
            Quantity::Ratio(both) => [parts(both.0), parts(both.1)].concat(),
            one => vec![one],
        }
    }

    #[test]
    fn numbers_are_unique_and_belong_to_their_papers() {
        for scale in [Scale::Quick, Scale::Full] {
            let experiments = catalogue(scale);
            let mut seen = BTreeSet::new();
            for experiment in &experiments {
                assert!(seen.insert(experiment.id), "{} is there twice", experiment.id);
                let (paper, number) = experiment.id.split_once('.').unwrap();
                assert!(number.parse::<u32>().is_ok());
                let papers = [
                    Paper::ShoreMt,
                    Paper::StagedLocks,
                    Paper::KeyRangeLocks,
                    Paper::HybridLatches,
                    Paper::Orthrus,
                    Paper::Beyond,
                ];
                assert_eq!(experiment.paper, papers[paper.parse::<usize>().unwrap() - 1]);
                assert!(!experiment.title.is_empty() && !experiment.figure.is_empty());
            }
        }
        let ids = |scale| catalogue(scale).iter().map(|experiment| experiment.id).collect::<Vec<_>>();
        assert_eq!(ids(Scale::Quick), ids(Scale::Full));
    }

    /// `--log-latency` comes on top of what the device takes: a latency that a report names is the whole of it.
    #[test]
    fn latencies_of_the_log_are_those_of_the_device() {
        for scale in [Scale::Quick, Scale::Full] {
            let runs = catalogue(scale).into_iter().flat_map(|experiment| experiment.runs);
            let slow: Vec<Run> = runs
                .filter(|run| run.way == Way::Simulated && run.arguments.contains(" --log-latency "))
                .collect();
            assert!(!slow.is_empty());
            for Run { arguments, .. } in slow {
                assert!(arguments.contains(" --device nvram "), "{arguments}");
            }
        }
    }

    /// What a claim or a plot speaks of, some run takes; what is drawn is drawn once; commands are not empty.
    #[test]
    fn claims_speak_of_what_is_taken() {
        for scale in [Scale::Quick, Scale::Full] {
            for experiment in catalogue(scale) {
                let id = experiment.id;
                assert!(!experiment.runs.is_empty() && !experiment.claims.is_empty(), "{id}");
                let mut taken: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for take in experiment.runs.iter().flat_map(|run| &run.takes) {
                    taken.entry(take.plot).or_default().push(&take.series);
                }
                let drawn: Vec<&str> = experiment.plots.iter().map(|plot| plot.name).collect();
                assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len(), "{id}");
                assert_eq!(
                    drawn.iter().copied().collect::<BTreeSet<_>>(),
                    taken.keys().copied().collect(),
                    "{id}"
                );
                for quantity in experiment.claims.iter().flat_map(|claim| quantities(&claim.check)) {
                    let Quantity::Spot { plot, series, at } = quantity else { continue };
                    let takes =
                        taken.get(plot).unwrap_or_else(|| panic!("{id}: nothing is taken for {plot}"));
                    let known = takes.iter().any(|taken| *taken == series || taken.contains('{'));
                    assert!(known, "{id}: {series} is not among {takes:?}");
                    let At::X(x) = at else { continue };
                    let here =
                        experiment.runs.iter().flat_map(|run| &run.takes).any(|take| {
                            take.plot == plot && (take.x.contains('{') || take.x.parse() == Ok(x))
                        });
                    assert!(here, "{id}: nobody measures {plot} at {x}");
                }
                for claim in &experiment.claims {
                    assert!(!claim.says.is_empty(), "{id}");
                    if let Check::Ratio { holds, shape, .. } = claim.check {
                        let both = holds.0 <= holds.1 && shape.0 <= holds.0 && holds.1 <= shape.1;
                        assert!(both, "{id}: {}: {holds:?} in {shape:?}", claim.says);
                        // A side that is said to be ahead, or behind, is not on the other side in shape, either; and
                        // one that is said not to be ahead, is so by a fifth at most.
                        let ahead = holds.0 < 1.0 || holds.1.is_finite() || shape.0 >= 1.0 - ALIKE;
                        let most = match holds.1 {
                            ..=1.0 => 1.0 + ALIKE,
                            ..=NOT_AHEAD => NOT_AHEAD,
                            _ => f64::INFINITY,
                        };
                        let behind = holds.0.is_finite() || shape.1 <= most;
                        assert!(ahead && behind, "{id}: {}: {holds:?} in {shape:?}", claim.says);
                    }
                }
            }
        }
    }
}
