//! Partitions: figures 5, 6 and 7.

use super::{PLOT, System, length, lines, point, ycsb};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Scale},
};

/// Why the store is no further ahead.
const LOCKS_ARE_LITTLE: &str =
    "trees and log, which all of these have in common here, cost more than locks that nobody else wants";

const UPDATING: &str = "--read-percent 0";

fn rate(series: impl Into<String>, at: At) -> Quantity {
    Quantity::spot(PLOT, series, at)
}

pub(super) fn execution_threads(scale: Scale) -> Experiment {
    let mut runs = Vec::new();
    let controls = scale.pick(&[1_u32, 4][..], &[4, 8, 16][..]);
    for &control in controls {
        for &execution in scale.pick(&[2_u32, 16, 32][..], &[4, 8, 16, 32, 48, 64][..]) {
            let arguments = format!(
                "bench ycsb --records {} --value-bytes 1000 {UPDATING} --execution partitioned --partitions {control} --partitions-per-transaction 1 \
                 --drawn-by engine --in-flight 8 --cores {} --set execution_threads={execution} --durability lazy {}",
                scale.pick(10_000, 200_000),
                control + execution,
                length(scale, true)
            );
            let mut run = point(arguments, System::Orthrus(Some(1)), execution);
            run.takes[0].series = format!("{control} control threads");
            runs.push(run);
        }
    }
    let few = format!("{} control threads", controls[0]);
    let many = format!("{} control threads", controls[controls.len() - 1]);
    let more = f64::from(controls[controls.len() - 1]) / f64::from(controls[0]);
    Experiment {
        id: "5.3",
        paper: Paper::Orthrus,
        figure: "Figure 5",
        title: "Execution threads for a fixed number of control threads",
        runs,
        plots: vec![lines(PLOT, "execution threads")],
        claims: vec![
            Claim::at_least(
                "throughput rises with execution threads first",
                rate(&many, At::Peak),
                rate(&many, At::First),
                2.0,
                1.2,
                "rises",
            ),
            Claim::at_least(
                "then it stays",
                rate(&few, At::Last),
                rate(&few, At::Peak),
                0.85,
                0.7,
                "a plateau",
            )
            .because(
                Cause::Machine,
                "16 execution threads lie on two sockets, 32 on four, so that the one thread that locks for them reads its messages from further \
                 away: 170 lines of a transaction come from other sockets, with 16 threads 103",
            ),
            Claim::times(
                "the plateau grows with the control threads",
                rate(&many, At::Peak),
                rate(&few, At::Peak),
                more,
                1.5,
            ).because(Cause::Experiment, "32 execution threads do not fill four control threads: they wait for nothing, and compute for all of their time but for lines of memory. With one \
                 control thread they are idle for a third of it"),
        ],
        remark: "Quick: 1 and 4 control threads; the paper's 4, 8 and 16 otherwise. 10,000 records when quick, 200,000 otherwise; the paper has 10 million.",
    }
}

/// The systems of figures 6 and 7, each with and without tables of its own for each partition.
const SYSTEMS: [(System, bool); 5] = [
    (System::Store, true),
    (System::Orthrus(Some(0)), false),
    (System::Orthrus(Some(0)), true),
    (System::DeadlockFree, false),
    (System::DeadlockFree, true),
];

fn name(system: System, split: bool) -> String {
    let name = match system {
        System::Orthrus(_) => "ORTHRUS".to_owned(),
        other => other.name(),
    };
    match (system, split) {
        (System::Store, _) | (_, false) => name,
        _ => format!("split {name}"),
    }
}

fn with_partitions(scale: Scale, system: System, split: bool, cores: u32, touched: u32) -> String {
    let system = if matches!(system, System::Orthrus(_)) { System::Orthrus(Some(touched)) } else { system };
    let mut rest = UPDATING.to_owned();
    if !matches!(system, System::Orthrus(_)) {
        rest.push_str(&format!(" --partitions-per-transaction {touched}"));
    }
    if matches!(system, System::DeadlockFree) {
        rest.push_str(&format!(" --partitions {cores}"));
    }
    // Each thread of the store has a partition of its own, and so have those whose indexes are divided among the
    // threads. In ORTHRUS partitions are the control threads'.
    if matches!(system, System::Store) || (split && matches!(system, System::DeadlockFree)) {
        rest.push_str(" --own-partition");
    }
    if split {
        rest.push_str(" --split");
    }
    ycsb(scale, system, cores, &rest)
}

pub(super) fn partitions_of_a_transaction(scale: Scale) -> Experiment {
    let cores = scale.pick(20, 80);
    let mut runs = Vec::new();
    for (system, split) in SYSTEMS {
        for &touched in scale.pick(&[1, 2, 4][..], &[1, 2, 4, 6, 8, 10][..]) {
            let mut run = point(with_partitions(scale, system, split, cores, touched), system, touched);
            run.takes[0].series = name(system, split);
            runs.push(run);
        }
    }
    let at = |system, split, x| rate(name(system, split), At::X(x));
    let store = |x| at(System::Store, true, x);
    let orthrus = System::Orthrus(Some(0));
    Experiment {
        id: "5.4",
        paper: Paper::Orthrus,
        figure: "Figure 6",
        title: "Ten updates from one partition or more: a store with a latch for each partition, ORTHRUS, ordered locks",
        runs,
        plots: vec![lines(PLOT, "partitions of a transaction")],
        claims: vec![
            Claim::times(
                "one partition: the store is twice ORTHRUS",
                store(1.0),
                at(orthrus, false, 1.0),
                2.0,
                1.6,
            )
            .because(Cause::Technique, LOCKS_ARE_LITTLE),
            Claim::times(
                "2.6 times deadlock-free locking",
                store(1.0),
                at(System::DeadlockFree, false, 1.0),
                2.6,
                1.6,
            )
            .because(Cause::Technique, LOCKS_ARE_LITTLE),
            Claim::times("1.3 times split ORTHRUS", store(1.0), at(orthrus, true, 1.0), 1.3, 1.6)
                .because(Cause::Technique, LOCKS_ARE_LITTLE),
            Claim::times(
                "1.5 times split deadlock-free locking",
                store(1.0),
                at(System::DeadlockFree, true, 1.0),
                1.5,
                1.6,
            )
            .because(Cause::Technique, LOCKS_ARE_LITTLE),
            Claim::at_most(
                "from two partitions on the store collapses",
                store(2.0),
                store(1.0),
                0.5,
                0.8,
                "collapses",
            ),
            Claim::at_least(
                "deadlock-free locking is flat",
                at(System::DeadlockFree, false, 4.0),
                at(System::DeadlockFree, false, 1.0),
                0.9,
                0.75,
                "flat",
            ),
        ],
        remark: "Quick runs have 20 cores in place of 80. What splitting gains in the paper, locality of caches, shows in part at most: what \
                 several cores of the simulated machine use stays with each of them, whether it would find room there or not.",
    }
}

pub(super) fn share_of_two(scale: Scale) -> Experiment {
    let cores = scale.pick(20, 80);
    let mut runs = Vec::new();
    for (system, split) in [SYSTEMS[0], SYSTEMS[1], SYSTEMS[3]] {
        for &share in scale.pick(&[0, 20, 100][..], &[0, 20, 40, 60, 80, 100][..]) {
            let arguments = format!(
                "{} --multi-partition-percent {share}",
                with_partitions(scale, system, split, cores, 2)
            );
            let mut run = point(arguments, system, share);
            run.takes[0].series = name(system, split);
            runs.push(run);
        }
    }
    let at = |system, split, x| rate(name(system, split), At::X(x));
    let orthrus = System::Orthrus(Some(0));
    Experiment {
        id: "5.5",
        paper: Paper::Orthrus,
        figure: "Figure 7",
        title: "A share of the transactions takes its records from two partitions",
        runs,
        plots: vec![lines(PLOT, "percent of two partitions")],
        claims: vec![
            Claim::at_least(
                "ORTHRUS is ahead of deadlock-free locking even if all have two",
                at(orthrus, false, 100.0),
                at(System::DeadlockFree, false, 100.0),
                1.05,
                0.97,
                "always ahead",
            )
            .because(
                Cause::Technique,
                "a fifth of the cores does nothing but lock, and nobody else wants these locks: the 16 that run \
                 transactions do 22,900 a second each, 20 under deadlock-free locking 19,900",
            ),
            Claim::at_least(
                "the store wins if none has two",
                at(System::Store, true, 0.0),
                at(orthrus, false, 0.0),
                1.1,
                1.0,
                "ahead at 0 %",
            )
            .because(Cause::Technique, LOCKS_ARE_LITTLE),
            Claim::at_most(
                "and loses soon: if a fifth has two",
                at(System::Store, true, 20.0),
                at(orthrus, false, 20.0),
                0.8,
                1.0,
                "behind",
            ),
        ],
        remark: "Quick runs have 20 cores in place of 80. 10,000 records when quick, 200,000 otherwise; the paper has 10 million.",
    }
}
